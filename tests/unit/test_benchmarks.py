"""Benchmarks run by hand and seldom: what they import is looked for here."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

OURS = {"dpbayes", "studies", "tests"}
SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def names(script):
    """(module, name) of each import from the package, and of each name of an imported module."""
    nodes, modules = list(ast.walk(ast.parse(script.read_text()))), {"dpb": "dpbayes"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            yield from ((node.module, each.name) for each in node.names)
            for each in node.names:
                if importlib.util.find_spec(node.module) and is_module(
                    f"{node.module}.{each.name}"
                ):
                    modules[each.asname or each.name] = f"{node.module}.{each.name}"
    for node in nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            yield modules[ast.unparse(node.value)], node.attr


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_no_script_hides_a_package():
    """The folder of a script that is run comes first on the path."""
    assert not {script.stem for script in SCRIPTS} & OURS


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
