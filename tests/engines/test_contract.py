"""What every engine must do (engines/base.py), checked by a second path in NumPy and SciPy."""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from arviz_stats import mcse
from conftest import ATOMS, family_data
from scipy import special, stats

from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.engines import ENGINES, SamplerSettings, get_engine, worker
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.engines.cmdstan_run import run_commands
from dpbayes.engines.contract import check_contract, contract_defaults
from dpbayes.engines.draws import SAMPLER_STATS, make_draws, stacked
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.engines.progress import SamplingProgress
from dpbayes.engines.recorded import RecordedEngine
from dpbayes.schema import Column
from dpbayes.stan.families import FAMILIES, family_of
from dpbayes.stan.program import StanProgram

SHAPES = [(0, 0), (2, 3), (2, "terms")]
SHORT = SamplerSettings(chains=2, warmup=100, draws=50, seed=3)

# A coin with known posterior, written as a user would: without the switch emit_y_rep. ``possible``
# 0 makes a record impossible; ``broken`` 1 and 2 raise an error in target and in generated
# quantities where theta > 1/2, 3 in target everywhere; 4 leaves log_lik and y_rep empty.
COIN = """
functions {
#include pseudo_likelihood.stan
  vector coin_log_lik(vector y, vector possible, real theta) {
    return y * log(theta) + (1 - y) * log1m(theta) + log(possible);
  }
}
data {
  int<lower=1> n;
  vector<lower=0, upper=1>[n] y;
  vector<lower=0, upper=1>[n] possible;
  int<lower=0, upper=4> broken;
  vector<lower=0, upper=1>[n] weights;
  vector[n] anchor;
  real clip_lower;
  real clip_upper;
  int<lower=0, upper=1> emit;
}
parameters {
  real<lower=0, upper=1> theta;
}
model {
  if (broken == 3 || (broken == 1 && theta > 0.5)) reject("broken on purpose");
  theta ~ beta(2, 3);
  target += pseudo_log_lik(coin_log_lik(y, possible, theta),
                           weights, anchor, clip_lower, clip_upper);
}
generated quantities {
  vector[emit && broken < 4 ? n : 0] log_lik;
  array[emit && broken < 4 ? n : 0] int y_rep;
  real elsewhere = theta;
  if (emit && broken < 4) {
    if (broken == 2 && theta > 0.5) reject("broken on purpose");
    log_lik = coin_log_lik(y, possible, theta);
    y_rep = bernoulli_rng(rep_vector(theta, n));
  }
}
"""


@pytest.fixture(scope="session")
def coin_program(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "coin.stan"
    path.write_text(COIN)
    return StanProgram.from_file(path)


@pytest.fixture
def coin(engine, coin_program):
    return engine.compile(coin_program).bind(coin_data())


def coin_data(n=30):
    y = np.random.default_rng(5).integers(0, 2, n)
    return {"n": n, "y": y, "possible": np.ones(n), "broken": 0, **contract_defaults(n)}


class Levels:
    """A distribution over levels 1..C per record, from probabilities of shape (n, C)."""

    def __init__(self, probability):
        self.probability = probability

    def logpmf(self, y):
        return np.log(np.take_along_axis(self.probability, y[:, None] - 1, axis=1)[:, 0])

    def cdf(self, y):
        total = np.hstack([np.zeros((len(y), 1)), self.probability.cumsum(axis=1)])
        return np.take_along_axis(total, np.asarray(y, dtype=int)[:, None], axis=1)[:, 0]


def group_part(data, point):
    """What group effects add to the linear predictors, by Cholesky factors of correlations."""
    raw, sd = point["group_raw"], np.logaddexp(0, point["group_sd_raw"])
    first = data["group_column"][:, 0] - 1
    where = data["group_index"] - 1
    z = raw[where]  # n, T and, of a categorical outcome, its levels
    if data["P"]:  # of (x + z | a): columns 0, 1 and 3
        r = np.tanh(point["group_partial"])
        s = np.sqrt(1 - r**2)
        of_a = z[:, [0, 1, 3]].copy()
        z[:, 1] = r[0] * of_a[:, 0] + s[0] * of_a[:, 1]
        z[:, 3] = r[1] * of_a[:, 0] + s[1] * (r[2] * of_a[:, 1] + s[2] * of_a[:, 2])
        assert (first[[0, 1, 3]] == [0, 2, 7]).all()
    times = np.ones((len(z), data["T"]))
    times[:, : data["S"]] = data["slope_X"] if data["S"] else times[:, :0]
    return np.einsum("nt,nt...->n...", times, z * sd)


class Truncated:
    """A discrete distribution given that it is not 0, or the logarithm's, between ends."""

    def __init__(self, whole):
        self.whole = whole

    def logpmf(self, y):
        return self.whole.logpmf(y) - self.whole.logsf(0)

    def cdf(self, y):
        return np.where(y < 1, 0, 1 - self.whole.sf(y) / self.whole.sf(0))


class OfLogarithm:
    """A positive value whose logarithm has a distribution."""

    def __init__(self, of):
        self.of = of

    def logpdf(self, y):
        return self.of.logpdf(np.log(y)) - np.log(y)

    def cdf(self, y):
        return self.of.cdf(np.log(y))


class Parts:
    """At points with some probabilities, shape (n, points), or else of another distribution."""

    def __init__(self, points, probability, rest, *, continuous, seen=True):
        self.points, self.probability, self.rest = points, probability, rest
        self.continuous, self.seen = continuous, seen

    def _log(self, y):
        with np.errstate(divide="ignore"):
            rest = (self.rest.logpdf if self.continuous else self.rest.logpmf)(y)
        log_rest = np.log1p(-self.probability.sum(axis=1)) + rest
        found = log_rest.copy()
        for k, value in enumerate(self.points):
            there = y == value
            at = np.log(self.probability[:, k])
            found[there] = (at if self.seen else np.logaddexp(at, log_rest))[there]
        return found

    logpdf = logpmf = _log

    def cdf(self, y, *, strictly=False):
        rest = self.rest.cdf(y - 1 if strictly and not self.continuous else y)
        total = (1 - self.probability.sum(axis=1)) * rest
        for k, value in enumerate(self.points):
            total += self.probability[:, k] * ((value < y) if strictly else (value <= y))
        return total

    def below(self, y):
        return self.cdf(y, strictly=True)


class Mixture:
    """Normal components with shares, around means of shape (n,)."""

    def __init__(self, share, mean, shift, sigma):
        self.share = share
        self.each = stats.norm(mean[:, None] + shift, sigma)

    def logpdf(self, y):
        return special.logsumexp(self.each.logpdf(y[:, None]), axis=1, b=self.share)

    def cdf(self, y):
        return self.each.cdf(y[:, None]) @ self.share


class FirstOfTwo:
    """Times to an event, or below 0 to leaving before it, up to an end at 1."""

    def __init__(self, event, leaving):
        self.event, self.leaving = event, leaving

    def logpdf(self, y):
        t = np.abs(y)
        event, leaving = self.event.logpdf(t), self.leaving.logpdf(t)
        stays, lives = self.leaving.logsf(t), self.event.logsf(t)
        return np.where(y > 0, event + stays, np.where(y > -1, leaving + lives, stays + lives))

    @staticmethod
    def _first(one, other, start, end):
        """P(start < one < end, and the other is later), by Gauss and Legendre over quantiles."""
        node, weight = np.polynomial.legendre.leggauss(200)
        low, high = one.cdf(start), one.cdf(end)
        place = (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * node
        later = np.column_stack([other.sf(one.ppf(p)) for p in place.T])
        return (high - low) / 2 * (later @ weight)

    def cdf(self, y, *, strictly=False):
        ones = np.ones(len(y))
        alive = self.event.sf(ones) * self.leaving.sf(ones)
        left = self._first(self.leaving, self.event, np.where(y < 0, -y, 0), ones)
        died = self._first(self.event, self.leaving, 0 * y, np.maximum(y, 0))
        return np.where((y <= -1) & strictly, 0, alive + left + died)

    def below(self, y):
        return self.cdf(y, strictly=True)


def twin(family, data, draws, s):
    """The distribution of the records at draw s, by SciPy."""
    point = {str(name): stacked(draws, name)[s] for name in draws["posterior"].data_vars}
    found = FAMILIES[family]
    if not found.parts:
        return twin_at(family, data, point)
    (at, of_point), (other, of_rest) = found.parts.items()
    p, rest = (
        twin_at(name, own(data, label), own(point, label))
        for label, name in ((at, of_point), (other, of_rest))
    )
    if found.rule == "censored":
        return FirstOfTwo(p, rest)
    values = ATOMS if found.rule == "atoms" else (0,)
    probability = p.probability[:, 1:] if found.rule == "atoms" else p.mean()[:, None]
    continuous = found.column_type == "continuous"
    seen = found.rule != "inflated"
    return Parts(values, probability, rest, continuous=continuous, seen=seen)


def own(entries, label):
    """Entries of a part by their names in its program, and those that parts share."""
    ending = f"__{label}"
    return entries | {k.removesuffix(ending): v for k, v in entries.items() if k.endswith(ending)}


def twin_at(family, data, point):
    """The same of a family of one part, at values of its parameters."""
    K = data["K"]
    if family == "categorical":
        eta = np.tile(point["intercept"], (data["n"], 1))
    else:
        eta = np.full(data["n"], point.get("intercept", 0.0))
    if K:
        eta = eta + data["X"] @ point["coefficient"]
    if data["T"]:
        eta = eta + group_part(data, point)
    mean = np.exp(eta)
    if family == "normal":
        return stats.norm(eta, np.exp(point["log_sigma"]))
    if family == "lognormal":
        return stats.lognorm(s=point["sigma"], scale=mean)
    if family.startswith("mixture"):
        shift = np.append(0, np.cumsum(point["gap"]))
        shift -= point["share"] @ shift
        found = Mixture(point["share"], eta, shift, point["sigma"])
        return found if family == "mixture" else OfLogarithm(found)
    if family == "weibull":
        return stats.weibull_min(point["shape"][0], scale=mean)
    if family == "exponential":
        return stats.expon(scale=mean)
    if family == "beta":
        return stats.beta(
            special.expit(eta) * point["lambda"], special.expit(-eta) * point["lambda"]
        )
    if family == "gamma":
        return stats.gamma(point["shape"], scale=mean / point["shape"])
    if family == "bernoulli":
        return stats.bernoulli(special.expit(eta))
    if family == "poisson":
        return stats.poisson(mean)
    if family == "zero_truncated_poisson":
        return Truncated(stats.poisson(mean))
    if family == "zero_truncated_neg_binomial":
        return Truncated(stats.nbinom(point["phi"], point["phi"] / (point["phi"] + mean)))
    if family == "student_t":
        return stats.t(point["nu"][0], eta, np.exp(point["log_sigma"]))
    if family in ("truncated_normal", "truncated_lognormal"):
        sigma = np.exp(point["log_sigma"])
        low = -eta / sigma if family == "truncated_normal" else -np.inf
        top = ((1.0 if family == "truncated_normal" else 0.0) - eta) / sigma
        inside = stats.truncnorm(low, top, eta, sigma)
        return inside if family == "truncated_normal" else OfLogarithm(inside)
    if family == "neg_binomial":
        return stats.nbinom(point["phi"], point["phi"] / (point["phi"] + mean))
    if family == "categorical":
        return Levels(special.softmax(np.column_stack([np.zeros(data["n"]), eta]), axis=1))
    assert FAMILIES[family].file == "ordinal"
    from_first = np.append(0, np.cumsum(point["gap"]))
    cutpoint = point["first_cutpoint"] + from_first - from_first[data["base"] - 1]
    cdf = special.ndtr if data["probit"] else special.expit
    inner = cutpoint - eta[:, None]
    edges = np.hstack(
        [np.full_like(inner[:, :1], -np.inf), inner, np.full_like(inner[:, :1], np.inf)]
    )
    low, high = edges[:, :-1], edges[:, 1:]
    # By the upper tail above 0: there the differences of the lower tail lose their digits.
    upper = cdf(-low) - cdf(-high)
    return Levels(np.where(low > 0, upper, cdf(high) - cdf(low)))


def twin_log_lik(family, data, draws, s):
    distribution = twin(family, data, draws, s)
    continuous = not FAMILIES[family].discrete
    return distribution.logpdf(data["y"]) if continuous else distribution.logpmf(data["y"])


def rows(generator):
    return np.stack(list(generator))


def assert_within_five_mcse(draws, expected):
    error = mcse(draws)
    means = draws["posterior"].to_dataset().mean(("chain", "draw"))
    for name in expected:
        away = np.abs(means[name].to_numpy() - expected[name]) / np.asarray(error[name])
        assert (away < 5).all(), f"{name}: {away} MCSE away"


def test_the_suite_has_engines(engine_ids):
    assert "embedded" in engine_ids
    assert "cmdstan" in engine_ids


# Sampling


def test_sample_has_groups_axes_and_finite_statistics(engine, bind):
    draws = bind(engine, "normal", K=2, J=3)[0].sample(SHORT)
    posterior = draws["posterior"]
    assert {name: values.shape[2:] for name, values in posterior.data_vars.items()} == {
        "intercept": (),
        "coefficient": (2,),
        "log_sigma": (),
        "sigma": (),
        "group_sd_raw": (1,),
        "group_sd": (1,),
        "group_raw": (3,),
        "group_effect": (3,),
    }
    assert set(draws["sample_stats"].data_vars) == set(SAMPLER_STATS.values())
    for group in (posterior, draws["sample_stats"]):
        for values in group.data_vars.values():
            assert values.dims[:2] == ("chain", "draw")
            assert values.shape[:2] == (2, 50)
            assert np.isfinite(values).all()
    assert draws["sample_stats"]["diverging"].dtype == bool
    np.testing.assert_allclose(posterior["group_sd"], np.logaddexp(0, posterior["group_sd_raw"]))
    np.testing.assert_allclose(
        posterior["group_effect"], posterior["group_sd"].to_numpy() * posterior["group_raw"]
    )


def test_sample_keeps_the_axes_of_matrices(engine, bind):
    binding, data = bind(engine, "categorical", K=2, J=3)
    draws = binding.sample(SamplerSettings(chains=2, warmup=50, draws=4, seed=1))
    assert draws["posterior"]["coefficient"].shape == (2, 4, 2, 2)
    assert draws["posterior"]["group_raw"].shape == (2, 4, 3, 2)
    # Draws are counted chain by chain.
    expected = [twin_log_lik("categorical", data, draws, s) for s in range(8)]
    np.testing.assert_allclose(rows(binding.log_lik(draws)), expected, rtol=1e-9)


def test_parameters_without_entries_are_left_out(engine, bind):
    draws = bind(engine, "categorical")[0].sample(SHORT)
    assert list(draws["posterior"].data_vars) == ["intercept"]


def test_sampling_reports_lp_of_its_own_draws(engine, bind):
    binding, _ = bind(engine, "gamma", K=2, J=3)
    draws = binding.sample(SamplerSettings(chains=2, warmup=50, draws=4, seed=1))
    lp = draws["sample_stats"]["lp"].to_numpy().reshape(-1)
    evaluated = binding.log_prob(draws)
    np.testing.assert_allclose(evaluated - evaluated[0], lp - lp[0], rtol=1e-9, atol=1e-9)


def test_seed_decides_the_draws(engine, bind):
    binding, _ = bind(engine, "normal")

    def sigma(seed):
        settings = SamplerSettings(chains=2, warmup=50, draws=10, seed=seed)
        return binding.sample(settings)["posterior"]["sigma"].to_numpy()

    first = sigma(1)
    assert (sigma(1) == first).all()
    assert (sigma(2) != first).any()
    assert (first[0] != first[1]).any()
    assert (sigma(None) != sigma(None)).any()


def test_settings_reach_the_sampler(engine, bind):
    binding, _ = bind(engine, "normal", K=2, J=3)

    def sample(**settings):
        # 150 iterations are the least for which Stan adapts the metric.
        return binding.sample(SamplerSettings(chains=3, warmup=150, draws=20, seed=1, **settings))

    plain, deep = sample(), sample(max_treedepth=1)
    assert plain["posterior"].sizes == {**plain["posterior"].sizes, "chain": 3, "draw": 20}
    assert plain["sample_stats"]["tree_depth"].max() > 1
    assert deep["sample_stats"]["tree_depth"].max() == 1
    steps = [
        float(sample(adapt_delta=delta)["sample_stats"]["step_size"].mean())
        for delta in (0.6, 0.99)
    ]
    assert steps[0] > steps[1]
    dense = sample(metric="dense_e")["posterior"]["sigma"].to_numpy()
    assert (dense == sample(metric="dense_e")["posterior"]["sigma"]).all()
    assert (dense != sample(metric="diag_e")["posterior"]["sigma"]).any()


def test_no_warmup_is_possible(engine, bind):
    draws = bind(engine, "normal")[0].sample(SamplerSettings(chains=2, warmup=0, draws=4, seed=1))
    assert np.isfinite(draws["posterior"]["sigma"]).all()


@pytest.mark.parametrize("family", ["beta", "normal"])
def test_chains_run_in_any_thread(engine, bind, family):
    """As a Dask worker or a server calls them, one chain at a time: gradients ended the process."""
    binding, _ = bind(engine, family)
    settings = SamplerSettings(chains=2, warmup=50, draws=20, seed=1, parallel_chains=1)
    found = []
    thread = threading.Thread(target=lambda: found.append(binding.sample(settings)))
    thread.start()
    thread.join()
    for name, values in binding.sample(settings)["posterior"].items():
        np.testing.assert_array_equal(found[0]["posterior"][name], values)


def test_threads_add_up_blocks_of_records(engine, bind):
    """9,000 records are three blocks: the same density with two threads as with one."""
    binding, _ = bind(engine, "normal", n=9000, K=2, J=3)
    settings = SamplerSettings(chains=2, warmup=50, draws=4, seed=1, threads_per_chain=2)
    draws = binding.sample(settings)
    one = binding.log_prob(draws)
    moved = draws["sample_stats"]["lp"].to_numpy().ravel() - one
    assert np.ptp(one) > 1
    assert np.ptp(moved) < 1e-9 * np.abs(one).max()
    again = binding.sample(settings)
    assert (again["posterior"]["sigma"] == draws["posterior"]["sigma"]).all()


@pytest.mark.statistical
def test_posterior_mean_of_a_conjugate_model(engine, coin):
    """Under weights w the posterior of the coin is Beta(2 + w.y, 3 + w.(1 - y)).

    One mean, 5 MCSE: false alarms at 6e-7 over seeds.
    """
    y = coin_data()["y"]
    weights = np.random.default_rng(8).uniform(size=y.size)
    draws = coin.rebind(weights=weights).sample(SamplerSettings(seed=11))
    a, b = 2 + weights @ y, 3 + weights @ (1 - y)
    assert_within_five_mcse(draws, {"theta": a / (a + b)})


def test_a_program_that_always_fails_is_an_engine_error(coin):
    with pytest.raises(EngineError, match="sampling failed") as caught:
        coin.rebind(broken=3).sample(SHORT)
    assert "broken on purpose" in caught.value.said
    assert "broken on purpose" not in str(caught.value)


def test_sampling_is_quiet(engine, bind, capfd):
    bind(engine, "normal")[0].sample(SHORT)
    assert capfd.readouterr() == ("", "")


def test_progress_of_every_chain_is_shown_on_standard_error(engine, bind, capfd, monkeypatch):
    seen = []

    class Spy(SamplingProgress):
        def __init__(self, settings):
            super().__init__(settings)
            write = self.lines.write
            self.lines.write = lambda text: seen.append(text) or write(text)

    monkeypatch.setattr(f"dpbayes.engines.{engine.name}.SamplingProgress", Spy)
    settings = SamplerSettings(chains=2, warmup=100, draws=50, seed=3, progress=True)
    bind(engine, "normal")[0].sample(settings)
    for chain in (1, 2):
        assert re.search(rf"Chain \[{chain}\] Iteration:\s*150 / 150", "".join(seen))
    assert capfd.readouterr().out == ""


# Evaluation at given draws


def test_random_points_have_uniform_unconstrained_coordinates(engine, bind):
    binding, _ = bind(engine, "categorical", K=2, J=3)
    points = binding.random_points(60, seed=4)
    posterior = points["posterior"]
    assert {name: values.shape for name, values in posterior.data_vars.items()} == {
        "intercept": (1, 60, 2),
        "coefficient": (1, 60, 2, 2),
        "group_sd_raw": (1, 60, 1, 2),
        "group_raw": (1, 60, 3, 2),
    }
    unconstrained = np.concatenate([np.ravel(values) for values in posterior.data_vars.values()])
    assert np.abs(unconstrained).max() < 2
    # False alarms at 1e-6 over seeds.
    assert stats.kstest(unconstrained, stats.uniform(-2, 4).cdf).pvalue > 1e-6
    again = binding.random_points(60, seed=4)["posterior"]
    assert (again["coefficient"].to_numpy() == posterior["coefficient"].to_numpy()).all()
    other = binding.random_points(60, seed=5)["posterior"]
    assert (other["coefficient"].to_numpy() != posterior["coefficient"].to_numpy()).all()


@pytest.mark.parametrize(("K", "J"), SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_log_lik_equals_scipy(engine, bind, family, K, J):
    binding, data = bind(engine, family, K, J)
    points = binding.random_points(5, seed=2)
    expected = [twin_log_lik(family, data, points, s) for s in range(5)]
    # atol: a probability that rounds to 1 has a log without correct digits.
    np.testing.assert_allclose(rows(binding.log_lik(points)), expected, rtol=1e-9, atol=1e-13)


def test_log_lik_does_not_depend_on_the_size_of_blocks(engine, bind, monkeypatch):
    binding, data = bind(engine, "normal", K=2, J=3)
    points = binding.random_points(8, seed=2)
    whole = rows(binding.log_lik(points))
    module = f"dpbayes.engines.{engine.name}"
    for values in (1, 3 * data["n"]):  # blocks of 1, and of 3, 3 and 2 draws
        monkeypatch.setattr(f"{module}.BLOCK_VALUES", values, raising=False)
        assert (rows(binding.log_lik(points)) == whole).all()


@pytest.mark.parametrize(("K", "J"), SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_log_prob_moves_by_the_clipped_sum(engine, bind, family, K, J):
    """target - target(weights 0) = sum clip(w (log_lik - anchor), lower, upper)."""
    binding, data = bind(engine, family, K, J)
    zero = binding.rebind(weights=np.zeros(data["n"]))
    points = zero.random_points(4, seed=6)
    base = zero.log_prob(points)
    log_lik = np.array([twin_log_lik(family, data, points, s) for s in range(4)])
    rng = np.random.default_rng(1)
    weights, anchor = rng.uniform(size=data["n"]), rng.normal(size=data["n"])
    half = float(np.median(np.abs(weights * log_lik)))  # bites on some records, not on others
    for changes in (
        {"weights": np.ones(data["n"])},
        {"weights": weights},
        {"weights": weights, "anchor": anchor},
        {"weights": weights, "anchor": anchor, "clip_lower": -half, "clip_upper": half},
        {"weights": weights, "clip_lower": -half},  # open above
    ):
        lower, upper = changes.get("clip_lower", -np.inf), changes.get("clip_upper", np.inf)
        terms = changes["weights"] * (log_lik - changes.get("anchor", 0))
        terms = np.clip(terms, lower, upper)
        moved = binding.rebind(**changes).log_prob(points) - base
        size = np.abs(base) + np.abs(terms).sum(axis=1)
        assert (np.abs(moved - terms.sum(axis=1)) <= 1e-9 * size).all(), changes


def test_infinite_window_is_no_clamp(coin):
    points = coin.random_points(3, seed=1)
    wide = coin.rebind(clip_lower=-1e6, clip_upper=1e6)
    np.testing.assert_allclose(coin.log_prob(points), wide.log_prob(points), rtol=1e-12)


def test_rebind_equals_bind(engine, bind):
    binding, data = bind(engine, "gamma", K=2, J=3)
    points = binding.random_points(3, seed=1)
    rng = np.random.default_rng(2)
    changes = {
        "weights": rng.uniform(size=data["n"]),
        "y": rng.gamma(2, size=data["n"]),
        "clip_lower": -0.5,
        "clip_upper": np.float64(0.5),
    }
    rebound = binding.rebind(**changes)
    bound = engine.compile(StanProgram.for_family("gamma")).bind({**data, **changes})
    assert (rebound.log_prob(points) == bound.log_prob(points)).all()
    assert (rows(rebound.log_lik(points)) == rows(bound.log_lik(points))).all()
    assert (rebound.log_prob(points) != binding.log_prob(points)).all()


def test_switches_in_the_data_are_ignored(engine, bind):
    binding, _ = bind(engine, "normal", emit=1, emit_y_rep=1)
    assert set(binding.sample(SHORT)["posterior"].data_vars) == {"intercept", "log_sigma", "sigma"}


def test_impossible_records_without_weight_do_not_count(coin):
    points = coin.random_points(4, seed=1)
    possible, weights = np.ones(30), np.ones(30)
    possible[:7] = weights[:7] = 0
    without = coin.rebind(weights=weights)
    impossible = without.rebind(possible=possible)
    assert (rows(impossible.log_lik(points))[:, :7] == -np.inf).all()
    np.testing.assert_allclose(impossible.log_prob(points), without.log_prob(points), rtol=1e-12)


def test_impossible_records_take_the_lower_end_of_a_window(coin):
    points = coin.random_points(4, seed=1)
    possible = np.ones(30)
    possible[:7] = 0
    window = coin.rebind(clip_lower=-0.5, clip_upper=0.5)
    log_lik = rows(coin.log_lik(points))
    kept = np.clip(log_lik[:, :7], -0.5, 0.5).sum(axis=1)
    moved = window.rebind(possible=possible).log_prob(points) - window.log_prob(points)
    np.testing.assert_allclose(moved, -0.5 * 7 - kept, rtol=1e-9, atol=1e-9)


def test_points_that_the_program_rejects(coin):
    points = coin.random_points(12, seed=1)
    high = points["posterior"]["theta"].to_numpy()[0] > 0.5
    assert 0 < high.sum() < 12
    lp, log_lik = coin.log_prob(points), rows(coin.log_lik(points))
    np.testing.assert_array_equal(
        coin.rebind(broken=1).log_prob(points), np.where(high, -np.inf, lp)
    )
    np.testing.assert_array_equal(
        rows(coin.rebind(broken=2).log_lik(points)), np.where(high[:, None], np.nan, log_lik)
    )


def test_generated_quantities_of_another_length_are_a_program_error(coin):
    points = coin.random_points(2, seed=1)
    empty = coin.rebind(broken=4)
    with pytest.raises(ProgramError, match=r"coin\.stan.*log_lik"):
        list(empty.log_lik(points))
    with pytest.raises(ProgramError, match=r"coin\.stan.*y_rep"):
        empty.y_rep(points, 0, seed=1)


def test_every_engine_passes_the_contract_check(engine, coin_program):
    report = check_contract(coin_program, engine.compile(coin_program), coin_data(), private=["y"])
    assert report.points == 5


# Replicates


def in_support(family, y, levels):
    found = FAMILIES[family]
    if family == "histogram":
        return (y >= 0.5) & (y <= levels + 0.5)
    if found.column_type == "continuous":
        if found.rule == "censored":
            return (np.abs(y) > 0) & (np.abs(y) <= 1) & (y < 1)
        low = -np.inf if family in ("normal", "student_t", "mixture") else 0
        high = 1 if "beta" in family or "truncated" in family else np.inf
        return (y >= low) & (y <= high) & np.isfinite(y)
    lowest, highest = {"binary": (0, 1), "count": (0, np.inf)}.get(found.column_type, (1, levels))
    return (y == np.rint(y)) & (y >= lowest) & (y <= highest)


@pytest.mark.parametrize("phi", [1e-3, 0.5, 1e4])
@pytest.mark.parametrize("log_mean", [-600.0, -4.0, 20.0, 30.0])
@pytest.mark.parametrize("family", ["neg_binomial", "zero_truncated_neg_binomial"])
def test_counts_are_drawn_wherever_their_mean_is(engine, bind, family, log_mean, phi):
    """Stan's own generator stops where a gamma variable is 2^30, or 0."""
    binding, _ = bind(engine, family, n=400)
    values = {"intercept": np.array([[log_mean]]), "phi": np.array([[phi]])}
    points = make_draws({**values, "coefficient": np.zeros((1, 1, 0))})
    y = binding.y_rep(points, 0, seed=12)
    assert in_support(family, y, None).all()
    assert y.min() >= FAMILIES[family].constants["positive"]
    if log_mean == 20.0 and phi == 1e4:
        assert y.mean() == pytest.approx(np.exp(20), rel=0.01)  # sd .0005


@pytest.mark.statistical
@pytest.mark.parametrize("family", FAMILIES)
def test_y_rep_comes_from_the_distribution_of_the_records(engine, bind, family):
    """Probability integral transform, randomised where y is discrete.

    Kolmogorov-Smirnov at 1e-6: over 31 families and 2 engines false alarms at 6e-5 over seeds.
    """
    binding, data = bind(engine, family, K=2, J=3, n=400)
    points = binding.random_points(2, seed=7)
    y = binding.y_rep(points, 1, seed=12)
    assert y.shape == (400,)
    assert in_support(family, y, data.get("C")).all()
    distribution = twin(family, data, points, 1)
    upper, between = distribution.cdf(np.rint(y) if family == "histogram" else y), 1.0
    if hasattr(distribution, "below") or FAMILIES[family].discrete:
        before = getattr(distribution, "below", lambda y: distribution.cdf(y - 1))
        between = np.random.default_rng(0).uniform(size=400)
        if family == "histogram":
            y, between = np.rint(y), y - np.rint(y) + 0.5  # the place inside the cell
        below = before(y)
        upper = below + between * (upper - below)
    assert stats.kstest(upper, "uniform").pvalue > 1e-6


def test_y_rep_is_decided_by_seed_and_draw(engine, bind):
    binding, _ = bind(engine, "normal", K=2, J=3)
    points = binding.random_points(3, seed=1)
    first = binding.y_rep(points, 0, seed=1)
    assert (binding.y_rep(points, 0, seed=1) == first).all()
    assert (binding.y_rep(points, 0, seed=2) != first).all()
    assert (binding.y_rep(points, 2, seed=1) != first).all()
    assert binding.y_rep(points, 0, seed=2**31 - 1).shape == first.shape


def test_y_rep_of_a_program_without_its_switch(coin):
    points = coin.random_points(2, seed=1)
    y = coin.y_rep(points, 1, seed=1)
    assert y.shape == (30,)
    assert set(y) <= {0, 1}


def test_a_recording_of_an_engine_answers_as_the_engine_did(engine, coin_program):
    data = coin_data()
    live = engine.compile(coin_program).bind(data)
    draws = live.sample(SamplerSettings(chains=2, warmup=50, draws=4, seed=1))
    log_lik = rows(live.log_lik(draws))
    y_rep = np.stack([live.y_rep(draws, s, seed=s) for s in range(8)])
    groups = {"log_likelihood": {"log_lik": log_lik}, "posterior_predictive": {"y_rep": y_rep}}
    recording = draws.copy()
    for group, variables in groups.items():
        made = make_draws({k: v.reshape(2, 4, 30) for k, v in variables.items()})
        recording[group] = xr.DataTree(made["posterior"].to_dataset())

    replay = RecordedEngine(recording).compile(coin_program).bind(data)
    replayed = replay.sample(SHORT)
    xr.testing.assert_identical(replayed, draws)
    np.testing.assert_array_equal(rows(replay.log_lik(replayed)), log_lik)
    np.testing.assert_array_equal([replay.y_rep(replayed, s, seed=0) for s in range(8)], y_rep)
    with pytest.raises(EngineError, match="one more asked for"):
        replay.rebind(weights=np.ones(30)).sample(SHORT)
    with pytest.raises(EngineError, match="not among the recordings"):
        list(replay.log_lik(live.random_points(8, seed=1)))
    with pytest.raises(EngineError, match="new points"):
        replay.log_prob(replayed)


# Engines by name, and programs that are compiled once


def test_a_program_is_compiled_once_by_an_engine(engine, coin_program):
    model = engine.compile(coin_program)
    assert engine.compile(replace(coin_program)) is model  # an equal program
    assert engine.compile(replace(coin_program, name="other")) is not model  # messages name it


def test_an_engine_says_what_draws(engine):
    assert engine.draw == "chain"
    assert engine.name in ENGINES
    packages = {"embedded": ["stanli"], "cmdstan": ["cmdstanpy", "cmdstan"]}[engine.name]
    assert list(engine.versions()) == packages
    assert all(re.match(r"\d+\.\d+", version) for version in engine.versions().values())


@pytest.mark.parametrize("name", ["embedded", "candidates"])
def test_engines_by_name(name):
    made = get_engine(name)
    assert (made.name, made.draw) == (name, "chain" if name == "embedded" else name)
    assert list(made.versions()) == ["stanli"]
    assert get_engine(made) is made


def test_engines_that_cannot_be_made_by_name():
    with pytest.raises(EngineError, match="unknown engine 'nuts'; engines: embedded, cmdstan"):
        get_engine("nuts")
    with pytest.raises(EngineError, match=r"pass RecordedEngine\(draws, ...\)"):
        get_engine("recorded")


# Errors


@pytest.mark.parametrize(
    ("wrong", "message", "line"),
    [("int K", '";"', 3), ("array[foo] int K;", "foo", 2)],
)
def test_a_syntax_error_shows_the_compilers_message(engine, wrong, message, line):
    text = f"data {{\n  {wrong}\n}}\nparameters {{ real mu; }}\nmodel {{ mu ~ normal(K, 1); }}\n"
    with pytest.raises(ProgramError, match=message) as caught:
        engine.compile(StanProgram("my model", text, text))
    shown = str(caught.value)
    assert shown.startswith("my model.stan does not compile:\n")
    assert f"line {line}, " in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("name", ["prior_sigma", "y", "K"])
def test_missing_data_are_named(engine, bind, name):
    _, data = bind(engine, "normal", K=2, J=3)
    del data[name]
    model = engine.compile(StanProgram.for_family("normal"))
    with pytest.raises(ProgramError, match=f"declares data '{name}', which was not given"):
        model.bind(data).sample(SHORT)


@pytest.mark.parametrize(
    "changes", [{"weights": np.full(40, 1.5)}, {"weights": np.ones(39)}, {"prior_sigma": -1.0}]
)
def test_unfit_data_are_a_program_error(engine, bind, changes):
    binding, _ = bind(engine, "normal", **changes)
    with pytest.raises(
        ProgramError, match=rf"normal\.stan does not accept the data \(.*{next(iter(changes))}"
    ):
        binding.sample(SHORT)


@pytest.mark.parametrize("value", ["text", [1.0, np.nan], [np.inf, 0.0]])
def test_data_that_are_not_numbers_are_refused(engine, bind, value):
    with pytest.raises(EngineError, match="'y'"):
        bind(engine, "normal", y=value)


def test_nothing_confidential_stays_on_disk(engine, bind, monkeypatch, tmp_path):
    binding, _ = bind(engine, "normal", K=2, J=3)
    binding.random_points(1, seed=1)  # compiled by now
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    draws = binding.sample(SHORT)
    binding.log_prob(draws)
    binding.y_rep(draws, 0, seed=1)
    log_lik = binding.log_lik(draws)
    next(log_lik)
    for directory in tmp_path.iterdir():  # in use
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    log_lik.close()
    with pytest.raises(ProgramError):
        binding.rebind(weights=np.full(40, 2.0)).sample(SHORT)
    assert list(tmp_path.iterdir()) == []


# Embedded and CmdStan agree


@pytest.mark.parametrize("family", FAMILIES)
def test_engines_agree_on_log_density(cmdstan, bind, family):
    changes = {"weights": np.linspace(0, 1, 40), "clip_lower": -2.0, "clip_upper": 2.0}
    ours, _ = bind(EmbeddedEngine(), family, K=2, J=3, **changes)
    theirs, _ = bind(cmdstan, family, K=2, J=3, **changes)
    points = ours.random_points(6, seed=3)  # draws of one engine are read by the other
    a, b = ours.log_prob(points), theirs.log_prob(points)
    assert np.ptp(a) > 1
    np.testing.assert_allclose(a - a[0], b - b[0], rtol=0, atol=1e-8)


@pytest.mark.statistical
@pytest.mark.parametrize("family", ["beta", "normal"])
def test_engines_agree_on_posterior_means(cmdstan, bind, family):
    """Four means each, 5 combined MCSE: false alarms at 5e-6 over seeds for both families."""
    settings = SamplerSettings(seed=21)
    ours = bind(EmbeddedEngine(), family, K=2, n=200)[0].sample(settings)
    theirs = bind(cmdstan, family, K=2, n=200)[0].sample(settings)
    errors = [mcse(draws) for draws in (ours, theirs)]
    means = [draws["posterior"].to_dataset().mean(("chain", "draw")) for draws in (ours, theirs)]
    for name in means[0].data_vars:
        combined = np.hypot(*(np.asarray(error[name]) for error in errors))
        assert (np.abs(means[0][name] - means[1][name]) < 5 * combined).all(), name


# CmdStan as a set of processes and files


def test_without_cmdstanpy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmdstanpy", None)
    with pytest.raises(EngineError, match=r'pip install "dpbayes\[cmdstan\]"'):
        CmdStanEngine()


@pytest.mark.parametrize("home", ["", "no/such/place"])
def test_without_cmdstan_its_installation_is_explained(monkeypatch, tmp_path, home):
    pytest.importorskip("cmdstanpy")
    monkeypatch.setenv("CMDSTAN", home)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"python -m cmdstanpy\.install_cmdstan.*CMDSTAN"):
        CmdStanEngine()


def test_a_cmdstan_that_is_not_built_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("cmdstanpy")
    (tmp_path / "makefile").write_text("CMDSTAN_VERSION := 2.35.0\n")
    monkeypatch.setenv("CMDSTAN", str(tmp_path))
    with pytest.raises(EngineError, match="not built"):
        CmdStanEngine()


def test_compiled_programs_are_kept(cmdstan, coin_program, monkeypatch):
    cmdstan.compile(coin_program)
    monkeypatch.setattr("cmdstanpy.compile_stan_file", lambda *_, **__: pytest.fail("compiled"))
    assert CmdStanEngine().compile(coin_program).bind(coin_data()).random_points(1, 1)


def test_another_cache_directory_is_filled_in_one_step(
    cmdstan, coin_program, monkeypatch, tmp_path, caplog
):
    def build(source, cpp_options=None):
        assert source.read_text() == coin_program.text
        built = source.with_suffix("")
        built.write_text(str(cpp_options))
        logging.getLogger("cmdstanpy").error("noise")
        assert not (source.parent.parent / "model").exists()
        return str(built)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("cmdstanpy.compile_stan_file", build)
    paths = [cmdstan.executable(coin_program, threads=threads) for threads in (False, True)]
    options = [path.read_text() for path in paths]
    assert ["STAN_THREADS" in option for option in options] == [False, True]
    assert all(path.parent.parent == tmp_path / "dpbayes" / "stan" for path in paths)
    for path in paths:
        names = sorted(entry.name for entry in path.parent.iterdir())
        assert names == [".lock", "model", "model.stan"]
    assert not caplog.records


def test_a_cache_that_cannot_be_written_is_explained(cmdstan, coin_program, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="Set XDG_CACHE_HOME"):
        CmdStanEngine().compile(coin_program)


def test_a_failing_cpp_compiler_is_an_engine_error(cmdstan, coin_program, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise ValueError("Failed to compile Stan model\ng++: fatal error: no memory")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("cmdstanpy.compile_stan_file", fail)
    with pytest.raises(EngineError, match=r"(?s)C\+\+ compiler failed on coin\.stan.*no memory"):
        CmdStanEngine().compile(coin_program)


def test_settings_of_other_tools_are_left_alone(cmdstan, bind, monkeypatch):
    logger = logging.getLogger("cmdstanpy")
    before = (logger.disabled, logger.level, list(logger.handlers))
    monkeypatch.setenv("STAN_NUM_THREADS", "7")
    # A program built with threads stops where STAN_NUM_THREADS contradicts its argument.
    settings = SamplerSettings(chains=2, warmup=50, draws=4, seed=1, threads_per_chain=2)
    bind(cmdstan, "normal")[0].sample(settings)
    assert os.environ["STAN_NUM_THREADS"] == "7"
    assert (logger.disabled, logger.level, list(logger.handlers)) == before


def test_a_replicate_at_a_rejected_point_is_an_engine_error(coin):
    inside, outside = (make_draws({"theta": np.array([[theta]])}) for theta in (0.75, 2.0))
    with pytest.raises(EngineError, match=r"coin\.stan cannot generate records at the draw"):
        coin.rebind(broken=2).y_rep(inside, 0, seed=1)  # CmdStan ends without an error
    with pytest.raises(EngineError, match=r"coin\.stan cannot generate records at the draw"):
        coin.y_rep(outside, 0, seed=1)
    assert coin.log_prob(outside) == -np.inf


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_stops_every_process(tmp_path):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    started = []
    both = threading.Barrier(2)

    def watch(_, line):
        started.append(int(line))
        if both.wait() == 0:  # once both are running
            os.kill(os.getpid(), signal.SIGINT)

    commands = {number: [sys.executable, "-c", code] for number in range(3)}
    # A shell's background jobs inherit SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_commands(commands, tmp_path, parallel=2, watch=watch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(started) == 2  # the third never ran
    for process in started:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_one_failing_process_stops_the_others(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    fail = [sys.executable, "-c", "import sys; print('out'); sys.exit('why')"]
    with pytest.raises(Exception, match="exit status 1") as caught:
        run_commands({0: sleep, 1: fail, 2: sleep}, tmp_path, parallel=2)
    assert (caught.value.stdout, caught.value.stderr) == ("out\n", "why\n")


@pytest.mark.parametrize(("K", "J"), [(0, 0), (2, 3)])
@pytest.mark.parametrize("family", ["normal", "categorical", "ordinal"])
def test_chains_start_where_they_are_told(engine, bind, family, K, J):
    binding, _ = bind(engine, family, K=K, J=J)
    starts = binding.random_points(2, seed=4)
    name = "first_cutpoint" if family == "ordinal" else "intercept"
    starts["posterior"][name] += 40.0  # where no random point is
    # One short step from there.
    still = SamplerSettings(chains=2, warmup=0, draws=4, seed=1, max_treedepth=1)
    draws = binding.sample(still, starts)
    assert (draws["posterior"][name].to_numpy()[:, 0] > 20).all()
    assert (binding.sample(still)["posterior"][name].to_numpy()[:, 0] < 20).all()


@pytest.mark.parametrize("short", [0, 10**9], ids=["long", "short"])
def test_chains_one_by_one_are_those_of_a_joint_run(engine, bind, tmp_path, monkeypatch, short):
    """A checkpointed fit, also one that goes on after a stop, gives what the engine gives."""
    monkeypatch.setattr("dpbayes.engines.embedded._SHORT", short)
    bound, _ = bind(engine, "beta", K=1, n=30)
    settings = SamplerSettings(chains=3, warmup=100, draws=20, seed=11, metric="dense_e")
    starts = bound.random_points(3, seed=2)
    for begin in (None, starts):
        together = bound.sample(settings, begin)
        folder = tmp_path / str(begin is None)
        first = Checkpoint(folder)
        assert first.begin({"x": "1"}, 11) == 11
        found = [first.sample(bound, settings, begin)]
        files = sorted(folder.glob("*.nc"))
        assert len(files) == 3
        files[1].unlink()
        files[2].write_bytes(files[2].read_bytes()[:1000])  # damaged: sampled again
        second = Checkpoint(folder)
        found.append(second.sample(bound, settings, begin))
        assert (first.reused, second.reused) == (0, 1)
        for draws in found:
            for group in ("posterior", "sample_stats"):
                for name, values in together[group].data_vars.items():
                    np.testing.assert_array_equal(draws[group][name], values)
                    assert draws[group][name].dtype == values.dtype
        other = Checkpoint(folder)
        other.sample(bound.rebind(clip_upper=0.5), settings, begin)
        assert other.reused == 0  # other data, other files


def test_a_chain_that_cannot_start_leaves_no_file(engine, bind, tmp_path):
    bound, _ = bind(engine, "normal", n=30)
    settings = SamplerSettings(chains=2, warmup=50, draws=20, seed=1)
    broken = bound.rebind(weights=np.full(30, 2.0))
    with pytest.raises((EngineError, ProgramError)):
        Checkpoint(tmp_path).sample(broken, settings)
    assert not list(tmp_path.iterdir())


def test_a_chain_that_dies_is_an_error(bind, tmp_path, monkeypatch):
    """Its process ends by a signal, as when memory runs out; chains that finished are kept."""
    bound, _ = bind(EmbeddedEngine(), "beta", n=30)
    script = Path(worker.__file__).read_text()
    sampled = "    draws, stats = run("
    dying = f'    if job["chain"] == 2:\n        os.kill(os.getpid(), 9)\n{sampled}'
    assert sampled in script
    other = tmp_path / "worker.py"
    other.write_text(script.replace(sampled, dying, 1))
    monkeypatch.setattr(worker, "__file__", str(other))
    monkeypatch.setattr("dpbayes.engines.embedded._SHORT", 0)
    settings = SamplerSettings(chains=2, warmup=50, draws=20, seed=1, parallel_chains=1)
    with pytest.raises(EngineError, match="chain 2 ended with code -9"):
        Checkpoint(tmp_path / "c").sample(bound, settings)
    monkeypatch.undo()
    again = Checkpoint(tmp_path / "c")
    again.sample(bound, settings)
    assert again.reused == 1


# A scale that follows covariates


@pytest.mark.parametrize("family", ["normal", "lognormal", "student_t", "truncated_normal"])
def test_a_scale_with_covariates(engine, family):
    """log sigma = log_sigma + Z coefficients, by SciPy; replicates by their distribution.

    Kolmogorov-Smirnov at 1e-6, for 4 families and 2 engines: false alarms at 8e-6 over seeds.
    """
    text = f'{family}(sigma = "~ x")'
    data = {**family_data(family, 2, 0, 300), "M": 2}
    data["Z"] = np.random.default_rng(3).normal(size=(300, 2))
    column = Column("y", "continuous", lower=0, upper=1)
    data |= family_of(text).stan_data(column, None)
    binding = engine.compile(StanProgram.for_family(text)).bind(data)
    points = binding.random_points(3, seed=2)
    found = rows(binding.log_lik(points))
    for s in range(3):
        point = {str(k): stacked(points, k)[s] for k in points["posterior"].data_vars}
        log_sigma = point["log_sigma"] + data["Z"] @ point["sigma_coefficient"]
        told = {**point, "log_sigma": log_sigma, "sigma": np.exp(log_sigma)}
        distribution = twin_at(family, data, told)
        np.testing.assert_allclose(found[s], distribution.logpdf(data["y"]), rtol=1e-9, atol=1e-12)
        if s == 0:
            y = binding.y_rep(points, 0, seed=5)
            assert stats.kstest(distribution.cdf(y), "uniform").pvalue > 1e-6


def test_logarithms_of_normal_probabilities_far_out(engine):
    """A truncated normal around means far outside of its ends, against SciPy's log cdfs."""
    data = family_data("truncated_normal", 0, 0, 40)
    binding = engine.compile(StanProgram.for_family("truncated_normal")).bind(data)
    points = binding.random_points(6, seed=2)
    points["posterior"]["intercept"][:] = np.array([[-300.0, -30.0, -3.0, 0.5, 4.0, 200.0]])
    points["posterior"]["log_sigma"][:] = np.array([[0.0, -1.0, -2.0, -3.0, -1.0, 1.0]])
    found = rows(binding.log_lik(points))
    assert np.isfinite(found).all()
    for s in range(6):
        point = {str(k): stacked(points, k)[s] for k in points["posterior"].data_vars}
        mean, sigma = point["intercept"], np.exp(point["log_sigma"])
        tails = (0 - mean) / sigma, (1 - mean) / sigma
        low, high = sorted(-abs(tails[0] + tails[1]) / 2 + sign * (tails[1] - tails[0]) / 2
                            for sign in (-1, 1))  # fmt: skip
        log_inside = special.log_ndtr(high) + np.log1p(
            -np.exp(special.log_ndtr(low) - special.log_ndtr(high))
        )
        expected = stats.norm.logpdf(data["y"], mean, sigma) - log_inside
        np.testing.assert_allclose(found[s], expected, rtol=1e-7, atol=1e-6)
