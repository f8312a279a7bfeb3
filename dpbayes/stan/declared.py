"""What a Stan program's declarations say of types, sizes and limits (see dataflow.py)."""

from __future__ import annotations

from collections.abc import Sequence

from dpbayes.stan.expressions import Flow
from dpbayes.stan.syntax import Node
from dpbayes.stan.taint import RANK, Size, Value

LEAVING = ("return_value", "break_loop", "continue_loop")
LOOPS = ("while_loop", "for_range", "for_each")


def typed(name: str, sizes: Sequence[Value]) -> Value:
    """A value of a declared type."""
    base, rank = name, RANK.get(name)
    if name.endswith(("matrix", "corr", "cov")):
        base, rank = "matrix", 1 if len(sizes) and name not in ("matrix",) else 2
        rank = 2 if len(sizes) > 1 else rank
    elif rank is None:
        base, rank = ("row_vector" if "row" in name else "vector"), 1
    dims = [Size(v.form, v.count > 0) for v in sizes]
    arrays = len(dims) - rank
    if base == "matrix" and name != "matrix":
        return Value(base="", dims=None) if arrays else Value(base=base, dims=(dims[0], dims[-1]))
    return Value(base=base, arrays=arrays, dims=tuple(dims), nonneg=name == "simplex")


def declared_range(flow: Flow, limits: Sequence[Node]) -> tuple[bool, bool]:
    """What declared limits say: that no entry is below 0, and that none is above 1."""
    known = {limit[0].text: limit[1] for limit in limits}
    lower = "lower" in known and flow.evaluate(known["lower"]).nonneg
    return lower, "upper" in known and flow.evaluate(known["upper"]).unit


def better_known(
    first: tuple[Size, ...] | None, second: tuple[Size, ...] | None
) -> tuple[Size, ...] | None:
    """The sizes of which more is known; both are the same at run time."""
    if first is None or second is None or len(first) != len(second):
        return first if first is not None else second
    return tuple(a if a.form is not None else b for a, b in zip(first, second, strict=True))


def fits(definition: Node, values: list[Value], *, exactly: bool = False) -> bool:
    """Whether a definition could be meant by a call with these arguments, or must be."""
    listed = definition.parts[2]
    declared = [] if listed is None else [p[-2] for p in listed.present]
    if len(declared) != len(values):
        return False
    for kind, value in zip(declared, values, strict=True):
        base, arrays = kind[-1].text, kind.parts[0] is not None
        if not value.base or value.dims is None or (exactly and base != value.base):
            if exactly:
                return False
            continue
        number = base in ("real", "complex") and value.base in ("int", "real")
        if (base != value.base and not number) or arrays != (value.arrays > 0):
            return False
    return True


def parameter_names(definition: Node) -> list[str]:
    """Names of a function's arguments."""
    listed = definition.parts[2]
    return [] if listed is None else [p[-1].text for p in listed.present]


def leaves(node: Node, *kinds: str) -> bool:
    """Whether a statement may leave out what comes after it: by return, break or continue."""
    kinds = kinds or LEAVING
    if node.kind in LOOPS:  # a loop's own break ends with it
        kinds = tuple(kind for kind in kinds if kind == "return_value")
    return node.kind in kinds or any(leaves(part, *kinds) for part in node.present if kinds)
