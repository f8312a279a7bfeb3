"""What CONTRIBUTING.md says of folders and files is so."""

import re
from pathlib import Path

import dpbayes
from tests.unit.test_architecture import FLOORS

PACKAGE = Path(dpbayes.__file__).parent
TEXT = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_folders_are_those_on_disk_in_their_order():
    named = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert named == [room for rooms in FLOORS for room in rooms]


def test_files_that_it_names_are_there():
    named = re.findall(r"`((?:dpbayes|studies|tests|docs|stan_models)/[\w/.]+)`", TEXT)
    assert len(named) > 8
    for name in named:
        if "NAME" not in name:
            assert (PACKAGE.parent / name).exists(), name


def test_tables_of_pages_are_whole():
    """A row behind an empty line is text, and no row."""
    root = PACKAGE.parent
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("*/README.md")]
    assert len(pages) > 30
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        code = False
        for number, line in enumerate(lines):
            code ^= line.startswith("```")
            first = line.startswith("|") and not lines[number - 1].startswith("|")
            if first and not code:
                assert re.fullmatch(r"[|: -]+", lines[number + 1]), f"{page.name}:{number + 1}"
