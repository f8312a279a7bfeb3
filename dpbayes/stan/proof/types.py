"""Types of Stan values: of declarations, and of results of operators and functions."""

from __future__ import annotations

from collections.abc import Sequence

from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.syntax import Node

COMPARISONS = ("||", "&&", "==", "!=", "<", "<=", ">", ">=")


def array_type(base: str, depth: int) -> str:
    """Return the type of an array with ``depth`` axes; "" if the type of its elements is ""."""
    return f"array[{',' * (depth - 1)}] {base}" if depth and base else base


def split_type(name: str) -> tuple[int, str]:
    """Split a type into its number of array axes and the type of the elements."""
    brackets, _, base = name.rpartition(" ")
    return (brackets.count(",") + 1 if brackets else 0), base


def indexed_type(name: str, single: Sequence[bool]) -> str:
    """Return the type of an indexed value; ``single`` tells for each index if it picks one entry.

    The type is "" if it is not known.
    """
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
    """Return an operator's result type for values that are the same for all records, or ""."""
    scalars = ("int", "real")
    if sign in COMPARISONS:
        return "int"
    if left in scalars and right in scalars:
        integral = left == right == "int" and sign not in ("^", ".^")
        return "int" if integral else "real"
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
    """Return a Stan function's result type for values that are the same for all records, or ""."""
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
    if name == "append_col" and set(types) <= {"int", "real", "row_vector"}:
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
        (container, *others) = containers
        return container if not others and split_type(container)[0] == 0 else ""
    return ""


def returned_type(function: Node) -> str:
    """Return the declared result type of a user's function; "" for void."""
    return _unsized(function[0][0]) if function[0].present else ""


def _unsized(node: Node) -> str:
    brackets = node.parts[0]
    return array_type(node[-1].text, 0 if brackets is None else 1 + len(brackets.parts))


def parameters_of(function: Node) -> list[tuple[str, str]]:
    """Return the types and names of a user's function's arguments."""
    listed = function.parts[2].present if function.parts[2] else ()
    return [(_unsized(argument.present[-2]), argument.present[-1].text) for argument in listed]


def declared_type(node: Node) -> str:
    """Return a declared type without sizes and bounds; simplices and the like become vectors."""
    depth = len(node.parts[0].present) if node.parts[0] else 0
    base = node[1].text
    if base.endswith(("matrix", "corr", "cov")) and not base.startswith("complex"):
        base = "matrix"
    elif base not in stan.RANK and not base.startswith("complex"):
        base = "vector"
    return array_type(base, depth)


def declared_sizes(node: Node) -> tuple[Node, ...]:
    """Return the sizes along the axes, those of arrays first."""
    return tuple(
        size for part in (node.parts[0], node.parts[3]) if part is not None for size in part.present
    )


def is_plain(node: Node) -> bool:
    """Tell whether a declared type accepts any values: no bounds, no simplex or the like."""
    return node.parts[2] is None and node[1].text in stan.RANK


def declared_limits(node: Node) -> dict[str, Node]:
    """Return declared bounds, by ``lower``, ``upper``, ``offset`` and ``multiplier``."""
    listed = node.parts[2].present if node.parts[2] else ()
    return {limit[0].text: limit[1] for limit in listed}
