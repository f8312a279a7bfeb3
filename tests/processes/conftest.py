"""An empty database of either kind, ledgers in it, and one small fit for all tests of a module."""

from __future__ import annotations

import secrets

import pytest
import sqlalchemy as sa

from dpbayes.publication.ledger import Ledger
from tests import releases
from tests.postgres import server


@pytest.fixture(scope="session")
def postgresql():
    with server() as url:
        yield url


@pytest.fixture
def url(request, tmp_path):
    """Of a database without a ledger; parametrized by ``ledgers.both`` or ``only_sqlite``."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    root = request.getfixturevalue("postgresql")
    name = f"test_{secrets.token_hex(4)}"
    engine = sa.create_engine(
        sa.make_url(root).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(root).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def opened(url, tmp_path):
    """A ledger with one data set, and a folder for releases."""
    ledger = Ledger.create(url)
    ledger.add_dataset("cps", 100.0)
    folder = tmp_path / "releases"
    folder.mkdir()
    return ledger, folder


@pytest.fixture(scope="session")
def fit():
    return releases.make_fit()
