"""How large the sheets of a workbook are, before their reader takes memory for it.

The reader holds every cell between the first and the last that has something in it: a stray value
in the last cell of a sheet would take 500 GB, and its library ends the process.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import IO
from xml.parsers import expat

from dpbayes.core.errors import DataError

MOST_CELLS = 50_000_000  # some 5 GB once they are values of Python
_BLOCK = 2**20  # bytes read at once
_LONGEST = 64  # bytes of a cell's place in a file, which may lie across two blocks
_CELL = re.compile(rb"""\sr=["']([A-Z]{1,3})([0-9]{1,7})["']""")
_DIMENSION = 148  # record of a binary workbook: first and last row, first and last column


def check_sheets(stream: IO[bytes], where: str) -> None:
    """Raise DataError if a sheet has more than ``MOST_CELLS``, empty ones included.

    Args:
        stream: a workbook that can be read from its beginning again; those that are no zip files
            (``.xls``) have at most 65,536 rows and 256 columns.
    """
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                rows, columns = _size(archive, name)
                if rows * columns > MOST_CELLS:
                    raise DataError(
                        f"{where}: up to its last cell a sheet has {rows:,} rows and {columns:,} "
                        f"columns, more than {MOST_CELLS:,} cells. Clear what stands far from the "
                        "table, or save the records as CSV."
                    )
    stream.seek(0)


def _size(archive: zipfile.ZipFile, name: str) -> tuple[int, int]:
    """Last row and last column of a sheet; (0, 0) of a member that is none."""
    low = name.lower()
    if low.startswith("xl/worksheets/") and low.endswith(".xml"):
        with archive.open(name) as stream:
            return _of_places(stream)
    if low.startswith("xl/worksheets/") and low.endswith(".bin"):
        with archive.open(name) as stream:
            return _of_records(stream.read(_BLOCK))
    if low == "content.xml":
        with archive.open(name) as stream:
            return _of_tables(stream)
    return 0, 0


def _of_places(stream: IO[bytes]) -> tuple[int, int]:
    rows, columns, before = 0, 0, b""
    for block in iter(lambda: stream.read(_BLOCK), b""):
        places = _CELL.findall(before + block)
        for letters in {letters for letters, _ in places}:
            number = 0
            for letter in letters:
                number = 26 * number + letter - ord("A") + 1
            columns = max(columns, number)
        rows = max([rows, *(int(row) for _, row in places)])
        before = block[-_LONGEST:]
    return rows, columns


def _of_records(content: bytes) -> tuple[int, int]:
    for kind, body in _records(content):
        if kind == _DIMENSION and len(body) == 16:
            last = [int.from_bytes(body[at : at + 4], "little") for at in (4, 12)]
            return last[0] + 1, last[1] + 1
    return 0, 0


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each record."""
    at = 0
    while at < len(content):
        kind, at = _number(content, at, 2)
        length, at = _number(content, at, 4)
        yield kind, content[at : at + length]
        at += length


def _number(content: bytes, at: int, most: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    number = 0
    for place in range(most):
        byte = content[at] if at < len(content) else 0
        number |= (byte & 0x7F) << 7 * place
        at += 1
        if byte < 0x80:
            break
    return number, at


def _of_tables(stream: IO[bytes]) -> tuple[int, int]:
    """Of LibreOffice: rows and cells may be repeated; the largest of all tables."""
    sizes = [0, 0]
    here = {"row": 0, "repeated": 1, "column": 0}

    def begin(name: str, given: dict[str, str]) -> None:
        kind = name.rpartition(":")[2]
        if kind == "table":
            here["row"] = 0
        elif kind == "table-row":
            here["repeated"] = _repeated(given, "rows")
            here["row"] += here["repeated"]
            here["column"] = 0
        elif kind in ("table-cell", "covered-table-cell"):
            here["column"] += _repeated(given, "columns")
            if any(key.endswith(":value-type") for key in given):
                sizes[0], sizes[1] = max(sizes[0], here["row"]), max(sizes[1], here["column"])

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    parser.ParseFile(stream)
    return sizes[0], sizes[1]


def _repeated(given: dict[str, str], what: str) -> int:
    for key, value in given.items():
        if key.endswith(f":number-{what}-repeated"):
            return int(value)
    return 1
