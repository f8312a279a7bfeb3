"""Benchmarks run by hand and seldom: what they import is looked for here."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def names(script):
    """(module, name) of each import from the package."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpbayes":
            yield from ((node.module, each.name) for each in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dpb":
            yield "dpbayes", node.attr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_benchmark_imports_is_there(script):
    missing = []
    for module, name in sorted(set(names(script))):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                missing.append(f"{module}.{name}")
    assert not missing


def test_names_are_found(tmp_path):
    script = tmp_path / "one.py"
    script.write_text(
        "from dpbayes.engines.embedded import gone\nimport dpbayes as dpb\ndpb.Laplce"
    )
    assert set(names(script)) == {("dpbayes.engines.embedded", "gone"), ("dpbayes", "Laplce")}
