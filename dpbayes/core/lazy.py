"""Libraries that take long to import, loaded when first used.

``dpbayes --help``, ``list`` and errors in options and schemas need none of them. Modules say
``from dpbayes.core.lazy import pd`` where they would say ``import pandas as pd``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpbayes.core.errors import DataError

if TYPE_CHECKING:
    import filelock
    import formulaic
    import pandas as pd
    import sqlalchemy as sa
    import xarray as xr
    from scipy import interpolate, optimize, sparse, special, stats
else:

    class _Waiting:
        """A module that is imported when an attribute is asked for."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(importlib.import_module(self._name), attribute)

    filelock, formulaic = (_Waiting(name) for name in ("filelock", "formulaic"))
    pd = _Waiting("pandas")
    sa = _Waiting("sqlalchemy")
    xr = _Waiting("xarray")
    interpolate, optimize, sparse, special, stats = (
        _Waiting(f"scipy.{n}") for n in ("interpolate", "optimize", "sparse", "special", "stats")
    )


def needed(name: str, what: str, extra: str = "files") -> Any:
    """A module of an extra.

    Args:
        name: of the module.
        what: asks for it.
    Raises:
        DataError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(
            f"{what} needs {name.partition('.')[0]}: pip install 'dpbayes[{extra}]'."
        ) from None


__all__ = [
    "filelock", "formulaic", "interpolate", "needed", "optimize", "pd", "sa", "sparse", "special",
    "stats", "xr",
]  # fmt: skip
