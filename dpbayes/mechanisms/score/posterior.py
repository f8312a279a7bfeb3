"""The posterior given a noisy sum of clipped scores, by Stan. Public: nothing else enters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import special, xr
from dpbayes.engines import Engine, SamplerSettings
from dpbayes.engines.diagnostics import Diagnostics, diagnose
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.mechanisms.score.grouped import GroupSums
from dpbayes.mechanisms.score.inference import Belief, NoisySum, expected
from dpbayes.mechanisms.score.simulated import Simulator
from dpbayes.stan.scored import NOISE, scored

POINTS = 15  # at which records are simulated, beside the mode
EDGE = 3.0  # sds beyond sqrt(d), the usual distance from the mode, that chains may go
FARTHEST = 1.5  # divergence that simulated records can bridge
WARMUP = 149  # most with a metric to begin with: from 150 Stan estimates one of its own
_SPREAD = 1.5  # of starting points, in the sds of the approximation


class ScoreChains:
    """Chains given a noisy sum.

    Simulated records come from points that the posterior is likely to hold, by an approximation.

    Args:
        simulator: of the model.
        measured: the noisy sum over all records.
        groups: those by group: none.
        belief: the approximation.
        seed: of points and of chains.
    """

    def __init__(
        self,
        simulator: Simulator,
        engine: Engine,
        measured: NoisySum,
        groups: Sequence[GroupSums],
        belief: Belief,
        seed: int,
    ) -> None:
        assert not groups
        self._simulator, self._rng = simulator, np.random.default_rng(seed)
        self._measured, self._belief = measured, belief
        self._compiled = engine.compile(scored(simulator.model.program))
        d = len(belief.point)
        root = np.linalg.cholesky(belief.covariance)
        self._points = belief.point + self._rng.standard_normal((POINTS, d)) @ root.T
        ways = self._rng.standard_normal((POINTS, d))
        ways *= (math.sqrt(d) + EDGE) / np.linalg.norm(ways, axis=1, keepdims=True)
        self._edge = belief.point + ways @ root.T

    def sample(self, settings: SamplerSettings) -> tuple[xr.DataTree, Diagnostics]:
        """Draws, and their diagnostics. Of the settings the seed is not read."""
        bound: Any = self._compiled.bind(self._data(self._points))
        settings = replace(settings, seed=int(self._rng.integers(2**31)), metric="dense_e")
        if isinstance(bound, EmbeddedBinding):
            bound = bound.warmed(self._metric())
            settings = replace(settings, warmup=min(settings.warmup, WARMUP))
        draws = bound.sample(settings, self._starts(settings.chains))
        return draws, diagnose(draws, settings.max_treedepth, {NOISE})

    def _data(self, points: Floats) -> dict[str, Any]:
        """Of the program, in coordinates in which scores are not correlated."""
        simulator, measured = self._simulator, self._measured
        # At the mode some can be drawn: it was found by them.
        there = simulator.records(np.vstack([points, self._belief.point]))
        at = expected(simulator, measured.score, self._belief.point)
        variance, turned = np.linalg.eigh(at.spread)
        scores = measured.score.clipped(measured.score.slopes(there.bound))
        change = simulator.rows * turned.T @ scores.T
        (f,) = there.bound.log_lik_at(self._belief.point[None])
        share = special.softmax(f - there.density)
        apart = [
            (share - special.softmax(other - there.density)) @ (f - other)
            for other in there.bound.log_lik_at(self._edge)
        ]
        far = np.median([min(one, FARTHEST) if np.isfinite(one) else FARTHEST for one in apart])
        normal = 0.0 if measured.scale else measured.sd**2
        return {
            **there.data,
            "anchor": there.density,
            "score__length": len(variance),
            "score__change": change,
            "score__gap": turned.T @ (measured.total - at.total) + change @ share,
            "score__variance": np.maximum(variance, 0.0) + normal,
            "score__scale": measured.scale,
            "score__here": f,
            "score__share": share,
            "score__far": far,
        }

    def _metric(self) -> Floats:
        """Of the parameters, and of the logarithm of what the noise is mixed by."""
        d = len(self._belief.point)
        pure = int(self._measured.scale > 0)
        found = np.zeros((d + pure, d + pure))
        found[:d, :d] = self._belief.covariance
        if pure:
            found[d, d] = 2 / (d + 1)
        return found

    def _starts(self, chains: int) -> xr.DataTree:
        """Points around the mode, wider apart than draws."""
        d = len(self._belief.point)
        root = _SPREAD * np.linalg.cholesky(self._belief.covariance)
        points = self._belief.point + self._rng.standard_normal((chains, d)) @ root.T
        starts = self._simulator.constrained(points[None])
        if self._measured.scale:
            starts[NOISE] = self._rng.chisquare(d + 1, (1, chains, 1))
        return make_draws(starts)
