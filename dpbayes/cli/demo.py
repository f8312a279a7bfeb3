"""``dpbayes demo``: the main job on real data that come with the package."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dpbayes.cli.streams import say, say_done, say_table, shows_progress
from dpbayes.core.lazy import pd
from dpbayes.publication.output import CONFIDENTIAL, RELEASE


def demo(
    out: Annotated[
        Path | None, typer.Option(help="New directory for release/ and confidential/.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="401 of 1,601 records and half the draws.")
    ] = False,
) -> None:
    """Release shipped earnings data of real persons, and compare eight synthesizers of earnings.

    OUT/release is a release of the whole table, 1,601 records of the Current Population Survey, at
    epsilon = 1, with a page for readers; OUT/confidential has a page for the publisher.

    Then a gamma regression is fitted to the earnings, at epsilon = 5, and the layout of Table 2 of
    Hu, Williams & Savitsky is printed: Lipschitz bound, epsilon = 2 x bound, distance of the
    distribution functions, and summaries of the data next to the synthetic data. OUT/confidential
    has the table, and figures of all synthesizers.
    """
    from dpbayes.demo.run import run_demo  # draws figures
    from dpbayes.pages.readers import PAGE

    result = run_demo(quick=quick, progress=shows_progress(), out=out)
    say(f"\n{result.title}\n")
    say_table(_table(result.table))
    say("\nGuarantee of one data set")
    for line in result.lines:
        say(f"  {line}")
    say("\nConvergence")
    for name, diagnostics in result.diagnostics.items():
        say(f"  {name}: {diagnostics}")
    if out is None or result.released is None:
        return
    say("\nThe whole table, released")
    for line in result.released.guarantee.lines():
        say(f"  {line}")
    say_done(
        f"\nWhere to look, in {out}:\n"
        f"  {RELEASE}/{PAGE}: what a reader gets, beside the synthetic tables\n"
        f"  {CONFIDENTIAL}/{PAGE}: what holds and what is lost, for the publisher\n"
        f"  {CONFIDENTIAL}/comparison-lipschitz.png: each record's bound under each synthesizer\n"
        f"  {CONFIDENTIAL}/comparison-density.png: synthetic earnings beside those of the records"
    )


def _table(frame: pd.DataFrame) -> Table:
    """Format the table for a screen; names of synthesizers are broken to keep it narrow."""
    table = Table(box=None, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("")
    for name in frame.columns:
        table.add_column(name.replace("-", "-\n"), justify="right", vertical="bottom")
    for row, values in frame.iterrows():
        style = "{:.4f}" if "ECDF" in str(row) else "{:.2f}"
        cells = ["" if math.isnan(v) else style.format(v) for v in values]
        table.add_row(str(row), *cells)
    return table
