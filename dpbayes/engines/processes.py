"""Parallel processes that all end when one of them fails."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from dpbayes.core.errors import EngineError
from dpbayes.core.interrupts import stop_if_interrupted, uninterrupted

T = TypeVar("T")
WAIT = 1.0  # seconds between looks for a signal


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
    Ctrl-C can do so only while the main thread waits for a result: elsewhere, as in an executor,
    it can leave a lock for which the threads wait for ever.
    """
    processes = Processes()
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, T] | BaseException] = SimpleQueue()
    for number in numbers:
        waiting.put(number)

    def take() -> None:
        with contextlib.suppress(Empty):
            while True:
                number = waiting.get_nowait()
                try:
                    done.put((number, work(number, processes)))
                except BaseException as error:  # raised below
                    done.put(error)

    threads = [
        threading.Thread(target=take, daemon=True) for _ in range(min(parallel, len(numbers)))
    ]
    results: dict[int, T] = {}
    try:
        with uninterrupted():
            for thread in threads:
                thread.start()
        while len(results) < len(numbers):
            try:
                ended = done.get(timeout=WAIT)
            except Empty:
                stop_if_interrupted()  # Python may have lost the error that the signal raised
                continue
            if isinstance(ended, BaseException):
                raise ended
            results[ended[0]] = ended[1]
    except BaseException:
        with uninterrupted(look=False):
            processes.end()
            for thread in threads:
                if thread.is_alive():
                    thread.join()
        raise
    return {number: results[number] for number in numbers}
