"""Data that several studies use: the shipped earnings, and a skewed share drawn anew each time."""

from __future__ import annotations

import importlib.metadata
from importlib.resources import files
from pathlib import Path

import numpy as np

from dpbayes.errors import DataError
from dpbayes.formats import read_records
from dpbayes.heavy import pd
from dpbayes.schema import Schema
from dpbayes.stan.model import Regression

EARNINGS_MODEL = Regression("earnings ~ age + I(age**2) + gender + education + region", "beta")
# The simulated outcome of Hu, Williams & Savitsky, section 4.1: Beta(0.5, 3), no covariates.
SKEWED_SHAPE = (0.5, 3.0)
SKEWED_SCHEMA = Schema.from_dict(
    {"columns": {"y": {"type": "continuous", "lower": 0, "upper": 1, "digits": 15}}}
)
SKEWED_MODEL = Regression("y ~ 1", "beta")


def earnings(*, whole: bool = False) -> tuple[pd.DataFrame, Schema]:
    """The shipped records and their schema; see data/PROVENANCE.md.

    Args:
        whole: all 61,395 records, not the sample of 1,601.
    """
    folder = Path(str(files("dpbayes") / "data"))
    if whole:
        records = pd.read_csv(folder / "cps_earnings_full.csv.gz")
    else:
        records = read_records(folder / "cps_earnings.csv")
    return records, Schema.from_toml(folder / "cps_earnings.toml")


def alone(name: str, records: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, Schema]:
    """One column of records and its schema, for mechanisms that know nothing of the others."""
    return records[[name]], Schema({name: schema[name]})


def skewed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """n records of one column y, from Beta(0.5, 3).

    Source: hu-williams-savitsky, section 4.1.
    """
    return pd.DataFrame({"y": rng.beta(*SKEWED_SHAPE, n)})


def installed(package: str, file: str, remedy: str) -> Path:
    """A file of an installed package, which is not imported.

    Args:
        remedy: what to ask pip for.
    Raises:
        DataError: it is not there.
    """
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(file)))
    except importlib.metadata.PackageNotFoundError:
        path = Path()
    if not path.is_file():
        raise DataError(f"{file.rpartition('/')[2]} is missing: pip install {remedy}.")
    return path
