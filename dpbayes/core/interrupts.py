"""Handling of Ctrl-C, SIGTERM and a closed terminal: what they end, and what they let finish.

A handler raises KeyboardInterrupt wherever Python happens to be. In the callback of a weak
reference, in ``__del__`` and in callbacks of compiled libraries that error is lost, and the
work goes on. So our handler notes the signal before it raises, and ``stop_if_interrupted`` checks
the note before each private draw and before anything is published.

Only commands install handlers (``listen``). Other programs keep their own, but no signal interrupts
work that has to be finished once it has begun (``uninterrupted``).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
WAIT = 0.05  # seconds until a signal that came during an import is handled again
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@dataclass
class _State:
    """State of signal handling in this process.

    Attributes:
        first: first signal that arrived; None before.
        raising: whether a signal raises KeyboardInterrupt.
        finished: whether the command has done its work, such as a release.
    """

    first: signal.Signals | None = None
    raising: bool = True
    finished: bool = False


_state = _State()


def listen() -> None:
    """Install handlers that note a signal and raise KeyboardInterrupt in the main thread.

    Signals that the parent process ignores, as ``nohup`` does, stay ignored.
    """
    _state.first, _state.raising, _state.finished = None, True, False
    for number in SIGNALS if _in_main_thread() else ():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)
    if hasattr(signal, "SIGALRM") and _in_main_thread():
        signal.signal(signal.SIGALRM, _again)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _unraised


def first_signal() -> signal.Signals | None:
    """Return the first signal since ``listen``; None if there was none."""
    return _state.first


def note(number: int) -> None:
    """Note a signal that another handler received, if this process listens."""
    if _listening():
        _state.first = _state.first or signal.Signals(number)


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal arrived, even if the error that it raised was lost."""
    if _state.first is not None and _state.raising and _listening():
        raise KeyboardInterrupt


@contextlib.contextmanager
def uninterrupted(*, look: bool = True) -> Iterator[None]:
    """Protect a block from signals: one that arrives meanwhile raises KeyboardInterrupt after it.

    Args:
        look: raise before and after the block if a signal has arrived; False for cleaning up after
            an error.
    """
    if not _in_main_thread():
        yield
        return
    with contextlib.ExitStack() as after:
        if not _listening():
            after.enter_context(_later())
        before, _state.raising = _state.raising, False
        try:
            if look and before and _state.first is not None and _listening():
                raise KeyboardInterrupt
            yield
        finally:
            _state.raising = before and not _state.finished
        if look:
            stop_if_interrupted()


def finish() -> None:
    """Declare the command's work done: later signals may end it early, with the same exit code."""
    if _listening():
        _state.finished, _state.raising = True, False


def finished() -> bool:
    """Tell whether ``finish`` was called since ``listen``."""
    return _state.finished


@contextlib.contextmanager
def breakable() -> Iterator[None]:
    """Let a signal end the block by KeyboardInterrupt although the command has finished."""
    _state.raising = True
    try:
        stop_if_interrupted()
        yield
    finally:
        _state.raising = not _state.finished


def leave(code: int) -> None:
    """End the process with its exit handlers, but without waiting for threads.

    A thread may be running a Stan program that never ends.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def ignore() -> None:
    """Ignore all signals until the process ends, so that none changes its exit code."""
    numbers = (*SIGNALS, signal.SIGALRM) if hasattr(signal, "SIGALRM") else SIGNALS
    for number in numbers if _in_main_thread() else ():
        signal.signal(number, signal.SIG_IGN)


def _unraised(lost: sys.UnraisableHookArgs) -> None:
    """Print an error that could not be raised, but for that of a signal, which is noted."""
    if _state.first is None or not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def _listening() -> bool:
    """Tell whether any handler is ours; stanli replaces at most that of Ctrl-C."""
    return any(signal.getsignal(number) is _handle for number in SIGNALS)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, frame: FrameType | None) -> None:
    note(number)
    _interrupt(frame)


def _again(_number: int, frame: FrameType | None) -> None:
    if _state.first is not None:
        _interrupt(frame)


def _interrupt(frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, now or after a running import.

    Within an import it could leave half a module, or a lock that is never released and for which
    other threads wait for ever.
    """
    if not _state.raising:
        return
    if hasattr(signal, "SIGALRM") and _importing(frame):
        # SIGALRM calls this function again (``_again``), by when the import may have ended.
        signal.setitimer(signal.ITIMER_REAL, WAIT)
        return
    other = signal.getsignal(signal.SIGINT)  # stanli's own, while it samples
    if callable(other) and other is not _handle:
        other(signal.SIGINT, frame)
        return
    if _state.finished:
        # The command's work is done, and this signal ends a ``breakable`` block: what follows the
        # block must run to its end.
        _state.raising = False
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _later() -> Iterator[None]:
    """Postpone Ctrl-C to the end of the block, for programs that do not listen."""
    before = signal.getsignal(signal.SIGINT)
    came: list[int] = []
    if callable(before):
        signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        if callable(before):
            signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def waited_for(function: Callable[[], T], seconds: float | None = None) -> T:
    """Run a function in a thread of its own while the main thread waits, so that Ctrl-C works.

    Python handles a signal only between its own instructions: an endless loop in Stan would block
    Ctrl-C for ever. After Ctrl-C the thread goes on until the process ends, and the main thread
    cleans up as usual. Other threads than the main one call the function directly.

    Args:
        function: the function.
        seconds: how long the main thread waits at most.
    Raises:
        TimeoutError: the function has not ended; its thread goes on until the process ends.
    """
    if not _in_main_thread():
        return function()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # raised below
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if errors:
        raise errors.pop()
    return results.pop()


def interruptible(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that Ctrl-C works while it runs (``waited_for``)."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return waited_for(functools.partial(function, *args, **kwargs))

    return call


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Create a temporary folder that only the user can enter, and remove it at the end.

    If Ctrl-C or SIGTERM interrupts the removal, the rest is removed when the process ends.
    """
    folder = tempfile.mkdtemp(prefix="dpbayes-")
    remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remove)
    try:
        yield Path(folder)
    finally:
        remove()
        atexit.unregister(remove)
