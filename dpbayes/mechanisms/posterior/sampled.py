"""A stage of a mechanism bound to records, and the sampled draws of its posterior."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import ConvergenceError
from dpbayes.core.lazy import xr
from dpbayes.engines import SamplerSettings
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.base import BoundModel
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.choices import Candidates, Choices
from dpbayes.engines.diagnostics import Diagnostics, diagnose, load_checks
from dpbayes.engines.draws import count_draws
from dpbayes.formula.groups import COORDINATES
from dpbayes.mechanisms.posterior.coordinates import non_centred
from dpbayes.mechanisms.posterior.risk import RecordRisk, record_risk
from dpbayes.mechanisms.posterior.stage import Stage
from dpbayes.mechanisms.posterior.weights import Weighting
from dpbayes.privacy.noise import Noise
from dpbayes.stan.composition import entry


@dataclass(frozen=True)
class BoundStage:
    """A stage of a mechanism on records: the program with the data that are sampled.

    Attributes:
        stage: the stage.
        bound: the program with data.
        changes: program data of the stage, which replace the contract's defaults.
        weighting: weights of the unique records.
        anchor: f_i of the unique records at the anchor, a vector; or None.
        at: the anchor as one draw of the parameters, or None.
        candidates: the public points that draws are selected from, or None where chains draw.
        by_column: program data that select the likelihood of each column (``Model.by_column``).
        kinds: the unique records, each of which has one row of the program.
    """

    stage: Stage
    bound: BoundModel
    changes: Mapping[str, Any]
    weighting: Weighting
    anchor: Vector | None
    at: xr.DataTree | None
    candidates: Candidates | None
    by_column: tuple[Mapping[str, int], ...]
    kinds: UniqueRows

    @property
    def choices(self) -> Choices | None:
        """The candidate points with their probabilities; None for chains. Confidential."""
        return None if self.candidates is None else self.bound.choices


class Drawn(NamedTuple):
    """One private draw: ``draws`` and its index in them, counted over all chains."""

    draws: xr.DataTree
    number: int


@dataclass(frozen=True)
class Posterior:
    """A sampled stage. Confidential.

    Attributes:
        bound_stage: the stage bound to records.
        draws: an ArviZ tree with groups posterior and sample_stats.
        diagnostics: convergence diagnostics of the chains.
        walked: the stage's binding in the coordinates in which chains were drawn.
    """

    bound_stage: BoundStage
    draws: xr.DataTree
    diagnostics: Diagnostics
    walked: BoundModel

    @cached_property
    def risk(self) -> RecordRisk:
        """By-record risk, computed from the terms that the window clamps."""
        on = self.bound_stage
        weights, window = on.weighting.weights, on.stage.window
        return RecordRisk.joined(
            [
                record_risk(self._terms(self.draws, rows, bound), weights[rows], window)
                for rows, bound in on.bound.blocks()
            ]
        )

    def terms(self, draws: xr.DataTree) -> Iterator[Vector]:
        """Terms of the unique records before weights and window, a vector for each draw.

        They are log-likelihoods, less those at the anchor; or scores of the beta-divergence.
        """
        return self._terms(draws, slice(None), self.bound_stage.bound)

    def _terms(self, draws: xr.DataTree, rows: slice, bound: BoundModel) -> Iterator[Vector]:
        """Terms of the unique records at ``rows``, to which ``bound`` is a binding."""
        stage = self.bound_stage
        score = stage.stage.divergence
        if score:  # of each column's score, the part that depends on the record's own value
            columns = [bound.rebind(**change).log_lik(draws) for change in stage.by_column]
            for fs in zip(*columns, strict=True):
                yield np.asarray(sum(np.expm1(score * f) / score for f in fs))
            return
        for f in bound.log_lik(draws):
            yield f if stage.anchor is None else f - stage.anchor[rows]

    @property
    def choices(self) -> Choices | None:
        """The candidate points with their probabilities; None for chains. Confidential."""
        return self.bound_stage.choices

    def check_draws(self, count: int) -> None:
        """Raise ConvergenceError if the chains hold fewer than ``count`` effective draws."""
        effective = self.diagnostics.min_ess_bulk
        if self.choices is None and count > 1 and not count <= effective:  # also true if it is NaN
            raise ConvergenceError(
                f"{count} draws were asked for and the chains hold {effective:.0f} effective ones. "
                "Raise draws or chains, or ask for fewer data sets."
            )

    def chosen(self, count: int, noise: Noise, rng: np.random.Generator) -> Iterator[Drawn]:
        """Take ``count`` private draws.

        Args:
            count: number of draws.
            noise: selects among candidate points, independently each time.
            rng: selects among the draws of chains, without replacement.
        """
        choices = self.choices
        if choices is not None:
            # Selection by the log weights themselves is an exact draw among the points.
            selected = (noise.select(choices.log_weight, 1.0) for _ in range(count))
            return (Drawn(choices.points, index) for index in selected)
        # Without replacement, as each data set pays for a draw of its own.
        picked = rng.choice(count_draws(self.draws), size=count, replace=False)
        return (Drawn(self.draws, index) for index in picked.tolist())

    @classmethod
    def sample(
        cls,
        bound_stage: BoundStage,
        bound: BoundModel,
        settings: SamplerSettings,
        starts: xr.DataTree | None = None,
        checkpoint: Checkpoint | None = None,
        data: Mapping[str, Any] | None = None,
        grouped: Sequence[str] = (),
        parameters: Collection[str] | None = None,
    ) -> Posterior:
        """Sample a stage through a binding with its density, and diagnose the chains.

        Args:
            bound_stage: the stage bound to records.
            bound: a binding with the stage's density, possibly in other coordinates.
            settings: settings of the sampler.
            starts: starting points, or None for the engine's own.
            checkpoint: storage of finished chains, or None.
            data: program data, needed where ``bound`` has other coordinates.
            grouped: labels of the columns that have group effects.
            parameters: names of the parameters to diagnose, where draws have what follows from
                them, such as a number for each record; None for all.
        """
        checks = threading.Thread(target=load_checks)  # imports take half a second, in parallel
        checks.start()
        try:
            if checkpoint is None:
                draws = bound.sample(settings, starts)
            else:
                draws = checkpoint.sample(bound, settings, starts)
        finally:
            checks.join()
        if bound is not bound_stage.bound and data is not None:
            for label in grouped:
                draws = non_centred(draws, data, label)
        known = {entry(name, label) for label in grouped for name in COORDINATES}
        if parameters is not None:
            known |= {str(name) for name in draws["posterior"].data_vars} - set(parameters)
        return cls(bound_stage, draws, diagnose(draws, settings.max_treedepth, known), bound)
