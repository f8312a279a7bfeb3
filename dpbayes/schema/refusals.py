"""Why records do not fit a schema, with numbers of rows that add up over the parts of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpbayes.core.errors import DataError

Shown = Sequence[str] | None  # some of the values, or None where they may not be shown
Words = Callable[[Mapping[str, int], int, Shown], str]


class Refusal(DataError):
    """Values of some rows do not fit.

    Attributes:
        place: of what was checked among all checks, in their order.
        counts: rows that do not fit, by column.
        rows: of all that were checked: those that have a value.
        words: the message, of ``counts``, ``rows`` and ``shown``.
        shown: some of the values; confidential.
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
        """The same, of a check among others."""
        return Refusal((*place, *self.place), self.counts, self.rows, self.words, self.shown)

    def __reduce__(self) -> tuple[Any, ...]:  # it comes back from other processes
        return Refusal, (self.place, self.counts, self.rows, self.words, self.shown)


def joined(found: Sequence[Refusal], rows: Mapping[str, int], every: int) -> Refusal:
    """What the whole table is refused for, where its parts were refused for ``found``.

    A part stops at the first check that it fails. So where the earliest of all these is not what
    stopped it, it has no row that fails that one.

    Args:
        found: in the order of the parts, at least one.
        rows: with a value, of the columns that may have none; of all parts.
        every: rows of all parts.
    """
    place = min(one.place for one in found)
    first = [one for one in found if one.place == place]
    counts: Counter[str] = Counter()
    for one in first:
        counts.update(one.counts)
    shown = None
    if first[0].shown is not None:
        shown = [value for one in first for value in one.shown or ()]
    checked = min(rows.get(name, every) for name in counts)
    return Refusal(place, counts, checked, first[0].words, shown)
