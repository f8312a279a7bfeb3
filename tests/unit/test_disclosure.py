"""Disclosure measures and distances of whole tables, by hand and by brute force."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.evaluate import disclosure, joint

RECORDS = pd.DataFrame(
    {"zip": [1, 1, 2, 3, 4], "sex": list("fmfff"), "ill": ["a", "b", "a", "c", "a"]}
)
SYNTHETIC = pd.DataFrame(
    {"zip": [1, 1, 2, 2, 3], "sex": list("ffffm"), "ill": ["a", "b", "a", "b", "c"]}
)


def many(n, seed, levels=4):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({name: rng.integers(0, levels, n) for name in "abc"}).astype(str)


def test_identification_by_hand():
    """Keys zip and sex: rows that agree 2, 0, 2, 0, 0; in all columns 1, 0, 1, 0, 0."""
    found = disclosure.identification(RECORDS, SYNTHETIC, ["zip", "sex"])
    assert found.expected == pytest.approx((1 / 2 + 1 / 2) / 5)
    assert (found.single, found.true) == (0.0, 0.0)
    assert math.isnan(found.false)
    mine = disclosure.identification(RECORDS, RECORDS, ["zip", "sex"])
    assert (mine.expected, mine.single, mine.true, mine.false) == (1.0, 1.0, 1.0, 0.0)
    other = RECORDS.assign(ill="b")
    mine = disclosure.identification(RECORDS, other, ["zip", "sex"])
    assert (mine.expected, mine.true) == (0.2, 0.2)
    assert mine.false == pytest.approx(0.8)


def test_attribution_by_hand():
    found = disclosure.attribution(RECORDS, SYNTHETIC, ["zip", "sex"], "ill")
    # a: 1/2; no row: 2/5 of b; a: 1/2; no row: 1/5 of c; no row: 2/5 of a.
    assert found.correct == pytest.approx((1 / 2 + 2 / 5 + 1 / 2 + 1 / 5 + 2 / 5) / 5)
    assert found.baseline == pytest.approx((2 / 5 + 2 / 5 + 2 / 5 + 1 / 5 + 2 / 5) / 5)
    assert found.errors == pytest.approx(2 / 5)  # a is first among equals: wrong for b and c
    exact = disclosure.attribution(RECORDS, RECORDS, ["zip", "sex"], "ill")
    assert (exact.correct, exact.errors) == (1.0, 0.0)


def test_a_number_guessed_from_the_keys():
    records = pd.DataFrame({"k": ["a", "a", "b"], "x": [1.0, 3.0, 10.0]})
    synthetic = pd.DataFrame({"k": ["a", "a", "c"], "x": [2.0, 4.0, 9.0]})
    assert disclosure.inferred_error(records, synthetic, ["k"], "x") == pytest.approx(
        (2 + 0 + 5) / 3
    )


def test_uniqueness():
    assert disclosure.uniqueness(RECORDS, ["zip"]) == pytest.approx(3 / 5)
    assert disclosure.uniqueness(RECORDS, ["zip", "sex"]) == 1.0
    assert disclosure.uniqueness(SYNTHETIC, ["sex"]) == pytest.approx(1 / 5)


def test_nearest_distance_by_brute_force():
    rng = np.random.default_rng(1)
    rows, others = (np.column_stack([rng.integers(0, 3, n), rng.random(n)]) for n in (40, 70))
    levels = np.array([True, False])
    found = disclosure.nearest_distance(rows, others, levels)
    for row, near in zip(rows, found, strict=True):
        every = [(row[0] != o[0]) + abs(row[1] - o[1]) for o in others]
        assert near == pytest.approx(min(every))


def test_an_attack_finds_copies_and_nothing_else():
    tree = {n: {"type": "categorical", "levels": list("0123456789")} for n in "abc"}
    schema = dpb.Schema.from_dict({"columns": tree})
    records, holdout, other = (many(400, seed, 10) for seed in (1, 2, 3))
    copied = disclosure.closeness(schema, records, holdout, records)
    assert copied.to_records == 0
    assert copied.closer > 0.8
    assert copied.auc > 0.8
    assert copied.true_rates == (0.0, 0.0)  # every cut that all members pass, a third do besides
    fair = disclosure.closeness(schema, records, holdout, other)
    assert abs(fair.closer - 0.5) < 0.1
    assert abs(fair.auc - 0.5) < 0.1


def test_area_and_rates_by_all_pairs():
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 6, 50).astype(float), rng.integers(0, 5, 70).astype(float)
    pairs = [(x > y) + (x == y) / 2 for x, y in itertools.product(a, b)]
    assert disclosure.auc(a, b) == pytest.approx(np.mean(pairs))
    assert disclosure.true_rate(a, b, 0.0) == pytest.approx((a >= 5).mean())
    assert disclosure.true_rate(a, b, 1.0) == 1.0
    gaps = [(a >= cut).mean() - (b >= cut).mean() for cut in range(7)]
    assert disclosure.advantage(a, b) == pytest.approx(max(gaps))
    assert disclosure.advantage(b - 9, a) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0, 900.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_bounds_of_epsilon_by_a_grid(epsilon, delta):
    """Advantage and area of the region of all tests, by its lines on a grid of false rates."""
    found = disclosure.Bounds.of(epsilon, delta)
    x = np.linspace(0, 1, 2_000_001)
    lines = [delta + np.exp(min(epsilon, 700.0)) * x, 1 - np.exp(-epsilon) * (1 - delta - x)]
    top = np.minimum(np.minimum(*lines), 1)
    assert found.advantage == pytest.approx((top - x).max(), abs=1e-5)
    assert found.auc == pytest.approx(np.trapezoid(top, x), abs=1e-5)
    for rate in (*disclosure.FALSE_RATES, 0.7):
        assert found.true_rate(rate) == pytest.approx(np.interp(rate, x, top), abs=1e-5)
    if delta == 0:
        assert found.advantage == pytest.approx(math.tanh(epsilon / 2))  # (e^ε - 1)/(e^ε + 1)


def test_randomised_response_reaches_the_bounds():
    """A bit told rightly with probability e^ε / (1 + e^ε): no attack is better."""
    epsilon = 1.3
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    members, others = (np.repeat([1.0, 0.0], [k, 10_000 - k]) for k in (
        round(10_000 * right), round(10_000 * (1 - right))))  # fmt: skip
    found = disclosure.Bounds.of(epsilon)
    assert disclosure.auc(members, others) == pytest.approx(found.auc, abs=1e-3)
    assert right - (1 - right) == pytest.approx(found.advantage)
    assert found.odds == pytest.approx(right / (1 - right))


# ---- distances -------------------------------------------------------------------------------


def test_distances_by_hand():
    tables = joint.Coded.of(RECORDS, SYNTHETIC)
    ill = tables.names.index("ill")
    assert joint.marginal_distance(tables, ill) == pytest.approx(0.2**2 + 0.2**2)
    sex = tables.names.index("sex")
    # f: (3/4, 0, 1/4) and (2/4, 2/4, 0); m: b and c.
    expected = (1 / 4) ** 2 + (1 / 2) ** 2 + (1 / 4) ** 2 + 1 + 1
    assert joint.conditional_distance(tables, ill, sex) == pytest.approx(expected)
    assert joint.regression_distance([2.0, -1.0], [1.0, -3.0]) == pytest.approx(2.5)
    same = joint.Coded.of(RECORDS, RECORDS.sample(frac=1, random_state=1))
    for k in (1, 2, 3):
        assert joint.total_variation(same, k) == pytest.approx(0.0)


def test_total_variation_by_brute_force():
    a, b = many(50, 1), many(80, 2)
    tables = joint.Coded.of(a, b)
    for k in (1, 2, 3):
        expected = []
        for names in itertools.combinations("abc", k):
            p, q = (t.value_counts(list(names), normalize=True) for t in (a, b))
            expected.append(p.sub(q, fill_value=0).abs().sum() / 2)
        assert joint.total_variation(tables, k) == pytest.approx(expected)


def test_association_by_hand():
    """Equal, apart, one level, and from the chi-squared statistic of a table."""
    one = pd.DataFrame({"x": list("aabb"), "y": list("ccdd")})
    none = pd.DataFrame({"x": list("aabb"), "y": list("cdcd")})
    assert joint.association(joint.Coded.of(one, none), 0, 1) == pytest.approx((1.0, 0.0))
    assert joint.association(joint.Coded.of(one, one.assign(y="c")), 0, 1)[1] == 0.0
    rng = np.random.default_rng(3)
    two = pd.DataFrame({"x": rng.integers(0, 3, 60), "y": rng.integers(0, 4, 60)})
    counts = pd.crosstab(two["x"], two["y"]).to_numpy()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / 60
    v = math.sqrt(((counts - expected) ** 2 / expected).sum() / (60 * 2))
    assert joint.association(joint.Coded.of(two, two), 0, 1)[0] == pytest.approx(v)


def test_whole_numbers_keep_their_order():
    """A tree splits by order: 10 comes after 9, which it does not as text."""
    table = pd.DataFrame({"x": [9, 10, 2, 10]})
    assert joint.Coded.of(table, table).original.ravel().tolist() == [1, 2, 0, 2]
    words = pd.DataFrame({"x": ["b", None, "a"]})
    assert joint.Coded.of(words, words).sizes == (3,)


@pytest.mark.statistical
def test_a_tree_finds_what_a_logistic_regression_does_not():
    """x and y are equal or independent, with the same margins.

    Of two samples of one population the ratio is nearly chi-squared of 7 over 7, for the 8 cells
    that there are: above 4 once in 5,000. Its mean over 60 pairs was 1.06.
    """
    rng = np.random.default_rng(7)

    def made(n, tied):
        x, y = rng.integers(0, 4, (2, n))
        return pd.DataFrame({"x": x, "y": (x + 2 * y) % 4 if tied else y})

    same = joint.Coded.of(made(800, True), made(800, True))
    assert joint.tree_ratio(same) < 4
    other = joint.Coded.of(made(800, True), made(800, False))
    assert joint.tree_ratio(other) > 10
    assert joint.pmse_ratio(other) < 5


@pytest.mark.statistical
def test_pmse_of_a_bootstrap_is_as_expected():
    """Means of 30 ratios, each chi-squared of 9 over 9: 6 standard errors, 1 in 10^8 by chance."""
    one = many(1500, 1)
    draws = [
        joint.Coded.of(one, one.sample(frac=1, replace=True, random_state=k)) for k in range(30)
    ]
    samples = [joint.Coded.of(many(1500, k), many(1500, 100 + k)) for k in range(30)]
    error = math.sqrt(2 / 9 / 30)
    assert np.mean([joint.pmse_ratio(t) for t in draws]) == pytest.approx(1.0, abs=6 * error)
    assert np.mean([joint.pmse_ratio(t) for t in samples]) == pytest.approx(2.0, abs=12 * error)
    other = many(1500, 1).assign(a=lambda t: np.where(t["a"] == "0", "1", t["a"]))
    assert joint.pmse_ratio(joint.Coded.of(many(1500, 2), other)) > 10
