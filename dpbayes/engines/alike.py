"""Unique rows: a program evaluates equal records once, with their number as a frequency weight.

Which records are equal, and so how many rows a program is given, is confidential, as is n where it
is not public. It stays with the sampler: a row's term is clamped first and then multiplied by its
frequency (``include/pseudo_likelihood.stan``), and results per record are given for every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Ints
from dpbayes.core.lazy import pd
from dpbayes.stan.program import MULTIPLICITY

# Copies of the first row at both ends of padded rows: vectorised functions treat the ends and a
# remainder differently.
LANES = 16
WORTH = 0.5  # unique rows per record; above it merging saves too little, so no rows are merged


@dataclass(frozen=True, eq=False)
class UniqueRows:
    """A partition of n records into kinds; records of one kind are equal.

    Attributes:
        of: shape (n,), the row of each record's kind, in the order of first appearance.
        size: number of rows: kinds, and copies of the first.
        lanes: copies of the first row at either end, which stand for no record.
    """

    of: Ints
    size: int
    lanes: int = 0

    @classmethod
    def each(cls, n: int) -> UniqueRows:
        """Make a partition in which each record is a kind of its own."""
        return cls(np.arange(n), n)

    @classmethod
    def among(cls, columns: Mapping[str, NDArray[Any]], n: int) -> UniqueRows:
        """Partition n records by equality in all columns, each with one value or row per record.

        Records are compared bit by bit: 0 and -0 are equal numbers, but a program may give them
        different terms. Merged into one row, a record's term would depend on another's presence.

        If there are more than n/2 kinds, each record becomes a kind of its own.
        """
        kinds, size = np.zeros(n, dtype=np.int64), 1
        for values in columns.values():
            for column in values.reshape(n, -1).T:
                codes, levels = pd.factorize(_bits(column))
                kinds, pairs = pd.factorize(kinds * len(levels) + codes)
                size = len(pairs)
                if size > WORTH * n:
                    return cls.each(n)
        return cls(kinds, size)

    def padded(self) -> UniqueRows:
        """Add copies at both ends, so that no record has another last bit beside other records."""
        return UniqueRows(self.of + LANES, self.size + 2 * LANES, LANES)

    @property
    def each_its_own(self) -> bool:
        """Whether rows and records are the same."""
        return not self.lanes and self.size == len(self.of)

    @cached_property
    def rows(self) -> Ints:
        """Index of the record that each row holds, the first of its kind; shape (size,)."""
        first = np.zeros(self.size, dtype=np.int64)
        first[self.of[::-1]] = np.arange(len(self.of))[::-1]
        return first

    @cached_property
    def counts(self) -> Ints:
        """Number of records that each row stands for, shape (size,)."""
        return np.bincount(self.of, minlength=self.size)

    def data(self, data: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Reduce program data to one row per kind, with its multiplicity."""
        if self.each_its_own:
            return dict(data)
        unique = {name: values[self.rows] for name, values in columns.items()}
        return {**data, **unique, "n": self.size, MULTIPLICITY: self.counts}

    def each_record(self, values: NDArray[Any]) -> NDArray[Any]:
        """Expand values by kind, shape (size,), to values by record, shape (n,)."""
        return values if self.each_its_own else values[self.of]


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Convert values to integers that are equal only if the values agree to the last bit."""
    return values.copy().view(np.int64) if values.dtype == np.float64 else values
