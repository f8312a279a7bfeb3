"""Rules of a schema in synthetic rows: which levels a column may take beside those drawn before.

A rule bears on the last of its columns to be drawn. Rows for which nothing is left are drawn anew.
Everything here is public, or made of synthetic rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from dpbayes.arrays import Floats, Ints, Mask
from dpbayes.errors import SchemaError
from dpbayes.heavy import pd
from dpbayes.mechanisms.tables.cells import Axis
from dpbayes.schema import Schema
from dpbayes.schema.rules import Part, Rule, Values, values_of

TRIED = 1000  # rows, before anything is drawn
_REDRAWS = 20  # of a value inside its level
_BY = 20_000  # rows at a time
Test = Callable[[Values], Mask]


@dataclass(frozen=True)
class Bond:
    """What a rule asks of drawn columns.

    Attributes:
        names: of those columns.
        test: of their values, which rows keep it.
    """

    names: frozenset[str]
    test: Test


class Structure:
    """Rules of a schema, for columns that are drawn.

    Attributes:
        axes: of the columns that are drawn or public, by name, in the order of their numbers.
        computed: the others, in an order in which each follows from those before it.

    Raises:
        SchemaError: a column is computed from ones that may be missing, and may not itself.
    """

    def __init__(self, schema: Schema, axes: Sequence[Axis]) -> None:
        self.schema = schema
        self.computed = computed_by(schema)
        self.axes = {a.column.name: a for a in axes if a.column.name not in self.computed}

    @cached_property
    def bonds(self) -> list[Bond]:
        """All that rows are to keep."""
        schema = self.schema
        definitions = [rule.defined for rule in schema.kept]
        found = [
            Bond(self._drawn(rule.names), self._kept(rule))
            for rule, defined in zip(schema.kept, definitions, strict=True)
            if defined is None or self.computed.get(defined[0]) is not defined[1]
        ]
        for name, part in self.computed.items():
            found.append(Bond(self._drawn(part.names), self._inside(name)))
        for name, rule in schema.asked.items():
            found.append(Bond(self._drawn((name, *rule.names)), self._asked(name, rule)))
        return found

    def _drawn(self, names: Sequence[str] | frozenset[str]) -> frozenset[str]:
        """Drawn columns that these are, or are computed from."""
        parts = (self._drawn(self.computed[n].names) if n in self.computed else {n} for n in names)
        return frozenset().union(*parts)

    def with_computed(self, values: Values) -> dict[str, Floats]:
        """Values with those of the computed columns, at their public precision."""
        found = dict(values)
        for name, part in self.computed.items():
            if all(n in found for n in part.names):
                value = np.asarray(part.value(found), dtype=float)
                flat = self.schema[name].rounded_numbers(value)
                found[name] = flat
        return found

    def _kept(self, rule: Rule) -> Test:
        return lambda values: rule.holds(self.with_computed(values))

    def _inside(self, name: str) -> Test:
        """A computed column and what it is computed from agree, inside its bounds."""
        column, part = self.schema[name], self.computed[name]

        def test(values: Values) -> Mask:
            found = self.with_computed(values)
            value = np.asarray(part.value(found), dtype=float)
            good = np.isclose(value, found[name], rtol=1e-9, atol=0, equal_nan=True)
            for end, sign in ((column.lower, 1), (column.upper, -1)):
                good &= True if end is None else ~(sign * value < sign * end)
            return np.asarray(good)

        return test

    def _asked(self, name: str, rule: Rule) -> Test:
        open_ = bool(self.schema[name].missing)

        def test(values: Values) -> Mask:
            found = self.with_computed(values)
            asked, there = rule.true(found), ~np.isnan(found[name])
            return np.asarray(np.where(asked, there | open_, ~there))

        return test

    def check(self) -> None:
        """Raise SchemaError if no row is found that keeps the rules: by public facts alone."""
        rng = np.random.default_rng(1)
        walk = Walk(self, TRIED, {})
        for column, axis in enumerate(self.axes.values()):
            allowed = walk.allowed(column)
            weights = rng.random((TRIED, axis.size)) * (1.0 if allowed is None else allowed)
            walk.take(column, weights.argmax(axis=1), rng)
        if walk.dead.all():
            raise SchemaError(
                f"no row was found that keeps the rules of the schema ({TRIED:,} were tried): "
                "they may exclude every one."
            )


def computed_by(schema: Schema) -> dict[str, Part]:
    """Columns that a rule computes from others, and need not be drawn.

    Raises:
        SchemaError: such a column may not be missing where what it is computed from may.
    """
    found: dict[str, Part] = {}
    for rule in schema.kept:
        if rule.defined is None or rule.defined[0] in found:
            continue
        name, part = rule.defined
        if _leads_to(name, part, found):
            continue  # a circle: one of them is drawn
        if any(schema[n].optional for n in part.names) and not schema[name].optional:
            raise SchemaError(
                f"column {name!r} is computed by the rule {rule.text!r} from columns that may be "
                "missing; declare missing = true for it, too."
            )
        found[name] = part
    ordered: dict[str, Part] = {}
    while len(ordered) < len(found):
        for name, part in found.items():
            if name not in ordered and not (part.names & set(found)) - set(ordered):
                ordered[name] = part
    return ordered


def _leads_to(name: str, part: Part, found: Mapping[str, Part]) -> bool:
    """A column is among those that ``part`` is computed from, however far off."""
    return any(n == name or (n in found and _leads_to(name, found[n], found)) for n in part.names)


class Walk:
    """Rows that are being made, column by column.

    Attributes:
        values: of the columns drawn so far, as rules read them, shape (rows,) each.
        dead: rows that can no longer keep all rules, shape (rows,).

    Args:
        given: values of the public columns, shape (rows,) each.
    """

    def __init__(self, structure: Structure, rows: int, given: Values) -> None:
        self.structure, self.rows, self.public = structure, rows, given
        self._names = list(structure.axes)
        self.values: dict[str, Floats] = dict(given)
        self.dead: Mask = np.zeros(rows, dtype=bool)

    def of(self, rows: Mask) -> Walk:
        """The same for some of the rows, with nothing drawn."""
        return Walk(self.structure, int(rows.sum()), {n: v[rows] for n, v in self.public.items()})

    def copied(self, place: Ints) -> None:
        """Put the row at ``place[i]`` in the place of row i."""
        self.values = {name: value[place] for name, value in self.values.items()}
        self.dead = np.asarray(self.dead[place])

    def put(self, rows: Mask, other: Walk) -> None:
        """Take the rows of another walk in the place of these."""
        for name, value in self.values.items():
            value[rows] = other.values[name]
        self.dead[rows] = other.dead

    def _closing(self, name: str) -> list[Bond]:
        """What is decided by this column."""
        known = {name, *self.values}
        return [b for b in self.structure.bonds if name in b.names and b.names <= known]

    def allowed(self, column: int) -> Mask | None:
        """Levels of a column that keep what it decides, shape (rows, levels); None if all do.

        Rows without any are dead, and may have all.
        """
        name = self._names[column]
        bonds = self._closing(name)
        if not bonds:
            return None
        ends = _ends(self.structure.axes[name])
        found = np.zeros((self.rows, len(ends)), dtype=bool)
        for start in range(0, self.rows, _BY):
            rows = slice(start, start + _BY)
            before = {n: v[rows, None] for n, v in self.values.items()}
            for points in ends.T:
                values = {**before, name: points[None, :]}
                kept = reduce(np.logical_and, (bond.test(values) for bond in bonds))
                found[rows] |= kept
        nothing = ~found.any(axis=1)
        self.dead |= nothing
        found[nothing] = True
        return found

    def take(self, column: int, codes: Ints, rng: np.random.Generator) -> None:
        """Draw values of a column inside its levels, such that they keep what it decides."""
        name = self._names[column]
        axis, bonds = self.structure.axes[name], self._closing(name)
        self.values[name] = _numbers(axis, codes, rng)
        off = self._broken(bonds)
        for _ in range(_REDRAWS):
            if not off.any():
                return
            self.values[name][off] = _numbers(axis, codes[off], rng)
            off = self._broken(bonds)
        for points in _ends(axis).T:
            self.values[name][off] = points[codes[off]]
            off = self._broken(bonds)
        self.dead |= off

    def _broken(self, bonds: Sequence[Bond]) -> Mask:
        broken = np.zeros(self.rows, dtype=bool)
        for bond in bonds:
            broken |= ~bond.test(self.values)
        return broken & ~self.dead

    def frame(self, columns: Sequence[str]) -> pd.DataFrame:
        """Drawn and computed columns, as ``Axis.decode`` gives them."""
        values = self.structure.with_computed(self.values)
        schema, found = self.structure.schema, {}
        for name in columns:
            typed = values_of(schema[name], values[name])
            found[name] = typed.astype(object) if schema[name].levels else typed
        return pd.DataFrame(found)


def _numbers(axis: Axis, codes: Ints, rng: np.random.Generator) -> Floats:
    """Values inside levels as rules read them, shape (n,)."""
    if axis.edges is None:
        return np.where(codes < axis.valued, codes, np.nan)
    return np.array(axis.column.rounded_numbers(axis.decode(codes, rng).to_numpy(dtype=float)))


def _ends(axis: Axis) -> Floats:
    """First, middle and last value of each level, shape (levels, 3)."""
    if axis.edges is None:
        points = np.arange(axis.valued, dtype=float)[:, None].repeat(3, axis=1)
    else:
        low, high, _ = axis.ranges
        middle = (low + high) / 2
        points = np.column_stack([low, np.floor(middle) if axis.column.whole else middle, high])
        points = axis.column.rounded_numbers(points)
    if not axis.column.optional:
        return points
    return np.vstack([points, np.full((1, 3), np.nan)])
