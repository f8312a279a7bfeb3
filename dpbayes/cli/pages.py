"""``dpbayes report``: a confidential and a public page about a release."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import RECORDS, InputOptions, ShowValues
from dpbayes.cli.streams import say, shows_progress
from dpbayes.cli.whole import Holdout, Sensitive, names_of
from dpbayes.core.errors import DataError, InferenceError, SchemaError
from dpbayes.schema import Schema


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of a release (--out).")],
    source: InputOptions,
    records: Annotated[str | None, typer.Option(help=f"{RECORDS} Adds whole tables.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Schema file of the records. Adds title and code book.")
    ] = None,
    date: Annotated[
        datetime.datetime | None,
        typer.Option(
            metavar="DAY", formats=["%Y-%m-%d"], help="Day of the release, for readers: 2026-12-31."
        ),
    ] = None,
    formula: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMULA", help="A regression to fit to both, 'y ~ x'. May be given again."
        ),
    ] = None,
    keys: Annotated[
        str | None, typer.Option(help="Columns that an intruder knows: age,sex,zip.")
    ] = None,
    sensitive: Sensitive = None,
    holdout: Holdout = None,
    show_values: ShowValues = False,
) -> None:
    """Write OUT/confidential/report.html for internal use, and a page to publish with the data.

    The first shows guarantee, utility, risk, diagnostics and how the release was made; it is
    confidential. The second, OUT/release/report.html, is made from the files of the release and the
    schema, never from the records. Both are single files that load nothing.
    """
    # Imported here: they draw figures, and matplotlib takes long to import.
    from dpbayes.pages.comparison import PageTopic
    from dpbayes.pages.confidential import confidential_page
    from dpbayes.pages.readers import PAGE, public_page, write_pages
    from dpbayes.publication.output import CONFIDENTIAL, RELEASE

    declared = None if schema is None else Schema.from_toml(schema)
    if records is None and (formula or keys or holdout or sensitive):
        raise SchemaError("--formula, --keys, --sensitive and --holdout need --records.")
    if sensitive and not keys:
        raise SchemaError("--sensitive needs --keys: what an intruder knows.")
    if records is not None and declared is None:
        raise SchemaError("--records needs --schema.")

    def compared() -> bytes:
        if records is None or declared is None:
            return confidential_page(out)
        question = PageTopic(
            declared,
            source.read(records, declared),
            None if holdout is None else source.read(holdout, declared),
            names_of(keys),
            sensitive,
            formula or (),
            show_values,
            shows_progress(),
        )
        try:
            return confidential_page(out, question)
        except InferenceError as error:
            raise InferenceError(f"Confidential: {error}") from None
        except DataError as error:  # or a kind of it, whose constructor takes other arguments
            raise DataError(f"Confidential: {error}") from None

    write_pages(out, public_page(out, declared, None if date is None else date.date()), compared)
    if declared is None:
        say("The page for readers has no title and no code book: give --schema.")
    elif declared.guesses:
        say("The page for readers has no code book: the schema has guesses left to confirm.")
    say(f"Written: {out / CONFIDENTIAL / PAGE} and {out / RELEASE / PAGE}")
