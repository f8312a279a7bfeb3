"""Privacy loss of the draws of a perturbed Gibbs sampler, and α for a budget.

A step draws one level of one column, from weights to which α was added at every level. One record
changes its log probability by at most ``w = log(1 + 1/α)``; all losses follow from w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpbayes.mechanisms.tables.urns import odds
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import Adjacency

Kind = Literal["counts", "reset", "any"]
GRAINS = 30  # binary digits of α after the point, if 64 bits allow it
_ROOM = 60  # binary digits of a sum of weights: draws use 64-bit integers
_FAR = 700.0  # exp overflows beyond it; α reaches its smallest value long before


def step_loss(alpha: float) -> float:
    """Loss w of a step: the largest log ratio of the probabilities of one level.

    With a record more, (n + 1 + α)/(N + 1 + Cα) over (n + α)/(N + Cα) is at most (1 + α)/α, and
    the probability of another level falls by (N + 1 + Cα)/(N + Cα) at most, which is less.

    Source: park-ghosh-2014, section 3.3.
    """
    return math.log1p(1 / alpha)


def alpha_for(step: float) -> float:
    """Smallest α at which a step costs w = ``step``: 1 / (e^w - 1).

    Source: park-ghosh-2014, eq. 6.
    """
    return odds(step)


@dataclass(frozen=True)
class Sampler:
    """Steps that draw a data set: ``units`` times ``columns`` of them depend on one record.

    Attributes:
        kind: ``counts``: every step reads one row of a table of counts. ``reset``: the same, but a
            block of steps reads the counts of a row at most once. ``any``: steps draw from
            arbitrary probabilities.
        columns: M, number of columns drawn in turn.
        units: number of records, or of blocks with reset, in one data set.
    """

    kind: Kind
    columns: int
    units: int

    @property
    def steps(self) -> int:
        """Number of steps whose probabilities one record can change."""
        return self.columns * self.units

    def loss(self, step: float) -> Loss:
        """Loss of a data set whose steps have w = ``step``.

        ``counts``: a record is counted in one row for each column. A step visits one row; with the
        record, the log probability of its level rises and those of the others fall by the same
        number: an interval of width log((n + 1 + α)/(n + α)) <= w. So a step is w-DP and, its log
        ratio having range w, w²/8-zCDP. A changed record leaves one row, or enters one, or does
        both in the same row, where the ratio is (n + 1 + α)/(n + α) or its inverse: w again.

        ``reset``: a row is visited as counted once in a block, and is uniform then. So a block
        tells no more than one draw from every row of every table, made beforehand. One record
        moves one row for each column: M w. A changed record moves two where its key changes; the
        one that it leaves by w at most and the one that it enters by log(1 + 1/(Cα)) at most in
        the same direction, C >= 2 levels.

        ``any``: (g + α)/(1 + Cα) is at most (1 + α)/α times as large for any other data.

        Source: park-ghosh-2014, eq. 2; section 3.3; section 3.4; section 3.5;
        dong-durfee-rogers-2020; feldman-zrnic-2021.
        """
        pure, wide = self.steps * step, self.steps * step**2 / 2
        if self.kind == "any":
            return Loss(pure, wide, Loss(pure, wide))
        changed = pure if self.kind == "counts" else self.steps * (step + _entering(step))
        return Loss(pure, wide / 4, Loss(changed, wide))

    def step_for(self, epsilon: float, adjacency: Adjacency) -> float:
        """Largest w at which a data set costs ``epsilon``."""
        part = epsilon / self.steps
        if self.kind == "reset" and adjacency == "substitution":
            # (1 + u)(1 + u/2) = e^part with u = 1/α, solved without cancellation.
            more = math.expm1(min(part, _FAR))
            return math.log1p(4 * more / (math.sqrt(9 + 8 * more) + 3))
        return part

    def step_for_rho(self, rho: float, adjacency: Adjacency) -> float:
        """Largest w at which a data set costs ``rho``."""
        wide = self.kind == "any" or adjacency == "substitution"
        return math.sqrt((2 if wide else 8) * rho / self.steps)


def _entering(step: float) -> float:
    """Loss log(1 + 1/(2α)) at the other levels of a row that a record enters."""
    return math.log1p(math.expm1(step) / 2) if step < _FAR else step


@dataclass(frozen=True)
class Grain:
    """α in whole numbers: ``extra`` balls at every level, ``unit`` for each record.

    Attributes:
        unit: a power of two.
        extra: α times unit, rounded up, which is towards more privacy.
    """

    unit: int
    extra: int

    @classmethod
    def of(cls, alpha: float, levels: int) -> Grain | None:
        """Resolution for a table with this number of levels; None if 64 bits are too few."""
        digits = min(GRAINS, _ROOM - math.ceil(math.log2(max(1.0, alpha * levels))))
        if digits < 0:
            return None
        unit = 2**digits
        return cls(unit, max(1, math.ceil(alpha * unit * (1 + 1e-12))))
