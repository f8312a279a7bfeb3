"""Names of columns, as any format may have them, and of tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dpbayes.errors import DataError

TABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")  # of a database
NO_SELECT = "query (--query) must be a SELECT, or a table's name."


def check_names(where: str, names: Sequence[str], place: str) -> None:
    """Raise DataError if two columns have one name; it is not repeated.

    Args:
        where: the file.
        place: of the names in it.
    """
    counts = Counter(names)
    repeated = [str(at) for at, name in enumerate(names, 1) if name and counts[name] > 1]
    if repeated:  # pandas would rename them silently
        raise DataError(
            f"{where}: duplicate column names in {place}, columns {', '.join(repeated)}. "
            "Rename or drop them."
        )
    blank = [str(at) for at, name in enumerate(names, 1) if not name]
    if len(blank) > 1:  # one is what R and pandas put above row names
        raise DataError(
            f"{where}: no column names in {place} for columns {', '.join(blank)}. Write one above "
            "each column, in one row, with no title above it and no merged cells."
        )
