"""`pytest` alone is the quick part; what it has to cover, and where the rest is."""

import re
import tomllib
from pathlib import Path

import pytest

from dpbayes.engines import ENGINES

ROOT = Path(__file__).parents[2]
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
# What insists that nothing is left out, by what it is about.
INSISTS = {
    "mechanisms": ("tests/fits/test_release_contract.py", "== set(MECHANISMS)"),
    "commands": ("tests/cli/test_every_command.py", "for command in commands(app)"),
    "families": ("tests/unit/test_families.py", "set(OUTCOME) == set(FAMILIES)"),
}
# Where each engine is put to the test.
TESTED = {
    "embedded": ("tests/engines/conftest.py", "pytest.param(EmbeddedEngine"),
    "candidates": ("tests/engines/test_candidates.py", "CandidatesEngine("),
    "recorded": ("tests/unit/test_synthesizer.py", "recorded_engine("),
}


def in_default_set(file):
    return any(Path(file).is_relative_to(path) for path in OPTIONS["testpaths"])


@pytest.mark.parametrize("what", INSISTS)
def test_nothing_is_left_out(what):
    file, phrase = INSISTS[what]
    assert in_default_set(file)
    assert phrase in (ROOT / file).read_text(encoding="utf-8")


def test_every_engine_is_tested():
    """All but CmdStan, which needs a compiler and minutes."""
    assert set(TESTED) == set(ENGINES) - {"cmdstan"}
    assert "not cmdstan" in OPTIONS["addopts"]
    for file, phrase in TESTED.values():
        assert in_default_set(file)
        assert phrase in (ROOT / file).read_text(encoding="utf-8")


def test_make_runs_everything():
    """All folders, with CmdStan where it is found."""
    runs = re.findall(r"pytest (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    fuzz = [arguments for arguments in runs if "-m fuzz" in arguments]
    assert (len(runs), len(fuzz)) == (3, 1)
    for arguments in set(runs) - set(fuzz):
        assert arguments.split() == ["tests", "notebooks", "-m", '""']


def test_every_test_is_in_a_folder_with_a_purpose():
    folders = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == {"unit", "fits", "processes", "engines", "cli", "statistical", "browser"}
