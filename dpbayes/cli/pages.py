"""``dpbayes report``: pages of a release for people to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import ShowValues
from dpbayes.cli.streams import say
from dpbayes.errors import OutputError, SchemaError
from dpbayes.files import write_whole
from dpbayes.schema import Schema, read_records


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of a release (--out).")],
    records: Annotated[
        Path | None, typer.Option(help="Confidential records: adds whole tables and risk.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema file of the records.")] = None,
    formula: Annotated[
        list[str] | None,
        typer.Option(help="A regression to fit to both, 'y ~ x'; may be given several times."),
    ] = None,
    keys: Annotated[
        str | None, typer.Option(help="Columns that an intruder knows: age,sex,zip.")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="Column that an intruder wants to know.")
    ] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Records of the same population that were not synthesised."),
    ] = None,
    show_values: ShowValues = False,
) -> None:
    """Write a page for the house, OUT/confidential/report.html, and one to publish beside the data.

    The first shows guarantee, utility, risk, diagnostics and how the release was made; it is
    confidential. The second, OUT/release/report.html, says nothing that guarantee.json does not.
    Both are single files that load nothing.
    """
    # Not above: they draw figures, and matplotlib takes long to import.
    from dpbayes.pages.build import PAGE, confidential_page, public_page
    from dpbayes.pages.comparison import Question
    from dpbayes.publication.output import CONFIDENTIAL, RELEASE

    if (records is None) != (schema is None):
        raise SchemaError("--records and --schema go together.")
    question = None
    if records is not None and schema is not None:
        question = Question(
            Schema.from_toml(schema),
            read_records(records),
            None if holdout is None else read_records(holdout),
            [name.strip() for name in (keys or "").split(",") if name.strip()],
            sensitive,
            formula or (),
            show_values,
        )
    elif formula or keys or holdout or sensitive:
        raise SchemaError("--formula, --keys, --sensitive and --holdout need --records.")
    inner, outer = confidential_page(out, question), public_page(out)
    for folder, content, mode in ((CONFIDENTIAL, inner, 0o600), (RELEASE, outer, 0o644)):
        try:
            write_whole(out / folder / PAGE, content, mode)
        except OSError as error:
            raise OutputError(f"{str(out / folder)!r}: {error.strerror}.") from None
    say(f"Written: {out / CONFIDENTIAL / PAGE} and {out / RELEASE / PAGE}")
