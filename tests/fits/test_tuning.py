"""Tuning of risk weights on reference records."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb


def test_tune_meets_the_target_and_keeps_more_weight_than_scaling_alone():
    schema = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": 0, "upper": 1}}}
    )
    records = pd.DataFrame({"y": np.random.default_rng(3).beta(0.5, 3, 300)})
    settings = dpb.SamplerSettings(warmup=300, draws=300, seed=1)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Unweighted(), dpb.Regression("y ~ 1", "beta"), settings=settings
    )
    fit = synthesizer.with_mechanism(dpb.Weighted()).fit(records)
    paper = fit.fitted
    tuned = dpb.tune(synthesizer, records, paper.epsilon_local)
    assert 0.8 * paper.epsilon_local < tuned.tuning["local_epsilon"] <= paper.epsilon_local
    ours = synthesizer.with_mechanism(dpb.Weighted(tuned)).refit(fit).fitted
    assert ours.epsilon_local == pytest.approx(tuned.tuning["local_epsilon"])
    assert ours.weights.sum() > paper.weights.sum()


def test_tune_takes_all_weight_where_nothing_is_at_risk(monkeypatch):
    schema = dpb.Schema.from_dict({"columns": {"y": {"type": "binary", "levels": ["no", "yes"]}}})
    records = pd.DataFrame({"y": ["no", "yes"] * 100})
    settings = dpb.SamplerSettings(warmup=300, draws=300, seed=1)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Unweighted(), dpb.Regression("y ~ 1", "bernoulli"), settings=settings
    )
    tuned = dpb.tune(synthesizer, records, 10.0)
    assert (tuned.c1, tuned.c2) == (0.0, 1.0)
    # The posterior is then nearly the prior, whose draws make records riskier than planned.
    monkeypatch.setattr("dpbayes.synthesis.tuning.STEPS", 1)
    with pytest.raises(dpb.GuaranteeError, match=r"no weights meet the target ε = 0\.001"):
        dpb.tune(synthesizer, records, 0.001)
