"""Posteriors of several group terms against the Gaussian model with its effects integrated out."""

import numpy as np
import pytest
from arviz_stats import mcse
from scipy import stats

import dpbayes as dpb
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.formula.groups import GroupColumn, group_data
from dpbayes.mechanisms.posterior.coordinates import group_coordinates
from dpbayes.stan.families import FAMILIES

N, A, B = 90, 6, 4
SETTINGS = dpb.SamplerSettings(seed=5, draws=2000)


def crossed_with_slopes():
    """y ~ x + (x | a) + (1 | b): data of the normal program, and Z Z' of each column."""
    rng = np.random.default_rng(11)
    a, b, x = rng.integers(0, A, N), rng.integers(0, B, N), rng.normal(size=N)
    slope, level = rng.multivariate_normal([0, 0], [[0.04, 0.05], [0.05, 0.09]], A).T
    y = 0.5 + 0.2 * x + level[a] + slope[a] * x + 0.2 * rng.normal(size=B)[b]
    columns = [
        GroupColumn(0, "x", ("a",), tuple(range(A)), True),
        GroupColumn(1, None, ("b",), tuple(range(B)), True),
        GroupColumn(0, None, ("a",), tuple(range(A)), True),
    ]
    data = {
        "n": N, "rows": N, "y": y + 0.3 * rng.normal(size=N), "K": 1, "X": x[:, None],
        **{f"prior_{name}": value for name, value in FAMILIES["normal"].priors.items()},
        **group_data(columns, [a, b, a], x[:, None], x[:, None]), **contract_defaults(N),
    }  # fmt: skip
    data |= FAMILIES["normal"].coordinates(data["J"], 0)
    same_a, same_b = (np.equal.outer(g, g).astype(float) for g in (a, b))
    return data, (np.outer(x, x) * same_a, same_b, same_a, np.add.outer(x, x) * same_a)


def log_posterior(data, parts, point):
    """Of sds of slopes, b and a as group_sd_raw, atanh r, log sigma: shape (5,)."""
    slope, b, a = sds = np.logaddexp(0, point[:3])
    r, sigma = np.tanh(point[3]), np.exp(point[4])
    cov = slope**2 * parts[0] + b**2 * parts[1] + a**2 * parts[2] + r * a * slope * parts[3]
    cov += sigma**2 * np.eye(N) + 1.0 + np.outer(data["X"], data["X"])
    factor = np.linalg.cholesky(cov)
    left = np.linalg.solve(factor, data["y"] - 0.5)
    prior = -0.5 * (sds @ sds + sigma**2) - np.logaddexp(0, -point[:3]).sum() + point[4]
    prior += 2 * np.log1p(-(r**2))  # LKJ(2), and the Jacobian of tanh
    return prior - 0.5 * left @ left - np.log(np.diag(factor)).sum()


@pytest.mark.statistical
@pytest.mark.parametrize("way", ["non-centred", "coordinates"])
def test_posterior_of_sds_and_correlation(way):
    """Five means by importance sampling from a t around the draws, 5 combined standard errors.

    False alarms at 6e-6 over seeds for both.
    """
    data, parts = crossed_with_slopes()
    bound = EmbeddedEngine().compile(dpb.StanProgram.for_family("normal")).bind(data)
    if way == "coordinates":
        bound = bound.rebind(**group_coordinates(bound, data))
    draws = bound.sample(SETTINGS)
    error = mcse(draws)
    sd, sigma = stacked(draws, "group_sd"), stacked(draws, "sigma")
    partial = stacked(draws, "group_partial")
    points = np.column_stack([stacked(draws, "group_sd_raw"), partial, np.log(sigma)])
    proposal = stats.multivariate_t(points.mean(axis=0), 1.3 * np.cov(points.T), df=5, seed=3)
    tried = proposal.rvs(6000)
    log_weight = [log_posterior(data, parts, point) for point in tried] - proposal.logpdf(tried)
    weight = np.exp(log_weight - np.max(log_weight))
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > 1000
    values = np.column_stack(
        [np.logaddexp(0, tried[:, :3]), np.tanh(tried[:, 3]), np.exp(tried[:, 4])]
    )
    mean = weight @ values
    spread = np.sqrt(weight**2 @ (values - mean) ** 2)
    found = np.append(sd.mean(axis=0), [np.tanh(partial).mean(), sigma.mean()])
    errors = np.concatenate(
        [np.ravel(error[name]) for name in ("group_sd", "group_correlation", "sigma")]
    )
    assert (np.abs(found - mean) < 5 * np.hypot(spread, errors)).all()
