"""Panels made up for tests."""

import numpy as np
import pandas as pd

import dpbayes as dpb

TREE = {
    "panel": {
        "id": "nr",
        "most": 6,
        "time": "year",
        "columns": ["sex"],
        "rules": ["school >= before.school"],
    },
    "rules": ["wage <= 20 or school >= 8"],
    "columns": {
        "nr": {"type": "identifier"},
        "sex": {"type": "binary", "levels": ["f", "m"]},
        "year": {"type": "count", "lower": 2010, "upper": 2015},
        "school": {"type": "count", "lower": 6, "upper": 18},
        "member": {"type": "binary", "levels": ["no", "yes"]},
        "wage": {"type": "continuous", "lower": 0, "upper": 50, "missing": [""]},
    },
}
NAMES = list(TREE["columns"])


def schema(**changes):
    """The schema of the panel; ``changes`` replace entries of its tree."""
    return dpb.Schema.from_dict({**TREE, **changes})


def waves(persons, seed=1):
    """Persons with one to six waves of years that follow or skip each other.

    Wages stay near a level of the person, school only grows, and one in twenty wages is missing.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(persons):
        sex, level = rng.choice(["f", "m"]), rng.normal(12, 4)
        years = np.flatnonzero(rng.random(6) < 0.6) + 2010
        school, member = int(rng.integers(8, 15)), rng.random() < 0.3
        for year in years if len(years) else [2010]:
            school = min(18, school + int(rng.random() < 0.1))
            member = member if rng.random() < 0.8 else rng.random() < 0.3
            wage = float(np.clip(level + 0.4 * (year - 2010) + member + rng.normal(), 0, 50))
            wage = float("nan") if rng.random() < 0.05 else round(wage, 2)
            rows.append((f"p{number}", sex, int(year), school, "yes" if member else "no", wage))
    frame = pd.DataFrame(rows, columns=NAMES)
    return frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)
