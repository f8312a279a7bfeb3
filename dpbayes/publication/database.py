"""The ledger's database: SQLite or PostgreSQL, serialisable transactions, versions, messages."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dpbayes.errors import LedgerError, refused
from dpbayes.heavy import sa
from dpbayes.publication.url import read_url, shown, without_secrets

T = TypeVar("T")

VERSION = "0005"  # of the schema, the newest under migrations/versions
WAIT = 120.0  # seconds that a transaction waits for others before it gives up
_MIGRATION_LOCK = 20_240_935  # any number that other programs are unlikely to take
_SERIALIZATION_FAILURES = ("40001", "40P01")
# Refusals to connect have no code that the driver hands on.
_FULL = ("too many clients", "too many connections", "remaining connection slots")

# Of one record, by the adjacency of the data set's account; ``datasets`` counts the private draws,
# ``records`` how many of a person there are at most.
LOSSES = ("once_epsilon", "once_rho", "each_epsilon", "each_rho")


class Tables:
    """The ledger's tables, each described when first asked for: SQLAlchemy is slow to load."""

    @cached_property
    def dataset(self) -> sa.Table:
        """Accounts: a data set with its budget."""
        return _table(
            "dataset",
            {"id": sa.Integer},
            dict.fromkeys(("name", "adjacency", "salt", "created"), sa.String),
            dict.fromkeys(("epsilon", "delta"), sa.Double),
        )

    @cached_property
    def fingerprint(self) -> sa.Table:
        """Records that a data set is known by, salted and hashed."""
        return _table(
            "fingerprint",
            {"dataset_id": sa.Integer, "value": sa.String},
            {"created": sa.String},
        )

    @cached_property
    def sketch(self) -> sa.Table:
        """Keyed hashes of rows, or of a column's values, to find records that data sets share."""
        return _table(
            "sketch",
            {"number": sa.Integer},
            {"dataset_id": sa.Integer, "size": sa.Integer, "hashes": sa.LargeBinary},
            dict.fromkeys(("kind", "created"), sa.String),
        )

    @cached_property
    def ledger(self) -> sa.Table:
        """One row: the key of the sketches, and the share of common rows that is refused."""
        return _table(
            "ledger",
            {"id": sa.Integer},
            {"salt": sa.String, "overlap": sa.Double, "created": sa.String},
        )

    @cached_property
    def entry(self) -> sa.Table:
        """Releases, choices and audits: what each costs, who made it, how far it came."""
        return _table(
            "entry",
            {"number": sa.Integer},
            dict.fromkeys(("id", "kind", "state", "mechanism", "created", "changed"), sa.String),
            dict.fromkeys(("actor", "host", "directory", "note"), sa.String),
            dict.fromkeys(("dataset_id", "datasets", "records", "process"), sa.Integer),
            dict.fromkeys(LOSSES, sa.Double),
        )


def _table(name: str, keys: Mapping[str, Any], *others: Mapping[str, Any]) -> sa.Table:
    """A table with columns of given names and types, ``keys`` its primary key."""
    columns = [sa.Column(key, kind, primary_key=True) for key, kind in keys.items()]
    columns += [sa.Column(key, kind) for group in others for key, kind in group.items()]
    return sa.Table(name, sa.MetaData(), *columns)


TABLES = Tables()


class Database:
    """A place for a ledger, which may be empty.

    Args:
        text: a file name, or an SQLAlchemy URL.
    """

    def __init__(self, text: str) -> None:
        self._url = read_url(text)
        sqlite = self._url.get_backend_name() == "sqlite"
        self.file = Path(str(self._url.database)) if sqlite else None
        self.url = shown(self._url)
        self._engine = _connect(self._url)

    def require_file(self) -> None:
        """Raise LedgerError if it is a file that is not there; SQLite would make one."""
        if self.file is not None and not os.path.isfile(self.file):
            raise LedgerError(
                f"there is no ledger {self.url!r}; make one with `dpbayes ledger create`."
            )

    def make_file(self) -> None:
        """Make the file, if it is one and not there, for its owner only."""
        if self.file is None or os.path.exists(self.file):
            return
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass  # somebody else was faster
        except OSError as error:
            raise LedgerError(f"ledger {self.url!r}: {error.strerror}.") from None

    def version(self) -> str | None:
        """Of the schema; None where there is no ledger."""
        with self.reading() as connection:
            if self.file is not None:
                found = connection.exec_driver_sql("PRAGMA quick_check").scalar()
                if found != "ok":
                    raise LedgerError(_damaged(self.url, str(found)))
            if "alembic_version" not in sa.inspect(connection).get_table_names():
                return None
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            return None if version is None else str(version)

    def migrate(self, to: str = VERSION, *, only_empty: bool, overlap: float | None = None) -> None:
        """Bring the schema to a version; ``only_empty`` leaves an existing ledger as it is.

        Args:
            overlap: of a new ledger, in place of the default.
        """
        from alembic import command  # slow to import, and seldom needed
        from alembic.config import Config

        config = Config()
        scripts = str(Path(__file__).parent / "migrations")
        config.set_main_option("script_location", scripts.replace("%", "%%"))

        def work(connection: sa.Connection) -> None:
            found = sa.inspect(connection).get_table_names()
            if "alembic_version" not in found and {"dataset", "entry"} & set(found):
                raise LedgerError(f"{self.url} holds other tables; take another database.")
            if only_empty and "alembic_version" in found:
                return
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            if overlap is not None:
                connection.execute(TABLES.ledger.update().values(overlap=overlap))

        self.serially(work, tables=False)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one state and writes nothing."""
        deadline = time.monotonic() + WAIT
        with self._errors(), self._connection(deadline) as plain:
            connection = plain.execution_options(reads=True)
            with connection.begin():
                yield connection

    def serially(self, work: Callable[[sa.Connection], T], *, tables: bool = True) -> T:
        """Run ``work`` in one serialisable transaction, again if the database asks for it.

        A serialisable transaction sees what was there when it took its snapshot, so that others
        are waited for before that: their entries are then seen, and their tables are there.

        Args:
            tables: the ledger's tables are there to be locked.
        """
        deadline = time.monotonic() + WAIT
        while True:
            try:
                with self._errors(deadline), self._connection(deadline) as connection:
                    postgresql = connection.dialect.name == "postgresql"
                    if postgresql and not tables:
                        with connection.begin():  # the lock is the connection's, and stays
                            connection.exec_driver_sql(
                                f"SELECT pg_advisory_lock({_MIGRATION_LOCK})"
                            )
                    with connection.begin():
                        if postgresql and tables:  # a statement that takes no snapshot
                            connection.exec_driver_sql(
                                "LOCK TABLE entry, fingerprint IN SHARE ROW EXCLUSIVE MODE"
                            )
                        return work(connection)
            except _Again:
                time.sleep(random.uniform(0.01, 0.2))

    @contextlib.contextmanager
    def _connection(self, deadline: float) -> Iterator[sa.Connection]:
        """A connection, as soon as the server has one to give."""
        while True:
            try:
                connection = self._engine.connect()
                break
            except sa.exc.DBAPIError as error:
                full = any(sign in str(error.orig) for sign in _FULL)
                if not full or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.01, 0.2))
        with connection:
            yield connection

    @contextlib.contextmanager
    def _errors(self, deadline: float = 0.0) -> Iterator[None]:
        """Errors of the database for people; ``_Again`` for those that go away, until then.

        Of a file that somebody edited, or whose bits have changed, come errors of any kind.
        """
        edited = _damaged(self.url, "it holds what no ledger does")
        try:
            with refused(LedgerError, edited.rstrip("."), but=sa.exc.DBAPIError):
                yield
        except sa.exc.DBAPIError as error:
            code = getattr(error.orig, "sqlstate", None)
            if code in _SERIALIZATION_FAILURES and time.monotonic() < deadline:
                raise _Again from None
            said = without_secrets(self._url, " ".join(str(error.orig).split()))
            raise LedgerError(_explain(self.url, said)) from None


class _Again(Exception):
    """The database asks for the transaction to be repeated."""


def _connect(url: sa.URL) -> sa.Engine:
    sqlite = url.get_backend_name() == "sqlite"
    # Of a database without an encoding of its own (SQL_ASCII) psycopg would give bytes.
    server = {"connect_timeout": 10, "client_encoding": "utf8"}
    arguments = {"timeout": WAIT} if sqlite else server
    try:
        engine = sa.create_engine(
            url,
            isolation_level="SERIALIZABLE",
            poolclass=sa.NullPool,
            connect_args=arguments,
        )
    except ModuleNotFoundError:
        raise LedgerError(
            'a ledger in PostgreSQL needs psycopg: pip install "dpbayes[postgresql]".'
        ) from None
    except sa.exc.ArgumentError:
        raise LedgerError(f"the ledger {shown(url)} cannot be used: its URL is wrong.") from None
    if sqlite:

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, _record: Any) -> None:
            connection.isolation_level = None  # transactions begin below, not where Python likes
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = EXTRA")  # power cuts too
            except BaseException:  # of a damaged file: nobody else would close it
                connection.close()
                raise

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            reads = connection.get_execution_options().get("reads")
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _explain(url: str, said: str) -> str:
    low = said.lower()
    for sign, meaning in (
        ("not a database", _damaged(url, said)),
        ("malformed", _damaged(url, said)),
        ("readonly", f"no permission to write the ledger {url} or beside it."),
        ("read-only", f"no permission to write the ledger {url}."),
        ("permission denied", f"no permission for the ledger {url}: {said}."),
        ("unable to open", f"the ledger {url} cannot be opened: no permission or no folder."),
        ("full", f"no space left for the ledger {url}; nothing was recorded."),
        ("disk i/o", f"the disk refuses the ledger {url} ({said}); nothing was recorded."),
        ("locked", f"the ledger {url} is busy: waited {WAIT:.0f} s for other releases."),
    ):
        if sign in low:
            return meaning
    return f"the ledger {url} cannot be used: {said}"


def _damaged(url: str, said: str) -> str:
    return (
        f"the ledger {url} is damaged ({said}). Restore it from a backup, and release nothing "
        "before: what was spent since the backup has to be entered again."
    )
