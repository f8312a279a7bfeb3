"""Tests of the contract with every record at an end of its declared domain (see contract.py).

Ordinary records do not show effects that occur only far out, for all records at once, or by which
record is largest. The ends are public: no confidential record is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import xr
from dpbayes.engines.base import BoundModel, SamplerSettings
from dpbayes.engines.draws import count_draws
from dpbayes.stan.program import MULTIPLICITY, StanProgram

TOLERANCE = 1e-9  # relative to the size of the sums compared
REPLICATES = 2  # points where y_rep is compared
RANDOM = 3  # number of random patterns
Ends = Mapping[str, tuple[Any, Any]]
Places = Sequence[tuple[str, Mapping[str, Any]]]


def close(a: Floats, b: Floats, size: float | Floats) -> bool:
    """Whether numbers are equal up to rounding, relative to ``size``."""
    with np.errstate(invalid="ignore"):  # differences of infinities are NaN
        near = np.abs(a - b) <= TOLERANCE * np.maximum(1.0, size)
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())


def broken(program: StanProgram, message: str) -> ProgramError:
    """Error for a program that breaks the contract."""
    return ProgramError(f"{program.name}.stan breaks the contract: {message}")


def counts_of(program: StanProgram, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random multiplicities of rows, 1, 2 or 3; empty for a program that does not take them."""
    return {MULTIPLICITY: rng.integers(1, 4, n)} if program.counted else {}


def patterns(n: int, rng: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of shape (n,): True for records at the upper end, False for the lower.

    All at the lower end, all at the upper, alternating, halves, a single one, random ones.
    """
    place = np.arange(n)
    lower = np.zeros(n, dtype=bool)
    alone = place == rng.integers(n)
    yield from (lower, ~lower, place % 2 == 0, place % 2 == 1, place < n // 2, alone, ~alone)
    for _ in range(RANDOM):
        yield rng.random(n) < 0.5


@dataclass(frozen=True)
class AtEnds:
    """A test of a program whose records are moved to the ends of their domain.

    Attributes:
        bound: the program with the contract's defaults.
        draws: points at which the program is evaluated.
        ends: by confidential entry, one record's value at either end.
        n: number of records.
        rng: draws patterns, weights, anchors and windows.
    """

    program: StanProgram
    bound: BoundModel
    draws: xr.DataTree
    ends: Ends
    n: int
    rng: np.random.Generator

    def check(self) -> None:
        """Test all patterns of records at the ends.

        Raises:
            ProgramError: target, log_lik or y_rep moves where it must not; says which.
        """
        # In a window of width 0 every term is 0, so that target must be the prior alone.
        closed = self.bound.rebind(clip_lower=0.0, clip_upper=0.0)
        base = closed.log_prob(self.draws)
        replicates = self._replicates(self.bound)
        counts = counts_of(self.program, self.n, self.rng)
        drawn = {"weights": self.rng.random(self.n), "anchor": self.rng.normal(size=self.n)}
        drawn |= counts
        self._compare_replicates(replicates, self.bound.rebind(**drawn), "weights or anchor")
        lower, upper = (self._log_lik(np.full(self.n, end)) for end in (False, True))
        for at_upper in patterns(self.n, self.rng):
            changes = self._moved(at_upper)
            target = self._evaluate(lambda c=changes: closed.rebind(**c).log_prob(self.draws))
            if not close(target, base, np.abs(base)):
                raise broken(
                    self.program,
                    "with records at the ends of the declared domain, target depends on "
                    f"{self._names} past pseudo_log_lik: a prior, a likelihood term, a reject or "
                    "an error outside the clamp.",
                )
            log_lik = self._log_lik(at_upper)
            if not close(log_lik, np.where(at_upper, upper, lower), size_of(log_lik)):
                raise broken(
                    self.program,
                    "with records at the ends of the declared domain, a record's log_lik depends "
                    f"on other records' {self._names}.",
                )
            self._check_window(changes, base, log_lik)
            self._compare_replicates(replicates, self.bound.rebind(**changes), self._names)

    def _check_window(self, changes: dict[str, Any], base: Floats, log_lik: Floats) -> None:
        """Require that target moves by the clamped sum of log_lik, in an asymmetric window."""
        low, high = -self.rng.uniform(0.5, 2), self.rng.uniform(0.1, 0.4)
        weights = self.rng.uniform(0.1, 1, self.n)
        near = np.nan_to_num(log_lik[0], nan=0.0, posinf=0.0, neginf=0.0)
        anchor = near + self.rng.normal(size=self.n)  # terms lie on both sides of it
        counts = counts_of(self.program, self.n, self.rng)
        many = counts.get(MULTIPLICITY, np.ones(self.n))
        stage = {"weights": weights, "anchor": anchor, "clip_lower": low, "clip_upper": high}
        bound = self.bound.rebind(**changes, **stage, **counts)
        target = self._evaluate(lambda: bound.log_prob(self.draws))

        def terms(f: Floats) -> Floats:
            with np.errstate(invalid="ignore", over="ignore"):
                return np.asarray(many * np.fmin(np.fmax(weights * (f - anchor), low), high))

        # Generated quantities and target round a large log_lik differently.
        rounding = TOLERANCE * size_of(log_lik)
        slack = np.abs(terms(log_lik + rounding) - terms(log_lik - rounding)).sum(axis=1)
        expected = base + terms(log_lik).sum(axis=1)
        size = np.abs(base) + np.abs(terms(log_lik)).sum(axis=1) + slack / TOLERANCE
        if not close(target, expected, size):
            raise broken(
                self.program,
                "with records at the ends of the declared domain, target is not the prior and the "
                "clamped sum of log_lik: pass weights, anchor and window on unchanged, and emit "
                "the log_lik that is summed.",
            )

    def check_gradient(self, inside: Places = ()) -> None:
        """Test that target has a gradient where all records are at an end of the domain.

        A term that is clamped has none to give, but 0 times an infinite derivative is not 0: one
        record there would leave the chains without a direction, and decide whether there is
        a release. One point with a gradient is enough: see docs/limits.md on programs that have
        none at some points.

        Args:
            inside: further places to test, in words and as data of n records.
        Raises:
            ProgramError: it has none.
        """
        window = {"clip_lower": -1.0, "clip_upper": 1.0}
        places: list[tuple[str, Mapping[str, Any]]] = [
            (
                f"{self._names} at the {name} end of the declared domain",
                self._moved(np.full(self.n, at, dtype=bool)),
            )
            for at, name in enumerate(("lower", "upper"))
        ]
        for words, records in [*places, *inside]:
            if not self._has_gradient({**window, **records}).any():
                raise broken(
                    self.program,
                    f"with {words}, target has no gradient, and chains could not move: one record "
                    "there would prevent a release. Move such values by public numbers, as by "
                    "`vector[n] inside = fmax(y, 0.001)` in transformed data; or take mechanism "
                    "score, which needs no gradient.",
                )

    def _has_gradient(self, changes: dict[str, Any]) -> NDArray[np.bool_]:
        """Mask of the points where the gradient is finite, shape (points,), or of chains there."""
        bound = self.bound.rebind(**changes)
        try:
            model = bound.density_model()
            slopes = [model.density(point)[1] for point in model.unconstrain(self.draws)]
        except ProgramError:  # CmdStan alone takes the program, and begins no chain without one
            with contextlib.suppress(EngineError):
                bound.sample(SamplerSettings(chains=2, warmup=1, draws=4, seed=1))
                return np.array([True])
            return np.array([False])
        return np.asarray(np.isfinite(slopes).all(axis=1))

    def _moved(self, at_upper: NDArray[np.bool_]) -> dict[str, Any]:
        """Confidential entries with every record at one of the ends."""
        return {
            name: np.stack([np.asarray(ends[int(upper)]) for upper in at_upper])
            for name, ends in self.ends.items()
        }

    def _log_lik(self, at_upper: NDArray[np.bool_]) -> Floats:
        bound = self.bound.rebind(**self._moved(at_upper))
        return self._evaluate(lambda: np.stack(list(bound.log_lik(self.draws))))

    def _replicates(self, bound: BoundModel) -> list[NDArray[Any] | None]:
        """Generate y_rep at the first points with fixed seeds; None where that fails."""
        replicates: list[NDArray[Any] | None] = []
        for index in range(min(REPLICATES, count_draws(self.draws))):
            try:
                replicates.append(bound.y_rep(self.draws, index, seed=index))
            except EngineError:
                replicates.append(None)
        return replicates

    def _compare_replicates(
        self, expected: list[NDArray[Any] | None], bound: BoundModel, cause: str
    ) -> None:
        for reference, replicate in zip(expected, self._replicates(bound), strict=True):
            same = (
                reference is replicate
                if reference is None or replicate is None
                else np.array_equal(reference, replicate, equal_nan=True)
            )
            if not same:
                raise broken(
                    self.program,
                    f"y_rep depends on {cause}, by its values or by the random numbers that are "
                    "drawn before it. Generate it from parameters and public data alone.",
                )

    @property
    def _names(self) -> str:
        return ", ".join(self.ends)

    def _evaluate(self, function: Any) -> Floats:
        try:
            return np.asarray(function())
        except (EngineError, ProgramError, RuntimeError):
            raise broken(
                self.program,
                f"it fails with {self._names} at the ends of the declared domain. Every value of "
                "the domain must have a log-likelihood, if only an infinite one.",
            ) from None


def size_of(values: Floats) -> Floats:
    """Absolute values, with 0 in place of what is infinite or no number."""
    return np.nan_to_num(np.abs(values), nan=0.0, posinf=0.0)
