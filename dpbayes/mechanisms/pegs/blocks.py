"""Building blocks, tables of counts by hash key, and the records that are drawn from them."""

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
MOST_WEIGHTS = 4_000_000  # that are held at once: chains x levels
_FINE = 2**40  # grains of a probability without a claim


class Conditionals(ABC):
    """Distributions of every column given the others. Confidential.

    Attributes:
        layout: of all columns.
    """

    layout: KeyLayout

    @abstractmethod
    def weights(self, column: int, codes: Ints) -> Ints:
        """Whole numbers proportional to the levels' probabilities, shape (chains, levels).

        Args:
            codes: levels of the chains at this step, shape (chains, columns).
        """

    def fresh(self, chains: int, length: int) -> Conditionals:
        """The same for so many other chains of this length, with nothing visited."""
        return self


def count_tables(keys: Sequence[Key], codes: Ints) -> Tables:
    """Records by key and level for each column, shape (rows, levels), in one pass over each.

    Source: park-ghosh-2014, eq. 5; figure 1.
    """
    found = {}
    for key in keys:
        cell = key.of(codes) * key.levels + codes[:, key.column]
        counts = np.bincount(cell, minlength=key.rows * key.levels).astype(np.int32)
        found[key.column] = counts.reshape(key.rows, key.levels)
    return found


class Counted(Conditionals):
    """Counts by key with α more at every level: (n_ij + α) / (N_j + C_i α).

    A row without records is uniform.

    Source: park-ghosh-2014, eq. 4; section 3.3.

    Args:
        counts: of each column, shape (rows, levels).
        alpha: the same for every row.
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
    """``Counted`` where every chain finds a row as counted once, and uniform from then on.

    Source: park-ghosh-2014, section 3.4; figure 3.

    Guarantee: that of ``cost.Sampler`` for ``reset``. Every visit notes its row, before the level
    is drawn and whatever it is.
    """

    def __init__(self, layout: KeyLayout, keys: Sequence[Key], counts: Tables, alpha: float):
        super().__init__(layout, keys, counts, alpha)
        self.alpha = alpha
        self.visited: dict[int, Ints] = {}  # rows by column, shape (chains, length)
        self.visits = dict.fromkeys(self.keys, 0)

    def fresh(self, chains: int, length: int) -> Conditionals:
        made = Resetting(self.layout, list(self.keys.values()), self.counts, self.alpha)
        made.visited = {i: np.empty((chains, length), dtype=np.int64) for i in self.keys}
        return made

    def weights(self, column: int, codes: Ints) -> Ints:
        row, visit = self.keys[column].of(codes), self.visits[column]
        visited = self.visited[column]
        again = (visited[:, :visit] == row[:, None]).any(axis=1)
        visited[:, visit] = row  # no more visits than there is room for: it would be an error
        self.visits[column] += 1
        counts = self.counts[column][row]
        counts[again] = 0
        return self._weights(column, counts)


class Diverse(Counted):
    """Counts by key with the α of each key that makes its entropy log l. No claim.

    Source: park-ghosh-2014, eq. 3; section 3.3 diversity.
    """

    def __init__(self, layout: KeyLayout, keys: Sequence[Key], counts: Tables, diversity: float):
        super().__init__(layout, keys, counts, 1.0)
        self.table = {
            column: np.ceil(diverse(found.astype(float), diversity) * _FINE).astype(np.int64)
            for column, found in counts.items()
        }

    def weights(self, column: int, codes: Ints) -> Ints:
        return self.table[column][self.keys[column].of(codes)]


def diverse(counts: Floats, diversity: float) -> Floats:
    """Probabilities (n + α)/(N + Cα), by row with the smallest α of entropy >= log l; (rows, C).

    The entropy grows with α. Bisection on a logarithmic scale, at last from above. Rows of which no
    α up to 10^9 N is enough are uniform; so are those without records, whose α is 0.

    Source: park-ghosh-2014, section 3.3 diversity.

    Args:
        diversity: l, from 1 to the number C of levels.
    """
    total = counts.sum(axis=1)
    found = np.full(counts.shape, 1 / counts.shape[1])
    some = total > 0
    plain = counts[some] / total[some, None]
    short = _entropy(plain) < np.log(diversity)
    found[np.flatnonzero(some)[~short]] = plain[~short]
    todo = np.flatnonzero(some)[short]
    if todo.size:
        n, big = counts[todo], total[todo, None]
        low, high = np.full((todo.size, 1), -30.0), np.full((todo.size, 1), np.log(1e9))
        for _ in range(60):  # α / N on a logarithmic scale
            middle = (low + high) / 2
            enough = (_entropy(_mixed(n, big * np.exp(middle))) >= np.log(diversity))[:, None]
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        mixed = _mixed(n, big * np.exp(high))
        reached = _entropy(mixed) >= np.log(diversity)
        found[todo[reached]] = mixed[reached]
    return found


def _mixed(counts: Floats, alpha: Floats) -> Floats:
    more = counts + alpha
    return np.asarray(more / more.sum(axis=1, keepdims=True))


def _entropy(p: Floats) -> Floats:
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=1))


def draw_blocks(
    source: Conditionals, start: Ints, length: int, noise: Noise, given: Ints | None = None
) -> Ints:
    """Chains of records, each drawn column by column from the one before.

    Source: park-ghosh-2014, eq. 1; section 3.4; figure 2.

    Args:
        start: public seeds of the chains, shape (chains, columns).
        length: B, records of a chain.
        given: public columns of every record, shape (chains, B, columns that stay); None without.
    Returns:
        Levels of the columns that are drawn, shape (chains, B, columns).
    """
    layout = source.layout
    most = max(1, MOST_WEIGHTS // max(layout.sizes))
    parts = []
    for first in range(0, len(start), most):
        here = slice(first, first + most)
        kept = None if given is None else given[here]
        codes = start[here].copy()
        own = source.fresh(len(codes), length)
        parts.append(_draw_chains(own, codes, length, noise, kept))
    return np.concatenate(parts)


def _draw_chains(
    source: Conditionals, codes: Ints, length: int, noise: Noise, given: Ints | None
) -> Ints:
    layout = source.layout
    found = np.empty((len(codes), length, len(layout.drawn)), dtype=np.int64)
    for b in range(length):
        if given is not None:
            codes[:, : layout.given] = given[:, b]
        for i in layout.drawn:
            codes[:, i] = noise.levels(source.weights(i, codes))
        found[:, b] = codes[:, layout.given :]
    return found
