"""Dataflow through the expressions of a Stan program (see dataflow.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dpbayes.stan import signatures as stan
from dpbayes.stan.operations import (
    binary,
    filled,
    largest,
    listed,
    reshaped,
    row_by_row,
    together,
    transposed,
    under,
)
from dpbayes.stan.syntax import Node
from dpbayes.stan.taint import (
    BLOCK,
    FIRST,
    INT,
    LAST,
    ONE,
    REAL,
    Linear,
    N,
    Size,
    Taint,
    Value,
    either,
    join_taints,
    mixed,
    private,
)

COUNTED = [name for form in (N, FIRST, LAST) for name, _ in form.terms]


@dataclass
class Flow:
    """Where the analysis stands.

    Attributes:
        functions: definitions by name.
        call: follows a call of a user's function; given by statements.py.
        env: what is known of each variable.
        pc: what the branch taken depends on.
        block: of the program.
        findings: lines, messages, and whether the contract is broken there for certain.
        clamps: how often pseudo_log_lik was added to target.
    """

    functions: dict[str, list[Node]]
    call: Callable[[str, list[Value], int], Value]
    env: dict[str, Value] = field(default_factory=dict)
    pc: Value = INT
    block: str = "data"
    findings: list[tuple[int, str, bool]] = field(default_factory=list)
    clamps: int = 0

    def find(self, line: int, message: str, *, broken: bool) -> None:
        """Note a line, once."""
        if (line, message, broken) not in self.findings:
            self.findings.append((line, message, broken))

    def evaluate(self, node: Node) -> Value:
        """What is known of an expression's value."""
        if node.kind in ("name", "number"):
            return self._leaf(node)
        if node.kind == "call":
            arguments = [self.evaluate(a) for a in node.parts[1].present] if node.parts[1] else []
            return self._call(node[0].text, arguments, node)
        if node.kind == "conditional_call":
            rest = [self.evaluate(a) for a in node.parts[2].present] if node.parts[2] else []
            return self._call(node[0].text, [self.evaluate(node[1]), *rest], node)
        if node.kind == "index":
            return self._index(self.evaluate(node[0]), node.present[1:], node.line)
        if node.kind == "binary":
            left, right = self.evaluate(node[0]), self.evaluate(node[2])
            return binary(node[1].text, left, right, node.line)
        if node.kind == "unary":
            value = self.evaluate(node[1])
            if node[0].text == "-" and value.form is not None:
                return replace(mixed([value], node.line, INT), form=Linear().plus(value.form, -1))
            return value if node[0].text == "+" else mixed([value], node.line, value)
        if node.kind == "transpose":
            return transposed(self.evaluate(node[0]), node.line)
        if node.kind == "ternary":
            return self._ternary(node)
        items = node.parts[0].present if node.kind == "row" and node.parts[0] else node.present
        return listed(node.kind, [self.evaluate(item) for item in items], node.line)

    def _leaf(self, node: Node) -> Value:
        text = node[0].text
        if node.kind == "number":
            whole = re.fullmatch(r"\d+", text) is not None
            form = Linear(constant=int(text)) if whole else None
            unit = not text.endswith("i") and float(text.replace("_", "")) <= 1
            return replace(INT if whole else REAL, form=form, nonneg=True, unit=unit)
        return self.env.get(text, Value(dims=()))  # else the name of a function

    def _ternary(self, node: Node) -> Value:
        condition = self.evaluate(node[0])
        value = either(self.evaluate(node[1]), self.evaluate(node[2]), node.line)
        return under(value, condition, node.line)

    # Indexing

    def _index(self, value: Value, places: Sequence[Node], line: int) -> Value:
        indices = [[self.evaluate(p) for p in place.present] for place in places]
        shape = _indexed_shape(value, places, indices)
        flat = [v for index in indices for v in index]
        counted = [
            index[0]
            for place, index in zip(places, indices, strict=True)
            if place.kind == "single" and _counts(index[0].form)
        ]
        result = replace(
            mixed([value], line, shape),
            nonneg=value.nonneg,
            unit=value.unit,
            count=max([value.count, *(v.count for v in counted)]),
            theta=value.theta or any(v.theta for v in flat),
        )
        if any(not v.public and v.theta for v in flat):
            self._may_fail(line, "an index depends on a record and on parameters")
        taint = self._picked(value, places[0], indices[0], line)
        rest = [v.taint for index in indices[1:] for v in index]
        if any(v.long for v in flat):
            result = replace(result, short=False)
        name = value.name if len(places) == 1 and _whole_or_block(places[0], indices[0]) else ""
        return replace(result, taint=join_taints([taint, *rest], line), name=name)

    def _picked(self, value: Value, place: Node, index: list[Value], line: int) -> Taint:
        """The dependence of what the first index picks."""
        taints = [v.taint for v in index]
        if value.taint.kind == "public":
            if place.kind == "single" and taints[0].kind == "rows" and index[0].arrays == 1:
                return taints[0]  # entry i is picked by record i
            return join_taints(taints, line)
        if value.taint.kind != "rows":
            return join_taints([value.taint, *taints], line)
        if any(t.kind != "public" for t in taints):
            return private(line, "the place of a record is read off records", sure=True)
        if place.kind == "all" or (
            place.kind == "range" and _frame_of(index) == value.taint.frame
            and index[0].form == ONE
        ):  # fmt: skip
            return value.taint
        if place.kind == "range" and _whole_or_block(place, index) and value.taint.frame == N:
            return Taint("rows", frame=BLOCK)
        record = record_of(index[0], value.taint.frame) if place.kind == "single" else None
        if record is not None:
            return Taint("one", record=record)
        return private(line, "records are picked by an index that cannot be followed")

    # Calls

    def _call(self, name: str, values: list[Value], node: Node) -> Value:
        line = node.line
        if name in self.functions:
            return self.call(name, values, line)
        if name in ("reduce_sum", "reduce_sum_static"):
            return self._reduce_sum(node, values)
        if name == "target":
            return Value(private(line, "target() holds what the records add to it"), dims=())
        if name in stan.SIZES and len(values) == 1:
            if values[0].dims is None and not values[0].public:
                return mixed(values, line, INT)
            return stan.size_of(name, values[0])
        if name in stan.FILLED:
            return filled(name, values, line)
        if name in stan.CONSTANTS and not values:
            return replace(REAL, nonneg=name in ("pi", "e"))
        if name.endswith("_rng"):
            return self._random(values, line)
        if name.endswith(stan.DENSITY_ENDINGS):
            return self._density(name, values, line)
        return self._library(name, values, line)

    def _library(self, name: str, values: list[Value], line: int) -> Value:
        """A function of Stan's own that is neither a density nor a generator."""
        several = name in stan.TOGETHER and not (
            (len(values) == 2 and name == "log_sum_exp") or all(v.scalar for v in values)
        )
        if several or name in stan.REORDERED:
            return together(name, values, line, scalar=several)
        if name in stan.ELEMENTWISE | stan.CHECKED:
            return self._elementwise(name, values, line)
        if name in stan.RESHAPED:
            return reshaped(name, values, line)
        by_rows = name in stan.ROW_BY_ROW or (
            name == "diag_pre_multiply" and values[0].base == "vector"
        )
        if by_rows and all(v.dims for v in values[: 1 if name == "col" else None]):
            return row_by_row(name, values, line)
        if name == "log_mix" and all(v.density or v.public for v in values) and values[0].public:
            return mixed(values, line)
        kinds = {v.taint.kind for v in values}
        count = max([int(any(v.long for v in values)), *(v.count for v in values)])
        taint = join_taints((v.taint for v in values), line)
        if "one" in kinds and taint.kind == "one" and not any(v.theta for v in values):
            return replace(mixed(values, line, Value()), count=count)
        if taint.kind != "public" and not taint.sure:
            taint = private(line, f"{name}() of records, which cannot be followed")
        return replace(mixed(values, line, Value()), taint=taint, count=count)

    def _elementwise(self, name: str, values: list[Value], line: int) -> Value:
        argument = values[0] if len(values) == 1 else REAL
        safe = (name == "log1p" and argument.nonneg) or (name == "log1m" and argument.unit)
        taint = join_taints((v.taint for v in values), line)
        risky = name in stan.CHECKED and not safe and taint.kind != "public"
        if risky and any(v.theta for v in values):
            self._may_fail(line, f"{name}() can be an error where a record and parameters meet")
        floor = name == "fmax" and any(v.nonneg for v in values)
        return replace(
            mixed(values, line, largest(values)),
            nonneg=name in stan.NONNEG or floor,
            unit=name in stan.UNIT,
        )

    def _density(self, name: str, values: list[Value], line: int) -> Value:
        first, rest = values[0], values[1:]
        if not all(v.public for v in values):
            if not stan.known_density(name):
                self._may_fail(line, f"{name}() of records cannot be followed")
            if not first.public and first.theta:
                self._may_fail(line, f"what {name}() is the density of depends on parameters too")
            if not all(v.public for v in rest):
                self._may_fail(line, f"an argument of {name}() after the first depends on records")
        return replace(together(name, values, line), density=True)

    def _random(self, values: list[Value], line: int) -> Value:
        taint = join_taints([self.pc.taint, *(v.taint for v in values)], line)
        if taint.kind != "public":
            self.find(
                line,
                "a random number is drawn by confidential records, and so are those after it: "
                "draw from parameters and public data alone.",
                broken=taint.kind != "private" or taint.sure,
            )
        like = largest(values)
        like = Value() if like.scalar or not like.dims else replace(like, base="real", arrays=1)
        return replace(mixed(values, line, like), theta=True)

    def _reduce_sum(self, node: Node, values: list[Value]) -> Value:
        """The function that is summed, followed for the records first..last."""
        line, arguments = node.line, node.parts[1]
        assert arguments is not None
        name = arguments[0][0].text if arguments[0].kind == "name" else ""
        sliced = values[1] if len(values) > 2 else REAL
        if name not in self.functions or sliced.length != N:
            return self._library("reduce_sum", values, line)
        block = (Size(BLOCK, counts=True), *(sliced.dims or ())[1:])
        taint = Taint("rows", frame=BLOCK) if sliced.taint.kind == "rows" else sliced.taint
        bounds = [replace(INT, form=form, count=2) for form in (FIRST, LAST)]
        part = replace(sliced.plain, taint=taint, dims=block)
        total = self.call(name, [part, *bounds, *values[3:]], line)
        # What is added besides the clamped sum is added once for each block.
        return total if total.density else replace(total, count=max(1, total.count))

    def _may_fail(self, line: int, why: str) -> None:
        if self.block in ("model", "transformed parameters"):
            why += ", so that a record could make the density zero there; this cannot be ruled out."
            self.find(line, why, broken=False)


def record_of(index: Value, frame: Linear | None) -> Linear | None:
    """Number of the record at an index of a vector of all records, or of a block of them."""
    if index.form is None or frame not in (N, BLOCK):
        return None
    return index.form if frame == N else index.form.plus(FIRST).plus(ONE, -1)


def _counts(form: Linear | None) -> bool:
    """Whether an index with this form follows the number of records: that of a loop does not."""
    if form is None:
        return True
    looped = any("#" in name for name, _ in form.terms)
    return not looped and any(form.reads(name) for name in COUNTED)


def _frame_of(index: list[Value]) -> Linear | None:
    first, last = (v.form for v in index)
    return None if first is None or last is None else last.plus(first, -1).plus(ONE)


def _whole_or_block(place: Node, index: list[Value]) -> bool:
    """Whether an index takes all entries, or those of the records first..last of all."""
    if place.kind == "all":
        return True
    if place.kind != "range":
        return False
    return (index[0].form, _frame_of(index)) in ((ONE, N), (FIRST, BLOCK))


def _indexed_shape(value: Value, places: Sequence[Node], indices: list[list[Value]]) -> Value:
    """Type and sizes after indexing."""
    if value.dims is None or not value.base or len(places) > len(value.dims):
        return Value()
    cuts = [i for place, i in zip(places, indices, strict=True) if place.kind != "single"]
    if any(not v.public for index in cuts for v in index):  # its length is not public either
        return Value()
    arrays, base, dims = value.arrays, value.base, []
    for axis, (place, index) in enumerate(zip(places, indices, strict=True)):
        if place.kind == "single" and index[0].scalar:
            if axis < value.arrays:
                arrays -= 1
            elif base == "matrix":
                base = "row_vector" if axis == value.arrays else "vector"
            else:
                base = "real"
        elif place.kind == "single":
            dims.append(index[0].dims[0] if index[0].dims else Size(counts=True))
        elif place.kind == "range":
            dims.append(Size(_frame_of(index), any(v.count for v in index)))
        elif place.kind == "all":
            dims.append(value.dims[axis])
        else:
            dims.append(Size(None, value.dims[axis].counts or index[0].count > 0))
    return Value(base=base, arrays=arrays, dims=(*dims, *value.dims[len(places) :]))
