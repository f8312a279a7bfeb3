"""A value is read as the same level, number or day whatever stands in the other records."""

import contextlib
import datetime
import decimal
import itertools
import re
import sqlite3
import struct

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyreadstat
import pytest

import dpbayes as dpb
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.frames import as_frame
from dpbayes.records.fingerprint import cell_texts
from dpbayes.records.formats import excel
from dpbayes.records.formats.labelled import _EACH_BY_ITSELF
from dpbayes.schema.dates import Calendar
from dpbayes.schema.values import numbers_in

polars = pytest.importorskip("polars")
LARGE = 2**53  # the next whole number is none of the floats of 64 bits
LEVELS = [str(LARGE), str(LARGE + 1), "0", "1", "2", "1.5", "a", "b", "2020-01-02"]
MISSING = ("refused", "-9", str(LARGE + 3), "2.5")
COLUMNS = {
    "levels": dpb.Column("x", "categorical", levels=LEVELS, missing=MISSING),
    "numbers": dpb.Column("x", "continuous", lower=0, upper=1e15, missing=MISSING[:3]),
    "days": dpb.Column("x", "date", lower="1970-01-01", upper="2030-01-01", missing=MISSING),
}
DAY = datetime.date(2020, 1, 2)
MOMENT = datetime.datetime(2020, 1, 2)
VALUES = [
    *(1, 1.5, 3.25, 18263, LARGE, LARGE + 1, LARGE + 3, 2**63, "1.0", "a", " 1", "TRUE"),
    *("2020-01-02", str(LARGE + 1), True, decimal.Decimal(LARGE + 1), DAY, MOMENT),
]
OTHERS = [
    *(None, float("nan"), 2.5, -9, LARGE, "", "refused", "1.5", True, DAY),
    decimal.Decimal("1.5"),
]


def columns_of(columns, make):
    """Columns that a container can hold; some take no values of two types."""
    made = {}
    for name, values in columns.items():
        try:
            made[name] = make(values)
        except (TypeError, ValueError, OverflowError, RuntimeWarning, pa.ArrowException):
            continue
    return made


def of_one_type(values):
    """The values, unless a typed container would convert one to the type of the other."""
    if len({type(value) for value in values if value is not None}) > 1:
        raise TypeError
    return values


def frame_of(kind):
    def make(columns, path):
        alike = (lambda values: values) if kind is object else of_one_type
        made = columns_of(columns, lambda values: pd.array(alike(values), dtype=kind))
        return pd.DataFrame({name: pd.Series(values) for name, values in made.items()})

    return make


def categories(columns, path):
    return pd.DataFrame(
        columns_of(columns, lambda values: pd.Categorical(pd.Series(values, dtype=object)))
    )


def array(values):
    return pa.array(of_one_type(values))


def arrow(columns):
    return pa.table(columns_of(columns, array))


def dictionaries(columns, path):
    return pa.table(columns_of(columns, lambda values: array(values).dictionary_encode()))


def dictionaries_with_null(columns, path):
    return pa.table(
        columns_of(columns, lambda values: array(values).dictionary_encode(null_encoding="encode"))
    )


def frame_of_polars(columns, path):
    def series(values):
        made = polars.Series(of_one_type(values), strict=True)
        if made.dtype == polars.Int128:  # pyarrow has no such numbers
            raise TypeError
        return made

    return polars.DataFrame(columns_of(columns, series))


def parquet(columns, path):
    pa.parquet.write_table(arrow(columns), path / "a.parquet")
    return dpb.read_records(path / "a.parquet")


def parquet_in_chunks(columns, path):
    parquet(columns, path)
    schema = dpb.Schema({"x": COLUMNS["levels"]})
    (chunk,) = dpb.open_records(path / "a.parquet", schema).read()
    return chunk()


def feather(columns, path):
    pa.feather.write_feather(arrow(columns), path / "a.feather")
    return dpb.read_records(path / "a.feather")


def duck(columns, path):
    table = arrow(columns)
    place = path / "a.duckdb"
    place.unlink(missing_ok=True)
    with duckdb.connect(str(place)) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return dpb.read_records(f"duckdb:///{place}", query="people")


def sqlite(columns, path):
    place = path / "a.sqlite"
    place.unlink(missing_ok=True)
    fit = {  # SQLite has no other types
        name: [str(x) if isinstance(x, datetime.date | decimal.Decimal) else x for x in values]
        for name, values in columns.items()
        if 2**63 not in values
    }
    with sqlite3.connect(place) as connection:
        connection.execute(f"CREATE TABLE people ({', '.join(map(repr, fit))})")
        marks = ", ".join("?" * len(fit))
        rows = list(zip(*fit.values(), strict=True))
        connection.executemany(f"INSERT INTO people VALUES ({marks})", rows)
    return dpb.read_records(f"sqlite:///{place}", query="people")


def text(columns, path, separator=","):
    frame = pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in columns.items()})
    frame.to_csv(path / "a.csv", index=False, sep=separator)
    return dpb.read_records(path / "a.csv")


def semicolons(columns, path):
    return text(columns, path, ";")


def is_nan(value):
    return isinstance(value, float) and np.isnan(value)


def workbook(columns, path):
    book = openpyxl.Workbook()
    for row in [list(columns), *zip(*columns.values(), strict=True)]:
        book.active.append([None if is_nan(x) else x for x in row])
    book.save(path / "a.xlsx")
    return dpb.read_records(path / "a.xlsx")


def of_statistics(write, ending):
    """File of numbers, texts or dates in each column, as pyreadstat writes it."""

    def plain(values):
        present = [x for x in values if x is not None and not is_nan(x)]
        if all(isinstance(x, int | float) for x in present):
            return pd.Series([np.nan if x is None else x for x in values], dtype=float)
        if len({type(x) for x in present}) > 1 or isinstance(present[0], decimal.Decimal):
            raise TypeError
        return pd.Series([None if is_nan(x) else x for x in values], dtype=object)

    def make(columns, path):
        write(pd.DataFrame(columns_of(columns, plain)), path / f"a.{ending}")
        return dpb.read_records(path / f"a.{ending}")

    return make


CONTAINERS = {
    **{str(kind): frame_of(kind) for kind in (object, "Int64", "UInt64", "Float64", "boolean")},
    "arrow in pandas": frame_of(pd.ArrowDtype(pa.int64())),
    "decimals in pandas": frame_of(pd.ArrowDtype(pa.decimal128(30, 2))),
    "categories": categories,
    "arrow": lambda columns, path: arrow(columns),
    "dictionaries": dictionaries,
    "dictionaries with a null": dictionaries_with_null,
    "polars": frame_of_polars,
    "parquet": parquet,
    "parquet in chunks": parquet_in_chunks,
    "feather": feather,
    "duckdb": duck,
    "sqlite": sqlite,
    "csv": text,
    "csv with semicolons": semicolons,
    "workbook": workbook,
    "stata": of_statistics(pyreadstat.write_dta, "dta"),
    "spss": of_statistics(pyreadstat.write_sav, "sav"),
    "sas": of_statistics(pyreadstat.write_xport, "xpt"),
}


def turned(i, j):
    """True if the other record stands before the one that is compared."""
    return (i + j) % 2 == 1


def code(column, cells, place):
    """Validated value of a cell, None if missing; the error's class if the cells are refused."""
    try:
        value = column.validate(cells.reset_index(drop=True))[place]
    except DataError:
        return DataError
    return None if pd.isna(value) else value


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_value_is_the_same_beside_any_other(container, kind, tmp_path):
    column, make = COLUMNS[kind], CONTAINERS[container]
    alone = as_frame(make({f"v{i}": [v] for i, v in enumerate(VALUES)}, tmp_path))
    others = as_frame(make({f"w{j}": [w] for j, w in enumerate(OTHERS)}, tmp_path))
    pairs = {
        f"v{i}w{j}{'r' * turned(i, j)}": [w, v] if turned(i, j) else [v, w]
        for i, v in enumerate(VALUES)
        for j, w in enumerate(OTHERS)
    }
    beside = as_frame(make(pairs, tmp_path))
    compared = 0
    for name in beside:
        v, _, w = name.rstrip("r").partition("w")
        if v not in alone or f"w{w}" not in others:
            continue
        if code(column, others[f"w{w}"], 0) is DataError:
            continue  # the other record is refused, and the table with it
        compared += 1
        expected = code(column, alone[v], 0)
        assert code(column, beside[name], int(name.endswith("r"))) == expected, (pairs[name], name)
    assert compared or (container, kind) == ("boolean", "days")


def test_whole_numbers_beside_a_missing_one_stay_apart(tmp_path):
    """The attack: 2^53 and 2^53 + 1 were one level if, and only if, another record was missing."""
    numbers = [LARGE, LARGE + 1, None]
    for frame in (
        parquet({"x": numbers}, tmp_path),
        as_frame(arrow({"x": numbers})),
        as_frame(pd.DataFrame({"x": pd.array(numbers, dtype="Int64")})),
        as_frame(polars.DataFrame({"x": numbers})),
        duck({"x": numbers}, tmp_path),
    ):
        assert COLUMNS["levels"].validate(frame["x"]).tolist()[:2] == LEVELS[:2]


def test_whole_numbers_of_128_bits_are_exact(tmp_path):
    query = f"SELECT unnest([{LARGE}::HUGEINT, {LARGE + 1}::HUGEINT]) AS x"
    records = dpb.read_records("duckdb://", query=query)
    assert COLUMNS["levels"].validate(records["x"]).tolist() == LEVELS[:2]


@pytest.mark.parametrize("codes", [(LARGE + 1, 1.5), (str(LARGE + 1), "1.5")])
def test_a_code_of_a_missing_value_is_no_number_beside_it(codes):
    column = dpb.Column("x", "categorical", levels=[str(LARGE), "a"], missing=codes)
    values = column.validate(pd.Series([LARGE, LARGE + 1, 1.5, "a"], dtype=object))
    assert values.isna().tolist() == [False, True, True, False]


@pytest.mark.parametrize("codes", [(float(LARGE) * 2,), (-1e20,)])
def test_a_large_code_must_be_exact(codes):
    with pytest.raises(SchemaError, match="not exact as a float"):
        dpb.Column("x", "categorical", levels=["a", "b"], missing=codes)


@pytest.mark.parametrize("level", [LARGE + 1, float(LARGE) * 2])
def test_a_large_level_is_text(level):
    with pytest.raises(SchemaError, match="a level that is a number lies within"):
        dpb.Column("x", "categorical", levels=[level, "a"])


def test_persons_beside_one_without_a_number_are_counted_alike():
    identifiers = [LARGE, LARGE + 1, LARGE + 2, LARGE + 3]
    cluster = dpb.Schema.from_dict(
        {
            "columns": {"p": {"type": "identifier"}, "x": {"type": "binary"}},
            "cluster": {"column": "p", "most": 2},
        }
    ).cluster
    cluster.check(pa.table({"p": identifiers * 2, "x": [0] * 8}))
    with pytest.raises(DataError, match="1 rows have no identifier"):
        cluster.check(pa.table({"p": [*identifiers * 2, None], "x": [0] * 9}))


@pytest.mark.parametrize("number", [float, int])
def test_a_number_in_a_workbook_is_no_day(number, tmp_path, monkeypatch):
    """A workbook counts days from 1900: without a format for dates they would be other days."""
    sheet = excel._sheet

    def with_integers(*args):  # as .xls has them
        name, (header, *rows), merged = sheet(*args)
        return name, [header, *([number(cell) for cell in row] for row in rows)], merged

    monkeypatch.setattr(excel, "_sheet", with_integers)
    read = workbook({"x": [18263, 18264]}, tmp_path)
    with pytest.raises(DataError, match="not days"):
        COLUMNS["days"].validate(read["x"])


def test_ledgers_recognise_numbers_beside_a_missing_one():
    whole = pd.Series([1, 2, LARGE + 1])
    beside = as_frame(pa.table({"x": [1, 2, LARGE + 1, None]}))["x"]
    assert cell_texts(beside)[:3] == cell_texts(whole)


WITHIN = {
    "float16": (pa.float16(), [np.float16(0.1), np.float16(0.7)]),
    "float32": (pa.float32(), [0.1, 0.7]),
    "float64": (pa.float64(), [0.1, 0.7]),
    "int64": (pa.int64(), [LARGE + 1, 7]),
    "text": (pa.string(), ["a", "b"]),
    "large text": (pa.large_string(), ["a", "b"]),
    "views of text": (pa.string_view(), ["a", "b"]),
    "days": (pa.date32(), [DAY, datetime.date(1999, 1, 1)]),
    "moments": (pa.timestamp("ms"), [MOMENT, datetime.datetime(1999, 1, 1, 5)]),
    "moments somewhere": (pa.timestamp("ms", tz="Europe/Vienna"), [MOMENT] * 2),
    "decimals": (pa.decimal128(20, 2), [decimal.Decimal("1.50"), decimal.Decimal("2.25")]),
    "truth": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("name", WITHIN)
def test_a_dictionary_of_arrow_is_read_like_its_values(name):
    """A null or NaN in it decided by which of two ways all values were converted."""
    kind, values = WITHIN[name]
    texts = []
    for last in (None, float("nan"), values[1]):
        missing = last is None or last is not values[1]
        if missing and last is not None and not pa.types.is_floating(kind):
            continue
        if missing and kind == pa.float16() and last is not None:
            known = pa.array([*values, np.float16(last)], kind)
        else:
            known = pa.array([*values, last], kind)
        places = pa.array([0, 0, 1, 2], pa.int8())
        column = pa.DictionaryArray.from_arrays(places, known)
        picked = pa.array([values[0], values[0], values[1], None], kind)
        plain = as_frame(pa.table({"x": picked}))["x"].tolist()
        read = as_frame(pa.table({"x": column}))["x"].tolist()
        assert repr(read[:3]) == repr(plain[:3])
        texts.append(repr(read[:3]))
    assert len(set(texts)) == 1


def stata_of_bytes(path, texts):
    """Write a file of version 114, which has the bytes of a text as they are."""
    latin = [text.decode("latin-1") for text in texts]
    pd.DataFrame({"x": latin}).to_stata(path, write_index=False, version=114)


@pytest.mark.parametrize(
    "encoding",
    ["cp1255", "cp1258", "TCVN", "TSCII", "ISO-2022-JP", "UTF-7", "UTF-16", "big5hkscs", "hz"],
)
def test_an_encoding_by_which_a_text_changes_the_next_is_refused(encoding, tmp_path):
    stata_of_bytes(tmp_path / "d.dta", [b"a", b"b"])
    with pytest.raises(DataError, match="one of them may change the next"):
        dpb.read_records(tmp_path / "d.dta", encoding=encoding)


@pytest.mark.parametrize("own", ["CP1255", "windows-1255", "CP1258"])
def test_an_encoding_that_the_file_says_is_refused_likewise(own, tmp_path):
    pyreadstat.write_sav(pd.DataFrame({"x": ["a", "b"]}), tmp_path / "d.sav")
    content = (tmp_path / "d.sav").read_bytes()
    head = struct.pack("<iii", 7, 20, 1)
    said = head + struct.pack("<i", 5) + b"UTF-8"
    assert content.count(said) == 1
    changed = head + struct.pack("<i", len(own)) + own.encode()
    (tmp_path / "d.sav").write_bytes(content.replace(said, changed))
    with pytest.raises(DataError, match="one of them may change the next"):
        dpb.read_records(tmp_path / "d.sav")


ICONV = {"mac-roman": "macintosh", "euc_jp": "EUC-JP", "euc_kr": "EUC-KR"}


@pytest.mark.parametrize("encoding", sorted(_EACH_BY_ITSELF))
def test_a_text_in_an_encoding_is_the_same_after_any_other(encoding, tmp_path):
    """All texts of one byte, and many of two; each before the same text."""
    ends = [bytes([b]) for b in range(1, 256)]
    pairs = [bytes(p) for p in itertools.product(range(0x81, 0xFF, 3), range(0x40, 0xFF, 5))]
    texts = []
    for text in [*ends, *pairs]:
        with contextlib.suppress(UnicodeDecodeError):
            if text.decode(encoding).strip(" \0"):
                texts.append(text)

    def after(some):
        stata_of_bytes(tmp_path / "d.dta", [t for text in some for t in (text, b"mm")])
        read = dpb.read_records(tmp_path / "d.dta", encoding=ICONV.get(encoding, encoding))["x"]
        assert len(read) == 2 * len(some)
        return list(read[1::2])

    known = texts
    if encoding in ("cp932", "euc_jp"):  # ReadStat has fewer letters in them than Python
        known = []
        for text in texts:
            with contextlib.suppress(DataError):
                known += [text] * bool(after([text]))
    assert len(known) > 120
    assert set(after(known)) == {"mm"}


TEXTS = [
    *("-0", "-0.0", "0", "+135267854731514259", "-999999999999999999999", " 17 ", "1e22", "-1e-7"),
    *("123456789012345678901234567890", ".1", "7.", "1e400", "x", "TRUE", "1_0"),
]


@pytest.mark.parametrize("beside", ["5", "5.5", "5.0", "1e9", "-0", "no number", "9" * 30])
def test_a_number_in_text_is_the_same_beside_any_other(beside):
    """Pandas reads a column of whole numbers in another way than one with a decimal."""
    alone = [numbers_in(pd.Series([text], dtype=object))[0] for text in TEXTS]
    for kind in (object, "str"):
        together = numbers_in(pd.Series([*TEXTS, beside], dtype=kind)).to_numpy()
        assert together[:-1].tobytes() == np.array(alone).tobytes()
    assert not np.signbit(alone[:3]).any()
    assert [cell_texts(pd.Series(["-0", beside]))[0], "0.0"] == ["0.0", "0.0"]


def test_empty_chunks_have_identifiers_of_any_type():
    from dpbayes.schema.clusters import Cluster

    for kind in (object, "int64", "float64", "str", "Int64"):
        empty = pd.DataFrame({"person": pd.Series([], dtype=kind), "x": pd.Series([], dtype=float)})
        for most in (1, 3):
            Cluster("person", most).check(empty)
            assert Cluster("person", most).hashed(b"key", empty)[0] == 0


def test_a_day_beyond_the_calendar_is_refused_without_its_value():
    late = pa.array(["9999-12-31T23:59:59Z"]).cast(pa.timestamp("s", tz="UTC"))
    for values in (
        pa.array([-800_000], pa.date32()),
        late.cast(pa.timestamp("s", tz="Pacific/Auckland")),
        late.cast(pa.timestamp("us", tz="Pacific/Auckland")),
    ):
        with pytest.raises(DataError, match="a value that cannot be read") as caught:
            as_frame(pa.table({"x": [1], "d": values}))
        assert not re.search("-221|9999-12|10000", str(caught.value))


def of_two_files(folder, first, second):
    pa.parquet.write_table(first, folder / "0.parquet")
    pa.parquet.write_table(second, folder / "1.parquet")


TWO_FILES = [
    "SELECT * FROM '{}/*.parquet'",
    "SELECT * FROM read_parquet(['{}/1.parquet', '{}/0.parquet'])",
    "SELECT * FROM read_parquet('{}/' || '*.parquet', union_by_name = true)",
    "SELECT * FROM '{}/0.parquet' UNION ALL SELECT * FROM '{}/1.parquet'",
    "SELECT * FROM by_view",
    "SELECT * FROM by_macro('{}/*.parquet')",
]


@pytest.mark.parametrize("query", TWO_FILES)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 2], [1.5, 2.4]),
        ([1, 2], ["02", "1"]),
        ([True, False], [1, 7]),
        ([DAY], [MOMENT]),
        ([MOMENT], [DAY]),
    ],
)
def test_files_of_different_types_are_not_read_together(query, first, second, tmp_path):
    """The attack: whole numbers in the first file made DuckDB round those of all the others."""
    of_two_files(tmp_path, pa.table({"x": first}), pa.table({"x": second}))
    with duckdb.connect(str(tmp_path / "a.db")) as connection:
        connection.execute(f"CREATE VIEW by_view AS SELECT * FROM '{tmp_path}/*.parquet'")
        connection.execute("CREATE MACRO by_macro(p) AS TABLE SELECT * FROM read_parquet(p)")
    address = f"duckdb:///{tmp_path / 'a.db'}"
    with pytest.raises(DataError) as caught:
        dpb.read_records(address, query=query.replace("{}", str(tmp_path)))
    assert re.search("a column has type|refused the query", str(caught.value))
    of_two_files(tmp_path, pa.table({"x": second}), pa.table({"x": second}))
    records = dpb.read_records(address, query=query.replace("{}", str(tmp_path)))
    assert len(records) == 2 * len(second)


@pytest.mark.parametrize(
    "beside", ["2001-05-05 00:00:00.000000000", "9999-12-31", "x", "\ud800", "2001-05-05 12:00"]
)
def test_a_day_is_the_same_beside_any_other(beside):
    """The attack: a time with nine decimals changed the years that the others might have."""
    texts = ["2001-05-05 00:00:00.000000", "9999-12-31", "0001-01-01", "2001-05-05"]
    formats = (None, "%Y-%m-%d %H:%M:%S.%f")
    for kind, date_format in itertools.product(("date", "datetime"), formats):
        calendar = Calendar.of(kind, date_format)
        alone = [calendar.steps(pd.Series([text], dtype=object))[0] for text in texts]
        together = calendar.steps(pd.Series([*texts, beside], dtype=object))
        np.testing.assert_array_equal(together[:-1], alone)
        days = [x * calendar.seconds / 86_400 for x in alone[1:]]
        assert days == [2932896, -719162, 11447]


def test_a_dictionary_of_lists_is_refused():
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([[1], [2]]))
    with pytest.raises(DataError, match="a value that cannot be read"):
        as_frame(pa.table({"x": lists}))


def test_folders_that_are_columns_are_refused(tmp_path):
    """The attack: a file without such a folder took their columns away from all records."""
    for folder, value in (("region=north", "NW"), ("region=HIV positive", "NE")):
        (tmp_path / folder).mkdir()
        pa.parquet.write_table(pa.table({"region": [value]}), tmp_path / folder / "a.parquet")
    with pytest.raises(DataError, match="only if all files have them") as caught:
        dpb.read_records("duckdb://", query=f"SELECT * FROM '{tmp_path}/*/*.parquet'")
    assert "HIV" not in str(caught.value)
    assert "region=" in caught.value.said


def test_the_types_of_every_file_are_known(tmp_path):
    """Of a file that is encrypted they are not, and ``[m]`` is no pattern here."""
    key = "{footer_key_value: '0123456789112345'}"
    with duckdb.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = true")
        connection.execute(
            f"COPY (SELECT 7 AS x) TO '{tmp_path}/e.parquet' (ENCRYPTION_CONFIG {key})"
        )
    query = f"SELECT * FROM read_parquet('{tmp_path}/e.parquet', encryption_config={key})"
    with pytest.raises(DataError, match="no Parquet file, is encrypted") as caught:
        dpb.read_records("duckdb://", query=query)
    assert "e.parquet" not in str(caught.value)
    (tmp_path / "e.parquet").unlink()
    pa.parquet.write_table(pa.table({"x": [7]}), tmp_path / "[m].parquet")
    pa.parquet.write_table(pa.table({"x": ["007"]}), tmp_path / "m.parquet")
    with pytest.raises(DataError, match="has type BIGINT in one file and VARCHAR in"):
        dpb.read_records("duckdb://", query=f"SELECT * FROM '{tmp_path}/*.parquet'")


def test_lists_of_different_layout_are_not_read_together(tmp_path):
    lists = [pa.table({"x": [[1.5]]}), pa.table({"x": [[LARGE + 1]]})]
    for number, table in enumerate(lists):
        pa.parquet.write_table(
            table, tmp_path / f"{number}.parquet", use_compliant_nested_type=bool(number)
        )
    with pytest.raises(DataError, match="a column has type"):
        dpb.read_records("duckdb://", query=f"SELECT x[1] AS x FROM '{tmp_path}/*.parquet'")


def test_a_message_about_files_names_no_column(tmp_path):
    """Of a file without a row of names the first record has their place."""
    of_two_files(tmp_path, pa.table({"Jane Roe": [1]}), pa.table({"Jane Roe": [1.5]}))
    with pytest.raises(DataError, match="a column has type") as caught:
        dpb.read_records("duckdb://", query=f"SELECT 1 AS x FROM '{tmp_path}/*.parquet'")
    assert "Jane" not in str(caught.value)
    assert "jane roe" in caught.value.said


def test_a_message_about_files_names_no_field(tmp_path):
    """Dictionaries become structs, whose fields are named by their keys."""
    of_two_files(tmp_path, pa.table({"x": [{"Jane Roe": 1}]}), pa.table({"x": [{"Paul Poe": 1}]}))
    with pytest.raises(DataError, match="a column has type") as caught:
        dpb.read_records("duckdb://", query=f"SELECT 1 AS x FROM '{tmp_path}/*.parquet'")
    assert "Roe" not in str(caught.value)
    assert "Roe" in caught.value.said


@pytest.mark.parametrize(
    ("odd", "other"),
    [
        ("back\\slash", "backslash"),
        ('"quoted"', "quoted"),
        ('a"b', "ab"),
        ('1.parquet","op":"READ","bytes":"1","pos":"1', "1"),
    ],
)
def test_a_name_that_the_log_does_not_say_is_refused(odd, other, tmp_path):
    """The log of DuckDB leaves such characters out: another file would be looked at."""
    for name, values in ((odd, [1.5]), (other, [1])):
        pa.parquet.write_table(pa.table({"x": values}), tmp_path / f"{name}.parquet")
    query = f"SELECT * FROM read_parquet(['{tmp_path}/{odd}.parquet'])"
    with pytest.raises(DataError, match="a quotation mark or a backslash in its name"):
        dpb.read_records("duckdb://", query=query)


@pytest.mark.parametrize("name", ["a[1].parquet", "a b.parquet", "a{1,2}.parquet", "é?.parquet"])
def test_files_with_odd_names_are_read(name, tmp_path):
    pa.parquet.write_table(pa.table({"x": [1, 2]}), tmp_path / name)
    assert len(dpb.read_records("duckdb://", query=f"SELECT * FROM '{tmp_path}/*.parquet'")) == 2
