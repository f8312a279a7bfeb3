"""Every ε, ρ and δ that people read is rounded in one place, and never down."""

import ast
import re
from pathlib import Path

import pytest

import dpbayes
from dpbayes.privacy.accounting import stated, stated_left

PACKAGE = Path(dpbayes.__file__).parent
SYMBOL = re.compile(r"[ερδ] (= |is at least )$")
NAME = re.compile(r"(epsilon\w*|rho\w*|delta|\bloss|\bspent|\bleft|\btotal)\b")


def formatted(text):
    """(line, source) of amounts that an f-string formats by itself."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before = str(part.value)
                continue
            source = ast.unparse(part.value)
            rounded = part.format_spec is not None
            if rounded and (SYMBOL.search(before) or NAME.search(source)):
                yield part.lineno, source
            before = ""


@pytest.mark.parametrize(
    "text",
    [
        'f"ε = {x:.4g}"',
        'f"at δ = {d:g}"',
        'f"it costs {claim.epsilon:.6g}"',
        'f"{loss.rho:.3g}"',
        "f\"{found['local_epsilon']:.3g}\"",
        'f"{total:g} in all"',
    ],
)
def test_the_search_finds(text):
    assert list(formatted(text))


def test_no_other_place_rounds_an_amount():
    places = [
        f"{path.relative_to(PACKAGE)}:{line}: {source}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, source in formatted(path.read_text(encoding="utf-8"))
        if source != "epsilon / 2"  # the dashed line of a figure
    ]
    assert not places


@pytest.mark.parametrize(
    "amount", [1e-9, 0.30000001, 0.33334, 1 / 3, 2.33338, 1.0, 3 * 0.1, 49.99999, 1e-310]
)
def test_rounding_is_on_the_safe_side(amount):
    assert float(stated(amount)) >= amount * (1 - 1e-9)
    assert float(stated_left(amount)) <= amount * (1 + 1e-9)
    assert float(stated(amount)) <= amount * 1.0011
    assert float(stated_left(amount)) >= amount * 0.9989


def test_amounts_of_few_digits_stay():
    assert [stated(x) for x in (1.0, 0.5, 3 * 0.1, 2, 0)] == ["1", "0.5", "0.3", "2", "0"]
    assert [stated_left(x) for x in (1.0, 0.5, 0.3, 1 - 0.7, 0)] == ["1", "0.5", "0.3", "0.3", "0"]


def test_the_smallest_and_the_largest_numbers_are_written():
    for amount in (5e-324, 1e-322, 1.79e308):
        assert float(stated(amount)) >= amount >= float(stated_left(amount)) > 0
