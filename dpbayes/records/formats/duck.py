"""Reader of DuckDB files, and of queries over Parquet files by DuckDB.

Queries must not read CSV or JSON files: DuckDB guesses their types, quotes and headers from the
first values, so that one record would decide how the others are read, and how many there are. A
DESCRIBE within a query tells those types, and its result stands in the plan in place of the file:
every source of rows in a plan is refused that is not known to be harmless. Of several Parquet
files that are read together DuckDB casts all to the types of the first, and a writer may have taken
these from its values: a query is refused unless a column has the same type in all files that it
read. Which these are is known from DuckDB's own log: a view or a macro may name them.

Databases are opened for reading only, and no extension is loaded. Data beyond the memory limit go
to a temporary folder of this user, which is removed afterwards.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbayes.core.errors import DataError
from dpbayes.core.frames import from_arrow
from dpbayes.core.lazy import needed, pd
from dpbayes.records.formats.names import NO_SELECT, TABLE, check_names

if TYPE_CHECKING:
    import pyarrow

MEMORY = "1GB"  # limit of DuckDB, which uses the disk beyond it
ROWS = 100_000  # rows of a batch
WHERE = "the database (DuckDB)"
LOG = "duckdb_logs WHERE type = 'FileSystem'"
# DuckDB escapes nothing: a message with a quotation mark in the path has another form.
LOGGED = r'\{"fs":"[^"\\]*","path":"[^"\\]*","op":"[^"\\]*"(,"bytes":"\d+","pos":"\d+")?\}'
SOURCES = (  # allowed table functions, and other nodes of a plan that have none below them
    *("PARQUET_SCAN", "READ_PARQUET", "RANGE", "GENERATE_SERIES"),
    *("SEQ_SCAN", "DUMMY_SCAN", "EMPTY_RESULT"),  # tables; no table; a condition that is false
    *("CTE_SCAN", "REC_CTE_SCAN", "DELIM_SCAN"),  # results of other parts of the plan
)


def batches(
    address: str, query: str, rows: int = ROWS
) -> Generator[list[str] | pyarrow.RecordBatch]:
    """Yield the column names of a query or a table, then its batches of rows.

    Args:
        address: ``duckdb:///FILE``, which is opened to read, or ``duckdb://``.
    Raises:
        DataError: no such file, no SELECT, a CSV or JSON file, Parquet files of different types
            (said after the last batch), or what DuckDB refuses.
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
            _check_files(database, Path(file), Path(folder))
        except DataError:
            raise
        except Exception as error:  # DuckDB and Arrow may repeat values in their messages
            refused = DataError(f"{WHERE} refused the query: {type(error).__name__}.")
            raise refused.saying(str(error), "The database") from None


def frame(
    names: list[str], batches: pyarrow.RecordBatch | list[pyarrow.RecordBatch]
) -> pd.DataFrame:
    """Convert one batch, or a list of batches, to a frame."""
    arrow = needed("pyarrow", "DuckDB", extra="large")
    record_batches = batches if isinstance(batches, list) else [batches]
    if not record_batches:
        return pd.DataFrame(columns=names)
    return from_arrow(arrow.Table.from_batches(record_batches))


def _opened(duckdb: Any, file: str, folder: str) -> Any:
    config = {
        "memory_limit": MEMORY,
        "temp_directory": folder,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "preserve_insertion_order": "true",  # each pass must give the same chunks
    }
    # Attached in place of connected: a connection waits for remains of earlier ones to the file.
    database = duckdb.connect(":memory:", config=config)
    database.execute("CALL enable_logging('FileSystem')")  # for _check_files
    if file:
        path = file.replace("'", "''")
        database.execute(f"ATTACH '{path}' AS source (READ_ONLY); USE source")
    return database


def _select(duckdb: Any, database: Any, query: str) -> Any:
    """Parse a query that is one SELECT statement, or the name of a table."""
    if TABLE.fullmatch(query.strip()):
        query = "SELECT * FROM " + ".".join(f'"{part}"' for part in query.strip().split("."))
    statements = database.extract_statements(query)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise DataError(NO_SELECT)
    return statements[0]


def _check_sources(database: Any, select: Any) -> None:
    """Raise DataError if a query, or a view in it, reads anything but tables and Parquet files."""
    database.execute("PRAGMA disable_optimizer")  # it may drop table functions from the plan
    ((_, plan),) = database.execute(f"EXPLAIN (FORMAT json) {select.query}").fetchall()
    database.execute("PRAGMA enable_optimizer")
    for source in _sources(json.loads(plan)):
        if source not in SOURCES:
            raise DataError(
                f"{WHERE}: the query reads by {source.lower()}; it may read tables and Parquet "
                "files, without DESCRIBE, SHOW or VALUES. Of CSV and JSON DuckDB guesses types "
                "from the values. Give a CSV file itself in place of the query, or write it to "
                "Parquet with fixed types."
            )


def _check_files(database: Any, file: Path, temporary: Path) -> None:
    """Raise DataError unless a column has one type in all Parquet files that were read.

    DuckDB makes columns of folders ``name=value`` if all files have them: another file would take
    them away from all records, so that they are refused, too.

    Args:
        file: the database file.
        temporary: the folder for data beyond the memory limit.
    """
    odd = f"SELECT 1 FROM {LOG} AND NOT regexp_full_match(message, ?)"
    if database.execute(odd, [LOGGED]).fetchall():
        raise _refused("it reads a file with a quotation mark or a backslash in its name")
    opened = "SELECT DISTINCT path FROM duckdb_logs_parsed('FileSystem') WHERE op = 'OPEN'"
    file, temporary = file.resolve(), temporary.resolve()
    own = (file, Path(f"{file}.wal"))
    types: dict[str, str] = {}
    for (path,) in sorted(database.execute(opened).fetchall()):
        place = Path(path).resolve()
        if place in own or temporary in place.parents:
            continue
        if any("=" in folder for folder in Path(path).parts[:-1]):
            raise _refused(
                "folders name=value are read as columns only if all files have them. Give the "
                "files a column instead, and folders a name without =",
                path,
            )
        for name, kind in _columns(database, path).items():
            if kind != types.setdefault(name, kind):
                # Of a nested type the first word: its fields may be named by values of records.
                first, second = (re.split(r"\W", text)[0] for text in (types[name], kind))
                raise _refused(
                    f"a column has type {first} in one file and {second} in another. DuckDB casts "
                    "one to the other, so that records of one file would decide how those of the "
                    "other are read. Write all files with the same types",
                    path,
                    name,
                    types[name],
                    kind,
                )


def _columns(database: Any, path: str) -> dict[str, str]:
    """Names, in lower case, and types of the columns of a Parquet file."""
    literal = re.sub(r"[*?\[]", lambda special: f"[{special[0]}]", path)
    described = "DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning = false)"
    try:
        files = database.execute("SELECT file FROM glob(?)", [literal]).fetchall()
        columns = database.execute(described, [literal]).fetchall()
    except Exception:
        files, columns = [], []
    if files != [(path,)]:
        raise _refused(
            "it reads a file that is no Parquet file, is encrypted or cannot be read again", path
        )
    return {name.lower(): kind for name, kind, *_ in columns}


def _refused(reason: str, *names: str) -> DataError:
    """Make the error about a file; names of files, columns and fields may be values of records."""
    said = ", ".join(map(repr, names))
    return DataError(f"{WHERE}: {reason}.").saying(said and f"It is in {said}.", "DuckDB")


def _sources(plan: Any) -> Iterator[str]:
    """Table functions that a query's plan calls, and its other nodes that have none below them."""
    for node in plan:
        if function := node.get("extra_info", {}).get("Function"):
            yield function
        elif not node["children"]:
            yield node["name"]
        yield from _sources(node["children"])
