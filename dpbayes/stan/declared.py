"""What a Stan program's declarations say of types, sizes and limits (see dataflow.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpbayes.stan.expressions import Flow
from dpbayes.stan.syntax import Node
from dpbayes.stan.taint import BLOCK, RANK, N, Size, Value

COMPLEX = ("complex_vector", "complex_row_vector", "complex_matrix")


def typed(name: str, sizes: Sequence[Value], arrays: int) -> Value:
    """A value of a declared type; ``arrays``: how many of the sizes are those of arrays."""
    if name in COMPLEX:  # not followed
        return Value(base=name)
    base, rank = name, RANK.get(name)
    if name.endswith(("matrix", "corr", "cov")):
        base = "matrix"
    elif rank is None:
        base = "row_vector" if "row" in name else "vector"
    dims = [Size(v.form, v.count > 0) for v in sizes]
    if base == "matrix" and len(dims) == arrays + 1:  # as many rows as columns
        dims.append(dims[-1])
    return Value(base=base, arrays=arrays, dims=tuple(dims), nonneg=name == "simplex")


def is_checked(kind: Node) -> bool:
    """Whether a declared type has limits, which are checked after every assignment."""
    return kind.parts[2] is not None or kind[1].text not in {*RANK, *COMPLEX}


def declared_range(flow: Flow, limits: Sequence[Node]) -> tuple[bool, bool]:
    """What declared limits say: that no entry is below 0, and that none is above 1."""
    known = {limit[0].text: limit[1] for limit in limits}
    lower = "lower" in known and flow.evaluate(known["lower"]).nonneg
    # (upper - lower) + lower is rounded, to above upper perhaps where lower is below 0.
    below = lower or "lower" not in known
    return lower, below and "upper" in known and flow.evaluate(known["upper"]).unit


def takes_any(limits: Sequence[Node]) -> bool:
    """Whether a number of records may be any, but for 0."""
    return all(
        limit[0].text == "lower" and limit[1].kind == "number" and limit[1][0].text in ("0", "1")
        for limit in limits
    )


def better_known(
    first: tuple[Size, ...] | None, second: tuple[Size, ...] | None
) -> tuple[Size, ...] | None:
    """The sizes of which more is known; both are the same at run time."""
    if first is None or second is None or len(first) != len(second):
        return first if first is not None else second
    return tuple(a if a.form is not None else b for a, b in zip(first, second, strict=True))


def fits(definition: Node, values: list[Value], *, exactly: bool = False) -> bool:
    """Whether a definition could be meant by a call with these arguments, or must be."""
    declared = parameter_types(definition)
    if len(declared) != len(values):
        return False
    for kind, value in zip(declared, values, strict=True):
        base, brackets = kind[-1].text, kind.parts[0]
        arrays = 0 if brackets is None else 1 + len(brackets.parts)
        known = value.base and value.dims is not None
        if not known or (exactly and base != value.base):
            if exactly:
                return False
            continue
        number = base in ("real", "complex") and value.base in ("int", "real")
        if (base != value.base and not number) or arrays != value.arrays:
            return False
    return True


def parameter_types(definition: Node) -> list[Node]:
    """Types of a function's arguments."""
    listed = definition.parts[2]
    return [] if listed is None else [p[-2] for p in listed.present]


def as_declared(kind: Node, value: Value) -> Value:
    """A value as an argument or a result of a declared type, to which Stan converts it."""
    base, brackets = kind[-1].text, kind.parts[0]
    arrays = 0 if brackets is None else 1 + len(brackets.parts)
    rank = arrays + RANK.get(base, 0)
    dims = value.dims if value.dims is not None and len(value.dims) == rank else None
    if rank == 0:
        dims = ()
    return replace(value, base="" if dims is None else base, arrays=arrays, dims=dims)


def parameter_names(definition: Node) -> list[str]:
    """Names of a function's arguments."""
    listed = definition.parts[2]
    return [] if listed is None else [p[-1].text for p in listed.present]


def keeps_sizes(declared: Value, given: Value) -> bool:
    """Whether a variable has the declared sizes after an assignment for certain.

    Stan compares the sizes of both, but not where the variable is empty, nor inside an array: there
    it takes those of what is given. Those have to be known to be the same.
    """
    forms = [size.form for size in declared.dims or ()]
    if (not declared.arrays or len(forms) == 1) and all(
        form in (N, BLOCK) or (form and not form.terms and form.constant > 0) for form in forms
    ):
        return True
    return None not in forms and forms == [size.form for size in given.dims or ()]
