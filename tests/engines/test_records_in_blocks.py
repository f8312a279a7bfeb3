"""log_lik by blocks of records, an evaluator for one at a time: bit by bit that of all at once."""

import numpy as np
import pytest

from dpbayes.engines import base, embedded
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.mechanisms.posterior.risk import RecordRisk, record_risk
from dpbayes.stan.families import FAMILIES

N, BLOCK = 213, 64  # blocks of 64, 64 and 85
WINDOW = (-1.0, 0.5)


def risk(bound, draws, weights):
    parts = [record_risk(b.log_lik(draws), weights[k], WINDOW) for k, b in bound.blocks()]
    return len(parts), RecordRisk.joined(parts)


@pytest.mark.parametrize(("family", "groups"), [*((f, 0) for f in FAMILIES), ("normal", "terms")])
def test_by_blocks_as_all_at_once(monkeypatch, bind, family, groups):
    whole, _ = bind(EmbeddedEngine(), family, 3, groups, N, **contract_defaults(N))
    draws = whole.random_points(5, seed=4)
    expected = np.stack(list(whole.log_lik(draws)))
    weights = np.random.default_rng(1).random(N)
    one, risk_at_once = risk(whole, draws, weights)

    monkeypatch.setattr(base.EncodedData, "BLOCK", BLOCK)
    monkeypatch.setattr(base, "LONG", BLOCK // 2)
    cut, _ = bind(EmbeddedEngine(), family, 3, groups, N, **contract_defaults(N))
    assert [(k.start, k.stop) for k, _ in cut.blocks()] == [(0, 64), (64, 128), (128, 213)]
    assert np.array_equal(np.stack(list(cut.log_lik(draws))), expected, equal_nan=True)
    three, risk_by_blocks = risk(cut, draws, weights)
    assert (one, three) == (1, 3)
    for name, found in vars(risk_by_blocks).items():
        assert np.array_equal(found, getattr(risk_at_once, name)), name


def test_many_draws_are_not_held_at_once(monkeypatch, bind):
    """What goes draw by draw through more values than a block of them is not cut."""
    monkeypatch.setattr(base.EncodedData, "BLOCK", BLOCK)
    monkeypatch.setattr(base, "LONG", BLOCK // 2)
    monkeypatch.setattr(embedded, "BLOCK_VALUES", 4 * N)
    built = []
    build = embedded.EmbeddedBinding._evaluator
    monkeypatch.setattr(
        embedded.EmbeddedBinding, "_evaluator",
        lambda self, **switches: built.append(self._n) or build(self, **switches),
    )  # fmt: skip
    bound, _ = bind(EmbeddedEngine(), "normal", 3, 0, N, **contract_defaults(N))
    draws = bound.random_points(5, seed=4)
    built.clear()
    assert len(list(bound.log_lik(draws))) == 5
    assert built == [N]
    few = bound.random_points(4, seed=4)
    built.clear()
    assert len(list(bound.log_lik(few))) == 4
    # With 16 more on both sides, and of the remainder of 213 by 16.
    assert built == [64 + 16 + 5, 16 + 64 + 21, 16 + 85]


@pytest.mark.parametrize("beside", [1, 2, 3])
def test_chains_by_runs_are_those_of_a_joint_run(monkeypatch, bind, beside):
    """With many records no more chains are in a run than are beside each other."""
    bound, _ = bind(EmbeddedEngine(), "normal", 2, 0, N, **contract_defaults(N))
    settings = base.SamplerSettings(chains=5, warmup=20, draws=5, seed=3, parallel_chains=beside)
    starts = bound.random_points(5, seed=2)
    joint = bound.sample(settings, starts)
    monkeypatch.setattr(embedded, "_KEPT", N - 1)
    assert bound.sample(settings, starts).equals(joint)
    runs = {1: [1] * 5, 2: [2, 3], 3: [5]}
    assert [len(run) for run in bound._together(settings, beside)] == runs[beside]
