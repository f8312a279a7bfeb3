"""Hierarchical models mix where groups are few and large, alike or far apart, clamped or not."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb

LEVELS = ["a", "b", "c"]
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "g": {"type": "categorical", "levels": LEVELS, "public": True},
        }
    }
)


def records(apart):
    rng = np.random.default_rng(7)
    group = np.arange(1500) % 3
    y = np.clip(rng.normal(0.5 + apart * (group - 1), 0.1), 0, 1)
    return pd.DataFrame({"y": y, "g": np.array(LEVELS)[group]})


@pytest.mark.parametrize("apart", [0.0, 0.2])
@pytest.mark.parametrize("mechanism", [dpb.Censored(4.0), dpb.Anchored(1.0)], ids=lambda m: m.name)
def test_three_large_groups(mechanism, apart):
    """Steps and effective draws; non-centred chains took hundreds of steps. The seed is fixed."""
    settings = dpb.SamplerSettings(chains=2, warmup=500, draws=500, seed=4)
    made = dpb.Synthesizer(
        SCHEMA, mechanism, dpb.Regression("y ~ (1 | g)", "normal"), settings=settings
    )
    posterior = made.fit(records(apart)).fitted.posterior
    assert posterior.diagnostics.min_ess_bulk > 200
    assert posterior.diagnostics.divergences == 0
    assert posterior.draws["sample_stats"]["n_steps"].mean() < 30


def test_the_way_of_chains_is_not_told():
    """Draws hold effects and sds as a program has them that is given no coordinates."""
    settings = dpb.SamplerSettings(chains=2, warmup=100, draws=50, seed=4)
    made = dpb.Synthesizer(
        SCHEMA, dpb.Censored(4.0), dpb.Regression("y ~ (1 | g)", "normal"), settings=settings
    )
    fit = made.fit(records(0.2), allow_nonconvergence=True)
    draws = fit.fitted.posterior.draws["posterior"]
    np.testing.assert_allclose(
        draws["group_effect"], draws["group_sd"].to_numpy() * draws["group_raw"]
    )
