"""How large a data set's file can become, from public facts alone.

Space is taken on the disk before a release is paid for, so that a full disk costs nothing. The size
of a file must then say nothing about its values: anybody may see it, and the entry can still be
given back.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpbayes.schema import Column

NUMBER = 25  # bytes of the longest text of a 64-bit number, with some to spare
NAME = 20  # bytes that a directive of a format becomes at most, for each of its own
LINE_END = 2


def room(columns: Iterable[Column], rows: int) -> int:
    """Bytes that a CSV file with these columns has at most."""
    widths = [(_quoted(column.name), width(column)) for column in columns]
    header = sum(name + 1 for name, _ in widths) + LINE_END
    return header + rows * (sum(cell + 1 for _, cell in widths) + LINE_END)


def width(column: Column) -> int:
    """Bytes of the widest declared value."""
    if column.levels:
        return max(_quoted(str(level)) for level in column.levels)
    if column.format is not None:  # a name of a month, and the rest of it as it stands
        return NAME * len(column.format.encode()) + 2
    return NUMBER


def _quoted(text: str) -> int:
    """Bytes of a text in quotes, those inside doubled."""
    return len(text.encode()) + text.count('"') + 2
