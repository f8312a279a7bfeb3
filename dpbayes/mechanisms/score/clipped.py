"""A record's clipped score: what it says of the parameters at one public point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector

STEP = 0.01  # of a difference, in standard deviations of what one record says
GRAINS = 2**20  # whole numbers that stand for the longest score
_LARGEST = 1e100  # entry of a score before it is clipped


class LogLik(Protocol):
    """Log-likelihoods of records at unconstrained points."""

    def log_lik_at(self, points: Floats) -> Iterator[Vector]:
        """For each of S points, shape (S, d), log-likelihoods of n records."""
        ...


@dataclass(frozen=True, eq=False)
class ClippedScore:
    """The score of a record at a public point, whitened and clipped to a length. Public.

    A score is the slope of a record's log-likelihood in each direction, by differences. Where one
    of them is not a finite number the score is 0.

    Sensitivity: ``whole`` of a record has Euclidean norm ``GRAINS`` at most and follows that record
    alone, so that a sum over records moves by no more when one is added or removed.

    Attributes:
        point: unconstrained, shape (all,).
        directions: shape (d, all); along each row the log-likelihood of a record of the model has a
            slope of sd 1.
        length: to which scores are clipped.
    """

    point: Vector
    directions: Floats
    length: float

    def slopes(self, records: LogLik) -> Floats:
        """Slopes before they are clipped, shape (n, d)."""
        return slopes_along(records, self.point, self.directions)

    def clipped(self, slopes: Floats) -> Floats:
        """Slopes of records, clipped: shape (n, d)."""
        kept = np.clip(finite(slopes), -_LARGEST, _LARGEST)
        norm = np.linalg.norm(kept, axis=1, keepdims=True)
        return np.asarray(kept * np.minimum(1.0, self.length / np.maximum(norm, 1e-300)))

    def whole(self, records: LogLik) -> Ints:
        """Scores in units of ``length / GRAINS``, shape (n, d)."""
        part = self.clipped(self.slopes(records)) / self.length
        # Of slopes so small that their norm is 0 a part may be above 1.
        whole = np.clip(np.trunc(part * GRAINS), -GRAINS, GRAINS).astype(np.int64)
        while (long := (whole**2).sum(axis=1) > GRAINS**2).any():  # by rounding
            whole[long] -= np.sign(whole[long])
        return whole

    @property
    def unit(self) -> float:
        """What a whole number stands for."""
        return self.length / GRAINS


def finite(slopes: Floats) -> Floats:
    """Slopes, shape (n, d); 0 for a record of which one is not a finite number."""
    return np.where(np.isfinite(slopes).all(axis=1, keepdims=True), slopes, 0.0)


def slopes_along(records: LogLik, point: Vector, directions: Floats) -> Floats:
    """Slopes of log-likelihoods at a point, by differences: shape (n, k).

    Args:
        point: shape (d,).
        directions: shape (k, d).
    """
    steps = STEP * directions
    points = np.stack([point + steps, point - steps], axis=1).reshape(-1, len(point))
    values = records.log_lik_at(points)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite ones have no difference
        return np.stack([(next(values) - next(values)) / (2 * STEP) for _ in steps], axis=1)
