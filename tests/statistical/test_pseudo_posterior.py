"""Weights act as powers of the likelihood: the weighted Bernoulli posterior has a closed form."""

import numpy as np
import pytest
from scipy import integrate, stats

import dpbayes as dpb
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.diagnostics import diagnose
from dpbayes.engines.draws import stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.groups import group_data
from dpbayes.stan.families import FAMILIES

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("window", [(-np.inf, np.inf), (-0.6, 0.6)])
def test_bernoulli_pseudo_posterior_mean(window):
    """Posterior mean of the intercept within 4.5 MCSE of quadrature.

    Error rate: P(|N(0,1)| > 4.5) = 7e-6 per case; the seed is fixed.
    """
    rng = np.random.default_rng(4)
    n = 40
    y = rng.integers(0, 2, n)
    weights = rng.uniform(size=n)
    data = {
        "n": n, "y": y, "K": 0, "X": np.empty((n, 0)), **FAMILIES["bernoulli"].coordinates(0, 0),
        **group_data((), (), np.empty((n, 0)), np.empty((n, 0))),
        "prior_intercept": (0.0, 2.5), "prior_coefficient": 1.0, "prior_group_sd": 1.0,
        "divergence": 0.0, **contract_defaults(n), "weights": weights,
        "clip_lower": window[0], "clip_upper": window[1],
    }  # fmt: skip
    model = EmbeddedEngine().compile(dpb.StanProgram.for_family("bernoulli"))
    draws = model.bind(data).sample(dpb.SamplerSettings(seed=8, draws=4000))

    def density(a):
        log_lik = np.where(y == 1, -np.logaddexp(0, -a), -np.logaddexp(0, a))
        terms = np.clip(weights * log_lik, *window)
        return np.exp(terms.sum()) * stats.norm.pdf(a, 0, 2.5)

    area = integrate.quad(density, -15, 15, limit=500)[0]
    mean = integrate.quad(lambda a: a * density(a), -15, 15, limit=500)[0] / area
    sample = stacked(draws, "intercept")
    mcse = sample.std() / np.sqrt(diagnose(draws, 10).min_ess_bulk)
    assert abs(sample.mean() - mean) < 4.5 * mcse
