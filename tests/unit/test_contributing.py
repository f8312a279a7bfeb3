"""The house that CONTRIBUTING.md draws is the one on disk."""

import re
from pathlib import Path

import dpbayes

PACKAGE = Path(dpbayes.__file__).parent
TEXT = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def drawn():
    """Folder and module names in the tree, as paths without ending."""
    tree = TEXT[TEXT.index("<!-- tree -->") : TEXT.index("<!-- /tree -->")]
    folder, found = "", set()
    for line in tree.splitlines()[2:]:
        head, names = line[:36].strip(), line[36:]
        if names.startswith("#"):
            continue
        if head:
            folder = "" if head == "(top)" else head
        found |= {folder + name for name in names.split() if not name.endswith("/")}
    return found


def test_the_tree_is_the_one_on_disk():
    paths = [p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.py")]
    there = {p.as_posix() for p in paths if p.name != "__init__" and "migrations" not in p.parts}
    assert drawn() == there
    assert len(there) > 80


def test_files_that_it_names_are_there():
    named = re.findall(r"`((?:dpbayes|tests|docs|stan_models)/[\w/.]+)`", TEXT)
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
