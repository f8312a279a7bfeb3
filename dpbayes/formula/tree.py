"""The tree that the text of a formula is read into (``formula_text``), and what it says again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# How tightly an operator binds; in a formula and inside a call alike.
BINDS = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 1),
    **dict.fromkeys(("+", "-"), 2),
    **dict.fromkeys(("*", "/", "%"), 3),
    ":": 4, "**": 6, "^": 6,
}  # fmt: skip
SIGN = 5  # a leading + or -


@dataclass(frozen=True)
class Number:
    """A finite constant as it was written."""

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
class Signed:
    """A leading sign."""

    sign: str
    operand: Node


@dataclass(frozen=True)
class Binary:
    """Two operands and what stands between them."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    """A function with its arguments."""

    name: str
    arguments: tuple[Node, ...]
    named: tuple[tuple[str, Node], ...] = ()


@dataclass(frozen=True)
class Group:
    """What each group has of its own: ``(1 | column)``, ``(x || a/b)``."""

    terms: Node
    by: Node
    correlated: bool


Node = Number | LevelName | Name | Items | Signed | Binary | Call | Group
Term = tuple[Node, ...]  # factors; none of the intercept


@dataclass(frozen=True)
class GroupTerm:
    """A group term of one grouping; ``a/b`` makes two.

    Attributes:
        text: as it was written.
        terms: what each group has of its own; () is an intercept.
        by: columns whose values together are a group.
        correlated: an intercept and slopes of a group with each other.
    """

    text: str
    terms: tuple[Term, ...]
    by: tuple[str, ...]
    correlated: bool


@dataclass(frozen=True)
class Parsed:
    """A formula in its parts.

    Attributes:
        outcome: left side.
        terms: of the right side without group terms; () is the intercept.
        groups: the group terms.
    """

    outcome: Node
    terms: tuple[Term, ...]
    groups: tuple[GroupTerm, ...]


def text_of(node: Node, binds: int = 0) -> str:
    """A node as it would be written; names of columns of the design are made of it."""
    match node:
        case Number(text):
            return text
        case LevelName(value):
            return repr(value)
        case Name(value):
            return value if re.fullmatch(r"[^\W\d][\w.]*", value) else f"`{value}`"
        case Items(items):
            return f"[{', '.join(map(text_of, items))}]"
        case Signed(sign, operand):
            said, own = f"{sign}{text_of(operand, SIGN)}", SIGN
        case Binary(sign, left, right):
            own = BINDS[sign]
            power = sign == "**"
            said = f"{text_of(left, own + power)} {sign} {text_of(right, own + (not power))}"
        case Call(name, arguments, named):
            said = ", ".join(
                [*map(text_of, arguments), *(f"{key}={text_of(value)}" for key, value in named)]
            )
            return f"{name}({said})"
        case Group(terms, by, correlated):
            return f"({text_of(terms)} {'|' if correlated else '||'} {text_of(by)})"
    return f"({said})" if own < binds else said


def outcomes_in(left: Node) -> tuple[str, ...]:
    """Columns of a left side: one, time and event of Surv(time, event), or none."""
    match left:
        case Name(value):
            return (value,)
        case Call("Surv", (Name(time), Name(event)), ()):
            return (time, event)
    return ()


def names_in(node: Node) -> Iterator[str]:
    """Columns that a node uses."""
    match node:
        case Name(value):
            yield value
        case Signed(_, operand):
            yield from names_in(operand)
        case Binary(_, left, right):
            yield from names_in(left)
            yield from names_in(right)
        case Call(_, arguments, named):
            for part in (*arguments, *(value for _, value in named)):
                yield from names_in(part)
        case Items(items):
            for part in items:
                yield from names_in(part)
