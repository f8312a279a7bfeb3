"""Reader of Stata, SPSS and SAS files: codes with value labels, and user-defined missing values.

Values that the file defines as missing are missing. Labels are kept beside the codes: the schema
decides which of the two is the value (``with_levels``).
"""

from __future__ import annotations

import codecs
import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.frames import shortest
from dpbayes.core.lazy import needed, pd
from dpbayes.records.formats.base import Reading, RecordsRead
from dpbayes.records.formats.source import File, parsed
from dpbayes.records.formats.transport import Transport
from dpbayes.schema import Schema
from dpbayes.schema.draft import Labels
from dpbayes.schema.values import level_text

# Encodings by which ReadStat reads each text by itself. Its decoder is one for the whole file: it
# keeps letters back that a mark may follow (CP1255, CP1258, TCVN), and modes (ISO-2022), until the
# next text, which may be that of another record.
_EACH_BY_ITSELF = {
    *("utf-8", "ascii", "iso8859-1", "cp932", "cp936", "cp949", "cp950", "shift_jis", "euc_jp"),
    *("euc_kr", "gbk", "gb2312", "gb18030", "big5", "koi8-r", "koi8-u", "mac-roman"),
    *(f"iso8859-{k}" for k in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
    *(f"cp{k}" for k in (437, 850, 852, 855, 857, 858, 860, 861, 862, 863, 865, 866, 869, 874)),
    *(f"cp{k}" for k in (1250, 1251, 1252, 1253, 1254, 1256, 1257)),
}
_OF_TEXT = ("encoding", "character set", "convert")  # words in ReadStat's messages about encodings


def read_stata(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read a ``.dta`` file of any version; values .a to .z are missing."""
    return _records_of(*_called("read_dta", file, encoding=reading.encoding))


def read_spss(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read a ``.sav``, ``.zsav`` or ``.por`` file; user-defined missing values are missing."""
    if file.ending == ".por":
        reading.only((), "SPSS portable files")  # they have a character set of their own
        return _records_of(*_called("read_por", file))
    frame, meta = _called("read_sav", file, encoding=reading.encoding)
    _, declared = _called(
        "read_sav", file, encoding=reading.encoding, metadataonly=True, user_missing=True
    )
    for name, ranges in declared.missing_ranges.items():
        labels = meta.variable_value_labels.get(name, {})
        valid_labels = {code: label for code, label in labels.items() if not _inside(code, ranges)}
        meta.variable_value_labels = {**meta.variable_value_labels, name: valid_labels}
    return _records_of(frame, meta)


def read_sas(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read a ``.sas7bdat`` file, with labels from a catalog, or a transport file ``.xpt``."""
    if file.ending == ".xpt":
        if reading.catalog is not None:
            raise DataError(f"{file.where}: a transport file has no catalog; leave it out.")
        layout = Transport.of(file)
        frame, meta = _called("read_xport", file, encoding=reading.encoding)
        if lost := layout.lost(frame, schema):
            pair, _ = _called("read_xport", file, layout.blank, encoding=reading.encoding)
            frame = pd.concat([frame, *[pair.iloc[:1]] * lost], ignore_index=True)
        return _records_of(frame, meta)
    frame, meta = _called("read_sas7bdat", file, encoding=reading.encoding)
    if reading.catalog is not None:
        labels = File.of(Path(reading.catalog))
        _, catalog = _called("read_sas7bcat", labels, encoding=reading.encoding)
        formats = catalog.value_labels
        used = meta.variable_to_label.items()
        meta.variable_value_labels = {
            n: formats[label_set] for n, label_set in used if label_set in formats
        }
    return _records_of(frame, meta)


def _inside(code: Any, ranges: list[dict[str, Any]]) -> bool:
    """True if a code lies in a range that the file defines as missing."""
    return any(isinstance(code, type(r["lo"])) and r["lo"] <= code <= r["hi"] for r in ranges)


def _called(
    function: str, file: File, content: bytes | None = None, **options: Any
) -> tuple[pd.DataFrame, Any]:
    """Records and metadata of a file, or of other content, read by a function of pyreadstat."""
    pyreadstat = needed("pyreadstat", file.where)
    _check_encoding(file, options.get("encoding"))
    opened = file.seekable() if content is None else io.BytesIO(content)
    with opened as stream, parsed(file.where):
        try:
            result: tuple[pd.DataFrame, Any] = getattr(pyreadstat, function)(stream, **options)
        except OverflowError:
            raise DataError(
                f"{file.where} has dates before the year 1 or after 9999, or is damaged."
            ) from None
        except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, UnicodeError) as error:
            # Only ReadStat's own messages are a fixed list; those of pyreadstat repeat values.
            fixed = isinstance(error, pyreadstat.ReadstatError)
            message = str(error).lower() if fixed else ""
            if isinstance(error, UnicodeError) or any(word in message for word in _OF_TEXT):
                raise DataError(
                    f"{file.where}: its text has another encoding than it says, or one that is not "
                    "known; give its `encoding`, such as cp1252 or latin-1."
                ) from None
            reason = message or "it is damaged, or has texts in a column with the format of a date"
            refused = DataError(f"{file.where} cannot be read: {reason}.")
            raise refused.saying("" if fixed else str(error), "The reader") from None
    _check_encoding(file, result[1].file_encoding)
    return result


def _check_encoding(file: File, encoding: str | None) -> None:
    """Raise DataError if by this encoding a text could be read into that of another record."""
    if encoding is None:
        return
    with contextlib.suppress(LookupError):
        if codecs.lookup(encoding).name in _EACH_BY_ITSELF:
            return
    raise DataError(
        f"{file.where}: texts in {encoding!r} are not read, as one of them may change the next. "
        "Save the file in UTF-8; if the file says a wrong encoding, give its `encoding`."
    )


def _records_of(frame: pd.DataFrame, meta: Any) -> RecordsRead:
    """Records with their labels, from a frame and the metadata that pyreadstat gives with it."""
    kinds, labels = meta.readstat_variable_types, {}
    # pyreadstat widens floats of 32 bits: 0.1 would become 0.10000000149.
    single = [n for n, kind in kinds.items() if kind == "float" and frame[n].dtype == np.float64]
    frame = frame.assign(**{name: shortest(frame[name]) for name in single})
    for name, label_of in meta.variable_value_labels.items():
        # In a numeric column, a label of a text belongs to a missing value such as .a.
        text = kinds[name] == "string"
        codes = {c: label for c, label in label_of.items() if text or not isinstance(c, str)}
        if codes:
            labels[name] = codes
    titles = {name: title for name, title in meta.column_names_to_labels.items() if title}
    summary = f"value labels in {len(labels)} of them" if labels else ""
    return RecordsRead(frame, summary, labels, titles)


def with_levels(frame: pd.DataFrame, labels: Labels, schema: Schema | None) -> pd.DataFrame:
    """Replace codes by their labels, unless the schema declares the codes.

    A column that the schema declares as numbers keeps its codes. In a column of levels a code is
    replaced unless it is a declared level and its label is not. Values do not affect the decision.
    """
    changed = {}
    for name, known in labels.items():
        column = None if schema is None else schema.read.get(name)
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
    """True if the schema declares the code as a level, and not its label."""
    return levels is not None and level_text(label) not in levels and level_text(code) in levels
