"""What was sampled: a stage of a mechanism on records, and the draws of its posterior."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import ConvergenceError
from dpbayes.core.lazy import xr
from dpbayes.engines import SamplerSettings
from dpbayes.engines.base import BoundModel
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.diagnostics import Diagnostics, diagnose, load_checks
from dpbayes.engines.draws import count_draws
from dpbayes.engines.proposal import Candidates, Choices
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
        stage: what was asked for.
        bound: the program with data.
        changes: what the stage put in place of the contract's defaults.
        weighting: weights of the records.
        anchor: shape (n,), f_i at the anchor, or None.
        at: the anchor, or None.
        candidates: the public points that draws are among, or None where they are a chain's.
        by_column: as ``Model.by_column``.
    """

    stage: Stage
    bound: BoundModel
    changes: Mapping[str, Any]
    weighting: Weighting
    anchor: Vector | None
    at: xr.DataTree | None
    candidates: Candidates | None = None
    by_column: tuple[Mapping[str, int], ...] = ({},)

    @property
    def choices(self) -> Choices | None:
        """The candidates with their weights. Confidential."""
        bound: Any = self.bound
        return None if self.candidates is None else bound.choices


class Drawn(NamedTuple):
    """One private draw, by its number over the chains of ``draws``."""

    draws: xr.DataTree
    number: int


@dataclass(frozen=True)
class Posterior:
    """A sampled stage. Confidential.

    Attributes:
        on: the stage on records.
        draws: groups posterior and sample_stats.
        diagnostics: of the chains.
        walked: the stage in the coordinates that chains were drawn in.
    """

    on: BoundStage
    draws: xr.DataTree
    diagnostics: Diagnostics
    walked: BoundModel

    @cached_property
    def risk(self) -> RecordRisk:
        """By-record bounds of the terms that the window holds."""
        on = self.on
        weights, window = on.weighting.weights, on.stage.window
        return RecordRisk.joined(
            [
                record_risk(self._moved(self.draws, rows, bound), weights[rows], window)
                for rows, bound in on.bound.blocks()
            ]
        )

    def moved(self, draws: xr.DataTree) -> Iterator[Vector]:
        """What records add to the log density before weights and window, draw by draw.

        Shape (n,): log-likelihoods, less those at the anchor; or scores.
        """
        return self._moved(draws, slice(None), self.on.bound)

    def _moved(self, draws: xr.DataTree, rows: slice, bound: BoundModel) -> Iterator[Vector]:
        """The same of some records, by a binding of theirs."""
        on = self.on
        score = on.stage.divergence
        if score:  # the part of each column's score that the record's own value moves
            columns = [bound.rebind(**one).log_lik(draws) for one in on.by_column]
            for fs in zip(*columns, strict=True):
                yield np.asarray(sum(np.expm1(score * f) / score for f in fs))
            return
        for f in bound.log_lik(draws):
            yield f if on.anchor is None else f - on.anchor[rows]

    @property
    def choices(self) -> Choices | None:
        """As ``BoundStage.choices``."""
        return self.on.choices

    def check_draws(self, count: int) -> None:
        """Raise ConvergenceError if chains hold fewer effective draws."""
        least = self.diagnostics.min_ess_bulk
        if self.choices is None and count > 1 and not count <= least:  # NaN is none
            raise ConvergenceError(
                f"{count} draws were asked for and the chains hold {least:.0f} effective ones. "
                "Raise draws or chains, or ask for fewer data sets."
            )

    def chosen(self, count: int, noise: Noise, rng: np.random.Generator) -> Iterator[Drawn]:
        """``count`` private draws.

        Args:
            noise: chooses among candidate points, each time anew.
            rng: picks different ones of the chains' draws.
        """
        choices = self.choices
        if choices is not None:
            found = (noise.select(choices.log_weight, 1.0) for _ in range(count))
            return (Drawn(choices.points, index) for index in found)
        picked = rng.choice(count_draws(self.draws), size=count, replace=False)
        return (Drawn(self.draws, index) for index in picked.tolist())

    @classmethod
    def sample(
        cls,
        on: BoundStage,
        bound: BoundModel,
        settings: SamplerSettings,
        starts: xr.DataTree | None = None,
        checkpoint: Checkpoint | None = None,
        data: Mapping[str, Any] | None = None,
        grouped: Sequence[str] = (),
    ) -> Posterior:
        """Sample a stage by a binding with its density, and judge the chains.

        Args:
            data: of the program, where the binding has coordinates of its own.
            grouped: labels of the columns that have group effects.
        """
        checks = threading.Thread(target=load_checks)  # half a second of imports, meanwhile
        checks.start()
        try:
            if checkpoint is None:
                draws = bound.sample(settings, starts)
            else:
                draws = checkpoint.sample(bound, settings, starts)
        finally:
            checks.join()
        if bound is not on.bound and data is not None:
            for label in grouped:
                draws = non_centred(draws, data, label)
        known = {entry(name, label) for label in grouped for name in COORDINATES}
        return cls(on, draws, diagnose(draws, settings.max_treedepth, known), bound)
