"""Simulated records: what the model expects of records at a parameter value. Public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.arrays import Floats, Ints, Vector
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedModel
from dpbayes.heavy import pd, xr
from dpbayes.mechanisms.score.clipped import finite, slopes_along
from dpbayes.stan.model import Model

SEED = 29  # public: of simulated records, so that nearby points have nearby ones
_STEP = 0.1  # of differences of the prior's slope, in standard deviations of what one record says
_FLAT = 1e-6  # least curvature of the prior in such units
_FARTHEST = 3.0  # length of a score beside sqrt(d), beyond which its record counts for less
_PASSES = 3


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
        dimension: number of unconstrained parameters, d.
    """

    def __init__(
        self, model: Model, compiled: EmbeddedModel, public: pd.DataFrame, rows: int, size: int
    ) -> None:
        self.model, self.rows, self.size = model, rows, size
        index = _spread(len(public), size)
        self._public = public.iloc[index].reset_index(drop=True)
        data = {**model.blank(self._public, size), "rows": rows}
        if model.schema.rows.public:
            for key, value in model.constants.items():  # a user's, with a value for each row
                if np.shape(value)[:1] == (rows,):
                    data[key] = np.take(value, index, axis=0)
        self._data = {**data, **contract_defaults(size)}
        self._blank = compiled.bind(self._data)
        self._prior = self._blank.rebind(weights=np.zeros(size))
        self.dimension = len(self._blank.coordinates())

    def prior(self, point: Vector) -> tuple[float, Vector]:
        """Log density of the prior at an unconstrained point, and its slope."""
        return self._prior.density(point)

    def points_of(self, draws: xr.DataTree) -> Floats:
        """Unconstrained coordinates of draws, shape (S, d)."""
        return self._blank.unconstrain(draws)

    def constrained(self, points: Floats) -> dict[str, NDArray[Any]]:
        """Parameters by name at points of shape (chains, draws, d)."""
        found = self._blank.constrain(points)
        names = self.model.program.declared("parameters")
        return {name: found[name] for name in names if name in found}

    def records(self, points: Floats, seed: int = SEED) -> Simulated:
        """Records drawn at unconstrained points of shape (K, d), as many at each.

        Raises:
            EngineError: the program draws none there.
        """
        at = [make_draws(self.constrained(point[None, None])) for point in points]
        which = np.arange(self.size) % len(points)

        def replicate(changes: Mapping[str, Any]) -> NDArray[Any]:
            bound = self._blank.rebind(**changes) if changes else self._blank
            drawn = np.stack([bound.y_rep(draws, 0, seed + k) for k, draws in enumerate(at)])
            return np.asarray(drawn[which, np.arange(self.size)])

        drawn = self.model.drawn_data(self._public, replicate)
        there = self._blank.rebind(**drawn)
        each = np.stack(list(there.log_lik_at(points)))
        density = np.logaddexp.reduce(each, axis=0) - np.log(len(points))
        return Simulated(there, np.asarray(density), {**self._data, **drawn})

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
            directions: to begin with, shape (d, d).
        """
        there = self.records(point[None]).bound
        d = len(point)
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


def _spread(rows: int, size: int) -> Ints:
    """Places of ``size`` of the rows, each as often as others as far as that goes."""
    order = np.random.default_rng(SEED).permutation(rows)
    return np.asarray(np.resize(order, size))
