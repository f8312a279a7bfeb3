"""Columns of moments: read from every kind of file, checked, compared, drawn and written."""

import datetime
import tomllib

import numpy as np
import pandas as pd
import pyreadstat
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.publication.room import width
from dpbayes.schema.draft import guesses, text

ENDS = {"lower": "2013-01-01 00:00:00", "upper": "2014-12-31 23:00:00"}
SCHEMA = dpb.Schema.from_dict({"columns": {"at": {"type": "datetime", **ENDS}}})
MOMENTS = ["2013-02-28 23:59:59", "2014-01-01 00:00:00", "2014-02-01 04:05:00"]
FRAME = pd.DataFrame({"at": pd.to_datetime(MOMENTS)})
SECONDS = [1362095999, 1388534400, 1391227500]


def seconds(records, schema=SCHEMA):
    return schema.validate(records)["at"].tolist()


WRITERS = {
    "csv": lambda f, p: f.to_csv(p, index=False),
    "xlsx": lambda f, p: f.to_excel(p, index=False),
    "parquet": lambda f, p: f.to_parquet(p),
    "feather": lambda f, p: f.to_feather(p),
    "dta": lambda f, p: f.to_stata(p, write_index=False),
    "sav": lambda f, p: pyreadstat.write_sav(f, str(p)),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_kind_of_file(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    WRITERS[ending](FRAME, path)
    records = dpb.read_records(path, SCHEMA)
    assert seconds(records) == SECONDS
    schema = dpb.Schema.from_dict(tomllib.loads(text(guesses(dpb.read_records(path)))))
    assert schema["at"].type == "datetime"
    assert seconds(records, schema) == SECONDS
    last = pd.DataFrame({"at": ["2014-12-31 23:59:59"]})
    assert len(seconds(last, schema)) == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (["2013-02-28T23:59:59", "2014-01-01", "2014-02-01 04:05"], None),
        (["2013-02-28T23:59:59Z", "2014-01-01 00:00:00.000", "2014-02-01T04:05:00+00:00"], None),
        (["2013-02-28T23:59:59+02:00"], "without a time zone"),
        (["2013-02-28 23:59:59.5"], "are not moments"),
        (["2013-02-29 00:00:00"], "are not moments"),
        (["20130228T235959"], "are not moments"),
        (["2012-12-31 23:59:59"], "outside the declared bounds"),
        (["2014-12-31 23:00:01"], "outside the declared bounds"),
        ([1.5], "are not moments"),
        ([True], "are not moments"),
    ],
)
def test_texts(written, said):
    records = pd.DataFrame({"at": written})
    if said is None:
        assert seconds(records) == SECONDS
    else:
        with pytest.raises(DataError, match=said):
            seconds(records)


@pytest.mark.parametrize("given", [
    "%d.%m.%Y %H:%M", "%Y-%m-%d %H:%M", "%m/%d/%Y %I:%M %p", "%Y-%m-%d %H", "%d.%m.%Y %H:%M:%S",
])  # fmt: skip
def test_a_format_says_the_step_and_what_is_written(given):
    column = dpb.Column("at", "datetime", "2013-01-01", "2013-12-31 23:00:00", format=given)
    step = 1 if "%S" in given else 60 if "%M" in given else 3600
    hours = pd.Series([0, 13, 24 * 200 + 5]) * 3600
    values = (1356998400 + hours) // step
    written = column.released(values)
    assert column.validate(written).tolist() == values.tolist()
    assert written[1] == datetime.datetime(2013, 1, 1, 13).strftime(given)
    assert max(len(x.encode()) for x in written) + 2 <= width(column)
    if step > 1:
        with pytest.raises(DataError, match=r"in whole (hours|minutes)"):
            column.validate(pd.Series(["2013-01-01 00:00:01"]))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({**ENDS, "lower": "2013-01-01T00:00:00+01:00"}, "must be a moment"),
        ({**ENDS, "lower": 5}, "must be a moment"),
        ({**ENDS, "lower": "1500-01-01 00:00:00"}, "must be a moment"),
        ({**ENDS, "upper": "2012-01-01 00:00:00"}, "must be below"),
        ({"lower": ENDS["lower"]}, "needs public bounds"),
        ({**ENDS, "format": "%d.%m.%Y"}, "year, month, day and hour"),
        ({**ENDS, "format": "%H:%M"}, "year, month, day and hour"),
        ({**ENDS, "format": "%d.%m.%Y %H:%M %z"}, "year, month, day and hour"),
        ({**ENDS, "format": "%y-%m-%d %I:%M"}, "must say|does not tell"),
        ({**ENDS, "format": "%Y-%m-%d %H:%M", "lower": "2013-01-01 00:00:30"}, "in whole minutes"),
        ({**ENDS, "missing": ["2013-05-05 00:00"]}, "no value inside the bounds"),
        ({**ENDS, "digits": 2}, "digits are for continuous"),
        ({**ENDS, "unit": "seconds"}, "unit is for"),
        ({**ENDS, "levels": ["a", "b"]}, "has bounds, not levels"),
    ],
)
def test_what_a_schema_cannot_say(entry, said):
    with pytest.raises(SchemaError, match=said):
        dpb.Schema.from_dict({"columns": {"at": {"type": "datetime", **entry}}})


def test_a_schema_file_holds_moments(tmp_path):
    entry = {
        "type": "datetime", "lower": datetime.datetime(2013, 1, 1), "missing": ["1900-01-01"],
        "upper": datetime.date(2014, 1, 1), "atoms": ["2013-06-01 12:00:00"],
    }  # fmt: skip
    schema = dpb.Schema.from_dict({"columns": {"at": entry}})
    schema.to_toml(tmp_path / "s.toml")
    assert "lower = 2013-01-01 00:00:00" in (tmp_path / "s.toml").read_text()
    assert dpb.Schema.from_toml(tmp_path / "s.toml") == schema
    assert schema.validate(pd.DataFrame({"at": ["1900-01-01 00:00:00", ""]}))["at"].isna().all()


def test_rules_compare_moments():
    columns = {name: {"type": "datetime", **ENDS} for name in ("first", "last")}
    day = {"type": "date", "lower": "2013-01-01", "upper": "2014-12-31"}
    rules = ["first <= last", "last < '2014-06-01 12:00:00'"]
    schema = dpb.Schema.from_dict({"columns": {**columns, "day": day}, "rules": rules})
    good = pd.DataFrame({"first": ["2013-02-28 23:59:59"], "last": ["2014-06-01 11:59:59"]})
    schema.validate(good.assign(day="2013-01-01"))
    with pytest.raises(DataError, match="first <= last"):
        schema.validate(good.assign(first="2014-06-01 12:00:00", day="2013-01-01"))
    with pytest.raises(SchemaError, match="cannot be compared"):
        dpb.Schema(schema.columns, rules=("first <= day",))


def test_a_release_draws_moments_and_reads_them_again(tmp_path):
    rng = np.random.default_rng(2)
    records = pd.DataFrame(
        {
            "at": pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 525600, 800), "min"),
            "ill": rng.integers(0, 2, 800),
        }
    )
    guessed = text(guesses(records))
    assert 'format = "%Y-%m-%d %H:%M"' in guessed
    entry = {"type": "datetime", **ENDS, "format": "%Y-%m-%d %H:%M"}
    schema = dpb.Schema.from_dict({"columns": {"at": entry, "ill": {"type": "binary"}}})
    fit = dpb.Synthesizer(schema, dpb.Marginals(5.0)).fit(records)
    synthetic = fit.sample(1).datasets[0]
    assert synthetic["at"].str.fullmatch(r"201[34]-\d\d-\d\d \d\d:\d\d").all()
    again = pd.to_datetime(schema.validate(synthetic)["at"] * 60, unit="s")
    # The year is uniform: in 40 runs the quartiles were off by at most 8 days, and .978 lay in it.
    quarters = again.quantile([0.25, 0.5, 0.75]).dt.day_of_year.to_numpy()
    assert np.abs(quarters - np.array([91, 183, 274])).max() < 20
    assert (again.dt.year == 2013).mean() > 0.95
