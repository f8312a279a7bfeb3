"""``dpbayes demo``: the main job on real data that come with the package."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dpbayes.cli.streams import is_terminal, say, say_done, say_table
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
    """Run seven synthesizers at epsilon = 5 on shipped earnings data of real persons.

    Fits a beta regression to 1,601 records of the Current Population Survey and prints the layout
    of Table 2 of Hu, Williams & Savitsky: Lipschitz bound, epsilon = 2 x bound, distance of the
    distribution functions, and summaries of the data next to the synthetic data.

    OUT/release is a release by the mechanism `anchored`, strict, as `dpbayes synthesize` leaves it;
    OUT/confidential has the table and figures of all synthesizers, and what the release keeps.
    """
    from dpbayes.demo.run import run_demo  # draws figures

    result = run_demo(quick=quick, progress=is_terminal(), out=out)
    say(f"\n{result.title}\n")
    say_table(_table(result.table))
    say("\nGuarantee of one data set")
    for line in result.lines:
        say(f"  {line}")
    say("\nConvergence")
    for name, diagnostics in result.diagnostics.items():
        say(f"  {name}: {diagnostics}")
    if out is not None:
        say_done(
            f"\nWritten: {out / RELEASE}, synthetic earnings by anchored with their guarantee; "
            f"{out / CONFIDENTIAL}, figures and table"
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
