"""``dpbayes audit``: look for a record that breaks the claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dpbayes.cli.models import ModelOptions
from dpbayes.cli.options import AccountOptions, Data, InputOptions, MechanismOptions, ShowValues
from dpbayes.cli.streams import say
from dpbayes.cli.whole import CONFIDENTIAL
from dpbayes.errors import GuaranteeError
from dpbayes.evaluate.bounds import RUNS
from dpbayes.formats.source import place
from dpbayes.heavy import pd
from dpbayes.mechanisms import PosteriorMechanism
from dpbayes.schema.overlap import Identity
from dpbayes.synthesizer import Synthesizer

EXCEEDED = 1  # exit code
CANDIDATES = 60  # by default


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
        int | None,
        typer.Option(
            help="How often to run the mechanism on each of two neighbours, to bound ε from below "
            f"[{RUNS}; for Stan programs 0, because each run is a fit]."
        ),
    ] = None,
    show_values: ShowValues = False,
) -> None:
    """Search for a record that moves what is drawn by more than the mechanism's ε.

    Stan programs are examined exactly, up to five parameters: the largest log ratio of both
    neighbours' posteriors on public points, for a record added and for a record changed. Other
    mechanisms are run on both neighbours, with records at the ends of the declared domain; the
    lower bounds on ε are right with 95 % confidence. An audit can reject a claim, not prove it.
    Its output is confidential, and costs nothing for that reason; a ledger notes that somebody
    looked. Exit code 1 if ε is exceeded.
    """
    chosen = mechanism.build(model)
    exact = isinstance(chosen, PosteriorMechanism)
    if not exact and candidates is not None:
        raise GuaranteeError(
            f"mechanism {chosen.name!r} has no Stan program: leave out --candidates. Records at "
            "the ends of the declared domain are tried; --runs says how often."
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
    if exact:
        violated = _posterior(synthesizer, records, candidates, runs)
    else:
        violated = _outputs(synthesizer, records, runs)
    if violated:
        raise typer.Exit(EXCEEDED)


def _posterior(
    synthesizer: Synthesizer[Any], records: pd.DataFrame, candidates: int | None, runs: int | None
) -> bool:
    """True if a Stan program's mechanism exceeds its ε."""
    from dpbayes.evaluate.audit import audit as search  # the engines with it
    from dpbayes.evaluate.audit_sampled import audit_sampled

    fit = synthesizer.fit(records, allow_nonconvergence=True)
    found = search(fit, CANDIDATES if candidates is None else candidates)
    _say(found, found.record, f"{found.candidates} tried")
    if not runs:
        return found.violated
    sampled = audit_sampled(synthesizer, records, pd.DataFrame([found.record]), runs)
    say(str(sampled))
    return found.violated or sampled.violated


def _outputs(synthesizer: Synthesizer[Any], records: pd.DataFrame, runs: int | None) -> bool:
    """True if another mechanism exceeds its ε."""
    from dpbayes.evaluate.audit_outputs import audit_outputs

    found = audit_outputs(synthesizer, records, RUNS if runs is None else runs)
    _say(found, found.record, "of those at the ends of the declared domain")
    return found.violated


def _say(found: object, record: Mapping[str, Any], tried: str) -> None:
    say(str(found))
    values = ", ".join(f"{key} = {value}" for key, value in record.items())
    say(f"Record that did most: {values} ({tried})")
