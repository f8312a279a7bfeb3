"""Sequences of regressions: each column given those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.modips.conjugate import draw_dirichlet
from dpbayes.mechanisms.modips.glom import (
    draw_covariance,
    moment_statistics,
    products,
    require_both_kinds,
    split_columns,
)
from dpbayes.mechanisms.modips.modes import coefficient_change, fit_logistic, probabilities
from dpbayes.mechanisms.modips.statistic_model import (
    FittedStatistics,
    Sanitised,
    Spending,
    StatisticModel,
    counted,
    most_records,
    number_of_records,
    number_statistics,
)
from dpbayes.mechanisms.modips.units import (
    UNITS,
    clipped,
    feature_size,
    features,
    from_unit,
    product_sums,
    whole,
    whole_columns,
)
from dpbayes.mechanisms.tables.cells import require_bounds
from dpbayes.mechanisms.tables.noisy import IN_ONE_CELL
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.statistic import Change, Statistic
from dpbayes.schema import Column, Schema

PRIOR_COUNT = 0.5  # Dirichlet prior of a column without predictors
RIDGES = (1e-6, 1e6)  # range of λ: below it noise dominates, above it nothing is left of the data
# Standard deviations of a usual predictor, with levels or on [-1, 1], and of its contribution to a
# logit: 1 from one level to the other, 1 for each standard deviation.
USUAL = {True: (0.5, 0.5), False: (0.25, 1.0)}


def default_ridge(
    rows: int, noise: Callable[[int], float], before: list[Column], classes: int
) -> float:
    """Ridge λ with the smallest mean squared error of a usual logit, from public numbers only.

    With r = n λ a coefficient of which the records have information I is shrunk by r / (r + I), and
    gets noise of variance (reach / r)^2 noise(d) (``coefficient_change``), which is that of a
    logit, too: a record's features have length 1. Where the logit's variance is v, its mean squared
    error v (r / (r + I))^2 + (reach / r)^2 noise(d) is least where
    r^4 / (r + I)^3 = reach^2 noise(d) / (v I). At a small epsilon r is large and little but
    the prior is left; as epsilon grows r falls like epsilon^(-1/2). v and I are those of predictors
    as in ``USUAL``, and outcomes of variance 0.2.

    Args:
        rows: public number of records, for n.
        noise: variance of the noise in each coefficient, as a function of their number, for a
            sensitivity of 1 (``Spending.variance``).
        before: predictors.
        classes: number of levels of the outcome.
    """
    d = 1 + sum(max(1, len(c.levels) - 1) for c in before)
    reach_squared = 1
    if classes > 2:
        d, reach_squared = d * classes, 2
    information = usual_information(rows, before)
    variance = sum(USUAL[bool(c.levels)][1] ** 2 for c in before)
    least = math.log(reach_squared * noise(d) / (variance * information))
    low, high = (math.log(rows * end) for end in RIDGES)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if 4 * middle - 3 * math.log(math.exp(middle) + information) < least:
            low = middle
        else:
            high = middle
    return math.exp(high) / rows


def usual_information(rows: int, before: list[Column]) -> float:
    """Information of n records on a coefficient, for ``USUAL`` predictors, outcome variance 0.2."""
    scale = 0.2 * rows / (1 + len(before))  # ``features`` divides entries by the root of this
    return scale * float(np.mean([USUAL[bool(c.levels)][0] ** 2 for c in before]))


@dataclass(frozen=True)
class Logistic:
    """A column with levels given others: ridge logistic regression by output perturbation.

    Source: chaudhuri-monteleoni-2009, algorithm 1.

    Attributes:
        before: predictors.
        ridge: as in ``fit_logistic``; public.
        rows: the public number of records.
    """

    column: Column
    before: list[Column]
    ridge: float
    rows: int

    @classmethod
    def of(
        cls,
        column: Column,
        before: list[Column],
        ridge: float | None,
        rows: int,
        noise: Callable[[int], float],
    ) -> Logistic:
        """Regression with this λ, or with that of ``default_ridge`` for the noise."""
        chosen = ridge or default_ridge(rows, noise, before, len(column.levels))
        return cls(column, before, chosen * rows, rows)

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        """Coefficients at the mode, with infinite range."""
        classes = len(self.column.levels)
        y = records[self.column.name].cat.codes.to_numpy(dtype=np.int64)
        mode = fit_logistic(self._features(records), np.asarray(y), classes, self.ridge)
        change = coefficient_change(mode.shape, classes, self.ridge)
        return [Statistic(f"{self.column.name} coefficients", mode, change, -math.inf, math.inf)]

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} coefficients"])

    def predict(self, centre: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        """Levels given synthetic predictors.

        The posterior's spread comes from its curvature at the sanitised mode and the synthetic
        predictors, so that it costs nothing.
        """
        x = self._features(frame)
        rows, d = centre.shape
        shift = [
            rng.multivariate_normal(np.zeros(d), np.linalg.inv(self._curvature(x, centre, r)))
            for r in range(rows)
        ]
        p = probabilities(x @ (centre + np.array(shift)).T)
        drawn = (np.cumsum(p, axis=1) < rng.random((len(p), 1))).sum(axis=1)
        return as_levels(self.column, np.minimum(drawn, p.shape[1] - 1))

    def _features(self, records: pd.DataFrame) -> Floats:
        return features(self.before, records) / UNITS

    def _curvature(self, x: Floats, centre: Floats, row: int) -> Floats:
        p = probabilities(x @ centre.T)[:, row - len(centre)]
        weight = p * (1 - p) * self.rows / len(x)  # weight of the n records, not of the rows
        return np.asarray((x * weight[:, None]).T @ x + self.ridge * np.eye(x.shape[1]))


@dataclass(frozen=True)
class DirichletColumn:
    """A column with levels and no predictors: a Dirichlet posterior of its shares.

    Attributes:
        most: public number of records, or inf.
    """

    column: Column
    most: float

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        codes = records[self.column.name].cat.codes
        counts = np.bincount(codes, minlength=len(self.column.levels))
        name = f"{self.column.name} counts"
        return [Statistic(name, counts, IN_ONE_CELL, 0, self.most, integer=True)]

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} counts"])

    def predict(self, counts: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        shares = draw_dirichlet(PRIOR_COUNT + counts, rng)
        return as_levels(self.column, rng.choice(len(shares), size=len(frame), p=shares))


@dataclass(frozen=True)
class Linear:
    """A numeric column given others: normal regression by sanitised cross-products.

    Statistics of u, the column on [-1, 1], and features x: upper triangle of x x', x u, u u, summed
    over records in whole numbers (``units.py``). With c = 1 + predictors, entries of x up to
    c^(-1/2) and an L1 norm up to c^(1/2), a record adds at most (c + 1) / 2, c^(1/2) and 1 to them
    in L1, and in L2 at most 1 each, as x is no longer than 1. Where every predictor is public, x x'
    is too, and needs no noise, if the number of records is. A changed record counts twice. All of
    this holds for any number of records.

    Attributes:
        before: predictors.
        rows: the public number of records.
        known: whether it is the number of records, so that this needs no noise.
    """

    column: Column
    before: list[Column]
    rows: int
    known: bool

    @property
    def public(self) -> bool:
        """True if all predictors are public, so that their cross-products need no noise."""
        return self.known and all(c.public for c in self.before)

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        x = features(self.before, records)
        u = whole(records[self.column.name], require_bounds(self.column))
        flat = product_sums(np.column_stack([x, u]), u[:, None])[:, 0]
        if not self.public:
            flat = np.concatenate([flat, product_sums(x, x)[np.triu_indices(x.shape[1])]])
        reach = self._reach()
        norm = math.sqrt(2 if self.public else 3) * UNITS**2 * (1 + 1e-12)
        change: dict[Adjacency, Change] = {
            "add-remove": Change(reach, norm=norm),
            "substitution": Change(2 * reach, norm=2 * norm),
        }
        name, unit = f"{self.column.name} products", 1 / UNITS**2
        value = clipped(flat)
        return [Statistic(name, value, change, -math.inf, math.inf, integer=True, unit=unit)]

    def _reach(self) -> int:
        """Largest L1 contribution of a record, in multiples of UNITS^-2."""
        c, size = 1 + len(self.before), feature_size(len(self.before))
        reach = c * size * UNITS + UNITS**2
        return reach if self.public else reach + size**2 * c * (c + 1) // 2

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} products"])

    def predict(self, flat: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        x = features(self.before, frame) / UNITS
        n, d = self.rows, x.shape[1]
        gram = x.T @ x * (n / len(x))  # weight of the n records, not of the rows
        if not self.public:
            gram = np.zeros((d, d))
            gram[np.triu_indices(d)] = flat[d + 1 :]
            gram = gram + np.triu(gram, 1).T
        if not self.known:  # the first square is that of the intercept, equal for all records
            n = max(1.0, gram[0, 0] / x[0, 0] ** 2)
        values, vectors = np.linalg.eigh(gram)
        floor = max(1.0, 1e-3 * n)  # keeps noise from being divided by next to nothing
        root = vectors / np.sqrt(np.maximum(values, floor))
        centre = root @ (root.T @ flat[:d])
        residual = flat[d] - flat[:d] @ centre
        # Noise may make it negative or too large: the sd is kept from 1% to 100% of the half-range.
        residual = min(max(residual, 1e-4 * n), float(n))
        sigma = math.sqrt(residual / (2 * rng.standard_gamma(n / 2)))
        beta = centre + sigma * root @ rng.standard_normal(d)
        drawn = x @ beta + sigma * rng.standard_normal(len(x))
        return pd.Series(from_unit(self.column, drawn))


Step = Logistic | DirichletColumn | Linear


def ridges(steps: Sequence[Step]) -> dict[str, float]:
    """Ridge λ by column, of the logistic regressions."""
    return {s.column.name: s.ridge / s.rows for s in steps if isinstance(s, Logistic)}


def shrunk(steps: Sequence[Step]) -> dict[str, float]:
    """Share of a usual coefficient that the ridge removes, by column of logistic regressions."""
    logistic = [s for s in steps if isinstance(s, Logistic)]
    return {
        s.column.name: s.ridge / (s.ridge + usual_information(s.rows, s.before)) for s in logistic
    }


def as_levels(column: Column, codes: Ints) -> pd.Series:
    """Convert codes to the categorical column that ``Schema.validate`` returns."""
    kind = pd.CategoricalDtype(list(column.levels), ordered=True)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=kind))


@dataclass(frozen=True)
class Sequential(StatisticModel):
    """Each confidential column given the public ones and those before it, in the schema's order.

    Levels by ridge logistic regression with output perturbation, numbers by normal regression with
    sanitised cross-products, a first column of levels by its counts. One part of epsilon per
    column; the order of the schema's columns must be chosen without the confidential records.

    Sensitivities: ``coefficient_change``, ``Linear``; counts 1 and 2; for any number of records.

    Source: bowen-liu-2020, section 3.2.3; chaudhuri-monteleoni-2009, algorithm 1.

    Changes to the paper: noise is added to the mode, not to a posterior draw, and the posterior's
    spread is added afterwards from synthetic predictors, so that the guarantee does not depend on
    Markov chains. The prior is Normal(0, 1 / (n λ)), which has sensitivity 2 / (n λ), n being the
    public number of rows; with the variance 1 / λ of Bowen & Liu, section 4.3.2, it would be 2 / λ.
    The noise has density proportional to exp(-n λ ε |e| / 2), on a grid (``Statistic``).

    Attributes:
        ridge: λ, public; by default ``default_ridge``.
    """

    ridge: float | None = None
    name: ClassVar[str] = "sequential"
    summary: ClassVar[str] = "regressions in declared order; may use public columns"

    def __post_init__(self) -> None:
        low, high = RIDGES
        if self.ridge is not None and not low <= self.ridge <= high:
            raise GuaranteeError(
                f"ridge = {self.ridge!r} must be a number from {low:g} to {high:g}."
            )

    def check(self, schema: Schema) -> None:
        for column in schema.columns.values():
            if not column.levels:
                require_bounds(column)
        schema.confidential()

    def parts(self, schema: Schema) -> list[str]:
        return [c.name for c in schema.confidential()]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedSequence:
        predictors = [c for c in schema.columns.values() if c.public]
        steps: list[Step] = []
        for column in schema.confidential():
            if not column.levels:
                steps.append(Linear(column, list(predictors), rows, schema.rows.public))
            elif predictors:
                noise = partial(spending.variance, column.name)
                steps.append(Logistic.of(column, list(predictors), self.ridge, rows, noise))
            else:
                steps.append(DirichletColumn(column, most_records(schema, rows)))
            predictors.append(column)
        public = [c.name for c in schema.columns.values() if c.public]
        return FittedSequence(steps, records, public)


class FittedSequence(FittedStatistics[Sanitised]):
    """Statistics of every regression of ``Sequential``.

    Attributes:
        public: public columns of every record, on which the others are conditioned; or None.
    """

    def __init__(self, steps: list[Step], records: pd.DataFrame, public: list[str]) -> None:
        self.steps = steps
        self.public = records[public].reset_index(drop=True) if public else None
        named = [(s, step.column.name) for step in steps for s in step.statistics(records)]
        self.statistics = [s for s, _ in named]
        self._parts = {s.name: column for s, column in named}
        self.settings = {
            "ridge": ridges(steps),
            "order": [step.column.name for step in steps],
            "normal": [step.column.name for step in steps if not step.column.levels],
        }
        self.shrunk = shrunk(steps)

    def part(self, name: str) -> str:
        return self._parts[name]

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Sanitised:
        return sanitised  # each step draws its parameters when it knows its predictors

    def predict(self, parameters: Sanitised, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        frame = pd.DataFrame(index=range(rows)) if self.public is None else self.public.copy()
        for step in self.steps:
            values = step.predict(step.draw(parameters), frame, rng)
            frame[step.column.name] = values.array
        return frame[[step.column.name for step in self.steps]]


@dataclass(frozen=True)
class Slomag(StatisticModel):
    """Numbers ~ Normal(μ, Σ) together, then each column of levels by logistic regression.

    Statistics: sums of each number, on [-1, 1]; sums of squares and products about the mean;
    coefficients of each regression; the number of records unless it is public. One part of epsilon
    each.

    Sensitivities: sums 1 (add/remove) and 2 (substitution), squares 4 and 4, products 4 and 8
    (``moment_statistics``), coefficients as ``coefficient_change``, the number of records 1; for
    any number of records.

    It differs from the paper as ``Sequential`` does.

    Source: bowen-liu-2020, section 4.3.2.

    Attributes:
        ridge: λ of the regressions, public; by default ``default_ridge``.
    """

    ridge: float | None = None
    name: ClassVar[str] = "slomag"
    summary: ClassVar[str] = "normal numbers, then levels by logistic regressions in order"

    def __post_init__(self) -> None:
        Sequential(self.ridge)

    def check(self, schema: Schema) -> None:
        require_both_kinds(schema, self.name, "sequential")

    def parts(self, schema: Schema) -> list[str]:
        numeric, levels = split_columns(schema)
        sums = [f"sum {c.name}" for c in numeric]
        coefficients = [f"{c.name} coefficients" for c in levels]
        return [*sums, *products(numeric).values(), *coefficients, *counted(schema)]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedSlomag:
        return FittedSlomag(self, schema, records, rows, spending)


class FittedSlomag(FittedStatistics[Mapping[str, Any]]):
    """Statistics of ``Slomag``: moments of the numbers, coefficients for the levels."""

    def __init__(
        self, model: Slomag, schema: Schema, records: pd.DataFrame, rows: int, spending: Spending
    ) -> None:
        self.rows = rows
        self.numeric, levels = split_columns(schema)
        before = list(self.numeric)
        self.steps: list[Logistic] = []
        for column in levels:
            noise = partial(spending.variance, f"{column.name} coefficients")
            self.steps.append(Logistic.of(column, list(before), model.ridge, rows, noise))
            before.append(column)
        self.order = [c.name for c in schema.confidential()]
        one_cell = np.zeros(len(records), dtype=np.int64)
        z = whole_columns(self.numeric, records)
        self.statistics = [
            *moment_statistics(self.numeric, z, one_cell, 1, most_records(schema, rows)),
            *(s for step in self.steps for s in step.statistics(records)),
            *number_statistics(schema, records),
        ]
        self.settings = {
            "ridge": ridges(self.steps),
            "order": [s.column.name for s in self.steps],
            "normal": [column.name for column in self.numeric],
        }
        self.shrunk = shrunk(self.steps)

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> dict[str, Any]:
        n = int(number_of_records(sanitised, self.rows))
        sums = np.array([sanitised[f"sum {c.name}"][0] for c in self.numeric])
        mean = np.clip(sums / n, -1, 1)
        sigma = draw_covariance(sanitised, self.numeric, n - 1, rng)
        root = np.linalg.cholesky(sigma)
        centre = mean + root @ rng.standard_normal(len(mean)) / math.sqrt(n)
        return {
            "mean": centre,
            "root": root,
            "steps": [step.draw(sanitised) for step in self.steps],
        }

    def predict(
        self, parameters: Mapping[str, Any], rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        z = rng.standard_normal((rows, len(self.numeric))) @ parameters["root"].T
        z = z + parameters["mean"]
        frame = pd.DataFrame({c.name: from_unit(c, z[:, j]) for j, c in enumerate(self.numeric)})
        for step, centre in zip(self.steps, parameters["steps"], strict=True):
            frame[step.column.name] = step.predict(centre, frame, rng).array
        return frame[self.order]
