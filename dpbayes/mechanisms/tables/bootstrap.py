"""The empirical distribution behind a noisy table, and what a bootstrap of the records costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpbayes.arrays import Floats, Ints
from dpbayes.heavy import optimize, stats
from dpbayes.mechanisms.tables.noisy import FittedTable, Table, noisy_counts
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise


@dataclass(frozen=True)
class EmpiricalBootstrap(Table):
    """Data sets from a sanitised empirical distribution, by a bootstrap or from one for all.

    ``resample=False`` (Liu, figure 5a): one noisy table, paid once, from which every data set is
    drawn. ``resample=True`` (figure 5b): each data set has a bootstrap sample of the records, its
    noisy table, and its own cost; so the data sets also show the sampling variability.

    Source: liu-2016, section 3.5; figure 5.

    Sensitivity: of the table 1 or 2. A bootstrap sample holds one record k times, k ~ Bin(n, 1/n),
    so that noise for one copy costs more than epsilon, of which the paper says nothing. With loss s
    for one copy exchanged, a record added or removed costs at most log E[exp(k s)]; a changed one
    log R with sum_k P(k) max(exp(k s) - R, 1 - R exp(-k s)) = 0 (``bootstrap_loss``). The noise is
    scaled so that this is epsilon.

    Guarantee: strict. Let p_k be the output density given k copies. p_k / p_0 and p_k / p'_k, p' of
    the neighbour, lie within exp(+-k s), and p'_0 = p_0; the largest ratio of the mixtures under
    these bounds is R.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``Table``.
        resample: bootstrap, or one table for all.
    """

    resample: bool = True
    name: ClassVar[str] = "empirical-bootstrap"
    summary: ClassVar[str] = "bootstrap samples behind noisy tables, accounted for; strict ε-DP"

    @property
    def halves(self) -> bool:
        return super().halves and not self.resample

    @property
    def sets_per_output(self) -> int | None:
        return 1 if self.resample else None

    def sanitise(self, fitted: FittedTable, noise: Noise) -> Floats:
        if not self.resample:
            return super().sanitise(fitted, noise)
        largest = int(fitted.sizes.max())
        epsilon = bootstrap_epsilon(self.epsilon, self.adjacency, largest)
        found = [
            noisy_counts(
                _bootstrap(row, noise), n, epsilon, "substitution", noise, self.out_of_range
            )
            for row, n in zip(fitted.counts, fitted.sizes, strict=True)
        ]
        return np.stack(found).astype(float)


def _bootstrap(counts: Ints, noise: Noise) -> Ints:
    """Counts of as many records, drawn with replacement."""
    n = int(counts.sum())
    records = noise.below(np.full(n, n)).astype(np.int64)
    cell = np.searchsorted(np.cumsum(counts), records, side="right")
    return np.bincount(cell, minlength=len(counts))


def bootstrap_loss(step: float, n: int, adjacency: Adjacency) -> float:
    """Loss of a mechanism on a bootstrap sample of n records, from n of them.

    Args:
        step: its loss when one record of the sample is exchanged.
    """
    k = np.arange(n + 1)
    weight = stats.binom.pmf(k, n, 1 / n)
    use = weight > 0
    k, weight = k[use], weight[use]
    with np.errstate(over="ignore"):
        up, down = np.exp(k * step), np.exp(-k * step)
    most = float(weight @ up)
    if adjacency == "add-remove":
        return math.log(most)

    def excess(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        return float(weight @ np.maximum(up - ratio, 1 - ratio * down))

    top = math.log(most) - math.log(float(weight @ down))
    return float(optimize.brentq(excess, 0.0, top + 1e-9, xtol=1e-12)) + 1e-11


@lru_cache(maxsize=256)
def bootstrap_epsilon(epsilon: float, adjacency: Adjacency, n: int) -> float:
    """The largest loss of one exchanged record found for which a bootstrap costs ``epsilon``."""
    low, high = 0.0, epsilon
    while high - low > 1e-9 * epsilon:
        middle = (low + high) / 2
        if bootstrap_loss(middle, n, adjacency) <= epsilon:
            low = middle
        else:
            high = middle
    return low
