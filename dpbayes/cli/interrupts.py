"""Ctrl-C, SIGTERM and a closed terminal: one message, an exit code, and nothing left behind."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from dpbayes.cli.streams import say_error

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupts:
    """The signals that end a command, while ``heard``.

    Attributes:
        first: the first that came; None before.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Each raises KeyboardInterrupt in the main thread, so that all that is open is closed.

        Those that the caller ignores, as ``nohup`` does, are ignored.
        """
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {s: signal.getsignal(s) for s in SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                own = self._interrupt if number == signal.SIGINT else self._pass_on
                signal.signal(number, own)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def exit_code(self, command: Callable[[], int]) -> int:
        """Of a command; of one that a signal has ended, 128 and the signal's number."""
        with self.heard():
            try:
                code = command()
            except KeyboardInterrupt:
                code = 1
        if self.first is None or code == 0:  # it came when all was done but the report
            return code
        say_error(f"error: interrupted by {self.first.name}.")
        return 128 + self.first

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.first = self.first or signal.Signals(number)
        raise KeyboardInterrupt

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """As Ctrl-C, for which stanli has a handler of its own while it samples."""
        self.first = self.first or signal.Signals(number)
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, None)
        else:
            raise KeyboardInterrupt


def leave(code: int) -> None:
    """End the process with what is registered for its end, and without waiting for threads.

    One may be in a Stan program that does not end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)
