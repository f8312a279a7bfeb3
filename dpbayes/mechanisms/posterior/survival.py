"""The Kaplan-Meier curve, which checks of a model of durations look at. Confidential."""

from __future__ import annotations

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import pd
from dpbayes.schema import Column

Curve = tuple[Vector, Vector]  # times, and the share that is left after each; the first is 0, 1


def kaplan_meier(time: Column, event: Column, data: pd.DataFrame) -> Curve:
    """Share of records without the event by a time, where those that leave are no longer at risk.

    Args:
        event: binary; its second level says that the event was seen.
    Returns:
        Shape (times of events + 1,) each.

    Source: kaplan-meier-1958.
    """
    times = data[time.name].to_numpy(dtype=float)
    seen = (data[event.name].astype(object) == event.levels[1]).to_numpy()
    at = np.unique(times[seen])
    risk = len(times) - np.searchsorted(np.sort(times), at, side="left")
    events = np.diff(np.searchsorted(np.sort(times[seen]), np.append(at, np.inf), side="left"))
    left = np.cumprod(1 - events / risk)
    return np.insert(at, 0, 0.0), np.insert(left, 0, 1.0)


def left_at(curve: Curve, times: Vector) -> Vector:
    """Shares that are left after each of some times at or above 0."""
    return np.asarray(curve[1][np.searchsorted(curve[0], times, side="right") - 1])
