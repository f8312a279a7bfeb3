"""Privacy losses, their composition, and budgets."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dpbayes.core.checks import is_number
from dpbayes.core.errors import GuaranteeError

Composition = Literal["pure", "zCDP", "mixed"]
STEPS = 60  # of a bisection, more than the binary digits of a float
_ORDERS = 1 + np.logspace(-2, 5, 500)  # of Rényi divergences
_LEAST_RHO = 1e-12  # a smaller rho is worth less than the same budget in pure ε


@dataclass(frozen=True)
class Loss:
    """Privacy loss of one output, or of several together, when a record is added or removed.

    Attributes:
        plain: sum of the epsilons of the pure outputs.
        rho: sum of the zCDP parameters of all outputs.
        changed: the loss when one record's values change, if it is known to be smaller than group
            privacy gives (twice epsilon, four times rho).
        rest: sum of the zCDP parameters of the outputs that are not pure.
    """

    plain: float
    rho: float
    changed: Loss | None = None
    rest: float = 0.0

    def __post_init__(self) -> None:
        if not (self.plain >= 0 and self.rho >= 0 and self.rest >= 0):  # nor NaN
            raise GuaranteeError("a privacy loss is a number from 0 on.")

    @property
    def epsilon(self) -> float:
        """Pure epsilon; infinite if an output has none."""
        return math.inf if self.rest else self.plain

    @classmethod
    def pure(cls, epsilon: float, changed: float | None = None) -> Loss:
        """Loss of an epsilon-DP output, which is epsilon**2 / 2-zCDP.

        Source: bun-steinke-2016.

        Args:
            changed: epsilon when one record's values change, if known.
        """
        other = None if changed is None else cls.pure(changed)
        return cls(epsilon, epsilon**2 / 2, other)

    @classmethod
    def concentrated(cls, rho: float, changed: float | None = None) -> Loss:
        """Loss of a rho-zCDP output without an epsilon at delta = 0.

        Source: bun-steinke-2016.

        Args:
            changed: rho when one record's values change, if known.
        """
        other = None if changed is None else cls.concentrated(changed)
        return cls(0.0, rho, other, rho)

    @classmethod
    def bounded_range(cls, width: float) -> Loss:
        """Loss of an exact draw whose log density changes by a term in an interval of ``width``.

        Guarantee: pure width-DP, and rho = width**2 / 8, because the log density ratio itself has
        range ``width``.

        Source: dong-durfee-rogers-2020; cesar-rogers-2021.
        """
        return cls(width, width**2 / 8)

    def plus(self, other: Loss, count: int = 1) -> Loss:
        """Return the loss of this output together with ``count`` others."""
        return total([(self, 1), (other, count)])

    def scaled(self, factor: float) -> Loss:
        """Return the loss of the same mechanism at ``factor`` times its epsilon."""
        changed = self.changed and self.changed.scaled(factor)
        square = factor**2
        return Loss(factor * self.plain, square * self.rho, changed, square * self.rest)

    def substitution(self) -> Loss:
        """Return the loss when one record is changed: at most one removed and one added."""
        return self.changed or Loss(2 * self.plain, 4 * self.rho, rest=4 * self.rest)


NOTHING = Loss(0.0, 0.0)


def total(losses: Iterable[tuple[Loss, int]]) -> Loss:
    """Sum the losses of independent outputs, given as pairs of a loss and a number of outputs."""
    counted = [(loss, count) for loss, count in losses if count]
    changed = None
    if any(loss.changed for loss, _ in counted):
        changed = total((loss.substitution(), count) for loss, count in counted)
    return Loss(
        math.fsum(count * loss.plain for loss, count in counted),
        math.fsum(count * loss.rho for loss, count in counted),
        changed,
        math.fsum(count * loss.rest for loss, count in counted),
    )


def check_delta(delta: float) -> float:
    """Return ``delta`` as a float; 0 asks for pure DP. GuaranteeError outside [0, 1)."""
    if not is_number(delta) or not 0 <= delta < 1:
        raise GuaranteeError(
            f"delta = {delta!r} must lie in (0, 1), well below 1/n; leave it out for pure ε-DP."
        )
    return float(delta)


def compose(losses: Iterable[tuple[Loss, int]], delta: float = 0.0) -> tuple[float, Composition]:
    """Total epsilon of independent outputs at ``delta``, and the rule that gave it.

    Guarantee: the smallest of three bounds. ``pure`` is the sum of epsilons, where all have one.
    ``zCDP`` converts the sum of rhos. ``mixed`` adds the epsilons of those that have one to what
    the rhos of the others convert to: the log ratio of the former is at most that sum whatever
    came out before, and the moments of the latter's are bounded likewise, in any order. The losses
    must have been fixed before the first output; of releases that follow each other see ``Budget``.

    Source: mcsherry-2009; bowen-liu-2020, theorem 2.2; liu-2016, section 2.1; bun-steinke-2016.

    Args:
        losses: pairs of a loss and the number of outputs that have it.
        delta: δ of the total; 0 for pure composition.
    """
    spent = total(losses)
    bounds: list[tuple[float, Composition]] = [(spent.epsilon, "pure")]
    if check_delta(delta) > 0 and math.isfinite(spent.rho):
        bounds.append((zcdp_epsilon(spent.rho, delta), "zCDP"))
        if spent.rest and spent.plain:
            bounds.append((spent.plain + zcdp_epsilon(spent.rest, delta), "mixed"))
    return min(bounds)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon found such that rho-zCDP implies (epsilon, delta)-DP; an upper bound.

    Computed by dp-accounting over Rényi orders from 1.01 to 1e5.

    Source: canonne-kamath-steinke-2020, proposition 12; bowen-liu-2020, definition 2.5; eq. 2.3.
    """
    import dp_accounting  # takes seconds to import, and is needed only here
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(
        orders=list(_ORDERS),
        neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def rho_for(epsilon: float, delta: float) -> float:
    """Largest rho found such that rho-zCDP implies (epsilon, delta)-DP; a lower bound.

    It is 0 if there is none.
    """
    low, high = 0.0, epsilon  # rho-zCDP costs more than rho at any delta below 1/2
    while high - low > 1e-9 * high and high > _LEAST_RHO:
        middle = (low + high) / 2
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def largest_epsilon(
    cost: Callable[[float], float], bound: float, least: float, most: float, steps: int = STEPS
) -> tuple[float | None, float]:
    """Largest ε found in [least, most] whose cost is at most ``bound``; None if there is none.

    With it comes a number that every ε has to exceed, for messages.

    Args:
        cost: total cost at an ε, which grows with it; GuaranteeError where the ε is too small.
        steps: halvings of the interval.
    """
    if least <= most and cost(most) <= bound * (1 + ROUNDING):
        return most, least
    best, low, high = None, least, most
    for _ in range(steps):
        middle = (low + high) / 2
        try:
            fits = cost(middle) <= bound
        except GuaranteeError:
            low = middle
            continue
        best = middle if fits else best
        low, high = (middle, high) if fits else (low, middle)
    return best, low


# Sums of binary fractions miss decimal budgets in the last digits: 3 x 0.1 is above 0.3.
ROUNDING = 1e-12


def stated(loss: float) -> str:
    """Format a loss with four digits, rounded up, so that no statement understates it.

    Every ε, ρ and δ that people read is formatted here.
    """
    return _four_digits(loss, decimal.ROUND_CEILING)


def stated_left(left: float) -> str:
    """Format the rest of a budget with four digits, rounded down, so that it is not overstated."""
    return _four_digits(left, decimal.ROUND_FLOOR)


def _four_digits(amount: float, rounding: str) -> str:
    # Ten digits first: 0.1 is 0.1000000000000000055 in binary, which would round up to 0.1001.
    if not math.isfinite(amount) or amount <= 0:
        return f"{amount:.4g}"
    written = decimal.Context(prec=10).create_decimal_from_float(amount)
    return f"{float(decimal.Context(prec=4, rounding=rounding).plus(written)):.4g}"


@lru_cache(maxsize=64)
def _line(epsilon: float, delta: float) -> tuple[float, float]:
    """Rényi order a at which (epsilon, delta) admits most zCDP, and that rho; 0 if there is none.

    It is tau / a, where (a, tau)-Rényi DP implies (epsilon, delta)-DP.

    Source: canonne-kamath-steinke-2020, proposition 12.
    """
    tau = epsilon - np.log1p(-1 / _ORDERS) + np.log(delta * _ORDERS) / (_ORDERS - 1)
    best = np.argmax(tau / _ORDERS)
    return float(_ORDERS[best]), max(0.0, float(tau[best] / _ORDERS[best]))


@dataclass(frozen=True)
class Budget:
    """Bound on the total loss of all outputs, each of which may be chosen after those before it.

    Guarantee: (epsilon, delta)-DP of all outputs, whoever chooses them. A total is admitted if the
    sum of epsilons is at most epsilon, or if a sum at one Rényi order, fixed by epsilon and delta,
    is at most what implies (epsilon, delta)-DP. Each is a bound on all outputs before the first
    that would exceed it, and only the second takes delta. The smallest of all orders would not be:
    who stops where a loss happens to be large then exceeds delta.

    Source: feldman-zrnic-2021; whitehouse-2023; canonne-kamath-steinke-2020, proposition 12.

    Attributes:
        epsilon: total ε that may be spent, above 0.
        delta: δ of the total; 0 for pure ε-DP.
        spent: total loss so far.
    """

    epsilon: float
    delta: float
    spent: Loss

    def share(self, loss: Loss) -> tuple[float, Composition]:
        """Part of ``epsilon`` that a total loss takes, above it if too large, and by which rule.

        Rules are those of ``compose``; of ``zCDP`` and ``mixed`` a part of epsilon is the same part
        of the sum at the fixed order.
        """
        parts: list[tuple[float, Composition]] = [(loss.epsilon, "pure")]
        if self.delta and math.isfinite(loss.rho):
            order, most = _line(self.epsilon, self.delta)
            each = self.epsilon / most if most else math.inf
            parts.append((loss.rho and loss.rho * each, "zCDP"))
            if loss.rest and loss.plain:
                parts.append(((loss.plain / order + loss.rest) * each, "mixed"))
        return min(parts)

    def admits(self, loss: Loss) -> bool:
        """Tell whether the total stays within the budget when ``loss`` is added."""
        return self.share(self.spent.plus(loss))[0] <= self.epsilon * (1 + ROUNDING)

    def largest_count(self, once: Loss, repeated: Loss, most: int) -> int:
        """Return the largest m <= ``most`` such that ``once`` plus m times ``repeated`` fits."""
        low, high = 0, most + 1  # bisection: low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.admits(once.plus(repeated, middle))
            low, high = (middle, high) if fits else (low, middle)
        return low

    def largest_factor(self, loss: Loss) -> float:
        """Return the largest factor in [0, 1], rounded down to 1e-4, such that scaled loss fits."""
        low, high = 0, 10_000
        if self.admits(loss):
            return 1.0
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.admits(loss.scaled(middle / 10_000))
            low, high = (middle, high) if fits else (low, middle)
        return low / 10_000
