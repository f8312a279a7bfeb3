"""The recorded engine, which replays stored draws: for tests, and for fits made elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr
from dpbayes.engines.base import DensityModel, DrawsByChains, SamplerSettings, StanData
from dpbayes.engines.draws import count_draws
from dpbayes.privacy.guarantee import Draw
from dpbayes.stan.composition import COLUMN
from dpbayes.stan.program import StanProgram

_GROUPS = ("posterior", "sample_stats", "log_likelihood", "posterior_predictive")


class RecordedEngine:
    """Replays recorded fits: the unweighted one, then refits in the order of the arguments.

    Args:
        recordings: the unweighted fit, then those with weights or a window. Each is a DataTree with
            the groups posterior, sample_stats, log_likelihood (variable log_lik, axes chain, draw,
            record: plain, unweighted) and posterior_predictive (variable y_rep, same axes, on the
            program's scale). They are trusted: the engine cannot check that they are draws of the
            right posterior.

    Raises:
        EngineError: nothing is recorded, or a group is missing. ``bind`` raises it for another
            number of records, or a sequence of columns.
    """

    name = "recorded"
    draw: Draw = "chain"
    evaluates = takes_metric = checks_threads = False

    def __init__(self, *recordings: xr.DataTree) -> None:
        if not recordings:
            raise EngineError(
                "the recorded engine replays your draws: pass RecordedEngine(draws, ...)."
            )
        self.recordings = recordings
        for i, recording in enumerate(self.recordings):
            missing = [group for group in _GROUPS if group not in recording.children]
            if missing:
                raise EngineError(f"recording {i} has no group {', '.join(missing)}.")
        self.refits = iter(recordings[1:])

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, program: StanProgram) -> RecordedEngine:
        return self

    def bind(self, data: StanData) -> RecordedBinding:
        if COLUMN in data:  # later columns depend on draws of earlier ones
            raise EngineError("the recorded engine replays one column, and no sequence of them.")
        for i, recording in enumerate(self.recordings):
            records = recording["log_likelihood"]["log_lik"].shape[-1]
            if records != int(data["n"]):
                raise EngineError(
                    f"recording {i} has log_lik of {records} records, the data have {data['n']}."
                )
        return RecordedBinding(self, refit=False)


class RecordedBinding(DrawsByChains):
    """Recordings in place of a program with data."""

    def __init__(self, engine: RecordedEngine, *, refit: bool) -> None:
        self._engine = engine
        self._refit = refit

    def rebind(self, **changes: Any) -> RecordedBinding:
        return RecordedBinding(self._engine, refit=True)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        recording = next(self._engine.refits, None) if self._refit else self._engine.recordings[0]
        if recording is None:
            raise EngineError(
                f"{len(self._engine.recordings) - 1} refit(s) recorded, one more asked for."
            )
        return xr.DataTree.from_dict({g: recording[g].to_dataset() for g in _GROUPS[:2]})

    def random_points(self, count: int, seed: int, width: float = 2.0) -> xr.DataTree:
        raise EngineError("the recorded engine cannot evaluate a program at new points.")

    def density_model(self) -> DensityModel:
        raise EngineError("the recorded engine cannot evaluate a program at new points.")

    def log_prob(self, draws: xr.DataTree) -> Vector:
        raise EngineError("the recorded engine cannot evaluate a program at new points.")

    def log_lik(self, draws: xr.DataTree, *, strict: bool = False) -> Iterator[Vector]:
        stored = self._find(draws)["log_likelihood"]["log_lik"].to_numpy()
        yield from stored.reshape(-1, stored.shape[-1])

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        stored = self._find(draws)["posterior_predictive"]["y_rep"].to_numpy()
        return np.asarray(stored.reshape(count_draws(draws), -1)[index])

    def blocks(self) -> Iterator[tuple[slice, RecordedBinding]]:
        yield slice(None), self

    def _find(self, draws: xr.DataTree) -> xr.DataTree:
        for recording in self._engine.recordings:
            if recording["posterior"].to_dataset().identical(draws["posterior"].to_dataset()):
                return recording
        raise EngineError("these draws are not among the recordings.")
