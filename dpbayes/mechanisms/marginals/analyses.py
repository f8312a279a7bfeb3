"""Regressions that synthetic rows preserve, by sums over records of bounded sensitivity.

Least squares and logistic regression of v(y) on x solve sum U(x) (v(y) - fitted) = 0. Let r be v(y)
minus the fit of the synthetic rows' own regression. If synthetic rows are near the records and have
the same sum of U(x) r, they have the same coefficients, up to products of two errors. So one noisy
sum over the records is measured for each coefficient. The largest of those products come from the
covariance of U: where it differs, the same sum belongs to other coefficients. So it is measured,
too, where its noise is small, and rows are made to have the sum that belongs to the records'
coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.columns import Columns
from dpbayes.formula.formula import columns_of
from dpbayes.formula.terms import Domain, Factors, columns_used
from dpbayes.formula.text import parse, quoted
from dpbayes.formula.tree import Name
from dpbayes.mechanisms.forecast import GROUPS
from dpbayes.mechanisms.marginals.budget import UNIT
from dpbayes.mechanisms.marginals.relations import evident_scale
from dpbayes.mechanisms.tables.cells import Axis, require_bounds
from dpbayes.schema import Column, Schema
from dpbayes.schema.rules import Values, values_of

MOST = 200  # moments of one regression
MOST_TOGETHER = 1000  # of all regressions of an outcome: their tilt is fitted in minutes
_CELLS = 8_000_000  # rows times moments at a time
_ROOM = 20_000_000  # most rows times moments from which a moment is derived
_INSIDE = 33  # values inside a bin over which the outcome's function is averaged
_UNLIKE = 0.3  # assumed relative difference of the clipped part between rows and records
_QUANTILES, _SHORTEST = 51, 0.1  # number of clipping bounds that are compared, and the least one
_RIDGE = 1e-3  # added to the terms' covariance, relative to its mean diagonal
_FARTHEST = 5.0  # largest ratio of a variance in records to that in rows that is believed
_TRIED = 1001  # values of an outcome by which its function is checked
_LARGEST = 1e100  # a larger value of an outcome counts as missing
_LEAST = 1e-9  # smallest sd or length, against division by 0
_ROUNDED = 1 - 1e-9  # factor on the scale, so that rounding does not exceed the bound


class Analysis:
    """A regression ``outcome ~ covariates`` with public terms.

    The outcome is a numeric column, an expression of one, or indicators of a column's levels except
    the first. A record with a missing value is left out of the regression: its moments are 0.

    Attributes:
        text: the formula.
        outcome: the column on the left.
        covariates: columns on the right.
        terms: names of the K terms.

    Args:
        only: a column with levels, and the number of the level whose rows the regression is of;
            None for all rows.

    Raises:
        SchemaError: an invalid formula, a column that is not declared or has no bounds, a public
            outcome, group terms, or more than ``MOST`` moments.
    """

    def __init__(self, text: str, schema: Schema, only: tuple[str, int] | None = None) -> None:
        self.text, self._only = text, only
        self._where = f"keep {quoted(text)}"
        parsed = parse(text)
        if parsed.groups:
            used = columns_of(text)[1]
            public = all(schema[name].public for name in used)
            advice = (
                "Write a column of few levels as a covariate; effects of many public groups are "
                "for mechanism score."
            )
            raise SchemaError(
                f"{self._where}: group terms are not kept. {advice if public else GROUPS}"
            )
        outcome_columns = columns_used(self._where, [(parsed.outcome,)])
        self.covariates = tuple(columns_used(self._where, parsed.terms))
        self._check(outcome_columns, schema, () in parsed.terms)
        self.outcome = schema[outcome_columns[0]]
        # As confidential columns: refusing a value of a record would disclose something about it.
        self._used = {name: replace(schema[name], public=False) for name in self.covariates}
        self._columns = Columns(self._where, parsed.terms, self._used)
        self.terms = self._columns.names
        self._left = None
        if not (isinstance(parsed.outcome, Name) and self.outcome.levels):
            domain = {self.outcome.name: Domain(self.outcome.levels)}
            self._left = Factors(self._where, [(parsed.outcome,)], domain, total=True)
            self._node = parsed.outcome
        self._check_scores()
        if self.moments > MOST:
            raise SchemaError(
                f"{self._where} has {self.moments:,} coefficients; up to {MOST} are kept. Take "
                "fewer terms, or merge levels."
            )

    def _check(self, outcome_columns: Sequence[str], schema: Schema, intercept: bool) -> None:
        if len(outcome_columns) != 1:
            raise SchemaError(f"{self._where}: the left side must be of one column.")
        if not intercept:
            raise SchemaError(f"{self._where}: the intercept cannot be removed.")
        if not self.covariates:
            raise SchemaError(
                f"{self._where} has no covariate: single columns are preserved anyway."
            )
        if outcome_columns[0] in self.covariates:
            raise SchemaError(f"{self._where}: column {outcome_columns[0]!r} is on both sides.")
        for name in (*outcome_columns, *self.covariates):
            _ = schema[name]
        if schema[outcome_columns[0]].public:
            raise SchemaError(
                f"{self._where}: column {outcome_columns[0]!r} is public and released as it is; "
                "write it as a covariate of the confidential column."
            )

    def _check_scores(self) -> None:
        """Raise SchemaError if the outcome's function is constant or never finite within bounds."""
        if self.outcome.levels:
            values = np.arange(len(self.outcome.levels), dtype=float)
        else:
            values = np.linspace(*require_bounds(self.outcome), _TRIED)
            values = np.rint(values) if self.outcome.whole else values
        tried = self.scores(values)
        if np.isnan(tried).all() or (np.nanmax(tried, axis=0) == np.nanmin(tried, axis=0)).any():
            raise SchemaError(
                f"{self._where}: the left side is the same for all values of column "
                f"{self.outcome.name!r}, or never a number below {_LARGEST:g}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outcome and the covariates."""
        return (self.outcome.name, *self.covariates)

    @property
    def outcomes(self) -> int:
        """Number V of functions of the outcome."""
        return 1 if self._left is not None else len(self.outcome.levels) - 1

    @property
    def moments(self) -> int:
        """Number of moments, K V."""
        return len(self.terms) * self.outcomes

    def scores(self, values: Floats) -> Floats:
        """Functions of the outcome's values (``schema.rules``), shape (n, V), NaN for missing."""
        if self._left is None:
            scores = (values[:, None] == np.arange(1, self.outcomes + 1)).astype(float)
        else:
            frame = pd.DataFrame({self.outcome.name: values_of(self.outcome, values)})
            scores = self._left.numbers(self._node, frame)[:, None]
        valid = (np.abs(scores) <= _LARGEST) & ~np.isnan(values)[:, None]  # no NaN is below it
        return np.asarray(np.where(valid, scores, np.nan))

    def level_scores(self, axis: Axis) -> Floats:
        """Mean of the outcome's functions in each fine level of the outcome, shape (levels, V)."""
        means = np.full((axis.size, self.outcomes), np.nan)
        if axis.edges is None:
            means[: axis.valued] = self.scores(np.arange(axis.valued, dtype=float))
            return means
        low, high, _ = axis.ranges
        parts = (np.arange(_INSIDE) + 0.5) / _INSIDE
        values = low[:, None] + np.outer(high - low, parts)
        if axis.column.whole:  # whole numbers from low to high are equally likely
            values = low[:, None] + np.floor(np.outer(high - low + 1, parts))
        inside_scores = self.scores(values.ravel()).reshape(*values.shape, self.outcomes)
        finite = np.isfinite(inside_scores)
        total = np.where(finite, inside_scores, 0.0).sum(axis=1)
        count = finite.sum(axis=1)
        means[: axis.valued] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return means

    def design(self, values: Values) -> tuple[Floats, Mask]:
        """Terms, shape (n, K), and a mask of rows with all covariates; others are arbitrary."""
        absent = {name: np.isnan(values[name]) for name in self.covariates}
        frame = pd.DataFrame(
            {
                name: values_of(column, np.where(absent[name], _any_of(column), values[name]))
                for name, column in self._used.items()
            }
        )
        missing = np.logical_or.reduce(list(absent.values()))
        if self._only is not None:
            missing = missing | (values[self._only[0]] != self._only[1])
        return self._columns.values(frame), np.asarray(~missing)


@dataclass(frozen=True)
class Moment:
    """Estimating function of an analysis: U(x) r for each record, clipped to a public length.

    U are the terms, standardised to mean 0, unit variance and almost no correlation in synthetic
    rows made from the noisy counts; r are the functions of the outcome minus their regression on U,
    in units of its residual sds. Each record's product is clipped to length ``bound`` by one factor
    for all its entries. Synthetic rows are clipped in the same way, so that rows and records of the
    same distribution have the same expected sum.

    Sensitivity: adding or removing a record moves the sum by at most ``bound``, in whole UNITs of
    it and in the norm that the noise is scaled for; changing a record moves it by twice that.

    Attributes:
        analysis: the regression, with K terms and V functions of the outcome.
        centre, rotation: shapes (K,) and (K, K): U = (terms - centre) @ rotation.
        mean, slopes: coefficients of the regression on U, shapes (V,) and (K, V).
        spread: residual sds of that regression, shape (V,).
        bound: clipping bound of the length of U r.
        norm: 1 or 2: the norm that defines this length.
    """

    analysis: Analysis
    centre: Floats
    rotation: Floats
    mean: Floats
    slopes: Floats
    spread: Floats
    bound: float
    norm: int

    @classmethod
    def of(cls, analysis: Analysis, values: Values, n: int, norm: int, sd: float) -> Moment:
        """Derive the moment from synthetic rows.

        Args:
            values: columns of synthetic rows, shape (rows,) each.
            n: public number of records.
            norm: 1 or 2: the norm that the noise is scaled for.
            sd: sd of the noise in a sum, as a multiple of the bound.
        """
        # Of very many rows some are enough, and fit into memory.
        step = -(-len(values[analysis.outcome.name]) * analysis.moments // _ROOM)
        values = {name: value[:: max(step, 1)] for name, value in values.items()}
        terms, complete = analysis.design(values)
        scores = analysis.scores(values[analysis.outcome.name])
        complete &= np.isfinite(scores).all(axis=1)
        k, v = terms.shape[1], scores.shape[1]
        if complete.sum() < 2:
            zero = np.zeros(k), np.eye(k), np.zeros(v), np.zeros((k, v)), np.ones(v)
            return cls(analysis, *zero, float(k), norm)
        terms, scores = terms[complete], scores[complete]
        centre = terms.mean(axis=0)
        covariance = np.atleast_2d(np.cov(terms.T, bias=True))
        ridge = _RIDGE * np.diag(covariance).mean() + _LEAST
        triangle = np.linalg.cholesky(covariance + ridge * np.eye(k)).T
        rotation = np.triu(np.linalg.inv(triangle))
        u = (terms - centre) @ rotation
        mean = scores.mean(axis=0)
        slopes = u.T @ (scores - mean) / len(u)
        off = scores - mean - u @ slopes
        spread = off.std(axis=0) + _LEAST * (1 + np.abs(scores).max(axis=0))
        lengths = _length(u, norm) * _length(off / spread, norm)
        bound = _bound(lengths, n, sd)
        return cls(analysis, centre, rotation, mean, slopes, spread, bound, norm)

    def covariates(self, values: Values) -> tuple[Floats, Floats]:
        """U, shape (n, K), 0 if a covariate is missing, and the fitted outcome, shape (n, V)."""
        terms, complete = self.analysis.design(values)
        u = _times(terms - self.centre, self.rotation)
        u[~complete] = 0.0
        return u, self.mean + _times(u, self.slopes)

    def factors(self, u: Floats, expected: Floats, scores: Floats) -> tuple[Floats, Mask]:
        """Factors of the residuals r that make U r no longer than the bound, shape (n, ...).

        Args:
            u, expected: as returned by ``covariates``; ``expected`` may have further axes of size
                1, shape (n, ..., V).
            scores: functions of the outcome, shape (..., V).

        Returns:
            The factors, 0 for a missing outcome, and a mask of those that are 1.
        """
        missing = np.asarray(np.isnan(scores).any(axis=-1))
        filled = np.where(missing[..., None], 0.0, scores)
        length = np.zeros(np.broadcast_shapes(expected.shape, scores.shape)[:-1])
        for v in range(len(self.spread)):  # in one order whatever the shape
            r = (filled[..., v] - expected[..., v]) / self.spread[v]
            length += np.abs(r) if self.norm == 1 else r * r
        length = length if self.norm == 1 else np.sqrt(length)
        length *= _length(u, self.norm).reshape(-1, *[1] * (length.ndim - 1))
        factors = np.minimum(1.0, self.bound / np.maximum(length, _LEAST))
        return np.where(missing, 0.0, factors), (length <= self.bound) & ~missing

    @property
    def size(self) -> int:
        """Number of entries of a record."""
        return self.analysis.moments

    def units(self, values: Values) -> Ints:
        """Clipped U r of each record as whole numbers of 1/UNIT of the bound, shape (n, K, V).

        Each row depends on its own record alone, down to the last bit, as the sensitivity requires.
        """
        u, expected = self.covariates(values)
        scores = self.analysis.scores(values[self.analysis.outcome.name])
        factors, _ = self.factors(u, expected, scores)
        r = np.where(np.isnan(scores), 0.0, (scores - expected) / self.spread) * factors[:, None]
        return _whole(u[:, :, None] * r[:, None, :], self.bound, self.norm)


@dataclass(frozen=True)
class Products:
    """Products U U' of a moment's covariates for each record whose U r is not clipped.

    Their sum over records says by how much the sum of U r changes with the coefficients. Each
    record's products are clipped to length ``bound`` by one factor. Synthetic rows are clipped in
    the same way.

    Sensitivity: as of a ``Moment``.

    Attributes:
        moment: the moment whose K covariates U are multiplied.
        bound: clipping bound of the length of the products, each pair counted once.
    """

    moment: Moment
    bound: float

    @classmethod
    def of(cls, moment: Moment, values: Values, n: int, sd: float) -> Products:
        """Derive the clipping bound from synthetic rows; arguments as of ``Moment.of``."""
        u, _ = moment.covariates(values)
        unclipped = cls(moment, np.inf)
        return replace(unclipped, bound=_bound(unclipped.lengths(u), n, sd))

    @property
    def size(self) -> int:
        """Number of entries of a record."""
        k = len(self.moment.centre)
        return k * (k + 1) // 2

    def rows(self, u: Floats) -> Floats:
        """Clipped products of rows, shape (N, K (K + 1) / 2), for U of shape (N, K).

        With norm 2 those of two different covariates are multiplied by the root of 2, so that the
        length is that of the matrix U U'.
        """
        first, second, weights = self._pairs
        return u[:, first] * u[:, second] * weights * self._factors(u)[:, None]

    def lengths(self, u: Floats) -> Floats:
        """Lengths of the products of rows before they are clipped, shape (N,)."""
        square = _length(u, 2) ** 2
        return square if self.moment.norm == 2 else (_length(u, 1) ** 2 + square) / 2

    def _factors(self, u: Floats) -> Floats:
        return np.minimum(1.0, self.bound / np.maximum(self.lengths(u), _LEAST))

    def units(self, values: Values) -> Ints:
        """Clipped products of each record in whole units, as ``Moment.units``."""
        u, inside = self._inside(values)
        return _whole(np.where(inside[:, None], self.rows(u), 0.0), self.bound, self.moment.norm)

    def mean(self, values: Values) -> Floats:
        """Mean products over synthetic rows, shape (K (K + 1) / 2,)."""
        return self.mean_of(*self._inside(values))

    def mean_of(self, u: Floats, inside: Floats | Mask) -> Floats:
        """Mean products of rows by the probability that they are inside, for U of shape (N, K)."""
        first, second, weights = self._pairs
        matrix = u.T @ (u * (inside * self._factors(u))[:, None])
        return np.asarray(matrix[first, second] * weights / len(u))

    def _inside(self, values: Values) -> tuple[Floats, Mask]:
        u, expected = self.moment.covariates(values)
        analysis = self.moment.analysis
        scores = analysis.scores(values[analysis.outcome.name])
        return u, self.moment.factors(u, expected, scores)[1]

    def matrix(self, products: Floats) -> Floats:
        """Symmetric matrix of such products with a ridge, shape (K, K)."""
        first, second, weights = self._pairs
        matrix = np.zeros([len(self.moment.centre)] * 2)
        matrix[first, second] = matrix[second, first] = products / weights
        return matrix + _RIDGE * np.eye(len(matrix))

    @property
    def _pairs(self) -> tuple[Ints, Ints, Floats]:
        first, second = np.triu_indices(len(self.moment.centre))
        different = np.sqrt(2.0) if self.moment.norm == 2 else 1.0
        return first, second, np.where(first == second, 1.0, different)


@dataclass(frozen=True)
class Answer:
    """Noisy sum of a moment over the records.

    Attributes:
        moment: the moment that was summed.
        sums: noisy sums over records, shape (K, V).
        sd: sd of the noise in each sum.
        products: products of its covariates, if they were measured.
        covariance: estimated mean of those products over the records, shape (K, K).
    """

    moment: Moment
    sums: Floats
    sd: float
    products: Products | None = None
    covariance: Floats | None = None

    def with_products(
        self, products: Products, noisy: Floats, sd: float, values: Values, n: int
    ) -> Answer:
        """Add noisy products; the records' mean is taken to lie between theirs and the rows'.

        Args:
            noisy: noisy sums of the products, shape (K (K + 1) / 2,).
            sd: sd of their noise.
            values: columns of the synthetic rows from which the moment was derived.
            n: public number of records.
        """
        before, variance = products.mean(values), (sd / n) ** 2
        off = noisy / n - before
        scale = evident_scale(off, np.full(off.shape, variance), np.ones(off.shape))
        weight = scale**2 / (scale**2 + variance)
        covariance = _near(products.matrix(before + weight * off), products.matrix(before))
        # An error of the covariance times the coefficients' change adds to the noise of the sums.
        change = np.maximum((self.sums / n) ** 2 - (self.sd / n) ** 2, 0.0).sum(axis=0).mean()
        noise = np.sqrt(self.sd**2 + n**2 * weight * variance * change)
        return replace(self, sd=float(noise), products=products, covariance=covariance)

    def directions(self, u: Floats, inside: Floats) -> Floats:
        """U of rows, turned so that the rows' sum of U r belongs to the records' coefficients.

        Args:
            u: covariates of the rows, shape (N, K).
            inside: probability that U r is not clipped, shape (N,).
        """
        if self.products is None or self.covariance is None:
            return u
        of_rows = self.products.matrix(self.products.mean_of(u, inside))
        return np.asarray(u @ np.linalg.solve(of_rows, self.covariance))


def slices(rows: int, size: int) -> Iterator[slice]:
    """Slices of rows, one at least, in each of which numbers of this size fit into memory."""
    step = max(1, _CELLS // size)
    return (slice(start, start + step) for start in range(0, max(rows, 1), step))


def _any_of(column: Column) -> float:
    """A public value of a column, to stand in for missing ones."""
    return 0.0 if column.levels else require_bounds(column)[0]


def _bound(lengths: Floats, n: int, sd: float) -> float:
    """Clipping bound with the smallest expected error, among quantiles of the rows' lengths.

    The error has two parts: noise, and the clipped part, which is assumed to differ between
    synthetic rows and records by a fraction ``_UNLIKE``.
    """
    tried = np.maximum(np.quantile(lengths, np.linspace(0.5, 1.0, _QUANTILES)), _SHORTEST)
    cut = np.array([np.maximum(lengths - bound, 0.0).mean() for bound in tried])
    error = (sd * tried) ** 2 + (_UNLIKE * n * cut) ** 2
    return float(tried[int(np.argmin(error))])


def _whole(rows: Floats, bound: float, norm: int) -> Ints:
    """Rows no longer than a bound as whole numbers of 1/UNIT of it; no row is longer than UNIT."""
    parts = rows * (UNIT / bound * _ROUNDED)
    truncated = np.where(np.isfinite(parts), np.trunc(parts), 0.0).clip(-UNIT, UNIT)
    entries = truncated.astype(np.int64)
    longer = (np.abs(entries) ** norm).sum(axis=tuple(range(1, rows.ndim))) > UNIT**norm
    entries[longer] = 0  # does not happen; it makes the sensitivity hold whatever rounding does
    return entries


def _near(covariance: Floats, usual: Floats) -> Floats:
    """Move a covariance so near to the usual one that no variance differs by a large factor."""
    root = np.linalg.cholesky(usual)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ covariance @ inverse.T)
    near = vectors * values.clip(1 / _FARTHEST, _FARTHEST) @ vectors.T
    return np.asarray(root @ near @ root.T)


def _length(x: Floats, norm: int) -> Floats:
    """L1 or L2 length along the last axis, summed in one order whatever the shape."""
    total = np.zeros(x.shape[:-1])
    for j in range(x.shape[-1]):
        total += np.abs(x[..., j]) if norm == 1 else x[..., j] * x[..., j]
    return total if norm == 1 else np.asarray(np.sqrt(total))


def _times(rows: Floats, matrix: Floats) -> Floats:
    """Product rows @ matrix, summed in one order whatever the number of rows."""
    product = np.zeros((len(rows), matrix.shape[1]))
    for j in range(len(matrix)):
        product += rows[:, j : j + 1] * matrix[j]
    return product
