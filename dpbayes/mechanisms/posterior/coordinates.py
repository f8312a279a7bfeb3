"""Coordinates in which chains walk through group effects: what each group's records say of it.

They are for stan_models/include/group_effects.stan, where they are offsets and multipliers of
parameters: the posterior is the same whatever they are, so they cost no ε although they are made
from the records. They stay with the chain; nothing of them is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.arrays import Floats, Ints, Vector
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.errors import EngineError
from dpbayes.heavy import xr
from dpbayes.stan.composition import entry
from dpbayes.stan.groups import Stacked

_STEPS = 3  # each measures curvature over the width that the one before found
_WIDER = 3.0  # times the width without a clamp is as far as it is measured with one
_LARGEST = 1e100  # beyond it, Stan's arithmetic with these could overflow


def group_coordinates(
    bound: EmbeddedBinding, data: Mapping[str, Any], labels: Sequence[str] = ("",)
) -> dict[str, Floats]:
    """``group_information``, ``group_estimate``, ``slope_part`` and, with cutpoints, ``gap_share``.

    The likelihood of a group is taken as normal in its effect, near the mode. Its precision is a
    difference of gradients over about a posterior sd to either side, since a clamp has no second
    derivative to speak of. Groups of a column share no record, so two gradients serve all of them.

    There is always a result, since whether there is one would depend on the records: a group that
    nothing was found for keeps the coordinates it has, and all of them where the mode fails.

    Args:
        bound: the stage with its coordinates as ``Model.data`` leaves them, non-centred.
        data: of the program. Only shapes, groups, covariates and priors are read.
        labels: of the columns that have group effects (``Model.labels``).
    """
    free = bound.rebind(clip_lower=-np.inf, clip_upper=np.inf)
    found: dict[str, Floats] = {}
    try:
        with np.errstate(all="ignore"):
            point = free.mode()
            mode = bound.mode(point)
            for label in labels:
                of_column = _near_mode((free, point), (bound, mode), data, label)
                found |= {entry(name, label): v for name, v in _usable(of_column).items()}
    except EngineError:
        return {}
    return found


def _usable(found: dict[str, Floats]) -> dict[str, Floats]:
    kept = np.abs([found["group_information"], found["group_estimate"]]) < _LARGEST
    found["group_information"][~kept.all(axis=0)] = 0.0
    return {name: np.where(np.abs(value) < _LARGEST, value, 0.0) for name, value in found.items()}


def _near_mode(
    free: tuple[EmbeddedBinding, Vector],
    clamped: tuple[EmbeddedBinding, Vector],
    data: Mapping[str, Any],
    label: str,
) -> dict[str, Floats]:
    """Those of a column, where arithmetic allows it; by bindings and their modes."""
    ending = entry("", label)
    own = {name.removesuffix(ending): v for name, v in data.items() if name.endswith(ending)}
    shape = np.shape(own["group_estimate"])
    stacked = Stacked(own)
    near = _Slopes(*free, shape, stacked, label)
    wide = near.measure(np.full(shape, np.inf))
    # Far from the mode, clamped terms have none.
    near = _Slopes(*clamped, shape, stacked, label)
    near.measure(_WIDER * wide)
    return near.coordinates(own)


class _Slopes:
    """Gradients of a log density on both sides of a point in the group effects.

    Attributes:
        at: the point's parameters.
        information: precision of each effect, shape as the effects.
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
        self.information = np.zeros(shape)
        self._up, self._down = np.zeros(shape), np.zeros(shape)
        self._cross = np.zeros(len(point))

    def _places(self, parameter: str) -> Ints:
        """Where a parameter's entries stand among the coordinates."""
        own = entry(parameter, self._label)
        found = [i for i, name in enumerate(self._names) if name.split(".")[0] == own]
        return np.asarray(found, dtype=int)

    def _gradient(self, part: slice, shift: Floats) -> Vector:
        """With the effects of a column moved; in all effects that of the likelihood."""
        moved = self._point.copy()
        moved[self._effects[part]] += shift[part] / self._sd[part]
        _, found = self._bound.density(moved)
        found[self._effects] = (found[self._effects] + moved[self._effects]) / self._sd
        return found

    def measure(self, widest: Floats) -> Floats:
        """Find ``information``; returns the posterior sds of the effects that follow from it."""
        width = np.minimum(widest, self._sd)
        for _ in range(_STEPS):
            for part in self._stacked.part:
                up, down = self._gradient(part, width), self._gradient(part, -width)
                effects = self._effects[part]
                self._up[part], self._down[part] = up[effects], down[effects]
                self._cross = down - up
            self.information = np.maximum((self._down - self._up) / (2 * width), 0.0)
            found = 1 / np.sqrt(self.information + 1 / self._sd**2)
            width = np.minimum(widest, found)
        return found

    def coordinates(self, data: Mapping[str, Any]) -> dict[str, Floats]:
        """As ``group_coordinates``."""
        at, stacked = self.at, self._stacked
        found = {"group_information": self.information, "slope_part": stacked.slope_part()}
        if "gap_share" in data:  # cutpoints have the intercept's place, with the other sign
            found["gap_share"] = self._gap_share()
            intercept = -at["first_cutpoint"] - found["gap_share"] @ at["gap"]
            location = -data["prior_cutpoint"][0]
        else:
            intercept, location = at["intercept"], data["prior_intercept"][0]
        slope = (self._up + self._down) / 2
        for t in range(stacked.slopes):
            self._less_intercepts(t, slope)
        told = self.information > 0
        step = np.divide(slope, self.information, out=np.zeros(slope.shape), where=told)
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

    def _less_intercepts(self, t: int, slope: Floats) -> None:
        """Information and gradient of slopes where their groups' intercepts are not known."""
        stacked, part = self._stacked, self._stacked.part[t]
        s = stacked.intercept_of(t)
        if s is None:
            return
        whole = stacked.sums(t, stacked.times(t) ** 2)
        left = stacked.sums(t, stacked.own[t] ** 2)
        share = np.divide(left, whole, out=np.zeros(len(whole)), where=whole > 0)
        self.information[part] = (self.information[part].T * share).T
        slope[part] -= (slope[stacked.part[s]].T * stacked.centre(t)).T

    def _gap_share(self) -> Vector:
        """Of the gaps between cutpoints, in what the effects of the last column are moved by."""
        gap = self.at["gap"]
        if self._stacked.last == len(self._stacked.part):
            return np.zeros(len(gap))
        gaps, first = (self._cross[self._places(name)] for name in ("gap", "first_cutpoint"))
        return np.asarray(np.nan_to_num(gaps / (gap * first), posinf=0, neginf=0))


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
