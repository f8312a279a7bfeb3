"""Rules of a schema in synthetic rows: levels that a column may take given those drawn before it.

A rule restricts the last of its columns that is drawn. Rows without an allowed level are drawn
again. Everything here is public, or computed from synthetic rows.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from dpbayes.schema.rules import Part, Rule, Values, values_of
from dpbayes.schema.values import CLOSE

TRIED = 1000  # rows by which ``Structure.spare`` looks for one that keeps the rules
AGAIN = 50  # times that rows are drawn again which cannot keep the rules
_BESIDE, _ENOUGH = 200, 10  # rows that ``Structure.refuse_told`` varies, and that it decides by
_REDRAWS = 20  # times that a value inside its level is drawn again
_EACH = 64  # levels of fewer whole numbers are tried number by number
_NEAR = 1e-6  # tolerance between a computed value and the released one, in steps of its grid
_BY = 20_000  # rows at a time
Test = Callable[[Values], Mask]


@dataclass(frozen=True)
class Bond:
    """Condition that a rule puts on drawn columns.

    Attributes:
        names: names of those columns.
        test: returns, from their values, a mask of the rows that keep the rule.
    """

    names: frozenset[str]
    test: Test


class Structure:
    """Rules of a schema, expressed for the columns that are drawn.

    Attributes:
        axes: fine levels of the drawn or public columns, by name, in the order of their numbers.
        computed: columns that a rule computes, in an order in which each follows from those before.

    Raises:
        SchemaError: a computed column may not be missing, but what it is computed from may be.
    """

    def __init__(self, schema: Schema, axes: Sequence[Axis], given: Collection[str] = ()) -> None:
        self.schema = schema
        self.computed = computed_by(schema, given)
        self.axes = {a.column.name: a for a in axes if a.column.name not in self.computed}
        rules = (*schema.kept, *schema.asked.values())
        self.constants = sorted({c for rule in rules for c in rule.constants})

    @cached_property
    def points(self) -> dict[str, Floats]:
        """Representative values of each level, by column: shape (levels, points)."""
        return {name: _points(axis, self.constants) for name, axis in self.axes.items()}

    @cached_property
    def bonds(self) -> list[Bond]:
        """All conditions on rows, except those between public columns alone."""
        # Public columns are released as they are, so that rules among them need no synthesis.
        public = {name for name, axis in self.axes.items() if axis.column.public}
        return [bond for bond in self._all_bonds if not bond.names <= public]

    @cached_property
    def _all_bonds(self) -> list[Bond]:
        schema = self.schema
        bonds = [
            Bond(self._drawn(rule.names), self._kept(rule))
            for rule in schema.kept
            if all(self.computed.get(name) is not part for name, part in rule.definitions)
        ]
        for name, part in self.computed.items():
            bonds.append(Bond(self._drawn(part.names), self._inside(name)))
        for name, rule in schema.asked.items():
            bonds.append(Bond(self._drawn((name, *rule.names)), self._asked(name, rule)))
        return bonds

    @cached_property
    def _origins(self) -> dict[str, frozenset[str]]:
        """Drawn columns from which each computed column follows."""
        origins: dict[str, frozenset[str]] = {}
        for name, part in self.computed.items():  # each after those it is computed from
            origins[name] = frozenset().union(*(origins.get(n, {n}) for n in part.names))
        return origins

    def _drawn(self, names: Iterable[str]) -> frozenset[str]:
        """Drawn columns among these, and those from which the others are computed."""
        return frozenset().union(*(self._origins.get(name, {name}) for name in names))

    def with_computed(self, values: Values) -> dict[str, Floats]:
        """Add the computed columns to values, at their public precision."""
        extended = dict(values)
        for name, part in self.computed.items():
            if all(n in extended for n in part.names):
                extended[name] = rounded(self.schema[name], computed(part, extended))
        return extended

    def _kept(self, rule: Rule) -> Test:
        return lambda values: rule.holds(self.with_computed(values))

    def _inside(self, name: str) -> Test:
        """Test that a computed column is within bounds and agrees with its rule after rounding."""
        column, part = self.schema[name], self.computed[name]
        low = -np.inf if column.lower is None else column.lower
        high = np.inf if column.upper is None else column.upper

        def test(values: Values) -> Mask:
            extended = self.with_computed(values)
            value = computed(part, extended)
            missing = reduce(np.logical_or, (np.isnan(extended[n]) for n in part.names))
            inside = (extended[name] >= low) & (extended[name] <= high) & np.isfinite(value)
            value = np.where(inside, value, 0.0)
            near = np.abs(value - extended[name]) <= _NEAR * column.step + CLOSE * np.abs(value)
            return np.asarray(missing | (near & inside))

        return test

    def _asked(self, name: str, rule: Rule) -> Test:
        open_ = bool(self.schema[name].missing)

        def test(values: Values) -> Mask:
            extended = self.with_computed(values)
            required, present = rule.true(extended), ~np.isnan(extended[name])
            return np.asarray(np.where(required, present | open_, ~present))

        return test

    def after(self, analyses: Iterable[Analysis]) -> dict[int, set[int]]:
        """Columns to draw before others, by number.

        Before each outcome of an analysis its covariates, and before a column with ``only_if``
        those that decide on it: drawn later, they would have to agree with several such columns.

        Raises:
            SchemaError: an outcome is computed by a rule, or analyses need each other's outcome
                to be drawn first.
        """
        numbers = {name: j for j, name in enumerate(self.axes)}
        predecessors: dict[str, set[str]] = {}
        for analysis in analyses:
            name, before = analysis.outcome.name, self._drawn(analysis.covariates)
            if name in self.computed or name in before:
                raise SchemaError(
                    f"keep {analysis.text!r}: {name!r} is computed by a rule or makes a covariate "
                    "by one; name analyses of the columns that the rule computes with."
                )
            predecessors.setdefault(name, set()).update(before)
        try:
            list(TopologicalSorter(predecessors).static_order())
        except CycleError as error:
            circle = ", ".join(dict.fromkeys(error.args[1]))
            raise SchemaError(
                f"keep: {circle} are outcomes of each other. Leave a column out of one formula: as "
                "an outcome elsewhere it has the relation already (y ~ x + z and x ~ z for "
                "x ~ y + z)."
            ) from None
        for name, rule in self.schema.asked.items():
            before = self._drawn(rule.names) - {name}
            further = {**predecessors, name: predecessors.get(name, set()) | before}
            with contextlib.suppress(CycleError):  # an analysis goes first
                list(TopologicalSorter(further).static_order())
                predecessors = further
        return {
            numbers[n]: {numbers[k] for k in before}
            for n, before in predecessors.items()
            if n in numbers
        }

    def spare(self, rows: int, public_values: Values, codes: Ints) -> tuple[Walk, Ints]:
        """Rows that keep the rules, found from public facts alone, and their levels.

        Args:
            rows: number of rows if there are public columns; without, any row that keeps the rules
                is enough.
            public_values, codes: values and levels of the public columns, shapes (rows,) and
                (rows, public columns).
        Raises:
            SchemaError: no such row was found, or none for some of the public values.
        """
        rng = np.random.default_rng(1)
        walk = Walk(self, rows if public_values else TRIED, public_values)
        levels = np.zeros((walk.rows, len(self.axes)), dtype=np.int64)
        dead = np.ones(walk.rows, dtype=bool)
        for _ in range(AGAIN):
            again = walk.of(dead)
            levels[dead] = self._flat(again, codes[dead[: len(codes)]], rng)
            walk.put(dead, again)
            dead = walk.dead.copy()
            if not dead.any() or not (public_values or dead.all()):
                break
        if dead.all() or (public_values and dead.any()):
            beside = (
                f" beside the public values of {int(dead.sum())} records" if public_values else ""
            )
            raise SchemaError(
                f"no row was found{beside} that keeps the rules of the schema "
                f"({', '.join(map(repr, self.schema.rules))}): they may exclude every one."
            )
        return walk, levels

    def refuse_told(self, values: Values | None = None, codes: Ints | None = None) -> None:
        """Refuse a schema if rules and public columns leave a confidential column one value.

        Rows that keep the rules are made up, and others with the same public values, from public
        facts alone: a column is told if no two of them differ in it. Where it is missing, it tells
        nothing.

        Args:
            values: public values of the records by column; by default they are made up, too.
            codes: their levels, shape (records, public columns).
        Raises:
            SchemaError: a column is told.
        """
        name = self._told(values, codes)
        if name is not None:
            raise SchemaError(
                f"the rules together leave the confidential column {name!r} one value beside the "
                "public columns, and it would be released as it is. Declare it public, make one of "
                "the public columns confidential, or leave it out of the schema."
            )

    def _told(self, values: Values | None, codes: Ints | None) -> str | None:
        public = {name for name, axis in self.axes.items() if axis.column.public}
        bound = frozenset[str]().union(*(bond.names for bond in self.bonds))
        tied = (bound | set(self.computed)) - public
        if not tied:
            return None
        rng = np.random.default_rng(1)
        if values is None or codes is None:
            whole = copy.copy(self)  # public columns are made up, so that rules among them count
            whole.bonds = self._all_bonds
            walk = Walk(whole, TRIED, {})
            levels = self._flat(walk, np.empty((TRIED, 0), dtype=np.int64), rng)
            chosen, values = np.flatnonzero(~walk.dead)[:_BESIDE], walk.values
        else:
            # A few records are varied several times each, so that they decide like many.
            levels, chosen = codes, np.resize(rng.permutation(len(codes)), _BESIDE)
        values = {name: values[name][chosen] for name in public}
        first = {name: np.full(len(chosen), np.nan) for name in tied}
        times = {name: np.zeros(len(chosen), dtype=np.int64) for name in tied}
        free: set[str] = set()
        for _ in range(AGAIN):
            again = Walk(self, len(chosen), values)
            self._flat(again, levels[chosen], rng)
            drawn = again.known()
            for name in tied:
                value = drawn[name]
                there = ~again.dead & ~np.isnan(value)
                if (value != first[name])[there & (times[name] > 0)].any():
                    free.add(name)
                first[name] = np.where(there, value, first[name])
                times[name] += there
        return next((n for n in sorted(tied - free) if (times[n] > 1).sum() >= _ENOUGH), None)

    def codes(self, values: Values) -> Ints:
        """Levels of rows with these values, shape (rows, columns)."""
        return np.column_stack(
            [
                np.where(np.isnan(values[name]), axis.valued, values[name]).astype(np.int64)
                if axis.edges is None
                else axis.encode(pd.Series(values[name]))
                for name, axis in self.axes.items()
            ]
        )

    def _flat(self, walk: Walk, public_values: Ints, rng: np.random.Generator) -> Ints:
        """Draw levels uniformly among those that rules allow, shape (rows, columns)."""
        levels = np.zeros((walk.rows, len(self.axes)), dtype=np.int64)
        for column, axis in enumerate(self.axes.values()):
            if axis.column.name in walk.values:
                levels[:, column] = public_values[:, column]
                continue
            allowed = walk.allowed(column)
            weights = rng.random((walk.rows, axis.size)) * (1.0 if allowed is None else allowed)
            levels[:, column] = weights.argmax(axis=1)
            walk.take(column, levels[:, column], rng)
        return levels


def computed(part: Part, values: Values) -> Floats:
    """Value of a part of a rule; not finite where the rule divides by 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(part.value(values), dtype=float)


def rounded(column: Column, values: Floats) -> Floats:
    """Round a computed column to its public precision."""
    return np.rint(values) if column.whole else column.rounded_numbers(values)


def computed_by(schema: Schema, given: Collection[str] = ()) -> dict[str, Part]:
    """Columns that a rule computes from others, so that they need not be drawn.

    Args:
        given: columns that are known already: of an equation with one of them, another is computed.
    Raises:
        SchemaError: such a column may not be missing, but what it is computed from may be.
    """
    definitions: dict[str, Part] = {}
    for rule in schema.kept:
        name, part = next((d for d in rule.definitions if d[0] not in given), ("", None))
        if part is None or name in definitions:
            continue
        if name in _sources(part, definitions):
            continue  # circular definitions: one of the columns is drawn
        column, open_ = schema[name], any(schema[n].optional for n in part.names)
        if column.only_if is not None or column.optional != open_:
            needed = "with missing = true and" if open_ else "without missing and"
            raise SchemaError(
                f"column {name!r} is computed by the rule {rule.text!r}, and missing where what it "
                f"is computed from is: declare it {needed} without only_if."
            )
        definitions[name] = part
    ordered: dict[str, Part] = {}
    while len(ordered) < len(definitions):
        for name, part in definitions.items():
            if name not in ordered and not (part.names & set(definitions)) - set(ordered):
                ordered[name] = part
    return ordered


def _sources(part: Part, definitions: Mapping[str, Part]) -> set[str]:
    """Columns from which a part is computed, directly or through other computed columns."""
    sources: set[str] = set()
    pending = set(part.names)
    while pending:
        name = pending.pop()
        sources.add(name)
        pending |= (set(definitions[name].names) if name in definitions else set()) - sources
    return sources


class Walk:
    """Partially drawn rows, which are extended column by column.

    Attributes:
        values: numbers of the columns drawn so far (``schema.rules``), shape (rows,) each.
        dead: mask of rows that can no longer keep all rules, shape (rows,).
        lost: mask of rows whose given values alone break a rule, so that no draw keeps it.

    Args:
        public_values: values that are given, as of public columns, shape (rows,) each.
    """

    def __init__(self, structure: Structure, rows: int, public_values: Values) -> None:
        self.structure, self.rows, self.public = structure, rows, public_values
        self._names = list(structure.axes)
        self.values: dict[str, Floats] = dict(public_values)
        self.dead: Mask = np.zeros(rows, dtype=bool)
        given = [b for b in structure.bonds if b.names and b.names <= set(public_values)]
        self.lost = self._broken(given)
        self.dead |= self.lost

    def of(self, rows: Mask) -> Walk:
        """A new walk for some of the rows, with only the public columns filled in."""
        return Walk(self.structure, int(rows.sum()), {n: v[rows] for n, v in self.public.items()})

    def axis(self, column: int) -> Axis:
        """Axis of a column, by its number."""
        return self.structure.axes[self._names[column]]

    def known(self) -> dict[str, Floats]:
        """Values drawn so far, with the columns that are computed from them."""
        return self.structure.with_computed(self.values)

    def put(self, rows: Mask, other: Walk) -> None:
        """Replace the rows in the mask by the rows of another walk."""
        for name, value in other.values.items():
            if name not in self.values:
                self.values[name] = np.full(self.rows, np.nan)
            elif not self.values[name].flags.writeable:
                self.values[name] = self.values[name].copy()
            self.values[name][rows] = value
        self.dead[rows] = other.dead

    def replaced(self, rows: Mask, other: Walk, place: Ints) -> None:
        """Replace the rows in the mask by rows of another walk, row i by its row ``place[i]``."""
        for name, value in self.values.items():
            self.values[name] = np.where(rows, other.values[name][place], value)
        self.dead = self.dead & ~rows

    def _closing(self, name: str) -> list[Bond]:
        """Conditions that can be tested as soon as this column is drawn."""
        drawn = {name, *self.values}
        return [b for b in self.structure.bonds if name in b.names and b.names <= drawn]

    def allowed(self, column: int) -> Mask | None:
        """Mask of levels that can keep the rules, shape (rows, levels); None if all can.

        A row without an allowed level is marked as dead, and allowed all levels.
        """
        name = self._names[column]
        bonds = self._closing(name)
        if not bonds:
            return None
        tried = self.structure.points[name]
        allowed = np.zeros((self.rows, len(tried)), dtype=bool)
        for start in range(0, self.rows, _BY):
            rows = slice(start, start + _BY)
            before = {n: v[rows, None] for n, v in self.values.items()}
            for points in tried.T:
                values = {**before, name: points[None, :]}
                valid = reduce(np.logical_and, (bond.test(values) for bond in bonds))
                allowed[rows] |= valid
        nothing = ~allowed.any(axis=1)
        self.dead |= nothing
        allowed[nothing] = True
        return allowed

    def take(self, column: int, codes: Ints, rng: np.random.Generator) -> None:
        """Draw values of a column inside its levels that keep the rules it completes."""
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
        """Drawn and computed columns, of the types that ``Axis.decode`` returns."""
        values = self.structure.with_computed(self.values)
        schema, typed_columns = self.structure.schema, {}
        for name in columns:
            typed = values_of(schema[name], values[name])
            typed_columns[name] = typed.astype(object) if schema[name].levels else typed
        return pd.DataFrame(typed_columns)


def _numbers(axis: Axis, codes: Ints, rng: np.random.Generator) -> Floats:
    """Draw values inside levels, as numbers (``schema.rules``), shape (n,)."""
    if axis.edges is None:
        return np.where(codes < axis.valued, codes, np.nan)
    return np.array(axis.column.rounded_numbers(axis.decode(codes, rng).to_numpy(dtype=float)))


def _points(axis: Axis, constants: Sequence[float]) -> Floats:
    """Representative values of each level, shape (levels, points).

    All values of levels with few whole numbers; otherwise both ends and the middle. In addition
    the constants in rules and their neighbours on the grid.
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
