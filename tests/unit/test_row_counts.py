"""Every record counts, those without any value too: where n is public, n tells of none of them."""

import gzip
import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pyarrow.feather
import pyarrow.parquet
import pyreadstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.core.errors import DataError
from dpbayes.records.formats.catalog import FORMATS, WRITTEN, writer
from tests.fuzzing import many

is_number = pd.api.types.is_numeric_dtype
TRACELESS = "leaves no trace"  # the message where a format cannot tell


def schema_of(frame):
    """All columns may be missing."""
    numbers = {"type": "continuous", "lower": 0, "upper": 9, "missing": True}
    texts = {"type": "categorical", "levels": ["a", "b"], "missing": True}
    columns = {n: numbers if is_number(frame[n]) else texts for n in frame}
    return dpb.Schema.from_dict({"columns": columns})


def to_database(frame, path, connect):
    connection = connect(path)
    names = ", ".join(frame)
    connection.execute(f"create table t ({names.replace(',', ' text,')} text)")
    rows = frame.astype(object).where(frame.notna(), None).values.tolist()
    connection.executemany(f"insert into t values ({', '.join('?' * frame.shape[1])})", rows)
    connection.commit()
    connection.close()


def as_lines(frame, path, missing, end="\n"):
    """A CSV file as other programs write it, with nothing or NA where a value is missing."""
    lines = [",".join(frame)]
    for row in frame.astype(object).values.tolist():
        lines.append(",".join(missing if pd.isna(value) else str(value) for value in row))
    path.write_text("".join(line + end for line in lines), newline="")


def by_arrow(frame):
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


WRITERS = {
    "pandas.csv": lambda f, p: f.to_csv(p, index=False),
    "pandas.tsv": lambda f, p: f.to_csv(p, index=False, sep="\t"),
    "nothing.csv": lambda f, p: as_lines(f, p, ""),
    "windows.csv": lambda f, p: as_lines(f, p, "", "\r\n"),
    "old.csv": lambda f, p: as_lines(f, p, "", "\r"),
    "na.csv": lambda f, p: as_lines(f, p, "NA"),
    "utf16.csv": lambda f, p: f.to_csv(p, index=False, encoding="utf-16"),
    "packed.csv.gz": lambda f, p: f.to_csv(p, index=False, compression="gzip"),
    "a.parquet": lambda f, p: f.to_parquet(p, row_group_size=2),
    "a.feather": lambda f, p: pyarrow.feather.write_feather(by_arrow(f), p, chunksize=2),
    "a.xlsx": lambda f, p: f.to_excel(p, index=False),
    "a.dta": pyreadstat.write_dta,
    "a.sav": pyreadstat.write_sav,
    "a.zsav": lambda f, p: pyreadstat.write_sav(f, p, compress=True),
    "a.por": pyreadstat.write_por,
    "5.xpt": lambda f, p: pyreadstat.write_xport(f, p, file_format_version=5),
    "8.xpt": lambda f, p: pyreadstat.write_xport(f, p, file_format_version=8),
    "a.sqlite": lambda f, p: to_database(f, p, sqlite3.connect),
    "a.duckdb": lambda f, p: to_database(f, p, lambda path: duckdb.connect(str(path))),
    **{
        f"ours{FORMATS[name].endings[0]}": lambda f, p, name=name: p.write_bytes(
            writer(name).write(f, schema_of(f))
        )
        for name in WRITTEN
    },
}


def named(path):
    """What ``read_records`` takes, and its options."""
    if path.suffix == ".duckdb":
        return f"duckdb:///{path}", {"query": "t"}
    if path.suffix == ".sqlite":
        return f"sqlite:///{path}", {"query": "select * from t"}
    return path, {}


def counts(path, schema):
    """Records that are read: whole, and in parts of each size that a format has."""
    source, how = named(path)
    found = [len(dpb.read_records(source, schema, **how))]
    kind = None if how else next(f for f in FORMATS.values() if path.suffix in (*f.endings, ".gz"))
    if kind is None or kind.parts is not None:
        if path.suffix == ".gz":
            kind = FORMATS["csv"]
        for rows in (1, 2, 100):
            parts = dpb.open_records(source, schema, chunk_rows=rows, **how)
            found.append(sum(len(part()) for part in parts.read()))
    return found


def emptied(width, text, empty, n):
    """n records of numbers or texts; those of ``empty`` have no value."""
    values = np.array(["a", "b"] if text else [1.0, 2.5], dtype=object if text else float)
    frame = pd.DataFrame({f"c{at}": values[np.arange(n) % 2] for at in range(width)})
    frame.loc[sorted(empty), :] = None if text else np.nan
    return frame


def check(name, frame, folder):
    """Every record is counted; or the schema alone says that the file may have lost some."""
    path = folder / name
    WRITERS[name](frame, path)
    schema = schema_of(frame)
    traceless = path.suffix == ".xlsx" or name == "5.xpt"  # eight blanks are a number from 0 to 9
    if traceless:
        with pytest.raises(DataError, match=TRACELESS):
            counts(path, schema)
        return
    assert set(counts(path, schema)) == {len(frame)}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("empty", [{0}, {2}, {4}, {3, 4}, {0, 1, 2, 3, 4}, set()])
def test_records_without_any_value(name, text, width, empty, tmp_path):
    check(name, emptied(width, text, empty, 5), tmp_path)


@pytest.mark.fuzz
@given(
    name=st.sampled_from(sorted(set(WRITERS) - {"a.duckdb"})),
    width=st.integers(1, 4),
    text=st.booleans(),
    n=st.integers(1, 12),
    empty=st.sets(st.integers(0, 11)),
)
@many
def test_any_records_without_values(name, width, text, n, empty, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    check(name, emptied(width, text, {at for at in empty if at < n}, n), folder)


@pytest.mark.parametrize("name", ["a.xlsx", "5.xpt"])
@pytest.mark.parametrize("empty", [{0}, {2}, {3, 4}])
def test_a_column_that_cannot_be_missing_is_in_every_row(name, empty, tmp_path):
    """Rows that are empty but for it count in any format."""
    frame = emptied(3, True, empty, 6).assign(c2="a")
    WRITERS[name](frame, tmp_path / name)
    schema = schema_of(frame).to_dict()
    del schema["columns"]["c2"]["missing"]
    assert counts(tmp_path / name, dpb.Schema.from_dict(schema))[0] == 6


def test_an_empty_row_of_a_workbook_is_a_record(tmp_path):
    """It was dropped; with a column that cannot be missing it is refused."""
    emptied(2, False, {2}, 5).to_excel(tmp_path / "a.xlsx", index=False)
    assert len(dpb.read_records(tmp_path / "a.xlsx")) == 5
    schema = schema_of(emptied(2, False, (), 1)).to_dict()
    del schema["columns"]["c1"]["missing"]
    declared = dpb.Schema.from_dict(schema)
    with pytest.raises(DataError, match="'c1': 1 of 5 rows are missing"):
        declared.validate(dpb.read_records(tmp_path / "a.xlsx", declared))


@pytest.mark.parametrize(
    ("text", "line"),
    [("a,b\n1,2\n\n3,4\n", 3), ("a,b\n\n1,2", 2), ("sep=,\na,b\n1,2\n\n3,4", 4)],
)
def test_an_empty_line_between_records_of_several_columns(text, line, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    schema = schema_of(emptied(2, False, (), 1).set_axis(["a", "b"], axis=1))
    for read in (dpb.read_records, dpb.open_records):
        with pytest.raises(DataError, match=f"line {line} is empty.*write its separators"):
            read(tmp_path / "a.csv", schema)


def test_empty_lines_at_the_end(tmp_path):
    """Passed over where no record looks like them."""
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n\n\n")
    schema = schema_of(emptied(2, False, (), 1).set_axis(["a", "b"], axis=1))
    with pytest.raises(DataError, match="line 4 is empty"):
        dpb.read_records(tmp_path / "a.csv", schema)
    needed = schema.to_dict()
    del needed["columns"]["a"]["missing"]
    declared = dpb.Schema.from_dict(needed)
    assert counts(tmp_path / "a.csv", declared) == [2, 2, 2, 2]


def test_a_transport_file_of_several_tables(tmp_path):
    """ReadStat gives the headers of the second one as records."""
    for name, start in (("A", 0), ("B", 240)):
        pyreadstat.write_xport(
            emptied(2, False, (), 3), tmp_path / "t.xpt", table_name=name, file_format_version=5
        )
        with (tmp_path / "a.xpt").open("ab") as stream:
            stream.write((tmp_path / "t.xpt").read_bytes()[start:])
    with pytest.raises(DataError, match="holds several tables"):
        dpb.read_records(tmp_path / "a.xpt")


# The number that eight blanks stand for in a transport file.
BLANK_NUMBER = 16.0 ** (32 - 64) * int.from_bytes(b" " * 7) / 2.0**56


@pytest.mark.parametrize("last", [0.5, BLANK_NUMBER])
@pytest.mark.parametrize("version", [5, 8])
def test_a_last_record_of_blanks_in_a_transport_file(version, last, tmp_path):
    """ReadStat drops it from version 5: whether there is one must change nothing."""
    path, number = tmp_path / "a.xpt", {**NUMBER, "lower": 0, "upper": 1}
    answer = {"type": "binary", "levels": ["no", "yes"]}
    frame = pd.DataFrame({"x": [0.25] * 9 + [last], "g": ["yes"] * 9 + [""]})
    pyreadstat.write_xport(frame, path, file_format_version=version)

    def read(**columns):
        return dpb.read_records(path, dpb.Schema.from_dict({"columns": columns}))

    may_be_missing = {**answer, "missing": True}
    for columns in ({"x": number, "g": may_be_missing}, {"g": may_be_missing}, {"x": number}):
        if version == 8:
            assert len(read(**columns)) == 10
            continue
        with pytest.raises(DataError, match="Save the records as CSV, or in version 8"):
            read(**columns)
    above = {**number, "lower": 0.1}
    if last == 0.5:  # the other number is outside of the bounds
        assert len(read(x=above, g=may_be_missing)) == 10
        assert len(read(x=number, g=answer)) == 10


@pytest.mark.parametrize("blanks", [0, 1, 3])
@pytest.mark.parametrize("version", [5, 8])
def test_blank_records_of_80_bytes_are_read(version, blanks, tmp_path):
    """The length of the file says how many there are."""
    path = tmp_path / "a.xpt"
    frame = pd.DataFrame({
        "x": [0.25] * 9 + [BLANK_NUMBER] * blanks, "g": ["y" * 70] * 9 + [""] * blanks,
        "s": ["yes"] * 9 + [""] * blanks,
    })  # fmt: skip
    pyreadstat.write_xport(frame, path, file_format_version=version)
    answer = {"type": "binary", "levels": ["no", "yes"], "missing": True}
    number = {**NUMBER, "lower": 0, "upper": 1}
    schema = dpb.Schema.from_dict({"columns": {"x": number, "s": answer}})
    read = schema.validate(dpb.read_records(path, schema))
    assert read["x"].tolist() == frame["x"].tolist()
    assert read["s"].isna().sum() == blanks
    assert len(dpb.read_records(path)) == 9 + blanks


def test_a_portable_file_has_no_encoding_to_set(tmp_path):
    pyreadstat.write_por(pd.DataFrame({"A": [1.0, 2.5]}), tmp_path / "a.por")
    assert dpb.read_records(tmp_path / "a.por")["A"].tolist() == [1.0, 2.5]
    with pytest.raises(DataError, match=r"encoding = 'cp1252' .* not for SPSS portable files"):
        dpb.read_records(tmp_path / "a.por", encoding="cp1252")


OPEN = "x,note\n1,fine\n2,{}\n3,fine\n4,{}\n5,fine\n"
NUMBER = {"type": "continuous", "lower": 0, "upper": 9}
NUMBERS = dpb.Schema.from_dict({"columns": {"x": NUMBER}})


@pytest.mark.parametrize("marks", [('"', '"'), ('"so', 'so"'), ('"so', '"so'), ('"', '"so')])
def test_a_stray_quotation_mark_swallows_no_record(marks, tmp_path):
    """In a column that nobody declared, so that no value of it is checked, or without a schema."""
    (tmp_path / "d.csv").write_text(OPEN.format(*marks))
    for schema in (NUMBERS, None):
        with pytest.raises(DataError, match=r"line 3: a field of column 2 goes|not a regular CSV"):
            dpb.read_records(tmp_path / "d.csv", schema)
    with pytest.raises(DataError, match=r"line 3: a field of column 2 goes|not a regular CSV"):
        dpb.open_records(tmp_path / "d.csv", NUMBERS, chunk_rows=2)


@pytest.mark.parametrize("schema", [NUMBERS, None])
def test_a_stray_quotation_mark_among_the_names_swallows_no_record(schema, tmp_path):
    (tmp_path / "d.csv").write_text('x,"note\n1,fine\n2,fine"\n3,fine\n')
    with pytest.raises(DataError, match="a name in its first line goes over several lines"):
        dpb.read_records(tmp_path / "d.csv", schema)


def test_a_declared_name_may_have_two_lines(tmp_path):
    (tmp_path / "d.csv").write_text('x,"no\nte"\n1,2\n')
    declared = dpb.Schema.from_dict({"columns": {"x": NUMBER, "no\nte": NUMBER}})
    assert declared.validate(dpb.read_records(tmp_path / "d.csv", declared)).shape == (1, 2)


@pytest.mark.parametrize("schema", [NUMBERS, None])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_stray_mark_in_a_file_of_one_column(schema, ends, tmp_path):
    (tmp_path / "d.csv").write_bytes(ends.join(["x", "1", '"2', '3"', "4", ""]).encode())
    with pytest.raises(DataError, match=r"line 3: a field of column .* goes over several lines"):
        dpb.read_records(tmp_path / "d.csv", schema)


def test_quotation_marks_that_close(tmp_path):
    (tmp_path / "d.csv").write_text(OPEN.format('"a, ""b"""', "5'10\""))
    assert len(dpb.read_records(tmp_path / "d.csv", NUMBERS)) == 5


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '{}/d.csv'",
        "SELECT * FROM read_csv('{}/*.csv', all_varchar = true)",
        "SELECT * FROM '{}/d.json'",
        "SELECT * FROM v",
        "SELECT i FROM range(3) r(i) WHERE i IN (SELECT count(*) FROM '{}/d.csv')",
        "WITH c AS MATERIALIZED (SELECT * FROM '{}/d.csv') SELECT * FROM c",
        "SELECT 1 AS x UNION ALL SELECT count(*) FROM '{}/d.csv' WHERE false",
        "SELECT content AS x FROM read_text('{}/d.csv')",
        "SELECT column_type AS x FROM (DESCRIBE SELECT * FROM '{}/d.csv')",
        "SELECT min AS x FROM (SUMMARIZE SELECT * FROM '{}/d.csv')",
        "SELECT i FROM range(3) r(i) WHERE 'x' IN (SELECT column_name FROM (DESCRIBE '{}/d.csv'))",
        "SELECT * FROM w v",
    ],
)
def test_no_query_reads_text_of_which_values_decide_the_types(query, tmp_path):
    """One date after the 12th of a month, and the others would be read with months for days."""
    (tmp_path / "d.csv").write_text("x\n01/02/2020\n07/25/2020\n")
    (tmp_path / "d.json").write_text('[{"x": 1}]')
    with duckdb.connect(str(tmp_path / "d.duckdb")) as database:
        database.execute(f"CREATE VIEW v AS SELECT * FROM '{tmp_path}/d.csv'")
        database.execute(
            f"CREATE VIEW w AS SELECT * FROM (DESCRIBE SELECT * FROM '{tmp_path}/d.csv')"
        )
    address = f"duckdb:///{tmp_path}/d.duckdb" if query.endswith(" v") else "duckdb://"
    with pytest.raises(DataError, match=r"the query reads by .*; it may read tables and Parquet"):
        dpb.read_records(address, NUMBERS, query=query.format(tmp_path))


def test_what_a_query_may_read(tmp_path):
    records = pd.DataFrame({"x": [1.0, 2, 3]})
    records.to_parquet(tmp_path / "d.parquet")
    for query in (
        "SELECT * FROM '{}/*.parquet'",
        "SELECT x FROM read_parquet('{}/d.parquet') ORDER BY x",
        "SELECT x FROM '{}/d.parquet' WHERE x IN (SELECT i + 1 FROM range(3) r(i))",
        "SELECT x FROM '{}/d.parquet' WHERE x IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)",
        "WITH c AS MATERIALIZED (FROM '{}/d.parquet') SELECT c.x FROM c JOIN c d ON c.x = d.x",
        "FROM '{}/d.parquet' p WHERE EXISTS (SELECT 1 FROM range(3) r(i) WHERE i + 1 = p.x)",
        "WITH RECURSIVE c AS (SELECT 1.0 AS x UNION SELECT x + 1 FROM c WHERE x < 3) FROM c",
        "SELECT 1.0 AS x UNION ALL SELECT 2 UNION ALL SELECT 3",
        "SELECT unnest([1.0, 2, 3]) AS x",
        "SELECT x FROM '{0}/d.parquet' UNION ALL SELECT x FROM '{0}/d.parquet' WHERE false",
    ):
        read = dpb.read_records("duckdb://", NUMBERS, query=query.format(tmp_path))
        assert sorted(map(float, read["x"])) == [1, 2, 3]


@pytest.mark.parametrize("version", [5, 8])
@pytest.mark.parametrize("text", [False, True])
def test_a_transport_file_that_is_cut(version, text, tmp_path):
    """Version 8 wherever it is cut; version 5 unless cards and records end at one place."""
    path = tmp_path / "a.xpt"
    frame = emptied(3, text, (), 80).assign(c3=[f"{at:017}" for at in range(80)])
    pyreadstat.write_xport(frame, path, file_format_version=version)
    content = path.read_bytes()
    assert len(dpb.read_records(path)) == 80
    width = 3 * (1 if text else 8) + 17
    start = len(content) - len(content[content.index(b"*******OBS") + 60 :])
    for end in range(1, len(content), 20):
        path.write_bytes(content[:end])
        between = version == 5 and end >= start and (end - start) % 80 == 0
        if between and (end - start) % width < 80:
            continue
        with pytest.raises(DataError, match="cut short"):
            dpb.read_records(path)


def test_several_lines_are_one_value_only_where_it_is_a_declared_level(tmp_path):
    """Else a stray quotation mark in a declared column, too, could hold records."""
    (tmp_path / "d.csv").write_text('x,note\n1,fine\n2,"two\nlines"\n')
    levels = {"type": "categorical", "levels": ["fine", "two\nlines"]}
    declared = dpb.Schema.from_dict({"columns": {"x": NUMBER, "note": levels}})
    read = declared.validate(dpb.read_records(tmp_path / "d.csv", declared))
    assert read["note"].tolist() == ["fine", "two\nlines"]
    levels = {"type": "categorical", "levels": ["fine", "two lines"], "missing": True}
    declared = dpb.Schema.from_dict({"columns": {"x": NUMBER, "note": levels}})
    with pytest.raises(DataError, match="line 3: a field of column 'note'"):
        dpb.read_records(tmp_path / "d.csv", declared)


@pytest.mark.parametrize(
    "encoding",
    [
        *("utf-7", "unicode_escape", "raw_unicode_escape", "hz", "iso2022_jp", "iso2022_jp_1"),
        *("iso2022_jp_2", "iso2022_jp_2004", "iso2022_jp_3", "iso2022_jp_ext"),
    ],
)
def test_an_encoding_that_makes_lines_or_changes_the_next_is_refused(encoding, tmp_path):
    (tmp_path / "d.csv").write_text("x\n1\n2\n")
    with pytest.raises(DataError, match="a line can change how the next is read"):
        dpb.read_records(tmp_path / "d.csv", NUMBERS, encoding=encoding)


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp850", "mac_roman", "shift_jis", "gbk", "utf-16"]
)
def test_an_encoding_that_keeps_lines_is_read(encoding, tmp_path):
    (tmp_path / "d.csv").write_bytes("x\n1\n2\n".encode(encoding))
    assert len(dpb.read_records(tmp_path / "d.csv", NUMBERS, encoding=encoding)) == 2


def test_a_missing_code_with_a_comma_sets_no_decimal_mark(tmp_path):
    """Whether anybody has the code would decide how all numbers are read."""
    columns = {"x": {**NUMBER, "missing": ["9,9"]}, "z": NUMBER}
    declared = dpb.Schema.from_dict({"columns": columns})
    (tmp_path / "d.csv").write_text("x;z\n1.5;2.5\n9,9;1\n")
    read = declared.validate(dpb.read_records(tmp_path / "d.csv", declared))
    assert read["z"].tolist() == [2.5, 1.0]
    assert read["x"].isna().tolist() == [False, True]


@pytest.mark.parametrize("text", ["", "NA", ".", "nan", " NA "])
def test_an_identifier_that_stands_for_none_is_no_person(text):
    """Persons without a name were taken for one person with many records."""
    columns = {"person": {"type": "identifier"}, "x": NUMBER}
    declared = dpb.Schema.from_dict(
        {"columns": columns, "cluster": {"column": "person", "most": 2}}
    )
    frame = pd.DataFrame({"person": ["a", text, "b"], "x": [1, 2, 3]})
    with pytest.raises(DataError, match="1 rows have no identifier"):
        declared.cluster.check(frame)


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_last_line_without_end(packed, tmp_path):
    """Joined by line ends, records n, y and a missing one would be the file of n and y."""
    schema = schema_of(pd.DataFrame({"a": ["a"]}))
    path = tmp_path / f"a.csv{packed}"
    opened = gzip.open if packed else open
    with opened(path, "wb") as stream:
        stream.write("\n".join(["a", "a", "b"]).encode())
    for read in (dpb.read_records, dpb.open_records):
        with pytest.raises(DataError, match="its last line has no end"):
            read(path, schema)
    required = dpb.Schema.from_dict({"columns": {"a": {**schema["a"].to_dict(), "missing": False}}})
    assert len(dpb.read_records(path, required)) == 2
