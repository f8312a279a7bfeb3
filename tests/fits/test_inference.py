"""Posteriors from releases, and analyses of whole releases, where a chain has to be run."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.groups import group_data
from dpbayes.inference import (
    analyse,
    from_clamped_draws,
    from_synthetic_counts,
    read_release,
    share_posterior,
)
from dpbayes.inference.counts import clamped_density
from dpbayes.inference.regressions import formula_fit
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.program import StanProgram
from tests.cmdstan import NEEDS_CMDSTAN
from tests.conftest import make_records

ENGINES = ["embedded", pytest.param("cmdstan", marks=NEEDS_CMDSTAN)]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("counts", "n"),
    [([[30, 70]], 100), ([[6, 3, 3], [5, 4, 3]], 12), ([[4, 6]], {9: 0.4, 10: 0.6})],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_stan_agrees(engine, counts, n):
    """Posterior means within 5 MCSE: about 1e-6 by chance."""
    exact = from_synthetic_counts(counts, 2.5, n, prior=1.5)
    draws = exact.sample_with_stan(dpb.SamplerSettings(seed=1), engine)["posterior"]["p"].to_numpy()
    flat = draws.reshape(-1, draws.shape[-1])
    error = exact.sd / np.sqrt(len(flat) / 4)
    assert (np.abs(flat.mean(axis=0) - exact.mean) < 5 * error).all()
    assert (np.abs(flat.std(axis=0) / exact.sd - 1) < 0.1).all()
    with pytest.raises(InferenceError, match="no Stan program"):
        from_clamped_draws(5, draws=[0.5]).sample_with_stan()


@pytest.mark.parametrize(("weight", "window"), [(1.0, (-0.7, 0.0)), (0.3, (-0.5, 0.5))])
def test_clamped_density_is_that_of_the_synthesizer(weight, window):
    """Against the bundled bernoulli program, clamp and all, up to a constant."""
    y = np.r_[np.ones(7, int), np.zeros(13, int)]
    data = {
        "n": 20, "y": y, "K": 0, "X": np.empty((20, 0)), **FAMILIES["bernoulli"].coordinates(0, 0),
        **group_data((), (), np.empty((20, 0)), np.empty((20, 0))),
        **{f"prior_{k}": v for k, v in FAMILIES["bernoulli"].priors.items()},
        **FAMILIES["bernoulli"].switches, **contract_defaults(20),
        "weights": np.full(20, weight), "clip_lower": window[0], "clip_upper": window[1],
    }  # fmt: skip
    model = EmbeddedEngine().compile(StanProgram.for_family("bernoulli")).bind(data)
    points = model.random_points(500, seed=1)
    theirs = model.log_prob(points)
    at = stacked(points, "intercept")
    ours = clamped_density(np.array([[7.0, 13.0]]), at, weight, window, (0.0, 2.5))[0]
    np.testing.assert_allclose(np.diff(theirs), np.diff(ours), atol=1e-8)


def test_a_release_in_memory_is_understood(schema):
    settings = dpb.SamplerSettings(warmup=300, draws=200, seed=1)
    synthesizer = dpb.Synthesizer(
        schema,
        dpb.Anchored(3.0, adjacency="add-remove"),
        dpb.Regression("y ~ age", "beta"),
        settings=settings,
    )
    fit = synthesizer.fit(make_records(100), allow_nonconvergence=True)
    release = fit.sample(3, seed=1)
    with pytest.warns(UserWarning, match="no rule fits mechanism 'anchored'"):
        found = analyse(release, formula_fit("y ~ age"))
    assert found.datasets == 3
    assert np.isfinite(found.interval()).all()


@pytest.mark.parametrize(
    "mechanism",
    [dpb.Censored(1.0, adjacency="add-remove"), dpb.Anchored(1.0, "none", adjacency="add-remove")],
)
def test_a_share_from_what_a_release_says(mechanism, tmp_path):
    """Everything is read from the folder; against from_clamped_draws with settings by hand.

    The plain clamp leaves a share of about 1/70: many a data set has no "yes".
    """
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"ill": {"type": "binary", "levels": ["no", "yes"]}}}
    )
    records = pd.DataFrame({"ill": ["yes"] * 30 + ["no"] * 70})
    synthesizer = dpb.Synthesizer(
        schema, mechanism, dpb.Regression("ill ~ 1", "bernoulli"), engine="candidates"
    )
    fit = synthesizer.fit(records)
    dpb.publish(fit, tmp_path / "out", 5)
    release = read_release(tmp_path / "out" / "release")
    counts = [(data["ill"] == "yes").sum() for data in release.datasets]
    weight = 1.0 if mechanism.name == "censored" else 1 / 6
    by_hand = from_clamped_draws(100, counts=counts, weight=weight, window=(-1.0, 0.0))
    found = share_posterior(release, "yes")
    np.testing.assert_allclose(found.mean, by_hand.mean)
    np.testing.assert_allclose(found.sd, by_hand.sd)
    # The clamp treats the levels alike.
    assert share_posterior(release, "no").mean[0] == pytest.approx(found.mean[1])
    # Of other data sets, another: their counts are all that is read of them.
    other = fit.sample(3, seed=9)
    counts = [(data["ill"] == "yes").sum() for data in other.datasets]
    by_hand = from_clamped_draws(100, counts=counts, weight=weight, window=(-1.0, 0.0))
    np.testing.assert_allclose(share_posterior(other, "yes").mean, by_hand.mean)
    with pytest.raises(InferenceError, match="'maybe' is no level of column 'ill'; it has no, yes"):
        share_posterior(release, "maybe")


def test_shares_that_a_release_does_not_tell(schema):
    settings = dpb.SamplerSettings(warmup=200, draws=100, seed=1)
    for formula, family, mechanism, message in (
        (
            "ill ~ sex",
            "bernoulli",
            dpb.Censored(1.0, adjacency="add-remove"),
            "with formula 'y ~ 1'; this one is",
        ),
        ("y ~ 1", "beta", dpb.Censored(1.0, adjacency="add-remove"), "this one is 'beta'"),
        ("ill ~ 1", "bernoulli", dpb.Anchored(1.0, adjacency="add-remove"), "hides its anchor"),
        (
            "ill ~ 1",
            "bernoulli",
            dpb.CensoredWeighted(1.0, adjacency="add-remove"),
            "weighs records one by one",
        ),
    ):
        model = dpb.Regression(formula, family)
        synthesizer = dpb.Synthesizer(schema, mechanism, model, settings=settings)
        fit = synthesizer.fit(make_records(60), allow_nonconvergence=True)
        with pytest.raises(InferenceError, match=message):
            share_posterior(fit.sample(2, accept="none", seed=1), "yes")
