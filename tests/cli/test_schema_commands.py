"""From a stranger's file to a release: draft, confirm, release in the format that came in."""

import json
import re
import stat

import jsonschema
import numpy as np
import pandas as pd
import pyreadstat
import pytest

import dpbayes as dpb
from tests.cli.command import dpbayes as typing
from tests.cli.in_process import dpbayes

SECRET = "Zq7-Wx9"
LABELS = {"health": {1: "bad", 2: "fair", 3: "good"}, "sex": {1: "male", 2: "female"}}


@pytest.fixture
def survey(tmp_path):
    """A Stata file with labels, a name in each row, and its draft with all confirmed."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "income": rng.integers(0, 5000, 60) / 10,
            "health": rng.choice([1.0, 2.0, 3.0], 60),
            "sex": rng.choice([1.0, 2.0], 60),
            "name": [f"{SECRET}{k}" for k in range(60)],
        }
    )
    pyreadstat.write_dta(frame, tmp_path / "survey.dta", variable_value_labels=LABELS)
    return tmp_path


def confirm(folder):
    path = folder / "survey.toml"
    path.write_text(re.sub("^guessed = .*$", "", path.read_text(), flags=re.MULTILINE))


RELEASE = (
    "synthesize", "survey.dta", "--schema", "survey.toml", "--mechanism", "laplace", "--epsilon", 1,
    "--out", "web", "--format", "same",
)  # fmt: skip


def test_from_a_file_to_a_release(survey):
    done = dpbayes("schema", "draft", "survey.dta", cwd=survey)
    assert done.returncode == 0, done.stderr
    assert "Left out, with the reason in the file: 1 of" in done.stdout
    assert "'name'" not in done.stdout  # it may be a record's
    assert SECRET not in done.stdout
    assert stat.S_IMODE((survey / "survey.toml").stat().st_mode) == 0o600

    refused = dpbayes(*RELEASE, cwd=survey)
    assert refused.returncode == 2
    assert "guesses left: column 'income': type, lower, upper, digits; column 'health'" in (
        refused.stderr
    )
    left = dpbayes("schema", "check", "survey.toml", "--records", "survey.dta", cwd=survey)
    assert left.returncode == 2
    assert "The records fit the schema." in left.stdout
    assert "guesses left" in left.stderr
    assert not (survey / "web").exists()

    confirm(survey)
    assert dpbayes("schema", "check", "survey.toml", cwd=survey).returncode == 0
    done = dpbayes(*RELEASE, cwd=survey)
    assert done.returncode == 0, done.stderr
    assert "Read survey.dta: Stata, 4 columns, value labels in 2 of them." in done.stdout
    assert "Not in the schema, and left out: 'name'." in done.stdout
    released = survey / "web" / "release"
    assert sorted(path.name for path in released.iterdir()) == ["guarantee.json", "synthetic_1.dta"]
    synthetic, meta = pyreadstat.read_dta(released / "synthetic_1.dta")
    assert meta.variable_value_labels["health"] == LABELS["health"]
    assert list(synthetic) == ["income", "health", "sex"]
    statement = (released / "guarantee.json").read_text()
    for word in ("Stata", "survey.dta", "latin", "UTF"):
        assert word not in statement, "how the records came in is not released"
    assert list(json.loads(statement)["files"]) == ["synthetic_1.dta"]
    for command in ("utility", "risk"):
        more = ("--keys", "sex") if command == "risk" else ()
        done = dpbayes(
            command, released / "synthetic_1.dta", "--records", "survey.dta", "--schema",
            "survey.toml", *more, cwd=survey,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    done = dpbayes("combine", released, "--formula", "income ~ C(sex)", cwd=survey)
    assert "there is one data set: " in done.stderr, "it was read"


def test_guesses_are_confirmed_in_the_terminal(tmp_path):
    ages = "\n".join(f"{k % 50},{'fm'[k % 2]}" for k in range(60))
    (tmp_path / "p.csv").write_text(f"age,sex\n{ages}\n")
    assert dpbayes("schema", "draft", "p.csv", cwd=tmp_path).returncode == 0

    def answers(*lines):
        text = "".join(f"{line}\n" for line in lines)
        done = typing("schema", "confirm", "p.toml", cwd=tmp_path, typed=text)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = answers("uper", "lower = 90", "upper = 120", "law of 1999", "type lower", "", "quit")
    assert "'uper' is no guess; guesses are type, lower, upper" in said
    assert "`later` goes on to the next" in answers("", "quit")
    assert "lower" in said
    assert "1 columns have guesses left" in said
    schema = dpb.Schema.from_toml(tmp_path / "p.toml")
    assert (schema["age"].lower, schema["age"].upper, schema["age"].guessed) == (0, 120, ())
    assert "upper = 120  # law of 1999\n" in (tmp_path / "p.toml").read_text()
    assert "1 columns have guesses left" in answers("later")
    confirmed = (tmp_path / "p.toml").read_text()
    assert "0 columns have guesses left" in answers("leave out")
    assert list(dpb.Schema.from_toml(tmp_path / "p.toml").columns) == ["age"]
    assert "# [columns.sex] left out\n" in (tmp_path / "p.toml").read_text()
    (tmp_path / "p.toml").write_text(confirmed)
    said = answers("all", "form A")
    assert "0 columns have guesses left" in said
    assert "says nothing of title, publisher, unit_of_record, rows, rules, keep, cluster" in said
    assert (tmp_path / "p.toml").stat().st_mode & 0o777 == 0o600
    assert dpbayes("schema", "check", "p.toml", cwd=tmp_path).returncode == 0


def test_a_draft_of_a_file_that_is_not_what_it_seems(tmp_path):
    (tmp_path / "names.csv").write_text("a,b\n")
    (tmp_path / "bare.csv").write_text("a,55,48980.63\nb,44,3.2\nc,33,1.5\n")
    empty = dpbayes("schema", "draft", "names.csv", cwd=tmp_path)
    assert empty.returncode == 2
    assert "the records have no row" in empty.stderr
    assert not (tmp_path / "names.toml").exists()
    bare = dpbayes("schema", "draft", "bare.csv", cwd=tmp_path)
    assert bare.returncode == 0
    assert "2 rows only" in bare.stdout + bare.stderr
    assert "if the file has no line of names, its first record was taken" in (
        bare.stdout + bare.stderr
    )
    assert "48980" not in bare.stdout + bare.stderr


def test_a_ledger_knows_the_records_in_another_format(survey):
    dpbayes("schema", "draft", "survey.dta", cwd=survey)
    confirm(survey)
    dpbayes("ledger", "create", "l.db", "--account", "a", "--epsilon", 5, cwd=survey)
    dpb.Ledger(str(survey / "l.db")).add_dataset("b", 5.0)
    account = ("--ledger", "l.db", "--account")
    assert dpbayes(*RELEASE, *account, "a", cwd=survey).returncode == 0
    schema = dpb.Schema.from_toml(survey / "survey.toml")
    read = dpb.read_records(survey / "survey.dta", schema)
    read.sample(frac=1, random_state=1).to_csv(survey / "survey.csv", sep=";", decimal=",")
    other = ("synthesize", "survey.csv", *RELEASE[2:-4], "--out", "again", *account)
    refused = dpbayes(*other, "b", cwd=survey)
    assert refused.returncode == 2
    assert "those of data set 'a'" in refused.stderr or "overlap" in refused.stderr
    done = dpbayes(*other, "a", cwd=survey)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("schema", "draft", "none.csv"), "'none.csv' does not exist"),
        (("schema", "draft", "survey.rds", "--out", "x"), "write_parquet"),
        (("schema", "draft", "survey.dta", "--out", "survey.dta"), "exists; name a new file"),
        (
            ("schema", "draft", "survey.dta", "--out", "x", "--sheet", "x"),
            "--sheet) is not for Stata files",
        ),
        (("schema", "draft", "survey.dta", "--out", "no/x.toml"), "No schema was written"),
        (("schema", "check", "none.toml"), "does not exist"),
        ((*RELEASE[:-1], "excel"), "written as one of csv, parquet, feather, stata, spss"),
        ((*RELEASE, "--decimal", ","), "--decimal) is not for Stata files"),
    ],
)
def test_what_is_refused(arguments, message, survey):
    (survey / "survey.rds").write_text("x")
    (survey / "survey.toml").write_text('[columns.income]\ntype="count"\nupper=9\n')
    done = dpbayes(*arguments, cwd=survey)
    assert done.returncode == 2
    assert message in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not (survey / "web").exists()


def test_a_database(survey):
    import sqlite3

    frame, _ = pyreadstat.read_dta(survey / "survey.dta")
    with sqlite3.connect(survey / "s.db") as connection:
        frame.to_sql("people", connection, index=False)
    query = ("--query", "people")
    done = dpbayes("schema", "draft", "sqlite:///s.db", *query, cwd=survey)
    assert done.returncode == 0, done.stderr
    assert "Read sqlite://...: SQL, 4 columns, database (sqlite)." in done.stdout
    assert (survey / "records.toml").exists()
    done = dpbayes("schema", "draft", "sqlite:///s.db", "--query", "nobody", "--out", "n.toml",
                   cwd=survey)  # fmt: skip
    assert done.returncode == 2
    assert "no such table" not in done.stderr


MODELLED = """
[columns.income]
type = "count"
upper = 9
[[model]]
formula = "income ~ 1"
"""
CLUSTERED = """
cluster = {column = "person", most = 2}
[columns.person]
type = "identifier"
[columns.income]
type = "count"
upper = 9
"""


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (MODELLED, "needs either family or program"),
        (MODELLED + 'family = "bernoulli"\n', "binary"),
        (MODELLED.replace("~ 1", "~ rent") + 'family = "poisson"\n', "'rent'"),
        (
            'rules = ["income > 5", "income < 4"]' + MODELLED.partition("[[")[0],
            "no row was found that keeps the rules of the schema",
        ),
        ('[columns.person]\ntype = "identifier"\n', "declares no column to synthesise"),
        (
            '[columns.day]\ntype = "date"\nlower = "01/02/20"\nupper = "01/02/21"\nformat = "%x"\n',
            "%x is another one on another",
        ),
        (
            '[columns.day]\ntype = "date"\nlower = 2020-01-01\nupper = 2021-01-01\nformat = ""\n',
            "must say year, month and day",
        ),
        (CLUSTERED, "1 have more than the declared 2 records"),
    ],
)
def test_a_check_refuses_what_a_synthesis_refuses(schema, message, tmp_path):
    (tmp_path / "s.toml").write_text(schema)
    (tmp_path / "r.csv").write_text("person,income\n1,2\n1,3\n1,4\n2,5\n")
    done = dpbayes("schema", "check", "s.toml", "--records", "r.csv", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr


def test_json_for_editors(survey):
    done = dpbayes("schema", "json", cwd=survey)
    jsonschema.Draft202012Validator.check_schema(json.loads(done.stdout))


def test_a_draft_says_that_rows_may_be_of_one_person(tmp_path):
    """Otherwise ε is for a row, and nobody was told."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"id": np.repeat(np.arange(100), 4), "wave": np.tile(np.arange(4), 100),
         "visits": rng.integers(0, 30, 400)}
    )  # fmt: skip
    frame.to_csv(tmp_path / "panel.csv", index=False)
    said = dpbayes("schema", "draft", "panel.csv", cwd=tmp_path)
    assert "Several rows may be of one person: fill in [cluster]" in said.stdout
    frame.drop(columns="id").to_csv(tmp_path / "plain.csv", index=False)
    assert "[cluster]" not in dpbayes("schema", "draft", "plain.csv", cwd=tmp_path).stdout
