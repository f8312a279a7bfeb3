"""The posterior given noisy sums by group and over all records, by Stan. Public."""

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

PASSES = 12  # at most, each of which tells sums to first order at a better point
CLOSE = 0.05  # step from which it is the last, in standard deviations of what one record says
LONGEST = 1.0  # step of the fixed parameters, and of each group's effects
_SPREAD = 0.5  # of starting points, in coordinates of sd about 1


class Hierarchical:
    """Chains given noisy sums, those by group with them.

    Args:
        simulator: of the model.
        measured: the noisy sum over all records.
        groups: those by group.
        belief: an approximation, without group effects.
        seed: of chains and starting points.
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
        self._simulator, self._engine = simulator, engine
        self._measured, self._groups = measured, groups
        self._belief = belief
        self._rng = np.random.default_rng(seed)
        self._program = scored_groups(simulator.model.program)
        self._pilot = get_engine("embedded").compile(self._program)

    def sample(self, settings: SamplerSettings) -> tuple[xr.DataTree, Diagnostics]:
        """Draws, and their diagnostics. Of the settings the seed is not read."""
        point, data = self._found
        chains = self._engine.compile(self._program).bind(data)
        settings = replace(settings, seed=int(self._rng.integers(2**31)))
        starts = self._started(point, settings.chains, _SPREAD)
        draws = non_centred(chains.sample(settings, starts), data)
        return draws, diagnose(draws, settings.max_treedepth, {NOISE, *COORDINATES})

    @cached_property
    def _found(self) -> tuple[Vector, dict[str, Any]]:
        """A point near the mode, and program data with sums as they are expected near it."""
        point = self._simulator.without_effects(self._belief.point)
        for _ in range(PASSES):
            data = self._near(point)
            point, longest = self._moved(point, self._mode(point, data))
            if longest < CLOSE:
                break
        return point, data

    def _near(self, point: Vector) -> dict[str, Any]:
        """Program data with sums as they are expected near a point, and coordinates for chains."""
        simulator = self._simulator
        told = expected_near(simulator, self._measured, self._groups, point)
        design = simulator.design
        variance = told["score__group_variance"] + 2 * told["score__group_scale"] ** 2
        if told["score__crossed"]:
            slopes = told["score__between"]  # of sums with variance 1 and without correlation
            information, uphill = (slopes**2).sum(axis=0), slopes.T @ told["score__group_gap"]
        else:
            information = told["score__own"] ** 2 / variance
            uphill = told["score__own"] * told["score__group_gap"] / variance
        values = simulator.constrained(point[None, None], effects=True)
        at = {name: value[0, 0] for name, value in values.items()}
        share = np.zeros(len(at["gap"])) if "gap" in at else None
        walked = coordinates_of(Stacked(design), at, information, uphill, design, gap_share=share)
        return {**design, **contract_defaults(simulator.rows), **told, **walked}

    def _mode(self, point: Vector, data: Mapping[str, Any]) -> Vector:
        """The mode where effects are as good as integrated out, as a point."""
        bound: Any = self._pilot.bind(data)
        mode = bound.mode(bound.unconstrain(self._started(point, 1, 0.0))[0])
        values = bound.constrain(mode[None, None])
        effects = values["group_effect"][0, 0]
        names = self._simulator.model.program.declared("parameters")
        there = {name: values[name] for name in names if name in values}
        there["group_raw"] = np.zeros_like(there["group_raw"])  # told in other coordinates
        (found,) = self._simulator.points_of(make_draws(there))
        return self._simulator.with_effects(found, effects)

    def _moved(self, point: Vector, target: Vector) -> tuple[Vector, float]:
        """A step towards a target, and how long it would have been at most.

        A sum is told to first order up to about what one record says.
        """
        simulator, fixed = self._simulator, self._simulator.fixed
        step = (target - point)[fixed]
        root = self._measured.score.directions[:, fixed].T
        size = float(np.linalg.norm(np.linalg.solve(root, step)))
        moved = point.copy()
        moved[fixed] += step * min(1.0, LONGEST / max(size, 1e-9))
        effects = simulator.effects(point)
        away = simulator.effects(target) - effects
        sizes = [size]
        stacked = Stacked(simulator.design)
        for group in self._groups:
            columns = group.term.columns
            apart = np.stack([away[stacked.part[t]] for t in columns])  # (C, G)
            mixed = simulator.mixed(group.score.directions, columns)
            each = np.linalg.norm(np.linalg.solve(mixed.T, apart), axis=0)
            sizes.append(float(each.max()))
            for t, change in zip(columns, apart, strict=True):
                effects[stacked.part[t]] += change * np.minimum(
                    1.0, LONGEST / np.maximum(each, 1e-9)
                )
        return simulator.with_effects(moved, effects), max(sizes)

    def _started(self, point: Vector, chains: int, spread: float) -> xr.DataTree:
        """Parameters of chains around a point, effects at those of their own coordinates."""
        simulator, d = self._simulator, len(self._measured.total)
        points = np.tile(point, (chains, 1))
        fixed = simulator.fixed
        root = np.linalg.cholesky(self._belief.covariance[np.ix_(fixed, fixed)])
        points[:, fixed] += spread * self._rng.standard_normal((chains, d)) @ root.T
        found = simulator.constrained(points[None])
        if spread:
            found["group_raw"] = spread * self._rng.standard_normal(found["group_raw"].shape)
        if self._measured.scale:
            found[NOISE] = np.full((1, chains, 1), d + 1.0)
        return make_draws(found)
