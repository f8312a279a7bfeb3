"""Records that a schema allows, made up without any data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.heavy import pd
from dpbayes.schema.columns import Column, Schema

MANY = 20  # above the lower bound of a count without an upper one
FAR = 1000  # the same, for its end


def made_up(schema: Schema, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """``count`` valid records, each column uniform over its declared domain."""
    values = {name: _values(column, count, rng) for name, column in schema.columns.items()}
    return schema.validate(pd.DataFrame(values))


def ends(column: Column) -> tuple[Any, Any]:
    """The ends of a column's declared domain, or its first and last level."""
    if column.levels:
        return column.levels[0], column.levels[-1]
    low = 0 if column.lower is None else column.lower
    return low, low + FAR if column.upper is None else column.upper


def _values(column: Column, count: int, rng: np.random.Generator) -> NDArray[Any]:
    if column.levels:
        codes = rng.permutation(np.arange(count) % len(column.levels))
        return np.asarray([column.levels[code] for code in codes], dtype=object)
    low = 0.0 if column.lower is None else column.lower
    if column.type == "count":
        high = low + MANY if column.upper is None else column.upper
        return rng.integers(int(low), int(high), size=count, endpoint=True)
    assert column.upper is not None  # Column
    return rng.uniform(low, column.upper, count)
