"""The package is a house: a module imports from the floors above it in the list, and its own."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import dpbayes

PACKAGE = Path(dpbayes.__file__).parent
FLOORS = [
    ["core"],
    ["schema"],
    ["records"],
    ["privacy"],
    ["formula"],
    ["stan"],
    ["engines"],
    ["mechanisms"],
    ["plots"],
    ["synthesis"],
    ["evaluate"],
    ["report"],
    ["publication"],
    ["planning"],
    ["inference"],
    ["pages"],
    ["demo"],
    ["app"],
    ["cli"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
TOP = len(FLOORS)  # dpbayes/__init__.py, which is above all and imported by nobody
FLOOR["__main__"] = TOP  # runs the command
# Within mechanisms: base is below the folders, of which some draw from posterior and tables.
ROOMS = [
    ["base", "forecast", "predictive", "survival"],
    ["posterior", "tables"],
    ["marginals", "modips", "pegs"],
    ["score", "households"],
    ["options", "__init__"],
]
ROOM = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
LONGEST_FUNCTION, LONGEST_FILE = 80, 600


@dataclass(frozen=True)
class Module:
    """A source file of the package, by its dotted name without ``dpbayes.``; "" for the package."""

    name: str
    text: str
    folder: bool = False  # an __init__.py

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def modules() -> dict[str, Module]:
    """Every source file of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        folder = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if folder else parts)
        found[name] = Module(name, path.read_text(encoding="utf-8"), folder)
    return found


ALL = modules()


def import_nodes(module: Module, *, run_time: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements; at run time without those for type checkers."""

    def walk(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
        children = list(ast.iter_child_nodes(node))
        if run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = list(node.orelse)
        for child in children:
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            yield from walk(child)

    yield from walk(module.tree)


def imported(module: Module, known: dict[str, Module], *, run_time: bool = False) -> set[str]:
    """Modules of the package that a module imports; "" for the package itself."""
    found = set()
    for node in import_nodes(module, run_time=run_time):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:  # relative
                parts = f"dpbayes.{module.name}".split(".")
                parts = parts[: len(parts) - node.level + module.folder]
                base = ".".join([*parts, *([base] if base else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            if name.partition(".")[0] != "dpbayes":
                continue
            # A name that is no module is taken from its folder's __init__.
            target = name.partition(".")[2]
            while target and target not in known:
                target = target.rpartition(".")[0]
            found.add(target)
    return found - {module.name}


def texts(module: Module) -> set[str]:
    """Modules that are named in strings, to be imported later: ``dpbayes.x.y:Name``."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if name.startswith("dpbayes.") and name.removeprefix("dpbayes.") in ALL:
                found.add(name.removeprefix("dpbayes."))
    return found


def floor(name: str) -> int:
    return FLOOR[name.partition(".")[0]] if name else TOP


def room(name: str) -> int:
    """Within mechanisms."""
    rest = name.partition(".")[2].partition(".")[0]
    return ROOM[rest or "__init__"]


def forbidden(module: Module, known: dict[str, Module]) -> list[str]:
    """What a module imports and must not."""
    found = []
    for target in sorted(imported(module, known) | texts(module)):
        up = floor(target) > floor(module.name)
        both = {module.name.partition(".")[0], target.partition(".")[0]} == {"mechanisms"}
        if up or (both and room(target) > room(module.name)):
            found.append(f"{module.name} imports {target}")
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    count = itertools.count()

    def visit(node: str) -> None:
        index[node] = low[node] = next(count)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_every_file_belongs_to_a_floor():
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    ends = {True: "/__init__.py", False: ".py"}
    assert files == {
        (name.replace(".", "/") + ends[module.folder]).lstrip("/") for name, module in ALL.items()
    }
    assert {name.partition(".")[0] for name in ALL if name} == set(FLOOR)
    inside = {name.split(".")[1] for name in ALL if name.startswith("mechanisms.")}
    assert inside | {"__init__"} == set(ROOM)


def test_imports_come_from_the_floors_above():
    """Those for type checkers and inside functions too."""
    assert [line for name, module in ALL.items() if name for line in forbidden(module, ALL)] == []


def test_imports_have_no_circle():
    """Neither when modules are loaded nor when functions run."""
    graph = {name: imported(module, ALL, run_time=True) for name, module in ALL.items()}
    # A folder's __init__ runs before its modules, and may import them.
    assert circles(graph) == []


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module.name}.{node.name}", node  # type: ignore[misc]


def lines(module: Module, node: ast.FunctionDef) -> int:
    """Of a function; those of the option list of a command apart."""
    first = node.lineno
    if module.name.startswith("cli") and node.decorator_list:
        first = node.body[0].lineno
    assert node.end_lineno is not None
    return node.end_lineno - first + 1


def test_functions_and_files_are_short():
    files = {name: len(module.text.splitlines()) for name, module in ALL.items()}
    assert {name: length for name, length in files.items() if length > LONGEST_FILE} == {}
    each = {n: lines(module, node) for module in ALL.values() for n, node in functions(module)}
    assert {name: length for name, length in each.items() if length > LONGEST_FUNCTION} == {}


def test_a_class_name_is_defined_once():
    defined: dict[str, list[str]] = {}
    for name, module in ALL.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(name)
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


# They name flags of other programs.
OTHER_FLAGS = {"engines.cmdstan", "stan.proof.functions", "core.lazy"}


def names_a_flag(module: Module) -> bool:
    """Whether a text of the module names an option of the command line."""
    strings = [n.value for n in ast.walk(module.tree) if isinstance(n, ast.Constant)]
    return any(isinstance(v, str) and re.search(r"(?<![-\w])--[a-z]", v) for v in strings)


def test_no_flag_is_named_below_cli():
    """The library names settings, which cli spells as options; app composes commands."""
    below = {
        n: m
        for n, m in ALL.items()
        if n.partition(".")[0] not in ("cli", "app") and n not in OTHER_FLAGS
    }
    assert [name for name, module in below.items() if names_a_flag(module)] == []
    assert names_a_flag(ALL["app.project"])


def asks_which_noise(module: Module) -> bool:
    """Whether code tells noise of a release from that of an audit, which sees the latter alone."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr == "releasable":
            return True
        if not isinstance(node, ast.Call):
            continue
        asks = getattr(node.func, "id", "") in ("isinstance", "type")
        if asks and any(isinstance(a, ast.Name) and a.id == "noise" for a in node.args):
            return True
    return False


def test_mechanisms_ask_not_which_noise_they_have():
    mechanisms = {name: module for name, module in ALL.items() if name.startswith("mechanisms")}
    assert [name for name, module in mechanisms.items() if asks_which_noise(module)] == []


# A parameter or a result that is one of these around Any says no more than Any.
CONTAINERS = {
    "tuple", "list", "set", "frozenset", "Sequence", "Collection", "Iterable", "Iterator",
    "Generator", "Callable",
}  # fmt: skip


def says_any(annotation: ast.expr | None) -> bool:
    """Whether a type is Any, a union with it, or a container or function of it.

    Any as an argument of another type is exact: an array of any dtype, a fit of any mechanism, or
    JSON and program data by name.
    """
    match annotation:
        case ast.Name(id=name):
            return name == "Any"
        case ast.Constant(value=str(text)):
            return says_any(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, right=right):
            return says_any(left) or says_any(right)
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            return name in CONTAINERS and says_any(inner)
        case ast.Tuple(elts=types) | ast.List(elts=types):
            return any(map(says_any, types))
    return False


def untyped(body: list[ast.stmt], where: str) -> Iterator[str]:
    """Public parameters, results and attributes that are annotated as Any."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from untyped(node.body, f"{where}.{node.name}")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not node.target.id.startswith("_") and says_any(node.annotation):
                yield f"{where}.{node.target.id}"
        elif isinstance(node, ast.FunctionDef):
            if node.name.startswith("_") and node.name not in ("__init__", "__call__"):
                continue
            given = node.args
            parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            parameters += [p for p in (given.vararg, given.kwarg) if p is not None]
            yield from (
                f"{where}.{node.name}: {p.arg}" for p in parameters if says_any(p.annotation)
            )
            if says_any(node.returns):
                yield f"{where}.{node.name}: result"


# Others work on these modules at the moment.
NOT_TYPED_YET = ("engines", "formula.terms", "schema.table")


def test_public_signatures_have_types():
    known = {n: m for n, m in ALL.items() if not n.startswith(NOT_TYPED_YET)}
    assert [at for name, m in known.items() for at in untyped(m.tree.body, name)] == []


def asks_which_mechanism(module: Module) -> bool:
    """Whether code asks for the class of a mechanism rather than for a property of it."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            classes = [n for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)]
            if any(n.id.endswith("Mechanism") and n.id != "Mechanism" for n in classes):
                return True
    return False


def test_no_class_of_mechanism_is_asked_for():
    """A property says what a mechanism is: ``needs_model``, ``draws_posterior``."""
    others = {name: m for name, m in ALL.items() if not name.startswith("mechanisms")}
    assert [name for name, module in others.items() if asks_which_mechanism(module)] == []


def test_public_names_exist():
    for name in dpbayes.__all__:
        assert getattr(dpbayes, name) is not None


# The test of the test.


def made_up(text, name="schema.made_up", **more):
    module = Module(name, text, **more)
    return module, {**ALL, name: module}


@pytest.mark.parametrize(
    "text",
    [
        "from dpbayes.mechanisms import Censored",
        "import dpbayes.mechanisms.base",
        "from dpbayes.synthesis import fit",
        "from dpbayes import Censored",
        "import dpbayes",
        "from dpbayes.cli.app import *",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpbayes.cli import app",
        "def f():\n    from dpbayes.synthesis.fit import Fit\n    return Fit",
        "class A:\n    def f(self):\n        import dpbayes.synthesis.fit as g\n        return g",
        "from ..synthesis.fit import Fit",
        "from ..synthesis import fit",
        "LATER = 'dpbayes.engines.embedded:EmbeddedEngine'",
    ],
)
def test_a_forbidden_import_is_found(text):
    assert forbidden(*made_up(text))


@pytest.mark.parametrize(
    ("name", "text", "bad"),
    [
        ("schema.made_up", "from dpbayes.core.errors import SchemaError", False),
        ("schema.made_up", "from dpbayes.schema.columns import Column", False),
        ("schema.made_up", "from .columns import Column", False),
        ("mechanisms.tables.made_up", "from dpbayes.mechanisms.base import Mechanism", False),
        ("mechanisms.tables.made_up", "from dpbayes.mechanisms.posterior import stage", False),
        ("mechanisms.tables.made_up", "from dpbayes.mechanisms.modips import grid", True),
        ("mechanisms.tables.made_up", "from dpbayes.mechanisms import get_mechanism", True),
        ("mechanisms.base.made_up", "from dpbayes.mechanisms.tables import cells", True),
        ("mechanisms.modips.made_up", "from dpbayes.mechanisms.tables import cells", False),
        ("cli.made_up", "from dpbayes.demo.run import Demo", False),
        ("demo.made_up", "from dpbayes.cli import main", True),
    ],
)
def test_what_is_allowed_and_what_is_not(name, text, bad):
    assert bool(forbidden(*made_up(text, name))) is bad


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("def f(noise):\n    return 0 if noise.releasable else 1", True),
        ("def f(noise):\n    return isinstance(noise, SecureNoise)", True),
        ("def f(noise):\n    return type(noise) is SecureNoise", True),
        ("def f(noise, x):\n    return isinstance(x, list) and noise.counts(x, 1)", False),
    ],
)
def test_a_question_which_noise_is_found(text, bad):
    assert asks_which_noise(made_up(text, "mechanisms.made_up")[0]) is bad


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(a: Any): ...", ["m.f: a"]),
        ("def f(a: 'Any | None' = None): ...", ["m.f: a"]),
        ("def f() -> tuple[int, Any]: ...", ["m.f: result"]),
        ("def f(g: Callable[[int], Any]): ...", ["m.f: g"]),
        ("def f(*a: Any, **b: Any): ...", ["m.f: a", "m.f: b"]),
        ("class A:\n    b: Any\n    def f(self, c: Iterator[Any]): ...", ["m.A.b", "m.A.f: c"]),
        ("def f(a: Mapping[str, Any], b: NDArray[Any], c: Fit[Any] | None) -> int: ...", []),
        ("def _f(a: Any): ...\nclass _A:\n    b: Any", []),
    ],
)
def test_a_signature_without_types_is_found(text, found):
    assert list(untyped(ast.parse(text).body, "m")) == found


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("x = isinstance(m, PosteriorMechanism)", True),
        ("x = isinstance(m, (int, base.X, ModelFreeMechanism))", True),
        ("x = isinstance(m, int | NoisyMechanism)", True),
        ("x = isinstance(m, Mechanism)  # an argument is checked", False),
        ("x = m.needs_model", False),
    ],
)
def test_a_question_which_mechanism_is_found(text, bad):
    assert asks_which_mechanism(made_up(text, "evaluate.made_up")[0]) is bad


def test_a_circle_is_found():
    first, _ = made_up("from dpbayes.schema.two import x", "schema.one")
    second, _ = made_up("def f():\n    from dpbayes.schema import one", "schema.two")
    known = {**ALL, "schema.one": first, "schema.two": second}
    graph = {name: imported(module, known, run_time=True) for name, module in known.items()}
    assert ["schema.one", "schema.two"] in circles(graph)
    third, _ = made_up(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpbayes.schema import one",
        "schema.two",
    )
    assert imported(third, known) == {"schema.one"}
    assert imported(third, known, run_time=True) == set()


def test_a_long_function_is_found():
    module, _ = made_up("def f():\n" + "    x = 1\n" * LONGEST_FUNCTION)
    assert [lines(module, node) for _, node in functions(module)] == [LONGEST_FUNCTION + 1]
    command = "@app.command()\ndef f(\n" + "    a=1,\n" * 80 + "):\n    return a\n"
    module, _ = made_up(command, "cli.made_up")
    assert [lines(module, node) for _, node in functions(module)] == [1]
