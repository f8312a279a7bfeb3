"""Checks of column names, for all formats, and the form of table names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dpbayes.core.errors import DataError, listed
from dpbayes.schema import Schema

TABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")  # name of a table in a database
MOST_COLUMNS = 50_000
SHOWN = 5  # columns without a name, in a message
NO_SELECT = "`query` must be a SELECT, or a table's name."


def may_be_empty(schema: Schema | None) -> bool:
    """True if a record may have no value at all, as every declared column may be missing."""
    return schema is not None and all(column.optional for column in schema.read.values())


def check_ends(where: str, schema: Schema | None) -> None:
    """Raise DataError if records may be empty, for formats that lose empty records at the end.

    Only the schema decides: the outcome must not depend on whether the last record is empty.
    """
    if may_be_empty(schema):
        raise DataError(
            f"{where}: every column of the schema may be missing, and a last record without any "
            "value leaves no trace in such a file: n would tell of it. Save the records as CSV."
        )


def check_names(where: str, names: Sequence[str], place: str) -> None:
    """Raise DataError if columns share a name or lack one, or are too many. No name is repeated.

    Args:
        where: the file, for the message.
        names: names of the columns.
        place: where the file has the names, for the message.
    """
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{where}: {len(names):,} columns; at most {MOST_COLUMNS:,} are read.")
    counts = Counter(names)
    repeated = [str(at) for at, name in enumerate(names, 1) if name and counts[name] > 1]
    if repeated:  # pandas would rename them silently
        raise DataError(
            f"{where}: duplicate column names in {place}, columns {listed(repeated, SHOWN)}. "
            "Rename or drop them."
        )
    blank = [str(at) for at, name in enumerate(names, 1) if not name]
    if len(blank) > 1:  # R and pandas leave one blank, above the row names
        raise DataError(
            f"{where}: no column names in {place} for columns {listed(blank, SHOWN)}. "
            "Write one above "
            "each column, in one row, with no title above it and no merged cells."
        )
