"""Combining rules by hand, labels, and input that has no answer."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from dpbayes.core.errors import InferenceError
from dpbayes.inference import RULES, combine

Q = np.array([1.0, 2.0, 4.0, 3.0, 2.5])
V = np.array([0.30, 0.20, 0.25, 0.35, 0.15])


def by_hand():
    """T and df of each rule with plain Python, from the formulas of the papers."""
    m = 5
    mean = sum(Q) / m
    W = sum(V) / m
    B = sum((q - mean) ** 2 for q in Q) / (m - 1)
    return {
        "modips": (W + B / m, (m - 1) * (1 + m * W / B) ** 2),
        "rubin": (W + 1.2 * B, (m - 1) * (1 + W / (1.2 * B)) ** 2),
        "raghunathan": (1.2 * B - W, (m - 1) * (1 - W / (1.2 * B)) ** 2),
        "reiter2002": (1.2 * B - W, (m - 1) * (1 - W / (1.2 * B)) ** 2),
        "raab": (1.4 * W, np.inf),
        "mixture": (W + 0.8 * B, np.inf),
    }


# The interval of a mixture is no normal one: test_regressions.py.
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "mixture"])
def test_each_rule_by_hand(rule):
    found = combine(Q, V, rule)
    T, df = by_hand()[rule]
    assert found.estimate == pytest.approx(2.5)
    assert found.variance == pytest.approx(T)
    assert found.df == pytest.approx(df)
    low, high = found.interval(0.9)
    half = stats.t.ppf(0.95, df) * T**0.5
    assert (low, high) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))
    assert found.p_value(1.0) == pytest.approx(2 * stats.t.sf(1.5 / T**0.5, df))
    # A test at the level of the interval that ends at the null.
    assert found.p_value(low) == pytest.approx(0.1)


def test_every_rule_has_a_hand_calculation():
    assert set(by_hand()) == set(RULES)


def test_labels_stay():
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(4, 2)), columns=["a", "b"])
    found = combine(frame, frame**2)
    for value in (found.estimate, found.variance, found.df, *found.interval(), found.p_value()):
        assert list(value.index) == ["a", "b"]
    assert list(found.table().index) == ["a", "b"]
    array = xr.DataArray(
        np.random.default_rng(2).normal(size=(3, 4, 2)), dims=["run", "dataset", "term"],
        coords={"term": ["x", "y"]},
    )  # fmt: skip
    found = combine(array, array**2)
    assert found.estimate.dims == ("run", "term")
    low, _ = found.interval()
    assert list(low["term"].values) == ["x", "y"]
    one = combine(array.isel(run=1, term=0).to_numpy(), (array**2).isel(run=1, term=0).to_numpy())
    assert float(found.variance.isel(run=1, term=0)) == pytest.approx(one.variance)
    assert isinstance(one.variance, float)


def test_many_replicates_at_once_are_those_one_by_one():
    rng = np.random.default_rng(3)
    q, v = rng.normal(size=(6, 50, 3)), rng.uniform(0.1, 1, (6, 50, 3))
    for rule in ("modips", "rubin", "raab", "reiter2002"):
        together = combine(q, v, rule)
        for i in (0, 17, 49):
            alone = combine(q[:, i], v[:, i], rule)
            np.testing.assert_allclose(together.variance[i], alone.variance)
            np.testing.assert_allclose(together.df[i], alone.df)


def test_negative_variance_has_the_documented_remedies():
    q, v = np.array([[1.0, 0.0], [1.1, 5.0], [0.9, 9.0]]), np.full((3, 2), 0.5)
    with pytest.raises(InferenceError, match=r"negative for 1 of 2 parameter\(s\).*'reiter2002'"):
        combine(q, v, "raghunathan")
    found = combine(q, v, "reiter2002", size_ratio=2.0)
    assert found.variance[0] == pytest.approx(1.0)  # twice W
    assert found.df[0] == 2
    assert found.variance[1] == pytest.approx(4 / 3 * np.var(q[:, 1], ddof=1) - 0.5)
    assert np.isfinite(found.interval()).all()


def test_by_reiter2002_no_interval_is_shorter_than_that_of_the_records_or_without_end():
    """Where T is just above 0 its degrees of freedom are next to none."""
    v = np.full(5, 1.0)
    q = np.array([-1.2, -0.6, 0.0, 0.6, 1.2]) * np.sqrt((1.001 / 1.2) / 0.9)  # T = 0.001
    barely = combine(q, v, "raghunathan")
    assert barely.variance == pytest.approx(0.001)
    assert barely.interval()[1] > 1e100
    found = combine(q, v, "reiter2002")
    assert (found.variance, found.df) == (pytest.approx(1.0), 4)
    assert combine(q, v, "reiter2002", size_ratio=0.1).variance == pytest.approx(1.0)
    assert combine(q, v, "reiter2002", size_ratio=3.0).variance == pytest.approx(3.0)
    wide = combine(3 * q, v, "reiter2002"), combine(3 * q, v, "raghunathan")  # T above W stays
    assert wide[0].interval() == wide[1].interval()


def test_reiter2002_covers():
    """Of intervals of five posterior draws, in twelve settings; the error rate is 4e-4.

    Coverage is above 0.96 in fact, whatever the noise adds.
    """
    rng, runs = np.random.default_rng(2), 20_000
    # Variance that noise adds to that of the records, and size of a data set relative to them.
    for noise, ratio in itertools.product((0.0, 0.5, 3.0), (0.1, 0.5, 1.0, 4.0)):
        posterior = np.sqrt(ratio * (1 + noise))
        centre = rng.normal(0, posterior, runs)
        draws = centre + rng.normal(0, posterior, (5, runs))
        estimates, ones = draws + rng.normal(size=(5, runs)), np.ones((5, runs))
        low, high = combine(estimates, ones, "reiter2002", size_ratio=ratio).interval()
        covered = ((low <= 0) & (high >= 0)).mean()
        assert covered > 0.95 - 3.99 * np.sqrt(0.95 * 0.05 / runs)
        assert np.quantile(high - low, 0.99) < 40 * np.sqrt(max(ratio, 1))  # 1e26 by T > 0 alone


def test_no_spread_between_sets():
    for rule in RULES:
        if rule == "raghunathan":
            continue
        found = combine([2.0, 2.0, 2.0], [0.1, 0.1, 0.1], rule)
        assert np.isfinite(found.interval()).all(), rule
        assert found.variance > 0
    zero = combine([2.0, 2.0], [0.0, 0.0])
    assert (zero.interval(), zero.p_value(), zero.p_value(2.0)) == ((2.0, 2.0), 0.0, 1.0)


@pytest.mark.parametrize(
    ("estimates", "variances", "options", "message"),
    [
        ([1.0], [1.0], {}, "needs at least 2 data sets, there is 1.*from_synthetic_counts"),
        ([1.0, 2.0], [1.0], {}, r"shape \(2,\), variances \(1,\)"),
        ([1.0, 2.0], [1.0, -1.0], {}, r"1 variance\(s\) are negative"),
        ([1.0, np.nan], [1.0, 1.0], {}, "estimates: 1 of 2 values are missing"),
        ([1.0, 2.0], [1.0, np.inf], {}, "variances: 1 of 2"),
        ([[1.0, 2.0], [3.0]], [1.0, 1.0], {}, "equally many for each data set"),
        (["a", "b"], [1.0, 1.0], {}, "expected numbers"),
        ([], [], {}, "one entry per data set"),
        (1.0, 1.0, {}, "one entry per data set"),
        ([1.0, 2.0], [1.0, 1.0], {"rule": "rubbin"}, "expected one of modips, rubin"),
        (xr.DataArray([1.0, 2.0]), [1.0, 1.0], {}, "needs a dimension 'dataset'"),
    ],
)
def test_bad_input(estimates, variances, options, message):
    with pytest.raises(InferenceError, match=message):
        combine(estimates, variances, **options)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_bad_level(level):
    with pytest.raises(InferenceError, match="must lie in"):
        combine(Q, V).interval(level)


def test_one_set_is_enough_for_raab():
    assert combine([1.0], [0.5], "raab").variance == pytest.approx(1.5)


def test_rules_that_fail_on_private_data_warn_with_the_figure():
    for rule, figure in (("rubin", "99.5 to 100%"), ("raab", "27%"), ("reiter2002", "530%")):
        with pytest.warns(UserWarning, match=figure):
            combine(Q, V, rule, strict_dp=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        combine(Q, V, strict_dp=True)
        combine(Q, V, "rubin")
