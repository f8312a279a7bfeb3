"""Anchored censoring for every family, with covariates and groups, and what m data sets cost."""

import numpy as np
import pytest

import dpbayes as dpb
from tests.conftest import make_records
from tests.programs import OUTCOME, one_of_each_program

SETTINGS = dpb.SamplerSettings(chains=2, warmup=500, draws=300, seed=3)


@pytest.mark.parametrize("family", one_of_each_program())
def test_every_program_with_covariates_and_groups(schema, family):
    records = make_records(400)
    model = dpb.Regression(f"{OUTCOME[family]} ~ age + sex + (1 | region)", family)
    mechanism = dpb.Anchored(2.0, "two-stage", share=0.25, adjacency="add-remove")
    synthesizer = dpb.Synthesizer(schema, mechanism, model, settings=SETTINGS)
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    fitted = fit.fitted
    first, last = (stage.window for stage in fitted.stages)
    assert first[1] - first[0] == pytest.approx(0.5)
    assert last[1] - last[0] == pytest.approx(1.5)
    # Both stages' terms stay in their windows, for every record and draw.
    for posterior, window in zip(fitted.posteriors, fitted.stages, strict=True):
        low, high = window.window
        assert posterior.risk.bound <= max(-low, high) + 1e-12
    release = fit.sample(datasets=3, seed=1)
    assert release.guarantee.basis == "strict"
    assert release.guarantee.epsilon == pytest.approx(0.5 + 3 * 1.5)
    for data in release.datasets:
        schema.validate(data.assign(**{c: records[c] for c in records if c not in data}))
        assert sorted(data["age"]) == sorted(records["age"])


def test_an_anchor_changes_nothing_without_a_clamp_that_acts(schema):
    """A wide window: anchored and plain posterior agree within 5 MCSE (about 1e-6 by chance)."""
    records = make_records(300)
    model, settings = dpb.Regression("y ~ age", "beta"), dpb.SamplerSettings(seed=5)
    synthesizer = dpb.Synthesizer(schema, dpb.Unweighted(), model, settings=settings)
    plain = synthesizer.fit(records)
    mechanism = dpb.Anchored(50, synthesizer.reference(records), adjacency="add-remove")
    anchored = synthesizer.with_mechanism(mechanism).refit(plain).fitted
    assert anchored.n_censored == 0
    assert (anchored.weights == 1).all()
    for name in ("intercept", "lambda"):
        a, b = (f.draws["posterior"][name].to_numpy() for f in (anchored, plain.fitted))
        assert abs(a.mean() - b.mean()) < 5 * a.std() * np.sqrt(
            2 / anchored.diagnostics.min_ess_bulk
        )
