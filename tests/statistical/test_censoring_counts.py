"""Counts of censored and truncated records against Hu, Williams & Savitsky, Table 1.

The table has mean and sd of each count over R = 100 data sets of n = 2000 from Beta(0.5, 3). Means
over four data sets of ours are compared with them.
"""

import numpy as np
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.posterior.records import bind_stage
from studies.datasets import SKEWED_MODEL, SKEWED_SCHEMA, skewed
from studies.hu_williams_savitsky.censoring import PRINTED, QUANTITIES

DATA_SETS = 4
COMPARED = [key for key in PRINTED if key[0] == 1 and key[3] != "censored-weighted"]
pytestmark = pytest.mark.statistical


@pytest.fixture(scope="module")
def synthesizer():
    settings = dpb.SamplerSettings(warmup=500, draws=500, seed=1, parallel_chains=1)
    return dpb.Synthesizer(SKEWED_SCHEMA, dpb.Unweighted(), SKEWED_MODEL, settings=settings)


def test_mean_counts_are_the_printed_ones(synthesizer):
    """Six means within 4 standard errors, by the paper's sd: by chance one is not with probability
    6 x 6.3e-5 = 0.0004. Records rounded to 10^-6 truncate none at ε = 4, and are found out."""
    counts = {key: [] for key in COMPARED}
    for seed in range(DATA_SETS):
        plain = synthesizer.fit(skewed(2000, np.random.default_rng(seed)))
        for key in COMPARED:
            _, epsilon, _, name = key
            if name == "censored":
                fit = synthesizer.with_mechanism(
                    dpb.Censored(epsilon, adjacency="add-remove")
                ).refit(plain)
                counts[key].append(fit.fitted.n_censored)
            else:  # what is truncated follows from the unweighted fit
                on = plain.fitted.bound_records
                (stage,) = dpb.WeightedE(epsilon, adjacency="add-remove").stages(on.problem())
                counts[key].append(int(bind_stage(on, stage).weighting.truncated.sum()))
    assert len(counts) == 6
    for key, found in counts.items():
        printed = dict(zip(QUANTITIES, PRINTED[key], strict=True))
        error = printed["sd"] * np.sqrt(1 / DATA_SETS + 1 / 100)
        assert abs(np.mean(found) - printed["mean"]) < 4 * error, (key, np.mean(found), error)


def test_weighting_and_clamping_lower_the_bound(synthesizer):
    """Unweighted bounds of about 7.5 to 15, weighted ones of about 2 to 3.5 (section 4.2)."""
    weighted = synthesizer.with_mechanism(dpb.Weighted())
    fit = weighted.fit(skewed(2000, np.random.default_rng(1)))
    # The printed ranges, widened by a quarter on either side: they are read off a violin plot.
    assert 7.5 / 1.25 < fit.fitted.lipschitz_bound_unweighted < 15 * 1.25
    assert 2 / 1.25 < fit.fitted.lipschitz_bound < 3.5 * 1.25
    censored = synthesizer.with_mechanism(dpb.Censored(5, adjacency="add-remove")).refit(fit)
    assert censored.fitted.lipschitz_bound == 2.5
