"""What mechanism score spends its budget on, and how long scores are: by public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpbayes.arrays import Vector
from dpbayes.mechanisms.score.clipped import GRAINS
from dpbayes.privacy.accounting import zcdp_epsilon
from dpbayes.privacy.statistic import scale_for

# Parts of the budget: for the table of outcomes at a delta and without one at most, and of the rest
# for the first of two sums.
TABLE, MOST_TABLE, FIRST = 0.15, 0.2, 0.25
# Records times the table's epsilon, with which it tells where outcomes are well enough: the more
# parameters there are, the less does a sum far from the mode tell of them. At least, and for each.
COUNTED, EACH = 20.0, 4.0
# Lengths of scores: the least beside the root of d, the most, and the share of the variance of a
# sum of scores that noise may add where there is more than enough ε.
LEAST, MOST, ADDED = 0.8, 12.0, 0.3


@dataclass(frozen=True)
class Rounds:
    """What a budget is spent on, by public facts alone.

    Attributes:
        epsilon: of everything, where rho is None.
        rho: of everything, or None where it is pure.
        moves: scores of which the sums of two neighbours differ.
        rows: the public number of rows.
        parameters: d.
        clip: length of scores in both sums, where it is not chosen here.
        delta: at which ε is meant.
    """

    epsilon: float
    rho: float | None
    moves: int
    rows: int
    parameters: int
    clip: float | None = None
    delta: float = 0.0

    @property
    def table(self) -> float:
        """Part of the budget for the table of outcomes, which is pure."""
        if self.rho is not None:  # a claim at a delta tells it apart, before rows are known
            return TABLE
        counted = max(COUNTED, EACH * self.parameters)
        return min(MOST_TABLE, counted * self.moves / (self.rows * self.epsilon))

    def spent(self, part: float) -> float:
        """The ε of a pure answer that is a part of the budget."""
        return part * self.epsilon if self.rho is None else math.sqrt(2 * part * self.rho)

    @property
    def sums(self) -> tuple[float, float]:
        """Parts of the budget for the two sums."""
        rest = 1 - self.table
        return FIRST * rest, (1 - FIRST) * rest

    def scale(self, part: float) -> float:
        """Of noise for whole scores: sigma, or what the length of radial noise is divided by."""
        return scale_for(self.moves * GRAINS, self.spent(part))

    def sd(self, part: float) -> float:
        """Of the noise in an entry of a sum, by the length of a score."""
        more = math.sqrt(self.parameters + 1) if self.rho is None else 1.0
        return more * self.scale(part) / GRAINS

    def cost(self, length: Vector) -> Vector:
        """ε at most of a record that comes or goes, by the length of its score, shape (n,)."""
        table = self.spent(self.table) / self.moves
        parts = np.array(self.sums)[:, None]
        clips = np.array([[self.length(part)] for part in self.sums])
        moved = np.minimum(1, length / clips) / self.moves
        if self.rho is None:
            return np.asarray(table + self.epsilon * (parts * moved).sum(axis=0))
        rho = self.rho * (parts * moved**2).sum(axis=0)
        return np.asarray([table + zcdp_epsilon(one, self.delta) for one in rho])

    def length(self, part: float) -> float:
        """To which scores are clipped: the longer, the nearer the likelihood's posterior is."""
        if self.clip is not None:
            return self.clip
        room = math.sqrt(ADDED * self.rows) / self.sd(part)
        return max(LEAST * math.sqrt(self.parameters), min(MOST, room))
