"""Posteriors from releases by second paths, and analyses of whole releases."""

import itertools
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from scipy.special import expit, logit

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.inference import (
    analyse,
    combine,
    from_clamped_draws,
    from_normal_draws,
    from_synthetic_counts,
    read_release,
    share_posterior,
)
from dpbayes.inference.analysis import ReleasedData, records_of
from dpbayes.inference.regressions import formula_fit


def brute_force(synthetic, noise, n, size, prior=(1.0, 1.0), weight=1.0):
    """Mean and variance of p for two cells: loops over x, quadrature over p and every p_m."""
    a, b = prior

    def given(x):
        """Of all synthetic counts, for x ones among the records."""
        inner = stats.beta(noise + weight * x, noise + weight * (n - x))
        return math.prod(
            integrate.quad(lambda t, k=k: inner.pdf(t) * stats.binom.pmf(k, size, t), 0, 1)[0]
            for k in synthetic
        )

    known = [given(x) for x in range(n + 1)]

    def likelihood(p):
        total = sum(stats.binom.pmf(x, n, p) * known[x] for x in range(n + 1))
        return total * stats.beta.pdf(p, a, b)

    grid, weights = np.polynomial.legendre.leggauss(24)
    p = (grid + 1) / 2
    values = np.array([likelihood(v) for v in p]) * weights
    values /= values.sum()
    return values @ p, values @ (p - values @ p) ** 2


@pytest.mark.parametrize(
    ("synthetic", "weight", "prior"),
    [([2, 4], 1.0, (1.0, 1.0)), ([5], 0.3, (2.0, 3.0)), ([0, 1, 0], 1.0, (1.0, 1.0))],
)
def test_counts_by_brute_force(synthetic, weight, prior):
    n, size, noise = 4, 6, 1.7
    counts = [[k, size - k] for k in synthetic]
    found = from_synthetic_counts(counts, noise, n, prior=prior, weight=weight)
    mean, variance = brute_force(synthetic, noise, n, size, prior, weight)
    assert found.mean[0] == pytest.approx(mean, rel=1e-6)
    assert found.variance[0] == pytest.approx(variance, rel=1e-5)
    assert found.mean.sum() == pytest.approx(1)


def test_n_unknown_is_a_mixture_over_n():
    counts, noise = [[3, 7], [4, 6]], 2.0
    prior = {4: 0.2, 5: 0.5, 6: 0.3}
    found = from_synthetic_counts(counts, noise, prior)
    # Evidence of each n: the released sets' probability, summed over x by hand.
    evidence, means = [], []
    for n, probability in prior.items():
        one = from_synthetic_counts(counts, noise, n)
        total = sum(
            stats.betabinom.pmf(x, n, 1, 1)
            * np.prod([stats.betabinom.pmf(k, 10, noise + x, noise + n - x) for k in (3, 4)])
            for x in range(n + 1)
        )
        evidence.append(probability * total)
        means.append(one.mean[0])
    assert found.mean[0] == pytest.approx(np.dot(evidence, means) / sum(evidence))
    assert from_synthetic_counts(counts, noise, {5: 0.1}).mean[0] == pytest.approx(means[1])


def test_three_cells_by_brute_force():
    """Loops over every confidential table, with SciPy's Dirichlet-multinomial."""
    n, noise, prior = 6, np.array([1.0, 2.0, 1.5]), np.array([2.0, 1.0, 1.0])
    synthetic = [[4, 3, 5], [2, 8, 2]]
    weights, means = [], []
    for x in itertools.product(range(n + 1), repeat=3):
        if sum(x) == n:
            weight = stats.dirichlet_multinomial.pmf(x, prior, n)
            for counts in synthetic:
                weight *= stats.dirichlet_multinomial.pmf(counts, noise + x, 12)
            weights.append(weight)
            means.append((prior + x) / (prior.sum() + n))
    found = from_synthetic_counts(synthetic, noise, n, prior=prior)
    assert len(found.weights) == len(weights) == 28
    np.testing.assert_allclose(found.mean, np.average(means, axis=0, weights=weights))


def test_many_releases_at_once():
    rng = np.random.default_rng(1)
    ones = rng.integers(0, 21, (7, 5, 2))
    counts = np.stack([ones, 20 - ones], axis=-1)
    found = from_synthetic_counts(counts, 3.0, 15)
    assert found.mean.shape == (7, 5, 2)
    alone = from_synthetic_counts(counts[3, 2], 3.0, 15)
    np.testing.assert_allclose(found.mean[3, 2], alone.mean)
    np.testing.assert_allclose(found.sd[3, 2], alone.sd)
    with pytest.raises(InferenceError, match="one release at a time"):
        found.interval()
    low, high = alone.interval(0.9)
    assert alone.cdf(low) == pytest.approx(0.05)
    assert alone.cdf(high) == pytest.approx(0.95)
    draws = alone.sample(40_000, seed=1)[:, 0]
    assert abs(draws.mean() - alone.mean[0]) < 5 * alone.sd[0] / 200
    assert np.mean(draws < low) == pytest.approx(0.05, abs=0.006)  # 5 standard errors


def test_clamped_draws_by_brute_force():
    """n = 3: every x, every normaliser and every predictive probability by quadrature."""
    n, window, thetas, size = 3, (-0.8, 0.0), [0.3, 0.6], 4

    def density(t, x):
        clip = lambda f: min(max(f, window[0]), window[1])
        return stats.norm.pdf(t, 0, 2.5) * np.exp(
            x * clip(np.log(expit(t))) + (n - x) * clip(np.log(expit(-t)))
        )

    norms = [integrate.quad(density, -30, 30, args=(x,), limit=200)[0] for x in range(n + 1)]
    known = [np.prod([density(logit(t), x) / norms[x] for t in thetas]) for x in range(n + 1)]
    data = [
        integrate.quad(
            lambda t, x=x: density(t, x) / norms[x] * stats.binom.pmf(1, size, expit(t)),
            -30, 30, limit=200,
        )[0]
        for x in range(n + 1)
    ]  # fmt: skip
    for likelihood, given in ((known, {"draws": thetas}), (data, {"counts": [1], "size": size})):
        weights = np.array(likelihood) / (n + 1)  # x is uniform under the flat prior
        weights /= weights.sum()
        mean = sum(w * (1 + x) / (n + 2) for x, w in enumerate(weights))
        found = from_clamped_draws(n, window=window, **given)
        assert found.mean[0] == pytest.approx(mean, rel=1e-5)
    many = from_clamped_draws(n, window=window, draws=[[0.3, 0.6], [0.5, 0.5]])
    assert many.mean[0, 0] == pytest.approx(
        from_clamped_draws(n, window=window, draws=thetas).mean[0]
    )


@pytest.mark.parametrize("size", [None, 40])
def test_normal_draws_by_conditioning_a_joint_normal(size):
    """(θ, mean of x, θ_1..θ_3, data means) as one covariance matrix, then the textbook formula."""
    n, sigma, weight, m = 25, 2.0, 0.3, 3
    (m0, s0), (m1, s1) = (1.0, 1.5), (0.5, 0.8)  # synthesizer's and analyst's priors
    spread = 1 / (weight * n / sigma**2 + 1 / s0**2)
    slope = spread * weight * n / sigma**2
    A = np.zeros((2 + m, 2 + m + m))  # rows: θ, mean, released; columns: independent shocks
    A[0, 0] = s1
    A[1] = A[0] + np.eye(2 + 2 * m)[1] * sigma / n**0.5
    for j in range(m):
        A[2 + j] = slope * A[1]
        A[2 + j, 2 + j] = spread**0.5
        A[2 + j, 2 + m + j] = sigma / size**0.5 if size else 0.0
    covariance = A @ A.T
    centre = np.r_[m1, m1, np.full(m, slope * m1 + spread * m0 / s0**2)]
    released = np.array([0.9, 1.4, 0.2])
    gain = np.linalg.solve(covariance[2:, 2:], covariance[2:, 0])
    mean = m1 + gain @ (released - centre[2:])
    variance = covariance[0, 0] - gain @ covariance[2:, 0]
    found = from_normal_draws(
        released, n, sigma, size=size, weight=weight, synthesis_prior=(m0, s0), prior=(m1, s1)
    )
    assert found.mean == pytest.approx(mean)
    assert found.sd == pytest.approx(variance**0.5)
    low, high = found.interval()
    assert (low + high) / 2 == pytest.approx(mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_synthetic_counts([30, 70], 1.0, 100), r"shape \(2,\); expected data sets x"),
        (lambda: from_synthetic_counts([[30.5, 70]], 1.0, 100), "whole numbers"),
        (lambda: from_synthetic_counts([[-1, 70]], 1.0, 100), "whole numbers"),
        (lambda: from_synthetic_counts([[3, 7]], 0.0, 10), "noise = 0.0"),
        (lambda: from_synthetic_counts([[3, 7]], [1, 2, 3], 10), r"noise = \[1, 2, 3\]"),
        (lambda: from_synthetic_counts([[3, 7]], 1.0, 0), "n = 0 must be"),
        (lambda: from_synthetic_counts([[3, 7]], 1.0, {5: 0.0}), "prior of n = 5"),
        (lambda: from_synthetic_counts([[3, 7]], 1.0, 10, weight=0), "weight = 0"),
        (lambda: from_synthetic_counts([[9] * 8], 1.0, 100), "tables of 8 cells are possible"),
        (lambda: from_synthetic_counts([[3, 7]], 1.0, 10).interval(95), "level = 95"),
        (lambda: from_clamped_draws(10), "either draws or counts"),
        (lambda: from_clamped_draws(10, draws=[1.0]), "strictly between 0 and 1"),
        (lambda: from_clamped_draws(10, counts=[11]), "from 0 to size = 10"),
        (lambda: from_clamped_draws(10, counts=[3], window=(0, -1)), "from low to high"),
        (lambda: from_normal_draws([], 10, 1.0), "one finite number per draw"),
        (lambda: from_normal_draws([1.0], 0, 1.0), "n = 0 must be"),
        (lambda: from_normal_draws([1.0], 10, -1.0), "sigma = -1.0"),
        (lambda: from_normal_draws([1.0], 10, 1.0, prior=(0.0, 0.0)), "sd must be above 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InferenceError, match=message):
        call()


@pytest.fixture
def datasets():
    rng = np.random.default_rng(2)
    frames = []
    for _ in range(4):
        x = rng.normal(size=80)
        y = 1 + 2 * x + rng.normal(size=80)
        frames.append(pd.DataFrame({"y": y, "x": x, "g": rng.choice(["a", "b"], 80)}))
    return frames


def test_analyse_is_combine_of_each(datasets):
    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    found = analyse(datasets, mean)
    by_hand = combine(*np.array([mean(d) for d in datasets]).T)
    assert (found.estimate, found.variance) == (by_hand.estimate, by_hand.variance)
    fitted = analyse(datasets, formula_fit("y ~ x + g"))
    assert list(fitted.estimate.index) == ["Intercept", "x", "g[T.b]"]
    low, high = fitted.interval(0.999)
    assert low["x"] < 2 < high["x"]
    slopes = [np.polyfit(d["x"], d["y"], 1)[0] for d in datasets]
    plain = analyse(datasets, formula_fit("y ~ x"), "rubin")
    assert plain.estimate["x"] == pytest.approx(np.mean(slopes))
    logit_fit = analyse(
        [d.assign(z=(d["y"] > 1) * 1) for d in datasets], formula_fit("z ~ x", "logit")
    )
    assert logit_fit.estimate["x"] > 0


def test_the_rule_and_its_warnings_follow_the_mechanism(datasets, tmp_path):
    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    for mechanism, says in (
        ("censored", "7% at ε = 1"),
        ("multinomial-dirichlet", "from_synthetic_counts"),
    ):
        with pytest.warns(UserWarning, match=says):
            analyse(ReleasedData(tuple(datasets), mechanism, "strict"), mean)
    good = ReleasedData(tuple(datasets), "modips", "strict")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert analyse(good, mean).rule == "modips"
    with pytest.warns(UserWarning, match="cover 99.5 to 100%"):
        analyse(good, mean, "rubin")
    for i, data in enumerate(datasets, start=1):
        data.to_csv(tmp_path / f"synthetic_{i}.csv", index=False)
    statement = {"datasets": 4, "mechanism": "modips", "basis": "strict"}
    (tmp_path / "guarantee.json").write_text(json.dumps(statement))
    read = read_release(tmp_path)
    assert (len(read.datasets), read.mechanism) == (4, "modips")
    assert analyse(tmp_path, mean).estimate == pytest.approx(analyse(datasets, mean).estimate)
    edited = json.dumps(statement | {"datasets": 10**10})  # their names would take a terabyte
    (tmp_path / "guarantee.json").write_text(edited)
    with pytest.raises(InferenceError, match="was edited"):
        read_release(tmp_path)


def test_the_share_of_an_urns_release_is_read_from_it(tmp_path):
    columns = {"ill": {"type": "binary", "levels": ["no", "yes"]}}
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})
    records = pd.DataFrame({"ill": ["yes"] * 30 + ["no"] * 70})
    for mechanism in (dpb.BetaBinomial(2.0), dpb.MultinomialDirichlet(2.0)):
        fit = dpb.Synthesizer(schema, mechanism).fit(records)
        out = tmp_path / mechanism.name
        dpb.publish(fit, out, 3)
        release = read_release(out / "release")
        counts = [(data["ill"] == "yes").sum() for data in release.datasets]
        alpha = mechanism.alpha(100)
        by_hand = from_synthetic_counts([[k, 100 - k] for k in counts], alpha, 100)
        np.testing.assert_allclose(share_posterior(release, "yes").mean, by_hand.mean)
        with pytest.warns(UserWarning, match="no rule fits mechanism"):
            analyse(release, lambda d: (float((d["ill"] == "yes").mean()), 0.002))
    noisy = dpb.Synthesizer(dpb.Schema.from_dict({"columns": columns}), dpb.BetaBinomial(2.0))
    with pytest.raises(InferenceError, match="needs the number of records"):
        share_posterior(noisy.fit(records).sample(2, seed=1), "yes")
    sex = {"type": "binary", "levels": ["f", "m"], "public": True}
    strata = dpb.Schema.from_dict({"rows": "public", "columns": {**columns, "sex": sex}})
    fit = dpb.Synthesizer(strata, dpb.BetaBinomial(2.0)).fit(records.assign(sex=["f", "m"] * 50))
    with pytest.raises(InferenceError, match="without public columns beside it"):
        share_posterior(fit.sample(2, seed=1), "yes")


def test_a_level_that_no_data_set_has_and_a_prior_that_favours_one():
    """By the settings of a release: the second level's logit is Normal(1, 2) to the synthesizer."""
    stage = {"anchor": "none", "alpha": 0.5, "window": [-1.0, 0.0]}
    settings = {
        "formula": "ill ~ 1", "family": "bernoulli", "n": 20,
        "stages": [stage], "constants": {"prior_intercept": [1.0, 2.0]},
    }  # fmt: skip
    data = tuple(pd.DataFrame({"ill": [0.0] * 20}) for _ in range(2))
    release = ReleasedData(data, "censored", "strict", settings, {"ill": [0, 1]})
    by_hand = from_clamped_draws(
        20, counts=[0, 0], weight=0.5, window=(-1.0, 0.0), synthesis_prior=(1.0, 2.0)
    )
    found = share_posterior(release, "1")
    np.testing.assert_allclose(found.mean, by_hand.mean)
    # The other level's share is what is left, by a prior on the other side.
    np.testing.assert_allclose(share_posterior(release, 0).mean[0], by_hand.mean[1], rtol=1e-6)
    with pytest.raises(InferenceError, match="'2' is no level of column 'ill'; it has 0, 1"):
        share_posterior(release, "2")
    with pytest.raises(InferenceError, match="does not say which levels"):
        share_posterior(replace(release, levels={}), "1")


def test_bad_analyses(datasets, tmp_path):
    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    one_level = [datasets[0], datasets[1].assign(g="a")]
    for call, message in (
        (lambda: analyse(datasets[:1], mean), "needs at least 2 data sets"),
        (lambda: analyse(one_level, formula_fit("y ~ g")), "other parameters than the first: g"),
        (lambda: analyse(datasets, lambda d: d["y"].mean()), "must return a statsmodels result"),
        (lambda: analyse(datasets, formula_fit("y ~ nothing")), "on columns y, x, g"),
        (lambda: analyse(datasets, formula_fit("y ~ x", "lasso")), "expected one of ols"),
        (lambda: analyse(datasets, mean, "best"), "expected one of modips"),
        (lambda: analyse([], mean), "expected a Release, its folder"),
        (lambda: analyse(5, mean), "expected a Release, its folder"),
        (lambda: analyse(tmp_path / "none", mean), "No such file"),
        (lambda: analyse(datasets, lambda d: (d["y"].mean(), -1.0)), "are negative"),
        (lambda: analyse(datasets, lambda d: ([1.0, 2.0], [1.0])), r"shape \(4, 2\), variances"),
    ):
        with pytest.raises(InferenceError, match=message):
            call()
    (tmp_path / "guarantee.json").write_text("{}")
    with pytest.raises(InferenceError, match="cannot be read"):
        read_release(tmp_path)


def test_levels_are_read_as_they_are_written(tmp_path):
    """None, NA, numbers with a leading zero and truth values; only an empty field is missing."""
    columns = {
        "pain": ["None", "NA", "null"], "code": ["01", "02", "1e5"], "sick": ["TRUE", "FALSE"],
        "group": [1, 2, 3], "mixed": [1, "N/A"],
    }  # fmt: skip
    records = pd.DataFrame({name: (levels * 60)[:60] for name, levels in columns.items()})
    records["age"] = [np.nan, *range(59)]
    tree = {
        name: {"type": "binary" if len(levels) == 2 else "ordinal", "levels": levels}
        for name, levels in columns.items()
    }
    tree["age"] = {"type": "count", "upper": 80, "missing": True}
    schema = dpb.Schema.from_dict({"columns": tree})
    job = dpb.Job((dpb.Synthesizer(schema, dpb.Marginals(20.0)),), tmp_path / "out", datasets=2)
    release = job.run(records, lambda _: None).release
    found = read_release(tmp_path / "out/release")
    for data, written in zip(found.datasets, release.datasets, strict=True):
        pd.testing.assert_frame_equal(data, written, check_dtype=False)
    assert found.datasets[0]["group"].dtype == int


def test_decimal_levels_of_a_release_are_numbers(tmp_path):
    """Whole numbers beside decimals are read as one type, from an older release, too."""
    columns = {"hospital": {"type": "ordinal", "levels": [5.2, 6, 6.5]}}
    schema = dpb.Schema.from_dict({"columns": columns})
    records = pd.DataFrame({"hospital": np.resize([5.2, 6, 6.5], 60)})
    job = dpb.Job((dpb.Synthesizer(schema, dpb.Marginals(20.0)),), tmp_path / "out")
    job.run(records, lambda _: None)
    statement = tmp_path / "out/release/guarantee.json"
    older = statement.read_text().replace("6.0,", "6,")
    assert older != statement.read_text()
    for text in (statement.read_text(), older):
        statement.write_text(text)
        for data in read_release(tmp_path / "out/release").datasets:
            assert data["hospital"].dtype == float
            assert data["hospital"].isin([5.2, 6, 6.5]).all()
            assert (data["hospital"] == 6).any()


def test_where_the_number_of_records_is_not_public_readers_have_its_estimate(tmp_path):
    """A declared one scaled variances by its distance from the true one."""
    records = pd.DataFrame({"ill": [0] * 900 + [1] * 100, "age": np.arange(1000) % 90})
    columns = {"ill": {"type": "binary"}, "age": {"type": "count", "upper": 120}}
    for rows, told in (("public", False), ("noisy", True), (9000, True), (300, True)):
        schema = dpb.Schema.from_dict({"rows": rows, "columns": columns})
        job = dpb.Job(
            (dpb.Synthesizer(schema, dpb.Marginals(2.0)),), tmp_path / str(rows), datasets=5
        )
        job.run(records, lambda _: None)
        released = read_release(tmp_path / str(rows) / "release")
        assert ("estimated_records" in released.settings) == told
        # Of 60 releases each, sds were 9, 18 and 12, with Laplace tails: missed once in 10⁴.
        assert abs(records_of(released.settings) - 1000) < 150
        few = f"where {rows} rows had been declared"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            analyse(released, lambda data: (data["ill"].mean(), data["ill"].var() / len(data)))
        assert any(few in str(warning.message) for warning in caught) == (rows == 300)
    assert records_of({}) is None
