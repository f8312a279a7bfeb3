"""What protection and declared bounds took from the columns, in sentences. Confidential."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

UNCLAMPED = "unclamped"  # among the measures of data sets: what the unclamped fit draws
LOST = 0.05  # of a distance, or a share at the bounds, from which it is said
UNPAID = (
    "All of this follows the records: other settings for the same records because of it are a "
    "choice that no ε covers. Try settings on earlier ones (dpbayes explore)."
)
DISTANCES = ("max_ecdf", "total_variation")


def distance(measures: Mapping[str, Any]) -> float | None:
    """Of a column: the largest difference of its ECDFs, or total variation where there is none."""
    return next((float(measures[name]) for name in DISTANCES if name in measures), None)


def told(of_fit: Iterable[str], measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a fit and its columns lost, and what must not follow from it; nothing if nothing was.

    Args:
        of_fit: ``Findings.warnings`` of the fit.
        measures: as in ``lost``.
    """
    found = [*map(str, of_fit), *lost(measures)]
    return [*found, UNPAID] if found else []


def lost(measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Columns of the first data set that lost more than usual.

    Args:
        measures: ``evaluate.utility.utility`` by data set and column, and of ``UNCLAMPED`` where
            there is an unclamped fit.
    """
    first = next((found for name, found in measures.items() if name != UNCLAMPED), {})
    plain = measures.get(UNCLAMPED, {})
    found = []
    for name, column in first.items():
        ours, theirs = distance(column), distance(plain.get(name, {}))
        if ours is not None and theirs is not None and ours - theirs > LOST:
            found.append(
                f"Column {name!r} is {ours:.3f} from the records, and {theirs:.3f} as the "
                "unclamped fit draws it: the difference is what the protection cost."
            )
        at = column.get("at_bounds", {})
        records, synthetic = at.get("original", 0.0), at.get("synthetic", 0.0)
        if synthetic - records > LOST:
            found.append(
                f"{synthetic:.0%} of the synthetic values of {name!r} lie at the ends of the "
                f"declared range, and {records:.0%} of the records: the model reaches beyond it."
            )
        elif records > LOST:
            found.append(
                f"{records:.0%} of the records have {name!r} at an end of the declared range. "
                "Where it is publicly known that values are cut there, declare the end an atom; "
                "bounds must not follow these records."
            )
    return found
