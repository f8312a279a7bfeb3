"""Numbers on a public unit scale, as whole numbers of which sums are exact.

A sum of floating-point numbers moves by more than the number that is added to it: by rounding, and
by what earlier numbers were rounded to. A bound on one record does not cover that. So numbers are
rounded to multiples of 1/UNITS of the half-width of their bounds, one by one, and everything after
that is in whole numbers. Exact for fewer than 2^27 records, 134 million.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.tables.cells import require_bounds
from dpbayes.schema import Column

_BITS = 18
MOST = 2**62  # what a sum is cut to at most: OpenDP's noise is in 64 bits
UNITS = 1 << _BITS  # that stand for half the width of the bounds; the default precision of columns


def whole(values: Any, bounds: tuple[float, float], one: int = UNITS) -> Ints:
    """Numbers on [-one, one] by their public bounds, each rounded on its own."""
    lower, upper = bounds
    x = np.asarray(values, dtype=float)
    z = ((x - lower) - (upper - x)) / (upper - lower)
    return np.rint(one * np.clip(z, -1, 1)).astype(np.int64)


def whole_columns(columns: list[Column], records: Any) -> Ints:
    """Numeric columns of the records, shape (n, columns)."""
    found = [whole(records[c.name], require_bounds(c)) for c in columns]
    return np.stack(found, axis=1)


def from_unit(column: Column, values: Floats) -> Floats:
    """Numbers on [-1, 1] back in their own units, moved into the bounds; counts are rounded."""
    lower, upper = require_bounds(column)
    middle, half = lower + (upper - lower) / 2, (upper - lower) / 2
    found = np.clip(middle + half * values, lower, upper)
    return np.round(found).astype(np.int64) if column.whole else found


def features(columns: list[Column], records: Any) -> Ints:
    """Design matrix in multiples of 1/UNITS with an intercept, shape (n, d).

    Numbers by their public bounds, dummies for all levels but the first. Every entry is at most
    ``feature_size``, and a column has one entry other than 0 at most: with the intercept a row has
    a Euclidean norm of at most UNITS, which is 1, and an L1 norm of at most 1 + columns of them.
    """
    one = feature_size(len(columns))
    parts = [np.full((len(records), 1), one)]
    for column in columns:
        if column.levels:
            codes = records[column.name].cat.codes.to_numpy()
            parts.append(one * (codes[:, None] == np.arange(1, len(column.levels))))
        else:
            values = whole(records[column.name], require_bounds(column), one)
            parts.append(values[:, None])
    return np.hstack(parts).astype(np.int64)


def feature_size(columns: int) -> int:
    """The largest whole number whose square, 1 + ``columns`` times, is at most UNITS^2."""
    return math.isqrt(UNITS**2 // (1 + columns))


def cell_sums(cell: Ints, values: Ints, cells: int) -> Ints:
    """Sums by cell, exact, of numbers up to UNITS^2, shape (cells,).

    NumPy sums in floating point here: exact below 2^53, and so in two parts.
    """
    high, low = (
        np.bincount(cell, part, cells).astype(np.int64)
        for part in (values >> _BITS, values & (UNITS - 1))
    )
    return np.asarray((high << _BITS) + low)


def about_mean(count: Any, products: Any, first: Any, second: Any) -> NDArray[Any]:
    """Sum of products about the means, rounded down: floor(P - S T / n), exactly; 0 for n = 0.

    Rounding down keeps a sensitivity that is a whole number: if a <= b + D, then floor(a) <=
    floor(b) + D.

    Args:
        count, products, first, second: n, P, S and T, whole numbers, of any one shape.
    """
    n, p, s, t = (np.asarray(v).astype(object) for v in (count, products, first, second))
    return np.asarray((n * p - s * t) // np.maximum(n, 1))
