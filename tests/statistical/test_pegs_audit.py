"""Whole Gibbs samplers, run often on neighbours: settings, order, tables, chains and release.

Each audit is wrong with a probability of 10^-6. That it could find something is shown on a sampler
with a bug: α for one record where 400 are drawn. Resets are gone through in test_pegs_exact.
"""

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.audit_outputs import audit_outputs
from dpbayes.mechanisms.pegs.cost import Sampler

pytestmark = pytest.mark.statistical

COLUMNS = {name: {"type": "binary", "levels": [f"{name}0", f"{name}1"]} for name in "ab"}
SCHEMA = dpb.Schema.from_dict({"rows": 400, "columns": COLUMNS})
RECORDS = pd.DataFrame({"a": ["a0"] * 40, "b": ["b0"] * 40})  # one that is otherwise stands out
ERROR, RUNS = 1e-6, 100
HONEST = [dpb.Pegs(1.0), dpb.PegsReset(1.0), dpb.MarginalBootstrap(0.005, of="record")]


def found(mechanism):
    return audit_outputs(dpb.Synthesizer(SCHEMA, mechanism), RECORDS, RUNS, 1, ERROR)


@pytest.mark.parametrize("mechanism", HONEST, ids=lambda m: f"{m.name}-{m.adjacency}-{m.of}")
def test_no_more_epsilon_than_claimed(mechanism):
    audit = found(mechanism)
    assert not audit.violated, str(audit)


def test_alpha_for_one_record_is_found(monkeypatch):
    monkeypatch.setattr(Sampler, "steps", property(lambda self: self.columns))
    assert found(dpb.Pegs(1.0, keys="schema")).violated
