"""One chain of the embedded engine in a process of its own. Run as a script by embedded_chain.py.

stanli samples several chains at once only within one call, which returns when all are done. Here
each chain is a call, so that it can be kept as soon as it is done.

Standard input: a pickled dictionary, then nothing until the parent ends. Standard output: lines of
progress, the line ``RESULT``, and a pickled pair (result, error message). Nothing that the program
prints gets there: it may hold records, and would be taken for an answer.
"""

import os
import pickle
import sys
import threading
from typing import Any

import stanli

RESULT = b"RESULT\n"


def sample(job: dict[str, Any]) -> dict[str, Any]:
    """Draws and sampler statistics of chain ``job["chain"]``, counted from 1."""
    # The C interface numbers chains, which picks the random stream; Python has no argument for
    # it. The version is pinned, and the engines' contract tests compare with a joint run.
    begin = stanli._lib.stanli_sample_opts_init

    def begin_numbered(options: Any) -> None:
        begin(options)
        options._obj.chain_id = job["chain"]

    stanli._lib.stanli_sample_opts_init = begin_numbered
    model = stanli.Model(mir=job["mir"], data=job["data"])
    fit = model.sample(chains=1, parallel_chains=1, inits=job["start"], **job["arguments"])
    return {
        "draws": {name: fit.draws(name) for name in fit.variables},
        "stats": fit.sampler_stats,
    }


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
