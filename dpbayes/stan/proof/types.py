"""Types of Stan values: of declarations, operators and functions."""

from __future__ import annotations

from collections.abc import Sequence

from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.syntax import Node

COMPARISONS = ("||", "&&", "==", "!=", "<", "<=", ">", ">=")


def array_type(base: str, depth: int) -> str:
    """The type of an array of ``depth`` axes."""
    return f"array[{',' * (depth - 1)}] {base}" if depth and base else base


def split_type(name: str) -> tuple[int, str]:
    """How many axes of arrays a type has, and of what."""
    brackets, _, base = name.rpartition(" ")
    return (brackets.count(",") + 1 if brackets else 0), base


def indexed_type(name: str, single: Sequence[bool]) -> str:
    """The type of an indexed value; ``single``: for each index whether it picks one entry."""
    depth, base = split_type(name)
    left = depth - sum(single[:depth])
    places = tuple(single[depth:])
    if base == "matrix":
        base = {
            (): "matrix", (True,): "row_vector", (False,): "matrix", (True, True): "real",
            (True, False): "row_vector", (False, True): "vector", (False, False): "matrix",
        }.get(places, "")  # fmt: skip
    elif base in ("vector", "row_vector"):
        base = {(): base, (True,): "real", (False,): base}.get(places, "")
    elif places:
        base = ""
    return array_type(base, left)


def type_of(sign: str, left: str, right: str) -> str:
    """The type of what an operator gives of values that are the same for all records."""
    scalars = ("int", "real")
    if sign in COMPARISONS:
        return "int"
    if left in scalars and right in scalars:
        whole = left == right == "int" and sign not in ("^", ".^")
        return "int" if whole else "real"
    if sign == "*":
        known = {
            ("matrix", "vector"): "vector", ("row_vector", "matrix"): "row_vector",
            ("row_vector", "vector"): "real", ("vector", "row_vector"): "matrix",
            ("matrix", "matrix"): "matrix",
        }  # fmt: skip
        if (left, right) in known:
            return known[left, right]
    if left in scalars:
        return right if split_type(right)[0] == 0 else ""
    if right in scalars or left == right:
        return left if split_type(left)[0] == 0 and (sign != "*" or right in scalars) else ""
    return ""


def type_of_call(name: str, types: Sequence[str]) -> str:
    """The type of one of Stan's functions of values that are the same for all records."""
    scalar = all(kind in ("int", "real") for kind in types)
    if name in stan.SIZES:
        return "int"
    if name in stan.CONSTANTS and not types:
        return "real"
    if name in stan.SUMMING and len(types) == 1:
        return "real" if types[0] in ("vector", "row_vector", "matrix") else ""
    if name in ("dot_product", "distance", "squared_distance"):
        return "real"
    if name in stan.VECTORS or name == "to_vector":
        return "vector"
    if name == "to_row_vector":
        return "row_vector"
    if name in stan.MATRICES:
        return "matrix"
    if name == "append_row":
        return "vector" if set(types) <= {"int", "real", "vector"} else "matrix"
    if name in stan.SAME_TYPE:
        return types[0] if types and types[0] in ("vector", "row_vector") else ""
    if name in stan.ELEMENTWISE or name in stan.IN_PLACE_OF:
        if scalar:
            return "" if set(types) == {"int"} and name == "abs" else "real"
        containers = {kind for kind in types if kind not in ("int", "real")}
        (one, *more) = containers
        return one if not more and split_type(one)[0] == 0 else ""
    return ""


def returned_type(function: Node) -> str:
    """The type of what a function returns; empty for nothing."""
    return _unsized(function[0][0]) if function[0].present else ""


def _unsized(node: Node) -> str:
    brackets = node.parts[0]
    return array_type(node[-1].text, 0 if brackets is None else 1 + len(brackets.parts))


def parameters_of(function: Node) -> list[tuple[str, str]]:
    """Types and names of a function's arguments."""
    listed = function.parts[2].present if function.parts[2] else ()
    return [(_unsized(argument.present[-2]), argument.present[-1].text) for argument in listed]


def declared_type(node: Node) -> str:
    """The type of a declaration, without sizes and bounds; simplices and the like are vectors."""
    depth = len(node.parts[0].present) if node.parts[0] else 0
    base = node[1].text
    if base.endswith(("matrix", "corr", "cov")) and not base.startswith("complex"):
        base = "matrix"
    elif base not in stan.RANK and not base.startswith("complex"):
        base = "vector"
    return array_type(base, depth)


def declared_sizes(node: Node) -> tuple[Node, ...]:
    """Sizes along the axes, those of arrays first."""
    return tuple(
        size for part in (node.parts[0], node.parts[3]) if part is not None for size in part.present
    )


def is_plain(node: Node) -> bool:
    """Whether a declared type takes any values: it has no bounds, and is no simplex or the like."""
    return node.parts[2] is None and node[1].text in stan.RANK


def declared_limits(node: Node) -> dict[str, Node]:
    """Declared bounds, by ``lower``, ``upper``, ``offset`` and ``multiplier``."""
    listed = node.parts[2].present if node.parts[2] else ()
    return {limit[0].text: limit[1] for limit in listed}
