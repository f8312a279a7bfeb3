"""Every command once, in this process and with tiny settings: the main job from end to end."""

import ast
import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import typer

import dpbayes as dpb
from dpbayes.app.site import Site
from dpbayes.cli.app import app
from dpbayes.demo import run as demo
from tests.cli.command import options, records
from tests.cli.in_process import dpbayes
from tests.programs import GOOD

TINY = {"warmup": 100, "draws": 50, "chains": 2}


def commands(group, *path):
    """Names of all commands, with those of groups."""
    for name, one in typer.main.get_group(group).commands.items():
        if hasattr(one, "commands"):
            yield from ((*path, name, inner) for inner in one.commands)
        else:
            yield (*path, name)


@pytest.fixture
def run(folder):
    """``run(*words)``: what a command that went well said."""

    def run(*words, code=0):
        done = dpbayes(*words, cwd=folder)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


@pytest.mark.usefixtures("short_tuning")
def test_the_main_job(run, folder):
    """Reference, weights, budget, release, account, analysis."""
    records(300).iloc[150:].to_csv(folder / "old.csv", index=False)
    model = ("--schema", "schema.toml", "--formula", "y ~ age", "--family", "beta")
    said = run("tune", "--reference", "old.csv", *model, "--target-epsilon", 20,
               "--out", "weights.json", "--seed", 1)  # fmt: skip
    assert "Written: weights.json" in said
    said = run("ledger", "create", "ledger.db", "--account", "cps", "--epsilon", 5)
    assert "5" in said
    flags = options(folder, formula="y ~ age", mechanism="anchored", epsilon=1, datasets=2,
                    anchor="weights.json", ledger="ledger.db", account="cps", **TINY)  # fmt: skip
    said = run("synthesize", "data.csv", *flags, "--allow-nonconvergence")
    assert "one more or less is ε = 2." in said
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert (statement["epsilon"], statement["datasets"]) == (2, 2)
    assert "anchored" in run("ledger", "history", "ledger.db")
    shown = run("ledger", "show", "ledger.db").splitlines()[1].split()
    assert shown[:6] == ["cps", "add-remove", "5", "0", "2", "3"]
    said = run("combine", folder / "out" / "release", "--formula", "y ~ age")
    assert "2 data sets by 'anchored'" in said


def test_keeping_a_ledger(run, folder):
    run("ledger", "create", "ledger.db", "--account", "cps", "--epsilon", 5)
    assert "No entry is unfinished." in run("ledger", "resolve", "ledger.db")
    pd.read_csv(folder / "data.csv").iloc[1:].to_csv(folder / "corrected.csv", index=False)
    run("ledger", "create", "ledger.db", "--account", "panel", "--epsilon", 5)
    accept = ("--schema", "schema.toml", "--account")
    assert "cps" in run("ledger", "accept", "ledger.db", "data.csv", *accept, "cps")
    said = run("ledger", "accept", "ledger.db", "corrected.csv", *accept, "panel")
    assert "Common records with other data sets: 100% with 'cps'." in said


def test_looking_at_a_mechanism(run, folder):
    (folder / "schema.toml").write_text('[columns.ill]\ntype = "binary"\nlevels = ["no", "yes"]\n')
    model = ("--schema", "schema.toml", "--formula", "ill ~ 1", "--family", "bernoulli")
    run("ledger", "create", "ledger.db", "--account", "cps", "--epsilon", 5)
    said = run("audit", "data.csv", *model, "--mechanism", "censored", "--epsilon", 1,
               "--candidates", 6, "--ledger", "ledger.db", "--account", "cps")  # fmt: skip
    assert "not exceeded" in said
    assert "audit" in run("ledger", "history", "ledger.db")
    shown = run("ledger", "show", "ledger.db").splitlines()[1].split()
    assert shown[:6] == ["cps", "add-remove", "5", "0", "0", "5"]
    (folder / "mine.stan").write_text(GOOD)
    (folder / "made_up.json").write_text(json.dumps({"n": 4, "y": [0.1, 0.5, -0.3, 1.2]}))
    said = run("check", "mine.stan", "--data", "made_up.json")
    assert "mine.stan keeps the contract at" in said


def test_looking_at_a_synthetic_table(run, folder):
    records(60).to_csv(folder / "made.csv", index=False)
    where = ("--records", "data.csv", "--schema", "schema.toml")
    said = run("risk", "made.csv", *where, "--keys", "age,sex", "--sensitive", "ill")
    assert "correct attribution of ill" in said
    said = run("utility", "made.csv", *where)
    assert "pMSE ratio" in said
    claim = dpb.Censored(1).guarantee().to_json()
    for part in ("release", "confidential"):
        (folder / "out" / part).mkdir(parents=True)
    (folder / "out/release/guarantee.json").write_text(claim)
    shutil.copy(folder / "made.csv", folder / "out/release/synthetic_1.csv")
    said = run("report", "out")
    assert "Written: out/confidential/report.html and out/release/report.html" in said


def test_a_job_by_score(run, folder):
    """Its release has a posterior beside the data, and a report and an analysis take it."""
    flags = options(folder, mechanism="score", epsilon=3, datasets=3, warmup=149, draws=250)
    assert "\nConfidential: scores:" in run("synthesize", folder / "data.csv", *flags)
    assert (folder / "out/release/posterior.csv").exists()
    assert "Written:" in run("report", folder / "out")
    assert "reiter2002" in run("combine", folder / "out/release", "--formula", "y ~ age")


def test_looking_around(run, monkeypatch):
    records, schema = demo.earnings()
    monkeypatch.setattr(demo, "earnings", lambda: (records.iloc[::4], schema))
    assert "censored-weighted" in run("list")
    assert "asymptotic" in run("demo", "--quick")


def test_planning(run, folder):
    """Nothing confidential is read: no record is given."""
    model = ("--formula", "y ~ age", "--family", "normal", "--total-epsilon", 2, "--runs", 1)
    # Of few records `score` itself says that anchored is nearer to a fit.
    for rows, best in ((60, "anchored"), (600, "score")):
        said = run("plan", "schema.toml", "--rows", rows, *model)
        assert "ε = 2: take " in said
        assert f"ε = 2, with the model: take {best}." in said
    more = ("--mechanism", "laplace", "--set", "bins=60", "--total-epsilon", 2, "--datasets", 4)
    said = run("synthesize", "data.csv", "--schema", "schema.toml", *more, "--out", "planned")
    assert "ε = 0.5 for each data set, 2 in all." in said
    assert "warning: The full cross-tabulation has" in said


def test_the_page(run, folder, monkeypatch):
    monkeypatch.setattr(Site, "deserted", True)
    assert "Open http://127.0.0.1:" in run("app", "data.csv", "--work", "made", "--separator", ",")
    assert (folder / "made" / "records.txt").read_text() == str(folder / "data.csv")


def test_writing_a_schema(run, monkeypatch):
    run("schema", "draft", "data.csv", "--out", "draft.toml")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # nothing is typed
    assert "columns have guesses left" in run("schema", "confirm", "draft.toml")
    assert "Nothing in it is marked" in run("schema", "check", "schema.toml")
    assert json.loads(run("schema", "json"))["title"] == "Schema of dpbayes"


def test_no_command_is_left_out():
    """Every one is the beginning of a call of ``run`` in this file."""
    calls = [
        [word.value for word in node.args[:2] if isinstance(word, ast.Constant)]
        for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "run"
    ]
    for command in commands(app):
        assert any(tuple(words[: len(command)]) == command for words in calls), command
