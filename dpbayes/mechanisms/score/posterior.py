"""Sample the posterior given a noisy sum of clipped scores. Public: no other input is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import special, stats, xr
from dpbayes.engines import Engine, SamplerSettings
from dpbayes.engines.base import BoundModel
from dpbayes.engines.diagnostics import Diagnostics, diagnose
from dpbayes.engines.draws import make_draws
from dpbayes.mechanisms.posterior.tree import internal
from dpbayes.mechanisms.score.grouped import GroupSums
from dpbayes.mechanisms.score.inference import EDGE, Belief, NoisySum, expected, unsure
from dpbayes.mechanisms.score.simulated import Simulator
from dpbayes.stan.scored import NOISE, scored

POINTS = 15  # points at which records are simulated, in addition to the mode
FARTHEST = 1.5  # largest divergence over which simulated records can be reweighted
# The noisy sum does not fit the mode if its distance, in sds, has a smaller probability; the noise
# of a pure ε has heavier tails than a normal one, for which distances are stretched.
UNLIKELY, MISFIT = 1e-6, 2.0
# The posterior reaches the edge if more than a share of draws is so near to it, of as many draws.
SHARE, NEAR, LOOKED_AT = 0.05, 0.9, 400
WARMUP = 149  # most iterations if there is a metric: from 150 Stan would estimate one of its own
# The prior decides on a parameter whose posterior has more than this part of the prior's variance.
BY_PRIOR = 0.25
_SPREAD = 1.5  # of starting points, in sds of the approximation


class ScoreChains:
    """Sampler of the posterior given a noisy sum over all records.

    Records are simulated at points drawn from an approximation of the posterior.

    Args:
        simulator: simulates records of the model.
        engine: the engine that samples.
        measured: the noisy sum over all records.
        groups: empty; for the interface of ``Hierarchical``.
        belief: the approximation.
        seed: seed of the points and chains.

    Attributes:
        cut: the posterior reaches farther than simulated records do, and is left out beyond them;
            or the mode that was found does not fit the noisy sum.
    """

    cut = False

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
        self._engine = engine
        self._compiled = engine.compile(scored(simulator.model.program))
        d = len(belief.point)
        root = belief.root()
        self._points = belief.point + self._rng.standard_normal((POINTS, d)) @ root.T
        ways = self._rng.standard_normal((POINTS, d))
        ways *= (math.sqrt(d) + EDGE) / np.linalg.norm(ways, axis=1, keepdims=True)
        self._edge = belief.point + ways @ root.T

    def sample(self, settings: SamplerSettings) -> tuple[xr.DataTree, Diagnostics]:
        """Sample draws and diagnose them. The seed in the settings is ignored."""
        bound: BoundModel = self._compiled.bind(self._data(self._points))
        settings = replace(settings, seed=int(self._rng.integers(2**31)), metric="dense_e")
        if self._engine.takes_metric:
            bound = bound.density_model().warmed(self._metric())
            settings = replace(settings, warmup=min(settings.warmup, WARMUP))
        draws = bound.sample(settings, self._starts(settings.chains))
        self.cut = self.cut or self._at_edge(draws)
        return draws, diagnose(draws, settings.max_treedepth, {NOISE})

    def _data(self, points: Floats) -> dict[str, Any]:
        """Program data, in coordinates in which the entries of a score are uncorrelated.

        Args:
            points: points at which records are simulated, shape (POINTS, d).
        """
        simulator, measured = self._simulator, self._measured
        # Records can always be drawn at the mode, as ``settle`` did so to find it.
        simulated = simulator.records(np.vstack([points, self._belief.point]))
        scores_at_mode = expected(simulator, measured.score, self._belief.point)
        variance, turned = np.linalg.eigh(scores_at_mode.spread)
        scores = measured.score.clipped(measured.score.slopes(simulated.bound))
        change = simulator.n * turned.T @ scores.T
        (f,) = simulated.bound.log_lik_at(self._belief.point[None])
        share = special.softmax(f - simulated.density)

        def divergences(points: Floats) -> Vector:
            """Divergences from the mode, at most ``FARTHEST``."""
            found = [
                (share - special.softmax(other - simulated.density)) @ (f - other)
                for other in simulated.bound.log_lik_at(points)
            ]
            return np.nan_to_num(np.minimum(found, FARTHEST), nan=FARTHEST)

        farthest = float(np.median(divergences(self._edge)))
        self._divergences, self._farthest = divergences, farthest
        gap = measured.total - scores_at_mode.total
        covariance = scores_at_mode.spread + unsure(simulator, measured)
        covariance += measured.sd**2 * np.eye(len(gap))
        misfit = float(gap @ np.linalg.solve(covariance, gap))
        unlikely = MISFIT * float(stats.chi2.isf(UNLIKELY, len(gap)))
        self.cut = farthest >= FARTHEST or misfit > unlikely
        normal = np.diag(turned.T @ unsure(simulator, measured) @ turned)
        normal = normal + (0.0 if measured.scale else measured.sd**2)
        return {
            **simulated.data,
            "anchor": simulated.density,
            "score__length": len(variance),
            "score__change": change,
            "score__gap": turned.T @ gap + change @ share,
            "score__variance": np.maximum(variance, 0.0) + normal,
            "score__scale": measured.scale,
            "score__here": f,
            "score__share": share,
            "score__far": farthest,
        }

    def _at_edge(self, draws: xr.DataTree) -> bool:
        """Whether the posterior reaches where chains may not go."""
        points = self._simulator.points_of(draws)
        some = points[:: max(1, len(points) // LOOKED_AT)]
        return bool((self._divergences(some) > NEAR * self._farthest).mean() > SHARE)

    def _metric(self) -> Floats:
        """Inverse metric of parameters and, for radial noise, of the log of its mixing scale."""
        d = len(self._belief.point)
        pure = int(self._measured.scale > 0)
        covariance = np.zeros((d + pure, d + pure))
        covariance[:d, :d] = self._belief.covariance
        if pure:
            covariance[d, d] = 2 / (d + 1)
        return covariance

    def _starts(self, chains: int) -> xr.DataTree:
        """Random starting points around the mode, more dispersed than the posterior."""
        d = len(self._belief.point)
        root = _SPREAD * self._belief.root()
        ways = self._rng.standard_normal((chains, d)) @ root.T
        points = np.stack([self._simulator.reached(self._belief.point, way) for way in ways])
        starts = self._simulator.constrained(points[None])
        if self._measured.scale:
            starts[NOISE] = self._rng.chisquare(d + 1, (1, chains, 1))
        return make_draws(starts)


def prior_decides(simulator: Simulator, draws: xr.DataTree) -> tuple[str, ...]:
    """Name the parameters of which the prior says about as much as the noisy sums, or more.

    The prior's variance is that of its normal approximation where the draws are, on the
    unconstrained scale. Group effects are left out: it is for their prior to say what they share.
    """
    points = simulator.points_of(draws)
    curvature = simulator.curvature(np.median(points, axis=0), simulator.directions)
    variances = points[:, simulator.fixed].var(axis=0)
    shares = variances / np.diag(np.linalg.inv(curvature))
    words: dict[str, str] = {}
    for column, label in simulator.model.predictors:
        words |= internal(column, label)
    names = (simulator.names[k] for k in simulator.fixed[shares > BY_PRIOR])
    return tuple(dict.fromkeys(words.get(name, name) for name in names))
