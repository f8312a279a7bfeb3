"""A workbook is measured before its reader takes memory for it."""

import io
import zipfile

import openpyxl
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DataError
from dpbayes.records.formats.sheet_size import _size, check_sheets

TABLE = """<?xml version="1.0"?>
<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>
<table:table table:name="S">{}</table:table></office:spreadsheet></office:body>
</office:document-content>"""
MANIFEST = """<?xml version="1.0"?>
<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">
<manifest:file-entry manifest:full-path="/"
 manifest:media-type="application/vnd.oasis.opendocument.spreadsheet"/></manifest:manifest>"""
CELL = '<table:table-cell {} office:value-type="float" office:value="1"/>'
NAME = '<table:table-cell office:value-type="string"><text:p>x</text:p></table:table-cell>'
ROW = "<table:table-row {}>{}</table:table-row>"
EMPTY = '<table:table-cell table:number-columns-repeated="{}"/>'


def workbook(path, **cells):
    book = openpyxl.Workbook()
    for place, value in cells.items():
        book.active[place] = value
    book.save(path)


def of_office(path, *rows):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", TABLE.format("".join(rows)))
        archive.writestr("META-INF/manifest.xml", MANIFEST)


def binary(rows, columns):
    """The beginning of a sheet of a binary workbook."""
    ends = b"".join(number.to_bytes(4, "little") for number in (0, rows - 1, 0, columns - 1))
    return b"\x81\x01\x00" + b"\x93\x01\x03abc" + b"\x94\x01\x10" + ends


def test_one_value_in_the_last_cell(tmp_path):
    """The reader would ask for 512 GiB, and its library ends the process."""
    workbook(tmp_path / "a.xlsx", A1="x", A2=1, XFD1048576="stray")
    for schema in (None, dpb.Schema.from_dict({"columns": {"x": {"type": "count", "upper": 9}}})):
        with pytest.raises(DataError, match="1,048,576 rows and 16,384 columns"):
            dpb.read_records(tmp_path / "a.xlsx", schema)


@pytest.mark.parametrize("place", ["XFD4000", "BWT1048576", "A1048576", "ZZ2"])
def test_where_a_value_may_stand(place, tmp_path):
    """What is below the bound is read."""
    workbook(tmp_path / "a.xlsx", A1="x", A2=1, **{place: 2})
    large = place in ("XFD4000", "BWT1048576")
    with (tmp_path / "a.xlsx").open("rb") as stream:
        if large:
            with pytest.raises(DataError, match="Clear what stands far from the table"):
                check_sheets(stream, "a")
        else:
            check_sheets(stream, "a")
            assert stream.tell() == 0


@pytest.mark.parametrize("note", ['see r="XFD1048576" there', "<c r='XFD1048576'/>"])
def test_text_is_no_reference(note, tmp_path):
    """Whether a file was read followed a text in an undeclared column."""
    workbook(tmp_path / "a.xlsx", A1="x", B1="note", A2=1, B2=note)
    columns = {"x": {"type": "count", "upper": 9}}
    read = dpb.read_records(tmp_path / "a.xlsx", dpb.Schema.from_dict({"columns": columns}))
    assert read["x"].tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        ('<row r="7"><c/><c/></row><row><c/></row>', (8, 2)),
        ('<row><c r="B3"/><c/></row>', (3, 3)),
        ('<row r="1048576"><c/></row>', (1048576, 1)),
        ('<x:row xmlns:x="a" r="2"><x:c r="AB2"/></x:row>', (2, 28)),
    ],
)
def test_cells_without_references(rows, size):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", f"<worksheet>{rows}</worksheet>")
    with zipfile.ZipFile(content) as archive:
        assert _size(archive, "xl/worksheets/sheet1.xml", "a") == size


def test_columns_beyond_z(tmp_path):
    workbook(tmp_path / "a.xlsx", **{f"{c}{r}": 1 for c in ("A", "Z", "AB") for r in range(1, 60)})
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        assert _size(archive, "xl/worksheets/sheet1.xml", "a") == (59, 28)


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        ([ROW.format("", CELL.format(""))], (1, 1)),
        (
            [
                ROW.format("", CELL.format("")),
                ROW.format('table:number-rows-repeated="1048574"', EMPTY.format(16384)),
                ROW.format("", EMPTY.format(16383) + CELL.format("")),
            ],
            (1048576, 16384),
        ),
        (
            [
                ROW.format(
                    'table:number-rows-repeated="1048576"',
                    CELL.format('table:number-columns-repeated="16384"'),
                )
            ],
            (1048576, 16384),
        ),
        (
            [
                ROW.format("", CELL.format("") * 2),
                ROW.format('table:number-rows-repeated="1048575"', EMPTY.format(16384)),
            ],
            (1, 2),
        ),
    ],
)
def test_workbooks_of_libreoffice(rows, size, tmp_path):
    of_office(tmp_path / "a.ods", *rows)
    with zipfile.ZipFile(tmp_path / "a.ods") as archive:
        assert _size(archive, "content.xml", "a.ods") == size
    if size[0] * size[1] > 10**6:
        with pytest.raises(DataError, match="1,048,576 rows"):
            dpb.read_records(tmp_path / "a.ods")


def test_merged_cells_of_libreoffice(tmp_path):
    """The reader says nothing of them, and all but the first would be missing."""
    merged = CELL.format('table:number-rows-spanned="2"')
    of_office(
        tmp_path / "a.ods", ROW.format("", merged), ROW.format("", "<table:covered-table-cell/>")
    )
    with pytest.raises(DataError, match="sheet 'S' has merged cells, of which only the first"):
        dpb.read_records(tmp_path / "a.ods")


def test_merged_cells_of_a_sheet_that_is_not_read(tmp_path):
    merged = CELL.format('table:number-rows-spanned="2"')
    of_office(
        tmp_path / "a.ods",
        ROW.format("", merged),
        ROW.format("", "<table:covered-table-cell/>"),
        '</table:table><table:table table:name="Data">',
        ROW.format("", NAME),
        ROW.format("", CELL.format("")),
    )
    assert dpb.read_records(tmp_path / "a.ods", sheet="Data")["x"].tolist() == [1.0]
    with pytest.raises(DataError, match="sheet 'S' has merged cells"):
        dpb.read_records(tmp_path / "a.ods", sheet="S")


def test_binary_workbooks():
    """Excel says how large a sheet is at its beginning."""
    for rows, columns in ((3, 2), (1048576, 16384)):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("xl/worksheets/sheet1.bin", binary(rows, columns))
        with zipfile.ZipFile(content) as archive:
            assert _size(archive, "xl/worksheets/sheet1.bin", "a") == (rows, columns)
