"""Division of a privacy budget, and the noise that a share of it requires for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.privacy.accounting import Loss, rho_for
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for

UNIT = 2**20  # moments are whole numbers of 1/UNIT of their bound, so that sums are exact
MOVES: dict[Adjacency, int] = {"add-remove": 1, "substitution": 2}


@dataclass(frozen=True)
class BudgetSplit:
    """Budget in epsilon or rho, of which shares are spent on noisy counts.

    Sensitivity: a record is in one cell of each table. Added or removed, it moves that cell by 1:
    1 in the L1 and in the L2 norm. Changed, it leaves one cell and enters another: the difference
    has one entry -1 and one entry 1, which is 2 in L1 and sqrt(2) in L2, or it stays: 0. A
    record's moments are a vector no longer than one unit in the norm used: their sums move by at
    most ``moves`` units together. A score is a single such number.

    Guarantee: queries on shares that sum to 1 are together epsilon-DP, by geometric noise of scale
    L1 / (part epsilon); or rho-zCDP, by discrete Gaussian noise with sigma = L2 / sqrt(2 part rho),
    which costs L2^2 / (2 sigma^2) = part rho. Both compose adaptively: the next query may depend on
    earlier noisy answers.

    Source: canonne-kamath-steinke-2020, theorem 4; bun-steinke-2016.

    Attributes:
        epsilon: total budget, where rho is None.
        moves: number of cells of a table in which neighbouring data sets differ, by 1 each: 1 if
            a record is added or removed, 2 if it is changed.
        noise: source of random noise.
        rho: total budget in zCDP, or None for pure epsilon.
        unit: what one record adds to a cell at most: 1, or ``UNIT`` if records have weights, in
            whole ``UNIT``s of the largest.
        stands_for: number of equally weighted records that such a record stands for. Noisy counts
            and the sds of their noise are in these.
    """

    epsilon: float
    moves: int
    noise: Noise
    rho: float | None = None
    unit: int = 1
    stands_for: float = 1.0

    def scale(self, part: float) -> float:
        """Scale of the geometric noise, or sigma, of a table of counts that gets this share."""
        return self.stands_for * self._scale(part)

    def _scale(self, part: float) -> float:
        """The same for records that count as 1."""
        if self.rho is None:
            return scale_for(self.moves, part * self.epsilon)
        return self._sigma(math.sqrt(self.moves), part)

    def _sigma(self, norm: float, part: float) -> float:
        assert self.rho is not None
        return scale_for(norm, math.sqrt(2 * part * self.rho))

    def sd(self, part: float) -> float:
        """Sd of that noise; for discrete Gaussian noise sigma, which its sd never exceeds."""
        return (math.sqrt(2) if self.rho is None else 1.0) * self.scale(part)

    def counts(self, table: Ints, part: float) -> Floats:
        """Add noise to a table of disjoint cells, whose counts are in whole 1/``unit``."""
        draw = self.noise.counts if self.rho is None else self.noise.gaussian
        noisy = np.asarray(draw(table, self.unit * self._scale(part)), dtype=float)
        return noisy * (self.stands_for / self.unit)

    def distance(self, table: Ints, expected: Floats, part: float) -> float:
        """Noisy score of a table of counts: half its L1 distance from expected ones.

        Sensitivity: added or removed, a record changes one cell by at most 1, and so the score by
        at most 1/2; changed, it changes two cells, and the score by at most 1. In units of 1/2
        these are ``moves``, as ``moments`` expects. Distances are whole multiples of 1/UNIT.
        """
        units = np.rint(UNIT * (expected / self.stands_for)).astype(np.int64)
        off = np.abs(UNIT // self.unit * table - units).sum()
        return float(self.moments(np.array([off]), part)[0]) / 2

    def moments(self, values: Ints, part: float) -> Floats:
        """Add noise to sums of moments or scores, in whole 1/UNIT; return them in units."""
        if self.rho is None:
            noisy = self.noise.counts(values, UNIT * self._scale(part))
        else:
            noisy = self.noise.gaussian(values, UNIT * self._sigma(self.moves, part))
        return np.asarray(noisy) / UNIT * self.stands_for

    def moment_sd(self, part: float) -> float:
        """Sd of the noise in sums of moments, in units."""
        return (
            self.sd(part) if self.rho is None else self.stands_for * self._sigma(self.moves, part)
        )

    def weighted(self, stands_for: float) -> BudgetSplit:
        """Return the budget for records with weights.

        Args:
            stands_for: number of equally weighted records for one of the largest weight.
        """
        return replace(self, unit=UNIT, stands_for=stands_for)

    @property
    def norm(self) -> int:
        """Norm of the sensitivity: 1 for pure epsilon, 2 for rho."""
        return 1 if self.rho is None else 2

    def of(self, part: float) -> BudgetSplit:
        """Return a share of the budget as a budget of its own."""
        if self.rho is None:
            return replace(self, epsilon=part * self.epsilon)
        return replace(self, rho=part * self.rho)


def rho_to_spend(epsilon: float, delta: float, adjacency: Adjacency, tables: int) -> float | None:
    """Largest rho that implies (epsilon, delta)-DP, or None if pure epsilon needs less noise.

    With equal parts for T tables the variance of noise is 2 (moves T / epsilon)^2 by pure epsilon
    and moves T / (2 rho) by rho. The second is smaller where moves T is above epsilon^2 / (4 rho).
    """
    rho = rho_for(epsilon, delta) if delta else 0.0
    return rho if 4 * rho * MOVES[adjacency] * tables > epsilon**2 else None


def concentrated_loss(rho: float, adjacency: Adjacency, moments: float) -> Loss:
    """Privacy loss of a budget of rho for both adjacencies, rho being meant for ``adjacency``.

    By ``BudgetSplit``'s norms a changed record costs twice as much rho in a table, and four times
    as much in moments, as an added one.

    Args:
        moments: share of rho that is spent on moments and scores.
    """
    if adjacency == "substitution":
        return Loss.concentrated(rho / 2, changed=rho)
    return Loss.concentrated(rho, changed=2 * rho * (1 + moments))
