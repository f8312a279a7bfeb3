"""How records are read from files."""

from __future__ import annotations

import csv
from pathlib import Path

from dpbayes.errors import DataError
from dpbayes.heavy import pd
from dpbayes.schema.columns import MISSING


def read_records(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text columns, without guessing types or renaming duplicate columns.

    Messages repeat nothing of what is in the file: without a header its first line is a record.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream), [])
        if not header:
            raise DataError(f"data file {str(path)!r} is empty.")
        repeated = [str(place) for place, name in enumerate(header, 1) if header.count(name) > 1]
        if repeated:  # pandas would rename them silently
            raise DataError(
                f"data file {str(path)!r}: duplicate column names in its first line, columns "
                f"{', '.join(repeated)}. Rename or drop them."
            )
        # Only an empty field is missing: "NA" can be a level (Namibia), and NaN is not a number.
        return pd.read_csv(
            path,
            dtype=str,
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values=list(MISSING),
        )
    except FileNotFoundError:
        raise DataError(f"data file {str(path)!r} does not exist.") from None
    except OSError as error:
        raise DataError(f"data file {str(path)!r}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"data file {str(path)!r} is not UTF-8 text: byte {error.start}.") from None
    except pd.errors.ParserError as error:
        raise DataError(f"data file {str(path)!r} is not a regular CSV file: {error}.") from None
