"""Fine levels of columns: public bins, and their division into parts by noisy counts.

The bins of a numeric column are made from public facts: narrow where values may be, not where they
are. Noisy counts of the bins say where they are. Bins with many records are then divided, and the
parts are counted. Where a part has many more records than its neighbours, its roundest number
becomes a level of its own, and all levels are counted with the rest of the column's budget.
Everything here is computed from noisy counts and public facts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.tables.cells import Axis, grid_numbers

FIRST, SECOND = 0.2, 0.2  # shares of a divided column's budget for bins, and for a look for heaps
RECORDS = 8.0  # least expected records of a part, in sds of the noise of its count
MOST_PARTS = 256  # parts of all bins of a column together
MOST_HEAPS = 32  # numbers of a column that become levels of their own
CLEAR = 6.0  # sds of the noise by which a heap exceeds what its neighbours let expect
WORTH = 0.25  # parts that n records could fill, per public bin, from which on bins are divided


@dataclass(frozen=True)
class CoarserCounts:
    """Noisy counts of a column's levels, made before these were divided.

    Attributes:
        counts: noisy counts of B cells, shape (B,).
        member: membership matrix, shape (B, K): 1 where a cell contains a level.
        sd: sd of the noise in ``counts``.
    """

    counts: Floats
    member: Floats
    sd: float


@dataclass(frozen=True)
class ColumnLevels:
    """Public facts about the fine levels of one column, and noisy counts that divided its bins.

    Attributes:
        size: number of fine levels.
        values: a number for each level of an ordered column, else None; NaN for the last level
            where it stands for missing values.
        shares: shares of the fine levels if the column is public, else None.
        atoms: levels that are single values among bins.
        axis: the levels as cells of the column; None where only their numbers matter.
        divisible: whether noisy counts may divide its bins.
        coarser: counts of the bins before they were divided, and of their parts; empty if they were
            not.
    """

    size: int
    values: Floats | None
    shares: Floats | None = None
    atoms: tuple[int, ...] = ()
    axis: Axis | None = None
    divisible: bool = False
    coarser: tuple[CoarserCounts, ...] = ()

    @classmethod
    def of(cls, axis: Axis, shares: Floats | None, *, divisible: bool) -> ColumnLevels:
        """Levels of an axis.

        Args:
            divisible: whether its bins may be divided, if some contain several values of the grid.
        """
        atoms = () if axis.edges is None else tuple(np.flatnonzero(axis.ranges[2]).tolist())
        several = divisible and axis.edges is not None and bool((room(axis) > 1).any())
        return cls(axis.size, values_of(axis), shares, atoms, axis, several)

    @property
    def curve(self) -> Mask:
        """Mask of levels whose shares vary smoothly from one to the next, shape (size,)."""
        if self.values is None:
            return np.zeros(self.size, dtype=bool)
        on_curve = np.isfinite(self.values)
        on_curve[list(self.atoms)] = False
        return on_curve

    @property
    def offset(self) -> Floats | None:
        """Prior log shares up to a constant: parts of a bin are alike, bins do not depend on it."""
        if not self.coarser:
            return None
        member = self.coarser[0].member
        return np.asarray(-np.log(member.sum(axis=1) @ member))

    @property
    def sums(self) -> list[tuple[Floats, Floats, float]]:
        """Earlier counts as sums of levels, as ``reconciled`` takes them."""
        return [(coarser.counts, coarser.member, coarser.sd) for coarser in self.coarser]

    @property
    def most(self) -> int:
        """Public upper bound of the number of levels, whatever the noisy counts are."""
        if not self.divisible or self.axis is None or self.axis.edges is None:
            return self.size
        bins = len(self.axis.edges) - 1
        return self.size - bins + max(bins, MOST_PARTS) + MOST_HEAPS

    def by(self, counts: Floats, sd: float, finer_sd: float) -> ColumnLevels:
        """Divide the bins by their noisy counts.

        Args:
            counts: noisy counts of the levels, with noise of ``sd``.
            finer_sd: sd of the noise that the parts' counts will have together.
        """
        assert self.axis is not None
        return self._on(divided(self.axis, counts, finer_sd), counts, sd)

    def with_heaps(self, counts: Floats, sd: float) -> ColumnLevels:
        """Make levels of the round numbers on which records seem to heap, by noisy counts.

        Args:
            counts: noisy counts of the levels, with noise of ``sd``.
        """
        assert self.axis is not None
        return self._on(with_heaps(self.axis, counts, sd), counts, sd)

    def _on(self, axis: Axis, counts: Floats, sd: float) -> ColumnLevels:
        assert self.axis is not None
        member = membership(self.axis, axis)
        earlier = (replace(coarser, member=coarser.member @ member) for coarser in self.coarser)
        coarser = (*earlier, CoarserCounts(counts, member, sd))
        return replace(ColumnLevels.of(axis, None, divisible=True), divisible=True, coarser=coarser)


def pooled(first: float, second: float) -> float:
    """Sd of the noise in the weighted mean of two counts of the same."""
    return float((first**-2 + second**-2) ** -0.5)


def worth_dividing(size: int, n: int, sd: float) -> bool:
    """Whether n records could fill enough parts of ``size`` levels, by public facts."""
    return n / (RECORDS * sd) >= WORTH * size


def room(axis: Axis) -> Ints:
    """Number of values of the grid in each bin that are no atoms with a cell of their own."""
    assert axis.edges is not None
    first, last = grid_numbers(axis.column, axis.edges[:-1], axis.edges[1:])
    numbers = last - first + 1
    for atom in _atoms(axis):
        numbers -= (first <= atom) & (atom <= last)
    return np.asarray(numbers, dtype=np.int64)


def divided(axis: Axis, counts: Floats, sd: float) -> Axis:
    """Divide bins so that each part is expected to contain enough records.

    Parts of a bin have equal numbers of values of the column's grid, as far as possible, and edges
    half-way between two of them.

    Args:
        counts: noisy counts of the cells of the axis, shape (size,).
        sd: sd of the noise that the parts' counts will have.
    """
    assert axis.edges is not None
    bins = np.flatnonzero(~axis.ranges[2])
    parts = _parts(counts[bins], np.maximum(room(axis), 1), RECORDS * sd)
    first, _ = grid_numbers(axis.column, axis.edges[:-1], axis.edges[1:])
    atoms = _atoms(axis)
    edges = [float(axis.edges[0])]
    for number, start, values, end in zip(parts, first, room(axis), axis.edges[1:], strict=True):
        last = start - 1 + np.arange(1, number) * values // number
        for atom in atoms[atoms >= start]:
            last += last >= atom
        edges += [*((last + 0.5) * axis.column.step).tolist(), float(end)]
    return replace(axis, edges=np.array(edges))


def _parts(counts: Floats, most: Ints, least: float) -> Ints:
    """Number of parts of each bin, from 1 to ``most``, with ``least`` records or more in each."""
    low, high = least, max(least, float(counts.sum()), 1.0)

    def parts(records: float) -> Ints:
        return np.clip(np.floor(counts / records), 1, most).astype(np.int64)

    if parts(low).sum() <= max(MOST_PARTS, len(counts)):
        return parts(low)
    for _ in range(60):  # the fewest records for which there are not too many parts
        middle = (low + high) / 2
        low, high = (
            (low, middle) if parts(middle).sum() <= max(MOST_PARTS, len(counts)) else (middle, high)
        )
    return parts(high)


def with_heaps(axis: Axis, counts: Floats, sd: float) -> Axis:
    """Make atoms of the roundest numbers of bins with many more records than their neighbours.

    People round what they report, and many have none of something: such heaps would be spread over
    a bin. Where records heap on a number that is not round, the atom only has few records.

    Args:
        counts: noisy counts of the cells of the axis, with noise of ``sd``, shape (size,).
    """
    assert axis.edges is not None
    column = axis.column
    if column.calendar is not None:
        return axis  # days have no round numbers
    values = np.maximum(room(axis), 1)
    of_bins = counts[np.flatnonzero(~axis.ranges[2])]
    # For each neighbour: values of the grid in the bin, relative to those in the neighbour.
    ratios = (np.r_[np.inf, values[1:] / values[:-1]], np.r_[values[:-1] / values[1:], np.inf])
    counts_beside = (np.r_[0.0, of_bins[:-1]], np.r_[of_bins[1:], 0.0])
    excess = np.full(len(values), np.inf)
    for ratio, count in zip(ratios, counts_beside, strict=True):
        own = np.where(np.isfinite(ratio), ratio, 0.0)
        beyond = of_bins - own * np.maximum(count, 0.0)
        excess = np.minimum(excess, beyond / (sd * np.sqrt(1 + own**2)))
    first, last = grid_numbers(column, axis.edges[:-1], axis.edges[1:])
    clear = [k for k in np.argsort(-excess)[:MOST_HEAPS] if excess[k] > CLEAR and values[k] > 1]
    found = {roundest(int(first[k]), int(last[k])) for k in clear}
    new = sorted(found - set(map(int, _atoms(axis))))
    heaps = [float(column.rounded_numbers(np.array(number * column.step))) for number in new]
    return replace(axis, heaps=(*axis.heaps, *heaps))


def roundest(first: int, last: int) -> int:
    """The multiple of the largest 1, 2 or 5 times a power of ten among whole numbers."""
    if first <= 0 <= last:
        return 0
    powers = [10**k for k in range(len(str(max(-first, last))), -1, -1)]
    for unit in itertools.chain.from_iterable((5 * p, 2 * p, p) for p in powers):
        number: int = -(-first // unit) * unit
        if number <= last:
            return number
    raise AssertionError("1 divides every number")


def membership(axis: Axis, finer: Axis) -> Floats:
    """Membership matrix of the cells of ``finer`` in those of ``axis``, whose bins it divides."""
    assert axis.edges is not None
    assert finer.edges is not None
    cells, (low, _, parts) = axis.ranges[2], finer.ranges
    of = np.empty(finer.size, dtype=np.int64)
    middle = (finer.edges[:-1] + finer.edges[1:]) / 2
    of[np.flatnonzero(~parts)] = np.flatnonzero(~cells)[np.searchsorted(axis.edges, middle) - 1]
    of[np.flatnonzero(parts)] = axis.encode(pd.Series(low[parts]))
    of[finer.valued :] = axis.valued
    return np.asarray(of == np.arange(axis.size)[:, None], dtype=float)


def _atoms(axis: Axis) -> Floats:
    """Atoms with a cell of their own, in steps of the grid, in increasing order."""
    low, _, alone = axis.ranges
    return np.asarray(np.sort(np.rint(low[alone] / axis.column.step)))


def values_of(axis: Axis) -> Floats | None:
    """A number for each fine level of an ordered column, NaN for missing; None for others."""
    if axis.edges is None and axis.column.type != "ordinal":
        return None
    values = np.full(axis.size, np.nan)
    if axis.edges is None:
        values[: axis.valued] = np.arange(axis.valued)
    else:
        low, high, _ = axis.ranges
        values[: axis.valued] = (low + high) / 2
    return values


def axes_of(columns: Sequence[ColumnLevels]) -> tuple[Axis, ...]:
    """Axes of all columns."""
    return tuple(column.axis for column in columns if column.axis is not None)
