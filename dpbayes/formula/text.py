"""Parser of formulas: text to tree and terms. No part of the text is ever run as code.

A formula is input that may come from a stranger. Only the constructs below are accepted, and
``terms.py`` computes values from the tree; Python never evaluates the text.

formulaic's parser is not used: it imports pandas before it can report a misspelt column, leaves
the insides of calls as Python text, and expands powers without a limit.
"""

from __future__ import annotations

import math
import re

from dpbayes.core.errors import SchemaError
from dpbayes.formula.tree import (
    BINDS,
    SIGN,
    Call,
    Group,
    GroupTerm,
    Items,
    LevelName,
    Name,
    Node,
    Number,
    Operation,
    Parsed,
    Term,
    names_in,
    text_of,
)

LONGEST = 100_000  # most characters of a formula
MOST_TERMS = 5_000
MOST_PRODUCTS = 300_000  # most terms made by :, *, / and **, also repeated ones: a second's work
MOST_STEPS = 150  # most operators, brackets and calls of one summand: trees stay shallow
_SHOWN = 120  # most characters of a formula in a message
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<quoted>`[^`]+`)
    | (?P<text>"[^"\\\n]*"|'[^'\\\n]*')
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[^\W\d][\w.]*)
    | (?P<sign>\*\*|<=|>=|==|!=|[-+*/:%<>^()\[\],=|~])
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
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
    try:
        return _Reader(formula).formula()
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}.") from None


class _Reader:
    """Reader of one formula by precedence climbing; its errors do not name the formula."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0  # index of the next token
        self._steps = 0
        self._calls = 0  # calls around the next token
        for token in _TOKEN.finditer(text):
            kind = str(token.lastgroup)
            if kind == "other":
                raise SchemaError(
                    f"{token[kind]!r} at character {token.start(kind) + 1} has no place in a "
                    "formula; a column of another name stands in backticks, `like this`"
                )
            self._tokens.append((kind, token[kind]))

    @property
    def _next(self) -> str:
        """Text of the next token; empty at the end."""
        return self._tokens[self._at][1]

    def _take(self, *signs: str) -> str:
        """Consume and return the next token if it is one of these signs."""
        sign = self._next if self._next in signs else ""
        self._at += bool(sign)
        return sign

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._expected(repr(sign))

    def _expected(self, what: str) -> SchemaError:
        before = quoted(self._next) if self._next else "its end"
        return SchemaError(f"expected {what} before {before}")

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SchemaError(
                f"a summand has more than {MOST_STEPS} operators, brackets and calls; write it "
                "as several, without brackets around them"
            )

    def formula(self) -> Parsed:
        if self._next == "~" or self._tokens.count(("sign", "~")) != 1:
            raise SchemaError(
                "expected 'outcome ~ covariates', for example 'y ~ 1'; there is one ~, between them"
            )
        outcome = self._expression()
        self._expect("~")
        terms: dict[frozenset[Node], Term] = {frozenset(): ()}
        groups: list[GroupTerm] = []
        expansion = _Expansion()
        sign = self._take("+", "-") or "+"
        while sign:  # not by recursion: a formula may have thousands of summands
            self._steps = 0
            summand = self._expression(BINDS["*"])
            if isinstance(summand, Group) and sign == "+":
                groups += expansion.group_terms(summand)
            else:
                expansion.add(terms, sign, summand)
            sign = self._take("+", "-")
        if self._next in BINDS:
            raise SchemaError(
                f"{self._next!r} is no sign between terms; comparisons stand inside I()"
            )
        if self._next:
            raise self._expected("an operator")
        return Parsed(outcome, tuple(terms.values()), tuple(groups))

    def _expression(self, binds: int = 1) -> Node:
        """Read an expression whose operators all have at least the precedence ``binds``."""
        if sign := self._take("+", "-"):
            self._step()
            left: Node = Operation(sign, (self._expression(SIGN),))
        else:
            left = self._operand()
        while (own := BINDS.get(self._next, 0)) >= binds:
            self._step()
            sign = self._take(*BINDS)
            # A power binds to the right, and may have a signed exponent.
            right = self._expression(SIGN if own == BINDS["**"] else own + 1)
            left = Operation("**" if sign == "^" else sign, (left, right))
            if own == BINDS["<"]:  # comparisons are not chained
                binds = own + 1
        return left

    def _operand(self) -> Node:
        kind, text = self._tokens[self._at]
        # A sign begins an operand only as a bracket, or as a list among the arguments of a call.
        opens = text == "(" or (text == "[" and self._calls > 0)
        if kind == "end" or (kind == "sign" and not opens):
            raise self._expected("a column, a number or a function")
        self._at += 1
        match kind:
            case "number":
                if not math.isfinite(float(text)):
                    raise SchemaError(f"the number {quoted(text)} cannot be held")
                return Number(text)
            case "text":
                return LevelName(text[1:-1])
            case "quoted":
                return Name(text[1:-1])
            case "name":
                return self._call(text) if self._take("(") else Name(text)
        return self._bracket() if text == "(" else Items(self._call("", "]").arguments)

    def _bracket(self) -> Node:
        self._step()
        inner = self._expression()
        if self._take("|"):
            if self._calls:
                raise SchemaError("a group term (1 | group) has no place inside a call")
            correlated = not self._take("|")
            inner = Group(inner, self._expression(), correlated)
        self._expect(")")
        return inner

    def _call(self, name: str, close: str = ")") -> Call:
        """Read the arguments of a call, or the items of a list, which has no name."""
        self._step()
        self._calls += 1
        arguments: list[Node] = []
        named: dict[str, Node] = {}
        while not self._take(close):
            if arguments or named:
                self._expect(",")
            value = self._expression()
            if name and self._take("="):
                if not isinstance(value, Name) or value.value in named:
                    raise SchemaError(f"a setting of {name}() is written as name=value, once")
                named[value.value] = self._expression()
            elif named:
                raise SchemaError(f"{name}(): settings stand after all else")
            else:
                arguments.append(value)
        self._calls -= 1
        return Call(name, tuple(arguments), tuple(named.items()))


class _Expansion:
    """Expansion of summands into terms, by the rules of Wilkinson and Rogers."""

    def __init__(self) -> None:
        self._multiplied = 0

    def group_terms(self, group: Group) -> list[GroupTerm]:
        text = text_of(group)[:_SHOWN]
        if not _only_crossed(group.by):
            raise SchemaError(
                f"{text}: expected columns right of |, as in (1 | a), (1 | a:b) or (1 | a/b); "
                "(1 | a) + (1 | b) is of groups that are crossed"
            )
        terms = tuple(self._sum({frozenset(): ()}, group.terms).values())
        if not terms:
            raise SchemaError(f"{text}: expected 1 or a covariate left of |")
        return [
            GroupTerm(
                text, terms, tuple(name for c in by for name in names_in(c)), group.correlated
            )
            for by in self._terms(group.by)
        ]

    def _terms(self, node: Node) -> tuple[Term, ...]:
        """Expand a summand or a part of one."""
        match node:
            case Number("1"):
                return ((),)
            case Name() | Call():
                return ((node,),)
            case Operation("+" | "-", (_, _)):
                return tuple(self._sum({}, node).values())
            case Operation(":" | "*" | "/" as sign, (left, right)):
                first, second = self._terms(left), self._terms(right)
                if sign == ":":
                    return self._products(first, second)
                if sign == "*":
                    return _unique((*first, *second, *self._products(first, second)))
                factors = tuple(dict.fromkeys(factor for term in first for factor in term))
                return _unique((*first, *self._products((factors,), second)))
            case Operation("**", (left, Number(text))) if text in map(str, range(1, 11)):
                first = terms = self._terms(left)
                for _ in range(int(text) - 1):
                    terms = _unique((*terms, *self._products(terms, first)))
                return terms
            case Group():
                raise SchemaError("a group term (1 | group) is added to the others, with +")
        raise SchemaError(
            f"{text_of(node)[:_SHOWN]!r} is not a term; arithmetic stands inside I(), such as "
            "I(2 * x)"
        )

    def _sum(self, terms: dict[frozenset[Node], Term], node: Node) -> dict[frozenset[Node], Term]:
        """Add all summands of a node to ``terms``, and return these."""
        match node:
            case Operation("+" | "-" as sign, (left, right)):
                self.add(self._sum(terms, left), sign, right)
            case Operation("+" | "-" as sign, (operand,)):
                self.add(terms, sign, operand)
            case _:
                self.add(terms, "+", node)
        return terms

    def add(self, terms: dict[frozenset[Node], Term], sign: str, summand: Node) -> None:
        """Add a summand to ``terms``, or take it away: a term is known by its set of factors."""
        if summand == Number("0"):  # + 0 is - 1
            sign, summand = "-" if sign == "+" else "+", Number("1")
        for term in self._terms(summand):
            if sign == "+":
                terms.setdefault(frozenset(term), term)
            elif terms.pop(frozenset(term), None) is None:
                text = ":".join(map(text_of, term)) or "1"
                raise SchemaError(f"{text!r} is taken away and is not there")
        _check(len(terms))

    def _products(self, left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
        number = len(left) * len(right)
        self._multiplied += number
        _check(number)  # before memory is taken
        _check(self._multiplied, MOST_PRODUCTS)
        return _unique(tuple(tuple(dict.fromkeys((*a, *b))) for a in left for b in right))


def _only_crossed(node: Node) -> bool:
    """Tell whether a node consists only of columns, : and /."""
    match node:
        case Operation(":" | "/", (left, right)):
            return _only_crossed(left) and _only_crossed(right)
    return isinstance(node, Name)


def _unique(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Return the terms without repeated ones, the first of which stay."""
    distinct: dict[frozenset[Node], Term] = {}
    for term in terms:
        distinct.setdefault(frozenset(term), term)
    return tuple(distinct.values())


def _check(number: int, most: int = MOST_TERMS) -> None:
    if number > most:
        raise SchemaError(f"there are more than {most:,} terms; leave some out")
