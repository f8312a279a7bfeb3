"""Syntax tree of a formula, which ``text.py`` builds, and its conversion back to text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Precedence of operators, the same in a formula and inside a call.
BINDS = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
    ":": 4, "**": 6, "^": 6,
}  # fmt: skip
SIGN = 5  # precedence of a leading + or -


@dataclass(frozen=True)
class Number:
    """A finite constant, with its text as written."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True)
class LevelName:
    """The name of a level."""

    value: str


@dataclass(frozen=True)
class Name:
    """A column."""

    value: str


@dataclass(frozen=True)
class Items:
    """A list of constants."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Operation:
    """An operator and its operands: two, or one after a leading sign."""

    sign: str
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Call:
    """A function call with its arguments."""

    name: str
    arguments: tuple[Node, ...]
    named: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True)
class Group:
    """A group term as written: ``(1 | column)``, ``(x || a/b)``."""

    terms: Node
    by: Node
    correlated: bool


Node = Number | LevelName | Name | Items | Operation | Call | Group
Term = tuple[Node, ...]  # factors; the intercept has none


@dataclass(frozen=True)
class GroupTerm:
    """A group term with a single grouping; ``a/b`` stands for two.

    Attributes:
        text: text as written.
        terms: terms with an effect in each group; () is an intercept.
        by: columns whose combined values define a group.
        correlated: whether the intercept and slopes of a group are correlated.
    """

    text: str
    terms: tuple[Term, ...]
    by: tuple[str, ...]
    correlated: bool


@dataclass(frozen=True)
class Parsed:
    """A formula, split into its parts.

    Attributes:
        outcome: left side.
        terms: terms of the right side without group terms; () is the intercept.
        groups: group terms.
    """

    outcome: Node
    terms: tuple[Term, ...]
    groups: tuple[GroupTerm, ...]


def text_of(node: Node, binds: int = 0) -> str:
    """Write a node as text, which also names columns of the design.

    Args:
        node: the node.
        binds: precedence of the surrounding operator, for parentheses.
    """
    match node:
        case Number(text):
            return text
        case LevelName(value):
            return repr(value)
        case Name(value):
            return value if re.fullmatch(r"[^\W\d][\w.]*", value) else f"`{value}`"
        case Items(items):
            return f"[{', '.join(map(text_of, items))}]"
        case Operation(sign, (operand,)):
            written, own = f"{sign}{text_of(operand, SIGN)}", SIGN
        case Operation(sign, (left, right)):
            own = BINDS[sign]
            power = sign == "**"
            written = f"{text_of(left, own + power)} {sign} {text_of(right, own + (not power))}"
        case Call(name, arguments, named):
            written = ", ".join(
                [*map(text_of, arguments), *(f"{key}={text_of(value)}" for key, value in named)]
            )
            return f"{name}({written})"
        case Group(terms, by, correlated):
            return f"({text_of(terms)} {'|' if correlated else '||'} {text_of(by)})"
    return f"({written})" if own < binds else written


def outcomes_in(left: Node) -> tuple[str, ...]:
    """Return the columns of a left side: one, time and event of Surv(time, event), or none."""
    match left:
        case Name(value):
            return (value,)
        case Call("Surv", (Name(time), Name(event)), ()):
            return (time, event)
    return ()


def names_in(node: Node) -> Iterator[str]:
    """Yield the names of the columns that a node uses."""
    parts: tuple[Node, ...] = ()
    match node:
        case Name(value):
            yield value
        case Operation(_, parts) | Items(parts):
            pass
        case Call(_, arguments, named):
            parts = (*arguments, *dict(named).values())
    for part in parts:
        yield from names_in(part)
