"""Script that samples one chain of the embedded engine; embedded_chain.py runs it in a process.

stanli samples several chains at once only within one call, which returns when all have finished.
Here each chain is a call of its own, so that it can be saved as soon as it has finished.

Standard input: a pickled dictionary, then nothing until the parent ends. Standard output: lines of
progress, the line ``RESULT``, and a pickled pair (result, error message). What the program prints
is discarded: it may contain records, and would be mistaken for an answer.
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


# The C interface takes the number of a chain, which selects its random stream; stanli's Python has
# no argument for it. This patch relies on a pinned version of stanli, and the engines' contract
# tests compare it with a joint run.
_begin = stanli._lib.stanli_sample_opts_init
_of_thread = threading.local()


def _begin_numbered(options: Any) -> None:
    _begin(options)
    options._obj.chain_id = getattr(_of_thread, "first", options._obj.chain_id)


stanli._lib.stanli_sample_opts_init = _begin_numbered


def run(model: Any, first: int, how: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Call ``model.sample(**how)``, chains counted from ``first``; return draws and statistics."""
    _of_thread.first = first
    try:
        fit = model.sample(**how)
    finally:
        del _of_thread.first
    return {name: fit.draws(name) for name in fit.variables}, fit.sampler_stats


def sampler(mir: str, data: str, *, threads: int, bundled: bool) -> Any:
    """Build a model for sampling; drop the text of its data if stanli will not read it again.

    stanli reads the text again if transformed data use random numbers, as in no bundled program, or
    if the number of threads changes.
    """
    model = stanli.Model(mir=mir, data=data, threads_per_chain=threads)
    if bundled:
        model._source = None
    if len(data) > LARGE:  # parsing leaves more than this size in the C library's free list
        give_back()
    return model


def give_back() -> None:
    """Return freed memory from the C library to the system, if it is GNU's library."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def sample(job: dict[str, Any]) -> dict[str, Any]:
    """Sample chain ``job["chain"]``, counted from 1; return draws and sampler statistics."""
    threads = job["arguments"]["threads_per_chain"]
    model = sampler(job["mir"], job.pop("data"), threads=threads, bundled=job["bundled"])
    how = {"chains": 1, "parallel_chains": 1, "inits": job["start"], **job["arguments"]}
    draws, stats = run(model, job["chain"], how)
    return {"draws": draws, "stats": stats}


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Read a job from standard input, sample, and write the result."""
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
