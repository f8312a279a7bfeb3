"""Hu, Williams & Savitsky, section 4: all synthesizers on R = 100 data sets, ε = 5, 4 and 3.

n = 2000 from Beta(0.5, 3). Tables 1 and 3 count records with truncated weight (``weighted-e``) or
censored likelihood (``censored-weighted``, ``censored``), beside the printed figures; the violins
are those of Figures 2 to 8 and 10 to 19. ``anchored`` is ours. The paper does not say how many bins
its histogram has; here the square root of n, and its noise of scale 2/ε.

Two rows are not reproduced as the paper defines them, and each has a second reading beside it:

- *Tables 1 and 3, ``censored-weighted``.* The printed counts cannot be of weighted log-likelihoods
  beyond ε/2. A weight falls linearly from 1 to 0 as |f| goes from 0 to its largest value L, so that
  |α f| = |f| (1 - |f|/L) is a hump: at ε = 5 it is above 2.5 for no record unless L > 10, and at
  L = 15, the largest that the paper names, only while 3.17 < |f| < 11.83. That are 153 records on
  average (sd 12) under the true density, and at most 187 in 400 data sets; a quarter of the printed
  counts is above 260. The second reading counts records with unweighted |f| > ε/2, f the mean over
  the draws of ``weighted``, in data sets whose bound by ``weighted`` is above ε/2, and none in
  others.
- *Table 3, ``weighted-e``.* 0.8 α f > 4/2 if and only if α f > 5/2, so that its counts must be
  those of Table 1 at ε = 5, and the paper's are three times as large. The second reading is
  c1 = 0.9.

The records have a declared step of 10⁻¹⁵. At the default of 10⁻⁶ the smallest of them, which
decides L, would be moved to half a step, and L would be 7.4 to 7.9 in every data set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.engines import SamplerSettings
from dpbayes.evaluate.utility import avg_ecdf, max_ecdf, summary
from dpbayes.mechanisms import (
    Anchored,
    Censored,
    CensoredWeighted,
    PerturbedHistogram,
    PosteriorMechanism,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.mechanisms.posterior.risk import linear_weights, truncated_weights
from dpbayes.mechanisms.posterior.weights import ConfidentialWeights
from dpbayes.plots.charts import violin_panels
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.datasets import SKEWED_MODEL, SKEWED_SCHEMA, SKEWED_SHAPE, skewed
from studies.hu_williams_savitsky import illustration
from studies.runner import Chart, Piece, Report, Study, rounded

N = 2000
EPSILONS = (5.0, 4.0, 3.0)
DOWNSCALED = (4.0, 0.8)  # ε and c1 of section 4.4
REPLICATES = 100
OTHER_C1 = 0.9  # weighted-e then truncates about as many records as Table 3 prints for 0.8
OTHER = {
    "weighted-e": f"weighted-e, c1 = {OTHER_C1:g}",
    "censored-weighted": "censored-weighted, |f|",
}
QUANTITIES = ("min", "q1", "median", "mean", "q3", "max", "sd")
# (table, ε, c1, synthesizer): figures in the order of QUANTITIES.
PRINTED: dict[tuple[int, float, float, str], tuple[float, ...]] = {
    (1, 5.0, 1.0, "weighted-e"): (0, 0, 0, 29, 55, 166, 48.80),
    (1, 5.0, 1.0, "censored-weighted"): (0, 0, 0, 110, 260, 341, 129.59),
    (1, 5.0, 1.0, "censored"): (196, 236, 244, 247, 255, 296, 17.44),
    (1, 4.0, 1.0, "weighted-e"): (0, 130, 219, 195, 272, 364, 103.48),
    (1, 4.0, 1.0, "censored-weighted"): (0, 404, 425, 408, 440, 549, 92.56),
    (1, 4.0, 1.0, "censored"): (340, 398, 419, 419, 435, 481, 26.73),
    (1, 3.0, 1.0, "weighted-e"): (400, 536, 574, 573, 618, 684, 60.62),
    (1, 3.0, 1.0, "censored-weighted"): (655, 715, 741, 741, 763, 831, 35.66),
    (1, 3.0, 1.0, "censored"): (737, 787, 806, 809, 829, 888, 32.85),
    (3, 4.0, 0.8, "weighted-e"): (0, 0, 93, 91, 165, 269, 86.49),
    (3, 4.0, 0.8, "censored-weighted"): (0, 0, 0, 144, 328, 413, 165.66),
}
ORDER = (
    "data", "unweighted", "weighted", "weighted-e", "censored-weighted", "censored", "anchored",
    "perturbed-histogram",
)  # fmt: skip
MEASURES = {
    "lipschitz": "Lipschitz bound",
    "max_ecdf": "max-ECDF",
    "avg_ecdf": "avg-ECDF",
    "mean": "mean",
    "median": "median",
    "q15": "15th quantile",
    "q90": "90th quantile",
}


def cases() -> Iterable[tuple[float, float, PosteriorMechanism]]:
    """Yield (ε, c1, mechanism); ε is NaN if there is no target."""
    nan = float("nan")
    yield nan, 1.0, Unweighted()
    yield nan, 1.0, Weighted()
    for epsilon in EPSILONS:
        yield epsilon, 1.0, WeightedE(epsilon, adjacency="add-remove")
        yield epsilon, 1.0, CensoredWeighted(epsilon, adjacency="add-remove")
        yield epsilon, 1.0, Censored(epsilon, adjacency="add-remove")
        yield epsilon, 1.0, Anchored(epsilon, adjacency="add-remove")
    epsilon, c1 = DOWNSCALED
    scaled = ConfidentialWeights(c1, 0.0)
    yield nan, c1, Weighted(scaled)
    yield epsilon, c1, WeightedE(epsilon, scaled, adjacency="add-remove")
    yield epsilon, c1, CensoredWeighted(epsilon, weights=scaled, adjacency="add-remove")


def run(seed: np.random.SeedSequence, part: str = "data set") -> pd.DataFrame:
    """Run every synthesizer on one data set, a row for each, or the piece of Figure 1.

    Source: hu-williams-savitsky, section 4.1.
    """
    if part == "figure 1":
        return illustration.run(seed)
    rng = np.random.default_rng(seed)
    records = skewed(N, rng)
    settings = SamplerSettings(
        warmup=500, draws=500, seed=int(rng.integers(2**31)), parallel_chains=1
    )
    base = Synthesizer(SKEWED_SCHEMA, Unweighted(), SKEWED_MODEL, settings=settings)
    plain = base.fit(records, allow_nonconvergence=True)
    nan = float("nan")
    rows = [_row("data", nan, 1.0, records["y"], records["y"])]
    weighted: dict[float, Any] = {}  # fits, by c1
    for epsilon, c1, mechanism in cases():
        fit = base.with_mechanism(mechanism).refit(plain)
        row = _row(mechanism.name, epsilon, c1, records["y"], _draw(fit, rng))
        fitted = fit.fitted
        row["lipschitz"] = fitted.lipschitz_bound
        if mechanism.name == "weighted":
            weighted[c1] = fitted
        row["count"] = fitted.n_truncated if mechanism.name == "weighted-e" else fitted.n_censored
        row["count_other"] = _other_count(fitted, weighted.get(c1), mechanism.name, epsilon, c1)
        rows.append(row | {"converged": fitted.converged})
    for epsilon in EPSILONS:
        histogram = PerturbedHistogram(epsilon, adjacency="substitution")
        drawn = _draw(Synthesizer(SKEWED_SCHEMA, histogram).fit(records), rng)
        rows.append(_row(histogram.name, epsilon, 1.0, records["y"], drawn))
    return pd.DataFrame(rows)


def _other_count(fitted: Any, weighted: Any, name: str, epsilon: float, c1: float) -> float:
    """Count records by the second reading of a printed count; NaN if there is none.

    Args:
        weighted: fit by ``weighted`` with the same c1.
    """
    if name == "censored-weighted":
        if weighted.lipschitz_bound <= epsilon / 2:
            return 0.0
        f = np.mean(list(weighted.bound_records.log_lik(weighted.draws)), axis=0)
        return float((np.abs(f) > epsilon / 2).sum())
    if name == "weighted-e" and c1 != 1.0:
        f = fitted.risk_unweighted.sensitivity
        _, truncated = truncated_weights(linear_weights(f, OTHER_C1), f, epsilon)
        return float(truncated.sum())
    return float("nan")


def _draw(fit: Fit[Any], rng: np.random.Generator) -> pd.Series:
    (data,) = fit.sample(accept="none", seed=int(rng.integers(2**31))).datasets
    return data["y"]


def _row(
    name: str, epsilon: float, c1: float, original: pd.Series, synthetic: pd.Series
) -> dict[str, object]:
    return {
        "synthesizer": name,
        "epsilon": epsilon,
        "c1": c1,
        "max_ecdf": max_ecdf(original, synthetic),
        "avg_ecdf": avg_ecdf(original, synthetic),
        **summary(SKEWED_SCHEMA["y"], synthetic),
    }


def counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Tables 1 and 3, ours and the paper's, a row for each summary; with second readings.

    Source: hu-williams-savitsky, table 1; table 3.
    """
    count_rows = []
    for (table, epsilon, c1, name), printed in PRINTED.items():
        selected = (rows["synthesizer"] == name) & (rows["epsilon"] == epsilon) & (rows["c1"] == c1)
        readings = {name: "count"}
        if rows.loc[selected, "count_other"].notna().any():
            readings[OTHER[name]] = "count_other"
        for reading, column in readings.items():
            ours = _summaries(rows.loc[selected, column].to_numpy(dtype=float))
            for quantity, mine, theirs in zip(QUANTITIES, ours, printed, strict=True):
                count_rows.append((table, epsilon, c1, reading, quantity, mine, theirs))
    columns = ["table", "epsilon", "c1", "synthesizer", "quantity", "ours", "paper"]
    return pd.DataFrame(count_rows, columns=columns)


def _summaries(values: Floats) -> tuple[float, ...]:
    """Compute summaries in the order of ``QUANTITIES``."""
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    sd = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return values.min(), q1, median, values.mean(), q3, values.max(), sd


def shown(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Values that the violins of a measure show: panel, synthesizer, value.

    Synthesizers without a target appear in every panel.
    """
    unscaled = rows[rows["c1"] == 1.0]
    panels = {
        f"ε = {epsilon:g}": unscaled[(unscaled["epsilon"] == epsilon) | unscaled["epsilon"].isna()]
        for epsilon in EPSILONS
    }
    epsilon, c1 = DOWNSCALED
    panels[f"ε = {epsilon:g}, c1 = {c1:g}"] = rows[rows["c1"] == c1]
    values = pd.concat(
        [
            part.assign(panel=title, value=part[measure])[["panel", "synthesizer", "value"]]
            for title, part in panels.items()
        ],
        ignore_index=True,
    ).dropna()
    # The data have distance 0 from themselves, which shows nothing.
    return values[values["synthesizer"] != "data"] if "ecdf" in measure else values


def _violins(data: pd.DataFrame, label: str, heights: Iterable[float] | None) -> Chart:
    """Draw violins by panel, synthesizers in ``ORDER``, with a dashed line at each height."""
    panels: dict[str, dict[str, Floats]] = {}
    for title, part in data.groupby("panel", sort=False):
        groups = dict(list(part.groupby("synthesizer")["value"]))
        panels[str(title)] = {n: groups[n].to_numpy(float) for n in ORDER if n in groups}
    lines = None if heights is None else dict(zip(panels, heights, strict=True))
    return Chart(violin_panels(panels, label, lines), data)


def figures(rows: pd.DataFrame) -> dict[str, Chart]:
    """Draw violins of every measure, with ε/2 or the population's value as a dashed line.

    Source: hu-williams-savitsky, figure 2; figure 3; figure 4; figure 5; figure 6; figure 7;
    figure 8; figure 10; figure 11; figure 12; figure 13; figure 14; figure 15; figure 16;
    figure 17; figure 18; figure 19.
    """
    population = stats.beta(*SKEWED_SHAPE)
    truth = {
        "mean": population.mean(),
        "median": population.ppf(0.5),
        "q15": population.ppf(0.15),
        "q90": population.ppf(0.9),
    }
    bounds = [epsilon / 2 for epsilon in (*EPSILONS, DOWNSCALED[0])]
    charts = {}
    for measure, label in MEASURES.items():
        values = shown(rows, measure)
        heights = [float(truth[measure])] * len(bounds) if measure in truth else None
        if measure == "lipschitz":
            heights = bounds
            # Figures 2 and 6; Figure 10 also has the unweighted posterior.
            targeted = values[values["synthesizer"] != "unweighted"]
            charts["lipschitz-targeted"] = _violins(targeted, label, bounds)
        charts[measure] = _violins(values, label, heights)
    return charts


def report(rows: pd.DataFrame) -> Report:
    """Report Tables 1 and 3 beside the paper's, means of every measure, and the figures."""
    charts, rows = _apart(rows)
    table_counts = counts(rows)
    cells = table_counts["ours"].map("{:.0f}".format) + table_counts["paper"].map(
        " ({:.0f})".format
    )
    index = ["table", "epsilon", "c1", "synthesizer"]
    places = list(dict.fromkeys(map(tuple, table_counts[index].to_numpy())))
    table = table_counts.assign(cell=cells).set_index([*index, "quantity"])["cell"].unstack()
    order = [name for name in ORDER if name in set(rows["synthesizer"])]
    means = rows.groupby(["c1", "epsilon", "synthesizer"], dropna=False)[list(MEASURES)].mean()
    text = (
        f"Records with truncated weight or censored likelihood, n = {N}, "
        f"{rows['piece'].nunique()} data sets: ours, Tables 1 and 3 (in brackets)\n"
        "ε of one data set, add/remove: strict ε-DP for censored, anchored and perturbed-histogram "
        "(there for a changed record); a target, asymptotic, for the others\n\n"
        f"{table[list(QUANTITIES)].loc[places].to_string()}\n\n"
        "Means over the data sets\n\n"
        f"{rounded(means.reindex(order, level='synthesizer'), 4)}\n\n"
        f"Not converged: {int((rows['converged'] == False).sum())} of "  # noqa: E712
        f"{int(rows['converged'].notna().sum())} fits, kept as in the paper."
    )
    return Report(text, {"counts": table_counts, "rows": rows}, charts | figures(rows))


def _apart(rows: pd.DataFrame) -> tuple[dict[str, Chart], pd.DataFrame]:
    """Separate Figure 1, if its piece has run, from the rows of the data sets."""
    if "distribution" not in rows:
        return {}, rows
    of_figure = rows["distribution"].notna()
    drawn = rows.loc[of_figure, ["distribution", "at", "density", "centre"]]
    rest = rows[~of_figure].drop(columns=["distribution", "at", "density", "centre"])
    return {"figure-1": illustration.chart(drawn)}, rest


def pieces(replicates: int) -> list[Piece]:
    """One piece per data set, and a last one for Figure 1."""
    return [*({} for _ in range(replicates)), {"part": "figure 1"}]


STUDY = Study(
    "censoring",
    "Hu, Williams & Savitsky, section 4: Tables 1 and 3, Figure 1, violins, all synthesizers",
    REPLICATES,
    pieces,
    run,
    report,
)
