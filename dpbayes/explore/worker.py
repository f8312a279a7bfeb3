"""The process that tries settings, one at a time; cancelling a try ends the process."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from dpbayes.core.errors import DpbayesError, EngineError
from dpbayes.explore.trial import Explorer

_spawn = multiprocessing.get_context("spawn")  # a fork would copy threads and sockets
PATIENCE = 5.0  # seconds for a process to end


@dataclass
class State:
    """State of the last try, as a page shows it.

    Attributes:
        phase: ``idle``, ``running``, ``done``, ``failed`` or ``cancelled``.
        number: number of the try, from 1.
        step: description of the present step.
        since: seconds of ``time.monotonic`` at which the try began.
        result, error: result or error message of a try that has ended.
    """

    phase: str = "idle"
    number: int = 0
    step: str = ""
    since: float = field(default_factory=time.monotonic)
    result: dict[str, Any] | None = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return {
            "phase": self.phase,
            "number": self.number,
            "step": self.step,
            "seconds": round(time.monotonic() - self.since, 1),
            "result": self.result,
            "error": self.error,
        }


class Worker:
    """Runs tries in a process of its own.

    Args:
        make: a module-level function that makes an ``Explorer``.
        arguments: its arguments.
    """

    def __init__(self, make: Callable[..., Explorer], *arguments: object) -> None:
        self._make, self._arguments = make, arguments
        self._lock = threading.Lock()
        self._state = State()
        self._process: BaseProcess | None = None
        self._there: Connection | None = None

    def state(self) -> dict[str, Any]:
        """State of the last try, for JSON."""
        with self._lock:
            return self._state.to_dict()

    def start(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a try; EngineError if one is running."""
        with self._lock:
            if self._state.phase == "running":
                raise EngineError("a try is running: cancel it first.")
            self._state = State("running", self._state.number + 1, "starting")
            if self._process is None or not self._process.is_alive():
                self._begin()
            assert self._there is not None
            self._there.send(dict(values))
            threading.Thread(
                target=self._listen, args=(self._there, self._state), daemon=True
            ).start()
            return self._state.to_dict()

    def cancel(self) -> dict[str, Any]:
        """Cancel the running try; this also drops the fit that earlier tries share."""
        with self._lock:
            if self._state.phase == "running":
                self._state.phase, self._state.step = "cancelled", ""
                self._end()
            return self._state.to_dict()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _begin(self) -> None:
        self._there, connection = _spawn.Pipe()
        process = _spawn.Process(target=_serve, args=(connection, self._make, self._arguments))
        process.start()
        connection.close()
        self._process = process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # chains are processes that end when it does
            self._process.join(PATIENCE)
            self._process = None
        if self._there is not None:
            self._there.close()
            self._there = None

    def _listen(self, there: Connection, state: State) -> None:
        """Store the messages of the process about one try."""
        while True:
            try:
                kind, content = there.recv()
            except (EOFError, OSError, TypeError):  # ended; TypeError: closed while it waited
                kind, content = "failed", "the process that tried it has ended."
            with self._lock:
                if state.phase != "running":
                    return
                if kind == "step":
                    state.step = content
                    continue
                state.phase, state.step = kind, ""
                state.result = content if kind == "done" else None
                state.error = content if kind == "failed" else ""
            return


def _serve(
    connection: Connection, make: Callable[..., Explorer], arguments: tuple[object, ...]
) -> None:
    """Run tries in the process until the other end of the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the page's server ends it
    explorer: Explorer | None = None
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        try:
            if explorer is None:
                connection.send(("step", "reading the reference records"))
                explorer = make(*arguments)
            answer = "done", explorer.run(asked, lambda text: connection.send(("step", text)))
        except DpbayesError as error:
            answer = "failed", str(error)  # type: ignore[assignment]
        except Exception as error:
            answer = "failed", f"{type(error).__name__}: {error}"  # type: ignore[assignment]
        connection.send(answer)
