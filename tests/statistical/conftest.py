"""The audit's grid is made once for a model and a number of records: it depends on nothing else."""

from __future__ import annotations

import pytest

from dpbayes.evaluate import audit
from dpbayes.schema.fingerprint import hash_of

GRIDS = {}


@pytest.fixture(scope="package", autouse=True)
def grids():
    make = audit._grid

    def once(task):
        key = hash_of(task.model.identity(), len(task.records))
        if key not in GRIDS:
            GRIDS[key] = make(task)
        return GRIDS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "_grid", once)
        yield
