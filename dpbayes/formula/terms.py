"""Evaluation of the factors of a formula, row by row.

A row's value is a function of that row and of public constants. Nothing here learns from other
rows: there is no mean or maximum of a column, and no quantile for a knot. Functions work on one
value at a time, so that a table gives the same values as its rows one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import formulaic, interpolate, pd
from dpbayes.formula.tree import (
    Call,
    Items,
    LevelName,
    Name,
    Node,
    Number,
    Operation,
    Term,
    names_in,
    text_of,
)
from dpbayes.schema.values import level_text

MOST_KNOTS = 100
MOST_DEGREE = 10
FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "I": lambda x: x,
    "log": np.log,
    "log1p": np.log1p,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
}
_ARITHMETIC: dict[str, Callable[[Floats, Floats], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power,
    "%": np.mod, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_OF_CONSTANTS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_BASES = ("bs", "cr", "poly")
# Transforms known from other software, all of which compute something from the whole column.
_LEARN = (
    "center", "scale", "standardize", "rescale", "hashed", "lag", "cc", "te", "mean", "median",
    "std", "var", "sum", "cumsum", "rank", "quantile", "cut", "qcut", "ns", "s",
)  # fmt: skip


def _number(level: object) -> float | None:
    """The number that a level is, such as 0, "2" or False; None if it is none."""
    try:
        number = float(level_text(level))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Domain:
    """Public domain of a column.

    Attributes:
        levels: levels in order; empty for a column of numbers.
        bounds: lower and upper bound of a column of numbers, if known.
    """

    levels: tuple[Any, ...] = ()
    bounds: tuple[float, float] | None = None


class Factors:
    """Factors of terms, which can be evaluated over columns with public domains.

    Args:
        where: beginning of messages.
        terms: terms from ``parse``, checked by ``columns_used``.
        domains: domains of the columns, by name.
        total: never refuse a value, for confidential records: values outside a domain are replaced
            by public ones.

    Methods raise SchemaError if a factor does not fit its columns.
    """

    def __init__(
        self,
        where: str,
        terms: Iterable[Term],
        domains: Mapping[str, Domain],
        *,
        total: bool = False,
    ) -> None:
        self._where = where
        self._total = total
        self._terms = list(terms)
        self._domains = domains
        self._nodes = {text_of(f): f for f in dict.fromkeys(f for t in self._terms for f in t)}

    def table(self, records: pd.DataFrame) -> pd.DataFrame:
        """Evaluate all factors: columns of numbers, or categoricals with their levels.

        Args:
            records: n rows with the columns of the domains, numbers or categoricals.
        """
        columns = {}
        with np.errstate(all="ignore"):  # callers check that values are finite
            for text, node in self._nodes.items():
                for name, values in self._columns(text, node, records).items():
                    columns[name] = values
        return pd.DataFrame(columns, index=records.index)

    def numbers(self, node: Node, records: pd.DataFrame) -> Floats:
        """Evaluate a numeric expression for each record: shape (n,)."""
        with np.errstate(all="ignore"):
            values = np.asarray(self._value(node, records), dtype=float)
        return np.broadcast_to(values, (len(records),)).copy()

    def formula(self) -> Any:
        """Return a formulaic formula, which only looks up columns of ``table`` and codes levels."""
        terms = []
        for term in self._terms:
            products: list[tuple[str, ...]] = [()]
            for factor in term:
                names = self._names(factor)
                products = [(*product, name) for product in products for name in names]
            terms += [
                formulaic.parser.types.Term(
                    [formulaic.parser.types.Factor(name, eval_method="lookup") for name in product]
                    or [formulaic.parser.types.Factor("1", eval_method="literal")]
                )
                for product in products
            ]
        return formulaic.Formula(terms)

    def _names(self, factor: Node) -> list[str]:
        text = text_of(factor)
        if isinstance(factor, Call) and factor.name in _BASES:
            return [f"{text}[{k}]" for k in range(1, self._width(factor) + 1)]
        return [text]

    def _fail(self, why: str) -> SchemaError:
        return SchemaError(f"{self._where}: {why}.")

    def _columns(self, text: str, node: Node, records: pd.DataFrame) -> dict[str, Any]:
        if isinstance(node, Call) and node.name in _BASES:
            basis = self._basis(node, records)
            return {f"{text}[{k}]": basis[:, k - 1] for k in range(1, basis.shape[1] + 1)}
        named = node.arguments[0] if isinstance(node, Call) and node.name == "C" else node
        if isinstance(named, Name) and (self._domains[named.value].levels or named is not node):
            return {text: self._levels(node, named.value, records)}
        return {text: self.numbers(node, records)}

    def _levels(self, node: Node, column: str, records: pd.DataFrame) -> Any:
        """Return a column as a categorical, its levels in declared order or in that of C()."""
        levels = self._domains[column].levels
        listed = dict(node.named).get("levels") if isinstance(node, Call) else None
        if not isinstance(listed, Items):
            if not levels:
                raise self._fail(
                    f"{text_of(node)} needs levels: declare them in the schema, or write "
                    f"C({column}, levels=[...])"
                )
            return pd.Categorical(records[column], categories=list(levels), ordered=True)
        wanted = [self._constant(item) for item in listed.items]
        known = {level_text(level): level for level in levels}
        texts = [level_text(level) for level in wanted]
        if len(set(texts)) != len(texts) or set(known) - set(texts):
            raise self._fail(
                f"{text_of(node)}: expected every level of column {column!r}, each once"
            )
        if levels:
            order = [known.get(text, text) for text in texts]
            return pd.Categorical(records[column], categories=order, ordered=True)
        if any(isinstance(level, str) for level in wanted):
            raise self._fail(f"{text_of(node)}: column {column!r} holds numbers, not text")
        by_value = {level: int(level) if level.is_integer() else level for level in wanted}
        values = records[column].astype(float).map(by_value)
        if self._total:
            values = values.fillna(next(iter(by_value.values())))
        if values.isna().any():
            raise self._fail(f"{text_of(node)}: column {column!r} has other values than these")
        return pd.Categorical(values, categories=list(by_value.values()), ordered=True)

    def _constant(self, node: Node) -> Any:
        """Evaluate a level, or an expression of constants to a finite number."""
        if isinstance(node, LevelName):
            return node.value
        with np.errstate(all="ignore"):
            value = float(np.asarray(self._value(node, None), dtype=float))
        if not np.isfinite(value):
            raise self._fail(f"{text_of(node)} is not a finite number")
        return value

    def _value(self, node: Node, records: Any) -> Any:
        """Evaluate a numeric expression: shape (n,), or a single number for a constant."""
        match node:
            case Number():
                return np.float64(node.value)
            case Name(column):
                levels = self._domains[column].levels
                if not levels:
                    return records[column].to_numpy(dtype=float)
                numbers = {level: _number(level) for level in levels}
                if None in numbers.values():
                    raise self._fail(
                        f"column {column!r} has levels and is used as a number; compare it with "
                        f"one, as in I({column} == 'a')"
                    )
                return records[column].astype(object).map(numbers).to_numpy(dtype=float)
            case Operation(sign, (operand,)):
                value = self._value(operand, records)
                return np.negative(value) if sign == "-" else value
            case Operation("==" | "!=", (Name(column), LevelName() | Number() as level)) if (
                self._domains[column].levels
            ):
                equal = self._is_level(column, level_text(self._constant(level)), records)
                return np.asarray(equal if node.sign == "==" else ~equal, dtype=float)
            case Operation(sign, operands):
                pair = (self._value(operand, records) for operand in operands)
                return np.asarray(_ARITHMETIC[sign](*pair), dtype=float)
            case Call(name, arguments) if name in _OF_CONSTANTS:
                return np.float64(_OF_CONSTANTS[name](*map(self._constant, arguments)))
            case Call(name, (argument,)) if name in FUNCTIONS:
                return FUNCTIONS[name](np.ascontiguousarray(self._value(argument, records)))
        raise self._fail(f"{text_of(node)} is not a number")

    def _is_level(self, column: str, level: str, records: pd.DataFrame) -> Any:
        known = {level_text(declared): declared for declared in self._domains[column].levels}
        if level not in known:
            raise self._fail(f"{level!r} is not a level of column {column!r}")
        return (records[column] == known[level]).to_numpy(dtype=bool)

    def _settings(self, node: Call) -> dict[str, Any]:
        """Evaluate the settings of a basis: constants, and lists of constants."""
        settings: dict[str, Any] = {}
        for key, value in node.named:
            if isinstance(value, Items):
                settings[key] = [self._constant(item) for item in value.items]
            else:
                settings[key] = self._constant(value)
        return settings

    def _degree(self, node: Call) -> int:
        requested = self._settings(node).get("degree")
        if len(node.arguments) == 2:
            requested = self._constant(node.arguments[1])
        degree = 3 if requested is None and node.name == "bs" else requested
        if not isinstance(degree, int | float) or degree not in range(1, MOST_DEGREE + 1):
            raise self._fail(f"{text_of(node)}: the degree must be from 1 to {MOST_DEGREE}")
        return int(degree)

    def _width(self, node: Call) -> int:
        """Return the number of columns of a basis."""
        if node.name == "poly":
            return self._degree(node)
        knots = self._settings(node).get("knots", [])
        if not isinstance(knots, list):
            raise self._fail(f"{text_of(node)}: knots must be a list, as in knots=[1, 2]")
        return len(knots) + (self._degree(node) if node.name == "bs" else 1)

    def _bounds(self, node: Call) -> tuple[float, float]:
        """Return the bounds of a basis: from the formula, or else from its column's domain."""
        settings = self._settings(node)
        argument = node.arguments[0]
        known = self._domains[argument.value].bounds if isinstance(argument, Name) else None
        low, high = (
            settings.get(key, None if known is None else known[i])
            for i, key in enumerate(("lower", "upper"))
        )
        if not isinstance(low, float | int) or not isinstance(high, float | int) or not low < high:
            raise self._fail(
                f"{text_of(node)} needs public bounds: lower=... below upper=... of its argument"
            )
        return float(low), float(high)

    def _basis(self, node: Call, records: pd.DataFrame) -> Floats:
        """Evaluate the columns of a basis at the argument's values: shape (n, width)."""
        low, high = self._bounds(node)
        values = self.numbers(node.arguments[0], records)
        if self._total:
            values = np.clip(np.where(np.isnan(values), low, values), low, high)
        if not ((values >= low) & (values <= high)).all():
            raise self._fail(
                f"{text_of(node)}: its argument leaves the bounds {low:g} and {high:g}; widen "
                "lower=... and upper=..."
            )
        if node.name == "poly":
            centred = 2 * ((values - low) / (high - low)) - 1
            return np.asarray(legendre.legvander(centred, self._degree(node))[:, 1:])
        knots = self._settings(node).get("knots")
        inner = np.asarray(knots if isinstance(knots, list) else [], dtype=object)
        if knots is None or len(inner) > MOST_KNOTS or any(isinstance(k, str) for k in inner):
            raise self._fail(
                f"{text_of(node)} needs public knots, knots=[...], at most {MOST_KNOTS} numbers; "
                "none are taken from the records"
            )
        ends = np.array([low, *inner.astype(float), high])
        scaled = (ends - low) / (high - low)
        if not (np.diff(scaled) > 0).all():
            raise self._fail(f"{text_of(node)}: knots must rise from above lower to below upper")
        values = np.clip((values - low) / (high - low), 0, 1)
        return (
            _b_spline(values, scaled, self._degree(node))
            if node.name == "bs"
            else _natural_spline(values, scaled)
        )


def columns_used(where: str, terms: Iterable[Term]) -> list[str]:
    """Return the names of the columns that terms use, and check their factors.

    Args:
        where: beginning of messages.
        terms: terms from ``parse``.
    Raises:
        SchemaError: a factor uses something that no formula may use.
    """
    names: dict[str, None] = {}
    for factor in dict.fromkeys(factor for term in terms for factor in term):
        check(where, factor)
        names |= dict.fromkeys(names_in(factor))
    return list(names)


def check(where: str, node: Node) -> None:
    """Raise SchemaError if a factor uses something that no formula may use."""
    match node:
        case Name() | Number():
            return
        case Operation(sign, parts):
            if sign not in _ARITHMETIC:
                raise SchemaError(f"{where}: {sign!r} stands between terms, not inside a call.")
            if sign in ("==", "!=") and isinstance(parts[0], Name):
                parts = tuple(part for part in parts if not isinstance(part, LevelName))
            for part in parts:
                check(where, part)
            return
        case Call():
            return _check_call(where, node)
        case LevelName(value):
            raise SchemaError(
                f"{where}: the text {value!r} stands where no level is named; levels are compared "
                "with, as in I(group == 'a'), or listed, as in C(group, levels=['a', 'b'])."
            )
    raise SchemaError(f"{where}: {text_of(node)} stands where no list is read.")


def _check_call(where: str, node: Call) -> None:
    name, arguments, named = node.name, node.arguments, dict(node.named)
    known = (*FUNCTIONS, *_OF_CONSTANTS, "C", *_BASES)
    if name not in known:
        why = "learns constants from the records; w" if name in _LEARN else "is not known. W"
        raise SchemaError(
            f"{where}: {name}() {why}rite public constants, for example I((age - 40) / 10). A "
            f"formula may use {', '.join(known)}."
        )
    settings = {
        "C": ("levels",), "bs": ("knots", "degree", "lower", "upper"),
        "cr": ("knots", "lower", "upper"), "poly": ("degree", "lower", "upper"),
    }.get(name, ())  # fmt: skip
    if extra := [key for key in named if key not in settings]:
        may = f"it has {', '.join(settings)}" if settings else "it has none"
        raise SchemaError(f"{where}: {name}() has no setting {extra[0]!r}; {may}.")
    if name in _OF_CONSTANTS:
        _check_constants(where, name, arguments)
        if len(arguments) < 2:
            raise SchemaError(f"{where}: {name}() takes at least two constants.")
    elif len(arguments) != 1 and not (name == "poly" and len(arguments) == 2):
        raise SchemaError(f"{where}: {name}() takes one argument, found {len(arguments)}.")
    else:
        _check_constants(where, name, (*arguments[1:], *named.values()))
        check(where, arguments[0])
    if name == "C" and not isinstance(arguments[0], Name):
        raise SchemaError(f"{where}: C() takes a column, found {text_of(arguments[0])}.")
    if name == "C" and not isinstance(named.get("levels", Items(())), Items):
        raise SchemaError(f"{where}: C(): levels = [...] is a list.")


def _check_constants(where: str, name: str, nodes: Iterable[Node]) -> None:
    for node in nodes:
        for part in node.items if isinstance(node, Items) else (node,):
            used = next(names_in(part), None)
            if used is not None:
                raise SchemaError(
                    f"{where}: {name}() takes constants here, found column {used!r}: what is "
                    "made of all records learns from them."
                )
            if not isinstance(part, LevelName) or name in _OF_CONSTANTS:
                check(where, part)


def _b_spline(values: Floats, knots: Floats, degree: int) -> Floats:
    """Evaluate B-splines on [0, 1] without the first, which the intercept replaces."""
    if not len(values):  # scipy refuses none
        return np.empty((0, len(knots) - 2 + degree))
    ends = np.concatenate([np.repeat(knots[0], degree), knots, np.repeat(knots[-1], degree)])
    basis = interpolate.BSpline.design_matrix(values, ends, degree).toarray()
    return np.asarray(basis[:, 1:])


def _natural_spline(values: Floats, knots: Floats) -> Floats:
    """Evaluate natural cubic splines, linear beyond the end knots, by truncated powers.

    Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, eq. 5.4 and 5.5.
    """
    last = knots[-1]
    above = np.clip(values[:, None] - knots[:-1], 0, None) ** 3 / (last - knots[:-1])
    return np.column_stack([values, above[:, :-1] - above[:, -1:]])
