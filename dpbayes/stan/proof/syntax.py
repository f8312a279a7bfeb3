"""Parser of Stan programs into syntax trees, by the grammar in grammar.lark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpbayes.core.errors import ProgramError

if TYPE_CHECKING:  # lark takes time to import: only a user's own program needs it
    from lark import Lark, Token, Tree


@dataclass(frozen=True)
class Node:
    """Node of a syntax tree: its kind, which is a rule of the grammar, and its parts.

    Nodes with the same content are equal, whatever their lines.

    Attributes:
        kind: rule of grammar.lark, or ``word`` for a name, number, operator or string.
        parts: child nodes; None for an optional one that is left out.
        text: text of a word; empty for other kinds.
        line: line number from 1.
    """

    kind: str
    parts: tuple[Node | None, ...] = ()
    text: str = ""
    line: int = field(default=0, compare=False)

    def __getitem__(self, place: int) -> Node:
        """Return a part that is known to be present."""
        part = self.parts[place]
        assert part is not None
        return part

    @property
    def present(self) -> tuple[Node, ...]:
        """Parts that are not left out."""
        return tuple(part for part in self.parts if part is not None)


class Unreadable(ProgramError):
    """A text is outside of the grammar.

    Attributes:
        line: line number from 1.
    """

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not in the part of Stan that dpbayes can follow.")
        self.line = line


@lru_cache(maxsize=8)  # a tree takes about a megabyte
def parse(text: str) -> Node:
    """Parse a program whose includes are expanded.

    Raises:
        Unreadable: the text is outside of the grammar; the error has the line.
    """
    from lark.exceptions import UnexpectedInput

    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        line = error.line if error.line and error.line > 0 else text.count("\n") + 1
        raise Unreadable(line) from None
    try:
        return _node(tree, 1)
    except RecursionError:  # an expression of a thousand terms, in the longest line most likely
        lengths = [len(line) for line in text.split("\n")]
        raise Unreadable(1 + lengths.index(max(lengths))) from None


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


_BLOCKS = {  # rules of the grammar, where they have other names than the block
    "data": "data_block",
    "parameters": "parameters_block",
    "generated quantities": "generated",
}


def declared_in(program: Node, block: str) -> tuple[str, ...]:
    """Names that are declared in a block, outside of blocks inside it.

    Args:
        program: tree of the whole program.
        block: name of the block as in a program, such as ``generated quantities``.
    """
    return tuple(
        declared[0].text
        for node in program.present
        if node.kind == _BLOCKS.get(block, block.replace(" ", "_"))
        for declaration in node.present
        if declaration.kind == "declaration"
        for declared in declaration.present
        if declared.kind == "declared"
    )


def names_in(*nodes: Node) -> set[str]:
    """Collect the words of statements and expressions: names, numbers, operators, strings."""
    names = {node.text for node in nodes if node.kind == "word"}
    return names.union(*(names_in(*node.present) for node in nodes))


def every(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes inside it."""
    yield node
    for part in node.present:
        yield from every(part)
