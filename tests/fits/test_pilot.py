"""A pilot run of the chains: the posterior and what R-hat sees are those of chains without one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import ConvergenceError
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.mechanisms.posterior import records as on_records
from dpbayes.mechanisms.posterior import starts as on_starts
from tests.programs import GOOD, write

K = 20
SETTINGS = dpb.SamplerSettings(warmup=500, draws=500, seed=1)
UNIT = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
OUTCOME = {"type": "continuous", "lower": -10, "upper": 10}
# Forty parameters more, the first with two modes of equal weight that no chain goes between.
TWO_MODES = GOOD.replace("  real mu;\n", "  real mu;\n  vector[40] other;\n").replace(
    "  mu ~ normal(0, 2);\n",
    "  mu ~ normal(0, 2);\n  other[2:] ~ normal(0, 1);\n"
    "  target += log_mix(0.5, normal_lpdf(other[1] | -10, 1), normal_lpdf(other[1] | 10, 1));\n",
)


@pytest.fixture(scope="module")
def synthesizer():
    """Correlated covariates, and more parameters than Stan's first windows have draws."""
    x = [f"x{k}" for k in range(K)]
    schema = dpb.Schema.from_dict({"columns": {"y": OUTCOME, **dict.fromkeys(x, UNIT)}})
    model = dpb.Regression("y ~ " + " + ".join(x), "normal")
    return dpb.Synthesizer(schema, dpb.Censored(4.0), model, settings=SETTINGS)


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(1)
    x = (rng.uniform(-1, 1, (300, K)) + rng.uniform(-1, 1, (300, 1))) / 2
    y = np.clip(rng.normal(x.sum(axis=1)), -10, 10)
    return pd.DataFrame({"y": y, **{f"x{k}": x[:, k] for k in range(K)}})


@pytest.fixture
def runs(monkeypatch):
    """Settings, starts, metric and draws of each run of chains."""
    found = []
    sample = EmbeddedBinding.sample

    def spy(self, settings, starts=None):
        draws = sample(self, settings, starts)
        found.append((settings, starts, self._metric, draws))
        return draws

    monkeypatch.setattr(EmbeddedBinding, "sample", spy)
    return found


def coefficients(draws):
    return draws["posterior"]["coefficient"].to_numpy().reshape(-1, K)


def test_chains_go_on_from_a_pilot_run_with_its_metric(synthesizer, records, runs, monkeypatch):
    """The same posterior: of 20 means and 20 sds none is 5 standard errors off (2e-5 in all).

    That of the logarithm of an sd is 1 / sqrt(2 ESS), of nearly normal draws; the difference of two
    has 1 / sqrt(ESS), for which the smallest ESS of the tails stands.
    """
    fit = synthesizer.fit(records).fitted
    (pilot, far, nothing, drawn), (main, near, metric, _) = runs
    assert (pilot.warmup, pilot.metric, nothing) == (150, "diag_e", None)
    assert pilot.seed != main.seed  # or chains would repeat the pilot's random numbers
    assert (main.warmup, main.draws, main.metric) == (100, 500, "dense_e")
    last = drawn["posterior"]["coefficient"].to_numpy()[:, -1]
    np.testing.assert_array_equal(near["posterior"]["coefficient"].to_numpy()[:, 0], last)
    assert (
        far["posterior"]["coefficient"].std() > 2 * near["posterior"]["coefficient"].std()
    ).all()
    points = fit.bound_records.plain.unconstrain(drawn)
    np.testing.assert_allclose(metric, np.cov(points.T))
    monkeypatch.setattr(on_starts, "MANY", 1000)
    plain = synthesizer.fit(records).fitted
    assert (len(runs), runs[2][0].warmup, runs[2][2]) == (3, 500, None)
    ours, theirs = coefficients(fit.draws), coefficients(plain.draws)
    least = min(f.diagnostics.min_ess_bulk for f in (fit, plain))
    least_tail = min(f.diagnostics.min_ess_tail for f in (fit, plain))
    sd = theirs.std(axis=0)
    assert (np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 5 * sd * np.sqrt(2 / least)).all()
    assert (np.abs(np.log(ours.std(axis=0) / sd)) < 5 / np.sqrt(least_tail)).all()


def test_a_seed_reproduces_it_and_finished_chains_are_read(synthesizer, records, tmp_path):
    folder = tmp_path / "chains"
    one = synthesizer.fit(records, checkpoint=folder)
    two = synthesizer.fit(records, checkpoint=folder)
    three = synthesizer.fit(records)
    assert (one.checkpoint.reused, two.checkpoint.reused) == (0, 4)
    for other in (two, three):
        np.testing.assert_array_equal(
            coefficients(one.fitted.draws), coefficients(other.fitted.draws)
        )


def test_two_modes_are_reported(runs, tmp_path):
    """Chains start in both (four in one: not with this seed) and stay: nothing is made shorter."""
    schema = dpb.Schema.from_dict({"columns": {"y": OUTCOME}})
    program = dpb.Program(write(tmp_path, TWO_MODES), "y ~ 1")
    synthesizer = dpb.Synthesizer(
        schema, dpb.Censored(4.0), program, settings=SETTINGS, allow_unproved=True
    )
    records = pd.DataFrame({"y": np.random.default_rng(1).normal(size=50)})
    with pytest.raises(ConvergenceError, match=r"R-hat of other\[0\]"):
        synthesizer.fit(records)
    (*_, drawn), (main, near, metric, _) = runs[-2:]  # after those of the check
    assert (main.warmup, metric) == (500, None)
    ends = near["posterior"]["other"].to_numpy()[:, 0, 0]
    np.testing.assert_array_equal(ends, drawn["posterior"]["other"].to_numpy()[:, -1, 0])
    assert ends.min() < -5 < 5 < ends.max()


def test_without_a_metric_warm_up_is_whole(synthesizer, records, runs, monkeypatch):
    """Covariances that are singular to rounding begin nothing."""
    monkeypatch.setattr(on_records, "_SINGULAR", 1.0)
    synthesizer.fit(records)
    assert [(run[0].warmup, run[2]) for run in runs] == [(150, None), (500, None)]


@pytest.mark.parametrize("changes", [{"metric": "diag_e"}, {"warmup": 499}])
def test_no_pilot_run_where_it_would_not_pay(synthesizer, records, runs, changes):
    other = replace(synthesizer, settings=replace(SETTINGS, **changes))
    other.fit(records)
    assert len(runs) == 1


@pytest.mark.parametrize(("warmup", "pilot", "main"), [(1000, 150, 100), (3000, 450, 149)])
def test_more_warm_up_is_more_of_both(synthesizer, records, runs, warmup, pilot, main):
    """But the metric that chains begin with is kept, as it is below 150 iterations."""
    replace(synthesizer, settings=replace(SETTINGS, warmup=warmup, draws=50, chains=2)).fit(
        records, allow_nonconvergence=True
    )
    assert [run[0].warmup for run in runs] == [pilot, main]


def test_the_metric_is_diagonal_where_draws_are_not_correlated(synthesizer, runs):
    """Unless the user asks for a dense one."""
    rng = np.random.default_rng(2)
    apart = pd.DataFrame({f"x{k}": rng.uniform(-1, 1, 1500) for k in range(K)})
    apart["y"] = np.clip(rng.normal(apart.sum(axis=1)), -10, 10)
    for asked, found in ((None, "diag_e"), ("dense_e", "dense_e")):
        short = replace(SETTINGS, metric=asked, draws=50)
        replace(synthesizer, settings=short).fit(apart, allow_nonconvergence=True)
        main, _, metric, _ = runs[-1]
        assert (main.metric, metric.ndim) == (found, 1 if found == "diag_e" else 2)


def test_many_covariates_have_a_dense_metric_from_a_pilot_run_alone(runs, monkeypatch):
    many = [f"x{k}" for k in range(on_records.DENSE_METRIC_COVARIATES[0] + 1)]
    schema = dpb.Schema.from_dict({"columns": {"y": OUTCOME, **dict.fromkeys(many, UNIT)}})
    model = dpb.Regression("y ~ " + " + ".join(many), "normal")
    short = replace(SETTINGS, draws=50, chains=2)
    synthesizer = dpb.Synthesizer(schema, dpb.Censored(4.0), model, settings=short)
    rng = np.random.default_rng(1)
    x = (rng.uniform(-1, 1, (300, len(many))) + rng.uniform(-1, 1, (300, 1))) / 2
    table = pd.DataFrame(dict(zip(["y", *many], [rng.normal(size=300), *x.T], strict=True)))
    synthesizer.fit(table, allow_nonconvergence=True)
    monkeypatch.setattr(on_starts, "AGREE", 0.0)
    synthesizer.fit(table, allow_nonconvergence=True)
    assert [run[0].metric for run in runs] == ["diag_e", "dense_e", "diag_e", "diag_e"]


@pytest.mark.parametrize(("size", "draws"), [(1, 400), (20, 400), (60, 480)])
def test_chance_is_no_correlation(size, draws):
    """In 60 tables each, with fixed seeds; a pair with a correlation of .99 is found in any."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        points = rng.normal(size=(draws, size)) * rng.uniform(0.01, 100, size)
        assert on_starts.independent(points)
    if size > 1:
        points[:, 0] = points[:, 1] * (1 + 0.1 * rng.normal(size=draws))
        assert not on_starts.independent(points)
