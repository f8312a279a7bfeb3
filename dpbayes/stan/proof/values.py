"""Analysis of expressions: is a value each record's own, or the same for all records?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from dpbayes.core.errors import ProgramError
from dpbayes.stan.proof import functions as stan
from dpbayes.stan.proof.syntax import Node, every, names_in
from dpbayes.stan.proof.types import (
    COMPARISONS,
    declared_limits,
    declared_sizes,
    declared_type,
    indexed_type,
    is_plain,
    parameters_of,
    returned_type,
    split_type,
    type_of,
    type_of_call,
)

STATEMENTS = {  # kinds of statements that cannot be followed if they name records
    "output": "print or reject", "profile": "profile", "while_loop": "while", "break_loop": "break",
    "continue_loop": "continue", "for_each": "a loop over a container",
}  # fmt: skip
MOST_CALLS = 1000  # most calls of the user's functions with records in a program
DEEPEST = 20  # deepest nesting of calls of the user's functions


class Unclear(ProgramError):
    """An expression cannot be followed.

    Attributes:
        line: line number from 1.
        message: the reason, as a sentence.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line, self.message = line, message


@dataclass(frozen=True)
class Value:
    """Facts that are known about a value.

    Attributes:
        type: Stan type, such as ``vector`` or ``array[,] int``; empty if it is not known.
        by_record: entry i, or row i, belongs to record i. Otherwise the value is the same for all
            records, and for any number of them.
        sources: confidential data on which it depends; none unless ``by_record``.
        sizes: declared sizes of a variable along its axes; empty if they are not known.
        fixed: the value is data or a parameter, and certainly has the declared sizes. A variable
            that is declared empty accepts values of any size, and so does one inside an array.
        limits: declared ``lower`` and ``upper`` bounds of whole numbers in the data block.
    """

    type: str
    by_record: bool = False
    sources: frozenset[str] = frozenset()
    sizes: tuple[Node, ...] = ()
    limits: Mapping[str, Node] = field(default_factory=dict)
    fixed: bool = False

    @property
    def scalar(self) -> bool:
        return self.type in ("int", "real")

    @property
    def computed(self) -> Value:
        """The value as a result of an expression, without facts that only variables have."""
        return replace(self, sizes=(), limits={})


@dataclass
class Expressions:
    """Analysis of expressions, and of statements that assign them.

    Attributes:
        functions: definitions of the user's functions, by name.
        scope: known facts about variables, by name.
        depth: number of the user's functions around the current expression.
        calls: names of the user's functions that were called with records so far.
        wide: line of each expression in which a record has, or may have, several numbers.
    """

    functions: Mapping[str, Node]
    scope: dict[str, Value] = field(default_factory=dict)
    depth: int = field(default=0, kw_only=True)
    calls: list[str] = field(default_factory=list, kw_only=True)
    wide: list[int] = field(default_factory=list, kw_only=True)

    def value(self, node: Node) -> Value:
        """Return the known facts about an expression.

        Raises:
            Unclear: it is not known on what it depends, or whether it may raise an error.
        """
        value = self._value(node)
        depth, base = split_type(value.type)
        if value.by_record and depth + stan.RANK.get(base, 2) != 1:
            self.wide.append(node.line)
        return value

    def _value(self, node: Node) -> Value:
        kind = node.kind
        if kind == "number":
            text = node[0].text
            imaginary = text.endswith("i")
            return Value("" if imaginary else "real" if any(c in text for c in ".eE") else "int")
        if kind == "name":
            return self._name(node)
        if kind == "unary":
            inner = self.value(node[1]).computed
            if inner.by_record and node[0].text == "!":
                self._unclear(node, "! of records cannot be followed.")
            return inner
        if kind == "binary":
            return self._binary(node, node[1].text, self.value(node[0]), self.value(node[2]))
        if kind == "ternary":
            return self._ternary(node)
        if kind == "call":
            return self._call(node)
        if kind == "conditional_call":
            parts = (node[1], *(node.parts[2].present if node.parts[2] else ()))
            values = [self.value(part) for part in parts]
            if any(value.by_record for value in values):
                self._unclear(node, self._of_density(node[0].text))
            return Value("real")
        if kind == "index":
            return self._index(node)
        if kind == "transpose":
            return self._transpose(node)
        items = node.parts[0].present if kind == "row" and node.parts[0] else node.present
        values = [self.value(part) for part in items]
        if any(value.by_record for value in values):
            self._unclear(node, "a list puts records together.")
        row = kind == "row" and all(value.scalar for value in values)
        return Value("row_vector" if row else "")

    def _unclear(self, node: Node, message: str) -> NoReturn:
        raise Unclear(node.line, message)

    def _name(self, node: Node) -> Value:
        name = node[0].text
        if name not in self.scope:
            if name == "n":
                self._unclear(
                    node,
                    "n is a length and nothing else: in a formula take rows, the public number of "
                    "records.",
                )
            self._unclear(
                node, f"{name} cannot stand in an expression: it is not known, or has its place."
            )
        return self.scope[name]

    def _binary(self, node: Node, sign: str, left: Value, right: Value) -> Value:
        sources = left.sources | right.sources
        if not (left.by_record or right.by_record):
            return Value(type_of(sign, left.type, right.type))
        if sign == "*" and left.by_record and not right.by_record and not right.scalar:
            if left.type == "matrix" and right.type in ("vector", "matrix"):
                return Value(right.type, True, sources)
            self._unclear(
                node,
                "a product with records on the left takes a matrix with a row for each record, "
                "and a vector or matrix that is declared as a variable.",
            )
        if sign in COMPARISONS or sign in ("%", "%/%", "\\"):
            self._unclear(
                node, f"{sign} of records cannot be followed; compare in transformed data."
            )
        if left.by_record and right.by_record:
            if sign not in ("+", "-", ".*", "./", ".^", "^"):
                self._unclear(node, f"{sign} puts records together: write .* or ./ in its place.")
            if left.type != right.type or split_type(left.type)[0]:
                self._unclear(
                    node, f"{sign} of records takes two of one type; write to_vector(...)."
                )
            return Value(left.type, True, sources)
        other = right if left.by_record else left
        if split_type((left if left.by_record else right).type)[0]:
            self._unclear(node, f"{sign} of records takes vectors; write to_vector(...).")
        if not other.scalar:
            self._unclear(
                node,
                "records meet what is not known to be one number; declare it first, as real s = "
                "...;",
            )
        records = left if left.by_record else right
        return Value(records.type, True, sources)

    def _ternary(self, node: Node) -> Value:
        condition, first, second = (self.value(part) for part in node.present)
        if condition.by_record:
            self._unclear(node, "a condition on records cannot be followed.")
        by_record = first.by_record
        if by_record is not second.by_record or (by_record and first.type != second.type):
            self._unclear(node, "a choice between what is each record's and what is not.")
        if not by_record:
            common = first.type if first.type == second.type else ""
            return Value("real" if first.scalar and second.scalar and not common else common)
        return Value(first.type, True, first.sources | second.sources)

    def _call(self, node: Node) -> Value:
        name = node[0].text
        arguments = node.parts[1].present if node.parts[1] else ()
        if name in stan.HIDDEN or name.endswith(stan.ADDING):
            self._unclear(node, f"{name}() reads or changes target.")
        if name in stan.VECTORS and self._counts_records(arguments):
            content = [self.value(part) for part in arguments[:-1]]
            if name == "linspaced_vector" or any(not value.scalar for value in content):
                self._unclear(node, f"{name}() of records cannot be followed.")
            if any(value.by_record for value in content):
                self._unclear(node, f"{name}() of records cannot be followed.")
            return Value("vector", by_record=True)
        values = [self.value(part) for part in arguments]
        if name in self.functions:
            return self._own(node, self.functions[name], values)
        if not any(value.by_record for value in values):
            return Value(type_of_call(name, [value.type for value in values]))
        return self._of_records(node, name, values)

    def _of_records(self, node: Node, name: str, values: list[Value]) -> Value:
        """Analyse a call of one of Stan's functions with records among its arguments."""
        sources = frozenset[str]().union(*(value.sources for value in values))
        rows = [value for value in values if value.by_record]
        types = {value.type for value in rows}
        if name in stan.SUMMING and len(values) == 1:
            self._unclear(node, f"{name}() puts the records together.")
        if name in stan.ELEMENTWISE:
            if len(types) > 1 or any(not (v.by_record or v.scalar) for v in values):
                self._unclear(
                    node, f"{name}() of records takes vectors with a value for each, and numbers."
                )
            (kind,) = types
            if split_type(kind)[0]:
                self._unclear(node, f"{name}() of records takes vectors; write to_vector(...).")
            return Value(kind, True, sources)
        if name == "to_vector" and len(values) == 1:
            depth, base = split_type(values[0].type)
            if depth + stan.RANK.get(base, 2) == 1:
                return Value("vector", True, sources)
        matrices = types == {"matrix"} and len(rows) == len(values)
        if name in ("rows_dot_product", "rows_dot_self") and matrices:
            return Value("vector", True, sources)
        if name == "append_col" and len(rows) == 2 and types <= {"vector", "matrix"}:
            return Value("matrix", True, sources)
        if name.endswith(stan.DENSITY_ENDINGS):
            self._unclear(node, self._of_density(name))
        instead = stan.IN_PLACE_OF.get(name)
        hint = f" Write {instead}." if instead else ""
        self._unclear(node, f"{name}() of records cannot be followed.{hint}")

    def _own(self, node: Node, function: Node, values: list[Value]) -> Value:
        """Analyse a call of a user's function, from the known facts about its arguments."""
        name = node[0].text
        declared = parameters_of(function)
        exact = [kind for kind, _ in declared] == [value.type for value in values]
        if not any(value.by_record for value in values):
            return Value(returned_type(function) if exact else "")
        if not exact:
            # For other types Stan may have a function of its own with that name.
            listed = ", ".join(kind for kind, _ in declared)
            self._unclear(
                node, f"{name}() takes ({listed}) exactly; write 1.0 where a real is meant."
            )
        body = function.parts[-1]
        self.calls.append(name)
        if (
            len(self.calls) > MOST_CALLS
            or self.depth >= DEEPEST
            or body is None
            or body.kind != "block"
        ):
            self._unclear(node, f"{name}() cannot be followed.")
        names = [argument for _, argument in declared]
        arguments = [value.computed for value in values]
        inside = Expressions(
            self.functions,
            dict(zip(names, arguments, strict=True)),
            depth=self.depth + 1,
            calls=self.calls,
            wide=self.wide,
        )
        return inside.body(function, body)

    def _of_density(self, name: str) -> str:
        if name in self.functions:
            return f"{name}() is given records: name it without ending, and return a vector."
        return (
            f"{name}() of records sums over them, and may be an error at one record's values: "
            "write its formula of functions that are never an error (stan_models/README.md has "
            "those of the usual densities)."
        )

    def body(self, function: Node, body: Node) -> Value:
        """Analyse the body of a user's function, which must end with its only return."""
        name, (*before, last) = function[1].text, body.present or (body,)
        for statement in before:
            if any(part.kind == "return_value" for part in every(statement)):
                self._unclear(statement, f"{name}() is given records and returns before its end.")
            self.statement(statement)
        if last.kind != "return_value" or last.parts[0] is None:
            self._unclear(last, f"{name}() has no return at its end.")
        result = self.value(last.parts[0])
        if result.type != returned_type(function):
            self._unclear(last, f"{name}() returns another type than it declares.")
        return result.computed

    # Statements

    def of_records(self) -> set[str]:
        """Return the names of variables with a value for each record."""
        return {name for name, value in self.scope.items() if value.by_record}

    def concerns_records(self, node: Node) -> bool:
        """Tell whether a statement names records; the effect of any other is the same for all."""
        return not names_in(node).isdisjoint(self.of_records())

    def statement(self, node: Node) -> None:
        """Analyse a statement; one that names no records is unrestricted.

        Raises:
            Unclear: the statement names records and cannot be followed.
        """
        if not self.concerns_records(node):
            self.of_all(node)
        elif node.kind == "block":
            self.nested(node.present)
        elif node.kind == "declaration":
            self.declare(node)
        elif node.kind == "assignment":
            self.assign(node)
        elif node.kind == "for_range":
            self.loop(node)
        elif node.kind == "if_else":
            self.choice(node)
        else:
            construct = STATEMENTS.get(node.kind, "this statement")
            self._unclear(node, f"{construct} with records cannot be followed: write vectors.")

    def of_all(self, node: Node) -> None:
        """Record the variables that a statement declares, which are the same for all records."""
        if node.kind == "declaration":
            for part in node.present[1:]:
                self.scope[part[0].text] = Value(declared_type(node[0]), sizes=self._sizes_of(node))

    def nested(self, nodes: Sequence[Node]) -> None:
        """Analyse the statements of a nested block, whose variables end with it."""
        outside = dict(self.scope)
        for node in nodes:
            self.statement(node)
        self.scope = {name: self.scope[name] for name in outside}

    def choice(self, node: Node) -> None:
        """Analyse an if statement, whose condition must be the same for all records."""
        if self.value(node[0]).by_record:
            self._unclear(node, "a condition on records: compare in transformed data.")
        before, after = dict(self.scope), [dict(self.scope)]
        for branch in node.present[1:]:
            self.scope = dict(before)
            self.nested((branch,))
            after.append(self.scope)
        self.scope = {
            name: replace(value, sources=value.sources.union(*(s[name].sources for s in after)))
            for name, value in before.items()
        }

    def loop(self, node: Node) -> None:
        """Analyse a loop between two numbers, which must be the same for all records."""
        variable, low, high, body = node.present
        if names_in(low, high) & (self.of_records() | {"n"}):
            self._unclear(
                node,
                "a loop over the records: write vectors, or set entries by comparisons in "
                "transformed data.",
            )
        if any(part.kind in ("break_loop", "continue_loop") for part in every(body)):
            self._unclear(node, "break or continue in a loop with records cannot be followed.")
        before = known = dict(self.scope)
        # Repeat until no variable gains sources: one may depend on another from the round before.
        for _ in range(1 + len(before)):
            self.scope = {**known, variable.text: Value("int")}
            self.nested((body,))
            after = {
                name: replace(known[name], sources=known[name].sources | self.scope[name].sources)
                for name in before
            }
            if after == known:
                break
            known = after
        self.scope = known

    def declare(self, node: Node) -> None:
        """Analyse a declaration of variables, with records or without, with or without values."""
        kind = declared_type(node[0])
        sizes = declared_sizes(node[0])
        limits = declared_limits(node[0])
        if names_in(*limits.values()) & (self.of_records() | {"n"}):
            self._unclear(node, "a bound depends on records or on their number.")
        by_record = bool(sizes) and self._counts_records(sizes[:1])
        for size in sizes[1 if by_record else 0 :]:
            if self.value(size).by_record:
                self._unclear(node, "a size depends on records.")
        for part in node.present[1:]:
            name = part[0].text
            assigned = None if part.parts[1] is None else self.value(part.parts[1])
            if by_record and not is_plain(node[0]):
                self._unclear(
                    node,
                    f"{name} has bounds, and a record outside of them would be an error: declare "
                    "it as vector[n], matrix[n, K] or array[n] without.",
                )
            self._check(node, name, by_record, kind, assigned)
            self.scope[name] = Value(
                kind, by_record, assigned.sources if assigned else frozenset(),
                () if by_record else self._sizes_of(node),
            )  # fmt: skip

    def _sizes_of(self, node: Node) -> tuple[Node, ...]:
        """Return the sizes that the variables of a declaration certainly have."""
        return declared_sizes(node[0])

    def assign(self, node: Node) -> frozenset[str]:
        """Analyse an assignment to a whole variable of records, or to some of its columns.

        Returns:
            Confidential data on which the value depends.
        """
        target, sign, value = node[0], node[1].text, self.value(node[2])
        places: tuple[Node, ...] = ()
        if target.kind == "index":
            target, places = target[0], target.present[1:]
        if target.kind != "name" or target[0].text not in self.scope:
            self._unclear(node, "this cannot be assigned to.")
        name = target[0].text
        before = self.scope[name]
        kind = before.type
        if places:
            single = self._places(node, places)
            if before.by_record and places[0].kind != "all":
                self._unclear(node, f"{name}: assign to all records at once.")
            kind = indexed_type(kind, single)
        if sign != "=":
            value = self._binary(node, sign.removesuffix("="), Value(kind, before.by_record), value)
        self._check(node, name, before.by_record, kind, value)
        sources = before.sources | value.sources if places or sign != "=" else value.sources
        self.scope[name] = replace(before, sources=sources)
        return value.sources

    def _check(
        self, node: Node, name: str, by_record: bool, kind: str, assigned: Value | None
    ) -> None:
        """Raise Unclear unless an assigned value is of the kind and type that is declared."""
        if assigned is None:
            return
        if assigned.by_record is not by_record:
            self._unclear(
                node,
                f"{name} is declared with "
                + ("" if by_record else "no ")
                + "value for each record, and is given another kind of value.",
            )
        if by_record and assigned.type != kind:
            self._unclear(node, f"{name} is given a value of another type.")

    def _places(self, node: Node, places: Sequence[Node]) -> list[bool]:
        """Tell for each index whether it picks one entry; indices must not depend on records."""
        single = []
        for place in places:
            values = [self.value(part) for part in place.present if part.kind != "word"]
            if any(value.by_record for value in values):
                self._unclear(node, "an index of records cannot be assigned to.")
            single.append(place.kind == "single" and values[0].scalar)
        return single

    def _counts_records(self, arguments: Sequence[Node]) -> bool:
        """Tell whether the last argument is the number of records: n, or the length of records."""
        if not arguments:
            return False
        size = arguments[-1]
        if size.kind == "name" and size[0].text == "n":
            return self.depth == 0
        if size.kind != "call" or size[0].text not in ("rows", "size", "num_elements"):
            return False
        operands = size.parts[1].present if size.parts[1] else ()
        if len(operands) != 1 or operands[0].kind != "name":
            return False
        container = self.scope.get(operands[0][0].text)
        types = ("vector",) if size[0].text == "rows" else ("vector", "array[] int", "array[] real")
        return container is not None and container.by_record and container.type in types

    def _index(self, node: Node) -> Value:
        base, places = self.value(node[0]), node.present[1:]
        indices = [
            [self.value(part) for part in place.present if part.kind != "word"] for place in places
        ]
        single = [
            place.kind == "single" and index[0].scalar
            for place, index in zip(places, indices, strict=True)
        ]
        known = all(value.type for index in indices for value in index)
        kind = indexed_type(base.type, single) if known else ""
        by_record = [k for k, index in enumerate(indices) if any(v.by_record for v in index)]
        if base.by_record:
            if by_record or places[0].kind != "all":
                self._unclear(
                    node, "an entry of records by its place cannot be followed; write vectors."
                )
            return Value(kind, True, base.sources, (), base.limits if kind else {})
        if not by_record:
            return Value(kind, limits=base.limits)
        (k, *others) = by_record
        index = indices[k][0]
        inside = (
            not others
            and all(single[:k])
            and places[k].kind == "single"
            and index.type == "array[] int"
            and k < len(base.sizes)
            and index.limits.get("upper") == base.sizes[k]
            and _is_one(index.limits.get("lower"))
            and (base.fixed or self._keeps_size(base, k))
        )
        if not inside:
            self._unclear(
                node,
                "an index by records has to be data array[n] int<lower=1, upper=J>, and what is "
                "indexed data, a parameter or, in transformed parameters or the model, a variable "
                "with the size J: vector[J] effect = ...; (of a matrix[J, K] K has lower=1). What "
                "generated quantities index, too, declare in transformed parameters",
            )
        return Value(kind, True, index.sources, (), base.limits)

    def _keeps_size(self, base: Value, axis: int) -> bool:
        """Tell whether a variable certainly has its declared size along an axis.

        A declared size of 0 along this axis does no harm: no index fits, so there is no record.
        """
        others = [size for k, size in enumerate(base.sizes) if k != axis]
        return not split_type(base.type)[0] and all(map(self._is_positive, others))

    def _is_positive(self, size: Node) -> bool:
        if size.kind == "name" and size[0].text in self.scope:
            return _is_one(self.scope[size[0].text].limits.get("lower"))
        return size.kind == "number" and size[0].text.isdigit() and int(size[0].text) > 0

    def _transpose(self, node: Node) -> Value:
        value = self.value(node[0]).computed
        kind = {"vector": "row_vector", "row_vector": "vector", "matrix": "matrix"}.get(value.type)
        if value.by_record and kind not in ("vector", "row_vector"):
            self._unclear(node, "records are in columns after transposing.")
        return replace(value, type=kind or "")


def _is_one(node: Node | None) -> bool:
    return node is not None and node.kind == "number" and node[0].text == "1"
