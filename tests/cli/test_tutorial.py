"""The commands of the tutorial run as they are printed, on its shipped file."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from dpbayes.schema import Schema
from tests.cli.in_process import dpbayes

ROOT = Path(__file__).parents[2]
DATA = Path("dpbayes/data")
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(command.replace("\\\n", " "))
    for command in re.findall(r"^    ((?:dpbayes|cp) (?:.*\\\n)*.*)$", TUTORIAL, re.MULTILINE)
]


@pytest.fixture
def folder(tmp_path):
    """A copy of the repository, as far as the tutorial uses it."""
    shutil.copytree(ROOT / DATA, tmp_path / DATA)
    return tmp_path


def test_every_command_of_the_tutorial_runs(folder):
    said = {}
    for program, *words in COMMANDS:
        if program == "cp":
            shutil.copy(folder / words[0], folder / words[1])
            continue
        done = dpbayes(*words, cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        said[" ".join(words[:2])] = done.stdout
    assert len(COMMANDS) >= 10
    assert "people.toml: 12 columns, 0 of them public." in said["schema check"]
    assert "δ = 1e-06" in said["synthesize people.csv"]
    assert "anchored" in said[f"synthesize {DATA}/cps_earnings.csv"]
    assert "20 data sets by 'marginals', rule 'reiter2002'" in said["combine web/release"]
    for place in ("release", "confidential"):
        assert (folder / "web" / place / "report.html").is_file()
    account = dpbayes("ledger", "show", "ledger.db", cwd=folder).stdout.splitlines()[1].split()
    assert account[:4] == ["people", "add-remove", "3", "1e-05"]
    missing = 0.0
    for number in range(1, 21):
        rows = pd.read_csv(folder / f"web/release/synthetic_{number}.csv")
        assert not (rows["dbp"] > rows["sbp"]).any()
        assert not (rows["smokeyrs"] > rows["age"]).any()
        assert (rows["yrdth"].notna() == (rows["death"] == 1)).all()
        missing += rows["wt82"].isna().mean() / 20
    assert 0.01 < missing < 0.1  # 0.039 in the records; the noise of the mean has sd 0.012


def test_what_the_tutorial_prints_of_the_draft_and_of_the_schema(folder):
    shutil.copy(folder / DATA / "nhefs.csv", folder / "people.csv")
    assert dpbayes("schema", "draft", "people.csv", cwd=folder).returncode == 0
    drafted = (folder / "people.toml").read_text(encoding="utf-8")
    blocks = [
        "\n".join(line[4:] for line in block.splitlines())
        for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", TUTORIAL, re.MULTILINE)
        if "[columns." in block or "rules = " in block
    ]
    assert len(blocks) == 3
    draft, column, top = (block.strip("\n") for block in blocks)
    for part in draft.split("\n\n"):
        assert part in drafted
    shipped = tomllib.loads((ROOT / DATA / "nhefs.toml").read_text(encoding="utf-8"))
    (name,) = tomllib.loads(column)["columns"]
    printed = tomllib.loads(column)["columns"][name]
    assert printed.items() <= shipped["columns"][name].items()
    assert tomllib.loads(top).items() <= shipped.items()
    assert len(Schema.from_toml(ROOT / DATA / "nhefs.toml").columns) == 12
