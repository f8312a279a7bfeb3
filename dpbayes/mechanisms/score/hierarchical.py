"""Sample the posterior given noisy sums by group and over all records. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import xr
from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.diagnostics import Diagnostics, diagnose
from dpbayes.engines.draws import make_draws
from dpbayes.formula.groups import COORDINATES, Stacked
from dpbayes.mechanisms.posterior.coordinates import coordinates_of, non_centred
from dpbayes.mechanisms.score.grouped import GroupSums, expected_near
from dpbayes.mechanisms.score.inference import Belief, NoisySum
from dpbayes.mechanisms.score.simulated import Simulator
from dpbayes.stan.scored import NOISE, scored_groups

PASSES = 12  # most passes, each of which linearises the sums at a better point
# Length of a step below which it is the last, and the longest step of the fixed parameters and of
# each group's effects: both in whitened coordinates, in which a record's slope has sd 1.
CLOSE = 0.05
LONGEST = 1.0
_SPREAD = 0.5  # of starting points, in coordinates of sd about 1


class Hierarchical:
    """Sampler of the posterior given noisy sums by group and over all records.

    Args:
        simulator: simulates records of the model.
        engine: the engine that samples.
        measured: the noisy sum over all records.
        groups: the noisy sums by group, for each term.
        belief: an approximation of the posterior without group effects.
        seed: seed of the chains and starting points.
    """

    cut = False  # for the interface of ``ScoreChains``: sums are linearised, however far

    def __init__(
        self,
        simulator: Simulator,
        engine: Engine,
        measured: NoisySum,
        groups: Sequence[GroupSums],
        belief: Belief,
        seed: int,
    ) -> None:
        self._simulator, self._engine = simulator, engine
        self._measured, self._groups = measured, groups
        self._belief = belief
        self._rng = np.random.default_rng(seed)
        self._program = scored_groups(simulator.model.program)
        self._pilot = get_engine("embedded").compile(self._program)

    def sample(self, settings: SamplerSettings) -> tuple[xr.DataTree, Diagnostics]:
        """Sample draws and diagnose them. The seed in the settings is ignored."""
        point, data = self._linearised
        chains = self._engine.compile(self._program).bind(data)
        settings = replace(settings, seed=int(self._rng.integers(2**31)))
        starts = self._started(point, settings.chains, _SPREAD)
        draws = non_centred(chains.sample(settings, starts), data)
        return draws, diagnose(draws, settings.max_treedepth, {NOISE, *COORDINATES})

    @cached_property
    def _linearised(self) -> tuple[Vector, dict[str, Any]]:
        """A point near the mode, and program data with the sums' expectation linearised there."""
        point = self._simulator.without_effects(self._belief.point)
        for _ in range(PASSES):
            data = self._near(point)
            point, longest = self._moved(point, self._mode(point, data))
            if longest < CLOSE:
                break
        return point, data

    def _near(self, point: Vector) -> dict[str, Any]:
        """Program data with sums linearised at a point, and coordinates for the chains."""
        simulator = self._simulator
        expected = expected_near(simulator, self._measured, self._groups, point)
        design = simulator.design
        variance = expected["score__group_variance"] + 2 * expected["score__group_scale"] ** 2
        if expected["score__crossed"]:
            slopes = expected["score__between"]  # of sums with variance 1 and without correlation
            information, uphill = (slopes**2).sum(axis=0), slopes.T @ expected["score__group_gap"]
        else:
            information = expected["score__own"] ** 2 / variance
            uphill = expected["score__own"] * expected["score__group_gap"] / variance
        values = simulator.constrained(point[None, None], effects=True)
        at = {name: value[0, 0] for name, value in values.items()}
        share = np.zeros(len(at["gap"])) if "gap" in at else None
        coordinates = coordinates_of(
            Stacked(design), at, information, uphill, design, gap_share=share
        )
        return {**design, **contract_defaults(simulator.rows), **expected, **coordinates}

    def _mode(self, point: Vector, data: Mapping[str, Any]) -> Vector:
        """Find the mode in coordinates that nearly integrate out the effects; return the point."""
        bound = self._pilot.bind(data).density_model()
        mode = bound.mode(bound.unconstrain(self._started(point, 1, 0.0))[0])
        values = bound.constrain(mode[None, None])
        effects = values["group_effect"][0, 0]
        names = self._simulator.model.program.declared("parameters")
        parameters = {name: values[name] for name in names if name in values}
        # The mode's group_raw has other coordinates than a point's; with_effects sets it anew.
        parameters["group_raw"] = np.zeros_like(parameters["group_raw"])
        (fixed_point,) = self._simulator.points_of(make_draws(parameters))
        return self._simulator.with_effects(fixed_point, effects)

    def _moved(self, point: Vector, target: Vector) -> tuple[Vector, float]:
        """Step towards a target, and the length of the longest full step.

        Steps are shortened to ``LONGEST``, the distance up to which the linearised sums hold.
        """
        simulator, fixed = self._simulator, self._simulator.fixed
        step = (target - point)[fixed]
        root = self._measured.score.directions[:, fixed].T
        size = float(np.linalg.norm(np.linalg.solve(root, step)))
        moved = point.copy()
        moved[fixed] += step * min(1.0, LONGEST / max(size, 1e-9))
        effects = simulator.effects(point)
        change = simulator.effects(target) - effects
        sizes = [size]
        stacked = Stacked(simulator.design)
        for group in self._groups:
            columns = group.term.columns
            changes = np.stack([change[stacked.part[t]] for t in columns])  # (C, G)
            mixed = simulator.mixed(group.score.directions, columns)
            lengths = np.linalg.norm(np.linalg.solve(mixed.T, changes), axis=0)
            sizes.append(float(lengths.max()))
            for t, column_change in zip(columns, changes, strict=True):
                effects[stacked.part[t]] += column_change * np.minimum(
                    1.0, LONGEST / np.maximum(lengths, 1e-9)
                )
        return simulator.with_effects(moved, effects), max(sizes)

    def _started(self, point: Vector, chains: int, spread: float) -> xr.DataTree:
        """Starting values of chains around a point.

        Args:
            point: the unconstrained point.
            chains: number of chains.
            spread: multiple of the approximate posterior sds; 0 starts all chains at the point.
        """
        simulator, d = self._simulator, len(self._measured.total)
        points = np.tile(point, (chains, 1))
        fixed = simulator.fixed
        root = self._belief.root(fixed)
        points[:, fixed] += spread * self._rng.standard_normal((chains, d)) @ root.T
        parameters = simulator.constrained(points[None])
        if spread:
            parameters["group_raw"] = spread * self._rng.standard_normal(
                parameters["group_raw"].shape
            )
        if self._measured.scale:
            parameters[NOISE] = np.full((1, chains, 1), d + 1.0)
        return make_draws(parameters)
