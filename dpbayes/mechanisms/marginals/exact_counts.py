"""Exact counts of the records: the only code of ``marginals`` that reads confidential records."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.marginals.analyses import Moment, Products, slices
from dpbayes.mechanisms.marginals.budget import UNIT
from dpbayes.mechanisms.marginals.weighting import in_units, squares
from dpbayes.mechanisms.tables.cells import Axis, TableCells
from dpbayes.records.chunks import ChunkedTable, Table, nothing
from dpbayes.schema import Column as Declared
from dpbayes.schema.rules import Values, numbers_of
from dpbayes.schema.survey import Survey

# Numbers of two or three columns, in increasing order.
Some = tuple[int, ...]


@dataclass(frozen=True)
class FineCounts:
    """Records as fine levels, column by column. Confidential.

    Attributes:
        codes: shape (n, columns).
        sizes: number of fine levels by column.
        values: numbers of the columns that analyses use (``schema.rules``), shape (n,) each.
        records: the records, where bins may be divided.
        weights: what each record counts as, in whole UNITs, if the records have sampling weights;
            counts and sums are then in whole UNITs, too. Shape (n,).
    """

    codes: Ints
    sizes: Sequence[int]
    values: Values = field(default_factory=dict)
    records: pd.DataFrame | None = None
    weights: Ints | None = None

    def on(self, axes: Mapping[int, Axis]) -> FineCounts:
        """Counts on other fine levels of some columns."""
        assert self.records is not None
        codes, sizes = self.codes.copy(), list(self.sizes)
        for j, axis in axes.items():
            codes[:, j] = axis.encode(self.records[axis.column.name])
            sizes[j] = axis.size
        return replace(self, codes=codes, sizes=sizes)

    def margins(self) -> list[Ints]:
        """Exact counts of records by fine level, one array per column, shape (size,) each."""
        columns = enumerate(self.sizes)
        return [self._counted(self.codes[:, j], size) for j, size in columns]

    def _counted(self, cells: Ints, size: int) -> Ints:
        """Count the records of each cell, by their weights if they have some."""
        if self.weights is None:
            return np.bincount(cells, minlength=size)
        # Sums of whole numbers below 2^53 are exact.
        return np.bincount(cells, self.weights, size).astype(np.int64)

    def squares(self) -> list[Ints]:
        """Sums of the weights' squares (``weighting.squares``)."""
        assert self.weights is not None
        return [squares(self.weights)]

    def tables(self, choices: Sequence[Some], group_of: Sequence[Ints]) -> list[Ints]:
        """Exact contingency tables of groups, one for each choice of two or three columns.

        Args:
            choices: the choices of columns.
            group_of: the group of each fine level, by column.
        """
        sizes = [int(groups.max(initial=0)) + 1 for groups in group_of]
        group_codes = [groups[self.codes[:, j]] for j, groups in enumerate(group_of)]
        tables = []
        for columns in choices:
            shape = [sizes[j] for j in columns]
            cells = group_codes[columns[0]]
            for j in columns[1:]:
                cells = cells * sizes[j] + group_codes[j]
            tables.append(self._counted(cells, math.prod(shape)).reshape(shape))
        return tables

    def sums(self, moments: Sequence[Moment | Products]) -> list[Ints]:
        """Exact sums of moments or products over the records, in whole units, one array each."""
        return [self._sum(moment) for moment in moments]

    def _sum(self, moment: Moment | Products) -> Ints:
        parts = (
            self._weighted(
                moment.units({name: value[rows] for name, value in self.values.items()}), rows
            ).sum(axis=0)
            for rows in slices(len(self.codes), moment.size)
        )
        return functools.reduce(np.add, parts)

    def _weighted(self, units: Ints, rows: slice) -> Ints:
        """Entries of some records by their weights; none becomes larger, so no record longer."""
        if self.weights is None:
            return units
        weights = self.weights[rows].reshape(-1, *[1] * (units.ndim - 1))
        return np.asarray(np.sign(units) * (np.abs(units) * weights // UNIT))


@dataclass(frozen=True)
class ChunkedCounts:
    """Exact counts of records that are read in chunks and added up. Confidential.

    Counts are whole numbers, so that they do not depend on how records are divided into chunks.

    Attributes:
        table: records, of which one chunk at a time is in memory.
        cells: fine levels of all columns.
        used: columns that analyses use.
    """

    table: Table
    cells: TableCells
    used: Sequence[Declared]

    def squares(self) -> list[Ints]:
        """Return ``FineCounts.squares`` by one pass over the records."""
        return self._added(FineCounts.squares)

    def on(self, axes: Mapping[int, Axis]) -> ChunkedCounts:
        """Return ``FineCounts.on``; the records are encoded again when they are counted."""
        every = tuple(axes.get(j, axis) for j, axis in enumerate(self.cells.axes))
        return replace(self, cells=TableCells((), every))

    def margins(self) -> list[Ints]:
        """Return ``FineCounts.margins`` by one pass over the records."""
        return self._added(FineCounts.margins)

    def tables(self, choices: Sequence[Some], group_of: Sequence[Ints]) -> list[Ints]:
        """Return ``FineCounts.tables`` by one pass over the records for all tables."""
        return self._added(FineCounts.tables, choices, group_of)

    def sums(self, moments: Sequence[Moment | Products]) -> list[Ints]:
        """Return ``FineCounts.sums`` by one pass over the records for all moments."""
        return self._added(FineCounts.sums, moments)

    def _added(self, counted: Callable[..., list[Ints]], *arguments: Any) -> list[Ints]:
        parts = self.table.map(functools.partial(_counted, counted, self._counts, arguments))
        counts = [part for part in parts if part is not None]
        if counts:
            return functools.reduce(_sum, counts)
        return counted(self._counts(nothing(self.table.schema)), *arguments)

    @property
    def _counts(self) -> Callable[[pd.DataFrame], FineCounts]:
        """Function that codes a chunk as fine levels."""
        return functools.partial(_counts, self.cells, self.used, self.table.schema.survey)


def _counted(
    counted: Callable[..., list[Ints]],
    coded: Callable[[pd.DataFrame], FineCounts],
    arguments: Sequence[Any],
    records: pd.DataFrame,
) -> list[Ints] | None:
    """Count a chunk; None for one without records, which adds nothing."""
    return counted(coded(records), *arguments) if len(records) else None


def _counts(
    cells: TableCells, used: Sequence[Declared], survey: Survey | None, records: pd.DataFrame
) -> FineCounts:
    values = {column.name: numbers_of(column, records[column.name]) for column in used}
    weights = None if survey is None else in_units(survey.shares(records[survey.weights]))
    sizes = [axis.size for axis in cells.axes]
    return FineCounts(cells.codes(records), sizes, values, records, weights)


def _sum(counts: list[Ints], others: list[Ints]) -> list[Ints]:
    return [a + b for a, b in zip(counts, others, strict=True)]


def counts_of(
    table: Table, cells: TableCells, used: Sequence[Declared] = ()
) -> FineCounts | ChunkedCounts:
    """Exact counts of a table, held in memory as fine levels or read in chunks."""
    if isinstance(table, ChunkedTable):
        return ChunkedCounts(table, cells, used)
    return _counts(cells, used, table.schema.survey, table.frame)
