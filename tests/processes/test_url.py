"""Where a ledger is: passwords are printed for no shape of URL."""

import re
import secrets
import time
import traceback

import pytest
import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes import Censored
from dpbayes.core.errors import LedgerError
from dpbayes.publication import database
from dpbayes.publication.database import Database
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.url import read_url, redact, shown
from tests import releases
from tests.cli.in_process import dpbayes
from tests.ledgers import only_postgresql
from tests.postgres import NO_POSTGRESQL

needs_driver = pytest.mark.skipif(bool(NO_POSTGRESQL), reason=NO_POSTGRESQL or "it is there")

# Two pieces that can be looked for, with what breaks URLs between them.
FIRST, SECOND = "hunter2", "swordfish"
passwords = st.text("@:/?#&=; %'\"+[]\\é", max_size=3).map(lambda middle: FIRST + middle + SECOND)
SHAPES = [
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1/db?connect_timeout=1&port=1",
    "postgresql+psycopg://me:{}@127.0.0.1:1/db",
    "postgresql://:{}@127.0.0.1:1/db",
    "postgresql://me@127.0.0.1:1/db?password={}",
    "postgresql://me@127.0.0.1:1/db?sslpassword={}&password={}",
    "postgresql://me@127.0.0.1:1/db?pasword={}",
    "postgresql://127.0.0.1:1/db;password={}",
    "postgresql://me@127.0.0.1:{}/db",
    "postgres://me:{}@127.0.0.1:1/db",
    "postgresql:/me:{}@127.0.0.1:1/db",
    "postgresql:me:{}@127.0.0.1:1/db",
    "postgresql//me:{}@127.0.0.1:1/db",
    "me:{}@127.0.0.1:1/db",
    "sqlite://me:{}@x/ledger.db",
    "sqlite:///ledger.db?password={}",
    "mysql://me:{}@127.0.0.1:1/db",
    "host=127.0.0.1 port=1 user=me password={} dbname=db",
    "password='{}' host=127.0.0.1 port=1",
    "user=me\tpassword = {}",
]


def said_of(text):
    """All that is told when there is no such ledger."""
    with pytest.raises(LedgerError) as caught:
        Ledger(text)
    return str(caught.value) + "".join(traceback.format_exception(caught.value))


@needs_driver
@given(st.sampled_from(SHAPES), passwords)
@example(SHAPES[0], f"{FIRST}@{SECOND}")
@example(SHAPES[0], f"{FIRST}:{SECOND}@")
def test_no_password_is_told(shape, password):
    text = shape.replace("{}", password)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "WAIT", 0.0)
        said = said_of(text)
    assert FIRST not in said
    assert SECOND not in said


@needs_driver
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "show", "{}"),
        ("ledger", "show", "too", "{}"),
        ("ledger", "create", "{}", "--account", "a", "--epsilon", "{}"),
        ("ledger", "{}"),
        ("{}",),
        ("list", "--{}"),
    ],
)
def test_no_password_is_printed(shape, words, tmp_path):
    url = shape.format(FIRST, FIRST)
    done = dpbayes(*(word.replace("{}", url) for word in words), cwd=tmp_path)
    assert done.returncode == 2
    assert FIRST not in done.stdout + done.stderr
    assert done.stderr


def test_a_note_keeps_no_password(tmp_path):
    assert redact(f"see postgresql://me:{FIRST}@h/d and {SECOND}@h") == "see ***@h"
    assert redact(f"password = {FIRST}, PASSWD='{FIRST} {SECOND}'") == "password = *** PASSWD=***"
    assert redact(f"h?host=/tmp&sslkey={FIRST} x") == "h?host=/tmp&sslkey=*** x"
    assert redact(f'{{"password": "{FIRST} {SECOND}"}}') == '{"password": ***}'
    assert redact(f"psql --password {FIRST} h") == "psql --password *** h"
    assert redact(f"me@host:99!{FIRST}") == "me@host:***"
    assert redact(f"sqlite:///FILE{FIRST}") == f"sqlite:///FILE{FIRST}"
    for plain in (
        "https://example.org/a: b",
        "me@example.org:5432/x",
        "(me@example.org:99).",
        "for the web",
        "a:b",
    ):
        assert redact(plain) == plain
    ledger = Ledger.create(str(tmp_path / "ledger.db"))
    ledger.add_dataset("cps", 1.0)
    claim = Censored(0.5).guarantee()
    note = f"in postgresql://me:{FIRST}@h/d"
    ledger.reserve("cps", claim, releases.identity(), "e" * 32, tmp_path, note)
    assert list(ledger.history()["note"]) == ["in ***@h/d"]
    assert FIRST.encode() not in (tmp_path / "ledger.db").read_bytes()


@pytest.mark.parametrize("piece", [":", "a:", "x", "a:b ", "@", "@a:", "?a=", "pass='"])
def test_a_long_text_is_redacted_at_once(piece):
    begun = time.process_time()
    redact(piece * (100_000 // len(piece)))
    assert time.process_time() - begun < 1


def test_the_own_text_of_a_message_stays_whole(tmp_path):
    done = dpbayes("ledger", "show", f"mysql:me:{FIRST}@h", cwd=tmp_path)
    assert "postgresql://HOST/DATABASE" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ledger.db", "ledger.db"),
        ("a folder/ledger.db", "a folder/ledger.db"),
        ("sqlite:////tmp/ledger.db", "/tmp/ledger.db"),
        ("C:/ledger.db", "C:/ledger.db"),
        ("postgresql://me:secret@db.example.org:5433/budgets", "postgresql://db.example.org:5433/budgets"),
        ("postgresql://me@[::1]/budgets", "postgresql://[::1]/budgets"),
        ("postgresql://me:p%40ss%2F@host/b?sslmode=require", "postgresql://host/b"),
        ("postgresql://me@/b?host=/var/run/postgresql", "postgresql:///b?host=/var/run/postgresql"),
        ("u/%6c.db", "u/%6c.db"),
        ("sqlite:///u/l.db", "u/l.db"),
        ("postgresql://me@/b?host=h;password=secret", "postgresql:///b?host=***"),
    ],
)  # fmt: skip
def test_what_is_shown(text, told):
    assert shown(read_url(text)) == told


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("nothing.db", "there is no ledger 'nothing.db'"),
        ("u/S3cr3t@h/db", "no ledger (its name is not repeated"),
        ("u:S3cr3t/db.sqlite", "no ledger (its name is not repeated"),
        ("db.sqlite&password=S3cr3t", "no ledger (its name is not repeated"),
        ("-W S3cr3t", "no ledger (its name is not repeated"),
        ("sqlite:///u:S3cr3t@h", "no ledger (its name is not repeated"),
        ("mysql://somewhere/x", "sqlite or postgresql, not in mysql"),
        ("://", "URL cannot be read"),
        ("sqlite://", "not persistent"),
        ("postgresql://me:a@b@host/db", "name or password as %NN"),
        ("host=db user=me", "URL cannot be read"),
    ],
)
def test_bad_urls(bad, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match=re.escape(message)):
        Ledger(bad)
    assert not list(tmp_path.iterdir())


@needs_driver
def test_an_unreachable_server():
    with pytest.raises(LedgerError, match="cannot be used: connection failed"):
        Database("postgresql://someone:secret@127.0.0.1:1/x").version()


@only_postgresql
def test_a_database_without_an_encoding(url):
    """Found in a container without a locale: text came as bytes."""
    other = sa.make_url(url).set(database=f"ascii_{secrets.token_hex(4)}")
    engine = sa.create_engine(
        sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(
            f"CREATE DATABASE {other.database} ENCODING 'SQL_ASCII' TEMPLATE template0 "
            "LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    engine.dispose()
    address = other.render_as_string(hide_password=False)
    ledger = Ledger.create(address)
    ledger.add_dataset("löhne", 1.0)
    assert [account.name for account in ledger.accounts()] == ["löhne"]
    assert dpb.read_records(address, query="SELECT 'ä' AS x")["x"].tolist() == ["ä"]
