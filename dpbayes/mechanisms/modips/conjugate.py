"""Conjugate models for MODIPS: sufficient statistics, posterior draws given them, predictions.

Draws and predictions take arrays of statistics as well as single ones, so that studies run many
replicates at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.mechanisms.modips.settings import positive
from dpbayes.mechanisms.modips.statistic_model import (
    FittedStatistics,
    Sanitised,
    Scalar,
    Spending,
    StatisticModel,
    counted,
    most_records,
    no_public,
    number_of_records,
    number_statistics,
    only_column,
)
from dpbayes.mechanisms.modips.units import MOST, UNITS, about_mean, clipped, product_sums, whole
from dpbayes.mechanisms.tables.cells import BinRule, TableCells, check_cells, require_bounds
from dpbayes.mechanisms.tables.noisy import IN_ONE_CELL, draw_cells, proportions
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.statistic import Change, Statistic, same_change
from dpbayes.schema import Schema


@dataclass(frozen=True)
class Bernoulli(StatisticModel):
    """One binary column: x_i ~ Bernoulli(p), p ~ Beta(a, b).

    Statistics: the count n_1 of the second level, and the number of records unless it is public.
    Sensitivity 1 each: a record added, removed or changed moves them by at most 1, for any number
    of records. The default prior is that of Bowen & Liu.

    Source: liu-2016, section 5.1; bowen-liu-2020, section 4.1.
    """

    prior: tuple[float, float] = (1 / 3, 1 / 3)
    name: ClassVar[str] = "bernoulli"
    summary: ClassVar[str] = "one binary column"
    both: ClassVar[bool] = True
    few: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self.prior, 2, "prior")

    def check(self, schema: Schema) -> None:
        only_column(schema, "binary", self.name)

    def parts(self, schema: Schema) -> list[str]:
        return ["count", *counted(schema)]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedBernoulli:
        return FittedBernoulli(self, schema, records, rows)


class FittedBernoulli(Scalar[Floats]):
    """Statistic of ``Bernoulli``: count of the second level."""

    parameters = ("p",)

    def __init__(self, model: Bernoulli, schema: Schema, records: pd.DataFrame, rows: int) -> None:
        self.model, self.rows = model, rows
        self.column = only_column(schema, "binary", model.name)
        count = np.array((records[self.column.name].cat.codes == 1).sum())
        most = most_records(schema, rows)
        self.statistics = [
            Statistic("count", count, same_change(1), 0, most, integer=True),
            *number_statistics(schema, records),
        ]
        self.settings = {"prior": list(model.prior)}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        count = sanitised["count"]
        n = np.maximum(number_of_records(sanitised, self.rows), count)
        return draw_share(count, n, self.model.prior, rng)

    def predict(self, parameters: Floats, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        drawn = (rng.random(rows) < parameters).astype(int)
        return pd.DataFrame({self.column.name: pd.Series(self.column.levels)[drawn].to_numpy()})

    def ranges(self) -> list[tuple[float, float]]:
        return [(0.0, 1.0)]

    def log_density(self, points: Floats) -> Floats:
        a, b = self.model.prior
        x = float(self.statistics[0].exact)
        return np.asarray(stats.beta.logpdf(points[:, 0], a + x, b + self.n - x))


def draw_share(
    count: ArrayLike, n: ArrayLike, prior: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """Draw p ~ Beta(a + count, b + n - count)."""
    count, n = np.asarray(count), np.asarray(n)
    return np.asarray(rng.beta(prior[0] + count, prior[1] + n - count))


@dataclass(frozen=True)
class PoissonGamma(StatisticModel):
    """One count column above its lower bound L: x_i - L ~ Poisson(r), r ~ Gamma(shape, rate).

    Statistics: the sum of x_i - L, and the number of records unless it is public. Sensitivity U - L
    with the public upper bound U, and 1, for a record added, removed or changed, and any number of
    records. Predictions above U are moved to U.
    """

    prior: tuple[float, float] = (1.0, 1e-3)
    name: ClassVar[str] = "poisson-gamma"
    summary: ClassVar[str] = "one count column"
    both: ClassVar[bool] = True
    few: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self.prior, 2, "prior")

    def check(self, schema: Schema) -> None:
        require_bounds(only_column(schema, "count", self.name))

    def parts(self, schema: Schema) -> list[str]:
        return ["total", *counted(schema)]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedPoissonGamma:
        return FittedPoissonGamma(self, schema, records, rows)


class FittedPoissonGamma(Scalar[Floats]):
    """Statistic of ``PoissonGamma``: sum of the values minus the lower bound."""

    parameters = ("rate",)

    def __init__(
        self, model: PoissonGamma, schema: Schema, records: pd.DataFrame, rows: int
    ) -> None:
        self.model, self.rows = model, rows
        self.column = only_column(schema, "count", model.name)
        lower, upper = require_bounds(self.column)
        self.lower, self.width = int(lower), int(upper - lower)
        total = np.array(int((records[self.column.name] - self.lower).sum()))
        change, most = same_change(self.width), most_records(schema, rows) * self.width
        self.statistics = [
            Statistic("total", total, change, 0, most, integer=True),
            *number_statistics(schema, records),
        ]
        self.settings = {"prior": list(model.prior)}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        shape, rate = self.model.prior
        n = number_of_records(sanitised, self.rows)
        return np.asarray(rng.gamma(shape + sanitised["total"], 1 / (rate + n)))

    def predict(self, parameters: Floats, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        counts = np.minimum(rng.poisson(np.broadcast_to(parameters, rows)), self.width)
        return pd.DataFrame({self.column.name: self.lower + counts})

    def ranges(self) -> list[tuple[float, float]]:
        return [(0.0, float(self.width))]

    def log_density(self, points: Floats) -> Floats:
        shape, rate = self.model.prior
        total = float(self.statistics[0].exact)
        return np.asarray(
            stats.gamma.logpdf(points[:, 0], shape + total, scale=1 / (rate + self.n))
        )


@dataclass(frozen=True)
class NormalModel(StatisticModel):
    """One continuous column: x_i ~ Normal(μ, σ²), prior density proportional to 1/σ².

    Statistics: mean and variance S² (divisor n - 1), with r rows, a public number, for n; and the
    number of records unless it is public, by which a draw then corrects both. They are sums over
    the records in whole numbers (``units.py``), divided by public numbers.

    Sensitivities for public bounds c0, c1 and r rows: the mean's sum is taken from the middle of
    the bounds, so (c1 - c0)/(2 r) for a record added or removed and (c1 - c0)/r for a changed one;
    (c1 - c0)²/(r - 1) for S², either way (``normal_statistics``). They hold for any number of
    records, 0 and 1 included, which need not be r. The paper's are (c1 - c0)/n and (c1 - c0)²/n.

    Source: liu-2016, section 5.3; bowen-liu-2020, section 4.2.
    """

    name: ClassVar[str] = "normal"
    summary: ClassVar[str] = "one continuous column"
    few: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        only_column(schema, "continuous", self.name)

    def parts(self, schema: Schema) -> list[str]:
        return ["mean", "variance", *counted(schema)]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedNormal:
        return FittedNormal(schema, records, rows)


def normal_statistics(
    values: ArrayLike, bounds: tuple[float, float], rows: int, most: float
) -> list[Statistic]:
    """Mean and variance of values inside bounds, with their sensitivities.

    Sensitivity: on [-1, 1] a record adds at most 1 to the sum. Removing one of n records lowers the
    sum of squares about the mean by (1 - 1/n) d², d being its distance from the mean of the others,
    so by at most 4; changing one lowers it and raises it by at most as much, so that it moves by at
    most 4, too. Both hold in whole numbers (``about_mean``).

    Args:
        values: shape (..., n); leading axes are separate data sets.
        rows: a public number, for n.
        most: largest number of records that is known publicly.
    """
    z = whole(values, bounds)
    total, n = z.sum(axis=-1), np.array(z.shape[-1])
    of_squares = product_sums(z[..., None], z[..., None])[..., 0, 0]
    squares = about_mean(n, of_squares, total, total)
    unit = (bounds[1] - bounds[0]) / 2 / UNITS
    most = most * UNITS
    change: dict[Adjacency, Change] = {
        "add-remove": Change(UNITS),
        "substitution": Change(2 * UNITS),
    }
    middle = bounds[0] + unit * UNITS
    return [
        Statistic("mean", total, change, -most, most, integer=True, unit=unit / rows,
                  origin=middle),
        Statistic("variance", clipped(squares), same_change(4 * UNITS**2), 0,
                  min(most * UNITS, MOST), integer=True, unit=unit**2 / max(rows - 1, 1)),
    ]  # fmt: skip


def degrees(n: ArrayLike) -> NDArray[Any]:
    """Degrees of freedom of a variance: n - 1, but at least 1."""
    return np.asarray(np.maximum(np.asarray(n) - 1, 1))


def draw_normal(
    mean: ArrayLike, variance: ArrayLike, n: ArrayLike, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw μ and σ: σ² ~ Inv-Gamma((n-1)/2, (n-1)S²/2), μ ~ Normal(mean, σ²/n)."""
    mean, variance, n = np.asarray(mean), np.asarray(variance), np.asarray(n)
    df = degrees(n)
    sigma = np.sqrt(df * variance / (2 * rng.standard_gamma(df / 2, variance.shape)))
    return rng.normal(mean, sigma / np.sqrt(n)), sigma


class FittedNormal(Scalar[tuple[Floats, Floats]]):
    """Statistics of ``NormalModel``: mean and variance."""

    parameters = ("mu", "sigma")

    def __init__(self, schema: Schema, records: pd.DataFrame, rows: int) -> None:
        self.rows = rows
        self.column = only_column(schema, "continuous", NormalModel.name)
        self.bounds = require_bounds(self.column)
        values, most = records[self.column.name].to_numpy(), most_records(schema, rows)
        self.statistics = [
            *normal_statistics(values, self.bounds, rows, most),
            *number_statistics(schema, records),
        ]
        self.settings = {"normal": [self.column.name]}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> tuple[Floats, Floats]:
        return draw_normal(*self._by(number_of_records(sanitised, self.rows), sanitised), rng)

    def _by(self, n: ArrayLike, s: Sanitised) -> tuple[Floats, Floats, NDArray[Any]]:
        """Mean and variance by n records instead of the rows that they were divided by, and n."""
        n, middle = np.asarray(n), self.statistics[0].origin
        mean = middle + (s["mean"] - middle) * (self.rows / n)
        variance = s["variance"] * (degrees(self.rows) / degrees(n))
        most = ((self.bounds[1] - self.bounds[0]) / 2) ** 2 * n / degrees(n)
        return np.clip(mean, *self.bounds), np.minimum(variance, most), n

    def predict(
        self, parameters: tuple[Floats, Floats], rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        numbers = rng.normal(parameters[0], parameters[1], rows)
        return pd.DataFrame({self.column.name: np.clip(numbers, *self.bounds)})

    def ranges(self) -> list[tuple[float, float]]:
        width = self.bounds[1] - self.bounds[0]
        return [self.bounds, (width / 200, width / 2)]

    def log_density(self, points: Floats) -> Floats:
        of_mean, of_variance = self.statistics[:2]
        exact = {"mean": of_mean.exact, "variance": of_variance.exact}
        mean, variance, _ = self._by(self.n, exact)
        variance = np.maximum(variance, of_variance.unit)  # equal values have a density, too
        mu, sigma = points.T
        df = degrees(self.n)
        of_sigma = stats.invgamma.logpdf(sigma**2, df / 2, scale=df * variance / 2)
        # Density of (μ, σ): that of σ² times 2σ.
        return np.asarray(
            of_sigma + np.log(2 * sigma) + stats.norm.logpdf(mu, mean, sigma / math.sqrt(self.n))
        )


@dataclass(frozen=True)
class Multinomial(StatisticModel):
    """All columns as one table, saturated: cells ~ Multinomial(n, π), π ~ Dirichlet(α, ..., α).

    Numeric columns enter by their bins. Statistic: the cell counts, sensitivity 1 for add/remove
    and 2 for substitution, for any number of records.

    Source: bowen-liu-2020, section 5.
    """

    alpha: float = 0.5
    bins: BinRule | Mapping[str, BinRule] = "sqrt"
    sigma: Mapping[str, float] | None = None
    name: ClassVar[str] = "multinomial"
    summary: ClassVar[str] = "all columns in one table, saturated log-linear"
    halves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self.alpha, 1, "alpha")

    def check(self, schema: Schema) -> None:
        check_cells(schema, self.bins, self.sigma)
        no_public(schema, self.name)

    def parts(self, schema: Schema) -> list[str]:
        return ["counts"]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedMultinomial:
        return FittedMultinomial(self, schema, records, rows)


class FittedMultinomial(FittedStatistics[Floats]):
    """Statistics of ``Multinomial``: cell counts, shape (K,)."""

    def __init__(
        self, model: Multinomial, schema: Schema, records: pd.DataFrame, rows: int
    ) -> None:
        self.model = model
        self.cells = cells = TableCells.of(schema, rows, model.bins, model.sigma)
        (counts,) = cells.counts(records)
        most = most_records(schema, rows)
        self.statistics = [Statistic("counts", counts, IN_ONE_CELL, 0, most, integer=True)]
        self.settings = {"prior": model.alpha, "cells": cells.size, "bins": cells.to_dict()}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        return draw_dirichlet(self.model.alpha + sanitised["counts"], rng)

    def predict(self, parameters: Floats, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        drawn = draw_cells(parameters, rows, rng)
        return self.cells.decode(self.cells.unravel(drawn), rng)


def draw_dirichlet(alpha: Floats, rng: np.random.Generator) -> Floats:
    """Draw shares from Dirichlet(alpha), shape (K,); equal ones if all gamma draws are 0."""
    return proportions(rng.standard_gamma(alpha))
