"""Bins in which whole tables are compared: they follow the records, and not the declared range."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.report.whole import Whole, joint_utility, tables_of

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
