"""Make an anchor from noisy tables of the outcome's bins within cells of public covariates.

Only the outcome is confidential. The bins, the cells of covariates and the number of records in
each cell are public, as covariates are. The model is then fitted to records made up from the noisy
counts, which costs nothing more (post-processing).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd, xr
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.stage import AnchorTables
from dpbayes.mechanisms.posterior.starts import mode_given
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for
from dpbayes.schema import Column
from dpbayes.stan.cells import NumberCells
from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.model import ColumnModel

SEED = 19  # public: the order in which made-up outcomes are assigned to public rows
MADE_UP = 4_000  # made-up records to fit: more would not make the anchor better
DECADES = 4.0  # powers of ten below the upper bound that bins on a log scale cover
MOST_LEFT_OUT = 0.25  # largest share of counts in bins that is left out at either end
AVERAGED = ("X", "Z")  # covariate data replaced by their means within a cell


def draw_anchor(
    tables: AnchorTables, records: BoundRecords, noise: Noise, held: Sequence[str] = ()
) -> xr.DataTree:
    """Draw the anchor: the mode given made-up records, as one draw of the parameters.

    Args:
        tables: the tables.
        records: the confidential records, of which only noisy counts are used.
        noise: the noise of the counts.
        held: parameters that are fixed at 0 in unconstrained coordinates.
    """
    model, task = records.model, records.task
    assert isinstance(model, ColumnModel)  # Anchored.check
    public = model.public(task.records, task.rows)
    design = model.formula.design(public).X
    bins = _Bins.of(model, tables.bins)
    of_record = bins.numbers(task.records[model.outcome.name])
    stride = max(1, tables.count * len(public) // MADE_UP)
    order = np.random.default_rng(SEED).permutation(len(public))
    cell_records: list[_CellRecords] = []
    for cell in _cells(tables, design):
        table = np.zeros((2, bins.count), dtype=np.int64)
        # Without public columns the public number of rows may differ from that of records.
        cell_of_record = cell if design.shape[1] else np.zeros(len(of_record), dtype=np.int64)
        np.add.at(table, (cell_of_record, of_record), 1)
        scale = scale_for(tables.count, tables.epsilon)
        noisy = noise.counts(table.ravel(), scale).reshape(table.shape)
        for k in np.unique(cell):
            members = order[cell[order] == k]
            chosen = members[::stride]
            counts = bins.likely(noisy[k], scale)
            cell_records.append(_CellRecords(members, chosen, bins.made_up(counts, len(chosen))))
    # From here on, only made-up records and public facts are used.
    blank = model.blank(task.records, task.rows)
    return _mode(model, public, blank, cell_records, held)


def _cells(tables: AnchorTables, design: Floats) -> Iterator[Ints]:
    """Cell of each public row, 0 or 1, by table; columns with the largest sd split tables."""
    spread = design.std(axis=0) if len(design) else np.zeros(design.shape[1])
    order = [k for k in np.argsort(-spread, kind="stable") if spread[k] > 0]
    if not order[: tables.covariates]:
        yield np.zeros(len(design), dtype=np.int64)
    for k in order[: tables.covariates]:
        yield (design[:, k] > design[:, k].mean()).astype(np.int64)


class _CellRecords(NamedTuple):
    """Made-up records of a cell.

    Attributes:
        members: indices of the public rows in the cell.
        rows: indices of the public rows for which a record is made up.
        values: made-up outcomes, shape (rows,).
    """

    members: Ints
    rows: Ints
    values: NDArray[Any]


def _mode(
    model: ColumnModel,
    public: pd.DataFrame,
    blank: Mapping[str, Any],
    parts: list[_CellRecords],
    held: Sequence[str],
) -> xr.DataTree:
    """Compute the mode given made-up records, each with the mean covariates of its cell.

    Counts within a cell ignore covariates: with the covariates of single rows, slopes would come
    out too flat (Berkson 1950 treats the converse).

    Args:
        public: the public columns.
        blank: program data without a confidential value.
        parts: the made-up records of all cells.
        held: parameters that are fixed at 0 in unconstrained coordinates.
    """
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.values for part in parts])
    frame = public.iloc[rows].reset_index(drop=True)
    frame[model.outcome.name] = model.outcome.validate(pd.Series(values)).array
    data = model.data(frame, blank["rows"])
    for key, value in model.design_data(frame).items():  # a user's constant may be called Z
        if key.partition(SEPARATOR)[0] in AVERAGED and np.size(value):
            of_row = np.asarray(blank[key])
            means = [np.tile(of_row[p.members].mean(axis=0), (len(p.rows), 1)) for p in parts]
            data[key] = np.concatenate(means)
    data |= model.constants_at(rows, len(public))
    return mode_given(model, data, len(rows), held)


@dataclass(frozen=True)
class _Bins:
    """Public bins of an outcome: its levels, or intervals between edges."""

    column: Column
    cells: NumberCells | None

    @classmethod
    def of(cls, model: ColumnModel, bins: int) -> _Bins:
        column = model.outcome
        if column.levels:
            return cls(column, None)
        assert column.lower is not None  # PosteriorMechanism.check
        assert column.upper is not None
        logarithm = model.family is not None and model.family.scaling == "upper"
        whole = column.type == "count"
        low, high = float(column.lower), float(column.upper)
        if whole:  # each bin holds at least one integer, and bins grow wider upwards
            edges = low + np.round(np.geomspace(1, high - low + 2, bins + 1)) - 1
            return cls(column, NumberCells(tuple(np.unique(edges).tolist()), ()))
        edges = np.linspace(low, high, bins + 1)
        if model.family is not None and model.family.open_at == ("lower", "upper"):
            # A density may be infinite at both bounds: bins have equal mass under the arcsine law.
            edges = low + (high - low) * np.sin(np.linspace(0, np.pi / 2, bins + 1)) ** 2
        if logarithm:
            least = low if low > 0 else high / 10**DECADES
            edges = np.concatenate([[low], np.geomspace(least, high, bins)])
        spaced = [low]
        for edge in edges[1:-1]:
            neighbours = [*spaced[-1:], high, *column.atoms]
            if all(abs(edge - other) >= column.step for other in neighbours):
                spaced.append(float(edge))
        return cls(
            column,
            NumberCells(
                tuple(np.union1d([*spaced, high], column.atoms).tolist()),
                tuple(map(float, column.atoms)),
            ),
        )

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.column.levels) if self.cells is None else self.cells.count

    def numbers(self, values: pd.Series) -> Ints:
        """Index of the bin of each value, from 0."""
        if self.cells is None:
            return np.asarray(values.cat.codes, dtype=np.int64)
        return self.cells.numbers(np.asarray(values, dtype=float)) - 1

    def likely(self, noisy: Ints, scale: float) -> Floats:
        """Likely counts given noisy ones: at least 0, and for levels above 0.

        If no outcome had a rare level, the mode given them would be at an infinite parameter. For
        levels the result is the mean of all counts from 0, each weighted by the density of the
        noise that it implies.

        Most bins of a number are empty. What noise puts into those far from all outcomes would
        draw the mode to them: as many counts as it may be are left out at either end, up to half.

        Args:
            noisy: noisy counts by bin.
            scale: scale of the Laplace noise.
        """
        counts = np.maximum(noisy, 0).astype(float)
        if self.cells is None:
            decay = np.exp(
                -counts / scale
            )  # density of the noise at a true count of 0, over that of its mode
            return np.asarray(counts + (scale + counts) * decay / (2 - decay))
        spread = np.where(self._single & (counts > counts.sum() / 2), 0.0, counts)
        by_noise = np.count_nonzero(spread) * scale
        ends, left_out = np.cumsum(spread), min(spread.sum() * MOST_LEFT_OUT, by_noise)
        inner = np.minimum(ends, ends[-1] - left_out) - np.maximum(ends - spread, left_out)
        return np.where(spread > 0, np.maximum(inner, 0.0), counts)

    @property
    def _single(self) -> NDArray[np.bool_]:
        """Whether each bin of a number holds a single value, shape (bins,)."""
        assert self.cells is not None
        return np.diff(self.cells.ends).ravel() <= (1.0 if self.column.type == "count" else 0.0)

    def made_up(self, counts: Floats, size: int) -> NDArray[Any]:
        """Make up outcomes in proportion to counts, spread evenly inside each bin.

        If all counts are 0, the bins have equal shares.

        Args:
            counts: counts by bin, at least 0.
            size: number of outcomes.
        """
        share = counts if counts.sum() else np.ones_like(counts)
        ends = np.cumsum(share) / share.sum()
        at = (np.arange(size) + 0.5) / max(size, 1)
        number = np.minimum(np.searchsorted(ends, at, side="right"), self.count - 1)
        if self.cells is None:
            return np.asarray(self.column.levels, dtype=object)[number]
        before = ends[number] - share[number] / share.sum()
        inside = np.clip((at - before) * share.sum() / share[number], 0, 1)
        if self.column.type == "count":  # the whole numbers from an edge to before the next
            low, high = self.cells.ends[number].T
            whole = np.minimum(low + np.floor(inside * (high - low)), high - 1)
            return np.asarray(whole, dtype=np.int64)
        return np.asarray(self.cells.values(number + 1 + inside - 0.5))
