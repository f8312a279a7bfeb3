"""Calls of the functions of a Stan program, followed with what is known of their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache

from dpbayes.stan.declared import fits, parameter_names
from dpbayes.stan.expressions import Flow
from dpbayes.stan.outlets import CLAMP, CLAMP_ARGUMENTS, Outlets
from dpbayes.stan.program import StanProgram
from dpbayes.stan.syntax import Node, parse
from dpbayes.stan.taint import (
    BLOCK,
    FIRST,
    LAST,
    Linear,
    N,
    Size,
    Value,
    either,
    join_taints,
    mixed,
    private,
)

# Functions of the bundled includes that are known by what they do.
TRUSTED = (CLAMP, "linear_predictor")


@cache
def trusted_functions() -> dict[str, list[Node]]:
    """Definitions in the bundled includes, by name."""
    found: dict[str, list[Node]] = {}
    for include in ("pseudo_likelihood", "linear_predictor"):
        text = StanProgram.bundled_include(include)
        tree = parse("functions {\n" + text + "\n}")
        for function in tree[0].present:
            found.setdefault(function[1].text, []).append(function)
    return found


class Calls(Outlets, ABC):
    """Follows calls.

    Args:
        functions: definitions by name.
    """

    def __init__(self, functions: dict[str, list[Node]]) -> None:
        super().__init__()
        self.flow = Flow(functions, self.call)
        self.returned: list[Value] = []
        self.assigned: set[str] = set()  # whole, since the loop began

    @abstractmethod
    def follow(self, node: Node) -> None:
        """A statement."""

    def call(self, name: str, values: list[Value], line: int) -> Value:
        """What a user's function gives, followed with what is known of its arguments."""
        definitions = [d for d in self.flow.functions[name] if len(d.parts) > 3]
        found = [d for d in definitions if fits(d, values)]
        if name in TRUSTED and definitions == trusted_functions()[name]:
            if name == CLAMP and len(values) > len(CLAMP_ARGUMENTS):
                return self._clamp(values, line)
            if name != CLAMP and found:
                return _predictor(values, line, summing=self.flow.summing)
        # With other types, or several definitions, Stan may choose another function of that name.
        chosen = found and (
            fits(found[0], values, exactly=True) or all(v.public and not v.count for v in values)
        )
        if len(found) != 1 or name in self.calls or not chosen:
            why = f"{name}() cannot be followed"
            hint = " with these types (1 for a real: write 1.0)" if len(found) == 1 else ""
            self.flow.find(line, f"{why}{hint}.", broken=False)
            return Value(private(line, why), dims=None)
        self.calls.append(name)
        result = self._inline(found[0], values)
        self.calls.pop()
        return result

    def _inline(self, definition: Node, values: list[Value]) -> Value:
        flow = self.flow
        env, pc, loops, returned = flow.env, flow.pc, self.loops, self.returned
        assigned, sure, flow.sure = self.assigned, flow.sure, frozenset()
        flow.env = dict(zip(parameter_names(definition), values, strict=True))
        self.returned, self.assigned = [], set()
        for statement in definition[3].present:
            self.follow(statement)
        results = self.returned
        flow.env, flow.pc, self.loops, self.returned = env, pc, loops, returned
        self.assigned, flow.sure = assigned, sure
        if not results:
            return Value(dims=())
        total = results[0]
        for result in results[1:]:
            total = either(total, result, definition.line)
        return total


def _predictor(values: list[Value], line: int, *, summing: bool) -> Value:
    """The bundled linear_predictor of the records first..last, as its comment says."""
    first, last, *rest = values
    form = None
    if first.form is not None and last.form is not None:
        form = last.form.plus(first.form, -1).plus(Linear(constant=1))
    taint = join_taints((v.taint for v in values), line)
    of_block = summing and taint.frame == N and (first.form, last.form) == (FIRST, LAST)
    if taint.kind == "rows" and of_block:
        taint = replace(taint, frame=BLOCK)
    elif taint.kind == "rows" and (first.form != Linear(constant=1) or form != N):
        taint = private(line, "linear_predictor() of confidential covariates in a block")
    like = Value(base="vector", dims=(Size(form, first.count > 0 or last.count > 0),))
    return replace(mixed(rest, line, like), taint=taint)
