"""Statistics of the records, and the scale of noise that a budget buys for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import GuaranteeError
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise

OutOfRange = Literal["bit", "truncate"]
OUT_OF_RANGE = ("bit", "truncate")
RADIAL = 24  # entries up to which radial noise is drawn: beyond, too few proposals are kept
GRAINS = 2**20  # whole numbers that stand for an L2 sensitivity
LEAST = 2.0**-30  # ε above which radial noise stays inside 64 bits
_UP = 1 + 1e-12  # more than floating point can lose
_LOST = 1e-13  # so much of a truncated cost is left to floating point


def scale_for(sensitivity: float, epsilon: float) -> float:
    """Scale at which noise costs ``epsilon``, rounded up: never towards less privacy."""
    return sensitivity / epsilon * _UP


@dataclass(frozen=True)
class Change:
    """What one record can do to a statistic.

    It moves at most ``entries`` of its entries, all together by ``entries * step``: the worst for
    ``truncated_cost``, by concavity, are steps of the same size.

    Source: bowen-liu-2020, section 2.4; liu-2016, section 2.1.

    Attributes:
        norm: bound in the L2 norm, where it is known to be below that in L1.
    """

    step: float
    entries: int = 1
    norm: float | None = None

    @property
    def l1(self) -> float:
        """Sensitivity in the L1 norm."""
        return self.step * self.entries

    @property
    def l2(self) -> float:
        """Sensitivity in the L2 norm, which is at most that in L1."""
        return self.l1 if self.norm is None else self.norm


def same_change(step: float) -> dict[Adjacency, Change]:
    """One entry that a record moves by ``step`` at most, added, removed or changed."""
    return {"add-remove": Change(step), "substitution": Change(step)}


@dataclass(frozen=True)
class Statistic:
    """A function of the records that noise is added to.

    What rests on a sum is a whole number: a sum of floating-point numbers moves by more than its
    terms, and no bound on one record covers that. ``unit`` and ``origin``, which are public, give
    a whole number its meaning.

    Attributes:
        name: for messages and settings.
        value: array of any shape; whole numbers if ``integer``.
        change: what one record can do to ``value``, by adjacency: the sensitivity.
        lower, upper: public range of every entry. No value has to lie inside: where the true
            number of records is not public, sums can leave a range that follows the public one.
        unit, origin: a value v stands for ``origin + unit * v``.
    """

    name: str
    value: NDArray[Any]
    change: dict[Adjacency, Change]
    lower: float
    upper: float
    integer: bool = False
    unit: float = 1
    origin: float = 0

    @property
    def exact(self) -> NDArray[Any]:
        """What the value stands for, inside its range, without noise. Confidential."""
        return np.asarray(self.origin + self.unit * np.clip(self.value, self.lower, self.upper))

    def reach(self, adjacency: Adjacency) -> float:
        """L1 sensitivity of what the value stands for."""
        return self.unit * self.change[adjacency].l1

    def sanitised(
        self,
        epsilon: float,
        adjacency: Adjacency,
        noise: Noise,
        out_of_range: OutOfRange = "bit",
    ) -> NDArray[Any]:
        """What the statistic stands for, with Laplace noise at ``epsilon``, inside its range.

        ``bit`` (boundary-inflated truncation) moves what is outside to the boundary, which is
        post-processing. ``truncate`` draws again until everything is inside. That is another
        distribution, whose normalising constant depends on the records: at the plain scale it
        costs up to 2 epsilon, although the papers (Liu 2019; Bowen & Liu, section 4.1) call it
        free. Here its scale is raised until it costs epsilon, for values inside the range; one that
        is outside is moved to the boundary first, which brings no two values farther apart.

        Several real numbers without a range get radial noise where that is less (``_radially``).

        Source: dwork-mcsherry-nissim-smith-2006; liu-2016, definition 2; section 5.1;
        bowen-liu-2020, definition 2.3; liu-2019.

        Guarantee: epsilon-DP for ``adjacency``, given that ``change`` holds.
        """
        return np.asarray(
            self.origin + self.unit * self._noisy(epsilon, adjacency, noise, out_of_range)
        )

    def _noisy(
        self, epsilon: float, adjacency: Adjacency, noise: Noise, out_of_range: OutOfRange
    ) -> NDArray[Any]:
        change = self.change[adjacency]
        entries = self.value.size
        less = math.sqrt(entries + 1) * change.l2 < math.sqrt(2) * change.l1  # in sd
        real = not self.integer and math.isinf(self.lower)
        if real and less and entries <= RADIAL and epsilon > LEAST:
            return self._radially(epsilon, change.l2, noise)
        draw = noise.counts if self.integer else noise.reals
        if out_of_range == "bit" or math.isinf(self.lower):
            return np.clip(draw(self.value, scale_for(change.l1, epsilon)), self.lower, self.upper)
        inside = np.clip(self.value, self.lower, self.upper)
        scale = truncated_scale(change, self.upper - self.lower, epsilon, integer=self.integer)
        return noise.inside(inside, scale, self.lower, self.upper, integer=self.integer)

    def with_gaussian(self, rho: float, adjacency: Adjacency, noise: Noise) -> NDArray[Any]:
        """What the statistic stands for, with discrete Gaussian noise, moved into its range.

        Source: liu-2016, definition 3; canonne-kamath-steinke-2020, theorem 4.

        Guarantee: rho-zCDP for ``adjacency``, given that ``change`` holds: sigma is the L2
        sensitivity over sqrt(2 rho).
        """
        root, norm = math.sqrt(2 * rho), self.change[adjacency].l2
        noisy: NDArray[Any]
        if self.integer:
            noisy = noise.gaussian(self.value, scale_for(norm, root))
        else:
            grain, most, whole = self._in_grains(norm)
            noisy = grain * noise.gaussian(whole, scale_for(most, root))
        return np.asarray(self.origin + self.unit * np.clip(noisy, self.lower, self.upper))

    def _radially(self, epsilon: float, norm: float, noise: Noise) -> Floats:
        """With noise of density proportional to exp(-epsilon |e| / norm), on a grid."""
        grain, most, whole = self._in_grains(norm)
        return np.asarray(grain * noise.radial(whole, scale_for(most, epsilon)))

    def _in_grains(self, norm: float) -> tuple[float, int, NDArray[Any]]:
        """A unit, the L2 sensitivity in it as a whole number, and the value in it, rounded.

        Sensitivity: GRAINS, and by rounding at most sqrt(entries) more, and less than 1 by the
        division.
        """
        grain = norm / GRAINS
        whole = np.rint(self.value / grain).astype(np.int64)
        return grain, GRAINS + math.isqrt(self.value.size) + 2, whole


def truncated_cost(change: Change, width: float, scale: float, *, integer: bool) -> float:
    """Privacy loss of Laplace noise of a scale, drawn again until it is inside a range.

    Each entry has density exp(-|s* - s| / scale) / Z(s), with Z(s) the chance to be inside, for s
    inside itself. Z is log-concave and smallest at the ends of the range, so its ratio is largest
    for a step from one.

    Args:
        width: of the range; inf for one that is open above.
    """
    step = min(change.step, width)
    far = min(step, width / 2)
    q = 1.0
    if integer:
        far = float(math.floor(far)) or min(1.0, width)
        q = math.exp(-1 / scale)
    more = 1 if integer else 0

    def inside(s: float) -> float:
        # Proportional to Z: what lies below s and what lies above, without cancellation.
        return -(math.expm1(-(s + more) / scale) + q * math.expm1(-(width - s) / scale))

    gain = (inside(far) - inside(0.0)) / inside(0.0) if width else 0.0
    return change.entries * (step / scale + math.log1p(gain))


@lru_cache(maxsize=1024)
def truncated_scale(change: Change, width: float, epsilon: float, *, integer: bool) -> float:
    """The smallest scale found at which ``truncated_cost`` is at most ``epsilon``."""
    low = change.l1 / epsilon  # costs epsilon without the normalising constant
    high = 2 * low * _UP  # costs at most twice what noise of this scale costs: epsilon
    while high > low * _UP:
        middle = math.sqrt(low * high)
        if truncated_cost(change, width, middle, integer=integer) <= epsilon - _LOST:
            high = middle
        else:
            low = middle
    return high * _UP


def shares(names: list[str], weights: Any, what: str) -> dict[str, float]:
    """Parts of a budget by name; equal ones by default.

    Raises:
        GuaranteeError: unknown or missing names, parts that are not above 0, or a sum other than 1.
    """
    if weights is None:
        return dict.fromkeys(names, 1 / len(names))
    if not isinstance(weights, Mapping):
        listed = list(np.atleast_1d(np.asarray(weights)).tolist())
        if len(listed) != len(names):
            raise GuaranteeError(
                f"weights = {listed} has {len(listed)} entries; {what} needs {len(names)}: "
                f"{', '.join(names)}."
            )
        weights = dict(zip(names, listed, strict=True))
    if set(weights) != set(names):
        raise GuaranteeError(
            f"weights name {', '.join(map(str, weights))}; {what} needs {', '.join(names)}."
        )
    numbers = [weights[name] for name in names]
    good = all(
        isinstance(w, int | float) and not isinstance(w, bool) and 0 < w <= 1 for w in numbers
    )
    if not good or not math.isclose(math.fsum(numbers), 1.0, abs_tol=1e-9):
        raise GuaranteeError(
            f"weights = {numbers} must be numbers above 0 that sum to 1; they sum to "
            f"{math.fsum(numbers) if good else 'nothing'}. They are the parts of ε for "
            f"{', '.join(names)}."
        )
    total = math.fsum(numbers)  # at most 1e-9 away from 1
    return {name: weights[name] / max(1.0, total) for name in names}
