"""Log-likelihoods of records of which each follows its own record alone, to the last bit."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.engines import one_record
from dpbayes.engines.base import StanData
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedModel
from dpbayes.engines.one_record import LENGTH, RecordTask, bound_to
from dpbayes.engines.processes import Processes, run_each

# Rows of every block of a bundled program, however many records there are, of which the first and
# the last ``LANES`` are copies: vectorised functions treat ends and a remainder differently, and
# products with many columns by the number of rows.
ROWS, LANES = 2048, 16
RECORDS = ROWS - 2 * LANES
LIMIT = 60  # seconds of CPU for a record of a user's program
FEW = 100  # records that a user's program is given in one process


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a program, and of a bundled one copies of the first around them.

    Attributes:
        bound: the program with them.
        rows: which of its rows they are.
    """

    bound: EmbeddedBinding
    rows: slice

    @classmethod
    def of(
        cls, model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], rows: Ints
    ) -> RowBlock:
        """The records ``rows`` of the columns that have a value for each, ``RECORDS`` at most.

        A user's program may read all rows, and gets no copies, and as many as there are.
        """
        inside, filled = slice(0, len(rows)), rows
        if model.program.bundled:
            inside, filled = slice(LANES, LANES + len(rows)), np.full(ROWS, rows[0])
            filled[inside] = rows
        some = {key: values[filled] for key, values in columns.items()}
        return cls(bound_to(model, data, some, len(filled)), inside)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return int(self.rows.stop - self.rows.start)

    def log_lik_at(self, points: Floats, *, strict: bool = False) -> Iterator[Vector]:
        """For each of S unconstrained points, shape (S, d), f of the rows."""
        return (f[self.rows] for f in self.bound.log_lik_at(points, strict=strict))


class RecordsApart:
    """Records that a program is given apart from each other.

    A bundled program is given blocks of them. Any other program is given one record at a time, in a
    process that has seen no other (``one_record``), so that no other record can have a part in what
    it says, whatever the program is. Where it does not take the record, or fails in any way, it
    says NaN.

    Args:
        data: of the program, without a confidential value.
        columns: in place of entries of ``data``, with a value or row for each of n records.
        n: how many there are.
    Raises:
        EngineError: a user's program, where the system has no ``fork``.
    """

    def __init__(
        self, model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], n: int
    ) -> None:
        bundled = model.program.bundled
        if not (bundled or hasattr(os, "fork")):
            raise EngineError(
                f"{model.program.name}.stan: a program of your own is given each record in a "
                "process of its own, which needs Linux or macOS."
            )
        self.n = n
        self._model, self._data, self._columns = model, data, columns
        self._blocks = [
            RowBlock.of(model, data, columns, np.arange(start, min(start + RECORDS, n)))
            for start in range(0, n if bundled else 0, RECORDS)
        ]

    def log_lik_at(self, points: Floats) -> Iterator[Vector]:
        """For each of S unconstrained points, shape (S, d), f of the records, shape (n,)."""
        if self.n == 0:
            yield from np.empty((len(points), 0))
        elif self._model.program.bundled:
            for parts in zip(*(block.log_lik_at(points) for block in self._blocks), strict=True):
                yield np.concatenate(parts)
        else:
            yield from self._alone(points).T

    def _alone(self, points: Floats) -> Floats:
        """f of each record at each point, shape (n, S)."""
        cores = os.cpu_count() or 1
        shares = np.array_split(np.arange(self.n), min(cores, -(-self.n // FEW)))
        job = RecordTask(self._model.program, self._data, points, LIMIT)

        def run(number: int, processes: Processes) -> Floats:
            return self._run(job, shares[number], processes)

        found = run_each(run, range(len(shares)), cores)
        return np.concatenate([found[number] for number in range(len(shares))])

    def _run(self, job: RecordTask, share: Ints, processes: Processes) -> Floats:
        """The same for some records."""
        process = processes.start(
            [sys.executable, "-P", "-m", one_record.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C reaches this process, which ends them all
        )

        def send() -> None:
            assert process.stdin is not None  # a pipe
            with process.stdin as pipe:
                for sent in (job, *(self._record(i) for i in share)):
                    text = pickle.dumps(sent)
                    pipe.write(LENGTH.pack(len(text)) + text)

        with process, ThreadPoolExecutor(1) as beside:
            sending = beside.submit(send)
            assert process.stdout is not None
            told = process.stdout.read()
            process.wait()
        found = np.frombuffer(told)
        if len(found) != len(share) * len(job.points):  # the process itself reads no record
            raise EngineError(
                f"the process that gives {job.program.name}.stan one record after the other ended "
                f"with code {process.returncode}."
            )
        sending.result()
        return found.reshape(len(share), -1)

    def _record(self, i: int) -> dict[str, NDArray[Any]]:
        return {key: values[i : i + 1] for key, values in self._columns.items()}
