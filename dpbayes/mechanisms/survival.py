"""The Kaplan-Meier curve, for posterior predictive checks of duration models. Confidential."""

from __future__ import annotations

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import pd
from dpbayes.schema import Column

# Times, and the share of records without the event after each; the first time is 0, its share 1.
Curve = tuple[Vector, Vector]


def kaplan_meier(time: Column, event: Column, data: pd.DataFrame) -> Curve:
    """Kaplan-Meier estimate of the share of records without the event after each event time.

    Args:
        time: the column of durations.
        event: a binary column; its second level says that the event was observed.
    Returns:
        Two vectors of shape (distinct event times + 1,).

    Source: kaplan-meier-1958.
    """
    times = data[time.name].to_numpy(dtype=float)
    observed = (data[event.name].astype(object) == event.levels[1]).to_numpy()
    event_times = np.unique(times[observed])
    # side="left": a record that leaves at an event time is still at risk at that time.
    at_risk = len(times) - np.searchsorted(np.sort(times), event_times, side="left")
    events = np.diff(
        np.searchsorted(np.sort(times[observed]), np.append(event_times, np.inf), side="left")
    )
    surviving = np.cumprod(1 - events / at_risk)
    return np.insert(event_times, 0, 0.0), np.insert(surviving, 0, 1.0)


def left_at(curve: Curve, times: Vector) -> Vector:
    """Value of the curve, the share without the event, at times of at least 0."""
    return np.asarray(curve[1][np.searchsorted(curve[0], times, side="right") - 1])
