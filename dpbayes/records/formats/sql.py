"""Read records from a database by an SQLAlchemy address and a query, without changing it."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import urllib.parse
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from dpbayes.core.errors import DataError
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd, sa
from dpbayes.records.chunks import Part
from dpbayes.records.formats import duck
from dpbayes.records.formats.base import FoundParts, Reading, RecordsRead, Size
from dpbayes.records.formats.names import NO_SELECT, TABLE, check_names
from dpbayes.records.formats.source import as_data_error

OPTIONS = ("query",)
ROWS = 100_000  # rows of a page
_SELECT = re.compile(r"\s*(select|with|values|table|from)\b", re.IGNORECASE)
_WEB = ("http", "https", "ftp", "sftp", "s3", "gs", "abfs", "az", "hdfs", "file")


R = TypeVar("R")  # a page of rows, as the database's driver gives it


def read(address: str, reading: Reading) -> RecordsRead:
    """Read the rows of a query, or of a table.

    The database's own message may contain values: it is in ``said`` of the error, not in its text.

    Raises:
        DataError: an address that is not understood, no query, no driver, or what the database
            refuses.
    """
    query = _query(address, reading)
    if is_duckdb(address):
        with contextlib.closing(duck.batches(address, query)) as result:
            names, *batches = result
            return RecordsRead(as_frame(duck.frame(names, batches)), "DuckDB")
    engine = _engine(address)
    with contextlib.closing(_rows(engine, query)) as result:
        names, *pages = result
    rows = [row for page in pages for row in page]
    return RecordsRead(_frame(names, rows), f"database ({engine.dialect.name})")


def parts(address: str, reading: Reading, size: Size) -> FoundParts:
    """Read the rows in chunks. The query runs again in each pass over the records."""
    query = _query(address, reading)
    to_frame = duck.frame if is_duckdb(address) else _frame
    with contextlib.closing(_begun(address, query, size.rows)) as pages:
        names = next(pages)

    def read_again() -> Iterator[Part]:
        with contextlib.closing(_begun(address, query, size.rows)) as pages:
            next(pages)
            for page in pages:
                yield RowPage(names, page, to_frame)

    return FoundParts(read_again, names)


class RowPage(Generic[R]):
    """Chunk that was read; its representation shows no values."""

    def __init__(
        self, names: list[str], rows: R, frame: Callable[[list[str], R], pd.DataFrame]
    ) -> None:
        self._names, self._rows, self._frame = names, rows, frame

    def __call__(self) -> pd.DataFrame:
        return self._frame(self._names, self._rows)


def is_duckdb(address: str) -> bool:
    """True for an address of DuckDB; without a file its queries name the files that they read."""
    return address.partition(":")[0].lower() == "duckdb"


def _begun(address: str, query: str, rows: int) -> Generator[Any]:
    """Yield the column names, then pages of rows."""
    if is_duckdb(address):
        return duck.batches(address, query, rows)
    return _rows(_engine(address), query, rows)


def _query(address: str, how: Reading) -> str:
    kind = address.partition(":")[0].lower()
    if kind in _WEB:
        raise DataError(
            f"an address {kind}://... is not read: copy the file to this machine, and name it. "
            "Addresses are of databases: postgresql://HOST/DATABASE."
        )
    if how.query is None:
        raise DataError("a database needs a `query`: SELECT ..., or a table's name.")
    return how.query


def _rows(engine: sa.Engine, query: str, rows: int = ROWS) -> Generator[Any]:
    """Yield the column names, then pages of rows, of which one at a time is in memory."""
    where = f"the database ({engine.dialect.name})"
    try:
        with engine.connect() as connection:  # nothing is committed
            streamed = connection.execution_options(stream_results=True, max_row_buffer=rows)
            result = streamed.execute(sa.text(_statement(query, engine)))
            names = list(result.keys())
            check_names(where, names, "the result")
            yield names
            yield from result.partitions(rows)
    except DataError:
        raise
    except Exception as error:  # drivers raise errors of any type
        cause = type(getattr(error, "orig", None) or error).__name__
        refused = DataError(f"{where} refused the query, or could not be reached: {cause}.")
        raise refused.saying(str(error), "The database") from None
    finally:
        engine.dispose()


def _frame(names: list[str], rows: Sequence[Any]) -> pd.DataFrame:
    cells = {at: [row[at] for row in rows] for at in range(len(names))}
    frame = pd.DataFrame({at: pd.Series(values, dtype=object) for at, values in cells.items()})
    return as_frame(frame.set_axis(names, axis="columns"))


def _engine(address: str) -> sa.Engine:
    try:
        url = sa.make_url(address)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
            # Without this psycopg gives bytes for databases without an encoding (SQL_ASCII).
            url = url.update_query_dict({"client_encoding": "utf8", **url.query})
        if url.get_backend_name() == "sqlite":
            return _sqlite(url.database)
        engine = sa.create_engine(url)
    except (sa.exc.NoSuchModuleError, ImportError):
        raise DataError(
            f"no driver for {address.partition(':')[0]} is installed. For PostgreSQL: pip install "
            "'dpbayes[postgresql]'; for others the package that SQLAlchemy names for the dialect."
        ) from None
    except (sa.exc.ArgumentError, ValueError):  # their text would repeat a password
        raise DataError(
            "the address cannot be read; expected DIALECT://HOST/DATABASE as SQLAlchemy "
            "writes it. Special characters of a user's name or password are %NN."
        ) from None
    if engine.dialect.name == "postgresql":
        return engine.execution_options(postgresql_readonly=True)
    return engine


def _sqlite(database: str | None) -> sa.Engine:
    """Open an SQLite file for reading only: SQLite would otherwise create a missing file."""
    if not database or not Path(database).is_file():
        raise DataError(f"database file {database or ''!r} does not exist.")
    with as_data_error(f"database file {database!r}"), Path(database).open("rb") as stream:
        header, length = stream.read(100), os.fstat(stream.fileno()).st_size
    # SQLite reads what a cut file has left, and takes the rest for missing values. The number of
    # pages in the header is valid if it was written by the last change.
    if header[:16] == b"SQLite format 3\0" and header[24:28] == header[92:96]:
        size, pages = (int.from_bytes(header[a:b], "big") for a, b in ((16, 18), (28, 32)))
        if length < pages * (65_536 if size == 1 else size):
            raise DataError(f"database file {database!r} is cut: it has fewer pages than it says.")
    place = f"file:{urllib.parse.quote(str(Path(database).absolute()))}?mode=ro"
    return sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True))


def _statement(query: str, engine: sa.Engine) -> str:
    """SQL of a query or a table's name, with colons escaped: they are no bind parameters."""
    if TABLE.fullmatch(query.strip()):
        quote = engine.dialect.identifier_preparer.quote
        return f"SELECT * FROM {'.'.join(map(quote, query.strip().split('.')))}"
    if not _SELECT.match(query):
        raise DataError(NO_SELECT)
    return query.replace(":", r"\:")
