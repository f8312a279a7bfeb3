"""Imports point upstream only, in the order of the flow."""

import ast
from pathlib import Path

import dpbayes

PACKAGE = Path(dpbayes.__file__).parent
# Each may import from itself, from the lines above, and (within a folder) from its own folder.
ORDER = [
    ["errors"],
    ["schema"],
    ["stan"],
    ["engines"],
    ["privacy"],
    ["mechanisms"],
    ["release"],
    ["fit", "dips"],
    ["synthesizer"],
    ["tuning", "choice"],
    ["evaluate"],
    ["report"],
    ["publication"],
    ["inference"],
    ["studies"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def imports():
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        tree = ast.parse(path.read_text())
        # Names that only type checkers read make no dependency.
        tree.body = [n for n in tree.body if not ast.unparse(n).startswith("if TYPE_CHECKING")]
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
                if node.module == "dpbayes":
                    names = [f"dpbayes.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("dpbayes."):
                    yield parts[0], name.split(".")[1], path


def test_imports_point_upstream():
    found = list(imports())
    assert len(found) > 30
    for importer, imported, path in found:
        if importer != imported:
            assert LEVEL[imported] < LEVEL[importer], f"{path} imports dpbayes.{imported}"


def test_public_names_exist():
    for name in dpbayes.__all__:
        assert getattr(dpbayes, name) is not None
