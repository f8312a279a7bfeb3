"""Worker of apart.py: a user's program, run on each record in a process of its own.

The process that compiles the program reads no record. For each record it forks a copy of itself,
which reads that record and no other, writes its log-likelihoods, and ends. Whether it ends with an
answer, an error, a crash or by a time limit, the next copy knows nothing of it.

Standard input: a pickled ``RecordTask``, then records, each a length and a pickled dictionary of
columns with one row; at the end of the input the process ends. Standard output: for each record one
double per point. What the program prints is discarded.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.engines.base import StanData
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine, EmbeddedModel
from dpbayes.stan.program import StanProgram

LENGTH = struct.Struct("<q")
MEMORY = 4 * 2**30  # bytes of address space for evaluating a record


class RecordTask(NamedTuple):
    """Input that all records share. Public.

    Attributes:
        program: the user's program.
        data: data of the program, without a confidential value.
        points: unconstrained points, shape (S, d).
        limit: whole seconds of CPU for a record; NaN for a record that takes longer.
    """

    program: StanProgram
    data: StanData
    points: Floats
    limit: int


def bound_to(
    model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], n: int
) -> EmbeddedBinding:
    """Bind n rows of the columns to the program, in place of those entries of the data."""
    return model.bind({**data, **columns, **contract_defaults(n), "n": n})


def say(job: RecordTask, model: EmbeddedModel, columns: Mapping[str, NDArray[Any]]) -> Vector:
    """Log_lik of one record, shape (S,); NaN from the first point where the program fails."""
    log_lik = np.full(len(job.points), np.nan)
    with contextlib.suppress(Exception):  # a failure depends on this record alone
        bound = bound_to(model, job.data, columns, 1)
        for k, f in enumerate(bound.log_lik_at(job.points)):
            log_lik[k] = f[0]
    return log_lik


def _read(size: int) -> bytes:
    """Read from standard input, unbuffered: what follows is for the next copy."""
    content = b""
    while len(content) < size:
        more = os.read(0, size - len(content))
        if not more:
            os._exit(0)  # the input has ended
        content += more
    return content


def _receive() -> Any:
    return pickle.loads(_read(*LENGTH.unpack(_read(LENGTH.size))))


def _write(to: int, text: bytes) -> None:
    remaining = memoryview(text)
    while remaining:
        remaining = remaining[os.write(to, remaining) :]


def _all_of(source: int) -> bytes:
    """Read a pipe to its end and close it."""
    content = b""
    while more := os.read(source, 65_536):
        content += more
    os.close(source)
    return content


def main() -> None:
    """Read the job, then answer for each record."""
    answers = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    import resource  # not on Windows

    import bridgestan  # noqa: F401  # imported here once, not by every copy

    job: RecordTask = _receive()
    model = EmbeddedEngine().compile(job.program)
    job.program.declared("data")  # parsed here once, which takes 100 times as long as a record
    while True:
        heading = _read(LENGTH.size)
        source, own = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(answers)
            with contextlib.suppress(OSError):  # make out-of-memory kills hit this first
                Path("/proc/self/oom_score_adj").write_text("1000")
            columns = pickle.loads(_read(*LENGTH.unpack(heading)))
            # Limits of its own, so that work on other records cannot use up its time and memory.
            for kind, most in ((resource.RLIMIT_CPU, job.limit), (resource.RLIMIT_AS, MEMORY)):
                with contextlib.suppress(ValueError, OSError):  # no such limit, or a lower one
                    resource.setrlimit(kind, (most, most))
            _write(own, say(job, model, columns).tobytes())
            os._exit(0)
        os.close(own)
        answer, no_answer = _all_of(source), np.full(len(job.points), np.nan).tobytes()
        os.waitpid(child, 0)
        # Exactly one answer per record: the number of answers must not depend on any record.
        _write(answers, answer if len(answer) == len(no_answer) else no_answer)


if __name__ == "__main__":
    main()
