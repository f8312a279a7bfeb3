"""From records to release by real chains: every type of outcome, programs, figures, pilots."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.privacy.assumptions import PROVED_PROGRAM
from tests.conftest import make_records
from tests.programs import GOOD, write


def build(schema, mechanism, **options):
    return dpb.Synthesizer(schema, mechanism, dpb.Regression("y ~ age", "beta"), **options)


def test_a_refit_keeps_no_chains(schema, records, tmp_path):
    """A checkpoint is of one fit: what it holds is that fit's, and goes when it is cleared."""
    settings = dpb.SamplerSettings(chains=2, warmup=100, draws=50)
    synthesizer = build(schema, dpb.Censored(4.0, adjacency="add-remove"), settings=settings)
    folder = tmp_path / "chains"
    fit = synthesizer.fit(records, allow_nonconvergence=True, checkpoint=folder)
    kept = sorted(folder.iterdir())
    again = synthesizer.with_mechanism(dpb.Anchored(4.0, adjacency="add-remove")).refit(fit)
    assert (again.checkpoint, sorted(folder.iterdir())) == (None, kept)
    fit.checkpoint.clear()
    assert not folder.exists()


def test_a_release_names_the_anchor_that_was_taken(schema):
    """By default from tables with few records, drawn with more, and none with few of levels."""
    settings = dpb.SamplerSettings(chains=2, warmup=200, draws=100)
    cases = [("y ~ 1", "beta", 150, "histogram"), ("y ~ 1", "beta", 500, "draw"),
             ("ill ~ 1", "bernoulli", 40, "none")]  # fmt: skip
    for formula, family, n, anchor in cases:
        model = dpb.Regression(formula, family)
        synthesizer = dpb.Synthesizer(
            schema, dpb.Anchored(1.0, adjacency="add-remove"), model, settings=settings
        )
        release = synthesizer.fit(make_records(n), allow_nonconvergence=True).sample()
        statement = json.loads(release.files()["guarantee.json"])
        assert statement["settings"]["stages"][-1]["anchor"] == anchor
        assert statement["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("family", "outcome"),
    [("bernoulli", "ill"), ("categorical", "party"), ("ordinal", "health"), ("poisson", "visits")],
)
def test_other_outcome_types_end_to_end(family, outcome, schema, tmp_path):
    settings = dpb.SamplerSettings(warmup=500, draws=500)
    model = dpb.Regression(f"{outcome} ~ age + sex", family)
    synthesizer = dpb.Synthesizer(
        schema, dpb.Censored(20.0, adjacency="add-remove"), model, settings=settings
    )
    records = make_records(200)
    fit = synthesizer.fit(records)
    release = fit.sample()
    allowed = set(records[outcome]) if schema[outcome].levels else set(range(1001))
    assert set(release.datasets[0][outcome]) <= allowed
    dpb.publish(fit, tmp_path / "out")
    image = imread(tmp_path / "out" / "confidential" / "density.png")
    assert min(image.shape[:2]) > 100
    assert image[..., :3].std() > 0.05  # something is drawn


def test_custom_program_is_checked_on_the_way(schema, records, tmp_path):
    settings = dpb.SamplerSettings(warmup=500, draws=500, seed=1)

    def fit(text):
        program = dpb.Program(write(tmp_path, text), "y ~ 1")
        return dpb.Synthesizer(
            schema, dpb.Censored(2.0, adjacency="add-remove"), program, settings=settings
        ).fit(records)

    good = fit(GOOD)
    assert PROVED_PROGRAM in good.guarantee.assumptions
    assert good.sample().datasets[0]["y"].between(0, 10).all()
    with pytest.raises(dpb.ProgramError, match="line 18: y reaches target past pseudo_log_lik"):
        fit(GOOD.replace("mu ~ normal(0, 2)", "mu ~ normal(mean(y), 2)"))


def test_coefficients_in_the_covariates_units(schema):
    rng = np.random.default_rng(2)
    records = make_records(400)
    records["y"] = np.clip(2 + 0.1 * records["age"] + rng.normal(0, 0.3, 400), 0, 10)
    settings = dpb.SamplerSettings(warmup=500, draws=500, seed=1)
    model = dpb.Regression("y ~ age + sex", "normal")
    fit = dpb.Synthesizer(schema, dpb.Unweighted(), model, settings=settings).fit(records)
    table = fit.fitted.coefficients()
    # Least squares on the same records; the priors move it by far less than a posterior sd.
    X = np.column_stack([np.ones(400), records["age"], records["sex"] == "m"])
    expected = np.linalg.lstsq(X, records["y"], rcond=None)[0]
    assert (np.abs(table["mean"] - expected) < 0.25 * table["sd"]).all()


def test_many_records_start_from_a_pilot_fit(schema, monkeypatch):
    """Other starts, another metric, the same posterior: means within 5 MCSE (about 1e-6 each)."""
    records = make_records(600)
    started = []
    sample = EmbeddedBinding.sample

    metrics = []

    def spy(self, settings, starts=None):
        started.append((self._n, starts is not None, settings.warmup))
        metrics.append(self._metric)
        return sample(self, settings, starts)

    monkeypatch.setattr(EmbeddedBinding, "sample", spy)
    synthesizer = build(
        schema, dpb.Censored(4.0, adjacency="add-remove"), settings=dpb.SamplerSettings(seed=1)
    )
    plain = synthesizer.fit(records).fitted
    monkeypatch.setattr("dpbayes.mechanisms.posterior.records.PILOT_ABOVE", 500)
    monkeypatch.setattr("dpbayes.mechanisms.posterior.records.PILOT", 200)
    piloted = synthesizer.fit(records).fitted
    # From random points; or near the posterior, with a metric that 500 iterations found.
    assert started == [(600, True, 1000), (200, False, 500), (600, True, 100)]
    assert metrics[:2] == [None, None]
    found = piloted.bound_records.plain.unconstrain(piloted.draws).var(
        axis=0
    )  # they are not correlated
    ratio = metrics[2] / found  # 600 / 200, if all were as good
    assert 1 < ratio.min() <= ratio.max() < 9
    for name in ("intercept", "coefficient", "lambda"):
        a, b = (np.squeeze(f.draws["posterior"][name].to_numpy()) for f in (plain, piloted))
        ess = min(plain.diagnostics.min_ess_bulk, piloted.diagnostics.min_ess_bulk)
        assert abs(a.mean() - b.mean()) < 5 * a.std() * np.sqrt(2 / ess)
