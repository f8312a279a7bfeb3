"""Questions that a mechanism asks its noise on two neighbouring tables, and their privacy loss.

``interview`` runs the same work on both tables at once. Whenever one run asks for noise, the other
must ask the same question: the same kind, shape and scale, at the same point. Both then get the
same answer. The loss of the question is the largest log ratio that any answer can have, computed
from the values of both sides. Nothing is estimated.
"""

from __future__ import annotations

import functools
import math
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import special
from dpbayes.privacy.noise import BALLS, Noise, StudyNoise

T = TypeVar("T")
Way = Literal["apart", "up", "down"]
WAYS: tuple[Way, ...] = get_args(Way)
WAITING = 600.0  # seconds for one side to ask its next question


Arguments = tuple[Any, ...]  # their types depend on the method


@dataclass(frozen=True)
class NoiseQuestion:
    """A call of a method of ``Noise``.

    Attributes:
        kind: name of the method.
        asked: the argument that depends on the records. Confidential.
        public: all other arguments, which no record may change: shapes, scales, ranges.
    """

    kind: str
    asked: NDArray[Any]
    public: Arguments


@dataclass(frozen=True)
class Lost:
    """Privacy loss of answers, in each direction.

    Attributes:
        up, down: largest log ratio of an answer's probability on the first table to that on the
            second, and the other way round; 0 for Gaussian noise, whose ratio has no bound.
        rest: rho of Gaussian noise.
        rho: rho of all noise.
    """

    up: float = 0.0
    down: float = 0.0
    rest: float = 0.0
    rho: float = 0.0

    @classmethod
    def between(cls, up: float, down: float) -> Lost:
        """Loss of an answer with a log ratio in [-down, up], which is (up + down)^2 / 8-zCDP.

        Source: cesar-rogers-2021.
        """
        return cls(up, down, 0.0, (up + down) ** 2 / 8)

    def plus(self, other: Lost) -> Lost:
        """Add the losses of two answers."""
        return Lost(
            self.up + other.up,
            self.down + other.down,
            self.rest + other.rest,
            self.rho + other.rho,
        )

    @property
    def plain(self) -> float:
        """Loss in the larger direction: an epsilon."""
        return max(self.up, self.down)


NONE_LOST = Lost()


def sum_of(losses: Iterable[Lost]) -> Lost:
    """Add the losses of several answers."""
    return functools.reduce(Lost.plus, losses, NONE_LOST)


class _Answers(StudyNoise):
    """Answers that both sides get.

    Attributes:
        way: as in ``interview``.
    """

    def __init__(self, seed: np.random.Generator, way: Way) -> None:
        super().__init__(seed)
        self.way = way


class _Stop(BaseException):
    """Ends the work of a side whose result is no longer needed."""


class _Asking(Noise):
    """Noise that passes every question to the interviewer."""

    name = "audit: not for release"
    releasable = False

    def __init__(self, ask: Callable[[NoiseQuestion], Any], seed: int) -> None:
        self._ask = ask
        self.rng = np.random.default_rng([seed, 1])  # for random steps after the answers

    def _question(self, kind: str, values: ArrayLike, *public: Any) -> Any:
        array = np.asarray(values)
        return self._ask(NoiseQuestion(kind, array, (array.shape, *public)))

    def counts(self, values: ArrayLike, scale: float) -> Ints:
        return np.asarray(self._question("counts", values, scale))

    def gaussian(self, values: ArrayLike, scale: float) -> Ints:
        return np.asarray(self._question("gaussian", values, scale))

    def radial(self, values: ArrayLike, scale: float) -> Ints:
        return np.asarray(self._question("radial", values, scale))

    def reals(self, values: ArrayLike, scale: float) -> Floats:
        return np.asarray(self._question("reals", values, scale))

    def select(self, scores: ArrayLike, scale: float) -> int:
        return int(self._question("select", scores, scale))

    def inside(
        self, values: ArrayLike, scale: float, lower: float, upper: float, *, integer: bool
    ) -> NDArray[Any]:
        return np.asarray(self._question("inside", values, scale, lower, upper, integer))

    def levels(self, weights: Ints) -> Ints:
        return np.asarray(self._question("levels", weights))

    def urn(
        self, codes: Ints, sizes: Sequence[int], extra: int, size: int, *, doubled: bool
    ) -> Ints:
        public = (tuple(sizes), extra, size, doubled)  # not the confidential number of records
        return np.asarray(self._ask(NoiseQuestion("urn", np.asarray(codes), public)))

    def below(self, ends: ArrayLike) -> NDArray[Any]:
        ends = np.asarray(ends)
        return np.asarray(
            self._ask(NoiseQuestion("below", np.empty(0), (ends.shape, tuple(ends.ravel()))))
        )

    def poisson(self, size: int) -> Ints:
        return np.asarray(self._ask(NoiseQuestion("poisson", np.asarray(size), ())))


@dataclass(frozen=True)
class _Ended:
    """Result of a side, or the error that it raised."""

    result: Any = None
    error: BaseException | None = None


class _Side:
    """Work in a thread that pauses at each question until it is answered."""

    def __init__(self, work: Callable[[Noise], Any], seed: int) -> None:
        self._questions: queue.SimpleQueue[NoiseQuestion | _Ended] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work, self._noise = work, _Asking(self._ask, seed)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _ask(self, question: NoiseQuestion) -> Any:
        self._questions.put(question)
        answer = self._answers.get()
        if isinstance(answer, _Stop):
            raise answer
        return answer

    def _run(self) -> None:
        if isinstance(self._answers.get(), _Stop):
            return
        try:
            self._questions.put(_Ended(self._work(self._noise)))
        except BaseException as error:  # the interviewer re-raises it, or caused it by a _Stop
            self._questions.put(_Ended(error=error))

    def go_on(self, answer: Any = None) -> NoiseQuestion | _Ended:
        """Return the next question, or the end. Only one side works at a time."""
        self._answers.put(answer)
        return self._questions.get(timeout=WAITING)

    def stop(self) -> None:
        """Stop the work and wait for its thread to end."""
        self._answers.put(_Stop())
        self._thread.join(WAITING)


@dataclass(frozen=True)
class Interview(Generic[T]):
    """Result of the work on both tables.

    Attributes:
        losses: loss of each answer, in order.
        differs: the first difference, which no answer accounts for; empty without one.
        results: results of both sides; None if they did not both finish.
        kinds: kinds of the questions, in order.
    """

    losses: tuple[Lost, ...]
    differs: str
    results: tuple[T, T] | None
    kinds: tuple[str, ...]

    @property
    def lost(self) -> Lost:
        """Loss of all answers together."""
        return sum_of(self.losses)


def interview(
    first: Callable[[Noise], T], second: Callable[[Noise], T], seed: int, way: Way = "apart"
) -> Interview[T]:
    """Run the same work on two tables, with the same answers to the same questions.

    Args:
        seed: seed of the answers, and of each side's generator for steps without a question.
        way: how to choose the level if one is asked for by weights: the one whose probabilities
            differ most between the tables (``apart``), or whose log ratio of the first table's
            probability to the second's is highest (``up``) or lowest (``down``).
    Raises:
        The work's own error, if it is the same on both sides.
    """
    sides = [_Side(work, seed) for work in (first, second)]
    try:
        return _asked(sides, _Answers(np.random.default_rng([seed, 0]), way))
    finally:
        for side in sides:
            side.stop()


def _asked(sides: Sequence[_Side], study: _Answers) -> Interview[Any]:
    """Answer question after question, until both sides end or differ."""
    answers: list[Any] = [None, None]
    kinds: list[str] = []
    losses: list[Lost] = []
    while True:
        turns = [side.go_on(answer) for side, answer in zip(sides, answers, strict=True)]
        ended = [turn for turn in turns if isinstance(turn, _Ended)]
        errors = [end.error for end in ended if end.error is not None]
        if len(ended) == 2 and not errors:
            return Interview(tuple(losses), "", (ended[0].result, ended[1].result), tuple(kinds))
        if len(errors) == 2 and str(errors[0]) == str(errors[1]):
            raise errors[0]
        if ended:
            how = "ends in an error" if errors else "asks nothing more"
            differs = f"after {len(kinds)} questions one table {how}, and the other does not"
            return Interview(tuple(losses), differs, None, tuple(kinds))
        a, b = (turn for turn in turns if isinstance(turn, NoiseQuestion))
        if (a.kind, a.public) != (b.kind, b.public):
            differs = f"question {len(kinds) + 1} ({a.kind}) is asked with other settings"
            return Interview(tuple(losses), differs, None, tuple(kinds))
        loss, answers = _KINDS[a.kind](a, b, study)
        losses.append(loss)
        kinds.append(a.kind)


Answered = tuple[Lost, list[Any]]


def _both(lost: Lost, answer: Any) -> Answered:
    return lost, [answer, answer]


def _distance(a: NoiseQuestion, b: NoiseQuestion) -> Floats:
    return np.asarray(np.abs(np.asarray(a.asked, float) - np.asarray(b.asked, float)))


def _pure(epsilon: float) -> Lost:
    return Lost(epsilon, epsilon, 0.0, epsilon**2 / 2)


def _laplace(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of Laplace noise, discrete or continuous: the L1 distance over the scale."""
    _, scale = a.public
    draw = study.counts if a.kind == "counts" else study.reals
    return _both(_pure(float(_distance(a, b).sum()) / scale), draw(a.asked, scale))


def _gaussian(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of Gaussian noise, a rho: half the squared L2 distance over the variance."""
    _, sigma = a.public
    rho = float((_distance(a, b) ** 2).sum()) / (2 * sigma**2)
    return _both(Lost(0.0, 0.0, rho, rho), study.gaussian(a.asked, sigma))


def _radial(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of radial noise with a whole radius: the L2 distance, rounded up, over the scale."""
    _, scale = a.public
    distance = math.ceil(float(np.linalg.norm(_distance(a, b))))
    return _both(_pure(distance / scale), study.radial(a.asked, scale))


def _select(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of the exponential mechanism: the largest log ratio of an index, in each direction."""
    _, scale = a.public
    p, q = (special.log_softmax(np.asarray(side.asked, dtype=float) / scale) for side in (a, b))
    with np.errstate(invalid="ignore"):
        ratio = np.where(p == q, 0.0, p - q)  # p = q = -inf would give nan
    lost = Lost.between(float(ratio.max()), float(-ratio.min()))
    return _both(lost, study.select(a.asked, scale))


def _inside(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of noise truncated to a range: the distances and the normalising constants."""
    _, scale, lower, upper, integer = a.public
    more = 1 if integer else 0
    q = math.exp(-1 / scale) if integer else 1.0

    def log_inside(values: Floats) -> Floats:
        """Log probability to fall inside the range, up to a constant."""
        below = -np.expm1(-(values - lower + more) / scale)
        return np.asarray(np.log(below - q * np.expm1(-(upper - values) / scale)))

    far = _distance(a, b) / scale
    turned = log_inside(np.asarray(b.asked, float)) - log_inside(np.asarray(a.asked, float))
    up, down = float((far + turned).sum()), float((far - turned).sum())
    draw = study.inside(a.asked, scale, lower, upper, integer=integer)
    return _both(Lost.between(up, down), draw)


def _levels(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of drawing a level per row by whole weights; any level where the tables agree."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p, q = (np.log(side.asked / side.asked.sum(axis=1, keepdims=True)) for side in (a, b))
        ratio = np.where(p == q, 0.0, p - q)
    high, low = ratio.max(axis=1), ratio.min(axis=1)
    lost = Lost(float(high.sum()), float(-low.sum()), 0.0, float(((high - low) ** 2).sum() / 8))
    picks = {"apart": np.abs(ratio), "up": ratio, "down": -ratio}[study.way].argmax(axis=1)
    answer = np.where(high > low, picks, study.levels(np.ones_like(a.asked)))
    return _both(lost, answer)


def _urn(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Loss of draws of cells from an urn.

    The extremes are all rows in one cell in which the tables differ, or no row in any of them:
    other draws have ratios in between, as the log ratio is monotone in the rows of such a cell.
    """
    sizes, extra, size, doubled = a.public
    tables = []
    for question in (a, b):
        cells, counts = np.unique(question.asked, axis=0, return_counts=True)
        tables.append(dict(zip(map(tuple, cells.tolist()), counts.tolist(), strict=True)))
    before = np.arange(size) * (BALLS if doubled else 0)

    def log_probability(table: dict[tuple[int, ...], int], cell: tuple[int, ...]) -> float:
        inside = BALLS * table.get(cell, 0) + extra
        every = BALLS * sum(table.values()) + math.prod(sizes) * extra
        return float((np.log(inside + before) - np.log(float(every) + before)).sum())

    differing = [c for c in {*tables[0], *tables[1]} if tables[0].get(c, 0) != tables[1].get(c, 0)]
    # For rows in cells in which the tables agree only the totals differ.
    totals = [float(BALLS * sum(t.values()) + math.prod(sizes) * extra) for t in tables]
    ratios = [float((np.log(totals[1] + before) - np.log(totals[0] + before)).sum())]
    if len(differing) == math.prod(sizes):
        ratios = []
    ratios += [log_probability(tables[0], c) - log_probability(tables[1], c) for c in differing]
    answer = study.urn(a.asked, sizes, extra, size, doubled=doubled)
    return _both(Lost.between(max(0.0, *ratios), max(0.0, *(-r for r in ratios))), answer)


def _below(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Draw uniformly from public numbers of outcomes, which costs nothing."""
    shape, ends = a.public
    return _both(NONE_LOST, study.below(np.array(ends, dtype=object).reshape(shape)))


def _poisson(a: NoiseQuestion, b: NoiseQuestion, study: _Answers) -> Answered:
    """Random copies of records, which are not released: one of each.

    ``evaluate.copies`` computes their loss.
    """
    return NONE_LOST, [np.ones(side.asked, dtype=np.int64) for side in (a, b)]


_KINDS: dict[str, Callable[[NoiseQuestion, NoiseQuestion, _Answers], Answered]] = {
    "counts": _laplace,
    "reals": _laplace,
    "gaussian": _gaussian,
    "radial": _radial,
    "select": _select,
    "inside": _inside,
    "levels": _levels,
    "urn": _urn,
    "below": _below,
    "poisson": _poisson,
}
