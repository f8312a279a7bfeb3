"""Reader of Excel and LibreOffice workbooks: one sheet, with one header row."""

from __future__ import annotations

from typing import Any

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import needed, pd
from dpbayes.records.formats.base import Reading, RecordsRead
from dpbayes.records.formats.names import check_ends, check_names
from dpbayes.records.formats.sheet_size import check_sheets
from dpbayes.records.formats.source import File, parsed
from dpbayes.schema import Schema


def read(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read a sheet of a workbook; formulas have the values that were last computed.

    An empty row above the last cell is a record whose values are missing. So are a cell with an
    error (#N/A), and a formula whose value was not stored.

    Raises:
        DataError: a sheet is too large; several sheets have cells and none is named; cells are
            merged; the schema allows a last record without any cell.
    """
    check_ends(file.where, schema)
    calamine = needed("python_calamine", file.where)
    with file.seekable() as stream, parsed(file.where):
        check_sheets(stream, file.where, reading.sheet)
        try:
            book = calamine.load_workbook(stream)
            name, rows, merged = _sheet(file, book, reading.sheet)
        except calamine.PasswordError:
            raise DataError(f"{file.where} has a password; save it without.") from None
        except calamine.CalamineError:
            raise DataError(
                f"{file.where} cannot be read: damaged, no workbook, or written in a way that is "
                "not understood. Save it anew, or as CSV."
            ) from None
    header, *records = rows
    names = [str(cell).strip() for cell in header]
    _check_merged(file, merged)
    check_names(file.where, names, f"the first row of sheet {name!r}")
    width = range(len(names))
    cells = {at: [_value(row[at]) for row in records] for at in width}
    frame = pd.DataFrame({at: pd.Series(cells[at], dtype=object) for at in width})
    return RecordsRead(frame.set_axis(names, axis="columns"), f"sheet {name!r}")


def _value(cell: Any) -> Any:
    """Value of a cell, None if it is empty.

    Whole numbers are floats in every kind of workbook; as integers they would be taken for days
    since 1970 in a column of dates, where a workbook counts from 1900.
    """
    if cell == "":
        return None
    return float(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell


def _sheet(file: File, book: Any, sheet_name: str | None) -> tuple[str, list[list[Any]], Any]:
    """Name of the sheet to read, its rows from the header on, and merged ranges from there on."""
    if sheet_name is not None and sheet_name not in book.sheet_names:
        raise DataError(
            f"{file.where} has no sheet {sheet_name!r}; it has "
            f"{', '.join(map(repr, book.sheet_names))}."
        )
    filled = {}
    for name in [sheet_name] if sheet_name is not None else book.sheet_names:
        sheet = book.get_sheet_by_name(name)
        if sheet.start is not None:  # an empty sheet has no start
            filled[name] = sheet
    if not filled:
        raise DataError(f"{file.where} is empty.")
    if len(filled) > 1:
        raise DataError(
            f"{file.where} has several sheets: {', '.join(map(repr, filled))}. Name one by `sheet`."
        )
    name, sheet = next(iter(filled.items()))
    rows = sheet.to_python(skip_empty_area=True)  # above and left of the table
    top = (sheet.start or (0, 0))[0]
    merged = [area for area in sheet.merged_cell_ranges or () if area[1][0] >= top]
    return name, rows, [(first[0] - top, last[0] - top) for first, last in merged]


def _check_merged(file: File, merged: list[Any]) -> None:
    """Raise DataError for merged cells: all cells but the first of a range would be missing.

    Args:
        file: the workbook, for the message.
        merged: first and last row of each merged range, counted from the row of names.
    """
    if any(first <= 0 for first, _ in merged):
        raise DataError(
            f"{file.where}: the row of names has merged cells. Write one name above each column, "
            "in one row, and unmerge."
        )
    if merged:
        raise DataError(
            f"{file.where}: record {min(first for first, _ in merged)} has merged cells, of which "
            "only the first has a value. Unmerge them, and write a value into each cell."
        )
