"""Fixed-point numbers on a public unit scale, whose sums are exact.

Adding a record to a floating-point sum can change it by more than the record's value, because
rounding of the other terms changes, too; a sensitivity bound does not cover that. So each number is
rounded to a multiple of 1/UNITS of the half-width of its bounds, and all sums are of whole numbers.
They are exact for any number of records: 64-bit integers hold the sums of ``BLOCK`` records, and
Python's integers, which have no limit, those of all blocks. Noise takes 64-bit integers, so each
sum is then clipped to ±``MOST``, which moves no two sums farther apart (``clipped``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.tables.cells import require_bounds
from dpbayes.schema import Column

_BITS = 18
MOST = 2**62  # upper limit of a sum's range: OpenDP's noise uses 64-bit integers
BLOCK = 2**20  # records of a block: their products add up to at most 2^56
UNITS = 1 << _BITS  # units in half the width of the bounds: the default precision of columns


def whole(values: ArrayLike, bounds: tuple[float, float], unit: int = UNITS) -> Ints:
    """Scale numbers from their public bounds to [-one, one], each rounded on its own."""
    lower, upper = bounds
    x = np.asarray(values, dtype=float)
    z = ((x - lower) - (upper - x)) / (upper - lower)
    return np.rint(unit * np.clip(z, -1, 1)).astype(np.int64)


def whole_columns(columns: list[Column], records: pd.DataFrame) -> Ints:
    """Numeric columns of the records in whole units, shape (n, columns)."""
    arrays = [whole(records[c.name], require_bounds(c)) for c in columns]
    return np.stack(arrays, axis=1)


def from_unit(column: Column, values: Floats) -> Floats:
    """Scale numbers on [-1, 1] back to a column's bounds, clipped; whole numbers are rounded."""
    lower, upper = require_bounds(column)
    middle, half = lower + (upper - lower) / 2, (upper - lower) / 2
    numbers = np.clip(middle + half * values, lower, upper)
    return np.round(numbers).astype(np.int64) if column.whole else numbers


def features(columns: list[Column], records: pd.DataFrame) -> Ints:
    """Design matrix in multiples of 1/UNITS with an intercept, shape (n, d).

    Numbers are scaled by their public bounds; levels other than the first have indicators. Every
    entry is at most ``feature_size``, and a column has at most one entry other than 0. So a row
    with its intercept has a Euclidean norm of at most UNITS, which stands for 1, and an L1 norm of
    at most 1 + columns of these entries.
    """
    size = feature_size(len(columns))
    parts = [np.full((len(records), 1), size)]
    for column in columns:
        if column.levels:
            codes = records[column.name].cat.codes.to_numpy()
            parts.append(size * (codes[:, None] == np.arange(1, len(column.levels))))
        else:
            values = whole(records[column.name], require_bounds(column), size)
            parts.append(values[:, None])
    return np.hstack(parts).astype(np.int64)


def feature_size(columns: int) -> int:
    """Largest whole number whose square, times 1 + ``columns``, is at most UNITS^2."""
    return math.isqrt(UNITS**2 // (1 + columns))


def cell_sums(cell: Ints, values: Ints, cells: int) -> NDArray[Any]:
    """Exact sums by cell of whole numbers up to UNITS^2, as Python integers, shape (cells,).

    ``np.bincount`` sums in floating point, which is exact below 2^53: hence two parts.
    """
    total = np.zeros(cells, dtype=object)
    for rows in _blocks(len(values)):
        high, low = (
            np.bincount(cell[rows], part, cells).astype(np.int64).astype(object)
            for part in (values[rows] >> _BITS, values[rows] & (UNITS - 1))
        )
        total += UNITS * high + low
    return total


def product_sums(left: Ints, right: Ints) -> NDArray[Any]:
    """Exact sums over records of products up to UNITS^2, as Python integers, shape (..., p, q).

    Args:
        left, right: whole numbers, shapes (..., n, p) and (..., n, q); leading axes are separate
            data sets.
    """
    rows = _blocks(left.shape[-2])
    parts = [np.swapaxes(left[..., r, :], -1, -2) @ right[..., r, :] for r in rows]
    return np.asarray(sum(part.astype(object) for part in parts))


def clipped(sums: ArrayLike) -> Ints:
    """Clip whole numbers to ±``MOST``, so that 64-bit integers hold them."""
    numbers = np.asarray(sums, dtype=object)
    return np.asarray(np.clip(numbers, -MOST, MOST), dtype=np.int64)


def _blocks(records: int) -> list[slice]:
    """Slices of at most ``BLOCK`` records; one empty slice if there are no records."""
    return [slice(start, start + BLOCK) for start in range(0, max(records, 1), BLOCK)]


def about_mean(
    count: ArrayLike, products: ArrayLike, first: ArrayLike, second: ArrayLike
) -> NDArray[Any]:
    """Sum of products about the means, rounded down: floor(P - S T / n), exactly; 0 for n = 0.

    Rounding down keeps a sensitivity that is a whole number: if a <= b + D, then floor(a) <=
    floor(b) + D.

    Args:
        count, products, first, second: n, P, S and T, whole numbers, of any one shape.
    """
    n, p, s, t = (np.asarray(v).astype(object) for v in (count, products, first, second))
    return np.asarray((n * p - s * t) // np.maximum(n, 1))
