"""Households: rows of members who belong together, and what is public about how they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.checks import expect
from dpbayes.core.errors import SchemaError, did_you_mean
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import Column
from dpbayes.schema.homes import Homes, Members
from dpbayes.schema.rules import Rule, Values
from dpbayes.schema.units import Unit
from dpbayes.schema.values import level_text

# Places of members in a household whose members have no role: by order alone.
BY_ORDER = ("first", "second", "third", "further")


@dataclass(frozen=True)
class Household(Unit):
    """Declaration that rows are members of households. All is public.

    Attributes:
        id: identifier of the households, declared with type = "identifier". Released rows have the
            numbers of synthetic households in its place.
        most: upper bound on the members of a household.
        order: numeric column by which members of one role are put in order, the largest first:
            "age".
        columns: columns in which all members of a household have the same value.
        role: column of the part that a member has in the household, such as head, partner, child;
            without it members have places by order alone.
        once: roles that at most one member has. The first is the head, whom each household has.
        rules: conditions on the head, or on household columns, and members of one other role, whose
            columns are written as ROLE.COLUMN: "head.age - child.age >= 14".

    Raises:
        SchemaError: an entry is of a wrong kind.

    Examples:
        >>> import dpbayes as dpb
        >>> dpb.Household("hh", most=6, order="age", columns=("income",)).most
        6
    """

    id: str
    most: int
    order: str
    columns: tuple[str, ...] = ()
    role: str | None = None
    once: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    table: ClassVar[str] = "household"
    noun: ClassVar[str] = "household"
    member: ClassVar[str] = "member"
    example: ClassVar[str] = '{id = "hh", most = 8, order = "age", columns = ["income"]}'
    lists: ClassVar[Mapping[str, str]] = {"columns": "columns", "once": "roles", "rules": "rules"}

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.order, str, "household: order", "the name of a column", SchemaError)
        expect(self.role, str | None, "household: role", "the name of a column", SchemaError)
        if bool(self.once) is not (self.role is not None):
            raise SchemaError(
                "household: a `role` needs `once`, the roles that at most one member has, with the "
                'head first: once = ["head", "partner"]; and `once` needs a `role`.'
            )

    def homes(self, columns: Mapping[str, Column]) -> HouseholdHomes:
        return HouseholdHomes(self, columns)


def role_name(level: object) -> str:
    """Name of a role in `once`, rules and regressions: 2 for the level 2.0, which stands for 2."""
    return str(int(level) if isinstance(level, float) and level.is_integer() else level)


class HouseholdHomes(Homes):
    """A ``Household`` with the columns of its schema: places by role, or by order."""

    def __init__(self, household: Household, columns: Mapping[str, Column]) -> None:
        self._once = household.once
        self._texts: dict[str, str] = {}
        super().__init__(household, columns, household.order, household.role)

    def _places(self, columns: Mapping[str, Column]) -> tuple[tuple[str, ...], int]:
        if self.role is None:
            places = BY_ORDER[: self.unit.most]
            return places, min(len(places), len(BY_ORDER) - 1)
        roles = self._roles(columns[self.role])
        self._texts = {role_name(level): level_text(level) for level in columns[self.role].levels}
        others = tuple(level for level in roles if level not in self._once)
        return self._once + others, len(self._once)

    @property
    def prefixes(self) -> tuple[str, ...]:
        return self.places

    def _roles(self, column: Column) -> Sequence[str]:
        if not column.levels or column.optional:
            raise SchemaError(
                f"household: role = {column.name!r} must be a column with levels, in which no "
                "value is missing."
            )
        levels = [role_name(level) for level in column.levels]
        for name in self._once:
            if name not in levels:
                raise SchemaError(
                    f"household: once names {name!r}, which is no level of {column.name!r}"
                    f"{did_you_mean(name, levels)}."
                )
        return levels

    def _rule(self, text: str) -> tuple[int, Rule]:
        columns = dict(self.shared)
        for place in self.places:
            columns |= {
                f"{place}.{name}": replace(column, name=f"{place}.{name}")
                for name, column in self.own.items()
            }
        rule = Rule.parse(self.quoted(text), columns)
        about = {k for k, place in enumerate(self.places) for name in rule.names
                 if name.startswith(f"{place}.") and name not in self.shared}  # fmt: skip
        others = sorted(about - {0})
        if not about or len(others) > 1:
            raise SchemaError(
                f"household: rule {text!r} must be about the head, members of one other role, or "
                f"both: columns of members are written as {self.places[0]}.{self.order}. "
                "Rules about one member, or columns of the household alone, stand in `rules` of "
                "the schema."
            )
        return (others or [0])[0], rule

    def rule_of(self, place: int, rule: Rule) -> str:
        return rule.text.replace(f"`{self.places[place]}.", "`")

    def own_in(self, place: int, rule: Rule) -> set[str]:
        prefix = f"{self.places[place]}."
        return {name.removeprefix(prefix) for name in rule.names if name.startswith(prefix)}

    def place_of(self, records: pd.DataFrame) -> Ints:
        place = np.zeros(len(records), dtype=np.int64)
        if self.role is not None:
            role = records[self.role].astype(object).map(level_text).to_numpy()
            for number, name in enumerate(self.places):
                place[role == self._texts[name]] = number
        return place

    def _problems(self, members: Members) -> dict[str, int]:
        n = members.count
        heads = np.bincount(members.home[members.place == 0], minlength=n)
        problems = {"have no member, or several, whose role is the head's": int((heads != 1).sum())}
        for number in range(1, self.once):
            name = self.places[number]
            several = np.bincount(members.home[members.place == number], minlength=n) > 1
            problems[f"have several members whose role is {name!r}"] = int(several.sum())
        return problems

    def known(self, place: int) -> dict[str, Column]:
        return {
            **self.shared,
            **{f"{self.places[k]}.{name}": column
               for k in (0, place) for name, column in self.own.items()},
        }  # fmt: skip

    def beside(self, members: Members, place: int) -> tuple[Values, Ints]:
        rows = np.flatnonzero(members.place == place)
        home = members.home[rows]
        values = {name: value[home] for name, value in members.households.items()}
        for name, value in members.members.items():
            values[f"{self.places[0]}.{name}"] = value[members.heads[home]]
            values[f"{self.places[place]}.{name}"] = value[rows]
        return values, home
