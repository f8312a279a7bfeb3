"""Mechanisms without a Stan program, as users run them."""

import json

import numpy as np
import pandas as pd
import pytest

from dpbayes.mechanisms.tables import noisy
from tests.cli.in_process import dpbayes

BINARY = """
[columns.ill]
type = "binary"
levels = ["no", "yes"]
"""


def run(folder, mechanism, *more, epsilon=1.0, schema="schema.toml"):
    return dpbayes(
        "synthesize", folder / "data.csv", "--schema", folder / schema, "--mechanism", mechanism,
        "--epsilon", epsilon, "--out", folder / "out", *more,
    )  # fmt: skip


def stated(folder):
    """The paragraph of a release, which is in its file alone."""
    return json.loads((folder / "out/release/guarantee.json").read_text())["statement"]


def test_a_table_release(folder):
    done = run(folder, "perturbed-histogram", "--set", "bins={y=10, age=4}", "--datasets", 2)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "ε = 2 when one record is changed" in said
    assert "Lipschitz" not in said
    release = folder / "out" / "release"
    data = pd.read_csv(release / "synthetic_2.csv")
    assert list(data.columns) == ["y", "age", "sex", "ill"]
    assert data["y"].between(0, 10).all()
    original = pd.read_csv(folder / "data.csv")
    for public in ("age", "sex"):
        assert sorted(data[public]) == sorted(original[public])
    statement = json.loads((release / "guarantee.json").read_text())
    assert statement["settings"]["cells"] == 4 * 2 * 10 * 2
    assert statement["basis"] == "strict"
    confidential = folder / "out" / "confidential"
    assert {p.name for p in confidential.iterdir()} == {"fit.json", "utility.json", "density.png"}
    assert (confidential.stat().st_mode & 0o777) == 0o700
    utility = json.loads((confidential / "utility.json").read_text())
    assert set(utility) == {"synthetic_1", "synthetic_2"}
    assert set(utility["synthetic_1"]) == {"y", "ill"}


def test_a_ledger_charges_private_draws_by_its_adjacency(folder):
    (folder / "ill.toml").write_text('rows = "public"\n' + BINARY)
    added = dpbayes(
        "ledger", "create", folder / "l.db", "--account", "ill", "--epsilon", 1.5,
        "--adjacency", "substitution",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    more = ("--ledger", folder / "l.db", "--account", "ill", "--datasets", 4)
    model = ("--set", "model=bernoulli", "--set", "nested=4", "--set", "settings={prior=[1, 1]}")
    done = run(folder, "modips", *model, *more, schema="ill.toml")
    assert done.returncode == 0, done.stderr
    assert "has spent ε = 1 of 1.5 (substitution)" in " ".join(done.stdout.split())
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert (statement["draws"], statement["datasets"]) == (1, 4)
    again = dpbayes(
        "synthesize", folder / "data.csv", "--schema", folder / "ill.toml", "--mechanism",
        "beta-binomial", "--epsilon", 1, "--out", folder / "more", *more,
    )  # fmt: skip
    assert again.returncode == 2
    assert "--epsilon 0.125 for 4 data set(s)" in " ".join(again.stderr.split())
    assert not (folder / "more").exists()


def test_modips_with_a_clamped_posterior(folder):
    done = run(
        folder, "modips", "--set", "draw=clamped", "--set", "nested=2", "--formula", "y ~ age",
        "--family", "beta", "--warmup", 300, "--draws", 300, "--datasets", 2, epsilon=4.0,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "ε = 4 when one record is changed" in said
    assert "come from 1 private draw(s)" in stated(folder)


def test_a_family_is_chosen_and_paid_for(folder):
    more = ("--formula", "y ~ age", "--warmup", 300, "--draws", 300, "--choose-epsilon", 0.5)
    done = run(folder, "censored", *more, "--choose-from", "beta,normal", epsilon=6)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Chosen program: " in said
    assert "ε = 6.5 when one record is changed" in said
    assert "0.25 (add/remove) is paid once, for the choice of a program" in stated(folder)
    for wrong, message in (
        (("--family", "beta"), "--choose-from stands in place of --family"),
        ((), "a choice needs at least two"),
    ):
        others = ("--choose-from", "beta", "--out", folder / "other")
        done = run(folder, "censored", *more, *others, *wrong, epsilon=6)
        assert done.returncode == 2
        assert message in done.stderr
        assert not (folder / "other").exists()


@pytest.mark.parametrize(
    ("mechanism", "more", "message"),
    [
        ("laplace", ["--formula", "y ~ age"], "leave out --formula"),
        ("laplace", ["--engine", "candidates"], "leave out --engine"),
        ("laplace", ["--warmup", 1], "leave out --warmup"),
        ("laplace", ["--set", "bins"], "expected NAME=VALUE"),
        ("laplace", ["--set", "bin=4"], "does not use bin; it takes epsilon, adjacency, bins"),
        ("laplace", ["--set", "bins=scott"], "needs a public standard deviation of column 'y'"),
        ("laplace", ["--set", "epsilon=2"], "epsilon is given twice"),
        ("laplace", ["--window", "negative"], "does not use window"),
        ("modips", ["--set", "weights=[0.5, 0.6]"], "sum to 1; they sum to 1.1"),
        ("beta-binomial", [], "one confidential column of type binary; found 'y' (continuous)"),
        ("censored", [], "needs a model: a --formula with a --family"),
        ("censored", ["--choose-epsilon", 1], "go together"),
        ("laplace", ["--choose-from", "a,b", "--choose-epsilon", 1], "leave out --choose-from"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(folder, mechanism, more, message):
    done = run(folder, mechanism, *more)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()


def test_an_audit_of_tables(folder, monkeypatch):
    (folder / "ill.toml").write_text('rows = "public"\n' + BINARY)
    words = ("audit", folder / "data.csv", "--schema", folder / "ill.toml", "--mechanism",
             "laplace", "--epsilon", 1)  # fmt: skip
    url = folder / "l.db"
    assert dpbayes("ledger", "create", url, "--account", "ill", "--epsilon", 2).returncode == 0
    done = dpbayes(*words, "--ledger", url, "--account", "ill")
    said = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (0, "")
    # Where n is public, one of the two counts has the noise, and a changed record moves it by 1.
    assert "cost up to ε = 0.5 / ε = 0.5 (add/remove / substitution; exact" in said
    assert "claimed 0.5 / 1: not exceeded" in said
    assert "Not seen by this audit: what other neighbours" in said
    assert "Record that did most: ill = " in said
    assert "audit" in dpbayes("ledger", "history", url).stdout
    monkeypatch.setattr(noisy, "noisy_counts", lambda counts, *_: counts)
    done = dpbayes(*words, "--neighbours", 2)
    assert (done.returncode, done.stderr) == (1, "")
    assert "EXCEEDED; private outputs differ" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--candidates", 6], "'laplace' has no Stan program: leave out --candidates"),
        (["--runs", 100], "leave out --candidates and --runs"),
        (["--neighbours", 0], "greater than or equal to 1"),
        (["--formula", "y ~ age"], "leave out --formula"),
    ],
)
def test_bad_audits_of_tables(folder, more, message):
    done = dpbayes(
        "audit", folder / "data.csv", "--schema", folder / "schema.toml", "--mechanism", "laplace",
        "--epsilon", 1, *more,
    )  # fmt: skip
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


SIX = "".join(BINARY.replace("ill", f"c{i}") for i in range(6))


@pytest.fixture
def six(folder):
    """Six columns of two levels: 21 tables, for which Gaussian noise is less at δ = 1e-6."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame({f"c{i}": rng.choice(["no", "yes"], 80) for i in range(6)})
    table.to_csv(folder / "data.csv", index=False)
    (folder / "six.toml").write_text("rows = 80\n" + SIX)
    return folder


def whole(folder, *more, out="out"):
    return dpbayes(
        "synthesize", folder / "data.csv", "--schema", folder / "six.toml", "--epsilon", 1,
        "--out", folder / out, *more,
    )  # fmt: skip


def test_a_whole_table_at_a_delta(six):
    done = whole(six, "--delta", 1e-6, "--datasets", 3)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "ε = 1 when one record is added or removed" in said
    assert "(δ = 1e-06)" in said
    assert "inf" not in said
    said = stated(six)
    assert "It is paid once, for the sanitised distribution, however many data sets" in said
    assert "It is ρ-zCDP (zero-concentrated) with ρ = 0.02436 (add/remove), 0.04872" in said
    text = (six / "out" / "release" / "guarantee.json").read_text()

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    assert (found["delta"], found["composition"], found["datasets"]) == (1e-6, "zCDP", 3)
    assert (found["epsilon_once"], found["epsilon_each"]) == (None, 0.0)
    assert found["rho"] == found["settings"]["rho"] == pytest.approx(0.024355, rel=1e-4)
    assert found["rho_substitution"] == pytest.approx(2 * found["rho"])
    assert found["settings"]["delta"] == 1e-6
    risk = dpbayes(
        "risk", six / "out" / "release" / "synthetic_1.csv", "--records", six / "data.csv",
        "--schema", six / "six.toml", "--keys", "c0,c1", "--sensitive", "c2",
    )  # fmt: skip
    assert risk.returncode == 0, risk.stderr


def test_a_delta_that_buys_nothing_is_not_taken(six):
    """Of few tables; and of a mechanism whose data sets have an epsilon without it."""
    (six / "six.toml").write_text(BINARY.replace("ill", "c0"))
    done = whole(six, "--delta", 1e-6)
    assert done.returncode == 0, done.stderr
    assert "noise is less by pure ε than at δ = 1e-06" in stated(six)
    found = json.loads((six / "out" / "release" / "guarantee.json").read_text())
    assert (found["delta"], found["epsilon"], found["epsilon_once"]) == (0.0, 1.0, 1.0)


def test_a_ledger_pays_for_a_delta_only_at_one(six):
    for account, *delta in (("pure",), ("both", "--delta", 1e-9)):
        dpbayes("ledger", "create", six / "l.db", "--account", account, "--epsilon", 3.5, *delta)
    paid = ("--ledger", six / "l.db", "--account")
    refused = whole(six, "--delta", 1e-6, *paid, "pure")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "is for δ = 0. Leave out --delta." in refused.stderr
    assert not (six / "out" / "release").exists()
    pure = whole(six, *paid, "both", out="a")
    assert pure.returncode == 0, pure.stderr
    done = whole(six, "--delta", 1e-6, *paid, "both", out="b")
    assert done.returncode == 0, done.stderr
    assert "(add-remove) at δ = 1e-09 (mixed: by its part of the budget)" in " ".join(
        done.stdout.split()
    )
    history = dpbayes("ledger", "history", six / "l.db").stdout
    assert "ε = 1" in history
    assert "ρ = 0.02436" in history
    assert "inf" not in history
    assert "inf" not in dpbayes("ledger", "show", six / "l.db").stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--delta", 1e-6, "--set", "delta=1e-9"), "are the same: give one"),
        (("--delta", 2), "delta = 2.0 must lie in (0, 1)"),
        (("--set", "delta=small"), "delta = 'small' must lie in (0, 1)"),
        (("--mechanism", "laplace", "--set", "delta=1e-6"), "'laplace' does not use delta"),
    ],
)
def test_bad_deltas(six, more, words):
    done = whole(six, *more)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_samplers_take_the_delta_of_the_release(six):
    """Of a data set where epsilon is of one, and for the total where it is of a record."""
    found = []
    for more in ((), ("--delta", 1e-6), ("--delta", 1e-6, "--set", "of=record")):
        out = f"out{len(found)}"
        done = whole(six, "--mechanism", "pegs", "--set", "keys=schema", *more, out=out)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((six / out / "release" / "guarantee.json").read_text()))
    pure, whole_set, by_record = found
    assert [one["delta"] for one in found] == [0.0, 1e-6, 1e-6]
    assert whole_set["settings"]["alpha"] < pure["settings"]["alpha"] / 2
    assert pure["epsilon"] == pytest.approx(1.0)
    assert whole_set["epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert (by_record["epsilon_each"], by_record["composition"]) == (80.0, "zCDP")
    assert by_record["epsilon"] < 80
