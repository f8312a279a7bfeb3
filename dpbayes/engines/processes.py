"""Parallel processes that all end when one of them fails."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from dpbayes.core.errors import EngineError
from dpbayes.core.interrupts import stop_if_interrupted

T = TypeVar("T")


class Processes:
    """Processes of one call, which hold confidential data and must not outlive it."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[Any]] = []
        self._starting = threading.Lock()
        self._ended = False

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command with options of ``subprocess.Popen``.

        Raises:
            EngineError: the other processes have been ended. OSError: it cannot be started.
        """
        stop_if_interrupted()
        with self._starting:
            if self._ended:
                raise EngineError("not started: another process has failed.")
            process = subprocess.Popen(command, **options)
            self._running.append(process)
        return process

    def end(self) -> None:
        """Kill all processes and refuse to start further ones."""
        with self._starting:  # no process can start between the mark and the kills
            self._ended = True
            for process in self._running:
                process.kill()


def run_each(
    work: Callable[[int, Processes], T], numbers: Sequence[int], parallel: int
) -> dict[int, T]:
    """Call ``work`` for each number, in at most ``parallel`` threads; return results by number.

    If a call fails, or on Ctrl-C, the processes of all calls are killed and the error is raised.
    """
    processes = Processes()
    with ThreadPoolExecutor(min(parallel, len(numbers))) as pool:
        try:
            futures = {pool.submit(work, number, processes): number for number in numbers}
            for future in as_completed(futures):
                future.result()
        except BaseException:
            processes.end()
            raise
    return {number: future.result() for future, number in futures.items()}
