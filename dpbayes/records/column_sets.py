"""Small sets of columns that together tell records apart, to recognise a table by part of them.

A table without some of its columns has other rows, and often no single column that tells records
apart. But it still has, for example, age, hours and region, and these three tell records apart. The
sets are found by a search tree, as in Reiter (1987): columns are added, the most telling first,
until they tell records apart; then the same is done without each column of that set, and so on. So
for every few columns that may be left out, there is a set without them. A larger table, of which
this one may be a part, needs more columns: so each set is continued by the next few. Both tables
search by the same rule, whatever their number of records, and so arrive at common sets.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.records.fingerprint import cell_texts, encoded

MOST_NAMED = 128  # sets whose columns count by name and value
MOST_UNNAMED = 32  # sets whose columns count by value alone, for columns that were renamed
MOST_COLUMNS = 12  # of a set; more hardly ever stay together when columns are left out
MORE = 3  # columns by which a set is continued; the longer sets do not count among the above
LEAST_GAIN = 1.01  # times as many distinct rows, for which a column is added
MOST_TRIED = 1024  # sets of columns whose removal is tried, in each search
# Hashes that are kept of a set: one for so many records, within these limits. Of a part with n of N
# records n / N of them are compared, and no fewer than nine tell a part from chance.
KEPT_OF, KEPT_LEAST, KEPT_MOST = 16, 512, 4096
KEPT_LONGER = 128  # hashes of a longer set, of a table that may be a part of a larger one
# Hashes that are looked at in the search, of those below a bound: the number of distinct rows
# then has a standard error of about 1 %.
LOOKED_AT = 2**12
# Share of rows that other persons, with the same margins, may have in common with the records.
MOST_BY_CHANCE = 0.2

Hashes = NDArray[np.uint64]
UPPER = np.uint64(0xFFFFFFFF00000000)


def hashed_sets(records: pd.DataFrame, salt: str, distinct: float) -> Iterator[tuple[int, Hashes]]:
    """Yield the number of distinct rows and the smallest hashes, for each set of columns.

    Args:
        records: n validated records.
        salt: key of the hashes, hex.
        distinct: smallest number of distinct rows per record of a set. A column that has as many
            by itself belongs to no set.
    """
    if len(records.columns) < 2 or not len(records):
        return
    key = bytes.fromhex(salt)
    columns = [_Column.of(records[name], str(name), key) for name in sorted(records.columns)]
    columns = [column for column in columns if column.levels < distinct * len(records)]
    enough = distinct * len(records)
    for most, named in ((MOST_NAMED, True), (MOST_UNNAMED, False)):
        columns.sort(key=lambda column: column.order(named=named))
        table = _Hashed.of(columns, len(records), named=named)
        whole = int(np.clip(len(records) // KEPT_OF, KEPT_LEAST, KEPT_MOST))
        for chosen, longer in _search(table, enough, most):
            rows = table.distinct(table.cells[list(chosen)].sum(axis=0))
            most_kept = KEPT_LONGER if longer else whole
            # Half of a hash is dropped: a whole one could be inverted to a sum of cell hashes.
            kept = np.unique(rows[: 2 * most_kept] & UPPER)[:most_kept]
            yield round(rows.size / table.part), kept


@dataclass(frozen=True, eq=False)
class _Column:
    """Keyed hashes of the values of a column.

    Attributes:
        name: keyed hash of the column's name.
        values: keyed hash of each value, shape (n,).
        levels: number of different values.
        coincidence: probability that two random records have the same value.
        usual: hash of the most frequent value.
    """

    name: np.uint64
    values: Hashes
    levels: int
    coincidence: float
    usual: np.uint64

    @classmethod
    def of(cls, column: pd.Series, name: str, key: bytes) -> _Column:
        codes, levels = pd.factorize(column, use_na_sentinel=False)
        texts = cell_texts(pd.Series(levels))
        keyed = b"".join(hmac.digest(key, encoded(text), "sha256")[:8] for text in texts)
        hashes = np.frombuffer(keyed, "<u8").astype(np.uint64)
        shares = np.bincount(codes) / len(codes)
        of_name = hmac.digest(key, b"name\x1d" + encoded(name), "sha256")[:8]
        number = np.uint64(int.from_bytes(of_name, "little"))
        usual = hashes[shares.argmax()]
        return cls(number, hashes[codes], len(levels), float(shares @ shares), usual)

    def order(self, *, named: bool) -> tuple[int, int]:
        """Place among the columns, the most telling first: the same in a part of the table.

        How much a column tells is rounded to a power of two, as it differs between the parts.
        """
        return round(np.log2(self.coincidence)), int(self.name if named else self.usual)


@dataclass(frozen=True, eq=False)
class _Hashed:
    """Hashed cells of a table. The hash of a row is mixed from the sum over a set of columns.

    Attributes:
        cells: hashes of the cells, shape (columns, n).
        others: the same with each column in random order by itself: made-up persons with the same
            margins.
        part: share of all hash values that is looked at.
    """

    cells: Hashes
    others: Hashes
    part: float

    @classmethod
    def of(cls, columns: Sequence[_Column], n: int, *, named: bool) -> _Hashed:
        hashes = [_mixed(c.values ^ c.name) if named else c.values for c in columns]
        cells = np.array(hashes, dtype=np.uint64).reshape(len(columns), n)
        rng = np.random.default_rng(n)
        part = 0.5 ** max(0, (n // LOOKED_AT).bit_length() - 1)
        return cls(cells, rng.permuted(cells, axis=1), part)

    def distinct(self, sums: Hashes) -> Hashes:
        """Hashes of the distinct rows with these sums, of those that are looked at; ascending."""
        rows = _mixed(sums)
        if self.part < 1:
            rows = rows[rows <= np.uint64(self.part * (2**64 - 1))]
        rows.sort()  # faster than np.unique
        first = np.concatenate([[True], rows[1:] != rows[:-1]])[: rows.size]
        distinct: Hashes = rows[first]
        return distinct

    def first(self, without: frozenset[int], enough: float) -> list[tuple[int, ...]]:
        """Add columns in order until their rows tell records apart, and then up to ``MORE``.

        Returns:
            The sets that tell records apart, each with one column more than the one before.
        """
        telling: list[tuple[int, ...]] = []
        chosen: list[int] = []
        sums, size = np.zeros(self.cells.shape[1], dtype=np.uint64), 0
        every = [column for column in range(len(self.cells)) if column not in without]
        # Twice: numbers of persons and waves tell all rows apart, but are those of other panels,
        # too. Then columns count that were passed over, as they told nothing more apart.
        for column in every + every:
            if column in chosen:
                continue
            longer = sums + self.cells[column]
            rows = self.distinct(longer)
            if size < enough * self.part and rows.size < LEAST_GAIN * size:
                continue
            chosen.append(column)
            sums, size = longer, rows.size
            if size >= enough * self.part and (telling or self._tells(chosen, rows)):
                telling.append(tuple(chosen))
            if len(chosen) == MOST_COLUMNS or len(telling) > MORE:
                break
        return telling

    def _tells(self, chosen: Sequence[int], rows: Hashes) -> bool:
        """True if other persons with the same margins have few of these rows."""
        others = self.distinct(self.others[list(chosen)].sum(axis=0))
        common = np.intersect1d(rows, others, assume_unique=True).size
        return common < MOST_BY_CHANCE * min(rows.size, others.size)


def _search(table: _Hashed, enough: float, most: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield sets of columns with at least ``enough`` distinct rows, by numbers of columns.

    Each comes with False, or with True if it is longer than its table needs.
    """
    known: list[tuple[frozenset[int], list[tuple[int, ...]]]] = []
    found: set[tuple[int, ...]] = set()
    continued: set[tuple[int, ...]] = set()
    tried = {frozenset[int]()}
    queue = deque(tried)
    while queue and len(found) < most:
        without = queue.popleft()
        # Columns that are left out, but were not reached before, change nothing.
        sets = next((s for w, s in known if w <= without and without.isdisjoint(s[-1])), None)
        if sets is None:
            sets = table.first(without, enough)
        if not sets:
            continue
        known.append((without, sets))
        first, *longer = sets
        if first not in found:
            found.add(first)
            yield first, False
        for chosen in longer:
            if chosen not in continued:
                continued.add(chosen)
                yield chosen, True
        for column in first:
            further = without | {column}
            if further not in tried and len(tried) < MOST_TRIED:
                tried.add(further)
                queue.append(further)


def _mixed(hashes: Hashes) -> Hashes:
    """Finaliser of SplitMix64 (Steele, Lea & Flood, 2014): each bit depends on all bits."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
