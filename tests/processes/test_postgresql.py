"""A ledger in PostgreSQL: what is committed survives crashes of the server, and waits end."""

import threading
import time

import pytest
import sqlalchemy as sa

from dpbayes.core.errors import LedgerError
from dpbayes.publication import database
from dpbayes.publication.database import TABLES, Database
from dpbayes.publication.ledger import Ledger
from tests.ledgers import POSTGRESQL, only_postgresql
from tests.postgres import server

LOCK = "LOCK TABLE entry, fingerprint IN SHARE ROW EXCLUSIVE MODE"


def session(url, **options):
    """A session of another program."""
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool, **options
    )
    return engine.connect()


def administer(url, *statements):
    with session(url, isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def show(setting):
    return lambda connection: connection.exec_driver_sql(f"SHOW {setting}").scalar()


@only_postgresql
@pytest.mark.parametrize(
    ("of_the_database", "of_the_ledger"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"),
     ("remote_apply", "remote_apply")],
)  # fmt: skip
def test_commits_are_synchronous(url, of_the_database, of_the_ledger):
    """The attack: a server tuned to commit later crashed, and a paid release was forgotten."""
    name = sa.make_url(url).database
    administer(url, f"ALTER DATABASE {name} SET synchronous_commit = {of_the_database}")
    with session(url) as connection:
        assert show("synchronous_commit")(connection) == of_the_database
    ledger = Database(url)
    assert ledger.serially(show("synchronous_commit"), tables=False) == of_the_ledger
    ledger.create()
    assert ledger.serially(show("synchronous_commit")) == of_the_ledger
    with ledger.reading() as connection:
        assert show("synchronous_commit")(connection) == of_the_ledger


@pytest.mark.parametrize(
    "setting", [pytest.param(s, marks=POSTGRESQL) for s in ("fsync", "full_page_writes")]
)
def test_a_server_whose_crash_loses_commits_is_refused(setting):
    with server(**{setting: "off"}) as url:
        with pytest.raises(LedgerError, match=f"crashes, which has {setting} = off. Set it to on"):
            Ledger.create(url)
        with session(url) as connection:
            assert sa.inspect(connection).get_table_names() == []
        with session(url) as connection, connection.begin():
            TABLES.create(connection, 0.5)
        with pytest.raises(LedgerError, match=f"crashes, which has {setting} = off. Set it to on"):
            Ledger(url)


@only_postgresql
def test_roles_with_schemas_of_their_own_share_one_ledger(url):
    """A role's own schema comes first in a search path: two of them had a budget each."""
    role = sa.make_url(url).username
    administer(url, f'CREATE SCHEMA "{role}"')
    ledger = Ledger.create(url)
    ledger.add_dataset("d", epsilon=1.0)
    with session(url) as connection:
        inspector = sa.inspect(connection)
        assert inspector.get_table_names(schema=role) == []
        assert "entry" in inspector.get_table_names(schema="public")
    administer(url, f'CREATE TABLE "{role}".entry (LIKE public.entry)')  # of a partial restore
    assert [account.name for account in Ledger(url).accounts()] == ["d"]
    for name in ("dataset", "sketch", "fingerprint", "ledger"):
        administer(url, f'CREATE TABLE "{role}".{name} (LIKE public.{name})')
    for opened in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=f"has a ledger in schema '{role}'"):
            opened(url)


@only_postgresql
def test_every_digit_of_what_was_spent_is_read(url):
    """Rounded to one digit, two releases of 0.149 had spent 0.2."""
    ledger = Ledger.create(url)
    administer(url, f"ALTER DATABASE {sa.make_url(url).database} SET extra_float_digits = -15")
    with session(url) as connection:
        assert connection.exec_driver_sql("SELECT 0.149::float8::text").scalar() == "0.1"
    ledger.add_dataset("d", epsilon=0.149)
    assert [account.budget.epsilon for account in Ledger(url).accounts()] == [0.149]


@only_postgresql
def test_rows_that_a_policy_hides_are_refused(url):
    """Roles that see their own entries alone had a budget each."""
    ledger = Ledger.create(url)
    ledger.add_dataset("d", epsilon=1.0)
    role = f"role_{sa.make_url(url).database}"
    administer(
        url,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
    )
    theirs = sa.make_url(url).set(username=role).render_as_string(hide_password=False)
    assert [account.name for account in Ledger(theirs).accounts()] == ["d"]
    administer(
        url,
        "ALTER TABLE entry ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON entry USING (note = current_user)",
    )
    try:
        with pytest.raises(LedgerError, match="row-level security"):
            Ledger(theirs).accounts()
        assert [account.name for account in Ledger(url).accounts()] == ["d"]  # sees every row
    finally:
        administer(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@only_postgresql
def test_tables_that_a_crash_empties_are_refused(url):
    Ledger.create(url)
    administer(url, "ALTER TABLE entry SET UNLOGGED", "ALTER TABLE sketch SET UNLOGGED")
    for opened in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match="the tables entry, sketch are unlogged"):
            opened(url)
    administer(url, "ALTER TABLE entry SET LOGGED", "ALTER TABLE sketch SET LOGGED")
    assert Ledger(url).accounts() == []


@only_postgresql
@pytest.mark.parametrize(
    ("lock", "write"),
    [
        (LOCK, lambda url: Ledger(url).add_dataset("cps", 1.0)),
        (f"SELECT pg_advisory_lock({database._CREATION_LOCK})", Ledger.create),
        ("LOCK TABLE entry", lambda url: Ledger(url).history()),
    ],
)
def test_a_wait_for_a_lock_ends(url, monkeypatch, lock, write):
    Ledger.create(url)
    monkeypatch.setattr(database, "WAIT", 0.3)
    with session(url) as other:
        other.exec_driver_sql("SET idle_in_transaction_session_timeout = '10s'")
        other.exec_driver_sql(lock)
        with pytest.raises(LedgerError, match="is busy: waited 0 s for other releases"):
            write(url)
    write(url)


@only_postgresql
def test_no_statement_is_prepared_and_no_lock_outlives_the_creation(url, monkeypatch):
    """A pooler gives the next transaction another session, and this one to somebody else."""

    def often(connection):
        for number in range(10):
            connection.execute(sa.text("SELECT :number"), {"number": number})
        return (
            connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar(),
            connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                                       " AND pid = pg_backend_pid()").scalar(),
        )  # fmt: skip

    Ledger.create(url)
    monkeypatch.setattr(sa, "NullPool", sa.StaticPool)  # one session for all transactions
    ledger = Ledger(url)
    try:
        assert ledger._database.serially(often, tables=False) == (0, 1)
        assert ledger._database.serially(often) == (0, 0)
    finally:
        ledger._database._engine.dispose()


@only_postgresql
def test_a_run_that_stands_still_keeps_no_lock(url, monkeypatch):
    ledger = Ledger.create(url)
    monkeypatch.setattr(database, "WAIT", 0.3)

    def work(connection):
        connection.exec_driver_sql("DELETE FROM ledger")
        time.sleep(1)
        return connection.exec_driver_sql("SELECT 1")

    with pytest.raises(LedgerError, match="cannot be used: "):
        Database(url).serially(work)
    assert ledger.accounts() == Ledger(url).accounts() == []


@only_postgresql
def test_a_transaction_sees_what_was_committed_while_it_waited(url):
    """Settings are made before the lock is there, and must take no snapshot."""
    Ledger.create(url)
    seen = []

    def count():
        query = "SELECT count(*) FROM fingerprint"
        seen.append(Database(url).serially(lambda c: c.exec_driver_sql(query).scalar()))

    with session(url) as other:
        other.exec_driver_sql(LOCK)
        waiting = threading.Thread(target=count)
        waiting.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'entry'::regclass"
        while not other.exec_driver_sql(blocked).scalar():
            assert waiting.is_alive()
            time.sleep(0.01)
        other.exec_driver_sql(
            "INSERT INTO dataset VALUES (1, 'cps', 'add-remove', 1, 0, 'salt', 'now')"
        )
        other.exec_driver_sql("INSERT INTO fingerprint VALUES (1, 'value', 'now')")
        other.commit()
    waiting.join()
    assert seen == [1]
