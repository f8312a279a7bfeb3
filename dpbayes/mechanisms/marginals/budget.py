"""A loss in parts, and the noise that a part buys for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.privacy.accounting import Loss, rho_for
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for

UNIT = 2**20  # parts of a count that moments are whole numbers of
MOVES: dict[Adjacency, int] = {"add-remove": 1, "substitution": 2}


@dataclass(frozen=True)
class BudgetSplit:
    """Epsilon or rho, to be spent in parts on counts with noise.

    Sensitivity: a record is in one cell of each table. Added or removed, it moves that cell by 1:
    1 in the L1 and in the L2 norm. Changed, it leaves one cell and enters another: the difference
    has one entry -1 and one entry 1, which is 2 in L1 and sqrt(2) in L2, or it stays: 0. Moments
    are numbers of which a record has a vector no longer than a unit, in the norm that counts: they
    move by at most ``moves`` units together. A score is one such number.

    Guarantee: what parts that sum to 1 are spent on is epsilon-DP, by geometric noise of scale
    L1 / (part epsilon); or rho-zCDP, by discrete Gaussian noise with sigma = L2 / sqrt(2 part rho),
    which costs L2^2 / (2 sigma^2) = part rho. Both add up, also where what is asked next follows
    from noisy answers.

    Source: canonne-kamath-steinke-2020, theorem 4; bun-steinke-2016.

    Attributes:
        epsilon: of the whole, where rho is None.
        moves: cells of a table that one neighbour's record changes, by 1 each: 1 where it is added
            or removed, 2 where it is changed.
        noise: where it comes from.
        rho: of the whole.
    """

    epsilon: float
    moves: int
    noise: Noise
    rho: float | None = None

    def scale(self, part: float) -> float:
        """Of the noise that a part buys for a table of counts: of the geometric, or sigma."""
        if self.rho is None:
            return scale_for(self.moves, part * self.epsilon)
        return self._sigma(math.sqrt(self.moves), part)

    def _sigma(self, norm: float, part: float) -> float:
        assert self.rho is not None
        return scale_for(norm, math.sqrt(2 * part * self.rho))

    def sd(self, part: float) -> float:
        """Of the same noise; of discrete Gaussian noise sigma, which its sd never exceeds."""
        return (math.sqrt(2) if self.rho is None else 1.0) * self.scale(part)

    def counts(self, table: Ints, part: float) -> Floats:
        """A table of disjoint cells with noise."""
        draw = self.noise.counts if self.rho is None else self.noise.gaussian
        return np.asarray(draw(table, self.scale(part)), dtype=float)

    def moments(self, values: Ints, part: float) -> Floats:
        """Whole numbers of UNITs with noise; together they move by a UNIT for each move."""
        if self.rho is None:
            return np.asarray(self.noise.counts(values, UNIT * self.scale(part))) / UNIT
        sigma = UNIT * self._sigma(self.moves, part)
        return np.asarray(self.noise.gaussian(values, sigma)) / UNIT

    def moment_sd(self, part: float) -> float:
        """Of the noise in them."""
        return self.sd(part) if self.rho is None else self._sigma(self.moves, part)

    @property
    def norm(self) -> int:
        """In which moves add up: 1 or 2."""
        return 1 if self.rho is None else 2

    def of(self, part: float) -> BudgetSplit:
        """A part of it as a budget."""
        if self.rho is None:
            return replace(self, epsilon=part * self.epsilon)
        return replace(self, rho=part * self.rho)


def rho_to_spend(epsilon: float, delta: float, adjacency: Adjacency, tables: int) -> float | None:
    """The rho that (epsilon, delta) buys, or None where pure epsilon buys less noise.

    With equal parts for T tables the variance of noise is 2 (moves T / epsilon)^2 by pure epsilon
    and moves T / (2 rho) by rho. The second is less where moves T is above epsilon^2 / (4 rho).
    """
    rho = rho_for(epsilon, delta) if delta else 0.0
    return rho if 4 * rho * MOVES[adjacency] * tables > epsilon**2 else None


def concentrated_loss(rho: float, adjacency: Adjacency, moments: float) -> Loss:
    """What a budget of rho costs both neighbours, rho being for ``adjacency``.

    By ``BudgetSplit``'s norms a changed record costs a table twice and a moment four times what an
    added
    one costs.

    Args:
        moments: the part of rho that is spent on moments, as scores are.
    """
    if adjacency == "substitution":
        return Loss.concentrated(rho / 2, changed=rho)
    return Loss.concentrated(rho, changed=2 * rho * (1 + moments))
