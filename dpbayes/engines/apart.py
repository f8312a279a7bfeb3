"""Log-likelihoods of records, each of which depends on its own record alone, to the last bit."""

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
from dpbayes.engines.alike import LANES
from dpbayes.engines.base import StanData
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedModel
from dpbayes.engines.one_record import LENGTH, RecordTask, bound_to
from dpbayes.engines.processes import Processes, run_each

# Every padded block of a program has this many rows, however many records there are; the first
# and the last ``LANES`` are copies. Products with many columns depend on the number of rows.
ROWS = 2048
RECORDS = ROWS - 2 * LANES
LIMIT = 60  # seconds of CPU that a user's program may take for a record
FEW = 100  # records of a user's program for which another parallel process is worthwhile


@dataclass(frozen=True)
class RowBlock:
    """A block of rows bound to a program, in a padded block with copies of the first around them.

    Attributes:
        bound: the program with the rows and copies.
        rows: the rows of ``bound`` that are no copies.
    """

    bound: EmbeddedBinding
    rows: slice

    @classmethod
    def of(
        cls,
        model: EmbeddedModel,
        data: StanData,
        columns: Mapping[str, NDArray[Any]],
        rows: Ints,
        *,
        padded: bool,
    ) -> RowBlock:
        """Bind the records ``rows``, at most ``RECORDS``, of columns with a value for each record.

        Args:
            padded: give the block ``ROWS`` rows, so that each has the same last bits wherever it
                stands and whatever its neighbours are. A program whose rows are not proved to be
                independent may read all of them, and gets exactly these.
        """
        inside, filled = slice(0, len(rows)), rows
        if padded:
            inside, filled = slice(LANES, LANES + len(rows)), np.full(ROWS, rows[0])
            filled[inside] = rows
        block_columns = {key: values[filled] for key, values in columns.items()}
        return cls(bound_to(model, data, block_columns, len(filled)), inside)

    @property
    def size(self) -> int:
        """Number of rows without copies."""
        return int(self.rows.stop - self.rows.start)

    def log_lik_at(self, points: Floats, *, strict: bool = False) -> Iterator[Vector]:
        """Yield log_lik of the rows at each of S unconstrained points, shape (S, d)."""
        return (f[self.rows] for f in self.bound.log_lik_at(points, strict=strict))


class RecordsApart:
    """Records whose log-likelihoods a program evaluates without influence on each other.

    A bundled program is given blocks of records. Any other program is given one record at a time,
    in a process that has seen no other (``one_record``), so that no other record can affect the
    result, whatever the program does. The result is NaN where the program rejects the record or
    fails in any way.

    Args:
        model: the program.
        data: data of the program, without a confidential value.
        columns: entries that replace those of ``data``, with a value or row for each of n records.
        n: number of records.
    Raises:
        EngineError: the program is a user's, and the system has no ``fork``.
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
            RowBlock.of(
                model, data, columns, np.arange(start, min(start + RECORDS, n)), padded=True
            )
            for start in range(0, n if bundled else 0, RECORDS)
        ]

    def log_lik_at(self, points: Floats) -> Iterator[Vector]:
        """Yield log_lik, shape (n,), at each of S unconstrained points, shape (S, d)."""
        if self.n == 0:
            yield from np.empty((len(points), 0))
        elif self._model.program.bundled:
            for parts in zip(*(block.log_lik_at(points) for block in self._blocks), strict=True):
                yield np.concatenate(parts)
        else:
            yield from self._alone(points).T

    def _alone(self, points: Floats) -> Floats:
        """Evaluate log_lik of each record at each point for a user's program, shape (n, S)."""
        cores = os.cpu_count() or 1
        shares = np.array_split(np.arange(self.n), min(cores, -(-self.n // FEW)))
        job = RecordTask(self._model.program, self._data, points, LIMIT)

        def run(number: int, processes: Processes) -> Floats:
            return self._run(job, shares[number], processes)

        log_liks = run_each(run, range(len(shares)), cores)
        return np.concatenate([log_liks[number] for number in range(len(shares))])

    def _run(self, job: RecordTask, share: Ints, processes: Processes) -> Floats:
        """Evaluate some records in one process, shape (records, S)."""
        # With -P, and without "" in the path, no file of the current folder replaces a module.
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

        # Sent from a thread: if both pipes were full, the two processes would wait for each other.
        with process, ThreadPoolExecutor(1) as beside:
            sending = beside.submit(send)
            assert process.stdout is not None
            output = process.stdout.read()
            process.wait()
        log_lik = np.frombuffer(output)
        if len(log_lik) != len(share) * len(job.points):  # no record's fault: it reads none
            raise EngineError(
                f"the process that gives {job.program.name}.stan one record after the other ended "
                f"with code {process.returncode}."
            )
        sending.result()
        return log_lik.reshape(len(share), -1)

    def _record(self, i: int) -> dict[str, NDArray[Any]]:
        return {key: values[i : i + 1] for key, values in self._columns.items()}
