"""Where floating point could break a claim: sums far from zero, small and large epsilon, modes."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.mechanisms.modips import modes
from dpbayes.mechanisms.modips.mechanism import get_model
from dpbayes.mechanisms.modips.statistic_model import Spending
from dpbayes.mechanisms.modips.units import (
    UNITS,
    about_mean,
    cell_sums,
    feature_size,
    features,
    from_unit,
    whole,
)
from dpbayes.privacy.guarantee import check_epsilon
from dpbayes.privacy.noise import SecureNoise
from dpbayes.schema.rows import MOST_VALUES
from tests.unit.test_rows import CASES, name_of, schema, table

FAR = [(1e15, 1e15 + 1), (-1e15 - 1, -1e15), (0.0, 1e-90), (-1e100, 1e100), (1e8, 1e8 + 1e-6)]


@pytest.mark.parametrize("bounds", FAR)
@pytest.mark.parametrize("model", ["normal", "slomag"])
def test_sums_far_from_zero_keep_their_sensitivity(bounds, model):
    """Sums in floating point at 10^15 moved by 125 times what was claimed. Exact, in n = 300."""
    low, high = bounds
    number = {"type": "continuous", "lower": low, "upper": high}
    columns = {"x": number, "g": {"type": "binary"}} if model == "slomag" else {"x": number}
    where = dpb.Schema.from_dict({"rows": 200, "columns": columns})
    fitting = get_model(model, None)
    even = Spending.equal(1.0, fitting.parts(where))
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"x": np.clip(low + (high - low) * rng.uniform(0, 1, 300), low, high), "g": 0}
    )

    def statistics(records):
        found = fitting.fit(where, where.validate(records), even, 200).statistics
        return [s for s in found if s.integer]

    whole_table = statistics(frame)
    assert len(whole_table) == 3
    for i in range(0, 300, 23):
        changed = frame.copy()
        changed.loc[i, "x"] = low if frame.loc[i, "x"] > (low + high) / 2 else high
        for adjacency, other in (("add-remove", frame.drop(i)), ("substitution", changed)):
            for a, b in zip(whole_table, statistics(other), strict=True):
                moved = sum(abs(int(v)) for v in np.ravel(a.value - b.value))
                assert moved <= a.change[adjacency].l1
    mean, spread, n = (np.ravel(s.exact)[0] for s in whole_table)
    assert n == 300
    if model == "normal":  # on the way, they are what they stand for: sums over 200, not 300
        z = (frame["x"] - low) / (high - low) - 0.5
        step = (high - low) / UNITS + np.spacing(high)
        assert mean == pytest.approx(low + (high - low) * (0.5 + z.sum() / 200), abs=4 * step)
        assert spread / (high - low) ** 2 == pytest.approx(299 / 199 * z.var(ddof=1), abs=1e-3)


def test_a_sum_in_floating_point_moves_by_more_than_its_terms():
    """What the sums were before: a record that moves by 1 at most moves one of them by 128."""
    bounds = (1e15 + 63.5, 1e15 + 64.5)
    one = np.full(1000, bounds[0])
    two = one.copy()
    two[-1] = bounds[1]
    assert np.cumsum(two)[-1] - np.cumsum(one)[-1] == 128
    assert (whole(two, bounds) - whole(one, bounds)).sum() == 2 * UNITS


@pytest.mark.parametrize("bounds", [*FAR, (-3.0, 4.0), (0.0, 6.0)])
def test_numbers_are_whole_and_inside(bounds):
    low, high = bounds
    values = np.array([low, high, low + (high - low) / 2, np.nextafter(low, high)])
    z = whole(values, bounds)
    assert z.dtype == np.int64
    assert (z[0], z[1]) == (-UNITS, UNITS)
    assert (np.abs(z) <= UNITS).all()
    column = dpb.Column("x", "continuous", low, high)
    back = from_unit(column, z / UNITS)
    assert ((low <= back) & (back <= high)).all()
    assert np.abs(back - values).max() <= (high - low) / UNITS + np.spacing(max(map(abs, bounds)))


def test_sums_by_cell_are_exact_where_floats_are_not():
    n = 200_001
    values = np.full(n, UNITS**2 - 1, dtype=np.int64)
    values[0] = -(UNITS**2)
    cell = np.zeros(n, dtype=np.int64)
    cell[1::2] = 1
    expected = [-(UNITS**2) + (n // 2) * (UNITS**2 - 1), (n // 2) * (UNITS**2 - 1)]
    assert cell_sums(cell, values, 3).tolist() == [*expected, 0]
    assert expected[1] > 2**52
    assert cell_sums(cell[:0], values[:0], 3).tolist() == [0, 0, 0]


def test_products_about_the_mean_are_rounded_down_exactly():
    rng = np.random.default_rng(2)
    for n in (1, 2, 7, 50_000):
        a, b = rng.integers(-UNITS, UNITS + 1, (2, n))
        found = about_mean(n, (a * b).sum(), a.sum(), b.sum())
        s, t = Fraction(int(a.sum()), n), Fraction(int(b.sum()), n)
        exact = int((a * b).sum()) - n * s * t
        assert int(found) == math.floor(exact)
    assert about_mean(0, 0, 0, 0) == 0


def test_features_have_the_norms_that_sensitivities_rest_on():
    where = dpb.Schema.from_dict(
        {
            "columns": {
                "g": {"type": "categorical", "levels": list("abcd")},
                "k": {"type": "count", "lower": 2, "upper": 7},
                "z": {"type": "continuous", "lower": 1e15, "upper": 1e15 + 1},
            }
        }
    )
    rows = itertools.product("abcd", range(2, 8), (1e15, 1e15 + 0.5, 1e15 + 1))
    records = where.validate(pd.DataFrame(rows, columns=["g", "k", "z"]))
    columns = list(where.columns.values())
    for p in range(4):
        x = features(columns[:p], records)
        one = feature_size(p)
        assert one <= UNITS / math.sqrt(1 + p) < one + 1
        assert x.shape == (len(records), 1 + sum([3, 1, 1][:p]))
        assert np.abs(x).max() == one
        assert ((x**2).sum(axis=1) <= UNITS**2).all()
        assert (np.abs(x).sum(axis=1) <= (1 + p) * one).all()
        assert ((x**2).sum(axis=1)).max() == (1 + p) * one**2


@pytest.mark.parametrize("classes", [2, 4])
def test_rounding_of_a_gradient_is_within_what_is_paid_for(classes):
    """Against extended precision, at coefficients so large that probabilities are cut off."""
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no extended precision here")
    rng = np.random.default_rng(3)
    n, d = 20_000, 5
    x = np.rint(rng.uniform(-1, 1, (n, d)) * UNITS / math.sqrt(d)) / UNITS
    hot = np.eye(classes)[rng.integers(0, classes, n)]
    for size in (0.1, 10.0, 1000.0):
        b = size * rng.standard_normal((classes if classes > 2 else 1, d))
        hot_used = hot if classes > 2 else hot[:, 1:]
        found, _ = modes._gradient(x, hot_used, b, 0.5)
        fine = x.astype(np.longdouble) @ b.T.astype(np.longdouble)
        logits = fine if classes > 2 else np.hstack([np.zeros_like(fine), fine])
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = (weight / weight.sum(axis=1, keepdims=True))[:, -len(b) :]
        exact = (p - hot_used).T @ x.astype(np.longdouble) + np.longdouble(0.5) * b
        off = float(np.linalg.norm((found - exact).astype(float)))
        allowed = modes._rounding(x, b, classes, 0.5)
        assert off <= allowed < 1e-3 * modes.GRADIENT
    # Still a fraction of what is paid for with many records and coefficients.
    many = np.broadcast_to(np.zeros(1), (30_000_000, 50))
    assert modes._rounding(many, np.full((5, 50), 2.0), 5, 1.0) < modes.GRADIENT


def test_modes_are_found_for_every_table():
    """Separable classes, constant predictors, none and few records, ridges down to 10^-6."""
    rng = np.random.default_rng(4)
    for n, classes, ridge in itertools.product((0, 1, 2, 300), (2, 3, 6), (1e-6, 1e-3, 0.5, 1e4)):
        for y in (np.arange(n) % classes, np.zeros(n, dtype=int), rng.integers(0, classes, n)):
            for x in (
                np.full((n, 3), 0.5),
                np.column_stack([np.full(n, 0.7), np.sort(y) * 2.0**-18]),
                np.column_stack([np.full(n, 0.7), np.where(y > 0, 0.5, -0.5)]),
                np.clip(rng.normal(0, 0.3, (n, 3)), -0.5, 0.5),
            ):
                mode = modes.fit_logistic(x, y, classes, ridge)
                hot = (y[:, None] == (np.arange(classes) if classes > 2 else [1])).astype(float)
                gradient, _ = modes._gradient(x, hot, mode, ridge)
                assert np.linalg.norm(gradient) <= modes.GRADIENT


MODELLED = [
    case for case in CASES
    if case[0].name == "modips" and case[0].model.name != "multinomial"  # many bins
]  # fmt: skip


@pytest.mark.parametrize("rows", [1, MOST_VALUES])
@pytest.mark.parametrize("case", MODELLED, ids=name_of)
def test_the_smallest_and_largest_numbers_of_rows(case, rows):
    """Ranges and sums stay inside 64 bits, and models have a posterior."""
    mechanism, names = case
    where = schema(names, rows)
    for n in (0, 5):
        fitted = mechanism.prepare(where, where.validate(table(n)), rows)
        noise = SecureNoise()
        where.validate(fitted.synthetic(fitted.draw_private(noise), 7, noise.rng))


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, 5e-324, 9.99e-4, 50.001, 200, 1e300, 10**400, math.inf, math.nan, "1", True, None],
)
def test_epsilon_outside_its_range_is_refused_with_the_reason(epsilon):
    with pytest.raises(dpb.GuaranteeError, match=r"must be a number from 0\.001 to 50\. With less"):
        check_epsilon(epsilon)
    with pytest.raises(dpb.GuaranteeError, match=r"must be a number from 0\.001 to 50\. With less"):
        dpb.Laplace(epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 50, 50.0])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_epsilon_at_the_ends_of_its_range_gives_a_release(case, epsilon):
    mechanism, names = case
    where = schema(names, 20)
    changed = dataclasses.replace(mechanism, epsilon=epsilon)
    fitted = changed.prepare(where, where.validate(table(25)), 20)
    noise = SecureNoise()
    data = fitted.synthetic(fitted.draw_private(noise), 20, noise.rng)
    where.validate(data)
