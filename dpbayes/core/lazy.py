"""Lazy imports of libraries that load slowly.

``dpbayes --help``, ``list`` and errors in options and schemas need none of them. Modules write
``from dpbayes.core.lazy import pd`` instead of ``import pandas as pd``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from dpbayes.core.errors import DataError

if TYPE_CHECKING:
    import filelock
    import formulaic
    import pandas as pd
    import sqlalchemy as sa
    import xarray as xr
    from scipy import interpolate, linalg, optimize, sparse, special, stats
else:

    class _Waiting:
        """Module that is imported when one of its attributes is first used."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(importlib.import_module(self._name), attribute)

    filelock, formulaic = (_Waiting(name) for name in ("filelock", "formulaic"))
    pd = _Waiting("pandas")
    sa = _Waiting("sqlalchemy")
    xr = _Waiting("xarray")
    interpolate, linalg, optimize, sparse, special, stats = (
        _Waiting(f"scipy.{n}")
        for n in ("interpolate", "linalg", "optimize", "sparse", "special", "stats")
    )


def needed(name: str, feature: str, extra: str = "files") -> ModuleType:
    """Import a module that is installed with an extra of dpbayes.

    Args:
        name: name of the module.
        feature: feature that needs it, for the message.
        extra: name of the extra.
    Raises:
        DataError: the module is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(
            f"{feature} needs {name.partition('.')[0]}: pip install 'dpbayes[{extra}]'."
        ) from None


__all__ = [
    "filelock", "formulaic", "interpolate", "linalg", "needed", "optimize", "pd", "sa", "sparse",
    "special", "stats", "xr",
]  # fmt: skip
