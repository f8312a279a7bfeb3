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
from dpbayes.mechanisms import PosteriorMechanism
from dpbayes.records.formats.source import place
from dpbayes.records.overlap import Identity
from dpbayes.synthesis.synthesizer import Synthesizer

EXCEEDED = 1  # exit code
CANDIDATES, NEIGHBOURS = 60, 12  # by default


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

    The mechanism runs on the records and on neighbours at once and is given the same random
    answers on both. What each answer costs is worked out exactly, and what no answer pays for has
    to be the same: settings, private outputs, synthetic rows. Of Stan programs the posteriors are
    compared exactly, too: the largest log ratio on public points, for a record added and for a
    record changed. There is no error rate. An audit can reject a claim, not prove it. Its output is
    confidential, and costs nothing for that reason; a ledger notes that somebody looked. Exit code
    1 if ε is exceeded.
    """
    if runs:
        from dpbayes.evaluate.audit_sampled import check_runs

        check_runs(runs)
    chosen = mechanism.build(model)
    posterior = isinstance(chosen, PosteriorMechanism)
    if not posterior and (candidates is not None or runs):
        raise GuaranteeError(
            f"mechanism {chosen.name!r} has no Stan program: leave out --candidates and --runs. "
            "Its answers are compared on neighbours, whose number --neighbours says."
        )
    synthesizer = model.synthesizer(chosen, allow_unproved=True)
    records = source.read(data, synthesizer.schema)
    declared = synthesizer.schema.validate(records, show_values=show_values)
    ledger = account.open()
    if ledger is not None and account.account is not None:
        ledger.record_audit(
            account.account, Identity(records, declared), chosen.name, place(data), account.note
        )
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
    """True if answers with noise cost more than is claimed for them."""
    from dpbayes.evaluate.exact import audit_exact  # the engines with it

    found = audit_exact(synthesizer, records, neighbours)
    if not posterior or found.questions or found.violated:
        _say(found, found.record, f"{found.neighbours} neighbours tried")
    return found.violated


def _densities(
    synthesizer: Synthesizer[Any], records: pd.DataFrame, candidates: int, runs: int
) -> bool:
    """True if a Stan program's posterior exceeds its ε."""
    from dpbayes.evaluate.audit import audit as search
    from dpbayes.evaluate.audit_sampled import audit_sampled

    fit = synthesizer.fit(records, allow_nonconvergence=True)
    found = search(fit, candidates)
    _say(found, found.record, f"{found.candidates} tried")
    if not runs:
        return found.violated
    sampled = audit_sampled(synthesizer, records, pd.DataFrame([found.record]), runs)
    say(str(sampled))
    return found.violated or sampled.violated


def _say(found: object, record: Mapping[str, Any], tried: str) -> None:
    say(str(found))
    values = ", ".join(f"{key} = {value}" for key, value in record.items())
    say(f"Record that did most: {values} ({tried})")
