"""``dpbayes combine``: analyse a release."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.streams import say, say_error
from dpbayes.inference.analysis import analyse, formula_fit, read_release


def combine(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="Folder with synthetic_1.csv ...")
    ],
    formula: Annotated[str, typer.Option(help="Of released columns: 'y ~ x + C(group)'.")],
    model: Annotated[str, typer.Option(help="ols, logit or poisson.")] = "ols",
    rule: Annotated[
        str | None,
        typer.Option(help="modips [default], rubin, raghunathan, reiter2002 or raab."),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals, in (0, 1).")] = 0.95,
) -> None:
    """Fit a regression to each data set of a release and combine the estimates.

    Uses the release only. Warns where a rule is known to fail for the release's mechanism.
    """
    found = read_release(release)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        combined = analyse(found, formula_fit(formula, model), rule)
    table = combined.table(level)
    say(
        f"{model} {formula}: {combined.datasets} data sets by {found.mechanism!r}, rule "
        f"{combined.rule!r}\n"
    )
    say(table.to_string(float_format=lambda v: f"{v:.4g}"))
    for text in dict.fromkeys(str(w.message) for w in caught):
        say_error(f"warning: {text}")
