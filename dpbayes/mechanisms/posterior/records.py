"""Bind records to a Stan program, bind a stage of a mechanism to them, and sample it.

``bind_stage`` is the only place where a stage's weights, anchor and window become program data.
Audits examine what it returns, and fits sample it. With group effects, fits first rebind it, which
changes nothing but the coordinates of ``coordinates.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd, xr
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.base import BoundModel, CompiledModel, by_record, log_lik_where
from dpbayes.engines.checkpoint import Checkpoint, Resumable
from dpbayes.engines.choices import Candidates, CandidateSource
from dpbayes.engines.contract import (
    check_gradient,
    check_scores,
    contract_defaults,
)
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.engines.proposal import with_rows
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior.coordinates import group_coordinates
from dpbayes.mechanisms.posterior.made_up import CHECKED, check_on_made_up, made_up_data
from dpbayes.mechanisms.posterior.risk import RecordRisk, record_risk
from dpbayes.mechanisms.posterior.sampled import BoundStage, Posterior
from dpbayes.mechanisms.posterior.stage import UNWEIGHTED, PublicFacts, Stage
from dpbayes.mechanisms.posterior.starts import (
    climbed,
    independent,
    mode_given,
    piloted,
    random_starts,
)
from dpbayes.mechanisms.posterior.weights import ConstantWeights, Reference
from dpbayes.schema import Schema
from dpbayes.stan.model import Model, Replicate
from dpbayes.stan.program import MULTIPLICITY
from dpbayes.stan.proof.check import each_by_itself

PILOT_ABOVE = 20_000  # records above which chains start at draws of a pilot fit
PILOT = 2_000  # records of the pilot fit
COARSER = 4  # a draw that only anchors the next stage is selected from so many times fewer points
# Warm-up of chains that begin near the posterior with a metric: its share of the iterations asked
# for, its minimum and its maximum. From 150 iterations Stan would estimate a metric of its own.
WARM = 0.1, 100, 149
# Least target acceptance rate under a clamp: where a record reaches it the density has a kink, at
# which longer steps diverge (17 to 34 of 4,000 draws of a survival fit at 0.8, 0 or 1 at 0.95).
KINKED = 0.95
_SINGULAR = 1e12  # condition number from which a covariance matrix counts as singular
# Most covariates with which a dense metric, of K^2 numbers, is used: where chains learn it
# themselves, and where earlier draws provide it.
DENSE_METRIC_COVARIATES = 50, 200

# By compiled program, with which public facts it passed its check: a model, its schema, the public
# number of rows and the threads of a chain.
_PASSED: WeakKeyDictionary[CompiledModel, list[tuple[Model, Schema, tuple[int, int]]]] = (
    WeakKeyDictionary()
)


class BoundRecords:
    """The records bound to the program without weights or clamp. Confidential.

    Weight sources see the records through it (``weights.RecordsView``).

    Attributes:
        n: number of records, at least 1.
        kinds: the unique records and their frequencies. The program has one row, and a stage one
            weight, for each unique record, and for copies that stand for none.
        present: 1.0; or 0.0 for an empty table, for which one record of weight 0 stands in.
        data: program data, without the entries that the contract declares (weights, window).
        plain: the compiled program with the records, no weighting and no clamp.
    """

    def __init__(self, task: Task) -> None:
        assert task.model is not None  # PosteriorMechanism.check
        self.task = task
        self.model: Model = task.model
        # An empty table is a neighbour of a table with one record; its posterior is the prior.
        empty = task.records.empty
        records = self.model.constant_record() if empty else task.records
        self.present = 0.0 if empty else 1.0
        self.n = len(records)
        counted = self._counted_as(task)
        self.data, self.kinds = self._unique_records(self._program_data(records), counted)
        self.counted = counted[self.kinds.rows]
        program = self.model.program
        self._compiled = task.engine.compile(program)
        may_share = program.bundled or task.engine.checks_threads
        self.threads = task.settings.threads_per_chain if may_share else 1
        self._check_program()
        self.plain = self._plain(self._compiled)

    def _check_program(self) -> None:
        """Check a user's program on made-up records: public facts alone decide what is found.

        A rehearsal has the same as the fit after it, and one that passed is not checked again.
        """
        if self.model.program.bundled:
            return
        model, schema, numbers = self.model, self.task.schema, (self.task.rows, self.threads)
        passed = _PASSED.setdefault(self._compiled, [])
        if not any(a is model and b is schema and c == numbers for a, b, c in passed):
            check_on_made_up(model, self._compiled, schema, *numbers, chains=False)
            passed.append((model, schema, numbers))

    def _program_data(self, records: pd.DataFrame) -> dict[str, Any]:
        return self.model.data(records, self.task.rows)

    def _counted_as(self, task: Task) -> Vector:
        """What each record counts as: 1, or its sampling weight as a part of the largest."""
        survey = task.schema.survey
        if survey is None or task.records.empty:
            return np.full(self.n, self.present)
        return survey.shares(task.records[survey.weights])

    def _plain(self, compiled: CompiledModel) -> BoundModel:
        """Bind the records to a compiled program, with no clamp and their sampling weights."""
        defaults = {**contract_defaults(self.size), "weights": self.counted}
        return compiled.bind({**self.data, **defaults})

    def check_stage(self, stage: Stage) -> None:
        """Raise ProgramError where made-up records break what this stage asks of a user's program.

        It is ``check_scores`` for the beta-divergence, and ``check_gradient`` for chains.
        """
        program, task, model = self.model.program, self.task, self.model
        if program.bundled:
            return
        data = made_up_data(model, task.schema, task.rows, CHECKED)
        if stage.divergence:
            data["divergence"] = stage.divergence
            check_scores(program, self._compiled, data, model.private, model.ends())
        if task.engine.draw == "chain":
            inside = model.inside(CHECKED)
            check_gradient(program, self._compiled, data, model.ends(), inside=inside)

    def _unique_records(
        self, data: dict[str, Any], counted: Vector
    ) -> tuple[dict[str, Any], UniqueRows]:
        """Reduce the data to unique records with frequencies, where the program supports it.

        Records of one row also count alike.

        A user's program must be proved to keep the contract: otherwise a mean of X over its rows,
        for example, would depend on which records are equal.
        """
        countable = self.model.program.counted and self.model.proof.proved
        if not (countable and self.task.engine.evaluates):
            return data, UniqueRows.each(self.n)
        bundled = self.model.program.bundled
        names = with_rows(data) if bundled else self.model.proof.rows
        by_name = {name: np.asarray(data[name]) for name in names if name in data}
        columns = {name: values for name, values in by_name.items() if len(values) == self.n}
        kinds = UniqueRows.among({**columns, "weights": counted}, self.n)
        if not bundled and each_by_itself(self.model.program):
            kinds = kinds.padded()  # a user's program may magnify a last bit
        return kinds.data(data, columns), kinds

    @property
    def size(self) -> int:
        """Number of unique records, which is the number of rows that the program has."""
        return self.kinds.size

    @cached_property
    def blank(self) -> BoundModel:
        """The program with the public number of rows and constants for confidential values."""
        return self.blank_of(self.task.rows)

    def blank_of(self, rows: int) -> BoundModel:
        """Bind the program to ``rows`` rows with constants for every confidential value.

        What the program reads as the public number of rows stays that of the fit.
        """
        data = blank_data(self.model, self.task.records, rows)
        return self._compiled.bind({**data, "rows": self.task.rows} if "rows" in data else data)

    def blank_block(self, public: pd.DataFrame) -> BoundModel:
        """Bind the program to these public rows with constants for every confidential value.

        A bundled program draws each row by itself, so that rows may be drawn in blocks.
        """
        return self._compiled.bind(blank_data(self.model, public, len(public)))

    @cached_property
    def _proposer(self) -> CandidateSource | None:
        """The source of public candidate points; None for engines that draw by chains."""
        if self.task.engine.draw == "chain":  # saves binding the blank data
            return None
        return self.blank.proposer(self._simulated)

    def _simulated(self, replicate: Replicate, stride: int) -> dict[str, Any]:
        """Simulate the confidential program data for every ``stride``-th public row."""
        public = self.model.public(self.task.records, self.task.rows).iloc[::stride]
        return self.model.drawn_data(public, replicate)

    def problem(self) -> PublicFacts:
        """The public facts that a mechanism may use."""
        facts = PublicFacts.of(self.model, self.task.rows, self.task.schema.survey)
        proposer = self._proposer
        if proposer is None:
            return facts
        return replace(facts, parameters=proposer.dimension, points=proposer.count)

    @cached_property
    def unweighted(self) -> Posterior:
        """The unweighted fit, under which risk is measured; computed at first use."""
        if self.task.engine.draw == "chain":
            return self.unweighted_released
        # This fit is not released, so chains may draw it. Without a window the posterior would
        # concentrate on few candidate points.
        compiled = get_engine("embedded").compile(self.model.program)
        stage = replace(bind_stage(self, UNWEIGHTED), bound=self._plain(compiled), candidates=None)
        return self._unweighted(stage)

    @cached_property
    def unweighted_released(self) -> Posterior:
        """The unweighted fit by the engine of the release, for a mechanism that releases it."""
        stage = bind_stage(self, UNWEIGHTED)
        if stage.candidates is None:  # ``plain`` holds the same data and is encoded already
            stage = replace(stage, bound=self.plain)
        return self._unweighted(stage)

    def _unweighted(self, stage: BoundStage) -> Posterior:
        (first,) = np.random.SeedSequence(self.task.entropy).spawn(1)
        return self.sample(stage, first, self.task.checkpoint)

    def sensitivity(self) -> Vector:
        """Maximum of |f_i| over draws of the unweighted fit, by unique record, shape (size,)."""
        self.require(self.unweighted, "unweighted fit")
        return self.unweighted.risk.sensitivity

    def sensitivity_under(self, draws: xr.DataTree) -> Vector:
        """Maximum of |f_i| over the given draws, by unique record, shape (size,)."""
        ones = np.ones(self.size)
        if not self.model.program.bundled:
            return record_risk(self.log_lik(draws), ones).sensitivity
        parts = [record_risk(b.log_lik(draws), ones[rows]) for rows, b in self.plain.blocks()]
        return RecordRisk.joined(parts).sensitivity

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        """Log-likelihoods of the unique records, shape (size,), at draws that affect a release.

        The draws are public or paid for. At a draw that a user's program rejects even with public
        constants in place of the records, all values are NaN.

        Raises:
            EngineError: the program rejects a draw with these records only.
        """
        if self.model.program.bundled or not self.task.engine.evaluates:
            return self.plain.log_lik(draws)
        return log_lik_where(self.blank, self.plain, draws, self.size)

    def among(
        self, bound: BoundModel, stage: Stage, drawn: xr.DataTree | None, before: Candidates | None
    ) -> tuple[BoundModel, Candidates | None]:
        """The binding of a stage with the public points that draws are selected from, if any.

        Args:
            drawn: the anchor draw of the previous stage, or None.
            before: the public points from which that draw was selected, or None.
        """
        if self._proposer is None:
            return bound, None
        alpha = stage.weights.alpha if isinstance(stage.weights, ConstantWeights) else 1.0
        count = self._proposer.count // (COARSER if stage.coarse else 1)
        candidates = self._proposer.candidates(alpha, drawn, before, max(2, count))
        return bound.among(candidates), candidates

    def require(self, posterior: Posterior, what: str) -> None:
        """Raise ConvergenceError if the chains have not converged, unless that is allowed."""
        if posterior.choices is None and not self.task.allow_nonconvergence:
            posterior.diagnostics.require(what)

    @property
    def grouped(self) -> list[str]:
        """Labels of the predictors whose formula has a group term."""
        return [label for model, label in self.model.predictors if model.formula.groups]

    def for_chains(self, stage: BoundStage) -> BoundModel:
        """A stage's density in coordinates adapted to the group effects, if there are any."""
        return self._for_chains(stage.bound, {**self.data, **stage.changes}, stage.at)

    def _for_chains(
        self, bound: BoundModel, data: Mapping[str, Any], at: xr.DataTree | None
    ) -> BoundModel:
        """The density of a binding in coordinates adapted to the group effects, if any."""
        if not (self.model.program.bundled and self.grouped and self.task.engine.evaluates):
            return bound
        return bound.rebind(**group_coordinates(bound.density_model(), data, at, self.grouped))

    def _random_starts(
        self, bound: BoundModel, source: BoundModel, chains: int, rng: np.random.Generator
    ) -> xr.DataTree | None:
        """Random starts at which the density is positive; None leaves starts to the engine."""
        mode = None
        if self.model.program.bundled and self.problem().wide and not self.grouped:
            # About 0 all terms of large counts are clamped, and chains would stay there.
            data = made_up_data(self.model, self.task.schema, self.task.rows, CHECKED)
            mode = mode_given(self.model, data, CHECKED)
        return random_starts(bound, source, chains, rng, mode)

    def sample(
        self,
        bound: BoundStage,
        seed: np.random.SeedSequence,
        checkpoint: Checkpoint | None,
        before: xr.DataTree | None = None,
    ) -> Posterior:
        """Sample a stage with a seed of its own.

        Args:
            bound: the stage with its data.
            seed: seed of this stage alone.
            checkpoint: storage of finished chains, or None.
            before: draws of the stage by which this one is anchored, or None.
        """
        requested = replace(self.task.settings, threads_per_chain=self.threads)
        density = bound.bound
        if checkpoint is not None and requested.seed is None and isinstance(density, Resumable):
            # Tables of anchors and a noisy number of rows are drawn again in each fit: another
            # density gets randomness of its own, so that two releases share none.
            state = [int(part) for part in seed.generate_state(4)]
            seed = np.random.SeedSequence([*state, int(density.identity(), 16)])
        number = int(seed.generate_state(1)[0] >> 1)
        covariates = sum(len(model.formula.names) for model in self.model.columns)
        most_learnt, most_dense = DENSE_METRIC_COVARIATES
        dense = covariates <= most_dense and not self.grouped
        metric = requested.metric or ("dense_e" if dense else "diag_e")
        settings = replace(requested, seed=number, metric=metric)
        if bound.candidates is not None:  # draws serve diagnostics only and take no time
            return Posterior.sample(bound, bound.bound, settings)
        chains = self.for_chains(bound)
        rng = np.random.default_rng(seed)
        starts, inverse = self._starts(bound, chains, settings, rng, before)
        if inverse is not None:
            chains = chains.density_model().warmed(inverse)
            part, least, longest = WARM
            warmup = min(max(round(part * requested.warmup), least), longest)
            metric = "dense_e" if inverse.ndim == 2 else "diag_e"
            settings = replace(settings, warmup=min(warmup, requested.warmup), metric=metric)
        elif requested.metric is None and covariates > most_learnt:
            settings = replace(settings, metric="diag_e")
        if np.isfinite(bound.stage.window).any():
            settings = replace(settings, adapt_delta=max(settings.adapt_delta, KINKED))
        program = self.model.program
        parameters = None if program.bundled else program.declared("parameters")
        return Posterior.sample(
            bound, chains, settings, starts, checkpoint, self.data, self.grouped, parameters
        )

    def _starts(
        self,
        bound: BoundStage,
        chains: BoundModel,
        settings: SamplerSettings,
        rng: np.random.Generator,
        before: xr.DataTree | None,
    ) -> tuple[xr.DataTree | None, Floats | None]:
        """Starting points, and the inverse metric to begin with, if one is known.

        Stan's own seed has 31 bits, which can be enumerated; starts therefore use the operating
        system's random numbers. A start is uniform on (-2, 2) in each unconstrained coordinate, 53
        bits for each.

        With many records the posterior is narrow, and chains take long to reach it from there.
        Starts are then draws of a short fit to a sample of m records: near the posterior and still
        overdispersed by sqrt(n / m), as R-hat needs. Around an anchor, chains that start far away
        would stay where most terms are clamped: starts are then draws of the stage from which the
        anchor was drawn. With fewer records and many parameters, chains continue from a run of
        their own (``piloted``), with its metric if they agreed and with Stan's default otherwise.

        The starting point does not change the posterior. With several modes a chain stays in the
        one where it starts, and ``climbed`` chooses that mode as an exact draw would.
        """
        if self.model.several_modes and self.task.engine.evaluates:
            starts = climbed(chains.density_model(), self.n, settings.chains, rng)
            if starts is not None:
                return starts, None
        if self.n <= PILOT_ABOVE or not self.model.program.bundled:
            # Adapted coordinates need starts of their own: those drawn with constants for records
            # would put group effects far out.
            points = self.blank if chains is bound.bound else chains
            scattered = self._random_starts(chains, points, settings.chains, rng)
            if scattered is None or not self.task.engine.takes_metric:
                return scattered, None
            pilot_run = piloted(chains.density_model(), scattered, settings, rng)
            if pilot_run is None:
                return scattered, None
            metric = self._metric(chains, pilot_run.draws, settings) if pilot_run.agree else None
            return pilot_run.draws.isel(draw=[-1]), metric
        if before is not None and not self.grouped:  # group effects were drawn in other coordinates
            return _pick_draws(before, settings.chains, rng), self._metric(chains, before, settings)
        chosen = self.kinds.of[rng.choice(self.n, PILOT, replace=False)]
        rows, counts = np.unique(chosen, return_counts=True)
        subset = {
            key: value[rows] if by_record(key) and len(value) == self.size else value
            for key, value in {**self.data, **bound.changes, "n": len(rows)}.items()
        }
        subset[MULTIPLICITY] = counts
        pilot = replace(settings, warmup=500, draws=100, progress=False)
        draws = self._for_chains(self._compiled.bind(subset), subset, bound.at).sample(pilot)
        return _pick_draws(draws, settings.chains, rng), self._metric(chains, draws, settings)

    def _metric(
        self, chains: BoundModel, draws: xr.DataTree, settings: SamplerSettings
    ) -> Floats | None:
        """An inverse metric from draws of a posterior of about the same shape as the chains'.

        These are covariances, or variances for a diagonal metric; the step size adapts their scale.
        None with groups, whose information differs between sets of records, and where there are too
        few draws or their covariances are singular.
        """
        if self.grouped or not self.task.engine.takes_metric:
            return None
        _, block = next(chains.blocks())  # parameter bounds do not depend on records
        points = block.density_model().unconstrain(draws)
        covariances = np.atleast_2d(np.cov(points.T))
        estimable = np.isfinite(covariances).all() and len(points) > 4 * len(covariances)
        if not estimable or np.linalg.cond(covariances) > _SINGULAR:
            return None
        free = self.task.settings.metric is None  # the user leaves the choice to us
        dense = settings.metric == "dense_e" and not (free and independent(points))
        return covariances if dense else np.diag(covariances).copy()


def _pick_draws(draws: xr.DataTree, count: int, rng: np.random.Generator) -> xr.DataTree:
    """Pick ``count`` distinct draws at random, returned as one chain."""
    indices = rng.choice(count_draws(draws), count, replace=False)
    names = [str(name) for name in draws["posterior"].data_vars]
    return make_draws({name: stacked(draws, name)[indices][None] for name in names})


def blank_data(model: Model, records: pd.DataFrame, rows: int) -> dict[str, Any]:
    """Program data without a confidential value (``Model.blank``), weights or clamp."""
    return {**model.blank(records, rows), **contract_defaults(rows)}


class NeighbourRecords(BoundRecords):
    """Neighbouring records, weighted by the unweighted posterior of the fitted records.

    An audit compares the two: as both use the same draws, weights differ by the effect of a record
    and not by Monte Carlo noise.

    Args:
        of: the records that were fitted.
        given: the neighbouring records, in the form that ``Synthesizer.fit`` takes. Their index
            is the row that each has among the records that were fitted.
    """

    def __init__(self, of: BoundRecords, given: pd.DataFrame) -> None:
        self._of, self._places = of, given.index.to_numpy()
        super().__init__(of.task.of(of.task.schema.validate(given)))

    def _check_program(self) -> None:
        """Check nothing: the program, the schema and the public number of rows are the fit's."""

    def _program_data(self, records: pd.DataFrame) -> dict[str, Any]:
        """Program data; one record more has the public facts of one that is there."""
        rows = self.task.rows
        places = np.resize(self._places, self.n) % max(1, rows)
        return {**super()._program_data(records), **self.model.constants_at(places, rows)}

    @property
    def blank(self) -> BoundModel:
        """Its own, from which an audit sees whether candidates follow the records.

        With one row of public columns more or less it is that of the fit: public facts stay.
        """
        rows = len(self.model.public(self.task.records, self.task.rows))
        return super().blank if rows == self.task.rows else self._of.blank

    def sensitivity(self) -> Vector:
        return self.sensitivity_under(self._of.unweighted.draws)


def bind_stage(
    records: BoundRecords,
    stage: Stage,
    drawn: xr.DataTree | None = None,
    before: Candidates | None = None,
) -> BoundStage:
    """Bind the program to a stage's weights, anchor and window.

    Args:
        records: the records bound to the program.
        stage: the stage.
        drawn: the anchor draw of the previous stage, which that stage has paid for.
        before: the public points from which it was selected, if any.
    """
    weighting = stage.weights.weighting(records)
    weighting = replace(weighting, weights=weighting.weights * records.counted)
    changes = {
        **contract_defaults(records.size),
        "weights": weighting.weights,
        **stage_constants(records.model, stage),
    }
    if not records.present:  # a term of exactly 0, even where the log-likelihood is undefined
        changes.update(clip_lower=0.0, clip_upper=0.0)
    anchor = at = None
    if stage.anchor != "none":
        at = drawn
        if isinstance(stage.anchor, Reference):
            at = stage.anchor.anchor()
        assert at is not None  # the first stage has no drawn anchor
        anchor = changes["anchor"] = _log_lik_at(records, at)
    elif stage.centre:
        anchor = changes["anchor"] = np.full(records.size, stage.centre)
    bound, candidates = records.among(records.plain.rebind(**changes), stage, at, before)
    by_column, kinds = records.model.by_column(), records.kinds
    return BoundStage(stage, bound, changes, weighting, anchor, at, candidates, by_column, kinds)


def _log_lik_at(records: BoundRecords, at: xr.DataTree) -> Vector:
    """Log-likelihoods f_i at one point, with 0 in place of values that are not finite.

    Each is still a function of one record and the point, as the guarantee requires.
    """
    (values,) = records.log_lik(at)
    return np.where(np.isfinite(values), values, 0.0)


def check_references(records: BoundRecords, stage: Stage) -> None:
    """Raise GuaranteeError unless a stage's reference fits are of this model and usable.

    Public constants stand in for the records, so that the refusal reveals nothing of them.
    """
    for part in (stage.weights, stage.anchor):
        if isinstance(part, Reference):
            part.check(records.model.identity())
            at = part.anchor() if part is stage.anchor else part.draws
            if all(np.isnan(values).all() for values in records.blank.log_lik(at)):
                raise GuaranteeError(
                    "the reference fit lies outside the parameter space of "
                    f"{records.model.program.name}.stan, or its density is not defined there. "
                    "Tune again."
                )


def stage_constants(model: Model, stage: Stage) -> dict[str, Any]:
    """Program data of a stage that do not depend on records: window and divergence."""
    lower, upper = stage.window
    data: dict[str, Any] = {"clip_lower": lower, "clip_upper": upper}
    if stage.divergence:
        data["divergence"] = stage.divergence
    return data
