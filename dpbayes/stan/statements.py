"""Dataflow through the statements of a Stan program (see dataflow.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpbayes.stan.calls import Calls
from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.declared import (
    COMPLEX,
    better_known,
    declared_range,
    is_checked,
    keeps_sizes,
    takes_any,
    typed,
)
from dpbayes.stan.expressions import (
    asks_for_terms,
    counts_in_place,
    indexed_shape,
    later_taints,
    record_of,
)
from dpbayes.stan.failures import changed_in, counted_to, in_both, names_in
from dpbayes.stan.operations import under
from dpbayes.stan.outlets import CLAMP_ARGUMENTS, COUNTED_ARGUMENTS, Loop
from dpbayes.stan.program import MULTIPLICITY
from dpbayes.stan.syntax import Node, leaves
from dpbayes.stan.taint import (
    BLOCK,
    FIRST,
    INT,
    LAST,
    ONE,
    Linear,
    N,
    Taint,
    Value,
    either,
    join_taints,
    mixed,
    private,
    without,
)

GIVEN_BY_ROW = ("X", "Z", "group", "group_index", "slope_X")  # of records, to a user's program
WHOLE = ((ONE, N), (ONE, BLOCK), (FIRST, LAST))  # from and to of loops over records
MOST_STEPS = 100_000  # a bundled program takes a few hundred
PASSES = 20


class TooLong(Exception):
    """A program that takes too many steps to follow."""


class Follower(Calls):
    """Follows statements: changes what is known of variables, and notes what breaks the contract.

    Args:
        functions: definitions by name.
        private_names: confidential entries of the data block.
        counted: rows stand for different records: which rows there are says what records hold, so
            that every entry with a row for each is confidential.
    """

    def __init__(
        self, functions: dict[str, list[Node]], private_names: Sequence[str], counted: bool = False
    ) -> None:
        super().__init__(functions)
        self.counted = self.flow.counted = counted
        self.private = (*private_names, *CLAMP_ARGUMENTS[:2])
        self.made = 0  # loop variables so far
        self.checked: set[str] = set()  # variables whose declared limits are checked at every draw
        self.steps = 0

    def block(self, node: Node, name: str) -> None:
        """A block of the program."""
        self.flow.block, self.flow.pc = name, INT
        for statement in node.present:
            self.follow(statement)

    def follow(self, node: Node) -> None:
        """A statement."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooLong(node.line)
        getattr(self, f"_{node.kind}", self._unknown)(node)

    def _unknown(self, node: Node) -> None:
        self.flow.find(node.line, "this statement cannot be followed.", broken=False)

    def _empty(self, node: Node) -> None:
        pass

    def _block(self, node: Node) -> None:
        outer = set(self.flow.env)
        for statement in node.present:
            self.follow(statement)
        self.flow.env = {k: v for k, v in self.flow.env.items() if k in outer}

    def _profile(self, node: Node) -> None:
        self._block(node[1])

    # Declarations

    def _declaration(self, node: Node) -> None:
        kind = node[0]
        limits = kind.parts[2].present if kind.parts[2] else ()
        names = {declared[0].text.partition(SEPARATOR)[0] for declared in node.present[1:]}
        sizes = [size for k in (0, 3) for size in self._sizes(kind.parts[k], names)]
        values = [self.flow.evaluate(limit[1]) for limit in limits]
        self._check_declared(node.line, sizes, values)
        unsure = [size for size in sizes if size.form not in (N, BLOCK)]  # may be below 0
        if unsure and self.flow.meets(unsure):
            self.flow.may_fail(node.line, "a length depends on a record and on parameters")
        for declared in node.parts[1:]:
            assert declared is not None
            self._declare(declared, kind, sizes, limits)

    def _sizes(self, node: Node | None, names: set[str]) -> list[Value]:
        return [] if node is None else [self._size(part, names) for part in node.present]

    def _size(self, node: Node, names: set[str]) -> Value:
        """A size of variables: that of ``emit ? n : 0`` is n, where there is anything.

        It is so of log_lik, which is there where it is computed, of y_rep, and of data that are
        given. Any other variable could be empty there, and then take values of another length.
        """
        switched = node.kind == "ternary" and names <= {
            "data": {*GIVEN_BY_ROW},
            "generated quantities": {"y_rep", *(["log_lik"] if asks_for_terms(node) else [])},
        }.get(self.flow.block, set())
        if switched and not self.calls and self.flow.evaluate(node[2]).form == Linear():
            value = self.flow.evaluate(node[1])
            condition = self.flow.evaluate(node[0])
            value = replace(value, form=None, theta=True) if condition.theta else value
            return value if condition.public else under(value, condition, node.line)
        return self.flow.evaluate(node)

    def _check_declared(self, line: int, sizes: list[Value], limits: list[Value]) -> None:
        for what, values in (("length", sizes), ("bound", limits)):
            for value in values:
                if not value.public:
                    self.flow.find(
                        line,
                        f"a {what} depends on confidential records: use a public constant.",
                        broken=self.flow.block in ("data", "parameters")
                        and (value.taint.kind != "private" or value.taint.sure),
                    )
                elif self.flow.block == "data" and what == "bound" and value.count:
                    self.flow.find(
                        line, "a bound of data follows the number of records.", broken=False
                    )
                elif self.flow.block == "parameters" and value.count:
                    self.flow.find(
                        line,
                        f"a parameter's {what} follows the number of records: `n` is for the "
                        "lengths of data, `rows` is the public number.",
                        broken=what == "bound" and value.count == 2,
                    )

    def _declare(self, node: Node, kind: Node, sizes: list[Value], limits: Sequence[Node]) -> None:
        name = node[0].text
        nonneg, unit = declared_range(self.flow, limits)
        if name == "n" and not takes_any(limits):
            message = "n has other limits than a lower one of 0 or 1, and so tells of itself."
            self.flow.find(node.line, message, broken=False)
        value = typed(kind[1].text, sizes, len(kind.parts[0].parts) if kind.parts[0] else 0)
        value = replace(value, nonneg=nonneg or value.nonneg, unit=unit)
        if self.flow.block in ("data", "parameters") and not self.calls:
            value = self._given(name, value, node.line)
        elif node.parts[1] is not None:
            value = self._stored(value, self.flow.evaluate(node[1]), node.line)
        else:  # NaN until it is assigned to, and as many as parameters may say
            theta = any(size.theta for size in sizes)
            value = replace(value, nonneg=False, unit=False, theta=theta)
        if not self.calls:  # a function's variables are others, whatever their names are
            (self.checked.add if is_checked(kind) else self.checked.discard)(name)
        self._set(name, value, node.line)

    def _set(self, name: str, value: Value, line: int) -> None:
        """A variable has a value now."""
        self.flow.env[name] = value
        self.flow.forget(name)
        if name in self.checked and not self.calls and self.flow.meets([value]):
            self.flow.may_fail(line, "a bound is checked at every draw on what depends on a record")
        self._check_output(name, line)

    def _given(self, name: str, value: Value, line: int) -> Value:
        """A value that is data or a parameter."""
        value = replace(value, declared=True)
        if self.flow.block == "parameters":
            return replace(value, theta=True)
        own = value.dims[value.length == N :] if value.dims else ()
        sizes = [size.form for size in value.dims or () if size.form]
        if self.counted and (any(s.counts for s in own) or any(s.reads("rows") for s in sizes)):
            message = f"{name} has rows of records, and not one for each: declare {name} [n]."
            self.flow.find(line, message, broken=False)
        if name == "n":
            return replace(value, form=N, count=2)
        self.flow.data[name] = by_row = value.length == N
        if self.counted and name in GIVEN_BY_ROW and value.dims and not by_row:
            why = f"{name} has a row for each record: its first length has to be n"
            self.flow.find(line, f"{why}.", broken=False)
        if value.dims is None or any(size.counts for size in value.dims):
            self.flow.lengths.append(name)
        if name == MULTIPLICITY:
            taint = private(0, "how many records a row stands for", sure=True)
            value = replace(value, taint=taint)
        elif name in self.private or (self.counted and by_row):
            taint = Taint("rows", frame=N)
            if not by_row:
                taint = private(0, f"{name} is not one value for each of the n records")
            value = replace(value, taint=taint)
        elif value.base == "int" and value.scalar:
            value = replace(value, form=Linear.of(name))
        asks = name == "emit_y_rep" and value.scalar
        return replace(value, name=name if name in COUNTED_ARGUMENTS else "", asks=asks)

    def _stored(self, declared: Value, given: Value, line: int) -> Value:
        """A value in a variable: its own type and sizes, and what was given it otherwise."""
        self.flow.check_lengths([declared, given], line)
        self.flow.check_rows([declared, given], line)
        declared_dims = declared.dims if declared.base else given.dims
        dims = better_known(declared_dims, given.dims)
        self._keeps_sizes(declared, given, line)
        if dims and not keeps_sizes(declared, given):
            dims = tuple(replace(size, form=None) for size in dims)
        if declared.base in COMPLEX:
            dims = None
        stored = replace(
            given,
            base=declared.base or given.base,
            arrays=declared.arrays if declared.base else given.arrays,
            dims=dims,
        )
        return under(stored, self.flow.pc, line)

    def _keeps_sizes(self, declared: Value, given: Value, line: int) -> bool:
        """Whether a variable has its own sizes after an assignment, or nothing of records in them.

        It is noted, but where y_rep is drawn, and nothing else is evaluated.
        """
        if not declared.dims or keeps_sizes(declared, given):
            return True
        value = under(given, self.flow.pc, line)
        if value.public and not (value.long or value.count or declared.long):
            return True
        if not self.flow.pc.asks:
            self.flow.find(
                line,
                "a variable that may be empty, or an array of vectors, takes values of any length: "
                "give it what is known to have its sizes, or values entry by entry.",
                broken=False,
            )
        return False

    # Assignment

    def _assignment(self, node: Node) -> None:
        left, sign, line = node[0], node[1].text, node.line
        if left.kind == "name" and left[0].text in ("target", "jacobian"):
            self._target(self.flow.evaluate(node[2]), line)
            return
        root = left[0] if left.kind == "index" else left
        if root.kind != "name" or root[0].text not in self.flow.env:
            self._unknown(node)
            return
        name = root[0].text
        value = self.flow.evaluate(node[2])
        if sign != "=":
            value = self.flow.operate(sign[:-1], self.flow.evaluate(left), value, line)
        old = self.flow.env[name]
        if left.kind == "name":
            self.assigned.add(name)
            self._set(name, self._stored(old, value, line), line)
        else:
            value = under(value, self.flow.pc, line)
            self._set(name, self._entry_stored(old, left.present[1:], value, line, name), line)

    def _entry_stored(
        self, old: Value, places: Sequence[Node], value: Value, line: int, name: str
    ) -> Value:
        """A variable after an assignment to some of its entries."""
        indices = [[self.flow.evaluate(p) for p in place.present] for place in places]
        flat = [v for index in indices for v in index]
        self.flow.check_index(old, places, indices, line)
        self.flow.check_lengths([value], line, 1)
        picked = indexed_shape(old, places, indices)
        self.flow.check_rows([picked, value], line)
        if not self._keeps_sizes(picked, value, line):
            old = replace(old, dims=tuple(replace(size, form=None) for size in old.dims or ()))
        new = join_taints([value.taint, *later_taints(places, indices, line)], line)
        taint = self._placed(old, places[0], indices[0], new, line)
        symbols = [v.form for v in flat if v.form is not None]
        by_record = old.length in (N, BLOCK)
        looped = all(any(f.reads(s.symbol) for f in symbols) for s in self.loops if s.counts)
        if not (looped and by_record):
            self.assigned.add(name)
        both = mixed([old, value], line, old)
        count = max(both.count, self.flow.by_place(old, places, indices))
        return replace(
            both,
            taint=taint,
            theta=both.theta or any(v.theta for v in flat),
            count=max([count, *counts_in_place(places, indices)]),
        )

    def _placed(self, old: Value, place: Node, index: list[Value], new: Taint, line: int) -> Taint:
        """The dependence of a variable on records after entries were assigned."""
        picked = [v.taint for v in index]
        frame = old.length if old.length in (N, BLOCK) else None
        if all(t.kind == "public" for t in picked) and frame is not None:
            if new.kind == "one" and place.kind == "single":
                record = record_of(index[0], frame)
                if record is not None and record == new.record:
                    return join_taints([old.taint, Taint("rows", frame=frame)], line)
                why = "a record's value is put in the place of another"
                return private(line, why, sure=record is not None)
            whole = place.kind == "all" or (
                place.kind == "range"
                and index[0].form == Linear(constant=1)
                and index[1].form == frame
            )
            if new.kind == "rows" and whole:
                return join_taints([old.taint, new], line)
        if new.kind == "rows":
            why = "records are put in places that cannot be followed"
            return private(line, why)
        return join_taints([old.taint, new, *picked], line)

    # Control

    def _if_else(self, node: Node) -> None:
        condition = self.flow.evaluate(node[0])
        before, clamps, pc = dict(self.flow.env), self.flow.clamps, self.flow.pc
        sure = outer = self.flow.sure
        if len(node.present) > 2:
            sure = outer | in_both(node[1], node[2], self.flow.functions, self.flow.env)
        self.flow.pc, self.flow.sure = under(pc, condition, node.line), sure
        self.flow.pc = replace(self.flow.pc, asks=pc.asks or condition.asks)
        self.follow_in_block(node[1])
        after, most, ends = self.flow.env, self.flow.clamps, [pc, self.flow.pc]
        kept = outer & self.flow.sure
        self.flow.env, self.flow.clamps, self.flow.sure = dict(before), clamps, sure
        self.flow.pc = under(pc, condition, node.line)
        for otherwise in node.present[2:]:
            self.follow_in_block(otherwise)
        self.flow.env = _joined(after, self.flow.env, node.line)
        self.flow.clamps = max(most, self.flow.clamps)
        self.flow.sure &= kept
        # What follows is run by the condition too, if a branch may leave it out.
        ends.append(self.flow.pc)
        self.flow.pc = mixed(ends, node.line, INT) if leaves(node) else pc

    def follow_in_block(self, node: Node) -> None:
        """A statement with a scope of its own."""
        outer = set(self.flow.env)
        self.follow(node)
        self.flow.env = {k: v for k, v in self.flow.env.items() if k in outer}

    def _while_loop(self, node: Node) -> None:
        def enter() -> Value:
            condition = self.flow.evaluate(node[0])
            if not condition.public:
                message = "how long a loop runs depends on confidential records."
                self.flow.find(node.line, message, broken=False)
            return condition

        self._repeat(node, node[1], enter, counts=False)

    def _changes_end(self, node: Node, end: Node) -> None:
        """Note a loop that changes where it ends, which is asked at every turn."""
        if names_in(end) & set(changed_in(node[-1])):
            self.flow.find(node.line, "a loop changes where it ends.", broken=False)

    def _for_range(self, node: Node) -> None:
        self._changes_end(node, node[2])
        low, high = self.flow.evaluate(node[1]), self.flow.evaluate(node[2])
        bounds = mixed([low, high], node.line, INT)
        counts = bounds.count > 0
        variable = replace(bounds, count=int(counts), nonneg=low.nonneg)
        limit, symbol = counted_to(low, high), f"{node[0].text}#{self.made + 1}"
        if limit is not None:
            self.flow.limits[symbol] = limit
        if (low.form, high.form) in WHOLE:  # also as it is counted in a block, or from a block
            place, before = Linear.of(symbol), FIRST.plus(ONE, -1)
            self.flow.own |= {place, place.plus(before, -1 if low.form == FIRST else 1)}
        self._loop_over(node, node[3], variable, bounds, counts=counts)

    def _for_each(self, node: Node) -> None:
        self._changes_end(node, node[1])
        values = self.flow.evaluate(node[1])
        length = Value(values.taint, theta=values.theta)
        variable = replace(length, count=values.count)
        if values.dims:
            arrays = max(values.arrays - 1, 0)
            base = values.base if values.arrays else "real"
            variable = replace(variable, base=base, arrays=arrays, dims=values.dims[1:])
        bounds = INT if values.sure_length else length
        self._loop_over(node, node[2], variable, bounds, counts=values.long)

    def _loop_over(
        self, node: Node, body: Node, variable: Value, bounds: Value, *, counts: bool
    ) -> None:
        self.made += 1
        symbol, name = f"{node[0].text}#{self.made}", node[0].text
        form = Linear.of(symbol)
        if node.kind == "for_range":
            variable = replace(variable, form=form)
        elif variable.taint.kind == "rows":
            variable = replace(variable, taint=Taint("one", record=form))
        hidden = self.flow.env.get(name)

        def enter() -> Value:
            self.flow.env[name] = variable
            return bounds if not bounds.public or bounds.theta else INT

        self._repeat(node, body, enter, counts=counts, symbol=symbol)
        self.flow.env.pop(name, None)
        if hidden is not None:
            self.flow.env[name] = hidden

    def _repeat(
        self, node: Node, body: Node, enter: object, *, counts: bool, symbol: str = ""
    ) -> None:
        """A loop's body, until nothing new is learnt of the variables outside it."""
        assert callable(enter)
        outer, pc, assigned = set(self.flow.env), self.flow.pc, self.assigned
        entered, returned = pc, len(self.returned)
        for name in outer.intersection(
            changed_in(body)
        ):  # a counter's value at the start says nothing
            self.flow.env[name] = replace(self.flow.env[name], form=None)
        self.loops.append(Loop(symbol, counts))
        for _ in range(PASSES):
            before, self.assigned = dict(self.flow.env), set()
            self.flow.sure = frozenset()
            self.flow.pc = under(entered, enter(), node.line)
            self.follow_in_block(body)
            after = {k: v for k, v in self.flow.env.items() if k in outer}
            if symbol:
                after = {k: without(v, symbol, node.line) for k, v in after.items()}
            if counts:
                for name in self.assigned & outer:
                    after[name] = replace(after[name], count=max(1, after[name].count))
            assigned |= self.assigned
            self.flow.env = _joined(before, after, node.line)
            last, entered = entered, self._after_leaving(pc, symbol, node)
            if last == entered and self.flow.env == {k: v for k, v in before.items() if k in outer}:
                break
        else:
            self.flow.find(node.line, "this loop cannot be followed.", broken=False)
        self.loops.pop()
        if counts and leaves(body, "return_value", "break_loop"):  # not all records had their turn
            for name in outer.intersection(changed_in(body)):
                self.flow.env[name] = _by_place(self.flow.env[name])
            self.returned[returned:] = map(_by_place, self.returned[returned:])
        self.assigned, self.flow.sure = assigned, frozenset()
        self.flow.pc = entered if leaves(body, "return_value") else pc

    def _after_leaving(self, pc: Value, symbol: str, node: Node) -> Value:
        """What is run after a loop hangs on whether it was left early."""
        if not leaves(node[-1], "return_value", "break_loop"):
            return pc
        after = under(pc, self.flow.pc, node.line)
        return without(after, symbol, node.line) if symbol else after

    def _return_value(self, node: Node) -> None:
        if node.parts[0] is not None:
            self.returned.append(under(self.flow.evaluate(node[0]), self.flow.pc, node.line))

    def _break_loop(self, node: Node) -> None:
        pass

    _continue_loop = _break_loop

    def _call_statement(self, node: Node) -> None:
        self.flow.evaluate(node[0])


def _by_place(value: Value) -> Value:
    """A value that may hang on places among the records."""
    return replace(value, count=max(1, value.count))


def _joined(first: dict[str, Value], second: dict[str, Value], line: int) -> dict[str, Value]:
    return {k: either(v, second[k], line) for k, v in first.items() if k in second}
