"""Households made up for tests."""

import numpy as np
import pandas as pd

import dpbayes as dpb

ROLES = ["head", "partner", "child", "other"]
TREE = {
    "household": {
        "id": "hh",
        "most": 5,
        "order": "age",
        "columns": ["income", "city"],
        "role": "role",
        "once": ["head", "partner"],
        "rules": ["head.age >= 16", "partner.age >= 16", "head.age - child.age >= 14"],
    },
    "rules": ["hours == 0 or age >= 15"],
    "columns": {
        "hh": {"type": "identifier"},
        "role": {"type": "categorical", "levels": ROLES},
        "income": {"type": "continuous", "lower": 0, "upper": 200, "digits": 0},
        "city": {"type": "binary", "levels": ["no", "yes"]},
        "age": {"type": "count", "lower": 0, "upper": 99},
        "language": {"type": "categorical", "levels": ["a", "b", "c"]},
        "hours": {"type": "count", "lower": 0, "upper": 60},
    },
}


NAMES = ["hh", *(name for name in TREE["columns"] if name != "hh")]


def schema(**changes):
    """The schema of the households; ``changes`` replace entries of its tree."""
    return dpb.Schema.from_dict({**TREE, **changes})


def people(households, seed=1):
    """Households in which partners are of about one age, and all speak mostly one language."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(households):
        age = int(rng.integers(20, 90))
        income, city = float(min(200, round(rng.gamma(3, 20)))), rng.choice(["no", "yes"])
        language = rng.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1])
        members = [("head", age)]
        if rng.random() < 0.5:
            members.append(("partner", int(np.clip(age + rng.normal(-2, 3), 16, 99))))
        if age < 60:
            oldest = int(rng.integers(0, age - 15))
            members += [("child", max(0, oldest - 2 * k)) for k in range(rng.integers(0, 3))]
        if rng.random() < 0.05:
            members.append(("other", int(rng.integers(0, 99))))
        for role, own in members:
            same = rng.random() < 0.95
            spoken = language if same else rng.choice(["a", "b", "c"])
            hours = int(rng.integers(1, 60)) if own >= 15 and rng.random() < 0.6 else 0
            rows.append((f"h{number}", role, income, city, own, spoken, hours))
    frame = pd.DataFrame(rows, columns=NAMES)
    return frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)


def with_all_places(households):
    """The same, and a household that has somebody in every place."""
    members = [("head", 50), ("partner", 49), ("child", 20), ("child", 9), ("other", 80)]
    rows = [("x", role, 60.0, "yes", age, "a", 0) for role, age in members]
    return pd.concat([people(households), pd.DataFrame(rows, columns=NAMES)], ignore_index=True)
