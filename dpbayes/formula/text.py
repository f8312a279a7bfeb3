"""The text of a formula, read into a tree and split into terms. Nothing of it is ever run.

A formula is input: it may come from a stranger. Only what is listed here is a formula, and what
is computed of it is computed by ``formula_terms`` from the tree, never by Python from the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NoReturn

from dpbayes.core.errors import SchemaError
from dpbayes.formula.tree import (
    BINDS,
    SIGN,
    Binary,
    Call,
    Group,
    GroupTerm,
    Items,
    LevelName,
    Name,
    Node,
    Number,
    Parsed,
    Signed,
    Term,
    text_of,
)

LONGEST = 100_000  # characters of a formula
MOST_TERMS = 5_000
MOST_STEPS = 150  # operators, brackets and calls of one summand: trees stay shallow
MOST_ITEMS = 10_000  # of a list
_SHOWN = 120  # characters of a formula in a message
_GROUPS = "(1 | group)"
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<quoted>`[^`]+`)
    | (?P<text>"[^"\\\n]*"|'[^'\\\n]*')
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d][\w.]*)
    | (?P<sign>\*\*|<=|>=|==|!=|[-+*/:%<>^()\[\],=|~])
    )""",
    re.VERBOSE,
)


def quoted(formula: str) -> str:
    """A formula as messages show it."""
    return repr(formula if len(formula) <= _SHOWN else formula[:_SHOWN] + "...")


def parse(formula: str) -> Parsed:
    """Read ``outcome ~ covariates + (1 | group)``.

    Raises:
        SchemaError: it is not such a formula.
    """
    if not isinstance(formula, str):
        raise SchemaError(f"formula = {formula!r} must be text, for example 'y ~ 1'.")
    where = f"formula {quoted(formula)}"
    if len(formula) > LONGEST:
        raise SchemaError(f"{where} is longer than {LONGEST:,} characters.")
    reader = _FormulaReader(formula, where)
    return reader.formula()


class _FormulaReader:
    """Reads one formula by precedence climbing."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = list(self._split(text))
        self._at = 0
        self._steps = 0
        self._inside = 0  # brackets around the present place

    def _fail(self, why: str) -> NoReturn:
        raise SchemaError(f"{self._where}: {why}.")

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                rest = text[place:].lstrip()
                self._fail(
                    f"{rest[0]!r} at character {len(text) - len(rest) + 1} has no place in a "
                    "formula; a column of another name stands in backticks, `like this`"
                )
            kind = str(found.lastgroup)
            yield kind, found[kind]
            place = found.end()

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "its end")

    def _here(self) -> str:
        """The next token, for a message."""
        kind, text = self._next()
        return text if kind == "end" else repr(text)

    def _take(self, *signs: str) -> str | None:
        """The next token if it is one of these signs."""
        kind, text = self._next()
        if kind != "sign" or text not in signs:
            return None
        self._at += 1
        return text

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            self._fail(f"expected {sign!r} before {self._here()}")

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            self._fail(
                f"a summand has more than {MOST_STEPS} operators, brackets and calls; write it "
                "as several, without brackets around them"
            )

    def formula(self) -> Parsed:
        if self._next()[1] == "~" or ("sign", "~") not in self._tokens:
            self._fail("expected 'outcome ~ covariates', for example 'y ~ 1'")
        outcome = self._expression()
        self._expect("~")
        summands = list(self._summands())
        if self._take("~"):
            self._fail("there is one ~, between the outcome and the covariates")
        kind, text = self._next()
        if BINDS.get(text) == BINDS["<"]:
            self._fail(f"{text!r} is no sign between terms; comparisons stand inside I()")
        if kind != "end":
            self._fail(f"expected an operator before {self._here()}")
        groups = tuple(
            term
            for sign, node in summands
            if isinstance(node, Group) and sign == "+"
            for term in self._group_terms(node)
        )
        rest = [(s, node) for s, node in summands if not isinstance(node, Group) or s == "-"]
        return Parsed(outcome, self._sum(rest, ((),)), groups)

    def _summands(self) -> Iterator[tuple[str, Node]]:
        """The right side, at whose level there may be many."""
        sign = self._take("+", "-") or "+"
        while True:
            self._steps = 0
            yield sign, self._expression(BINDS["*"])
            after = self._take("+", "-")
            if after is None:
                return
            sign = after

    def _expression(self, binds: int = 0) -> Node:
        """What binds at least as tightly."""
        sign = self._take("+", "-")
        if sign:
            self._step()
            left: Node = Signed(sign, self._expression(SIGN))
        else:
            left = self._operand()
        compared = False
        while True:
            kind, text = self._next()
            own = BINDS.get(text, -1) if kind == "sign" else -1
            if own < max(binds, 0) or (compared and own == 1):
                return left
            self._at += 1
            self._step()
            # A power binds to the right, and may have a signed exponent.
            right = self._expression(SIGN if own == BINDS["**"] else own + 1)
            left = Binary("**" if text == "^" else text, left, right)
            compared = own == 1

    def _operand(self) -> Node:
        kind, text = self._next()
        self._at += 1
        if kind == "number":
            try:
                finite = len(text) <= 400 and math.isfinite(float(text))
            except ValueError:  # digits of another script
                finite = False
            if not finite:
                self._fail(f"the number {text[:20]}... cannot be held" if len(text) > 20 else
                           f"the number {text} cannot be held")  # fmt: skip
            return Number(text)
        if kind == "text":
            return LevelName(text[1:-1])
        if kind == "quoted":
            return Name(text[1:-1])
        if kind == "name":
            return self._call(text) if self._take("(") else Name(text)
        if text == "(":
            return self._bracket()
        if text == "[" and self._inside:
            return self._list()
        return self._fail(f"expected a column, a number or a function before {self._here()}")

    def _bracket(self) -> Node:
        self._step()
        inner = self._expression()
        if self._take("|"):
            correlated = self._take("|") is None
            by = self._expression()
            self._expect(")")
            if self._inside:
                self._fail(f"a group term {_GROUPS} has no place inside a call")
            return Group(inner, by, correlated)
        self._expect(")")
        return inner

    def _group_terms(self, node: Group) -> Iterator[GroupTerm]:
        text = text_of(node)[:_SHOWN]
        if not _only_crossed(node.by):
            self._fail(
                f"{text}: expected columns right of |, as in (1 | a), (1 | a:b) or (1 | a/b); "
                "(1 | a) + (1 | b) is of groups that are crossed"
            )
        terms = self._sum(list(_summed(node.terms)), ((),))
        if not terms:
            self._fail(f"{text}: expected 1 or a covariate left of |")
        for by in self._terms(node.by):
            names = tuple(part.value for part in by if isinstance(part, Name))
            yield GroupTerm(text, terms, names, node.correlated)

    def _list(self) -> Items:
        self._step()
        items: list[Node] = []
        while not self._take("]"):
            if items:
                self._expect(",")
            items.append(self._expression())
            if len(items) > MOST_ITEMS:
                self._fail(f"a list has more than {MOST_ITEMS:,} items")
        return Items(tuple(items))

    def _call(self, name: str) -> Call:
        self._step()
        self._inside += 1
        arguments: list[Node] = []
        named: dict[str, Node] = {}
        while not self._take(")"):
            if arguments or named:
                self._expect(",")
            value = self._expression()
            if self._take("="):
                if not isinstance(value, Name) or value.value in named:
                    self._fail(f"a setting of {name}() is written as name=value, once")
                named[value.value] = self._expression()
            elif named:
                self._fail(f"{name}(): settings stand after all else")
            else:
                arguments.append(value)
        self._inside -= 1
        return Call(name, tuple(arguments), tuple(named.items()))

    def _sum(
        self, summands: list[tuple[str, Node]], start: tuple[Term, ...] = ()
    ) -> tuple[Term, ...]:
        """Terms after additions and removals, in their order."""
        found = {_key(term): term for term in start}
        for sign, node in summands:
            none = node == Number("0")  # + 0 is - 1
            added = (sign == "+") is not none
            for term in ((),) if none else self._terms(node):
                if added:
                    found.setdefault(_key(term), term)
                elif found.pop(_key(term), None) is None:
                    self._fail(f"{_said(term)!r} is taken away and is not there")
            self._count(len(found))
        return tuple(found.values())

    def _count(self, number: int) -> None:
        if number > MOST_TERMS:
            self._fail(f"there are more than {MOST_TERMS:,} terms")

    def _terms(self, node: Node) -> tuple[Term, ...]:
        """What a part of the right side stands for, by the rules of Wilkinson and Rogers."""
        match node:
            case Number("1"):
                return ((),)
            case Name() | Call():
                return ((node,),)
            case Binary("+" | "-" as sign, left, right):
                return self._sum([("+", left), (sign, right)])
            case Binary(":", left, right):
                return self._products(self._terms(left), self._terms(right))
            case Binary("*", left, right):
                first, second = self._terms(left), self._terms(right)
                return self._once((*first, *second, *self._products(first, second)))
            case Binary("/", left, right):
                first, second = self._terms(left), self._terms(right)
                whole = tuple(dict.fromkeys(factor for term in first for factor in term))
                return self._once((*first, *self._products((whole,), second)))
            case Binary("**", left, Number(text)) if text in map(str, range(1, 11)):
                first = found = self._terms(left)
                for _ in range(int(text) - 1):
                    found = self._once((*found, *self._products(found, first)))
                return found
            case Group():
                self._fail(f"a group term {_GROUPS} is added to the others, with +")
            case Number(text):
                self._fail(
                    f"the number {text} is not a term; arithmetic stands inside I(), such as "
                    "I(2 * x)"
                )
            case _:
                self._fail(
                    f"{text_of(node)[:_SHOWN]!r} is not a term; arithmetic stands inside I(), "
                    "such as I(x ** 2)"
                )

    def _products(self, left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
        self._count(len(left) * len(right))
        return self._once(tuple(tuple(dict.fromkeys((*a, *b))) for a in left for b in right))

    def _once(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        found: dict[frozenset[Node], Term] = {}
        for term in terms:
            found.setdefault(_key(term), term)
        self._count(len(found))
        return tuple(found.values())


def _summed(node: Node) -> Iterator[tuple[str, Node]]:
    """The summands of a sum with their signs."""
    match node:
        case Binary("+" | "-" as last, left, right):
            yield from _summed(left)
            yield last, right
        case Signed(own, operand):
            yield own, operand
        case _:
            yield "+", node


def _only_crossed(node: Node) -> bool:
    """Made of columns with : and / alone."""
    match node:
        case Binary(":" | "/", left, right):
            return _only_crossed(left) and _only_crossed(right)
    return isinstance(node, Name)


def _key(term: Term) -> frozenset[Node]:
    return frozenset(term)


def _said(term: Term) -> str:
    return ":".join(map(text_of, term)) or "1"
