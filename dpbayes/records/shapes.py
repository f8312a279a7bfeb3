"""Shapes of rows, which stay when columns are rescaled, rounded, renamed or coded anew.

A value of a column with few different values is known by how frequent it is there, one of a column
with many by the part of the column's order that it lies in. A row is known by these codes of its
columns, whatever their names and order, and by those of all columns but one, so that a column may
have come or gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.records.fingerprint import cell_texts

MOST_LEVELS = 32  # different values, and half of the records, that are known by their frequency
PARTS = (8, 16, 32, 64, 128)  # of a column's order, from coarse: rounding moves few values
USED_PARTS = 2  # numbers of parts at which rows are told apart: another table may need more
SHUFFLES = 3  # tables of other persons that are made of the same columns
MOST_BY_CHANCE = 0.2  # of rows, that such a table may share with the records
MOST_ROWS = 20_000  # up to which all columns but one are looked at, too: n hashes for each


def shapes(records: pd.DataFrame, distinct: float) -> Iterator[list[str]]:
    """For each view a text for each row of validated records.

    Args:
        distinct: only views in which so many different rows per record are found: others would be
            alike in tables of other persons.
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
    """Whether rows tell records apart, and would not come out alike for other persons.

    Ranks of a single column are the same in every table of that length. So each column is shuffled
    by itself, which is a table of other persons with the same margins, and must share few rows.
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
    """A text for each row: its codes in alphabetical order, shape (columns, rows)."""
    return [f"{parts}\x1e" + "\x1f".join(row) for row in np.sort(codes.T, axis=1)]


def _codes(column: pd.Series, parts: int) -> list[str]:
    """A code for each value that follows from its frequency, or its place in the order."""
    values, levels = pd.factorize(pd.Series(cell_texts(column), dtype=object))
    few = min(MOST_LEVELS, len(column) // 2)
    many = len(levels) > few and pd.api.types.is_numeric_dtype(column.dtype)
    if many:
        place = column.rank(method="average", pct=True).to_numpy(dtype=float)
        found = np.minimum(np.floor(place * parts), parts - 1)
        return ["missing" if np.isnan(x) else f"part {x:.0f}" for x in found.tolist()]
    counts = np.bincount(values, minlength=len(levels))
    order = np.unique(-counts, return_inverse=True)[1]  # equally frequent levels share a code
    return [f"level {k}" for k in order[values].tolist()]
