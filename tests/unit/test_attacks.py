"""Attacks by Anonymeter, where it is installed (.ci/run insists), and without it."""

import importlib.util
import os

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.errors import DataError
from dpbayes.evaluate import attacks
from dpbayes.evaluate.disclosure import Bounds
from dpbayes.report.whole import Whole, risk

TREE = {n: {"type": "categorical", "levels": list("0123456789")} for n in "abcd"}
SCHEMA = dpb.Schema.from_dict(
    {"columns": {**TREE, "x": {"type": "continuous", "lower": 0, "upper": 1}}}
)
THERE = importlib.util.find_spec("anonymeter") is not None
needed = pytest.mark.skipif(
    not THERE and "DPBAYES_REQUIRE_ANONYMETER" not in os.environ, reason="no Anonymeter"
)


def table(n, seed):
    """d is a, twice in three times; x is anything."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame({name: rng.integers(0, 10, n).astype(str) for name in "abc"})
    found["d"] = np.where(rng.random(n) < 2 / 3, found["a"], "0")
    return found.assign(x=rng.random(n).round(3))


def looked_at(synthetic, holdout=None, sensitive="d"):
    found = attacks.attacks(
        SCHEMA, SCHEMA.validate(table(300, 1)), SCHEMA.validate(synthetic), ["a", "b", "c"],
        sensitive, None if holdout is None else SCHEMA.validate(holdout),
    )  # fmt: skip
    return {one.name: one for one in found}


@needed
def test_copies_are_found_and_others_are_not():
    """Of the records themselves every attack is right more often; of others about as often.

    Wilson rates of up to 300 guesses: 6 standard errors of a difference are below .25.
    """
    copied = looked_at(table(300, 1), table(300, 2))
    fair = looked_at(table(300, 3), table(300, 2))
    names = ["singling out by 1 column", "singling out by 3 columns",
             "linkability of keys and the rest", "inference of d"]  # fmt: skip
    assert list(copied) == list(fair) == names
    assert copied["singling out by 3 columns"].rate > 0.9
    assert copied["inference of d"].rate > copied["inference of d"].without + 0.1
    for one in fair.values():
        assert one.rate == pytest.approx(one.without, abs=0.25)
    assert [one.about_one for one in fair.values()] == [False, False, True, True]


@needed
def test_a_number_and_no_holdout():
    found = looked_at(table(300, 1), sensitive="x")
    assert found["inference of x within 5 %"].rate > 0.2
    assert np.isnan(found["inference of x within 5 %"].without)
    assert found["linkability of keys and the rest"].without == pytest.approx(1 / 300)
    assert found["singling out by 3 columns"].without < 0.2


@needed
def test_the_global_generator_and_the_result_stay_the_same():
    np.random.seed(4)
    expected = np.random.random()
    np.random.seed(4)
    first = looked_at(table(200, 5))
    assert np.random.random() == expected
    assert {k: v.rate for k, v in looked_at(table(200, 5)).items()} == {
        k: v.rate for k, v in first.items()
    }


def test_only_guesses_about_one_record_beside_a_holdout_have_a_bound(monkeypatch):
    made = [attacks.Attack("one", 0.4, 0.1, True), attacks.Attack("all", 0.4, 0.1, False)]
    monkeypatch.setattr("dpbayes.report.whole.attacks", lambda *args: made)
    three = (SCHEMA.validate(table(30, k)) for k in (1, 2, 3))
    found = risk(Whole(SCHEMA, *three), ["a"], None, Bounds.of(1.0), attacked=True)
    bounds = found.set_index("measure")["bound by ε"]
    assert bounds["one"] == pytest.approx(0.1 * np.e)
    assert np.isnan(bounds["all"])
    two = (SCHEMA.validate(table(30, k)) for k in (1, 2))
    found = risk(Whole(SCHEMA, *two), ["a"], None, Bounds.of(1.0), attacked=True)
    assert np.isnan(found.set_index("measure").loc["one", "bound by ε"])


def test_without_it_one_message(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(attacks.importlib, "import_module", missing)
    with pytest.raises(DataError, match="pip install --no-deps anonymeter"):
        attacks.attacks(SCHEMA, table(9, 1), table(9, 2), ["a"], None)
