"""What draws cost, and what they cost together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dpbayes.errors import GuaranteeError

Composition = Literal["pure", "zCDP"]
_LEAST_RHO = 1e-12  # below it ε alone buys more


@dataclass(frozen=True)
class Loss:
    """Privacy loss of one output when a record is added or removed.

    Attributes:
        epsilon, rho: pure, and zero-concentrated; epsilon is infinite where only rho is bounded.
        changed: both where one record's values change, if that is known to be less than by group
            privacy (twice epsilon, four times rho).
    """

    epsilon: float
    rho: float
    changed: tuple[float, float] | None = None

    @classmethod
    def pure(cls, epsilon: float, changed: float | None = None) -> Loss:
        """An epsilon-DP output, which is epsilon**2 / 2-zCDP.

        Source: bun-steinke-2016.

        Args:
            changed: its epsilon where one record's values change.
        """
        other = None if changed is None else (changed, changed**2 / 2)
        return cls(epsilon, epsilon**2 / 2, other)

    @classmethod
    def bounded_range(cls, width: float) -> Loss:
        """One exact draw from a density whose log changes by a term in an interval of ``width``.

        Guarantee: pure width-DP, and rho = width**2 / 8, because the log density ratio itself has
        range ``width``.

        Source: dong-durfee-rogers-2020; cesar-rogers-2021.
        """
        return cls(width, width**2 / 8)

    @classmethod
    def concentrated(cls, rho: float, changed: float | None = None) -> Loss:
        """A rho-zCDP output, which has no epsilon at delta = 0.

        Source: bun-steinke-2016.

        Args:
            changed: its rho where one record's values change.
        """
        return cls(math.inf, rho, None if changed is None else (math.inf, changed))

    def part(self, share: float) -> float:
        """Epsilon of an epsilon-DP output that costs this share of the loss."""
        if math.isfinite(self.epsilon):
            return share * self.epsilon
        return math.sqrt(2 * share * self.rho)

    def plus(self, other: Loss, count: int = 1) -> Loss:
        """The loss of this output and ``count`` others."""
        changed = None
        if self.changed or other.changed:
            a, b = self.substitution(), other.substitution()
            changed = (a.epsilon + count * b.epsilon, a.rho + count * b.rho)
        return Loss(self.epsilon + count * other.epsilon, self.rho + count * other.rho, changed)

    def scaled(self, factor: float) -> Loss:
        """The loss of the same mechanism at ``factor`` times its epsilon."""
        changed = self.changed and (factor * self.changed[0], factor**2 * self.changed[1])
        return Loss(factor * self.epsilon, factor**2 * self.rho, changed)

    def substitution(self) -> Loss:
        """The loss when one record is changed: at most one removed and one added."""
        return Loss(*(self.changed or (2 * self.epsilon, 4 * self.rho)))


NOTHING = Loss(0.0, 0.0)


def check_delta(delta: float) -> float:
    """``delta`` as a float; 0 asks for pure DP. GuaranteeError outside [0, 1)."""
    ok = isinstance(delta, int | float) and not isinstance(delta, bool)
    if not ok or not 0 <= delta < 1:
        raise GuaranteeError(
            f"delta = {delta!r} must lie in (0, 1), well below 1/n; leave it out for pure ε-DP."
        )
    return float(delta)


def compose(losses: Iterable[tuple[Loss, int]], delta: float = 0.0) -> tuple[float, Composition]:
    """Total epsilon of independent outputs at ``delta``, and the rule that gave it.

    Source: mcsherry-2009; bowen-liu-2020, theorem 2.2; liu-2016, section 2.1.

    Args:
        losses: each loss with how many outputs have it.
        delta: 0 for pure composition; otherwise the smaller of pure composition and zCDP.
    """
    total = NOTHING
    for loss, count in losses:
        total = total.plus(loss, count)
    if check_delta(delta) > 0 and math.isfinite(total.rho):
        epsilon = zcdp_epsilon(total.rho, delta)
        if epsilon < total.epsilon:
            return epsilon, "zCDP"
    return total.epsilon, "pure"


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon found such that rho-zCDP implies (epsilon, delta)-DP; an upper bound.

    By Rényi orders 1.01 to 1e5, through dp-accounting.

    Source: canonne-kamath-steinke-2020, proposition 12; bowen-liu-2020, definition 2.5; eq. 2.3.
    """
    import dp_accounting  # takes seconds to import, and is needed only here
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(
        orders=list(1 + np.logspace(-2, 5, 500)),
        neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho found such that rho-zCDP implies (epsilon, delta)-DP.

    A lower bound; 0 if there is none.
    """
    low, high = 0.0, epsilon  # rho-zCDP costs more than rho at any delta below 1/2
    while high - low > 1e-9 * high and high > _LEAST_RHO:
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


# Sums of binary fractions miss decimal budgets in the last digits: 3 x 0.1 is above 0.3.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Budget:
    """A bound on what all outputs together may cost.

    Attributes:
        epsilon: above 0.
        delta: 0 for pure ε-DP.
        spent: what they cost so far.
    """

    epsilon: float
    delta: float
    spent: Loss

    def admits(self, loss: Loss) -> bool:
        """True if the total stays within the budget with ``loss`` added."""
        total = compose([(self.spent, 1), (loss, 1)], self.delta)[0]
        return total <= self.epsilon * (1 + ROUNDING)

    def largest_count(self, once: Loss, each: Loss, most: int) -> int:
        """The largest m <= ``most`` such that ``once`` and m times ``each`` fit."""
        low, high = 0, most + 1  # fits, does not
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.admits(once.plus(each, middle))
            low, high = (middle, high) if fits else (low, middle)
        return low

    def largest_factor(self, loss: Loss) -> float:
        """The largest factor in [0, 1], rounded down to 1e-4, at which ``loss`` scaled fits."""
        low, high = 0, 10_000
        if self.admits(loss):
            return 1.0
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.admits(loss.scaled(middle / 10_000))
            low, high = (middle, high) if fits else (low, middle)
        return low / 10_000
