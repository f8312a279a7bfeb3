"""Warnings about utility that protection and declared bounds cost. Confidential."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

DATA_SET = "synthetic_"  # with its number, key of the measures of a data set
MEMBERS = "members"  # key of what members of households have to do with each other
UNCLAMPED = "unclamped"  # key of the unclamped fit's draws among the measures of data sets
LOST = 0.05  # difference in distance, or share at the bounds, from which to warn
ASTRAY, TIMES = 0.1, 3  # difference to the median data set, and ratio, from which one is far off
UNPAID = (
    "All of this follows the records: other settings for the same records because of it are a "
    "choice that no ε covers. Try settings on earlier records."
)
DISTANCES = ("max_ecdf", "total_variation")


def distance(measures: Mapping[str, Any]) -> float | None:
    """Largest ECDF difference of a column, or total variation if it has no ECDF; None without."""
    return next((float(measures[name]) for name in DISTANCES if name in measures), None)


def told(of_fit: Iterable[str], measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warn of utility that a fit and its columns lost, and against tuning on it; empty if none.

    Args:
        of_fit: ``Findings.warnings`` of the fit.
        measures: measures as in ``lost``.
    """
    messages = [*map(str, of_fit), *lost(measures)]
    return [*messages, UNPAID] if messages else []


def lost(measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warn of columns of the first data set that lost more than ``LOST``, and of single data sets.

    Args:
        measures: ``evaluate.utility.utility`` by data set and column, with an entry
            ``UNCLAMPED`` if there is an unclamped fit.
    """
    released = next((m for name, m in measures.items() if name != UNCLAMPED), {})
    unclamped = measures.get(UNCLAMPED, {})
    messages = []
    for name, column in released.items():
        ours, theirs = distance(column), distance(unclamped.get(name, {}))
        if ours is not None and theirs is not None and ours - theirs > LOST:
            messages.append(
                f"Column {name!r} is {ours:.3f} from the records, and {theirs:.3f} as the "
                "unclamped fit draws it: the difference is what the protection cost."
            )
        at = column.get("at_bounds", {})
        records, synthetic = at.get("original", 0.0), at.get("synthetic", 0.0)
        if synthetic - records > LOST:
            messages.append(
                f"{synthetic:.0%} of the synthetic values of {name!r} lie at the ends of the "
                f"declared range, and {records:.0%} of the records: the model reaches beyond it."
            )
        elif records > LOST:
            messages.append(
                f"{records:.0%} of the records have {name!r} at an end of the declared range. "
                "Where it is publicly known that values are cut there, declare the end an atom; "
                "bounds must not follow these records."
            )
    return [*messages, *_astray({k: m for k, m in measures.items() if k.startswith(DATA_SET)})]


def _astray(measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the data sets in which a column, or its share of missing values, is far off alone."""
    messages = []
    for column in next(iter(measures.values()), {}):
        apart = {name: _apart(columns[column]) for name, columns in measures.items()}
        usual = statistics.median(apart.values())
        least = max(TIMES * usual, usual + ASTRAY)
        if astray := [name for name, distance in apart.items() if distance > least]:
            messages.append(
                f"Column {column!r} is {max(apart.values()):.3f} from the records in "
                f"{', '.join(astray)}, and {usual:.3f} in the median of the data sets. To "
                "leave those out is a choice that no ε covers."
            )
    return messages


def _apart(measures: Mapping[str, Any]) -> float:
    """Distance of a column, or the difference in its share of missing values if that is larger."""
    shares = [float(measures.get(of, {}).get("missing", 0)) for of in ("original", "synthetic")]
    return max(distance(measures) or 0.0, abs(shares[0] - shares[1]))
