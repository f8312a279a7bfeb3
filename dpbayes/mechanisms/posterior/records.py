"""Records bound to a program, and a stage of a mechanism on them: what is sampled.

``bind_stage`` is the only place where a stage's weights, anchor and window become program data.
Fits sample what it returns, and the audit examines what it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.arrays import Vector
from dpbayes.engines import SamplerSettings, get_engine
from dpbayes.engines.base import BoundModel
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.diagnostics import Diagnostics, diagnose, load_checks
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.errors import GuaranteeError
from dpbayes.heavy import pd, xr
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior.risk import RecordRisk, record_risk
from dpbayes.mechanisms.posterior.stage import UNWEIGHTED, Problem, Stage
from dpbayes.mechanisms.posterior.weights import Reference, Weighting
from dpbayes.stan.model import PRIVATE, Model

PILOT_ABOVE = 20_000  # records from which chains start at draws of a pilot fit
PILOT = 2_000  # records of the pilot fit
BY_RECORD = ("y", "X", "group", "weights", "anchor")  # data entries with a value or row a record
DENSE_METRIC_COVARIATES = 50  # a dense metric costs K^2 per step and K^2 draws to learn


class BoundRecords:
    """The records bound to the program without weights or clamp. Confidential.

    It is what weight sources see (``weights.RecordsView``).

    Attributes:
        n: number of records.
        design: the design matrix and its public scaling.
        plain: the compiled program with the records, no weighting and no clamp.
    """

    def __init__(self, task: Task) -> None:
        assert task.model is not None  # PosteriorMechanism.check
        self.task = task
        self.model: Model = task.model
        self.n = len(task.records)
        self.design, self.data = self.model.data(task.records)
        program = self.model.program
        compiled = task.engine.compile(program)
        if not program.bundled:
            threads = task.settings.threads_per_chain
            check_contract(program, compiled, self.data, private=PRIVATE, threads=threads)
        self.plain = compiled.bind({**self.data, **contract_defaults(self.n)})

    def problem(self) -> Problem:
        """The public facts that a mechanism may use."""
        n, K = self.design.X.shape
        return Problem(
            n=n,
            parameters=2 + K + len(self.design.group_levels),
            discrete=self.model.discrete,
        )

    @cached_property
    def unweighted(self) -> Posterior:
        """The unweighted fit, made when first asked for: risk is measured under it."""
        if self.task.engine.draw == "chain":
            return self._unweighted(self.plain)
        # It is not released: that it is too narrow for a grid does not matter.
        compiled = get_engine("embedded").compile(self.model.program)
        return self._unweighted(compiled.bind({**self.data, **contract_defaults(self.n)}))

    @cached_property
    def unweighted_released(self) -> Posterior:
        """The same by the engine of the release, for a mechanism that releases it."""
        if self.task.engine.draw == "chain":
            return self.unweighted
        return self._unweighted(self.plain)

    def _unweighted(self, bound: BoundModel) -> Posterior:
        (first,) = np.random.SeedSequence(self.task.entropy).spawn(1)
        stage = replace(bind_stage(self, UNWEIGHTED), bound=bound)
        return self.sample(stage, first, self.task.checkpoint)

    def sensitivity(self) -> Vector:
        """Shape (n,): max over draws of |f_i| under the unweighted fit."""
        self.require(self.unweighted, "unweighted fit")
        return self.unweighted.risk.sensitivity

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        """Record log-likelihoods at given draws."""
        return self.plain.log_lik(draws)

    def require(self, posterior: Posterior, what: str) -> None:
        """Raise ConvergenceError if it has not converged, unless that was allowed."""
        if not self.task.allow_nonconvergence:
            posterior.diagnostics.require(what)

    def sample(
        self, bound: BoundStage, seed: np.random.SeedSequence, checkpoint: Checkpoint | None
    ) -> Posterior:
        """Sample a stage with a seed of its own."""
        number = int(seed.generate_state(1)[0] >> 1)
        given = self.task.settings
        dense = len(self.design.names) <= DENSE_METRIC_COVARIATES and not self.design.group_levels
        metric = given.metric or ("dense_e" if dense else "diag_e")
        settings = replace(given, seed=number, metric=metric)
        starts = self._starts(bound.changes, settings)
        return Posterior.sample(bound, settings, starts, checkpoint)

    def _starts(self, changes: Mapping[str, Any], settings: SamplerSettings) -> xr.DataTree | None:
        """Starting points from a short fit to a sample of the records, when there are many.

        From Stan's random points the way to the posterior grows with n, and the posterior shrinks.
        Draws given a sample of m records are near it and still overdispersed, by sqrt(n / m), as
        R-hat needs. Where a chain starts is no part of its posterior, so ε does not change.
        """
        engine, program = self.task.engine, self.model.program
        if self.n <= PILOT_ABOVE or not program.bundled or engine.draw == "grid":
            return None
        rng = np.random.default_rng(settings.seed)
        rows = np.sort(rng.choice(self.n, PILOT, replace=False))
        some = {
            key: value[rows] if key in BY_RECORD and len(value) == self.n else value
            for key, value in {**self.data, **changes, "n": PILOT}.items()
        }
        pilot = replace(settings, warmup=500, draws=100, progress=False)
        draws = engine.compile(program).bind(some).sample(pilot)
        picked = rng.choice(count_draws(draws), settings.chains, replace=False)
        names = [str(name) for name in draws["posterior"].data_vars]
        return make_draws({name: stacked(draws, name)[picked][None] for name in names})


class Neighbour(BoundRecords):
    """Other records, with weights by draws of the first ones' unweighted posterior.

    An audit compares the two: a difference of weights is then a record's doing and no Monte Carlo
    noise.

    Args:
        of: the records that were fitted.
        given: other ones, as they are given to ``Synthesizer.fit``.
    """

    def __init__(self, of: BoundRecords, given: pd.DataFrame) -> None:
        found = of.task.schema.validate(given)
        super().__init__(replace(of.task, records=found, _shared={}))
        self._of = of

    def sensitivity(self) -> Vector:
        draws = self._of.unweighted.draws
        return record_risk(self.log_lik(draws), np.ones(self.n)).sensitivity


@dataclass(frozen=True)
class BoundStage:
    """A stage of a mechanism on records: the program with the data that are sampled.

    Attributes:
        stage: what was asked for.
        bound: the program with data.
        changes: what the stage put in place of the contract's defaults.
        weighting: weights of the records.
        anchor: shape (n,), f_i at the anchor, or None.
    """

    stage: Stage
    bound: BoundModel
    changes: Mapping[str, Any]
    weighting: Weighting
    anchor: Vector | None


def bind_stage(records: BoundRecords, stage: Stage, drawn: xr.DataTree | None = None) -> BoundStage:
    """The program with a stage's weights, anchor and window.

    Args:
        drawn: the anchor draw of the stage before, which that stage has paid for.
    Raises:
        GuaranteeError: the stage does not fit the model, or the anchor not the program.
    """
    for part in (stage.weights, stage.anchor):
        if isinstance(part, Reference):
            part.check(records.model.identity())
    weighting = stage.weights.weighting(records)
    changes = {
        **contract_defaults(records.n),
        "weights": weighting.weights,
        **stage_constants(records.model, stage),
    }
    anchor = None
    if stage.anchor != "none":
        at = stage.anchor.anchor() if isinstance(stage.anchor, Reference) else drawn
        assert at is not None  # the first stage has no drawn anchor
        anchor = changes["anchor"] = _log_lik_at(records, at)
    return BoundStage(stage, records.plain.rebind(**changes), changes, weighting, anchor)


def _log_lik_at(records: BoundRecords, at: xr.DataTree) -> Vector:
    """f_i at one point; 0 where it is not finite: still a function of one record and the point."""
    (found,) = records.log_lik(at)
    if np.isnan(found).all():
        raise GuaranteeError(
            "the anchor lies outside the parameter space of "
            f"{records.model.program.name}.stan, or its density is not defined there. Tune again."
        )
    return np.where(np.isfinite(found), found, 0.0)


def stage_constants(model: Model, stage: Stage) -> dict[str, Any]:
    """Program data of a stage that no record enters: window and score."""
    lower, upper = stage.window
    data: dict[str, Any] = {"clip_lower": lower, "clip_upper": upper}
    if stage.divergence:
        if "divergence" not in model.constants:
            raise GuaranteeError(
                "beta-divergence needs an outcome with levels or a count, whose probabilities "
                "have the public bound 1; the density of a continuous outcome has none. "
                "Use anchored."
            )
        for outcome in model.outcomes:
            if outcome.type == "count" and outcome.upper is None:
                raise GuaranteeError(
                    f"beta-divergence sums the probabilities of column {outcome.name!r} up to its "
                    "upper bound; declare one in the schema, or use anchored."
                )
        data["divergence"] = stage.divergence
    return data


@dataclass(frozen=True)
class Posterior:
    """A sampled stage. Confidential.

    Attributes:
        on: the stage and the binding that was sampled.
        draws: groups posterior and sample_stats.
        diagnostics: of the chains.
        risk: by-record bounds of the terms that the window holds.
    """

    on: BoundStage
    draws: xr.DataTree
    diagnostics: Diagnostics
    risk: RecordRisk

    @classmethod
    def sample(
        cls,
        on: BoundStage,
        settings: SamplerSettings,
        starts: xr.DataTree | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Posterior:
        """Sample, judge the chains, and measure by-record bounds of the terms."""
        checks = threading.Thread(target=load_checks)  # half a second of imports, meanwhile
        checks.start()
        try:
            if checkpoint is None:
                draws = on.bound.sample(settings, starts)
            else:
                draws = checkpoint.sample(on.bound, settings, starts)
        finally:
            checks.join()
        diagnostics = diagnose(draws, settings.max_treedepth)
        log_lik = on.bound.log_lik(draws)
        terms = log_lik if on.anchor is None else (f - on.anchor for f in log_lik)
        score = on.stage.divergence
        if score:  # the part of the score that the record's own value moves
            terms = (np.expm1(score * f) / score for f in log_lik)
        risk = record_risk(terms, on.weighting.weights, on.stage.window)
        return cls(on, draws, diagnostics, risk)
