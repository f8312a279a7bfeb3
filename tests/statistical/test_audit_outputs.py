"""What an audit of outputs looks at. That it finds bugs is in ``test_planted_bugs.py``."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate import audit_outputs as auditing
from dpbayes.evaluate.audit_outputs import audit_outputs
from dpbayes.mechanisms.measured.budget import Budget
from tests.statistical import plants

pytestmark = pytest.mark.statistical

ILL = {"type": "binary"}
SCHEMA = dpb.Schema.from_dict({"rows": 6, "columns": {"ill": ILL}})
RECORDS = pd.DataFrame({"ill": [0] * 6})


def test_a_bound_is_near_what_is_claimed_and_not_above():
    """By chance with probability 0.001 at most; the seed is fixed."""
    found = audit_outputs(dpb.Synthesizer(SCHEMA, dpb.Laplace(1.0)), RECORDS, 500, error=0.001)
    assert 0.75 < found.add_remove <= 1
    assert 1.3 < found.substitution <= 2
    assert "0.999 confidence, 500 runs a table, claimed 1 / 2: not exceeded" in str(found)


def test_each_true_epsilon_is_above_its_bound():
    """Of a mechanism that spends all of epsilon: above it with probability 0.05 at most, so that
    more than 7 of 40 are by chance less than once in 1000 times."""
    synthesizer = dpb.Synthesizer(SCHEMA, dpb.Laplace(0.5, out_of_range="zero"))
    found = [audit_outputs(synthesizer, RECORDS, 100, seed) for seed in range(40)]
    assert sum(one.violated for one in found) <= 7
    assert np.mean([one.add_remove for one in found]) > 0.1


def test_public_columns_stay_and_leave_substitution(monkeypatch):
    """A neighbour has the public values of the record whose place is taken."""
    columns = {"sex": {"type": "categorical", "levels": ["f", "m"], "public": True}, "ill": ILL}
    data = pd.DataFrame({"sex": list("fmfmfm"), "ill": [1, 1, 0, 0, 0, 1]})
    synthesizer = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), dpb.Laplace(1.0))
    task = synthesizer.task(data)
    for at in range(len(tried := auditing._tried(task))):
        for kind, neighbour in auditing._neighbours(task, tried.iloc[[at]]):
            assert kind == "substitution"
            assert list(neighbour["sex"]) == list(data["sex"])
            assert (neighbour["ill"].astype(int) != data["ill"]).sum() == 1
    found = audit_outputs(synthesizer, data, runs=200)
    assert found.add_remove == 0.0
    assert not found.violated
    plants.no_noise(monkeypatch)
    assert audit_outputs(synthesizer, data, runs=200).violated


def test_columns_are_changed_one_by_one_and_together():
    schema = dpb.Schema.from_dict({"rows": 6, "columns": {"ill": ILL, "poor": ILL}})
    data = pd.DataFrame({"ill": [0] * 6, "poor": [0] * 6})
    tried = auditing._tried(dpb.Synthesizer(schema, dpb.Laplace(1.0)).task(data))
    assert sorted(tried.to_numpy().tolist()) == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_noisy_rows_leave_the_mechanism_its_part():
    schema = dpb.Schema.from_dict({"rows": {"noisy": 0.2}, "columns": {"ill": ILL}})
    settings = dpb.SamplerSettings(seed=1)
    synthesizer = dpb.Synthesizer(schema, dpb.Laplace(1.0), settings=settings)
    found = audit_outputs(synthesizer, RECORDS, runs=200)
    assert found.guarantee.epsilon == pytest.approx(0.8)
    assert not found.violated


def test_gaussian_counts_keep_their_delta(monkeypatch):
    """Events below δ tell nothing. By chance with probability 0.05 at most; a quarter of sigma
    costs sixteen times rho, which is found."""
    schema = dpb.Schema.from_dict({"rows": 6, "columns": {"ill": ILL, "poor": ILL}})
    data = pd.DataFrame({"ill": [0] * 6, "poor": [0] * 6})
    synthesizer = dpb.Synthesizer(schema, dpb.Measured(1.0, delta=0.05))
    found = audit_outputs(synthesizer, data, runs=100)
    assert not found.violated
    assert "at δ = 0.05: not exceeded" in str(found)
    sigma = Budget._sigma
    monkeypatch.setattr(Budget, "_sigma", lambda self, *given: sigma(self, *given) / 4)
    assert audit_outputs(synthesizer, data, runs=100).violated


def test_what_cannot_be_run_is_refused():
    with pytest.raises(dpb.GuaranteeError, match="at least 100"):
        audit_outputs(dpb.Synthesizer(SCHEMA, dpb.Laplace(1)), RECORDS, runs=np.int64(5))
    model = dpb.Regression("ill ~ 1", "bernoulli")
    with pytest.raises(dpb.GuaranteeError, match="has a posterior to look at"):
        audit_outputs(dpb.Synthesizer(SCHEMA, dpb.Censored(1), model), RECORDS)
