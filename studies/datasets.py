"""Data that several studies use: simulated skewed shares, and files of installed packages."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import pd
from dpbayes.schema import Schema
from dpbayes.stan.model import Regression

# The simulated outcome of Hu, Williams & Savitsky, section 4.1: Beta(0.5, 3), no covariates.
SKEWED_SHAPE = (0.5, 3.0)
SKEWED_SCHEMA = Schema.from_dict(
    {
        "rows": "public",
        "columns": {"y": {"type": "continuous", "lower": 0, "upper": 1, "digits": 15}},
    }
)
SKEWED_MODEL = Regression("y ~ 1", "beta")


def skewed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw n records of one column y from Beta(0.5, 3).

    Source: hu-williams-savitsky, section 4.1.
    """
    return pd.DataFrame({"y": rng.beta(*SKEWED_SHAPE, n)})


def installed(package: str, file: str, remedy: str) -> Path:
    """Locate a file of an installed package without importing the package.

    Args:
        remedy: arguments of ``pip install`` for the error message.
    Raises:
        DataError: the file is missing.
    """
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(file)))
    except importlib.metadata.PackageNotFoundError:
        path = Path()
    if not path.is_file():
        raise DataError(f"{file.rpartition('/')[2]} is missing: pip install {remedy}.")
    return path
