"""Simulated records: what the model expects of records at a parameter value. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import pd, xr
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedModel
from dpbayes.engines.proposal import with_rows
from dpbayes.formula.groups import COORDINATES, Stacked, neutral
from dpbayes.mechanisms.score.clipped import finite, slopes_along
from dpbayes.stan.model import Model
from dpbayes.stan.program import MULTIPLICITY

SEED = 29  # public: of simulated records, so that nearby points have nearby ones
_STEP = 0.1  # of differences of the prior's slope, in standard deviations of what one record says
_FLAT = 1e-6  # least curvature of the prior in such units
_FARTHEST = 3.0  # length of a score beside sqrt(d), beyond which its record counts for less
_PASSES = 3
USERS = ("y", "X", "group")  # what a user's program is given of each record
NO_DENSITY = "no record that it draws at a likely point has a finite log_lik."


class Simulated(NamedTuple):
    """Records that were drawn.

    Attributes:
        bound: the program with them.
        density: log density of the mixture that each of them is from, shape (M,).
        data: of the program, with them.
    """

    bound: EmbeddedBinding
    density: Vector
    data: Mapping[str, Any]


class Simulator:
    """Draws records of a model beside public covariates. It sees no confidential value.

    Args:
        model: of the records.
        compiled: its program.
        public: the public columns, a row for each of the public number.
        size: how many records are drawn, M.

    Attributes:
        rows: the public number.
        index: which row of the public ones each record has, shape (M,).
        names: parameters that unconstrained coordinates belong to.
        fixed: places of the d coordinates that are no group effects, nor say how they are spread.
    """

    def __init__(
        self, model: Model, compiled: EmbeddedModel, public: pd.DataFrame, rows: int, size: int
    ) -> None:
        self.model, self.rows, self.size = model, rows, size
        self.index = index = _spread(len(public), size)
        self._all, self._public = public, public.iloc[index].reset_index(drop=True)
        data = {**model.blank(self._public, size), **model.constants_at(index, rows), "rows": rows}
        self._data = {**without_coordinates(data), **contract_defaults(size)}
        self._blank = compiled.bind(self._data)
        self._prior = self._blank.rebind(weights=np.zeros(size))
        self.names = [name.partition(".")[0] for name in self._blank.coordinates()]
        of_groups = COORDINATES if "group_mean" in self._data else ()
        self.fixed = np.flatnonzero([name not in of_groups for name in self.names])

    def prior(self, point: Vector) -> tuple[float, Vector]:
        """Log density of the prior at an unconstrained point, and its slope."""
        return self._prior.density(point)

    def points_of(self, draws: xr.DataTree) -> Floats:
        """Unconstrained coordinates of draws, shape (S, d)."""
        return self._blank.unconstrain(draws)

    @property
    def directions(self) -> Floats:
        """Along each of the fixed coordinates, shape (d, all)."""
        return np.eye(len(self.names))[self.fixed]

    @cached_property
    def design(self) -> dict[str, Any]:
        """Program data of all public rows."""
        return self.model.blank(self._all, self.rows)

    def without_effects(self, point: Vector) -> Vector:
        """The point with group effects of 0, no correlations, and sds of the prior's scale."""
        moved = point.copy()
        for name, value in zip(COORDINATES, (0.0, math.log(math.e - 1), 0.0), strict=True):
            moved[self._places(name)] = value
        return moved

    def with_effects(self, point: Vector, effects: Vector) -> Vector:
        """The same with other effects."""
        moved = self.without_effects(point)
        moved[self._places("group_raw")] = effects / self._sds(moved)
        return moved

    def effects(self, point: Vector) -> Vector:
        """Group effects at a point, shape (J,)."""
        return np.asarray(self.constrained(point[None, None], effects=True)["group_effect"][0, 0])

    def along_effects(self, point: Vector, columns: Sequence[int]) -> Floats:
        """Directions of a step of 1 of all effects of some stacked columns, shape (C, all)."""
        each = 1 / self._sds(point)
        found = np.zeros((len(columns), len(point)))
        where = self._places("group_raw")
        for one, t in zip(found, columns, strict=True):
            part = Stacked(self._data).part[t]
            one[where[part]] = each[part]
        return found

    def mixed(self, directions: Floats, columns: Sequence[int]) -> Floats:
        """Steps of effects of each column, in directions that ``along_effects`` span: (C, C)."""
        point = self.without_effects(np.zeros(len(self.names)))
        first = [Stacked(self._data).part[t].start for t in columns]
        where = self._places("group_raw")[first]
        return np.asarray(directions[:, where] * self._sds(point)[first])

    def shift(self, point: Vector) -> Vector:
        """The direction of a step of 1 of all linear predictors."""
        there, step = self._level(point), np.zeros(len(point))
        (place,) = self._places("intercept" if "intercept" in self.names else "first_cutpoint")
        step[place] = 1.0
        return np.asarray(step / (self._level(point + step) - there))

    def _level(self, point: Vector) -> float:
        values = self.constrained(point[None, None])
        if "intercept" in values:
            return float(values["intercept"][0, 0])
        return -float(values["first_cutpoint"][0, 0])

    def _places(self, name: str) -> Ints:
        return np.flatnonzero([other == name for other in self.names])

    def _sds(self, point: Vector) -> Vector:
        """Of each effect, shape (J,)."""
        sd = self.constrained(point[None, None], effects=True)["group_sd"][0, 0]
        return np.concatenate(
            [np.full(part.stop - part.start, one)
             for part, one in zip(Stacked(self._data).part, sd, strict=True)]
        )  # fmt: skip

    def anywhere(self) -> Vector:
        """Some unconstrained point."""
        found: Vector = self.points_of(self._blank.random_points(1, SEED))[0]
        return found

    def constrained(self, points: Floats, *, effects: bool = False) -> dict[str, NDArray[Any]]:
        """Parameters by name at points of shape (chains, draws, d), and group effects with them."""
        found = self._blank.constrain(points)
        names = self.model.program.declared("parameters")
        names += ("group_effect", "group_sd") if effects else ()
        return {name: found[name] for name in names if name in found}

    def records(self, points: Floats, seed: int = SEED) -> Simulated:
        """Records drawn at unconstrained points of shape (K, d), about as many at each.

        Points at which the program draws none are left out, and in place of records without a
        finite density, such as a 1 by rounding, others are taken once more.

        Raises:
            EngineError: it draws no record with a density at any.
        """
        drawn, points = self._drawn(points, seed)
        data = {**self._data, **drawn}
        there = self._blank.rebind(**drawn)
        density = _mixture(there, points)
        if not np.isfinite(density).all():
            good = np.flatnonzero(np.isfinite(density))
            if not good.size:
                raise EngineError(f"{self.model.program.name}.stan: {NO_DENSITY}")
            again = np.resize(good, self.size)
            each = by_row(self.model, {**data, "n": self.size}, self.rows)
            changed = {name: values[again] for name, values in each.items()}
            data, there = {**data, **changed}, self._blank.rebind(**changed)
            density = _mixture(there, points)
        return Simulated(there, density, data)

    def _drawn(self, points: Floats, seed: int) -> tuple[dict[str, Any], Floats]:
        """Program data of drawn records, and the points at which some could be drawn."""
        failed: EngineError | None = None
        good, found = [], []
        for k, point in enumerate(points):
            try:
                draws = make_draws(self.constrained(point[None, None]))
                found.append(self._blank.y_rep(draws, 0, seed + k))
                good.append(point)
            except EngineError as error:
                failed = error
        if failed is not None and not good:
            raise failed
        which = np.arange(self.size) % len(good)
        rows = np.stack(found)[which, np.arange(self.size)]
        return self.model.drawn_data(self._public, lambda _changes: rows), np.stack(good)

    def curvature(self, point: Vector, directions: Floats) -> Floats:
        """Of minus the prior's logarithm along directions, shape (d, d), at least ``_FLAT``."""
        falls = np.stack(
            [self.prior(point - _STEP * one)[1] - self.prior(point + _STEP * one)[1]
             for one in directions]
        ) / (2 * _STEP)  # fmt: skip
        found = falls @ directions.T
        values, vectors = np.linalg.eigh((found + found.T) / 2)
        return np.asarray((vectors * np.maximum(values, _FLAT)) @ vectors.T)

    def whitened(self, point: Vector, directions: Floats) -> Floats:
        """Directions along which a record's slope at a point has sd 1, and any two no correlation.

        A record that says much more than most counts for less; the prior counts as a record.

        Args:
            directions: to begin with, shape (d, all).
        """
        there = self.records(point[None]).bound
        d = len(directions)
        for _ in range(_PASSES):
            h = finite(slopes_along(there, point, directions))
            prior = self.curvature(point, directions) / self.rows
            weight = np.ones(len(h))
            for _ in range(_PASSES):
                spread = (h * weight[:, None]).T @ h / weight.sum() + prior
                far = np.einsum("ij,jk,ik->i", h, np.linalg.inv(spread), h)
                weight = np.minimum(1.0, _FARTHEST**2 * d / np.maximum(far, 1e-9))
            root = np.linalg.cholesky(spread)
            directions = np.asarray(np.linalg.solve(root, directions))
        return directions


def without_coordinates(data: Mapping[str, Any]) -> dict[str, Any]:
    """Program data in which group effects are their sds times the chain's coordinates."""
    return {**data, **neutral(data)} if "group_mean" in data else dict(data)


def by_row(model: Model, data: Mapping[str, Any], rows: int) -> dict[str, NDArray[Any]]:
    """Entries of program data that have a value or row for each of its n rows, as they are there.

    Args:
        data: with n.
        rows: the public number.
    """
    if any(column.family for column in model.columns):
        return {name: v for name, v in with_rows(data).items() if name != MULTIPLICITY}
    names = (*USERS, *model.constants_at(np.arange(0), rows))
    some = {name: np.asarray(data[name]) for name in names if name in data}
    return {name: values for name, values in some.items() if len(values) == data["n"]}


def _mixture(bound: EmbeddedBinding, points: Floats) -> Vector:
    """Log density of records under the mixture of points, shape (M,)."""
    each = np.stack(list(bound.log_lik_at(points)))
    return np.asarray(np.logaddexp.reduce(each, axis=0) - np.log(len(points)))


def _spread(rows: int, size: int) -> Ints:
    """Places of ``size`` of the rows, each as often as others as far as that goes."""
    order = np.random.default_rng(SEED).permutation(rows)
    return np.asarray(np.resize(order, size))
