"""A Stan program's text as a tree, by the grammar in grammar.lark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpbayes.core.errors import ProgramError

if TYPE_CHECKING:  # lark takes time to import: only a user's own program needs it
    from lark import Lark, Token, Tree


@dataclass(frozen=True)
class Node:
    """A piece of a program: its kind, a rule of the grammar, and its parts.

    Two nodes are equal if they say the same, wherever they stand.

    Attributes:
        kind: rule of grammar.lark, or ``word`` for a name, number, operator or string.
        parts: the pieces of it; None where an optional one is left out.
        text: of a word.
        line: number from 1.
    """

    kind: str
    parts: tuple[Node | None, ...] = ()
    text: str = ""
    line: int = field(default=0, compare=False)

    def __getitem__(self, place: int) -> Node:
        """A part that is there."""
        part = self.parts[place]
        assert part is not None
        return part

    @property
    def present(self) -> tuple[Node, ...]:
        """The parts that are there."""
        return tuple(part for part in self.parts if part is not None)


class Unreadable(ProgramError):
    """The grammar does not know what the text says there.

    Attributes:
        line: number from 1.
    """

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not in the part of Stan that dpbayes can follow.")
        self.line = line


def parse(text: str) -> Node:
    """The tree of a program with its includes expanded.

    Raises:
        Unreadable: with the line.
    """
    from lark.exceptions import UnexpectedInput

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        line = error.line if error.line and error.line > 0 else text.count("\n") + 1
        raise Unreadable(line) from None
    return _node(tree, 1)


@cache
def _parser() -> Lark:
    from lark import Lark

    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def _node(part: Tree[Token] | Token, line: int) -> Node:
    from lark import Token

    if isinstance(part, Token):
        return Node("word", text=str(part), line=part.line or line)
    line = line if part.meta.empty else part.meta.line
    parts = tuple(None if child is None else _node(child, line) for child in part.children)
    return Node(str(part.data), parts, line=line)


def names_in(*nodes: Node) -> set[str]:
    """Words of statements and expressions, names among them."""
    found = {node.text for node in nodes if node.kind == "word"}
    return found.union(*(names_in(*node.present) for node in nodes))


def every(node: Node) -> Iterator[Node]:
    """A node and all that is in it."""
    yield node
    for part in node.present:
        yield from every(part)
