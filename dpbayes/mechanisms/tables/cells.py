"""Cells of a contingency table: public levels and bins, one axis per column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.errors import DataError, GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema import Column, Schema
from dpbayes.schema.columns import rising_edges

BIN_RULES = ("log", "sqrt", "scott")
NEAR = 1e-6  # distance from a multiple of a step, in steps, that rounding explains
REDRAWS = 20  # times that a number is drawn again which is an atom outside its own cell
MAX_CELLS = 5_000_000  # in one table; noise for a million cells takes OpenDP seven seconds
BinRule = str | int | Sequence[float]


@dataclass(frozen=True)
class Axis:
    """One column divided into public cells.

    Atoms of a numeric column are cells of their own among its bins; a column whose values may be
    missing has a last cell for them.

    Attributes:
        column: declaration of the column.
        edges: edges of the B bins of a numeric column, shape (B + 1,); None for levels. Bins are
            closed on the left, the last one on both sides. Edges of whole numbers lie between two.
        heaps: atoms beside those that the column declares. What noisy counts make known is not kept
            in the declaration, which refuses more than some atoms.
    """

    column: Column
    edges: Floats | None = None
    heaps: tuple[float, ...] = ()

    @cached_property
    def ranges(self) -> tuple[Floats, Floats, Mask]:
        """Lower and upper ends of bins and atoms in order, and a mask of atoms, shape (valued,)."""
        assert self.edges is not None
        low, high = self.edges[:-1], self.edges[1:]
        if self.column.whole:
            low, high = np.ceil(low), np.floor(high)
        # A bin that holds only the atom already stands for it.
        first, last = grid_numbers(self.column, low, high)
        declared = (*self.column.atoms, *self.heaps)
        places = np.rint(np.array(declared, dtype=float) / self.column.step)
        taken = [((first == place) & (last == place)).any() for place in places]
        atoms = [a for a, alone in zip(declared, taken, strict=True) if not alone]
        alone = np.repeat([False, True], [len(low), len(atoms)])
        low, high = np.append(low, atoms), np.append(high, atoms)
        order = np.lexsort((high, low))
        return low[order], high[order], alone[order]

    @property
    def valued(self) -> int:
        """Number of cells other than the one for missing values."""
        return len(self.column.levels) if self.edges is None else len(self.ranges[0])

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.valued + self.column.optional

    @property
    def names(self) -> list[str]:
        """Names of the cells, shape (size,)."""
        missing = ["missing"] * self.column.optional
        if self.edges is None:
            return [*map(str, self.column.levels), *missing]
        ends = zip(*self.ranges[:2], strict=True)
        named = [[self._shown(end) for end in pair] for pair in ends]
        return [a if a == b else f"{a} to {b}" for a, b in named] + missing

    def named(self, cells: Iterable[int]) -> list[str]:
        """Names of these cells, without the one for missing values."""
        return [self.names[k] for k in cells if k < self.valued]

    def _shown(self, end: float) -> str:
        return f"{end:g}" if self.column.calendar is None else self.column.shown(int(end))

    def encode(self, values: pd.Series) -> Ints:
        """Cell numbers, shape (n,), of validated values."""
        if self.edges is None:
            codes = np.asarray(values.cat.codes, dtype=np.int64)
            return np.where(codes < 0, self.valued, codes)
        numbers = values.to_numpy(dtype=float)
        low, _, alone = self.ranges
        place = np.searchsorted(self.edges, numbers, side="right") - 1
        cells = np.flatnonzero(~alone)[np.minimum(place, len(self.edges) - 2)]
        for cell in np.flatnonzero(alone):
            cells[numbers == low[cell]] = cell
        return np.where(np.isnan(numbers), self.valued, cells).astype(np.int64)

    def decode(self, codes: Ints, rng: np.random.Generator) -> pd.Series:
        """Levels, or uniform draws inside bins, for cell numbers; NaN or None if missing.

        Numbers of a continuous column are multiples of its step.
        """
        present = codes < self.valued
        if self.edges is None:
            levels = np.empty(self.size, dtype=object)
            levels[: self.valued] = self.column.levels
            decoded = pd.Series(levels[codes], dtype=object)
            alike = len({type(level) for level in self.column.levels}) == 1
            return decoded.infer_objects() if alike and not self.column.optional else decoded
        inside = np.minimum(codes, self.valued - 1)
        if not self.column.whole:
            return pd.Series(self._continuous(inside, rng)).where(present)
        numbers = self._whole(inside, rng)
        return pd.Series(numbers).where(present) if self.column.optional else pd.Series(numbers)

    def _continuous(self, cells: Ints, rng: np.random.Generator) -> Floats:
        """Draw numbers uniformly inside cells; an atom is drawn from its own cell only."""
        low, high, alone = self.ranges
        lower, upper = require_bounds(self.column)
        # Rounding takes back what is beyond a bound: without it a bound would come up half as
        # often as other multiples of the step.
        half = self.column.step / 2
        low = np.where(alone | (low > lower), low, lower - half)[cells]
        high = np.where(alone | (high < upper), high, upper + half)[cells]
        numbers = self.column.rounded_numbers(rng.uniform(low, high))
        atoms = self.ranges[0][alone]
        for _ in range(REDRAWS if len(atoms) else 0):
            off = np.flatnonzero(np.isin(numbers, atoms) & ~alone[cells])
            if not len(off):
                break
            numbers[off] = self.column.rounded_numbers(rng.uniform(low[off], high[off]))
        return numbers

    def _whole(self, cells: Ints, rng: np.random.Generator) -> Ints:
        """Draw whole numbers uniformly inside cells; an atom is drawn from its own cell only."""
        low, high, alone = self.ranges
        atoms = low[alone]
        within = (atoms >= low[:, None]) & (atoms <= high[:, None]) & ~alone[:, None]
        within[within.sum(axis=1) > high - low] = False  # a bin of atoms only has no records
        numbers = (high - low + 1 - within.sum(axis=1)).astype(np.int64)
        values = low[cells].astype(np.int64) + rng.integers(0, numbers[cells])
        # Skip the atoms in increasing order: draws at or above one move up by one.
        for k, atom in enumerate(atoms):
            values += within[cells, k] & (values >= atom)
        return np.asarray(values, dtype=np.int64)


def grid_numbers(column: Column, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """First and last multiple of the column's step from ``low`` to ``high``, in steps."""
    return np.ceil(low / column.step - NEAR), np.floor(high / column.step + NEAR)


def make_axis(column: Column, rule: BinRule, sigma: float | None, rows: int) -> Axis:
    """Divide a column by its levels, or by a bin rule that uses public facts only.

    Rules: ``log`` ceil(ln n), ``sqrt`` ceil(sqrt n), ``scott`` width 3.5 sigma n^(-1/3) with a
    public sigma, a number of bins, or their edges. n is the public number of rows.

    Source: scott-1992; bowen-liu-2020, section 4.2.

    Raises:
        SchemaError: a count without upper bound. GuaranteeError: a bad rule.
    """
    if column.levels:
        return Axis(column)
    lower, upper = require_bounds(column)
    width = upper - lower + (1 if column.whole else 0)  # whole numbers have width 1
    if isinstance(rule, str):
        bins = _count_bins(column, rule, sigma, width, rows)
    elif isinstance(rule, int):
        bins = rule
    else:
        return Axis(column, _given_edges(column, rule, lower, upper))
    if not 1 <= bins <= MAX_CELLS:
        raise GuaranteeError(
            f"bins of column {column.name!r}: {bins} must be from 1 to {MAX_CELLS:,}."
        )
    if not column.whole:
        return Axis(column, np.linspace(lower, upper, bins + 1))
    cuts = np.round(np.linspace(0, width, min(bins, int(width)) + 1))
    return Axis(column, lower + cuts - 0.5)


def require_bounds(column: Column) -> tuple[float, float]:
    """Public bounds of a numeric column; SchemaError if it has none."""
    if column.lower is None or column.upper is None:
        raise SchemaError(
            f"column {column.name!r}: this mechanism needs a public upper bound; add upper = ... "
            "(from documentation, never from the confidential data)."
        )
    return float(column.lower), float(column.upper)


def _count_bins(column: Column, rule: str, sigma: float | None, width: float, rows: int) -> int:
    if rule == "log":
        return max(1, math.ceil(math.log(rows)))
    if rule == "sqrt":
        return math.ceil(math.sqrt(rows))
    if rule != "scott":
        raise GuaranteeError(
            f"bins = {rule!r} of column {column.name!r}: expected {', '.join(BIN_RULES)}, a number "
            "of bins, or a list of edges."
        )
    if sigma is None or not 0 < sigma < math.inf:
        raise GuaranteeError(
            f"bins = 'scott' needs a public standard deviation of column {column.name!r}: "
            f"sigma = {{{column.name} = ...}} (from documentation; the one of the confidential "
            "data would be an unpaid disclosure)."
        )
    return max(1, math.ceil(width / (3.5 * sigma) * math.cbrt(rows)))


def _given_edges(column: Column, edges: Sequence[float], lower: float, upper: float) -> Floats:
    cuts = rising_edges(column, edges)
    if cuts is None:
        raise GuaranteeError(
            f"bins of column {column.name!r}: {edges!r} must be increasing edges from the lower "
            f"bound {lower:g} to the upper bound {upper:g}."
        )
    if not column.whole:
        return cuts
    if (cuts % 1 != 0).any():
        raise GuaranteeError(f"bins of column {column.name!r}: edges must be whole numbers.")
    # Bins are [a, b), the last one [a, b]: cut below each edge, and above the last.
    return np.append(cuts[:-1] - 0.5, upper + 0.5)


@dataclass(frozen=True)
class TableCells:
    """Cells of the synthesised columns within strata of the public ones.

    Attributes:
        public_axes: axes of public columns; their combinations are the strata.
        axes: axes of the columns to synthesise; their combinations are the cells.
    """

    public_axes: tuple[Axis, ...]
    axes: tuple[Axis, ...]

    @classmethod
    def of(
        cls,
        schema: Schema,
        rows: int,
        bins: BinRule | Mapping[str, BinRule] = "sqrt",
        sigma: Mapping[str, float] | None = None,
    ) -> TableCells:
        """Axes for every column of a schema, by public rules and the public number of rows.

        Raises:
            SchemaError, GuaranteeError: as raised by ``make_axis``; rules for unknown columns.
        """
        for setting, named in (("bins", bins), ("sigma", sigma or {})):
            for name in named if isinstance(named, Mapping) else ():
                if schema[name].levels:
                    raise GuaranteeError(
                        f"{setting}: column {name!r} has levels and needs no bins."
                    )

        def axis(column: Column) -> Axis:
            rule = bins.get(column.name, "sqrt") if isinstance(bins, Mapping) else bins
            return make_axis(column, rule, (sigma or {}).get(column.name), rows)

        columns = schema.columns.values()
        confidential = tuple(axis(c) for c in columns if not c.public)
        return cls(tuple(axis(c) for c in columns if c.public), confidential)

    @cached_property
    def size(self) -> int:
        """Number K of cells in one stratum, as an exact integer; it may exceed any memory."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def strata(self) -> int:
        """Number of strata."""
        return math.prod(axis.size for axis in self.public_axes)

    def require_memory(self) -> None:
        """Raise DataError if the table has more than ``MAX_CELLS`` cells.

        The message leaves out their number, which would disclose the noisy number of rows.
        """
        if self.strata * self.size > MAX_CELLS:
            columns = ", ".join(axis.column.name for axis in (*self.public_axes, *self.axes))
            raise DataError(
                f"the full cross-tabulation of {columns} has more than the {MAX_CELLS:,} cells "
                "that are held. Take fewer bins or merge levels in the schema, leave columns out, "
                "or take a mechanism without a table (multinomial-dirichlet, smoothed-histogram, "
                "modips with model sequential)."
            )

    def stratum(self, records: pd.DataFrame) -> Ints:
        """Stratum number of each record, shape (n,)."""
        return _ravel(self.public_axes, records)

    def codes(self, records: pd.DataFrame) -> Ints:
        """Cell of each record on each axis, shape (n, number of axes)."""
        return np.column_stack([axis.encode(records[axis.column.name]) for axis in self.axes])

    def cell(self, records: pd.DataFrame) -> Ints:
        """Cell number of each record within its stratum, shape (n,)."""
        return _ravel(self.axes, records)

    def counts(self, records: pd.DataFrame) -> Ints:
        """Exact counts of records by stratum and cell, shape (strata, K)."""
        self.require_memory()
        number = self.stratum(records) * self.size + self.cell(records)
        counts = np.bincount(number, minlength=self.strata * self.size)
        return counts.reshape(self.strata, self.size)

    def unravel(self, cells: Ints) -> Ints:
        """Split cell numbers into cells on each axis, shape (n, number of axes)."""
        return np.column_stack(np.unravel_index(cells, [axis.size for axis in self.axes]))

    def decode(self, codes: Ints, rng: np.random.Generator) -> pd.DataFrame:
        """Values of the synthesised columns for cells on each axis, shape (n, number of axes)."""
        return pd.DataFrame(
            {axis.column.name: axis.decode(codes[:, j], rng) for j, axis in enumerate(self.axes)}
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready number of cells, or edges of the bins, by column."""
        return {
            axis.column.name: axis.size if axis.edges is None else axis.edges.tolist()
            for axis in (*self.public_axes, *self.axes)
        }


def check_cells(
    schema: Schema, bins: BinRule | Mapping[str, BinRule], sigma: Mapping[str, float] | None
) -> None:
    """Raise SchemaError or GuaranteeError for columns and rules that define no cells."""
    check_bins(bins)
    if sigma is not None and not isinstance(sigma, Mapping):
        raise GuaranteeError(f"sigma = {sigma!r} must be a table by column, {{age = 12}}.")
    for name, value in (sigma or {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise GuaranteeError(f"sigma of column {name!r}: {value!r} must be a number above 0.")
    schema.confidential()
    # Any number of rows will do for this check; the actual one is not known yet.
    TableCells.of(schema, 1000, bins, sigma)


def check_bins(bins: BinRule | Mapping[str, BinRule]) -> None:
    """Raise GuaranteeError for rules that no column could have, even if none needs bins."""
    for rule in bins.values() if isinstance(bins, Mapping) else [bins]:
        if isinstance(rule, Sequence) and not isinstance(rule, str | bytes):
            good = len(rule) > 1 and all(map(_is_number, rule))
        elif isinstance(rule, str):
            good = rule in (*BIN_RULES, "auto")
        else:
            good = isinstance(rule, int) and _is_number(rule) and 1 <= rule <= MAX_CELLS
        if not good:
            raise GuaranteeError(
                f"bins = {rule!r}: expected {', '.join(BIN_RULES)}, a number of bins from 1 to "
                f"{MAX_CELLS:,}, or a list of edges; or a table with one of them for each column."
            )


def _is_number(value: Any) -> bool:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and bool(abs(value) < math.inf)


def _ravel(axes: tuple[Axis, ...], records: pd.DataFrame) -> Ints:
    number = np.zeros(len(records), dtype=np.int64)
    for axis in axes:
        number = number * axis.size + axis.encode(records[axis.column.name])
    return number
