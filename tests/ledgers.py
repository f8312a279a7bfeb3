"""Fixtures for tests of the ledger: an empty database of either kind, and a small fit."""

from __future__ import annotations

import secrets

import pytest
import sqlalchemy as sa

from tests.postgres import NO_POSTGRESQL, server

POSTGRESQL = (
    pytest.mark.skipif(bool(NO_POSTGRESQL), reason=NO_POSTGRESQL or "it is there"),
    pytest.mark.xdist_group("postgresql"),  # one worker, one server
)
KINDS = ["sqlite", pytest.param("postgresql", marks=POSTGRESQL)]


@pytest.fixture(scope="session")
def postgresql():
    with server() as url:
        yield url


@pytest.fixture
def url(request, tmp_path):
    """Of a database without a ledger; parametrize indirectly with KINDS."""
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
