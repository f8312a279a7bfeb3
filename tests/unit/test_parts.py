"""Records in parts: what is counted, refused and known of them is what it is of a frame."""

import functools
import hashlib
import json
import math
import os
import pickle
import sqlite3

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import BudgetError, DataError, LedgerError
from dpbayes.mechanisms.marginals import mechanism as measured
from dpbayes.privacy.accounting import Loss
from dpbayes.records import chunked_overlap as parted_overlap
from dpbayes.records import overlap
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import Chunks, table_of
from dpbayes.records.fingerprint import content_digest
from dpbayes.report import report
from dpbayes.schema.clusters import Cluster
from tests.cli.in_process import dpbayes

duckdb = pytest.importorskip("duckdb")
N = 240
SALT = "ab" * 32
COLUMNS = {
    "age": {"type": "count", "lower": 16, "upper": 90},
    "job": {"type": "categorical", "levels": ["none", "a", "b"], "missing": ["-9"]},
    "pay": {
        "type": "continuous", "lower": 0, "upper": 1000, "digits": 2, "atoms": [0],
        "only_if": 'job != "none"',
    },
    "since": {"type": "date", "lower": "2000-01-01", "upper": "2019-12-31"},
}  # fmt: skip
TREE = {"rows": "public", "rules": ["age >= 18 or pay < 900"], "columns": COLUMNS}
SCHEMA = dpb.Schema.from_dict(TREE)
SETTINGS = dpb.SamplerSettings(seed=1)


@functools.cache
def records():
    """As a CSV file gives them: text."""
    rng = np.random.default_rng(1)
    job = rng.choice(["none", "a", "b", "-9"], N)
    age = rng.integers(16, 91, N)
    pay = np.where(rng.random(N) < 0.3, 0, rng.uniform(0, 899, N).round(2))
    days = np.datetime64("2000-01-01") + rng.integers(0, 7300, N)
    return pd.DataFrame(
        {
            "age": age.astype(str),
            "job": job,
            "pay": np.where(np.isin(job, ["a", "b"]), pay.astype(str), ""),
            "since": days.astype(str),
            "note": [f"row {i}" for i in range(N)],
        }
    )


def cut(frame, size):
    """The same in parts of ``size`` rows."""
    return Chunks.of(lambda: (frame.iloc[i : i + size] for i in range(0, len(frame), size)))


def fitted(given, schema=SCHEMA, **settings):
    return dpb.Synthesizer(schema, dpb.Marginals(3.0, **settings), settings=SETTINGS).fit(given)


def counts(fit):
    """Every margin and every pair table on fine levels."""
    axes = [np.arange(axis.size) for axis in fit.fitted.cells.axes]
    pairs = [(a, b) for b in range(len(axes)) for a in range(b)]
    return [*fit.fitted.counts.margins(), *fit.fitted.counts.tables(pairs, axes)]


def same(some, others):
    assert len(some) == len(others)
    return all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(some, others, strict=True)
    )


@functools.cache
def whole():
    fit = fitted(records())
    return fit, counts(fit), fit.sample(1, seed=2).datasets[0]


@pytest.mark.parametrize("size", [1, 50, N - 1, N])
def test_counts_are_the_same_in_any_parts(size):
    rows = 20 if size == 1 else N
    expected = counts(fitted(records().head(rows)))
    assert same(counts(fitted(cut(records().head(rows), size))), expected)
    assert sum(expected[0]) == rows


def test_a_release_is_the_same_whatever_the_parts_and_their_order():
    _, _, release = whole()
    for given in (cut(records(), 113), cut(records().iloc[::-1], 90)):
        pd.testing.assert_frame_equal(fitted(given).sample(1, seed=2).datasets[0], release)


def test_noisy_numbers_of_rows_and_public_columns():
    noisy = dpb.Schema.from_dict({**TREE, "rows": {"noisy": 0.2}})
    public = dpb.Schema.from_dict(
        {"columns": {**COLUMNS, "age": {**COLUMNS["age"], "public": True}}}
    )
    for schema in (noisy, public):
        one, other = (fitted(given, schema) for given in (records(), cut(records(), 70)))
        assert one.task.rows == other.task.rows
        frames = [fit.sample(1, seed=2).datasets[0] for fit in (one, other)]
        pd.testing.assert_frame_equal(*frames)
    assert sorted(frames[1]["age"]) == sorted(records()["age"].astype(int))
    assert list(other.task.table.public) == ["age"]


def test_whether_there_is_a_record_decides_nothing_where_rows_are_noisy():
    schema = dpb.Schema.from_dict({**TREE, "rows": {"noisy": 0.2}})
    none = records().head(0)
    for given in (none, Chunks.of(lambda: []), Chunks.of(lambda: [none, none])):
        fit = fitted(given, schema)
        assert fit.sample(1, seed=2).datasets[0].columns.tolist() == list(COLUMNS)
        assert identity_of(fit.task.table).known(SALT).empty
        assert fit.task.table.sample(10).empty


@pytest.mark.parametrize("text", [
    "bs(age, knots=[40])", "cr(age, knots=[40])", "poly(age, 2)", "log(age)", "job * age", "C(job)",
])  # fmt: skip
def test_analyses_are_kept_where_chunks_or_the_table_are_empty(text):
    """What was drawn is paid for: no chunk may end the run."""
    schema = dpb.Schema.from_dict(
        {
            "rows": 200,
            "columns": {
                "age": {"type": "count", "lower": 16, "upper": 90},
                "job": {"type": "categorical", "levels": ["none", "a", "b", "-9"]},
                "out": {"type": "binary", "levels": ["no", "yes"]},
            },
        }
    )
    some = records().head(200).assign(out="no")
    none = some.head(0)
    keep = [f"out ~ {text}"]
    releases = [
        fitted(given, schema, keep=keep).sample(1, seed=2).datasets[0]
        for given in (some, Chunks.of(lambda: [none, some, none]), none, Chunks.of(lambda: [none]))
    ]
    pd.testing.assert_frame_equal(*releases[:2])
    pd.testing.assert_frame_equal(*releases[2:])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same records in every format that is read in parts: (source, options)."""
    where = tmp_path_factory.mktemp("files")
    frame = records()
    typed = frame.assign(age=frame["age"].astype(int), pay=pd.to_numeric(frame["pay"]))
    frame.to_csv(where / "a.csv", index=False)
    commas = frame.assign(pay=frame["pay"].str.replace(".", ","))
    commas.to_csv(where / "b.csv.gz", index=False, sep=";", encoding="cp1252")
    typed.to_parquet(where / "a.parquet", row_group_size=100)
    typed.to_feather(where / "a.feather")
    with sqlite3.connect(where / "a.db") as database:
        frame.to_sql("people", database, index=False)
    database.close()
    with duckdb.connect(str(where / "a.duckdb")) as database:
        database.execute(f"CREATE TABLE people AS SELECT * FROM '{where / 'a.parquet'}'")
    return {
        "csv": (where / "a.csv", {}),
        "packed": (where / "b.csv.gz", {}),
        "parquet": (where / "a.parquet", {}),
        "feather": (where / "a.feather", {}),
        "sqlite": (f"sqlite:///{where / 'a.db'}", {"query": "people"}),
        "duckdb": (f"duckdb:///{where / 'a.duckdb'}", {"query": "people"}),
        "many files": ("duckdb://", {"query": f"SELECT * FROM '{where}/*.parquet'"}),
    }


KINDS = ["csv", "packed", "parquet", "feather", "sqlite", "duckdb", "many files"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_in_parts(files, kind):
    source, how = files[kind]
    parts = dpb.open_records(source, SCHEMA, chunk_rows=100, **how)
    fit = fitted(parts)
    assert len(fit.task.table.sizes) == (1 if kind == "feather" else 3)
    assert same(counts(fit), whole()[1])
    frame = dpb.read_records(source, SCHEMA, **how)
    assert same(counts(fitted(frame)), whole()[1])
    pd.testing.assert_frame_equal(fit.task.table.sample(N), SCHEMA.validate(frame))


def test_row_groups_that_are_read_apart(files):
    """As on a cluster, where what is sent is where they are, and shows no record."""
    sent = []

    def apply(work, parts, beside):
        for part, *others in zip(parts, *beside, strict=beside != ()):
            sent.append(part)
            yield work(pickle.loads(pickle.dumps(part)), *others)

    fit = fitted(dpb.open_records(files["parquet"][0], SCHEMA, apply=apply))
    assert fit.task.table.sizes == (100, 100, 40)
    assert same(counts(fit), whole()[1])
    assert len(pickle.dumps(sent[0])) < 1000
    for kind in ("csv", "feather", "sqlite", "duckdb"):
        source, how = files[kind]
        part = next(dpb.open_records(source, SCHEMA, chunk_rows=100, **how).read())
        assert "2004" not in repr(part)
    assert "2004" not in repr(next(cut(records(), 10).read()))


def changed(**cells):
    """The records with some values changed: column = {row: value}."""
    frame = records().copy()
    for column, values in cells.items():
        for row, value in values.items():
            frame.loc[row, column] = value
    return frame


YES = int(np.flatnonzero(records()["job"] == "a")[-1])
BAD = {
    "a bound, in the last part": changed(age={N - 1: "9"}),
    "the earlier of two columns, found later": changed(since={3: "x"}, age={N - 1: "9"}),
    "the earlier of two checks": changed(age={2: "99", 200: "old"}),
    "many parts": changed(age={2: "99", 150: "12", 151: "13", 230: "14"}),
    "of those that have a value": changed(pay={YES: "1001", 0: "-3"}, job={0: "b"}),
    "missing, in two columns": changed(age={5: ""}, since={7: "", 239: ""}),
    "a level": changed(job={1: "c", 200: "d", 201: "e", 202: "f"}),
    "a rule": changed(age={YES: "16"}, pay={YES: "950"}),
    "not asked": changed(job={YES: "none"}),
    "not answered": changed(pay={YES: ""}),
    "a column less": records().drop(columns="age"),
    "no rows": records().head(0),
}


@pytest.mark.parametrize("show_values", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_parts_are_refused_as_the_whole_is(what, show_values):
    said = []
    for given in (BAD[what], cut(BAD[what], 100), cut(BAD[what], 61)):
        with pytest.raises(DataError) as caught:
            table_of(SCHEMA, given, show_values=show_values)
        said.append(str(caught.value))
    assert set(said[:2]) == {said[2]} or (what == "no rows" and len(set(said)) == 1)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


@pytest.fixture
def job(tmp_path):
    def made(schema=SCHEMA, epsilon=1.0, **options):
        measured = dpb.Synthesizer(schema, dpb.Marginals(epsilon))
        return dpb.Job((measured,), tmp_path / "out", **options)

    return made


@pytest.fixture
def ledger(tmp_path):
    found = dpb.Ledger.create(str(tmp_path / "ledger.db"))
    found.add_dataset("people", 2.0)
    return found


def test_nothing_is_paid_for_records_that_do_not_fit(job, ledger, monkeypatch):
    monkeypatch.setattr(
        measured.FittedMarginals, "draw_private", lambda *_: pytest.fail("it was drawn")
    )
    given = cut(BAD["a bound, in the last part"], 100)
    with pytest.raises(DataError, match="1 of 240 rows are outside"):
        job(ledger=ledger, dataset="people").run(given, print)
    assert not ledger.account("people").entries["reserved"]
    assert not (job().out / "release").exists()


def test_a_ledger_knows_the_same_records_in_parts(job, ledger, tmp_path):
    first = job(ledger=ledger, dataset="people", rows=50, datasets=1).run(
        cut(records(), 100), print
    )
    assert first.release.settings["n"] == N
    found = json.loads((tmp_path / "out/confidential/utility.json").read_text())
    assert list(found) == ["synthetic_1"]  # no sample of so few
    claim = first.release.guarantee
    for given in (records().iloc[::-1], cut(records(), 90)):  # as a frame, in another order
        ledger.check("people", claim, identity(given))
        with pytest.raises(BudgetError):
            ledger.check("people", claim, identity(given), Loss.pure(1.5))
    with pytest.raises(LedgerError, match="not those that data set 'people' stands for"):
        ledger.check("people", claim, identity(cut(records().head(N - 1), 90)))
    ledger.add_dataset("others", 2.0)
    with pytest.raises(LedgerError, match="those of data set 'people'"):
        ledger.check("others", claim, identity(cut(records(), 99)))
    with pytest.raises(LedgerError, match="overlap"):
        ledger.check("others", claim, identity(cut(records().head(200), 99)))


def identity(given, schema=SCHEMA):
    return identity_of(table_of(schema, given))


def test_what_parts_are_known_by_is_what_a_frame_is_known_by(monkeypatch):
    """Sums in any parts; sketches exactly while different rows are few, and near beyond.

    Shapes of rows, which follow the frame's own sketches, are looked at in whole frames only.
    """
    frame = identity(records()).known(SALT)
    for size in (50, N):
        parts = identity(cut(records(), size)).known(SALT)
        assert (parts.declared[0], parts.given[0]) == (frame.declared[1], frame.given[1])
        assert (parts.telling, parts.empty) == (frame.telling, False)
        assert [sketch.kind for sketch in parts.sketches] == ["rows", "column"]
        rows, column = zip(parts.sketches, frame.sketches, strict=False)
        assert rows[0].same(rows[1])
        assert column[0].size < column[1].size  # parts keep a value that comes twice once
        assert column[0].share(column[1]) == 1
    other = identity(cut(BAD["a level"].assign(job="a", pay="1"), 100)).known(SALT)
    assert other.declared != parts.declared
    monkeypatch.setattr(overlap, "KEPT_IN_LEDGER", 64)
    monkeypatch.setattr(parted_overlap, "KEPT_IN_LEDGER", 64)
    one, every = (identity(cut(r, 90)).known(SALT) for r in (records().head(160), records()))
    assert every.sketches[0].hashes.size == 64
    # Four standard errors of an estimate by 64 hashes, of the number and of what is common.
    assert every.sketches[0].size == pytest.approx(N, rel=0.5)
    assert one.sketches[0].share(every.sketches[0]) == pytest.approx(1, abs=0.5)


def test_digests_of_frames_are_what_ledgers_hold_already():
    """By hand: numbers by value, the rest as it is written, rows sorted."""
    frame = pd.DataFrame(
        {"b": [True, False, True], "a": ["1.50", " x", None], "c": [1.0, math.nan, 3]}
    )

    rows = sorted(["1.5\x1f1.0\x1f1.0", "x\x1f0.0\x1f", "\x1f1.0\x1f3.0"])
    expected = hashlib.sha256(b'["a", "b", "c"]' + b"".join(b"\x1e" + r.encode() for r in rows))
    assert content_digest(frame) == expected.digest()
    assert content_digest(frame.astype(object)) == expected.digest()


@pytest.mark.parametrize("size", [4, 9])
def test_persons_are_counted_over_parts(size):
    schema = dpb.Schema.from_dict(
        {
            "cluster": {"column": "person", "most": 3},
            "columns": {"person": {"type": "identifier"}, "x": {"type": "binary"}},
        }
    )
    good = pd.DataFrame({"person": ["a", "b", "c", "d", "e"] * 3, "x": 1})
    many = pd.concat([good, good.head(2)], ignore_index=True)
    nameless = many.assign(person=["", *many["person"][1:]])
    # Persons whose names are written in two ways: with a blank, and é as one character and as two.
    written = many.assign(person=[*good["person"].replace({"a": "\u00e9"}), "e\u0301", "b "])
    unseen = many.assign(
        person=[
            *good["person"].replace({"a": "A 1-2"}),
            "\ufeffA\u00a0\u200b 1\u22122",
            "\uff42\x00\u3164\ufe0f",
        ]
    )
    fitted(cut(good, size), schema)
    for bad in (many, nameless, written, unseen, many.drop(columns="person")):
        said = []
        for given in (bad, cut(bad, size)):
            with pytest.raises(DataError) as caught:
                fitted(given, schema)
            said.append(str(caught.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("size", [4, 9])
def test_identifiers_that_repeat_stop_the_job_unless_a_cluster_says_whose_records_they_are(size):
    columns = {"person": {"type": "identifier"}, "x": {"type": "binary"}}
    schema = dpb.Schema.from_dict({"columns": columns})
    others = pd.DataFrame({"person": [*"abcdefghij", None, None, ""], "x": 1})
    twice = others.assign(person=[*"abcdefghi", *"ia", None, ""])
    for make in (lambda frame: frame, lambda frame: cut(frame, size)):
        fitted(make(others), schema)  # missing identifiers are not one another's
        fitted(make(others.drop(columns="person")), schema)
        with pytest.raises(DataError, match=r"'person': 2 identifiers stand in several records"):
            fitted(make(twice), schema)
    apart = dpb.Schema.from_dict({"columns": {"x": columns["x"]}})
    fitted(twice, apart)
    of_persons = {"columns": columns, "cluster": {"column": "person", "most": 2}}
    fitted(twice.iloc[:11], dpb.Schema.from_dict(of_persons))


@pytest.mark.parametrize("size", [4, 9])
def test_another_identifier_than_that_of_the_cluster_is_of_no_more_records(size):
    columns = {"home": {"type": "identifier"}, "person": {"type": "identifier"}}
    tree = {"columns": columns | {"x": {"type": "binary"}}}
    schema = dpb.Schema.from_dict({**tree, "cluster": {"column": "home", "most": 2}})
    homes = pd.DataFrame({"home": [*"aabbccddee"], "person": [*"abcdefghi", None], "x": 1})
    for make in (lambda frame: frame, lambda frame: cut(frame, size)):
        fitted(make(homes), schema)
        fitted(make(homes.drop(columns="person")), schema)
        with pytest.raises(DataError, match=r"'person': 1 identifiers stand in more than 2"):
            fitted(make(homes.assign(person=[*"abacaefghi"])), schema)


def test_many_persons_are_counted_over_parts():
    persons = np.random.default_rng(1).integers(0, 900, 3000)
    frame = pd.DataFrame({"person": persons.astype(str), "x": 1})
    over = int((np.bincount(persons) > 4).sum())
    assert 0 < over < 900
    for check in (
        Cluster("person", 4).check,
        lambda f: cut(f, 70).check_persons(Cluster("person", 4)),
    ):
        with pytest.raises(DataError, match=rf"'person': {over} have more than the declared 4"):
            check(frame)


def test_other_mechanisms_say_that_they_need_all_records(tmp_path):
    parts = cut(records()[["since"]], 100)
    schema = dpb.Schema.from_dict({"rows": "public", "columns": {"since": COLUMNS["since"]}})
    laplace = dpb.Synthesizer(schema, dpb.Laplace(1.0, bins=5))
    for run in (laplace.fit, dpb.Job((laplace,), tmp_path / "out").run):
        with pytest.raises(DataError, match="'laplace': this needs all records in memory"):
            run(parts)
    with pytest.raises(DataError, match="needs all records in memory"):
        fitted(parts, schema).records.head()


def test_records_that_change_while_they_are_read(tmp_path):
    path = tmp_path / "a.csv"
    records().to_csv(path, index=False)
    parts = dpb.open_records(path, SCHEMA, chunk_rows=100)
    fit = fitted(parts)
    records().head(N - 1).to_csv(path, index=False)
    os.utime(path, (1, 1))
    with pytest.raises(DataError, match="the records changed"):
        fit.fitted.counts.margins()
    rows = [records(), records(), records().head(N - 1)]
    less = fitted(Chunks.of(lambda: [rows.pop(0)]))
    less.fitted.counts.margins()
    with pytest.raises(DataError, match="the records changed"):
        less.fitted.counts.margins()


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("a.dta", {}, "Stata files are read whole"),
        ("a.parquet.gz", {}, "is packed, and cannot be read in parts"),
        ("a.csv", {"chunk_rows": 0}, "`chunk_rows` = 0"),
        ("a.parquet", {}, "is damaged"),
        ("a.feather", {}, "is damaged"),
        ("none.csv", {}, "does not exist"),
    ],
)
def test_sources_that_are_not_read_in_parts(tmp_path, name, how, message):
    (tmp_path / "a.dta").write_bytes(b"x")
    (tmp_path / "a.parquet.gz").write_bytes(b"\x1f\x8b\x08x")
    for other in ("a.csv", "a.parquet", "a.feather"):
        (tmp_path / other).write_bytes(b"age,job\n1,2\n")
    with pytest.raises(DataError, match=message):
        dpb.open_records(tmp_path / name, SCHEMA, **how)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS a; DROP TABLE people", "must be a SELECT"),
        ("COPY people TO 'stolen.csv'", "must be a SELECT"),
        ("SELECT * FROM nowhere", "refused the query: CatalogException"),
        (None, "needs a `query`"),
    ],
)
def test_duckdb_is_asked_and_not_changed(files, query, message):
    with pytest.raises(DataError, match=message):
        dpb.open_records(files["duckdb"][0], SCHEMA, query=query)


def test_rows_are_made_in_blocks(monkeypatch):
    """Levels come as often as in one block: their counts differ by less than one for each block."""
    fit = whole()[0]
    monkeypatch.setattr(measured, "BLOCK", 100)
    assert sum(measured._blocks(950)) == 950
    release = fit.sample(1, rows=950, seed=2).datasets[0]
    SCHEMA.validate(release)  # rules too
    assert len(release) == 950
    plain = dpb.Schema.from_dict(
        {"rows": "public", "columns": {"job": COLUMNS["job"], "since": COLUMNS["since"]}}
    )
    fit = fitted(records(), plain)
    blocks = fit.sample(1, rows=1000, seed=2).datasets[0]
    monkeypatch.setattr(measured, "BLOCK", 1000)
    once = fit.sample(1, rows=1000, seed=2).datasets[0]
    tables = [frame["job"].value_counts(dropna=False) for frame in (blocks, once)]
    assert np.abs(tables[0] - tables[1]).max() <= 10


def test_the_confidential_report_shows_a_sample_and_says_so(job, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "SAMPLE", 200)
    job(rows=220, epsilon=50.0).run(cut(records(), 100), print)
    found = json.loads((tmp_path / "out/confidential/utility.json").read_text())
    assert found["sample"] == {"records": 200, "of": N}
    assert found["synthetic_1"]["age"]["max_ecdf"] < 0.3  # 40 runs: .11 at most


def test_the_command(tmp_path, files):
    SCHEMA.to_toml(tmp_path / "schema.toml")
    common = ("--schema", tmp_path / "schema.toml", "--epsilon", 1)
    asked = ("--chunk-rows", 100)
    done = dpbayes("synthesize", files["csv"][0], *common, *asked, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "in parts of 100 rows: CSV" in done.stdout
    dpb.Schema.from_dict({"rows": "public", "columns": {"age": COLUMNS["age"]}}).to_toml(
        tmp_path / "schema.toml"
    )
    for words, message in (
        (("--mechanism", "laplace"), "'laplace': this needs all records in memory"),
        (("--scheduler", "tcp://10.0.0.1:9"), "does not use TLS"),
    ):
        every = (*common, *asked, *words, "--out", tmp_path / "no")
        done = dpbayes("synthesize", files["csv"][0], *every)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
