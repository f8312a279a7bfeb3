"""Rules between columns, such as ``start <= end``, that hold in every record and synthetic row.

A rule is public, like a bound: records that break it are refused before anything is drawn.
Its text is read by the grammar in rules.lark and never run as code.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Mask
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import NUMERIC, Column
from dpbayes.schema.dates import Calendar
from dpbayes.schema.values import CLOSE, level_text

if TYPE_CHECKING:  # lark takes time to import: only a schema with rules needs it
    from lark import Lark

LONGEST = 1000  # characters of a rule
DEEPEST = 100  # levels of nested operators
Values = Mapping[str, Floats]
Numbers = float | NDArray[Any]  # of all records, or one for each; truth values are numbers
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True)
class Part:
    """Sub-expression of a rule.

    Attributes:
        value: function that computes numbers or truth values from numbers by column, with
            broadcasting.
        names: names of the columns that it reads.
        column: the column, if the sub-expression is a single column.
        text: text of a literal.
        boolean: true if its values are truth values.
        size: function that bounds the magnitude of the terms of ``value``, for rounding errors.
        terms: signs and parts of a sum; empty if the sub-expression is not a sum.
    """

    value: Callable[[Values], Numbers]
    names: frozenset[str] = frozenset()
    column: Column | None = None
    text: str | None = None
    boolean: bool = False
    size: Callable[[Values], Numbers] = lambda v: 0.0
    terms: tuple[tuple[float, Part], ...] = ()

    def summed(self, sign: float = 1.0) -> tuple[tuple[float, Part], ...]:
        """Signed terms of the sub-expression times ``sign``; one term if it is not a sum."""
        return tuple((sign * s, part) for s, part in self.terms) or ((sign, self),)


@dataclass(frozen=True)
class Rule:
    """Condition on a record: a rule of the schema, or the ``only_if`` of a column.

    Attributes:
        text: the condition as it was written.
        names: names of the columns that it reads, in schema order.
        part: the parsed expression.
        definitions: ``(name, value)`` of each numeric column that the rule may compute from others,
            the first choice first.
        constants: numbers and days in the rule.
        equations: names of the columns in each equation that always holds, on its own or joined to
            others by ``and``.
    """

    text: str
    names: tuple[str, ...]
    part: Part
    definitions: tuple[tuple[str, Part], ...] = ()
    constants: tuple[float, ...] = ()
    equations: tuple[frozenset[str], ...] = ()

    @classmethod
    def parse(cls, text: str, columns: Mapping[str, Column]) -> Rule:
        """Read a rule.

        Raises:
            SchemaError: the text is not a rule, or does not fit the columns.
        """
        where = f"rule {text!r:.120}"
        if not isinstance(text, str) or len(text) > LONGEST:
            raise SchemaError(f"{where} must be text of at most {LONGEST:,} characters.")
        reader = _RuleReader(where, columns)
        part = reader.read(text)
        if not part.boolean or not part.names:
            raise SchemaError(
                f"{where} must compare columns, for example 'age >= 16 or married == \"no\"'."
            )
        names = tuple(name for name in columns if name in part.names)
        constants, equations = tuple(sorted(reader.constants)), tuple(reader.equations)
        return cls(text, names, part, tuple(reader.definitions), constants, equations)

    @property
    def defined(self) -> tuple[str, Part] | None:
        """Name and value of the numeric column that the rule computes, if it computes one."""
        return next(iter(self.definitions), None)

    def true(self, values: Values) -> Mask:
        """Mask of records where the rule is true and no value is missing, shape (n,).

        Args:
            values: numbers, days or level codes of each column in ``names``; NaN where missing.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            truth = np.asarray(self.part.value(values), dtype=bool)
        return np.asarray(truth & ~self.missing(values))

    def holds(self, values: Values) -> Mask:
        """Mask of records where the rule is true or a value is missing, shape (n,)."""
        return np.asarray(self.true(values) | self.missing(values))

    def missing(self, values: Values) -> Mask:
        """Mask of records where a column of the rule is missing, shape (n,)."""
        return np.asarray(_joined(np.logical_or, [np.isnan(values[name]) for name in self.names]))


def numbers_of(column: Column, values: pd.Series) -> Floats:
    """Numbers, days or level codes of validated values, NaN where missing; shape (n,)."""
    if column.type in NUMERIC:
        return np.asarray(values.to_numpy(dtype=float))
    codes = values.cat.codes.to_numpy()
    return np.where(codes < 0, np.nan, codes)


def values_of(column: Column, numbers: Floats) -> pd.Series:
    """Validated values from the output of ``numbers_of``, shape (n,)."""
    if column.levels:
        codes = np.where(np.isnan(numbers), -1, numbers).astype(int)
        categorical = pd.Categorical.from_codes(codes, categories=list(column.levels), ordered=True)  # type: ignore[call-overload]
        return pd.Series(categorical, name=column.name)
    whole = column.whole and not column.optional
    return pd.Series(numbers.astype(np.int64) if whole else numbers, name=column.name)


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    grammar = (Path(__file__).parent / "rules.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr")


class _RuleReader:
    """Converts the syntax tree of a rule to ``Part`` objects."""

    def __init__(self, where: str, columns: Mapping[str, Column]) -> None:
        self._where, self._columns = where, columns
        self.definitions: list[tuple[str, Part]] = []
        self.constants: set[float] = set()
        self.equations: list[frozenset[str]] = []
        self._depth = 0

    def read(self, text: str) -> Part:
        from lark.exceptions import LarkError

        try:
            tree = _parser().parse(text)
            return self._part(tree, top=True, holds=True)
        except LarkError as error:
            column = getattr(error, "column", None)
            at = f" at character {column}" if isinstance(column, int) and column > 0 else ""
            power = " Of powers write the products: x * x." if "**" in text or "^" in text else ""
            raise SchemaError(
                f"{self._where} cannot be read{at}. A rule compares columns, numbers and texts in "
                "quotes by <, <=, ==, !=, in [...], computes by +, -, *, /, and joins by and, or, "
                f"not; a column of another name stands in backticks.{power}"
            ) from None
        except RecursionError:
            raise SchemaError(f"{self._where} is nested too deeply.") from None

    def _part(self, tree: Any, top: bool = False, holds: bool = False) -> Part:
        if self._depth > DEEPEST:
            raise self._fail(f"more than {DEEPEST} operators are nested")
        self._depth += 1
        try:
            return self._made(tree, top, holds)
        finally:
            self._depth -= 1

    def _made(self, tree: Any, top: bool, holds: bool) -> Part:
        kind, children = str(tree.data), list(tree.children)
        if kind == "literal":
            return self._literal(str(children[0]))
        if kind == "column":
            return self._column(str(children[0]).strip("`"))
        if kind == "computed":
            left, sign, right = children
            return self._computed(self._part(left), str(sign), self._part(right))
        if kind == "signed":
            sign = -1.0 if str(children[0]) == "-" else 1.0
            if str(children[1].data) == "literal":
                return self._literal(str(children[1].children[0]), sign)
            operand = self._number(self._part(children[1]))
            return Part(lambda v: sign * operand.value(v), operand.names, size=operand.size)
        if kind in ("among", "not_among"):
            return self._among(children, kind == "among")
        if kind == "compared":
            parts = [self._part(child) for child in children[::2]]
            signs = [str(sign) for sign in children[1::2]]
            if top and signs == ["=="]:
                self.definitions = list(self._defined(*parts))
            if holds:
                pairs = zip(parts, signs, parts[1:], strict=False)
                self.equations += [a.names | b.names for a, sign, b in pairs if sign == "=="]
            return self._compared(parts, signs)
        holds = holds and kind == "both"
        operands = [self._truth(self._part(child, holds=holds)) for child in children]
        names = frozenset().union(*(part.names for part in operands))
        values = [part.value for part in operands]
        if kind == "denied":
            return Part(lambda v: np.logical_not(values[0](v)), names, boolean=True)
        join = np.logical_and if kind == "both" else np.logical_or
        return Part(lambda v: _joined(join, [value(v) for value in values]), names, boolean=True)

    def _fail(self, why: str) -> SchemaError:
        return SchemaError(f"{self._where}: {why}.")

    def _literal(self, text: str, sign: float | None = None) -> Part:
        if text[0] in "\"'":
            if sign is not None:
                raise self._fail("a text is no number to calculate with")
            return Part(lambda v: np.nan, text=text[1:-1])
        number = (sign or 1.0) * float(text)
        if not math.isfinite(number):
            raise self._fail(f"{text} is too large")
        self.constants.add(number)
        return Part(lambda v: number, text=level_text(number), size=lambda v: abs(number))

    def _column(self, name: str) -> Part:
        if name not in self._columns:
            raise self._fail(f"column {name!r} is not declared; quote texts, as in x == 'yes'")
        return Part(
            lambda v: v[name],
            frozenset([name]),
            self._columns[name],
            size=lambda v: np.abs(v[name]),
        )

    def _number(self, part: Part) -> Part:
        """Return a part that is numeric; raise SchemaError for a text, a level or a comparison."""
        literal = part.text is not None and math.isnan(part.value({}))
        if part.boolean or literal or (part.column is not None and part.column.levels):
            if part.column is not None:
                name = part.column.name
                raise self._fail(
                    f"{name!r} has levels, and a level is no number to calculate with. Compare it "
                    "with ==, or declare the column count, or continuous with digits = 0"
                )
            kind = "a text" if literal else "a comparison"
            raise self._fail(f"{kind} is no number to calculate with")
        return part

    def _truth(self, part: Part) -> Part:
        if not part.boolean:
            raise self._fail("and, or, not join comparisons; write x == 'yes' for a level")
        return part

    def _computed(self, left: Part, sign: str, right: Part) -> Part:
        a, b, apply = self._number(left), self._number(right), _SIGNS[sign]

        def size(v: Values) -> Any:
            if sign == "/":
                return a.size(v) / np.abs(b.value(v))
            return a.size(v) * b.size(v) if sign == "*" else a.size(v) + b.size(v)

        terms = (*a.summed(), *b.summed(1.0 if sign == "+" else -1.0)) if sign in "+-" else ()
        names = a.names | b.names
        return Part(lambda v: apply(a.value(v), b.value(v)), names, size=size, terms=terms)

    def _among(self, children: Sequence[Any], positive: bool) -> Part:
        subject, *others = [self._part(child) for child in children]
        equal = [self._compared([subject, other], ["=="]) for other in others]
        values = [part.value for part in equal]
        return Part(
            lambda v: _joined(np.logical_or, [value(v) for value in values]) == positive,
            subject.names,
            boolean=True,
        )

    def _compared(self, parts: Sequence[Part], signs: Sequence[str]) -> Part:
        pairs = [self._pair(a, s, b) for a, s, b in zip(parts, signs, parts[1:], strict=False)]
        names = frozenset().union(*(part.names for part in parts))
        return Part(
            lambda v: _joined(np.logical_and, [pair(v) for pair in pairs]), names, boolean=True
        )

    def _pair(self, left: Part, sign: str, right: Part) -> Callable[[Values], Numbers]:
        column = left.column or right.column
        if column is not None and column.levels:
            if left.column is None:
                left, right, sign = right, left, _TURNED[sign]
            return self._levels(column, left, sign, right)
        steps = {c.seconds for part in (left, right) if (c := _calendar(part)) is not None}
        if len(steps) > 1:
            raise self._fail("days and moments, or minutes and seconds, cannot be compared")
        a, b = (self._number(self._dated(part, column)) for part in (left, right))
        return lambda v: _compare(sign, a.value(v), b.value(v), a.size(v) + b.size(v))

    def _dated(self, part: Part, column: Column | None) -> Part:
        """Convert a text that is compared with a date column to its day."""
        if part.text is None or column is None or column.calendar is None:
            return part
        day = column.calendar.bound(self._where, column.name, part.text)
        self.constants.add(float(day or 0))
        return Part(lambda v: float(day or 0))

    def _levels(
        self, column: Column, left: Part, sign: str, right: Part
    ) -> Callable[[Values], Numbers]:
        if sign not in ("==", "!=") and column.type != "ordinal":
            raise self._fail(f"levels of {column.name!r} have no order; compare them by == or !=")
        if right.column is not None and right.column.levels:
            if right.column.levels != column.levels:
                raise self._fail(
                    f"columns {column.name!r} and {right.column.name!r} have other levels"
                )
            return lambda v: _compare(sign, left.value(v), right.value(v))
        known = {level_text(level): float(code) for code, level in enumerate(column.levels)}
        if right.text not in known:
            raise self._fail(
                f"{right.text!r} is not a level of {column.name!r} ({', '.join(known)})"
                if right.text is not None
                else f"column {column.name!r} has levels; compare it with one of them"
            )
        code = known[right.text]
        return lambda v: _compare(sign, left.value(v), code)

    def _defined(self, left: Part, right: Part) -> Iterator[tuple[str, Part]]:
        """Yield numeric columns that an equation may define, and the expressions that compute them.

        First those that are alone on one side, then suitable terms of the equation from the last.
        """
        if any(part.boolean or (part.column and part.column.levels) for part in (left, right)):
            return
        terms = (*left.summed(), *right.summed(-1.0))
        alone = [side.summed()[0][1] for side in (left, right) if side.column is not None]
        for candidate in (*alone, *(part for _, part in reversed(terms))):
            column, others = candidate.column, [term for term in terms if term[1] is not candidate]
            names = frozenset().union(*(part.names for _, part in others))
            if column is None or column.public or column.name in names or not names:
                continue
            (sign,) = (sign for sign, part in terms if part is candidate)
            yield column.name, _sum([(-sign * s, part) for s, part in others], names)


def _sum(terms: Sequence[tuple[float, Part]], names: frozenset[str]) -> Part:
    """Sum of parts with their signs."""
    return Part(
        lambda v: sum(sign * part.value(v) for sign, part in terms),
        names,
        size=lambda v: sum(part.size(v) for _, part in terms),
    )


def _joined(join: Callable[[Any, Any], Any], arrays: Sequence[Any]) -> Any:
    """Reduce arrays, which may differ in shape but broadcast, by a binary function."""
    return functools.reduce(join, arrays)


def _compare(sign: str, a: Any, b: Any, size: Any = 0.0) -> Any:
    """Compare numbers up to rounding errors of terms of this size; whole numbers exactly."""
    apart = np.abs(a - b)
    whole = (np.mod(a, 1) == 0) & (np.mod(b, 1) == 0)
    close = (apart == 0) | ((apart <= CLOSE * size) & ~whole & np.isfinite(apart))
    if sign in ("==", "!="):
        return close == (sign == "==")
    more = a > b if sign in (">", ">=") else a < b
    return more | close if sign in ("<=", ">=") else more & ~close


def _calendar(part: Part) -> Calendar | None:
    return None if part.column is None else part.column.calendar
