"""Coordinates in which chains walk through group effects: what each group's records say of it.

They are for stan_models/include/group_effects.stan, where they are offsets and multipliers of
parameters: the posterior is the same whatever they are, so they cost no ε although they are made
from the records. They stay with the chain; nothing of them is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.formula.groups import Stacked
from dpbayes.stan.composition import entry
from dpbayes.stan.program import MULTIPLICITY

_REACH = 5.0  # what is left out must be little beside the least that records say
_GRID = np.linspace(-1, 1, 21) * _REACH  # in sds of an effect, but wider away from its mean
# A little way off, clamped terms have no slope, and what records say may be narrower than the first
# grid by a thousand times: it has these points near the mode, too.
_NEAR = np.geomspace(1e-4, 0.4, 12)
_NEAR = np.concatenate([-_NEAR, _NEAR])[:, None]
_PASSES = 5  # each finds sds down to a fifth of those of the one before
_ROUNDS = 3  # of modes, in which sds and information settle
_SWEEPS = 2  # over the coordinates of a start
_LARGEST = 1e100  # beyond it, Stan's arithmetic with these could overflow


def group_coordinates(
    bound: EmbeddedBinding,
    data: Mapping[str, Any],
    at: xr.DataTree | None = None,
    labels: Sequence[str] = ("",),
) -> dict[str, Floats]:
    """``group_information``, ``group_estimate``, ``slope_part`` and, with cutpoints, ``gap_share``.

    Given all else at the mode, a group's likelihood is taken as the normal one that leaves its
    effect with the mean and sd that it has. These come from gradients on a grid: clamped terms have
    no second derivative to speak of, and few records of a group can have several modes, of which
    the nearest says little. Groups of a column share no record, so a gradient serves all of them.

    A mode in effects and their sds has too wide sds. In coordinates that suit the effects, they are
    as good as integrated out, and a mode is one of all else: there, coordinates are found anew.
    That takes rounds: with many groups, information that is a tenth off still moves the mode.

    There is always a result, since whether there is one would depend on the records: a group that
    nothing was found for keeps the coordinates it has, and all of them where the mode fails.

    Args:
        bound: the stage with its coordinates as ``Model.data`` leaves them, non-centred.
        data: of the program. Only shapes, groups, covariates and priors are read.
        at: the draw that anchors the stage, if one does: a point that was paid for.
        labels: of the columns that have group effects (``Model.labels``).
    """
    try:
        with np.errstate(all="ignore"):
            return _near_mode(bound, data, at, labels)
    except EngineError:
        return {}


def _near_mode(
    bound: EmbeddedBinding, data: Mapping[str, Any], at: xr.DataTree | None, labels: Sequence[str]
) -> dict[str, Floats]:
    """The same where arithmetic allows it."""

    def found_at(point: Vector) -> dict[str, Floats]:
        found: dict[str, Floats] = {}
        for label in labels:
            of_column = _of_column(bound, point, data, label)
            found |= {entry(name, label): value for name, value in of_column.items()}
        return found

    start = _start(bound, int(data["rows"])) if at is None else bound.unconstrain(at)[0]
    point = bound.mode(start)
    found = found_at(point)
    for _ in range(_ROUNDS):
        point = _mode_between(bound, bound.rebind(**found), point, data, labels)
        if not np.isfinite(point).all():
            break
        found = found_at(point)
    return found


def _of_column(
    bound: EmbeddedBinding, point: Vector, data: Mapping[str, Any], label: str
) -> dict[str, Floats]:
    """Those of a column's effects around a point, 0 where arithmetic does not allow them."""
    ending = entry("", label)
    own = {name.removesuffix(ending): v for name, v in data.items() if name.endswith(ending)}
    stacked = Stacked(own, data.get(MULTIPLICITY, 1))
    near = _Slopes(bound, point, np.shape(own["group_estimate"]), stacked, label)
    near.measure()
    found = near.coordinates(own)
    kept = np.abs([found["group_information"], found["group_estimate"]]) < _LARGEST
    found["group_information"][~kept.all(axis=0)] = 0.0
    return {k: np.where(np.abs(value) < _LARGEST, value, 0.0) for k, value in found.items()}


def _mode_between(
    bound: EmbeddedBinding,
    walk: EmbeddedBinding,
    point: Vector,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Vector:
    """A mode of ``walk``, from a point and in coordinates of ``bound``."""
    at = bound.constrain(point[None, None])
    raw = [entry("group_raw", label) for label in labels]
    middle = make_draws({**at, **{name: np.zeros_like(at[name]) for name in raw}})
    mode = walk.mode(walk.unconstrain(middle)[0])
    told = make_draws(walk.constrain(mode[None, None]))
    for label in labels:
        told = non_centred(told, data, label)
    return np.asarray(bound.unconstrain(told)[0])


def _start(bound: EmbeddedBinding, n: int) -> Vector:
    """Where to look for a mode: far from it, clamped terms have no slope.

    The best of a public grid in each of the intercepts, cutpoints and dispersions, one by one.
    """
    names = bound.coordinates()
    moved = [i for i, k in enumerate(names) if not k.startswith(("group_", "coefficient"))]
    steps = np.geomspace(0.1, 10 * np.sqrt(n), 16)
    steps = np.concatenate([[0], steps, -steps])  # the first of equal ones is taken
    point = np.zeros(len(names))
    for _ in range(_SWEEPS):
        for i in moved:
            tried = np.tile(point, (len(steps), 1))
            tried[:, i] += steps
            found = [bound.density(one)[0] for one in tried]
            point = tried[np.argmax(np.nan_to_num(found, nan=-np.inf))]
    return point


class _Slopes:
    """Gradients of a log density in the group effects around a point.

    Attributes:
        at: the point's parameters.
        information: precision of what the records say of each effect, shape as the effects.
        slope: its gradient at the point.
    """

    def __init__(
        self,
        bound: EmbeddedBinding,
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
        """Where a parameter's entries stand among the coordinates."""
        own = entry(parameter, self._label)
        found = [i for i, name in enumerate(self._names) if name.split(".")[0] == own]
        return np.asarray(found, dtype=int)

    def _gradient(self, effect: Floats) -> Vector:
        """At other effects; in all effects that of the likelihood."""
        moved = self._point.copy()
        moved[self._effects] = effect / self._sd
        _, found = self._bound.density(moved)
        found[self._effects] = (found[self._effects] + moved[self._effects]) / self._sd
        return found

    def measure(self) -> None:
        """Find ``information`` and ``slope``."""
        before = self.at["group_effect"]
        for index in np.ndindex(before.shape[1:]):
            for part in self._stacked.part:
                self._measure((part, *index), before)

    def _measure(self, own: tuple[Any, ...], before: Floats) -> None:
        """The same for a column, and one of its levels.

        The sd of effects is that of a step of EM with each pass, and wider by about a sd of its
        logarithm: likelihoods that are not normal are better told where effects are far apart.
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
        """As ``group_coordinates``."""
        share = self._gap_share() if "gap_share" in data else None
        return coordinates_of(
            self._stacked, self.at, self.information, self.slope, data, gap_share=share
        )

    def _gap_share(self) -> Vector:
        """Of the gaps between cutpoints, in what the effects of the last column are moved by."""
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
    """As ``group_coordinates``, by what a likelihood says of each effect near a point.

    Args:
        stacked: the columns of effects.
        at: parameters at the point.
        information: precision of each effect by the likelihood, shape (J,) or (J, levels).
        slope: of the log-likelihood in each effect, at the point.
        data: of the program.
        gap_share: of cutpoints.
    """
    information, slope = information.copy(), slope.copy()
    found = {"group_information": information, "slope_part": stacked.slope_part()}
    if gap_share is not None:  # cutpoints have the intercept's place, with the other sign
        found["gap_share"] = gap_share
        intercept = -at["first_cutpoint"] - gap_share @ at["gap"]
        location = -data["prior_cutpoint"][0]
    else:
        intercept, location = at["intercept"], data["prior_intercept"][0]
    for t in range(stacked.slopes):
        _less_intercepts(stacked, t, information, slope)
    told = information > 0
    step = np.divide(slope, information, out=np.zeros(slope.shape), where=told)
    found["group_estimate"] = at["group_effect"] + step
    if "coefficient" in at:
        found["group_estimate"] += data["group_mean"] @ at["coefficient"]
    effects = at["group_effect"].reshape(stacked.width, -1)
    for t, part in enumerate(stacked.part):
        if len(stacked.part) > 1:
            others = stacked.others(t, effects)
            found["group_estimate"][part] += others.reshape(slope[part].shape)
        if t >= stacked.slopes:
            found["group_estimate"][part] += intercept - (t < stacked.last) * location
    return found


def _less_intercepts(stacked: Stacked, t: int, information: Floats, slope: Floats) -> None:
    """Information and gradient of slopes where their groups' intercepts are not known."""
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
    """``_GRID`` by a hyperbolic sine, so that its ends are wider by reach: shape (G, groups)."""
    bend = np.ones(len(reach))
    for _ in range(20):  # of sinh(bend) = reach bend, reach at least 1
        bend = np.maximum(np.arcsinh(reach * bend), 1e-3)
    return np.sinh(_GRID[:, None] / _REACH * bend) / bend * _REACH


def _moments(points: Floats, slopes: Floats, sd: float, width: Vector) -> tuple[Vector, Vector]:
    """Means and sds of effects, from slopes of their log likelihoods; shapes (G, groups).

    Args:
        sd: of the effects' prior.
        width: of sds, by which points were chosen; no point tells of a fifth of it.
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
    """Draws of any coordinates, told in those of a program that is given none.

    Args:
        label: of the column whose group effects are meant.
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
    told = entry("group_raw", label)
    changed = posterior.assign({told: posterior[told].copy(data=raw)})
    return draws.assign({"posterior": xr.DataTree(changed)})
