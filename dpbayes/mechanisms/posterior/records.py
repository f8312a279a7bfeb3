"""Records bound to a program, and a stage of a mechanism on them: what is sampled.

``bind_stage`` is the only place where a stage's weights, anchor and window become program data.
The audit examines what it returns, and fits sample it: with group effects by a rebinding that sets
nothing but the coordinates of ``coordinates.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError, GuaranteeError
from dpbayes.core.lazy import pd, xr
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.base import BoundModel, by_record, log_lik_where
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.engines.proposal import Candidates, Proposer, with_rows
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior.coordinates import group_coordinates
from dpbayes.mechanisms.posterior.risk import RecordRisk, record_risk
from dpbayes.mechanisms.posterior.sampled import BoundStage, Posterior
from dpbayes.mechanisms.posterior.stage import UNWEIGHTED, PublicFacts, Stage
from dpbayes.mechanisms.posterior.starts import climbed, independent, piloted
from dpbayes.mechanisms.posterior.weights import ConstantWeights, Reference
from dpbayes.schema.domain import made_up
from dpbayes.stan.model import Model, Replicate
from dpbayes.stan.program import MULTIPLICITY

PILOT_ABOVE = 20_000  # records from which chains start at draws of a pilot fit
PILOT = 2_000  # records of the pilot fit
CHECKED = 40  # records that a user's program is checked on
BLOCKS = 9_000  # the same where it sums blocks of records in threads: three blocks
COARSER = 4  # times fewer points for a draw that only anchors the next stage
SPARE = 4  # random points for each start
# Of warm-up, where chains begin near the posterior with a metric: the part of the iterations that
# were asked for, the least, and the most: from 150 Stan estimates a metric of its own.
WARM = 0.1, 100, 149
_SINGULAR = 1e12  # condition of covariances
# A dense metric costs K^2 per step and K^2 draws to learn: up to so many covariates where chains
# learn it for themselves, and where draws tell it before.
DENSE_METRIC_COVARIATES = 50, 200


class BoundRecords:
    """The records bound to the program without weights or clamp. Confidential.

    It is what weight sources see (``weights.RecordsView``).

    Attributes:
        n: number of records, at least 1.
        kinds: of equal records. The program has a row for each, and weights are of kinds.
        present: 0.0 where there is no record and one of weight 0 stands for it, otherwise 1.0.
        data: of the program, entries of the contract excepted.
        plain: the compiled program with the records, no weighting and no clamp.
    """

    def __init__(self, task: Task) -> None:
        assert task.model is not None  # PosteriorMechanism.check
        self.task = task
        self.model: Model = task.model
        # A table without records is one of the domain; its posterior is the prior.
        empty = task.records.empty
        records = self.model.constant_record() if empty else task.records
        self.present = 0.0 if empty else 1.0
        self.n = len(records)
        self.data, self.kinds = self._different(self.model.data(records, task.rows))
        program = self.model.program
        self._compiled = task.engine.compile(program)
        if not program.bundled:
            self._check()
        self.plain = self._compiled.bind({**self.data, **contract_defaults(self.size)})

    def _different(self, data: dict[str, Any]) -> tuple[dict[str, Any], UniqueRows]:
        """The data with a row for each kind of record, where the program can count them.

        Of a user's program that has to be proved: else a mean of X over its rows, say, would tell
        which records are equal.
        """
        program = self.model.program
        if not (program.counted and self.model.proof.proved) or self.task.engine.name == "recorded":
            return data, UniqueRows.each(self.n)
        names = dict.fromkeys((*with_rows(data), *self.model.proof.rows))
        given = {name: np.asarray(data[name]) for name in names if name in data}
        columns = {name: values for name, values in given.items() if len(values) == self.n}
        kinds = UniqueRows.among(columns, self.n)
        return kinds.data(data, columns), kinds

    @property
    def size(self) -> int:
        """Number of kinds of records: rows that the program has."""
        return self.kinds.size

    def _check(self) -> None:
        """Check a user's program on made-up records: the confidential ones decide nothing."""
        rows, threads = self.task.rows, self.task.settings.threads_per_chain
        count = CHECKED if threads == 1 else BLOCKS
        others = made_up(self.task.schema, count, np.random.default_rng(CHECKED))
        data = self.model.data(others, rows)
        data |= self.model.constants_at(np.arange(count) % max(1, rows), rows)
        check_contract(
            self.model.program, self._compiled, data,
            private=self.model.private, threads=threads, ends=self.model.ends(),
        )  # fmt: skip

    @cached_property
    def blank(self) -> BoundModel:
        """The program with as many rows as are public, every confidential value a constant."""
        return self.blank_of(self.task.rows)

    def blank_of(self, rows: int) -> BoundModel:
        """The same with another number of rows."""
        return self._compiled.bind(blank_data(self.model, self.task.records, rows))

    def blank_block(self, public: pd.DataFrame) -> BoundModel:
        """The same for some of the public rows, which a bundled program draws one by one."""
        return self._compiled.bind(blank_data(self.model, public, len(public)))

    @cached_property
    def _proposer(self) -> Proposer | None:
        """Of candidate points from the program with public data; None where chains are drawn."""
        if self.task.engine.draw == "chain":
            return None
        compiled: Any = self._compiled
        data = blank_data(self.model, self.task.records, self.task.rows)
        found: Proposer = compiled.proposer(data, self._simulated)
        return found

    def _simulated(self, replicate: Replicate, stride: int) -> dict[str, Any]:
        """Confidential program data, drawn; every so many of the public rows."""
        public = self.model.public(self.task.records, self.task.rows).iloc[::stride]
        return self.model.drawn_data(public, replicate)

    def problem(self) -> PublicFacts:
        """The public facts that a mechanism may use."""
        problem, found = PublicFacts.of(self.model, self.task.rows), self._proposer
        if found is None:
            return problem
        return replace(problem, parameters=found.dimension, points=found.count)

    @cached_property
    def unweighted(self) -> Posterior:
        """The unweighted fit, made when first asked for: risk is measured under it."""
        if self.task.engine.draw == "chain":
            return self.unweighted_released
        # It is not released, and without a window few candidates would share it.
        compiled = get_engine("embedded").compile(self.model.program)
        plain = compiled.bind({**self.data, **contract_defaults(self.size)})
        stage = replace(bind_stage(self, UNWEIGHTED), bound=plain, candidates=None)
        return self._unweighted(stage)

    @cached_property
    def unweighted_released(self) -> Posterior:
        """The same by the engine of the release, for a mechanism that releases it."""
        stage = bind_stage(self, UNWEIGHTED)
        if stage.candidates is None:  # the same data, encoded already
            stage = replace(stage, bound=self.plain)
        return self._unweighted(stage)

    def _unweighted(self, stage: BoundStage) -> Posterior:
        (first,) = np.random.SeedSequence(self.task.entropy).spawn(1)
        return self.sample(stage, first, self.task.checkpoint)

    def sensitivity(self) -> Vector:
        """By kind of record, shape (size,): max over draws of |f_i| under the unweighted fit."""
        self.require(self.unweighted, "unweighted fit")
        return self.unweighted.risk.sensitivity

    def sensitivity_under(self, draws: xr.DataTree) -> Vector:
        """By kind of record, shape (size,): max over given draws of |f_i|."""
        ones = np.ones(self.size)
        if not self.model.program.bundled:
            return record_risk(self.log_lik(draws), ones).sensitivity
        parts = [record_risk(b.log_lik(draws), ones[rows]) for rows, b in self.plain.blocks()]
        return RecordRisk.joined(parts).sensitivity

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        """Log-likelihoods of each kind of record at draws that decide a release: shape (size,).

        The draws are public or paid for. NaN for all records where a user's program rejects one
        with public constants in their place; an EngineError where it does so with records alone.
        """
        if self.model.program.bundled or self.task.engine.name == "recorded":
            return self.plain.log_lik(draws)
        return log_lik_where(self.blank, self.plain, draws, self.size)

    def among(
        self, bound: BoundModel, stage: Stage, drawn: xr.DataTree | None, before: Candidates | None
    ) -> tuple[BoundModel, Candidates | None]:
        """The binding of a stage with the public points that its draws are among, if any."""
        if self._proposer is None:
            return bound, None
        alpha = stage.weights.alpha if isinstance(stage.weights, ConstantWeights) else 1.0
        count = self._proposer.count // (COARSER if stage.coarse else 1)
        found = self._proposer.candidates(alpha, drawn, before, max(2, count))
        engine: Any = bound
        return engine.among(found), found

    def require(self, posterior: Posterior, what: str) -> None:
        """Raise ConvergenceError if it has not converged, unless that was allowed."""
        if posterior.choices is None and not self.task.allow_nonconvergence:
            posterior.diagnostics.require(what)

    @property
    def grouped(self) -> list[str]:
        """Labels of the predictors whose formula has a group term."""
        return [label for model, label in self.model.predictors if model.formula.groups]

    def for_chains(self, stage: BoundStage) -> BoundModel:
        """A stage's density in coordinates that suit the group effects, if there are any."""
        return self._for_chains(stage.bound, {**self.data, **stage.changes}, stage.at)

    def _for_chains(
        self, bound: BoundModel, data: Mapping[str, Any], at: xr.DataTree | None
    ) -> BoundModel:
        """The same density in coordinates that suit the group effects, if there are any."""
        program, engine = self.model.program, self.task.engine
        if not (program.bundled and self.grouped) or engine.name == "recorded":
            return bound
        pilot: Any = bound
        if not isinstance(bound, EmbeddedBinding):
            pilot = get_engine("embedded").compile(program).bind(data)
        return bound.rebind(**group_coordinates(pilot, data, at, self.grouped))

    def _random_starts(
        self, bound: BoundModel, source: BoundModel, chains: int, rng: np.random.Generator
    ) -> xr.DataTree | None:
        """A point for each chain at which the density is not 0; None leaves it to the engine."""
        try:
            points = source.random_points(SPARE * chains, int.from_bytes(rng.bytes(16)))
        except EngineError:  # recorded draws have no other points
            return None
        good = np.flatnonzero(np.isfinite(bound.log_prob(points)))[:chains]
        if good.size < chains:
            return None
        names = [str(name) for name in points["posterior"].data_vars]
        return make_draws({name: stacked(points, name)[good][None] for name in names})

    def sample(
        self,
        bound: BoundStage,
        seed: np.random.SeedSequence,
        checkpoint: Checkpoint | None,
        before: xr.DataTree | None = None,
    ) -> Posterior:
        """Sample a stage with a seed of its own.

        Args:
            before: draws of the stage that it is anchored in.
        """
        number = int(seed.generate_state(1)[0] >> 1)
        given = self.task.settings
        covariates = sum(len(model.formula.names) for model in self.model.columns)
        few, most = DENSE_METRIC_COVARIATES
        dense = covariates <= most and not self.grouped
        metric = given.metric or ("dense_e" if dense else "diag_e")
        settings = replace(given, seed=number, metric=metric)
        if bound.candidates is not None:  # draws for diagnostics, made in no time
            return Posterior.sample(bound, bound.bound, settings)
        chains = self.for_chains(bound)
        rng = np.random.default_rng(seed)
        starts, inverse = self._starts(bound, chains, settings, rng, before)
        if inverse is not None and isinstance(chains, EmbeddedBinding):
            chains = chains.warmed(inverse)
            part, least, longest = WARM
            warmup = min(max(round(part * given.warmup), least), longest)
            metric = "dense_e" if inverse.ndim == 2 else "diag_e"
            settings = replace(settings, warmup=min(warmup, given.warmup), metric=metric)
        elif given.metric is None and covariates > few:
            settings = replace(settings, metric="diag_e")
        return Posterior.sample(
            bound, chains, settings, starts, checkpoint, self.data, self.grouped
        )

    def _starts(
        self,
        bound: BoundStage,
        chains: BoundModel,
        settings: SamplerSettings,
        rng: np.random.Generator,
        before: xr.DataTree | None,
    ) -> tuple[xr.DataTree | None, Floats | None]:
        """Starting points, and a metric to begin with, inverse, where there is one.

        Points have the full width of the operating system's random numbers.

        Stan's own seed has 31 bits, which can be enumerated; a start is uniform on (-2, 2) in each
        unconstrained coordinate, 53 bits for each. With many records the way from there to the
        posterior grows with n, and the posterior shrinks: starts are then draws of a short fit to
        a sample of m records, near it and still overdispersed, by sqrt(n / m), as R-hat needs.
        Around an anchor, where chains far away stay where most terms are clamped, they are draws
        of the stage that it is a draw of, for the same reasons. With fewer records and many
        parameters, chains go on from a run of their own (``piloted``): with its metric if they
        agreed, and else as they would have begun.
        Where a chain starts is no part of its posterior; of several modes it is the one that the
        chain stays in, and ``climbed`` chooses it as an exact draw would.
        """
        if self.model.several_modes and self.task.engine.name != "recorded":
            given: Any = chains
            pilot = given if isinstance(given, EmbeddedBinding) else given.embedded()
            found = climbed(pilot, self.n, settings.chains, rng)
            if found is not None:
                return found, None
        if self.n <= PILOT_ABOVE or not self.model.program.bundled:
            # In coordinates of their own: at a constant's starts, effects would be far out.
            points = self.blank if chains is bound.bound else chains
            far = self._random_starts(chains, points, settings.chains, rng)
            if far is None or not isinstance(chains, EmbeddedBinding):
                return far, None
            run = piloted(chains, far, settings, rng)
            if run is None:
                return far, None
            metric = self._metric(chains, run.draws, settings) if run.agree else None
            return run.draws.isel(draw=[-1]), metric
        if before is not None and not self.grouped:  # whose draws are told in other coordinates
            return _some(before, settings.chains, rng), self._metric(chains, before, settings)
        chosen = self.kinds.of[rng.choice(self.n, PILOT, replace=False)]
        rows, counts = np.unique(chosen, return_counts=True)
        some = {
            key: value[rows] if by_record(key) and len(value) == self.size else value
            for key, value in {**self.data, **bound.changes, "n": len(rows)}.items()
        }
        some[MULTIPLICITY] = counts
        pilot = replace(settings, warmup=500, draws=100, progress=False)
        draws = self._for_chains(self._compiled.bind(some), some, bound.at).sample(pilot)
        return _some(draws, settings.chains, rng), self._metric(chains, draws, settings)

    def _metric(
        self, chains: BoundModel, draws: xr.DataTree, settings: SamplerSettings
    ) -> Floats | None:
        """Covariances of draws whose posterior has about the shape of the chains', or variances.

        Their scale is left to the step size. None with groups, of which other records say other
        things, and where draws do not tell.
        """
        if self.grouped or not isinstance(chains, EmbeddedBinding):
            return None
        _, few = next(chains.blocks())  # bounds of parameters follow from no record
        points = few.unconstrain(draws)
        found = np.atleast_2d(np.cov(points.T))
        told = np.isfinite(found).all() and len(points) > 4 * len(found)
        if not told or np.linalg.cond(found) > _SINGULAR:
            return None
        free = self.task.settings.metric is None  # to take what costs less
        dense = settings.metric == "dense_e" and not (free and independent(points))
        return found if dense else np.diag(found).copy()


def _some(draws: xr.DataTree, count: int, rng: np.random.Generator) -> xr.DataTree:
    """Different draws, as one chain."""
    picked = rng.choice(count_draws(draws), count, replace=False)
    names = [str(name) for name in draws["posterior"].data_vars]
    return make_draws({name: stacked(draws, name)[picked][None] for name in names})


def blank_data(model: Model, records: pd.DataFrame, rows: int) -> dict[str, Any]:
    """Program data without a confidential value, as ``Model.blank``, without weights or clamp."""
    return {**model.blank(records, rows), **contract_defaults(rows)}


class NeighbourRecords(BoundRecords):
    """Other records, with weights by draws of the first ones' unweighted posterior.

    An audit compares the two: a difference of weights is then a record's doing and no Monte Carlo
    noise.

    Args:
        of: the records that were fitted.
        given: other ones, as they are given to ``Synthesizer.fit``.
    """

    def __init__(self, of: BoundRecords, given: pd.DataFrame) -> None:
        found = of.task.schema.validate(given)
        super().__init__(of.task.of(found))
        self._of = of

    def sensitivity(self) -> Vector:
        return self.sensitivity_under(self._of.unweighted.draws)


def bind_stage(
    records: BoundRecords,
    stage: Stage,
    drawn: xr.DataTree | None = None,
    before: Candidates | None = None,
) -> BoundStage:
    """The program with a stage's weights, anchor and window.

    Args:
        drawn: the anchor draw of the stage before, which that stage has paid for.
        before: the public points that it was drawn from, if it was.
    Raises:
        GuaranteeError: the stage does not fit the model, or the anchor not the program.
    """
    for part in (stage.weights, stage.anchor):
        if isinstance(part, Reference):
            part.check(records.model.identity())
    weighting = stage.weights.weighting(records)
    changes = {
        **contract_defaults(records.size),
        "weights": weighting.weights * records.present,
        **stage_constants(records.model, stage),
    }
    if not records.present:  # exactly 0, also where its log-likelihood is not defined
        changes.update(clip_lower=0.0, clip_upper=0.0)
    anchor = at = None
    if stage.anchor != "none":
        at = drawn
        if isinstance(stage.anchor, Reference):
            at = stage.anchor.anchor()
            _check_public_anchor(records, at)
        assert at is not None  # the first stage has no drawn anchor
        anchor = changes["anchor"] = _log_lik_at(records, at)
    bound, candidates = records.among(records.plain.rebind(**changes), stage, at, before)
    each = records.model.by_column()
    return BoundStage(stage, bound, changes, weighting, anchor, at, candidates, each)


def _log_lik_at(records: BoundRecords, at: xr.DataTree) -> Vector:
    """f_i at one point; 0 where it is not finite: still a function of one record and the point."""
    (found,) = records.log_lik(at)
    return np.where(np.isfinite(found), found, 0.0)


def _check_public_anchor(records: BoundRecords, at: xr.DataTree) -> None:
    """Refuse an anchor that the program is not defined at; by public constants, not by records."""
    (found,) = records.blank.log_lik(at)
    if np.isnan(found).all():
        raise GuaranteeError(
            "the anchor lies outside the parameter space of "
            f"{records.model.program.name}.stan, or its density is not defined there. Tune again."
        )


def stage_constants(model: Model, stage: Stage) -> dict[str, Any]:
    """Program data of a stage that no record enters: window and score."""
    lower, upper = stage.window
    data: dict[str, Any] = {"clip_lower": lower, "clip_upper": upper}
    if stage.divergence:
        data["divergence"] = stage.divergence
    return data
