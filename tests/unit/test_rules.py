"""Rules between columns, missing values, dates, atoms and identifiers in a schema."""

import dataclasses
import datetime

import numpy as np
import pandas as pd
import pyarrow
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DataError, GuaranteeError, SchemaError
from dpbayes.publication.room import width
from dpbayes.schema.domain import made_up
from dpbayes.schema.rules import LONGEST, Rule

COLUMNS = {
    "age": {"type": "count", "upper": 99},
    "income": {"type": "continuous", "lower": 0, "upper": 100, "digits": 2},
    "tax": {"type": "continuous", "lower": 0, "upper": 100, "digits": 2},
    "net": {"type": "continuous", "lower": -100, "upper": 100, "digits": 2},
    "married": {"type": "binary", "levels": ["no", "yes"]},
    "partner": {"type": "binary", "levels": ["no", "yes"]},
    "health": {"type": "ordinal", "levels": ["bad", "fair", "good"]},
    "born in": {"type": "categorical", "levels": ["n", "s"]},
    "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
    "end": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31", "missing": True},
}
SCHEMA = dpb.Schema.from_dict({"columns": COLUMNS})
VALUES = {
    "age": np.array([15.0, 40, 99]),
    "income": np.array([0.1, 0.3, np.nan]),
    "tax": np.array([0.2, 0.0, 1]),
    "net": np.array([0.3, -1.0, 0]),
    "married": np.array([0.0, 1, 1]),
    "partner": np.array([0.0, 0, np.nan]),
    "health": np.array([0.0, 1, 2]),
    "born in": np.array([0.0, 1, 1]),
    "start": np.array([18262.0, 18263, 18300]),  # 2020-01-01, ...
    "end": np.array([18262.0, np.nan, 18299]),
}


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("age >= 16", [0, 1, 1]),
        ("16 <= age < 99", [0, 1, 0]),
        ("not age >= 16", [1, 0, 0]),
        ("age in [15, 99]", [1, 0, 1]),
        ("age not in [15, 99]", [0, 1, 0]),
        ("income + tax == net", [1, 0, 0]),  # 0.1 + 0.2 is 0.3; the last is missing
        ("income + tax <= net", [1, 0, 0]),
        ("income + tax < net", [0, 0, 0]),
        ("tax - -1 * 2 > 2.1 or age == 40", [1, 1, 1]),
        ("10 / tax > 20", [1, 1, 0]),  # 10 / 0 is infinite
        ("married == 'yes' and age > 40", [0, 0, 1]),
        ('married == "yes" and not (age > 40)', [0, 1, 0]),
        ("married == partner", [1, 0, 0]),
        ("'no' != married", [0, 1, 1]),
        ("married in ['yes']", [0, 1, 1]),
        ("health < 'good'", [1, 1, 0]),
        ("'fair' <= health", [0, 1, 1]),
        ("`born in` == 's'", [0, 1, 1]),
        ("start <= end", [1, 0, 0]),
        ("end - start <= 0", [1, 0, 1]),
        ("start >= '2020-01-02'", [0, 1, 1]),
    ],
)
def test_what_a_rule_says(text, true):
    """By hand. Where a value is missing a rule is not true, and holds."""
    rule = Rule.parse(text, SCHEMA.columns)
    missing = np.logical_or.reduce([np.isnan(VALUES[name]) for name in rule.names])
    assert rule.true(VALUES).tolist() == [bool(x) for x in true]
    assert rule.holds(VALUES).tolist() == (np.array(true, dtype=bool) | missing).tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "column 'a' is not declared"),
        ("age", "must compare columns"),
        ("1 < 2", "must compare columns"),
        ("age = 3", "cannot be read at character 5"),
        ("age >", "cannot be read"),
        ("married < 'yes'", "have no order"),
        ("married == 'maybe'", "'maybe' is not a level of 'married' (no, yes)"),
        ("married == age", "compare it with one of them"),
        ("married == health", "have other levels"),
        ("age + married == 3", "a level is no number"),
        ("age == 'x'", "a text is no number"),
        ("(age > 3) + 1 == 2", "a comparison is no number"),
        ("age and married", "join comparisons"),
        ("start <= '2020-13-01'", "must be a day from"),
        ("age > 1e400", "too large"),
        ("-" * 900 + "age > 1", "rule '-----"),
        ("not " * 240 + "age > 1", "more than 100 operators"),
        ("(" * 400 + "age > 1" + ")" * 400, None),
        ("age > 1 or " * 90, "cannot be read"),
        ("age > 1" + " " * LONGEST, "at most 1,000 characters"),
        ("__import__('os')", "cannot be read"),
        ("age.max() > 1", "cannot be read"),
        (3, "must be text"),
    ],
)
def test_what_is_no_rule(text, message):
    if message is None:  # deep, and read
        Rule.parse(text, SCHEMA.columns)
        return
    with pytest.raises(SchemaError) as caught:
        Rule.parse(text, SCHEMA.columns)
    assert message in str(caught.value)


def test_rules_of_a_schema_are_kept_by_the_records(tmp_path):
    tree = {
        "rules": ["start <= end", "net == income - tax", "age >= 16 or married == 'no'"],
        "columns": {**COLUMNS, "id": {"type": "identifier"}},
    }
    schema = dpb.Schema.from_dict(tree)
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
    assert schema.identifiers == ("id",)
    assert "id" not in schema.columns
    good = made_up(schema, 40, np.random.default_rng(1))
    assert len(good) == 40
    again = schema.validate(good)
    pd.testing.assert_frame_equal(again, good)
    bad = good.assign(start=good["end"] + 1)
    with pytest.raises(DataError, match="40 rows break the rule 'start <= end'"):
        schema.validate(bad)
    worse = bad.assign(net=bad["net"] + np.r_[np.ones(3), np.zeros(37)])
    with pytest.raises(DataError, match="40 rows break the rule 'start <= end'; 3 rows break the"):
        schema.validate(worse)
    with pytest.raises(SchemaError, match="they may exclude every one"):
        made_up(dpb.Schema(schema.columns, rules=("age > 99",)), 1, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rules", "age > 1", "must be a list"),
        ("rules", [1], "must be a list of rules, as text"),
        ("missing", "NA", "must be true, or a list"),
        ("missing", [None], "must be true, or a list"),
        ("missing", [True], "must be true, or a list"),
        ("only_if", 3, "must be a rule"),
        ("only_if", "married == 1", "is not a level"),
        ("only_if", "age > 3", "must be about other columns"),
        ("format", "%d.%m.%Y", "a format is for dates"),
        ("atoms", 3, "must be a list"),
        ("atoms", ["x"], "is not a number"),
        ("atoms", [100], "is not among its values"),
        ("atoms", [0.5], "is not among its values"),
        ("type", "text", "free text cannot be synthesised"),
        ("type", "identifier", "has no other key"),
    ],
)
def test_bad_schemas(key, value, message):
    tree = {"columns": {**COLUMNS, "age": dict(COLUMNS["age"])}}
    (tree if key == "rules" else tree["columns"]["age"])[key] = value
    with pytest.raises(SchemaError) as caught:
        dpb.Schema.from_dict(tree)
    assert message in str(caught.value)


def test_missing_values_and_their_codes():
    column = dpb.Column("x", "count", upper=99, missing=(-9, "NA"))
    found = column.validate(pd.Series(["3", "-9", "", None, " NA", "-9.0"]))
    assert found.isna().tolist() == [False, True, True, True, True, True]
    assert column.released(found).astype(object)[0] == 3
    pd.testing.assert_series_equal(column.validate(found), found)
    with pytest.raises(DataError, match="1 of 1 rows are outside"):
        column.validate(pd.Series(["-8", "-9"]))  # of those that have a value
    with pytest.raises(DataError, match="1 of 1 rows are not numbers"):
        column.validate(pd.Series(["NA", "unknown"]))
    with pytest.raises(DataError, match="Declare missing = true"):
        dpb.Column("x", "count", upper=99).validate(pd.Series(["3", None]))
    levels = dpb.Column("x", "ordinal", levels=("a", "b"), missing=True)
    found = levels.validate(pd.Series(["b", "", "a"], index=[5, 5, 7]))
    assert found.cat.codes.tolist() == [1, -1, 0]
    assert found.index.tolist() == [5, 5, 7]
    with pytest.raises(SchemaError, match="is a level and stands for a missing value"):
        dpb.Column("x", "ordinal", levels=("a", "b"), missing=["b"])


def test_asked_only_of_some():
    tree = {"columns": {**COLUMNS, "spouse": {**COLUMNS["age"], "only_if": "married == 'yes'"}}}
    schema = dpb.Schema.from_dict(tree)
    records = made_up(schema, 50, np.random.default_rng(2))
    assert (records["spouse"].isna() == (records["married"] == "no")).all()
    outside = r"have a value in 'spouse' where only_if = .* does not hold"
    with pytest.raises(DataError, match=outside):
        schema.validate(records.assign(spouse=3))
    with pytest.raises(DataError, match=r"have none in 'spouse' where only_if = .* holds"):
        schema.validate(records.assign(spouse=np.nan))
    tree["columns"]["spouse"]["missing"] = True
    dpb.Schema.from_dict(tree).validate(records.assign(spouse=np.nan))


def test_dates_come_and_go_as_they_are_written():
    column = dpb.Column("d", "date", "2020-01-01", datetime.date(2020, 12, 31), format="%d.%m.%Y")
    days = column.validate(pd.Series(["01.01.2020", "29.02.2020 "]))
    assert days.tolist() == [18262, 18321]
    assert column.released(days).tolist() == ["01.01.2020", "29.02.2020"]
    pd.testing.assert_series_equal(column.validate(column.released(days)), days)
    for other in (
        pd.to_datetime(["2020-02-29"]),
        pd.to_datetime(["2020-02-29"]).tz_localize("UTC"),
    ):
        assert column.validate(pd.Series(other)).tolist() == [18321]
    for bad, what in (
        (["29/02/2020"], "are not days"),
        (["30.02.2020"], "are not days"),
        (["01.01.2021"], r"outside the declared bounds \[01.01.2020, 31.12.2020\]"),
        (pd.to_datetime(["2020-02-29 12:00"]), "are not days"),
    ):
        with pytest.raises(DataError, match=what):
            column.validate(pd.Series(bad))
    for lower, upper in (("2020-01-02", "2020-01-01"), ("1500-01-01", "2020-01-01"), (3, 4)):
        with pytest.raises(SchemaError):
            dpb.Column("d", "date", lower, upper)
    for given in ("%Y", "x", 3):
        with pytest.raises(SchemaError, match="must say year, month and day"):
            dpb.Column("d", "date", "2020-01-01", "2020-01-02", format=given)


@pytest.mark.parametrize("name", ["laplace", "smoothed-histogram", "pegs", "modips"])
def test_mechanisms_that_cannot_keep_rules_refuse_them(name):
    binary = {"type": "binary", "levels": [0, 1]}
    settings = {"model": "multinomial"} if name == "modips" else {}
    for tree, what in (
        ({"columns": {"a": {**binary, "missing": True}, "b": binary}}, "'a' may be missing"),
        ({"rules": ["a == b"], "columns": {"a": binary, "b": binary}}, "is in the rule 'a == b'"),
    ):
        schema = dpb.Schema.from_dict(tree)
        mechanism = dpb.mechanisms.get_mechanism(name, epsilon=1.0, **settings)
        if name == "pegs" and "missing" in what:  # a level like others
            dpb.Synthesizer(schema, mechanism)
            continue
        with pytest.raises(SchemaError, match=what):
            dpb.Synthesizer(schema, mechanism)


def test_models_refuse_outcomes_under_a_rule():
    y = {"type": "continuous", "lower": 0, "upper": 1}
    x = {**y, "public": True}
    model = dpb.Regression("y ~ x", "normal")
    for tree, fine in (
        ({"rules": ["y <= x"], "columns": {"y": y, "x": x}}, False),
        ({"columns": {"y": {**y, "missing": True}, "x": x}}, False),
        ({"columns": {"y": y, "x": {**x, "missing": True}}}, False),
        ({"rules": ["x <= z"], "columns": {"y": y, "x": x, "z": {**x, "missing": True}}}, True),
    ):
        schema = dpb.Schema.from_dict(tree)
        if fine:
            dpb.Synthesizer(schema, dpb.Censored(1.0), model)
            continue
        with pytest.raises(SchemaError, match="cannot keep"):
            dpb.Synthesizer(schema, dpb.Censored(1.0), model)


def test_records_of_one_person():
    """ε is for all of a person's records, of which each has a k-th; in zCDP they cost k² ρ."""
    columns = {"id": {"type": "identifier"}, "x": {"type": "binary"}}
    tree = {"rows": 100, "cluster": {"column": "id", "most": 3}, "columns": columns}
    schema = dpb.Schema.from_dict(tree)
    assert schema.to_dict() == dpb.Schema.from_dict(schema.to_dict()).to_dict()
    synthesizer = dpb.Synthesizer(schema, dpb.Marginals(1.5))
    records = pd.DataFrame({"id": [1, 1, 1, 2], "x": [0, 1, 0, 1]})
    claim = synthesizer.fit(records).sample(2, seed=1).guarantee
    assert synthesizer.spent.epsilon == claim.epsilon == 0.5
    assert claim.epsilon_person == 1.5
    assert claim.to_dict()["epsilon_person"] == 1.5
    assert "ε = 1.5 when all records of one person, at most 3, are added" in claim.paragraph()
    assert "For single records it is so with ε = 0.5" in claim.paragraph()
    public = dpb.Schema.from_dict({**tree, "rows": "public"})
    assert dpb.Synthesizer(public, dpb.Marginals(1.5)).guarantee().epsilon_person == 1.5
    as_in_papers = dpb.Synthesizer(public, dpb.Marginals(1.5, adjacency="add-remove"))
    assert as_in_papers.guarantee().epsilon_person == 3.0  # three records change, each for 2 ε
    with pytest.raises(GuaranteeError, match=r"less than the smallest ε, 0\.001, is left"):
        dpb.Synthesizer(schema, dpb.Marginals(0.002))
    noisy = dpb.Synthesizer(schema, dpb.mechanisms.get_mechanism("laplace", epsilon=0.3))
    many = noisy.guarantee().for_datasets(50, 1e-6)
    three = dataclasses.replace(many, cluster=1, each=many.each.scaled(3))
    assert many.epsilon < many.epsilon_person == three.epsilon < 15
    assert "epsilon_person" not in dataclasses.replace(claim, cluster=1).to_dict()
    with pytest.raises(DataError, match="1 have more than the declared 3 records"):
        synthesizer.fit(pd.concat([records, records]))
    for bad, what in (
        (records.drop(columns="id"), "is not in the data"),
        (records.assign(id=None), "4 rows have no identifier"),
        (records.assign(id=[" ", "a", "a", "b"]), "1 rows have no identifier"),
        (records.assign(id=["1", "1.0", " 1", "1"]), "1 have more than the declared 3 records"),
    ):
        with pytest.raises(DataError, match=what):
            synthesizer.fit(bad)
    synthesizer.fit(pyarrow.Table.from_pandas(records))
    for cluster in (3, {"column": "id"}, {"column": "x", "most": 2}, {"column": "id", "most": 1}):
        with pytest.raises(SchemaError, match="cluster"):
            dpb.Schema.from_dict({**tree, "cluster": cluster})


@pytest.mark.parametrize("given", [None, "%d.%m.%Y", "%A, %d %B %Y", "Tag %j im Jahr %Y"])
def test_a_file_has_room_for_every_day(given):
    column = dpb.Column("d", "date", "2019-12-31", "2020-12-31", format=given)
    days = column.released(pd.Series(np.arange(18262, 18628)))
    assert max(len(text.encode()) for text in days) + 2 <= width(column)


def test_what_is_dropped_is_said_and_persons_are_counted_before_anything_is_paid(tmp_path):
    """A private choice would be paid for by the time that a fit could refuse the records."""
    columns = {"id": {"type": "identifier"}, "x": {"type": "binary"}}
    schema = dpb.Schema.from_dict({"cluster": {"column": "id", "most": 2}, "columns": columns})
    records = pd.DataFrame({"id": [1, 1, 1, 2], "x": [0, 1, 0, 1], "more": 0})
    records.to_csv(tmp_path / "r.csv", index=False)
    said = []
    dpb.read_records(tmp_path / "r.csv", schema, say=said.append)
    assert said[1:] == ["Identifiers, dropped: 'id'.", "Not in the schema, and left out: 'more'."]
    models = [dpb.Regression("x ~ 1", "bernoulli", priors={"intercept": [0, p]}) for p in (1, 2)]
    job = dpb.Job(
        tuple(dpb.Synthesizer(schema, dpb.Censored(1), model) for model in models),
        tmp_path / "out",
        choose_epsilon=0.5,
    )
    with pytest.raises(DataError, match="more than the declared 2 records"):
        job.run(records)
    assert not list(tmp_path.glob("out/**/*choice*"))


PUBLIC = {"type": "count", "upper": 2000, "public": True}
SECRET = {"type": "count", "upper": 900}
SICK = {"type": "binary", "levels": ["no", "yes"]}


@pytest.mark.parametrize(
    "rule",
    [
        "total == wage + bonus",
        "bonus == total - wage",
        "total == 2 * bonus",
        "total >= wage and total == wage + bonus",
        "wage <= total == bonus",
        "ill == sick",
    ],
)
def test_a_confidential_column_that_public_ones_tell_is_refused(rule):
    """It was released unchanged, under a strict guarantee, without a word."""
    columns = {
        "wage": PUBLIC, "total": PUBLIC, "bonus": SECRET, "sick": SICK,
        "ill": {**SICK, "public": True},
    }  # fmt: skip
    with pytest.raises(SchemaError, match=r"column '(bonus|sick)' follows from public columns"):
        dpb.Schema.from_dict({"columns": columns, "rules": [rule]})
    for changes in (
        {"bonus": {**SECRET, "public": True}, "sick": {**SICK, "public": True}},
        {"wage": {**SECRET, "upper": 2000}, "total": {**SECRET, "upper": 2000}, "ill": SICK},
    ):
        dpb.Schema.from_dict({"columns": {**columns, **changes}, "rules": [rule]})


@pytest.mark.parametrize(
    "rule", ["bonus <= total", "total != bonus", "sick == 'yes' or total == bonus", "bonus == 5"]
)
def test_other_rules_may_join_public_columns_and_one_that_is_not(rule):
    columns = {"total": PUBLIC, "bonus": SECRET, "sick": SICK}
    assert dpb.Schema.from_dict({"columns": columns, "rules": [rule]}).kept


def test_a_public_column_is_not_asked_by_a_confidential_one():
    """Where it has a value tells who is sick."""
    days = {"type": "count", "upper": 60, "only_if": "sick == 'yes'"}
    with pytest.raises(SchemaError, match=r"'days' is public.* the confidential column 's"):
        dpb.Schema.from_dict({"columns": {"sick": SICK, "days": {**days, "public": True}}})
    public = {**SICK, "public": True}
    for columns in (
        {"sick": SICK, "days": days},
        {"sick": public, "days": days},
        {"sick": public, "days": {**days, "public": True}},
    ):
        assert dpb.Schema.from_dict({"columns": columns}).asked


def test_a_column_that_follows_from_the_public_values_at_hand_is_refused():
    """By rules that leave others free: children do not work, and here all are children."""
    columns = {"age": {"type": "count", "upper": 90, "public": True}, "works": {"type": "binary"}}
    schema = dpb.Schema.from_dict({"rules": ["age >= 15 or works == 0"], "columns": columns})
    made = dpb.Synthesizer(schema, dpb.Marginals(1.0))
    some = pd.DataFrame({"age": [*range(10), *range(20, 40)], "works": [0] * 10 + [0, 1] * 10})
    made.fit(some)
    with pytest.raises(SchemaError, match="'works' one value beside the public columns"):
        made.fit(pd.DataFrame({"age": [3, 9, 14] * 10, "works": 0}))
