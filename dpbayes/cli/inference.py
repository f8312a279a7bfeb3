"""``dpbayes combine``: analyse a release."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.streams import say, say_error
from dpbayes.core.errors import InferenceError, refused
from dpbayes.inference.analysis import analyse, of_one, read_release
from dpbayes.inference.combining import RULES
from dpbayes.inference.regressions import MODELS, formula_fit

UNFIT = "the data sets, or what guarantee.json says of them, do not fit this analysis"


def combine(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="Folder with synthetic_1.csv ...")
    ],
    formula: Annotated[str, typer.Option(help="Of released columns: 'y ~ x + C(group)'.")],
    model: Annotated[str, typer.Option(help=f"{', '.join(MODELS[:-1])} or {MODELS[-1]}.")] = "ols",
    rule: Annotated[
        str | None, typer.Option(help=f"{', '.join(RULES)}; by default that of the mechanism.")
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals, in (0, 1).")] = 0.95,
) -> None:
    """Fit a regression to each data set of a release and combine the estimates.

    Uses the release only. Says so beside every interval that no rule is known to cover. Of one data
    set of a share, --formula 'y ~ 1', the interval is that of a model of the mechanism.
    """
    found = read_release(release)
    by = f"by {found.mechanism!r}"
    if len(found.datasets) == 1 and rule is None:
        with refused(InferenceError, UNFIT):
            table = of_one(found, formula, level)
        say(f"{formula}: 1 data set {by}, model of the mechanism\n")
        say(table.to_string(float_format=lambda v: f"{v:.4g}"))
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with refused(InferenceError, UNFIT):
            combined = analyse(found, formula_fit(formula, model, found.levels), rule)
            table = combined.table(level)
    say(f"{model} {formula}: {combined.datasets} data sets {by}, rule {combined.rule!r}\n")
    say(table.to_string(float_format=lambda v: f"{v:.4g}"))
    for text in dict.fromkeys(str(w.message) for w in caught):
        say_error(f"warning: {text}")
