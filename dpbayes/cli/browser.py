"""``dpbayes app``: the whole job in a browser, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.options import Data, InputOptions
from dpbayes.cli.streams import say
from dpbayes.core.errors import DpbayesError
from dpbayes.records.formats.source import File, is_address

MISSING = "dpbayes app needs the extra `browser`: pip install 'dpbayes[browser]'."


def app(
    data: Data,
    source: InputOptions,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder of schema, choices and releases, confidential but for release/; an "
            "earlier one goes on [name of DATA with -release, here]."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of 127.0.0.1 [any free one].", min=0, max=65535)
    ] = 0,
) -> None:
    """Serve a page, to this machine alone, that goes from a file to a release in six steps.

    The file, its schema, what must hold, ε, the release, and a look at it. Open the address that is
    printed in a browser: it opens once. The page runs the commands that could be typed, and shows
    them. The program ends when the page is closed, or by Ctrl-C.
    """
    try:
        from dpbayes.app.serve import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn"):
            raise DpbayesError(MISSING) from None
        raise
    from dpbayes.app.project import Project

    name = "records" if is_address(data) else Path(File.of(Path(data)).name).stem
    folder = Path(f"{name}-release") if work is None else work
    reading = tuple(
        f"--{key.replace('_', '-')}={value}" for key, value in vars(source).items() if value
    )
    serve(Project.opened(folder, data, reading), port, say)
