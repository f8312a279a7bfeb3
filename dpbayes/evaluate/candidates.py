"""Records of a declared domain, for the audit to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.errors import DataError, GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import made_up

INSIDE = 1e-9  # of a continuous column's range: how far inside its bounds candidates lie
ROUNDS = 3  # of shrinking steps
MADE_UP = 8  # records that keep the rules of a schema


def domain(schema: Schema, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """``count`` records: the ends of the declared domain first, then random ones."""
    return pd.DataFrame({name: _values(c, count, rng) for name, c in schema.columns.items()})


def _values(column: Column, count: int, rng: np.random.Generator) -> NDArray[Any]:
    if column.levels:
        each = np.arange(count - count // 2) % len(column.levels)
        codes = np.concatenate([each, rng.integers(len(column.levels), size=count // 2)])
        return np.asarray([column.levels[code] for code in codes], dtype=object)
    low, high = _ends(column)
    values = np.concatenate([np.tile([low, high], 2), rng.uniform(low, high, count - 4)])
    return np.asarray(np.rint(values) if column.whole else values)


def steps_around(column: Column, count: int) -> Iterator[Callable[[pd.DataFrame], pd.DataFrame]]:
    """Functions that put values around a record's own into a numeric column, ever closer.

    Each takes a frame of one record and gives one of up to nine; none for a column with levels.
    """
    if column.levels:
        return
    low, high = _ends(column)
    width = (high - low) / max(4, count)
    for _ in range(ROUNDS):

        def near(record: pd.DataFrame, width: float = width) -> pd.DataFrame:
            around = pd.concat([record] * 9, ignore_index=True)
            values = record[column.name].iloc[0] + width * np.linspace(-1, 1, 9)
            inside = np.clip(values, low, high)
            around[column.name] = np.rint(inside) if column.whole else inside
            return around.drop_duplicates()

        yield near
        width /= 4


def _ends(column: Column) -> tuple[float, float]:
    """Ends of the domain; for a continuous column a little inside them."""
    if column.lower is None or column.upper is None:
        raise GuaranteeError(f"column {column.name!r} needs bounds to be searched by the audit.")
    margin = INSIDE * (column.upper - column.lower) if column.type == "continuous" else 0.0
    return column.lower + margin, column.upper - margin


def ordinary(column: Column, records: pd.DataFrame) -> int:
    """Position of a record whose value of a column is in the middle, or frequent."""
    values = records[column.name]
    if values.isna().all():
        return 0
    if column.levels:
        return int(np.flatnonzero((values == values.mode()[0]).to_numpy())[0])
    numbers = values.to_numpy(dtype=float)
    return int(np.nanargmin(np.abs(numbers - np.nanmedian(numbers))))


def extremes(columns: Sequence[Column], like: pd.DataFrame) -> pd.DataFrame:
    """Records with each of these columns at each end of its domain, or at each level.

    Args:
        like: records of the domain; the first one's other values are kept.
    """
    rows = []
    for column in columns:
        for value in (*(column.levels or _ends(column)), *([None] if column.optional else [])):
            rows.append({**like.iloc[0].to_dict(), column.name: value})
    return pd.DataFrame(rows, columns=like.columns)


def corners(columns: Sequence[Column], like: pd.DataFrame) -> pd.DataFrame:
    """Two records with all of these columns at their first, or at their last, end or level.

    What columns share of an epsilon shows where they change together; none for a single column.

    Args:
        like: as for ``extremes``.
    """
    ends = [column.levels or _ends(column) for column in columns]
    rows = [
        {**like.iloc[0].to_dict(), **{c.name: e[at] for c, e in zip(columns, ends, strict=True)}}
        for at in (0, -1)
    ]
    return pd.DataFrame(rows if len(columns) > 1 else [], columns=like.columns)


def outermost(columns: Sequence[Column], records: pd.DataFrame) -> list[int]:
    """Positions of the records with the smallest and the largest value of each column."""
    found = []
    for column in columns if len(records) else ():
        values = records[column.name]
        order = values.cat.codes.to_numpy() if column.levels else values.to_numpy(dtype=float)
        found += [int(np.argmin(order)), int(np.argmax(order))]
    return sorted(set(found))


@dataclass(frozen=True)
class NeighbourTable:
    """A table that differs from the confidential one in one record.

    Attributes:
        adjacency: how it differs.
        table: validated.
        record: the record that differs, validated, shape (1, columns).
        instead: the record that it takes the place of, or none: shape (1 or 0, columns).
    """

    adjacency: Adjacency
    table: pd.DataFrame
    record: pd.DataFrame
    instead: pd.DataFrame


def neighbours(schema: Schema, records: pd.DataFrame, most: int) -> list[NeighbourTable]:
    """Up to ``most`` neighbours, those that tell most of all columns together first.

    A record at the corners and at the ends of the declared domain, or made up where there are rules
    to keep, is added, or put in place of an ordinary one; and the outermost records are taken away.
    Public values stay, and where they are released so does the number of records.

    Args:
        records: validated, one at least.
    """
    columns = schema.confidential()
    plain = _plain(records)
    place = ordinary(columns[0], records)
    here = plain.iloc[[place]]
    tried = [corners(columns, here), extremes(columns, here)]
    if schema.kept:
        tried.append(_plain(made_up(schema, MADE_UP, np.random.default_rng(1))))
    every = pd.concat([one for one in tried if len(one)])
    every = every.drop_duplicates().reset_index(drop=True)
    fixed = any(column.public for column in schema.columns.values())
    found: list[NeighbourTable] = []

    def tell(adjacency: Adjacency, frames: list[pd.DataFrame], one: pd.DataFrame) -> None:
        try:
            table = schema.validate(pd.concat(frames, ignore_index=True))
            record = schema.validate(one)
        except DataError:  # a record that breaks a rule, or a table without any where n is public
            return
        if not table.equals(records):
            instead = records.iloc[[place] if adjacency == "substitution" else []]
            found.append(NeighbourTable(adjacency, table, record, instead))

    orders = [range(len(every))[:2], _spread(len(every), 2)]
    for i in (i for order in orders for i in order):
        one = every.iloc[[i]]
        tell("substitution", [plain.iloc[:place], one, plain.iloc[place + 1 :]], one)
        if not fixed:
            tell("add-remove", [plain, one], one)
        if i == 1 and not fixed:
            for at in outermost(columns[:1], records):
                left = [plain.iloc[:at], plain.iloc[at + 1 :]]
                tell("add-remove", left, plain.iloc[[at]])
    return found[:most]


def _spread(count: int, first: int) -> list[int]:
    """The numbers from ``first`` to ``count``, those far from each other first."""
    rest = np.arange(first, count)
    far = np.argsort([int(f"{k:020b}"[::-1], 2) for k in range(len(rest))])
    return [int(number) for number in rest[far]]


def _plain(records: pd.DataFrame) -> pd.DataFrame:
    """Without categories, which other records may not have."""
    return records.astype({c: object for c in records if records[c].dtype == "category"})
