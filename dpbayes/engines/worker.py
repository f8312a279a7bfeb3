"""One chain of the embedded engine in a process of its own. Run as a script by embedded_chain.py.

stanli samples several chains at once only within one call, which returns when all are done. Here
each chain is a call, so that it can be kept as soon as it is done.

Standard input: a pickled dictionary, then nothing until the parent ends. Standard output: lines of
progress, the line ``RESULT``, and a pickled pair (result, error message). Nothing that the program
prints gets there: it may hold records, and would be taken for an answer.
"""

import contextlib
import ctypes
import os
import pickle
import sys
import threading
from typing import Any

import stanli

RESULT = b"RESULT\n"
LARGE = 10_000_000  # bytes of text


# The C interface numbers chains, which picks the random stream; Python has no argument for it. The
# version is pinned, and the engines' contract tests compare with a joint run.
_begin = stanli._lib.stanli_sample_opts_init
_of_thread = threading.local()


def _begin_numbered(options: Any) -> None:
    _begin(options)
    options._obj.chain_id = getattr(_of_thread, "first", options._obj.chain_id)


stanli._lib.stanli_sample_opts_init = _begin_numbered


def run(model: Any, first: int, how: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Draws and statistics of ``model.sample(**how)``, its chains counted from ``first``."""
    _of_thread.first = first
    try:
        fit = model.sample(**how)
    finally:
        del _of_thread.first
    return {name: fit.draws(name) for name in fit.variables}, fit.sampler_stats


def sampler(mir: str, data: str, *, threads: int, bundled: bool) -> Any:
    """A model to sample from, without the text of its data if nothing will read it again.

    stanli reads it where random numbers make transformed data, which no bundled program has, or
    where threads are others than before.
    """
    model = stanli.Model(mir=mir, data=data, threads_per_chain=threads)
    if bundled:
        model._source = None
    if len(data) > LARGE:  # of which reading leaves more than its size to the C library
        give_back()
    return model


def give_back() -> None:
    """Memory that is free already, from the C library to the system, if it is GNU's."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def sample(job: dict[str, Any]) -> dict[str, Any]:
    """Draws and sampler statistics of chain ``job["chain"]``, counted from 1."""
    threads = job["arguments"]["threads_per_chain"]
    model = sampler(job["mir"], job.pop("data"), threads=threads, bundled=job["bundled"])
    how = {"chains": 1, "parallel_chains": 1, "inits": job["start"], **job["arguments"]}
    draws, stats = run(model, job["chain"], how)
    return {"draws": draws, "stats": stats}


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Read a job, sample, write the result."""
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    sys.stdout = answers  # lines of progress
    job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = (sample(job), "")
    except RuntimeError as error:
        answer = ({}, str(error))
    answers.flush()
    answers.buffer.write(RESULT + pickle.dumps(answer))
    answers.buffer.flush()
    os._exit(0)  # the thread above still waits


if __name__ == "__main__":
    main()
