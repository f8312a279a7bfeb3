"""What is printed, and what becomes of a command whose output nobody can take."""

import json

import pytest

from dpbayes.cli.app import app, options_of, run_command
from dpbayes.cli.streams import spelled
from tests.cli import command
from tests.cli.command import dpbayes, in_shell, options
from tests.programs import GOOD, write

CLOSED = '"$@" | head -c 0; exit ${PIPESTATUS[0]}'
LATE = '"$@" | sleep 0; exit ${PIPESTATUS[0]}'
FULL = '"$@" > /dev/full'
SHUT = '"$@" >&-'


def table(folder, **changes):
    """A release that takes a moment, and no chains."""
    given = {"formula": None, "family": None, "warmup": None, "draws": None, "epsilon": 1}
    return options(folder, **{**given, "mechanism": "laplace", "set": "bins=3", **changes})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (CLOSED, "Broken pipe"),
        (LATE, "Broken pipe"),
        (FULL, "No space left on device"),
        (SHUT, "Bad file descriptor"),
    ],
)
def test_a_release_is_told_on_standard_error_if_standard_output_fails(folder, line, why):
    done = in_shell(line, "synthesize", folder / "data.csv", *table(folder))
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert said == [
        f"Written: {folder / 'out' / 'release'} and {folder / 'out' / 'confidential'}",
        f"warning: standard output: {why}; the rest of the report is lost.",
    ]
    statement = json.loads((folder / "out" / "release" / "guarantee.json").read_text())
    assert statement["epsilon"] == 1
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["confidential", "release"]


@pytest.mark.parametrize("words", [("list",), ("--help",), ("synthesize", "--help")])
def test_commands_that_only_print(words):
    """A reader that has enough is no error; a disk that is full is one."""
    closed = in_shell(CLOSED, *words)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = in_shell(FULL, *words)
    assert full.returncode == 2
    assert full.stderr == "error: standard output: No space left on device.\n"


def test_warnings_of_the_library_are_told_once_each(tmp_path):
    """Without the place in the library that a warning of Python has."""
    drawn = "y_rep = normal_rng(rep_vector(mu, n), 1);", "y_rep = rep_array(sqrt(mu - 1), n);"
    program = write(tmp_path, GOOD.replace(*drawn))
    (tmp_path / "data.csv").write_text("y\n" + "-1.5\n-0.5\n" * 30)
    (tmp_path / "schema.toml").write_text(
        'rows = "public"\n[columns.y]\ntype = "continuous"\nlower = -5\nupper = 5\n'
    )
    changes = {"formula": "y ~ 1", "family": None, "program": program, "datasets": 2}
    done = dpbayes(
        "synthesize", tmp_path / "data.csv", *options(tmp_path, **changes), "--allow-unproved"
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert line.startswith("warning: y_rep of mine.stan is no number in 60 of 60 rows")


def test_errors_that_nobody_hears_keep_their_code(folder):
    arguments = ("synthesize", folder / "data.csv", *table(folder, epsilon=-1))
    for line in ('"$@" 2> /dev/full', '"$@" 2>&-', '"$@" > /dev/full 2>&1'):
        assert in_shell(line, *arguments).returncode == 2


def test_an_audit_keeps_its_verdict(folder):
    """A closed pipe is not an exceeded ε."""
    model = ("--schema", folder / "schema.toml", "--formula", "y ~ 1", "--family", "beta")
    found = in_shell(CLOSED, "audit", folder / "data.csv", *model, "--mechanism", "censored",
                     "--epsilon", 1, "--candidates", 10)  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


NAME = "[/x] [bold]n[/bold] :smile:"


def test_names_are_printed_as_they_are(folder):
    """Rich would read a data set's name, a note or a path as markup."""
    url = folder / "ledger.db"
    made = dpbayes("ledger", "create", url, "--account", NAME, "--epsilon", 4)
    assert made.returncode == 0, made.stderr
    assert f"data set '{NAME}' has spent" in made.stdout
    out = folder / "out [/x]"
    account = {"ledger": url, "account": NAME, "note": f"for {NAME}", "out": out}
    done = dpbayes("synthesize", folder / "data.csv", *table(folder, **account))
    assert done.returncode == 0, done.stderr
    assert f"data set '{NAME}' has spent ε = 1 of 4" in done.stdout
    assert f"Written: {out / 'release'} and {out / 'confidential'}" in done.stdout
    assert NAME in dpbayes("ledger", "show", url).stdout
    assert f"for {NAME}" in dpbayes("ledger", "history", url).stdout
    unfinished = dpbayes("ledger", "show", url, "--account", f"{NAME}?")
    assert unfinished.returncode == 2
    assert NAME in unfinished.stderr


def test_a_fault_of_the_program_is_no_finding_of_an_audit(monkeypatch, capfd):
    """Exit code 1 is kept for these."""

    def fails(*_args, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr("dpbayes.cli.app.app", fails)
    with pytest.raises(SystemExit) as end:
        run_command()
    assert end.value.code == 2
    said = capfd.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("ZeroDivisionError\nerror: this is a fault of dpbayes, not yours.\n")


def test_an_error_names_a_bad_path_as_it_is(folder):
    done = dpbayes("synthesize", folder / "[/x].csv", *table(folder))
    assert done.returncode == 2
    assert "[/x].csv' does not exist" in done.stderr


def test_a_locale_without_greek(folder, monkeypatch):
    monkeypatch.setitem(command.ENVIRONMENT, "PYTHONIOENCODING", "ascii")
    done = dpbayes("synthesize", folder / "data.csv", *table(folder))
    assert done.returncode == 0, done.stderr
    assert "Written: " in done.stdout


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("raise `warmup` or `adapt_delta`", "raise --warmup or --adapt-delta"),
        ("`allow_unproved=True`", "--allow-unproved"),
        ('`accept="asymptotic"`', "--accept asymptotic"),
        ("`ledger` and `dataset`", "--ledger and --account"),
        ('`draw="posterior"`, `records=300`', "--set draw=posterior, --set records=300"),
        ("run `dpbayes ledger resolve`; `marginals`", "run `dpbayes ledger resolve`; `marginals`"),
    ],
)
def test_settings_are_spelled_as_options(monkeypatch, said, shown):
    monkeypatch.setattr(spelled, "options", lambda: options_of(app, ["synthesize"]))
    assert spelled(said) == shown
