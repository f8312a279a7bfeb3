"""Reasons why records do not fit a schema, with row counts that add up over chunks of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpbayes.core.errors import DataError

Shown = Sequence[str] | None  # example values, or None if they may not be shown
Words = Callable[[Mapping[str, int], int, Shown], str]


class Refusal(DataError):
    """Error about rows whose values do not fit the schema.

    Attributes:
        place: position of the failed check in the order of all checks.
        counts: number of rows that do not fit, by column.
        rows: number of rows that were checked: those that have a value.
        words: function that builds the message from ``counts``, ``rows`` and ``shown``.
        shown: some of the wrong values; confidential.
    """

    def __init__(
        self,
        place: tuple[int, ...],
        counts: Mapping[str, int],
        rows: int,
        words: Words,
        shown: Shown = None,
    ) -> None:
        super().__init__(words(counts, rows, shown))
        self.place, self.counts, self.rows = place, counts, rows
        self.words, self.shown = words, shown

    def behind(self, *place: int) -> Refusal:
        """Copy of the error with its position inside a longer sequence of checks."""
        return Refusal((*place, *self.place), self.counts, self.rows, self.words, self.shown)

    def __reduce__(self) -> tuple[Any, ...]:  # worker processes send it back by pickle
        return Refusal, (self.place, self.counts, self.rows, self.words, self.shown)


def joined(refusals: Sequence[Refusal], rows: Mapping[str, int], every: int) -> Refusal:
    """Refusal of a whole table, from the refusals of its parts.

    A part stops at the first check that it fails. A part that stopped at a later check, or at none,
    therefore has no row that fails the earliest failed check: the counts add up.

    Args:
        refusals: refusals in the order of the parts, at least one.
        rows: number of rows with a value in all parts, by column that may have missing values.
        every: number of rows of all parts.
    """
    place = min(refusal.place for refusal in refusals)
    first = [refusal for refusal in refusals if refusal.place == place]
    counts: Counter[str] = Counter()
    for refusal in first:
        counts.update(refusal.counts)
    shown = None
    if first[0].shown is not None:
        shown = [value for refusal in first for value in refusal.shown or ()]
    checked = min(rows.get(name, every) for name in counts)
    return Refusal(place, counts, checked, first[0].words, shown)
