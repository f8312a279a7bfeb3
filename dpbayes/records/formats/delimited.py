"""Delimited text, with detection of separator, encoding and decimal mark.

The separator is the one with which the header has most declared names, then most names; a space is
taken only for declared names. The encoding follows from a byte order mark, is UTF-8, or is given as
an option: no byte of a record decides how the others are read. A decimal comma is assumed if the
numbers can be read in no other way; an ambiguous file is refused until the mark is given. Records
that are read after a wrong guess fit no schema.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import importlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TextIO

from dpbayes.core.checks import expect
from dpbayes.core.errors import DataError, refused
from dpbayes.core.lazy import pd
from dpbayes.records.chunks import Part
from dpbayes.records.formats.base import FoundParts, Reading, RecordsRead, Size
from dpbayes.records.formats.names import check_names, may_be_empty
from dpbayes.records.formats.source import File
from dpbayes.schema import Schema
from dpbayes.schema.values import NO_FIELD

LONGEST = 2**22  # characters of the header line
BLOCK = 2**20  # characters read at once
MOST_FIELD = 2**31 - 1  # characters of a field: a long note in an undeclared column stops no file
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
TITLES = {"utf-8-sig": "UTF-8", "cp1252": "Windows-1252"}
Numeric = dict[str, list[str]]  # numeric columns, each with its codes of missing values
_ESCAPES = (
    *(b"+AAo-1", b"1\\n1", b"1\\x0a1", b"1\\u000a1", b"~\n1", b"\x1b$B0!\n\x1b(B", b"\x0e0\n\x0f"),
)
_MODES = (  # begun and not ended
    *(b"\x1b$B", b"\x1b$@", b"\x1b(I", b"\x1b(J", b"\x1b$)C\x0e", b"\x1b$)A\x0e", b"\x0e"),
    b"~{",
)
_MARKS = {  # longer ones first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_TOLD = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)  # a first line for Excel
_COMMA = r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*"
_POINT = r"\s*[+-]?\d*\.\d+(?:[eE][+-]?\d+)?\s*"
_THOUSANDS = r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*"


@dataclass(frozen=True)
class FileLayout:
    """Layout of a CSV file.

    Attributes:
        encoding: name of a Python codec.
        skipped: number of lines before the header, 0 or 1.
        separator: separator of fields, one character.
        header: names of the columns.
        rows: number of records, known after a pass over the file.
    """

    encoding: str
    skipped: int
    separator: str
    header: list[str]
    rows: int = 0

    @contextlib.contextmanager
    def text(self, file: File) -> Iterator[TextIO]:
        """Open the file as text, from its header on."""
        with _text(file, self.encoding) as stream:
            for _ in range(self.skipped):
                stream.readline()
            yield stream


def read(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read all columns as text, without guessing types. Messages repeat no content of the file.

    Raises:
        DataError: an empty file, an encoding that does not fit, duplicate names of columns, a row
            with more or fewer fields than the header, an empty line between records of several
            columns, decimal marks that do not agree.
    """
    layout = _regular(file, reading, schema)
    marks = Marks(file.where, reading, layout)
    (frame,) = _frames(file, layout, None)
    numeric = _numeric(frame, schema) if marks.sought else {}
    marks.see(frame, numeric)
    decimal = marks.decided()
    return RecordsRead(frame if decimal == "." else pointed(frame, numeric), _said(layout, decimal))


def parts(file: File, reading: Reading, schema: Schema, size: Size) -> FoundParts:
    """Read a file in chunks, after a pass that detects its layout and finds its errors.

    Raises:
        DataError: as ``read``.
    """
    layout = _regular(file, reading, schema)
    marks = Marks(file.where, reading, layout)
    if marks.sought:
        for frame in _frames(file, layout, size.rows):
            marks.see(frame, _numeric(frame, schema))
    decimal = marks.decided()

    def read_again() -> Iterator[Part]:
        for frame in _frames(file, layout, size.rows):
            yield TextChunk(frame if decimal == "." else pointed(frame, _numeric(frame, schema)))

    return FoundParts(read_again, layout.header, _said(layout, decimal))


class TextChunk:
    """Chunk that was read; its representation shows no values."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __call__(self) -> pd.DataFrame:
        return self._frame


def _said(layout: FileLayout, decimal: str) -> str:
    mark = SEPARATORS.get(layout.separator, repr(layout.separator))
    if len(layout.header) == 1 and " " in layout.header[0]:
        mark += " (one column: if spaces separate fields, `separator=space`)"
    text = TITLES.get(layout.encoding, layout.encoding)
    return f"separator {mark}, decimal mark {decimal!r}, {text}"


def _regular(file: File, how: Reading, schema: Schema | None) -> FileLayout:
    """Layout of a file, after a check of its encoding and of the number of fields of each row.

    Raises:
        DataError: as ``read``.
    """
    encoding = _encoding(file, how)
    unread = f"{file.where} cannot be read as {encoding} text"
    with contextlib.suppress(UnicodeError), refused(DataError, unread, but=UnicodeError):
        return _checked(file, encoding, how, schema)
    title = how.encoding or TITLES.get(encoding, encoding)
    raise DataError(
        f"{file.where} is not {title} text; give its `encoding`, such as cp1252 (older files of "
        "Windows) or latin-1. If it is no text, name its format by the ending or `input_format`."
    )


def _encoding(file: File, how: Reading) -> str:
    """Encoding as given or as a byte order mark says, else UTF-8; no record affects it."""
    if how.encoding is not None:
        expect(how.encoding, str, "`encoding`", "a name such as utf-8", DataError)
        try:
            name = codecs.lookup(how.encoding).name
            "".encode(name)  # fails for codecs that do not encode text
            keeps = _keeps_lines(name)
        except (LookupError, ValueError):
            raise DataError(
                f"encoding = {how.encoding!r} is not known; examples: utf-8, latin-1, cp1252, "
                "cp850, utf-16, shift_jis."
            ) from None
        if not keeps:
            raise DataError(
                f"encoding = {how.encoding!r}: a line can change how the next is read, or become "
                "several. Save the file in UTF-8."
            )
        return "utf-8-sig" if name == "utf-8" else name
    with file.opened() as stream:
        start = stream.read(4)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    return "utf-8-sig"


def _keeps_lines(encoding: str) -> bool:
    """True if decoding neither creates nor removes line ends, and no line changes the next.

    This holds if each byte is a character, or if decoding samples of escape sequences preserves
    their line ends, and the line after each of them.
    """
    name = encoding.replace("-", "_")
    if name.startswith(("utf_16", "utf_32")):
        return True
    with contextlib.suppress(ImportError):
        if hasattr(importlib.import_module(f"encodings.{name}"), "decoding_table"):
            return True
    kept = (line.decode(encoding, "replace").count("\n") == line.count(b"\n") for line in _ESCAPES)
    after = ((mode + b"\n0!").decode(encoding, "replace") for mode in _MODES)
    return all(kept) and all(text.endswith("\n0!") for text in after)


@contextlib.contextmanager
def _text(file: File, encoding: str) -> Iterator[TextIO]:
    with file.opened() as stream:
        yield io.TextIOWrapper(stream, encoding=encoding, newline="")


def _checked(file: File, encoding: str, how: Reading, schema: Schema | None) -> FileLayout:
    reader, limit = None, csv.field_size_limit(MOST_FIELD)
    try:
        layout = _layout(file, encoding, how, schema)
        with layout.text(file) as stream:
            # Strict: text after a closing quotation mark is an error.
            reader = csv.reader(stream, delimiter=layout.separator, strict=True)
            return replace(layout, rows=_counted(file, reader, layout, schema))
    except csv.Error as error:
        line = 1 if reader is None else reader.line_num
        raise DataError(f"{file.where} is not a regular CSV file: line {line}: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _counted(file: File, reader: Any, layout: FileLayout, schema: Schema | None) -> int:
    """Number of records, from a ``csv`` reader that has not read the header yet.

    A record whose values are all missing must count: if n is public, dropping it would reveal that
    they are missing. In a file of one column its line is empty, so each line is a record. In a file
    of several columns it has separators: an empty line is no record, and is ignored only at the
    end of the file.
    """
    names = next(reader)
    width = len(names)
    rows = first_empty = 0
    line = reader.line_num + layout.skipped
    declared = () if schema is None else schema.read
    if any(_breaks(name) and name.strip() not in declared for name in names):
        raise DataError(
            f"{file.where}: a name in its first line goes over several lines and is no declared "
            "column. If it begins with a stray quotation mark, it holds records. Mend the mark, or "
            "rename the column."
        )
    for row in reader:
        before, line = line, reader.line_num + layout.skipped
        if line > before + 1:
            _check_breaks(file, layout, schema, row, before + 1)
        if not row and width > 1:
            first_empty = first_empty or line
            continue
        if first_empty:
            _refuse_empty_line(file, first_empty)
        fields = max(1, len(row))
        # pandas would take a surplus first field for a row name, and shift the others.
        if fields != width:
            raise DataError(
                f"{file.where} is not a regular CSV file: line {line} has {fields} fields, the "
                f"header has {width}" + ("." if width > 1 else "; give its `separator`.")
            )
        rows += 1
    if first_empty and may_be_empty(schema):
        _refuse_empty_line(file, first_empty)
    if width == 1 and may_be_empty(schema):
        _check_last_line(file, layout)
    return rows


def _check_last_line(file: File, layout: FileLayout) -> None:
    """Raise DataError if the last line has no line end.

    In a file written like that, an empty last record would leave no trace.
    """
    last = ""
    with layout.text(file) as stream:
        for block in iter(lambda: stream.read(BLOCK), ""):
            last = block[-1]
    if last not in ("\n", "\r"):
        raise DataError(
            f"{file.where}: its last line has no end. A last record without a value would leave no "
            "trace in a file of one column that is written so: end every line."
        )


def _check_breaks(
    file: File, layout: FileLayout, schema: Schema | None, row: Sequence[str], line: int
) -> None:
    """Raise DataError if a field spans several lines and is not a declared level.

    A field that begins with a stray quotation mark holds all records up to the next such mark.
    Without a schema no level is declared.
    """
    columns = {} if schema is None else schema.read
    for number, (name, field) in enumerate(zip(layout.header, row, strict=False), start=1):
        column = columns.get(name.strip())
        if _breaks(field) and (column is None or field not in column.levels):
            # Without a row of names, what stands in its place is a record.
            named = number if column is None else repr(name.strip())
            raise DataError(
                f"{file.where}: line {line}: a field of column {named} goes over several lines "
                "and is no declared level. If it begins with a stray quotation mark, it holds "
                "other records. Leave the column out of the file, or mend the mark; give the "
                "schema if it declares such a level."
            )


def _breaks(field: str) -> bool:
    return "\n" in field or "\r" in field


def _refuse_empty_line(file: File, line: int) -> NoReturn:
    raise DataError(
        f"{file.where}: line {line} is empty. If it is a record without any value, write its "
        "separators; if it is none, remove the line."
    )


def _layout(file: File, encoding: str, how: Reading, schema: Schema | None) -> FileLayout:
    with _text(file, encoding) as stream:
        first = stream.readline(LONGEST)
    if len(first) == LONGEST:
        raise DataError(f"{file.where}: its first line has {LONGEST:,} characters or more.")
    sep_line = _TOLD.fullmatch(first)
    separator = _separator(how.separator) or (sep_line.group(1) if sep_line else None)
    declared = set() if schema is None else set(schema.read)
    best = FileLayout(encoding, int(bool(sep_line)), separator or ",", [])
    score = (-1, -1)
    failure = None
    for candidate in [separator] if separator else [*SEPARATORS, " "]:
        layout = FileLayout(encoding, best.skipped, candidate, [])
        try:
            with layout.text(file) as stream:
                header = next(csv.reader(stream, delimiter=candidate), [])
        except csv.Error as error:
            failure = failure or error
            continue
        fields = len(header) if candidate in SEPARATORS or separator else 0  # " " if declared
        candidate_score = (len(declared.intersection(name.strip() for name in header)), fields)
        if candidate_score > score:
            best, score = FileLayout(encoding, best.skipped, candidate, header), candidate_score
    if failure is not None and len(best.header) < 2:
        raise failure
    if not best.header:
        raise DataError(f"{file.where} is empty.")
    if any("\0" in name for name in best.header):
        raise DataError(
            f'{file.where} is not text: it has zero bytes. If it is UTF-16: `encoding="utf-16"`.'
        )
    check_names(file.where, best.header, "its first line")
    return best


def _separator(option: str | None) -> str | None:
    if option is None:
        return None
    names = {"tab": "\t", r"\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    separator = names.get(option, option)
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0':
        raise DataError(f"separator = {option!r:.40} must be one ASCII character, or tab.")
    return separator


def _frames(file: File, layout: FileLayout, rows: int | None) -> Iterator[pd.DataFrame]:
    """Read a checked file in frames of at most ``rows`` rows, or in one if it is None."""
    try:
        with layout.text(file) as stream, _reader(stream, layout) as reader:
            read = 0
            frame = _next(reader, rows)
            while frame is not None:
                read += len(frame)
                yield frame
                frame = None if rows is None else _next(reader, rows)
        if read != layout.rows:  # pandas and csv do not agree on where records end
            raise DataError(f"{file.where} is not a regular CSV file: its lines do not end alike.")
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{file.where} is not a regular CSV file: {error}.") from None


def _reader(stream: TextIO, layout: FileLayout) -> Any:
    # "NA" is left as text: the schema may declare it as a level. "NaN" is always missing.
    return pd.read_csv(
        stream,
        sep=layout.separator,
        dtype=str,
        names=layout.header,
        header=0,
        index_col=False,
        keep_default_na=False,
        na_values=list(NO_FIELD),
        skip_blank_lines=len(layout.header) > 1,  # in a file of one column they are records
        iterator=True,
    )


def _next(reader: Any, rows: int | None) -> pd.DataFrame | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame: pd.DataFrame = reader.read(rows)
        except StopIteration:
            return None
    return frame


class Marks:
    """Detection of the decimal mark of a file, from the numbers in its chunks.

    If a comma separates fields, a decimal comma must be given as an option.
    """

    def __init__(self, where: str, reading: Reading, layout: FileLayout) -> None:
        if reading.decimal not in (None, ".", ","):
            raise DataError(f"decimal = {reading.decimal!r} must be . or ,.")
        self._where, self._told, self._header = where, reading.decimal, layout.header
        self.sought = reading.decimal == "," or (
            reading.decimal is None and layout.separator != ","
        )
        self._commas: set[str] = set()
        self._points: set[str] = set()
        self._clear = False  # some comma cannot be a thousands separator

    def see(self, frame: pd.DataFrame, numeric: Numeric) -> None:
        """Record the marks in some rows of the numeric columns."""
        for name, codes in numeric.items():
            fields = frame[name][~frame[name].isin(codes)]
            commas = fields.str.fullmatch(_COMMA, na=False)
            if commas.any():
                self._commas.add(name)
                self._clear |= bool((commas & ~fields.str.fullmatch(_THOUSANDS, na=False)).any())
            if fields.str.fullmatch(_POINT, na=False).any():
                self._points.add(name)

    def decided(self) -> str:
        """Decimal mark; DataError if marks are mixed or may be thousands separators."""
        if not self.sought or (self._told is None and not self._commas):
            return "."
        if mixed := [name for name in self._header if name in self._points]:
            raise DataError(
                f"{self._where}: numbers with a comma, and in column "
                f"{self._header.index(mixed[0]) + 1} with a point. Write all with one decimal "
                "mark, and without marks of thousands."
            )
        if self._told is None and not self._clear:
            raise DataError(
                f"{self._where}: every comma in a number has three digits behind it: decimal mark, "
                'or mark of thousands? Say `decimal=","` in the first case; remove them in the '
                "second."
            )
        return ","


def pointed(frame: pd.DataFrame, numeric: Numeric) -> pd.DataFrame:
    """Replace decimal commas of numeric columns by points."""
    changed = {}
    for name, codes in numeric.items():
        with_comma = frame[name].str.fullmatch(_COMMA, na=False) & ~frame[name].isin(codes)
        if with_comma.any():
            points = frame[name].str.replace(",", ".", regex=False)
            changed[name] = frame[name].where(~with_comma, points)
    return frame.assign(**changed)


def _numeric(frame: pd.DataFrame, schema: Schema | None) -> Numeric:
    """Numeric columns: as the schema declares them, or by their content without a schema."""
    if schema is not None:
        numbers = {
            name: list(column.missing)
            for name, column in schema.read.items()
            if column.calendar is None
            and not any(isinstance(level, str) for level in column.levels)
        }
        return {name: numbers[name] for name in map(str, frame) if name in numbers}
    number = rf"{_COMMA}|{_POINT}|\s*[+-]?\d+\s*"
    looks = [name for name in map(str, frame) if frame[name].dropna().str.fullmatch(number).all()]
    return {name: [] for name in looks}
