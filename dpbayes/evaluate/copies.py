"""Privacy loss of noisy counts of a bootstrap sample, in which records have random copies.

A record's number of copies is not released, so that the loss cannot be computed from the answers
alone. This module sums over it, on tables of one record: the distribution of every noisy count is a
mixture over the number of copies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd, special, stats
from dpbayes.evaluate.candidates import NeighbourTable
from dpbayes.evaluate.questions import Lost
from dpbayes.mechanisms.base import Mechanism, Task
from dpbayes.privacy.noise import StudyNoise

NEAR = 40  # noisy counts that are enumerated, besides one beyond all copies
MOST_COPIES = 4000  # bound of the mean number of copies, for very small noise


class _Copied(StudyNoise):
    """Noise that gives every record the same number of copies and stores the counts it perturbs."""

    def __init__(self, copies: int) -> None:
        super().__init__(1)
        self._copies = copies
        self.values: Ints = np.empty(0, dtype=np.int64)
        self.scale, self.range = math.nan, (-math.inf, math.inf)

    def poisson(self, size: int) -> Ints:
        return np.full(size, self._copies)

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        self.values, self.scale = np.ravel(np.asarray(values, dtype=np.int64)), scale
        return super().counts(values, scale)

    def inside(
        self, values: ArrayLike, scale: float, lower: float, upper: float, *, integer: bool
    ) -> NDArray[Any]:
        noisy = super().inside(values, scale, lower, upper, integer=integer)
        self.values, self.scale = np.ravel(np.asarray(values, dtype=np.int64)), scale
        self.range = lower, upper
        return noisy


def lost_by_copies(mechanism: Mechanism[Any], base: Task, neighbour: NeighbourTable) -> Lost:
    """Loss between a table of the record alone and an empty table, or one of an ordinary record."""
    tables = neighbour.record, neighbour.instead
    a, b = (_mixed(mechanism, base, table) for table in tables)
    ratio = a - b
    return Lost.between(float(ratio.max(axis=0).sum()), float((-ratio).max(axis=0).sum()))


def _mixed(mechanism: Mechanism[Any], base: Task, table: pd.DataFrame) -> Floats:
    """Log probabilities of noisy counts by cell, shape (counts, cells), over numbers of copies."""
    fitted = mechanism.fit(base.of(table))
    first_run = _Copied(1)
    fitted.draw_private(first_run)
    scale, (lower, upper) = first_run.scale, first_run.range
    # The count distribution tilted by Laplace noise of this scale has this mean and variance,
    # so that more copies than these have a negligible share.
    mean = math.exp(min(1 / scale, math.log(MOST_COPIES)))
    copies = np.arange(math.ceil(mean + 12 * math.sqrt(mean)) + NEAR)
    values = np.empty((len(copies), first_run.values.size))
    for k in (0, 1, 2):
        noise = _Copied(k)
        fitted.draw_private(noise)
        values[k] = noise.values
    if (values[2] - values[1] != values[1] - values[0]).any():
        raise AssertionError("counts of a bootstrap sample are proportional to copies")
    values = values[0] + copies[:, None] * (values[1] - values[0])
    answers = np.append(np.arange(-1, NEAR), copies[-1] + 1)
    answers = answers[(answers >= lower) & (answers <= upper)]
    q = math.exp(-1 / scale)
    outside = 0.0 if math.isinf(lower) else q ** (values - lower + 1)
    outside = outside + (0.0 if math.isinf(upper) else q ** (upper - values + 1))
    log_norm = np.log1p(q - outside)  # log of (1 - q) times the sum of q^|k - v| in the range
    log_weight = stats.poisson.logpmf(copies, 1)[:, None] - log_norm
    scaled_distance = np.abs(answers[:, None, None] - values) / scale
    return np.asarray(special.logsumexp(log_weight - scaled_distance, axis=1))
