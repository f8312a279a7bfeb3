"""Dataflow through the expressions of a Stan program (see dataflow.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dpbayes.stan import signatures as stan
from dpbayes.stan.failures import Failures, in_both
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
    PUBLIC,
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

OF_ALL = Size(N, counts=True)
COUNTED = [name for form in (N, FIRST, LAST) for name, _ in form.terms]


@dataclass
class Flow(Failures):
    """Where the analysis stands.

    Attributes:
        call: follows a call of a user's function; given by statements.py.
        env: what is known of each variable.
        data: names of the data block, and whether they have a row for each record.
        lengths: those with a length that follows the number of records.
        clamps: how often pseudo_log_lik was added to target.
        summing: a function is followed that reduce_sum calls for each block of records.
        own: places at which loops over all records, or those of a block, are.
    """

    call: Callable[[str, list[Value], int], Value]
    env: dict[str, Value] = field(default_factory=dict)
    data: dict[str, bool] = field(default_factory=dict)
    lengths: list[str] = field(default_factory=list)
    clamps: int = 0
    summing: bool = False
    own: set[Linear] = field(default_factory=set)

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
            left, sign = self.evaluate(node[0]), node[1].text
            # After "and" and "or" the other side is evaluated by what the first one is.
            left_out = replace(left, asks=left.asks and sign == "&&")
            right = self._under(left_out if sign in ("&&", "||") else INT, node[2])
            return self.operate(sign, left, right, node.line)
        if node.kind == "unary":
            value = self.evaluate(node[1])
            if node[0].text == "+":
                return value
            if node[0].text == "-":
                self.check_operator("-", INT, value, node.line)
            result = mixed([value], node.line, INT if node[0].text == "!" else value)
            if node[0].text == "-" and value.form is not None:
                return replace(result, form=Linear().plus(value.form, -1))
            return result
        if node.kind == "transpose":
            return transposed(self.evaluate(node[0]), node.line)
        if node.kind == "ternary":
            return self._ternary(node)
        nodes = node.parts[0].present if node.kind == "row" and node.parts[0] else node.present
        items = [self.evaluate(item) for item in nodes]
        self.check_lengths(items, node.line)
        return listed(node.kind, items, node.line)

    def operate(self, sign: str, left: Value, right: Value, line: int) -> Value:
        """What an operator gives."""
        self.check_operator(sign, left, right, line)
        return binary(sign, left, right, line)

    def _under(self, condition: Value, node: Node) -> Value:
        """What is known of an expression that is evaluated by a condition."""
        pc, sure = self.pc, self.sure
        self.pc = replace(under(pc, condition, node.line), asks=pc.asks or condition.asks)
        value = self.evaluate(node)
        self.pc = pc
        if condition is not INT:
            self.sure = sure
        return value

    def _leaf(self, node: Node) -> Value:
        text = node[0].text
        if node.kind == "number" and text.endswith("i"):
            return Value()
        if node.kind == "number":
            text = text.replace("_", "")
            whole = text.isdecimal()
            form = None
            if re.fullmatch(r"\d{1,10}(\.0*)?", text):
                form = Linear(constant=int(text.split(".")[0]))
            unit = float(text) <= 1
            return replace(INT if whole else REAL, form=form, nonneg=True, unit=unit)
        if text in self.env:
            return self.env[text]
        known = text in self.functions  # the name of one
        return Value(PUBLIC if known else private(node.line, f"{text} is not known"), dims=())

    def _ternary(self, node: Node) -> Value:
        condition = self.evaluate(node[0])
        sure = self.sure
        self.sure |= in_both(node[1], node[2], self.functions, self.env)
        otherwise = replace(condition, asks=False)
        one, other = self._under(condition, node[1]), self._under(otherwise, node[2])
        self.sure = sure
        value = either(one, other, node.line)
        if asks_for_terms(node) and self.block == "generated quantities":
            # "emit ? log_lik : rep_vector(0, 0)" has its length where log_lik is computed.
            for empty, full in ((one, other), (other, one)):
                if empty.length == Linear() and empty.base == full.base:
                    value = replace(value, dims=full.dims)
        return under(value, condition, node.line)

    # Indexing

    def _index(self, value: Value, places: Sequence[Node], line: int) -> Value:
        indices = [[self.evaluate(p) for p in place.present] for place in places]
        shape = indexed_shape(value, places, indices)
        flat = [v for index in indices for v in index]
        count = max(value.count, self.by_place(value, places, indices))
        result = replace(
            mixed([value], line, shape),
            nonneg=value.nonneg,
            unit=value.unit,
            declared=value.declared and shape.scalar,
            count=max([count, *counts_in_place(places, indices)]),
            theta=value.theta or any(v.theta for v in flat),
        )
        self.check_index(value, places, indices, line)
        taint = self._picked(value, places[0], indices[0], line)
        rest = later_taints(places, indices, line)
        if any(v.long for v in flat):
            result = replace(result, short=False)
        size = value.dims[0] if value.dims else Size()
        kept = len(places) == 1 and _whole_or_block(places[0], indices[0], size)
        name = value.name if kept else ""
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
        if place.kind == "range" and value.taint.frame == N and _whole_or_block(place, index):
            return Taint("rows", frame=BLOCK)
        record = record_of(index[0], value.taint.frame) if place.kind == "single" else None
        if record is not None:
            return Taint("one", record=record)
        return private(line, "records are picked by an index that cannot be followed")

    def by_place(self, value: Value, places: Sequence[Node], indices: list[list[Value]]) -> int:
        """1 if an index is of a place among the records, which another record may come to have.

        Of public data with a row for each record places are public, as their number is.
        """
        if value.dims is None:
            return int(value.long)
        along = zip(value.dims, places, indices, strict=False)
        return int(
            any(
                not (value.declared or self._own(place, index, size))
                if size.counts
                else any(v.count for v in index)
                for size, place, index in along
            )
        )

    def _own(self, place: Node, index: list[Value], size: Size) -> bool:
        """Whether an index is of all records, those of a block, or each one where a loop is."""
        if place.kind == "single":
            return index[0].scalar and index[0].form in self.own
        in_block = place.kind == "range" and (index[0].form, _frame_of(index)) == (ONE, BLOCK)
        return in_block or _whole_or_block(place, index, size)

    # Calls

    def _call(self, name: str, values: list[Value], node: Node) -> Value:
        line = node.line
        if name in self.functions:
            return self.call(name, values, line)
        if name in ("reduce_sum", "reduce_sum_static"):
            return self._reduce_sum(node, values)
        self.check_call(name, values, node)
        if name.endswith(stan.ADDING):
            self.find(line, f"{name}() adds to target.", broken=False)
            return Value(private(line, f"{name}() adds to target"), dims=None)
        if name == "target":
            return Value(private(line, "target() holds what the records add to it"), dims=())
        if not values and name not in stan.CONSTANTS and not name.endswith("_rng"):
            return Value(private(line, f"{name}() without arguments cannot be followed"), dims=())
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
            return replace(together(name, values, line), base="real")
        return self._library(name, values, line)

    def _library(self, name: str, values: list[Value], line: int) -> Value:
        """A function of Stan's own that is neither a density nor a generator."""
        several = name in stan.TOGETHER and not (
            (len(values) == 2 and name == "log_sum_exp") or all(v.scalar for v in values)
        )
        if several or name in stan.REORDERED:
            return together(name, values, line, scalar=several)
        if name in stan.ELEMENTWISE | stan.CHECKED:
            return _elementwise(name, values, line)
        if name in stan.RESHAPED:
            return reshaped(name, values, line)
        by_rows = name in stan.ROW_BY_ROW and (
            name != "diag_pre_multiply" or values[0].base == "vector"
        )
        if by_rows and all(v.dims for v in values[: 1 if name == "col" else None]):
            return row_by_row(name, values, line)
        kinds = {v.taint.kind for v in values}
        count = max([int(any(v.long for v in values)), *(v.count for v in values)])
        taint = join_taints((v.taint for v in values), line)
        if "one" in kinds and taint.kind == "one" and not any(v.theta for v in values):
            return replace(mixed(values, line, Value()), count=count)
        if taint.kind != "public" and not taint.sure:
            taint = private(line, f"{name}() of records, which cannot be followed")
        return replace(mixed(values, line, Value()), taint=taint, count=count)

    def _random(self, values: list[Value], line: int) -> Value:
        # Of n generators one may fail, and where one does, nothing that is evaluated with it is
        # there: log_lik is evaluated without any, for each record alike.
        if not self.pc.asks:
            self.find(
                line,
                "a random number is drawn outside `if (emit_y_rep)`: declare int<lower=0, upper=1> "
                "emit_y_rep in the data block and draw there, and nowhere else.",
                broken=False,
            )
        taint = join_taints([self.pc.taint, *(v.taint for v in values)], line)
        if taint.kind != "public" and self.replicates:
            self.find(
                line,
                "a random number is drawn by confidential records, and so are those after it: "
                "draw from parameters and public data alone.",
                broken=taint.kind != "private" or taint.sure,
            )
        return replace(mixed(values, line, Value()), theta=True)

    def _reduce_sum(self, node: Node, values: list[Value]) -> Value:
        """The function that is summed, followed for the records first..last."""
        line, arguments = node.line, node.parts[1]
        assert arguments is not None
        name = arguments[0][0].text if arguments[0].kind == "name" else ""
        sliced = values[1] if len(values) > 2 else REAL
        if self.meets(values[2:3]):
            self.may_fail(line, "the size of blocks depends on records and parameters")
        if name not in self.functions or sliced.length != N or self.summing:
            self.check_call("reduce_sum", values, node)
            return self._library("reduce_sum", values, line)
        block = (Size(BLOCK, counts=True), *(sliced.dims or ())[1:])
        taint = Taint("rows", frame=BLOCK) if sliced.taint.kind == "rows" else sliced.taint
        bounds = [replace(INT, form=form, count=2) for form in (FIRST, LAST)]
        part = replace(sliced.plain, taint=taint, dims=block)
        self.summing = True
        total = self.call(name, [part, *bounds, *values[3:]], line)
        self.summing = False
        # What is added besides the clamped sum is added once for each block.
        return total if total.alone else replace(total, count=max(1, total.count))


def asks_for_terms(node: Node) -> bool:
    """Whether it is ``emit ? ... : ...``."""
    return node[0] == Node("name", (Node("word", text="emit"),))


def _elementwise(name: str, values: list[Value], line: int) -> Value:
    like = largest(values)
    if name in stan.ANSWERS:
        like = replace(like, base="int") if like.base in ("int", "real") else Value()
    elif like.base == "int" and name not in stan.WHOLE:
        like = replace(like, base="real")
    # fmax() takes its other argument where one is NaN, which no number as it is written is.
    # Of 0.0 and -0.0 it takes either.
    floor = name == "fmax" and any(
        v.form and not v.form.terms and v.form.constant > 0 for v in values
    )
    root = name == "sqrt" and values[0].nonneg  # that of -0.0 is -0.0
    return replace(
        mixed(values, line, like),
        nonneg=(name in stan.NONNEG and like.base != "int") or floor or root,  # abs() can overflow
        unit=name in stan.UNIT,
    )


def later_taints(places: Sequence[Node], indices: list[list[Value]], line: int) -> list[Taint]:
    """The dependence of indices after the first.

    One value for each record, in such a place, picks along the first axis of the result only if
    those before it pick one entry each.
    """
    taints = []
    alone = places[0].kind == "single" and indices[0][0].scalar
    for place, index in zip(places[1:], indices[1:], strict=True):
        for value in index:
            several = value.taint.kind == "rows" and not alone
            why = "records pick along a second axis"
            taints.append(private(line, why) if several else value.taint)
        alone = alone and place.kind == "single" and index[0].scalar
    return taints


def record_of(index: Value, frame: Linear | None) -> Linear | None:
    """Number of the record at an index of a vector of all records, or of a block of them."""
    if index.form is None or frame not in (N, BLOCK):
        return None
    return index.form if frame == N else index.form.plus(FIRST).plus(ONE, -1)


def counts_in_place(places: Sequence[Node], indices: list[list[Value]]) -> list[int]:
    """``count`` of the indices that pick one entry."""
    return [
        index[0].count
        for place, index in zip(places, indices, strict=True)
        if place.kind == "single" and _counts(index[0].form)
    ]


def _counts(form: Linear | None) -> bool:
    """Whether an index with this form follows the number of records: that of a loop does not."""
    if form is None:
        return True
    looped = any("#" in name for name, _ in form.terms)
    return not looped and any(form.reads(name) for name in COUNTED)


def _frame_of(index: list[Value]) -> Linear | None:
    first, last = (v.form for v in index)
    return None if first is None or last is None else last.plus(first, -1).plus(ONE)


def _whole_or_block(place: Node, index: list[Value], size: Size = OF_ALL) -> bool:
    """Whether an index takes all entries, or those of the records first..last of all.

    Args:
        size: of what is indexed: there are no places first..last in a block of them.
    """
    if place.kind == "all":
        return True
    if place.kind != "range" or size.form != N:
        return False
    return (index[0].form, _frame_of(index)) in ((ONE, N), (FIRST, BLOCK))


def indexed_shape(value: Value, places: Sequence[Node], indices: list[list[Value]]) -> Value:
    """Type and sizes after indexing."""
    if value.dims is None or not value.base or len(places) > len(value.dims):
        return Value()
    # One place or several: what is not known to be a whole number may be an array.
    if any(
        v.base != "int"
        for place, index in zip(places, indices, strict=True)
        if place.kind == "single"
        for v in index
    ):
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
