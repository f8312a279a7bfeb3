"""A record's clipped score: the slope of its log-likelihood at a public point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector

STEP = 1e-4  # of a finite difference, in coordinates in which a record's slope has sd 1
GRAINS = 2**20  # length of the longest score in integer units, as noise is added to integers
LARGEST = 1e100  # largest entry of a score before clipping, so that its norm is finite


class LogLik(Protocol):
    """Log-likelihoods of records at unconstrained points."""

    def log_lik_at(self, points: Floats) -> Iterator[Vector]:
        """Log-likelihoods of n records, a vector for each of S points, shape (S, d)."""
        ...


@dataclass(frozen=True, eq=False)
class ClippedScore:
    """The score of a record at a public point, whitened and clipped to a length. Public.

    A score holds the slopes of a record's log-likelihood along d directions, by finite differences.
    If one of them is not finite, the score is 0.

    Sensitivity: ``whole`` of a record has Euclidean norm at most ``GRAINS`` and depends on that
    record alone, so that a sum over records changes by no more when one is added or removed.

    Attributes:
        point: the unconstrained point, shape (all,).
        directions: shape (d, all); along each row, the log-likelihood of a record simulated from
            the model has a slope of sd 1.
        length: the length to which scores are clipped.
    """

    point: Vector
    directions: Floats
    length: float

    def slopes(self, records: LogLik) -> Floats:
        """Compute the slopes of records before clipping, shape (n, d)."""
        return slopes_along(records, self.point, self.directions)

    def clipped(self, slopes: Floats) -> Floats:
        """Clip slopes of records to the length, shape (n, d)."""
        bounded = np.clip(finite(slopes), -LARGEST, LARGEST)
        norm = np.linalg.norm(bounded, axis=1, keepdims=True)
        return np.asarray(bounded * np.minimum(1.0, self.length / np.maximum(norm, 1e-300)))

    def whole(self, records: LogLik) -> Ints:
        """Compute scores in integer units of ``length / GRAINS``, shape (n, d)."""
        scaled = self.clipped(self.slopes(records)) / self.length
        # Where slopes are so small that their norm rounds to 0, an entry may be above 1.
        whole = np.clip(np.trunc(scaled * GRAINS), -GRAINS, GRAINS).astype(np.int64)
        while (too_long := (whole**2).sum(axis=1) > GRAINS**2).any():  # a result of rounding
            whole[too_long] -= np.sign(whole[too_long])
        return whole

    @property
    def unit(self) -> float:
        """Length of one integer unit of a score."""
        return self.length / GRAINS


def finite(slopes: Floats) -> Floats:
    """Slopes, shape (n, d), with 0 for each record that has a slope which is not finite."""
    return np.where(np.isfinite(slopes).all(axis=1, keepdims=True), slopes, 0.0)


def slopes_along(records: LogLik, point: Vector, directions: Floats) -> Floats:
    """Slopes of log-likelihoods at a point, by central differences, shape (n, k).

    Args:
        records: the records' log-likelihoods.
        point: an unconstrained point, shape (d,).
        directions: shape (k, d).
    """
    steps = STEP * directions
    points = np.stack([point + steps, point - steps], axis=1).reshape(-1, len(point))
    values = records.log_lik_at(points)
    with np.errstate(invalid="ignore", over="ignore"):  # ``finite`` replaces inf - inf = NaN
        return np.stack([(next(values) - next(values)) / (2 * STEP) for _ in steps], axis=1)
