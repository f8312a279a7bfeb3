"""Records, whatever they are in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError
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
CHUNK = 100_000  # rows of a part
MOST_NAMES = 50  # of undeclared columns, on the screen


def read_records(
    source: str | Path, schema: Schema | None = None, *, say: Say | None = None, **how: Any
) -> pd.DataFrame:
    """Read records from a file or a database.

    Args:
        source: a CSV, Parquet, Feather, Excel, Stata, SPSS or SAS file, also packed by gzip,
            bzip2, xz or zip; or the address of a database, as SQLAlchemy writes it.
        schema: of the records. With it value labels become levels where levels are declared and
            stay codes where numbers are, and a decimal comma is looked for in numbers alone.
        say: takes lines for people: how the file was read, and names of columns that the schema
            does not declare. They are about the file, and no part of a release.
        how: as the fields of ``Reading``: file_format, separator, decimal, encoding, sheet,
            catalog, query.
    Returns:
        n rows of numbers, booleans and text, with every column of the file. The same records in
        another format are the same.
    Raises:
        DataError: there is no such file, its format is not read, or it is damaged. Messages repeat
            nothing of what is in the file: without a header its first line is a record.
    """
    found = read_coded(source, schema, say=say, **how)
    if say is not None:
        _say_undeclared(list(map(str, found.frame)), schema, say)
    return as_frame(with_levels(found.frame, found.labels, schema))


def read_coded(
    source: str | Path, schema: Schema | None = None, *, say: Say | None = None, **how: Any
) -> RecordsRead:
    """As ``read_records``, with labels beside the codes."""
    title, found = _found(source, Reading(**how), schema)
    names = [str(name).strip() for name in found.frame.columns]
    check_names(f"data {_shown(source)}", names, "it")
    if say is not None:
        said = f", {found.said}" if found.said else ""
        say(f"Read {_shown(source)}: {title}, {len(names):,} columns{said}.")
    frame = as_frame(found.frame.set_axis(names, axis="columns"))
    labels = {name.strip(): known for name, known in found.labels.items()}
    titles = {name.strip(): title for name, title in found.titles.items()}
    return RecordsRead(frame, found.said, labels, titles)


def open_records(
    source: str | Path,
    schema: Schema,
    *,
    chunk_rows: int = CHUNK,
    say: Say | None = None,
    apply: Apply[Any] | None = None,
    **how: Any,
) -> Chunks:
    """Records of a file or a database in parts, for ``Marginals``: one at a time is in memory.

    They are read anew for each pass, four or five times, and have to stay as they are meanwhile.

    Args:
        source: a CSV file, packed or not; a Parquet or Feather file; the address of a database,
            of ``duckdb:///FILE`` too. With ``duckdb://`` a query names the files that it reads.
        schema: of the records.
        chunk_rows: of a part. No release depends on it.
        say: as for ``read_records``.
        apply: where parts are counted: ``cluster.on_cluster`` gives one; here by default. Those of
            Parquet and Feather files are then read there, under the same path.
        how: as for ``read_records``.
    Raises:
        DataError: as ``read_records``, and for formats that are read whole.
    """
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int) or chunk_rows < 1:
        raise DataError(f"chunk_rows = {chunk_rows!r} (--chunk-rows) must be at least 1.")
    title, found = _found_parts(source, Reading(**how), schema, Size(chunk_rows, apply is not None))
    names = [str(name).strip() for name in found.names]
    check_names(f"data {_shown(source)}", names, "it")
    if say is not None:
        said = f", {found.said}" if found.said else ""
        rows = f"in parts of {chunk_rows:,} rows"
        say(f"Reading {_shown(source)} {rows}: {title}, {len(names):,} columns{said}.")
        _say_undeclared(names, schema, say)
    before = _state(source)

    def read() -> Iterator[Part]:
        if _state(source) != before:
            raise DataError(CHANGED)
        return (functools.partial(_renamed, part, names) for part in found.read())

    return Chunks(read, here if apply is None else apply)


def _found_parts(
    source: str | Path, how: Reading, schema: Schema, size: Size
) -> tuple[str, FoundParts]:
    if is_address(source):
        return "SQL", sql.parts(str(source), how.only(sql.OPTIONS, "a database"), size)
    file = _file(source)
    kind = format_of(file, how.file_format)
    if kind.parts is None:
        known = ", ".join(one.title for one in FORMATS.values() if one.parts is not None)
        raise DataError(
            f"{kind.title} files are read whole, not in parts (--chunk-rows, --scheduler): save "
            f"large ones as Parquet. In parts are read {known} and databases."
        )
    found = kind.parts(file, how.only(kind.options, f"{kind.title} files"), schema, size)
    return (f"{kind.title} ({file.packed})" if file.packed else kind.title), found


def _state(source: str | Path) -> tuple[int, ...]:
    """What changes with a file; of a database nothing is known."""
    if is_address(source):
        return ()
    found = Path(source).stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


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
    found = kind.read(file, how.only(kind.options, f"{kind.title} files"), schema)
    return (f"{kind.title} ({file.packed})" if file.packed else kind.title), found


def _shown(source: str | Path) -> str:
    """Of an address its kind alone: it may have a password."""
    return f"{str(source).partition(':')[0]}://..." if is_address(source) else str(source)


def _say_undeclared(names: list[str], schema: Schema | None, say: Say) -> None:
    """Names of columns that are left out.

    Only where all declared ones were found: otherwise the first line may be no header but a record.
    """
    if schema is None or not set(schema.columns) <= set(names):
        return
    dropped = [repr(name) for name in names if name in schema.identifiers]
    if dropped:
        say(f"Identifiers, dropped: {', '.join(dropped[:MOST_NAMES])}.")
    known = {*schema.columns, *schema.identifiers}
    others = [repr(name) for name in names if name not in known]
    if others:
        more = f" and {len(others) - MOST_NAMES:,} more" if len(others) > MOST_NAMES else ""
        say(f"Not in the schema, and left out: {', '.join(others[:MOST_NAMES])}{more}.")
