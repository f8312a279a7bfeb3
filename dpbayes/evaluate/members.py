"""What members of a household have to do with each other, in records and in synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.households.layout import as_given
from dpbayes.mechanisms.households.layouts import layout_of
from dpbayes.schema import Column, Schema
from dpbayes.schema.homes import Homes, Members
from dpbayes.schema.rules import values_of

BINS = 10  # of a column of numbers, with equally many members of the records


def between_members(
    schema: Schema, records: pd.DataFrame, datasets: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """Distances between households of records and synthetic ones. Confidential.

    Relations are the number of members, and each column of members together with the same column of
    the head; of places with several members, the order of one with that of the next. In a panel
    they are the number of waves, and each column at two times.

    Args:
        records: validated rows, with numbers of households.
        datasets: synthetic data sets, validated likewise.
    Returns:
        a row for each relation: ``relation``; ``distance``: total variation distance, the mean over
        data sets; ``by_chance``: what two samples of so many households are apart; ``pairs``:
        number in the records.
    """
    homes = schema.homes
    own = homes.of(records)
    others = [homes.of(data) for data in datasets]
    edges = {name: _edges(c, own.members[name]) for name, c in homes.own.items()}
    made = [dict(_tables(homes, each, edges)) for each in others]
    rows = []
    for relation, table in _tables(homes, own, edges):
        n = float(table.sum())
        if not n:
            continue
        shares = table / n
        sizes = [float(each[relation].sum()) for each in made]
        apart = [
            0.5 * float(np.abs(shares - each[relation] / max(size, 1)).sum())
            for each, size in zip(made, sizes, strict=True)
        ]
        noise = [math.sqrt(1 / n + 1 / max(size, 1)) for size in sizes]
        spread = float(np.sqrt(shares * (1 - shares)).sum()) / math.sqrt(2 * math.pi)
        rows.append((relation, float(np.mean(apart)), spread * float(np.mean(noise)), int(n)))
    return pd.DataFrame(rows, columns=["relation", "distance", "by_chance", "pairs"])


def joined(schema: Schema, rows: pd.DataFrame, formula: str) -> tuple[Schema, pd.DataFrame]:
    """Members that a regression is of, beside their head and household.

    Args:
        rows: validated rows, with numbers of households.
        formula: a regression as in ``keep``.
    Returns:
        the schema and the rows of a table of these members, with columns of members as ROLE.COLUMN,
        and the number of each row's record, which is not in the schema.
    Raises:
        SchemaError: no such regression.
    """
    homes = schema.homes
    places, _ = layout_of(schema).kept_by(formula)
    place = min(places)  # where all places are meant, those after it are among its rows
    values, of = homes.beside(homes.of(rows), place)
    known = homes.known(place)
    columns = {name: as_given(known[name], name) for name in values}
    typed = {name: values_of(columns[name], value) for name, value in values.items()}
    return Schema(columns), pd.DataFrame({**typed, homes.unit.id: of})


def _edges(column: Column, values: Floats) -> Floats | None:
    """Inner ends of bins of a column of numbers; None for one of levels."""
    if column.levels:
        return None
    there = values[~np.isnan(values)]
    return np.unique(np.quantile(there, np.arange(1, BINS) / BINS)) if len(there) else np.empty(0)


def _tables(
    homes: Homes, members: Members, edges: dict[str, Floats | None]
) -> Iterator[tuple[str, Ints]]:
    """Yield the table of counts of each relation, as a vector."""
    sizes = np.bincount(members.home, minlength=members.count)
    yield f"number of {homes.unit.member}s", np.bincount(sizes, minlength=homes.unit.most + 1)
    cells, counts = {}, {}
    for name, column in homes.own.items():
        values, inner = members.members[name], edges[name]
        counts[name] = len(column.levels) + 1 if inner is None else len(inner) + 2
        codes = values if inner is None else np.searchsorted(inner, values, side="right")
        cells[name] = np.where(np.isnan(values), counts[name] - 1, codes).astype(np.int64)
    if homes.chain:
        numbers = np.arange(len(members.home)) - members.heads[members.home]
        for before, words in ((1, "a wave and the next"), (2, "a wave and the next but one")):
            rows = np.flatnonzero(numbers >= before)
            for name, codes in cells.items():
                pairs = codes[rows - before] * counts[name] + codes[rows]
                yield f"{name}: {words}", np.bincount(pairs, minlength=counts[name] ** 2)
        return
    for place in range(1, len(homes.places)):
        there = members.place == place
        first = np.flatnonzero(there & (members.turn == 0))
        for name, codes in cells.items():
            pairs = codes[members.heads[members.home[first]]] * counts[name] + codes[first]
            relation = f"{name}: {homes.places[0]} and {homes.places[place]}"
            yield relation, np.bincount(pairs, minlength=counts[name] ** 2)
        if place >= homes.once:
            later, name = np.flatnonzero(there & (members.turn > 0)), homes.order
            pairs = cells[name][later - 1] * counts[name] + cells[name][later]
            relation = f"{name}: {homes.places[place]} and the next"
            yield relation, np.bincount(pairs, minlength=counts[name] ** 2)
