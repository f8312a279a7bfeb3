"""Regressions of a release: every model, and what is said against intervals."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.inference import RULES, analyse, combine
from dpbayes.inference.analysis import ReleasedData, of_one, share_posterior
from dpbayes.inference.coverage import COVERED, uncovered
from dpbayes.inference.regressions import MODELS, formula_fit
from dpbayes.mechanisms import MECHANISMS

LEVELS = {"h": ["bad", "ok", "good"], "ill": ["no", "yes"]}
CUTS = (-1.0, 1.0)


@pytest.fixture(scope="module")
def table():
    """Outcomes of every model with intercept .2 and slope .5 on the scale of its link."""
    rng = np.random.default_rng(5)
    n, x = 4000, np.random.default_rng(6).normal(size=4000)
    eta = 0.2 + 0.5 * x
    mu, p = np.exp(eta), 1 / (1 + np.exp(-eta))
    return pd.DataFrame(
        {
            "x": x,
            "ols": eta + rng.normal(size=n),
            "logit": np.where(rng.random(n) < p, "yes", "no"),
            "poisson": rng.poisson(mu),
            "negbin": rng.negative_binomial(2, 2 / (2 + mu)),
            "gamma": rng.gamma(2, mu / 2),
            "beta": rng.beta(5 * p, 5 * (1 - p)),
            "ordinal": np.array(LEVELS["h"])[np.digitize(0.5 * x + rng.logistic(size=n), CUTS)],
        }
    )


@pytest.mark.parametrize("model", MODELS)
def test_every_model_finds_its_slope(model, table):
    """4 standard errors: 6e-5 by chance for each, and the data are fixed."""
    levels = {"ordinal": LEVELS["h"], "logit": LEVELS["ill"]}
    found = analyse([table, table], formula_fit(f"{model} ~ x", model, levels))
    assert abs(found.estimate["x"] - 0.5) < 4 * found.standard_error["x"]
    assert found.standard_error["x"] < 0.1
    if model == "ordinal":
        names = ["cutpoint bad|ok", "cutpoint ok|good"]
        assert (abs(found.estimate[names] - np.array(CUTS)) < 4 * found.standard_error[names]).all()


def test_cutpoints_by_another_path(table):
    """Their variances by the likelihood in the cutpoints themselves: inverse numeric Hessian."""
    y, x = pd.Categorical(table["ordinal"], LEVELS["h"]).codes, table["x"].to_numpy()
    fit = formula_fit("ordinal ~ x", "ordinal", {"ordinal": LEVELS["h"]})
    estimates, variances = fit(table)

    def loss(at):
        ends = np.array([-np.inf, at[1], at[2], np.inf])
        shares = stats.logistic.cdf(ends[y + 1] - at[0] * x)
        return -np.log(shares - stats.logistic.cdf(ends[y] - at[0] * x)).sum()

    step, eye, at = 1e-3, np.eye(3), estimates.to_numpy()
    hessian = [
        [
            (loss(at + step * (a + b)) - loss(at + step * (a - b)))
            - (loss(at - step * (a - b)) - loss(at - step * (a + b)))
            for b in eye
        ]
        for a in eye
    ]
    assert np.linalg.inv(np.array(hessian) / (4 * step**2)).diagonal() == pytest.approx(
        variances.to_numpy(), rel=1e-3
    )


def test_absent_levels_move_no_name_of_a_cutpoint(table):
    """The odds of an outcome up to a level are those of a logistic regression, absent or not.

    Without covariates the cutpoints are log odds of shares, by hand: of levels 1 to 5 the middle
    one is absent in one table, and an end in another.
    """
    levels = {"y": [1, 2, 3, 4, 5]}
    counts = [(40, 60, 50, 30, 20), (40, 60, 0, 80, 20), (30, 70, 60, 40, 0), (0, 90, 60, 30, 20)]
    x = np.resize([-1.0, 1.0], 200)  # says nothing: each level has as many of both
    tables = [pd.DataFrame({"y": np.repeat(levels["y"], each), "x": x}) for each in counts]
    fit = formula_fit("y ~ x", "ordinal", levels)
    names = ["cutpoint 1|2", "cutpoint 2|3", "cutpoint 3|4", "cutpoint 4|5"]
    for each, found in zip(counts, map(fit, tables), strict=True):
        estimates, variances = found
        assert list(estimates.index) == ["x", *names]
        below = np.cumsum(each)[:-1] / 200
        with np.errstate(divide="ignore"):
            assert estimates[names].to_numpy() == pytest.approx(
                np.log(below / (1 - below)), abs=1e-3
            )
            by_hand = np.where(below % 1, 1 / (200 * below * (1 - below)), np.nan)
        assert variances[names].to_numpy() == pytest.approx(by_hand, rel=1e-2, nan_ok=True)
    with pytest.warns(UserWarning, match="no estimate of cutpoint 4"):
        found = analyse(tables[:3], fit)
    assert list(found.estimate.index) == ["x", *names[:3]]
    assert "no estimate of cutpoint 4|5 (infinite in 1 of 3 data sets): " in repr(found)
    with pytest.warns(UserWarning, match="no estimate of cutpoint"):
        assert list(analyse(tables, fit).estimate.index) == ["x", *names[1:3]]


def test_cutpoints_of_undeclared_levels_are_named_by_those_that_occur(table):
    numbers = table.assign(y=np.digitize(table["x"] + table["ols"], [-1, 0, 1]) * 2)
    found, _ = formula_fit("y ~ x", "ordinal")(numbers)
    assert list(found.index) == ["x", "cutpoint 0|2", "cutpoint 2|4", "cutpoint 4|6"]
    found, _ = formula_fit("I(y + 1) ~ x", "ordinal")(numbers)
    assert list(found.index) == ["x", "cutpoint 1|3", "cutpoint 3|5", "cutpoint 5|7"]
    found, _ = formula_fit("logit ~ x", "ordinal")(numbers)
    assert list(found.index) == ["x", "cutpoint no|yes"]


def test_levels_come_from_the_release(table):
    """The first declared level is the base, not the first of the alphabet."""
    frame = table.assign(h=table["ordinal"], ill=table["logit"])
    assert list(formula_fit("ols ~ h", levels=LEVELS)(frame).params.index) == [
        "Intercept", "h[T.ok]", "h[T.good]",
    ]  # fmt: skip
    turned = {"ill": ["yes", "no"]}
    one, other = (formula_fit("ill ~ x", "logit", found)(frame) for found in (LEVELS, turned))
    assert one.params["x"] == pytest.approx(-other.params["x"])
    coded = frame.assign(ill=(frame["ill"] == "yes") * 1)
    assert formula_fit("ill ~ x", "logit", LEVELS)(coded).params["x"] == pytest.approx(
        one.params["x"]
    )
    with pytest.raises(InferenceError, match=r"'h' has values that are none of its levels.*'fair'"):
        formula_fit("ols ~ h", levels=LEVELS)(frame.assign(h=["fair", *frame["h"].iloc[1:]]))


def test_levels_that_are_numbers(table):
    """Levels in a formula, as in the synthesizers'; ``I`` means their numbers."""
    rng = np.random.default_rng(8)
    frame = table.assign(
        k=rng.integers(1, 5, len(table)), two=np.where(table["logit"] == "yes", 2, 1)
    )
    frame["ols"] += frame["k"]
    levels = {"k": [4, 1, 2, 3], "two": [1, 2]}
    fitted = formula_fit("ols ~ k + x", levels=levels)(frame)
    assert list(fitted.params.index) == ["Intercept", "k[T.1]", "k[T.2]", "k[T.3]", "x"]
    linear = formula_fit("ols ~ I(k) + x", levels=levels)(frame)
    as_before = formula_fit("ols ~ k + x")(frame)
    np.testing.assert_allclose(linear.params, as_before.params)
    assert linear.params["I(k)"] == pytest.approx(1, abs=0.1)
    same = formula_fit("ols ~ C(k, levels=[4, 1, 2, 3]) + x", levels=levels)(frame)
    np.testing.assert_allclose(same.params, fitted.params)
    two, yes = (formula_fit(f"{y} ~ x", "logit", levels)(frame) for y in ("two", "logit"))
    np.testing.assert_allclose(two.params, yes.params)
    # A missing value makes numbers of the file floating point.
    frame.loc[0, ["k", "two"]] = np.nan
    with pytest.warns(UserWarning, match="rows with a missing value in a column"):
        left = formula_fit("k ~ two", levels=levels)(frame)
    assert list(left.params.index) == ["Intercept", "two[T.2]"]


@pytest.mark.parametrize(
    ("formula", "model", "message"),
    [
        ("poisson ~ x", "beta", "above 0 and below 1; 4000 of 4000|above 0 and below 1"),
        ("poisson ~ x", "gamma", "above 0; "),
        ("ordinal ~ x", "logit", "needs 2 levels of 'ordinal', a data set has 3: bad, ok, good"),
        ("ols ~ x", "ordinal", "needs an outcome of few ordered levels; 'ols' has 4,000 values"),
        ("ols ~ x", "negbin", "was not found"),
        ("ordinal ~ x", "ols", "has levels and is used as a number"),
        ("x ~ x", "glm", "expected one of ols, logit"),
    ],
)
def test_bad_input(table, formula, model, message):
    with pytest.raises(InferenceError, match=message):
        formula_fit(formula, model, {"ordinal": LEVELS["h"]})(table)


def test_overdispersed_counts_have_a_maximum_that_is_found():
    """With many zeros, and covariates of groups: statsmodels' own 35 steps end before it."""
    rng = np.random.default_rng(6)
    group, share, mean_age = rng.integers(0, 60, 3000), rng.beta(1, 6, 60), rng.normal(2.8, 0.2, 60)
    data = pd.DataFrame({"age": rng.uniform(0, 4.6, 3000), "sex": rng.integers(0, 2, 3000)})
    data = data.assign(share=share[group], mean_age=mean_age[group])
    truth = pd.Series(
        {"Intercept": -2, "age": 0.25, "sex": 0.2, "share": -0.8, "mean_age": 0.2, "alpha": 3}
    )
    mean = np.exp(-2 + (data * truth[list(data)]).sum(axis=1))
    data["visits"] = rng.poisson(mean * rng.gamma(1 / 3, 3, 3000))
    fit = formula_fit("visits ~ age + sex + share + mean_age", "negbin")(data)
    assert (((fit.params - truth) / fit.bse).abs() < 3.5).all()  # error rate 0.002


def test_every_interval_that_no_rule_covers_says_so():
    frames = tuple(pd.DataFrame({"y": np.arange(5.0) + k}) for k in range(3))

    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    assert set(COVERED) < set(MECHANISMS)
    for name in MECHANISMS:
        release = ReleasedData(frames, name, "strict")
        if name in COVERED:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert analyse(release, mean).notes == ()
        else:
            with pytest.warns(UserWarning, match=f"no rule fits mechanism '{name}'"):
                found = analyse(release, mean)
            assert found.notes[0] in repr(found)
            assert "Limitations" in found._repr_html_()
    assert "draw = mode" in uncovered("marginals", {"draw": "mode"})
    assert uncovered(None, {}) is None
    assert uncovered("modips", {"nested": 1}) is None
    assert uncovered("modips", {"ridge": {}}) is None
    assert "a ridge draws" in uncovered("modips", {"ridge": {"ill": 0.3}})
    assert "a ridge draws" in uncovered("modips-choice", {"fits": [{}, {"ridge": {"ill": 0.3}}]})
    assert "share a private draw" in uncovered("modips", {"nested": 3})
    assert "on a grid" in uncovered("modips", {"draw": "sdd", "cells": 5, "public_rows": 10**6})
    of_cells = {"draw": "sbs", "cells": 20}
    assert uncovered("modips", of_cells | {"public_rows": 300}) is None
    assert "records to a cell" in uncovered("modips", of_cells | {"public_rows": 299})
    binned = {"draw": "sbs", "cells": 2, "bins": {"wage": [0.0, 1.0, 9.0]}, "public_rows": 10**6}
    assert "spread evenly over the bins" in uncovered("modips", binned)
    assert uncovered("modips", binned | {"bins": {"ill": None}}) is None
    assert "'wage' came from a normal" in uncovered("modips", {"draw": "sbs", "normal": ["wage"]})
    chosen = {"fits": [{}, of_cells], "public_rows": 299}
    assert "records to a cell" in uncovered("modips-choice", chosen)
    assert "the clamp shifts coefficients" in uncovered("modips", {"stages": [{}]})  # draw=clamped


def test_models_without_cells_are_not_judged_by_cells():
    """The number of cells of a grid, which draws by statistics have not, stood in the settings."""
    schema = dpb.Schema({"ill": dpb.Column("ill", "binary", levels=("no", "yes"))})
    records = pd.DataFrame({"ill": ["no", "yes", "no", "no"] * 25})
    release = dpb.Synthesizer(schema, dpb.Modips(1, model="bernoulli")).fit(records).sample(5)
    assert "cells" not in release.settings
    assert uncovered("modips", release.settings) is None


def test_one_data_set():
    """The model of the mechanism where there is one; otherwise what to ask for."""
    frame = pd.DataFrame({"ill": ["yes"] * 30 + ["no"] * 70, "x": np.arange(100.0)})
    settings = {"synthesised": ["ill"], "cells": 2, "alpha": 15.7, "n": 100}
    release = ReleasedData((frame,), "beta-binomial", "strict", settings, {"ill": ["no", "yes"]})
    found = of_one(release, "ill ~ 1", 0.9)
    by_hand = share_posterior(release, "yes")
    assert found.index[0] == "ill = yes"
    assert tuple(found.iloc[0, 2:]) == pytest.approx(by_hand.interval(0.9))
    named = of_one(release, "I(ill == 'no') ~ 1")
    assert named["share"].iloc[0] == pytest.approx(1 - found["share"].iloc[0])
    for formula in ("ill ~ x", "x ~ 1", "log(x) ~ 1"):
        with pytest.raises(InferenceError, match=r"there is one data set: .* `datasets=5`"):
            of_one(release, formula)
    with pytest.raises(InferenceError, match=r"is for an urn, or family bernoulli"):
        of_one(ReleasedData((frame,), "anchored", "strict", {}, release.levels), "ill ~ 1")


def test_a_mixture_is_one_of_normals():
    rng = np.random.default_rng(3)
    q, v = rng.normal(size=(30, 2)), rng.uniform(0.1, 0.5, (30, 2))
    found = combine(q, v, "mixture")
    draws = q[:, None] + np.sqrt(v)[:, None] * rng.normal(size=(30, 20_000, 2))
    draws = draws.reshape(-1, 2)
    low, high = found.interval(0.9)
    assert low == pytest.approx(np.quantile(draws, 0.05, axis=0), abs=0.02)  # 4 se of a quantile
    assert high == pytest.approx(np.quantile(draws, 0.95, axis=0), abs=0.02)
    mixed = v.mean(axis=0) + q.var(axis=0)
    assert found.variance == pytest.approx(mixed)
    tail = (draws < 0.3).mean(axis=0)
    assert found.p_value(0.3) == pytest.approx(2 * np.minimum(tail, 1 - tail), abs=0.01)
    assert "mixture" in RULES


def test_a_mixture_needs_large_data_sets():
    frames = tuple(pd.DataFrame({"y": np.arange(500.0) + k}) for k in range(20))

    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    def notes(n, count=20):
        release = ReleasedData(frames[:count], "marginals", "strict", {"public_rows": n})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return analyse(release, mean, "mixture").notes

    assert notes(50) == ()
    assert "`rows` of 10 times" in notes(51)[0]
    assert "ask for 20 or more" in notes(50, 19)[0]


def test_a_rule_for_other_data_sets_is_not_quietly_taken():
    rng = np.random.default_rng(2)
    frames = tuple(pd.DataFrame({"y": rng.normal(size=500)}) for _ in range(20))

    def mean(data):
        return data["y"].mean(), data["y"].var() / len(data)

    def said(mechanism, rule):
        release = ReleasedData(frames, mechanism, "strict", {"public_rows": 50})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = analyse(release, mean, rule)
        return " ".join([*found.notes, *(str(w.message) for w in caught)])

    for rule in ("modips", "rubin", "raab"):
        assert "share one measurement: intervals come out too short" in said("marginals", rule)
        assert "Use rule 'modips'" not in said("marginals", rule)
    for rule in (None, "reiter2002", "mixture"):
        assert said("marginals", rule) == ""
    assert "noise of its own: intervals come out too long" in said("modips", "mixture")
    assert "Use rule 'modips'" in said("modips", "rubin")


def test_the_tail_of_a_mixture_is_as_fine_as_its_parts():
    found = combine(np.linspace(9, 11, 20), np.full(20, 1e-4), "mixture")
    assert found.p_value() == pytest.approx(1 / 20)
    assert found.p_value(10.0) > 0.9


def test_mixed_posteriors_cover_where_the_theory_says_so():
    """A normal mean with noise of a private sum: 95 % intervals, 1,000 runs, se .007 at .95.

    Each data set is drawn from the posterior predictive given the noisy mean, 20 times as large as
    the records. Chance of failing if the level holds: 4 standard errors, 6e-5.
    """
    rng = np.random.default_rng(11)
    n, m, runs, noise = 100, 100, 1000, 0.15
    truth = rng.normal(size=runs)
    noisy = truth + rng.normal(size=runs) * np.sqrt(1 / n + noise**2)
    # Flat prior, known sd 1: θ | noisy ~ normal with the variance of both errors.
    theta = noisy + rng.normal(size=(m, runs)) * np.sqrt(1 / n + noise**2)
    rows = 20 * n
    means = theta + rng.normal(size=(m, runs)) / np.sqrt(rows)
    low, high = combine(means, np.full((m, runs), 1 / rows), "mixture").interval()
    covered = ((low < truth) & (truth < high)).mean()
    assert abs(covered - 0.95) < 4 * 0.007


def test_an_ordinal_outcome_of_six_levels_is_fitted():
    """Nelder and Mead's simplex ends before it is there."""
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 2000))
    latent = 0.5 * x - 0.3 * z + rng.logistic(size=2000)
    frame = pd.DataFrame({"y": np.digitize(latent, [-2, -1, 0, 1, 2]) + 1, "x": x, "z": z})
    estimates, errors = formula_fit("y ~ x + z", "ordinal")(frame)[:2]
    assert estimates["x"] == pytest.approx(0.5, abs=5 * errors["x"])
    assert estimates["z"] == pytest.approx(-0.3, abs=5 * errors["z"])


def test_a_level_without_a_row_has_no_coefficient():
    """Its column of zeros had the coefficient 0, which entered the mean over data sets."""
    rng = np.random.default_rng(1)
    rare = pd.DataFrame({"y": rng.normal(size=50), "ill": [0, 1] * 25})
    none = rare.assign(ill=0)
    formula = "y ~ C(ill, levels=[0, 1])"
    assert len(analyse([rare, rare], formula_fit(formula)).estimate) == 2
    with pytest.raises(InferenceError, match="is 0 in every row, and has no coefficient"):
        analyse([rare, none], formula_fit(formula))
    with pytest.raises(InferenceError, match="say nothing of it: merge rare levels"):
        analyse([rare.astype({"ill": str}), none.astype({"ill": str})], formula_fit("y ~ ill"))


def separated(counts):
    """A level ``b`` in which everybody says yes, and an amount in millions that says nothing."""
    none, some, every = counts
    return pd.DataFrame(
        {
            "y": ["no"] * none + ["yes"] * some + ["yes"] * every,
            "f": ["a"] * (none + some) + ["b"] * every,
        }
    )


def test_a_level_that_separates_the_outcomes_has_a_penalised_estimate():
    """Of a saturated table it is that of the counts plus one half; one warning for 3 data sets."""
    fit = formula_fit("y ~ f", "logit", {"f": ["a", "b"], "y": ["no", "yes"]})
    tables = (30, 20, 10), (25, 25, 8), (40, 12, 3)
    with pytest.warns(UserWarning, match="Firth") as caught:
        fits = [fit(separated(counts)) for counts in tables]
    assert len(caught) == 1
    for (none, some, every), (estimates, variances) in zip(tables, fits, strict=True):
        first = np.log((some + 0.5) / (none + 0.5))
        assert estimates["Intercept"] == pytest.approx(first, abs=1e-5)
        assert estimates["f[T.b]"] == pytest.approx(np.log(2 * every + 1) - first, abs=1e-5)
        assert variances["f[T.b]"] > 0


def test_covariates_of_any_size_have_the_same_penalised_estimate():
    table = separated((30, 20, 10))
    x = np.random.default_rng(1).normal(size=len(table))
    with pytest.warns(UserWarning, match="Firth"):
        one, two = (
            formula_fit("y ~ f + x", "logit")(table.assign(x=scale * x))[0] for scale in (1.0, 1e9)
        )
    assert two["x"] * 1e9 == pytest.approx(one["x"], rel=1e-4)
    assert two["f[T.b]"] == pytest.approx(one["f[T.b]"], rel=1e-4)


def test_without_separation_the_estimate_is_that_of_maximum_likelihood():
    table = pd.concat([separated((30, 20, 10)), pd.DataFrame({"y": ["no"], "f": ["b"]})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = formula_fit("y ~ f", "logit")(table)
    assert result.params["f[T.b]"] == pytest.approx(np.log(10) - np.log(20 / 30), abs=1e-5)


@pytest.mark.parametrize("model", ["ordinal", "poisson"])
def test_models_without_a_penalised_likelihood_are_refused_where_there_is_no_maximum(model):
    table = separated((30, 20, 10))
    table["z"] = ((table["y"] == "yes") if model == "ordinal" else (table["f"] == "a")) * 1
    with pytest.raises(InferenceError, match="maximum of the likelihood was not found"):
        formula_fit("z ~ f", model)(table)
