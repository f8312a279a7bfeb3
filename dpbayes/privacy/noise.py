"""Random numbers that privacy rests on, and the scale that a budget buys.

``SecureNoise`` is for releases: OpenDP's samplers, which are exact in floating point, and whole
numbers from the operating system. ``StudyNoise`` has the same distributions from a seeded NumPy
generator, for studies and tests; what is made with it is not for release.
"""

from __future__ import annotations

import math
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.errors import GuaranteeError
from dpbayes.privacy.guarantee import Adjacency

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OutOfRange = Literal["bit", "truncate"]
OUT_OF_RANGE = ("bit", "truncate")
_UP = 1 + 1e-12  # more than floating point can lose


class Noise(ABC):
    """Where random numbers come from.

    Attributes:
        releasable: True where the numbers are fit for a release.
        rng: for what is computed from private output; nothing private rests on it.
    """

    releasable: ClassVar[bool]
    rng: np.random.Generator

    @abstractmethod
    def counts(self, values: ArrayLike, scale: float) -> Ints:
        """Whole numbers plus discrete Laplace noise, P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def reals(self, values: ArrayLike, scale: float) -> Floats:
        """Numbers plus Laplace noise of a scale."""

    @abstractmethod
    def select(self, scores: ArrayLike, scale: float) -> int:
        """An index by the exponential mechanism: P(i) proportional to exp(scores[i] / scale)."""

    @abstractmethod
    def below(self, ends: ArrayLike) -> NDArray[Any]:
        """For each end, a whole number that is uniform on 0 .. end - 1."""


class SecureNoise(Noise):
    """For releases. Needs OpenDP (the extra ``dips``) for noise, though not for ``below``."""

    releasable = True

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        return self._laplace(values, scale, int).astype(np.int64)

    def reals(self, values: ArrayLike, scale: float) -> Floats:
        return self._laplace(values, scale, float).astype(np.float64)

    def _laplace(self, values: ArrayLike, scale: float, kind: type) -> NDArray[Any]:
        array = np.asarray(values)
        noisy = _opendp_laplace(scale, kind)(array.ravel().astype(kind).tolist())
        return np.asarray(noisy, dtype=kind).reshape(array.shape)

    def select(self, scores: ArrayLike, scale: float) -> int:
        dp = opendp()
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
        # Gumbel noise, which is what concentrated privacy asks for, is the exponential mechanism.
        measure = dp.zero_concentrated_divergence()
        choose = dp.m.make_noisy_max(*space, measure, scale=float(scale))
        return int(choose(np.asarray(scores, dtype=float).tolist()))

    def below(self, ends: ArrayLike) -> NDArray[Any]:
        ends = np.asarray(ends)
        found = [secrets.randbelow(int(end)) for end in ends.ravel()]
        return np.array(found, dtype=object).reshape(ends.shape)


class StudyNoise(Noise):
    """The same distributions, vectorised, from a seed. Not for release."""

    releasable = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self.rng = np.random.default_rng(seed)

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        array = np.asarray(values, dtype=np.int64)
        # The difference of two geometric variables with success probability 1 - exp(-1/scale).
        p = -math.expm1(-1 / scale)
        return array + self.rng.geometric(p, array.shape) - self.rng.geometric(p, array.shape)

    def reals(self, values: ArrayLike, scale: float) -> Floats:
        array = np.asarray(values, dtype=float)
        return np.asarray(array + self.rng.laplace(0.0, scale, array.shape))

    def select(self, scores: ArrayLike, scale: float) -> int:
        array = np.asarray(scores, dtype=float)
        return int(np.argmax(array / scale + self.rng.gumbel(size=array.shape)))

    def below(self, ends: ArrayLike) -> NDArray[Any]:
        ends = np.asarray(ends)
        if ends.size and int(ends.max()) >= 2**63:  # beyond NumPy's integers
            source = random.Random(int(self.rng.integers(2**63)))
            found = [source.randrange(int(end)) for end in ends.ravel()]
            return np.array(found, dtype=object).reshape(ends.shape)
        return np.asarray(self.rng.integers(ends.astype(np.int64)))


def opendp() -> Any:
    """OpenDP's prelude, or GuaranteeError with the remedy if it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise GuaranteeError(
            'noise of a release is drawn by OpenDP: pip install "dpbayes[dips]". '
            "With a seed NumPy draws it, for studies that are not released."
        ) from None
    dp.enable_features("contrib")
    return dp


@lru_cache(maxsize=32)
def _opendp_laplace(scale: float, kind: type) -> Any:
    dp = opendp()
    if kind is int:  # OpenDP takes Python's int for 32 bits
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    else:
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return dp.m.make_laplace(*space, scale=float(scale))


def scale_for(sensitivity: float, epsilon: float) -> float:
    """Scale at which noise costs ``epsilon``, rounded up: never towards less privacy."""
    return sensitivity / epsilon * _UP


@dataclass(frozen=True)
class Change:
    """What one record can do to a statistic.

    It moves at most ``entries`` of its entries, all together by ``entries * step``: the worst for
    ``truncated_cost``, by concavity, are steps of the same size.
    """

    step: float
    entries: int = 1

    @property
    def l1(self) -> float:
        """Sensitivity in the L1 norm."""
        return self.step * self.entries


def same_change(step: float) -> dict[Adjacency, Change]:
    """One entry that a record moves by ``step`` at most, added, removed or changed."""
    return {"add-remove": Change(step), "substitution": Change(step)}


@dataclass(frozen=True)
class Statistic:
    """A function of the records that noise is added to.

    Attributes:
        name: for messages and settings.
        value: array of any shape; whole numbers if ``integer``.
        change: what one record can do, by adjacency: the sensitivity.
        lower, upper: public range of every entry.
    """

    name: str
    value: NDArray[Any]
    change: dict[Adjacency, Change]
    lower: float
    upper: float
    integer: bool = False

    def sanitised(
        self,
        epsilon: float,
        adjacency: Adjacency,
        noise: Noise,
        out_of_range: OutOfRange = "bit",
    ) -> NDArray[Any]:
        """The statistic with Laplace noise at ``epsilon``, inside its range.

        ``bit`` (boundary-inflated truncation) moves what is outside to the boundary, which is
        post-processing. ``truncate`` draws again until everything is inside. That is another
        distribution, whose normalising constant depends on the records: at the plain scale it
        costs up to 2 epsilon, although the papers (Liu 2019; Bowen & Liu, section 4.1) call it
        free. Here its scale is raised until it costs epsilon.

        Guarantee: epsilon-DP for ``adjacency`` (Dwork et al. 2006), given that ``change`` holds.
        """
        change = self.change[adjacency]
        draw = noise.counts if self.integer else noise.reals
        width = self.upper - self.lower
        if out_of_range == "bit" or not math.isfinite(width):
            return np.clip(draw(self.value, scale_for(change.l1, epsilon)), self.lower, self.upper)
        scale = truncated_scale(change, width, epsilon, integer=self.integer)
        found = np.array(draw(self.value, scale))
        while (outside := (found < self.lower) | (found > self.upper)).any():
            found[outside] = draw(self.value[outside], scale)
        return found


def truncated_cost(change: Change, width: float, scale: float, *, integer: bool) -> float:
    """Privacy loss of Laplace noise of a scale, drawn again until it is inside a range.

    Each entry has density exp(-|s* - s| / scale) / Z(s), with Z(s) the chance to be inside. Z is
    log-concave and smallest at the ends of the range, so its ratio is largest for a step from one.
    """
    step = min(change.step, width)
    far = min(step, width / 2)
    if integer:
        far = float(math.floor(far)) or min(1.0, width)
        q = math.exp(-1 / scale)

        def inside(s: float) -> float:
            return float(1 - (q ** (s + 1) + q ** (width - s + 1)) / (1 + q))
    else:

        def inside(s: float) -> float:
            # 1 - e^(-s/b)/2 - e^(-(w-s)/b)/2, without cancellation for wide noise
            return -(math.expm1(-s / scale) + math.expm1(-(width - s) / scale)) / 2

    return change.entries * (step / scale + math.log(inside(far) / inside(0.0)))


@lru_cache(maxsize=1024)
def truncated_scale(change: Change, width: float, epsilon: float, *, integer: bool) -> float:
    """The smallest scale found at which ``truncated_cost`` is at most ``epsilon``."""
    low = change.l1 / epsilon  # costs epsilon without the normalising constant
    high = 2 * low * _UP  # costs at most twice what noise of this scale costs: epsilon
    while high > low * _UP:
        middle = math.sqrt(low * high)
        if truncated_cost(change, width, middle, integer=integer) <= epsilon:
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
