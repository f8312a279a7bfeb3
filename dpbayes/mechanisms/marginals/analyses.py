"""Regressions that synthetic rows are to keep, as sums over records that one record moves little.

Least squares and logistic regression of v(y) on x solve sum U(x) (v(y) - fitted) = 0. Given rows
that are near the records, what is left to know is the sum of U(x) r over the records, r being v(y)
less what the rows' own regression says: where the rows have the same sum they have, but for
products of two errors, the same coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.columns import Columns
from dpbayes.formula.terms import Domain, Factors, columns_used
from dpbayes.formula.text import parse, quoted
from dpbayes.formula.tree import Name
from dpbayes.mechanisms.marginals.budget import UNIT
from dpbayes.mechanisms.tables.cells import Axis, require_bounds
from dpbayes.schema import Column, Schema
from dpbayes.schema.rules import Values, values_of

MOST = 200  # moments of one regression
_INSIDE = 33  # values of a bin that an outcome is averaged over
_UNLIKE = 0.01  # of what is cut off rows: how much more or less it is of the records
_QUANTILES, _SHORTEST = 51, 0.1  # bounds that are tried, and the least
_RIDGE = 1e-3  # of directions that hardly any row has
_TRIED = 1001  # values of an outcome
_LARGEST = 1e100
_LEAST = 1e-9  # sd of an outcome about its regression
_ROUNDED = 1 - 1e-9  # of a bound, so that rounding stays below it


class Analysis:
    """A regression ``outcome ~ covariates``, by names and terms that are public.

    The outcome is a numeric column, an expression of one, or the levels of a column but the first.
    A record in which a value is missing is not in the regression: its moments are 0.

    Attributes:
        text: the formula.
        outcome: the column on the left.
        covariates: columns on the right.
        terms: names of the K terms.

    Raises:
        SchemaError: no such formula, a column that is not declared or has no bounds, a public
            outcome, group terms, or more moments than noise leaves anything of.
    """

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self._where = f"keep {quoted(text)}"
        parsed = parse(text)
        if parsed.groups:
            raise SchemaError(
                f"{self._where}: group terms are not kept; write the column as a covariate."
            )
        left = columns_used(self._where, [(parsed.outcome,)])
        self.covariates = tuple(columns_used(self._where, parsed.terms))
        self._check(left, schema, () in parsed.terms)
        self.outcome = schema[left[0]]
        # No record is refused for its values: those of confidential columns never are.
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

    def _check(self, left: Sequence[str], schema: Schema, intercept: bool) -> None:
        if len(left) != 1:
            raise SchemaError(f"{self._where}: the left side must be of one column.")
        if not intercept:
            raise SchemaError(f"{self._where}: the intercept cannot be removed.")
        if not self.covariates:
            raise SchemaError(
                f"{self._where} has no covariate: what one column has is kept without it."
            )
        if left[0] in self.covariates:
            raise SchemaError(f"{self._where}: column {left[0]!r} is on both sides.")
        for name in (*left, *self.covariates):
            _ = schema[name]
        if schema[left[0]].public:
            raise SchemaError(
                f"{self._where}: column {left[0]!r} is public and released as it is; write it as "
                "a covariate of the confidential column."
            )

    def _check_scores(self) -> None:
        """What is not finite is 0 in a sum: of no use where all of it is."""
        if self.outcome.levels:
            values = np.arange(len(self.outcome.levels), dtype=float)
        else:
            values = np.linspace(*require_bounds(self.outcome), _TRIED)
            values = np.rint(values) if self.outcome.whole else values
        tried = self.scores(values)
        if np.isnan(tried).all() or (np.nanmax(tried, axis=0) == np.nanmin(tried, axis=0)).any():
            raise SchemaError(
                f"{self._where}: the left side is the same for all values of column "
                f"{self.outcome.name!r}, or is no number below {_LARGEST:g}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its columns."""
        return (self.outcome.name, *self.covariates)

    @property
    def outcomes(self) -> int:
        """Functions of the outcome: V."""
        return 1 if self._left is not None else len(self.outcome.levels) - 1

    @property
    def moments(self) -> int:
        """Number of them, K V."""
        return len(self.terms) * self.outcomes

    def scores(self, values: Floats) -> Floats:
        """Functions of the outcome's values as rules read them: shape (n, V), NaN for missing."""
        if self._left is None:
            found = (values[:, None] == np.arange(1, self.outcomes + 1)).astype(float)
        else:
            frame = pd.DataFrame({self.outcome.name: values_of(self.outcome, values)})
            found = self._left.numbers(self._node, frame)[:, None]
        there = (np.abs(found) <= _LARGEST) & ~np.isnan(values)[:, None]  # no NaN is below it
        return np.asarray(np.where(there, found, np.nan))

    def level_scores(self, axis: Axis) -> Floats:
        """Their means in each fine level of the outcome, shape (levels, V)."""
        found = np.full((axis.size, self.outcomes), np.nan)
        if axis.edges is None:
            found[: axis.valued] = self.scores(np.arange(axis.valued, dtype=float))
            return found
        low, high, _ = axis.ranges
        parts = (np.arange(_INSIDE) + 0.5) / _INSIDE
        values = low[:, None] + np.outer(high - low, parts)
        if axis.column.whole:  # numbers from low to high are as likely
            values = low[:, None] + np.floor(np.outer(high - low + 1, parts))
        each = self.scores(values.ravel()).reshape(*values.shape, self.outcomes)
        some = np.isfinite(each)
        total = np.where(some, each, 0.0).sum(axis=1)
        count = some.sum(axis=1)
        found[: axis.valued] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return found

    def design(self, values: Values) -> tuple[Floats, Mask]:
        """Terms, shape (n, K), and which rows have all covariates; others have any terms."""
        absent = {name: np.isnan(values[name]) for name in self.covariates}
        frame = pd.DataFrame(
            {
                name: values_of(column, np.where(absent[name], _any_of(column), values[name]))
                for name, column in self._used.items()
            }
        )
        some = np.logical_or.reduce(list(absent.values()))
        return self._columns.values(frame), np.asarray(~some)


@dataclass(frozen=True)
class Moment:
    """What is asked about an analysis: for each record U(x) r, shortened to a public length.

    U are the terms, of mean 0 and nearly uncorrelated with unit variance in rows that noisy counts
    gave; r are the functions of the outcome less their regression on U, in units of its sds. A
    record has the product shortened to at most ``bound``, by a factor that is the same for all of
    its entries; synthetic rows have it, too, so that their sum is that of the records if they are
    alike.

    Sensitivity: one record more or less moves the sum by at most ``bound``, in whole UNITs of it,
    in the norm that noise is paid for in; a changed record by twice that.

    Attributes:
        analysis: of K terms and V functions of the outcome.
        centre, rotation: shapes (K,) and (K, K): U = (terms - centre) @ rotation.
        mean, slopes: shapes (V,) and (K, V): of the regression on U.
        spread: sds about it, shape (V,).
        bound: of the length of U r.
        norm: 1 or 2, in which that is.
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
        """From rows that are no records.

        Args:
            n: public number of records.
            sd: of the noise in a sum, next to the bound.
        """
        terms, there = analysis.design(values)
        scores = analysis.scores(values[analysis.outcome.name])
        there &= np.isfinite(scores).all(axis=1)
        k, v = terms.shape[1], scores.shape[1]
        if there.sum() < 2:
            zero = np.zeros(k), np.eye(k), np.zeros(v), np.zeros((k, v)), np.ones(v)
            return cls(analysis, *zero, float(k), norm)
        terms, scores = terms[there], scores[there]
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
        """U, shape (n, K), 0 where a covariate is missing, and what r is beyond, shape (n, V)."""
        terms, there = self.analysis.design(values)
        u = _times(terms - self.centre, self.rotation)
        u[~there] = 0.0
        return u, self.mean + _times(u, self.slopes)

    def residuals(self, u: Floats, expected: Floats, scores: Floats) -> Floats:
        """r, shortened so that U r is no longer than the bound: shape (n, ..., V).

        Args:
            u, expected: as ``covariates`` gives them.
            scores: functions of the outcome, shape (n, ..., V).
        """
        r = np.where(np.isnan(scores), 0.0, (scores - expected) / self.spread)
        length = _length(r, self.norm) * _length(u, self.norm).reshape(-1, *[1] * (r.ndim - 2))
        return r * np.minimum(1.0, self.bound / np.maximum(length, _LEAST))[..., None]

    def units(self, values: Values) -> Ints:
        """U r of each record in UNITs of the bound, whole, at most one long: shape (n, K, V).

        Each row is made of its own record alone, to the last bit.
        """
        u, expected = self.covariates(values)
        scores = self.analysis.scores(values[self.analysis.outcome.name])
        r = self.residuals(u, expected, scores)
        parts = u[:, :, None] * r[:, None, :] * (UNIT / self.bound * _ROUNDED)
        whole = np.where(np.isfinite(parts), np.trunc(parts), 0.0).clip(-UNIT, UNIT)
        found = whole.astype(np.int64)
        longer = (np.abs(found) ** self.norm).sum(axis=(1, 2)) > UNIT**self.norm
        found[longer] = 0  # none is
        return found


@dataclass(frozen=True)
class Answer:
    """A noisy sum.

    Attributes:
        moment: of which.
        sums: over records, shape (K, V).
        sd: of the noise in each.
    """

    moment: Moment
    sums: Floats
    sd: float


def _any_of(column: Column) -> float:
    """A public value, as rules read it."""
    return 0.0 if column.levels else require_bounds(column)[0]


def _bound(lengths: Floats, n: int, sd: float) -> float:
    """Of the quantiles of the rows' lengths that of the least foreseen error.

    It has two parts: noise, and what is cut off, of which rows have ``_UNLIKE`` more or less than
    the records.
    """
    tried = np.maximum(np.quantile(lengths, np.linspace(0.5, 1.0, _QUANTILES)), _SHORTEST)
    cut = np.array([np.maximum(lengths - bound, 0.0).mean() for bound in tried])
    error = (sd * tried) ** 2 + (_UNLIKE * n * cut) ** 2
    return float(tried[int(np.argmin(error))])


def _length(x: Floats, norm: int) -> Floats:
    """Along the last axis, summed in one order whatever the shape."""
    total = np.zeros(x.shape[:-1])
    for j in range(x.shape[-1]):
        total += np.abs(x[..., j]) if norm == 1 else x[..., j] * x[..., j]
    return total if norm == 1 else np.asarray(np.sqrt(total))


def _times(rows: Floats, matrix: Floats) -> Floats:
    """rows @ matrix, summed in one order whatever the number of rows."""
    found = np.zeros((len(rows), matrix.shape[1]))
    for j in range(len(matrix)):
        found += rows[:, j : j + 1] * matrix[j]
    return found
