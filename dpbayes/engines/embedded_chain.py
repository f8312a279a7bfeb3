"""Parent side of sampling one chain of the embedded engine in a process that runs ``worker.py``."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import EngineError
from dpbayes.engines import worker
from dpbayes.engines.base import SamplerSettings
from dpbayes.engines.processes import Processes


def run_chain(
    job: Mapping[str, Any], processes: Processes, watch: Callable[[str], Any]
) -> dict[str, Any]:
    """Sample chain ``job["chain"]``, counted from 1; return draws and sampler statistics.

    Args:
        job: argument of ``worker.sample``.
        processes: starts the process.
        watch: is called with each line of progress.
    Raises:
        EngineError: sampling failed, or the process ended without an answer.
    """
    process = processes.start(
        [sys.executable, worker.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches this process, which ends them all
    )
    with process:
        assert process.stdin is not None  # a pipe
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; its exit code is reported below
            pickle.dump(job, process.stdin)
            process.stdin.flush()
        for line in process.stdout:
            if line == worker.RESULT:
                result, message = pickle.loads(process.stdout.read())
                break
            watch(line.decode())
        else:
            code = process.wait()
            raise EngineError(f"sampling failed: chain {job['chain']} ended with code {code}.")
    if message:
        raise EngineError("sampling failed.").saying(message)
    chain_result: dict[str, Any] = result
    return chain_result


def arguments(settings: SamplerSettings, refresh: int, metric: Floats | None) -> dict[str, Any]:
    """Arguments of ``stanli.Model.sample`` that all chains share.

    Args:
        refresh: iterations between lines of progress.
        metric: inverse metric that chains begin with; None for the identity.
    """
    return {
        "seed": settings.resolved_seed(),
        "warmup": settings.warmup,
        "samples": settings.draws,
        "delta": settings.adapt_delta,
        "max_depth": settings.max_treedepth,
        "metric": settings.metric or "diag_e",
        "inv_metric": metric,
        "threads_per_chain": settings.threads_per_chain,
        "refresh": refresh,
    }
