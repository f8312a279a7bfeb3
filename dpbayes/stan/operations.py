"""What operators and Stan's own functions make of dependence (see dataflow.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpbayes.stan import signatures as stan
from dpbayes.stan.taint import (
    INT,
    ONE,
    REAL,
    Linear,
    Size,
    Value,
    join_taints,
    mixed,
    private,
)

COMPARE = ("==", "!=", "<", ">", "<=", ">=", "&&", "||")


def under(value: Value, condition: Value, line: int, *, counting: bool = True) -> Value:
    """A value that is chosen by a condition."""
    count = max(value.count, min(condition.count, 1)) if counting else value.count
    theta = value.theta or condition.theta
    if condition.public:
        # A clamped sum that is there at some parameter values only is outside its window at others.
        clamped = 0 if condition.theta else value.clamped
        return replace(value, count=count, theta=theta, clamped=clamped)
    taint = join_taints([value.taint, condition.taint], line)
    return replace(value, taint=taint, count=count, theta=theta, form=None, name="", clamped=0)


def binary(sign: str, left: Value, right: Value, line: int) -> Value:
    """What an operator gives."""
    both = (left, right)
    if sign in COMPARE:
        asks = (sign == "&&" and any(v.asks for v in both)) or (
            sign == "||" and all(v.asks for v in both)
        )
        return replace(mixed(both, line, INT), nonneg=True, unit=True, asks=asks)
    if sign in ("*", "/", "\\") and not (left.scalar or (sign != "\\" and right.scalar)):
        if sign == "*" or not all(v.public for v in both):
            return _product(sign, left, right, line)
        return replace(mixed(both, line, Value()), count=max(1, left.count, right.count))
    result = mixed(both, line, largest(both))
    whole = left.base == right.base == "int"  # what is computed of reals is rounded
    if whole and sign in ("+", "-") and left.form is not None and right.form is not None:
        result = replace(result, form=left.form.plus(right.form, 1 if sign == "+" else -1))
    elif whole and sign == "*" and left.form is not None and right.form is not None:
        for one, other in (both, both[::-1]):
            if one.form is not None and other.form is not None and not one.form.terms:
                result = replace(result, form=Linear().plus(other.form, one.form.constant))
    if sign in ("^", ".^") and result.base == "int":
        result = replace(result, base="real")
    added = all((v.clamped or v.public) and v.scalar for v in both)  # to a vector: many times
    if sign == "+" and any(v.clamped for v in both) and added:
        return replace(result, clamped=left.clamped + right.clamped)
    if result.base in ("int", ""):  # too large a whole number is one below 0
        return result if sign != "-" else _one_less(result, left, right)
    if sign in ("*", ".*", "/", "./", "+", "^", ".^"):
        sign_free = sign in ("^", ".^") and right.form == Linear(constant=2)
        positive = left.nonneg and (right.nonneg or sign in ("^", ".^"))
        return replace(result, nonneg=positive or sign_free)
    return result if sign != "-" else _one_less(result, left, right)


def _one_less(result: Value, left: Value, right: Value) -> Value:
    """A difference; 1 - p is in the unit interval if p is."""
    if left.form == ONE and right.unit:
        sure = right.nonneg or result.base not in ("int", "")  # of the least whole number too much
        return replace(result, nonneg=sure, unit=right.nonneg)
    return result


def _product(sign: str, left: Value, right: Value, line: int) -> Value:
    """A product of which neither side is known to be a number; or a division by a matrix."""
    taint = join_taints((left.taint, right.taint), line)
    summed = left.dims[-1].counts if left.dims else True
    if left.base == "vector" and not left.arrays:
        summed = False
    count = max(left.count, right.count, int(summed and (left.long or right.long)))
    dims: tuple[Size, ...] | None = None
    base = ""
    if sign == "*" and left.dims and right.dims:
        bases = (left.base, right.base)
        if bases == ("row_vector", "vector"):
            dims, base = (), "real"
        elif bases == ("vector", "row_vector"):
            dims, base = (left.dims[0], right.dims[-1]), "matrix"
        elif "vector" in bases or "row_vector" in bases:
            base = "vector" if right.base == "vector" else "row_vector"
            dims = (left.dims[0],) if base == "vector" else (right.dims[-1],)
        else:
            dims, base = (left.dims[0], right.dims[-1]), "matrix"
    if taint.kind == "rows" and not (
        sign == "*" and right.public and left.base in ("matrix", "vector")
    ):
        sure = left.base in ("row_vector", "matrix") and right.base in ("vector", "matrix")
        taint = private(line, "a product sums over records", sure=sure)
    return replace(
        mixed((left, right), line, Value(base=base, dims=dims)), taint=taint, count=count
    )


def together(name: str, values: Sequence[Value], line: int, *, scalar: bool = True) -> Value:
    """What depends on all entries of its arguments: one number, or a vector of the same size."""
    result = mixed(values, line, _number(name, values) if scalar else values[0])
    if name in ("rank", "sort_indices_asc", "sort_indices_desc"):
        result = replace(result, base="", dims=None)
    if result.taint.kind == "rows":
        why = f"{name}() puts the records together"
        result = replace(result, taint=private(line, why, sure=True))
    count = max(result.count, int(any(v.long for v in values)))
    return replace(result, count=count)


def _number(name: str, values: Sequence[Value]) -> Value:
    """The type of one number that is computed from all entries."""
    if name == "quantile" and not all(v.scalar for v in values[1:]):
        return Value()
    if all(v.base in ("real", "vector", "row_vector", "matrix") for v in values):
        return REAL
    whole = name in ("sum", "max", "min") and all(v.base == "int" for v in values)
    return INT if whole else Value(dims=())


def reshaped(name: str, values: Sequence[Value], line: int) -> Value:
    """The entries of the arguments in another container."""
    value = values[0]
    flat = name in ("to_vector", "to_row_vector", "to_array_1d")
    if flat and value.dims is not None and len(value.dims) == 1:
        base = {"to_vector": "vector", "to_row_vector": "row_vector"}.get(name)
        return replace(value.plain, base=base or _entry(value), arrays=0 if base else 1)
    result = mixed(values, line, Value())
    # Where an entry stands among the others may be in its value now.
    result = replace(result, count=max(result.count, int(any(v.long for v in values))))
    if flat and value.dims is not None:
        base = "row_vector" if name == "to_row_vector" else "vector"
        size = Size(counts=any(size.counts for size in value.dims))
        array = name == "to_array_1d"
        kind = _entry(value) if array else base
        result = replace(result, base=kind, arrays=int(array), dims=(size,))
    if result.taint.kind == "rows":
        result = replace(result, taint=private(line, f"{name}() moves records to other places"))
    return result


def _entry(value: Value) -> str:
    """The type of one entry."""
    return "real" if value.base in ("vector", "row_vector", "matrix") else value.base


def transposed(value: Value, line: int) -> Value:
    """A value with rows and columns exchanged."""
    base = {"vector": "row_vector", "row_vector": "vector"}.get(value.base, value.base)
    result = replace(value.plain, base=base, dims=value.dims and value.dims[::-1])
    if value.taint.kind == "rows" and base not in ("vector", "row_vector"):
        return replace(result, taint=private(line, "records are in columns after transposing"))
    return result


def row_by_row(name: str, values: list[Value], line: int) -> Value:
    """What depends in row i on the rows i of its arguments."""
    dims = values[0].dims or ()
    base = "matrix" if name in ("append_col", "diag_pre_multiply") else "vector"
    if name == "append_col":
        columns = any(v.dims is None or v.dims[-1].counts for v in values if v.base == "matrix")
        dims = (dims[0], Size(None, columns))
    elif name == "diag_pre_multiply":
        dims = (dims[0], (values[-1].dims or dims)[-1])
    result = mixed(values, line, Value(base=base, dims=dims if base == "matrix" else dims[:1]))
    if _across(name, values):
        result = replace(result, count=max(1, result.count))
    if any(v.base == "row_vector" for v in values):
        result = replace(result, base="", dims=None)
        if not result.public:
            return replace(result, taint=private(line, f"{name}() of records in a row"))
        return result
    return result


def _across(name: str, values: Sequence[Value]) -> bool:
    """Whether columns that follow the number of records are summed, picked or moved."""
    beside = [v for v in values if v.base == "row_vector" or len(v.dims or ()) > 1]
    moved = name != "diag_pre_multiply"
    return any(v.dims is None or v.dims[-1].counts for v in beside) and moved


def listed(kind: str, values: list[Value], line: int) -> Value:
    """An array or a row of given entries."""
    size = Size(Linear(constant=len(values)))
    result = mixed(values, line, Value())
    if values and all(v.dims == values[0].dims and v.base == values[0].base for v in values):
        first = values[0]
        if kind == "array" and first.dims is not None:
            result = replace(
                result, base=first.base, arrays=first.arrays + 1, dims=(size, *first.dims)
            )
        elif kind == "row" and first.scalar and first.base != "complex":
            result = replace(result, base="row_vector", dims=(size,))
    if result.taint.kind == "rows":
        return replace(result, taint=private(line, "vectors of records are listed in an array"))
    return result


def largest(values: Sequence[Value]) -> Value:
    """The argument whose type and sizes an elementwise function or operator gives."""
    known = [v for v in values if v.dims is not None]
    if len(known) < len(values) or not values or any(v.base == "complex" for v in values):
        return Value()
    largest = max(known, key=lambda v: len(v.dims or ()))
    if largest.scalar:
        return INT if all(v.base == "int" for v in values) else REAL
    return largest


def filled(name: str, values: list[Value], line: int) -> Value:
    """``rep_vector`` and its like, and ``linspaced_vector`` and its like."""
    before = stan.FILLED[name][1]
    spaced = name.startswith("linspaced")
    sizes = tuple(values[:1] if spaced else values[before:])
    content = mixed(values, line, INT) if spaced else values[0] if before else INT
    result = stan.filled(name, content, sizes)
    if not all(size.public for size in sizes):  # then its length is not public either
        result = replace(result, dims=None, base="")
    if content.taint.kind == "rows" and not (name == "rep_matrix" and content.base == "vector"):
        result = replace(result, taint=private(line, f"{name}() of several records"))
    return under(result, mixed(sizes, line, INT), line, counting=False)
