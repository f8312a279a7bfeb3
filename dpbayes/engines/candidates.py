"""The engine without Markov chains: the exponential mechanism chooses one of K public points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr
from dpbayes.engines.apart import RECORDS, RowBlock
from dpbayes.engines.base import CompilesOnce, SamplerSettings, StanData
from dpbayes.engines.choices import Candidates, Choices, Outcomes
from dpbayes.engines.draws import SAMPLER_STATS, count_draws, make_draws, stacked
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine, EmbeddedModel
from dpbayes.engines.evaluator import by_parts
from dpbayes.engines.proposal import Proposer, with_rows
from dpbayes.privacy.guarantee import Draw
from dpbayes.stan.program import MULTIPLICITY, StanProgram
from dpbayes.stan.proof.check import each_by_itself, rows_in

POINTS = 10_000
# Entries that a stage changes; no record's log_lik depends on them.
OF_TERMS = {"weights", "anchor", "clip_lower", "clip_upper", "divergence"}
MOST_POINTS = 10_000_000  # their parameters and weights are held in memory
UNIT = 2.0**-30  # terms are whole multiples of it, so that their sums are exact
MOST_SUM = 2**62  # larger sums are clipped to it, so that 64-bit integers hold them
LOWEST = -(2.0**22)  # lower log weights are raised to it: a probability of exp(-4e6)


class CandidatesEngine(CompilesOnce["CandidatesModel"]):
    """Draws one of K public candidate points; for up to five parameters.

    Source: mcsherry-talwar-2007; hu-williams-savitsky, definition 2; eq. 1.1.

    Guarantee: with each record's term in a window of width w, one draw is w-DP when a record is
    added or removed (the exponential mechanism over a finite public set), for every K and every
    set of candidates. No chain has to converge, and there is no seed. Terms are rounded to
    multiples of 2^-30 inside the window and summed as whole numbers, so that the guarantee ignores
    no rounding, and OpenDP draws from the weights exactly. The exception is a user's program whose
    records are not proved to be independent (``each_by_itself``): the last bits of a record's term
    may then depend on other records, which the guarantee states. A score that is not a
    clamped log-likelihood is summed by the program, with a rounding error of about 1e-15 n w.

    Candidates are draws of the prior, or lie around an anchor that was paid for
    (``proposal.Proposer``). K affects only how near the draw comes to a draw of the posterior.

    Args:
        points: K, the number of candidates.
    """

    name = "candidates"
    draw: Draw = "candidates"
    evaluates, takes_metric, checks_threads = True, False, False

    def __init__(self, points: int = POINTS) -> None:
        super().__init__()
        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise EngineError(f"points = {points!r} must be a whole number, at least 2.")
        if points > MOST_POINTS:
            raise EngineError(f"points = {points:,} must be at most {MOST_POINTS:,}.")
        self.points = points
        self._embedded = EmbeddedEngine()

    def versions(self) -> dict[str, str]:
        return self._embedded.versions()

    def translate(self, program: StanProgram) -> CandidatesModel:
        return CandidatesModel(self._embedded.compile(program), self.points)


class CandidatesModel:
    """A compiled program of the candidates engine."""

    def __init__(self, model: EmbeddedModel, count: int) -> None:
        self._model = model
        self._count = count

    def bind(self, data: StanData) -> CandidatesBinding:
        return CandidatesBinding(self._model, data, self._count)


class CandidatesBinding:
    """A program with data, whose draws are candidates; the embedded engine evaluates it."""

    def __init__(
        self,
        model: EmbeddedModel,
        data: StanData,
        count: int,
        candidates: Candidates | None = None,
        kept: dict[str, _Records] | None = None,
    ) -> None:
        self._model = model
        self._data = dict(data)
        self._count = count
        self._candidates = candidates
        self._kept = {} if kept is None else kept  # shared by bindings with the same records

    def rebind(self, **changes: Any) -> CandidatesBinding:
        # log_lik of the records stays the same unless an entry that it depends on is changed.
        cache = self._kept if changes.keys() <= OF_TERMS else None
        return CandidatesBinding(self._model, {**self._data, **changes}, self._count, kept=cache)

    def proposer(self, outcomes: Outcomes | None = None) -> Proposer:
        return Proposer(self._model, self._data, self._count, outcomes)

    def among(self, candidates: Candidates) -> CandidatesBinding:
        return CandidatesBinding(self._model, self._data, self._count, candidates, self._kept)

    def density_model(self) -> EmbeddedBinding:
        return self._bound

    @cached_property
    def choices(self) -> Choices:
        """Candidate points, given by ``among``, with their log weights.

        Raises:
            EngineError: no points are bound, or every weight is 0, which a window excludes.
        """
        candidates = self._candidates
        if candidates is None:
            raise EngineError(
                "the engine candidates draws from public points: bind them with among()."
            )
        low, high = float(self._data["clip_lower"]), float(self._data["clip_upper"])
        base = candidates.log_prior - candidates.log_proposal
        if math.isfinite(high - low) and not self._data.get("divergence"):
            total = self._sums(candidates.points, low, high)
            # This difference is public; values below LOWEST are useless and would overflow.
            total += np.rint(np.maximum(base - base.max(), LOWEST) / UNIT).astype(np.int64)
            log_weight = (total - total.max()) * UNIT
        else:  # let the program sum the terms
            no_weights = self._bound.rebind(weights=np.zeros(int(self._data["n"])))
            summed = self._bound.log_prob(candidates.draws) - no_weights.log_prob(candidates.draws)
            summed = np.where(np.isnan(summed), -np.inf, summed) + base
            if not np.isfinite(summed.max()):
                raise EngineError("the likelihood is 0 or infinite at every candidate point.")
            log_weight = summed - summed.max()
        return Choices(candidates, np.maximum(log_weight, LOWEST))

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        """Draw independent points; uses only chains, draws and seed of the settings.

        For studies and diagnostics: a release chooses from ``choices`` instead.
        """
        choices = self.choices
        rng = np.random.default_rng(settings.resolved_seed())
        shape = (settings.chains, settings.draws)
        index = rng.choice(choices.log_weight.size, size=shape, p=choices.probability)
        columns = {
            key: np.zeros(shape, dtype=bool if name == "diverging" else float)
            for key, name in SAMPLER_STATS.items()
        }
        columns["lp__"] = choices.log_weight[index]
        columns["energy__"] = -columns["lp__"]
        columns["accept_stat__"] = np.ones(shape)
        names = [str(name) for name in choices.points["posterior"].data_vars]
        return make_draws({name: stacked(choices.points, name)[index] for name in names}, columns)

    def random_points(self, count: int, seed: int, width: float = 2.0) -> xr.DataTree:
        return self._bound.random_points(count, seed, width)

    def log_prob(self, draws: xr.DataTree) -> Vector:
        return self._bound.log_prob(draws)

    def log_lik(self, draws: xr.DataTree, *, strict: bool = False) -> Iterator[Vector]:
        return self._records.log_lik(draws, strict=strict)

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        return self._bound.y_rep(draws, index, seed)

    def blocks(self) -> Iterator[tuple[slice, CandidatesBinding]]:
        yield slice(0, int(self._data["n"])), self  # their blocks are cached for all points

    @cached_property
    def _bound(self) -> EmbeddedBinding:
        return self._model.bind(self._data)

    @property
    def _records(self) -> _Records:
        if "records" not in self._kept:
            self._kept["records"] = _Records(self._model, self._data)
        return self._kept["records"]

    def _sums(self, points: Floats, low: float, high: float) -> Ints:
        weights, anchor = (np.asarray(self._data[k], float) for k in ("weights", "anchor"))
        return self._records.sums(points, low, high, weights, anchor)


class _Records:
    """Log-likelihoods of rows in blocks; a row has the same bits in every table that holds it.

    A program whose records are not proved to be independent (``each_by_itself``) gets all of them
    at once.
    """

    def __init__(self, model: EmbeddedModel, data: StanData) -> None:
        n = int(data["n"])
        names = with_rows(data) if model.program.bundled else rows_in(model.program)
        given = {k: np.asarray(data[k]) for k in names if k in data and k not in OF_TERMS}
        columns = {k: values for k, values in given.items() if values.shape[:1] == (n,)}
        counts = np.asarray(data.get(MULTIPLICITY, np.ones(n)), dtype=np.int64)
        padded = each_by_itself(model.program)
        size = RECORDS if padded else max(n, 1)
        # ``Proposer`` leaves out points where a user's program has no log_lik, so a failure at the
        # points of ``sums`` is an error.
        self._strict = not model.program.bundled
        self._blocks: list[tuple[RowBlock, Ints]] = []  # with each row's multiplicity
        for start in range(0, n, size):
            rows = np.arange(start, min(start + size, n))
            block = RowBlock.of(model, data, columns, rows, padded=padded)
            self._blocks.append((block, counts[rows]))

    def sums(
        self, points: Floats, low: float, high: float, weights: Vector, anchor: Vector
    ) -> Ints:
        """Sum clip(weight (f - anchor), low, high) - low over records, in ``UNIT``: shape (K,).

        Each sum is between 0 and n (high - low), wherever the window lies. It is exact, and clipped
        to ``MOST_SUM``: a record raises a clipped sum by no less than 0 and no more than its term.

        Args:
            points: shape (K, d), unconstrained. The coordinates follow the public number of rows,
                so those of the candidates are those of every block.
            weights, anchor: shape (n,).
        """
        if not self._blocks:
            return np.zeros(len(points), dtype=np.int64)
        cuts = np.cumsum([block.size for block, _ in self._blocks])[:-1]
        terms = [np.split(values, cuts) for values in (weights, anchor)]

        def evaluate(part: Floats) -> Ints:
            total = np.zeros(len(part), dtype=object)  # Python's integers, which have no limit
            for (block, counts), alpha, h in zip(self._blocks, *terms, strict=True):
                fs = block.log_lik_at(part, strict=self._strict)
                for k, f in enumerate(fs):
                    total[k] += _exact_sum(_clipped(f, alpha, h, low, high), counts)
            return np.asarray(np.minimum(total, MOST_SUM), dtype=np.int64)

        return by_parts(evaluate, points)

    def log_lik(self, draws: xr.DataTree, *, strict: bool) -> Iterator[Vector]:
        """Evaluate record log-likelihoods as specified in ``BoundModel.log_lik``."""
        if not self._blocks:
            return (np.empty(0) for _ in range(count_draws(draws)))
        points = self._blocks[0][0].bound.unconstrain(draws)
        fs = (block.log_lik_at(points, strict=strict) for block, _ in self._blocks)
        by_point = zip(*fs, strict=True)
        return (np.concatenate(parts) for parts in by_point)


def _exact_sum(terms: Ints, counts: Ints) -> int:
    """Sum terms of 0 or more with their multiplicities, which may exceed 64 bits."""
    if int(terms.max(initial=0)) * int(counts.sum()) >= MOST_SUM:
        return int(terms.astype(object) @ counts.astype(object))
    return int(terms @ counts)


def _clipped(f: Vector, alpha: Vector, anchor: Vector, low: float, high: float) -> Ints:
    """clip(alpha (f - anchor), low, high) - low in ``UNIT``; NaN is the low end, as in Stan."""
    # Rounding up the lower end and down the upper one keeps terms inside the window.
    ends = math.ceil(low / UNIT), math.floor(high / UNIT)
    term = np.empty(len(f))
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(f, anchor, out=term)
        np.multiply(term, alpha, out=term)
        np.fmin(np.fmax(term, low, out=term), high, out=term)
        np.rint(np.divide(term, UNIT, out=term), out=term)
        np.clip(term, *ends, out=term)
    return np.asarray(term.astype(np.int64) - ends[0])
