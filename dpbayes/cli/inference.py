"""``dpbayes combine``: fit a regression to the data sets of a release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbayes.cli.streams import say, say_error
from dpbayes.core.errors import InferenceError, refused
from dpbayes.formula.formula import columns_of
from dpbayes.inference.analysis import analyse, of_one, read_release
from dpbayes.inference.combining import RULES
from dpbayes.inference.coverage import of_slopes, told_apart
from dpbayes.inference.regressions import MODELS, formula_fit

UNFIT = "the data sets, or what guarantee.json says of them, do not fit this analysis"


FEW = 3  # degrees of freedom, with which an interval at 95 % has 3.2 standard errors on each side


def combine(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="Folder with synthetic_1.csv ...")
    ],
    formula: Annotated[str, typer.Option(help="Regression on the release: 'y ~ x + C(group)'.")],
    model: Annotated[str, typer.Option(help=f"{', '.join(MODELS[:-1])} or {MODELS[-1]}.")] = "ols",
    rule: Annotated[
        str | None, typer.Option(help=f"{', '.join(RULES)}; by default that of the mechanism.")
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals, in (0, 1).")] = 0.95,
) -> None:
    """Fit a regression to each data set of a release and combine the estimates.

    Only the release is used. Intervals that no rule is known to cover are marked. For a share in a
    single data set, --formula 'y ~ 1', the interval is based on a model of the mechanism.
    """
    contents = read_release(release)
    by = f"by {contents.mechanism!r}"
    if len(contents.datasets) == 1 and rule is None:
        with refused(InferenceError, UNFIT):
            table = of_one(contents, formula, level)
        say(f"{formula}: 1 data set {by}, model of the mechanism\n")
        say(table.to_string(float_format=lambda v: f"{v:.4g}"))
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with refused(InferenceError, UNFIT):
            fit = formula_fit(formula, model, contents.levels, contents.unit)
            combined = analyse(contents, fit, rule)
            table = combined.table(level)
            merged = _merged_levels(contents.settings, formula)
    say(f"{model} {formula}: {combined.datasets} data sets {by}, rule {combined.rule!r}\n")
    say(table.to_string(float_format=lambda v: f"{v:.4g}"))
    if few := int((table["df"] < FEW).sum()):
        say_error(
            f"warning: {few} of {len(table)} rows have fewer than {FEW} degrees of freedom: the "
            "data sets hardly differ there by more than samples do, so that they do not tell how "
            "uncertain these rows are. Do not rely on their intervals."
        )
    for text in dict.fromkeys(str(w.message) for w in caught):
        say_error(f"warning: {text}")
    for text in merged:
        say_error(f"warning: {text}")
    slopes = of_slopes(contents.mechanism)
    if slopes is not None and len(table) > 1:
        say_error(f"warning: {slopes}")


def _merged_levels(settings: Mapping[str, Any], formula: str) -> list[str]:
    """Sentences on columns of a formula of which levels are put together, unless it was kept."""
    sentences = told_apart(settings)
    if not sentences:
        return []
    outcome, covariates = columns_of(formula)
    kept = [columns_of(text) for text in settings.get("keep", ())]
    own = {name for left, right in kept if left == outcome for name in right}
    used = {*outcome, *covariates} - own
    used |= {name.partition(".")[2] for name in used}  # of before.NAME, or ROLE.NAME
    return [text for name, text in sentences.items() if name in used]
