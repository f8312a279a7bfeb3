"""DuckDB: its files, and queries over Parquet files.

No text is read by a query: of CSV and JSON files DuckDB guesses types, quotes and headers from the
first values, so that one record decides how the others are read, and how many there are.

Nothing is changed, and no extension is loaded. What does not fit in its share of memory goes to a
folder of this user, which is removed afterwards.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from dpbayes.core.errors import DataError
from dpbayes.core.frames import from_arrow
from dpbayes.core.lazy import needed, pd
from dpbayes.records.formats.names import NO_SELECT, TABLE, check_names

MEMORY = "1GB"
ROWS = 100_000  # at a time
WHERE = "the database (DuckDB)"
SOURCES = ("PARQUET_SCAN", "READ_PARQUET", "RANGE", "GENERATE_SERIES")  # besides tables


def batches(address: str, query: str, rows: int = ROWS) -> Generator[Any]:
    """Names of the columns of a query's result or of a table, then its batches of rows.

    Args:
        address: ``duckdb:///FILE``, which is opened to read, or ``duckdb://``.
    Raises:
        DataError: no such file, no SELECT, a CSV or JSON file, or what DuckDB refuses.
    """
    duckdb = needed("duckdb", "DuckDB", extra="large")
    needed("pyarrow", "DuckDB", extra="large")
    file = address.partition(":")[2].removeprefix("//").removeprefix("/")
    if file and not Path(file).is_file():
        raise DataError(f"database file {file!r} does not exist.")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dpbayes-"))
        try:
            database = stack.enter_context(_opened(duckdb, file, folder))
            select = _select(duckdb, database, query)
            _check_sources(database, select)
            reader = database.sql(select).to_arrow_reader(rows)
            stack.callback(reader.close)
            check_names(WHERE, reader.schema.names, "the result")
            yield reader.schema.names
            yield from reader
        except DataError:
            raise
        except Exception as error:  # of DuckDB and Arrow; their words can hold values
            refused = DataError(f"{WHERE} refused the query: {type(error).__name__}.")
            raise refused.saying(str(error), "The database") from None


def frame(names: list[str], found: Any) -> pd.DataFrame:
    """One batch, or a list of them, as a frame."""
    arrow = needed("pyarrow", "DuckDB", extra="large")
    some = found if isinstance(found, list) else [found]
    if not some:
        return pd.DataFrame(columns=names)
    return from_arrow(arrow.Table.from_batches(some))


def _opened(duckdb: Any, file: str, folder: str) -> Any:
    config = {
        "memory_limit": MEMORY,
        "temp_directory": folder,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "preserve_insertion_order": "true",  # each pass has the same parts
    }
    # Attached: a file that is connected to waits for what is left of connections before.
    database = duckdb.connect(":memory:", config=config)
    if file:
        path = file.replace("'", "''")
        database.execute(f"ATTACH '{path}' AS source (READ_ONLY); USE source")
    return database


def _select(duckdb: Any, database: Any, query: str) -> Any:
    """One statement that reads; a name is that of a table."""
    if TABLE.fullmatch(query.strip()):
        query = "SELECT * FROM " + ".".join(f'"{part}"' for part in query.strip().split("."))
    statements = database.extract_statements(query)
    if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
        raise DataError(NO_SELECT)
    return statements[0]


def _check_sources(database: Any, select: Any) -> None:
    """Raise DataError unless a query reads tables and Parquet files alone, also by way of views."""
    database.execute("PRAGMA disable_optimizer")  # which may leave out what it has looked at before
    ((_, plan),) = database.execute(f"EXPLAIN (FORMAT json) {select.query}").fetchall()
    database.execute("PRAGMA enable_optimizer")
    for source in _functions(json.loads(plan)):
        if source not in SOURCES:
            raise DataError(
                f"{WHERE}: the query reads by {source.lower()}; it may read tables and Parquet "
                "files. Of CSV and JSON DuckDB guesses types from the values. Give a CSV file "
                "itself in place of the query, or write it to Parquet with fixed types."
            )


def _functions(plan: Any) -> Iterator[str]:
    """Table functions that a query's plan calls."""
    for node in plan:
        if function := node.get("extra_info", {}).get("Function"):
            yield function
        yield from _functions(node["children"])
