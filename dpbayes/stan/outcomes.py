"""Conversion of outcomes to the numbers that Stan programs read, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.schema import Column
from dpbayes.schema.columns import MOST_LEVEL


def encode_outcome(column: Column, values: pd.Series) -> NDArray[Any]:
    """Convert a validated outcome to the numbers that a Stan program reads, unscaled.

    Binary levels become 0 and 1 in declared order, other levels 1..C, counts int, the rest float.
    """
    if column.type == "binary":
        return np.asarray(values.cat.codes, dtype=np.int64)
    if column.levels:
        return np.asarray(values.cat.codes, dtype=np.int64) + 1
    return np.asarray(values)


def codes_of(column: Column) -> tuple[int, int]:
    """First and last code of a column with levels."""
    first = 0 if column.type == "binary" else 1
    return first, first + len(column.levels) - 1


def decode_outcome(column: Column, y: NDArray[Any]) -> pd.Series:
    """Convert numbers of a Stan program to outcomes; the inverse of ``encode_outcome``.

    Numbers outside the declared bounds or levels are set to the nearest one, and what is no number
    counts as 0: such post-processing costs no privacy, and cannot fail after a release is paid for.
    """
    y = np.where(np.isnan(y), 0.0, y)
    if column.levels:
        first, last = codes_of(column)
        codes = np.rint(np.clip(y, first, last)).astype(np.int64) - first
        return pd.Series(np.asarray(column.levels, dtype=object)[codes], name=column.name)
    lower = -math.inf if column.lower is None else column.lower
    upper = math.inf if column.upper is None else column.upper
    y = np.clip(y, lower, upper)
    if column.type == "count":
        y = np.clip(y, 0, MOST_LEVEL)
        y = np.rint(y).astype(np.int64)
    return pd.Series(y, name=column.name)


def with_events(event: Column, values: pd.Series, times: NDArray[Any]) -> NDArray[np.float64]:
    """Return scaled times, negative where the event (second of two levels) was not observed."""
    return np.where(encode_outcome(event, values) == 1, times, -times)


def events_of(event: Column, y: NDArray[Any]) -> pd.Series:
    """Return levels of the event from the signs of times; the inverse of ``with_events``."""
    return decode_outcome(event, np.asarray(y) > 0)
