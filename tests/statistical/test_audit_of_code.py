"""The audit looks at what a fit sampled, by the code that made it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.evaluate.audit import audit
from dpbayes.mechanisms.posterior import fit as fitting
from tests.statistical import plants

EPSILON = 0.5
SCHEMA = dpb.Schema.from_dict(
    {"rows": "public", "columns": {"y": {"type": "continuous", "lower": 0, "upper": 1}}}
)
RECORDS = pd.DataFrame({"y": np.random.default_rng(3).beta(30, 30, 100)})
SETTINGS = dpb.SamplerSettings(chains=2, warmup=300, draws=100, seed=1)


def fit(mechanism):
    model = dpb.Regression("y ~ 1", "beta")
    made = dpb.Synthesizer(SCHEMA, mechanism, model, settings=SETTINGS)
    return made.fit(RECORDS, allow_nonconvergence=True)


class Spy:
    """A binding that remembers what it was asked for."""

    def __init__(self, bound):
        self.bound, self.asked = bound, []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self.bound, name)


@pytest.mark.parametrize(
    "mechanism",
    [
        dpb.Censored(EPSILON, adjacency="add-remove"),
        dpb.Anchored(EPSILON, "two-stage", adjacency="add-remove"),
    ],
)
def test_what_was_sampled_is_what_is_examined(mechanism, monkeypatch):
    """The very bindings, stage by stage; neighbours' by the function that the fit used."""
    sampled, made = [], []
    sample, bind = EmbeddedBinding.sample, fitting.bind_stage
    monkeypatch.setattr(
        EmbeddedBinding, "sample", lambda self, *a: sampled.append(self) or sample(self, *a)
    )
    monkeypatch.setattr(
        fitting, "bind_stage", lambda *a: made.append(a) or bind(*a)
    )  # fit_stages and PosteriorFit.bound_stages
    found = fit(mechanism)
    bound = [posterior.bound_stage.bound for posterior in found.fitted.posteriors]
    assert all(a is b for a, b in zip(bound, sampled, strict=True))
    assert [stage for _, stage, *_ in made] == list(found.fitted.stages)
    made.clear()
    spies = [Spy(b) for b in bound]
    posteriors = tuple(
        replace(p, bound_stage=replace(p.bound_stage, bound=spy))
        for p, spy in zip(found.fitted.posteriors, spies, strict=True)
    )
    audit(replace(found, fitted=replace(found.fitted, posteriors=posteriors)), candidates=6)
    assert all("log_prob" in spy.asked for spy in spies)
    assert {len(records.task.records) for records, *_ in made} >= {100, 101}
    assert all(records.task.records is not found.records for records, *_ in made)
    # A neighbour's anchor is the draw that this fit has paid for.
    drawn = found.fitted.anchors[-1]
    assert all(at is drawn for _, stage, at, *_ in made if stage == found.fitted.stages[-1])


def test_a_bug_of_the_fit_alone_is_seen(monkeypatch):
    """Had the audit built a posterior of its own, it would have missed this."""
    with monkeypatch.context() as planted:
        plants.no_clamp(planted)
        found = fit(dpb.Censored(EPSILON, adjacency="add-remove"))
    assert audit(found, candidates=6).violated
