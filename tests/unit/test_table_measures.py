"""Measures of whole tables, beside other libraries' or by hand; and the report of the study."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate.utility import interval_overlap
from studies.ours import tables
from studies.ours.table_measures import (
    Comparison,
    least_squares,
    propensity_ratio,
)

RNG = np.random.default_rng(11)
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 10},
            "x": {"type": "count", "upper": 9},
            "g": {"type": "categorical", "levels": ["a", "b"]},
        }
    }
)


def drawn(n, slope=0.5):
    x = RNG.integers(0, 10, n)
    y = np.clip(2 + slope * x + RNG.normal(size=n), 0, 10)
    return pd.DataFrame({"y": y, "x": x, "g": RNG.choice(["a", "b"], n)})


def test_least_squares_is_statsmodels():
    import statsmodels.formula.api as smf

    data = drawn(80)
    found, errors = least_squares("y ~ x + g", data)
    fit = smf.ols("y ~ x + g", data).fit()
    np.testing.assert_allclose(sorted(found), sorted(fit.params), rtol=1e-8)
    np.testing.assert_allclose(sorted(errors), sorted(fit.bse), rtol=1e-8)


def test_overlap():
    zero, one = np.zeros(3), np.ones(3)
    far = 2 * 1.96 * np.array([0.0, 1.0, 2.0])  # the same, touching, a whole length apart
    np.testing.assert_allclose(interval_overlap((zero, one), (far, one)), [1, 0, -1], atol=1e-12)


def test_missing_values_are_measured():
    """As a level of tables and of the propensity; rows with one are no part of a regression."""
    columns = {n: {**c, "missing": True} for n, c in SCHEMA.to_dict()["columns"].items()}
    columns["y"]["atoms"] = [5]
    schema = dpb.Schema.from_dict({"columns": columns})
    compared = Comparison(schema, {"y": 5, "x": 5}, "y", "y ~ x + g", "y + y_missing + x + g")
    whole = drawn(400)
    gaps = whole.assign(y=whole["y"].where(RNG.random(400) < 0.5), g=whole["g"].where(whole.x > 0))
    data = schema.validate(gaps)
    same = compared.measures(data, data)
    assert same["pmse"] == pytest.approx(0, abs=1e-9)
    assert all(same[name] == 0 for name in ("avg_ecdf", "tvd1", "tvd3", "regression"))
    other = compared.measures(data, schema.validate(whole))
    there = gaps["y"].notna().mean(), gaps["g"].notna().mean()
    assert other["tvd1"] == pytest.approx((1 - there[0] + 1 - there[1]) / 3, abs=0.02)
    assert other["pmse"] > 10
    kept = gaps.dropna()
    expected = least_squares("y ~ x + g", kept)[0]
    np.testing.assert_allclose(least_squares("y ~ x + g", data)[0], expected)


def test_measures_of_the_same_and_of_another_table():
    compared = Comparison(SCHEMA, {"y": 5, "x": 5}, "y", "y ~ x + g", "y + x + g", "g")
    data = SCHEMA.validate(drawn(400))
    same = compared.measures(data, data)
    assert same["pmse"] == pytest.approx(0, abs=1e-9)
    assert same["overlap"] == pytest.approx(1)
    assert all(same[name] == 0 for name in ("avg_ecdf", "tvd3", "outcome_tvd2", "regression"))
    other = compared.measures(data, SCHEMA.validate(drawn(400, slope=0.0)))
    assert other["pmse"] > 10
    assert other["regression"] > 10
    assert other["tvd1"] == pytest.approx((other["outcome_tvd1"] + 2 * 0.03) / 3, abs=0.05)
    # Nothing tells the levels of g.
    assert compared.auc(data, SCHEMA.validate(drawn(400))) == pytest.approx(0.5, abs=0.12)


def test_propensity_of_two_samples_of_a_population():
    """Twice the expectation for a bootstrap; 20 pairs with 3 terms: chi-squared of 60, 5 sd."""
    found = [propensity_ratio("y + x + g", drawn(300), drawn(300)) for _ in range(20)]
    assert abs(np.mean(found) - 2) < 5 * 2 * np.sqrt(2 / 60)


def test_report_of_the_study():
    measures = ("avg_ecdf", "tvd1", "tvd2", "tvd3", "pmse", "regression", "overlap", "seconds")
    rows = [
        {"population": "earnings", "n": 1601, "epsilon": e, "delta": d, "piece": piece,
         **{name: 1.0 + k + piece for k, name in enumerate(measures)}}
        for e, d in [(None, 0.0), *((e, d) for e in tables.EPSILONS for d in (0.0, tables.DELTA))]
        for piece in range(2)
    ]  # fmt: skip
    found = tables.report(pd.DataFrame(rows))
    made = found.tables["tables"]
    assert len(made) == 1 + 2 * len(tables.EPSILONS)
    assert (made["pmse"] == 5.5).all()
    assert made["pmse se"].to_numpy() == pytest.approx(0.5)
    assert "bootstrap" in found.text
    assert found.text.count("earnings") == len(made)


def test_a_piece():
    found = tables.run(np.random.SeedSequence(1), "earnings", 3.0, 0.0)
    again = tables.run(np.random.SeedSequence(1), "earnings", 3.0, 0.0)
    same = [name for name in found if name != "seconds"]
    pd.testing.assert_frame_equal(found[same], again[same])
    assert found.loc[0, "tvd1"] < 0.05
