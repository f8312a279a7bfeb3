"""Ctrl-C, SIGTERM and a closed terminal: what they end, what they let finish, and what they leave.

A handler raises KeyboardInterrupt wherever Python happens to be. In the callback of a weak
reference, in ``__del__`` and in callbacks of compiled libraries nobody gets that error, and the
work goes on. So a handler of ours notes the signal before it raises, and ``stop_if_interrupted``
looks at the note before each private draw and before anything is published.

Only commands listen (``listen``). In other programs signals stay what they are, but none interrupts
what has to be finished once it has begun (``uninterrupted``).
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
WAIT = 0.05  # seconds, before a signal is looked at again that came during an import
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@dataclass
class _State:
    """Of this process.

    Attributes:
        first: signal that came; None before.
        raising: one that comes raises KeyboardInterrupt.
        finished: what the command is for is done, such as a release.
    """

    first: signal.Signals | None = None
    raising: bool = True
    finished: bool = False


_state = _State()


def listen() -> None:
    """Note each signal, and raise KeyboardInterrupt in the main thread, so that all is closed.

    Those that the caller ignores, as ``nohup`` does, are ignored.
    """
    _state.first, _state.raising, _state.finished = None, True, False
    for number in SIGNALS if _in_main_thread() else ():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)
    if hasattr(signal, "SIGALRM") and _in_main_thread():
        signal.signal(signal.SIGALRM, _again)


def first_signal() -> signal.Signals | None:
    """The first that came since this process listens."""
    return _state.first


def note(number: int) -> None:
    """Remember a signal that another handler got, if this process listens."""
    if _listening():
        _state.first = _state.first or signal.Signals(number)


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal came, whatever became of the error that it raised."""
    if _state.first is not None and _state.raising and _listening():
        raise KeyboardInterrupt


@contextlib.contextmanager
def uninterrupted(*, look: bool = True) -> Iterator[None]:
    """A block that no signal ends: one that comes meanwhile raises KeyboardInterrupt after it.

    Args:
        look: raise before the block if one came already; False for what cleans up after an error.
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
    """What the command is for is done: from here on signals end it early, and change no code."""
    if _listening():
        _state.finished, _state.raising = True, False


def finished() -> bool:
    """``finish`` was called since this process listens."""
    return _state.finished


@contextlib.contextmanager
def breakable() -> Iterator[None]:
    """A block that a signal ends by KeyboardInterrupt although the command has finished."""
    _state.raising = True
    try:
        stop_if_interrupted()
        yield
    finally:
        _state.raising = not _state.finished


def leave(code: int) -> None:
    """End the process with what is registered for its end, and without waiting for threads.

    One may be in a Stan program that does not end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def ignore() -> None:
    """From here to the end of the process no signal changes its exit code."""
    for number in SIGNALS if _in_main_thread() else ():
        signal.signal(number, signal.SIG_IGN)


def _listening() -> bool:
    """Some handler is ours, and stanli has at most that of Ctrl-C."""
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
    """Raise KeyboardInterrupt, if not now then soon.

    Not within an import: it would leave half a module, or a lock that nobody opens again, for which
    other threads then wait for ever.
    """
    if not _state.raising:
        return
    if hasattr(signal, "SIGALRM") and _importing(frame):
        signal.setitimer(signal.ITIMER_REAL, WAIT)
        return
    other = signal.getsignal(signal.SIGINT)  # stanli's own, while it samples
    if callable(other) and other is not _handle:
        other(signal.SIGINT, frame)
        return
    if _state.finished:  # the block that it ends is the only one that may be ended
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
    """Ctrl-C after the block in place of within it, for programs that do not listen."""
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


def interruptible(function: Callable[P, T]) -> Callable[P, T]:
    """The function in a thread of its own, for which the main thread waits.

    Python hears a signal only where it runs itself: a Stan loop without an end would keep Ctrl-C
    waiting for ever. After it the thread is left to itself, and ends with the process; what the
    main thread holds is cleaned up in good order. Other threads call the function directly.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _in_main_thread():
            return function(*args, **kwargs)
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function(*args, **kwargs))
            except BaseException as error:  # raised below
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors.pop()
        return results.pop()

    return call


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only the user can enter, removed at the end.

    If Ctrl-C or SIGTERM comes while it is removed, the rest goes when the process ends.
    """
    folder = tempfile.mkdtemp(prefix="dpbayes-")
    remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remove)
    try:
        yield Path(folder)
    finally:
        remove()
        atexit.unregister(remove)
