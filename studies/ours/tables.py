"""Utility of `marginals` on whole confidential tables, compared with a bootstrap of the records.

Each replicate is a data set from a separate measurement. NumPy's noise: for study only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import pd
from dpbayes.demo.earnings import EARNINGS_MODEL, earnings
from dpbayes.mechanisms import Marginals
from dpbayes.plots.charts import COLOURS
from dpbayes.schema import Schema
from dpbayes.schema.rows import PUBLIC
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.adult import adult, adult_file
from studies.ours.table_measures import Comparison
from studies.runner import Chart, Piece, Report, Study
from studies.social import social

REPLICATES = 10
EPSILONS = (0.5, 1.0, 3.0, 5.0)
DELTA = 1e-9
PANELS = {
    "avg_ecdf": "avg-ECDF", "tvd2": "Total variation, two columns", "pmse": "pMSE ratio",
    "regression": "Largest error of a coefficient (se)",
}  # fmt: skip
TEN = (
    "age", "workclass", "education", "marital.status", "occupation", "relationship", "race", "sex",
    "hours.per.week", "income",
)  # fmt: skip
Loaded = tuple[pd.DataFrame, Comparison]


def earnings_table(*, whole: bool, keep: bool = False) -> Loaded:
    """Load the shipped earnings with every column confidential.

    Args:
        whole: all records instead of the sample.
        keep: the synthesis preserves the regression.
    """
    records, schema = earnings(whole=whole)
    columns = {n: replace(c, public=False) for n, c in schema.columns.items()}
    schema = Schema(columns, PUBLIC, keep=(EARNINGS_MODEL.formula,) if keep else ())
    compared = Comparison(
        schema,
        {"age": 14, "education": 21, "earnings": 20},
        "earnings",
        EARNINGS_MODEL.formula,
        "(earnings + age + education + gender + region)**2",
    )
    return schema.validate(records), compared


def _adult(columns: tuple[str, ...] | None) -> Loaded:
    records, schema = adult(columns)
    bins = {n: 20 for n, c in schema.columns.items() if not c.levels}
    # Leaves out a column that duplicates another, and one with dozens of rare levels.
    predictors = [
        f"Q('{n}')" for n in schema.columns if n not in ("education.num", "native.country")
    ]
    compared = Comparison(
        schema,
        bins,
        "age",
        "Q('hours.per.week') ~ age + I(age**2) + sex + race + Q('marital.status') + income",
        f"{' + '.join(predictors)} + (age + Q('hours.per.week') + sex + income)**2",
        target="income",
        fine="auto",  # whole numbers: in bins of five hours the mean of hours would be lost
    )
    return schema.validate(records), compared


def _social() -> Loaded:
    records, schema = social()
    compared = Comparison(
        schema,
        {"age": 19, "income": 20},
        "income",
        "income ~ age + I(age**2) + sex + marital + smoke",
        "(age + sex + income + income_missing + smoke)**2 + marital + ls",
        fine="auto",
    )
    return schema.validate(records), compared


def populations() -> dict[str, Callable[[], Loaded]]:
    """Functions that load each population whose records are installed, by name."""
    loaders: dict[str, Callable[[], Loaded]] = {
        "earnings": lambda: earnings_table(whole=False),
        "earnings, all": lambda: earnings_table(whole=True),
        "Adult, 10": lambda: _adult(TEN),
        "Adult, 15": lambda: _adult(None),
        "earnings, kept": lambda: earnings_table(whole=False, keep=True),
        "earnings, all, kept": lambda: earnings_table(whole=True, keep=True),
        "Social Diagnosis, 6": _social,
    }
    try:
        adult_file()
    except DataError:
        return {name: load for name, load in loaders.items() if name.startswith("earnings")}
    return loaders


def pieces(replicates: int) -> list[Piece]:
    """One piece per data set: without privacy, and at every ε and δ."""
    losses = [(None, 0.0), *((epsilon, delta) for epsilon in EPSILONS for delta in (0.0, DELTA))]
    return [
        {"population": name, "epsilon": epsilon, "delta": delta}
        for name in populations()
        for epsilon, delta in losses
        for _ in range(replicates)
    ]


def run(
    seed: np.random.SeedSequence, population: str, epsilon: float | None, delta: float
) -> pd.DataFrame:
    """Run one data set and return its measures in one row.

    The classifier is tested on a random half of the records; for the bootstrap it is trained on the
    other half.
    """
    records, compared = populations()[population]()
    rng = np.random.default_rng(seed)
    start = time.process_time()
    if epsilon is None:
        data = _resampled(records, rng)
    else:
        bins = compared.bins if compared.fine == "bins" else "auto"
        mechanism = Marginals(epsilon, delta=delta, bins=bins, adjacency="add-remove")
        fit = Synthesizer(compared.schema, mechanism).fit(records)
        data = fit.sample(accept="none", seed=int(rng.integers(2**31))).datasets[0]
    seconds = time.process_time() - start
    measured = compared.measures(records, compared.schema.validate(data))
    if compared.target is not None:
        order = rng.permutation(len(records))
        test, train = (records.iloc[part] for part in np.array_split(order, 2))
        measured["auc"] = compared.auc(train if epsilon is None else data, test)
    row = {"population": population, "n": len(records), "epsilon": epsilon, "delta": delta}
    return pd.DataFrame([{**row, **measured, "seconds": seconds}])


def _resampled(records: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    rows = rng.integers(len(records), size=len(records))
    return records.iloc[rows].reset_index(drop=True)


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Means and standard errors over replicates; the bootstrap has an infinite ε."""
    keys = ["population", "n", "epsilon", "delta"]
    values = found.assign(epsilon=found["epsilon"].astype(float).fillna(np.inf))
    grouped = values.drop(columns="piece").groupby(keys, sort=False)
    means, errors = grouped.mean(), grouped.sem().add_suffix(" se")
    return pd.concat([means, errors], axis=1).reset_index()


def report(found: pd.DataFrame) -> Report:
    """Report a table of means, and a figure of the measures by ε."""
    means = table(found)
    left_out = means.columns.str.endswith(" se") | means.columns.str.startswith("outcome")
    shown = means.loc[:, ~left_out]
    text = (
        "Whole tables by `marginals`, every column confidential; means of data sets from "
        "measurements of their own\n(add/remove; ε = inf: a bootstrap of the records; regression: "
        "errors of coefficients in standard errors)\n\n" + rounded_columns(shown)
    )
    return Report(text, {"tables": means}, {"tables": chart(means)})


def rounded_columns(made: pd.DataFrame) -> str:
    """Format as text, with a number of digits that suits each column."""
    digits = {"avg_ecdf": "{:.6f}", "delta": "{:g}", "epsilon": "{:g}", "n": "{:,}"}
    numbers = map(str, made.select_dtypes("number"))
    formats = {name: digits.get(name, "{:.3f}").format for name in numbers}
    return made.to_string(index=False, formatters=formats, na_rep="")


def chart(made: pd.DataFrame) -> Chart:
    """Draw a panel per measure, a line per population and δ, and the bootstrap as a level."""
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(3.3 * len(PANELS), 3.8), dpi=150, layout="constrained")
    colours = dict(zip(dict.fromkeys(made["population"]), COLOURS, strict=False))
    axes = np.atleast_1d(figure.subplots(1, len(PANELS)))
    lines = made[np.isfinite(made["epsilon"])].sort_values("epsilon")
    levels = made[~np.isfinite(made["epsilon"])]
    for ax, (measure, title) in zip(axes, PANELS.items(), strict=True):
        for (name, delta), part in lines.groupby(["population", "delta"]):
            ax.errorbar(
                part["epsilon"], part[measure], part[f"{measure} se"], color=colours[name],
                linestyle="--" if delta else "-", marker="o", markersize=3,
            )  # fmt: skip
        for name, level in zip(levels["population"], levels[measure], strict=True):
            ax.axhline(level, color=colours[name], linestyle=":", linewidth=1)
        ax.set(title=title, xlabel="ε", xscale="log", yscale="log", xticks=EPSILONS)
        ax.set_xticklabels([f"{epsilon:g}" for epsilon in EPSILONS])
        ax.minorticks_off()
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    handles += [
        Line2D([], [], color="0.3", linestyle="-", label="δ = 0"),
        Line2D([], [], color="0.3", linestyle="--", label=f"δ = {DELTA:g}"),
        Line2D([], [], color="0.3", linestyle=":", label="bootstrap of the records"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return Chart(figure, made)


STUDY = Study(
    "tables",
    "whole tables by marginals: earnings; Adult and Social Diagnosis where they are installed",
    REPLICATES,
    pieces,
    run,
    report,
)
