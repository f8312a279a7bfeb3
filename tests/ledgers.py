"""Databases that tests of the ledger run on; the fixture ``url`` (conftest) makes an empty one."""

from __future__ import annotations

import pytest

from tests.postgres import NO_POSTGRESQL

POSTGRESQL = (
    pytest.mark.skipif(bool(NO_POSTGRESQL), reason=NO_POSTGRESQL or "it is there"),
    pytest.mark.xdist_group("postgresql"),  # one worker, one server
)
KINDS = ["sqlite", pytest.param("postgresql", marks=POSTGRESQL)]

both = pytest.mark.parametrize("url", KINDS, indirect=True)
only_postgresql = pytest.mark.parametrize("url", KINDS[1:], indirect=True)
only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
