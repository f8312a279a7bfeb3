"""Catalog of file formats by name: which endings each reads, and which formats are written."""

from __future__ import annotations

from pathlib import Path

from dpbayes.core.checks import expect
from dpbayes.core.errors import DataError, OutputError
from dpbayes.core.lazy import pd
from dpbayes.records.formats import coded, columnar, delimited, excel, labelled
from dpbayes.records.formats.base import Format
from dpbayes.records.formats.source import File, is_address
from dpbayes.schema import Schema


def _write_csv(frame: pd.DataFrame, schema: Schema) -> bytes:
    return frame.to_csv(index=False).encode()


CSV = "csv"
SAME = "same"  # write in the format of the records
FORMATS = {
    CSV: Format(
        "CSV",
        (".csv", ".tsv", ".tab", ".txt", ".dat", ".asc", ""),
        ("separator", "decimal", "encoding"),
        delimited.read,
        delimited.parts,
        _write_csv,
    ),
    "parquet": Format(
        "Parquet",
        (".parquet", ".pq"),
        (),
        columnar.read_parquet,
        columnar.parquet_parts,
        columnar.write_parquet,
        columnar.check_arrow,
    ),
    "feather": Format(
        "Feather",
        (".feather", ".arrow", ".ipc"),
        (),
        columnar.read_feather,
        columnar.feather_parts,
        columnar.write_feather,
        columnar.check_arrow,
    ),
    "excel": Format("Excel", (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), ("sheet",), excel.read),
    "stata": Format(
        "Stata",
        (".dta",),
        ("encoding",),
        labelled.read_stata,
        None,
        coded.write_stata,
        coded.check_stata,
    ),
    "spss": Format(
        "SPSS",
        (".sav", ".zsav", ".por"),
        ("encoding",),
        labelled.read_spss,
        None,
        coded.write_spss,
        coded.check_spss,
    ),
    "sas": Format(
        "SAS",
        (".sas7bdat", ".xpt"),
        ("encoding", "catalog"),
        labelled.read_sas,
    ),
}
WRITTEN = tuple(name for name, entry in FORMATS.items() if entry.written)
_OTHERS = {  # other common endings, and what to do with such a file
    (".rds", ".rda", ".rdata"): "in R: arrow::write_parquet(table, 'FILE.parquet')",
    (".json", ".jsonl", ".ndjson", ".xml", ".html"): "make a table of it, and save that as CSV",
    (".pkl", ".pickle", ".joblib"): "in Python: frame.to_parquet('FILE.parquet')",
    (".h5", ".hdf", ".hdf5", ".mat", ".orc", ".avro"): "save it as Parquet",
    (".doc", ".docx", ".pdf"): "copy the table into a workbook, or save it as CSV",
    (".db", ".sqlite", ".sqlite3"): "name it sqlite:///FILE, with a `query`",
    (".duckdb",): "name it duckdb:///FILE, with a `query`",
    (".mdb", ".accdb"): "export the table as CSV",
    (".sas7bcat",): "it has labels alone; name the .sas7bdat file, with it as `catalog`",
}


def format_of(file: File, name: str | None = None) -> Format:
    """Format of a file, by its ending.

    Args:
        file: the file.
        name: name of the format, in place of the ending.
    Raises:
        DataError: no format has this name or ending.
    """
    if name is not None:
        expect(name, str, "`input_format`", "a name such as csv", DataError)
        if name not in FORMATS:
            raise DataError(f"`input_format` = {name!r}: expected one of {', '.join(FORMATS)}.")
        return FORMATS[name]
    for entry in FORMATS.values():
        if file.ending in entry.endings:
            return entry
    remedy = next((do for endings, do in _OTHERS.items() if file.ending in endings), None)
    known = ", ".join(ending for entry in FORMATS.values() for ending in entry.endings if ending)
    raise DataError(
        f"{file.where}: files {file.ending} are not read"
        + (f"; {remedy}." if remedy else ".")
        + f" Read are {known}, and databases by their address; `input_format` says what a file "
        "with another ending is."
    )


def written_as(target: str, source: str, source_format: str | None = None) -> str:
    """Name of the format in which data sets are written.

    Args:
        target: name of a format, or ``same`` for the format of the records.
        source: file or address of the records.
        source_format: name of the records' format, in place of the file's ending.
    Raises:
        OutputError: the format can only be read. DataError: there is no such file.
    """
    if target != SAME:
        return target
    kind = None if is_address(source) else format_of(File.of(Path(source)), source_format)
    for name in WRITTEN:
        if FORMATS[name] is kind:
            return name
    raise OutputError(
        f"data sets are not written as {kind.title if kind else 'a database'}; take one of "
        f"{', '.join(WRITTEN)}."
    )


def writer(name: str) -> Format:
    """Format of this name that can be written; OutputError if there is none."""
    if name not in WRITTEN:
        raise OutputError(
            f"`file_format` = {name!r}: data sets are written as one of {', '.join(WRITTEN)}."
        )
    return FORMATS[name]
