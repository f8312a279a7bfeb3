"""``dpbayes check``: test whether a Stan program keeps the privacy contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import ShowValues
from dpbayes.cli.streams import say
from dpbayes.core.errors import ProgramError
from dpbayes.engines import get_engine
from dpbayes.engines.contract import (
    BY_TEXT,
    ContractReport,
    check_contract,
    confidential_entries,
)
from dpbayes.schema import Schema
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.model import Program
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import Proof, refuse_broken

Checked = tuple[ContractReport, Proof]


def check(
    program: Annotated[Path, typer.Argument(metavar="FILE.stan", help="Your Stan program.")],
    schema: Annotated[
        Path | None,
        typer.Option(help="Schema file, TOML: records that it allows are made up for the check."),
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="'outcome ~ covariates', as for synthesize.")
    ] = None,
    constants: Annotated[
        Path | None, typer.Option(help="Public constants, JSON, as for synthesize.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="In place of --schema: all data of the program, JSON, with records that you made "
            "up; weights, anchor, clip_* and emit may be left out."
        ),
    ] = None,
    private: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --data: confidential entry [all with one value per record but X, group].",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="embedded or cmdstan.")] = "embedded",
    threads: Annotated[
        int, typer.Option(min=1, help="Threads per chain: checks what reduce_sum sums.")
    ] = 1,
    show_values: ShowValues = False,  # used by ``flattened``
) -> None:
    """Check that a Stan program keeps the privacy contract: by name, text and behaviour.

    No confidential record is read: the program is run on records that are made up from the schema.
    """
    if data is not None:
        if (schema, formula, constants) != (None,) * 3:
            raise ProgramError("--data stands in place of --schema, --formula and --constants.")
        report, proof = _on_data(program, data, private or None, engine, threads)
    elif schema is None or formula is None:
        raise ProgramError(
            "give the schema and formula of the later fit, from which records are made up "
            "(--schema, --formula, and --constants if the program has any); or all data of the "
            "program (--data)."
        )
    elif private:
        raise ProgramError("--private is for --data; a schema says which columns are public.")
    else:
        model = Program(program, formula, constants)
        report, proof = _on_schema(model, Schema.from_toml(schema), engine, threads)
    _say(program.name, report, proof)


def _on_schema(model: Program, schema: Schema, engine: str, threads: int) -> Checked:
    from dpbayes.mechanisms.posterior.made_up import CHECKED, check_on_made_up

    bound = model.on(schema)
    compiled = get_engine(engine).compile(bound.program)
    return check_on_made_up(bound, compiled, schema, CHECKED, threads), bound.proof


def _on_data(
    program: Path, file: Path, private: list[str] | None, engine: str, threads: int
) -> Checked:
    stan = StanProgram.from_file(program)
    data = read_json_data(file)
    names = confidential_entries(data, private)
    proof = refuse_broken(stan, names)
    compiled = get_engine(engine).compile(stan)
    return check_contract(stan, compiled, data, names, threads=threads), proof


def _say(name: str, report: ContractReport, proof: Proof) -> None:
    say(f"{name} keeps the contract at {report.points} random points.")
    for line in report.passed:
        say(f"  ok  {line}")
    if proof.proved:
        entries = ", ".join(report.private)
        say(f"  ok  proved from its text, at all points and for all values of {entries}")
        say("  ok  the prior is proper")
    else:
        say("Not proved from its text; a strict release needs --allow-unproved, and says so:")
        for finding in proof.findings:
            say(f"  --  {finding}")
    say("Not checked, your claim:")
    for line in (text for text in report.not_checked if not (proof.proved and text in BY_TEXT)):
        say(f"  --  {line}")
