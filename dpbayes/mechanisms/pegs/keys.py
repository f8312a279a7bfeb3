"""Hash keys: which row of a column's table a record belongs to, and which columns make it."""

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

MOST_BITS = 16  # of the hash of the rest
USUAL = 2  # columns of a key, where there are so many others
MOST_TOTAL = 10 * MAX_CELLS  # of all tables together
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)  # odd, with bits all over


@dataclass(frozen=True)
class KeyLayout:
    """Columns with levels: names and numbers of levels. Public.

    Attributes:
        names, sizes: of every column, those that stay as they are first.
        given: how many stay as they are.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    given: int = 0

    @property
    def drawn(self) -> range:
        """Numbers of the columns to draw."""
        return range(self.given, len(self.names))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of columns of which one is drawn at least."""
        every = itertools.combinations(range(len(self.names)), 2)
        return [(i, j) for i, j in every if j >= self.given]

    def others(self, column: int) -> list[int]:
        """All columns but one."""
        return [j for j in range(len(self.names)) if j != column]


@dataclass(frozen=True)
class Key:
    """How the row of a column's table follows from the other columns.

    Attributes:
        layout: of all columns.
        column: whose table it is.
        named: columns that the row keeps apart.
        bits: of a hash of all the rest; where there is no rest, none.
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
        """Values of the hash."""
        return 2**self.bits if self.rest else 1

    @property
    def rows(self) -> int:
        """Of the table."""
        return math.prod(self.layout.sizes[j] for j in self.named) * self.tail

    @property
    def levels(self) -> int:
        """C: of the column."""
        return self.layout.sizes[self.column]

    def of(self, codes: Ints) -> Ints:
        """Row of each record, shape (n,), from its levels, shape (n, columns): mixed radix.

        Source: park-ghosh-2014, section 3.2.
        """
        row = np.zeros(len(codes), dtype=np.int64)
        for j in self.named:
            row = row * self.layout.sizes[j] + codes[:, j]
        if self.tail > 1:
            row = row * self.tail + self._hash(codes)
        return row

    def _hash(self, codes: Ints) -> Ints:
        """``bits`` bits of the rest; the same on every machine, of names and level numbers only."""
        total = np.zeros(len(codes), dtype=np.uint64)
        for j in self.rest:
            total += (codes[:, j].astype(np.uint64) + np.uint64(1)) * _factor(self.layout.names[j])
        for factor in _MIX:  # the finaliser of MurmurHash3: every bit moves half of all bits
            total ^= total >> np.uint64(33)
            total *= np.uint64(factor)
        return np.asarray((total >> np.uint64(64 - self.bits)).astype(np.int64))


def _factor(name: str) -> np.uint64:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little") | 1)


def nearest(layout: KeyLayout, m: int, bits: int) -> list[Key]:
    """Keys of the m columns that stand next to each in the schema, before it at equal distance."""
    places = np.arange(len(layout.names))
    return informative(layout, -np.abs(places[:, None] - places).astype(float), m, bits)


def declared(layout: KeyLayout, named: Mapping[str, Sequence[str]], bits: int) -> list[Key]:
    """Keys of the columns that somebody named for each.

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
    found = []
    for name in drawn:
        others = named[name]
        listed = isinstance(others, list | tuple) and all(isinstance(o, str) for o in others)
        if not listed or len({*others} & ({*place} - {name})) < len(others):
            raise SchemaError(
                f"keys of column {name!r}: {others!r} must be a list of different other columns "
                f"among {', '.join(n for n in layout.names if n != name)}."
            )
        found.append(Key(layout, place[name], tuple(place[o] for o in others), bits))
    return found


def informative(layout: KeyLayout, information: Floats, m: int, bits: int) -> list[Key]:
    """Keys of the m columns with most mutual information, shape (columns, columns), with each.

    Source: park-ghosh-2014, section 3.2.
    """
    found = []
    for i in layout.drawn:
        others = layout.others(i)
        order = np.argsort(-information[i, others], kind="stable")[:m]
        found.append(Key(layout, i, tuple(others[k] for k in order), bits))
    return found


def pair_counts(layout: KeyLayout, codes: Ints) -> list[Ints]:
    """Records by the levels of each of ``layout.pairs``: tables of shape (levels, levels)."""
    found = []
    for i, j in layout.pairs:
        a, b = layout.sizes[i], layout.sizes[j]
        cells = np.bincount(codes[:, i] * b + codes[:, j], minlength=a * b)
        found.append(cells.reshape(a, b))
    return found


def mutual_information(layout: KeyLayout, tables: Sequence[Floats]) -> Floats:
    """Of each of ``layout.pairs``, in nats, shape (columns, columns); 0 for an empty table."""
    found = np.zeros((len(layout.names),) * 2)
    for (i, j), table in zip(layout.pairs, tables, strict=True):
        total = table.sum()
        if total > 0:
            p = table / total
            apart = p.sum(axis=1, keepdims=True) * p.sum(axis=0, keepdims=True)
            some = p > 0
            found[i, j] = found[j, i] = float((p[some] * np.log(p[some] / apart[some])).sum())
    return found


def noisy_information(
    layout: KeyLayout, codes: Ints, epsilon: float, adjacency: Adjacency, noise: Noise
) -> Floats:
    """Mutual information from noisy tables of all pairs.

    Cells that noise alone could have filled are left out: with many cells they would make up
    information. That is done to noisy counts, and costs nothing.

    Guarantee: ``epsilon``-DP for ``adjacency``. A record is in one cell of every pair's table; each
    has its part of epsilon.
    """
    part = epsilon / len(layout.pairs)
    scale = (1 if adjacency == "add-remove" else 2) / part
    tables = []
    for counts in pair_counts(layout, codes):
        found = noisy_counts(counts, math.inf, part, adjacency, noise, "zero").astype(float)
        tables.append(np.where(found > scale * math.log(found.size), found, 0.0))
    return mutual_information(layout, tables)


def check_room(layout: KeyLayout, m: int, bits: int) -> None:
    """Raise GuaranteeError unless tables of any m columns can be held. By public facts alone.

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
    """The largest m up to ``USUAL`` for which there are columns and room; 0 if there is none."""
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
    """Raise GuaranteeError unless the tables of these keys can be held."""
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
    """The most cells that the table of a column can have with m columns in its key."""
    others = sorted((layout.sizes[j] for j in layout.others(column)), reverse=True)
    tail = 2**bits if m < len(others) else 1
    return math.prod(others[:m]) * tail * layout.sizes[column]


def _largest_m(layout: KeyLayout, bits: int, cells: int) -> dict[int, int]:
    """The largest m that fits, by column to draw; -1 where not even 0 does."""
    others = range(len(layout.names))
    return {
        i: max((m for m in others if _cells(layout, i, m, bits) <= cells), default=-1)
        for i in layout.drawn
    }
