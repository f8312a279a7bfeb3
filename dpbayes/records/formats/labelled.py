"""Stata, SPSS and SAS: codes with labels, and missing values with a reason.

What the file calls missing is missing. Its labels are held beside the codes: which of the two a
value is follows from the schema (``with_levels``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.frames import shortest
from dpbayes.core.lazy import needed, pd
from dpbayes.records.formats.base import Reading, RecordsRead
from dpbayes.records.formats.source import File, parsed
from dpbayes.records.formats.transport import check_transport
from dpbayes.schema import Schema
from dpbayes.schema.draft import Labels
from dpbayes.schema.values import level_text

_OF_TEXT = ("encoding", "character set", "convert")  # what ReadStat says then


def read_stata(file: File, how: Reading, schema: Schema | None) -> RecordsRead:
    """``.dta`` of any version; values .a to .z are missing."""
    return _found(*_called("read_dta", file, encoding=how.encoding))


def read_spss(file: File, how: Reading, schema: Schema | None) -> RecordsRead:
    """``.sav``, ``.zsav``, ``.por``; what users declared missing is."""
    if file.ending == ".por":
        how.only((), "SPSS portable files")  # an alphabet of their own
        return _found(*_called("read_por", file))
    frame, meta = _called("read_sav", file, encoding=how.encoding)
    _, declared = _called(
        "read_sav", file, encoding=how.encoding, metadataonly=True, user_missing=True
    )
    for name, ranges in declared.missing_ranges.items():
        labels = meta.variable_value_labels.get(name, {})
        kept = {code: label for code, label in labels.items() if not _inside(code, ranges)}
        meta.variable_value_labels = {**meta.variable_value_labels, name: kept}
    return _found(frame, meta)


def read_sas(file: File, how: Reading, schema: Schema | None) -> RecordsRead:
    """``.sas7bdat``, with labels from a catalog, and transport files ``.xpt``."""
    if file.ending == ".xpt":
        check_transport(file, schema)
        return _found(*_called("read_xport", file, encoding=how.encoding))
    frame, meta = _called("read_sas7bdat", file, encoding=how.encoding)
    if how.catalog is not None:
        labels = File.of(Path(how.catalog))
        _, catalog = _called("read_sas7bcat", labels, encoding=how.encoding)
        formats = catalog.value_labels
        used = meta.variable_to_label.items()
        meta.variable_value_labels = {n: formats[one] for n, one in used if one in formats}
    return _found(frame, meta)


def _inside(code: Any, ranges: list[dict[str, Any]]) -> bool:
    """It is of a kind that the file declares missing."""
    return any(isinstance(code, type(r["lo"])) and r["lo"] <= code <= r["hi"] for r in ranges)


def _called(function: str, file: File, **options: Any) -> tuple[pd.DataFrame, Any]:
    """Records and metadata, by a function of pyreadstat."""
    pyreadstat = needed("pyreadstat", file.where)
    with file.seekable() as stream, parsed(file.where):
        try:
            found: tuple[pd.DataFrame, Any] = getattr(pyreadstat, function)(stream, **options)
        except OverflowError:
            raise DataError(
                f"{file.where} has dates before the year 1 or after 9999, or is damaged."
            ) from None
        except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, UnicodeError) as error:
            said = str(error).lower()
            if isinstance(error, UnicodeError) or any(word in said for word in _OF_TEXT):
                raise DataError(
                    f"{file.where}: its text has another encoding than it says, or one that is not "
                    "known; give --encoding, such as cp1252 or latin-1."
                ) from None
            raise DataError(f"{file.where} cannot be read: {said or 'it is damaged'}.") from None
    return found


def _found(frame: pd.DataFrame, meta: Any) -> RecordsRead:
    single = [n for n, kind in meta.readstat_variable_types.items() if kind == "float"]
    floats = [n for n in single if frame[n].dtype == np.float64]
    frame = frame.assign(**{name: shortest(frame[name]) for name in floats})
    kinds, labels = meta.readstat_variable_types, {}
    for name, known in meta.variable_value_labels.items():
        # A text that a column of numbers has a label for is a kind of missing value, as .a is.
        text = kinds[name] == "string"
        codes = {code: label for code, label in known.items() if text or not isinstance(code, str)}
        if codes:
            labels[name] = codes
    titles = {name: title for name, title in meta.column_names_to_labels.items() if title}
    said = f"value labels in {len(labels)} of them" if labels else ""
    return RecordsRead(frame, said, labels, titles)


def with_levels(frame: pd.DataFrame, labels: Labels, schema: Schema | None) -> pd.DataFrame:
    """Labels in the place of codes.

    A column that the schema declares as numbers keeps its codes, and a column of levels has labels
    but where a code is a level itself and its label is none. Nothing of this depends on values.
    """
    changed = {}
    for name, known in labels.items():
        column = None if schema is None else schema.columns.get(name)
        if column is not None and not column.levels:
            continue
        levels = None if column is None else set(map(level_text, column.levels))
        texts = {
            code: label
            for code, label in known.items()
            if str(label).strip() and not _is_code(code, label, levels)
        }
        values = frame[name].astype(object)
        changed[name] = values.map(lambda value, texts=texts: texts.get(value, value))
    return frame.assign(**changed)


def _is_code(code: Any, label: str, levels: set[str] | None) -> bool:
    """The schema declares the code as a level, and not its label."""
    return levels is not None and level_text(label) not in levels and level_text(code) in levels
