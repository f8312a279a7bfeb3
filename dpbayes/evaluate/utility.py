"""Measures of how close synthetic data are to the confidential records, column by column.

All results are computed from the confidential records and are confidential themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd
from dpbayes.schema import Column

Z = 1.96  # normal quantile of the 95 % intervals that are compared
QUANTILES = {"median": 0.5, "q15": 0.15, "q90": 0.9}


def _ecdf_difference(original: ArrayLike, synthetic: ArrayLike) -> Floats:
    """Difference of the two empirical CDFs at every pooled value."""
    a, b = np.sort(np.asarray(original, float)), np.sort(np.asarray(synthetic, float))
    pooled = np.concatenate([a, b])
    return (
        np.searchsorted(a, pooled, side="right") / a.size
        - np.searchsorted(b, pooled, side="right") / b.size
    )


def max_ecdf(original: ArrayLike, synthetic: ArrayLike) -> float:
    """Largest absolute difference of the ECDFs over the pooled values.

    Source: woo-2009; hu-williams-savitsky, section 4.3.
    """
    return float(np.abs(_ecdf_difference(original, synthetic)).max())


def avg_ecdf(original: ArrayLike, synthetic: ArrayLike) -> float:
    """Mean squared difference of the ECDFs over the pooled values.

    Source: woo-2009; hu-williams-savitsky, section 4.3.
    """
    return float(np.mean(_ecdf_difference(original, synthetic) ** 2))


def total_variation(original: pd.Series, synthetic: pd.Series) -> float:
    """Total variation distance of the shares of the levels, in [0, 1]."""
    shares = pd.concat(
        [s.astype(str).value_counts(normalize=True) for s in (original, synthetic)], axis=1
    ).fillna(0.0)
    return float(np.abs(np.diff(shares.to_numpy(), axis=1)).sum() / 2)


def interval_overlap(ours: tuple[Floats, Floats], theirs: tuple[Floats, Floats]) -> Floats:
    """Mean share of two 95 % normal intervals that lies in both; negative if they are disjoint.

    Args:
        ours, theirs: estimates and standard errors, arrays of one common shape.

    Source: karr-2006.
    """
    low = [value - Z * error for value, error in (ours, theirs)]
    high = [value + Z * error for value, error in (ours, theirs)]
    shared = np.minimum(*high) - np.maximum(*low)
    widths = [h - w for h, w in zip(high, low, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((shared / widths[0] + shared / widths[1]) / 2)


def summary(column: Column, values: pd.Series) -> dict[str, float]:
    """Mean and quantiles of a numeric column, or the shares of the levels of any other column.

    Missing values are left out; for an optional column their share is reported. Dates are days
    since 1970-01-01.
    """
    missing = {"missing": float(values.isna().mean())} if column.optional else {}
    if column.levels:
        shares = values.dropna().astype(str).value_counts(normalize=True)
        level_shares = {level: float(shares.get(str(level), 0.0)) for level in column.levels}
        return {**{f"share of {level}": share for level, share in level_shares.items()}, **missing}
    numbers = values.dropna().to_numpy(dtype=float)
    if not numbers.size:
        return {"missing": 1.0}
    quantiles = {name: float(np.quantile(numbers, q)) for name, q in QUANTILES.items()}
    return {"mean": float(numbers.mean()), **quantiles, **missing}


def utility(column: Column, original: pd.Series, synthetic: pd.Series) -> dict[str, Any]:
    """Distance measures and summaries of one column, original next to synthetic.

    Args:
        column: its declaration; ordered and binary levels have an ECDF too.
        original, synthetic: validated, shape (n,) and (n',). Distances ignore missing values. For
            a continuous column ``at_bounds`` holds the shares that lie at a declared bound.
    """
    ours, theirs = original.dropna(), synthetic.dropna()
    distances: dict[str, float] = {}
    if not len(ours) or not len(theirs):
        return {"original": summary(column, original), "synthetic": summary(column, synthetic)}
    if column.levels:
        distances["total_variation"] = total_variation(ours, theirs)
    if column.type != "categorical":
        a, b = _numbers(column, ours), _numbers(column, theirs)
        distances.update(max_ecdf=max_ecdf(a, b), avg_ecdf=avg_ecdf(a, b))
    ends = {}
    if column.type == "continuous":
        columns = {"original": ours, "synthetic": theirs}
        ends["at_bounds"] = {name: at_bounds(column, values) for name, values in columns.items()}
    return {
        **distances,
        **ends,
        "original": summary(column, original),
        "synthetic": summary(column, synthetic),
    }


def at_bounds(column: Column, values: pd.Series) -> float:
    """Share of numbers that lie at a declared bound that is not an atom."""
    declared = [end for end in (column.lower, column.upper) if end is not None]
    ends = [end for end in declared if end not in column.atoms]
    return float(np.isin(values.to_numpy(dtype=float), ends).mean())


def _numbers(column: Column, values: pd.Series) -> Floats:
    if not column.levels:
        return np.asarray(values, dtype=float)
    order = {str(level): rank for rank, level in enumerate(column.levels)}
    return np.asarray(values.astype(str).map(order), dtype=float)
