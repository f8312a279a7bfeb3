"""The public precision of released values, and the bounds that floating point can hold."""

import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb


def column(lower, upper, digits=None, kind="continuous"):
    return dpb.Column("x", kind, lower, upper, digits=digits)


@pytest.mark.parametrize(
    ("lower", "upper", "digits", "decimals"),
    [
        (0, 1, None, 6),
        (0, 1.01, None, 5),
        (-3, 4, None, 5),
        (0, 80, None, 4),
        (0, 1e6, None, 0),
        (0, 2e6, None, -1),
        (0, 80, 2, 2),
        (0, 1e6, -3, -3),
        (1e15, 1e15 + 1, None, 0),  # no finer than floating point
        (0, 1e100, None, -94),
        (0, 1e-90, None, 96),
    ],
)
def test_the_step_is_given_or_a_millionth_of_the_width(lower, upper, digits, decimals):
    found = column(lower, upper, digits)
    assert (found.decimals, found.step) == (decimals, 10.0**-decimals)
    assert (upper - lower) >= found.step >= np.spacing(float(max(abs(lower), abs(upper))))
    if digits is None and lower != 1e15:
        assert 1e5 * (1 - 1e-9) <= (upper - lower) / found.step <= 1e6 * (1 + 1e-9)


def test_rounded_values_stay_inside_the_bounds():
    found = column(0.04, 9.96, 1).rounded(pd.Series([0.04, 0.06, 5.04999, 9.96, 9.94]))
    assert found.tolist() == [0.04, 0.1, 5.0, 9.96, 9.9]
    zero = column(-1, 1, 2).rounded(pd.Series([-0.001]))
    assert math.copysign(1, zero[0]) == 1  # "-0.0" in a file would tell the sign


@pytest.mark.parametrize(
    ("lower", "upper", "digits", "message"),
    [
        (0, 1, -1, "are closer than one step of the released values, 10; take more digits"),
        (1.0, 1.0000000000000002, None, "scale the column, or move its zero"),
        (0, 5e-324, None, "are closer than one step"),
        (1e15, 1e15 + 1, 6, "take at most 0, or move the column's zero"),
        (0, 1, 17, "digits = 17 are finer than floating-point numbers .* take at most 15"),
        (0, 1, 2.5, r"digits = 2\.5 must be a whole number"),
        (0, 1, True, "digits = True must be a whole number"),
        (0, 1, 1000, "from -106 to 106"),
        (-1e308, 1e308, None, r"lower must be finite, and within ±1e\+100"),
        (0, 10**400, None, r"upper must be finite, and within ±1e\+100"),
    ],
)
def test_precision_and_bounds_that_floating_point_cannot_hold(lower, upper, digits, message):
    with pytest.raises(dpb.SchemaError, match=message):
        column(lower, upper, digits)


def test_bounds_of_counts_are_whole_and_fit_stan():
    column(0, 2**31 - 1, kind="count")
    for upper in (2**31, 2.5):
        with pytest.raises(dpb.SchemaError, match="must be a whole number, at most 2,147,483,647"):
            column(0, upper, kind="count")
    with pytest.raises(dpb.SchemaError, match="digits are for continuous columns"):
        column(0, 5, 2, kind="count")
    unbounded = dpb.Column("x", "count")
    assert unbounded.validate(pd.Series([2**31 - 1])).tolist() == [2**31 - 1]
    with pytest.raises(dpb.DataError, match="outside the declared bounds"):
        unbounded.validate(pd.Series([1e300]))


def test_digits_are_part_of_a_schema_file(tmp_path):
    schema = dpb.Schema({"x": column(0, 1, 2), "y": dpb.Column("y", "continuous", 0, 1)})
    schema.to_toml(tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text()
    assert text.count("digits") == 1
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema


def test_released_values_have_the_public_precision():
    where = dpb.Schema.from_dict(
        {"rows": 40, "columns": {"x": {"type": "continuous", "lower": 0, "upper": 1, "digits": 1}}}
    )
    records = pd.DataFrame({"x": np.random.default_rng(1).uniform(0, 1, 40)})
    (data,) = dpb.Synthesizer(where, dpb.Modips(5, "normal")).fit(records).sample().datasets
    assert set(data["x"]) <= {k / 10 for k in range(11)}
