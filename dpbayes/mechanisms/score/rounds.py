"""What mechanism score spends its budget on, and how long scores are: by public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.mechanisms.score.clipped import GRAINS
from dpbayes.privacy.accounting import zcdp_epsilon
from dpbayes.privacy.statistic import scale_for

# Parts of the budget: for the table of outcomes at a delta and without one at most, and of the rest
# for the first of the sums over all records.
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
        clip: length of scores in all sums, where it is not chosen here.
        delta: at which ε is meant.
        groups: for each term of group effects the number of groups, and of effects of each.
    """

    epsilon: float
    rho: float | None
    moves: int
    rows: int
    parameters: int
    clip: float | None = None
    delta: float = 0.0
    groups: tuple[tuple[int, int], ...] = ()

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
        """Parts of the budget for the two sums over all records."""
        return FIRST * (1 - self.table), self.by_group

    @property
    def by_group(self) -> float:
        """Part of the budget for the sums by group of one term, and for the second over all."""
        return (1 - FIRST) * (1 - self.table) / (1 + len(self.groups))

    def scale(self, part: float) -> float:
        """Of noise for whole scores: sigma, or what the length of radial noise is divided by."""
        return scale_for(self.moves * GRAINS, self.spent(part))

    def sd(self, part: float, entries: int | None = None) -> float:
        """Of the noise in an entry of a sum, by the length of a score.

        Args:
            entries: of the sum; as many as parameters by default.
        """
        entries = self.parameters if entries is None else entries
        more = math.sqrt(entries + 1) if self.rho is None else 1.0
        return more * self.scale(part) / GRAINS

    def cost(self, lengths: Vector, by_term: Sequence[Vector] = ()) -> Vector:
        """ε at most of a record that comes or goes, shape (n,).

        Args:
            lengths: of its score in sums over all records, shape (n,).
            by_term: of that in the sums by group, for each term.
        """
        table = self.spent(self.table) / self.moves
        asked = [(part, self.length(part), lengths) for part in self.sums]
        for (groups, width), its in zip(self.groups, by_term, strict=True):
            asked.append((self.by_group, self.length_by_group(groups, width), its))
        parts = np.array([part for part, _, _ in asked])[:, None]
        moved = np.stack([np.minimum(1, its / clip) for _, clip, its in asked]) / self.moves
        if self.rho is None:
            return np.asarray(table + self.epsilon * (parts * moved).sum(axis=0))
        rho = self.rho * (parts * moved**2).sum(axis=0)
        return np.asarray([table + zcdp_epsilon(one, self.delta) for one in rho])

    def length(self, part: float) -> float:
        """To which scores are clipped: the longer, the nearer the likelihood's posterior is."""
        return self._length(self.rows, self.sd(part), self.parameters)

    def length_by_group(self, groups: int, width: int) -> float:
        """The same of scores along the effects of a term, summed by group."""
        return self._length(self.rows / groups, self.sd(self.by_group, width), width)

    def _length(self, rows: float, sd: float, entries: int) -> float:
        if self.clip is not None:
            return self.clip
        return max(LEAST * math.sqrt(entries), min(MOST, math.sqrt(ADDED * rows) / sd))
