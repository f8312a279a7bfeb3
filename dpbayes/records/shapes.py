"""Shapes of rows, which do not change when columns are rescaled, rounded, renamed or recoded.

In a column with few different values, a value is coded by its frequency; in a column with many, by
the quantile interval that it lies in. The shape of a row is the set of these codes, whatever the
names and order of the columns. Shapes without one of the columns are compared too, so that a table
is recognised after a column was added or removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.records.fingerprint import cell_texts

MOST_LEVELS = 32  # different values (and at most half the records) that are coded by frequency
PARTS = (8, 16, 32, 64, 128)  # quantile intervals; coarse first, as rounding moves few values
USED_PARTS = 2  # resolutions that are kept: another table may need the finer one
SHUFFLES = 3  # random tables of other persons with the same columns
MOST_BY_CHANCE = 0.2  # share of rows that such a table may have in common with the records
MOST_ROWS = 20_000  # above, shapes without a column are skipped: each takes n hashes


def shapes(records: pd.DataFrame, distinct: float) -> Iterator[list[str]]:
    """Yield the shape of each row of validated records, as text, for each view.

    Args:
        records: n validated records.
        distinct: smallest number of different shapes per record; views with fewer are skipped, as
            tables of other persons would look the same.
    """
    if len(records) < 2:
        return
    used = 0
    for parts in PARTS:
        codes = np.array([_codes(records[name], parts) for name in records], dtype=object)
        if not _tells(codes, distinct):
            continue
        yield _texts(codes, parts)
        if codes.shape[1] <= MOST_ROWS:
            for left_out in range(len(codes)):
                fewer = np.delete(codes, left_out, axis=0)
                if _tells(fewer, distinct):
                    yield _texts(fewer, parts)
        used += 1
        if used == USED_PARTS:
            return


def _tells(codes: NDArray[np.object_], distinct: float) -> bool:
    """True if shapes tell records apart, and those of other persons would be different.

    Ranks of a single column are the same in every table of that length. So each column is shuffled
    by itself: the result stands for other persons with the same margins, and must share few rows.
    """
    if not len(codes):
        return False
    rows = _texts(codes, 0)
    if len(set(rows)) < distinct * len(rows):
        return False
    rng = np.random.default_rng(len(rows))
    shares = []
    for _ in range(SHUFFLES):
        other = np.array([rng.permutation(column) for column in codes], dtype=object)
        common = Counter(rows) & Counter(_texts(other, 0))
        shares.append(common.total() / len(rows))
    return max(shares) < MOST_BY_CHANCE


def _texts(codes: NDArray[np.object_], parts: int) -> list[str]:
    """Text of each row: its codes in alphabetical order. ``codes`` has shape (columns, rows)."""
    return [f"{parts}\x1e" + "\x1f".join(row) for row in np.sort(codes.T, axis=1)]


def _codes(column: pd.Series, parts: int) -> list[str]:
    """Code of each value: by its frequency, or by its quantile interval in a numeric column."""
    values, levels = pd.factorize(pd.Series(cell_texts(column), dtype=object))
    few = min(MOST_LEVELS, len(column) // 2)
    many = len(levels) > few and pd.api.types.is_numeric_dtype(column.dtype)
    if many:
        ranks = column.rank(method="average", pct=True).to_numpy(dtype=float)
        intervals = np.minimum(np.floor(ranks * parts), parts - 1)
        return ["missing" if np.isnan(x) else f"part {x:.0f}" for x in intervals.tolist()]
    counts = np.bincount(values, minlength=len(levels))
    order = np.unique(-counts, return_inverse=True)[1]  # equally frequent levels share a code
    return [f"level {k}" for k in order[values].tolist()]
