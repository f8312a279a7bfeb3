"""A folder with records and their schema."""

from __future__ import annotations

import functools

import pytest

from dpbayes.engines import SamplerSettings
from tests.cli import command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.toml").write_text(command.SCHEMA)
    command.records().to_csv(tmp_path / "data.csv", index=False)
    return tmp_path


@pytest.fixture
def short_tuning(monkeypatch):
    """Chains of `dpbayes tune` in this process are short; it has no option for their length."""
    short = functools.partial(SamplerSettings, warmup=300, draws=300)
    monkeypatch.setattr("dpbayes.cli.tune.SamplerSettings", short)
