"""What an attack on rules and missing values found: each of these broke once."""

import io
import time

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.mechanisms.marginals.structure import computed_by
from dpbayes.schema.domain import made_up

BINARY = {"type": "binary"}


def count(upper, **more):
    return {"type": "count", "upper": upper, **more}


def number(lower, upper, **more):
    return {"type": "continuous", "lower": lower, "upper": upper, **more}


def released(tree, records, epsilon=1.0, draw="mode", seed=1):
    """A data set, which has to be valid, also as its file is read."""
    schema = dpb.Schema.from_dict(tree)
    records = pd.DataFrame(records)
    fit = dpb.Synthesizer(schema, dpb.Marginals(epsilon, draw=draw)).fit(records)
    data = fit.sample(seed=seed).datasets[0]
    schema.validate(data)
    text = io.StringIO(data.to_csv(index=False))
    schema.validate(pd.read_csv(text, dtype=str, keep_default_na=False, na_values=[""]))
    return data


@pytest.mark.parametrize("q", [number(0, 5), count(5)])
def test_what_is_divided_by_zero_is_in_no_row(q):
    tree = {"rules": ["q == a / b"], "columns": {"a": count(5), "b": count(1), "q": q}}
    records = {"a": [3] * 120, "b": [1] * 120, "q": [3] * 120}
    data = released(tree, records, epsilon=0.2)
    assert data["q"].notna().all()
    assert (data["b"] == 1).all()
    made_up(dpb.Schema.from_dict(tree), 5, np.random.default_rng(1))


def test_halves_of_counts_are_whole():
    tree = {"rules": ["c == a / 2"], "columns": {"a": count(20), "c": count(10)}}
    a = 2 * np.random.default_rng(1).integers(0, 11, 100)
    data = released(tree, {"a": a, "c": a // 2})
    assert (data["a"] % 2 == 0).all()


@pytest.mark.parametrize("more", [{"only_if": "works == 1"}, {"missing": True}])
def test_what_follows_from_others_is_missing_with_them_only(more):
    columns = {"works": BINARY, "base": count(9), "total": count(18, **more)}
    schema = dpb.Schema.from_dict({"rules": ["total == base * 2"], "columns": columns})
    with pytest.raises(SchemaError, match="declare it without missing and without only_if"):
        dpb.Synthesizer(schema, dpb.Marginals(1.0))


@pytest.mark.parametrize("levels", [[0, 1], [0.5, 1, -3], ["0", "1"]])
@pytest.mark.parametrize("missing", [{}, {"missing": [-9]}])
def test_levels_that_are_numbers_come_back(levels, missing):
    tree = {"columns": {"x": {"type": "categorical", "levels": levels, **missing}}}
    values = [*levels, -9 if missing else levels[0]] * 20
    data = released(tree, {"x": values})
    kept = {str(value) for value in data["x"].dropna()}
    if len(levels) == 3:  # whole numbers beside a decimal are decimals
        levels = [*map(float, levels)]
    assert kept <= {str(level) for level in levels}


def test_public_rows_without_a_way_are_refused_before_anything_is_paid():
    """x < y < x + 0.005, or below 2 x - 8, on grids on which there is no such y for some x."""
    tree = {
        "rules": ["x < y", "y < x + 0.005 or y < 2 * x - 8"],
        "columns": {"x": number(0, 10, public=True, digits=4), "y": number(0, 10, digits=2)},
    }
    good = {"x": [0.0099] * 50 + [5.001] * 50, "y": [0.01] * 50 + [5.005] * 50}
    schema = dpb.Schema.from_dict(tree)
    with pytest.raises(SchemaError, match="beside the public values of 50 records"):
        dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(pd.DataFrame(good))


@pytest.mark.parametrize("epsilon", [0.05, 5.0])
def test_what_public_rows_need_is_found(epsilon):
    rng = np.random.default_rng(1)
    y, z = rng.integers(0, 501, (2, 100))
    columns = {"x": count(1000, public=True), "y": count(1000), "z": count(1000)}
    tree = {"rules": ["y + z == x"], "columns": columns}
    released(tree, {"x": y + z, "y": y, "z": z}, epsilon)


@pytest.mark.parametrize("draw", ["mode", "posterior"])
@pytest.mark.parametrize("rules", [["x == 0 or (x > 310 and x < 320)"], []])
def test_groups_that_are_all_but_empty_take_no_others_place(rules, draw):
    """Half of the values 0, half 315: the share of either within .1 at ε = 20."""
    x = np.repeat([0, 315.0], 100)
    tree = {"rules": rules, "columns": {"x": number(0, 1000, atoms=[0]), "b": BINARY}}
    data = released(tree, {"x": x, "b": 0}, 20.0, draw)
    assert abs((data["x"] == 0).mean() - 0.5) < 0.1
    assert abs(data["x"].between(280, 350).mean() - 0.5) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_draws_stay_where_the_values_are(seed):
    """Spikes far apart: at ε = 20 the mean of a draw is within a tenth of the range."""
    rng = np.random.default_rng(seed)
    fee = rng.choice([0, 300, 315, 320], 300)
    columns = {"fee": number(0, 5000, atoms=[0]), "b": BINARY}
    data = released({"columns": columns}, {"fee": fee, "b": fee > 0}, 20.0, "posterior", seed)
    assert abs(data["fee"].mean() - fee.mean()) < 100


@pytest.mark.parametrize("seed", range(8))
def test_posterior_draws_keep_spikes(seed):
    """Half of the values 0, half 315: within .25, five sds of a share of 200 drawn from 200.

    Intercepts that were drawn for empty groups put all rows of 9 in 12 draws at one value.
    """
    columns = {"x": number(0, 1000, atoms=[0]), "b": BINARY}
    x = np.repeat([0, 315.0], 100)
    data = released({"columns": columns}, {"x": x, "b": 0}, 20.0, "posterior", seed)
    assert abs((data["x"] == 0).mean() - 0.5) < 0.25
    assert abs(data["x"].between(280, 350).mean() - 0.5) < 0.25


@pytest.mark.parametrize("other", [333, 1333])
def test_single_values_inside_wide_bins_are_found(other):
    x = np.array([17, other] * 100)
    columns = {"x": count(5000), "b": BINARY}
    data = released({"rules": [f"x in [17, {other}]"], "columns": columns}, {"x": x, "b": 0}, 20.0)
    assert abs((data["x"] == 17).mean() - 0.5) < 0.1


def test_sums_of_sums_are_read_in_time():
    names = [f"c{i}" for i in range(60)]
    rules = [f"c{i} == c{i - 1} + c{i - 2}" for i in range(2, 60)]
    schema = dpb.Schema.from_dict({"rules": rules, "columns": {n: count(9) for n in names}})
    start = time.process_time()
    assert len(computed_by(schema)) == 58
    with pytest.raises(SchemaError, match="no row was found"):  # 10^11 times c1
        dpb.Synthesizer(
            dpb.Schema.from_dict(
                {"rules": [*rules, "c59 > 8"], "columns": {n: count(9) for n in names}}
            ),
            dpb.Marginals(1.0),
        )
    assert time.process_time() - start < 20  # it took for ever


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "%d %d %m %Y"}, "must say year, month and day"),
        ({"format": "%d.%m.%y"}, "does not tell"),
        ({"format": " %d.%m.%Y"}, "must say year, month and day"),
        ({"atoms": [10**400]}, "must be a day"),
        ({"atoms": [18262]}, "must be a day"),
        ({"atoms": [None]}, "atoms: None is not a day"),
        ({"missing": ["1950-01-01"]}, "no value inside the bounds"),
        ({"missing": ["\ud800"]}, "can be printed"),
    ],
)
def test_dates_that_cannot_be_told(more, message):
    with pytest.raises(SchemaError, match=message):
        dpb.Column("d", "date", "1925-01-01", "2025-12-31", **more)


def test_a_format_with_a_time_reads_its_own_days():
    column = dpb.Column("d", "date", "2020-01-01", "2020-12-31", format="%Y-%m-%d %H:%M:%S")
    days = pd.Series([18262, 18263])
    assert column.validate(column.released(days)).tolist() == days.tolist()


@pytest.mark.parametrize(
    "column",
    [
        count(9, missing=[9]),
        number(0, 100, missing=[0], atoms=[0]),
        {"type": "binary", "levels": [" ", "a"], "missing": True},
        number(0, 10, digits=0, atoms=[0.5]),
    ],
)
def test_codes_and_atoms_that_could_be_values_are_refused(column):
    with pytest.raises(SchemaError):
        dpb.Schema.from_dict({"columns": {"x": column}})


def test_dates_are_told_from_codes_however_they_are_held():
    column = dpb.Column("d", "date", "2000-01-01", "2020-01-01", missing=["1900-01-01"])
    for given in ("1900-01-01", "1900-01-01 00:00:00", pd.Timestamp("1900-01-01")):
        assert column.validate(pd.Series([given])).isna().all()
    for bad in ([True], [1j]):
        with pytest.raises(DataError):
            column.validate(pd.Series(bad))
    with pytest.raises(DataError, match="not numbers"):
        dpb.Column("x", "count", upper=9).validate(pd.Series([1 + 1j]))


def test_equal_is_exact_for_whole_numbers_and_near_for_others():
    large = {"a": count(2_147_483_647), "b": count(2_147_483_647)}
    schema = dpb.Schema.from_dict({"rules": ["a < b"], "columns": large})
    schema.validate(pd.DataFrame({"a": [2_000_000_000], "b": [2_000_000_001]}))
    parts = {name: number(0, 1, digits=1) for name in "prct"}
    schema = dpb.Schema.from_dict({"rules": ["p == r - c - t"], "columns": parts})
    schema.validate(pd.DataFrame({"p": [0.0], "r": [0.3], "c": [0.1], "t": [0.2]}))
    cents = {name: number(0, 1e9, digits=2) for name in "ab"}
    schema = dpb.Schema.from_dict({"rules": ["a == b"], "columns": cents})
    with pytest.raises(DataError, match="break the rule"):
        schema.validate(pd.DataFrame({"a": [1e8], "b": [1e8 + 0.01]}))


def test_signs_stand_before_numbers_and_columns():
    schema = dpb.Schema.from_dict(
        {
            "rules": ["-x >= -9", "x - -y <= 9", "x in [-1, 3, +4]"],
            "columns": {"x": count(9), "y": count(9)},
        }
    )
    schema.validate(pd.DataFrame({"x": [3, 4], "y": [6, 5]}))
    with pytest.raises(DataError):
        schema.validate(pd.DataFrame({"x": [3], "y": [7]}))


def test_rules_of_public_columns_alone_refuse_no_schema():
    columns = {"a": number(0, 13, public=True), "b": number(0, 10, public=True), "c": BINARY}
    schema = dpb.Schema.from_dict({"rules": ["a == b * 1.3"], "columns": columns})
    b = np.arange(10.0)
    records = pd.DataFrame({"a": b * 1.3, "b": b, "c": 0})
    schema.validate(
        dpb.Synthesizer(schema, dpb.Marginals(1.0)).fit(records).sample(seed=1).datasets[0]
    )


def test_sequential_models_keep_days_whole():
    columns = {"d": {"type": "date", "lower": "2020-01-01", "upper": "2020-01-02"}, "x": BINARY}
    schema = dpb.Schema.from_dict({"columns": columns})
    mechanism = dpb.mechanisms.get_mechanism("modips", model="sequential", epsilon=50.0)
    records = pd.DataFrame({"d": ["2020-01-02"] * 80, "x": [0, 1] * 40})
    data = dpb.Synthesizer(schema, mechanism).fit(records).sample(seed=1).datasets[0]
    assert (data["d"] == "2020-01-02").mean() > 0.9


CASES = {
    "two bounds": (count(30), ["s >= p + 3", "s <= p + 3"]),
    "two bounds of a wide range": (count(2000), ["s >= p + 3 and s <= p + 3"]),
    "not another": (count(30), ["not (s != p)"]),
    "an equation or itself": (count(30), ["s == p + 1 or s == p + 1"]),
    "a chain": (count(30), ["t == s or t == s", "t == p or t == p"]),
    "two equations": (count(30), ["s + t == p", "s == t + q"]),
    "itself on both sides": (count(30), ["s + t == p + t"]),
    "beside a rule of public columns": (count(30), ["p == q", "s >= p", "s <= q"]),
    "beside a sum of public columns": (count(30), ["q == p + 1", "s >= p", "s <= q - 1"]),
}


@pytest.mark.parametrize("case", CASES)
def test_public_columns_tell_no_confidential_one_by_several_rules(case):
    column, rules = CASES[case]
    public = {name: {**column, "public": True} for name in "pq"}
    schema = dpb.Schema.from_dict({"rules": rules, "columns": {**public, "s": column, "t": column}})
    with pytest.raises(SchemaError, match=r"leave the confidential column '[st]' one value"):
        dpb.Synthesizer(schema, dpb.Marginals(1.0))


@pytest.mark.parametrize(
    "rules",
    [
        ["p == 'no' or s == 'yes'", "s == 'no' or p == 'yes'"],
        ["(p == 'yes' and s == 'yes') or (p == 'no' and s == 'no')"],
    ],
)
def test_public_levels_tell_no_confidential_one_by_cases(rules):
    answer = {"type": "binary", "levels": ["no", "yes"]}
    columns = {"p": {**answer, "public": True}, "s": answer}
    with pytest.raises(SchemaError, match="leave the confidential column 's' one value"):
        dpb.Synthesizer(
            dpb.Schema.from_dict({"rules": rules, "columns": columns}), dpb.Marginals(1.0)
        )


@pytest.mark.parametrize("n", [1, 9, 12])
def test_public_values_of_few_records_tell_no_confidential_column(n):
    """It follows for everybody of these records; whoever is older may have either value."""
    age = {"type": "count", "upper": 99, "public": True}
    works = {"type": "binary", "levels": ["no", "yes"]}
    schema = dpb.Schema.from_dict(
        {"rules": ["age >= 15 or works == 'no'"], "columns": {"age": age, "works": works}}
    )
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(1.0))
    children = pd.DataFrame({"age": [5] * n, "works": ["no"] * n})
    with pytest.raises(SchemaError, match="leave the confidential column 'works' one value"):
        synthesizer.fit(children)
    synthesizer.fit(children.assign(age=15))


def test_rules_that_leave_several_values_tell_nothing():
    """Also where public columns say who has a value, and where a level of many leaves one."""
    levels = [f"l{i}" for i in range(40)]
    place = {"type": "categorical", "levels": levels, "public": True}
    for rules, columns in (
        (["s >= p"], {"p": count(2000, public=True), "s": count(2000)}),
        (["s == p or s == p + 1"], {"p": count(30, public=True), "s": count(31)}),
        (["place != 'l3' or s == 1"], {"place": place, "s": BINARY}),
        ([], {"p": {**BINARY, "public": True}, "s": {**BINARY, "only_if": "p == 1"}}),
        ([], {"place": place, "s": {**BINARY, "only_if": "place == 'l3'"}}),
        (["s + t == p"], {"p": count(9, public=True), "s": count(9), "t": count(9)}),
    ):
        dpb.Synthesizer(
            dpb.Schema.from_dict({"rules": rules, "columns": columns}), dpb.Marginals(1.0)
        )
