"""What a program says of the records: not on the terminal, and not in the release."""

import json

from tests.cli.command import dpbayes, options
from tests.programs import stopping, write


def test_what_a_program_prints_is_nowhere(folder):
    """Draws are no less private than records: a program that prints is not proved, yet may run."""
    program = write(folder, stopping("model", 'print("MINE ", mu);'))
    flags = options(folder, family=None, program=program, formula="y ~ 1")
    done = dpbayes("synthesize", folder / "data.csv", *flags, "--allow-unproved")
    assert done.returncode == 0, done.stderr
    assert "MINE" not in done.stdout + done.stderr
    for path in (folder / "out").rglob("*"):
        assert path.is_dir() or b"MINE" not in path.read_bytes()


def test_why_a_program_rejects_is_shown_when_asked(folder):
    # By a public entry: what a program says of confidential records is refused.
    source = stopping("transformed data", 'reject("MINE ", public_one);')
    program = write(folder, source.replace("data {", "data {\n  vector[3] public_one;", 1))
    (folder / "data.json").write_text(
        json.dumps({"n": 2, "y": [1, 2], "public_one": [1.25, 2.5, 4]})
    )
    arguments = ("check", program, "--data", folder / "data.json")
    done = dpbayes(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine.stan does not accept the data" in done.stderr
    assert "MINE" not in done.stderr
    shown = dpbayes(*arguments, "--show-values")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == f"{done.stderr}MINE [1.25,2.5,4]\n"
