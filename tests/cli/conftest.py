"""A folder with records and their schema."""

from __future__ import annotations

import pytest

from tests.cli import command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.toml").write_text(command.SCHEMA)
    command.records().to_csv(tmp_path / "data.csv", index=False)
    return tmp_path
