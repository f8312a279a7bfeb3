"""Blocks of columns in which households are counted and drawn. All is public.

First the number of members in each place, then the columns of the household and of its head, then
place by place the column that puts members in order, as a distance from the head or from the member
before, and the other columns given it. Every table belongs to one block, and its rows are members
that weigh at most 1 together in each household.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import SchemaError, did_you_mean
from dpbayes.formula.terms import columns_used
from dpbayes.formula.text import parse, quoted
from dpbayes.formula.tree import Parsed
from dpbayes.mechanisms.marginals.analyses import Analysis
from dpbayes.mechanisms.marginals.structure import computed_by
from dpbayes.schema import Column, Schema
from dpbayes.schema.homes import BEFORE, COMPOSITION, FAMILY, GAP, PLACE, Homes
from dpbayes.schema.rules import Rule

MOST_COMPOSITIONS = 1000  # levels of an unordered column
KIDS = 2  # members of the first repeated place that families tell apart
MARGIN, WHOLE = 0.5, 3.0  # parts of the budget for a margin and for the composition, by pair table
SEVERAL = 2  # pair tables of a block that its part pays for, by hidden column
Turn = Literal["all", "first", "later", "each"]


@dataclass(frozen=True)
class ColumnBlock:
    """Columns that are drawn together, given columns drawn before.

    Attributes:
        places: numbers of the places whose members have a row each; a household's row is its
            head's.
        turn: rows of ``all`` members of a place, of the ``first``, of ``later`` ones, or of
            ``each``; the latter two are ``chained``.
        given: columns drawn before.
        schema: the columns by which rows are drawn, those that are given first.
        several: a household may have several rows, so that each weighs less.
        asked: pairs of columns that may have tables.
        kept: regressions that its rows preserve.
        several_pairs: pair tables that its part of the budget pays for, by hidden column.
    """

    places: tuple[int, ...]
    turn: Turn
    several: bool
    given: tuple[str, ...]
    schema: Schema
    asked: tuple[tuple[str, str], ...]
    kept: tuple[Analysis, ...] = ()
    several_pairs: int = SEVERAL

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """Columns that are drawn, or computed from those that are."""
        return tuple(name for name in self.schema.columns if name not in self.given)

    @property
    def chained(self) -> bool:
        """Rows of a household are drawn one after the other, each given the one before."""
        return self.turn in ("later", "each")

    @property
    def part(self) -> float:
        """Part of the budget, up to a common factor."""
        if not self.asked:
            return WHOLE
        hidden = len(self.hidden)
        return min(len(self.asked), self.several_pairs * hidden + 1) + MARGIN * hidden


class Layout:
    """The blocks of a schema's households, in the order in which they are drawn.

    Args:
        keep: formulas of regressions to preserve, beside those of the schema.

    Attributes:
        homes: places and rules of the households.
        keep: formulas of all regressions.
        compositions: numbers of members by place beside the head, shape (C, places - 1).
        families: number of the family that a composition belongs to, shape (C,).
        blocks: the blocks; the first has the composition alone.

    Raises:
        SchemaError: too many compositions; a column without bounds; a regression of none of the
            blocks.
    """

    def __init__(self, schema: Schema, keep: Sequence[str] = ()) -> None:
        self.schema, self.homes = schema, schema.homes
        self.keep = tuple(dict.fromkeys((*schema.keep, *keep)))
        self._kept = [
            ((place, plain), parse(plain))
            for places, plain in map(self.kept_by, self.keep)
            for place in places
        ]
        self.compositions = _compositions(self.homes)
        groups = [self._family_of(counts) for counts in self.compositions.tolist()]
        named = sorted(set(groups))
        self.families: Ints = np.array([named.index(group) for group in groups], dtype=np.int64)
        self._family = self._levels(FAMILY, len(named))
        self.blocks = tuple(self._blocks())

    def _family_of(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Coarse type of a household: who is there, and how many of the first repeated place."""
        once = self.homes.once
        repeated = counts[once - 1 :]
        few = min(repeated[0], KIDS) if repeated else 0
        return (*counts[: once - 1], few, int(any(repeated[1:])))

    def _levels(self, name: str, count: int) -> Column:
        return Column(name, "categorical", levels=tuple(str(k) for k in range(count)))

    def _distance(self, column: Column, *, sign: bool) -> Column:
        """Column of the distance of two values of a column; of either sign, or at or above 0."""
        assert column.upper is not None
        assert column.lower is not None
        width = float(column.upper - column.lower)
        digits = 0 if column.whole else column.decimals
        return Column(GAP, "continuous", lower=-width if sign else 0.0, upper=width, digits=digits)

    def _blocks(self) -> Iterator[ColumnBlock]:
        composition = self._levels(COMPOSITION, len(self.compositions))
        yield ColumnBlock((0,), "all", False, (), Schema({COMPOSITION: composition}), ())
        homes, head = self.homes, self.homes.places[0]
        columns = {**homes.shared, **homes.own}
        pairs = [(FAMILY, name) for name in columns]
        pairs += itertools.combinations(columns, 2)
        yield self._block((0,), "all", columns.values(), pairs)
        others = [column for name, column in homes.own.items() if name != self.homes.order]
        for place in range(1, len(homes.places)):
            anchor = f"{head}.{self.homes.order}"
            if homes.role is None and place > 1:
                yield self._ordering((place,), "each", BEFORE)
            elif place < homes.once:
                yield self._ordering((place,), "all", anchor)
            else:
                yield self._ordering((place,), "first", anchor)
                yield self._ordering((place,), "later", BEFORE)
            if others and place < homes.once:
                yield self._block((place,), "all", others, self._relations(others))
        repeated = tuple(range(homes.once, len(homes.places)))
        if repeated and others:
            pairs = self._relations(others)
            if len(repeated) > 1:
                pairs += [(PLACE, column.name) for column in others]
            yield self._block(repeated, "all", others, pairs)

    def _relations(self, columns: Sequence[Column]) -> list[tuple[str, str]]:
        """Pairs of a member's columns with the order, with the head's same column, and together."""
        names, head = [column.name for column in columns], self.homes.places[0]
        pairs = [(self.homes.order, name) for name in names]
        pairs += [(f"{head}.{name}", name) for name in names]
        return pairs + list(itertools.combinations(names, 2))

    def _ordering(self, places: tuple[int, ...], turn: Turn, anchor: str) -> ColumnBlock:
        """Block of the column that puts members in order, given the anchor's and the family.

        It is drawn as a distance from the anchor; for the first of several members, whose own
        values say more than how far they are from the head's, as it is.
        """
        column, rules = self.homes.own[self.homes.order], []
        drawn = column
        if turn != "first":
            rules = [f"`{column.name}` == `{anchor}` - `{GAP}`"]
            drawn = self._distance(column, sign=turn == "all" and self.homes.role is not None)
        pairs = [(anchor, drawn.name), (FAMILY, drawn.name)]
        columns = [drawn] if drawn is column else [drawn, column]
        return self._block(places, turn, columns, pairs, rules)

    def _block(
        self,
        places: tuple[int, ...],
        turn: Turn,
        hidden: Iterable[Column],
        pairs: Sequence[tuple[str, str]],
        rules: Sequence[str] = (),
    ) -> ColumnBlock:
        """Make a block, with the rules and regressions that can be kept in it, and what they read.

        A regression of one place of several reads which place a row is of.
        """
        columns = {column.name: column for column in hidden}
        kept = [*rules, *self._rules_of(places, set(columns))]
        read = {name for pair in pairs for name in pair}
        known = {**self._known(places), **columns}
        regressions = list(self._regressions(places, columns))
        for _, parsed in regressions:
            read |= set(columns_used("keep", [(parsed.outcome,), *parsed.terms]))
        if regressions and len(places) > 1:
            read.add(PLACE)
        for text in kept:
            read |= set(Rule.parse(text, known).names)
        for column in columns.values():
            if column.only_if is not None:
                read |= set(Rule.parse(column.only_if, known).names)
        given = {name: as_given(known[name], name) for name in sorted(read - set(columns))}
        several = turn != "first" and max(places) >= self.homes.once
        every = {**given, **columns}
        schema = Schema(every, rules=tuple(kept))
        computed = computed_by(schema, given)
        asked = tuple(pair for pair in pairs if not computed.keys() & {*pair})
        analyses = tuple(
            Analysis(text, schema, (PLACE, places.index(place)) if len(places) > 1 else None)
            for (place, text), _ in regressions
        )
        return ColumnBlock(places, turn, several, tuple(given), schema, asked, analyses)

    def _regressions(
        self, places: tuple[int, ...], columns: Collection[str]
    ) -> Iterator[tuple[tuple[int, str], Parsed]]:
        """Yield place, text and parts of each regression whose outcome is drawn in this block."""
        for (place, plain), parsed in self._kept:
            outcome = columns_used("keep", [(parsed.outcome,)])
            if place in places and outcome and outcome[0] in columns:
                yield (place, plain), parsed

    def _known(self, places: tuple[int, ...]) -> dict[str, Column]:
        """All columns that may be given to members of these places, by their names there."""
        homes, order = self.homes, self.homes.own[self.homes.order]
        head = homes.places[0]
        known = {**homes.shared, **homes.own}
        known |= {f"{head}.{name}": column for name, column in homes.own.items()}
        known |= {BEFORE: order, GAP: order, FAMILY: self._family}
        if homes.role is not None:
            known[homes.role] = self.schema[homes.role]
        if len(places) > 1:
            known[PLACE] = self._levels(PLACE, len(places))
        return known

    def _rules_of(self, places: tuple[int, ...], hidden: set[str]) -> Iterator[str]:
        """Yield the rules that the last column drawn in this block completes."""
        homes = self.homes
        role, others = homes.role, max(places) > 0
        drawn = hidden | set(homes.shared) | ({role} if role is not None else set())
        drawn |= {self.homes.order} if others else set()
        fresh = hidden - set(homes.shared) if others else hidden
        for kept in self.schema.kept:
            if set(kept.names) & fresh and set(kept.names) <= drawn:
                yield kept.text
        for place, rule in homes.rules:
            if place not in places:
                continue
            own = homes.own_in(place, rule)
            if own & fresh and own <= drawn:
                text = homes.rule_of(place, rule)
                if len(places) > 1:
                    text = f"`{PLACE}` != '{places.index(place)}' or ({text})"
                yield text

    def kept_by(self, text: str) -> tuple[tuple[int, ...], str]:
        """Places whose members a regression is of, and its text with their columns' plain names.

        Raises:
            SchemaError: the text is no formula of one place's members, the head and the household.
        """
        homes = self.homes
        where, written = f"keep {quoted(text)}", homes.quoted(text)
        parsed = parse(written)
        outcome = columns_used(where, [(parsed.outcome,)])
        places = {f"{p}.{name}": k for k, p in enumerate(homes.places) for name in homes.own}
        every, head, about = [*homes.shared, *places], homes.places[0], set()
        for name in (*outcome, *columns_used(where, parsed.terms)):
            if name not in every:
                hint = did_you_mean(name, every)
                hint = f" (write {head}.{name})" if name in homes.own else hint
                raise SchemaError(
                    f"{where}: {name!r} is no column of the household, and none of a member, "
                    f"written as ROLE.COLUMN{hint}."
                )
            if name not in homes.shared:
                about.add(places[name])
        place = max(about, default=0)
        if len(about - {0}) > 1:
            raise SchemaError(
                f"{where}: a regression is of the head, or of members of one other role beside it."
            )
        if place and (not outcome or places.get(outcome[0]) != place):
            raise SchemaError(
                f"{where}: the outcome must be a column of {homes.places[place]!r}, whose members "
                "are drawn after the head and the household."
            )
        if place and outcome[0] == f"{homes.places[place]}.{homes.order}":
            raise SchemaError(
                f"{where}: {outcome[0]!r} puts members in order, and is drawn before their other "
                "columns. Take another outcome."
            )
        return (place,), written.replace(f"`{homes.places[place]}.", "`")


def as_given(column: Column, name: str) -> Column:
    """A column as it is given to other rows."""
    missing = column.missing or (("",) if column.optional else ())
    return replace(column, name=name, only_if=None, missing=missing, guessed=())


def _compositions(homes: Homes) -> Ints:
    """All numbers of members by place beside the head, shape (C, places - 1)."""
    others, most = len(homes.places) - 1, homes.unit.most - 1
    repeated = len(homes.places) - homes.once
    count = sum(
        math.comb(homes.once - 1, once) * math.comb(most - once + repeated, repeated)
        for once in range(min(homes.once, most + 1))
    )
    if count > MOST_COMPOSITIONS:
        raise SchemaError(
            f"household: members by role can be {count:,} combinations, too many for noisy counts; "
            f"at most {MOST_COMPOSITIONS:,}. Merge roles, or declare fewer members."
        )
    ranges = [range(2 if k + 1 < homes.once else most + 1) for k in range(others)]
    counts = [c for c in itertools.product(*ranges) if sum(c) <= most]
    if homes.role is None:  # places follow each other
        counts = [c for c in counts if all(a or not b for a, b in itertools.pairwise(c))]
    return np.array(counts, dtype=np.int64).reshape(len(counts), others)
