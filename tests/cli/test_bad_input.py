"""Input that would crash, hang or pass: one message, exit code 2, and nothing written."""

import os
import shutil
import sqlite3
import warnings

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.errors import InferenceError
from dpbayes.inference.regressions import formula_fit
from tests.cli import in_process
from tests.cli.command import options, records
from tests.cli.in_process import dpbayes
from tests.programs import GOOD


def refused(folder, *arguments):
    """The message of a command that is refused, without a traceback or a file."""
    before = sorted(folder.rglob("*"))
    done = dpbayes(*arguments)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before
    return done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formula": "y ~ age ~ sex"}, "there is one ~"),
        ({"formula": 'y ~ I("a")'}, "the text 'a' stands where no level is named"),
        ({"formula": "y ~ I(age / age.max())"}, "age.max() is not known"),
        ({"formula": "y ~ I(__import__('os').mkdir('made'))"}, "has no place in a formula"),
        ({"formula": "y ~ " + "(" * 2000}, "a summand has more than 150 operators"),
        ({"set": "name=x"}, "mechanism 'censored' does not use name"),
        ({"set": "self=x"}, "mechanism 'censored' does not use self"),
        ({"set": f"share={'[' * 5000}"}, "is nested too deeply"),
        ({"set": "share=a", "mechanism": "anchored"}, "share = 'a' must lie in (0, 1)"),
        ({"set": "range=[1]", "mechanism": "anchored"}, "range = [1] must be a finite number"),
        ({"set": "c1=" + "9" * 400, "mechanism": "censored-weighted"}, "must be a number"),
        ({"datasets": 10**9}, "datasets = 1,000,000,000 must be at most 100,000"),
        ({"datasets": "1e9"}, "should be a valid integer"),
        ({"engine": "candidates", "points": 10**10}, "points = 10,000,000,000 must be at most"),
        ({"engine": "candidates", "points": "1e10"}, "should be a valid integer"),
        ({"mechanism": ""}, "unknown mechanism ''"),
        ({"mechanism": "x" * 3000}, f"{'x' * 149} ... {'x' * 40}"),
        ({"rows": 0}, "rows = 0 must be"),
        ({"out": "mysql://u:secret@h/x"}, "--out is an address; name a directory."),
        ({"separator": "é"}, "must be one ASCII character, or tab"),
        ({"ledger": ".", "account": "a"}, "is a directory or a device; name a file"),
        ({"ledger": "postgresql://h/d?port=abc", "account": "a"}, "its URL is wrong"),
        ({"ledger": "postgresql://h:abc/d", "account": "a"}, "URL cannot be read"),
    ],
)
def test_options(folder, changes, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in refused(
        folder, "synthesize", folder / "data.csv", *options(folder, **changes)
    )


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ('intercept = "wide"', "prior 'intercept' = 'wide': expected 2 finite number(s)"),
        ('intercept = ["0", "1"]', "expected 2 finite number(s)"),
        ("intercept = 2020-01-01", "expected 2 finite number(s)"),
        ("intercept = [[0, 1], [2]]", "expected 2 finite number(s)"),
        ("[intercept]\na = 1", "expected 2 finite number(s)"),
        (f"intercept = [0, {'9' * 400}]", "expected 2 finite number(s)"),
        (f"intercept = [0, {'9' * 5000}]", "is not valid TOML"),
        ("intercept = [true, true]", "expected 2 finite number(s)"),
        (f"intercept = {'[' * 5000}", "is nested too deeply"),
    ],
)
def test_priors(folder, priors, message):
    (folder / "priors.toml").write_text(priors)
    flags = options(folder, priors=folder / "priors.toml")
    assert message in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"n": null, "y": [1]}', "entry 'n' holds null"),
        ('{"n": 6, "y": null}', "entry 'y' holds null"),
        ('{"n": 2, "y": [1, null]}', "entry 'y' holds null"),
        ('{"n": 2, "y": [[1, 2], [3]]}', "entry 'y' is ragged"),
        ('{"n": 2, "y": [[1], 2]}', "entry 'y' is ragged"),
        ('{"n": 2, "y": "ab"}', "entry 'y' holds str"),
        ('{"n": 2, "y": {"a": 1}}', "entry 'y' holds dict"),
        ('{"n": 1e400, "y": [1]}', "n must be a whole number from 0"),
        ('{"n": [2], "y": [1, 2]}', "n must be a whole number from 0"),
        ('{"n": 1.5, "y": [1]}', "n must be a whole number from 0"),
        (f'{{"n": 1, "y": [{"9" * 400}]}}', "a whole number beyond"),
        (f'{{"n": {"9" * 5000}}}', "is not valid JSON"),
        (f'{{"y": {"[" * 20}{"]" * 20}}}', "has more than 8 dimensions"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_data_of_a_check(folder, data, message):
    (folder / "data.json").write_text(data)
    (folder / "good.stan").write_text(GOOD)
    said = refused(folder, "check", folder / "good.stan", "--data", folder / "data.json")
    assert message in said


def test_a_row_with_a_field_too_many(folder):
    """Its fields would stand in the columns beside their own, and the release be called strict."""
    (folder / "data.csv").write_text("y,age,sex,ill\n1,2,30,f,no\n2,3,31,m,no\n")
    said = refused(folder, "synthesize", folder / "data.csv", *options(folder))
    assert "line 2 has 5 fields, the header has 4" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ledger", "create", "new.db", "--account", "a", "--epsilon", "-1"), "epsilon = -1.0"),
        (("ledger", "create", "new.db", "--account", " ", "--epsilon", "1"), "1 to 200 characters"),
        (("ledger", "create", "\0", "--account", "a", "--epsilon", "1"), "URL cannot be read"),
        (("ledger", "show", "x" * 300), "there is no ledger"),
        (("ledger", "create", "x" * 300, "--account", "a", "--epsilon", "1"), "too long"),
    ],
)
def test_names_and_addresses(folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in refused(folder, *arguments)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [("nowhere", "tcp://HOST:PORT"), ("tcp://h:70000", "HOST:PORT"), ("", "tcp://HOST:PORT")],
)
def test_schedulers_of_studies(scheduler, message, tmp_path):
    done = in_process.study("sdr", "--scheduler", scheduler, "--out", tmp_path / "s")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "s").exists()


def test_a_check_of_an_entry_that_is_not_one_per_record(folder):
    (folder / "good.stan").write_text(GOOD)
    (folder / "d.json").write_text('{"n": 3, "y": [1, 2, 3]}')
    arguments = ("check", folder / "good.stan", "--data", folder / "d.json", "--private", "n")
    assert "'n' has not one value per record" in refused(folder, *arguments)


def test_an_include_that_is_no_text(folder):
    (folder / "part.stan").write_bytes(b"\xff")
    (folder / "d.json").write_text('{"n": 3, "y": [1, 2, 3]}')
    for name, message in (("part.stan", "is not UTF-8 text"), ("x" * 300, "no such file")):
        (folder / "mine.stan").write_text(f"#include {name}\n{GOOD}")
        arguments = ("check", folder / "mine.stan", "--data", folder / "d.json")
        assert message in refused(folder, *arguments)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("bins=100000000", "from 1 to 5,000,000"),
        ("bins=1000000000", "from 1 to 5,000,000"),
        ("bins=0", "from 1 to 5,000,000"),
        ("bins=true", "bins = True: expected log, sqrt, scott"),
        ("bins=nan", "bins = nan: expected log, sqrt, scott"),
        ("sigma=3", "sigma = 3 must be a table by column"),
        ("sigma={y = 0}", "sigma of column 'y': 0 must be a number above 0"),
    ],
)
@pytest.mark.parametrize("mechanism", ["laplace", "multinomial-dirichlet"])
def test_bins_and_sigma(folder, setting, message, mechanism):
    plain = dict.fromkeys(("formula", "family", "warmup", "draws"))
    flags = options(folder, **plain, mechanism=mechanism, set=setting)
    assert message in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize("mechanism", ["laplace", "marginals", "pegs"])
@pytest.mark.parametrize("bins", ["0", "-3", "nan", "true", "100000000"])
def test_bins_where_no_column_is_numeric(folder, bins, mechanism):
    """They would stand in the release's settings, and be refused once a column is numeric."""
    levels = '[columns.ill]\ntype = "binary"\nlevels = ["no", "yes"]\n'
    (folder / "schema.toml").write_text(levels)
    plain = dict.fromkeys(("formula", "family", "warmup", "draws"))
    flags = options(folder, **plain, mechanism=mechanism, set=f"bins={bins}")
    assert "bins" in refused(folder, "synthesize", folder / "data.csv", *flags)


def test_a_bound_that_no_draw_uses(folder):
    """It was taken, and stood in the way of guarantee.json when the draw was paid for."""
    plain = dict.fromkeys(("formula", "family", "warmup", "draws"))
    flags = options(folder, **plain, mechanism="modips", set="bound=inf")
    said = refused(folder, "synthesize", folder / "data.csv", *flags)
    assert "standardise and bound are for draws on a grid" in said


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("chains", 100_000, "chains = 100000 must be a whole number, from 2 to 1,000"),
        ("warmup", 10**9, "from 0 to 1,000,000"),
        ("draws", 10**9, "from 4 to 1,000,000"),
        ("max-treedepth", 1000, "from 1 to 30"),
        ("threads", 10**6, "from 1 to 1,000"),
    ],
)
def test_settings_of_the_sampler(folder, option, value, message):
    flags = options(folder, **{option: value})
    assert message in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "punycode", "undefined"])
def test_an_encoding_that_does_not_fit(folder, encoding):
    flags = options(folder, encoding=encoding)
    assert encoding in refused(folder, "synthesize", folder / "data.csv", *flags)
    more = ("--records", folder / "data.csv", "--encoding", encoding)
    assert encoding in refused(folder, "schema", "check", folder / "schema.toml", *more)


KEPT = ["y ~ nope", "", "y ~ I(__import__('os'))", "y", "~", "y ~ y", "y ~ (1|sex)", "nope ~ y"]


@pytest.mark.parametrize("formula", KEPT)
def test_a_check_of_a_schema_reads_what_is_kept(folder, formula):
    text = (folder / "schema.toml").read_text()
    (folder / "schema.toml").write_text(f'keep = ["{formula}"]\n{text}')
    said = refused(folder, "schema", "check", folder / "schema.toml")
    plain = dict.fromkeys(("formula", "family", "warmup", "draws", "mechanism"))
    flags = options(folder, **plain)
    assert said in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize("share", ["5e-324", "1e-300", "0", "1", "nan"])
def test_a_share_for_noisy_rows(folder, share):
    text = (folder / "schema.toml").read_text()
    (folder / "schema.toml").write_text(f"rows = {{noisy = {share}}}\n{text}")
    assert "must lie in [1e-06, 1)" in refused(folder, "schema", "check", folder / "schema.toml")


@pytest.mark.parametrize("prior", ["intercept = [1e308, 1e308]", "coefficient = 5e-324"])
def test_priors_whose_squares_are_no_numbers(folder, prior):
    (folder / "priors.toml").write_text(prior)
    flags = options(folder, priors=folder / "priors.toml")
    said = refused(folder, "synthesize", folder / "data.csv", *flags)
    assert "finite number(s) up to 1e+06" in said


@pytest.mark.parametrize("command", ["plan", "tune"])
def test_confidential_reference_records(folder, command):
    """Those of a release are never what settings are chosen on."""
    (folder / "out" / "confidential").mkdir(parents=True)
    kept = shutil.copy(folder / "data.csv", folder / "out" / "confidential")
    words = {
        "plan": ("plan", folder / "schema.toml", "--rows", 50),
        "tune": ("tune", "--schema", folder / "schema.toml", "--formula", "y ~ 1", "--family",
                 "beta", "--target-epsilon", 3, "--out", folder / "w.json"),
    }  # fmt: skip
    said = refused(folder, *words[command], "--reference", kept)
    assert "lies in a folder 'confidential'" in said
    assert not (folder / "w.json").exists()


def test_runs(folder):
    plan = ("plan", folder / "schema.toml", "--rows", 50, "--runs", 10**9)
    assert "runs = 1000000000 must be a whole number, from 1 to 1,000" in refused(folder, *plan)
    audit = ("audit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1)
    said = refused(folder, *audit, "--mechanism", "multinomial-dirichlet", "--runs", 10**12)
    assert "must be from 20 to 100,000 a side" in said


def test_tune_with_dates(folder):
    """They stand in the file as text, and fit the same schema again."""
    text = (folder / "schema.toml").read_text()
    day = '[columns.day]\ntype = "date"\nlower = "2020-01-01"\nupper = "2020-12-31"\n'
    (folder / "schema.toml").write_text(text + day)
    data = records().assign(day="2020-02-03")
    data.to_csv(folder / "reference.csv", index=False)
    out = folder / "weights.json"
    model = ("--schema", folder / "schema.toml", "--formula", "y ~ 1", "--family", "beta")
    done = dpbayes(
        "tune", "--reference", folder / "reference.csv", *model, "--target-epsilon", 3, "--out", out
    )
    assert done.returncode == 0, done.stderr
    schema = dpb.Schema.from_toml(folder / "schema.toml")
    model = dpb.Regression("y ~ 1", "beta").on(schema)
    dpb.Reference.load(out).check(model.identity())


def test_tune_where_rows_are_noisy(folder):
    """The number of reference records is public, whatever is declared of the records."""
    schema = folder / "of_one.toml"
    schema.write_text(
        'rows = "noisy"\n[columns.y]\ntype = "continuous"\nlower = 0.0\nupper = 40.0\n'
    )
    records().to_csv(folder / "reference.csv", index=False)
    model = ("--schema", schema, "--formula", "y ~ 1", "--family", "beta")
    done = dpbayes(
        "tune", "--reference", folder / "reference.csv", *model, "--target-epsilon", 3,
        "--out", folder / "weights.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["folder", "dangling", "loop", "pipe.csv", "x" * 300])
def test_what_is_no_file(folder, name):
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe.csv")
    assert "data file" in refused(folder, "synthesize", folder / name, *options(folder))


@pytest.mark.parametrize(("mask", "modes"), [(0o000, (0o755, 0o644)), (0o077, (0o700, 0o600))])
def test_modes_of_a_release(folder, mask, modes):
    plain = dict.fromkeys(("formula", "family", "warmup", "draws", "mechanism"))
    before = os.umask(mask)
    try:
        done = dpbayes("synthesize", folder / "data.csv", *options(folder, **plain))
        assert dpbayes("report", folder / "out").returncode == 0
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    for path in (folder / "out").rglob("*"):
        hidden = "confidential" in path.parts
        wanted = (0o700, 0o600) if hidden else modes
        assert path.stat().st_mode & 0o777 == wanted[path.is_file()], path
    assert (folder / "out").stat().st_mode & 0o777 == modes[0]


def test_memory_that_is_not_there(folder, monkeypatch):
    def read(*_, **__):
        raise MemoryError

    monkeypatch.setattr("dpbayes.cli.options.read_records", read)
    said = refused(folder, "synthesize", folder / "data.csv", *options(folder))
    assert said == "error: there is not enough memory for this.\n"


def test_programs_and_schemas_without_anything_in_them(folder):
    without = GOOD.replace("  real mu;\n", "").replace("  mu ~ normal(0, 2);\n", "")
    (folder / "empty.stan").write_text(without.replace("mu", "0"))
    (folder / "data.json").write_text('{"n": 2, "y": [0.1, 0.2]}')
    data = ("--data", folder / "data.json")
    assert "no parameters" in refused(folder, "check", folder / "empty.stan", *data)
    (folder / "ids.toml").write_text('[columns.person]\ntype = "identifier"\n')
    assert "no column but identifiers" in refused(folder, "plan", folder / "ids.toml", "--rows", 20)


def test_a_schema_of_more_cells_than_a_number_holds(folder):
    columns = (f'[columns.c{i}]\ntype = "count"\nupper = 9999\n' for i in range(90))
    (folder / "wide.toml").write_text("".join(columns))
    where = ("plan", folder / "wide.toml", "--rows", 20, "--runs", 1, "--total-epsilon", 1)
    done = dpbayes(*where)
    assert "Traceback" not in done.stderr


def test_tabs_in_a_schema_are_read(folder):
    text = (folder / "schema.toml").read_text().replace("[columns", "\t[columns")
    (folder / "schema.toml").write_text(text.replace(" = ", "\t=\t"))
    done = dpbayes("schema", "confirm", folder / "schema.toml")
    assert done.returncode == 0, done.stderr


def test_a_family_with_a_setting_of_thousands_of_digits(folder):
    flags = options(folder, family=f"mixture(components = {'9' * 5000})")
    assert "settings are written" in refused(folder, "synthesize", folder / "data.csv", *flags)


@pytest.mark.parametrize("knots", ["5", '"a"', '""', "-1"])
@pytest.mark.parametrize("name", ["bs", "cr"])
def test_knots_that_are_no_list(name, knots):
    schema = dpb.Schema.from_dict(
        {"columns": {"x": {"type": "count", "upper": 9, "public": True}, "y": {"type": "binary"}}}
    )
    formula = f"y ~ {name}(x, knots={knots}, lower=0, upper=9)"
    with pytest.raises(dpb.SchemaError, match="knots must be a list"):
        dpb.Regression(formula, "bernoulli").on(schema)
    with pytest.raises(InferenceError, match="knots must be a list"):
        formula_fit(formula)(pd.DataFrame({"x": range(9), "y": [0, 1, 0] * 3}))


def test_a_constant_that_is_no_number_warns_of_nothing():
    schema = dpb.Schema.from_dict(
        {"columns": {"x": {"type": "count", "upper": 9, "public": True}, "y": {"type": "binary"}}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dpb.SchemaError, match="is not a finite number"):
            dpb.Regression("y ~ poly(x, 1 / 0)", "bernoulli").on(schema)


def test_a_database_that_cannot_be_read():
    with pytest.raises(dpb.core.errors.DataError, match="Input/output error"):
        dpb.read_records("sqlite:////proc/self/mem", query="people")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (
                "risk",
                "{d}",
                "--records",
                "{d}",
                "--schema",
                "{s}",
                "--keys",
                "sex",
                "--delta",
                "0.1",
            ),
            "--delta belongs to",
        ),
        (
            ("report", ".", "--records", "{d}", "--schema", "{s}", "--sensitive", "y"),
            "needs --keys",
        ),
        (("plan", "{s}", "--rows", "9", "--datasets", "0"), "--datasets = 0 must be"),
        (("plan", "{s}", "--rows", "9", "--delta", "nan"), "delta"),
        (("plan", "{s}", "--rows", "9", "--encoding", "nope"), "need --reference"),
        (
            ("ledger", "create", "sqlite:///:memory:", "--account", "a", "--epsilon", "1"),
            "in-memory",
        ),
        (("ledger", "show", "{d}"), "is no ledger"),
    ],
)
def test_options_that_would_be_ignored(folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    named = {"d": folder / "data.csv", "s": folder / "schema.toml"}
    assert message in refused(folder, *(a.format(**named) for a in arguments))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zip"])
def test_what_is_not_packed_is_not_unpacked(folder, ending):
    path = folder / f"data.csv{ending}"
    path.write_bytes((folder / "data.csv").read_bytes())
    assert "is not packed" in refused(folder, "schema", "draft", path)


def test_a_mark_at_the_start_of_a_schema_is_read(folder):
    text = (folder / "schema.toml").read_text()
    (folder / "marked.toml").write_text(text, encoding="utf-8-sig")
    assert dpb.Schema.from_toml(folder / "marked.toml") == dpb.Schema.from_toml(
        folder / "schema.toml"
    )


def test_an_entry_of_no_account(folder):
    """A ledger in which somebody has changed the number of an entry's account: it paid nothing."""
    where = folder / "l.db"
    assert dpbayes("ledger", "create", where, "--account", "a", "--epsilon", 9).returncode == 0
    flags = options(folder, mechanism="laplace", formula=None, family=None, warmup=None, draws=None)
    flags += ["--set", "bins=2", "--ledger", where, "--account", "a"]
    assert dpbayes("synthesize", folder / "data.csv", *flags).returncode == 0
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE entry SET dataset_id = 99")
    assert "an entry belongs to no account" in refused(folder, "ledger", "show", where)


def test_names_that_are_no_utf_8(folder):
    """A folder with such a name is refused, a note is kept as it can be written."""
    where = folder / "l.db"
    assert dpbayes("ledger", "create", where, "--account", "a", "--epsilon", 9).returncode == 0
    flags = options(folder, mechanism="laplace", formula=None, family=None, warmup=None, draws=None)
    flags += ["--set", "bins=2", "--ledger", where, "--account", "a"]
    wrong = [folder / "o\udcff" if flag == folder / "out" else flag for flag in flags]
    assert "not UTF-8" in refused(folder, "synthesize", folder / "data.csv", *wrong)
    done = dpbayes("synthesize", folder / "data.csv", *flags, "--note", "n\udcff")
    assert done.returncode == 0, done.stderr
    assert "n\\udcff" in dpbayes("ledger", "history", where).stdout
