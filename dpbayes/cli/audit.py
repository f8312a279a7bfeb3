"""``dpbayes audit``: look for a record that breaks the claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import MechanismOptions, ModelOptions
from dpbayes.cli.streams import say
from dpbayes.errors import GuaranteeError
from dpbayes.heavy import pd
from dpbayes.mechanisms import PosteriorMechanism
from dpbayes.schema import read_records

EXCEEDED = 1  # exit code


def audit(
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="Confidential records, CSV.")],
    model: ModelOptions,
    mechanism: MechanismOptions,
    candidates: Annotated[int, typer.Option(help="Records of the declared domain to try.")] = 60,
    runs: Annotated[
        int, typer.Option(help="Also run the mechanism so often on each neighbour, and bound ε.")
    ] = 0,
) -> None:
    """Search for a record that moves the posterior by more than the mechanism's ε.

    Exact: both neighbours on one grid, for programs with up to three parameters; the largest log
    ratio over the grid, for a record added and for a record changed. An audit can reject a claim,
    not prove it. Its output is confidential. Exit code 1 if ε is exceeded.
    """
    from dpbayes.evaluate.audit import audit as search  # the engines with it
    from dpbayes.evaluate.audit_sampled import audit_sampled

    chosen = mechanism.build()
    if not isinstance(chosen, PosteriorMechanism):
        raise GuaranteeError(
            f"mechanism {chosen.name!r} has no posterior to look at; this command is for Stan "
            "programs. Its sensitivities are tested by brute force over neighbours."
        )
    synthesizer = model.synthesizer(chosen)
    records = read_records(data)
    found = search(synthesizer.fit(records, allow_nonconvergence=True), candidates)
    say(str(found))
    values = ", ".join(f"{key} = {value}" for key, value in found.record.items())
    say(f"Record added: {values} ({found.candidates} tried)")
    violated = found.violated
    if runs:
        sampled = audit_sampled(synthesizer, records, pd.DataFrame([found.record]), runs)
        say(str(sampled))
        violated = violated or sampled.violated
    if violated:
        raise typer.Exit(EXCEEDED)
