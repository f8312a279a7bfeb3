"""A synthetic table beside the records, from the shell."""

import json
import math

import pytest

from tests.cli.command import records
from tests.cli.in_process import dpbayes

KEYS = ("--keys", "age,sex")


@pytest.fixture
def look(folder):
    """``look(command, *words)`` on a synthetic table whose statement says ε = 2 or 3."""
    release = folder / "release"
    release.mkdir()
    records(60).to_csv(release / "synthetic_1.csv", index=False)
    statement = {
        "epsilon": 2.0, "epsilon_substitution": 3.0, "delta": 0.0, "holds_for": "substitution",
        "basis": "strict",
    }  # fmt: skip
    (release / "guarantee.json").write_text(json.dumps(statement))
    where = ("--records", "data.csv", "--schema", "schema.toml")

    def run(command, *words):
        return dpbayes(command, "release/synthetic_1.csv", *where, *words, cwd=folder)

    return run


def cell(done, measure):
    """The last number of a row."""
    (line,) = (one for one in done.stdout.splitlines() if one.strip().startswith(measure))
    return float(line.split()[-1])


def test_bounds_are_those_of_the_statement(look):
    done = look("risk", *KEYS, "--holdout", "data.csv")
    assert done.returncode == 0, done.stderr
    assert "Confidential: computed from the records." in done.stdout
    assert cell(done, "odds of a statement") == pytest.approx(math.exp(3), rel=1e-3)
    assert cell(done, "membership, AUC") == pytest.approx(1 / (1 + math.exp(-3)), rel=1e-3)
    given = look("risk", *KEYS, "--epsilon", 1)
    assert cell(given, "odds of a statement") == pytest.approx(math.e, rel=1e-3)


def test_without_a_strict_claim_there_is_no_bound(look, folder):
    statement = {"epsilon": None, "epsilon_substitution": None, "delta": 0.0,
                 "holds_for": "substitution", "basis": "none"}  # fmt: skip
    (folder / "release" / "guarantee.json").write_text(json.dumps(statement))
    assert "odds" not in look("risk", *KEYS).stdout
    (folder / "release" / "guarantee.json").unlink()
    assert "odds" not in look("risk", *KEYS).stdout


def test_a_number_is_guessed_with_an_error(look):
    done = look("risk", *KEYS, "--sensitive", "y")
    assert "error of y" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keys", "agee"), "column 'agee' is not declared"),
        (("--keys", ","), "must be columns other than the sensitive one"),
        (("--keys", "age", "--sensitive", "age"), "other than the sensitive one"),
        (("--keys", "age", "--epsilon", "-1"), "epsilon = -1.0 must be a number above 0"),
        (("--keys", "age", "--epsilon", "1", "--delta", "2"), "delta = 2.0 must lie in"),
        (("--keys", "age", "--holdout", "none.csv"), "'none.csv' does not exist"),
    ],
)
def test_bad_words(look, words, message):
    done = look("risk", *words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_a_statement_that_is_none(look, folder):
    (folder / "release" / "guarantee.json").write_text("[1]")
    done = look("risk", *KEYS)
    assert done.returncode == 2
    assert "is no statement of a release" in " ".join(done.stderr.split())
    (folder / "release" / "synthetic_1.csv").write_text("y,age,sex,ill\n")
    assert "no rows" in look("utility").stderr


def test_figures_are_written_for_their_owner_alone(look, folder):
    done = look("risk", *KEYS, "--figure", "risk.pdf")
    assert done.returncode == 0, done.stderr
    assert (folder / "risk.pdf").read_bytes().startswith(b"%PDF")
    done = look("utility", "--figure", "pairs.png", "--formula", "y ~ age")
    assert done.returncode == 0, done.stderr
    assert (folder / "pairs.png").stat().st_mode & 0o077 == 0
    assert "interval overlap" in done.stdout
    assert cell(done, "pMSE ratio, classification tree") > 0


def test_contingency_tables(look, folder):
    (folder / "data.csv").write_text(
        "y,age,sex,ill\n.1,20,f,no\n.2,21,f,no\n.3,20,m,yes\n.9,50,m,no\n"
    )
    (folder / "release" / "synthetic_1.csv").write_text("y,age,sex,ill\n.1,20,f,yes\n.9,20,m,no\n")
    done = look("utility", "--table", "sex,ill", "--table", "sex")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["f", "no", "50", "0", "-50"] in lines
    assert ["m", "yes", "25", "0", "-25"] in lines
    assert ["f", "50", "50", "0"] in lines
    assert "36 to 60" in look("utility", "--table", "age").stdout
    for words, message in (("sexx", "'sexx' is not declared"), ("sex,sex", "different columns")):
        done = look("utility", "--table", words)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


def test_a_figure_of_no_known_kind_or_place(look):
    done = look("utility", "--figure", "pairs.gif")
    assert done.returncode == 2
    assert "must end in png, pdf, svg" in " ".join(done.stderr.split())
    done = look("risk", *KEYS, "--figure", "no/where.png")
    assert done.returncode == 2
    assert "No such file or directory" in " ".join(done.stderr.split())
    for command in ("risk", "utility"):
        done = look(command, *KEYS[: 2 * (command == "risk")], "--figure", "release/shown.png")
        assert done.returncode == 2
        assert "is inside the release" in " ".join(done.stderr.split())
