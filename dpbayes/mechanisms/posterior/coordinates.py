"""Coordinates in which chains sample group effects, adapted to the information on each group.

In stan_models/include/group_effects.stan they are offsets and multipliers of parameters. The
posterior is the same whatever they are, so they cost no ε although they are computed from the
records. Only the chains use them; they are never written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr
from dpbayes.engines.base import DensityModel
from dpbayes.engines.draws import make_draws
from dpbayes.formula.groups import Stacked
from dpbayes.stan.composition import entry
from dpbayes.stan.program import MULTIPLICITY

_REACH = 5.0  # sds that the grid covers: the mass outside must be negligible
_GRID = np.linspace(-1, 1, 21) * _REACH  # in sds of an effect, but wider away from its mean
# A short distance away clamped terms have no slope, and a likelihood may be a thousand times
# narrower than the first grid. So that grid also has these points near the mode.
_NEAR = np.geomspace(1e-4, 0.4, 12)
_NEAR = np.concatenate([-_NEAR, _NEAR])[:, None]
_PASSES = 5  # each resolves sds down to a fifth of those of the previous pass
_ROUNDS = 3  # of modes, over which sds and information converge
_SWEEPS = 2  # over the coordinates of a start
_LARGEST = 1e100  # beyond it, Stan's arithmetic with these could overflow


def group_coordinates(
    bound: DensityModel,
    data: Mapping[str, Any],
    at: xr.DataTree | None = None,
    labels: Sequence[str] = ("",),
) -> dict[str, Floats]:
    """Compute ``group_information``, ``group_estimate``, ``slope_part`` and, if any, ``gap_share``.

    Given all other parameters at the mode, a group's likelihood is approximated by the normal one
    that gives its effect the same mean and sd. These come from gradients on a grid: clamped terms
    have no useful second derivative, and a group with few records can have several modes, of which
    the nearest holds little information. Groups of a column share no record, so one gradient serves
    all of them.

    The joint mode of effects and their sds has too large sds. In coordinates adapted to the
    effects, these are nearly integrated out, and the mode is one of all other parameters: there,
    the coordinates are computed again. This takes several rounds: with many groups, an error of a
    tenth in the information still moves the mode.

    The function never fails, as a failure would depend on the records: a group without usable
    information keeps its non-centred coordinates, and all groups do where no mode is found.

    Args:
        bound: the stage in non-centred coordinates, as ``Model.data`` sets them.
        data: program data, of which only shapes, groups, covariates and priors are read.
        at: the draw that anchors the stage, a point that was paid for; or None.
        labels: labels of the columns that have group effects (``Model.labels``).
    Returns:
        program data for ``rebind``, by name; empty where the engine failed. ``gap_share`` is for
        families with cutpoints.
    """
    try:
        with np.errstate(all="ignore"):
            return _near_mode(bound, data, at, labels)
    except EngineError:
        return {}


def _near_mode(
    bound: DensityModel, data: Mapping[str, Any], at: xr.DataTree | None, labels: Sequence[str]
) -> dict[str, Floats]:
    """Compute the coordinates of all columns near the mode. EngineError where there is none."""

    def coordinates_at(point: Vector) -> dict[str, Floats]:
        coordinates: dict[str, Floats] = {}
        for label in labels:
            column_coordinates = _of_column(bound, point, data, label)
            coordinates |= {entry(name, label): value for name, value in column_coordinates.items()}
        return coordinates

    start = _start(bound, int(data["rows"])) if at is None else bound.unconstrain(at)[0]
    point = bound.mode(start)
    coordinates = coordinates_at(point)
    for _ in range(_ROUNDS):
        point = _mode_between(bound, bound.rebind(**coordinates), point, data, labels)
        if not np.isfinite(point).all():
            break
        coordinates = coordinates_at(point)
    return coordinates


def _of_column(
    bound: DensityModel, point: Vector, data: Mapping[str, Any], label: str
) -> dict[str, Floats]:
    """Coordinates of a column's effects around a point, 0 where they would overflow."""
    ending = entry("", label)
    own = {name.removesuffix(ending): v for name, v in data.items() if name.endswith(ending)}
    stacked = Stacked(own, data.get(MULTIPLICITY, 1))
    slopes = _Slopes(bound, point, np.shape(own["group_estimate"]), stacked, label)
    slopes.measure()
    coordinates = slopes.coordinates(own)
    representable = (
        np.abs([coordinates["group_information"], coordinates["group_estimate"]]) < _LARGEST
    )
    coordinates["group_information"][~representable.all(axis=0)] = 0.0
    return {k: np.where(np.abs(value) < _LARGEST, value, 0.0) for k, value in coordinates.items()}


def _mode_between(
    bound: DensityModel,
    walk: DensityModel,
    point: Vector,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Vector:
    """Climb to a mode of ``walk``; start and result are in the coordinates of ``bound``."""
    at = bound.constrain(point[None, None])
    raw = [entry("group_raw", label) for label in labels]
    middle = make_draws({**at, **{name: np.zeros_like(at[name]) for name in raw}})
    mode = walk.mode(walk.unconstrain(middle)[0])
    draws = make_draws(walk.constrain(mode[None, None]))
    for label in labels:
        draws = non_centred(draws, data, label)
    return np.asarray(bound.unconstrain(draws)[0])


def _start(bound: DensityModel, n: int) -> Vector:
    """A point from which to climb to a mode, as clamped terms have no slope far from it.

    It is the best point of a public grid in each of the intercepts, cutpoints and dispersions, one
    coordinate after the other.
    """
    names = bound.coordinates()
    searched = [i for i, k in enumerate(names) if not k.startswith(("group_", "coefficient"))]
    steps = np.geomspace(0.1, 10 * np.sqrt(n), 16)
    steps = np.concatenate([[0], steps, -steps])  # argmax takes the first of equal values
    point = np.zeros(len(names))
    for _ in range(_SWEEPS):
        for i in searched:
            trials = np.tile(point, (len(steps), 1))
            trials[:, i] += steps
            densities = [bound.density(trial)[0] for trial in trials]
            point = trials[np.argmax(np.nan_to_num(densities, nan=-np.inf))]
    return point


class _Slopes:
    """Gradients of a log density in the group effects around a point.

    Attributes:
        at: parameters at the point, by name.
        information: precision of the likelihood of each effect, in the shape of the effects.
        slope: gradient of the log-likelihood in each effect, at the point.
    """

    def __init__(
        self,
        bound: DensityModel,
        point: Vector,
        shape: tuple[int, ...],
        stacked: Stacked,
        label: str,
    ) -> None:
        self._bound, self._stacked, self._label = bound, stacked, label
        self._names = bound.coordinates()
        where = self._places("group_raw")
        self._effects = where.reshape(shape[::-1]).T  # Stan's first index runs fastest
        values = bound.constrain(point[None, None])
        ending = entry("", label)
        self.at = {k.removesuffix(ending): v[0, 0] for k, v in values.items() if k.endswith(ending)}
        self._sd = np.empty(shape)
        for part, sd in zip(stacked.part, self.at["group_sd"], strict=True):
            self._sd[part] = sd
        # The same effects without correlations: each is then its sd times its coordinate.
        self._point = point.copy()
        self._point[self._places("group_partial")] = 0.0
        self._point[self._effects] = self.at["group_effect"] / self._sd
        self.information, self.slope = np.zeros(shape), np.zeros(shape)

    def _places(self, parameter: str) -> Ints:
        """Indices of a parameter's entries among the coordinates."""
        own = entry(parameter, self._label)
        indices = [i for i, name in enumerate(self._names) if name.split(".")[0] == own]
        return np.asarray(indices, dtype=int)

    def _gradient(self, effect: Floats) -> Vector:
        """Gradient at other effects; in the effects' coordinates, that of the log-likelihood."""
        moved = self._point.copy()
        moved[self._effects] = effect / self._sd
        _, gradient = self._bound.density(moved)
        gradient[self._effects] = (gradient[self._effects] + moved[self._effects]) / self._sd
        return gradient

    def measure(self) -> None:
        """Compute ``information`` and ``slope`` of all effects."""
        before = self.at["group_effect"]
        for index in np.ndindex(before.shape[1:]):
            for part in self._stacked.part:
                self._measure((part, *index), before)

    def _measure(self, own: tuple[Any, ...], before: Floats) -> None:
        """Compute ``information`` and ``slope`` for a column's effects at one outcome level.

        Each pass updates the prior sd of the effects by a step of EM, and widens it by about one sd
        of its logarithm: a wide prior shows the shape of likelihoods that are not normal.

        Args:
            own: index of the effects.
            before: all effects at the point.
        """
        sd, mean = float(self._sd[own].max()), before[own]
        farthest = 2 * sd
        width = np.full(len(mean), sd)
        moved = before.copy()
        for number in range(_PASSES):
            points = mean + width * _stretched(farthest / width)
            if number == 0:
                points = np.sort(np.concatenate([points, mean + width * _NEAR]), axis=0)
                width = width * np.abs(_NEAR).min()
            slopes = np.empty(points.shape)
            for slope, moved[own] in zip(slopes, points, strict=True):
                slope[:] = self._gradient(moved)[self._effects[own]]
            used = sd
            mean, width = _moments(points, slopes, used, width)
            share = np.maximum(1 - (width / used) ** 2, 0)
            wider = np.exp(1 / np.sqrt(1 + 2 * (share @ share)))
            sd = min(wider * float(np.sqrt((mean**2 + width**2).mean())), farthest)
        self.information[own] = np.maximum(1 / width**2 - 1 / used**2, 0.0)
        self.slope[own] = self.information[own] * (mean - before[own]) + mean / used**2

    def coordinates(self, data: Mapping[str, Any]) -> dict[str, Floats]:
        """Coordinates from the likelihood's information on each effect (``coordinates_of``).

        Args:
            data: data of the program, which has ``gap_share`` if the family has cutpoints.
        """
        share = self._gap_share() if "gap_share" in data else None
        return coordinates_of(
            self._stacked, self.at, self.information, self.slope, data, gap_share=share
        )

    def _gap_share(self) -> Vector:
        """Share of each gap between cutpoints in shifts of the last column's effects."""
        gap = self.at["gap"]
        if self._stacked.last == len(self._stacked.part):
            return np.zeros(len(gap))
        part, effect = self._stacked.part[-1], self.at["group_effect"]
        sd = np.zeros(effect.shape)
        sd[part] = 1 / np.sqrt(self.information[part] + 1 / self._sd[part] ** 2)
        cross = self._gradient(effect - sd) - self._gradient(effect + sd)
        gaps, first = (cross[self._places(name)] for name in ("gap", "first_cutpoint"))
        return np.asarray(np.nan_to_num(gaps / (gap * first), posinf=0, neginf=0))


def coordinates_of(
    stacked: Stacked,
    at: Mapping[str, Any],
    information: Floats,
    slope: Floats,
    data: Mapping[str, Any],
    gap_share: Vector | None = None,
) -> dict[str, Floats]:
    """Coordinates (``group_coordinates``) from the likelihood of each effect near a point.

    Args:
        stacked: the columns of effects.
        at: parameters at the point, by name.
        information: precision of each effect by the likelihood, shape (J,) or (J, levels).
        slope: gradient of the log-likelihood in each effect at the point, in the same shape.
        data: program data.
        gap_share: share of the gaps between cutpoints, for families with cutpoints.
    """
    information, slope = information.copy(), slope.copy()
    coordinates = {"group_information": information, "slope_part": stacked.slope_part()}
    if gap_share is not None:  # cutpoints replace the intercept, with the opposite sign
        coordinates["gap_share"] = gap_share
        intercept = -at["first_cutpoint"] - gap_share @ at["gap"]
        location = -data["prior_cutpoint"][0]
    else:
        intercept, location = at["intercept"], data["prior_intercept"][0]
    for t in range(stacked.slopes):
        _less_intercepts(stacked, t, information, slope)
    informed = information > 0
    step = np.divide(slope, information, out=np.zeros(slope.shape), where=informed)
    coordinates["group_estimate"] = at["group_effect"] + step
    if "coefficient" in at:
        coordinates["group_estimate"] += data["group_mean"] @ at["coefficient"]
    effects = at["group_effect"].reshape(stacked.width, -1)
    for t, part in enumerate(stacked.part):
        if len(stacked.part) > 1:
            others = stacked.others(t, effects)
            coordinates["group_estimate"][part] += others.reshape(slope[part].shape)
        if t >= stacked.slopes:
            coordinates["group_estimate"][part] += intercept - (t < stacked.last) * location
    return coordinates


def _less_intercepts(stacked: Stacked, t: int, information: Floats, slope: Floats) -> None:
    """Reduce information and gradient of slopes to those with their groups' intercepts unknown.

    ``information`` and ``slope`` are changed in place.
    """
    s = stacked.intercept_of(t)
    if s is None:
        return
    part = stacked.part[t]
    whole = stacked.sums(t, stacked.times(t) ** 2)
    left = stacked.sums(t, stacked.own[t] ** 2)
    share = np.divide(left, whole, out=np.zeros(len(whole)), where=whole > 0)
    information[part] = (information[part].T * share).T
    slope[part] -= (slope[stacked.part[s]].T * stacked.centre(t)).T


def _stretched(reach: Vector) -> Floats:
    """``_GRID`` stretched by a hyperbolic sine to ends ``reach`` times as far: (G, groups)."""
    bend = np.ones(len(reach))
    for _ in range(20):  # fixed-point iteration for sinh(bend) = reach bend, reach at least 1
        bend = np.maximum(np.arcsinh(reach * bend), 1e-3)
    return np.sinh(_GRID[:, None] / _REACH * bend) / bend * _REACH


def _moments(points: Floats, slopes: Floats, sd: float, width: Vector) -> tuple[Vector, Vector]:
    """Posterior means and sds of effects, from slopes of their log-likelihoods on a grid.

    Args:
        points: grid points, shape (G, groups).
        slopes: slopes at these points, shape (G, groups).
        sd: standard deviation of the effects' prior.
        width: sds by which the points were chosen; below a fifth of them the grid is too coarse.
    """
    steps = np.diff(points, axis=0)
    rises = (slopes[1:] + slopes[:-1]) / 2 * steps
    log_density = -0.5 * (points / sd) ** 2
    log_density[1:] += np.cumsum(rises, axis=0)
    weight = np.exp(log_density - log_density.max(axis=0))
    weight[1:-1] *= (steps[1:] + steps[:-1]) / 2
    weight[[0, -1]] *= steps[[0, -1]] / 2
    weight /= weight.sum(axis=0)
    mean = (weight * points).sum(axis=0)
    variance = (weight * (points - mean) ** 2).sum(axis=0)
    return mean, np.sqrt(np.maximum(variance, (width / 5) ** 2))


def non_centred(draws: xr.DataTree, data: Mapping[str, Any], label: str = "") -> xr.DataTree:
    """Convert draws in any coordinates to the program's default, non-centred ones.

    Args:
        draws: posterior draws.
        data: program data.
        label: label of the column whose group effects are converted.
    """
    posterior = draws["posterior"].to_dataset()

    def drawn(name: str) -> Floats:
        return np.asarray(posterior[entry(name, label)].to_numpy())

    effect, sd = drawn("group_effect"), drawn("group_sd")
    raw = np.empty_like(effect)
    partial = drawn("group_partial") if data[entry("P", label)] else None
    columns = np.asarray(data[entry("group_column", label)])
    for t, (a, b, first, last, before) in enumerate(columns):
        left = np.ones_like(sd[:, :, t])
        known = np.zeros_like(effect[:, :, a - 1 : b])
        for k, s in enumerate(range(first - 1, last)):
            assert partial is not None
            other = slice(columns[s][0] - 1, columns[s][1])
            r = partial[:, :, before + k]
            known += (left * np.tanh(r))[:, :, None] * raw[:, :, other]
            left = left / np.cosh(r)
        own = effect[:, :, a - 1 : b] / sd[:, :, t, None]
        raw[:, :, a - 1 : b] = (own - known) / left[:, :, None]
    name_of_raw = entry("group_raw", label)
    changed = posterior.assign({name_of_raw: posterior[name_of_raw].copy(data=raw)})
    return draws.assign({"posterior": xr.DataTree(changed)})
