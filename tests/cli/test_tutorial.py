"""The commands of the tutorial run as they are printed, on the shipped earnings."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from dpbayes.demo.earnings import earnings
from dpbayes.demo.run import confidential
from tests.cli.in_process import dpbayes

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(command.replace("\\\n", " "))[1:]
    for command in re.findall(r"^    (dpbayes (?:.*\\\n)*.*)$", TUTORIAL, re.MULTILINE)
]


@pytest.fixture
def folder(tmp_path):
    """``people.csv``, and what the reader makes of the draft of its schema."""
    shutil.copy(ROOT / "dpbayes/data/cps_earnings.csv", tmp_path / "people.csv")
    return tmp_path


def confirmed(folder, schema):
    (folder / "people.toml").write_text(tomli_w.dumps(schema.to_dict()), encoding="utf-8")


def test_every_command_of_the_tutorial_runs(folder):
    _, public = earnings()
    said = {}
    for words in COMMANDS:
        if words[:2] == ["schema", "check"]:
            confirmed(folder, confidential(public))
        if "--formula" in words and words[0] == "synthesize":
            confirmed(folder, public)  # "and declared so in the schema"
        done = dpbayes(*words, cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        said[" ".join(words[:2])] = done.stdout
    assert len(COMMANDS) >= 8
    assert "people.toml: 5 columns, 0 of them public." in said["schema check"]
    assert "anchored" in said["synthesize people.csv"]
    assert len(list((folder / "web/release").glob("synthetic_*.csv"))) == 20
    assert list(pd.read_csv(folder / "web/release/synthetic_1.csv")) == [
        "earnings", "gender", "age", "education", "region"
    ]  # fmt: skip
    assert "20 data sets by 'marginals', rule 'reiter2002'" in said["combine web/release"]
    for place in ("release", "confidential"):
        assert (folder / "web" / place / "report.html").is_file()
    account = dpbayes("ledger", "show", "ledger.db", cwd=folder).stdout.splitlines()[1].split()
    assert account[:6] == ["people", "add-remove", "3", "0", "1", "2"]
