"""``dpbayes audit``: look for a record that breaks the claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dpbayes.cli.models import ModelOptions
from dpbayes.cli.options import AccountOptions, Data, InputOptions, MechanismOptions, ShowValues
from dpbayes.cli.streams import say
from dpbayes.cli.whole import CONFIDENTIAL
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import table_of
from dpbayes.records.formats.source import place
from dpbayes.synthesis.synthesizer import Synthesizer

EXCEEDED = 1  # exit code if the claimed ε is exceeded
CANDIDATES, NEIGHBOURS = 60, 12  # defaults


def audit(
    data: Data,
    source: InputOptions,
    model: ModelOptions,
    mechanism: MechanismOptions,
    account: AccountOptions,
    candidates: Annotated[
        int | None,
        typer.Option(help=f"Stan programs: records of the declared domain to try [{CANDIDATES}]."),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(min=0, help="Stan programs: fit so often on two neighbours, too; hours."),
    ] = 0,
    neighbours: Annotated[
        int,
        typer.Option(min=1, help="Tables that differ in one record to compare answers on."),
    ] = NEIGHBOURS,
    show_values: ShowValues = False,
) -> None:
    """Search for a record that moves what is drawn by more than the mechanism's ε.

    The mechanism runs on the records and on neighbouring tables, with the same random answers. The
    cost of each answer is computed exactly; all that no answer pays for must be equal: settings,
    private outputs, synthetic rows. Posteriors of Stan programs are compared exactly as well: the
    largest log ratio on public points, for a record added and for a record changed. There is no
    error rate. An audit can reject a claim, not prove it. Its output is confidential, and therefore
    costs nothing; a ledger records the audit. Exit code 1 if ε is exceeded.
    """
    if runs:
        from dpbayes.evaluate.audit_sampled import check_runs

        check_runs(runs)
    chosen = mechanism.build(model)
    posterior = chosen.draws_posterior
    if not posterior and (candidates is not None or runs):
        raise GuaranteeError(
            f"mechanism {chosen.name!r} has no Stan program: leave out --candidates and --runs. "
            "Its answers are compared on neighbours, whose number --neighbours says."
        )
    synthesizer = model.synthesizer(chosen, allow_unproved=True)
    records = source.read(data, synthesizer.schema)
    presented = identity_of(table_of(synthesizer.schema, records, show_values=show_values))
    ledger = account.open()
    if ledger is not None and account.account is not None:
        ledger.record_audit(account.account, presented, chosen.name, place(data), account.note)
    say(CONFIDENTIAL)
    violated = _answers(synthesizer, records, neighbours, posterior=posterior)
    if posterior:
        violated |= _densities(
            synthesizer, records, CANDIDATES if candidates is None else candidates, runs
        )
    from dpbayes.evaluate.exact import UNSEEN, UNSEEN_CHAINS

    unseen = (*UNSEEN, UNSEEN_CHAINS) if posterior else UNSEEN
    say(f"Not seen by this audit: {'; '.join(unseen)}.")
    if violated:
        raise typer.Exit(EXCEEDED)


def _answers(
    synthesizer: Synthesizer[Any], records: pd.DataFrame, neighbours: int, *, posterior: bool
) -> bool:
    """Audit the noisy answers on neighbours; true if they cost more than the claimed ε."""
    from dpbayes.evaluate.exact import audit_exact  # imports the engines

    result = audit_exact(synthesizer, records, neighbours)
    if not posterior or result.questions or result.violated:
        _say(result, result.record, f"{result.neighbours} neighbours tried")
    return result.violated


def _densities(
    synthesizer: Synthesizer[Any], records: pd.DataFrame, candidates: int, runs: int
) -> bool:
    """Audit the posterior of a Stan program; true if it exceeds the claimed ε."""
    from dpbayes.evaluate.audit import audit as search
    from dpbayes.evaluate.audit_sampled import audit_sampled

    fit = synthesizer.fit(records, allow_nonconvergence=True)
    result = search(fit, candidates)
    _say(result, result.record, f"{result.candidates} tried")
    if not runs:
        return result.violated
    sampled = audit_sampled(synthesizer, records, pd.DataFrame([result.record]), runs)
    say(str(sampled))
    return result.violated or sampled.violated


def _say(result: object, record: Mapping[str, Any], tried: str) -> None:
    say(str(result))
    values = ", ".join(f"{key} = {value}" for key, value in record.items())
    say(f"Record that did most: {values} ({tried})")
