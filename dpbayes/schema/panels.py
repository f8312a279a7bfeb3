"""Panels: rows of one person at several times, and what is public about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.checks import expect
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import Column
from dpbayes.schema.homes import Homes, Members
from dpbayes.schema.rules import Rule, Values
from dpbayes.schema.units import Unit

LAST = "before"  # columns of the wave before are before.NAME
MEAN = "mean"  # means of all waves before are mean.NAME
FIRST, LATER = "first", "later"


@dataclass(frozen=True)
class Panel(Unit):
    """Declaration that rows are waves of persons: the same person at several times. All is public.

    Attributes:
        id: identifier of the persons, declared with type = "identifier". Released rows have the
            numbers of synthetic persons in its place.
        most: upper bound on the waves of a person.
        time: column of the time of a wave, a number, date or datetime, such as the year: no two
            waves of a person have the same.
        columns: columns in which all waves of a person have the same value, such as the sex.
        rules: conditions on a wave and the one before, whose columns are written as before.COLUMN:
            "education >= before.education".

    Raises:
        SchemaError: an entry is of a wrong kind.

    Examples:
        >>> import dpbayes as dpb
        >>> dpb.Panel("person", most=8, time="year", columns=("sex",)).most
        8
    """

    id: str
    most: int
    time: str
    columns: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    table: ClassVar[str] = "panel"
    noun: ClassVar[str] = "person"
    member: ClassVar[str] = "wave"
    example: ClassVar[str] = '{id = "person", most = 8, time = "year", columns = ["sex"]}'

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.time, str, "panel: time", "the name of a column", SchemaError)

    def homes(self, columns: Mapping[str, Column]) -> Waves:
        return Waves(self, columns)


class Waves(Homes):
    """A ``Panel`` with the columns of its schema: the first wave, and later ones in order."""

    chain: ClassVar[bool] = True
    key: ClassVar[str] = "time"

    def __init__(self, panel: Panel, columns: Mapping[str, Column]) -> None:
        super().__init__(panel, columns, panel.time)

    def _places(self, columns: Mapping[str, Column]) -> tuple[tuple[str, ...], int]:
        del columns
        return (FIRST, LATER), 1

    @property
    def prefixes(self) -> tuple[str, ...]:
        return LAST, MEAN

    def known(self, place: int) -> dict[str, Column]:
        before = {} if not place else {f"{LAST}.{n}": column for n, column in self.own.items()}
        return {**self.shared, **self.own, **before}

    def _rule(self, text: str) -> tuple[int, Rule]:
        columns = {name: replace(column, name=name) for name, column in self.known(1).items()}
        rule = Rule.parse(self.quoted(text), columns)
        if not any(name.startswith(f"{LAST}.") for name in rule.names) or not (
            set(rule.names) & set(self.own)
        ):
            raise SchemaError(
                f"panel: rule {text!r} must be about a wave and the one before, whose columns are "
                f"written as {LAST}.{self.order}. Rules about one wave stand in `rules` of the "
                "schema."
            )
        return 1, rule

    def rule_of(self, place: int, rule: Rule) -> str:
        del place
        return rule.text

    def own_in(self, place: int, rule: Rule) -> set[str]:
        del place
        return set(rule.names) & set(self.own)

    def place_of(self, records: pd.DataFrame) -> Ints:
        return np.zeros(len(records), dtype=np.int64)

    def _problems(self, members: Members) -> dict[str, int]:
        time, home = members.members[self.order], members.home
        equal = (home[1:] == home[:-1]) & (time[1:] == time[:-1])
        return {f"have several waves of one {self.order!r}": len(np.unique(home[1:][equal]))}

    def beside(self, members: Members, place: int) -> tuple[Values, Ints]:
        rows = np.flatnonzero(members.place >= 1 if place else members.place >= 0)
        home = members.home[rows]
        values = {name: value[home] for name, value in members.households.items()}
        for name, value in members.members.items():
            values[name] = value[rows]
            if place:
                values[f"{LAST}.{name}"] = value[rows - 1]
        return values, home
