"""Group effects of a formula as the bundled programs read them: stacked columns.

A column is one intercept or slope of a group term, with an effect for each of its groups. Columns
stand behind each other, slopes first, then intercepts, those with most groups last. Names of data
and what they are for: stan_models/include/group_data.stan and group_effects.stan. All of it is
public: groups and covariates, no outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector

LKJ = 2.0  # prior of a term's correlations: its determinant to the power LKJ - 1
# Of the sampler; group_sd, group_correlation and group_effect say it in the model's.
COORDINATES = ("group_raw", "group_sd_raw", "group_partial")
_RIDGE = 1e-9  # of cross products of covariates, relative: there is always an inverse


@dataclass(frozen=True)
class GroupColumn:
    """An intercept or slope of a group term.

    Attributes:
        term: number of the term in the formula, from 0.
        slope: name of the covariate's column, or None for an intercept.
        by: columns of the table whose values together are a group.
        levels: names of its groups.
        correlated: with the other columns of its term.
    """

    term: int
    slope: str | None
    by: tuple[str, ...]
    levels: tuple[Any, ...]
    correlated: bool

    @property
    def name(self) -> str:
        """As ``x | a:b``."""
        return f"{self.slope or '1'} | {':'.join(self.by)}"


def ordered(columns: list[GroupColumn]) -> list[GroupColumn]:
    """As they are stacked."""
    slopes = [column for column in columns if column.slope is not None]
    intercepts = [column for column in columns if column.slope is None]
    return [*slopes, *sorted(intercepts, key=lambda column: len(column.levels))]


def stack(columns: Sequence[GroupColumn], codes: Sequence[Ints], slope_X: Floats) -> dict[str, Any]:
    """Program data of columns in the order of ``ordered``.

    Args:
        codes: for each column shape (n,), each record's group from 0.
        slope_X: shape (n, S), what slopes are multiplied by.
    """
    sizes = [len(column.levels) for column in columns]
    first = np.cumsum([0, *sizes])
    rows: list[tuple[int, ...]] = []
    shapes: list[float] = []
    for t, column in enumerate(columns):
        same = [s for s, c in enumerate(columns[:t]) if column.correlated and c.term == column.term]
        width = sum(c.term == column.term for c in columns)
        before = (same[0] + 1, same[-1] + 1) if same else (1, 0)
        rows.append((first[t] + 1, first[t + 1], *before, len(shapes)))
        # Of LKJ by partial correlations: Beta on (-1, 1), the more columns the wider.
        shapes += [LKJ + (width - 2 - k) / 2 for k in range(len(same))]
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
    """All that a bundled program reads of groups, but for what their records say.

    Args:
        columns, codes, slope_X: as in ``stack``.
        X: shape (n, K), design matrix.
        sds: by the prior, of coefficients and of the intercept.
    """
    found = stack(columns, codes, slope_X)
    return {**found, **Stacked({**found, "X": X}).coordinates(*sds)}


def neutral(data: Mapping[str, Any]) -> dict[str, Any]:
    """Coordinates of group effects in which nothing is known: non-centred.

    Args:
        data: of ``group_data``; only shapes are read.
    """
    zero = ("group_mean", "group_free", "group_apart", "slope_part")
    return {
        **{name: np.zeros_like(data[name]) for name in zero},
        "O": 0, "overlap": np.empty(0), "overlap_effect": np.empty(0, int),
        "overlap_row": np.empty(0, int),
    }  # fmt: skip


class Stacked:
    """Sums over records of stacked columns.

    Args:
        data: of ``stack``, and X.
        count: shape (n,), how many records each row stands for.

    Attributes:
        part: for each column its place among the effects, a slice.
        slopes: number of columns that are slopes.
        width: number of effects.
    """

    def __init__(self, data: Mapping[str, Any], count: Any = 1) -> None:
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
        """The last column where that is one of intercepts, otherwise the number of columns."""
        return len(self.part) - (len(self.part) > self.slopes)

    def times(self, t: int) -> Vector:
        """Shape (n,), what effects of column t are multiplied by."""
        return self._slope_X[:, t] if t < self.slopes else np.ones(self._n)

    def sums(self, t: int, values: Vector) -> Vector:
        """Of values, shape (n,), by group of column t."""
        start, stop = self.part[t].start, self.part[t].stop
        values = values * self._count
        found = np.bincount(self._index[:, t] - start, values, minlength=stop - start)
        return found.astype(float)

    def intercept_of(self, t: int) -> int | None:
        """The column of intercepts of the groups that slope t is for, if there is one."""
        own = self._index[:, t] - self.part[t].start
        for s in range(self.slopes, len(self.part)):
            same = self.part[s].stop - self.part[s].start == self.part[t].stop - self.part[t].start
            if same and (self._index[:, s] - self.part[s].start == own).all():
                return s
        return None

    def centre(self, t: int) -> Vector:
        """Mean of a slope's covariate by group, where the groups have intercepts; otherwise 0."""
        if self.intercept_of(t) is None:
            return np.zeros(self.part[t].stop - self.part[t].start)
        count = np.maximum(self.sums(t, np.ones(self._n)), 1)
        return self.sums(t, self.times(t)) / count

    @cached_property
    def own(self) -> list[Vector]:
        """For each column shape (n,): ``times``, less ``centre``."""
        found = [self.times(t) for t in range(len(self.part))]
        for t in range(self.slopes):
            found[t] = found[t] - self.centre(t)[self._index[:, t] - self.part[t].start]
        return found

    @cached_property
    def squares(self) -> list[Vector]:
        """For each column the sums of squares of ``own`` by group; 1 where there are none."""
        found = [self.sums(t, own**2) for t, own in enumerate(self.own)]
        return [np.where(one > 0, one, 1.0) for one in found]

    def mean(self, t: int, values: Vector) -> Vector:
        """Coefficient of a column's own covariate in values, shape (n,), by group."""
        return self.sums(t, self.own[t] * values) / self.squares[t]

    def others(self, t: int, effects: Floats) -> Floats:
        """What effects of the other columns add to the estimates of column t.

        Of those that come later only as much as is nested within its groups: the rest is not in
        doubt.

        Args:
            effects: shape (J, levels).
        Returns:
            Shape (groups of t, levels).
        """
        found = np.zeros((self.part[t].stop - self.part[t].start, effects.shape[1]))
        for s in range(len(self.part) if t >= self.slopes else self.slopes):
            if s != t:
                added = self.times(s) * effects[self._index[:, s]].T
                share = self._nested(t, s)[1] if s > t >= self.slopes else 1.0
                found += (np.array([self.mean(t, one) for one in added]) * share).T
        return found

    def pairs(self, t: int, s: int) -> tuple[Ints, Ints, Vector]:
        """The part of column s in the estimates of column t: rows, columns, values, by row."""
        width = self.part[s].stop - self.part[s].start
        code = (self._index[:, t] - self.part[t].start) * width
        code += self._index[:, s] - self.part[s].start
        cells, cell = np.unique(code, return_inverse=True)
        total = np.bincount(cell.ravel(), self.own[t] * self.times(s), minlength=len(cells))
        row, column = cells // width, cells % width
        return row, column, total / self.squares[t][row]

    def slope_part(self) -> Floats:
        """Shape (K, Q): coefficients of X in what effects of slopes add to linear predictors."""
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
        """What of the coordinates of effects hangs on groups and covariates alone."""
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
            whole = self.times(t) - self.times(t).mean()
            ratio = (explained @ explained) / max(whole @ whole, 1e-300)
            free[t] = min(ratio, 1.0) * coefficient_sd**2
        before = self.part[-1].start if T else 0
        return {
            "group_mean": mean,
            "group_free": free,
            "D": before,
            "group_apart": self._apart(before),
            **self._overlap(),
            "Q": slope_part.shape[1],
            "slope_part": np.zeros_like(slope_part),  # non-centred; chains get the one found here
        }

    def _apart(self, before: int) -> Floats:
        """Shape (D, T): of the effects of intercepts nested within a group, in its mean."""
        found = np.zeros((before, len(self.part)))
        for t in range(self.slopes, self.last):
            for s in range(t + 1, len(self.part)):
                found[self.part[t], s] = self._nested(t, s)[0]
        return found

    def _nested(self, t: int, s: int) -> tuple[Vector, Vector]:
        """Variance of the means by group of t of effects of s with variance 1, and a share.

        The share is how much of those effects' differences is nested within groups of t: 1 where
        each is of one group, near 0 in crossed designs. The variance is less what all groups have
        in common, and less what is not nested.
        """
        row, column, value = self.pairs(t, s)
        groups = self.part[t].stop - self.part[t].start
        width = self.part[s].stop - self.part[s].start
        alone = np.bincount(row, value**2, minlength=groups)
        some = max(int((alone > 0).sum()), 1)
        together = np.bincount(column, value, minlength=width)
        common = (together @ together - alone.sum()) / max(some * (some - 1), 1)
        count = self.sums(s, np.ones(self._n))
        size = self.sums(t, np.ones(self._n))
        centred = value - (together / some)[column]
        along = np.bincount(row, size[row] * value * centred, minlength=groups)
        inside = along**2 / np.maximum(size, 1)
        whole = np.bincount(row, count[column] * centred**2, minlength=groups)
        share = np.divide(inside, whole, out=np.zeros(groups), where=whole > 0)
        share = np.minimum(share, 1.0)
        return np.maximum(alone - common, 0) * share, share

    def _overlap(self) -> dict[str, Any]:
        """The columns before in the estimates of each, as a sparse matrix of J rows."""
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
    """Correlations of columns, from draws of their partial correlations.

    Args:
        partial: shape (S, P), those of each column with columns before it, given those between.
        column: ``group_column``.
    Returns:
        For pairs of columns, numbers from 0, shape (S,).
    """
    factor: dict[tuple[int, int], Vector] = {}  # of the correlation matrix, by Cholesky
    found = {}
    for t, (_, _, first, last, before) in enumerate(np.asarray(column).tolist()):
        left = np.ones(len(partial))
        for k, s in enumerate(range(first - 1, last)):
            factor[t, s] = left * partial[:, before + k]
            left = left * np.sqrt(1 - partial[:, before + k] ** 2)
        factor[t, t] = left
        for s in range(first - 1, last):
            both = range(first - 1, s + 1)
            found[s, t] = sum(
                (factor[t, k] * factor[s, k] for k in both if (s, k) in factor),
                np.zeros(len(partial)),
            )
    return found
