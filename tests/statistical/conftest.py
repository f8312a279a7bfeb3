"""The audit's public points are made once for a model and a number of rows: nothing else counts."""

from __future__ import annotations

import pytest

from dpbayes.evaluate import audit
from dpbayes.records.fingerprint import hash_of

POINTS = {}


@pytest.fixture(autouse=True)
def fewer_points(monkeypatch):
    """A ratio on any points can refute a claim."""
    monkeypatch.setattr(audit, "POINTS", 512)


@pytest.fixture(scope="package", autouse=True)
def points():
    make = audit._points

    def once(task):
        key = hash_of(task.model.identity(), task.rows, audit.POINTS)
        if key not in POINTS:
            POINTS[key] = make(task)
        return POINTS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "_points", once)
        yield
