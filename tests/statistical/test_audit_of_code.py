"""The audit looks at what a fit sampled, by the code that made it: bugs planted there are seen."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.evaluate.audit import audit
from dpbayes.mechanisms.posterior import fit as fitting
from dpbayes.mechanisms.posterior import records as binding
from dpbayes.mechanisms.posterior.risk import linear_weights
from dpbayes.mechanisms.posterior.weights import Weighting

EPSILON = 0.5
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 1},
            "ill": {"type": "binary", "levels": ["no", "yes"]},
        }
    }
)
RNG = np.random.default_rng(3)
# Alike, so that one record at the end of the domain moves what is estimated from all of them.
RECORDS = pd.DataFrame({"y": RNG.beta(30, 30, 100), "ill": RNG.choice(["no", "yes"], 100)})
SETTINGS = dpb.SamplerSettings(chains=2, warmup=300, draws=100, seed=1)
BETA, BERNOULLI = dpb.Regression("y ~ 1", "beta"), dpb.Regression("ill ~ 1", "bernoulli")


def fit(mechanism, model=BETA, engine="embedded"):
    made = dpb.Synthesizer(SCHEMA, mechanism, model, engine=engine, settings=SETTINGS)
    return made.fit(RECORDS, allow_nonconvergence=True)


class Spy:
    """A binding that remembers what it was asked for."""

    def __init__(self, bound):
        self.bound, self.asked = bound, []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self.bound, name)


@pytest.mark.parametrize("mechanism", [dpb.Censored(EPSILON), dpb.Anchored(EPSILON)])
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
    bound = [posterior.on.bound for posterior in found.fitted.posteriors]
    assert all(a is b for a, b in zip(bound, sampled, strict=True))
    assert [stage for _, stage, _ in made] == list(found.fitted.stages)
    made.clear()
    spies = [Spy(b) for b in bound]
    posteriors = tuple(
        replace(p, on=replace(p.on, bound=spy))
        for p, spy in zip(found.fitted.posteriors, spies, strict=True)
    )
    audit(replace(found, fitted=replace(found.fitted, posteriors=posteriors)), candidates=6)
    assert all("log_prob" in spy.asked for spy in spies)
    assert {len(records.task.records) for records, *_ in made} >= {100, 101}
    assert all(records.task.records is not found.records for records, *_ in made)
    # A neighbour's anchor is the draw that this fit has paid for.
    drawn = found.fitted.anchors[-1]
    assert all(at is drawn for _, stage, at in made if stage == found.fitted.stages[-1])


def no_clamp(monkeypatch):
    """The window is forgotten on the way to the program."""
    constants = binding.stage_constants
    window = {"clip_lower": -np.inf, "clip_upper": np.inf}
    monkeypatch.setattr(
        binding, "stage_constants", lambda model, stage: {**constants(model, stage), **window}
    )


def own_anchor(monkeypatch):
    """The anchor is the posterior mean of the records themselves, which nobody has paid for."""
    log_lik_at = binding._log_lik_at

    def at_their_mean(records, at):
        names = [str(name) for name in at["posterior"].data_vars]
        draws = records.unweighted.draws
        mean = {name: stacked(draws, name).mean(axis=0)[None, None] for name in names}
        return log_lik_at(records, make_draws(mean))

    monkeypatch.setattr(binding, "_log_lik_at", at_their_mean)


def own_weights(monkeypatch):
    """Constant weights that are scaled by the largest risk among the records."""

    constant = dpb.ConstantWeights.weighting

    def weighting(self, records):
        if self.alpha == 1:  # of the unweighted fit, by which risk is measured
            return constant(self, records)
        weights = self.alpha * linear_weights(records.sensitivity(), 1.0, 0.0)
        return Weighting(weights, np.zeros(records.n, dtype=bool))

    monkeypatch.setattr(dpb.ConstantWeights, "weighting", weighting)


BUGS = {
    "forgotten clamp": (no_clamp, dpb.Censored(EPSILON), BETA, "embedded"),
    "forgotten clamp, anchored": (no_clamp, dpb.Anchored(EPSILON), BETA, "embedded"),
    "forgotten clamp, on the grid": (no_clamp, dpb.Censored(EPSILON), BERNOULLI, "exact"),
    "unpaid anchor": (own_anchor, dpb.Anchored(EPSILON), BETA, "embedded"),
    "weights by the records": (
        own_weights,
        dpb.CensoredWeighted(EPSILON, weights=dpb.ConstantWeights(0.5)),
        BETA,
        "embedded",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen_and_nothing_without_it(name, monkeypatch):
    plant, mechanism, model, engine = BUGS[name]
    claim = mechanism.guarantee()
    assert (claim.basis, claim.epsilon) == ("strict", pytest.approx(EPSILON))
    sound = audit(fit(mechanism, model, engine), candidates=8)
    assert not sound.violated, str(sound)
    plant(monkeypatch)
    wrong = audit(fit(mechanism, model, engine), candidates=8)
    assert wrong.guarantee == sound.guarantee  # the claim knows nothing of the bug
    assert wrong.violated
    assert wrong.add_remove > 2 * EPSILON


def test_a_bug_of_the_fit_alone_is_seen(monkeypatch):
    """Had the audit built a posterior of its own, it would have missed this."""
    with monkeypatch.context() as planted:
        no_clamp(planted)
        found = fit(dpb.Censored(EPSILON))
    assert audit(found, candidates=6).violated
