"""Linear algebra in a single thread.

The matrices here are small: BLAS threads wait for each other far longer than they compute, and each
waits by spinning. Two fits on two cores took ten times as long as in one thread each
(benchmarks/README.md). Chains, studies and parts of records run in parallel instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread; usable in ``with`` or as a decorator."""
    # SciPy has a BLAS of its own, and only libraries that are loaded can be limited.
    importlib.import_module("scipy.linalg")
    with threadpool_limits(1, user_api="blas"):
        yield
