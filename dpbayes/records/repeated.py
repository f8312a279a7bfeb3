"""Rows that occur again and again, which hide from a ledger that the other rows tell persons apart.

Records of a unit that did not answer are alike, and so are rows that only fill a table. Small sets
of columns and shapes are looked for among the other rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd

MOST_ALIKE = 4  # records that are alike; more are set aside
LEAST_LEFT = 0.5  # share of the records that must stay, or none is set aside

Rows = NDArray[np.uint64]


def without_repeated(records: pd.DataFrame, fewest: int) -> pd.DataFrame:
    """Records without the rows that occur more than ``MOST_ALIKE`` times.

    Rows that differ in one column are alike, so that the same rows are set aside after a column was
    added or removed. Where that leaves too few, only equal rows are alike.

    Args:
        records: n validated records.
        fewest: smallest number of records that must stay.
    """
    least = max(fewest, LEAST_LEFT * len(records))
    seldom = np.ones(len(records), dtype=bool)
    kept = [seldom := seldom & _seldom(rows) for rows in _rows(records)]
    for chosen in (kept[-1], kept[0]) if kept else ():
        if np.count_nonzero(chosen) >= least:
            return records.loc[chosen]
    return records


def seldom_texts(elements: list[str]) -> list[str]:
    """Those of n texts that occur at most ``MOST_ALIKE`` times, in their order."""
    codes = pd.factorize(pd.Series(elements, dtype=object))[0]
    return [text for text, keep in zip(elements, _seldom(codes), strict=True) if keep]


def _rows(records: pd.DataFrame) -> Iterator[Rows]:
    """Yield a number for each row, equal for equal rows; then the same without each column."""
    if not len(records.columns):
        return
    # A random number for each value; the sum over columns stands for a row. Any key will do, as
    # the numbers are compared with each other only.
    rng = np.random.default_rng(0)
    whole = np.zeros(len(records), dtype=np.uint64)
    for name in records:
        whole += _numbers(records[name], rng)
    yield whole
    if len(records.columns) > 1:
        rng = np.random.default_rng(0)
        for name in records:
            yield whole - _numbers(records[name], rng)


def _numbers(column: pd.Series, rng: np.random.Generator) -> Rows:
    codes, levels = pd.factorize(column, use_na_sentinel=False)
    return rng.integers(2**64, size=max(1, len(levels)), dtype=np.uint64)[codes]


def _seldom(rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    _, groups, counts = np.unique(rows, return_inverse=True, return_counts=True)
    seldom: NDArray[np.bool_] = counts[groups] <= MOST_ALIKE
    return seldom
