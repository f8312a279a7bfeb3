"""Parser of formulas: text to tree and terms. No part of the text is ever run as code.

A formula is input that may come from a stranger. Only the constructs below are accepted, and
``terms.py`` computes values from the tree; Python never evaluates the text.
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

LONGEST = 100_000  # most characters of a formula
MOST_TERMS = 5_000
MOST_STEPS = 150  # most operators, brackets and calls of one summand: trees stay shallow
MOST_ITEMS = 10_000  # most items of a list
_SHOWN = 120  # most characters of a formula in a message
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
    """Quote a formula for messages, shortened if it is long."""
    return repr(formula if len(formula) <= _SHOWN else formula[:_SHOWN] + "...")


def parse(formula: str) -> Parsed:
    """Read ``outcome ~ covariates + (1 | group)``.

    Raises:
        SchemaError: the text is not such a formula.
    """
    if not isinstance(formula, str):
        raise SchemaError(f"formula = {formula!r} must be text, for example 'y ~ 1'.")
    where = f"formula {quoted(formula)}"
    if len(formula) > LONGEST:
        raise SchemaError(f"{where} is longer than {LONGEST:,} characters.")
    reader = _FormulaReader(formula, where)
    return reader.formula()


class _FormulaReader:
    """Parser of one formula, by precedence climbing."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = list(self._split(text))
        self._at = 0
        self._steps = 0
        self._inside = 0  # depth of calls around the current token

    def _fail(self, why: str) -> NoReturn:
        raise SchemaError(f"{self._where}: {why}.")

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        place, end = 0, len(text.rstrip())
        while place < end:
            token = _TOKEN.match(text, place)
            if token is None:
                rest = text[place:].lstrip()
                self._fail(
                    f"{rest[0]!r} at character {len(text) - len(rest) + 1} has no place in a "
                    "formula; a column of another name stands in backticks, `like this`"
                )
            kind = str(token.lastgroup)
            yield kind, token[kind]
            place = token.end()

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "its end")

    def _here(self) -> str:
        """Describe the next token for a message."""
        kind, text = self._next()
        return text if kind == "end" else repr(text)

    def _take(self, *signs: str) -> str | None:
        """Consume and return the next token if it is one of these signs; None otherwise."""
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
        """Yield the summands of the right side with their signs.

        They are read in a loop, not by recursion, because a formula may have thousands.
        """
        sign = self._take("+", "-") or "+"
        while True:
            self._steps = 0
            yield sign, self._expression(BINDS["*"])
            after = self._take("+", "-")
            if after is None:
                return
            sign = after

    def _expression(self, binds: int = 0) -> Node:
        """Read an expression whose operators all have at least the precedence ``binds``."""
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
        """Return the terms after additions and removals, in their order."""
        terms = {_key(term): term for term in start}
        for sign, node in summands:
            none = node == Number("0")  # + 0 is - 1
            added = (sign == "+") is not none
            for term in ((),) if none else self._terms(node):
                if added:
                    terms.setdefault(_key(term), term)
                elif terms.pop(_key(term), None) is None:
                    self._fail(f"{_term_text(term)!r} is taken away and is not there")
            self._count(len(terms))
        return tuple(terms.values())

    def _count(self, number: int) -> None:
        if number > MOST_TERMS:
            self._fail(f"there are more than {MOST_TERMS:,} terms")

    def _terms(self, node: Node) -> tuple[Term, ...]:
        """Expand a part of the right side into terms, by the rules of Wilkinson and Rogers."""
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
                factors = tuple(dict.fromkeys(factor for term in first for factor in term))
                return self._once((*first, *self._products((factors,), second)))
            case Binary("**", left, Number(text)) if text in map(str, range(1, 11)):
                first = terms = self._terms(left)
                for _ in range(int(text) - 1):
                    terms = self._once((*terms, *self._products(terms, first)))
                return terms
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
        distinct: dict[frozenset[Node], Term] = {}
        for term in terms:
            distinct.setdefault(_key(term), term)
        self._count(len(distinct))
        return tuple(distinct.values())


def _summed(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the summands of a sum with their signs."""
    match node:
        case Binary("+" | "-" as last, left, right):
            yield from _summed(left)
            yield last, right
        case Signed(own, operand):
            yield own, operand
        case _:
            yield "+", node


def _only_crossed(node: Node) -> bool:
    """Tell whether a node consists only of columns, : and /."""
    match node:
        case Binary(":" | "/", left, right):
            return _only_crossed(left) and _only_crossed(right)
    return isinstance(node, Name)


def _key(term: Term) -> frozenset[Node]:
    return frozenset(term)


def _term_text(term: Term) -> str:
    return ":".join(map(text_of, term)) or "1"
