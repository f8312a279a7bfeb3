"""Rules of a schema in synthetic rows: which levels a column may take beside those drawn before.

A rule bears on the last of its columns to be drawn. Rows for which nothing is left are drawn anew.
Everything here is public, or made of synthetic rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from graphlib import CycleError, TopologicalSorter

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.marginals.analyses import Analysis
from dpbayes.mechanisms.tables.cells import Axis
from dpbayes.schema import Column, Schema
from dpbayes.schema.rules import CLOSE, Part, Rule, Values, values_of

TRIED = 1000  # rows, before anything is drawn
AGAIN = 50  # times that rows are drawn anew which cannot keep the rules
_REDRAWS = 20  # of a value inside its level
_EACH = 64  # whole numbers of a level that are tried one by one
_NEAR = 1e-6  # of a step: a computed value is on the grid of released ones
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
        rules = (*schema.kept, *schema.asked.values())
        self.constants = sorted({c for rule in rules for c in rule.constants})

    @cached_property
    def points(self) -> dict[str, Floats]:
        """Values that levels are tried by, by column: shape (levels, points)."""
        return {name: _points(axis, self.constants) for name, axis in self.axes.items()}

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
        # Records keep what is between public columns alone.
        public = {name for name, axis in self.axes.items() if axis.column.public}
        return [bond for bond in found if not bond.names <= public]

    @cached_property
    def _origins(self) -> dict[str, frozenset[str]]:
        """Drawn columns that each computed one follows from."""
        found: dict[str, frozenset[str]] = {}
        for name, part in self.computed.items():  # in their order
            found[name] = frozenset().union(*(found.get(n, {n}) for n in part.names))
        return found

    def _drawn(self, names: Iterable[str]) -> frozenset[str]:
        """Drawn columns that these are, or are computed from."""
        return frozenset().union(*(self._origins.get(name, {name}) for name in names))

    def with_computed(self, values: Values) -> dict[str, Floats]:
        """Values with those of the computed columns, at their public precision."""
        found = dict(values)
        for name, part in self.computed.items():
            if all(n in found for n in part.names):
                found[name] = rounded(self.schema[name], computed(part, found))
        return found

    def _kept(self, rule: Rule) -> Test:
        return lambda values: rule.holds(self.with_computed(values))

    def _inside(self, name: str) -> Test:
        """A computed column and what it is computed from agree, inside its bounds."""
        column, part = self.schema[name], self.computed[name]
        low = -np.inf if column.lower is None else column.lower
        high = np.inf if column.upper is None else column.upper

        def test(values: Values) -> Mask:
            found = self.with_computed(values)
            value = computed(part, found)
            missing = reduce(np.logical_or, (np.isnan(found[n]) for n in part.names))
            inside = (found[name] >= low) & (found[name] <= high) & np.isfinite(value)
            value = np.where(inside, value, 0.0)
            near = np.abs(value - found[name]) <= _NEAR * column.step + CLOSE * np.abs(value)
            return np.asarray(missing | (near & inside))

        return test

    def _asked(self, name: str, rule: Rule) -> Test:
        open_ = bool(self.schema[name].missing)

        def test(values: Values) -> Mask:
            found = self.with_computed(values)
            asked, there = rule.true(found), ~np.isnan(found[name])
            return np.asarray(np.where(asked, there | open_, ~there))

        return test

    def after(self, analyses: Iterable[Analysis]) -> dict[int, set[int]]:
        """Drawn columns before each outcome of an analysis: its covariates, by their numbers.

        Raises:
            SchemaError: an outcome is computed by a rule, or analyses ask for each other's outcome
                to be drawn first.
        """
        numbers = {name: j for j, name in enumerate(self.axes)}
        found: dict[str, set[str]] = {}
        for one in analyses:
            name, before = one.outcome.name, self._drawn(one.covariates)
            if name in self.computed or name in before:
                raise SchemaError(
                    f"keep {one.text!r}: {name!r} is computed by a rule or makes a covariate by "
                    "one; name analyses of the columns that the rule computes with."
                )
            found.setdefault(name, set()).update(before)
        try:
            list(TopologicalSorter(found).static_order())
        except CycleError as error:
            circle = ", ".join(dict.fromkeys(error.args[1]))
            raise SchemaError(
                f"keep: {circle} are outcomes of each other. Leave a column out of one formula: as "
                "an outcome elsewhere it has the relation already (y ~ x + z and x ~ z for "
                "x ~ y + z)."
            ) from None
        return {numbers[n]: {numbers[k] for k in before} for n, before in found.items()}

    def spare(self, rows: int, given: Values, codes: Ints) -> tuple[Walk, Ints]:
        """Rows that keep the rules, by public facts alone, and their levels.

        Args:
            rows: how many where columns are public; otherwise some that keep the rules are enough.
            given, codes: values and levels of the public columns, shape (rows,) and (rows, them).
        Raises:
            SchemaError: none was found, or none beside some of the public values.
        """
        rng = np.random.default_rng(1)
        walk = Walk(self, rows if given else TRIED, given)
        found = np.zeros((walk.rows, len(self.axes)), dtype=np.int64)
        dead = np.ones(walk.rows, dtype=bool)
        for _ in range(AGAIN):
            again = walk.of(dead)
            found[dead] = self._flat(again, codes[dead[: len(codes)]], rng)
            walk.put(dead, again)
            dead = walk.dead.copy()
            if not dead.any() or not (given or dead.all()):
                break
        if dead.all() or (given and dead.any()):
            beside = f" beside the public values of {int(dead.sum())} records" if given else ""
            raise SchemaError(
                f"no row was found{beside} that keeps the rules of the schema "
                f"({', '.join(map(repr, self.schema.rules))}): they may exclude every one."
            )
        return walk, found

    def _flat(self, walk: Walk, given: Ints, rng: np.random.Generator) -> Ints:
        """Levels, each as likely as the others that rules leave."""
        found = np.zeros((walk.rows, len(self.axes)), dtype=np.int64)
        for column, axis in enumerate(self.axes.values()):
            if axis.column.name in walk.values:
                found[:, column] = given[:, column]
                continue
            allowed = walk.allowed(column)
            weights = rng.random((walk.rows, axis.size)) * (1.0 if allowed is None else allowed)
            found[:, column] = weights.argmax(axis=1)
            walk.take(column, found[:, column], rng)
        return found


def computed(part: Part, values: Values) -> Floats:
    """What a part of a rule computes; not finite where it is divided by 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(part.value(values), dtype=float)


def rounded(column: Column, values: Floats) -> Floats:
    """A computed column at its public precision."""
    return np.rint(values) if column.whole else column.rounded_numbers(values)


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
        if name in _sources(part, found):
            continue  # a circle: one of them is drawn
        column, open_ = schema[name], any(schema[n].optional for n in part.names)
        if column.only_if is not None or column.optional != open_:
            needed = "with missing = true and" if open_ else "without missing and"
            raise SchemaError(
                f"column {name!r} is computed by the rule {rule.text!r}, and missing where what it "
                f"is computed from is: declare it {needed} without only_if."
            )
        found[name] = part
    ordered: dict[str, Part] = {}
    while len(ordered) < len(found):
        for name, part in found.items():
            if name not in ordered and not (part.names & set(found)) - set(ordered):
                ordered[name] = part
    return ordered


def _sources(part: Part, found: Mapping[str, Part]) -> set[str]:
    """Columns that a part is computed from, however far off."""
    known: set[str] = set()
    left = set(part.names)
    while left:
        name = left.pop()
        known.add(name)
        left |= (set(found[name].names) if name in found else set()) - known
    return known


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

    def axis(self, column: int) -> Axis:
        """Levels of a column."""
        return self.structure.axes[self._names[column]]

    def known(self) -> dict[str, Floats]:
        """Values so far, with those that are computed from them."""
        return self.structure.with_computed(self.values)

    def put(self, rows: Mask, other: Walk) -> None:
        """Take the rows of another walk in the place of these."""
        for name, value in other.values.items():
            if name not in self.values:
                self.values[name] = np.full(self.rows, np.nan)
            elif not self.values[name].flags.writeable:
                self.values[name] = self.values[name].copy()
            self.values[name][rows] = value
        self.dead[rows] = other.dead

    def replaced(self, rows: Mask, other: Walk, place: Ints) -> None:
        """Take rows at these places of another walk in the place of some."""
        for name, value in self.values.items():
            self.values[name] = np.where(rows, other.values[name][place], value)
        self.dead = self.dead & ~rows

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
        tried = self.structure.points[name]
        found = np.zeros((self.rows, len(tried)), dtype=bool)
        for start in range(0, self.rows, _BY):
            rows = slice(start, start + _BY)
            before = {n: v[rows, None] for n, v in self.values.items()}
            for points in tried.T:
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
        for points in rng.permutation(self.structure.points[name].T):
            if not off.any():
                return
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


def _points(axis: Axis, constants: Sequence[float]) -> Floats:
    """Values of each level, shape (levels, points): those of few, of others ends and middle.

    And what rules compare with, and its neighbours on the grid.
    """
    if axis.edges is None:
        points = np.arange(axis.valued, dtype=float)[:, None]
    else:
        low, high, _ = axis.ranges
        step, parts = axis.column.step, np.linspace(0, 1, 3)
        if axis.column.whole and (high - low).max() < _EACH:
            parts = np.linspace(0, 1, int((high - low).max()) + 1)
        points = low[:, None] + np.outer(high - low, parts)
        points = np.floor(points + 0.5) if axis.column.whole else points
        for constant in constants:
            near = constant + step * np.array([-1, 0, 1])
            inside = (near >= low[:, None]) & (near <= high[:, None])
            points = np.hstack([points, np.where(inside, near, low[:, None])])
        points = axis.column.rounded_numbers(points)
    if axis.column.optional:
        points = np.vstack([points, np.full((1, points.shape[1]), np.nan)])
    _, first = np.unique(points, axis=1, return_index=True)
    return np.asarray(points[:, np.sort(first)])
