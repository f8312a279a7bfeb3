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
from numpy.typing import ArrayLike

from dpbayes.arrays import Floats
from dpbayes.errors import DataError
from dpbayes.heavy import pd, stats
from dpbayes.mechanisms.modips.settings import positive
from dpbayes.mechanisms.modips.statistic_model import (
    FittedStatistics,
    Sanitised,
    Scalar,
    StatisticModel,
    no_public,
    only_column,
)
from dpbayes.mechanisms.tables.cells import BinRule, Cells, check_cells, require_bounds
from dpbayes.mechanisms.tables.noisy import IN_ONE_CELL, draw_cells
from dpbayes.privacy.statistic import Statistic, same_change
from dpbayes.schema import Column, Schema


@dataclass(frozen=True)
class Bernoulli(StatisticModel):
    """One binary column: x_i ~ Bernoulli(p), p ~ Beta(a, b).

    Statistic: the count n_1 of the second level. Sensitivity 1: a record added, removed or changed
    moves it by at most 1 (n is public). The default prior is that of Bowen & Liu.

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
        return ["count"]

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedBernoulli:
        return FittedBernoulli(self, only_column(schema, "binary", self.name), records)


class FittedBernoulli(Scalar):
    """Count of the second level."""

    parameters = ("p",)

    def __init__(self, model: Bernoulli, column: Column, records: pd.DataFrame) -> None:
        self.model, self.column, self.n = model, column, len(records)
        count = int((records[column.name].cat.codes == 1).sum())
        once = same_change(1)
        self.statistics = [Statistic("count", np.array(count), once, 0, self.n, integer=True)]
        self.settings = {"prior": list(model.prior)}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        return draw_share(sanitised["count"], self.n, self.model.prior, rng)

    def predict(self, parameters: Floats, rng: np.random.Generator) -> pd.DataFrame:
        drawn = (rng.random(self.n) < parameters).astype(int)
        return pd.DataFrame({self.column.name: pd.Series(self.column.levels)[drawn].to_numpy()})

    def ranges(self) -> list[tuple[float, float]]:
        return [(0.0, 1.0)]

    def log_density(self, points: Floats) -> Floats:
        a, b = self.model.prior
        x = int(self.statistics[0].value)
        return np.asarray(stats.beta.logpdf(points[:, 0], a + x, b + self.n - x))


def draw_share(
    count: ArrayLike, n: int, prior: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """p ~ Beta(a + count, b + n - count)."""
    count = np.asarray(count)
    return np.asarray(rng.beta(prior[0] + count, prior[1] + n - count))


@dataclass(frozen=True)
class PoissonGamma(StatisticModel):
    """One count column above its lower bound L: x_i - L ~ Poisson(r), r ~ Gamma(shape, rate).

    Statistic: the sum of x_i - L. Sensitivity U - L with the public upper bound U, for a record
    added, removed or changed. Predictions above U are moved to U.
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
        return ["total"]

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedPoissonGamma:
        return FittedPoissonGamma(self, only_column(schema, "count", self.name), records)


class FittedPoissonGamma(Scalar):
    """Sum above the lower bound."""

    parameters = ("rate",)

    def __init__(self, model: PoissonGamma, column: Column, records: pd.DataFrame) -> None:
        self.model, self.column, self.n = model, column, len(records)
        lower, upper = require_bounds(column)
        self.lower, self.width = int(lower), int(upper - lower)
        total = int((records[column.name] - self.lower).sum())
        change = same_change(self.width)
        most = self.n * self.width
        self.statistics = [Statistic("total", np.array(total), change, 0, most, integer=True)]
        self.settings = {"prior": list(model.prior)}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        shape, rate = self.model.prior
        return np.asarray(rng.gamma(shape + sanitised["total"], 1 / (rate + self.n)))

    def predict(self, parameters: Floats, rng: np.random.Generator) -> pd.DataFrame:
        found = np.minimum(rng.poisson(np.broadcast_to(parameters, self.n)), self.width)
        return pd.DataFrame({self.column.name: self.lower + found})

    def ranges(self) -> list[tuple[float, float]]:
        return [(0.0, float(self.width))]

    def log_density(self, points: Floats) -> Floats:
        shape, rate = self.model.prior
        total = float(self.statistics[0].value)
        return np.asarray(
            stats.gamma.logpdf(points[:, 0], shape + total, scale=1 / (rate + self.n))
        )


@dataclass(frozen=True)
class Normal(StatisticModel):
    """One continuous column: x_i ~ Normal(μ, σ²), prior density proportional to 1/σ².

    Statistics: mean and variance S² (divisor n - 1). Sensitivities (c1 - c0)/n and (c1 - c0)²/n for
    public bounds c0, c1; they hold for a changed record and, for n >= 3, for one added or removed
    (brute force in the tests).

    Source: liu-2016, section 5.3; bowen-liu-2020, section 4.2.
    """

    name: ClassVar[str] = "normal"
    summary: ClassVar[str] = "one continuous column"
    both: ClassVar[bool] = True
    few: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        only_column(schema, "continuous", self.name)

    def parts(self, schema: Schema) -> list[str]:
        return ["mean", "variance"]

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedNormal:
        if len(records) < 3:
            raise DataError(f"model 'normal' needs at least 3 records, found {len(records)}.")
        return FittedNormal(only_column(schema, "continuous", self.name), records)


def normal_statistics(
    mean: Any, variance: Any, n: int, bounds: tuple[float, float]
) -> list[Statistic]:
    """Mean and variance of n values inside bounds, with their sensitivities (``Normal``)."""
    low, high = bounds
    width = high - low

    return [
        Statistic("mean", np.asarray(mean), same_change(width / n), low, high),
        Statistic("variance", np.asarray(variance), same_change(width**2 / n), 0,
                  width**2 / 4 * n / (n - 1)),
    ]  # fmt: skip


def draw_normal(
    mean: ArrayLike, variance: ArrayLike, n: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """μ and σ: σ² ~ Inv-Gamma((n-1)/2, (n-1)S²/2), μ ~ Normal(mean, σ²/n)."""
    mean, variance = np.asarray(mean), np.asarray(variance)
    sigma = np.sqrt((n - 1) * variance / (2 * rng.standard_gamma((n - 1) / 2, variance.shape)))
    return rng.normal(mean, sigma / math.sqrt(n)), sigma


class FittedNormal(Scalar):
    """Mean and variance."""

    parameters = ("mu", "sigma")

    def __init__(self, column: Column, records: pd.DataFrame) -> None:
        self.column, self.n = column, len(records)
        self.bounds = require_bounds(column)
        values = records[column.name].to_numpy(dtype=float)
        self.statistics = normal_statistics(values.mean(), values.var(ddof=1), self.n, self.bounds)
        self.settings = {}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> tuple[Floats, Floats]:
        return draw_normal(sanitised["mean"], sanitised["variance"], self.n, rng)

    def predict(self, parameters: tuple[Floats, Floats], rng: np.random.Generator) -> pd.DataFrame:
        found = rng.normal(parameters[0], parameters[1], self.n)
        return pd.DataFrame({self.column.name: np.clip(found, *self.bounds)})

    def ranges(self) -> list[tuple[float, float]]:
        width = self.bounds[1] - self.bounds[0]
        return [self.bounds, (width / 200, width / 2)]

    def log_density(self, points: Floats) -> Floats:
        mean, variance = (float(s.value) for s in self.statistics)
        mu, sigma = points.T
        scale = (self.n - 1) * variance / 2
        of_sigma = stats.invgamma.logpdf(sigma**2, (self.n - 1) / 2, scale=max(scale, 1e-300))
        # Density of (μ, σ): that of σ² times 2σ.
        return np.asarray(
            of_sigma + np.log(2 * sigma) + stats.norm.logpdf(mu, mean, sigma / math.sqrt(self.n))
        )


@dataclass(frozen=True)
class Multinomial(StatisticModel):
    """All columns as one table, saturated: cells ~ Multinomial(n, π), π ~ Dirichlet(α, ..., α).

    Numeric columns enter by their bins. Statistic: the cell counts, sensitivity 1 for add/remove
    and 2 for substitution.

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

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedMultinomial:
        cells = Cells.of(schema, len(records), self.bins, self.sigma)
        return FittedMultinomial(self, cells, records)


class FittedMultinomial(FittedStatistics):
    """Cell counts, shape (K,)."""

    def __init__(self, model: Multinomial, cells: Cells, records: pd.DataFrame) -> None:
        self.model, self.cells, self.n = model, cells, len(records)
        (counts,) = cells.counts(records)
        self.statistics = [Statistic("counts", counts, IN_ONE_CELL, 0, self.n, integer=True)]
        self.settings = {"prior": model.alpha, "cells": cells.size, "bins": cells.to_dict()}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Floats:
        return draw_dirichlet(self.model.alpha + sanitised["counts"], rng)

    def predict(self, parameters: Floats, rng: np.random.Generator) -> pd.DataFrame:
        drawn = draw_cells(parameters, self.n, rng)
        return self.cells.decode(self.cells.unravel(drawn), rng)


def draw_dirichlet(alpha: Floats, rng: np.random.Generator) -> Floats:
    """Shares from Dirichlet(alpha) along the last axis."""
    found = rng.standard_gamma(alpha)
    return np.asarray(found / found.sum(axis=-1, keepdims=True))
