"""Whole mechanisms, run often on neighbours: a lower bound on the ε that they really have.

For each output set {count <= c} and {count > c} a Clopper-Pearson bound on the log ratio of its
probabilities, at a level of 1e-6 for all sets together. A bound above the claim would be a
violation; the test fails by chance at most once in a million. The bound also has to reach a value
that shows that the audit could have found one.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpbayes as dpb
from dpbayes.privacy.noise import StudyNoise

pytestmark = pytest.mark.statistical

TREE = {"columns": {"x": {"type": "binary"}}}
SCHEMA = dpb.Schema.from_dict({"rows": "public", **TREE})
N, RUNS, BATCH, EPSILON = 6, 6000, 1000, 1.5
# With what a bound on synthetic counts has to reach: synthesis after the noise blurs them further.
MECHANISMS = [
    (dpb.Laplace(EPSILON, adjacency="add-remove"), 1.1),
    (dpb.Laplace(EPSILON, out_of_range="truncate", adjacency="add-remove"), 1.1),
    (dpb.Laplace(EPSILON, out_of_range="zero", adjacency="substitution"), 0.5),
    (dpb.PerturbedHistogram(EPSILON, adjacency="substitution"), 0.45),
    (dpb.EmpiricalBootstrap(EPSILON, adjacency="substitution"), 0.35),
    (dpb.EmpiricalBootstrap(EPSILON, resample=False, adjacency="add-remove"), 1.1),
    (dpb.BetaBinomial(EPSILON), 0.4),
    (dpb.BetaBinomialMR(EPSILON), 0.3),
    (dpb.Modips(EPSILON, "bernoulli", adjacency="add-remove"), 0.6),
    (dpb.Modips(EPSILON, "bernoulli", out_of_range="truncate", adjacency="add-remove"), 0.45),
    (dpb.Modips(EPSILON, "multinomial", settings={"alpha": 0.1}, adjacency="add-remove"), 0.85),
]


def counts(mechanism, ones, seed):
    """Shares of ones in many data sets of N records."""
    few = np.array([1] * ones + [0] * (N - ones))
    noise, found = StudyNoise(seed), []
    if isinstance(mechanism, dpb.Modips):  # has no place for public columns: one run at a time
        fitted = dpb.Synthesizer(SCHEMA, mechanism).fit(pd.DataFrame({"x": few})).fitted
        for output in fitted.draw_outputs(RUNS, noise):
            found.append((fitted.synthetic(output, N, noise.rng)["x"].to_numpy() == 1).mean())
        return np.array(found)
    # Strata of public columns are data sets of their own, with their own noise: BATCH runs at once.
    run = np.repeat(np.arange(BATCH), N)
    records = pd.DataFrame({"x": np.tile(few, BATCH), "run": run})
    batched = dpb.Schema(
        {
            **SCHEMA.columns,
            "run": dpb.Column("run", "categorical", levels=tuple(range(BATCH)), public=True),
        }
    )
    fitted = dpb.Synthesizer(batched, mechanism).fit(records).fitted
    for _ in range(RUNS // BATCH):
        x = fitted.synthetic(fitted.draw_private(noise), len(records), noise.rng)["x"].to_numpy()
        found.append((x == 1).reshape(BATCH, N).mean(axis=1))
    return np.concatenate(found)


def lower_bound(a, b):
    """Of the largest |log ratio|, over half-lines of the output."""
    best = 0.0
    runs = len(a)
    cuts = np.unique(np.concatenate([a, b]))
    level = 1e-6 / (4 * cuts.size)
    for cut in cuts:
        for over in (True, False):
            k, other = (int(((v > cut) == over).sum()) for v in (a, b))
            for top, bottom in ((k, other), (other, k)):
                low = stats.beta.ppf(level, top, runs - top + 1) if top else 0.0
                high = stats.beta.ppf(1 - level, bottom + 1, runs - bottom) if bottom < runs else 1
                if low > 0:
                    best = max(best, float(np.log(low / high)))
    return best


@pytest.mark.parametrize(
    ("mechanism", "least"), MECHANISMS, ids=lambda v: getattr(v, "name", str(v))
)
def test_no_more_epsilon_than_claimed(mechanism, least):
    """A changed record at the edge, where truncation and small counts tell most."""
    found = lower_bound(counts(mechanism, 0, 1), counts(mechanism, 1, 2))
    assert least < found <= mechanism.guarantee().epsilon_substitution


@pytest.mark.parametrize("mechanism", [m for m, _ in MECHANISMS], ids=lambda m: m.name)
def test_no_more_epsilon_than_claimed_for_one_record_and_none(mechanism):
    """Added or removed, where the number of rows is declared: the emptiest of tables."""
    declared = dpb.Schema.from_dict({"rows": N, **TREE})
    found = []
    for seed, ones in ((3, [1]), (4, [])):
        records = declared.validate(pd.DataFrame({"x": ones}))
        fitted, noise = mechanism.prepare(declared, records, N), StudyNoise(seed)
        sets = (fitted.synthetic(o, N, noise.rng)["x"] for o in fitted.draw_outputs(1500, noise))
        found.append(np.array([(x.to_numpy() == 1).mean() for x in sets]))
    assert lower_bound(*found) <= mechanism.guarantee().epsilon


def test_the_audit_finds_a_mechanism_without_noise(monkeypatch):
    mechanism = dpb.BetaBinomial(EPSILON)
    monkeypatch.setattr(type(mechanism), "least_alpha", staticmethod(lambda epsilon, size: 1e-6))
    assert lower_bound(counts(mechanism, 0, 1), counts(mechanism, 1, 2)) > 3 * EPSILON
