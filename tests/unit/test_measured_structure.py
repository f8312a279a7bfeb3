"""Whole tables with missing values, rules, atoms and dates: every synthetic row keeps them."""

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import SchemaError
from dpbayes.mechanisms.marginals.structure import Structure, computed_by
from dpbayes.mechanisms.tables.cells import make_axis
from dpbayes.privacy.noise import StudyNoise

TREE = {
    "rules": [
        "start <= end",
        "total == base + bonus",
        "age >= 16 or (married == 'no' and works == 'no')",
    ],
    "columns": {
        "id": {"type": "identifier"},
        "age": {"type": "count", "upper": 99},
        "married": {"type": "binary", "levels": ["no", "yes"]},
        "spouse_age": {"type": "count", "lower": 16, "upper": 99, "only_if": "married == 'yes'"},
        "works": {"type": "binary", "levels": ["no", "yes"]},
        "wage": {
            "type": "continuous", "lower": 0, "upper": 400, "digits": 2, "missing": ["refused"],
            "only_if": "works == 'yes'",
        },
        "base": {"type": "continuous", "lower": 0, "upper": 300, "digits": 2},
        "bonus": {"type": "continuous", "lower": 0, "upper": 100, "digits": 2, "atoms": [0]},
        "total": {"type": "continuous", "lower": 0, "upper": 350, "digits": 2},
        "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
        "end": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31", "missing": True},
    },
}  # fmt: skip


def people(n=2000, seed=1):
    """Ages, marriages, wages, spells: with all that TREE declares."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(40, 22, n), 0, 99).round()
    married = (age >= 16) & (rng.random(n) < 1 / (1 + np.exp(-(age - 28) / 6)))
    works = (age >= 16) & (rng.random(n) < np.where(age > 65, 0.1, 0.7))
    wage = np.exp(rng.normal(3 + 0.01 * age, 0.4, n)).clip(0, 400).round(2)
    refused = rng.random(n) < np.where(age > 40, 0.3, 0.05)
    base = rng.gamma(4, 10, n).clip(0, 250).round(2)
    bonus = np.where(rng.random(n) < 0.6, 0, rng.exponential(10, n).clip(0, 100).round(2))
    start = 18262 + rng.integers(0, 700, n)
    end = np.minimum(start + rng.exponential(60, n).astype(int), 18262 + 730)
    spouse = np.clip(age + rng.normal(0, 4, n), 16, 99).round()
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "age": age.astype(int),
            "married": np.where(married, "yes", "no"),
            "spouse_age": np.where(married, spouse, np.nan),
            "works": np.where(works, "yes", "no"),
            "wage": pd.Series(wage).where(works).astype(object),
            "base": base,
            "bonus": bonus,
            "total": (base + bonus).round(2),
            "start": start.astype("datetime64[D]"),
            "end": pd.Series(end.astype("datetime64[D]")).where(rng.random(n) > 0.3),
        }
    )
    frame.loc[works & refused, "wage"] = "refused"
    return frame


def schema_with(public=(), rules=None):
    columns = {name: dict(entry) for name, entry in TREE["columns"].items()}
    for name in public:
        columns[name]["public"] = True
    return dpb.Schema.from_dict(
        {
            "rows": "public",
            "rules": TREE["rules"] if rules is None else rules,
            "columns": columns,
        }
    )


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("epsilon", [0.01, 5.0])
@pytest.mark.parametrize("public", [(), ("age", "start", "works", "wage")], ids=["none", "public"])
def test_every_row_keeps_the_rules(draw, epsilon, public):
    """Whatever the noise: what is not valid is refused by ``validate``."""
    schema = schema_with(public)
    fit = dpb.Synthesizer(schema, dpb.Marginals(epsilon, draw=draw, adjacency="add-remove")).fit(
        people(300)
    )
    data = fit.sample(seed=1).datasets[0]
    assert list(data.columns) == list(schema.columns)
    assert len(data) == 300
    schema.validate(data)


def test_structure_comes_back():
    """At ε = 50: shares of missing values, by age too, of the atom; the order of days is exact."""
    schema, records = schema_with(), people(4000)
    data = (
        dpb.Synthesizer(schema, dpb.Marginals(50.0, adjacency="add-remove"))
        .fit(records)
        .sample(seed=1)
        .datasets[0]
    )
    ours, theirs = schema.validate(records), schema.validate(data)
    for name in ("spouse_age", "wage", "end"):
        assert abs(ours[name].isna().mean() - theirs[name].isna().mean()) < 0.005
    assert abs((ours["bonus"] == 0).mean() - (theirs["bonus"] == 0).mean()) < 0.005
    old = [t[(t["works"] == "yes") & (t["age"] > 45)]["wage"].isna().mean() for t in (ours, theirs)]
    young = [
        t[(t["works"] == "yes") & (t["age"] < 35)]["wage"].isna().mean() for t in (ours, theirs)
    ]
    assert abs(old[0] - old[1]) < 0.06
    assert abs(young[0] - young[1]) < 0.06
    both = [t[["age", "spouse_age"]].corr().iloc[0, 1] for t in (ours, theirs)]
    assert both[1] > both[0] - 0.07
    assert data["start"].str.fullmatch(r"202[01]-\d\d-\d\d").all()
    assert str(data["spouse_age"].dtype) == "Int64"


@pytest.mark.parametrize("draw", ["mode", "posterior"])
def test_the_order_of_the_records_is_in_nothing(draw):
    """Public values in one level, which a rule tells apart, stand in any order: to the bit."""
    columns = {
        "x": {"type": "continuous", "lower": 0, "upper": 100, "public": True},
        "y": {"type": "continuous", "lower": 0, "upper": 100},
    }
    schema = dpb.Schema.from_dict({"rules": ["y >= x"], "columns": columns})
    rng, n = np.random.default_rng(4), 400
    x = np.round(50 + 2 * rng.random(n), 1)
    records = pd.DataFrame({"x": x, "y": x + 40 * rng.random(n)})
    found = []
    for table in (records, records.sample(frac=1, random_state=5)):
        fit = dpb.Synthesizer(schema, dpb.Marginals(5.0, draw=draw, adjacency="add-remove")).fit(
            table
        )
        output = fit.fitted.draw_private(StudyNoise(1))
        rows = fit.fitted.synthetic(output, n, np.random.default_rng(2))
        found.append(rows.assign(x=table["x"].to_numpy()).sort_values(["x", "y"]).to_numpy())
        assert found[-1].tolist() == found[0].tolist()
    assert (found[0][:, 0] >= found[0][:, 1]).all()


def test_a_column_that_follows_from_others_is_not_counted():
    schema = schema_with(rules=["total == base + bonus", "base == total - bonus"])
    assert list(computed_by(schema)) == ["total"]  # the other way round is a circle
    fit = dpb.Synthesizer(schema, dpb.Marginals(1.0, adjacency="add-remove")).fit(people(100))
    assert "total" not in fit.fitted.settings["bins"]
    assert "total" in [column.name for column in fit.synthesised]


def test_chains_of_columns_that_follow():
    numbers = {name: {"type": "count", "upper": 30} for name in "abcd"}
    schema = dpb.Schema.from_dict({"rules": ["d == c + a", "c == a + b"], "columns": numbers})
    assert list(computed_by(schema)) == ["c", "d"]
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 8, (2, 200))
    records = pd.DataFrame({"a": a, "b": b, "c": a + b, "d": 2 * a + b})
    data = (
        dpb.Synthesizer(schema, dpb.Marginals(2.0, adjacency="add-remove"))
        .fit(records)
        .sample(seed=1)
        .datasets[0]
    )
    assert (data["d"] == 2 * data["a"] + data["b"]).all()
    assert data.max().max() <= 30


@pytest.mark.parametrize(
    "rules", [["age > 99"], ["age < 5", "age > 90"], ["base + bonus > 400"], ["end < '2020-01-01'"]]
)
def test_rules_that_exclude_every_row_are_refused_before_anything_is_paid(rules):
    columns = {**TREE["columns"], "end": TREE["columns"]["start"]}
    with pytest.raises(SchemaError, match="may exclude every one"):
        dpb.Synthesizer(
            dpb.Schema.from_dict({"rules": rules, "columns": columns}),
            dpb.Marginals(1.0, adjacency="add-remove"),
        )


def test_what_follows_from_missing_values_may_be_missing():
    columns = {
        "a": {"type": "count", "upper": 9, "missing": True},
        "b": {"type": "count", "upper": 9},
        "c": {"type": "count", "upper": 20},
    }
    tree = {"rules": ["c == a + b"], "columns": columns}
    with pytest.raises(SchemaError, match="declare it with missing = true"):
        dpb.Synthesizer(dpb.Schema.from_dict(tree), dpb.Marginals(1.0, adjacency="add-remove"))
    columns["c"]["missing"] = True
    schema = dpb.Schema.from_dict(tree)
    records = pd.DataFrame({"a": [1, None, 3] * 30, "b": [1, 2, 3] * 30, "c": [2, None, 6] * 30})
    data = (
        dpb.Synthesizer(schema, dpb.Marginals(2.0, adjacency="add-remove"))
        .fit(records)
        .sample(seed=1)
        .datasets[0]
    )
    schema.validate(data)
    assert (data["a"].isna() == data["c"].isna()).all()


def test_rules_of_few_rows_are_kept_all_the_same():
    """One in a thousand of independent rows keeps them: levels that are left are drawn."""
    levels = [str(i) for i in range(10)]
    columns = {name: {"type": "categorical", "levels": levels} for name in "abcd"}
    schema = dpb.Schema.from_dict({"rules": ["a == b", "b == c", "c == d"], "columns": columns})
    value = np.random.default_rng(1).choice(levels, 500)
    records = pd.DataFrame(dict.fromkeys("abcd", value))
    data = (
        dpb.Synthesizer(schema, dpb.Marginals(1.0, adjacency="add-remove"))
        .fit(records)
        .sample(seed=1)
        .datasets[0]
    )
    assert (data.nunique(axis=1) == 1).all()
    assert data["a"].nunique() == 10


def test_structure_reads_atoms_only_once():
    """A bin that is no more than the atom is the atom; others stand beside it."""
    count = dpb.Column("x", "count", upper=9, atoms=(0,))
    wide = dpb.Column("y", "continuous", lower=0, upper=10, atoms=(0, 5))
    axes = dpb.Marginals(1.0, adjacency="add-remove").axes(
        dpb.Schema({"x": count, "y": wide}, rows="public"), 100
    )
    assert [axis.size for axis in axes] == [10, 34]
    codes = axes[1].encode(pd.Series([0.0, 5.0, 0.01, 5.01, 10.0]))
    values = axes[1].decode(codes, np.random.default_rng(1))
    assert values[:2].tolist() == [0.0, 5.0]
    assert not set(codes[2:]) & set(codes[:2])
    widest = np.diff(axes[1].edges).max()
    np.testing.assert_allclose(values[2:], [0.01, 5.01, 10.0], atol=widest)
    assert not Structure(dpb.Schema({"x": count, "y": wide}, rows="public"), axes).bonds


def test_an_atom_comes_from_its_own_cell_alone():
    """Bins of whole numbers: all others, each as likely; a bin of atoms only keeps its numbers."""
    count = dpb.Column("x", "count", upper=20, atoms=(5, 7, 20))
    axis, rng = make_axis(count, 4, None, 1), np.random.default_rng(1)
    drawn = [axis.decode(np.full(500, k), rng).unique() for k in range(axis.size)]
    assert [sorted(d) for d in drawn] == [
        [0, 1, 2, 3, 4], [5], [6, 8, 9], [7], [10, 11, 12, 13, 14, 15], [16, 17, 18, 19], [20]
    ]  # fmt: skip


def test_what_decides_on_a_column_is_drawn_before_it():
    """Unless a regression that is kept has it the other way round."""
    tree = {
        "columns": {
            "wave": {"type": "count", "lower": 1, "upper": 6},
            "college": {"type": "binary", "missing": True, "only_if": "wave >= 3"},
            "trust": {"type": "binary", "missing": True, "only_if": "wave != 1"},
        }
    }
    for keep, expected in (
        ((), {1: {0}, 2: {0}}),
        (("wave ~ college",), {0: {1}, 2: {0}}),
    ):
        schema = dpb.Schema.from_dict({**tree, "keep": list(keep)})
        mechanism = dpb.Marginals(1.0)
        structure = Structure(schema, mechanism.axes(schema, 100))
        assert structure.after(mechanism.analyses(schema)) == expected


def test_the_column_that_only_if_asks_keeps_its_margin():
    """Two columns have values in some waves alone, as in surveys whose questions changed.

    In 20 posterior draws; drawn after both columns, the first wave had an sd of 0.030.
    """
    rng = np.random.default_rng(1)
    n = 8000
    wave = rng.choice(6, n, p=[0.22, 0.18, 0.15, 0.12, 0.12, 0.21]) + 1
    late = rng.random(n) < 0.3 + 0.03 * wave
    tree = {
        "rows": "public",
        "columns": {
            "wave": {"type": "count", "lower": 1, "upper": 6},
            "age": {"type": "count", "lower": 18, "upper": 90},
            "trust": {"type": "binary", "levels": ["no", "yes"]},
            "college": {
                "type": "binary", "levels": ["no", "yes"], "missing": True, "only_if": "wave >= 3",
            },
            "war": {
                "type": "binary", "levels": ["no", "yes"], "missing": True, "only_if": "wave != 1",
            },
        },
    }  # fmt: skip
    records = pd.DataFrame(
        {
            "wave": wave,
            "age": rng.integers(18, 91, n),
            "trust": np.where(rng.random(n) < 0.4, "yes", "no"),
            "college": np.where(wave >= 3, np.where(late, "yes", "no"), None),
            "war": np.where(wave != 1, np.where(rng.random(n) < 0.5, "yes", "no"), None),
        }
    )
    mechanism = dpb.Marginals(1.0, draw="posterior", adjacency="add-remove")
    fit = dpb.Synthesizer(dpb.Schema.from_dict(tree), mechanism).fit(records)
    sets = fit.sample(20, accept="none", seed=1).datasets
    for first, expected in (
        (lambda d: d["wave"] == 1, wave == 1),
        (lambda d: d["college"].isna(), wave < 3),
    ):
        shares = np.array([first(data).mean() for data in sets])
        assert np.abs(shares - expected.mean()).max() < 0.03
        assert shares.std() < 0.012
