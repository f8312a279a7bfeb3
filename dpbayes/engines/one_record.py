"""A user's program on one record after the other, each in a process of its own. Run by apart.py.

The process that compiles the program reads no record. For each it makes a copy of itself, which
reads that record and no other, says what the program says of it, and ends. However that ends, by an
error, a crash, or after a time, the next copy knows nothing of it.

Standard input: a pickled ``RecordTask``, then records, each a length and a pickled dictionary of
columns with one row; at the end of the input the process ends. Standard output: for each record a
number for each point. Nothing that the program prints gets there.
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
MEMORY = 4 * 2**30  # bytes of addresses for a record


class RecordTask(NamedTuple):
    """What is the same for all records. Public.

    Attributes:
        program: the user's.
        data: of it, without a confidential value.
        points: unconstrained, shape (S, d).
        limit: whole seconds of CPU for a record; one that needs more says NaN.
    """

    program: StanProgram
    data: StanData
    points: Floats
    limit: int


def bound_to(
    model: EmbeddedModel, data: StanData, columns: Mapping[str, NDArray[Any]], n: int
) -> EmbeddedBinding:
    """The program with n rows of the columns, in place of those entries of the data."""
    return model.bind({**data, **columns, **contract_defaults(n), "n": n})


def say(job: RecordTask, model: EmbeddedModel, columns: Mapping[str, NDArray[Any]]) -> Vector:
    """f of one record at each point, NaN from the first at which the program fails for it."""
    found = np.full(len(job.points), np.nan)
    with contextlib.suppress(Exception):  # how it fails follows the record, and is its own score
        bound = bound_to(model, job.data, columns, 1)
        for k, f in enumerate(bound.log_lik_at(job.points)):
            found[k] = f[0]
    return found


def _read(size: int) -> bytes:
    """Of standard input, without reading ahead: what follows is for the next copy."""
    found = b""
    while len(found) < size:
        more = os.read(0, size - len(found))
        if not more:
            os._exit(0)  # the end
        found += more
    return found


def _receive() -> Any:
    return pickle.loads(_read(*LENGTH.unpack(_read(LENGTH.size))))


def _write(to: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(to, left) :]


def _all_of(source: int) -> bytes:
    """What is written there until its end."""
    found = b""
    while more := os.read(source, 65_536):
        found += more
    os.close(source)
    return found


def main() -> None:
    """Read the job, then answer for each record."""
    answers = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    import resource  # not on Windows

    import bridgestan  # noqa: F401  # before there are copies, each of which would import it

    job: RecordTask = _receive()
    model = EmbeddedEngine().compile(job.program)
    while True:
        heading = _read(LENGTH.size)
        source, own = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(answers)
            with contextlib.suppress(OSError):  # memory runs out here first
                Path("/proc/self/oom_score_adj").write_text("1000")
            columns = pickle.loads(_read(*LENGTH.unpack(heading)))
            # Its own time and memory, which others' work beside it does not use up.
            for kind, most in ((resource.RLIMIT_CPU, job.limit), (resource.RLIMIT_AS, MEMORY)):
                with contextlib.suppress(ValueError, OSError):  # the system has none, or less
                    resource.setrlimit(kind, (most, most))
            _write(own, say(job, model, columns).tobytes())
            os._exit(0)
        os.close(own)
        told, none = _all_of(source), np.full(len(job.points), np.nan).tobytes()
        os.waitpid(child, 0)
        # One answer to a record, whatever became of it: how many there are is not for it to say.
        _write(answers, told if len(told) == len(none) else none)


if __name__ == "__main__":
    main()
