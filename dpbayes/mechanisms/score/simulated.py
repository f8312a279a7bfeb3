"""Simulated records, by which the model's expectations are estimated at a point. Public."""

from __future__ import annotations

import contextlib
import copy
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

SEED = 29  # public and fixed, so that nearby points have similar simulated records
_STEP = 1e-4  # of differences of the prior's slope, in whitened coordinates (``whitened``)
_PRIOR = 1_000  # records as which the prior counts at least, in how long directions are
_FLAT = 1e-6  # least curvature of the prior in these coordinates
_STEEPEST = 1e50  # largest slope of a simulated record, so that squares of slopes are finite
_THINNEST = 1e-12  # least eigenvalue of a correlation matrix of slopes
_FARTHEST = 3.0  # multiple of sqrt(d); records with longer scores are downweighted
_PASSES = 3
_HALVES = 30  # most halvings of a way that a program does not allow
USERS = ("y", "X", "group")  # by-record data of a user's program
NO_DENSITY = "no record that it draws at a likely point has a finite log_lik."


class Simulated(NamedTuple):
    """Simulated records.

    Attributes:
        bound: the program with these records.
        density: log density of each record under the mixture from which it was drawn, shape (M,).
        data: program data with these records.
    """

    bound: EmbeddedBinding
    density: Vector
    data: Mapping[str, Any]


class Simulator:
    """Simulates records of a model given public covariates. It sees no confidential value.

    Args:
        model: the model of the records.
        compiled: its compiled program.
        public: the public columns, with the public number of rows.
        rows: the public number of rows.
        size: number of simulated records, M.

    Attributes:
        rows: the public number of rows.
        n, n_sd: the number of records, and its sd where it is not known exactly.
        index: index of the public row of each simulated record, shape (M,).
        names: parameter to which each unconstrained coordinate belongs.
        fixed: indices of the d coordinates other than group effects, their sds and correlations.
    """

    def __init__(
        self, model: Model, compiled: EmbeddedModel, public: pd.DataFrame, rows: int, size: int
    ) -> None:
        self.model, self.rows, self.size = model, rows, size
        self.n, self.n_sd = rows, 0.0
        self.index = index = _spread(len(public), size)
        self._all, self._public = public, public.iloc[index].reset_index(drop=True)
        data = {**model.blank(self._public, size), **model.constants_at(index, rows), "rows": rows}
        self._data = {**without_coordinates(data), **contract_defaults(size)}
        self._blank = compiled.bind(self._data)
        self._prior = self._blank.rebind(weights=np.zeros(size))
        self.names = [name.partition(".")[0] for name in self._blank.coordinates()]
        of_groups = COORDINATES if "group_mean" in self._data else ()
        self.fixed = np.flatnonzero([name not in of_groups for name in self.names])

    def counting(self, n: int, sd: float) -> Simulator:
        """Copy the simulator for another number of records, known up to noise of this sd."""
        copied = copy.copy(self)
        copied.n, copied.n_sd = n, sd
        return copied

    def prior(self, point: Vector) -> tuple[float, Vector]:
        """Log density of the prior at an unconstrained point, and its gradient."""
        return self._prior.density(point)

    def points_of(self, draws: xr.DataTree) -> Floats:
        """Convert draws to unconstrained coordinates, shape (S, all)."""
        return self._blank.unconstrain(draws)

    @property
    def directions(self) -> Floats:
        """Unit vectors along the fixed coordinates, shape (d, all)."""
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
        """The point with these group effects, no correlations, and sds of the prior's scale."""
        moved = self.without_effects(point)
        moved[self._places("group_raw")] = effects / self._sds(moved)
        return moved

    def effects(self, point: Vector) -> Vector:
        """Group effects at a point, shape (J,)."""
        return np.asarray(self.constrained(point[None, None], effects=True)["group_effect"][0, 0])

    def along_effects(self, point: Vector, columns: Sequence[int]) -> Floats:
        """Directions in which all effects of a stacked column change by 1, shape (C, all)."""
        inverse_sds = 1 / self._sds(point)
        directions = np.zeros((len(columns), len(point)))
        indices = self._places("group_raw")
        for direction, t in zip(directions, columns, strict=True):
            part = Stacked(self._data).part[t]
            direction[indices[part]] = inverse_sds[part]
        return directions

    def mixed(self, directions: Floats, columns: Sequence[int]) -> Floats:
        """Changes of each column's effects along directions in their span, shape (C, C).

        Args:
            directions: directions in the span of ``along_effects``, shape (C, all).
            columns: the C stacked columns.
        """
        point = self.without_effects(np.zeros(len(self.names)))
        first = [Stacked(self._data).part[t].start for t in columns]
        indices = self._places("group_raw")[first]
        return np.asarray(directions[:, indices] * self._sds(point)[first])

    def shift(self, point: Vector) -> Vector:
        """The direction in which all linear predictors change by 1, shape (all,)."""
        level, step = self._level(point), np.zeros(len(point))
        (index,) = self._places("intercept" if "intercept" in self.names else "first_cutpoint")
        step[index] = 1.0
        # A unit step of the coordinate need not change the predictor by 1.
        return np.asarray(step / (self._level(point + step) - level))

    def _level(self, point: Vector) -> float:
        values = self.constrained(point[None, None])
        if "intercept" in values:
            return float(values["intercept"][0, 0])
        return -float(values["first_cutpoint"][0, 0])

    def _places(self, name: str) -> Ints:
        return np.flatnonzero([other == name for other in self.names])

    def _sds(self, point: Vector) -> Vector:
        """Standard deviation of the prior of each group effect, shape (J,)."""
        sd = self.constrained(point[None, None], effects=True)["group_sd"][0, 0]
        return np.concatenate(
            [np.full(part.stop - part.start, value)
             for part, value in zip(Stacked(self._data).part, sd, strict=True)]
        )  # fmt: skip

    def scattered(self, count: int) -> Floats:
        """Arbitrary unconstrained points, shape (count, all)."""
        return self.points_of(self._blank.random_points(count, SEED))

    def constrained(self, points: Floats, *, effects: bool = False) -> dict[str, NDArray[Any]]:
        """Parameters by name at unconstrained points, shape (chains, draws, all).

        Args:
            points: the points.
            effects: include group effects and their sds.
        """
        values = self._blank.constrain(points)
        names = self.model.program.declared("parameters")
        names += ("group_effect", "group_sd") if effects else ()
        return {name: values[name] for name in names if name in values}

    @property
    def numbers(self) -> int:
        """How many numbers a posterior draw has: parameters, and what is computed from them."""
        values = self._blank.constrain(self.scattered(1)[None])
        return sum(array.size for array in values.values())

    def reached(self, point: Vector, way: Vector) -> Vector:
        """The point moved along a way as far as the program allows: all of it, a half, a quarter.

        A user's program may have constraints between parameters (on transformed parameters), or a
        prior with bounds, of which unconstrained coordinates know nothing.

        Args:
            point: a point at which the program draws records.
            way: the way from it, shape (all,).
        """
        for _ in range(_HALVES):
            with contextlib.suppress(EngineError):
                self.constrained((point + way)[None, None])
                if math.isfinite(self.prior(point + way)[0]):
                    return point + way
            way = way / 2
        return point

    def records(self, points: Floats, seed: int = SEED) -> Simulated:
        """Simulate records at unconstrained points of shape (K, all), about as many at each.

        Points at which the program draws no records are left out. Records without a finite density,
        such as a value rounded to 1, are replaced by copies of others.

        Raises:
            EngineError: the program draws no record with a finite density at any point.
        """
        drawn, points = self._drawn(points, seed)
        data = {**self._data, **drawn}
        bound = self._blank.rebind(**drawn)
        density = _mixture(bound, points)
        if not np.isfinite(density).all():
            usable = np.flatnonzero(np.isfinite(density))
            if not usable.size:
                raise EngineError(f"{self.model.program.name}.stan: {NO_DENSITY}")
            replacement = np.resize(usable, self.size)
            columns = by_row(self.model, {**data, "n": self.size}, self.rows)
            changed = {name: values[replacement] for name, values in columns.items()}
            data, bound = {**data, **changed}, self._blank.rebind(**changed)
            density = _mixture(bound, points)
        return Simulated(bound, density, data)

    def _drawn(self, points: Floats, seed: int) -> tuple[dict[str, Any], Floats]:
        """Program data of simulated records, and the points at which simulation succeeded."""
        failed: EngineError | None = None
        usable, outcomes = [], []
        for k, point in enumerate(points):
            try:
                draws = make_draws(self.constrained(point[None, None]))
                outcomes.append(self._blank.y_rep(draws, 0, seed + k))
                usable.append(point)
            except EngineError as error:
                failed = error
        if failed is not None and not usable:
            raise failed
        point_of_record = np.arange(self.size) % len(usable)
        rows = np.stack(outcomes)[point_of_record, np.arange(self.size)]
        return self.model.drawn_data(self._public, lambda _changes: rows), np.stack(usable)

    def curvature(self, point: Vector, directions: Floats) -> Floats:
        """Curvature of the negative log prior along directions, shape (d, d).

        Eigenvalues are at least ``_FLAT``. Where the prior has no finite slope it counts as flat.
        """
        falls = np.stack(
            [self.prior(point - _STEP * direction)[1] - self.prior(point + _STEP * direction)[1]
             for direction in directions]
        ) / (2 * _STEP)  # fmt: skip
        curvature = np.nan_to_num(falls @ directions.T, posinf=0.0, neginf=0.0)
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
        return np.asarray((vectors * np.maximum(values, _FLAT)) @ vectors.T)

    def whitened(self, point: Vector, directions: Floats) -> Floats:
        """Directions along which a record's slopes have sd 1 and are uncorrelated, shape (d, all).

        Records with extreme slopes are downweighted; the prior counts as one record.

        Args:
            point: the point at which slopes are taken.
            directions: initial directions, shape (d, all).
        """
        there = self.records(point[None]).bound
        d = len(directions)
        for _ in range(_PASSES):
            h = np.clip(finite(slopes_along(there, point, directions)), -_STEEPEST, _STEEPEST)
            prior = self.curvature(point, directions) / min(self.n, _PRIOR)
            weight = np.ones(len(h))
            for _ in range(_PASSES):
                spread = (h * weight[:, None]).T @ h / weight.sum() + prior
                far = ((h @ whitening(spread).T) ** 2).sum(axis=1)
                weight = np.minimum(1.0, _FARTHEST**2 * d / np.maximum(far, 1e-9))
            directions = whitening(spread) @ directions
        return directions


def whitening(covariance: Floats) -> Floats:
    """Matrix W that makes vectors of a covariance C uncorrelated with variance 1, shape (d, d).

    C is the inverse of W'W. At a point far from any fit C may be singular up to rounding:
    directions of (nearly) no variance are stretched by no more than ``_THINNEST`` allows.
    """
    sd = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    return np.asarray((vectors / np.sqrt(np.maximum(values, _THINNEST))).T / sd)


def without_coordinates(data: Mapping[str, Any]) -> dict[str, Any]:
    """Program data with non-centred group effects: sds times the chain's coordinates."""
    return {**data, **neutral(data)} if "group_mean" in data else dict(data)


def by_row(model: Model, data: Mapping[str, Any], rows: int) -> dict[str, NDArray[Any]]:
    """Select the entries of program data that have a value or row for each of n records.

    Args:
        model: the model whose program has these data.
        data: program data, including n.
        rows: the public number of rows.
    """
    families = any(column.family for column in model.columns)
    known = [name for name in with_rows(data) if name != MULTIPLICITY] if families else USERS
    names = (*known, *model.constants_at(np.arange(0), rows))
    columns = {name: np.asarray(data[name]) for name in names if name in data}
    return {name: values for name, values in columns.items() if len(values) == data["n"]}


def _mixture(bound: EmbeddedBinding, points: Floats) -> Vector:
    """Log density of records under the equal mixture of the model at points, shape (M,)."""
    by_point = np.stack(list(bound.log_lik_at(points)))
    by_point[np.isnan(by_point)] = -np.inf  # outside the prior's support, where a program has none
    with np.errstate(invalid="ignore"):  # of densities that are not finite, which are replaced
        return np.asarray(np.logaddexp.reduce(by_point, axis=0) - np.log(len(points)))


def _spread(rows: int, size: int) -> Ints:
    """Indices of ``size`` rows in random order, each as often as the others up to one."""
    order = np.random.default_rng(SEED).permutation(rows)
    return np.asarray(np.resize(order, size))
