"""Default bins of numeric columns, from public facts."""

from __future__ import annotations

import math

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.mechanisms.tables.cells import NEAR, BinRule, require_bounds
from dpbayes.schema import Column

UNIT_BINS = 100  # largest range of whole numbers that have a bin each
BINS = 32  # number of bins of other numeric columns, for few records
USUAL = 1600  # records times epsilon, above which the number of bins grows with its square root
FINER = 4  # the number of bins grows at most by this factor
WIDE = 100  # ratio of the bounds up to which bins have equal width
CURVED = 0.4  # share of the bins that become narrower where values may crowd
CROWDED = 400  # ratio of the bounds' width to the values about which they are narrowest
POINTS = 20_000  # at which edges are interpolated


def auto_bins(column: Column, weight: float) -> BinRule:
    """Default number of bins of a numeric column, or their edges, from public facts.

    Up to ``UNIT_BINS`` steps of the column's grid have a bin each. Other edges of continuous
    columns lie half-way between two values of the grid, as those of whole numbers do: an edge on a
    value would put the value into one bin and half of its synthetic copies into another. Where the
    bounds are wide for the values that may lie between them, some bins have equal width and the
    others (``CURVED``) become narrower towards 0, or towards the bound nearest to it: values may be
    spread over the bounds or crowd at one place, and public facts do not say which.

    Args:
        weight: public number of records times epsilon.
    """
    lower, upper = require_bounds(column)
    width = upper - lower
    bins = round(BINS * min(max(math.sqrt(weight / USUAL), 1), FINER))
    steps = round(width / column.step)
    if steps <= UNIT_BINS:
        values = np.linspace(lower, upper, steps + 1)
        return steps + 1 if column.whole else _half_steps(column, values[:-1])
    near, far = sorted((abs(lower), abs(upper)))
    one_sign = lower * upper > 0
    if column.calendar is not None:
        return bins
    if one_sign and far <= WIDE * near and not column.whole:
        return _half_steps(column, np.linspace(lower, upper, bins + 1)[1:-1])
    centre = min(max(0.0, lower), upper)
    scale = 1.0 if column.type == "count" else near if one_sign else width / CROWDED
    low, high = np.arcsinh((np.array([lower, upper]) - centre) / scale)
    fine = np.linspace(low, high, POINTS + 1)
    values = np.sinh(fine) * scale + centre
    mixed = np.linspace(0, 1, POINTS + 1) * CURVED + (values - lower) / width * (1 - CURVED)
    edges = np.interp(np.linspace(0, 1, bins + 1), mixed, values)
    if not column.whole:
        return _half_steps(column, edges[1:-1])
    inner = np.unique(np.rint(edges))
    return [lower, *(float(edge) for edge in inner if lower < edge < upper), upper]


def _half_steps(column: Column, edges: Floats) -> list[float]:
    """Bounds, and between them the half step of the column's grid above each edge."""
    lower, upper = require_bounds(column)
    inner = np.unique(np.floor(edges / column.step + NEAR) + 0.5) * column.step
    return [lower, *(float(edge) for edge in inner if lower < edge < upper), upper]
