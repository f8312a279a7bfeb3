"""docs/formulas.md: generated, complete, and refused where docstrings and sources disagree."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("formulas", DOCS / "formulas.py")
formulas = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(formulas)

WORKS = """
[a-paper]
authors = "A, B."
title = "A paper"
where = "A journal 1"
year = 2001
[a-paper.items]
"eq. 1.2" = { what = "held | by two" }
"table 3" = { what = "held by one", note = "in part" }
"figure 4" = { what = "not held", reason = "no data" }

[other-1999]
authors = "O, T."
title = "Why?"
where = "A press"
year = 1999
doi = "10.1/2"
"""
MODULE = '''
"""A module.

Source: other-1999; a-paper, eq. 1.2;
table 3.
"""

class Held:
    def method(self):
        """Source: a-paper, eq. 1.2."""
'''

# Every number that the papers have.
NUMBERS = {
    "hu-williams-savitsky": {
        "definition": "123",
        "eq.": ["1.1", "1.2", "2.3", "2.4", "3.5", "3.6"],
        "table": "123",
        "figure": [str(k) for k in range(1, 20)],
    },
    "liu-2016": {
        "definition": "1234567",
        "proposition": "12345",
        "remark": "6",
        "theorem": "7",
        "algorithm": "1234",
        "table": "1",
        "figure": "12345678",
        "eq.": [f"F.{k}" for k in range(1, 9)],
    },
    "bowen-liu-2020": {
        "definition": ["2.1", "2.3", "2.4", "2.5", "2.6", "2.7"],
        "theorem": ["2.2"],
        "eq.": [*(f"2.{k}" for k in range(1, 5)), *(f"3.{k}" for k in range(1, 8)),
                "4.1", "4.2", "4.3"],
        "table": "12345",
        "figure": "1234567",
    },
    "charest-2011": {"eq.": "1234", "table": "1234", "figure": "1"},
    "park-ghosh-2014": {"eq.": "123456", "table": "123", "figure": "123456789"},
}  # fmt: skip


@pytest.fixture
def build(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    sources = tmp_path / "sources.toml"

    def made(module=MODULE, works=WORKS):
        (package / "module.py").write_text(module)
        sources.write_text(works)
        return formulas.build((package,), sources)

    return made


def test_the_page_is_up_to_date():
    assert formulas.main(["--check"]) == 0, "run python docs/formulas.py"
    assert (DOCS / "formulas.md").read_text(encoding="utf-8") == formulas.build()


@pytest.fixture(scope="module")
def sources():
    return tomllib.loads((DOCS / "sources.toml").read_text(encoding="utf-8"))


def test_every_source_line_parses(sources):
    found = [
        reference
        for _, text in formulas.docstrings(formulas.PACKAGES)
        for reference in formulas.references(text, sources)
    ]
    assert len(found) > 100
    assert ("hu-williams-savitsky", "eq. 2.3") in found


@pytest.mark.parametrize("paper", NUMBERS)
def test_every_number_of_the_papers_is_listed(sources, paper):
    listed = sources[paper]["items"]
    for kind, numbers in NUMBERS[paper].items():
        wanted = [f"{kind} {number}" for number in numbers]
        assert sorted(wanted) == sorted(name for name in listed if name.startswith(f"{kind} "))


def test_holders_reasons_and_references_are_written(build):
    page = build()
    assert "`a-paper`. Items: 3, held: 2." in page
    held = "`package.module`, `package.module.Held.method`"
    assert f"| eq. 1.2 | held \\| by two | {held} |" in page
    assert "| table 3 | held by one. Note: in part | `package.module` |" in page
    assert "| figure 4 | not held | *no data* |" in page
    assert "A, B. (2001). A paper. A journal 1.\n" in page
    doi = "[doi:10.1/2](https://doi.org/10.1/2)"
    assert f"O, T. (1999). Why? A press. {doi} In `package.module`.\n" in page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table 3.", "table 5.", "package.module: a-paper has no item 'table 5'"),
        ("other-1999;", "other-1998;", "package.module: 'other-1998' is no key"),
        ("other-1999;", "other-1999, table 3;", "other-1999 has no item 'table 3'"),
        ("Source: other-1999; ", "Source: eq. 1.2; ", "'eq. 1.2' is no key"),
        ("table 3.\n", "table 3. And more\n", "expected a line 'Source:"),
        ("A module.", "A module. Source: B 2001.", "expected a line 'Source:"),
        ("A module.", "A module.\n\nSources: a-paper.", "expected a line 'Source:"),
        ("table 3.\n", "table 3; figure 4.\n", "figure 4: held by package.module, and has a"),
    ],
)
def test_bad_lines_are_refused(build, old, new, message):
    assert old in MODULE
    with pytest.raises(formulas.SourceError) as error:
        build(MODULE.replace(old, new, 1))
    assert message in str(error.value)


def test_an_item_needs_a_holder_or_a_reason(build):
    with pytest.raises(formulas.SourceError, match="a-paper, figure 4: neither held"):
        build(works=WORKS.replace(', reason = "no data"', ""))
    with pytest.raises(formulas.SourceError, match="a-paper, table 3: neither held"):
        build(MODULE.replace(";\ntable 3.", "."))


def test_a_page_that_differs_fails(build, tmp_path, capsys):
    build()
    places = ((tmp_path / "package",), tmp_path)
    assert formulas.main(["--check"], *places) == 1
    assert "run python docs/formulas.py" in capsys.readouterr().err
    assert formulas.main([], *places) == 0
    assert formulas.main(["--check"], *places) == 0
    build(works=WORKS.replace("held by one", "held by some"))
    assert formulas.main(["--check"], *places) == 1
    (tmp_path / "sources.toml").write_text(WORKS.replace(', reason = "no data"', ""))
    assert formulas.main([], *places) == 1
    assert "neither held" in capsys.readouterr().err
