"""Rows of records of several, in order: members of households, and waves of persons."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import DataError, SchemaError, did_you_mean
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import NUMERIC, Column
from dpbayes.schema.rules import Rule, Values, numbers_of
from dpbayes.schema.units import Unit

# Columns that mechanisms make for themselves, beside NAME.COLUMN, which are of another member.
COMPOSITION, FAMILY, PLACE = "(composition)", "(family)", "(place)"
GAP, BEFORE, LEFT = "(distance)", "(before)", "(left)"
MADE = (COMPOSITION, FAMILY, PLACE, GAP, BEFORE, LEFT)


@dataclass(frozen=True)
class Members:
    """Rows as members of households, as numbers (``schema.rules``). Confidential, if records are.

    In a panel a person stands for a household, and waves for members.

    Attributes:
        households: values of the columns that members share, shape (households,) each.
        members: values of the other columns, shape (members,) each. Members of a household are
            beside each other, by place and then by order.
        home: number of each member's household, shape (members,).
        place: number of each member's place (``Homes.places``), shape (members,).
    """

    households: dict[str, Floats]
    members: dict[str, Floats]
    home: Ints
    place: Ints

    @cached_property
    def count(self) -> int:
        """Number of households."""
        return int(self.home.max(initial=-1)) + 1

    @cached_property
    def turn(self) -> Ints:
        """Number of members before a member in the same place of the household."""
        key = self.home * (int(self.place.max(initial=0)) + 1) + self.place
        first = np.r_[True, key[1:] != key[:-1]] if len(key) else np.zeros(0, dtype=bool)
        starts = np.flatnonzero(first)
        return np.asarray(np.arange(len(key)) - starts[np.cumsum(first) - 1], dtype=np.int64)

    @cached_property
    def left(self) -> Ints:
        """Number of members behind a member in the household."""
        sizes = np.bincount(self.home, minlength=self.count)
        return np.asarray(np.cumsum(sizes)[self.home] - 1 - np.arange(len(self.home)))

    def mean_before(self, name: str) -> Floats:
        """Mean of a column over the members before each one in the household; NaN without any.

        It is added up household by household: a sum over all of them would round one by another.
        """
        value = self.members[name]
        there = ~np.isnan(value)
        known = np.where(there, value, 0.0)
        number = np.arange(len(value)) - self.heads[self.home]
        total, count = np.zeros(len(value)), np.zeros(len(value))
        for k in range(1, int(number.max(initial=0)) + 1):
            rows = np.flatnonzero(number == k)
            total[rows] = total[rows - 1] + known[rows - 1]
            count[rows] = count[rows - 1] + there[rows - 1]
        return np.asarray(np.divide(total, count, out=np.full(len(value), np.nan), where=count > 0))

    @cached_property
    def heads(self) -> Ints:
        """Number of the first member of each household, shape (households,)."""
        heads = np.zeros(self.count, dtype=np.int64)
        rows = np.flatnonzero(self.place == 0)
        heads[self.home[rows]] = rows
        return heads


class Homes(ABC):
    """A ``Unit`` with the columns of its schema: places, and rules between members.

    Attributes:
        unit: the declaration.
        shared, own: columns of households, and of members without their role.
        order: numeric column that puts the members of a place in order.
        role: column of the place that a member has; None if places follow the order.
        places: names of the places; the first is the head's, which each household has once.
        once: number of places, the first ones, that at most one member has.
        rules: parsed rules, with the number of the place, beside the head, that each is about.
        chain: members come in ascending order, without ties, and each is beside the one before;
            else they come in descending order, and each is beside the head.

    Args:
        columns: all columns of the schema, by name.

    Raises:
        SchemaError: the columns do not fit.
    """

    places: tuple[str, ...]
    once: int
    chain: ClassVar[bool] = False
    key: ClassVar[str] = "order"

    def __init__(
        self, unit: Unit, columns: Mapping[str, Column], order: str, role: str | None = None
    ) -> None:
        self.unit, self.order, self.role = unit, order, role
        for key, names in (("columns", unit.columns), (self.key, (order,)), ("role", (role,))):
            for name in names:
                if name is not None and name not in columns:
                    raise SchemaError(
                        f"{unit.table}: {key} names {name!r}, which is not declared"
                        f"{did_you_mean(name, columns)}."
                    )
        shared = set(unit.columns)
        for name in (order, role):
            if name in shared:
                raise SchemaError(f"{unit.table}: {name!r} differs by {unit.member}.")
        self.shared = {name: column for name, column in columns.items() if name in shared}
        self.own = {
            name: column for name, column in columns.items() if name not in shared and name != role
        }
        self._check_order(columns[order])
        self.places, self.once = self._places(columns)
        self._refuse_names(columns)
        for name, column in self.shared.items():
            if column.only_if is not None:
                read = Rule.parse(column.only_if, columns).names
                if other := next((n for n in read if n not in self.shared), None):
                    raise SchemaError(
                        f"{unit.table}: only_if of {name!r}, which is the {unit.noun}'s, reads "
                        f"{other!r}, which differs by {unit.member}."
                    )
        self.rules = tuple(self._rule(text) for text in unit.rules)

    @abstractmethod
    def _places(self, columns: Mapping[str, Column]) -> tuple[tuple[str, ...], int]:
        """Names of the places, and the number of those that one member has."""

    @abstractmethod
    def _rule(self, text: str) -> tuple[int, Rule]:
        """Parse a rule on several members; return it behind the number of its place."""

    @abstractmethod
    def rule_of(self, place: int, rule: Rule) -> str:
        """Text of a rule for members of a place, whose columns then have their plain names."""

    @abstractmethod
    def own_in(self, place: int, rule: Rule) -> set[str]:
        """Plain names of the columns of a place's members in a rule."""

    @abstractmethod
    def place_of(self, records: pd.DataFrame) -> Ints:
        """Number of each validated row's place, as far as its own values tell; 0 if they do not."""

    @abstractmethod
    def beside(self, members: Members, place: int) -> tuple[Values, Ints]:
        """Values that rules about a place read, and the household of each of its members."""

    @property
    @abstractmethod
    def prefixes(self) -> tuple[str, ...]:
        """Names before the dot of columns of other members."""

    def known(self, place: int) -> dict[str, Column]:
        """Columns that rules and regressions about a place read, by their names in ``beside``."""
        del place
        return {**self.shared, **self.own}

    def _refuse_names(self, columns: Mapping[str, Column]) -> None:
        for name in columns:
            if name in MADE or name.startswith(tuple(f"{prefix}." for prefix in self.prefixes)):
                raise SchemaError(
                    f"{self.unit.table}: rename the column {name!r}: such names stand for columns "
                    "that are made of others."
                )

    def check_rules(self, rules: Iterable[Rule]) -> None:
        """Raise SchemaError for a rule of the schema that no step of the synthesis can keep."""
        for rule in rules:
            if self.role in rule.names and not set(rule.names) & set(self.own):
                raise SchemaError(
                    f"rule {rule.text!r} is about the role and columns of the household alone, and "
                    "cannot be kept: who is there is drawn before these."
                )

    def _check_order(self, column: Column) -> None:
        kinds = NUMERIC if self.chain else NUMERIC[:2]  # a member born last is the youngest
        if column.type not in kinds or column.optional or column.upper is None:
            raise SchemaError(
                f"{self.unit.table}: {self.key} = {column.name!r} must be a column with type "
                f"{' or '.join(kinds)}, with both bounds, in which no value is missing."
            )

    def quoted(self, text: str) -> str:
        """A rule or formula with names such as ``head.age`` in backticks."""
        if not isinstance(text, str):
            return text
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            text = re.sub(
                rf"(?<![\w`.'\"]){re.escape(prefix)}\.(\w+(?:\.\w+)*)", rf"`{prefix}.\1`", text
            )
        return text

    def codes(self, records: pd.DataFrame) -> Ints:
        """Number of each row's household, from 0, by identifier, shape (rows,)."""
        column, cluster = self.unit.id, self.unit.cluster
        if column not in records.columns:
            raise DataError(
                f"column {column!r} of the schema's {self.unit.table} is not in the data."
            )
        nameless, names = cluster.names(records)
        cluster.refuse(nameless, 0)
        return np.asarray(pd.factorize(names)[0], dtype=np.int64)

    def of(self, records: pd.DataFrame) -> Members:
        """Put validated rows, with the numbers of their households, in order."""
        home = records[self.unit.id].to_numpy(dtype=np.int64)
        own = {name: numbers_of(column, records[name]) for name, column in self.own.items()}
        order = own[self.order] if self.chain else -own[self.order]
        place = self.place_of(records)
        # All values of a member break ties: the order of rows in the file must not.
        sorting = np.lexsort((*own.values(), order, place, home))
        home, place = home[sorting], place[sorting]
        if self.role is None:
            first = np.r_[True, home[1:] != home[:-1]] if len(home) else np.zeros(0, dtype=bool)
            ranks = np.arange(len(home)) - np.flatnonzero(first)[np.cumsum(first) - 1]
            place = np.minimum(ranks, len(self.places) - 1).astype(np.int64)
        starts = np.flatnonzero(np.diff(home, prepend=-1))
        shared = {
            name: numbers_of(column, records[name])[sorting][starts]
            for name, column in self.shared.items()
        }
        return Members(shared, {n: v[sorting] for n, v in own.items()}, home, place)

    def check(self, records: pd.DataFrame) -> None:
        """Raise DataError unless validated rows are households as declared."""
        members = self.of(records)
        n = members.count
        sizes = np.bincount(members.home, minlength=n)
        self.unit.cluster.refuse(0, int((sizes > self.unit.most).sum()))
        problems = self._problems(members)
        sorting = np.argsort(records[self.unit.id].to_numpy(), kind="stable")
        for name, column in self.shared.items():
            values = numbers_of(column, records[name])[sorting]
            home = records[self.unit.id].to_numpy()[sorting]
            unlike = values[1:] != values[:-1]
            unlike &= ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
            differ = np.unique(home[1:][unlike & (home[1:] == home[:-1])])
            problems[f"have {self.unit.member}s that differ in {name!r}"] = len(differ)
        for place, rule in self.rules:
            read, of = self.beside(members, place)
            broken = np.unique(of[~rule.holds(read)])
            problems[f"break the rule {rule.text!r}"] = len(broken)
        found = [f"{count:,} {self.unit.noun}s {what}" for what, count in problems.items() if count]
        if found:
            raise DataError(
                f"{'; '.join(found)}. Correct the records, or the schema from public knowledge."
            )

    @abstractmethod
    def _problems(self, members: Members) -> dict[str, int]:
        """Numbers of households whose members are not in their places, by what is wrong."""
