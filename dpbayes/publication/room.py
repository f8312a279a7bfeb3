"""Upper bound on the size of a data set's file, from public facts alone.

Disk space is allocated before a release is paid for, so that a full disk costs nothing. The size
of a file must then not depend on its values: anybody may see it, and the cost can still be given
back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from dpbayes.records.formats.catalog import CSV
from dpbayes.schema import Column

NUMBER = 25  # bytes: the longest text of a 64-bit number, with a margin
DRAW = 15  # bytes of a number of a posterior draw, which has eight digits
HEAD = 256  # bytes of the name of such a number, besides those of columns and levels in it
PAIR = 48  # bytes around the two names of a pair of columns in guarantee.json
LISTED = 24  # bytes around a column or a level in a list of guarantee.json
NAME = 20  # bytes of a formatted date for each byte of its format, at most
LINE_END = 2
COLUMN = 4096  # bytes of metadata on a column in binary formats
AROUND = 65536  # bytes of metadata on a file in binary formats


def room(columns: Iterable[Column], rows: int, file_format: str = CSV) -> int:
    """Largest size in bytes of a file with these columns.

    In binary formats a value takes fewer bytes than as text; they add metadata on each column, such
    as its label and levels.
    """
    columns = list(columns)
    around = 0 if file_format == CSV else AROUND + sum(map(_noted, columns))
    widths = [(_quoted(column.name), width(column)) for column in columns]
    header = sum(name + 1 for name, _ in widths) + LINE_END
    return around + header + rows * (sum(cell + 1 for _, cell in widths) + LINE_END)


def room_of_posterior(draws: int, numbers: int, columns: Iterable[Column]) -> int:
    """Largest size in bytes of a file of posterior draws, each of so many numbers.

    Args:
        columns: those of the model, whose names and levels are in the names of the numbers.
    """
    if not draws:
        return 0
    named = sum(_quoted(c.name) + max(map(_level, c.levels), default=0) for c in columns)
    return numbers * (HEAD + named) + draws * ((numbers + 2) * (DRAW + 1) + LINE_END)


def room_of_pairs(columns: Sequence[Column]) -> int:
    """Largest size in bytes of a list of pairs of columns, as it is in guarantee.json."""
    others = len(columns) - 1
    names = sum(len(json.dumps(c.name, ensure_ascii=False).encode()) for c in columns)
    return others * names + PAIR * len(columns) * others // 2


def room_of_levels(columns: Iterable[Column]) -> int:
    """Largest size in bytes of lists of levels of columns, as they are in guarantee.json."""
    texts = [text for c in columns if c.levels for text in (c.name, *map(str, c.levels))]
    return sum(LISTED + len(json.dumps(text, ensure_ascii=False).encode()) for text in texts)


def width(column: Column) -> int:
    """Bytes of the widest value of a column, as text."""
    if column.levels:
        return max(map(_level, column.levels))
    if column.format is not None:  # directives such as the name of a month; other characters stay
        return NAME * len(column.format.encode()) + 2
    return NUMBER


def _noted(column: Column) -> int:
    levels = sum(NUMBER + _level(level) for level in column.levels)
    return COLUMN + 2 * (_quoted(column.label or "") + levels)


def _level(level: object) -> int:
    return _quoted(str(level))


def _quoted(text: str) -> int:
    """Bytes of a text in quotation marks, with those inside doubled."""
    return len(text.encode()) + text.count('"') + 2
