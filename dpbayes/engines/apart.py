"""Log-likelihoods of records of which each follows its own record alone, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.arrays import Floats, Ints, Vector
from dpbayes.engines.base import StanData
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedModel
from dpbayes.interrupts import stop_if_interrupted

ROWS = 8192  # records evaluated at once: they stay in the processor's cache
# A record's log_lik has the same bits wherever it stands in a block of a multiple of this many
# rows, of which the first and the last so many are others: vectorised functions treat ends and a
# remainder differently.
LANES = 16


@dataclass(frozen=True)
class Block:
    """Some rows of a bundled program between copies of the first, to a multiple of ``LANES``.

    Attributes:
        bound: the program with them.
        size: how many rows there are.
        before: copies before them.
    """

    bound: EmbeddedBinding
    size: int
    before: int

    @classmethod
    def of(
        cls, model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], rows: Ints
    ) -> Block:
        """The records ``rows`` of the columns that have a value for each.

        A user's program may read all rows, and gets no copies.
        """
        before, after = (LANES, LANES - len(rows) % -LANES) if model.program.bundled else (0, 0)
        first = rows[:1]
        filled = np.concatenate([np.repeat(first, before), rows, np.repeat(first, after)])
        some = {key: values[filled] for key, values in columns.items()}
        n = len(filled)
        bound = model.bind({**data, **some, **contract_defaults(n), "n": n})
        return cls(bound, len(rows), before)

    def log_lik_at(self, points: Floats, *, strict: bool = False) -> Iterator[Vector]:
        """For each of S unconstrained points, shape (S, d), f of the rows."""
        end = self.before + self.size
        return (f[self.before : end] for f in self.bound.log_lik_at(points, strict=strict))


class RecordsApart:
    """Records that a program is given apart from each other.

    A bundled program is given blocks of them. Any other program is given one record at a time, so
    that no other record can have a part in what it says, whatever the program is. Where it does not
    take the record, or fails in any way, it says NaN.

    Args:
        data: of the program, without a confidential value.
        columns: in place of entries of ``data``, with a value or row for each of n records.
        n: how many there are.
    """

    def __init__(
        self, model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], n: int
    ) -> None:
        self.n = n
        self._model, self._data, self._columns = model, data, columns
        self._blocks = [
            Block.of(model, data, columns, np.arange(start, min(start + ROWS, n)))
            for start in range(0, n if model.program.bundled else 0, ROWS)
        ]

    def log_lik_at(self, points: Floats) -> Iterator[Vector]:
        """For each of S unconstrained points, shape (S, d), f of the records, shape (n,)."""
        if self._model.program.bundled:
            if not self._blocks:
                yield from np.empty((len(points), 0))
                return
            for parts in zip(*(block.log_lik_at(points) for block in self._blocks), strict=True):
                yield np.concatenate(parts)
            return
        found = np.empty((self.n, len(points)))
        for i in range(self.n):  # one after the other: stanli crashes in threads that Python starts
            found[i] = self._alone(i, points)
        yield from found.T

    def _alone(self, i: int, points: Floats) -> Vector:
        """f of one record at each point."""
        stop_if_interrupted()
        found = np.full(len(points), np.nan)
        try:
            alone = Block.of(self._model, self._data, self._columns, np.array([i]))
            for k, f in enumerate(alone.log_lik_at(points)):
                found[k] = f[0]
        except Exception:  # how it fails follows the record, and is its own score
            pass
        return found
