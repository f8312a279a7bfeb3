"""Linear algebra in one thread.

Our matrices are small: threads of BLAS wait for each other far longer than they compute, and each
waits by spinning. Two fits on two cores took 30 times as long as in one thread each
(benchmarks/README.md). Chains, studies and parts of records run side by side instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS has one thread meanwhile: around what computes, as ``with`` or above a function."""
    importlib.import_module("scipy.linalg")  # it has a BLAS of its own, which must be loaded
    with threadpool_limits(1, user_api="blas"):
        yield
