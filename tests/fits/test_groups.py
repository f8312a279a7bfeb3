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


WORDS = ["u", "v", "w", "x", "y"]
WIDE = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "kind": {"type": "categorical", "levels": LEVELS},
            "grade": {"type": "ordinal", "levels": ["low", "middle", "high"]},
            "x": {"type": "continuous", "lower": -1, "upper": 1, "public": True},
            "g": {"type": "categorical", "levels": LEVELS, "public": True},
            "h": {"type": "categorical", "levels": WORDS, "public": True},
        }
    }
)


def wide(apart, n=1200):
    """Groups g and h, each with a level of its own, and slopes of x by g."""
    rng = np.random.default_rng(9)
    g, h = rng.integers(0, 3, n), rng.integers(0, 5, n)
    x = rng.uniform(-1, 1, n)
    eta = apart * (g - 1 + np.array([1, -1, 0, 2, -2])[h] / 2 + x * np.array([1, -1, 0])[g])
    y = np.clip(rng.normal(0.5 + eta, 0.1), 0, 1)
    kind = (rng.gumbel(size=(n, 3)) + np.column_stack([0 * eta, 4 * eta, -eta])).argmax(axis=1)
    grade = np.digitize(rng.logistic(4 * eta), [-1, 1])
    return pd.DataFrame(
        {
            "y": y, "kind": np.array(LEVELS)[kind], "x": x, "g": np.array(LEVELS)[g],
            "grade": np.array(["low", "middle", "high"])[grade], "h": np.array(WORDS)[h],
        }
    )  # fmt: skip


TERMS = ["(1 | g) + (1 | h)", "x + (x | g) + (1 | h)", "x + (x || h)", "(1 | g/h)"]


@pytest.mark.parametrize("apart", [0.0, 0.1])
@pytest.mark.parametrize("terms", TERMS)
def test_several_terms(terms, apart):
    """Non-centred chains of these take hundreds of steps, and diverge. The seed is fixed."""
    settings = dpb.SamplerSettings(chains=2, warmup=500, draws=500, seed=4)
    made = dpb.Synthesizer(
        WIDE, dpb.Censored(4.0), dpb.Regression(f"y ~ {terms}", "normal"), settings=settings
    )
    posterior = made.fit(wide(apart), allow_nonconvergence=True).fitted.posterior
    assert posterior.diagnostics.min_ess_bulk > 200
    assert posterior.diagnostics.divergences == 0
    assert posterior.draws["sample_stats"]["n_steps"].mean() < 30


@pytest.mark.parametrize(("family", "outcome"), [("normal", "y"), ("categorical", "kind"),
                                                 ("ordinal", "grade")])  # fmt: skip
def test_a_release_has_the_groups_of_all_terms(family, outcome):
    """Means by pair of groups of a synthetic table, near those of the records."""
    settings = dpb.SamplerSettings(chains=2, warmup=200, draws=100, seed=4)
    model = dpb.Regression(f"{outcome} ~ x + (x | g) + (1 | h)", family)
    made = dpb.Synthesizer(WIDE, dpb.Unweighted(), model, settings=settings)
    records = wide(0.2)
    release = made.fit(records, allow_nonconvergence=True).sample(accept="none", seed=1)
    first = {"y": None, "kind": "b", "grade": "high"}[outcome]

    def means(table):
        number = table[outcome] if first is None else (table[outcome] == first).astype(float)
        up = table["x"] > 0
        return number.groupby([table["g"], table["h"], up], observed=True).mean()

    real, synthetic = means(records), means(release.datasets[0])
    assert len(real) == 30
    assert np.corrcoef(real, synthetic)[0, 1] > 0.8
    assert np.abs(real - synthetic).mean() < (0.03 if first is None else 0.1)


def test_what_is_said_of_groups():
    settings = dpb.SamplerSettings(chains=2, warmup=300, draws=200, seed=4)
    made = dpb.Synthesizer(
        WIDE, dpb.Unweighted(), dpb.Regression("y ~ x + (x | g) + (1 | h)", "normal"),
        settings=settings,
    )  # fmt: skip
    fit = made.fit(wide(0.1), allow_nonconvergence=True).fitted
    assert list(fit.coefficients().index) == ["Intercept", "x"]
    table = fit.group_sds()
    assert list(table.index) == ["sd(x | g)", "sd(1 | g)", "sd(1 | h)", "cor(x, 1 | g)"]
    np.testing.assert_allclose(
        table["mean"][:3], fit.draws["posterior"]["group_sd"].mean(("chain", "draw"))
    )
    assert -1 < table["mean"]["cor(x, 1 | g)"] < 0  # smaller where intercepts are larger


def test_a_program_of_ones_own_is_given_one_term(tmp_path):
    path = tmp_path / "mine.stan"
    path.write_text(MINE)
    dpb.Program(path, "y ~ x + (1 | g:h)").on(WIDE)
    for terms in ("(1 | g) + (1 | h)", "(x | g)", "(0 + x | g)", "(1 | g/h)"):
        with pytest.raises(dpb.SchemaError, match=r"is given n, y, K, X, J, group, and so no more"):
            dpb.Program(path, f"y ~ {terms}").on(WIDE)


MINE = """
functions {
#include pseudo_likelihood.stan
}
data {
  int<lower=1> n;
  vector[n] y;
  int<lower=0> J;
  array[J > 0 ? n : 0] int<lower=1, upper=J> group;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
  int<lower=0, upper=1> emit_y_rep;
}
parameters {
  vector[J] mu;
}
model {
  mu ~ normal(0.5, 1);
  vector[n] log_lik_i = -2 * square(y - mu[group]);
  target += pseudo_log_lik(log_lik_i, weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit ? n : 0] log_lik;
  array[emit_y_rep ? n : 0] real y_rep;
  if (emit) log_lik = -2 * square(y - mu[group]);
  if (emit_y_rep) y_rep = normal_rng(mu[group], 0.5);
}
"""


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
