"""Shapes of rows, which do not change when columns are rescaled, rounded, renamed or recoded.

In a column with few different values, a value is coded by its frequency; in a column with many, by
the quantile interval that it lies in. The shape of a row is the set of these codes, whatever the
names and order of the columns. Shapes without one of the columns are compared too, so that a table
is recognised after a column was added or removed. And once more with names, and values in place of
frequencies: so few columns tell a table apart if only numbers were rescaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd
from dpbayes.records.fingerprint import cell_texts, encoded

MOST_LEVELS = 32  # different values (and at most half the records) that are coded by frequency
# Quantile intervals; coarse first, as rounding moves few values. Fine ones are needed where few
# columns have to tell many records apart.
PARTS = (8, 16, 32, 64, 128, 256, 512, 1024)
USED_PARTS = 2  # resolutions that are kept: another table may need the finer one
SHUFFLES = 3  # random tables of other persons with the same columns
MOST_BY_CHANCE = 0.2  # share of rows that such a table may have in common with the records
Hashes = NDArray[np.uint64]
MOST_ROWS = 20_000  # above, shapes without a column are skipped: each takes n hashes


def shapes(records: pd.DataFrame, distinct: float) -> Iterator[list[str]]:
    """Yield the shape of each row of validated records, as text, for each view.

    Args:
        records: n validated records.
        distinct: smallest number of different shapes per record; views with fewer are skipped, as
            tables of other persons would look the same.
    """
    if len(records) < 2 or not len(records.columns):
        return
    given = [_Values.of(records[name], str(name)) for name in records]
    used = {True: 0, False: 0}
    for parts in PARTS:
        for named in (named for named, views in used.items() if views < USED_PARTS):
            columns = [column.coded(parts, named) for column in given]
            tables = _Tables.of(columns)
            if not tables.tell(distinct):
                continue
            used[named] += 1
            yield _texts(columns, parts)
            if not named and len(records) <= MOST_ROWS:
                for k in range(len(columns)):
                    if tables.tell(distinct, without=k):
                        yield _texts([*columns[:k], *columns[k + 1 :]], parts)


@dataclass(frozen=True, eq=False)
class _Values:
    """A column of which values are to be coded.

    Attributes:
        name: its name.
        levels: texts of the different values.
        rows: number of each row's value, shape (n,).
        ranks: ranks of numbers from 0 to 1, NaN for missing ones, shape (n,); None for few
            different values or texts.
    """

    name: str
    levels: Sequence[str]
    rows: NDArray[np.int64]
    ranks: Floats | None

    @classmethod
    def of(cls, column: pd.Series, name: str) -> _Values:
        """Number the values of a column, and rank them."""
        rows, levels = pd.factorize(pd.Series(cell_texts(column), dtype=object))
        few = min(MOST_LEVELS, len(column) // 2)
        ranks: Floats | None = None
        if len(levels) > few and pd.api.types.is_numeric_dtype(column.dtype):
            ranks = np.asarray(column.rank(method="average", pct=True), dtype=float)
        return cls(name, list(levels), rows, ranks)

    def coded(self, parts: int, named: bool) -> _Coded:
        """Code each value: by its frequency, or by its quantile interval if it has a rank."""
        before = f"{self.name}\x1d" if named else ""
        if self.ranks is not None:
            intervals = np.minimum(np.floor(self.ranks * parts), parts - 1)
            numbers = np.where(np.isnan(intervals), parts, intervals).astype(np.int64)
            codes = [*(f"{before}part {k}" for k in range(parts)), f"{before}missing"]
            return _Coded(codes, numbers, np.argsort(numbers, kind="stable"))
        if named:
            return _Coded([before + level for level in self.levels], self.rows, None)
        counts = np.bincount(self.rows, minlength=len(self.levels))
        order = np.unique(-counts, return_inverse=True)[1]  # equally frequent ones share a code
        return _Coded([f"level {k}" for k in range(len(self.levels))], order[self.rows], None)


@dataclass(frozen=True, eq=False)
class _Coded:
    """A column of codes.

    Attributes:
        codes: texts of the different codes.
        rows: number of each row's code, shape (n,).
        order: rows in ascending order of their parts if the codes are of numbers; None otherwise.
    """

    codes: Sequence[str]
    rows: NDArray[np.int64]
    order: NDArray[np.int64] | None

    def along(self, first: _Coded) -> NDArray[np.int64]:
        """Order of the rows in which the column rises, or falls, as ``first`` does in its own."""
        if self.order is not None:
            with np.errstate(invalid="ignore"):  # of a constant column, which has no correlation
                falls = np.corrcoef(self.rows, first.rows)[0, 1] < 0
            return self.order[::-1] if falls else self.order
        sums = np.bincount(self.rows, first.rows, minlength=len(self.codes))
        means = sums / np.maximum(1, np.bincount(self.rows, minlength=len(self.codes)))
        return np.argsort(means[self.rows], kind="stable")

    @property
    def hashes(self) -> Hashes:
        """Hash of each row's code, shape (n,)."""
        digests = (blake2b(encoded(code), digest_size=8).digest() for code in self.codes)
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)[self.rows]


@dataclass(frozen=True, eq=False)
class _Tables:
    """Hashed codes of a table, and of tables of other persons that have the same codes.

    Attributes:
        cells: shape (columns, n). A shape's hash is the sum over columns, in any order.
        others: other tables of this shape, or only the sums over columns of a large table.
    """

    cells: Hashes
    others: Sequence[Hashes]

    @classmethod
    def of(cls, columns: Sequence[_Coded]) -> _Tables:
        """Make the other tables.

        Ranks of a single column are the same in every table of that length, and so are those of
        columns that all follow from one of them, rising or falling. The shapes of the records have
        to be others.
        """
        cells = np.array([column.hashes for column in columns])
        rng = np.random.default_rng(cells.shape[1])
        first = max(
            (column for column in columns if column.order is not None),
            key=lambda column: len(np.unique(column.rows)),
            default=None,
        )
        others = []
        for monotone in (False,) * SHUFFLES + (True,) * (first is not None):
            other = rng.permuted(cells, axis=1)
            if monotone and first is not None:
                for k, column in enumerate(columns):
                    other[k] = cells[k][column.along(first)]
            small = cells.shape[1] <= MOST_ROWS
            others.append(other if small else other.sum(axis=0, keepdims=True))
        return cls(cells, others)

    def tell(self, distinct: float, without: int | None = None) -> bool:
        """True if shapes tell records apart, and those of other persons would be different.

        Args:
            distinct: smallest number of different shapes per record.
            without: a column that is left out.
        """
        if len(self.cells) == (without is not None):
            return False
        own, often = np.unique(_sums(self.cells, without), return_counts=True)
        n = self.cells.shape[1]
        if len(own) < distinct * n:
            return False
        for other in self.others:
            theirs, counts = np.unique(_sums(other, without), return_counts=True)
            _, i, j = np.intersect1d(own, theirs, assume_unique=True, return_indices=True)
            if np.minimum(often[i], counts[j]).sum() >= MOST_BY_CHANCE * n:
                return False
        return True


def _sums(cells: Hashes, without: int | None) -> Hashes:
    """Hashes of shapes: sums over columns, without one of them if it is given."""
    sums = cells.sum(axis=0)
    return np.asarray(sums if without is None else sums - cells[without])


def _texts(columns: Sequence[_Coded], parts: int) -> list[str]:
    """Text of each row: its codes in alphabetical order."""
    codes = np.array([np.array(column.codes, dtype=object)[column.rows] for column in columns])
    return [f"{parts}\x1e" + "\x1f".join(row) for row in np.sort(codes.T, axis=1)]
