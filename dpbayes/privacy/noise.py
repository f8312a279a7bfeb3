"""Random numbers on which privacy rests.

``SecureNoise`` is for releases: OpenDP's samplers, which are exact in floating point, and whole
numbers from the operating system. ``StudyNoise`` draws from the same distributions with a seeded
NumPy generator, for studies and tests; its output must not be released.
"""

from __future__ import annotations

import math
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.interrupts import stop_if_interrupted

BALLS = 2**30  # balls of an urn that stand for one record
_GRAIN = 2**62  # number of equally likely outcomes behind a Poisson draw
_AT_ONCE = 16  # proposals of radial noise that are drawn in one call


@lru_cache(maxsize=1)
def _tails() -> Ints:
    """Count the numbers below ``_GRAIN`` that give k or more; in ascending order, so k falls to 1.

    Entries that would be 0 are left out.
    """
    terms = 30  # 1/e is at least its series up to the odd power 29; 30! is above 2^107
    inverse = [Fraction(1, math.factorial(j)) for j in range(terms)]
    least = sum(-f if j % 2 else f for j, f in enumerate(inverse))
    tails = (math.floor(_GRAIN * least * sum(inverse[k:])) for k in range(terms - 1, 0, -1))
    return np.array([tail for tail in tails if tail], dtype=np.int64)


def _norm(k: NDArray[Any]) -> int:
    """Euclidean norm of whole numbers, rounded up."""
    square = int(sum(k * k))
    root = math.isqrt(square)
    return root + (root * root < square)


def _happens(gamma: Fraction) -> bool:
    """Return True with probability exactly exp(-gamma), for gamma of 0 or more.

    Source: canonne-kamath-steinke-2020, algorithm 1.
    """
    while gamma > 1:
        if not _happens(Fraction(1)):
            return False
        gamma -= 1
    count = 1
    while secrets.randbelow(count * gamma.denominator) < gamma.numerator:
        count += 1
    return count % 2 == 1


class Noise(ABC):
    """Source of random numbers for mechanisms.

    Attributes:
        name: name of the source, recorded in a release.
        releasable: whether output that uses these numbers may be released.
        rng: generator for post-processing of private output; no privacy rests on it.
    """

    name: ClassVar[str]
    releasable: ClassVar[bool]
    rng: np.random.Generator

    @abstractmethod
    def counts(self, values: ArrayLike, scale: float) -> Ints:
        """Add discrete Laplace noise to whole numbers: P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def gaussian(self, values: ArrayLike, scale: float) -> Ints:
        """Add discrete Gaussian noise to whole numbers: P(k) proportional to exp(-k^2 / 2 scale^2).

        Guarantee: d^2 / (2 scale^2)-zCDP, where d bounds the L2 norm of the change of all values,
        which are whole numbers, between neighbours.

        Source: canonne-kamath-steinke-2020, theorem 4.
        """

    @abstractmethod
    def radial(self, values: ArrayLike, scale: float) -> Ints:
        """Add noise k to whole numbers, with P(k) proportional to exp(-r(k) / scale).

        r(k) is the Euclidean norm of all entries together, rounded up to a whole number.

        Guarantee: epsilon = d / scale, where d, a whole number, bounds the L2 norm of the change of
        the values between neighbours: r changes by at most d, the normalising constant not at all.

        Source: chaudhuri-monteleoni-2009, algorithm 1; hardt-talwar-2010.
        """

    @abstractmethod
    def reals(self, values: ArrayLike, scale: float) -> Floats:
        """Add Laplace noise to real numbers: density proportional to exp(-|x| / scale)."""

    @abstractmethod
    def select(self, scores: ArrayLike, scale: float) -> int:
        """Draw an index by the exponential mechanism: P(i) proportional to exp(scores[i] / scale).

        Source: mcsherry-talwar-2007; liu-2016, definition 4; bowen-liu-2020, definition 2.4;
        eq. 2.2.
        """

    @abstractmethod
    def below(self, ends: ArrayLike) -> NDArray[Any]:
        """Draw for each end a whole number that is uniform on 0 .. end - 1."""

    def inside(
        self, values: ArrayLike, scale: float, lower: float, upper: float, *, integer: bool
    ) -> NDArray[Any]:
        """Add Laplace noise to values in a range, redrawn until the sum lies in the range.

        The normalising constant depends on the values; ``statistic.truncated_cost`` computes the
        privacy loss.
        """
        draw = self.counts if integer else self.reals
        array = np.asarray(values)
        noisy = np.array(draw(array, scale))
        while (outside := (noisy < lower) | (noisy > upper)).any():
            noisy[outside] = draw(array[outside], scale)
        return noisy

    def levels(self, weights: Ints) -> Ints:
        """Draw a level for each row, with probability exactly proportional to its weight.

        Args:
            weights: whole numbers at or above 0, shape (rows, levels), with sums below 2^62.
        Returns:
            Levels from 0, shape (rows,).
        """
        ends = np.cumsum(weights, axis=1)
        ball = self.below(ends[:, -1]).astype(np.int64)
        return np.asarray((ball[:, None] >= ends).sum(axis=1))

    def urn(
        self, codes: Ints, sizes: Sequence[int], extra: int, size: int, *, doubled: bool
    ) -> Ints:
        """Draw ``size`` balls from an urn of records and return their cells, shape (size, axes).

        Args:
            codes: cells of the n records on each axis, shape (n, axes); a record has ``BALLS``
                balls.
            sizes: number of cells on each axis; each combination of cells has ``extra`` balls.
            doubled: put every drawn ball back with ``BALLS`` more like it.
        """
        records = len(codes) * BALLS
        cells = math.prod(sizes) * extra
        order = np.arange(size)
        ends = np.full(size, records + cells, dtype=object)
        if doubled:
            ends = ends + order.astype(object) * BALLS
        ball = self.below(ends)
        of_record = np.array(ball < records, dtype=bool)
        again = np.array(ball >= records + cells, dtype=bool)
        drawn = np.empty((size, len(sizes)), dtype=np.int64)
        drawn[of_record] = codes[(ball[of_record] // BALLS).astype(np.int64)]
        blank = ~of_record & ~again
        for axis, cells_of_axis in enumerate(sizes):  # uniform over all combinations
            ends_of_axis = np.full(int(blank.sum()), cells_of_axis, dtype=object)
            drawn[blank, axis] = self.below(ends_of_axis).astype(np.int64)
        earlier = ((ball[again] - records - cells) // BALLS).astype(np.int64)
        # In order, because the earlier ball may itself repeat one that was drawn before it.
        for i, j in zip(order[again], earlier, strict=True):
            drawn[i] = drawn[j]
        return drawn

    def poisson(self, size: int) -> Ints:
        """Draw whole numbers from Poisson(1), rounded so that no tail has too much probability.

        Pr(k or more) is that of Poisson(1) rounded down to a multiple of 2^-62. So the distribution
        is known exactly, and E[exp(s k)] is at most that of Poisson(1) for s > 0 and at least that
        for s < 0: claims that rest on these moments hold without a bound on the rounding.
        """
        drawn = self.below(np.full(size, _GRAIN)).astype(np.int64)
        # k is the number of tails {k or more} that contain the drawn number.
        return np.asarray(len(_tails()) - np.searchsorted(_tails(), drawn, side="right"))


class SecureNoise(Noise):
    """Exact noise from the operating system's secret random numbers, for releases.

    Each draw first checks for a signal, so that nothing is drawn for a release that has been
    interrupted.
    """

    name = "release"
    releasable = True

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        return self._added(values, _opendp_laplace(scale, int), int).astype(np.int64)

    def gaussian(self, values: ArrayLike, scale: float) -> Ints:
        return self._added(values, _opendp_gaussian(scale), int).astype(np.int64)

    def radial(self, values: ArrayLike, scale: float) -> Ints:
        """Add radial noise by rejection sampling, in rational numbers.

        With d entries r(k) is at least |k|_1 / sqrt d, so that discrete Laplace noise of sqrt d
        times the scale dominates it and serves as proposal. One proposal in 2 is accepted for
        d = 4, one in 60 for d = 16, one in 500 for d = 24.
        """
        array = np.asarray(values, dtype=np.int64)
        wide = scale * math.sqrt(array.size) * (1 + 1e-12)
        while True:
            drawn = self.counts(np.zeros((_AT_ONCE, array.size)), wide)
            for k in drawn.astype(object):
                r, far = _norm(k), sum(abs(k))
                if _happens(Fraction(r) / Fraction(scale) - Fraction(far) / Fraction(wide)):
                    return np.asarray(array + k.astype(np.int64).reshape(array.shape))

    def reals(self, values: ArrayLike, scale: float) -> Floats:
        return self._added(values, _opendp_laplace(scale, float), float).astype(np.float64)

    def _added(self, values: ArrayLike, measurement: Any, kind: type) -> NDArray[Any]:
        stop_if_interrupted()
        array = np.asarray(values)
        noisy = measurement(array.ravel().astype(kind).tolist())
        return np.asarray(noisy, dtype=kind).reshape(array.shape)

    def select(self, scores: ArrayLike, scale: float) -> int:
        stop_if_interrupted()
        dp = opendp()
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
        # Gumbel noise, which is what concentrated privacy asks for, is the exponential mechanism.
        measure = dp.zero_concentrated_divergence()
        choose = dp.m.make_noisy_max(*space, measure, scale=float(scale))
        return int(choose(np.asarray(scores, dtype=float).tolist()))

    def below(self, ends: ArrayLike) -> NDArray[Any]:
        stop_if_interrupted()
        ends = np.asarray(ends)
        drawn = [secrets.randbelow(int(end)) for end in ends.ravel()]
        return np.array(drawn, dtype=object).reshape(ends.shape)


class StudyNoise(Noise):
    """Noise of the same distributions from a seeded generator, vectorised. Not for release."""

    name = "numpy, seeded: not for release"
    releasable = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        self.rng = np.random.default_rng(seed)

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        array = np.asarray(values, dtype=np.int64)
        return array + self._laplace(array.shape, scale)

    def _laplace(self, shape: tuple[int, ...], scale: float) -> Ints:
        # The difference of two geometric variables with success probability 1 - exp(-1/scale).
        p = -math.expm1(-1 / scale)
        return np.asarray(self.rng.geometric(p, shape) - self.rng.geometric(p, shape))

    def gaussian(self, values: ArrayLike, scale: float) -> Ints:
        """Add discrete Gaussian noise by rejection sampling.

        Source: canonne-kamath-steinke-2020, algorithm 3.
        """
        array = np.asarray(values, dtype=np.int64)
        accepted, left = np.zeros(array.size, dtype=np.int64), np.arange(array.size)
        wide = math.floor(scale) + 1
        while left.size:
            drawn = self._laplace(left.shape, wide)
            off = (np.abs(drawn) - scale**2 / wide) / scale
            taken = self.rng.random(left.size) < np.exp(-(off**2) / 2)
            accepted[left[taken]] = drawn[taken]
            left = left[~taken]
        return array + accepted.reshape(array.shape)

    def radial(self, values: ArrayLike, scale: float) -> Ints:
        """Add a random radius times a random direction, rounded; close to exact if scale >> 1."""
        array = np.asarray(values, dtype=np.int64)
        away = self.rng.standard_normal(array.shape)
        length = self.rng.gamma(array.size, scale)
        return array + np.rint(length * away / np.linalg.norm(away)).astype(np.int64)

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
            drawn = [source.randrange(int(end)) for end in ends.ravel()]
            return np.array(drawn, dtype=object).reshape(ends.shape)
        return np.asarray(self.rng.integers(ends.astype(np.int64)))


def opendp() -> ModuleType:
    """Import OpenDP's prelude, which takes a second, and return it."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    prelude: ModuleType = dp
    return prelude


@lru_cache(maxsize=32)
def _opendp_gaussian(scale: float) -> Any:
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=float(scale))


@lru_cache(maxsize=32)
def _opendp_laplace(scale: float, kind: type) -> Any:
    dp = opendp()
    if kind is int:  # OpenDP takes Python's int for 32 bits
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    else:
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return dp.m.make_laplace(*space, scale=float(scale))
