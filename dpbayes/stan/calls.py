"""Calls of the functions of a Stan program, followed with what is known of their arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache

from dpbayes.stan.declared import as_declared, fits, parameter_names, parameter_types
from dpbayes.stan.expressions import Flow
from dpbayes.stan.outlets import CLAMP, CLAMP_ARGUMENTS, Outlets
from dpbayes.stan.program import StanProgram, stan_directory
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


@cache
def bundled_functions() -> list[Node]:
    """Definitions of all functions of the bundled programs."""
    found: list[Node] = []
    for path in sorted(stan_directory().glob("*.stan")):
        functions = parse(StanProgram.from_file(path).text)[0]
        found += [one for one in functions.present if one not in found]
    return found


class Calls(Outlets, ABC):
    """Follows calls.

    Args:
        functions: definitions by name.
    """

    def __init__(self, functions: dict[str, list[Node]]) -> None:
        super().__init__()
        self.flow = Flow(self.call, functions=functions)
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
                return self._predictor(values, line)
        # With other types, or several definitions, Stan may choose another function of that name.
        exactly = len(found) == 1 and fits(found[0], values, exactly=True)
        public = all(v.public and not v.count for v in values)
        # Stan may have a function of that name which takes these types, and may fail or give
        # another value: where that matters only what is bundled is followed, of other names.
        drawn = self.flow.pc.asks and self.flow.pc.public
        ours = public and (drawn or (bool(found) and found[0] in bundled_functions()))
        if len(found) != 1 or name in self.calls or not (exactly or ours):
            why = f"{name}() cannot be followed"
            hint = " with these types (1 for a real: write 1.0)" if len(found) == 1 else ""
            self.flow.find(line, f"{why}{hint}.", broken=False)
            return Value(private(line, why), dims=None)
        self.calls.append(name)
        result = self._inline(found[0], values)
        self.calls.pop()
        return result if exactly else mixed([result, *values], line, Value())

    def _inline(self, definition: Node, values: list[Value]) -> Value:
        flow = self.flow
        env, pc, loops, returned = flow.env, flow.pc, self.loops, self.returned
        assigned, sure, flow.sure = self.assigned, flow.sure, frozenset()
        types = parameter_types(definition)
        given = [as_declared(kind, v) for kind, v in zip(types, values, strict=True)]
        flow.env = dict(zip(parameter_names(definition), given, strict=True))
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
        return as_declared(definition[0][0], total)

    def _predictor(self, values: list[Value], line: int) -> Value:
        """The bundled linear_predictor of the records first..last, as its comment says."""
        first, last, *rest = values
        intercept, covariates, coefficients, effects, index, slopes = rest
        form = None
        if first.form is not None and last.form is not None:
            form = last.form.plus(first.form, -1).plus(Linear(constant=1))
        taint = join_taints((v.taint for v in values), line)
        of_block = self.flow.summing and taint.frame == N
        if not all(v.public for v in (intercept, coefficients, effects)):
            taint = private(line, "linear_predictor() with coefficients or effects of records")
        elif taint.kind == "rows" and of_block and (first.form, last.form) == (FIRST, LAST):
            taint = replace(taint, frame=BLOCK)
        elif taint.kind == "rows" and (first.form != Linear(constant=1) or form != N):
            taint = private(line, "linear_predictor() of confidential covariates in a block")
        if any(v.any_length for v in rest) and self.flow.meets(rest):
            self.flow.may_fail(line, "lengths in linear_predictor() may differ")
        across = [not v.dims or v.dims[-1].counts for v in (covariates, index, slopes)]
        summed = any(across) or coefficients.long or effects.long
        like = Value(base="vector", dims=(Size(form, first.count > 0 or last.count > 0),))
        result = mixed(rest, line, like)
        return replace(result, taint=taint, count=max(int(summed), result.count))
