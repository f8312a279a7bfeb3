"""How records are read from files."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from pathlib import Path

from dpbayes.errors import DataError
from dpbayes.heavy import pd
from dpbayes.schema.columns import MISSING


def read_records(path: str | Path) -> pd.DataFrame:
    """Read a CSV file as text columns, without guessing types or renaming duplicate columns.

    Messages repeat nothing of what is in the file: without a header its first line is a record.

    Raises:
        DataError: no file, not UTF-8, an empty one, duplicate names of columns, or a row with
            more or fewer fields than the header.
    """
    where = f"data file {str(path)!r}"
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            if not header:
                raise DataError(f"{where} is empty.")
            _check_names(where, header)
            # pandas would take a first field too many for the rows' names, and shift the others.
            for row in reader:
                if row and len(row) != len(header):
                    raise DataError(
                        f"{where} is not a regular CSV file: line {reader.line_num} has "
                        f"{len(row)} fields, the header has {len(header)}."
                    )
        return _read_checked(path, header)
    except FileNotFoundError:
        raise DataError(f"{where} does not exist.") from None
    except OSError as error:
        raise DataError(f"{where}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 text: byte {error.start}.") from None
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise DataError(
            f"{where} is not a regular CSV file: line {reader.line_num}: {error}."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{where} is not a regular CSV file: {error}.") from None


def _check_names(where: str, header: list[str]) -> None:
    counts = Counter(header)
    repeated = [str(place) for place, name in enumerate(header, 1) if counts[name] > 1]
    if repeated:  # pandas would rename them silently
        raise DataError(
            f"{where}: duplicate column names in its first line, columns {', '.join(repeated)}. "
            "Rename or drop them."
        )


def _read_checked(path: str | Path, header: list[str]) -> pd.DataFrame:
    """A file whose rows have as many fields as the header."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Only an empty field is missing: "NA" can be a level (Namibia), and NaN is not a number.
        return pd.read_csv(
            path,
            dtype=str,
            names=header,
            header=0,
            index_col=False,
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values=list(MISSING),
        )
