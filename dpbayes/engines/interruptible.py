"""Long calls into compiled code that Ctrl-C ends, and private files that it leaves nothing of."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpbayes.arrays import Floats

P = ParamSpec("P")
T = TypeVar("T")
_THREADED = 1000  # points from which all cores are used


def interruptible(function: Callable[P, T]) -> Callable[P, T]:
    """The function in a thread of its own, for which the main thread waits.

    Python hears a signal only where it runs itself: a Stan loop without an end would keep Ctrl-C
    waiting for ever. After it the thread is left to itself, and ends with the process; what the
    main thread holds is cleaned up in good order. Other threads call the function directly.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():
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


@interruptible
def by_parts(evaluate: Callable[[Floats], NDArray[Any]], points: Floats) -> NDArray[Any]:
    """``evaluate`` of many points, on all cores if they are many; one value for each."""
    workers = (os.cpu_count() or 1) if len(points) >= _THREADED else 1
    with ThreadPoolExecutor(workers) as pool:
        return np.concatenate(list(pool.map(evaluate, np.array_split(points, workers))))


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
