"""Budget split and clipping lengths of mechanism ``score``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.score.clipped import GRAINS
from dpbayes.privacy.accounting import zcdp_epsilon
from dpbayes.privacy.statistic import RADIAL, scale_for

# Parts of the budget: for the table of outcomes with a delta; at most for it without one; and, of
# the rest, for the first of the two sums over all records.
TABLE, MOST_TABLE, FIRST = 0.15, 0.2, 0.25
NUMBER = 0.05  # part for the number of records, where a declared number says nothing of it
# Records times the table's epsilon from which the table locates the outcomes well enough, as a
# minimum and per parameter: the more parameters there are, the less information does a sum far from
# the mode hold on them.
COUNTED, EACH = 20.0, 4.0
# Clipping lengths: the minimum as a multiple of sqrt(d), the maximum, and the share of the variance
# of a sum of scores that noise may add where there is more than enough ε.
LEAST, MOST, ADDED = 0.8, 12.0, 0.3
# Least rows per group. With fewer, sums are not linear enough in the effects, and the iteration of
# ``Hierarchical`` moves from point to point without settling.
PER_GROUP = 20


@dataclass(frozen=True)
class Rounds:
    """The split of a budget among the answers, and clipping lengths, from public facts alone.

    Attributes:
        epsilon: the total loss, where rho is None.
        rho: the total loss in zCDP, or None for pure ε-DP.
        moves: number of scores by which the sums of two neighbours differ: 1 or 2.
        rows: the public number of rows.
        parameters: number of parameters, d.
        clip: clipping length of scores in all sums, or None to derive it here.
        delta: the δ at which ε holds.
        groups: number of groups, and of effects of each group, by term of group effects.
        declared: the number of rows is declared, so that the number of records is counted, too.
    """

    epsilon: float
    rho: float | None
    moves: int
    rows: int
    parameters: int
    clip: float | None = None
    delta: float = 0.0
    groups: tuple[tuple[int, int], ...] = ()
    declared: bool = False

    def check(self) -> None:
        """Raise GuaranteeError if the mechanism has no answer of such a size."""
        widest = max(self.parameters, *(width for _, width in self.groups), 0)
        if self.rho is None and widest > RADIAL:
            raise GuaranteeError(
                f"the model has {widest} parameters, or effects of a group; noise for a pure ε is "
                f"drawn for up to {RADIAL}. Leave out terms, or give a `delta`."
            )
        most_groups = max((groups for groups, _ in self.groups), default=0)
        if most_groups * PER_GROUP > self.rows:
            raise GuaranteeError(
                f"{self.rows:,} rows in {most_groups:,} declared groups: mechanism 'score' needs "
                f"{PER_GROUP} rows to a group, as intervals are too short with fewer. Merge "
                f"levels, by public knowledge, to {self.rows // PER_GROUP:,} at most; or take "
                "marginals and keep the regression, or anchored if group effects matter most."
            )

    @property
    def number(self) -> float:
        """Part of the budget for the number of records, where it is not known otherwise."""
        return NUMBER if self.declared else 0.0

    @property
    def number_scale(self) -> float:
        """Scale of the noise of the number of records: sigma, or that of geometric noise."""
        return scale_for(self.moves, self.spent(self.number))

    @property
    def number_sd(self) -> float:
        """Standard deviation of the noise of the number of records."""
        return self.number_scale * (1.0 if self.rho is not None else math.sqrt(2))

    @property
    def table(self) -> float:
        """Part of the budget for the table of outcomes, which is pure ε-DP."""
        # The claim at a delta states the table's part by itself, before rows are known.
        if self.rho is not None:
            return TABLE
        counted = max(COUNTED, EACH * self.parameters)
        return min(MOST_TABLE, counted * self.moves / (self.rows * self.epsilon))

    def spent(self, part: float) -> float:
        """The ε of a pure answer that takes this part of the budget."""
        return part * self.epsilon if self.rho is None else math.sqrt(2 * part * self.rho)

    @property
    def sums(self) -> tuple[float, float]:
        """Parts of the budget for the two sums over all records."""
        return FIRST * (1 - self.table - self.number), self.by_group

    @property
    def by_group(self) -> float:
        """Part of the budget for one term's sums by group; the second overall sum has the same."""
        return (1 - FIRST) * (1 - self.table - self.number) / (1 + len(self.groups))

    def scale(self, part: float) -> float:
        """Scale of the noise for integer scores: sigma, or the scale of radial noise's length."""
        return scale_for(self.moves * GRAINS, self.spent(part))

    def sd(self, part: float, entries: int | None = None) -> float:
        """Standard deviation of the noise in an entry of a sum, in units of the clipping length.

        Args:
            part: part of the budget for the sum.
            entries: number of entries of the sum; by default the number of parameters.
        """
        entries = self.parameters if entries is None else entries
        norm = math.sqrt(entries + 1) if self.rho is None else 1.0
        return norm * self.scale(part) / GRAINS

    def cost(self, lengths: Vector, by_term: Sequence[Vector] = ()) -> Vector:
        """Upper bound on ε for adding or removing each record, shape (n,).

        Args:
            lengths: length of each record's score in the sums over all records, shape (n,).
            by_term: its length in the sums by group, shape (n,), for each term.
        """
        pure = self.spent(self.table) / self.moves
        answers = [(part, self.length(part), lengths) for part in self.sums]
        for (groups, width), lengths_of_term in zip(self.groups, by_term, strict=True):
            answers.append((self.by_group, self.length_by_group(groups, width), lengths_of_term))
        parts = np.array([part for part, _, _ in answers])[:, None]
        shares = (
            np.stack(
                [np.minimum(1, lengths_of_term / clip) for _, clip, lengths_of_term in answers]
            )
            / self.moves
        )
        if self.rho is None:
            pure += self.epsilon * self.number / self.moves
            return np.asarray(pure + self.epsilon * (parts * shares).sum(axis=0))
        rho = self.rho * ((parts * shares**2).sum(axis=0) + self.number / self.moves**2)
        return np.asarray([pure + zcdp_epsilon(loss, self.delta) for loss in rho])

    def length(self, part: float) -> float:
        """Clipping length of scores; the longer, the nearer to the posterior of the likelihood.

        Args:
            part: part of the budget for the sum.
        """
        return self._length(self.rows, self.sd(part), self.parameters)

    def length_by_group(self, groups: int, width: int) -> float:
        """Clipping length of scores along the effects of a term, which are summed by group."""
        return self._length(self.rows / groups, self.sd(self.by_group, width), width)

    def _length(self, rows: float, sd: float, entries: int) -> float:
        if self.clip is not None:
            return self.clip
        return max(LEAST * math.sqrt(entries), min(MOST, math.sqrt(ADDED * rows) / sd))
