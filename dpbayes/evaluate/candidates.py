"""Candidate records of the declared domain, and neighbouring tables, for the audits."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.errors import DataError, GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import made_up, with_largest_weight

CUT = 2.0  # times the largest weight: one that is cut, or moves what is released too far
INSIDE = 1e-9  # distance of candidates from the bounds, as a share of a continuous range
ROUNDS = 3  # of the search around a record, each with a quarter of the step
MADE_UP = 8  # random records that satisfy the rules of a schema


def domain(schema: Schema, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Generate ``count`` records: the ends of the declared domain first, then random records.

    Sampling weights are above the largest, to which they are cut.
    """
    records = pd.DataFrame({name: _values(c, count, rng) for name, c in schema.columns.items()})
    return with_largest_weight(schema, records, CUT)


def _values(column: Column, count: int, rng: np.random.Generator) -> NDArray[Any]:
    if column.levels:
        cycle = np.arange(count - count // 2) % len(column.levels)
        codes = np.concatenate([cycle, rng.integers(len(column.levels), size=count // 2)])
        return np.asarray([column.levels[code] for code in codes], dtype=object)
    low, high = _ends(column)
    values = np.concatenate([np.tile([low, high], 2), rng.uniform(low, high, count - 4)])
    return np.asarray(np.rint(values) if column.whole else values)


def steps_around(column: Column, count: int) -> Iterator[Callable[[pd.DataFrame], pd.DataFrame]]:
    """Yield functions that vary one numeric column around a record's value, in ever finer steps.

    Each function maps a frame of one record to a frame of up to nine records. A column with levels
    yields none.
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
    """Ends of the domain; slightly inside the bounds for a continuous column."""
    if column.lower is None or column.upper is None:
        raise GuaranteeError(f"column {column.name!r} needs bounds to be searched by the audit.")
    margin = INSIDE * (column.upper - column.lower) if column.type == "continuous" else 0.0
    return column.lower + margin, column.upper - margin


def ordinary(column: Column, records: pd.DataFrame) -> int:
    """Position of a record with the median number, or the most frequent level, of a column."""
    values = records[column.name]
    if values.isna().all():
        return 0
    if column.levels:
        return int(np.flatnonzero((values == values.mode()[0]).to_numpy())[0])
    numbers = values.to_numpy(dtype=float)
    return int(np.nanargmin(np.abs(numbers - np.nanmedian(numbers))))


def extremes(
    columns: Sequence[Column], like: pd.DataFrame, *, bounds: bool = False
) -> pd.DataFrame:
    """Records with each of these columns at each end of its domain, or at each level.

    Args:
        like: records of the domain; the first supplies the values of all other columns.
        bounds: also records on the bounds of continuous columns, where a density may be infinite;
            just inside it may be largest.
    """
    rows = []
    for column in columns:
        exact = (column.lower, column.upper) if bounds and not column.levels else ()
        ends = dict.fromkeys((*(column.levels or _ends(column)), *exact))
        for value in (*ends, *([None] if column.optional else [])):
            rows.append({**like.iloc[0].to_dict(), column.name: value})
    return pd.DataFrame(rows, columns=like.columns)


def corners(columns: Sequence[Column], like: pd.DataFrame) -> pd.DataFrame:
    """Two records with all of these columns at their first, or at their last, end or level.

    Columns that divide an epsilon among them reveal an error only if they change together. Empty
    for a single column.

    Args:
        like: as in ``extremes``.
    """
    ends = [column.levels or _ends(column) for column in columns]
    rows = [
        {**like.iloc[0].to_dict(), **{c.name: e[at] for c, e in zip(columns, ends, strict=True)}}
        for at in (0, -1)
    ]
    return pd.DataFrame(rows if len(columns) > 1 else [], columns=like.columns)


def outermost(columns: Sequence[Column], records: pd.DataFrame) -> list[int]:
    """Positions of the records with the smallest and the largest value of each column."""
    positions = []
    for column in columns if len(records) else ():
        values = records[column.name]
        order = values.cat.codes.to_numpy() if column.levels else values.to_numpy(dtype=float)
        positions += [int(np.argmin(order)), int(np.argmax(order))]
    return sorted(set(positions))


@dataclass(frozen=True)
class NeighbourTable:
    """A table that differs from the confidential one in one record.

    Attributes:
        adjacency: ``add-remove`` or ``substitution``.
        table: the neighbouring table, validated.
        record: the record that differs, validated, shape (1, columns).
        instead: the record that it replaces, or none: shape (1 or 0, columns).
    """

    adjacency: Adjacency
    table: pd.DataFrame
    record: pd.DataFrame
    instead: pd.DataFrame


def neighbours(schema: Schema, records: pd.DataFrame, most: int) -> list[NeighbourTable]:
    """Up to ``most`` neighbouring tables, those that change all columns at once first.

    A record at a corner or an end of the declared domain (or a random one, if the schema has rules)
    is added, or replaces an ordinary record; and the outermost records are removed. Public values
    stay, and if public columns are released the number of records stays too.

    Args:
        records: validated, at least one.
        most: largest number of neighbours.
    """
    of_unit = _of_records if schema.unit is None else _of_households
    return list(itertools.islice(of_unit(schema, records), most))


def _of_records(schema: Schema, records: pd.DataFrame) -> Iterator[NeighbourTable]:
    """Yield neighbouring tables of independent records; each is made when it is asked for."""
    columns = schema.confidential()
    plain = _plain(records)
    place = ordinary(columns[0], records)
    typical, survey = with_largest_weight(schema, plain.iloc[[place]], CUT), schema.survey
    pools = [corners(columns, typical), extremes(columns, typical)]
    if survey is not None:
        weights = replace(survey.column, upper=2 * survey.largest)
        pools.append(extremes([weights], plain.iloc[[place]]))
    if schema.kept:
        others = _plain(made_up(schema, MADE_UP, np.random.default_rng(1)))
        public = [name for name, column in schema.columns.items() if column.public]
        pools.append(others.assign(**{name: typical[name].iloc[0] for name in public}))
    candidates = pd.concat([pool for pool in pools if len(pool)])
    candidates = candidates.drop_duplicates().reset_index(drop=True)
    fixed = any(column.public for column in schema.columns.values())

    def tables(
        adjacency: Adjacency, frames: list[pd.DataFrame], changed: pd.DataFrame
    ) -> Iterator[NeighbourTable]:
        try:
            table = schema.validate(pd.concat(frames, ignore_index=True))
            record = schema.validate(changed)
        except DataError:  # the record breaks a rule, or n is public and no record is left
            return
        if not table.equals(records):
            instead = records.iloc[[place] if adjacency == "substitution" else []]
            yield NeighbourTable(adjacency, table, record, instead)

    orders = [range(len(candidates))[:2], _spread(len(candidates), 2)]
    for i in (i for order in orders for i in order):
        candidate = candidates.iloc[[i]]
        changed = [plain.iloc[:place], candidate, plain.iloc[place + 1 :]]
        yield from tables("substitution", changed, candidate)
        if not fixed:
            yield from tables("add-remove", [plain, candidate], candidate)
        if i == 1 and not fixed:
            for at in outermost(columns[:1], records):
                remaining = [plain.iloc[:at], plain.iloc[at + 1 :]]
                yield from tables("add-remove", remaining, plain.iloc[[at]])


def _of_households(schema: Schema, records: pd.DataFrame) -> Iterator[NeighbourTable]:
    """Yield neighbouring tables of households, with the largest household in the middle of changes.

    It is removed; another one is added, or replaces it; a member is removed or changed; and all
    members have the columns of a made-up record: one of each kind, then the next. Those that break
    a rule, or are the same household, are left out.
    """
    assert schema.unit is not None
    key, plain = schema.unit.id, _plain(records)
    sizes = plain.groupby(key)[key].transform("size")
    largest, smallest = (int(plain[key].iloc[at(sizes)]) for at in (np.argmax, np.argmin))
    new = int(plain[key].max()) + 1
    made = _plain(made_up(schema.of_rows, MADE_UP, np.random.default_rng(1)))
    ends = pd.concat([corners(schema.confidential(), made), made], ignore_index=True)
    role = schema.homes.role

    home = plain[plain[key] == largest]
    names = [name for name in schema.columns if name != role]

    def made_up_members(members: pd.DataFrame) -> Iterator[pd.DataFrame]:
        for number in range(len(ends)):
            yield members.assign(**{name: ends[name].iloc[number] for name in names})

    def changed_members() -> Iterator[pd.DataFrame]:
        for row, name in itertools.product(range(len(home)), schema.columns):
            other = home.copy()
            other.loc[home.index[row], name] = ends[name].iloc[row % len(ends)]
            yield other

    def others() -> Iterator[pd.DataFrame]:
        """Households that may stand in the place of the largest one."""
        kinds = (
            [plain[plain[key] == smallest]],
            made_up_members(home),
            (home.drop(index=index) for index in home.index[::-1]),
            changed_members(),
            made_up_members(home.iloc[:1]),
        )
        for one_of_each in itertools.zip_longest(*kinds):
            yield from (other for other in one_of_each if other is not None and unlike(other))

    def unlike(other: pd.DataFrame) -> bool:
        """True unless there are no members, or those of the largest household in any order."""
        columns = list(schema.columns)
        texts = (part[columns].astype(str).itertuples(False) for part in (other, home))
        return len(other) > 0 and operator.ne(*map(Counter, texts))

    def table(frames: list[pd.DataFrame]) -> pd.DataFrame | None:
        try:
            return schema.validate(pd.concat(frames, ignore_index=True))
        except DataError:
            return None

    without = plain[plain[key] != largest]
    fixed = schema.rows.public
    own = records[records[key] == largest]
    removed = None if fixed else table([without])
    if removed is not None:
        yield NeighbourTable("add-remove", removed, own, own.iloc[:0])
    for other in others():
        members = other.assign(**{key: new})
        changed = table([without, members])
        if changed is not None:
            yield NeighbourTable("substitution", changed, schema.typed(members), own)
        added = None if fixed else table([plain, members])
        if added is not None:
            yield NeighbourTable("add-remove", added, schema.typed(members), own.iloc[:0])


def alike(schema: Schema, records: pd.DataFrame, count: int) -> pd.DataFrame:
    """A table that has the first of the records ``count`` times."""
    if schema.unit is None:
        return records.iloc[[0] * count].reset_index(drop=True)
    key = schema.unit.id
    first = records[records[key] == records[key].iloc[0]]
    copies = records.loc[np.tile(first.index, count)].reset_index(drop=True)
    return copies.assign(**{key: np.repeat(np.arange(count), len(first))})


def _spread(count: int, start: int) -> list[int]:
    """The numbers from ``start`` to ``count - 1``, with successive ones far apart."""
    rest = np.arange(start, count)
    far = np.argsort([int(f"{k:020b}"[::-1], 2) for k in range(len(rest))])
    return [int(number) for number in rest[far]]


def _plain(records: pd.DataFrame) -> pd.DataFrame:
    """Convert categories to plain values, so that records with other levels can be appended."""
    return records.astype({c: object for c in records if records[c].dtype == "category"})
