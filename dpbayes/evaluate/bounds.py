"""Confidence bounds that audits share. Numbers in, numbers out."""

from __future__ import annotations

import math

from dpbayes.heavy import stats

RUNS = 500  # by default, of a mechanism on each of two neighbours


def log_ratio_bound(k1: int, k0: int, n: int, level: float, delta: float = 0.0) -> float:
    """Lower confidence bound on log((p1 - delta) / p0) from k1 and k0 of n, at least 0.

    Of an (epsilon, delta)-DP mechanism it is at most epsilon, as p1 <= e^epsilon p0 + delta.

    Args:
        level: chance that each of the two Clopper-Pearson limits is wrong.
    """
    low = stats.beta.ppf(level, k1, n - k1 + 1) if k1 else 0.0
    high = stats.beta.ppf(1 - level, k0 + 1, n - k0) if k0 < n else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
