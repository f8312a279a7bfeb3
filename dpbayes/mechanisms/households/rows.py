"""Rows of a block: those of members, with values of the head and of the member before.

The same code reads confidential members and members that are being synthesised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.mechanisms.households.layout import ColumnBlock, Layout
from dpbayes.mechanisms.marginals.analyses import Analysis
from dpbayes.schema.homes import BEFORE, COMPOSITION, FAMILY, GAP, LEFT, PLACE, Homes, Members
from dpbayes.schema.households import role_name
from dpbayes.schema.panels import MEAN
from dpbayes.schema.rules import Values


@dataclass(frozen=True)
class BlockRows:
    """Members that a block is about. Confidential, if the members are.

    Attributes:
        index: their numbers, shape (rows,).
        values: values of the block's columns that are known, shape (rows,) each.
        weights: what a row counts as, shape (rows,): at most 1 together in a household.
    """

    index: Ints
    values: dict[str, Floats]
    weights: Floats

    def of(self, mask: Mask) -> BlockRows:
        """Some of the rows."""
        values = {name: value[mask] for name, value in self.values.items()}
        return BlockRows(self.index[mask], values, self.weights[mask])


def rows_of(
    layout: Layout,
    block: ColumnBlock,
    members: Members,
    turn: int | None = None,
    *,
    given: bool = False,
) -> BlockRows:
    """Rows of a block.

    Args:
        turn: only rows of members with so many before them in their place; None for all.
        given: only the values of columns that are given.
    """
    mask = np.isin(members.place, block.places)
    if block.turn == "first":
        mask &= members.turn == 0
    elif block.turn == "later":
        mask &= members.turn > 0
    home = members.home[mask]
    weights = np.ones(len(home))
    if block.several:
        weights = 1.0 / np.bincount(home, minlength=members.count)[home]
    index = np.flatnonzero(mask)
    if turn is not None:
        at = members.turn[index] == turn
        index, weights = index[at], weights[at]
    names = block.given if given else (*block.given, *block.hidden)
    values = {name: _value(layout, block, members, index, name) for name in names}
    return BlockRows(index, values, weights)


def kept_rows(layout: Layout, members: Members) -> Iterator[tuple[Analysis, Values, Floats]]:
    """Yield each regression to preserve, with the values and weights of the rows that it is of."""
    for block in layout.blocks:
        if block.kept:
            rows = rows_of(layout, block, members)
            yield from ((analysis, rows.values, rows.weights) for analysis in block.kept)


def _value(layout: Layout, block: ColumnBlock, members: Members, index: Ints, name: str) -> Floats:
    """Values of a column of a block in some members' rows, as numbers."""
    homes, home = layout.homes, members.home[index]
    if name in homes.own:
        return members.members[name][index]
    if name in homes.shared:
        return members.households[name][home]
    if name == homes.role:
        levels = [role_name(level) for level in layout.schema[name].levels]
        codes = np.array([levels.index(place) for place in homes.places], dtype=float)
        return np.asarray(codes[members.place[index]])
    if name == PLACE:
        return np.searchsorted(block.places, members.place[index]).astype(float)
    if name in (COMPOSITION, FAMILY):
        composition = composition_of(layout, members)
        numbers = composition if name == COMPOSITION else layout.families[composition]
        return np.asarray(numbers[home], dtype=float)
    if name == LEFT:
        return members.left[index].astype(float)
    order = members.members[homes.order]
    if name == BEFORE:
        return order[np.maximum(index - 1, 0)]
    before, head = np.maximum(index - 1, 0), members.heads[home]
    if name == GAP:
        apart = order[before if block.chained else head] - order[index]
        return -apart if homes.chain else apart
    if homes.chain and name.startswith(f"{MEAN}."):
        return members.mean_before(name.removeprefix(f"{MEAN}."))[index]
    plain = name.removeprefix(f"{homes.prefixes[0]}.")
    return members.members[plain][before if homes.chain else head]


def composition_of(layout: Layout, members: Members) -> Ints:
    """Number of each household's composition, shape (households,)."""
    places = len(layout.homes.places)
    cells = members.home * places + members.place
    counts = np.bincount(cells, minlength=members.count * places).reshape(-1, places)[:, 1:]
    known = {tuple(row): k for k, row in enumerate(layout.compositions.tolist())}
    return np.array([known[tuple(row)] for row in counts.tolist()], dtype=np.int64)


def empty_members(layout: Layout, compositions: Ints) -> Members:
    """Members of households of these compositions, whose values are still missing."""
    homes = layout.homes
    counts = np.column_stack([np.ones(len(compositions), int), layout.compositions[compositions]])
    places = len(homes.places)
    home = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    place = np.repeat(np.tile(np.arange(places), len(counts)), counts.ravel())
    shared = {name: np.full(len(counts), np.nan) for name in homes.shared}
    own = {name: np.full(len(home), np.nan) for name in homes.own}
    return Members(shared, own, home.astype(np.int64), place.astype(np.int64))


def put(homes: Homes, members: Members, index: Ints, values: dict[str, Floats]) -> None:
    """Write drawn values into members, or into their households."""
    for name, value in values.items():
        if name in homes.own:
            column = homes.own[name]
            # In a household that breaks a rule, anything may have been drawn.
            ends = (None, None) if column.levels else (column.lower, column.upper)
            members.members[name][index] = np.clip(value, *ends) if ends[1] is not None else value
        elif name in homes.shared:
            members.households[name][members.home[index]] = value
