"""CSV and its kin: what was not told is recognised, from the header where that is possible.

Separator: the one that finds most declared names in the header, then most names; a space by the
former only. Encoding: a byte order mark, or UTF-8, or Windows-1252. A decimal comma is taken where
numbers can be read in no other way; where they can, the file is refused until it is told. A wrong
guess fits no schema.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from dpbayes.errors import DataError
from dpbayes.formats.base import Found, Reading
from dpbayes.formats.names import check_names
from dpbayes.formats.source import File
from dpbayes.heavy import pd
from dpbayes.schema import Schema
from dpbayes.schema.values import NO_FIELD

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
_MARKS = {  # longer ones first: that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_TOLD = re.compile(r'"?sep=(.)"?\r?\n?', re.IGNORECASE)  # a first line that Excel understands
_COMMA = r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*"
_POINT = r"\s*[+-]?\d*\.\d+(?:[eE][+-]?\d+)?\s*"
_THOUSANDS = r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*"


@dataclass(frozen=True)
class Layout:
    """What a CSV file looks like.

    Attributes:
        encoding: a codec's name.
        skipped: lines before the header, 0 or 1.
        separator: one character.
        header: names of the columns.
    """

    encoding: str
    skipped: int
    separator: str
    header: list[str]

    @contextlib.contextmanager
    def text(self, file: File) -> Iterator[TextIO]:
        """The file from its header on."""
        with _text(file, self.encoding) as stream:
            for _ in range(self.skipped):
                stream.readline()
            yield stream


def read(file: File, how: Reading, schema: Schema | None) -> Found:
    """Text columns, no types guessed. Messages repeat nothing of what is in the file.

    Raises:
        DataError: an empty file, an encoding that does not fit, duplicate names of columns, a row
            with more or fewer fields than the header, decimal marks that do not agree.
    """
    for encoding in _encodings(file, how):
        try:
            frame, layout = _read(file, encoding, how, schema)
        except UnicodeDecodeError:
            continue
        frame, decimal = with_points(file.where, frame, layout.separator, how, schema)
        mark = SEPARATORS.get(layout.separator, repr(layout.separator))
        if len(layout.header) == 1 and " " in layout.header[0]:
            mark += " (one column: if spaces separate fields, --separator space)"
        text = {"utf-8-sig": "UTF-8", "cp1252": "Windows-1252"}.get(encoding, encoding)
        return Found(frame, f"separator {mark}, decimal mark {decimal!r}, {text}")
    if how.encoding is not None:
        raise DataError(f"{file.where} is not {how.encoding} text; give another --encoding.")
    raise DataError(
        f"{file.where} is neither UTF-8 nor Windows-1252 text. If it is text, give its --encoding; "
        "if not, name its format by the ending or --input-format."
    )


def _encodings(file: File, how: Reading) -> list[str]:
    """Those to try."""
    if how.encoding is not None:
        try:
            name = codecs.lookup(how.encoding).name
            "".encode(name)  # some are no encodings of text
        except (LookupError, ValueError):
            raise DataError(
                f"encoding = {how.encoding!r} is not known; examples: utf-8, latin-1, cp1252, "
                "cp850, utf-16, shift_jis."
            ) from None
        return ["utf-8-sig" if name == "utf-8" else name]
    with file.opened() as stream:
        start = stream.read(4)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return [name]
    return ["utf-8-sig", "cp1252"]


@contextlib.contextmanager
def _text(file: File, encoding: str) -> Iterator[TextIO]:
    with file.opened() as stream:
        yield io.TextIOWrapper(stream, encoding=encoding, newline="")


def _read(
    file: File, encoding: str, how: Reading, schema: Schema | None
) -> tuple[pd.DataFrame, Layout]:
    reader = None
    try:
        layout = _layout(file, encoding, how, schema)
        with layout.text(file) as stream:
            reader = csv.reader(stream, delimiter=layout.separator)
            header = next(reader)
            # pandas would take a first field too many for the rows' names, and shift the others.
            for row in reader:
                if row and len(row) != len(header):
                    line = reader.line_num + layout.skipped
                    raise DataError(
                        f"{file.where} is not a regular CSV file: line {line} has {len(row)} "
                        f"fields, the header has {len(header)}"
                        + ("." if len(header) > 1 else "; give its --separator.")
                    )
        return _parse(file, layout), layout
    except csv.Error as error:  # such as a field of more than 131,072 characters
        line = 1 if reader is None else reader.line_num
        raise DataError(f"{file.where} is not a regular CSV file: line {line}: {error}.") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{file.where} is not a regular CSV file: {error}.") from None


def _layout(file: File, encoding: str, how: Reading, schema: Schema | None) -> Layout:
    with _text(file, encoding) as stream:
        first = stream.readline()
    told = _TOLD.fullmatch(first)
    separator = _separator(how.separator) or (told.group(1) if told else None)
    declared = set() if schema is None else set(schema.columns)
    best = Layout(encoding, int(bool(told)), separator or ",", [])
    score = (-1, -1)
    failure = None
    for candidate in [separator] if separator else [*SEPARATORS, " "]:
        layout = Layout(encoding, best.skipped, candidate, [])
        try:
            with layout.text(file) as stream:
                header = next(csv.reader(stream, delimiter=candidate), [])
        except csv.Error as error:
            failure = failure or error
            continue
        fields = len(header) if candidate in SEPARATORS or separator else 0  # " " if declared
        found = (len(declared.intersection(name.strip() for name in header)), fields)
        if found > score:
            best, score = Layout(encoding, best.skipped, candidate, header), found
    if failure is not None and len(best.header) < 2:
        raise failure
    if not best.header:
        raise DataError(f"{file.where} is empty.")
    if any("\0" in name for name in best.header):
        raise DataError(
            f"{file.where} is not text: it has zero bytes. If it is UTF-16, give --encoding utf-16."
        )
    check_names(file.where, best.header, "its first line")
    return best


def _separator(told: str | None) -> str | None:
    if told is None:
        return None
    names = {"tab": "\t", r"\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    separator = names.get(told, told)
    if len(separator) != 1 or separator in '"\r\n\0':
        raise DataError(f"separator = {told!r} must be one character, or tab.")
    return separator


def _parse(file: File, layout: Layout) -> pd.DataFrame:
    """A file whose rows have as many fields as the header."""
    with warnings.catch_warnings(), layout.text(file) as stream:
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # What "NA" is depends on the schema: it can be a level. NaN is not a number.
        return pd.read_csv(
            stream,
            sep=layout.separator,
            dtype=str,
            names=layout.header,
            header=0,
            index_col=False,
            keep_default_na=False,
            na_values=list(NO_FIELD),
        )


def with_points(
    where: str, frame: pd.DataFrame, separator: str, how: Reading, schema: Schema | None
) -> tuple[pd.DataFrame, str]:
    """The fields with decimal points, and the mark that they had.

    Where a comma separates fields, a decimal comma has to be told.
    """
    if how.decimal not in (None, ".", ","):
        raise DataError(f"decimal = {how.decimal!r} must be . or , (--decimal).")
    if how.decimal == "." or (how.decimal is None and separator == ","):
        return frame, "."
    commas = {n: frame[n].str.fullmatch(_COMMA, na=False) for n in _numeric(frame, schema)}
    points = {n: frame[n].str.fullmatch(_POINT, na=False) for n in commas}
    some = any(found.any() for found in commas.values())
    if how.decimal is None and not some:
        return frame, "."
    if mixed := [name for name in commas if points[name].any()]:
        raise DataError(
            f"{where}: numbers with a comma, and in column {list(frame).index(mixed[0]) + 1} "
            "with a point. Write all with one decimal mark, and without marks of thousands."
        )
    if how.decimal is None and not any(
        (found & ~frame[name].str.fullmatch(_THOUSANDS, na=False)).any()
        for name, found in commas.items()
    ):
        raise DataError(
            f"{where}: every comma in a number has three digits behind it: decimal mark, or mark "
            "of thousands? Say --decimal , in the first case; remove them in the second."
        )
    changed = {
        name: frame[name].where(~found, frame[name].str.replace(",", ".", regex=False))
        for name, found in commas.items()
        if found.any()
    }
    return frame.assign(**changed), ","


def _numeric(frame: pd.DataFrame, schema: Schema | None) -> list[str]:
    """Columns of numbers: as declared, or by their look where there is no schema yet."""
    if schema is not None:
        columns = schema.columns.items()
        numbers = {n for n, c in columns if not any(isinstance(one, str) for one in c.levels)}
        return [name for name in map(str, frame) if name in numbers]
    number = rf"{_COMMA}|{_POINT}|\s*[+-]?\d+\s*"
    return [name for name in map(str, frame) if frame[name].dropna().str.fullmatch(number).all()]
