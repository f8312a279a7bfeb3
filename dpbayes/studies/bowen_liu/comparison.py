"""Bowen & Liu, simulation studies 1 (binary data) and 2 (continuous data), as curves over ε.

The paper shows them in figures only. Two things that it does not say are taken so: its perturbed
and smoothed histograms cut by Scott's rule with the sample's standard deviation, which would have
to be paid for; here the true one stands for public knowledge. And data are drawn from the normal
distribution truncated to the bounds.

NumPy's noise behind the package's own mechanisms: for study only.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from dpbayes.inference.combining import combine
from dpbayes.mechanisms import BetaBinomial, BetaBinomialMR, SmoothedHistogram
from dpbayes.mechanisms.modips.conjugate import draw_normal, draw_share, normal_statistics
from dpbayes.mechanisms.tables.cells import make_axis
from dpbayes.mechanisms.tables.noisy import noisy_counts
from dpbayes.privacy.noise import Change, Statistic, StudyNoise
from dpbayes.report.charts import COLOURS, LINES
from dpbayes.schema import Column
from dpbayes.studies.runner import Chart, Piece, Report, Study

Floats = NDArray[np.float64]
Seed = int | np.random.SeedSequence
M = 5  # data sets, each with a fifth of ε
REPLICATES = 5000  # as in the paper
EPSILONS = tuple(math.exp(k) for k in range(-4, 5))
BINARY_N, SHARES = (40, 100, 1000), (0.10, 0.25, 0.50)
NORMAL_N, VARIANCES = (20, 100, 1000), (1.0, 4.0, 9.0)
PRIOR = (1 / 3, 1 / 3)
LOW, HIGH = -3.0, 4.0  # bounds of the normal data, in standard deviations
AT_ONCE = 5_000_000  # synthetic values that are held together
BINARY_METHODS = ("original", "MS", "modips", "laplace", "beta-binomial", "beta-binomial-mr")
NORMAL_METHODS = ("original", "MS", "modips", "perturbed-histogram", "smoothed-histogram")
# What the ε of these studies is.
BUDGET = "ε of all data sets together, add/remove, strict ε-DP; NumPy's noise, for study only"
MEASURES = ("bias", "rmse", "width", "coverage")
AXIS = {"rmse": "RMSE", "width": "width of 95% interval"}


def intervals(estimate: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Combined estimates with the ends of 95% intervals.

    Args:
        estimate, variance: shape (data sets, ...); one data set has a normal interval.
    """
    if len(estimate) == 1:
        centre, half = estimate[0], stats.norm.ppf(0.975) * np.sqrt(variance[0])
        return centre, centre - half, centre + half
    combined = combine(estimate, variance)
    return combined.estimate, *combined.interval()


def summarise(estimate: Floats, variance: Floats, truth: float) -> dict[str, float]:
    """Bias, RMSE, mean width and coverage of 95% intervals, with the standard error of coverage.

    Args:
        estimate, variance: shape (data sets, replicates).
    """
    centre, low, high = intervals(estimate, variance)
    error = centre - truth
    covered = float(((low <= truth) & (truth <= high)).mean())
    return {
        "bias": float(error.mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "width": float((high - low).mean()),
        "coverage": covered,
        "se": math.sqrt(max(covered * (1 - covered), 1e-4) / error.size),
    }


def binary_release(
    method: str, ones: NDArray[np.int64], n: int, epsilon: float, noise: StudyNoise
) -> NDArray[np.int64]:
    """Synthetic counts, shape (data sets, replicates), for a total budget ``epsilon``."""
    rng = noise.rng
    x = np.broadcast_to(ones, (M, ones.size))
    if method == "original":
        return ones[None]
    if method == "MS":
        return rng.binomial(n, draw_share(x, n, PRIOR, rng))
    if method == "beta-binomial":
        alpha = BetaBinomial(epsilon / M).alpha(n)
        return rng.binomial(n, draw_share(x, n, (alpha, alpha), rng))
    if method == "beta-binomial-mr":  # one data set
        alpha = BetaBinomialMR(epsilon).alpha(n)
        return np.asarray(rng.binomial(n, (ones + alpha) / (n + 2 * alpha)))[None]
    count = Statistic("count", x, {"add-remove": Change(1)}, 0, n, integer=True)
    sanitised = count.sanitised(epsilon / M, "add-remove", noise)
    if method == "laplace":
        return sanitised
    return np.asarray(rng.binomial(n, draw_share(sanitised, n, PRIOR, rng)))


def run_binary(
    replicates: int = REPLICATES, seed: Seed = 1, epsilons: Iterable[float] = EPSILONS
) -> pd.DataFrame:
    """Study 1: inference on a share. One row for each ε, n, π and method."""
    noise = StudyNoise(np.random.default_rng(seed))
    rows = []
    for epsilon, n, share in itertools.product(epsilons, BINARY_N, SHARES):
        ones = noise.rng.binomial(n, share, replicates)
        for method in BINARY_METHODS:
            p = binary_release(method, ones, n, epsilon, noise) / n
            found = summarise(p, p * (1 - p) / n, share)
            case = {"epsilon": epsilon, "n": n, "truth": share, "method": method}
            rows.append({**case, "parameter": "share", **found})
    return pd.DataFrame(rows)


def normal_release(
    method: str, x: Floats, sigma: float, epsilon: float, noise: StudyNoise
) -> Iterator[Floats]:
    """Synthetic values, shape (replicates, n) for each data set, for a total budget ``epsilon``."""
    rng, (replicates, n) = noise.rng, x.shape
    bounds = (LOW * sigma, HIGH * sigma)
    if method == "original":
        yield x
    elif method in ("MS", "modips"):
        moments = normal_statistics(x.mean(axis=1), x.var(axis=1, ddof=1), n, bounds)
        for _ in range(M):
            mean, variance = (
                s.value if method == "MS" else s.sanitised(epsilon / M / 2, "add-remove", noise)
                for s in moments
            )
            mu, sd = draw_normal(mean, variance, n, rng)
            drawn = rng.normal(mu[:, None], sd[:, None], (replicates, n))
            yield np.clip(drawn, *bounds) if method == "modips" else drawn
    else:
        edges = make_axis(Column("x", "continuous", *bounds), "scott", sigma, n).edges
        assert edges is not None
        K = len(edges) - 1
        cell = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, K - 1)
        cell += K * np.arange(replicates)[:, None]
        counts = np.bincount(cell.ravel(), minlength=K * replicates).reshape(replicates, K)
        for _ in range(M if method == "perturbed-histogram" else 1):
            if method == "perturbed-histogram":
                weight = noisy_counts(counts, n, epsilon / M, "add-remove", noise) + 0.0
                weight[weight.sum(axis=1) == 0] = 1.0
            else:
                weight = counts + SmoothedHistogram(epsilon).alpha(n)
            held = rng.multinomial(n, weight / weight.sum(axis=1, keepdims=True))
            place = np.repeat(np.tile(np.arange(K), replicates), held.ravel())
            yield rng.uniform(edges[place], edges[place + 1]).reshape(replicates, n)


def moments(values: Floats) -> tuple[Floats, ...]:
    """Mean and variance with their variances, by row (Bowen & Liu, section 4.2)."""
    n = values.shape[1]
    mean = values.mean(axis=1)
    away = values - mean[:, None]
    squares = (away**2).sum(axis=1)
    s2 = squares / (n - 1)
    fourth = (away**4).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = np.where(squares > 0, fourth / (squares / n) ** 2 - 3, 0.0)
    of_s2 = s2**2 * np.maximum(2 / (n - 1) + kurtosis / n, 0.0)
    return mean, s2 / n, s2, of_s2


def run_normal(
    replicates: int = REPLICATES, seed: Seed = 1, epsilons: Iterable[float] = EPSILONS
) -> pd.DataFrame:
    """Study 2: inference on μ = 0 and σ². Bias, RMSE and width in units of σ, and of σ²."""
    noise = StudyNoise(np.random.default_rng(seed))
    rows = []
    for epsilon, n, variance in itertools.product(epsilons, NORMAL_N, VARIANCES):
        sigma = math.sqrt(variance)
        found = _normal_scenario(n, sigma, epsilon, replicates, noise)
        for method, (mean, of_mean, s2, of_s2) in found.items():
            case = {"epsilon": epsilon, "n": n, "truth": variance, "method": method}
            mu = summarise(mean / sigma, of_mean / variance, 0.0)
            rows.append({**case, "parameter": "mean", **mu})
            of_variance = summarise(s2 / variance, of_s2 / variance**2, 1.0)
            rows.append({**case, "parameter": "variance", **of_variance})
    return pd.DataFrame(rows)


def _normal_scenario(
    n: int, sigma: float, epsilon: float, replicates: int, noise: StudyNoise
) -> dict[str, Floats]:
    """By method: the four moments, shape (4, data sets, replicates)."""
    step = max(1, AT_ONCE // n)
    blocks: dict[str, list[Floats]] = {method: [] for method in NORMAL_METHODS}
    for start in range(0, replicates, step):
        size = (min(step, replicates - start), n)
        x = sigma * stats.truncnorm.rvs(LOW, HIGH, size=size, random_state=noise.rng)
        for method in NORMAL_METHODS:
            sets = [moments(z) for z in normal_release(method, x, sigma, epsilon, noise)]
            blocks[method].append(np.array(sets).transpose(1, 0, 2))
    return {method: np.concatenate(parts, axis=2) for method, parts in blocks.items()}


def curves(panels: Mapping[str, pd.DataFrame], linear: float | None = None) -> Chart:
    """A column for each panel, a row for each measure, a line over log ε for each method.

    Args:
        panels: by title: rows with epsilon, method and ``MEASURES``.
        linear: biases beyond ± this are on a logarithmic scale.
    """
    width = 2.3 * len(panels) + 0.6
    figure = Figure(figsize=(width, 8.4), dpi=120, layout="constrained")
    axes = figure.subplots(len(MEASURES), len(panels), sharex=True, sharey="row", squeeze=False)
    styles: dict[str, Any] = {}
    for column, (title, rows) in enumerate(panels.items()):
        for row, measure in enumerate(MEASURES):
            ax = axes[row, column]
            for method, part in rows.groupby("method", sort=False):
                place = styles.setdefault(str(method), len(styles))
                ax.plot(
                    np.log(part["epsilon"]), part[measure], color=(*COLOURS, "black")[place],
                    linestyle=("-", *LINES)[place], linewidth=1.4, label=method,
                )  # fmt: skip
            ax.spines[["top", "right"]].set_visible(False)
            if measure == "coverage":
                ax.axhline(0.95, color="black", linewidth=0.6)
                ax.set_xlabel("log ε")
            if measure in ("rmse", "width"):
                ax.set_yscale("log")
            if measure == "bias" and linear is not None:
                ax.set_yscale("symlog", linthresh=linear)
            if column == 0:
                ax.set_ylabel(AXIS.get(measure, measure))
        axes[0, column].set_title(title, fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    one_line = sum(0.6 + 0.075 * len(label) for label in labels) <= width
    columns = len(labels) if one_line else len(panels)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    shown = [rows.assign(panel=title) for title, rows in panels.items()]
    return Chart(figure, pd.concat(shown, ignore_index=True))


def scenarios(found: pd.DataFrame, parameter: str) -> dict[str, pd.DataFrame]:
    """Rows by n and true share; for normal data by n, because their scale changes nothing."""
    rows = found[found["parameter"] == parameter]
    if parameter == "share":
        cases = rows.groupby(["n", "truth"], sort=False)
        return {f"n = {n:,}, share {share:g}": part for (n, share), part in cases}
    rows = rows[rows["truth"] == rows["truth"].iloc[0]]
    return {f"n = {n:,}": part for n, part in rows.groupby("n", sort=False)}


def pieces(replicates: int) -> list[Piece]:
    """One for each ε."""
    return [{"replicates": replicates, "epsilon": epsilon} for epsilon in EPSILONS]


def piece(
    run: Callable[..., pd.DataFrame],
    seed: np.random.SeedSequence,
    replicates: int,
    epsilon: float,
) -> pd.DataFrame:
    """A study at one ε."""
    return run(replicates, seed, [epsilon])


def table(found: pd.DataFrame, parameter: str, n: int) -> str:
    """Every measure by log ε, for one n."""
    rows = found[(found["parameter"] == parameter) & (found["n"] == n)]
    rows = rows.assign(**{"log ε": rows["epsilon"].map(math.log).round().astype(int)})
    order = list(dict.fromkeys(rows["method"]))
    lines = []
    for measure in MEASURES:
        wide = rows.pivot(index=["truth", "method"], columns="log ε", values=measure)
        shown = wide.reindex(order, level="method").round(3).to_string()
        lines.append(f"{parameter}, n = {n}: {measure} by log ε\n\n{shown}\n")
    lines.append(f"Standard error of coverage at most {rows['se'].max():.3f}.")
    return "\n".join(lines)


def report_binary(found: pd.DataFrame) -> Report:
    """Study 1: curves, and tables for n = 100."""
    found = found.sort_values("epsilon", kind="stable")
    text = f"Inference on a share from synthetic data sets (Bowen & Liu, study 1)\n{BUDGET}\n\n"
    shown = table(found, "share", 100)
    return Report(text + shown, {"share": found}, {"share": curves(scenarios(found, "share"))})


def report_normal(found: pd.DataFrame) -> Report:
    """Study 2: curves, and tables for n = 100, σ = 1."""
    found = found.sort_values("epsilon", kind="stable")
    parts = {name: found[found["parameter"] == name] for name in ("mean", "variance")}
    shown = [table(rows[rows["truth"] == 1], name, 100) for name, rows in parts.items()]
    text = f"Inference on μ and σ² from synthetic data sets (Bowen & Liu, study 2)\n{BUDGET}\n\n"
    figures = {name: curves(scenarios(rows, name)) for name, rows in parts.items()}
    return Report(text + "\n\n".join(shown), parts, figures)


STUDY_1 = Study(
    "comparison-1",
    "Bowen & Liu, study 1: inference on a share, by ε, as curves",
    REPLICATES,
    pieces,
    functools.partial(piece, run_binary),
    report_binary,
)
STUDY_2 = Study(
    "comparison-2",
    "Bowen & Liu, study 2: inference on a mean and variance, by ε, as curves",
    REPLICATES,
    pieces,
    functools.partial(piece, run_normal),
    report_normal,
)
