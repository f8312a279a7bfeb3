"""The shape that a user's program has to have before it can be proved (see dataflow.py).

It is a short list of what statements may look like, whatever they do. Nearly every program that was
proved and leaked had something in it that a likelihood does not need: a loop that moves its own
end, a count that goes from record to record, a whole number made of a comparison with a parameter.
Those are refused by their form, so that the analysis has less to be right about.

Sizes and limits of data and parameters are made of numbers and names, without a function of Stan's
or the user's own; no name holds the sign by which columns of a sequence are told apart.

Where `log_lik` is computed, which is everywhere but in `transformed data` and where y_rep is drawn:
loops go from a number to a number of the data block, and each turn writes entries of its own;
conditions are about data, and comparisons stand in conditions alone; no variable is a whole number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.syntax import Node

UNPROVED = {  # statements, and what is said of them
    "while_loop": "while",
    "for_each": "a loop over the entries of a container",
    "break_loop": "break",
    "continue_loop": "continue",
    "output": "print or reject",
    "profile": "profile",
}
COMPARISONS = ("||", "&&", "==", "!=", "<", "<=", ">", ">=")
WHOLE = ("%", "%/%", "\\")
WHOLE_NUMBERED = (
    "is_inf", "is_nan", "int_step", "to_int", "logical_negation", "logical_and", "logical_or",
    "logical_eq", "logical_neq", "logical_lt", "logical_lte", "logical_gt", "logical_gte",
    "sort_indices_asc", "sort_indices_desc", "rank", "modulus", "int_divide",
)  # fmt: skip
SWITCH = "emit_y_rep"
PLAIN = ("int", "real", "vector", "row_vector", "matrix")
SIZES = ("rows", "cols", "size", "num_elements")
Found = tuple[int, str]  # a line, and why nothing is proved there


def outside_template(blocks: Mapping[str, Node], trusted: Sequence[Node]) -> Iterator[Found]:
    """Lines of a program, and why what stands there is not in the shape that can be proved.

    Args:
        blocks: by kind.
        trusted: definitions of the bundled includes, which are not looked at.
    """
    declared = {
        kind: dict(_declarations(blocks[kind], inside=False))
        for kind in ("data_block", "transformed_data", "parameters_block")
        if kind in blocks
    }
    data = {name for kind in ("data_block", "transformed_data") for name in declared.get(kind, {})}
    bundled = {function[1].text for function in trusted}
    whole = {name for name, kind in declared.get("data_block", {}).items() if kind == "int"}
    functions = [
        function
        for function in (blocks["functions_block"].present if "functions_block" in blocks else ())
        if function not in trusted
    ]
    names = [function[1].text for function in functions]
    for function in functions:
        name = function[1].text
        if names.count(name) > 1:
            yield function.line, f"{name} is defined more than once."
        if name in SIZES or name in data or name in bundled:
            yield function.line, f"{name} means something else: give your function another name."
    asked = _asked(functions)
    template = _Template(
        frozenset(data), frozenset(whole), asked, drawn=SWITCH in declared.get("data_block", {})
    )
    for block in blocks.values():
        yield from _names_of_columns(block)
        yield from _given_as_arguments(block, asked)
    known = bundled.union(*declared.values())
    for kind in ("data_block", "parameters_block"):
        for declaration in blocks[kind].present if kind in blocks else ():
            if called := sorted(set(_called(declaration[0])) - known):
                yield (
                    declaration.line,
                    f"a size or limit by {', '.join(called)}(): give it as a number or as data.",
                )
    reached: set[str] = set()
    for kind in ("transformed_parameters", "model_block", "generated"):
        if kind in blocks:
            yield from template.statements(blocks[kind].present)
            reached |= set(_called(blocks[kind], drawn=not template.drawn))
    while (
        more := {
            name
            for function in functions
            if function[1].text in reached
            for name in _called(function)
        }
        - reached
    ):
        reached |= more
    for function in functions:
        if function[1].text in reached:
            yield from template.function(function)
    if "transformed_data" in blocks:
        yield from replace(template, of_data=True).statements(blocks["transformed_data"].present)


@dataclass(frozen=True)
class _Template:
    """What may stand where.

    Attributes:
        public: names that a condition may ask for.
        bounds: names that may say where a loop ends.
        asked: places of the arguments that conditions in the user's functions ask for.
        of_data: it is transformed data, which no parameter enters.
        drawn: ``emit_y_rep`` is data that dpbayes gives, and not a variable of the user's own.
        in_block: it is no function, where names mean something else.
        loops: names of loop variables here, each with the names that are declared inside.
    """

    public: frozenset[str]
    bounds: frozenset[str]
    asked: Mapping[str, frozenset[int]]
    of_data: bool = False
    drawn: bool = True
    in_block: bool = True
    loops: tuple[tuple[str, frozenset[str]], ...] = ()

    def function(self, node: Node) -> Iterator[Found]:
        """A function of the user's own."""
        if node[0].kind == "word":
            yield node.line, "a function that returns nothing."
        if node.present[-1].kind != "block":
            return
        given = frozenset(_parameters(node))
        inside = replace(self, public=given, bounds=given, in_block=False)
        yield from inside.statements(node.present[-1].present)

    def statements(self, nodes: Sequence[Node]) -> Iterator[Found]:
        """Some in a row."""
        for node in nodes:
            yield from self.statement(node)

    def statement(self, node: Node) -> Iterator[Found]:
        """One, with what stands in it."""
        if node.kind in UNPROVED:
            yield node.line, f"{UNPROVED[node.kind]} cannot be followed."
        elif node.kind == "block":
            yield from self.statements(node.present)
        elif node.kind == "if_else":
            yield from self._condition(node[0])
            draws = self.drawn and self.in_block and _asks_y_rep(node)
            yield from self.statements(node.present[2:] if draws else node.present[1:])
        elif node.kind == "for_range":
            yield from self._loop(node)
        elif node.kind == "assignment":
            yield from self._assignment(node)
        elif node.kind == "declaration":
            yield from self._declaration(node)
        else:
            yield from self._values(node)

    def _loop(self, node: Node) -> Iterator[Found]:
        variable, low, high, body = node.present
        for bound in (low, high):
            if not self._known(bound):
                yield (
                    node.line,
                    "a loop goes from and to what is neither a number of the data block nor a "
                    "length.",
                )
        loops = (*self.loops, (variable.text, frozenset(dict(_declarations(body)))))
        inside = replace(self, public=self.public | {variable.text}, loops=loops)
        yield from inside.statement(body)

    def _known(self, node: Node) -> bool:
        """Whether it is a sum of numbers, of whole numbers of the data block and of lengths."""
        if node.kind == "number":
            return True
        if node.kind == "name":
            return node[0].text in self.bounds
        if node.kind == "call":
            arguments = node.parts[1].present if node.parts[1] else ()
            return node[0].text in SIZES and all(one.kind == "name" for one in arguments)
        if node.kind == "binary":
            return node[1].text in ("+", "-") and self._known(node[0]) and self._known(node[2])
        return False

    def _assignment(self, node: Node) -> Iterator[Found]:
        target, places = node[0], []
        while target.kind == "index":
            places += [p[0] for p in target.present[1:] if p.kind == "single"]
            target = target[0]
        written = {place[0].text for place in places if place.kind == "name"}
        for variable, inside in self.loops:
            if target[0].text not in inside and variable not in written:
                yield (
                    node.line,
                    f"{target[0].text} is carried from one turn of a loop to the next: write to "
                    f"{target[0].text}[{variable}], or declare it in the loop.",
                )
        for place in places:
            yield from self._values(place)
        yield from self._values(node[2])

    def _declaration(self, node: Node) -> Iterator[Found]:
        kind, names = node[0], [declared[0].text for declared in node.present[1:]]
        word = next(part.text for part in kind.present if part.kind == "word")
        if names != ["y_rep"] and not self.of_data:
            if word == "int":
                yield node.line, "a variable of whole numbers; use real, or transformed data."
            if word not in PLAIN or any(part.kind == "constraint" for part in kind.present):
                yield (
                    node.line,
                    f"what {names[0]} has to keep is an error where it fails: leave its bounds "
                    "out, and write vector or matrix.",
                )
        yield from self._values(node)

    def _condition(self, node: Node) -> Iterator[Found]:
        """What is asked for may be data alone; then comparisons are in place."""
        if self.of_data:
            return
        outside = sorted(_read(node) - self.public)
        if outside:
            yield (
                node.line,
                f"a condition on {', '.join(outside)}: ask for data alone.",
            )

    def _values(self, node: Node) -> Iterator[Found]:
        """Expressions in a statement."""
        if node.kind == "ternary":
            yield from self._condition(node[0])
            yield from self._values(node[1])
            yield from self._values(node[2])
            return
        sign = ""
        if node.kind == "binary":
            sign = node[1].text
        elif node.kind == "unary" and node[0].text == "!":
            sign = "!"
        if sign in WHOLE:
            yield node.line, f"{sign} of whole numbers cannot be followed."
        if sign in (*COMPARISONS, "!") and not self.of_data:
            yield node.line, f"{sign} outside of a condition makes a whole number."
        if node.kind in ("call", "conditional_call"):
            for place, argument in enumerate(_arguments(node)):
                outside = sorted(_read(argument) - self.public)
                if place in self.asked.get(node[0].text, ()) and outside and not self.of_data:
                    yield (
                        node.line,
                        f"a condition in {node[0].text}() on {', '.join(outside)}: ask for data "
                        "alone.",
                    )
        if node.kind == "call" and node[0].text in WHOLE_NUMBERED and not self.of_data:
            yield node.line, f"{node[0].text}() outside of a condition makes a whole number."
        for part in node.present:
            yield from self._values(part)


def _names_of_columns(node: Node) -> Iterator[Found]:
    """Names that could be those of another column of a sequence (``composition.entry``)."""
    if node.kind == "word" and SEPARATOR in node.text:
        yield node.line, f"{node.text} has {SEPARATOR} in it, which tells columns apart."
    for part in node.present:
        yield from _names_of_columns(part)


def _given_as_arguments(node: Node, asked: Mapping[str, frozenset[int]]) -> Iterator[Found]:
    """Functions with conditions on their arguments, where they are arguments themselves."""
    if node.kind == "name" and asked.get(node[0].text):
        yield node.line, f"{node[0].text} has conditions, and is given to another function."
    for part in node.present:
        yield from _given_as_arguments(part, asked)


def _declarations(node: Node, *, inside: bool = True) -> Iterator[tuple[str, str]]:
    """Names that are declared in a statement or a block, with their types.

    Args:
        inside: in blocks and loops within it, too.
    """
    if node.kind == "declaration":
        kind = node[0]
        word = next(part.text for part in kind.present if part.kind == "word")
        scalar = word if len([p for p in kind.present if p.kind != "constraint"]) == 1 else "many"
        for declared in node.present[1:]:
            yield declared[0].text, scalar
    if not inside and node.kind in ("block", "for_range", "for_each", "if_else", "while_loop"):
        return
    if node.kind == "for_range":
        yield node[0].text, "index"
    for part in node.present:
        yield from _declarations(part, inside=inside)


def _parameters(function: Node) -> list[str]:
    listed = function.parts[2].present if function.parts[2] else ()
    return [parameter.present[-1].text for parameter in listed]


def _arguments(call: Node) -> tuple[Node, ...]:
    first = call.present[1:2] if call.kind == "conditional_call" else ()
    rest = call.parts[-1].present if call.parts[-1] else ()
    return (*first, *rest)


def _asked(functions: Sequence[Node]) -> dict[str, frozenset[int]]:
    """Places of arguments that conditions in functions ask for, or in functions that they call."""
    asked: dict[str, frozenset[int]] = {function[1].text: frozenset() for function in functions}
    while True:
        found = {}
        for function in functions:
            names = set(_conditions(function.present[-1], asked))
            places = (p for p, name in enumerate(_parameters(function)) if name in names)
            found[function[1].text] = frozenset(places) | asked[function[1].text]
        if found == asked:
            return asked
        asked = found


def _conditions(node: Node, asked: Mapping[str, frozenset[int]]) -> Iterator[str]:
    """Names that conditions in it ask for."""
    if node.kind in ("if_else", "ternary"):
        yield from _read(node[0])
    if node.kind in ("call", "conditional_call"):
        for place, argument in enumerate(_arguments(node)):
            if place in asked.get(node[0].text, ()):
                yield from _read(argument)
    for part in node.present:
        yield from _conditions(part, asked)


def _asks_y_rep(node: Node) -> bool:
    """Whether it is ``if (emit_y_rep)``."""
    return node.kind == "if_else" and node[0] == Node("name", (Node("word", text=SWITCH),))


def _called(node: Node, *, drawn: bool = True) -> Iterator[str]:
    """Functions that are used; without ``drawn`` none where y_rep is drawn."""
    if not drawn and _asks_y_rep(node):
        for part in node.present[2:]:
            yield from _called(part, drawn=drawn)
        return
    if node.kind in ("call", "conditional_call", "name"):  # a function may be an argument
        yield node[0].text
    for part in node.present:
        yield from _called(part, drawn=drawn)


def _read(node: Node) -> set[str]:
    """Variables and functions that an expression names."""
    if node.kind in ("name", "call", "conditional_call"):
        return {node[0].text}.union(*(_read(part) for part in node.present[1:]))
    return set().union(*(_read(part) for part in node.present))
