"""Households: rows that belong together, and what is public about how they do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.checks import expect
from dpbayes.core.errors import DataError, SchemaError, did_you_mean
from dpbayes.core.frames import Frame, as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.clusters import Cluster
from dpbayes.schema.columns import Column
from dpbayes.schema.rules import Rule, Values, numbers_of
from dpbayes.schema.values import level_text, texts_of

MOST_MEMBERS = 30
ENTRY = '{id = "hh", most = 8, order = "age", columns = ["income"]}'
# Places of members in a household whose members have no role: by order alone.
BY_ORDER = ("first", "second", "third", "further")
# Columns that ``households`` makes for itself, beside those of the head, which are head.NAME.
COMPOSITION, FAMILY, PLACE = "(composition)", "(family)", "(place)"
GAP, BEFORE = "(distance)", "(before)"
MADE = (COMPOSITION, FAMILY, PLACE, GAP, BEFORE)


@dataclass(frozen=True)
class Household:
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

    def __post_init__(self) -> None:
        for key in ("id", "order"):
            expect(
                getattr(self, key), str, f"household: {key}", "the name of a column", SchemaError
            )
        expect(self.role, str | None, "household: role", "the name of a column", SchemaError)
        whole = isinstance(self.most, int) and not isinstance(self.most, bool)
        if not whole or not 2 <= self.most <= MOST_MEMBERS:
            raise SchemaError(
                f"household: most = {self.most!r} must be a whole number from 2 to {MOST_MEMBERS}."
            )
        for key, kind in (("columns", "columns"), ("once", "roles"), ("rules", "rules")):
            texts = texts_of(f"household: {key}", kind, getattr(self, key))
            object.__setattr__(self, key, texts)
        if bool(self.once) is not (self.role is not None):
            raise SchemaError(
                "household: a `role` needs `once`, the roles that at most one member has, with the "
                'head first: once = ["head", "partner"]; and `once` needs a `role`.'
            )

    @classmethod
    def parse(cls, value: object) -> Household:
        """Read the entry of a schema file: ``{id = "hh", most = 8, order = "age", ...}``."""
        keys = [field.name for field in fields(cls)]
        if not isinstance(value, Mapping) or not set(keys[:3]) <= set(value) <= set(keys):
            raise SchemaError(
                f"household = {value!r:.150} must name the identifier, the most members and the "
                f"column that puts them in order, and may have {', '.join(keys[3:])}: {ENTRY}."
            )
        return cls(**value)

    def not_by_rows(self) -> str:
        """Say why a mechanism that takes each row for a record is refused, and what to do."""
        return (
            "takes each row for a record, and the schema has households. Take mechanism "
            f"households; or declare [cluster] in their place, with column = {self.id!r} and "
            f"most = {self.most}, and what ties members together is lost."
        )

    def check_apart(self, records: Frame, persons: Cluster) -> None:
        """Raise DataError if an identifier of persons stands in several households."""
        frame = as_frame(records).reset_index(drop=True)
        if persons.column == self.id or persons.column not in frame.columns:
            return
        both = pd.DataFrame({"home": self.cluster.names(frame)[1], "who": persons.names(frame)[1]})
        homes = both.dropna().drop_duplicates()["who"].value_counts()
        if several := int((homes > 1).sum()):
            raise DataError(
                f"column {persons.column!r}: {several} identifiers stand in several households, "
                "and ε holds for one household. Correct the records; or leave the column out of "
                "the schema, if it does not tell persons apart."
            )

    def to_plain(self) -> dict[str, Any]:
        """Plain mapping that ``parse`` reads back."""
        entry = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in entry.items()}
        return {key: value for key, value in plain.items() if value not in (None, [])}

    @property
    def numbers(self) -> Column:
        """The column of released rows that numbers synthetic households, from 1."""
        return Column(self.id, "count", lower=1)

    @property
    def cluster(self) -> Cluster:
        """The identifier, for the check of how many rows it stands in."""
        return Cluster(self.id, self.most)


@dataclass(frozen=True)
class Members:
    """Rows as members of households, as numbers (``schema.rules``). Confidential, if records are.

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


class Homes:
    """A ``Household`` with the columns of its schema: places, and rules between members.

    Attributes:
        household: the declaration.
        shared, own: columns of households, and of members without their role.
        places: names of the places; of those in ``once``, which come first, each household has one
            member at most, and of the head one.
        rules: parsed rules, with the number of the place, beside the head, that each is about.

    Args:
        columns: all columns of the schema, by name.

    Raises:
        SchemaError: the columns do not fit.
    """

    def __init__(self, household: Household, columns: Mapping[str, Column]) -> None:
        self.household = household
        for key, names in (
            ("columns", household.columns),
            ("order", (household.order,)),
            ("role", (household.role,) if household.role else ()),
        ):
            for name in names:
                if name not in columns:
                    raise SchemaError(
                        f"household: {key} names {name!r}, which is not declared"
                        f"{did_you_mean(name, columns)}."
                    )
        shared = set(household.columns)
        for key in ("order", "role"):
            if getattr(household, key) in shared:
                raise SchemaError(f"household: {getattr(household, key)!r} differs by member.")
        self.shared = {name: column for name, column in columns.items() if name in shared}
        self.own = {
            name: column
            for name, column in columns.items()
            if name not in shared and name != household.role
        }
        self._check_order(columns[household.order])
        self.places: tuple[str, ...] = BY_ORDER
        self._levels: Sequence[str] = ()
        if household.role is not None:
            self._levels = self._roles(columns[household.role])
            levels = columns[household.role].levels
            self._texts = {str(level): level_text(level) for level in levels}
            others = tuple(level for level in self._levels if level not in household.once)
            self.places = household.once + others
        self._refuse_names(columns)
        for name, column in self.shared.items():
            if column.only_if is not None:
                read = Rule.parse(column.only_if, columns).names
                if other := next((n for n in read if n not in self.shared), None):
                    raise SchemaError(
                        f"household: only_if of {name!r}, which is the household's, reads "
                        f"{other!r}, which differs by member."
                    )
        self.rules = tuple(self._rule(text) for text in household.rules)

    @property
    def once(self) -> int:
        """Number of places that at most one member has; the head's is the first."""
        return len(self.household.once) if self.household.role is not None else len(BY_ORDER) - 1

    def _refuse_names(self, columns: Mapping[str, Column]) -> None:
        for name in columns:
            place = next((p for p in self.places if name.startswith(f"{p}.")), None)
            if name in MADE or place is not None:
                raise SchemaError(
                    f"household: rename the column {name!r}: such names stand for columns that are "
                    "made of others."
                )

    def check_rules(self, rules: Iterable[Rule]) -> None:
        """Raise SchemaError for a rule of the schema that no step of the synthesis can keep."""
        for rule in rules:
            if self.household.role in rule.names and not set(rule.names) & set(self.own):
                raise SchemaError(
                    f"rule {rule.text!r} is about the role and columns of the household alone, and "
                    "cannot be kept: who is there is drawn before these."
                )

    def _check_order(self, column: Column) -> None:
        if column.type not in ("continuous", "count") or column.optional or column.upper is None:
            raise SchemaError(
                f"household: order = {column.name!r} must be a continuous column or a count, with "
                "both bounds, in which no value is missing."
            )

    def _roles(self, column: Column) -> Sequence[str]:
        if not column.levels or column.optional:
            raise SchemaError(
                f"household: role = {column.name!r} must be a column with levels, in which no "
                "value is missing."
            )
        levels = [str(level) for level in column.levels]
        for name in self.household.once:
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
                f"both: columns of members are written as {self.places[0]}.{self.household.order}. "
                "Rules about one member, or columns of the household alone, stand in `rules` of "
                "the schema."
            )
        return (others or [0])[0], rule

    def quoted(self, text: str) -> str:
        """A rule or formula with names such as ``head.age`` in backticks."""
        if not isinstance(text, str):
            return text
        for place in sorted(self.places, key=len, reverse=True):
            text = re.sub(rf"(?<![\w`.]){re.escape(place)}\.(\w+)", rf"`{place}.\1`", text)
        return text

    def rule_of(self, place: int, rule: Rule) -> str:
        """Text of a rule for members of a place, whose columns then have their plain names."""
        return rule.text.replace(f"`{self.places[place]}.", "`")

    def codes(self, records: pd.DataFrame) -> Ints:
        """Number of each row's household, from 0, by identifier, shape (rows,)."""
        column = self.household.id
        if column not in records.columns:
            raise DataError(f"column {column!r} of the schema's household is not in the data.")
        nameless, names = self.household.cluster.names(records)
        self.household.cluster.refuse(nameless, 0)
        return np.asarray(pd.factorize(names)[0], dtype=np.int64)

    def of(self, records: pd.DataFrame) -> Members:
        """Put validated rows, with the numbers of their households, in order."""
        home = records[self.household.id].to_numpy(dtype=np.int64)
        own = {name: numbers_of(column, records[name]) for name, column in self.own.items()}
        order = own[self.household.order]
        place = np.zeros(len(home), dtype=np.int64)
        if self.household.role is not None:
            role = records[self.household.role].astype(object).map(level_text).to_numpy()
            for number, name in enumerate(self.places):
                place[role == self._texts[name]] = number
        # All values of a member break ties: the order of rows in the file must not.
        sorting = np.lexsort((*own.values(), -order, place, home))
        home, place = home[sorting], place[sorting]
        if self.household.role is None:
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
        self.household.cluster.refuse(0, int((sizes > self.household.most).sum()))
        heads = np.bincount(members.home[members.place == 0], minlength=n)
        problems = {"have no member, or several, whose role is the head's": int((heads != 1).sum())}
        for number in range(1, self.once):
            name = self.places[number]
            several = np.bincount(members.home[members.place == number], minlength=n) > 1
            problems[f"have several members whose role is {name!r}"] = int(several.sum())
        sorting = np.argsort(records[self.household.id].to_numpy(), kind="stable")
        for name, column in self.shared.items():
            values = numbers_of(column, records[name])[sorting]
            home = records[self.household.id].to_numpy()[sorting]
            unlike = values[1:] != values[:-1]
            unlike &= ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
            differ = np.unique(home[1:][unlike & (home[1:] == home[:-1])])
            problems[f"have members that differ in {name!r}"] = len(differ)
        for place, rule in self.rules:
            read, of = self.beside_head(members, place)
            broken = np.unique(of[~rule.holds(read)])
            problems[f"break the rule {rule.text!r}"] = len(broken)
        found = [f"{count:,} households {what}" for what, count in problems.items() if count]
        if found:
            raise DataError(
                f"{'; '.join(found)}. Correct the records, or the schema from public knowledge."
            )

    def beside_head(self, members: Members, place: int) -> tuple[Values, Ints]:
        """Values that rules about a place read, and the household of each of its members."""
        rows = np.flatnonzero(members.place == place)
        home = members.home[rows]
        values = {name: value[home] for name, value in members.households.items()}
        heads = np.flatnonzero(members.place == 0)
        head_of = np.zeros(members.count, dtype=np.int64)
        head_of[members.home[heads]] = heads
        for name, value in members.members.items():
            values[f"{self.places[0]}.{name}"] = value[head_of[home]]
            values[f"{self.places[place]}.{name}"] = value[rows]
        return values, home
