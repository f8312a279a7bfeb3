"""Database of a ledger in SQLite or PostgreSQL: tables, serialisable transactions, errors."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dpbayes.core.errors import LedgerError, refused
from dpbayes.core.files import refuse_in_release
from dpbayes.core.lazy import sa
from dpbayes.publication.url import read_url, shown, told, without_secrets

T = TypeVar("T")

VERSION = 1  # version of the tables
OVERLAP = 0.5  # share of the smaller data set; ``Ledger.create`` may set another
_HEADER = 100  # bytes with which an SQLite file begins
WAIT = 120.0  # seconds that a transaction waits for others before it gives up
_CREATION_LOCK = 20_240_935  # arbitrary; other programs are unlikely to use the same
_SERIALIZATION_FAILURES = ("40001", "40P01")
_LOCK_TIMEOUT = "55P03"
# Settings of synchronous_commit under which a commit is on disk, also on a synchronous standby.
_DURABLE = ("on", "remote_apply")
# The driver passes on no error code if the server refuses a connection: only the text tells why.
_FULL = ("too many clients", "too many connections", "remaining connection slots")

# Losses of one record, under the adjacency of the data set's account.
LOSSES = ("once_epsilon", "once_rho", "each_epsilon", "each_rho")


class LedgerTables:
    """Tables of a ledger, defined at first use because SQLAlchemy is slow to load."""

    dataset: sa.Table
    fingerprint: sa.Table
    sketch: sa.Table
    ledger: sa.Table
    entry: sa.Table

    def __getattr__(self, name: str) -> Any:
        """Table of this name."""
        tables = self._metadata.tables
        if name not in tables:
            raise AttributeError(name)
        return tables[name]

    @cached_property
    def _metadata(self) -> sa.MetaData:
        """Definitions of all tables with their constraints."""
        metadata = sa.MetaData()
        for describe in (_accounts, _known_records, _entries):
            describe(metadata)
        return metadata

    def create(self, connection: sa.Connection, overlap: float) -> None:
        """Create all tables, with a new random key for the sketches."""
        self._metadata.create_all(connection)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"id": 1, "version": VERSION, "salt": secrets.token_hex(32), "overlap": overlap}
        connection.execute(self.ledger.insert().values(**row, created=now))


def _column(name: str, kind: Any, *more: Any, **settings: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, nullable=False, **settings)


def _of_dataset(**settings: Any) -> sa.Column[Any]:
    return _column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), **settings)


def _accounts(metadata: sa.MetaData) -> None:
    """Define the tables of accounts, and of the ledger itself, which has one row."""
    # One row per account: a data set with its budget.
    sa.Table(
        "dataset",
        metadata,
        _column("id", sa.Integer, primary_key=True),
        _column("name", sa.String(200), unique=True),
        _column("adjacency", sa.String(20)),
        _column("epsilon", sa.Double),
        _column("delta", sa.Double),
        _column("salt", sa.String(64)),
        _column("created", sa.String(40)),
        sa.CheckConstraint("epsilon > 0 AND epsilon < 1e300 AND delta >= 0 AND delta < 1"),
        sa.CheckConstraint("adjacency IN ('add-remove', 'substitution')"),
    )
    # Version, key of the sketches, and the share of common records from which one is refused.
    sa.Table(
        "ledger",
        metadata,
        _column("id", sa.Integer, primary_key=True),
        _column("version", sa.Integer),
        _column("salt", sa.String(64)),
        _column("overlap", sa.Double),
        _column("created", sa.String(40)),
        sa.CheckConstraint("id = 1"),
        sa.CheckConstraint("overlap > 0 AND overlap <= 1"),
    )


def _known_records(metadata: sa.MetaData) -> None:
    """Define the tables by which a ledger recognises records."""
    # Salted hashes of whole tables.
    sa.Table(
        "fingerprint",
        metadata,
        _of_dataset(primary_key=True),
        _column("value", sa.String(64), primary_key=True),
        _column("created", sa.String(40)),
    )
    # Keyed hashes of elements of a table, to find records that data sets share.
    sa.Table(
        "sketch",
        metadata,
        _column("number", sa.Integer, primary_key=True, autoincrement=True),
        _of_dataset(),
        _column("kind", sa.String(20)),
        _column("size", sa.Integer),
        _column("hashes", sa.LargeBinary),
        _column("created", sa.String(40)),
    )


def _entries(metadata: sa.MetaData) -> None:
    """Define the table of releases, choices and audits: cost per record, author and state."""
    # ``datasets`` counts private draws; ``records`` is the largest number of records of a person.
    sa.Table(
        "entry",
        metadata,
        # Without AUTOINCREMENT SQLite would reuse the number of a deleted row.
        _column("number", sa.Integer, primary_key=True, autoincrement=True),
        _column("id", sa.String(32), unique=True),
        _of_dataset(),
        _column("kind", sa.String(20)),
        _column("state", sa.String(20)),
        _column("mechanism", sa.String(100)),
        _column("datasets", sa.Integer),
        _column("records", sa.Integer),
        *(_column(name, sa.Double) for name in LOSSES),
        _column("created", sa.String(40)),
        _column("changed", sa.String(40)),
        _column("actor", sa.String(200)),
        _column("host", sa.String(200)),
        _column("process", sa.Integer),
        _column("directory", sa.Text),
        _column("note", sa.Text),
        sa.CheckConstraint("state IN ('reserved', 'writing', 'released', 'void', 'lost')"),
        sa.CheckConstraint(
            "datasets >= 1 AND records >= 1 AND once_epsilon >= 0 AND once_rho >= 0 "
            "AND each_epsilon >= 0 AND each_rho >= 0"
        ),
        sqlite_autoincrement=True,
    )


TABLES = LedgerTables()


class Database:
    """Database for a ledger, which may not exist yet.

    Args:
        text: file name, or SQLAlchemy URL.
    """

    def __init__(self, text: str) -> None:
        self._url = read_url(text)
        sqlite = self._url.get_backend_name() == "sqlite"
        self.file = Path(str(self._url.database)) if sqlite else None
        self.url = shown(self._url)
        self._engine = _connect(self._url)

    def require_file(self) -> None:
        """Raise LedgerError if the file is missing, as SQLite would create it."""
        if self.file is None:
            return
        if os.path.exists(self.file) and not os.path.isfile(self.file):
            raise LedgerError(f"{self.url!r} is a directory or a device; name a file.")
        if not os.path.isfile(self.file):
            raise LedgerError(
                f"there is no ledger {told(self.url)}; make one with `dpbayes ledger create`."
            )

    def make_file(self) -> None:
        """Create a missing SQLite file that only its owner can read."""
        if self.file is None:
            return
        if os.path.exists(self.file):
            if 0 < os.path.getsize(self.file) < _HEADER:  # SQLite takes it for an empty one
                raise LedgerError(_damaged(self.url, "it ends within its first bytes"))
            return
        refuse_in_release(Path(self.file))
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass  # another process was faster
        except OSError as error:
            raise LedgerError(f"ledger {told(self.url)}: {error.strerror}.") from None
        except UnicodeEncodeError:
            raise LedgerError(f"ledger {told(self.url)}: no file can have this name.") from None

    def version(self) -> int | None:
        """Version of the tables; None if there is no ledger, 0 for a ledger of dpbayes 0.1."""
        with self.reading() as connection:
            if self.file is not None:
                integrity = connection.exec_driver_sql("PRAGMA quick_check").scalar()
                if integrity != "ok":
                    raise LedgerError(_damaged(self.url, str(integrity)))
                if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise LedgerError(_damaged(self.url, "an entry belongs to no account"))
            self._require_one(connection)
            names = sa.inspect(connection).get_table_names()
            if "alembic_version" in names:
                return 0
            if not _is_ledger(names):
                return None
            if self.file is None:
                self._require_logged(connection)
            version: int | None = connection.scalar(sa.select(TABLES.ledger.c.version))
            return version

    def _require_one(self, connection: sa.Connection) -> None:
        """Raise LedgerError if a PostgreSQL database holds a ledger in a schema of its own.

        A role's own schema comes first in a search path: each role would have another budget.
        """
        if self.file is not None:
            return
        found = connection.execute(
            sa.text(
                "SELECT nspname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE relname = ANY(:names) AND relkind IN ('r', 'p') AND nspname <> :schema "
                "GROUP BY nspname HAVING count(*) = :count ORDER BY nspname"
            ),
            {"names": sorted(_NAMES), "schema": _SCHEMA, "count": len(_NAMES)},
        ).scalars()
        for schema in found:
            raise LedgerError(
                f"the database {self.url} has a ledger in schema {schema!r}, and ledgers are in "
                f"{_SCHEMA!r}, which all roles share. Move its tables there (ALTER TABLE ... SET "
                "SCHEMA), or, if both hold one, decide which counts and drop the other."
            )

    def _require_logged(self, connection: sa.Connection) -> None:
        """Raise LedgerError if PostgreSQL would empty a table of the ledger after a crash."""
        unlogged = connection.scalars(
            sa.text(
                "SELECT relname FROM pg_class WHERE relname = ANY(:names) "
                "AND pg_table_is_visible(oid) AND relpersistence <> 'p' ORDER BY relname"
            ),
            {"names": sorted(_NAMES)},
        ).all()
        if unlogged:
            raise LedgerError(
                f"the ledger {self.url} would forget what was paid if its server crashed: the "
                f"tables {', '.join(unlogged)} are unlogged. Alter them to LOGGED, after a check "
                "that no entry is missing."
            )

    def create(self, overlap: float = OVERLAP) -> None:
        """Create the tables unless they exist.

        Args:
            overlap: share of common records from which a release is refused.
        """

        def work(connection: sa.Connection) -> None:
            self._require_one(connection)
            names = sa.inspect(connection).get_table_names()
            if "alembic_version" in names or _is_ledger(names):
                return
            if {"dataset", "entry", "ledger"} & set(names):
                raise LedgerError(f"{self.url} holds other tables; take another database.")
            TABLES.create(connection, overlap)

        self.serially(work, tables=False)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a connection that sees one consistent state and writes nothing."""
        deadline = time.monotonic() + WAIT
        with self._errors(), self._connection(deadline) as plain:
            connection = plain.execution_options(reads=True)
            with connection.begin():
                yield connection

    def serially(self, work: Callable[[sa.Connection], T], *, tables: bool = True) -> T:
        """Run ``work`` in a serialisable transaction, and repeat it if the database asks for that.

        A serialisable transaction sees the state at its snapshot. The lock is therefore taken
        before the snapshot: the entries and tables of earlier transactions are then visible.

        Args:
            work: reads and writes through the connection; it may run several times.
            tables: true if the ledger's tables exist, and can be locked.
        """
        deadline = time.monotonic() + WAIT
        while True:
            try:
                with self._errors(deadline), self._connection(deadline) as connection:
                    postgresql = connection.dialect.name == "postgresql"
                    lock = "LOCK TABLE entry, fingerprint IN SHARE ROW EXCLUSIVE MODE"
                    if postgresql and not tables:
                        lock = f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"
                        # It takes a snapshot, and tables made while it waited have to be seen.
                        connection.execution_options(isolation_level="READ COMMITTED")
                    with connection.begin():
                        if postgresql:
                            connection.exec_driver_sql(lock)
                        return work(connection)
            except _Again:
                time.sleep(random.uniform(0.01, 0.2))

    @contextlib.contextmanager
    def _connection(self, deadline: float) -> Iterator[sa.Connection]:
        """Open a connection, and wait if the server has too many clients."""
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
        """Raise database errors as LedgerError; before ``deadline`` transient ones as ``_Again``.

        An edited or damaged file can cause errors of any type.
        """
        edited = _damaged(self.url, "it holds what no ledger does")
        try:
            with refused(LedgerError, edited.rstrip("."), but=sa.exc.DBAPIError):
                yield
        except sa.exc.DBAPIError as error:
            code = getattr(error.orig, "sqlstate", None)
            if code in _SERIALIZATION_FAILURES and time.monotonic() < deadline:
                raise _Again from None
            if code == _LOCK_TIMEOUT:  # its text may be in another language
                raise LedgerError(_busy(self.url)) from None
            message = without_secrets(self._url, " ".join(str(error.orig).split()))
            raise LedgerError(_explain(self.url, message)) from None


_NAMES = {"dataset", "entry", "ledger", "sketch", "fingerprint"}
_SCHEMA = "public"  # of PostgreSQL


def _is_ledger(names: Sequence[str]) -> bool:
    """True if a database with tables of these names holds a ledger."""
    return set(names) >= _NAMES


class _Again(Exception):
    """Request of the database to repeat the transaction."""


def _connect(url: sa.URL) -> sa.Engine:
    sqlite = url.get_backend_name() == "sqlite"
    server = {
        "connect_timeout": 10,
        # Without this psycopg gives bytes for databases without an encoding (SQL_ASCII).
        "client_encoding": "utf8",
        # A pooler gives each transaction another session, without statements prepared before.
        "prepare_threshold": None,
        # A server that is gone without a word is noticed in a minute, or with data on the way
        # after ``WAIT`` (in ms).
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": round(WAIT * 1000),
    }
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
            connection.isolation_level = None  # transactions begin explicitly, below
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA synchronous = EXTRA")  # survive power cuts
            except BaseException:  # on a damaged file nobody else would close it
                connection.close()
                raise

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            reads = connection.get_execution_options().get("reads")
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    else:

        @sa.event.listens_for(engine, "begin")
        def begin_durably(connection: sa.Connection) -> None:
            _make_durable(connection, shown(url))

    return engine


def _make_durable(connection: sa.Connection, url: str) -> None:
    """Make a transaction of PostgreSQL survive crashes once it is committed, and limit its waits.

    Names mean the tables in one schema, whatever the role or the database puts before it.

    The settings are the transaction's own: a pooler may run the next one in another session. SHOW
    and SET take no snapshot, so that locks can still be taken before it.

    Raises:
        LedgerError: a setting that only the server's administrator can change prevents it.
    """

    def value(setting: str) -> str:
        return str(connection.exec_driver_sql(f"SHOW {setting}").scalar())

    for setting in ("fsync", "full_page_writes"):
        if value(setting) != "on":
            raise LedgerError(
                f"the ledger {url} may lose what was paid if its server crashes, which has "
                f"{setting} = {value(setting)}. Set it to on, or take another server."
            )
    if value("synchronous_commit") not in _DURABLE:
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SET LOCAL search_path = {_SCHEMA}, pg_temp")
    # A role would see, and add up, the rows that a policy shows it: this refuses to read then.
    connection.exec_driver_sql("SET LOCAL row_security = off")
    connection.exec_driver_sql("SET LOCAL extra_float_digits = 3")  # every digit of what was spent
    for setting in ("lock_timeout", "idle_in_transaction_session_timeout"):
        connection.exec_driver_sql(f"SET LOCAL {setting} = {round(WAIT * 1000)}")  # ms


def _explain(url: str, message: str) -> str:
    low = message.lower()
    for sign, meaning in (
        (
            "not a database",
            f"{url} is no ledger: the file is no SQLite database. If it was one, restore it from a "
            "backup.",
        ),
        ("malformed", _damaged(url, message)),
        ("readonly", f"no permission to write the ledger {url} or beside it."),
        ("read-only", f"no permission to write the ledger {url}."),
        ("permission denied", f"no permission for the ledger {url}: {message}."),
        ("unable to open", f"the ledger {url} cannot be opened: no permission or no folder."),
        ("full", f"no space left for the ledger {url}; this step was not recorded."),
        ("disk i/o", f"the disk refuses the ledger {url} ({message}); this step was not recorded."),
        ("locked", _busy(url)),
    ):
        if sign in low:
            return meaning
    return f"the ledger {url} cannot be used: {message}"


def _busy(url: str) -> str:
    return f"the ledger {url} is busy: waited {WAIT:.0f} s for other releases."


def _damaged(url: str, detail: str) -> str:
    return (
        f"the ledger {url} is damaged ({detail}). Restore it from a backup, and release nothing "
        "before: what was spent since the backup has to be entered again."
    )
