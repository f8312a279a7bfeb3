"""Libraries that take long to import, loaded when first used.

``dpbayes --help``, ``list`` and errors in options and schemas need none of them. Modules say
``from dpbayes.heavy import pd`` where they would say ``import pandas as pd``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import filelock
    import formulaic
    import pandas as pd
    import sqlalchemy as sa
    import xarray as xr
    from scipy import interpolate, optimize, sparse, special, stats
else:
    from importlib import import_module

    class _Waiting:
        """A module that is imported when an attribute is asked for."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(import_module(self._name), attribute)

    filelock, formulaic = (_Waiting(name) for name in ("filelock", "formulaic"))
    pd = _Waiting("pandas")
    sa = _Waiting("sqlalchemy")
    xr = _Waiting("xarray")
    interpolate, optimize, sparse, special, stats = (
        _Waiting(f"scipy.{n}") for n in ("interpolate", "optimize", "sparse", "special", "stats")
    )

__all__ = [
    "filelock", "formulaic", "interpolate", "optimize", "pd", "sa", "sparse", "special", "stats",
    "xr",
]  # fmt: skip
