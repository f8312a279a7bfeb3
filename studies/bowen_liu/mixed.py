"""Common parts of Bowen & Liu's simulation studies 3 and 4.

Three columns with levels and two that are normal, n = 1000. The paper does not specify some
details, or leaves them to a supplement that was not available. These are chosen as follows:

- Squares of the histograms: Scott's rule for two dimensions with σ = 1 and expected counts, both as
  public knowledge, since the counts that the paper uses are confidential.
- Records of a cell follow its noisy count, scaled to a sum of n; squares are drawn.
- Pooled variances have the divisor n minus the number of cells with records.
- A replicate with a data set that gives no estimate of a parameter is left out for that parameter;
  ``missing`` is the share of these.

NumPy's noise behind the package's own mechanisms: for study only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import Fitted
from dpbayes.mechanisms.modips.mechanism import FittedModel
from dpbayes.mechanisms.modips.regression import as_levels
from dpbayes.mechanisms.modips.statistic_model import Sanitised
from dpbayes.mechanisms.tables.noisy import apportion, noisy_counts
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema import Column, Schema
from dpbayes.schema.rows import PUBLIC
from studies.bowen_liu.comparison import EPSILONS, M, Seed, curves, moments, table
from studies.coverage import BUDGET, MEASURES, intervals
from studies.findings import StudyFinding, judged, verdicts
from studies.runner import Chart, Piece, Report

Released = Iterator[tuple[str, float | None, Floats]]  # method, ε if it has one, data sets
N = 1000
EDGE = 4.0  # bounds are means ± 4 standard deviations
RHO = 0.5
ROOT = np.linalg.cholesky([[1, RHO], [RHO, 1]])
HISTOGRAMS = "laplace + perturbed-histogram"
NOT_PRIVATE = "paper's accounting (not private)"  # a method of study 4
SUMS = ["replicates", "estimated", "error", "squared", "width", "covered"]
LINEAR = 0.1  # biases of variances beyond this are drawn on a logarithmic scale
MOMENTS = {"variance 1": 1.0, "variance 2": 1.0, "correlation": RHO}


@dataclass(frozen=True)
class MixedDesign:
    """A study's data, releases and analysis. Data sets are arrays: w1, w2, w3 (from 0), z1, z2.

    Attributes:
        draw: draws one original data set, shape (n, 5).
        release: draws the data sets of all methods at these ε.
        analyse: computes estimates and variances, shape (2, data sets, parameters).
        truths: true values by parameter.
    """

    draw: Callable[[np.random.Generator], Floats]
    release: Callable[[Floats, Iterable[float], StudyNoise], Released]
    analyse: Callable[[Floats], Floats]
    truths: dict[str, float]


def run(
    design: MixedDesign, seed: Seed, replicates: int, epsilons: Iterable[float] = EPSILONS
) -> pd.DataFrame:
    """Run replicates and sum: a row for each ε, method and parameter; ``measures`` merges rows."""
    noise = StudyNoise(np.random.default_rng(seed))
    epsilons = tuple(epsilons)
    analyses: dict[tuple[str, float | None], list[Floats]] = {}
    for _ in range(replicates):
        released = list(design.release(design.draw(noise.rng), epsilons, noise))
        parts = design.analyse(np.concatenate([sets for *_, sets in released]))
        ends = np.cumsum([len(sets) for *_, sets in released])[:-1]
        for (method, epsilon, _), part in zip(released, np.split(parts, ends, axis=1), strict=True):
            analyses.setdefault((method, epsilon), []).append(part)
    rows = [
        _sums(np.stack(parts, axis=2), design.truths).assign(method=method, epsilon=at)
        for (method, epsilon), parts in analyses.items()
        for at in (epsilons if epsilon is None else (epsilon,))
    ]
    return pd.concat(rows, ignore_index=True)


def _sums(parts: Floats, truths: dict[str, float]) -> pd.DataFrame:
    """Sum over replicates, a row per parameter; input (2, sets, replicates, parameters)."""
    good = np.isfinite(parts).all(axis=(0, 1))
    centre, low, high = intervals(*np.where(good, parts, 1.0))
    truth = np.array(list(truths.values()))
    error = centre - truth
    columns = (
        np.ones(good.shape), good, good * error, good * error**2, good * (high - low),
        good & (low <= truth) & (truth <= high),
    )  # fmt: skip
    sums = {name: values.sum(axis=0) for name, values in zip(SUMS, columns, strict=True)}
    return pd.DataFrame({"parameter": list(truths), "truth": truth, "n": N, **sums})


def measures(sums: pd.DataFrame) -> pd.DataFrame:
    """Compute rows as in studies 1 and 2 from the sums of any number of pieces."""
    key = ["epsilon", "n", "truth", "method", "parameter"]
    totals = sums.groupby(key, sort=False)[SUMS].sum().reset_index()
    count = totals["estimated"]
    coverage = totals["covered"] / count
    rows = totals[key].assign(
        bias=totals["error"] / count,
        rmse=np.sqrt(totals["squared"] / count),
        width=totals["width"] / count,
        coverage=coverage,
        se=np.sqrt(np.maximum(coverage * (1 - coverage), 1e-4) / count),
        missing=1 - count / totals["replicates"],
        replicates=totals["replicates"].astype(int),
    )
    return rows.sort_values("epsilon", kind="stable", ignore_index=True)


def normal(size: int, rng: np.random.Generator) -> Floats:
    """Draw pairs with unit variances and correlation ρ, truncated to the bounds."""
    z = rng.standard_normal((size, 2)) @ ROOT.T
    while (outside := (np.abs(z) > EDGE).any(axis=1)).any():
        z[outside] = rng.standard_normal((int(outside.sum()), 2)) @ ROOT.T
    return np.asarray(z)


def with_levels(cell: Ints, z: Floats, levels: tuple[int, ...]) -> Floats:
    """Build a data set from z and cell numbers of the cross-tabulation."""
    return np.column_stack([*np.unravel_index(cell, levels), z])


def cells(data: Floats, levels: tuple[int, ...]) -> Ints:
    """Cell numbers of the records in the cross-tabulation, shape (..., n)."""
    codes = np.moveaxis(data[..., : len(levels)].astype(np.int64), -1, 0)
    return np.asarray(np.ravel_multi_index(tuple(codes), levels))


@functools.cache
def schema(levels: tuple[int, ...]) -> Schema:
    """Schema of columns w1, w2, ... with levels from 0, and of z1, z2 with their bounds."""
    w = [Column(f"w{j + 1}", "categorical", levels=tuple(range(k))) for j, k in enumerate(levels)]
    z = [Column(f"z{j + 1}", "continuous", -EDGE, EDGE) for j in range(2)]
    return Schema({column.name: column for column in (*w, *z)}, PUBLIC)


def frame(data: Floats, levels: tuple[int, ...]) -> pd.DataFrame:
    """Convert a data set to validated records."""
    columns = zip(schema(levels).columns.items(), data.T, strict=True)
    return pd.DataFrame(
        {
            name: as_levels(column, x.astype(np.int64)) if column.levels else x
            for (name, column), x in columns
        }
    )


def draw_sets(
    fitted: Fitted[Any], noise: StudyNoise, private: Callable[[StudyNoise], Any] | None = None
) -> Floats:
    """Draw ``M`` data sets, each from a separate private output."""
    private = private or fitted.draw_private
    frames = [fitted.synthetic(private(noise), N, noise.rng) for _ in range(M)]
    columns = [[frame[name].to_numpy(dtype=float) for name in frame] for frame in frames]
    return np.asarray(columns).transpose(0, 2, 1)


def unsanitised(fitted: FittedModel, noise: StudyNoise) -> Sanitised:
    """Return the statistics without noise: multiple synthesis (MS).

    Source: liu-2016, figure 1.
    """
    return {s.name: s.exact for s in fitted.model.statistics}


def scott(expected: Floats) -> Ints:
    """Number of bins per axis for cells with expected counts: width 3.49 σ n^(-1/4), σ = 1.

    Source: scott-1992.
    """
    return np.ceil(2 * EDGE / (3.49 * expected**-0.25)).astype(np.int64)


def histograms(
    data: Floats, levels: tuple[int, ...], bins: Ints, epsilon: float, noise: StudyNoise
) -> Floats:
    """Draw ``M`` data sets by NP-DIPS: noisy cells, and noisy squares of z in them, ε / 2 each.

    Source: bowen-liu-2020, section 4.3.1.

    Args:
        bins: number of bins on each axis, by cell.
    """
    cell, places = cells(data, levels), math.prod(levels)
    side = 2 * EDGE / bins
    on_axis = ((data[:, -2:] + EDGE) / side[cell, None]).astype(np.int64)
    row, column = np.minimum(on_axis, bins[cell, None] - 1).T
    inside = np.arange(bins.max() ** 2) < bins[:, None] ** 2  # rows are padded to equal length
    squares = np.zeros(inside.shape, dtype=np.int64)
    np.add.at(squares, (cell, row * bins[cell] + column), 1)
    sets = []
    for _ in range(M):
        part = epsilon / M / 2
        counts = noisy_counts(squares.sum(axis=1), N, part, "add-remove", noise)
        weights = np.zeros(inside.shape)
        weights[inside] = noisy_counts(squares[inside], N, part, "add-remove", noise)
        weights = np.where(weights.any(axis=1, keepdims=True), weights, inside)
        weights /= weights.sum(axis=1, keepdims=True)
        sizes = np.bincount(apportion(counts.astype(float), N, noise.rng), minlength=places)
        drawn = noise.rng.multinomial(sizes, weights)
        k, square = (np.repeat(a.ravel(), drawn.ravel()) for a in np.indices(drawn.shape))
        corner = np.column_stack(np.divmod(square, bins[k]))
        z = (corner + noise.rng.random((N, 2))) * side[k, None] - EDGE
        sets.append(with_levels(k, z, levels))
    return np.stack(sets)


def spread(away: Floats, df: Ints | int) -> Floats:
    """Variances and correlation of residuals, each with its variance, shape (2, S, 3).

    Args:
        away: residuals, shape (S, n, 2).
        df: residual degrees of freedom of each set.
    """
    n = away.shape[1]
    ratio = (n - 1) / df
    _, _, s2, of_s2 = np.stack([moments(z) for z in np.moveaxis(away, -1, 0)], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.prod(away, axis=2).sum(axis=1) / (n - 1) / np.sqrt(s2.prod(axis=0))
    return np.stack(
        [
            np.stack([*(s2 * ratio), r], axis=1),
            np.stack([*(of_s2 * ratio**2), np.maximum(1 - r**2, 0) / (n - 2)], axis=1),
        ]
    )


def pieces(at_once: int, replicates: int) -> list[Piece]:
    """Pieces of at most ``at_once`` replicates."""
    starts = range(0, replicates, at_once)
    return [{"replicates": min(at_once, replicates - start)} for start in starts]


def chart(
    found: pd.DataFrame, parameters: Iterable[str], least: float = 0, linear: float | None = None
) -> Chart:
    """Draw curves, a panel per parameter; no points if most replicates have no estimate.

    Args:
        least: smallest ε to show.
        linear: as in ``curves``.
    """
    shown = found[found["epsilon"] >= least].copy()
    shown[list(MEASURES)] = shown[list(MEASURES)].where(shown["missing"] <= 0.5)
    return curves({name: shown[shown["parameter"] == name] for name in parameters}, linear)


def report(
    title: str,
    tables: Iterable[str],
    figures: Mapping[str, Mapping[str, Any]],
    findings: tuple[StudyFinding, ...],
    sums: pd.DataFrame,
) -> Report:
    """Report tables of some parameters and curves of all.

    Args:
        title: first line of the report.
        tables: parameters to tabulate.
        figures: arguments of ``chart``, by name of the figure.
        findings: the paper's claims to test.
        sums: rows of ``run``.
    """
    results = measures(sums)
    missing = results.assign(
        **{"log ε": np.log(results["epsilon"]).round().astype(int)}
    ).pivot_table("missing", "method", "log ε", "max", sort=False)
    wrong = f"; not kept by: {NOT_PRIVATE}" if NOT_PRIVATE in set(results["method"]) else ""
    text = [
        f"{title}, {results['replicates'].max():,} replicates\n{BUDGET}{wrong}\n",
        *(table(results, parameter, N) + "\n" for parameter in tables),
        "Replicates without an estimate: largest share of any parameter, by log ε\n",
        missing.round(3).to_string(),
        "",
        verdicts(judgement := judged(findings, results)),
    ]
    charts = {name: chart(results, **how) for name, how in figures.items()}
    return Report("\n".join(text), {"measures": results, "findings": judgement}, charts)
