"""Read records from files and databases, whole or in chunks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError, listed
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.records.chunks import CHANGED, Apply, Chunks, Part, here
from dpbayes.records.formats import sql
from dpbayes.records.formats.base import FoundParts, Reading, RecordsRead, Size
from dpbayes.records.formats.catalog import FORMATS, format_of
from dpbayes.records.formats.labelled import with_levels
from dpbayes.records.formats.names import check_names
from dpbayes.records.formats.source import File, is_address
from dpbayes.schema import Schema

Say = Callable[[str], None]
CHUNK = 100_000  # rows of a chunk by default
MOST_NAMES = 50  # undeclared columns that are listed on the screen


def read_records(
    source: str | Path,
    schema: Schema | None = None,
    *,
    say: Say | None = None,
    **options: str | None,
) -> pd.DataFrame:
    """Read records from a file or a database.

    Args:
        source: a CSV, Parquet, Feather, Excel, Stata, SPSS or SAS file, also packed by gzip,
            bzip2, xz or zip; or the address of a database, as SQLAlchemy writes it.
        schema: schema of the records. With it, value labels replace codes in columns of levels,
            numeric columns keep their codes, and a decimal comma is detected in numeric columns
            only.
        say: receives messages: how the file was read, and names of undeclared columns. They are
            about the file, and no part of a release.
        options: fields of ``Reading``: file_format, separator, decimal, encoding, sheet, catalog,
            query.
    Returns:
        n rows of numbers, booleans and text, with every column of the file. The result does not
        depend on the file's format.
    Raises:
        DataError: there is no such file, its format is not read, or it is damaged. Messages repeat
            nothing of what is in the file: without a header its first line is a record.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> people = pd.DataFrame({"age": [34, 51], "smoker": ["no", "yes"]})
        >>> people.to_csv("people.csv", index=False)
        >>> dpb.read_records("people.csv")
           age smoker
        0   34     no
        1   51    yes
    """
    records = read_coded(source, schema, say=say, **options)
    if say is not None:
        _say_undeclared(list(map(str, records.frame)), schema, say)
    return as_frame(with_levels(records.frame, records.labels, schema))


def read_coded(
    source: str | Path,
    schema: Schema | None = None,
    *,
    say: Say | None = None,
    **options: str | None,
) -> RecordsRead:
    """Read records as ``read_records``, but keep codes and labels separate."""
    title, records = _found(source, Reading(**options), schema)
    names = [str(name).strip() for name in records.frame.columns]
    check_names(f"data {_shown(source)}", names, "it")
    if say is not None:
        detail = f", {records.said}" if records.said else ""
        say(f"Read {_shown(source)}: {title}, {len(names):,} columns{detail}.")
    frame = as_frame(records.frame.set_axis(names, axis="columns"))
    labels = {name.strip(): known for name, known in records.labels.items()}
    titles = {name.strip(): title for name, title in records.titles.items()}
    return RecordsRead(frame, records.said, labels, titles)


def open_records(
    source: str | Path,
    schema: Schema,
    *,
    chunk_rows: int = CHUNK,
    say: Say | None = None,
    apply: Apply[Any] | None = None,
    **options: str | None,
) -> Chunks:
    """Open records of a file or a database in chunks, of which one at a time is in memory.

    Of the mechanisms only ``Marginals`` takes chunks. It reads them anew in four or five passes:
    they must not change meanwhile.

    Args:
        source: a CSV file, packed or not; a Parquet or Feather file; the address of a database,
            ``duckdb:///FILE`` included. With ``duckdb://`` a query names the files that it reads.
        schema: schema of the records.
        chunk_rows: largest number of rows of a chunk. No release depends on it.
        say: as for ``read_records``.
        apply: counts the chunks, in this process by default; ``cluster.on_cluster`` gives one for
            a cluster, whose machines read Parquet and Feather files under the same path.
        options: as for ``read_records``.
    Raises:
        DataError: as ``read_records``, and for formats that are read whole.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise DataError(f"`chunk_rows` = {chunk_rows!r} must be at least 1.")
    title, source_parts = _found_parts(
        source, Reading(**options), schema, Size(chunk_rows, apply is not None)
    )
    names = [str(name).strip() for name in source_parts.names]
    check_names(f"data {_shown(source)}", names, "it")
    if say is not None:
        detail = f", {source_parts.said}" if source_parts.said else ""
        rows = f"in parts of {chunk_rows:,} rows"
        say(f"Reading {_shown(source)} {rows}: {title}, {len(names):,} columns{detail}.")
        _say_undeclared(names, schema, say)
    before = _state(source)

    def read() -> Iterator[Part]:
        if _state(source) != before:
            raise DataError(CHANGED)
        return (functools.partial(_renamed, part, names) for part in source_parts.read())

    return Chunks(read, here if apply is None else apply)


def _found_parts(
    source: str | Path, how: Reading, schema: Schema, size: Size
) -> tuple[str, FoundParts]:
    if is_address(source):
        return "SQL", sql.parts(str(source), how.only(sql.OPTIONS, "a database"), size)
    file = _file(source)
    kind = format_of(file, how.file_format)
    if kind.parts is None:
        known = ", ".join(entry.title for entry in FORMATS.values() if entry.parts is not None)
        raise DataError(
            f"{kind.title} files are read whole, not in parts (`chunk_rows`, `scheduler`): save "
            f"large ones as Parquet. In parts are read {known} and databases."
        )
    parts = kind.parts(file, how.only(kind.options, f"{kind.title} files"), schema, size)
    return (f"{kind.title} ({file.packed})" if file.packed else kind.title), parts


def _state(source: str | Path) -> tuple[int, ...]:
    """Size, time and inode of a file, which show that it changed; empty for a database."""
    if is_address(source):
        return ()
    status = Path(source).stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _renamed(part: Part, names: list[str]) -> pd.DataFrame:
    return as_frame(part()).set_axis(names, axis="columns")


def _file(source: str | Path) -> File:
    try:
        return File.of(Path(source))
    except TypeError:
        raise DataError(
            f"records are read from a path or an address, found a {type(source).__name__}."
        ) from None


def _found(source: str | Path, how: Reading, schema: Schema | None) -> tuple[str, RecordsRead]:
    if is_address(source):
        return "SQL", sql.read(str(source), how.only(sql.OPTIONS, "a database"))
    file = _file(source)
    kind = format_of(file, how.file_format)
    records = kind.read(file, how.only(kind.options, f"{kind.title} files"), schema)
    return (f"{kind.title} ({file.packed})" if file.packed else kind.title), records


def _shown(source: str | Path) -> str:
    """Path for messages; of an address only the scheme, as it may contain a password."""
    return f"{str(source).partition(':')[0]}://..." if is_address(source) else str(source)


def _say_undeclared(names: list[str], schema: Schema | None, say: Say) -> None:
    """Report the names of columns that are left out.

    Names are shown only if all declared columns are there: otherwise the first line may be a record
    and no header.
    """
    if schema is None or not set(schema.read) <= set(names):
        return
    home = None if schema.unit is None else schema.unit.id
    dropped = [repr(name) for name in names if name in schema.identifiers and name != home]
    if dropped:
        say(f"Identifiers, dropped: {listed(dropped, MOST_NAMES)}.")
    known = {*schema.read, *schema.identifiers}
    others = [repr(name) for name in names if name not in known]
    if others:
        say(f"Not in the schema, and left out: {listed(others, MOST_NAMES)}.")
        if schema.cluster is None and home is None and not dropped:
            say(
                "If a column among them names persons with several rows each, ε protects a row, "
                "not a person: declare it as [cluster]."
            )
