"""Equal records: a program evaluates each different one once, and counts those that it stands for.

Which records are equal, and so how many rows a program is given, is confidential, as n is where it
is not public. It stays with the chain: terms are clamped row by row and then counted
(``include/pseudo_likelihood.stan``), and what is said of records is said of each of them.
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

WORTH = 0.5  # rows to records, above which all are kept: most are different


@dataclass(frozen=True, eq=False)
class UniqueRows:
    """Records by kind: those of one kind are equal.

    Attributes:
        of: shape (n,), the kind of each record, from 0 in the order in which kinds appear.
        size: number of kinds.
    """

    of: Ints
    size: int

    @classmethod
    def each(cls, n: int) -> UniqueRows:
        """Each record of its own kind."""
        return cls(np.arange(n), n)

    @classmethod
    def among(cls, columns: Mapping[str, NDArray[Any]], n: int) -> UniqueRows:
        """Equal in all columns, each with a value or row for each of n records.

        By their bits: 0 and -0 are equal numbers, of which a program may make different terms. In
        one row, one record's term would follow whether another is there.

        Where more than half of them are different, each is taken to be.
        """
        of, size = np.zeros(n, dtype=np.int64), 1
        for values in columns.values():
            for one in values.reshape(n, -1).T:
                codes, found = pd.factorize(_bits(one))
                of, pairs = pd.factorize(of * len(found) + codes)
                size = len(pairs)
                if size > WORTH * n:
                    return cls.each(n)
        return cls(of, size)

    @cached_property
    def rows(self) -> Ints:
        """Shape (size,), the first record of each kind."""
        found = np.empty(self.size, dtype=np.int64)
        found[self.of[::-1]] = np.arange(len(self.of))[::-1]
        return found

    @cached_property
    def counts(self) -> Ints:
        """Shape (size,), the records of each kind."""
        return np.bincount(self.of, minlength=self.size)

    def data(self, data: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Program data with a row for each kind, and how many records it stands for."""
        if self.size == len(self.of):
            return dict(data)
        each = {name: values[self.rows] for name, values in columns.items()}
        return {**data, **each, "n": self.size, MULTIPLICITY: self.counts}

    def each_record(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of kinds, shape (size,), record by record: shape (n,)."""
        return values if self.size == len(self.of) else values[self.of]


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers that are equal where values are the same to the last bit."""
    return values.copy().view(np.int64) if values.dtype == np.float64 else values
