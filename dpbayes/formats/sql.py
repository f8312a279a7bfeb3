"""Databases, by an address as SQLAlchemy writes it and a query. Nothing is changed there."""

from __future__ import annotations

import re
import sqlite3
import urllib.parse
from pathlib import Path

from dpbayes.errors import DataError
from dpbayes.formats.base import Found, Reading
from dpbayes.formats.names import check_names
from dpbayes.heavy import pd, sa
from dpbayes.schema.frames import as_frame

OPTIONS = ("query",)
_TABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")
_SELECT = re.compile(r"\s*(select|with|values|table|from)\b", re.IGNORECASE)
_WEB = ("http", "https", "ftp", "sftp", "s3", "gs", "abfs", "az", "hdfs", "file")


def read(address: str, how: Reading) -> Found:
    """The rows of a query, or of a table.

    What a database says may hold values and is no part of a message; ``said`` of the error has it.

    Raises:
        DataError: an address that is not understood, no query, no driver, or what the database
            refuses.
    """
    kind = address.partition(":")[0].lower()
    if kind in _WEB:
        raise DataError(
            f"an address {kind}://... is not read: copy the file to this machine, and name it. "
            "Addresses are of databases: postgresql://USER@HOST/DATABASE."
        )
    if how.query is None:
        raise DataError("a database needs --query: SELECT ..., or a table's name.")
    engine = _engine(address)
    where = f"the database ({engine.dialect.name})"
    try:
        with engine.connect() as connection:  # it commits nothing
            result = connection.execute(sa.text(_statement(how.query, engine)))
            names = list(result.keys())
            check_names(where, names, "the result")
            rows = result.fetchall()
    except DataError:
        raise
    except Exception as error:  # drivers raise what they like
        what = type(getattr(error, "orig", None) or error).__name__
        refused = DataError(f"{where} refused the query, or could not be reached: {what}.")
        raise refused.saying(str(error), "The database") from None
    finally:
        engine.dispose()
    cells = {at: [row[at] for row in rows] for at in range(len(names))}
    frame = pd.DataFrame({at: pd.Series(found, dtype=object) for at, found in cells.items()})
    return Found(as_frame(frame.set_axis(names, axis="columns")), where.removeprefix("the "))


def _engine(address: str) -> sa.Engine:
    try:
        url = sa.make_url(address)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "sqlite":
            return _sqlite(url.database)
        engine = sa.create_engine(url)
    except (sa.exc.NoSuchModuleError, ImportError):
        raise DataError(
            f"no driver for {address.partition(':')[0]} is installed. For PostgreSQL: pip install "
            "'dpbayes[postgresql]'; for others the package that SQLAlchemy names for the dialect."
        ) from None
    except (sa.exc.ArgumentError, ValueError):  # which would repeat a password
        raise DataError(
            "the address cannot be read; expected DIALECT://USER@HOST/DATABASE as SQLAlchemy "
            "writes it. Special characters of a password are %NN (@ is %40)."
        ) from None
    if engine.dialect.name == "postgresql":
        return engine.execution_options(postgresql_readonly=True)
    return engine


def _sqlite(database: str | None) -> sa.Engine:
    """Open to read: SQLite would make a file that is not there."""
    if not database or not Path(database).is_file():
        raise DataError(f"database file {database or ''!r} does not exist.")
    place = f"file:{urllib.parse.quote(str(Path(database).absolute()))}?mode=ro"
    return sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True))


def _statement(query: str, engine: sa.Engine) -> str:
    """SQL of a query, or of a table's name. No bind parameters: a colon is a colon."""
    if _TABLE.fullmatch(query.strip()):
        quote = engine.dialect.identifier_preparer.quote
        return f"SELECT * FROM {'.'.join(map(quote, query.strip().split('.')))}"
    if not _SELECT.match(query):
        raise DataError("query (--query) must be a SELECT, or a table's name.")
    return query.replace(":", r"\:")
