"""Evaluators of the embedded engine: density and quantities of a program with data, at points.

``stanli`` samples from a model class of its own; evaluators are BridgeStan models over the same
library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import stanli
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.interrupts import interruptible, note

_THREADED = 1000  # points from which all cores share the work
# Programs may print records, so the output of all models of this process is discarded.
_drop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(lambda _text, _length: None)
stanli._lib.bs_set_print_callback(_drop, None)


def _noted(watch: Any, number: int, _frame: Any) -> None:
    """Handle Ctrl-C while stanli samples: stanli forgets one that comes after its last poll."""
    note(number)
    watch.tripped = True


stanli._InterruptWatch._handle = _noted


def evaluator(mir: str, data: str) -> Any:
    """Build a BridgeStan model directly from JSON text.

    ``stanli.bridgestan_model`` parses and encodes the data again in Python, which takes nine tenths
    of the time of a model with many records.
    """
    from bridgestan import StanModel  # slow to import

    program = json.dumps({"build_id": stanli.build_id(), "mir": mir, "name": "stanli_model"})
    whole = f'{{"__stanli":{program},{data[1:]}'
    # capture_stan_prints would replace the callback above, and print.
    model = StanModel(stanli._runtime_lib_path(), whole, capture_stan_prints=False, warn=False)
    model.data = ""  # a second copy of all records, used only for its repr
    return model


def unconstrained(model: Any, points: Floats) -> Floats:
    """Unconstrained coordinates of constrained points, shape (S, d); NaN where Stan finds none."""
    out = np.full((len(points), model.param_unc_num()), np.nan)
    for s, point in enumerate(points):
        with contextlib.suppress(RuntimeError):
            out[s] = model.param_unconstrain(point)
    return out


def names_of(model: Any) -> list[str]:
    """Flat names of the parameters' entries."""
    return [name for name in model.param_names() if name]


@interruptible
def by_parts(evaluate: Callable[[Floats], NDArray[Any]], points: Floats) -> NDArray[Any]:
    """Evaluate a function at points, on all cores if there are many; one value per point."""
    workers = (os.cpu_count() or 1) if len(points) >= _THREADED else 1
    with ThreadPoolExecutor(workers) as pool:
        return np.concatenate(list(pool.map(evaluate, np.array_split(points, workers))))
