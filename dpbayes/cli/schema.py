"""``dpbayes schema``: draft and check schema files, and print their JSON Schema for editors."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dpbayes.cli.options import RECORDS, Data, InputOptions, ShowValues, check_kept, flattened
from dpbayes.cli.streams import say, say_done
from dpbayes.core.errors import DataError, OutputError, SchemaError
from dpbayes.core.files import read_text, refuse_in_release
from dpbayes.planning.made_up import invented
from dpbayes.publication.output import as_output_error
from dpbayes.records.formats.source import File, is_address
from dpbayes.schema import Schema
from dpbayes.schema.confirmation import (
    GuessedColumn,
    changed,
    confirmed,
    guessed_columns,
    left_out,
)
from dpbayes.schema.draft import FEWEST, MARK, guesses, text
from dpbayes.schema.editors import json_schema
from dpbayes.schema.suggestions import identifiers
from dpbayes.schema.table import KNOWN
from dpbayes.stan.sequence import Sequence

MADE_UP = 200  # rows with which rules are tried
schema_app = typer.Typer(no_args_is_help=True, help="Write and check schemas.")


@schema_app.command()
@flattened
def draft(
    data: Data,
    source: InputOptions,
    out: Annotated[
        Path | None, typer.Option(help="New file, TOML [name of DATA with .toml, here].")
    ] = None,
) -> None:
    """Write a schema with a GUESSED mark on all that was read off the records.

    The file is confidential until the guesses are gone: replace each from documentation, a
    questionnaire or a law. A strict release refuses a schema with a guess left.
    """
    name = "records" if is_address(data) else Path(File.of(Path(data)).name).stem
    path = out or Path(f"{name}.toml")
    if os.path.lexists(path):
        raise OutputError(f"--out {str(path)!r} exists; name a new file.")
    refuse_in_release(path)
    records = source.coded(data)
    if records.frame.empty:
        raise DataError("the records have no row: a draft is read off their values.")
    guessed = guesses(records.frame, records.labels, records.titles)
    content = text(guessed).encode()
    with as_output_error(path, "No schema was written."):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as stream:
            stream.write(content)
    # Names are not shown: in a file without a header they are values of a record.
    if len(records.frame) < FEWEST:
        say(
            f"{len(records.frame)} rows only: bounds and levels are those of few records. Replace "
            "all of them."
        )
    if sum(map(_is_value, records.frame.columns)) > len(records.frame.columns) / 4:
        say(
            "Names of columns look like values: if the file has no line of names, its first record "
            "was taken for one. Add such a line."
        )
    if left_out := sum(not guess.entry for guess in guessed.values()):
        say(f"Left out, with the reason in the file: {left_out} of {len(guessed)} columns.")
    if any(guess.of_persons for guess in guessed.values()):
        say(
            "Several rows may be of one person: fill in [cluster] in the file, or [panel] where "
            "they are in order of time, or ε will be for a row, not for a person."
        )
    say_done(
        f"Written: {path}, confidential (mode 0600). Replace what is marked GUESSED by what is "
        f"public, or confirm it: dpbayes schema confirm {path}; then: dpbayes schema check {path}"
    )


def _is_value(name: str) -> bool:
    """Tell whether a column's name is a number or a day."""
    return re.fullmatch(r"[-+]?[\d.,:/ -]*\d[\d.,:/ -]*", name.strip()) is not None


@schema_app.command()
@flattened
def check(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Schema file, TOML.")],
    source: InputOptions,
    records: Annotated[str | None, typer.Option(help=RECORDS)] = None,
    show_values: ShowValues = False,
) -> None:
    """Check a schema file, and with --records that they fit it.

    Exit code 2 if the file is wrong, or has guesses left.
    """
    declared = Schema.from_toml(schema)
    if not declared.columns:
        raise SchemaError(f"{schema} declares no column to synthesise.")
    bounded = all(c.levels or c.upper is not None for c in declared.columns.values())
    if bounded and (declared.kept or declared.asked):
        invented(declared, MADE_UP, np.random.default_rng(0))  # or no row keeps the rules
    if records is not None:
        frame = source.read(records, declared)
        declared.validate(frame, show_values=show_values)
        declared.check_identifiers(frame)
        say("The records fit the schema.")
        grouped = declared.cluster is not None or declared.unit is not None
        repeated = [] if grouped else identifiers({str(name): frame[name] for name in frame})
        for name in repeated:
            if name in declared.columns and declared[name].type != "continuous":
                say(
                    f"Note: values of {name!r} repeat like an identifier's. If they are persons, "
                    "a number or text of theirs is released, and ε is for a row, not for a person: "
                    'declare it with type = "identifier", and [cluster].'
                )
    check_kept(declared)
    models = Sequence.from_toml(schema, "schema")
    if models is not None:
        models.on(declared)
    public = sum(column.public for column in declared.columns.values())
    say(f"{schema}: {len(declared.columns)} columns, {public} of them public.")
    if declared.guesses:
        raise SchemaError(
            f"{schema} has guesses left: {declared.guesses}. Confirm or replace each from public "
            f"knowledge, and take it out of the column's list `{MARK}`."
        )
    say_done("Nothing in it is marked as guessed.")


@schema_app.command()
def confirm(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Draft of a schema.")],
) -> None:
    """Confirm guesses column by column, with the source that says so.

    The file is written after each answer, so that you can stop at any time; comments stay.
    """
    Schema.from_toml(schema)
    text, skipped = read_text(schema), 0
    while columns := guessed_columns(text)[skipped:]:
        column = columns[0]
        say(f"\n{column.name}, the first of {len(columns)} columns with guesses")
        for note in column.notes:
            say(f"  {note}")
        for key, line in column.lines.items():
            say(f"  {line}    {column.reasons[key]}")
        try:
            answer = typer.prompt(
                "all, some keys, a line such as upper = 100, leave out, later, or quit",
                default="",
                show_default=False,
            )
            if answer.strip() == "quit":
                break
            if answer.strip() == "later":
                skipped += 1
                continue
            text = _answered(text, column, answer.strip())
        except SchemaError as error:
            say(str(error))
            continue
        except typer.Abort:  # the end of the input
            break
        with as_output_error(schema, "The answer was not saved."):
            _replace(schema, text)
    left, said = len(guessed_columns(text)), tomllib.loads(text)
    say_done(f"{schema}: {left} columns have guesses left.")
    unsaid = [key for key in KNOWN if key not in said]
    if not left and unsaid:
        say(f"The file says nothing of {', '.join(unsaid)}: add what applies (docs/schema.md).")


def _answered(text: str, column: GuessedColumn, answer: str) -> str:
    """Return the text of a schema file after an answer about a column.

    Raises:
        SchemaError: the answer cannot be followed, or the file would be no schema.
    """
    if not answer:
        raise SchemaError(
            "`all` confirms all guesses of this column, and names of keys (`lower upper`) confirm "
            "these; a line replaces a value and confirms it; `leave out` drops the column, `later` "
            "goes on to the next, and `quit` ends. What is answered is saved at once."
        )
    if answer == "leave out":
        text = left_out(text, column.name)
        Schema.from_dict(tomllib.loads(text))
        return text
    if "=" in answer:
        text = changed(text, column.name, answer)
        keys = [key for key in (answer.partition("=")[0].strip(),) if key in column.lines]
    else:
        keys = list(column.lines) if answer == "all" else answer.replace(",", " ").split()
    Schema.from_dict(tomllib.loads(confirmed(text, column.name, keys)))  # before it is asked who
    source = typer.prompt("Who says so (questionnaire 2024, p. 12)", "", show_default=False)
    return confirmed(text, column.name, keys, source)


def _replace(path: Path, text: str) -> None:
    """Replace a file by one rename, readable for its owner alone."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
        new.write(text)
    os.replace(new.name, path)


@schema_app.command("json")
def json_() -> None:
    """Print a JSON Schema of schema files, for editors that complete and check TOML."""
    say(json.dumps(json_schema(), indent=2, ensure_ascii=False))
