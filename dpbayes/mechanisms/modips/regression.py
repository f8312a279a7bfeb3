"""Sequences of regressions: each column given those before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpbayes.arrays import Floats, Ints
from dpbayes.errors import DataError, GuaranteeError
from dpbayes.heavy import pd, special
from dpbayes.mechanisms.modips.conjugate import draw_dirichlet
from dpbayes.mechanisms.modips.glom import (
    draw_covariance,
    from_unit,
    product_statistics,
    products,
    require_both_kinds,
    split_columns,
    unit,
)
from dpbayes.mechanisms.modips.statistic_model import FittedStatistics, Sanitised, StatisticModel
from dpbayes.mechanisms.tables.cells import require_bounds
from dpbayes.mechanisms.tables.noisy import IN_ONE_CELL
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.statistic import Change, Statistic
from dpbayes.schema import Column, Schema

PRIOR_COUNT = 0.5  # Dirichlet prior of a column without predictors
GRADIENT = 1e-6  # largest norm left at a mode
NEWTON_STEPS = 200
ROUNDING = 1e-12  # of an objective, relative


def features(columns: list[Column], records: pd.DataFrame) -> Floats:
    """Design matrix with an intercept and rows of Euclidean norm at most 1, shape (n, d).

    Numbers on [-1, 1] by public bounds, dummies for all levels but the first; divided by the square
    root of the largest norm that declared values can have.
    """
    parts = [np.ones((len(records), 1))]
    for column in columns:
        if column.levels:
            codes = records[column.name].cat.codes.to_numpy()
            parts.append((codes[:, None] == np.arange(1, len(column.levels))).astype(float))
        else:
            parts.append(unit(column, records[column.name])[:, None])
    return np.hstack(parts) / math.sqrt(1 + len(columns))


def fit_logistic(x: Floats, y: Ints, classes: int, ridge: float) -> Floats:
    """Mode of a ridge (multinomial) logistic regression: min sum_i loss_i + ridge / 2 |B|^2.

    Two classes have one row of coefficients, more have one row each. The gradient's norm is at most
    ``GRADIENT``, so that |B - mode| <= GRADIENT / ridge: the objective's curvature is at least
    ``ridge``, which also makes Newton's method with step halving converge from anywhere.

    Source: bowen-liu-2020, eq. 4.1; eq. 4.2; eq. 4.3.

    Returns:
        B, shape (1 or classes, d).
    """
    rows = 1 if classes == 2 else classes
    hot = (y[:, None] == (np.arange(classes) if rows > 1 else [1])).astype(float)
    b = np.zeros((rows, x.shape[1]))
    value, p = _objective(x, hot, b, ridge)
    for _ in range(NEWTON_STEPS):
        gradient = ((p - hot).T @ x + ridge * b).ravel()
        if np.linalg.norm(gradient) <= GRADIENT:
            return b
        step = np.linalg.solve(_hessian(x, p, ridge), gradient).reshape(b.shape)
        size = 1.0
        while size > 1e-12:
            tried, q = _objective(x, hot, b - size * step, ridge)
            # Close to the mode a step gains less than the sum's rounding error.
            if tried <= value + ROUNDING * abs(value):
                break
            size /= 2
        b, value, p = b - size * step, tried, q
    raise DataError("a regression's mode was not found to the accuracy that its noise is made for.")


def default_ridge(n: int, epsilon: float) -> float:
    """λ = 12 (n ε)^(-3/4), at most 1: a function of public numbers only.

    A larger λ shrinks coefficients, a smaller one lets in noise, 1 / (n λ ε). In simulations with
    four columns, n = 500 to 10,000 and ε = 1 and 4 this is near the λ with the smallest distance of
    two-way tables, which falls from 0.15 to 0.005 as n ε grows.
    """
    return float(min(1.0, 12 * (n * epsilon) ** -0.75))


def probabilities(eta: Floats) -> Floats:
    """Shape (n, classes): softmax of the rows' linear predictors, of two classes (0, eta)."""
    logits = eta if eta.shape[1] > 1 else np.hstack([np.zeros_like(eta), eta])
    return np.asarray(special.softmax(logits, axis=1))


def _objective(x: Floats, hot: Floats, b: Floats, ridge: float) -> tuple[float, Floats]:
    eta = x @ b.T
    logits = eta if len(b) > 1 else np.hstack([np.zeros_like(eta), eta])
    loss = (special.logsumexp(logits, axis=1) - (hot * eta).sum(axis=1)).sum()
    return float(loss + ridge / 2 * (b**2).sum()), probabilities(eta)[:, -len(b) :]


def _hessian(x: Floats, p: Floats, ridge: float) -> Floats:
    """Of all coefficients, row after row."""
    rows, d = p.shape[1], x.shape[1]
    found = np.empty((rows, d, rows, d))
    for r in range(rows):
        for c in range(rows):
            weight = p[:, r] * ((r == c) - p[:, c])
            found[r, :, c, :] = (x * weight[:, None]).T @ x
    return found.reshape(rows * d, rows * d) + ridge * np.eye(rows * d)


def coefficient_change(
    shape: tuple[int, ...], classes: int, ridge: float
) -> dict[Adjacency, Change]:
    """L1 sensitivity of the mode of ``fit_logistic``.

    A record's gradient (p - y) x has norm below |x| <= 1, with more than two classes below sqrt 2
    because |p - y| is. The objective is strongly convex with modulus ``ridge``, so one record less
    moves the mode by less than that over ridge, and a changed one by twice as much, 2 / (n λ). What
    was computed is within GRADIENT / ridge of the mode, for both neighbours. In L1 all is at most
    sqrt(dimension) times as much.

    Source: chaudhuri-monteleoni-2009.
    """
    reach = 1.0 if classes == 2 else math.sqrt(2)
    root = math.sqrt(math.prod(shape))
    return {
        "add-remove": Change(root * (reach + 2 * GRADIENT) / ridge),
        "substitution": Change(root * (2 * reach + 2 * GRADIENT) / ridge),
    }


@dataclass(frozen=True)
class Logistic:
    """A column with levels given others: ridge logistic regression by output perturbation.

    Source: chaudhuri-monteleoni-2009, algorithm 1.
    """

    column: Column
    before: list[Column]
    ridge: float

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        """Coefficients, with infinite range."""
        classes = len(self.column.levels)
        x = features(self.before, records)
        y = records[self.column.name].cat.codes.to_numpy(dtype=np.int64)
        mode = fit_logistic(x, np.asarray(y), classes, self.ridge)
        change = coefficient_change(mode.shape, classes, self.ridge)
        return [Statistic(f"{self.column.name} coefficients", mode, change, -math.inf, math.inf)]

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} coefficients"])

    def predict(self, centre: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        """Levels given synthetic predictors.

        The posterior's spread comes from its curvature at the sanitised mode and the synthetic
        predictors, so that it costs nothing.
        """
        x = features(self.before, frame)
        rows, d = centre.shape
        shift = [
            rng.multivariate_normal(np.zeros(d), np.linalg.inv(self._curvature(x, centre, r)))
            for r in range(rows)
        ]
        p = probabilities(x @ (centre + np.array(shift)).T)
        drawn = (np.cumsum(p, axis=1) < rng.random((len(p), 1))).sum(axis=1)
        return as_levels(self.column, np.minimum(drawn, p.shape[1] - 1))

    def _curvature(self, x: Floats, centre: Floats, row: int) -> Floats:
        p = probabilities(x @ centre.T)[:, row - len(centre)]
        return np.asarray((x * (p * (1 - p))[:, None]).T @ x + self.ridge * np.eye(x.shape[1]))


@dataclass(frozen=True)
class Counts:
    """A column with levels and nothing before it: a Dirichlet posterior of its shares."""

    column: Column

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        codes = records[self.column.name].cat.codes
        counts = np.bincount(codes, minlength=len(self.column.levels))
        name = f"{self.column.name} counts"
        return [Statistic(name, counts, IN_ONE_CELL, 0, len(records), integer=True)]

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} counts"])

    def predict(self, counts: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        shares = draw_dirichlet(PRIOR_COUNT + counts, rng)
        return as_levels(self.column, rng.choice(len(shares), size=len(frame), p=shares))


@dataclass(frozen=True)
class Linear:
    """A numeric column given others: normal regression by sanitised cross-products.

    Statistics of u, the column on [-1, 1], and features x: upper triangle of x x', x u, u u, summed
    over records. With |x|_2 <= 1 in d dimensions a record adds at most ((sqrt d + 1)^2 + 2) / 2 in
    L1. Where every predictor is public, x x' is too, and it adds at most sqrt d + 1.
    """

    column: Column
    before: list[Column]

    @property
    def public(self) -> bool:
        """The predictors' cross-products cost nothing."""
        return all(c.public for c in self.before)

    def statistics(self, records: pd.DataFrame) -> list[Statistic]:
        x = features(self.before, records)
        u = unit(self.column, records[self.column.name])
        d = x.shape[1]
        flat = np.concatenate([x.T @ u, [u @ u]])
        most = math.sqrt(d) + 1
        if not self.public:
            flat = np.concatenate([flat, (x.T @ x)[np.triu_indices(d)]])
            most = ((math.sqrt(d) + 1) ** 2 + 2) / 2
        change: dict[Adjacency, Change] = {
            "add-remove": Change(most),
            "substitution": Change(2 * most),
        }
        name = f"{self.column.name} products"
        return [Statistic(name, flat, change, -math.inf, math.inf)]

    def draw(self, sanitised: Sanitised) -> Floats:
        return np.asarray(sanitised[f"{self.column.name} products"])

    def predict(self, flat: Floats, frame: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
        x = features(self.before, frame)
        n, d = x.shape
        gram = x.T @ x
        if not self.public:
            gram = np.zeros((d, d))
            gram[np.triu_indices(d)] = flat[d + 1 :]
            gram = gram + np.triu(gram, 1).T
        values, vectors = np.linalg.eigh(gram)
        floor = max(1.0, 1e-3 * n)  # keeps noise from being divided by next to nothing
        inverse = (vectors / np.maximum(values, floor)) @ vectors.T
        centre = inverse @ flat[:d]
        rest = flat[d] - flat[:d] @ centre
        rest = min(max(rest, 1e-4 * n), float(n))  # a residual sd between 1% and the half-range
        sigma = math.sqrt(rest / (2 * rng.standard_gamma(n / 2)))
        root = np.linalg.cholesky(inverse + 1e-12 * np.eye(d))
        beta = centre + sigma * root @ rng.standard_normal(d)
        return pd.Series(from_unit(self.column, x @ beta + sigma * rng.standard_normal(n)))


Step = Logistic | Counts | Linear


def as_levels(column: Column, codes: Ints) -> pd.Series:
    """Codes as the categorical column that ``Schema.validate`` makes."""
    kind = pd.CategoricalDtype(list(column.levels), ordered=True)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=kind))


@dataclass(frozen=True)
class Sequential(StatisticModel):
    """Each confidential column given the public ones and those before it, in the schema's order.

    Levels by ridge logistic regression with output perturbation, numbers by normal regression with
    sanitised cross-products, a first column of levels by its counts. One part of epsilon per
    column; the order of the schema's columns must be chosen without the confidential records.

    Sensitivities: ``coefficient_change``, ``Linear``; counts 1 and 2.

    Source: bowen-liu-2020, section 3.2.3; chaudhuri-monteleoni-2009, algorithm 1.

    With these changes. The mode gets the noise, not a posterior draw, and the posterior's spread is
    added afterwards from synthetic predictors: no claim rests on Markov chains. The prior is
    Normal(0, 1 / (n λ)), the one that goes with sensitivity 2 / (n λ); with the variance 1 / λ of
    Bowen & Liu, section 4.3.2, it would be 2 / λ. The noise is Laplace by coordinate, sqrt d times
    as much in L1, because OpenDP has no sampler of exp(-n λ ε |e| / 2).

    Attributes:
        ridge: λ, public; by default ``default_ridge``.
    """

    ridge: float | None = None
    name: ClassVar[str] = "sequential"
    summary: ClassVar[str] = "regressions in declared order; may use public columns"

    def __post_init__(self) -> None:
        if self.ridge is not None and not 0 < self.ridge < math.inf:
            raise GuaranteeError(f"ridge = {self.ridge!r} must be a finite number above 0.")

    def check(self, schema: Schema) -> None:
        for column in schema.columns.values():
            if not column.levels:
                require_bounds(column)
        schema.confidential()

    def parts(self, schema: Schema) -> list[str]:
        return [c.name for c in schema.confidential()]

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedSequence:
        done = [c for c in schema.columns.values() if c.public]
        ridge = self.ridge or default_ridge(len(records), epsilon)
        steps: list[Step] = []
        for column in schema.confidential():
            if not column.levels:
                steps.append(Linear(column, list(done)))
            elif done:
                steps.append(Logistic(column, list(done), ridge * len(records)))
            else:
                steps.append(Counts(column))
            done.append(column)
        return FittedSequence(steps, ridge, records)


class FittedSequence(FittedStatistics):
    """Statistics of every step."""

    def __init__(self, steps: list[Step], ridge: float, records: pd.DataFrame) -> None:
        self.steps = steps
        self.n = len(records)
        # Public columns of every row, which are not confidential; see Sequential.fit.
        public = [c.name for step in steps for c in _before(step) if c.public]
        self.public = records[list(dict.fromkeys(public))].reset_index(drop=True)
        found = [(s, step.column.name) for step in steps for s in step.statistics(records)]
        self.statistics = [s for s, _ in found]
        self._parts = {s.name: column for s, column in found}
        self.settings = {"ridge": ridge, "order": [step.column.name for step in steps]}

    def part(self, name: str) -> str:
        return self._parts[name]

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> Sanitised:
        return sanitised  # each step draws its parameters when it knows its predictors

    def predict(self, parameters: Sanitised, rng: np.random.Generator) -> pd.DataFrame:
        frame = self.public.copy()
        for step in self.steps:
            values = step.predict(step.draw(parameters), frame, rng)
            frame[step.column.name] = values.array
        return frame[[step.column.name for step in self.steps]]


def _before(step: Step) -> list[Column]:
    return [] if isinstance(step, Counts) else step.before


@dataclass(frozen=True)
class Slomag(StatisticModel):
    """Numbers ~ Normal(μ, Σ) together, then each column of levels by logistic regression.

    Statistics: sums of each number, on [-1, 1]; sums of squares and products about the mean;
    coefficients of each regression. One part of epsilon each.

    Sensitivities: sums 1 (add/remove) and 2 (substitution), squares 4 and 4, products 4 and 8
    (``product_statistics``), coefficients as ``coefficient_change``.

    With the changes of ``Sequential``.

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
        return [*sums, *products(numeric), *(f"{c.name} coefficients" for c in levels)]

    def fit(self, schema: Schema, records: pd.DataFrame, epsilon: float) -> FittedSlomag:
        ridge = self.ridge or default_ridge(len(records), epsilon)
        return FittedSlomag(ridge, schema, records)


class FittedSlomag(FittedStatistics):
    """Moments of the numbers, coefficients of the levels."""

    def __init__(self, ridge: float, schema: Schema, records: pd.DataFrame) -> None:
        self.n = len(records)
        self.numeric, levels = split_columns(schema)
        before = list(self.numeric)
        self.steps = []
        for column in levels:
            self.steps.append(Logistic(column, list(before), ridge * self.n))
            before.append(column)
        self.order = [c.name for c in schema.confidential()]
        z = np.column_stack([unit(c, records[c.name]) for c in self.numeric])
        away = z - z.mean(axis=0)
        one: dict[Adjacency, Change] = {"add-remove": Change(1), "substitution": Change(2)}
        self.statistics = [
            *(
                Statistic(f"sum {c.name}", np.array(s), one, -self.n, self.n)
                for c, s in zip(self.numeric, z.sum(axis=0), strict=True)
            ),
            *product_statistics(away.T @ away, self.numeric, self.n),
            *(s for step in self.steps for s in step.statistics(records)),
        ]
        self.settings = {"ridge": ridge, "order": [s.column.name for s in self.steps]}

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> dict[str, Any]:
        mean = np.array([float(sanitised[f"sum {c.name}"]) for c in self.numeric]) / self.n
        sigma = draw_covariance(sanitised, self.numeric, self.n - 1, rng)
        root = np.linalg.cholesky(sigma)
        centre = mean + root @ rng.standard_normal(len(mean)) / math.sqrt(self.n)
        return {
            "mean": centre,
            "root": root,
            "steps": [step.draw(sanitised) for step in self.steps],
        }

    def predict(self, parameters: Mapping[str, Any], rng: np.random.Generator) -> pd.DataFrame:
        z = rng.standard_normal((self.n, len(self.numeric))) @ parameters["root"].T
        z = z + parameters["mean"]
        frame = pd.DataFrame({c.name: from_unit(c, z[:, j]) for j, c in enumerate(self.numeric)})
        for step, centre in zip(self.steps, parameters["steps"], strict=True):
            frame[step.column.name] = step.predict(centre, frame, rng).array
        return frame[self.order]
