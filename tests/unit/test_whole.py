"""Bins in which whole tables are compared: they follow the records, and not the declared range."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.report.whole import Whole, correlations, joint_utility, tables_of

SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "pay": {"type": "count", "upper": 10**6},
            "rate": {"type": "continuous", "lower": 0, "upper": 1000, "digits": 2, "missing": True},
            "sex": {"type": "binary", "levels": ["f", "m"]},
        }
    }
)


def skewed(n=2000):
    rng = np.random.default_rng(1)
    pay = np.where(rng.random(n) < 0.3, 0, rng.lognormal(10, 1, n).round().clip(1, 10**6))
    rate = np.where(rng.random(n) < 0.2, np.nan, rng.exponential(1.0, n).round(2))
    return pd.DataFrame({"pay": pay, "rate": rate, "sex": rng.choice(["f", "m"], n)})


def test_bins_hold_equally_many_records_and_frequent_values_are_alone():
    records = skewed()
    tables = tables_of(Whole.of(SCHEMA, records, records))
    shares = (sorted(tables.shares(k)[0]) for k in range(3))
    of = dict(zip(tables.names, shares, strict=True))
    *others, zeros = of["pay"]
    assert zeros == pytest.approx((records["pay"] == 0).mean())
    assert 7 <= len(others) <= 9
    assert max(others) <= 0.11
    *numbers, missing = of["rate"]
    assert missing == pytest.approx(records["rate"].isna().mean())
    assert 9 <= len(numbers) <= 11
    assert max(numbers) <= 0.1


def test_a_relation_within_the_first_tenth_of_the_range_is_seen():
    """In bins of the declared range nine tenths of such numbers are in one, whatever they are."""
    records = skewed()
    records["sex"] = np.where(records["pay"] > records["pay"].median(), "m", "f")
    apart = records.assign(sex=np.random.default_rng(2).permutation(records["sex"]))
    measures = joint_utility(Whole.of(SCHEMA, records, apart)).set_index("measure")
    assert measures.loc["total variation, 2 at once", "largest"] > 0.4


def test_columns_without_a_value_or_with_one_have_one_bin():
    records = pd.DataFrame({"pay": [5] * 4, "rate": [np.nan] * 4, "sex": list("fmfm")})
    tables = tables_of(Whole.of(SCHEMA, records, records.assign(pay=[5, 6, 7, 8], rate=1.0)))
    assert [len(tables.shares(k)[0]) for k in range(3)] == [1, 2, 2]


def test_correlations_are_pearsons_and_their_errors_those_of_other_samples():
    """Also with missing values; the sd of 400 differences, uncertain by 3.5 %, within 15 %."""

    def people(rng, n=1000):
        pay = rng.gamma(2, 10_000, n)
        rate = np.where(rng.random(n) < 0.2, np.nan, pay / 10_000 + rng.exponential(1, n))
        return pd.DataFrame(
            {
                "pay": pay.round(),
                "rate": rate.round(2),
                "sex": np.where(pay > rng.gamma(2, 10_000, n), "m", "f"),
            }
        )

    rng = np.random.default_rng(1)
    tables = [correlations(Whole.of(SCHEMA, people(rng), people(rng))) for _ in range(400)]
    first = tables[0]
    assert list(zip(first["first"], first["second"], strict=True)) == [
        ("pay", "rate"), ("pay", "sex"), ("rate", "sex"),
    ]  # fmt: skip
    records = people(np.random.default_rng(1)).assign(sex=lambda data: data["sex"] == "m")
    expected = records.astype(float).corr().to_numpy()[np.triu_indices(3, 1)]
    assert first["records"].to_numpy() == pytest.approx(expected)
    differences = np.stack([of["synthetic"] - of["records"] for of in tables])
    errors = np.stack([of["error"] for of in tables]).mean(axis=0)
    assert errors == pytest.approx(differences.std(axis=0), rel=0.15)


def test_a_column_that_does_not_vary_has_no_correlation():
    records = skewed().assign(sex=lambda data: np.where(data["pay"] > 0, "m", "f"))
    one = correlations(Whole.of(SCHEMA, records, records.assign(sex="m")))
    assert len(one) == 3
    pay_and_sex = one.set_index(["first", "second"]).loc[("pay", "sex")]
    assert pay_and_sex["records"] > 0.3
    assert pay_and_sex["synthetic"] == 0
    assert len(correlations(Whole.of(SCHEMA, records.assign(sex="m"), records))) == 1
