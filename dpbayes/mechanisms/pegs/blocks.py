"""Conditional distributions from counts by hash key, and chains of records drawn from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.pegs.cost import Grain
from dpbayes.mechanisms.pegs.keys import Key, KeyLayout
from dpbayes.privacy.noise import Noise

Tables = dict[int, NDArray[np.int32]]  # counts by column, shape (rows, levels)
MOST_WEIGHTS = 4_000_000  # weights held at once: chains x levels
_FINE = 2**40  # resolution of probabilities of a sampler without guarantee


class Conditionals(ABC):
    """Conditional distribution of every column given the others. Confidential.

    Attributes:
        layout: numbers of levels of all columns.
    """

    layout: KeyLayout

    @abstractmethod
    def weights(self, column: int, codes: Ints) -> Ints:
        """Whole numbers proportional to the levels' probabilities, shape (chains, levels).

        Args:
            codes: levels of the chains at this step, shape (chains, columns).
        """

    def fresh(self, chains: int, length: int) -> Conditionals:
        """Distributions for new chains of this number and length, with no row visited yet."""
        return self


def count_tables(keys: Sequence[Key], codes: Ints) -> Tables:
    """Count records by key and level for each column: tables of shape (rows, levels).

    Source: park-ghosh-2014, eq. 5; figure 1.
    """
    tables = {}
    for key in keys:
        cell = key.of(codes) * key.levels + codes[:, key.column]
        counts = np.bincount(cell, minlength=key.rows * key.levels).astype(np.int32)
        tables[key.column] = counts.reshape(key.rows, key.levels)
    return tables


class Counted(Conditionals):
    """Counts by key plus α at every level: probabilities (n_ij + α) / (N_j + C_i α).

    A row without records is uniform.

    Source: park-ghosh-2014, eq. 4; section 3.3.

    Args:
        counts: counts for each column, shape (rows, levels).
        alpha: α, the same for every row.
    """

    def __init__(self, layout: KeyLayout, keys: Sequence[Key], counts: Tables, alpha: float):
        self.layout, self.counts = layout, counts
        self.keys = {key.column: key for key in keys}
        self.grains = {key.column: _grain(alpha, key.levels) for key in keys}

    def weights(self, column: int, codes: Ints) -> Ints:
        return self._weights(column, self.counts[column][self.keys[column].of(codes)])

    def _weights(self, column: int, counts: NDArray[np.int32]) -> Ints:
        grain = self.grains[column]
        return np.asarray(counts.astype(np.int64) * grain.unit + grain.extra)


def _grain(alpha: float, levels: int) -> Grain:
    grain = Grain.of(alpha, levels)
    assert grain is not None  # checked with the settings
    return grain


class Resetting(Counted):
    """``Counted``, except that each chain reads the counts of a row once; then it is uniform.

    Source: park-ghosh-2014, section 3.4; figure 3.

    Guarantee: that of ``cost.Sampler`` for ``reset``. Every visit is recorded before the level is
    drawn and whatever the level is.
    """

    def __init__(self, layout: KeyLayout, keys: Sequence[Key], counts: Tables, alpha: float):
        super().__init__(layout, keys, counts, alpha)
        self.alpha = alpha
        self.visited: dict[int, Ints] = {}  # rows by column, shape (chains, length)
        self.visits = dict.fromkeys(self.keys, 0)

    def fresh(self, chains: int, length: int) -> Conditionals:
        resetting = Resetting(self.layout, list(self.keys.values()), self.counts, self.alpha)
        resetting.visited = {i: np.empty((chains, length), dtype=np.int64) for i in self.keys}
        return resetting

    def weights(self, column: int, codes: Ints) -> Ints:
        row, visit = self.keys[column].of(codes), self.visits[column]
        visited = self.visited[column]
        again = (visited[:, :visit] == row[:, None]).any(axis=1)
        visited[:, visit] = row  # more visits than announced raise an IndexError
        self.visits[column] += 1
        counts = self.counts[column][row]
        counts[again] = 0
        return self._weights(column, counts)


class Diverse(Counted):
    """Counts by key with the α of each key that makes its entropy log l. No guarantee.

    Source: park-ghosh-2014, eq. 3; section 3.3 diversity.
    """

    def __init__(self, layout: KeyLayout, keys: Sequence[Key], counts: Tables, diversity: float):
        super().__init__(layout, keys, counts, 1.0)
        self.table = {
            column: np.ceil(diverse(table.astype(float), diversity) * _FINE).astype(np.int64)
            for column, table in counts.items()
        }

    def weights(self, column: int, codes: Ints) -> Ints:
        return self.table[column][self.keys[column].of(codes)]


def diverse(counts: Floats, diversity: float) -> Floats:
    """Probabilities (n + α)/(N + Cα), shape (rows, C), with the smallest α of entropy >= log l.

    The entropy grows with α, which is found by row, by bisection on a logarithmic scale that ends
    on the upper side. Rows for which no α up to 10^9 N is enough are uniform; so are rows without
    records, although their α is 0.

    Source: park-ghosh-2014, section 3.3 diversity.

    Args:
        diversity: l, from 1 to the number C of levels.
    """
    total = counts.sum(axis=1)
    probabilities = np.full(counts.shape, 1 / counts.shape[1])
    nonempty = total > 0
    plain = counts[nonempty] / total[nonempty, None]
    short = _entropy(plain) < np.log(diversity)
    probabilities[np.flatnonzero(nonempty)[~short]] = plain[~short]
    todo = np.flatnonzero(nonempty)[short]
    if todo.size:
        n, big = counts[todo], total[todo, None]
        low, high = np.full((todo.size, 1), -30.0), np.full((todo.size, 1), np.log(1e9))
        for _ in range(60):  # α / N on a logarithmic scale
            middle = (low + high) / 2
            enough = (_entropy(_mixed(n, big * np.exp(middle))) >= np.log(diversity))[:, None]
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        mixed = _mixed(n, big * np.exp(high))
        reached = _entropy(mixed) >= np.log(diversity)
        probabilities[todo[reached]] = mixed[reached]
    return probabilities


def _mixed(counts: Floats, alpha: Floats) -> Floats:
    more = counts + alpha
    return np.asarray(more / more.sum(axis=1, keepdims=True))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=1))


def draw_blocks(
    source: Conditionals, start: Ints, length: int, noise: Noise, public_codes: Ints | None = None
) -> Ints:
    """Draw chains of records, each column by column starting from the record before.

    Source: park-ghosh-2014, eq. 1; section 3.4; figure 2.

    Args:
        start: public seeds of the chains, shape (chains, columns).
        length: B, records of a chain.
        public_codes: public columns of every record, shape (chains, B, public columns);
            None without.
    Returns:
        Levels of the drawn columns, shape (chains, B, drawn columns).
    """
    layout = source.layout
    most = max(1, MOST_WEIGHTS // max(layout.sizes))
    parts = []
    for first in range(0, len(start), most):
        chains = slice(first, first + most)
        public = None if public_codes is None else public_codes[chains]
        codes = start[chains].copy()
        own = source.fresh(len(codes), length)
        parts.append(_draw_chains(own, codes, length, noise, public))
    return np.concatenate(parts)


def _draw_chains(
    source: Conditionals, codes: Ints, length: int, noise: Noise, public: Ints | None
) -> Ints:
    layout = source.layout
    drawn = np.empty((len(codes), length, len(layout.drawn)), dtype=np.int64)
    for b in range(length):
        if public is not None:
            codes[:, : layout.public_columns] = public[:, b]
        for i in layout.drawn:
            codes[:, i] = noise.levels(source.weights(i, codes))
        drawn[:, b] = codes[:, layout.public_columns :]
    return drawn
