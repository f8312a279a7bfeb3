"""Hash keys: the row of a column's table for each record, and the choice of key columns."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.tables.cells import MAX_CELLS
from dpbayes.mechanisms.tables.noisy import noisy_counts
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise

MOST_BITS = 16  # bits of the hash of the columns outside the key
USUAL = 2  # default number of columns in a key, if there are so many others
MOST_TOTAL = 10 * MAX_CELLS  # cells of all tables together
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)  # multipliers of MurmurHash3's finaliser


@dataclass(frozen=True)
class KeyLayout:
    """Names and numbers of levels of the columns. Public.

    Attributes:
        names, sizes: names and numbers of levels, public columns first.
        public_columns: number of public columns, which are not drawn.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    public_columns: int = 0

    @property
    def drawn(self) -> range:
        """Numbers of the columns to draw."""
        return range(self.public_columns, len(self.names))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of columns of which at least one is drawn."""
        every = itertools.combinations(range(len(self.names)), 2)
        return [(i, j) for i, j in every if j >= self.public_columns]

    def others(self, column: int) -> list[int]:
        """All columns except one."""
        return [j for j in range(len(self.names)) if j != column]


@dataclass(frozen=True)
class Key:
    """Function that maps the other columns of a record to a row of a column's table.

    Attributes:
        layout: names and numbers of levels of all columns.
        column: number of the column that the table is for.
        named: columns whose levels all have rows of their own.
        bits: bits of a hash of the remaining columns, if there are any.
    """

    layout: KeyLayout
    column: int
    named: tuple[int, ...]
    bits: int

    @cached_property
    def rest(self) -> list[int]:
        """Columns that are hashed."""
        return [j for j in self.layout.others(self.column) if j not in self.named]

    @property
    def tail(self) -> int:
        """Number of values of the hash."""
        return 2**self.bits if self.rest else 1

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return math.prod(self.layout.sizes[j] for j in self.named) * self.tail

    @property
    def levels(self) -> int:
        """Number C of levels of the column."""
        return self.layout.sizes[self.column]

    def of(self, codes: Ints) -> Ints:
        """Row of each record, shape (n,), from its levels, shape (n, columns), by mixed radix.

        Source: park-ghosh-2014, section 3.2.
        """
        row = np.zeros(len(codes), dtype=np.int64)
        for j in self.named:
            row = row * self.layout.sizes[j] + codes[:, j]
        if self.tail > 1:
            row = row * self.tail + self._hash(codes)
        return row

    def _hash(self, codes: Ints) -> Ints:
        """Hash names and level numbers of the rest to ``bits`` bits, the same on every machine."""
        total = np.zeros(len(codes), dtype=np.uint64)
        for j in self.rest:
            total += (codes[:, j].astype(np.uint64) + np.uint64(1)) * _factor(self.layout.names[j])
        # The finaliser of MurmurHash3: every input bit changes about half of the output bits.
        for factor in _MIX:
            total ^= total >> np.uint64(33)
            total *= np.uint64(factor)
        return np.asarray((total >> np.uint64(64 - self.bits)).astype(np.int64))


def _factor(name: str) -> np.uint64:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)


def nearest(layout: KeyLayout, m: int, bits: int) -> list[Key]:
    """Keys of the m nearest columns in the schema; at equal distance the earlier one first."""
    places = np.arange(len(layout.names))
    return informative(layout, -np.abs(places[:, None] - places).astype(float), m, bits)


def declared(layout: KeyLayout, named: Mapping[str, Sequence[str]], bits: int) -> list[Key]:
    """Keys of the columns that the user named for each column.

    Raises:
        SchemaError: unknown or missing columns, or one in its own key.
    """
    place = {name: j for j, name in enumerate(layout.names)}
    drawn = [layout.names[i] for i in layout.drawn]
    if set(named) != set(drawn):
        raise SchemaError(
            f"keys are for {', '.join(map(str, named))}; they have to be for every synthesised "
            f"column: {', '.join(drawn)}."
        )
    keys = []
    for name in drawn:
        others = named[name]
        listed = isinstance(others, list | tuple) and all(isinstance(o, str) for o in others)
        if not listed or len({*others} & ({*place} - {name})) < len(others):
            raise SchemaError(
                f"keys of column {name!r}: {others!r} must be a list of different other columns "
                f"among {', '.join(n for n in layout.names if n != name)}."
            )
        keys.append(Key(layout, place[name], tuple(place[o] for o in others), bits))
    return keys


def informative(layout: KeyLayout, information: Floats, m: int, bits: int) -> list[Key]:
    """Keys of the m columns with the largest mutual information with each column.

    Source: park-ghosh-2014, section 3.2.
    """
    keys = []
    for i in layout.drawn:
        others = layout.others(i)
        order = np.argsort(-information[i, others], kind="stable")[:m]
        keys.append(Key(layout, i, tuple(others[k] for k in order), bits))
    return keys


def pair_counts(layout: KeyLayout, codes: Ints) -> list[Ints]:
    """Exact pair tables for ``layout.pairs``, of shape (levels, levels) each."""
    tables = []
    for i, j in layout.pairs:
        a, b = layout.sizes[i], layout.sizes[j]
        cells = np.bincount(codes[:, i] * b + codes[:, j], minlength=a * b)
        tables.append(cells.reshape(a, b))
    return tables


def mutual_information(layout: KeyLayout, tables: Sequence[Floats]) -> Floats:
    """Mutual information of each pair in nats, shape (columns, columns); 0 for an empty table."""
    information = np.zeros((len(layout.names),) * 2)
    for (i, j), table in zip(layout.pairs, tables, strict=True):
        total = table.sum()
        if total > 0:
            p = table / total
            apart = p.sum(axis=1, keepdims=True) * p.sum(axis=0, keepdims=True)
            positive = p > 0
            information[i, j] = information[j, i] = float(
                (p[positive] * np.log(p[positive] / apart[positive])).sum()
            )
    return information


def noisy_information(
    layout: KeyLayout, codes: Ints, epsilon: float, adjacency: Adjacency, noise: Noise
) -> Floats:
    """Mutual information from noisy tables of all pairs.

    Cells that noise alone could have filled are set to 0: many of them would bias the information
    upwards. This is post-processing of noisy counts, and costs nothing.

    Guarantee: ``epsilon``-DP for ``adjacency``. A record is in one cell of every pair table, and
    each table gets an equal share of epsilon.
    """
    part = epsilon / len(layout.pairs)
    scale = (1 if adjacency == "add-remove" else 2) / part
    tables = []
    for counts in pair_counts(layout, codes):
        noisy = noisy_counts(counts, math.inf, part, adjacency, noise, "zero").astype(float)
        tables.append(np.where(noisy > scale * math.log(noisy.size), noisy, 0.0))
    return mutual_information(layout, tables)


def check_room(layout: KeyLayout, m: int, bits: int) -> None:
    """Raise GuaranteeError unless tables with any m key columns fit, by public facts alone.

    Source: park-ghosh-2014, section 3.2.
    """
    fit = _largest_m(layout, bits, MAX_CELLS)
    for i, most in fit.items():
        if m > most:
            raise GuaranteeError(
                f"m = {m}: the table of column {layout.names[i]!r} could have "
                f"{_cells(layout, i, m, bits):,} cells, and {MAX_CELLS:,} are held. m = "
                f"{min(fit.values())} fits every column"
                + (f", m = {most} this one" if most > min(fit.values()) else "")
                + "; or merge levels."
            )
    require_total(layout, sum(_cells(layout, i, m, bits) for i in layout.drawn))


def usual(layout: KeyLayout, bits: int) -> int:
    """Largest m up to ``USUAL`` for which columns and memory suffice; 0 if there is none."""
    for m in range(min(USUAL, len(layout.names) - 1), 0, -1):
        cells = [_cells(layout, i, m, bits) for i in layout.drawn]
        if max(cells) <= MAX_CELLS and sum(cells) <= MOST_TOTAL:
            return m
    return 0


def require_total(layout: KeyLayout, cells: int) -> None:
    """Raise GuaranteeError if all tables together are too large."""
    if cells > MOST_TOTAL:
        raise GuaranteeError(
            f"the tables of {len(layout.drawn)} columns could have {cells:,} cells together, and "
            f"{MOST_TOTAL:,} are held: take a smaller m or fewer bits, or merge levels."
        )


def check_keys(keys: Sequence[Key]) -> None:
    """Raise GuaranteeError unless the tables of these keys fit in memory."""
    for key in keys:
        cells = key.rows * key.levels
        if cells > MAX_CELLS:
            layout = key.layout
            most = _largest_m(layout, key.bits, MAX_CELLS)[key.column]
            raise GuaranteeError(
                f"keys of column {layout.names[key.column]!r}: its table would have {cells:,} "
                f"cells, and {MAX_CELLS:,} are held. Any {most} columns fit; or merge levels."
            )
    if keys:
        require_total(keys[0].layout, sum(key.rows * key.levels for key in keys))


def _cells(layout: KeyLayout, column: int, m: int, bits: int) -> int:
    """Largest number of cells of a column's table with any m columns in its key."""
    others = sorted((layout.sizes[j] for j in layout.others(column)), reverse=True)
    tail = 2**bits if m < len(others) else 1
    return math.prod(others[:m]) * tail * layout.sizes[column]


def _largest_m(layout: KeyLayout, bits: int, cells: int) -> dict[int, int]:
    """Largest m that fits, by column to draw; -1 if not even m = 0 does."""
    others = range(len(layout.names))
    return {
        i: max((m for m in others if _cells(layout, i, m, bits) <= cells), default=-1)
        for i in layout.drawn
    }
