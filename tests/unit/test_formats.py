"""The same records in any format are the same, and what cannot be read is one message."""

import bz2
import contextlib
import dataclasses
import gzip
import lzma
import sqlite3
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyreadstat
import pytest

import dpbayes as dpb
from dpbayes.core.errors import OutputError
from dpbayes.core.frames import as_frame
from dpbayes.publication.room import room
from dpbayes.records.fingerprint import content_digest
from dpbayes.records.formats.catalog import FORMATS, WRITTEN, format_of, writer, written_as
from dpbayes.records.formats.source import File
from dpbayes.records.overlap import Identity
from dpbayes.schema.domain import made_up

polars = pytest.importorskip("polars")
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "income": {"type": "continuous", "lower": 0, "upper": 1000},
            "visits": {"type": "count", "upper": 100},
            "ill": {"type": "binary"},
            "health": {"type": "ordinal", "levels": ["bad", "fair", "good"]},
            "land": {"type": "categorical", "levels": ["Bayern", "Thüringen"]},
        }
    }
)
CODES = {"health": {1: "bad", 2: "fair", 3: "good"}, "land": {9: "Bayern", 16: "Thüringen"}}


def table(n=40):
    """Records that fit the schema; quarters, which every format holds exactly."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "income": rng.integers(0, 4000, n) / 4,
            "visits": rng.integers(0, 100, n),
            "ill": rng.integers(0, 2, n),
            "health": rng.choice(["bad", "fair", "good"], n),
            "land": rng.choice(["Bayern", "Thüringen"], n),
        }
    )


def coded():
    frame = table()
    for name, labels in CODES.items():
        frame[name] = frame[name].map({label: code for code, label in labels.items()})
    return frame


def packed(opener):
    def write(path):
        with opener(path, "wb") as stream:
            stream.write(table().to_csv(index=False).encode())

    return write


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/records.csv", table().to_csv(index=False))


def to_sqlite(path):
    with sqlite3.connect(path) as connection:
        table().to_sql("people", connection, index=False)


def floats(frame):
    """As Stata, SPSS and Excel hold whole numbers."""
    whole = [name for name in frame if frame[name].dtype.kind == "i"]
    return frame.astype(dict.fromkeys(whole, "float64"))


def categories(frame):
    """With levels that no record has."""
    kind = pd.CategoricalDtype(["unused", "good", "fair", "bad"])
    return frame.assign(health=frame["health"].astype(kind), ill=frame["ill"].astype(bool))


FILES = {
    "a.csv": lambda path: table().to_csv(path, index=False),
    "bom.csv": lambda path: table().to_csv(path, index=False, encoding="utf-8-sig"),
    "utf16.csv": lambda path: table().to_csv(path, index=False, encoding="utf-16"),
    "german.csv": lambda path: table().to_csv(path, index=False, sep=";", decimal=","),
    "tabs.tsv": lambda path: table().to_csv(path, index=False, sep="\t"),
    "spaces.txt": lambda path: table().to_csv(path, index=False, sep=" "),
    "bars.txt": lambda path: table().to_csv(path, index=False, sep="|"),
    "true.csv": lambda path: categories(table()).to_csv(path, index=False),
    "floats.csv": lambda path: floats(table()).to_csv(path, index=False),
    "excel.csv": lambda path: path.write_text("sep=;\n" + table().to_csv(index=False, sep=";")),
    "a.csv.gz": packed(gzip.open),
    "a.csv.bz2": packed(bz2.open),
    "a.csv.xz": packed(lzma.open),
    "a.zip": zipped,
    "misnamed.csv": packed(gzip.open),
    "a.parquet": lambda path: table().to_parquet(path),
    "categories.parquet": lambda path: categories(table()).to_parquet(path),
    "floats.parquet": lambda path: floats(table()).astype({"income": "f4"}).to_parquet(path),
    "a.feather": lambda path: categories(table()).to_feather(path),
    "a.xlsx": lambda path: table().to_excel(path, index=False),
    "true.xlsx": lambda path: categories(table()).to_excel(path, index=False),
    "a.dta": lambda path: table().to_stata(path, write_index=False),
    "floats.dta": lambda p: floats(table()).astype({"income": "f4"}).to_stata(p, write_index=False),
    "coded.dta": lambda p: pyreadstat.write_dta(coded(), p, variable_value_labels=CODES),
    "coded.sav": lambda p: pyreadstat.write_sav(coded(), p, variable_value_labels=CODES),
    "coded.zsav": lambda p: pyreadstat.write_sav(
        coded(), p, variable_value_labels=CODES, compress=True
    ),
    "text.sav": lambda path: pyreadstat.write_sav(table(), path),
    "a.xpt": lambda path: pyreadstat.write_xport(table(), path),
}


@pytest.mark.parametrize("name", FILES)
def test_the_same_records_in_any_file(name, tmp_path):
    FILES[name](tmp_path / name)
    expected = SCHEMA.validate(table())
    read = dpb.read_records(tmp_path / name, SCHEMA)
    found = SCHEMA.validate(read)
    pd.testing.assert_frame_equal(found, expected)
    known = Identity(table(), expected)
    assert Identity(read, found).digest == known.digest
    if "coded" not in name:  # a ledger knows it by all that was given, too
        assert content_digest(read) == content_digest(table())


def test_the_same_records_give_the_same_release(tmp_path):
    released = []
    for name in ("a.csv", "german.csv", "coded.sav", "floats.dta", "categories.parquet"):
        FILES[name](tmp_path / name)
        read = dpb.read_records(tmp_path / name, SCHEMA)
        settings = dpb.SamplerSettings(seed=1)
        fit = dpb.Synthesizer(SCHEMA, dpb.Laplace(1), settings=settings).fit(read)
        release = fit.sample(2, seed=2)
        released.append((release.datasets, release.guarantee, release.settings))
    for datasets, guarantee, settings in released[1:]:
        assert (guarantee, settings) == released[0][1:]
        for found, expected in zip(datasets, released[0][0], strict=True):
            pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    "frame",
    [
        polars.from_pandas,
        lambda frame: polars.from_pandas(frame).with_columns(polars.col("land").cast(polars.Enum(
            ["Bayern", "Thüringen", "unused"]))),
        pa.Table.from_pandas,
        pa.RecordBatch.from_pandas,
        categories,
        floats,
        lambda frame: frame.convert_dtypes(),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
        lambda frame: frame.astype(object),
        lambda frame: frame.astype(str),
        lambda frame: frame.set_index(frame["visits"] + 5),
    ],
)  # fmt: skip
def test_the_same_records_in_any_frame(frame):
    found = SCHEMA.validate(frame(table())).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, SCHEMA.validate(table()))


def test_a_table_of_a_database(tmp_path):
    to_sqlite(tmp_path / "a.db")
    address = f"sqlite:///{tmp_path / 'a.db'}"
    for query in ("people", "select * from people -- all: of them", " SELECT *\nFROM people"):
        read = dpb.read_records(address, SCHEMA, query=query)
        pd.testing.assert_frame_equal(SCHEMA.validate(read), SCHEMA.validate(table()))


@pytest.mark.parametrize(
    ("address", "query", "message"),
    [
        ("sqlite:///a.db", None, "needs a `query`"),
        ("sqlite:///a.db", "drop table people", "must be a SELECT"),
        ("sqlite:///a.db", "with x as (select 1) delete from people", "refused the query"),
        ("sqlite:///a.db", "nobody", "refused the query.*: OperationalError"),
        ("sqlite:///a.db", "select 1 as a, 2 as a", "duplicate column names in the result"),
        ("sqlite:///none.db", "people", "'none.db' does not exist"),
        ("postgresql://u:Zq7@127.0.0.1:1/x", "people", "could not be reached"),
        ("oracle://u:Zq7@h/x", "people", "no driver for oracle"),
        ("nosuch://u:Zq7@h/x", "people", "no driver for nosuch"),
        ("postgresql://u:Zq7@h:port/x", "people", "cannot be read; expected DIALECT"),
        ("https://host/a.csv", None, "copy the file to this machine"),
        ("s3://bucket/a.parquet", None, "copy the file to this machine"),
    ],
)  # fmt: skip
def test_databases_that_refuse(address, query, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_sqlite("a.db")
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(dpb.DataError, match=message) as caught:
        dpb.read_records(address, query=query)
    assert "Zq7" not in str(caught.value)
    assert (tmp_path / "a.db").read_bytes() == before
    assert not (tmp_path / "none.db").exists()


def test_codes_of_a_number_stay_numbers(tmp_path):
    """A label of one code, as for refusals, makes no levels of the others."""
    frame = pd.DataFrame({"age": [20.0, 30.0, 99.0], "sex": [1.0, 2.0, 1.0]})
    labels = {"age": {99.0: "99 or older"}, "sex": {1.0: "male", 2.0: "female"}}
    pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels=labels)
    age = dpb.Column("age", "count", upper=120)
    text = dpb.Column("sex", "binary", levels=("female", "male"))
    number = dpb.Column("sex", "binary", levels=(1, 2))
    for sex, expected in ((text, ["male", "female", "male"]), (number, [1, 2, 1])):
        schema = dpb.Schema({"age": age, "sex": sex})
        read = schema.validate(dpb.read_records(tmp_path / "a.sav", schema))
        assert read["age"].tolist() == [20, 30, 99]
        assert read["sex"].tolist() == expected
    assert dpb.read_records(tmp_path / "a.sav")["age"].tolist() == [20.0, 30.0, "99 or older"]


def test_what_users_declared_missing_is_missing(tmp_path):
    frame = pd.DataFrame({"income": [1.0, 98.0, 99.0], "visits": [1.0, 2.0, 3.0]})
    pyreadstat.write_sav(frame, tmp_path / "a.sav", missing_ranges={"income": [98.0, 99.0]})
    assert dpb.read_records(tmp_path / "a.sav")["income"].isna().tolist() == [False, True, True]
    missing = pd.DataFrame({"income": [1.0, "a", "b"], "visits": [1.0, 2.0, 3.0]})
    pyreadstat.write_dta(missing, tmp_path / "a.dta", missing_user_values={"income": ["a", "b"]})
    assert dpb.read_records(tmp_path / "a.dta")["income"].isna().tolist() == [False, True, True]


def test_dates_are_the_same_text_in_any_file(tmp_path):
    days = pd.to_datetime(["2020-01-31", "1999-12-01"])
    frame = pd.DataFrame({"day": days, "x": [1.0, 2.0]})
    frame.to_stata(tmp_path / "a.dta", write_index=False, convert_dates={"day": "td"})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    frame.to_csv(tmp_path / "a.csv", index=False)
    pyreadstat.write_sav(frame, tmp_path / "a.sav")
    for name in ("a.dta", "a.parquet", "a.xlsx", "a.csv", "a.sav"):
        assert dpb.read_records(tmp_path / name)["day"].tolist() == ["2020-01-31", "1999-12-01"]
    moment = pd.DataFrame({"at": pd.to_datetime(["2020-01-31 12:30"])})
    assert as_frame(moment)["at"].tolist() == ["2020-01-31 12:30:00"]


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b"], [1, 2, None], [1.5, 2.0, 1.5], [True, False], [b"x", b"y"], [None], [],
        pd.to_datetime(["2020-01-31", None]),
    ],
    ids=str,
)  # fmt: skip
def test_categories_are_what_their_cells_are(values):
    """Read by category, and not cell by cell, in which a million records took 9 s and not 5."""
    cells = pd.DataFrame({"x": pd.Series(list(values), dtype=object)})
    wanted = as_frame(cells)["x"].tolist()
    found = as_frame(pd.DataFrame({"x": pd.Categorical(values)}))["x"].tolist()
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted))


def test_a_frame_of_text_is_taken_as_it_is():
    text = pd.DataFrame({"x": pd.Series(["a", "b"], dtype=object)})
    assert as_frame(text) is text


def test_na_and_points_are_missing_unless_they_are_levels():
    levels = dpb.Column("land", "categorical", levels=("NA", "DE"))
    others = dpb.Column("land", "categorical", levels=("FR", "DE"))
    values = pd.Series(["NA", "DE"])
    assert levels.validate(values).tolist() == ["NA", "DE"]
    with pytest.raises(dpb.DataError, match="1 of 2 rows are missing"):
        others.validate(values)
    number = dpb.Column("x", "continuous", lower=0, upper=1)
    with pytest.raises(dpb.DataError, match="2 of 3 rows are missing"):
        number.validate(pd.Series([".", " NA ", "0.5"]))


def test_the_first_message_names_every_column_with_missing_values(schema, records):
    records.loc[[3, 4], "y"] = np.nan
    records.loc[7, "party"] = "NA"
    records = records.astype({"age": object})
    records.loc[[0, 1, 2], "age"] = "."
    with pytest.raises(
        dpb.DataError, match=r"column 'y': 2 of 60 rows are missing; 'party': 1; 'age': 3 \(empty"
    ):
        schema.validate(records)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("income;visits\n1,234;2\n5,678;3\n", "three digits behind it"),
        ("income;visits\n1,5;2\n2.5;3\n", "in column 1 with a point"),
        ("income;visits\n1;2;3\n", "line 2 has 3 fields, the header has 2"),
        ("income  visits\n1 2\n", "line 2 has 2 fields, the header has 3"),
        ("income,income \n1,2\n", "duplicate column names"),
        ("income,,\n1,2,3\n", "no column names in its first line for columns 2, 3"),
        ("a\0b,c\n1,2\n", "it has zero bytes"),
    ],
)
def test_csv_that_is_not_certain(written, message, tmp_path):
    schema = dpb.Schema({name: SCHEMA[name] for name in ("income", "visits")})
    (tmp_path / "a.csv").write_text(written)
    with pytest.raises(dpb.DataError, match=message):
        schema.validate(dpb.read_records(tmp_path / "a.csv", schema))


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_no_byte_of_a_record_decides_the_encoding(schema, tmp_path):
    """The attack: one byte of one record turned the é of all others, in UTF-8, into Ã©."""
    frame = table().assign(note="é")
    content = frame.to_csv(index=False).encode()
    (tmp_path / "a.csv").write_bytes(content)
    assert set(dpb.read_records(tmp_path / "a.csv", schema)["note"]) == {"é"}
    messages = set()
    for byte in (b"\xfc", b"\x81", b"\xff"):
        (tmp_path / "a.csv").write_bytes(content[:-3] + byte + b"\n")
        with pytest.raises(dpb.DataError, match="is not UTF-8 text; give its") as refusal:
            dpb.read_records(tmp_path / "a.csv", schema)
        messages.add(str(refusal.value))
    assert len(messages) == 1, "no byte is told from another"
    frame.to_csv(tmp_path / "a.csv", index=False, encoding="cp1252")
    read = dpb.read_records(tmp_path / "a.csv", schema, encoding="cp1252")
    assert set(read["note"]) == {"é"}
    pd.testing.assert_frame_equal(SCHEMA.validate(read), SCHEMA.validate(table()))


def test_csv_as_it_is_told(tmp_path):
    schema = dpb.Schema({name: SCHEMA[name] for name in ("income", "visits")})
    (tmp_path / "a.csv").write_bytes('income;visits;"a,b,c,d"\n1,234;2;é\n'.encode("cp850"))
    read = dpb.read_records(tmp_path / "a.csv", schema, decimal=",", encoding="cp850")
    assert schema.validate(read).iloc[0].tolist() == [1.234, 2]
    assert read["a,b,c,d"].tolist() == ["é"]
    (tmp_path / "b.data").write_text("income visits\n1.5 2\n")
    read = dpb.read_records(tmp_path / "b.data", file_format="csv", separator="space")
    assert schema.validate(read).iloc[0].tolist() == [1.5, 2]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"separator": "ab"}, "must be one ASCII character"),
        ({"separator": '"'}, "must be one ASCII character"),
        ({"decimal": ";"}, r"must be \. or ,"),
        ({"encoding": "utf-99"}, "is not known"),
        ({"encoding": "base64"}, "is not known"),
        ({"encoding": "ascii"}, "is not ascii text"),
        ({"sheet": "x"}, "--sheet.* is not for CSV files"),
        ({"query": "x"}, "--query.* is not for CSV files"),
        ({"file_format": "word"}, "expected one of csv, parquet"),
        ({"file_format": "parquet"}, "cannot be read: it is damaged"),
        ({"file_format": "feather"}, "cannot be read: it is damaged"),
        ({"file_format": "stata"}, "cannot be read"),
        ({"file_format": "spss"}, "cannot be read"),
        ({"file_format": "sas"}, "cannot be read"),
        ({"file_format": "excel"}, "damaged, no workbook"),
    ],
)
def test_readings_that_are_refused(how, message, tmp_path):
    (tmp_path / "a.csv").write_text("é,b\n1,2\n", encoding="utf-8")
    with pytest.raises(dpb.DataError, match=message):
        dpb.read_records(tmp_path / "a.csv", **how)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.rds", b"x", r"files \.rds are not read; in R: .*write_parquet.*Read are \.csv"),
        ("a.json", b"{}", "save that as CSV"),
        ("a.pkl", b"x", "to_parquet"),
        ("a.qq", b"x", r"files \.qq are not read\. Read are"),
        ("a.csv.gz", b"\x1f\x8b\x08rubbish", "cannot be unpacked: it is damaged"),
        ("a.zip", b"PK\x03\x04rubbish", "cannot be unpacked"),
        ("a.csv.zst", b"\x28\xb5\x2f\xfdxx", "unzstd"),
        ("a.csv", b"a,b\n\x81\x8d,2\n", r"is not UTF-8 text; give its `encoding`, such as cp1252"),
        ("a.xlsx", b"", "no workbook"),
        ("a.dta", b"", "cannot be read"),
        ("a.sav", b"$FL2", "cannot be read"),
        ("a.parquet", b"PAR1", "cannot be read"),
    ],
)
def test_files_that_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(dpb.DataError, match=message):
        dpb.read_records(tmp_path / name)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(dpb.DataError, match="is a folder"):
        dpb.read_records(tmp_path / "folder.csv")


def test_archives_with_more_than_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("__MACOSX/a.csv", "x")
    assert dpb.read_records(tmp_path / "a.zip")["x"].tolist() == ["1"]
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as archive:
        archive.writestr("b.csv", "x\n1\n")
    with pytest.raises(dpb.DataError, match="holds 2 files"):
        dpb.read_records(tmp_path / "a.zip")


def test_workbooks(tmp_path):
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    for row in (("x", "y", "x "), (1, 2, 3)):
        sheet.append(row)
    book.save(tmp_path / "double.xlsx")
    with pytest.raises(dpb.DataError, match="duplicate column names in the first row of sheet"):
        dpb.read_records(tmp_path / "double.xlsx")
    sheet["C1"] = "z"
    book.create_sheet("empty")
    book.save(tmp_path / "one.xlsx")
    assert dpb.read_records(tmp_path / "one.xlsx")["z"].tolist() == [3.0]
    book.create_sheet("more").append(("a",))
    book.save(tmp_path / "two.xlsx")
    with pytest.raises(dpb.DataError, match="several sheets: 'Sheet', 'more'"):
        dpb.read_records(tmp_path / "two.xlsx")
    with pytest.raises(dpb.DataError, match="has no sheet 'x'"):
        dpb.read_records(tmp_path / "two.xlsx", sheet="x")
    assert dpb.read_records(tmp_path / "two.xlsx", sheet="Sheet").shape == (1, 3)
    sheet.merge_cells("A1:B1")
    book.save(tmp_path / "merged.xlsx")
    with pytest.raises(dpb.DataError, match="row of names has merged cells"):
        dpb.read_records(tmp_path / "merged.xlsx", sheet="Sheet")
    sheet.unmerge_cells("A1:B1")
    sheet.merge_cells("B2:B3")
    book.save(tmp_path / "merged.xlsx")
    with pytest.raises(dpb.DataError, match="record 1 has merged cells"):
        dpb.read_records(tmp_path / "merged.xlsx", sheet="Sheet")
    sheet.unmerge_cells("B2:B3")
    sheet.insert_rows(1, 2)
    sheet["A1"] = "Table 1"
    book.save(tmp_path / "title.xlsx")
    with pytest.raises(dpb.DataError, match="no column names in the first row of sheet"):
        dpb.read_records(tmp_path / "title.xlsx", sheet="Sheet")


def test_what_is_said_repeats_no_value(tmp_path):
    lines = []
    table().assign(extra="Zq7", name="Zq8").to_csv(tmp_path / "a.csv", index=False, sep=";")
    dpb.read_records(tmp_path / "a.csv", SCHEMA, say=lines.append)
    assert lines[0].endswith("CSV, 7 columns, separator semicolon, decimal mark '.', UTF-8.")
    assert lines[1] == "Not in the schema, and left out: 'extra', 'name'."
    assert "Zq" not in "".join(lines)


def test_a_record_for_a_header_is_not_said(tmp_path):
    """Without a header the first line's fields would be named as columns."""
    lines = []
    table().to_csv(tmp_path / "a.csv", index=False, header=False)
    read = dpb.read_records(tmp_path / "a.csv", SCHEMA, say=lines.append)
    assert len(lines) == 1
    assert str(read.columns[0]) not in lines[0].partition("CSV")[2]


def test_thousands_of_columns(tmp_path):
    wide = pd.concat([table(5), pd.DataFrame(1, range(5), [f"c{k}" for k in range(3000)])], axis=1)
    wide.to_parquet(tmp_path / "a.parquet")
    lines = []
    read = dpb.read_records(tmp_path / "a.parquet", SCHEMA, say=lines.append)
    assert SCHEMA.validate(read).shape == (5, 5)
    assert lines[1].endswith("'c49' and 2,950 more.")


@pytest.mark.parametrize("module", ["pyarrow", "pyreadstat", "python_calamine"])
def test_a_missing_extra_is_one_message(module, tmp_path, monkeypatch):
    names = {"pyarrow": "a.parquet", "pyreadstat": "a.sav", "python_calamine": "a.xlsx"}
    (tmp_path / names[module]).write_bytes(b"x")
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(dpb.DataError, match=rf"needs {module}: pip install 'dpbayes\[files\]'"):
        dpb.read_records(tmp_path / names[module])


@pytest.mark.parametrize("records", [None, [1], {"a": [1]}, "a.csv", 5])
def test_what_is_no_frame(records):
    with pytest.raises(dpb.DataError, match="expected a data frame of pandas, polars or"):
        SCHEMA.validate(records)


RELEASED = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": -1e9, "upper": 1e9},
            "n": {"type": "count", "upper": 2**31 - 1, "label": "how many"},
            "k": {"type": "count", "label": "\U0001f9ee" * 80},
            "b": {"type": "binary"},
            "t": {"type": "binary", "levels": [False, True]},
            "o": {"type": "ordinal", "levels": ["b" * 60, "ä", "1.5"]},
            "mixed": {"type": "categorical", "levels": ["a", 1, 2.5]},
            "f": {"type": "categorical", "levels": [0.5, 1.5]},
        }
    }
)


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("rows", [1, 500])
def test_what_is_written_is_read_and_fits_its_room(kind, rows, tmp_path, recwarn):
    frame = made_up(RELEASED, rows, np.random.default_rng(1))
    frame["n"] = np.where(np.arange(rows) % 2, 2**31 - 1, 0)  # Stata's longest has fewer
    content = writer(kind).write(frame, RELEASED)
    assert len(content) <= room(RELEASED.columns.values(), rows, kind)
    path = tmp_path / f"synthetic_1{FORMATS[kind].endings[0]}"
    path.write_bytes(content)
    assert format_of(File.of(path)) is FORMATS[kind]
    read = RELEASED.validate(dpb.read_records(path, RELEASED))
    pd.testing.assert_frame_equal(read, RELEASED.validate(frame))
    assert not recwarn.list


def test_labels_of_what_is_written(tmp_path):
    frame = made_up(RELEASED, 3, np.random.default_rng(1))
    for kind, read in (("stata", pyreadstat.read_dta), ("spss", pyreadstat.read_sav)):
        path = tmp_path / kind
        path.write_bytes(writer(kind).write(frame, RELEASED))
        _, meta = read(path)
        labels = meta.variable_value_labels
        assert list(labels) == ["t", "o", "mixed", "f"]
        assert labels["o"] == {1: "b" * 60, 2: "ä", 3: "1.5"}
        assert labels["t"] == {0: "False", 1: "True"}
        titles = {name: title for name, title in meta.column_names_to_labels.items() if title}
        assert titles == {"n": "how many", "k": "\U0001f9ee" * (80 if kind == "stata" else 64)}
    assert meta.variable_measure["o"] == "ordinal"


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        ("stata", dpb.Column("x y", "count"), "'x y' cannot be written for Stata"),
        ("stata", dpb.Column("int", "count"), "'int' cannot be written for Stata"),
        ("stata", dpb.Column("x" * 33, "count"), "cannot be written for Stata"),
        ("spss", dpb.Column("x y", "count"), "'x y' cannot be written for SPSS"),
        ("spss", dpb.Column("x", "binary", levels=("a" * 121, "b")), "at most 120 bytes"),
    ],
)
def test_schemas_that_a_format_does_not_take(kind, column, message):
    with pytest.raises(dpb.OutputError, match=message):
        writer(kind).check(dpb.Schema({column.name: column}))


def test_the_format_that_came_in(tmp_path):
    FILES["coded.dta"](tmp_path / "a.dta")
    FILES["a.xlsx"](tmp_path / "a.xlsx")
    assert written_as("same", str(tmp_path / "a.dta")) == "stata"
    assert written_as("csv", "none") == "csv"
    with pytest.raises(dpb.OutputError, match="not written as Excel"):
        written_as("same", str(tmp_path / "a.xlsx"))
    with pytest.raises(dpb.OutputError, match="not written as a database"):
        written_as("same", "sqlite:///a.db")
    with pytest.raises(dpb.OutputError, match="written as one of csv"):
        writer("excel")


def test_a_day_is_midnight_to_the_nanosecond():
    moments = pd.to_datetime(["2020-01-31", "2020-01-31 00:00:00.000000001"], format="ISO8601")
    day, moment = as_frame(pd.DataFrame({"t": moments}))["t"]
    assert day == "2020-01-31"
    assert moment == "2020-01-31 00:00:00.000000001"


def test_a_message_about_a_file_without_names_repeats_no_value(tmp_path):
    """The first record stands in place of the names."""
    schema = dpb.Schema.from_dict({"columns": {"y": {"type": "count", "upper": 9}}})
    (tmp_path / "a.csv").write_text('Smith,y\n"one\ntwo",2\n', newline="")
    with pytest.raises(dpb.DataError, match="field of column 1 goes over several lines") as caught:
        dpb.read_records(tmp_path / "a.csv", schema)
    assert "Smith" not in str(caught.value)
    (tmp_path / "a.csv").write_text('Smith,y\n1,"one\ntwo"\n', newline="")
    with pytest.raises(dpb.DataError, match="field of column 'y' goes over several lines"):
        dpb.read_records(tmp_path / "a.csv", schema)


@pytest.mark.parametrize(("ending", "date"), [("dta", "%td"), ("dta", "%tc"), ("xpt", "DATE9")])
def test_a_text_with_the_format_of_a_date_is_not_repeated(ending, date, tmp_path):
    records = pd.DataFrame({"x": ["n", "y"], "note": ["Miller, 12 May", "b"]})
    write = pyreadstat.write_dta if ending == "dta" else pyreadstat.write_xport
    write(records, str(tmp_path / f"a.{ending}"), variable_format={"note": date})
    with pytest.raises(
        dpb.DataError, match="texts in a column with the format of a date"
    ) as caught:
        dpb.read_records(tmp_path / f"a.{ending}")
    assert "miller" not in str(caught.value).lower()
    assert "miller" in caught.value.said.lower()


def test_a_cut_database_is_refused(tmp_path):
    """SQLite would read the rows on missing pages as rows without a value."""
    whole, cut = tmp_path / "whole.db", tmp_path / "cut.db"
    with contextlib.closing(sqlite3.connect(whole)) as db, db:
        db.execute("CREATE TABLE t (y INTEGER, z TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(k, "x" * 300) for k in range(200)])
    assert len(dpb.read_records(f"sqlite:///{whole}", query="t")) == 200
    cut.write_bytes(whole.read_bytes()[:-4096])
    with pytest.raises(dpb.DataError, match="is cut: it has fewer pages than it says"):
        dpb.read_records(f"sqlite:///{cut}", query="t")


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_levels_of_several_types_are_released_in_any_format(kind, tmp_path):
    levels = [1, 2, "refused"]
    schema = dpb.Schema.from_dict({"columns": {"edu": {"type": "ordinal", "levels": levels}}})
    records = pd.DataFrame({"edu": levels * 20})
    job = dpb.Job(
        (dpb.Synthesizer(schema, dpb.Marginals(5.0)),), tmp_path / "out", file_format=kind
    )
    job.run(records)
    (path, *_) = sorted((tmp_path / "out/release").glob(f"synthetic_1.{kind}"))
    again = schema.validate(dpb.read_records(path, schema))
    assert set(again["edu"]) == set(levels)


@pytest.mark.parametrize("file_format", ["csv", "parquet", "feather", "stata", "spss"])
def test_levels_of_several_types_are_written_in_every_format(file_format):
    """Truth values, numbers and texts beside each other, and missing values."""
    levels = {"a": [True, 2, 3], "b": ["1", 2, 2.5], "c": [0, 1], "d": [True, False], "e": [1.5, 2]}
    columns = {
        name + end: {"type": "categorical", "levels": each, "missing": bool(end)}
        for name, each in levels.items()
        for end in ("", "_or_none")
    }
    schema = dpb.Schema.from_dict({"columns": columns})
    writer(file_format).rehearse(schema)
    data = pd.DataFrame(
        {
            name: [c.levels[k % len(c.levels)] for k in range(6)]
            for name, c in schema.columns.items()
        },
        dtype=object,
    )
    for name in data.columns[1::2]:
        data.loc[5, name] = None
    assert writer(file_format).write(data, schema)


def test_what_a_format_does_not_take_is_found_by_the_rehearsal(monkeypatch):
    """Whatever a library raises: only public facts are written."""

    def fails(frame, schema):
        assert len(frame) == 4  # two levels, and a value missing
        assert frame["a"].isna().sum() == 1
        raise ZeroDivisionError("a value")

    schema = dpb.Schema.from_dict(
        {"columns": {"a": {"type": "binary", "levels": ["x", "y"], "missing": True}}}
    )
    broken = dataclasses.replace(writer("parquet"), write=fails)
    with pytest.raises(OutputError, match=r"cannot be written as Parquet \(ZeroDivisionError\)"):
        broken.rehearse(schema)
