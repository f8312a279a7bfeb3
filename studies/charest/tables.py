"""Charest 2011, Tables 1-4: combining rules and a model on beta-binomial synthetic counts.

n = ñ = 100 binary records; M data sets at ε/M each, α = ñ / (exp(ε/M) - 1) on both sides. The
beta-binomial draws are studied here as in the paper, not released. Every printed figure is
compared. Two details that the paper omits can be inferred from its figures:

- Table 3's column of variances is the variance over the runs of the posterior means. Table 4's,
  under the same heading, is the mean over the runs of the posterior variances. So one case
  (ε = 2, M = 1) has 6.30 in the one and 8.18 in the other.
- The "relative bias (%)" of the posterior mean is 100 times its difference from the mean without
  synthesis, and is relative to nothing: 0.485 - 0.304 is printed as 18.09.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd, stats
from dpbayes.inference.combining import RULES
from dpbayes.inference.counts import from_synthetic_counts
from studies.charest import intervals
from studies.charest.synthesizer import N, noise, synthesize
from studies.runner import Piece, Report, Study, notes

RUNS = 100_000  # of Tables 1 and 2, as in the paper
PAPER_RUNS = {1: 100_000, 2: 100_000, 3: 1000, 4: 1000}
POSTERIORS = 20_000  # synthetic sets whose posteriors are computed for Tables 3 and 4
BATCHES = 100  # of runs, whose spread gives standard errors
X = 30  # confidential count of ones in Tables 3 and 4
TRUE = stats.beta(1 + X, 1 + N - X)  # the posterior without synthesis
Case = tuple[int, float, float | None, int]  # table, ε, p, M; M = 0 is the confidential data
_T1 = ("relative_bias_pct",)
_T2 = ("variance_1e4", "relative_bias_TM_pct", "relative_bias_TMstar_pct", "negative_TM_pct")
_T3 = ("posterior_mean", "bias_of_mean_1e2", "variance_of_means_1e3")
_T4 = ("posterior_mean", "bias_of_mean_1e2", "posterior_variance_1e3", "variance_ratio")
QUANTITIES = {1: _T1, 2: _T2, 3: _T3, 4: _T4}
# Printed figures in the order of QUANTITIES. A case's seed depends on its place: append new ones.
PRINTED: dict[Case, tuple[float, ...]] = {
    (1, 2.0, 0.25, 1): (23.88,),
    (1, 2.0, 0.25, 2): (53.84,),
    (1, 2.0, 0.25, 5): (80.30,),
    (1, 2.0, 0.25, 10): (90.05,),
    (1, 2.0, 0.5, 1): (0.05,),
    (1, 2.0, 0.5, 2): (-0.03,),
    (1, 2.0, 0.5, 5): (0.03,),
    (1, 2.0, 0.5, 10): (0.0,),
    (1, 2.0, 0.25, 0): (0.12,),
    (1, 250.0, 0.25, 1): (0.05,),
    (1, 250.0, 0.25, 10): (0.05,),
    (2, 2.0, 0.25, 2): (21.10, 34.28, 127.21, 49),
    (2, 2.0, 0.25, 5): (6.68, 64.60, 273.57, 40),
    (2, 2.0, 0.25, 10): (2.92, 86.74, 526.68, 40),
    (2, 2.0, 0.50, 2): (23.62, 27.34, 112.96, 48),
    (2, 2.0, 0.50, 5): (6.95, 60.68, 262.12, 40),
    (2, 2.0, 0.50, 10): (3.02, 79.85, 507.31, 40),
    (2, 250.0, 0.25, 2): (37.10, 0.20, 36.26, 44),
    (2, 250.0, 0.25, 5): (25.96, 0.35, 19.92, 20),
    (2, 250.0, 0.25, 10): (22.26, 0.18, 9.48, 9),
    (3, 2.0, None, 1): (0.311, 0.76, 6.30),
    (3, 2.0, None, 2): (0.309, 0.49, 7.50),
    (3, 2.0, None, 5): (0.312, 0.85, 11.70),
    (3, 2.0, None, 10): (0.322, 1.86, 15.88),
    (4, 0.1, None, 1): (0.485, 18.09, 77.07, 37.54),
    (4, 0.5, None, 1): (0.365, 6.14, 33.75, 16.44),
    (4, 1.0, None, 1): (0.315, 1.14, 15.63, 7.61),
    (4, 2.0, None, 1): (0.311, 0.72, 8.18, 3.98),
    (4, 3.0, None, 1): (0.310, 0.61, 6.55, 3.19),
    (4, 250.0, None, 1): (0.312, 0.83, 5.81, 2.83),
    (1, 2.0, 0.5, 0): (0.05,),
    (1, 250.0, 0.25, 0): (0.01,),
    (1, 250.0, 0.25, 2): (-0.04,),
    (1, 250.0, 0.25, 5): (0.00,),
}


def run(runs: int = RUNS, seed: int = 1) -> pd.DataFrame:
    """Compute all four tables, with standard errors, beside the printed figures.

    Source: charest-2011, table 1; table 2; table 3; table 4.

    ``difference`` is in standard errors of both studies together; the paper's runs have the
    spread of ours, and its posteriors a Monte Carlo error besides.
    """
    rows = []
    children = np.random.SeedSequence(seed).spawn(len(PRINTED))
    for (case, printed), child in zip(PRINTED.items(), children, strict=True):
        table, epsilon, p, m = case
        rng = np.random.default_rng(child)
        if p is not None:
            results = _rules(epsilon, p, m, runs, rng)
        else:
            results = _posteriors(epsilon, m, min(runs, POSTERIORS), rng)
        for quantity, theirs in zip(QUANTITIES[table], printed, strict=True):
            value, error, spread = results[quantity]
            total = float(np.hypot(error, spread / np.sqrt(PAPER_RUNS[table])))
            gap = max(0.0, abs(value - theirs) - _half_unit(quantity))
            difference = gap / total if total else 0.0
            rows.append((*case, quantity, theirs, value, error, difference))
    columns = ["table", "epsilon", "p", "M", "quantity", "paper", "ours", "se", "difference"]
    result = pd.DataFrame(rows, columns=columns)
    result["note"] = np.where(result["difference"] > 3, "off", "")
    return result


def _rules(
    epsilon: float, p: float, m: int, runs: int, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """Return by quantity the value, its standard error, and the sd of one run's contribution."""
    x = rng.binomial(N, p, runs)
    q = (synthesize(x, epsilon, m, rng) if m else x[:, None]) / N
    mean = q.mean(axis=1)
    batches = np.array_split(np.arange(runs), BATCHES)
    statistics: dict[str, Callable[[NDArray[np.intp]], float]]
    statistics = {"relative_bias_pct": lambda i: 100 * (mean[i].mean() / p - 1)}
    if m > 1:
        W = (q * (1 - q) / N).mean(axis=1)
        T, _ = RULES["raghunathan"](W, q.var(axis=1, ddof=1), m)
        star = np.where(T < 0, W, T)
        statistics |= {
            "variance_1e4": lambda i: 1e4 * mean[i].var(),
            "relative_bias_TM_pct": lambda i: 100 * (T[i].mean() / mean[i].var() - 1),
            "relative_bias_TMstar_pct": lambda i: 100 * (star[i].mean() / mean[i].var() - 1),
            "negative_TM_pct": lambda i: 100 * (T[i] < 0).mean(),
        }
    everything = np.arange(runs)
    results = {}
    for name, statistic in statistics.items():
        error = np.std([statistic(i) for i in batches], ddof=1) / np.sqrt(BATCHES)
        results[name] = (float(statistic(everything)), float(error), float(error * np.sqrt(runs)))
    return results


def _posteriors(
    epsilon: float, m: int, runs: int, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """Summarise posteriors given synthetic sets from x = 30, in the form of ``_rules``."""
    ones = synthesize(np.full(runs, X), epsilon, m, rng)
    counts = np.stack([ones, N - ones], axis=-1)
    posterior = from_synthetic_counts(counts, noise(epsilon, m), N)
    mean, variance = posterior.mean[:, 0], posterior.variance[:, 0]
    values = {
        "posterior_mean": mean,
        "bias_of_mean_1e2": 100 * (mean - TRUE.mean()),
        "variance_of_means_1e3": 1e3 * (mean - mean.mean()) ** 2,
        "posterior_variance_1e3": 1e3 * variance,
        "variance_ratio": variance / TRUE.var(),
    }
    return {
        name: (float(v.mean()), float(v.std() / np.sqrt(runs)), float(v.std()))
        for name, v in values.items()
    }


def _half_unit(quantity: str) -> float:
    """Rounding error of a printed figure: half a unit of its last digit."""
    digits = {"posterior_mean": 3, "negative_TM_pct": 0}.get(quantity, 2)
    return 0.5 * 10.0**-digits


def pieces(runs: int) -> list[Piece]:
    """One piece for the tables, and one for Figure 1."""
    return [{"part": part, "runs": runs} for part in ("tables", "figure")]


def piece(seed: np.random.SeedSequence, part: str, runs: int) -> pd.DataFrame:
    """Run one of the two pieces; the tables use the study's own seed."""
    if part == "figure":
        return intervals.run(min(runs, intervals.RUNS), seed).assign(part=part)
    assert isinstance(seed.entropy, int)
    return run(runs, seed.entropy).assign(part=part)


def report(found: pd.DataFrame) -> Report:
    """Report every table, ours beside the paper's, and Figure 1."""
    parts = {
        str(part): rows.dropna(axis="columns", how="all").drop(columns=["part", "piece"])
        for part, rows in found.groupby("part")
    }
    lines = [
        "Beta-binomial synthetic counts, n = 100 (Charest 2011); difference in standard errors"
    ]
    tables = parts["tables"].astype({"table": int, "M": int})
    for table, rows in tables.groupby("table"):
        ordered = rows.sort_values(["epsilon", "p", "M"], kind="stable")
        shown = ordered.drop(columns=["table", "note"]).dropna(axis="columns", how="all")
        formats = {"paper": "{:.3f}", "ours": "{:.3f}", "se": "{:.3f}", "difference": "{:.1f}"}
        text = shown.assign(**{k: shown[k].map(v.format) for k, v in formats.items()})
        lines += [f"\nTable {table}\n", text.to_string(index=False)]
    off = notes(tables) or f"All {len(tables)} figures are within 3 standard errors."
    coverage = parts["figure"].astype({"M": int})
    lines += ["", off, "", intervals.text(coverage)]
    return Report(
        "\n".join(lines),
        {"charest": tables, "coverage": coverage},
        {"figure-1": intervals.chart(coverage)},
    )


STUDY = Study(
    "charest",
    "Charest 2011, Tables 1-4 and Figure 1: combining rules and a model on synthetic counts",
    RUNS,
    pieces,
    piece,
    report,
    least=10 * BATCHES,  # standard errors are from batches
)
