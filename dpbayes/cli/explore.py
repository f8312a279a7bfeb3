"""``dpbayes explore``: a local page to try settings on reference records."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from dpbayes.cli.models import ModelOptions
from dpbayes.cli.options import InputOptions, refuse_confidential
from dpbayes.cli.streams import say
from dpbayes.core.lazy import pd
from dpbayes.schema import Schema
from dpbayes.schema.rows import check_room
from dpbayes.stan.model import ModelChoice

if TYPE_CHECKING:
    from dpbayes.explore.trial import Explorer


def explore(
    reference: Annotated[
        str,
        typer.Option(help="Public records, such as those of an earlier period: FILE or address."),
    ],
    source: InputOptions,
    model: ModelOptions,
    rows: Annotated[
        int | None, typer.Option(help="Records of the table to be released [as many as these].")
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of 127.0.0.1 [any free one].", min=0, max=65535)
    ] = 0,
) -> None:
    """Serve a page, to this machine alone, to try mechanisms and settings.

    It shows bounds, what is clamped and what is left of the data, on REFERENCE records: public
    ones, or an older collection. Settings that are chosen by looking at the records to be released
    are a disclosure that no ε covers. The address has a token; nothing is loaded from elsewhere and
    nothing is written. Ctrl-C ends it.
    """
    from dpbayes.explore.server import Site, filled
    from dpbayes.explore.settings import CONTROLS, offered
    from dpbayes.explore.trial import Explorer
    from dpbayes.explore.worker import Worker

    refuse_confidential(reference)
    schema = Schema.from_toml(model.schema)
    if rows is not None:
        check_room(rows, len(schema.columns), 1)
    records = source.read(reference, schema)
    choice = model.choice() if model.given else None
    typed = _typed(model)
    explorer = Explorer(schema, choice, records, rows, typed)
    settings = offered(explorer.schema, explorer.model)
    about = (
        f"Reference: {len(records):,} records of {len(schema.columns)} columns; the table to be "
        f"released has {explorer.rows:,}."
    )
    page = filled({"offered": settings, "controls": CONTROLS, "about": about})
    worker = Worker(_explorer, schema, choice, records, rows, typed)
    with Site(page, explorer.facts, worker, port) as site:
        say(f"Open {site.address} (Ctrl-C ends it)")
        try:
            site.serve_forever(poll_interval=0.2)
        finally:
            worker.close()


def _explorer(
    schema: Schema,
    choice: ModelChoice | None,
    records: pd.DataFrame,
    rows: int | None,
    typed: tuple[str, str],
) -> Explorer:
    """Create the explorer inside the worker process."""
    from dpbayes.explore.trial import Explorer

    return Explorer(schema, choice, records, rows, typed)


def _typed(model: ModelOptions) -> tuple[str, str]:
    """Command-line options of the schema and of the model, quoted to be typed again."""
    options = {
        key: f"--{key} {shlex.quote(str(value))}"
        for key, value in vars(model).items()
        if value is not None
    }
    return options.pop("schema"), " ".join(options.values())
