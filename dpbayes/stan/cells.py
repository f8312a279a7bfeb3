"""Public cells of a histogram: intervals between edges, and atoms, which have no width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import SchemaError
from dpbayes.schema import Column
from dpbayes.schema.columns import rising_edges

MOST_CELLS = 1000


@dataclass(frozen=True)
class NumberCells:
    """Cells of a numeric column in ascending order, from public facts alone.

    Attributes:
        points: ends of the intervals in ascending order: edges, and atoms that split an interval.
        atoms: values that are cells of their own.
    """

    points: tuple[float, ...]
    atoms: tuple[float, ...]

    @classmethod
    def of(cls, column: Column, bins: int | Sequence[float]) -> NumberCells:
        """Build the cells of a column with bounds.

        Args:
            column: numeric column with declared bounds.
            bins: number of bins of equal width, or their edges, of which the outer ones are the
                bounds.
        Raises:
            SchemaError: ``bins`` is neither, or its edges do not rise from bound to bound.
        """
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        low, high = float(column.lower), float(column.upper)
        if isinstance(bins, int) and not isinstance(bins, bool) and 2 <= bins <= MOST_CELLS:
            edges = np.linspace(low, high, bins + 1)
        else:
            edges = _given(column, bins)
        points = np.union1d(edges, np.asarray(column.atoms, dtype=float))
        if (np.diff(points) < column.step).any():
            raise SchemaError(
                f"column {column.name!r}: bins = {bins!r:.60} are closer to each other, or to an "
                f"atom, than the values are, {column.step:g}. Take fewer."
            )
        return cls(tuple(points.tolist()), tuple(map(float, column.atoms)))

    @cached_property
    def _is_atom(self) -> NDArray[np.bool_]:
        return np.isin(self.points, self.atoms)

    @cached_property
    def _number(self) -> tuple[Ints, Ints]:
        """Cell of each point if it is an atom, and cell of the interval after it; from 0."""
        before = np.concatenate([[0], np.cumsum(1 + self._is_atom)[:-1]])
        return before, before + self._is_atom

    @property
    def count(self) -> int:
        """Number C of cells."""
        return len(self.points) - 1 + len(self.atoms)

    @cached_property
    def ends(self) -> Floats:
        """Lower and upper end of each cell, shape (C, 2)."""
        limits = np.empty((self.count, 2))
        atom, interval = self._number
        points = np.asarray(self.points)
        limits[atom[self._is_atom]] = points[self._is_atom, None]
        limits[interval[:-1]] = np.column_stack([points[:-1], points[1:]])
        return limits

    @property
    def shares(self) -> Floats:
        """Public prior shares of the cells, shape (C,), in proportion to width; they sum to 1.

        An atom has the average share of an interval.
        """
        width = np.diff(self.ends).ravel()
        bins = len(self.points) - 1
        return np.where(width > 0, width * bins / width.sum(), 1.0) / self.count

    def numbers(self, values: NDArray[Any]) -> Ints:
        """Return the number, from 1, of the cell that holds each value inside the bounds."""
        points = np.asarray(self.points)
        place = np.clip(np.searchsorted(points, values, side="right") - 1, 0, len(points) - 1)
        atom, interval = self._number
        on_atom = self._is_atom[place] & (points[place] == values)
        within = interval[np.minimum(place, len(points) - 2)]
        return np.where(on_atom, atom[place], within).astype(np.int64) + 1

    def values(self, numbers: Floats) -> Floats:
        """Convert cell numbers with fractions back to values; the inverse of ``numbers``.

        3.2 is at 0.7 of the third cell's width, as that cell covers 2.5 to 3.5.
        """
        cell = np.clip(np.rint(numbers), 1, self.count)
        low, high = self.ends[cell.astype(np.int64) - 1].T
        return np.asarray(low + (high - low) * np.clip(numbers - cell + 0.5, 0, 1))


def _given(column: Column, bins: object) -> Floats:
    """Check edges that the user listed and return them as floats."""
    listed = bins if isinstance(bins, list | tuple | np.ndarray) else ()
    numbers = all(
        isinstance(x, int | float | np.number) and not isinstance(x, bool) for x in listed
    )
    if not numbers or not 2 <= len(listed) <= MOST_CELLS + 1:
        raise SchemaError(
            f"column {column.name!r}: bins = {bins!r:.60} must be a number of bins from 2 to "
            f"{MOST_CELLS:,}, or a list of their edges, from public knowledge."
        )
    edges = rising_edges(column, bins, fewest=3)
    if edges is None:
        raise SchemaError(
            f"column {column.name!r}: bins = {bins!r:.60}: edges rise from the lower bound, "
            f"{column.lower:g}, to the upper one, {column.upper:g}, with one or more between."
        )
    return edges
