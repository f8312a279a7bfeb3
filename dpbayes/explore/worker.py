"""The process that tries settings, one at a time; to cancel a try is to end it."""

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
    """What a page is told.

    Attributes:
        phase: ``idle``, ``running``, ``done``, ``failed`` or ``cancelled``.
        number: of the try, from 1.
        step: what is being done.
        since: seconds of ``time.monotonic`` at which it began.
        result, error: of a try that ended.
    """

    phase: str = "idle"
    number: int = 0
    step: str = ""
    since: float = field(default_factory=time.monotonic)
    result: Any = None
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "phase": self.phase,
            "number": self.number,
            "step": self.step,
            "seconds": round(time.monotonic() - self.since, 1),
            "result": self.result,
            "error": self.error,
        }


class Worker:
    """Tries in a process of its own.

    Args:
        make: a function at the top of a module, and its arguments: what gives an ``Explorer``.
    """

    def __init__(self, make: Callable[..., Explorer], *arguments: Any) -> None:
        self._make, self._arguments = make, arguments
        self._lock = threading.Lock()
        self._state = State()
        self._process: BaseProcess | None = None
        self._there: Connection | None = None

    def state(self) -> dict[str, Any]:
        """Of the last try."""
        with self._lock:
            return self._state.to_dict()

    def start(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a try. EngineError if one is running."""
        with self._lock:
            if self._state.phase == "running":
                raise EngineError("a try is running: cancel it first.")
            self._state = State("running", self._state.number + 1, "starting")
            if self._process is None or not self._process.is_alive():
                self._begin()
            assert self._there is not None
            self._there.send(dict(asked))
            threading.Thread(
                target=self._listen, args=(self._there, self._state), daemon=True
            ).start()
            return self._state.to_dict()

    def cancel(self) -> dict[str, Any]:
        """End a try, and what was kept of earlier ones."""
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
        self._there, here = _spawn.Pipe()
        process = _spawn.Process(target=_serve, args=(here, self._make, self._arguments))
        process.start()
        here.close()
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
        """Keep what the process says of one try."""
        while True:
            try:
                kind, found = there.recv()
            except (EOFError, OSError, TypeError):  # ended; TypeError: closed while it waited
                kind, found = "failed", "the process that tried it has ended."
            with self._lock:
                if state.phase != "running":
                    return
                if kind == "step":
                    state.step = found
                    continue
                state.phase, state.step = kind, ""
                state.result = found if kind == "done" else None
                state.error = found if kind == "failed" else ""
            return


def _serve(here: Connection, make: Callable[..., Explorer], arguments: tuple[Any, ...]) -> None:
    """In the process: tries until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the page's server ends it
    explorer: Explorer | None = None
    while True:
        try:
            asked = here.recv()
        except EOFError:
            return
        try:
            if explorer is None:
                here.send(("step", "reading the reference records"))
                explorer = make(*arguments)
            answer = "done", explorer.run(asked, lambda text: here.send(("step", text)))
        except DpbayesError as error:
            answer = "failed", str(error)  # type: ignore[assignment]
        except Exception as error:
            answer = "failed", f"{type(error).__name__}: {error}"  # type: ignore[assignment]
        here.send(answer)
