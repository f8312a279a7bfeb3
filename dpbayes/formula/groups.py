"""Group effects of a formula as program data of the bundled programs: stacked columns.

A column is one intercept or slope of a group term, with an effect for each of its groups. The
effects of all columns form one vector: slopes first, then intercepts, those with most groups last.
stan_models/include/group_data.stan and group_effects.stan explain the names of data. All of it is
public: groups and covariates, no outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.schema.columns import Level

LKJ = 2.0  # prior density of a term's correlation matrix: its determinant to the power LKJ - 1
# Parameters that the sampler uses in place of group_sd, group_correlation and group_effect.
COORDINATES = ("group_raw", "group_sd_raw", "group_partial")
_RIDGE = 1e-9  # relative; makes the cross products of covariates invertible


@dataclass(frozen=True)
class GroupColumn:
    """An intercept or slope of a group term.

    Attributes:
        term: number of the term in the formula, from 0.
        slope: name of the covariate's column, or None for an intercept.
        by: columns of the table whose combined values define a group.
        levels: names of its groups.
        correlated: whether its effects are correlated with those of other columns of its term.
    """

    term: int
    slope: str | None
    by: tuple[str, ...]
    levels: tuple[Level, ...]
    correlated: bool

    @property
    def name(self) -> str:
        """Name of the column, such as ``x | a:b``."""
        return f"{self.slope or '1'} | {':'.join(self.by)}"


def ordered(columns: list[GroupColumn]) -> list[GroupColumn]:
    """Sort columns into the order of the stack: slopes, then intercepts by number of groups."""
    slopes = [column for column in columns if column.slope is not None]
    intercepts = [column for column in columns if column.slope is None]
    return [*slopes, *sorted(intercepts, key=lambda column: len(column.levels))]


def stack(columns: Sequence[GroupColumn], codes: Sequence[Ints], slope_X: Floats) -> dict[str, Any]:
    """Convert group columns to program data.

    Args:
        columns: T columns in the order of ``ordered``.
        codes: group of each record, from 0, for each column; arrays of shape (n,).
        slope_X: covariates of the slopes, shape (n, S).
    """
    sizes = [len(column.levels) for column in columns]
    first = np.cumsum([0, *sizes])
    rows: list[tuple[int, ...]] = []
    shapes: list[float] = []
    for t, column in enumerate(columns):
        term = column.term
        others = [s for s, c in enumerate(columns[:t]) if column.correlated and c.term == term]
        width = sum(c.term == term for c in columns)
        before = (others[0] + 1, others[-1] + 1) if others else (1, 0)
        rows.append((first[t] + 1, first[t + 1], *before, len(shapes)))
        # Under LKJ, partial correlations are independent Beta variables on (-1, 1).
        shapes += [LKJ + (width - 2 - k) / 2 for k in range(len(others))]
    n, T = len(slope_X), len(columns)
    index = np.array([code + first[t] + 1 for t, code in enumerate(codes)], dtype=np.int64)
    return {
        "J": int(first[-1]),
        "T": T,
        "S": slope_X.shape[1],
        "slope_X": slope_X if slope_X.shape[1] else np.empty((0, 0)),
        "group_index": index.T.reshape(n, T) if T else np.empty((0, 0), dtype=np.int64),
        "group_column": np.array(rows, dtype=np.int64).reshape(T, 5),
        "P": len(shapes),
        "partial_shape": np.array(shapes),
    }


def group_data(
    columns: Sequence[GroupColumn],
    codes: Sequence[Ints],
    slope_X: Floats,
    X: Floats,
    sds: tuple[float, float] = (1.0, 1.0),
) -> dict[str, Any]:
    """Return all program data of groups for a bundled program, except those that use outcomes.

    Args:
        columns, codes, slope_X: as in ``stack``.
        X: design matrix, shape (n, K).
        sds: prior standard deviations of coefficients and of the intercept.
    """
    data = stack(columns, codes, slope_X)
    return {**data, **Stacked({**data, "X": X}).coordinates(*sds)}


def neutral(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return coordinates of group effects that use no information: non-centred ones.

    Args:
        data: result of ``group_data``, of which only shapes are used.
    """
    zero = ("group_mean", "group_free", "group_apart", "slope_part")
    return {
        **{name: np.zeros_like(data[name]) for name in zero},
        "O": 0, "overlap": np.empty(0), "overlap_effect": np.empty(0, int),
        "overlap_row": np.empty(0, int),
    }  # fmt: skip


class Stacked:
    """Stacked group columns with sums over their records.

    Args:
        data: result of ``stack``, and X.
        count: number of records that each row stands for, shape (n,).

    Attributes:
        part: slice of each column in the vector of effects.
        slopes: number of columns that are slopes.
        width: number J of effects.
    """

    def __init__(self, data: Mapping[str, Any], count: Ints | int = 1) -> None:
        column = np.asarray(data["group_column"])
        self._count = count
        self.slopes, self.width = int(data["S"]), int(data["J"])
        self.part = [slice(int(a) - 1, int(b)) for a, b in column[:, :2]]
        self._index = np.asarray(data["group_index"], dtype=np.int64) - 1
        self._slope_X = np.asarray(data["slope_X"], dtype=float)
        self._X = np.asarray(data["X"], dtype=float)
        self._n = len(self._X)

    @property
    def last(self) -> int:
        """Index of the last column if it has intercepts, otherwise the number of columns."""
        return len(self.part) - (len(self.part) > self.slopes)

    def times(self, t: int) -> Vector:
        """Return the covariate by which effects of column t are multiplied, shape (n,)."""
        return self._slope_X[:, t] if t < self.slopes else np.ones(self._n)

    def sums(self, t: int, values: Vector) -> Vector:
        """Sum values, shape (n,), by group of column t."""
        start, stop = self.part[t].start, self.part[t].stop
        values = values * self._count
        totals = np.bincount(self._index[:, t] - start, values, minlength=stop - start)
        return totals.astype(float)

    def intercept_of(self, t: int) -> int | None:
        """Return the column of intercepts with the groups of slope t; None without one."""
        own = self._index[:, t] - self.part[t].start
        groups = self.part[t].stop - self.part[t].start
        for s in range(self.slopes, len(self.part)):
            as_many = self.part[s].stop - self.part[s].start == groups
            if as_many and (self._index[:, s] - self.part[s].start == own).all():
                return s
        return None

    def centre(self, t: int) -> Vector:
        """Return means of a slope's covariate by group; 0 if the groups have no intercepts."""
        if self.intercept_of(t) is None:
            return np.zeros(self.part[t].stop - self.part[t].start)
        count = np.maximum(self.sums(t, np.ones(self._n)), 1)
        return self.sums(t, self.times(t)) / count

    @cached_property
    def own(self) -> list[Vector]:
        """Centred covariate of each column, ``times`` minus ``centre``; arrays of shape (n,)."""
        covariates = [self.times(t) for t in range(len(self.part))]
        for t in range(self.slopes):
            covariates[t] = covariates[t] - self.centre(t)[self._index[:, t] - self.part[t].start]
        return covariates

    @cached_property
    def squares(self) -> list[Vector]:
        """Sums of squares of ``own`` by group, for each column; 1 in place of 0."""
        sums = [self.sums(t, own**2) for t, own in enumerate(self.own)]
        return [np.where(squares > 0, squares, 1.0) for squares in sums]

    def mean(self, t: int, values: Vector) -> Vector:
        """Regress values, shape (n,), on the covariate of column t; one coefficient per group."""
        return self.sums(t, self.own[t] * values) / self.squares[t]

    def others(self, t: int, effects: Floats) -> Floats:
        """Return the contribution of the other columns' effects to the estimates of column t.

        Of later columns only the share that is nested within its groups is counted.

        Args:
            t: index of the column.
            effects: effects of all columns, shape (J, levels).
        Returns:
            Contributions by group of column t, shape (groups of t, levels).
        """
        contribution = np.zeros((self.part[t].stop - self.part[t].start, effects.shape[1]))
        for s in range(len(self.part) if t >= self.slopes else self.slopes):
            if s != t:
                added = self.times(s) * effects[self._index[:, s]].T
                share = self._nested(t, s)[1] if s > t >= self.slopes else 1.0
                contribution += (np.array([self.mean(t, values) for values in added]) * share).T
        return contribution

    def pairs(self, t: int, s: int) -> tuple[Ints, Ints, Vector]:
        """Return coefficients of column s in the estimates of column t as a sparse matrix.

        Returns:
            Rows (groups of t), columns (groups of s) and values, sorted by row.
        """
        width = self.part[s].stop - self.part[s].start
        code = (self._index[:, t] - self.part[t].start) * width
        code += self._index[:, s] - self.part[s].start
        cells, cell = np.unique(code, return_inverse=True)
        total = np.bincount(cell.ravel(), self.own[t] * self.times(s), minlength=len(cells))
        row, column = cells // width, cells % width
        return row, column, total / self.squares[t][row]

    def slope_part(self) -> Floats:
        """Return coefficients of X in the slopes' part of linear predictors, shape (K, Q)."""
        width = self.part[self.slopes - 1].stop if self.slopes else 0
        cross = np.zeros((self._X.shape[1], width))
        if not cross.size:
            return cross
        count = np.broadcast_to(self._count, self._n)
        X = self._X - np.average(self._X, axis=0, weights=count)
        for t in range(self.slopes):
            for k in range(X.shape[1]):
                cross[k, self.part[t]] = self.sums(t, X[:, k] * self.times(t))
        square = X.T @ (X * count[:, None])
        square += (_RIDGE * np.trace(square) + 1e-300) * np.eye(len(square))
        return np.asarray(np.linalg.solve(square, cross))

    def coordinates(self, coefficient_sd: float, intercept_sd: float) -> dict[str, Any]:
        """Return the coordinates of effects that depend on groups and covariates alone.

        Args:
            coefficient_sd, intercept_sd: prior standard deviations.
        """
        X, T, last = self._X, len(self.part), self.last
        mean = np.zeros((self.width, X.shape[1]))
        for t in range(self.slopes, T):
            for k in range(X.shape[1]):
                mean[self.part[t], k] = self.mean(t, X[:, k])
        free = np.zeros(T)
        free[self.slopes : last] = intercept_sd**2
        slope_part = self.slope_part()
        for t in range(self.slopes):
            explained = X @ slope_part[:, self.part[t]].sum(axis=1)
            explained -= explained.mean()
            centred = self.times(t) - self.times(t).mean()
            ratio = (explained @ explained) / max(centred @ centred, 1e-300)
            free[t] = min(ratio, 1.0) * coefficient_sd**2
        before = self.part[-1].start if T else 0
        return {
            "group_mean": mean,
            "group_free": free,
            "D": before,
            "group_apart": self._apart(before),
            **self._overlap(),
            "Q": slope_part.shape[1],
            "slope_part": np.zeros_like(slope_part),  # non-centred; chains get the computed one
        }

    def _apart(self, before: int) -> Floats:
        """Return variances in the means of groups from intercepts nested in them, shape (D, T)."""
        variances = np.zeros((before, len(self.part)))
        for t in range(self.slopes, self.last):
            for s in range(t + 1, len(self.part)):
                variances[self.part[t], s] = self._nested(t, s)[0]
        return variances

    def _nested(self, t: int, s: int) -> tuple[Vector, Vector]:
        """Return the variance that effects of s add to means by group of t, and a nested share.

        Effects of s have variance 1. The share of their differences that is nested within groups of
        t is 1 if each effect belongs to one group, and near 0 in crossed designs. The variance
        excludes what all groups have in common and what is not nested.
        """
        row, column, value = self.pairs(t, s)
        groups = self.part[t].stop - self.part[t].start
        width = self.part[s].stop - self.part[s].start
        alone = np.bincount(row, value**2, minlength=groups)
        involved = max(int((alone > 0).sum()), 1)
        together = np.bincount(column, value, minlength=width)
        common = (together @ together - alone.sum()) / max(involved * (involved - 1), 1)
        count = self.sums(s, np.ones(self._n))
        size = self.sums(t, np.ones(self._n))
        centred = value - (together / involved)[column]
        along = np.bincount(row, size[row] * value * centred, minlength=groups)
        inside = along**2 / np.maximum(size, 1)
        spread = np.bincount(row, count[column] * centred**2, minlength=groups)
        share = np.divide(inside, spread, out=np.zeros(groups), where=spread > 0)
        share = np.minimum(share, 1.0)
        return np.maximum(alone - common, 0) * share, share

    def _overlap(self) -> dict[str, Any]:
        """Return coefficients of earlier columns in each column's estimates, sparse with J rows."""
        rows, columns, values = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
        for t in range(1, len(self.part)):
            for s in range(t):
                row, column, value = self.pairs(t, s)
                rows.append(row + self.part[t].start)
                columns.append(column + self.part[s].start)
                values.append(value)
        row, column, value = (np.concatenate(part) for part in (rows, columns, values))
        order = np.lexsort((column, row))
        order = order[value[order] != 0]
        ends = np.cumsum(np.bincount(row[order], minlength=self.width))
        return {
            "O": len(order),
            "overlap": value[order],
            "overlap_effect": column[order] + 1,
            "overlap_row": np.concatenate([[0], ends]) + 1 if len(order) else np.empty(0, int),
        }


def correlations(partial: Floats, column: Ints) -> dict[tuple[int, int], Vector]:
    """Convert draws of partial correlations of columns to correlations.

    Args:
        partial: S draws, shape (S, P): partial correlations of each column with earlier columns of
            its term, given those in between.
        column: ``group_column`` of the program data.
    Returns:
        Draws of the correlation, shape (S,), by pair of column indices from 0.
    """
    factor: dict[tuple[int, int], Vector] = {}  # Cholesky factor of the correlation matrix
    by_pair = {}
    for t, (_, _, first, last, before) in enumerate(np.asarray(column).tolist()):
        left = np.ones(len(partial))
        for k, s in enumerate(range(first - 1, last)):
            factor[t, s] = left * partial[:, before + k]
            left = left * np.sqrt(1 - partial[:, before + k] ** 2)
        factor[t, t] = left
        for s in range(first - 1, last):
            shared = range(first - 1, s + 1)
            by_pair[s, t] = sum(
                (factor[t, k] * factor[s, k] for k in shared if (s, k) in factor),
                np.zeros(len(partial)),
            )
    return by_pair
