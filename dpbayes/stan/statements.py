"""Dataflow through the statements of a Stan program (see dataflow.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dpbayes.stan import signatures as stan
from dpbayes.stan.declared import better_known, declared_range, fits, leaves, parameter_names, typed
from dpbayes.stan.expressions import Flow, record_of
from dpbayes.stan.operations import binary, under
from dpbayes.stan.outlets import CLAMP, CLAMP_ARGUMENTS, Loop, Outlets
from dpbayes.stan.program import StanProgram
from dpbayes.stan.syntax import Node, parse
from dpbayes.stan.taint import (
    BLOCK,
    INT,
    Linear,
    N,
    Size,
    Taint,
    Value,
    either,
    join_taints,
    mixed,
    private,
    without,
)

# Functions of the bundled includes that are known by what they do.
TRUSTED = (CLAMP, "linear_predictor")
MOST_STEPS = 100_000  # a bundled program takes a few hundred
PASSES = 20


class TooLong(Exception):
    """A program that takes too many steps to follow."""


@cache
def trusted_functions() -> dict[str, Node]:
    """Definitions in the bundled includes, by name."""
    found = {}
    for include in ("pseudo_likelihood", "linear_predictor"):
        text = StanProgram.bundled_include(include)
        tree = parse("functions {\n" + text + "\n}")
        found.update({f[1].text: f for f in tree[0].present})
    return found


class Follower(Outlets):
    """Follows statements: changes what is known of variables, and notes what breaks the contract.

    Args:
        functions: definitions by name.
        private_names: confidential entries of the data block.
    """

    def __init__(self, functions: dict[str, list[Node]], private_names: Sequence[str]) -> None:
        super().__init__()
        self.flow = Flow(functions, self.call)
        self.private = (*private_names, *CLAMP_ARGUMENTS[:2])
        self.made = 0  # loop variables so far
        self.returned: list[Value] = []
        self.assigned: set[str] = set()  # whole, since the loop began
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
        sizes = [*self._sizes(kind.parts[0]), *self._sizes(kind.parts[3])]
        values = [self.flow.evaluate(limit[1]) for limit in limits]
        self._check_declared(node.line, sizes, values)
        for declared in node.parts[1:]:
            assert declared is not None
            self._declare(declared, kind, sizes, limits)

    def _sizes(self, node: Node | None) -> list[Value]:
        return [] if node is None else [self._size(part) for part in node.present]

    def _size(self, node: Node) -> Value:
        """A size: that of ``condition ? size : 0`` is the size, where there is anything."""
        if node.kind == "ternary" and self.flow.evaluate(node[2]).form == Linear():
            value = self.flow.evaluate(node[1])
            condition = self.flow.evaluate(node[0])
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
        value = typed(kind[1].text, sizes)
        value = replace(value, nonneg=nonneg or value.nonneg, unit=unit)
        if self.flow.block in ("data", "parameters"):
            value = self._given(name, value)
        elif node.parts[1] is not None:
            given = self.flow.evaluate(node[1])
            if limits and not given.public and given.theta and not self.calls:
                self.flow.find(
                    node.line,
                    "a bound is checked at every draw on what depends on a record: leave it out.",
                    broken=False,
                )
            value = self._stored(value, given, node.line)
        else:  # NaN until it is assigned to
            value = replace(value, nonneg=False, unit=False)
        self.flow.env[name] = value
        self._check_output(name, node.line)

    def _given(self, name: str, value: Value) -> Value:
        """A value that is data or a parameter."""
        if self.flow.block == "parameters":
            return replace(value, theta=True)
        if name == "n":
            return replace(value, form=N, count=2)
        if name in self.private:
            taint = Taint("rows", frame=N)
            if value.length != N:
                taint = private(0, f"{name} is not one value for each of the n records")
            value = replace(value, taint=taint)
        elif value.base == "int" and value.scalar:
            value = replace(value, form=Linear.of(name))
        return replace(value, name=name if name in CLAMP_ARGUMENTS else "")

    def _stored(self, declared: Value, given: Value, line: int) -> Value:
        """A value in a variable: its own type and sizes, and what was given it otherwise."""
        declared_dims = declared.dims if declared.base else given.dims
        dims = better_known(declared_dims, given.dims)
        stored = replace(
            given,
            base=declared.base or given.base,
            arrays=declared.arrays if declared.base else given.arrays,
            dims=dims,
        )
        return under(stored, self.flow.pc, line)

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
            value = binary(sign[:-1], self.flow.evaluate(left), value, line)
        old = self.flow.env[name]
        if left.kind == "name":
            self.assigned.add(name)
            self.flow.env[name] = self._stored(old, value, line)
        else:
            value = under(value, self.flow.pc, line)
            self.flow.env[name] = self._entry_stored(old, left.present[1:], value, line, name)
        self._check_output(name, line)

    def _entry_stored(
        self, old: Value, places: Sequence[Node], value: Value, line: int, name: str
    ) -> Value:
        """A variable after an assignment to some of its entries."""
        indices = [[self.flow.evaluate(p) for p in place.present] for place in places]
        flat = [v for index in indices for v in index]
        if any(v.theta for v in flat) and any(not v.public for v in flat):
            self.flow.find(line, "an index depends on a record and on parameters.", broken=False)
        later = [v.taint for index in indices[1:] for v in index]
        new = join_taints([value.taint, *later], line)
        taint = self._placed(old, places[0], indices[0], new, line)
        symbols = [v.form for v in flat if v.form is not None]
        if not all(any(f.reads(s.symbol) for f in symbols) for s in self.loops if s.counts):
            self.assigned.add(name)
        both = mixed([old, value], line, old)
        return replace(both, taint=taint, theta=both.theta or any(v.theta for v in flat))

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
        self.flow.pc = under(pc, condition, node.line)
        self.follow_in_block(node[1])
        after, most, ends = self.flow.env, self.flow.clamps, [pc, self.flow.pc]
        self.flow.env, self.flow.clamps = dict(before), clamps
        self.flow.pc = under(pc, condition, node.line)
        for otherwise in node.present[2:]:
            self.follow_in_block(otherwise)
        self.flow.env = _joined(after, self.flow.env, node.line)
        self.flow.clamps = max(most, self.flow.clamps)
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

    def _for_range(self, node: Node) -> None:
        low, high = self.flow.evaluate(node[1]), self.flow.evaluate(node[2])
        bounds = mixed([low, high], node.line, INT)
        counts = bounds.count > 0
        variable = replace(bounds, count=int(counts), nonneg=low.nonneg)
        self._loop_over(node, node[3], variable, bounds, counts=counts)

    def _for_each(self, node: Node) -> None:
        values = self.flow.evaluate(node[1])
        variable = Value(values.taint, values.count, values.theta)
        if values.dims:
            arrays = max(values.arrays - 1, 0)
            base = values.base if values.arrays else "real"
            variable = replace(variable, base=base, arrays=arrays, dims=values.dims[1:])
        self._loop_over(node, node[2], variable, INT, counts=values.long)

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
        entered = pc
        for name in _assigned_in(body) & outer:  # a counter's value at the start says nothing
            self.flow.env[name] = replace(self.flow.env[name], form=None)
        self.loops.append(Loop(symbol, counts))
        for _ in range(PASSES):
            before, self.assigned = dict(self.flow.env), set()
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
        self.assigned = assigned
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

    # Functions of the user

    def call(self, name: str, values: list[Value], line: int) -> Value:
        """What a user's function gives, followed with what is known of its arguments."""
        definitions = [d for d in self.flow.functions[name] if len(d.parts) > 3]
        found = [d for d in definitions if fits(d, values)]
        if name in TRUSTED and definitions == [trusted_functions()[name]]:
            if name == CLAMP and len(values) == len(CLAMP_ARGUMENTS) + 1:
                return self._clamp(values, line)
            if name != CLAMP and found:
                return _predictor(values, line)
        # With exactly these types it is the user's function, whatever Stan has of that name.
        whose = stan.known(name) and not all(fits(d, values, exactly=True) for d in found)
        if not found or name in self.calls or whose:
            why = f"{name}() cannot be followed"
            self.flow.find(line, why + ".", broken=False)
            return Value(private(line, why), dims=None)
        self.calls.append(name)
        results = [self._inline(definition, values) for definition in found]
        self.calls.pop()
        total = results[0]
        for result in results[1:]:
            total = either(total, result, line)
        return total

    def _inline(self, definition: Node, values: list[Value]) -> Value:
        flow = self.flow
        env, pc, loops, returned = flow.env, flow.pc, self.loops, self.returned
        assigned = self.assigned
        flow.env = dict(zip(parameter_names(definition), values, strict=True))
        self.returned, self.assigned = [], set()
        for statement in definition[3].present:
            self.follow(statement)
        results = self.returned
        flow.env, flow.pc, self.loops, self.returned = env, pc, loops, returned
        self.assigned = assigned
        if not results:
            return Value(dims=())
        total = results[0]
        for result in results[1:]:
            total = either(total, result, definition.line)
        return total


def _assigned_in(node: Node) -> set[str]:
    """Names of the variables that a statement assigns to."""
    names = set().union(*(_assigned_in(part) for part in node.present))
    return names | {node[0][0].text} if node.kind == "assignment" else names


def _predictor(values: list[Value], line: int) -> Value:
    """The bundled linear_predictor of the records first..last, as its comment says."""
    first, last, *rest = values
    form = None
    if first.form is not None and last.form is not None:
        form = last.form.plus(first.form, -1).plus(Linear(constant=1))
    taint = join_taints((v.taint for v in values), line)
    if taint.kind == "rows" and (first.form != Linear(constant=1) or form != N):
        taint = private(line, "linear_predictor() of confidential covariates in a block")
    like = Value(base="vector", dims=(Size(form, first.count > 0 or last.count > 0),))
    return replace(mixed(rest, line, like), taint=taint)


def _joined(first: dict[str, Value], second: dict[str, Value], line: int) -> dict[str, Value]:
    return {k: either(v, second[k], line) for k, v in first.items() if k in second}
