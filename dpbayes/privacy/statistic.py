"""Statistics of the records, and the scale of noise that makes them private at a given ε."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import GuaranteeError
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise

OutOfRange = Literal["bit", "truncate"]
OUT_OF_RANGE = ("bit", "truncate")
RADIAL = 24  # most entries with radial noise: with more, too few proposals are accepted
GRAINS = 2**20  # grid steps in one L2 sensitivity
LEAST = 2.0**-30  # ε above which radial noise stays inside 64 bits
_UP = 1 + 1e-12  # exceeds the relative rounding error of these computations
_LOST = 1e-13  # margin for the rounding error of a truncated cost


def scale_for(sensitivity: float, epsilon: float) -> float:
    """Scale at which Laplace noise costs ``epsilon``, rounded up: never towards less privacy."""
    return sensitivity / epsilon * _UP


@dataclass(frozen=True)
class Change:
    """Largest change of a statistic between neighbours.

    At most ``entries`` entries change, in sum by ``entries * step``. By concavity, equal steps are
    the worst case for ``truncated_cost``.

    Source: bowen-liu-2020, section 2.4; liu-2016, section 2.1.

    Attributes:
        step: change of one entry.
        entries: number of entries that change.
        norm: bound on the change in the L2 norm, if known to be below that in L1.
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
        """Sensitivity in the L2 norm; that in L1, which bounds it, unless ``norm`` is given."""
        return self.l1 if self.norm is None else self.norm


def same_change(step: float) -> dict[Adjacency, Change]:
    """Change of one entry by at most ``step``, under either adjacency."""
    return {"add-remove": Change(step), "substitution": Change(step)}


@dataclass(frozen=True)
class Statistic:
    """Statistic of the records to which noise is added.

    Statistics that are sums have whole numbers as values: by rounding, a sum of floating-point
    numbers can change by more than its terms do, which a bound on one record does not cover.
    ``unit`` and ``origin``, which are public, convert the whole numbers.

    Attributes:
        name: name in messages and settings.
        value: array of any shape; whole numbers if ``integer``.
        change: sensitivity of ``value``, by adjacency.
        lower, upper: public range of every entry. Values may lie outside: if the true number of
            records is not public, sums can exceed a range that is based on the public number.
        integer: whether values are whole numbers.
        unit, origin: a value v represents ``origin + unit * v``.
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
        """The represented statistic, clipped to its range, without noise. Confidential."""
        return np.asarray(self.origin + self.unit * np.clip(self.value, self.lower, self.upper))

    def reach(self, adjacency: Adjacency) -> float:
        """L1 sensitivity of the represented statistic."""
        return self.unit * self.change[adjacency].l1

    def sanitised(
        self,
        epsilon: float,
        adjacency: Adjacency,
        noise: Noise,
        out_of_range: OutOfRange = "bit",
    ) -> NDArray[Any]:
        """Return the represented statistic with Laplace noise at ``epsilon``, inside its range.

        ``bit`` (boundary-inflated truncation) moves noisy values outside the range to its boundary,
        which is post-processing. ``truncate`` redraws until all values are inside. That is another
        distribution, whose normalising constant depends on the records: at the plain scale it
        costs up to 2 epsilon, although the papers (Liu 2019; Bowen & Liu, section 4.1) call it
        free. Here its scale is raised until it costs epsilon, for values inside the range; a value
        outside is moved to the boundary first, which moves no two values farther apart.

        Several real numbers without a range get radial noise if its variance is smaller
        (``_radially``).

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
        # Standard deviations per entry of radial and of Laplace noise, both times epsilon.
        less = math.sqrt(entries + 1) * change.l2 < math.sqrt(2) * change.l1
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
        """Return the represented statistic with discrete Gaussian noise, clipped to its range.

        Source: liu-2016, definition 3; canonne-kamath-steinke-2020, theorem 4.

        Guarantee: rho-zCDP for ``adjacency``, given that ``change`` holds: sigma is the L2
        sensitivity over sqrt(2 rho).
        """
        root, norm = math.sqrt(2 * rho), self.change[adjacency].l2
        noisy: NDArray[Any]
        if self.integer:
            noisy = noise.gaussian(self.value, scale_for(norm, root))
        else:
            grain, bound, multiples = self._in_grains(norm)
            noisy = grain * noise.gaussian(multiples, scale_for(bound, root))
        return np.asarray(self.origin + self.unit * np.clip(noisy, self.lower, self.upper))

    def _radially(self, epsilon: float, norm: float, noise: Noise) -> Floats:
        """Add noise of density proportional to exp(-epsilon |e| / norm), on a grid."""
        grain, bound, multiples = self._in_grains(norm)
        return np.asarray(grain * noise.radial(multiples, scale_for(bound, epsilon)))

    def _in_grains(self, norm: float) -> tuple[float, int, NDArray[Any]]:
        """Express the value on a grid.

        Returns:
            Grid step, L2 sensitivity in steps (a whole number), and the value in steps, rounded.
            The sensitivity is GRAINS, plus at most sqrt(entries) by rounding the value, plus less
            than 1 by rounding in the division.
        """
        grain = norm / GRAINS
        multiples = np.rint(self.value / grain).astype(np.int64)
        return grain, GRAINS + math.isqrt(self.value.size) + 2, multiples


def truncated_cost(change: Change, width: float, scale: float, *, integer: bool) -> float:
    """Privacy loss of Laplace noise that is redrawn until the noisy value is inside a range.

    For s inside the range, a noisy entry s* has density exp(-|s* - s| / scale) / Z(s), with Z(s)
    the probability of the range. Z is log-concave and smallest at the ends of the range, so its
    ratio between neighbours is largest for a step from an end.

    Args:
        change: sensitivity of the value.
        width: width of the range; inf for a range that is open above.
        scale: scale of the Laplace noise.
        integer: whether values and noise are whole numbers.
    """
    step = min(change.step, width)
    far = min(step, width / 2)
    q = 1.0
    if integer:
        far = float(math.floor(far)) or min(1.0, width)
        q = math.exp(-1 / scale)
    shift = 1 if integer else 0

    def inside(s: float) -> float:
        # Proportional to Z: the mass below s plus the mass above, by expm1 without cancellation.
        return -(math.expm1(-(s + shift) / scale) + q * math.expm1(-(width - s) / scale))

    gain = (inside(far) - inside(0.0)) / inside(0.0) if width else 0.0
    return change.entries * (step / scale + math.log1p(gain))


@lru_cache(maxsize=1024)
def truncated_scale(change: Change, width: float, epsilon: float, *, integer: bool) -> float:
    """Smallest scale found at which ``truncated_cost`` is at most ``epsilon``."""
    low = change.l1 / epsilon  # costs epsilon without the normalising constant
    high = 2 * low * _UP  # untruncated it costs epsilon / 2; truncated at most twice that
    while high > low * _UP:
        middle = math.sqrt(low * high)
        if truncated_cost(change, width, middle, integer=integer) <= epsilon - _LOST:
            high = middle
        else:
            low = middle
    return high * _UP


def shares(
    names: list[str], weights: Mapping[str, float] | ArrayLike | None, owner: str
) -> dict[str, float]:
    """Split a budget into parts that sum to 1, by name; equal parts by default.

    Args:
        names: names of all parts.
        weights: parts by name or in the order of ``names``; None for equal parts.
        owner: what needs the parts, for messages.
    Raises:
        GuaranteeError: unknown or missing names, parts that are not above 0, or a sum other than 1.
    """
    if weights is None:
        return dict.fromkeys(names, 1 / len(names))
    if not isinstance(weights, Mapping):
        listed = list(np.atleast_1d(np.asarray(weights)).tolist())
        if len(listed) != len(names):
            raise GuaranteeError(
                f"weights = {listed} has {len(listed)} entries; {owner} needs {len(names)}: "
                f"{', '.join(names)}."
            )
        weights = dict(zip(names, listed, strict=True))
    if set(weights) != set(names):
        raise GuaranteeError(
            f"weights name {', '.join(map(str, weights))}; {owner} needs {', '.join(names)}."
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
    total = math.fsum(numbers)  # may exceed 1 by 1e-9, which would overspend the budget
    return {name: weights[name] / max(1.0, total) for name in names}
