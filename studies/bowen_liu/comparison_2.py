"""Bowen & Liu, simulation study 2: inference on mean and variance of normal data, over ε.

The paper shows results in figures only. Two choices are ours. First, its perturbed and smoothed
histograms use Scott's rule with the sample's standard deviation, which would cost privacy; here the
true one stands for public knowledge. Second, data are drawn from the normal distribution truncated
to the bounds.

NumPy's noise behind the package's own mechanisms: for study only.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.mechanisms import SmoothedHistogram
from dpbayes.mechanisms.modips.conjugate import draw_normal, normal_statistics
from dpbayes.mechanisms.tables.cells import make_axis
from dpbayes.mechanisms.tables.noisy import noisy_counts
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema import Column
from studies.bowen_liu.comparison import (
    EPSILONS,
    REPLICATES,
    M,
    Seed,
    curves,
    moments,
    piece,
    pieces,
    table,
)
from studies.bowen_liu.findings import STUDY_2
from studies.coverage import BUDGET, summarise
from studies.findings import judged, verdicts
from studies.runner import Report, Study

SIZES, VARIANCES = (20, 100, 1000), (1.0, 4.0, 9.0)
# Bounds of the data in standard deviations, from the paper and from its supplement.
BOUNDS = {"asymmetric": (-3.0, 4.0), "symmetric": (-4.0, 4.0)}
Range = tuple[float, float]
AT_ONCE = 5_000_000  # synthetic values held in memory at once
METHODS = ("original", "MS", "modips", "perturbed-histogram", "smoothed-histogram")


def release(
    method: str, x: Floats, ends: Range, sigma: float, epsilon: float, noise: StudyNoise
) -> Iterator[Floats]:
    """Draw data sets of synthetic values, shape (replicates, n), for a total budget ``epsilon``.

    Source: bowen-liu-2020, section 4.2.

    Args:
        ends: bounds of the values.
    """
    if method == "original":
        yield x
    elif method in ("MS", "modips"):
        yield from _from_moments(method, x, ends, epsilon, noise)
    else:
        yield from _from_histogram(method, x, ends, sigma, epsilon, noise)


def _from_moments(
    method: str, x: Floats, ends: Range, epsilon: float, noise: StudyNoise
) -> Iterator[Floats]:
    rng, n = noise.rng, x.shape[1]
    statistics = normal_statistics(x, ends, n, n)
    for _ in range(M):  # the paper's sensitivities are those of a changed record
        mean, variance = (
            s.exact if method == "MS" else s.sanitised(epsilon / M / 2, "substitution", noise)
            for s in statistics
        )
        mu, sd = draw_normal(mean, variance, n, rng)
        drawn = rng.normal(mu[:, None], sd[:, None], x.shape)
        yield np.clip(drawn, *ends) if method == "modips" else drawn


def _from_histogram(
    method: str, x: Floats, ends: Range, sigma: float, epsilon: float, noise: StudyNoise
) -> Iterator[Floats]:
    rng, (replicates, n) = noise.rng, x.shape
    edges = make_axis(Column("x", "continuous", *ends), "scott", sigma, n).edges
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
            weight = counts + SmoothedHistogram.alpha_at(epsilon, n)
        cell_sizes = rng.multinomial(n, weight / weight.sum(axis=1, keepdims=True))
        place = np.repeat(np.tile(np.arange(K), replicates), cell_sizes.ravel())
        yield rng.uniform(edges[place], edges[place + 1]).reshape(replicates, n)


def run(
    replicates: int = REPLICATES, seed: Seed = 1, epsilons: Iterable[float] = EPSILONS
) -> pd.DataFrame:
    """Run study 2, inference on μ = 0 and σ²: bias, RMSE and width in units of σ, and of σ².

    Symmetric bounds are run for σ = 1 only, as results do not depend on the scale of the data.
    """
    noise = StudyNoise(np.random.default_rng(seed))
    cases = [(name, v) for name in BOUNDS for v in VARIANCES[: None if name != "symmetric" else 1]]
    rows = []
    for epsilon, n, (bounds, variance) in itertools.product(epsilons, SIZES, cases):
        sigma = math.sqrt(variance)
        low, high = BOUNDS[bounds]
        scenario = _scenario(n, (low, high), sigma, epsilon, replicates, noise)
        for method, (mean, of_mean, s2, of_s2) in scenario.items():
            case = {
                "bounds": bounds, "epsilon": epsilon, "n": n, "truth": variance, "method": method
            }  # fmt: skip
            mu = summarise(mean / sigma, of_mean / variance, 0.0)
            rows.append({**case, "parameter": "mean", **mu})
            of_variance = summarise(s2 / variance, of_s2 / variance**2, 1.0)
            rows.append({**case, "parameter": "variance", **of_variance})
    return pd.DataFrame(rows)


def _scenario(
    n: int, bounds: Range, sigma: float, epsilon: float, replicates: int, noise: StudyNoise
) -> dict[str, Floats]:
    """Four moments by method, shape (4, data sets, replicates)."""
    ends = (bounds[0] * sigma, bounds[1] * sigma)
    step = max(1, AT_ONCE // n)
    blocks: dict[str, list[Floats]] = {method: [] for method in METHODS}
    for start in range(0, replicates, step):
        size = (min(step, replicates - start), n)
        x = sigma * stats.truncnorm.rvs(*bounds, size=size, random_state=noise.rng)
        for method in METHODS:
            sets = [moments(z) for z in release(method, x, ends, sigma, epsilon, noise)]
            blocks[method].append(np.array(sets).transpose(1, 0, 2))
    return {method: np.concatenate(parts, axis=2) for method, parts in blocks.items()}


def scenarios(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split rows of one variance by n; results do not depend on the scale of the data."""
    rows = found[found["truth"] == found["truth"].iloc[0]]
    return {f"n = {n:,}": part for n, part in rows.groupby("n", sort=False)}


def report(found: pd.DataFrame) -> Report:
    """Report study 2: curves, and tables for n = 100, σ = 1.

    Source: bowen-liu-2020, figure 3; figure 4.
    """
    found = found.sort_values("epsilon", kind="stable")
    parts = {
        name + ("" if bounds == "asymmetric" else f"-{bounds}"): found[
            (found["parameter"] == name) & (found["bounds"] == bounds)
        ]
        for bounds in BOUNDS
        for name in ("mean", "variance")
    }
    shown = [table(parts[name].query("truth == 1"), name, 100) for name in ("mean", "variance")]
    judgement = judged(STUDY_2, found)
    shown.append(verdicts(judgement))
    text = f"Inference on μ and σ² from synthetic data sets (Bowen & Liu, study 2)\n{BUDGET}\n\n"
    figures = {name: curves(scenarios(rows)) for name, rows in parts.items()}
    return Report(text + "\n\n".join(shown), {**parts, "findings": judgement}, figures)


STUDY = Study(
    "comparison-2",
    "Bowen & Liu, study 2: inference on a mean and variance, by ε, as curves",
    REPLICATES,
    pieces,
    functools.partial(piece, run),
    report,
)
