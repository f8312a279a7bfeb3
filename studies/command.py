"""Command ``python -m studies``: Monte Carlo studies of the papers, and our own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.streams import say, say_done, say_error
from dpbayes.core.errors import StudyError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study, or: list")],
    replicates: Annotated[
        int | None, typer.Option(help="Simulated data sets [the study's default].")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of a local Dask cluster [one per core].")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="A Dask scheduler instead: tls://HOST:PORT.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New directory for finished pieces, tables and figures.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the study in --out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all pieces.")] = 1,
) -> None:
    """Run a Monte Carlo study and print its tables beside the figures that it is compared with.

    Finished pieces are in OUT/pieces at once; a study that was stopped goes on with --resume and
    gives what it would have given. Results depend on the seed alone, not on the workers.
    `python -m studies list` lists the studies.
    """
    from studies.catalogue import STUDIES  # studies draw figures
    from studies.runner import failures, run_study

    if name == "list":
        width = max(map(len, STUDIES))
        say(f"{'study':<{width}}  replicates  what it is")
        for item in STUDIES.values():
            say(f"{item.name:<{width}}  {item.replicates:>10,}  {item.summary}")
        return
    if name not in STUDIES:
        raise StudyError(f"unknown study {name!r}; studies: {', '.join(STUDIES)}.")
    if scheduler is not None and workers is not None:
        raise StudyError("--workers is for a local cluster; --scheduler has its own.")
    if resume and out is None:
        raise StudyError("--resume needs --out, the directory to go on with.")
    report = run_study(
        STUDIES[name],
        replicates,
        out,
        seed=seed,
        workers=workers,
        scheduler=scheduler,
        resume=resume,
        progress=sys.stderr.isatty(),
    )
    say(f"\n{report.text}")
    if out is not None:
        say_done(f"\nWritten: {out}")
        if failed := failures(out):
            say_error(
                f"warning: {len(failed)} piece(s) failed twice and are missing; why is in "
                f"{out / 'failures'}. --resume tries them again."
            )
