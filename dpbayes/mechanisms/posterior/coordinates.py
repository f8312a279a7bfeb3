"""Coordinates in which chains walk through group effects: what each group's records say of it.

They are for stan_models/include/group_effects.stan, where they are offsets and multipliers of
parameters: the posterior is the same whatever they are, so they cost no ε although they are made
from the records. They stay with the chain; nothing of them is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbayes.arrays import Floats, Ints, Vector
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.errors import EngineError
from dpbayes.heavy import xr

_STEPS = 3  # each measures curvature over the width that the one before found
_WIDER = 3.0  # times the width without a clamp is as far as it is measured with one
_LARGEST = 1e100  # beyond it, Stan's arithmetic with these could overflow


def group_coordinates(bound: EmbeddedBinding, data: Mapping[str, Any]) -> dict[str, Floats]:
    """``group_information``, ``group_estimate`` and, with cutpoints, ``gap_share`` of a stage.

    The likelihood of a group is taken as normal in its effect, near the mode. Its precision is a
    difference of gradients over about a posterior sd to either side, since a clamp has no second
    derivative to speak of. Groups share no record, so two gradients serve all of them.

    There is always a result, since whether there is one would depend on the records: a group that
    nothing was found for keeps the coordinates it has, and all of them where the mode fails.

    Args:
        bound: the stage with its coordinates as ``Model.data`` leaves them, non-centred.
        data: of the program. Only shapes and ``group_mean`` are read.
    """
    try:
        with np.errstate(all="ignore"):
            found = _near_mode(bound, data)
    except EngineError:
        return {}
    kept = np.abs([found["group_information"], found["group_estimate"]]) < _LARGEST
    found["group_information"][~kept.all(axis=0)] = 0.0
    return {name: np.where(np.abs(value) < _LARGEST, value, 0.0) for name, value in found.items()}


def _near_mode(bound: EmbeddedBinding, data: Mapping[str, Any]) -> dict[str, Floats]:
    """The same where arithmetic allows it."""
    free = bound.rebind(clip_lower=-np.inf, clip_upper=np.inf)
    shape = np.shape(data["group_estimate"])
    point = free.mode()
    near = _Slopes(free, point, shape)
    wide = near.measure(np.full(shape, np.inf))
    near = _Slopes(bound, bound.mode(point), shape)  # far from the mode, clamped terms have none
    near.measure(_WIDER * wide)
    return near.coordinates(data)


class _Slopes:
    """Gradients of a log density on both sides of a point in the group effects.

    Attributes:
        at: the point's parameters.
        information: precision of each effect, shape as the effects.
    """

    def __init__(self, bound: EmbeddedBinding, point: Vector, shape: tuple[int, ...]) -> None:
        self._bound, self._point = bound, point
        self._names = bound.coordinates()
        where = self._places("group_raw")
        self._effects = where.reshape(shape[::-1]).T  # Stan's first index runs fastest
        self.at = {k: v[0, 0] for k, v in bound.constrain(point[None, None]).items()}
        self._sd = np.broadcast_to(self.at["group_sd"].ravel(), shape)
        self.information = np.zeros(shape)

    def _places(self, parameter: str) -> Ints:
        """Where a parameter's entries stand among the coordinates."""
        found = [i for i, name in enumerate(self._names) if name.split(".")[0] == parameter]
        return np.asarray(found, dtype=int)

    def _gradient(self, shift: Floats) -> Vector:
        """With the effects moved, where it is in the effects that of the likelihood."""
        moved = self._point.copy()
        moved[self._effects] += shift / self._sd
        _, found = self._bound.density(moved)
        found[self._effects] = (found[self._effects] + moved[self._effects]) / self._sd
        return found

    def measure(self, widest: Floats) -> Floats:
        """Find ``information``; returns the posterior sds of the effects that follow from it."""
        width = np.minimum(widest, self._sd)
        for _ in range(_STEPS):
            self._up, self._down = self._gradient(width), self._gradient(-width)
            curvature = (self._down - self._up)[self._effects] / (2 * width)
            self.information = np.maximum(curvature, 0.0)
            found = 1 / np.sqrt(self.information + 1 / self._sd**2)
            width = np.minimum(widest, found)
        return found

    def coordinates(self, data: Mapping[str, Any]) -> dict[str, Floats]:
        """As ``group_coordinates``."""
        at, told = self.at, self.information > 0
        found = {"group_information": self.information}
        if "gap_share" in data:  # cutpoints have the intercept's place, with the other sign
            cross = self._down - self._up
            gaps, first = cross[self._places("gap")], cross[self._places("first_cutpoint")]
            found["gap_share"] = np.nan_to_num(gaps / (at["gap"] * first), posinf=0, neginf=0)
            intercept = -at["first_cutpoint"] - found["gap_share"] @ at["gap"]
        else:
            intercept = at["intercept"]
        slope = (self._up + self._down)[self._effects] / 2
        step = np.divide(slope, self.information, out=np.zeros(slope.shape), where=told)
        found["group_estimate"] = intercept + at["group_effect"] + step
        if "coefficient" in at:
            found["group_estimate"] += data["group_mean"] @ at["coefficient"]
        return found


def non_centred(draws: xr.DataTree) -> xr.DataTree:
    """Draws of any coordinates, told in those of a program that is given none."""
    posterior = draws["posterior"].to_dataset()
    raw = posterior["group_effect"].to_numpy() / posterior["group_sd"].to_numpy()
    changed = posterior.assign(group_raw=posterior["group_raw"].copy(data=raw))
    return draws.assign({"posterior": xr.DataTree(changed)})
