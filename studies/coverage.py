"""Bias, error, width and coverage of intervals from synthetic data sets, over replicates."""

from __future__ import annotations

import math

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import stats
from dpbayes.inference.combining import combine

# Describes the ε of these studies in their reports.
BUDGET = "ε of all data sets together, add/remove, strict ε-DP; NumPy's noise, for study only"
MEASURES = ("bias", "rmse", "width", "coverage")


def intervals(estimate: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Combine estimates and return them with the ends of 95% intervals.

    Args:
        estimate, variance: shape (data sets, ...); a single data set gets a normal interval.
    """
    if len(estimate) == 1:
        centre, half = estimate[0], stats.norm.ppf(0.975) * np.sqrt(variance[0])
        return centre, centre - half, centre + half
    combined = combine(estimate, variance)
    low, high = map(np.asarray, combined.interval())
    return np.asarray(combined.estimate), low, high


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
