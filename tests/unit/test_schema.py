import jsonschema
import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import SchemaError
from dpbayes.schema import Rows
from dpbayes.schema.editors import json_schema


def test_toml_round_trip(schema, tmp_path):
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema


def test_validate_types_and_order(schema, records):
    out = schema.validate(records[records.columns[::-1]].astype(str).assign(extra="dropped"))
    assert list(out.columns) == list(schema.columns)
    assert out["y"].dtype == float
    assert out["visits"].dtype == np.int64
    assert list(out["health"].cat.categories) == ["bad", "fair", "good", "best"]
    pd.testing.assert_series_equal(out["y"], records["y"], check_exact=False)


def test_levels_match_across_text_and_numbers():
    column = dpb.Column("b", "binary")
    assert column.levels == (0, 1)
    for values in (["0", "1"], [0, 1], [0.0, 1.0], [False, True]):
        assert column.validate(pd.Series(values)).cat.codes.tolist() == [0, 1]
    with pytest.raises(dpb.DataError, match="not among the declared levels"):
        column.validate(pd.Series(["yes", "no"]))


def test_levels_that_are_equal_numbers_are_one_whatever_their_text():
    """Whole numbers beside decimals are decimals; a level that is text has one spelling."""
    column = dpb.Column("x", "ordinal", levels=(5.2, 6, 6.5))
    assert [type(level) for level in column.levels] == [float] * 3
    for values in ([5.2, 6, 6.5], ["5.2", "6", "6.5"], ["5.20", "6.0", "65e-1"], [5.2, "6", 6.5]):
        typed = column.validate(pd.Series(values, dtype=object))
        assert typed.cat.codes.tolist() == [0, 1, 2]
        assert list(typed.astype(str)) == [str(level) for level in column.levels]
    codes = dpb.Column("icd", "categorical", levels=("250.1", "250.10"))
    assert codes.validate(pd.Series(["250.10", "250.1"])).cat.codes.tolist() == [1, 0]
    whole = dpb.Column("x", "ordinal", levels=(1, 2))
    assert [type(level) for level in whole.levels] == [int] * 2
    for column, value in ((codes, "250.100"), (whole, "01"), (whole, "2.5"), (whole, "one")):
        with pytest.raises(dpb.DataError, match="not among the declared levels"):
            column.validate(pd.Series([value]))


@pytest.mark.parametrize("label", ["", "x" * 81, "a\nb", 3])
def test_a_label_is_a_short_text(label):
    assert dpb.Column("b", "binary", label="has a job").label == "has a job"
    with pytest.raises(dpb.SchemaError, match=r"label = .* must be a text of at most 80"):
        dpb.Column("b", "binary", label=label)


@pytest.mark.parametrize("unit", ["", "x" * 41, "a\nb", 3])
def test_a_unit_is_a_short_text_of_numbers(unit):
    assert dpb.Column("w", "count", unit="€").title == "w (€)"
    with pytest.raises(dpb.SchemaError, match="must be a text of at most 40"):
        dpb.Column("w", "count", unit=unit)
    with pytest.raises(dpb.SchemaError, match="unit is for continuous columns and counts"):
        dpb.Column("b", "binary", unit="€")


TITLES = {
    "title": "Earnings & hours, 2004",
    "publisher": "Office of <Statistics>",
    "unit_of_record": "a person of 16 to 85 years",
}


def test_titles_are_read_and_written(tmp_path):
    columns = {"columns": {"b": {"type": "binary"}}}
    schema = dpb.Schema.from_dict({**TITLES, **columns})
    assert {key: getattr(schema, key) for key in TITLES} == TITLES
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
    jsonschema.validate(schema.to_dict(), json_schema())
    assert not set(TITLES) & set(dpb.Schema.from_dict(columns).to_dict())


@pytest.mark.parametrize("key", TITLES)
@pytest.mark.parametrize("words", ["", " ", "x" * 121, "a\nb", 3, ["a"], True])
def test_a_title_is_one_line_of_text(key, words):
    with pytest.raises(dpb.SchemaError, match=f"^{key} = .* must be a text of at most 120"):
        dpb.Schema.from_dict({key: words, "columns": {"b": {"type": "binary"}}})


def test_no_levels_are_none(tmp_path):
    """Found by made-up schemas: an empty list was not what a file gives back."""
    schema = dpb.Schema.from_dict({"columns": {"kids": {"type": "count", "levels": []}}})
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema


def test_confidential_columns(schema):
    names = [column.name for column in schema.confidential()]
    assert names == ["y", "visits", "ill", "party", "health", "wage", "rooms"]  # in schema order
    public = dpb.Schema({"age": dpb.Column("age", "count", public=True)})
    with pytest.raises(dpb.SchemaError, match="every column is public"):
        public.confidential()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"type": "continuous", "lower": 0}, "needs public bounds; add upper"),
        ({"type": "continuous", "lower": 1, "upper": 1}, "lower = 1 must be below upper = 1"),
        ({"type": "continuous", "lower": 0, "upper": float("inf")}, "must be finite"),
        ({"type": "continuous", "lower": "0", "upper": 1}, "lower = '0' must be a number"),
        ({"type": "count", "lower": -1}, "a count starts at 0"),
        ({"type": "count", "levels": [1, 2]}, "has bounds, not levels"),
        ({"type": "numeric"}, "is not one of continuous, count"),
        ({"lower": 0}, "type is missing"),
        ({"type": "categorical"}, "needs its public levels"),
        ({"type": "categorical", "levels": "ab"}, "must be a list"),
        ({"type": "categorical", "levels": ["a", "a"]}, "contains duplicates"),
        ({"type": "binary", "levels": ["a", "b", "c"]}, "has 2 levels, found 3"),
        ({"type": "binary", "lower": 0}, "has levels, not bounds"),
        ({"type": "count", "uper": 3}, "unknown key 'uper' \\(did you mean 'upper'"),
        ({"type": "count", "public": "yes"}, "must be true or false"),
        ({"type": "categorical", "levels": [["a"], ["b"]]}, "is text or a number, found list"),
        ({"type": "categorical", "levels": [{"a": 1}, "b"]}, "is text or a number, found dict"),
        ({"type": "categorical", "levels": ["a", None]}, "is text or a number, found NoneType"),
        ({"type": "categorical", "levels": [1, "1"]}, "1 and '1' are one level"),
        ({"type": "categorical", "levels": [10**5000, 1]}, "a number lies within"),
        ({"type": "categorical", "levels": ["\ud800", "b"]}, "holds half a character"),
        ({"type": "categorical", "levels": [float("nan"), 1]}, "read back as missing values"),
        ({"type": "continuous", "lower": -1e308, "upper": 1e308}, "within ±1e"),
        ({"type": "continuous", "lower": 0, "upper": 10**400}, "within ±1e"),
        ({"type": "continuous", "lower": 2**70, "upper": 2**70 + 1}, "must be below upper"),
        ({"type": "count", "upper": 2**70}, "at most 2,147,483,647"),
        ({"type": "continuous", "lower": 0, "upper": 1, "digits": 10**400}, "whole number of"),
        (5, "expected a table"),
    ],
)
def test_bad_declarations(entry, message):
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Schema.from_dict({"columns": {"x": entry}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns]", "declares no column"),
        ("[column.x]\ntype = 'count'", "unknown key 'column' \\(did you mean 'columns'"),
        ("[columns.x\n", "is not valid TOML"),
        ("[columns.x]\nupper = " + "9" * 5000, "is not valid TOML"),
        ("[columns.x]\nlevels = " + "[" * 5000, "is nested too deeply"),
    ],
)
def test_bad_files(text, message, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(dpb.SchemaError, match=message):
        dpb.Schema.from_toml(tmp_path / "s.toml")


def test_missing_schema_file(tmp_path):
    with pytest.raises(dpb.SchemaError, match="does not exist"):
        dpb.Schema.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.iloc[:0], "no rows"),
        (lambda d: d.drop(columns="visits"), "'visits' of the schema is not in the data"),
        (
            lambda d: d.rename(columns={"visits": "vists"}),
            r"'visits' of the schema is not in the data \(did you mean 'vists'\?\); columns found",
        ),
        (
            lambda d: d[["visits"]].rename(columns={"visits": "vists"}),
            "of the schema is not in the data; columns found: 1",
        ),
        (lambda d: pd.concat([d, d["y"]], axis=1), "duplicate column names: 'y'"),
        (lambda d: d.assign(y=[np.nan, *d["y"][1:]]), "column 'y': 1 of 60 rows are missing"),
        (lambda d: d.assign(y=[np.inf, *d["y"][1:]]), "column 'y': 1 of 60 rows are infinite"),
        (
            lambda d: d.assign(y=["abc", *d["y"][1:]]),
            "1 of 60 rows are not numbers. Numbers are read",
        ),
        (lambda d: d.assign(y=[11, -1, *d["y"][2:]]), "2 of 60 rows are outside .* \\[0, 10\\]"),
        (lambda d: d.assign(visits=[0.5, *d["visits"][1:]]), "1 of 60 rows are not whole"),
        (lambda d: d.assign(party="z"), "60 of 60 rows are not among the declared"),
    ],
)
def test_bad_records(schema, records, change, message):
    with pytest.raises(dpb.DataError, match=message):
        schema.validate(change(records))


def test_names_of_the_file_are_suggested_only_where_they_are_names(schema, records):
    """Without a row of names, the first record stands in its place."""
    renamed = records.rename(columns={"visits": "visit"})
    with pytest.raises(dpb.DataError, match="did you mean 'visit'"):
        schema.validate(renamed)
    values = renamed.set_axis(["visit", *map(str, range(len(renamed.columns) - 1))], axis=1)
    with pytest.raises(dpb.DataError, match=r"found: visit, 0, 1"):
        schema.validate(values, show_values=True)
    with pytest.raises(dpb.DataError) as caught:
        schema.validate(values)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (lambda d: d.assign(y=["abc", *d["y"][1:]]), "'abc'"),
        (lambda d: d.assign(y=[11, -1, *d["y"][2:]]), "11.0, -1.0"),
        (lambda d: d.assign(visits=[0.5, *d["visits"][1:]]), "0.5"),
        (lambda d: d.assign(party="zq"), "'zq', 'zq', 'zq', ..."),
    ],
)
def test_values_are_shown_only_when_asked(schema, records, change, values):
    with pytest.raises(dpb.DataError) as hidden:
        schema.validate(change(records))
    assert values not in str(hidden.value)
    with pytest.raises(dpb.DataError) as shown:
        schema.validate(change(records), show_values=True)
    assert values in str(shown.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b,a\n1,2,3\n", "duplicate column names in its first line, columns 1, 3"),
        ("a,b\n1,2,3,4\n1,2\n1,2,3,4,5,6\n", "not a regular CSV"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2 has 3 fields, the header has 2"),
        ("a,b\n1,2\n\n4,5\n", "line 3 is empty"),
        ("a,b\n1,2\n4\n", "line 3 has 1 fields, the header has 2"),
        ("a,b\n1,2\n4,5,\n", "line 3 has 3 fields, the header has 2"),
        ('a,b\n"1\n",2\n4,"5\n\n",6\n', "line 2: a field of column 1 goes over"),
        ('a,b\n1,"2\n', "not a regular CSV"),
    ],
)
def test_bad_csv(text, message, tmp_path):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(dpb.DataError, match=message):
        dpb.read_records(tmp_path / "d.csv")


def test_lines_are_counted_with_those_inside_of_fields(tmp_path):
    (tmp_path / "d.csv").write_text('a,b\n"1\n",2\n4,"5\n\n",6\n')
    columns = {
        name: dpb.Column(name, "categorical", levels=["1\n", "2", "5\n\n"]) for name in ("a", "b")
    }
    with pytest.raises(dpb.DataError, match="line 6 has 3 fields, the header has 2"):
        dpb.read_records(tmp_path / "d.csv", dpb.Schema(columns))


def test_csv_levels_that_look_missing_are_kept(tmp_path):
    (tmp_path / "d.csv").write_text("country\nNA\nDE\n")
    column = dpb.Column("country", "categorical", levels=("NA", "DE"))
    read = dpb.read_records(tmp_path / "d.csv")
    assert column.validate(read["country"]).tolist() == ["NA", "DE"]


def test_csv_of_very_many_columns(tmp_path):
    """Names are compared once each: pairs of them would take hours."""
    names = ",".join(f"c{k}" for k in range(49_999))
    (tmp_path / "d.csv").write_text(f"{names},c7\n")
    with pytest.raises(dpb.DataError, match="columns 8, 50000"):
        dpb.read_records(tmp_path / "d.csv")


def test_csv_fields_stay_in_their_columns(tmp_path):
    """A quoted comma or line is part of a field; blank lines at the end are no rows."""
    (tmp_path / "d.csv").write_text('a,b\n"1,5","x\ny"\n2,\n\n')
    level = dpb.Column("b", "categorical", levels=["x\ny", "z"], missing=True)
    number = dpb.Column("a", "categorical", levels=["1,5", "2"])
    read = dpb.read_records(tmp_path / "d.csv", dpb.Schema({"a": number, "b": level}))
    assert read["a"].tolist() == ["1,5", "2"]
    assert read["b"].tolist()[0] == "x\ny"
    assert read["b"].isna().tolist() == [False, True]


def test_bounds_beyond_exact_whole_numbers(tmp_path):
    entry = {"type": "continuous", "lower": 0, "upper": 2**70 + 1}
    schema = dpb.Schema.from_dict({"columns": {"x": entry}})
    schema.to_toml(tmp_path / "s.toml")
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
    assert schema["x"].upper == 2.0**70
    assert schema.validate(pd.DataFrame({"x": ["1e21"]}))["x"].tolist() == [1e21]


@pytest.mark.parametrize("tree", [5, None, [], "columns"])
def test_a_schema_is_a_table(tree):
    with pytest.raises(dpb.SchemaError, match="must be a table with columns"):
        dpb.Schema.from_dict(tree)


def test_csv_missing_file(tmp_path):
    with pytest.raises(dpb.DataError, match="does not exist"):
        dpb.read_records(tmp_path / "none.csv")


def test_unknown_column_is_suggested(schema):
    with pytest.raises(dpb.SchemaError, match="did you mean 'region'"):
        schema["regoin"]


@pytest.mark.parametrize("rows", ["public", "noisy", {"noisy": 0.1}, 40])
def test_rows_are_declared_in_python_as_in_a_file(rows):
    column = {"type": "binary"}
    read = dpb.Schema.from_dict({"rows": rows, "columns": {"x": column}})
    assert dpb.Schema({"x": dpb.Column("x", **column)}, rows=rows) == read


def test_rows_are_one_of_three_declarations():
    """Others gave the number of records itself, and said that it had noise or was declared."""
    for odd in (
        lambda: Rows("noisy"), lambda: Rows("noisy", share=0), lambda: Rows("noisy", share=-1),
        lambda: Rows("noisy", share=1.0), lambda: Rows("noisy", 7, 0.05), lambda: Rows("declared"),
        lambda: Rows("declared", 7, 0.05), lambda: Rows("declared", 0), lambda: Rows("public", 7),
        lambda: Rows("public", share=0.1), lambda: Rows("odd"), lambda: Rows("noisy", share=True),
    ):  # fmt: skip
        with pytest.raises(SchemaError, match="rows: "):
            odd()
    for rows in (Rows(), Rows("declared", 7), Rows("noisy", share=0.1)):
        assert Rows.parse(rows.to_plain()) == rows


@pytest.mark.parametrize("rows", [0, 40.0, True, None, "many", [40]])
def test_rows_that_are_no_declaration(rows):
    with pytest.raises(dpb.SchemaError, match='must be "public", a whole number'):
        dpb.Schema({"x": dpb.Column("x", "binary")}, rows=rows)


def test_bounds_on_what_a_schema_declares():
    column = {"type": "count", "lower": 0, "upper": 200}
    rules = [f"y != {k}" for k in range(101)]
    assert dpb.Schema.from_dict({"columns": {"y": column}, "rules": rules[:100]}).rules
    with pytest.raises(dpb.SchemaError, match="101 rules: at most 100"):
        dpb.Schema.from_dict({"columns": {"y": column}, "rules": rules})
    with pytest.raises(dpb.SchemaError, match="100,001 levels; at most 100,000 are taken"):
        dpb.Column("town", "categorical", levels=tuple(range(100_001)))
