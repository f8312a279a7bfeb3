"""``dpbayes check``: test whether a Stan program keeps the privacy contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import ShowValues
from dpbayes.cli.streams import say
from dpbayes.engines import get_engine
from dpbayes.engines.contract import PROPER, check_contract, confidential_entries
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import refuse_broken


def check(
    program: Annotated[Path, typer.Argument(metavar="FILE.stan", help="Your Stan program.")],
    constants: Annotated[
        Path,
        typer.Option(
            help="All its data, JSON: constants, and records made up for the check; weights, "
            "anchor, clip_* and emit may be left out."
        ),
    ],
    private: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Confidential data entry [all with one value per record but X, group].",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="embedded or cmdstan.")] = "embedded",
    threads: Annotated[
        int, typer.Option(min=1, help="Threads per chain: checks what reduce_sum sums.")
    ] = 1,
    show_values: ShowValues = False,  # used by ``flattened``
) -> None:
    """Check that a Stan program keeps the privacy contract: by name, text and behaviour."""
    stan = StanProgram.from_file(program)
    data = read_json_data(constants)
    names = confidential_entries(data, private or None)
    proof = refuse_broken(stan, names)
    compiled = get_engine(engine).compile(stan)
    report = check_contract(stan, compiled, data, names, threads=threads)
    say(f"{program.name} keeps the contract at {report.points} random points.")
    for line in report.passed:
        say(f"  ok  {line}")
    if proof.proved:
        entries = ", ".join(names)
        say(f"  ok  proved from its text, at all points and for all values of {entries}")
        say("  ok  the prior is proper")
    else:
        say("Not proved from its text; a strict release needs --allow-unproved, and says so:")
        for finding in proof.findings:
            say(f"  --  {finding}")
    say("Not checked, your claim:")
    for line in (text for text in report.not_checked if not (proof.proved and text == PROPER)):
        say(f"  --  {line}")
