"""The shipped records: earnings of the Current Population Survey (data/PROVENANCE.md)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dpbayes.core.lazy import pd
from dpbayes.records.formats import read_records
from dpbayes.schema import Schema
from dpbayes.schema.rows import PUBLIC
from dpbayes.stan.model import Regression

EARNINGS_MODEL = Regression("earnings ~ age + I(age**2) + gender + education + region", "beta")


def earnings(*, whole: bool = False) -> tuple[pd.DataFrame, Schema]:
    """Read the shipped records and their schema; see data/PROVENANCE.md.

    Args:
        whole: return all 61,395 records, not the sample of 1,601.
    """
    folder = Path(str(files("dpbayes") / "data"))
    if whole:
        records = pd.read_csv(folder / "cps_earnings_full.csv.gz")
    else:
        records = read_records(folder / "cps_earnings.csv")
    return records, Schema.from_toml(folder / "cps_earnings.toml")


def alone(name: str, records: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, Schema]:
    """Select one column of records and its schema, for mechanisms that use no other column."""
    return records[[name]], Schema({name: schema[name]}, PUBLIC)
