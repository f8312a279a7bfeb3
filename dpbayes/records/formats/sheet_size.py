"""Check of the sizes of a workbook's sheets, before the reader allocates memory.

The reader holds every cell from the first to the last that has content: a stray value in the last
cell of a sheet would take 500 GB, and the library would end the process.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from typing import IO
from xml.parsers import expat

from dpbayes.core.errors import DataError

MOST_CELLS = 50_000_000  # some 5 GB as Python objects
_BLOCK = 2**20  # bytes of a binary sheet that are searched for its size
_ROW = re.compile(r"[0-9]{1,7}")
_PLACE = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")  # reference of a cell, such as B12
_DIMENSION = 148  # record type of a binary workbook: first and last row and column


def check_sheets(stream: IO[bytes], where: str, sheet: str | None = None) -> None:
    """Raise DataError if a sheet has more than ``MOST_CELLS`` cells, empty ones included.

    So do merged cells in the sheet to read of a LibreOffice file, which the reader does not report.

    Args:
        stream: a seekable workbook. One that is no zip file (``.xls``) is not checked, as it has
            at most 65,536 rows and 256 columns.
        where: the file, for the message.
        sheet: the sheet to read; None for the only one that has cells.
    """
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                rows, columns = _size(archive, name, where, sheet)
                if rows * columns > MOST_CELLS:
                    raise DataError(
                        f"{where}: up to its last cell a sheet has {rows:,} rows and {columns:,} "
                        f"columns, more than {MOST_CELLS:,} cells. Clear what stands far from the "
                        "table, or save the records as CSV."
                    )
    stream.seek(0)


def _size(
    archive: zipfile.ZipFile, name: str, where: str, sheet: str | None = None
) -> tuple[int, int]:
    """Last row and last column of a sheet; (0, 0) for a member of the archive that is no sheet."""
    low = name.lower()
    if low.startswith("xl/worksheets/") and low.endswith(".xml"):
        with archive.open(name) as stream:
            return _of_places(stream)
    if low.startswith("xl/worksheets/") and low.endswith(".bin"):
        with archive.open(name) as stream:
            return _of_records(stream.read(_BLOCK))
    if low == "content.xml":
        with archive.open(name) as stream:
            return _of_tables(stream, where, sheet)
    return 0, 0


def _of_places(stream: IO[bytes]) -> tuple[int, int]:
    """Last row and last column of the cells of an Excel sheet.

    A row or cell without a reference comes behind the one before it.
    """
    sizes = [0, 0]
    position = {"row": 0, "column": 0}

    def begin(name: str, attributes: dict[str, str]) -> None:
        kind, reference = name.rpartition(":")[2], attributes.get("r", "")
        if kind == "row":
            position["row"] = int(reference) if _ROW.fullmatch(reference) else position["row"] + 1
            position["column"] = 0
        elif kind == "c":
            position["column"] += 1
            if place := _PLACE.fullmatch(reference):
                position["row"], position["column"] = int(place[2]), _column(place[1])
            sizes[0], sizes[1] = (
                max(sizes[0], position["row"]),
                max(sizes[1], position["column"]),
            )

    _each_element(stream, begin)
    return sizes[0], sizes[1]


def _of_records(content: bytes) -> tuple[int, int]:
    for kind, body in _records(content):
        if kind == _DIMENSION and len(body) == 16:
            last = [int.from_bytes(body[at : at + 4], "little") for at in (4, 12)]
            return last[0] + 1, last[1] + 1
    return 0, 0


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of each record of a binary workbook."""
    at = 0
    while at < len(content):
        kind, at = _number(content, at, 2)
        length, at = _number(content, at, 4)
        yield kind, content[at : at + length]
        at += length


def _number(content: bytes, at: int, most: int) -> tuple[int, int]:
    """Decode a little-endian number of seven bits a byte; also return the position of its end."""
    number = 0
    for place in range(most):
        byte = content[at] if at < len(content) else 0
        number |= (byte & 0x7F) << 7 * place
        at += 1
        if byte < 0x80:
            break
    return number, at


def _of_tables(stream: IO[bytes], where: str, sheet: str | None) -> tuple[int, int]:
    """Most rows and columns of the tables of a LibreOffice file, repeated cells included.

    Raises:
        DataError: cells of the sheet are merged; all but the first would be missing.
    """
    sizes, table = [0, 0], ""
    position = {"row": 0, "repeated": 1, "column": 0}

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal table
        kind = name.rpartition(":")[2]
        if kind == "table":
            table = next((v for k, v in attributes.items() if k.endswith(":name")), "")
            position["row"] = 0
        elif kind == "table-row":
            position["repeated"] = _repeated(attributes, "rows")
            position["row"] += position["repeated"]
            position["column"] = 0
        elif kind == "covered-table-cell" and sheet in (None, table):
            raise DataError(
                f"{where}: sheet {table!r} has merged cells, of which only the first has a value. "
                "Unmerge them, and write a value into each cell."
            )
        elif kind == "table-cell":
            position["column"] += _repeated(attributes, "columns")
            if any(key.endswith(":value-type") for key in attributes):
                sizes[0], sizes[1] = (
                    max(sizes[0], position["row"]),
                    max(sizes[1], position["column"]),
                )

    _each_element(stream, begin)
    return sizes[0], sizes[1]


def _column(letters: str) -> int:
    """Number of a column, such as 28 for AB."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _each_element(stream: IO[bytes], begin: Callable[[str, dict[str, str]], None]) -> None:
    """Call ``begin`` with the name and the attributes of each element of an XML file."""
    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    parser.ParseFile(stream)


def _repeated(attributes: dict[str, str], axis: str) -> int:
    for key, value in attributes.items():
        if key.endswith(f":number-{axis}-repeated"):
            return int(value)
    return 1
