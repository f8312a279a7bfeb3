"""How large a data set's file can become, from public facts alone.

Space is taken on the disk before a release is paid for, so that a full disk costs nothing. The size
of a file must then say nothing about its values: anybody may see it, and the entry can still be
given back.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpbayes.records.formats.catalog import CSV
from dpbayes.schema import Column

NUMBER = 25  # bytes of the longest text of a 64-bit number, with some to spare
NAME = 20  # bytes that a directive of a format becomes at most, for each of its own
LINE_END = 2
COLUMN = 4096  # bytes that other formats note of a column
AROUND = 65536  # and of a file


def room(columns: Iterable[Column], rows: int, file_format: str = CSV) -> int:
    """Bytes that a file with these columns has at most.

    A value takes fewer bytes in the other formats than as text; around the values they have what
    they note of each column, its label and levels among it.
    """
    columns = list(columns)
    around = 0 if file_format == CSV else AROUND + sum(map(_noted, columns))
    widths = [(_quoted(column.name), width(column)) for column in columns]
    header = sum(name + 1 for name, _ in widths) + LINE_END
    return around + header + rows * (sum(cell + 1 for _, cell in widths) + LINE_END)


def width(column: Column) -> int:
    """Bytes of the widest declared value."""
    if column.levels:
        return max(_quoted(str(level)) for level in column.levels)
    if column.format is not None:  # a name of a month, and the rest of it as it stands
        return NAME * len(column.format.encode()) + 2
    return NUMBER


def _noted(column: Column) -> int:
    levels = sum(NUMBER + _quoted(str(level)) for level in column.levels)
    return COLUMN + 2 * (_quoted(column.label or "") + levels)


def _quoted(text: str) -> int:
    """Bytes of a text in quotes, those inside doubled."""
    return len(text.encode()) + text.count('"') + 2
