"""One version everywhere, and a source distribution with what a reader needs."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

import dpbayes as dpb

ROOT = Path(__file__).parents[2]
VERSION = version("dpbayes")


def test_the_version_is_the_same_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert (dpb.__version__, declared, cited and cited[1]) == (VERSION,) * 3


def test_the_changelog_tells_of_it():
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    released = dict(headings)
    assert released.get(VERSION)  # with its date
    order = [name for name, _ in headings if name != "Unreleased"]
    assert order == sorted(order, key=lambda v: tuple(map(int, v.split("."))), reverse=True)
    assert all(released[name] for name in order)


@pytest.fixture(scope="module")
def shipped():
    return {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}


@pytest.mark.parametrize("folder", ["dpbayes", "stan_models", "docs", "tests"])
def test_a_source_distribution_has_every_file_of_a_folder(folder, shipped):
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".stan", ".md", ".toml", ".csv")
        and "__pycache__" not in path.parts
    }
    assert found
    assert found <= shipped


def test_a_source_distribution_has_what_stands_beside_them(shipped):
    assert shipped >= {
        "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "CONTRIBUTING.md",
        "pyproject.toml",
    }  # fmt: skip
