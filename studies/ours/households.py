"""What synthetic households keep, and coverage of 95% intervals for their population.

Each replicate draws a sample of simulated households, synthesises them by ``households``, and
estimates quantities of the population from the data sets, with variances by household. NumPy's
noise: for study only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import pd
from dpbayes.inference.combining import combine
from dpbayes.mechanisms import Households
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Piece, Report, Study, rounded

REPLICATES = 20
DATASETS = 10
SETTINGS = (
    (1.0, 0.0, False), (1.0, 1e-6, False), (3.0, 1e-6, False),
    (1.0, 0.0, True), (1.0, 1e-6, True),
)  # fmt: skip
KEEP = (
    "partner.schooling ~ head.schooling",
    "child.schooling ~ head.schooling * I(child.age >= 18)",
)
SIZES = (2_000,)
HOUSEHOLDS = 200_000
PARTNERS, ALONE = 0.55, 0.35  # shares with a partner, and of others without children
QUANTITIES = (
    "members", "income", "works", "age", "partners apart", "partners' schooling",
    "child's schooling", "works by income",
)  # fmt: skip
SCHEMA = Schema.from_dict(
    {
        "household": {
            "id": "hh",
            "most": 6,
            "order": "age",
            "columns": ["income"],
            "role": "role",
            "once": ["head", "partner"],
            "rules": ["head.age >= 18", "partner.age >= 18", "head.age - child.age >= 16"],
        },
        "rules": ["works == 0 or age >= 16"],
        "columns": {
            "hh": {"type": "identifier"},
            "role": {"type": "categorical", "levels": ["head", "partner", "child"]},
            "income": {"type": "continuous", "lower": 0, "upper": 300, "digits": 1},
            "age": {"type": "count", "lower": 0, "upper": 99},
            "schooling": {"type": "count", "lower": 0, "upper": 20},
            "works": {"type": "count", "lower": 0, "upper": 1},
        },
    }
)


def households(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up n households: partners are alike, and children go to school as their parents did."""
    age = np.clip(np.rint(18 + 72 * rng.beta(1.8, 2.2, n)), 18, 90)
    schooling = np.clip(np.rint(rng.normal(12, 3, n)), 4, 20)
    partner = rng.random(n) < PARTNERS
    may = (age >= 20) & (age <= 62) & (partner | (rng.random(n) > ALONE))
    children = np.where(may, rng.choice(5, n, p=[0.35, 0.25, 0.25, 0.1, 0.05]), 0)
    income = 8 * np.exp(rng.normal(0, 0.4, n) + 0.08 * schooling + 0.35 * partner)
    rows = [_members(np.arange(n), "head", age, schooling, rng)]
    who = np.flatnonzero(partner)
    theirs = np.clip(np.rint(age[who] - 1 + rng.normal(0, 3.5, len(who))), 18, 99)
    learned = np.clip(np.rint(0.6 * schooling[who] + 4.8 + rng.normal(0, 2.2, len(who))), 4, 20)
    rows.append(_members(who, "partner", theirs, learned, rng))
    oldest = np.clip(np.rint((age - 16) * rng.beta(2, 2, n)), 0, 40)
    for number in range(4):
        who = np.flatnonzero((children > number) & (oldest - 3 * number >= 0))
        own = np.maximum(oldest[who] - 3 * number - (number > 0) * rng.integers(0, 2, len(who)), 0)
        learned = 0.4 * schooling[who] + 7 + rng.normal(0, 2, len(who))
        learned = np.clip(np.rint(np.minimum(learned, np.maximum(own - 5, 0))), 0, 20)
        rows.append(_members(who, "child", own, learned, rng))
    frame = pd.concat(rows, ignore_index=True)
    frame["income"] = np.clip(income, 0, 300).round(1)[frame["hh"]]
    return frame


def _members(
    home: Ints, role: str, age: Floats, schooling: Floats, rng: np.random.Generator
) -> pd.DataFrame:
    chance = np.where((age >= 16) & (age < 65), 0.3 + 0.03 * schooling, 0.02 * (age >= 16))
    works = (rng.random(len(age)) < chance).astype(int)
    values = {"hh": home, "role": role, "age": age, "schooling": schooling, "works": works}
    return pd.DataFrame(values).astype({"age": int, "schooling": int})


@functools.cache
def truth() -> Vector:
    """Values of ``QUANTITIES`` in the population."""
    return estimates(households(HOUSEHOLDS, np.random.default_rng([1, HOUSEHOLDS])))[0]


def estimates(rows: pd.DataFrame) -> tuple[Vector, Vector]:
    """Estimates of ``QUANTITIES``, and their variances between households."""
    home = pd.factorize(rows["hh"])[0]
    n = int(home.max()) + 1
    income = np.zeros(n)
    income[home] = rows["income"].to_numpy(dtype=float)
    values = {name: rows[name].to_numpy(dtype=float) for name in ("age", "schooling", "works")}
    head, partner, child = (
        np.flatnonzero(rows["role"].astype(str).to_numpy() == role)
        for role in ("head", "partner", "child")
    )
    head_of = np.zeros(n, dtype=np.int64)
    head_of[home[head]] = head
    grown = child[values["age"][child] >= 18]
    adult = np.flatnonzero((values["age"] >= 18) & (values["age"] < 65))
    sizes = np.bincount(home, minlength=n).astype(float)
    apart = values["age"][head_of[home[partner]]] - values["age"][partner]
    found = [
        _ratio(sizes, np.ones(n)),
        _ratio(income, np.ones(n)),
        _ratio(_summed(home, values["works"], n), sizes),
        _ratio(_summed(home, values["age"], n), sizes),
        _ratio(_summed(home[partner], apart, n), _summed(home[partner], np.ones(len(apart)), n)),
        _slope(values["schooling"][head_of[home[partner]]], values["schooling"][partner],
               home[partner], n),
        _slope(values["schooling"][head_of[home[grown]]], values["schooling"][grown],
               home[grown], n),
        _slope(income[home[adult]] / 100, values["works"][adult], home[adult], n),
    ]  # fmt: skip
    return np.array([value for value, _ in found]), np.array([variance for _, variance in found])


def _summed(home: Ints, values: Floats, n: int) -> Floats:
    """Sums of members' values by household, shape (n,)."""
    return np.asarray(np.bincount(home, values, n), dtype=float)


def _ratio(above: Floats, below: Floats) -> tuple[float, float]:
    """Ratio of sums over households, and its variance by linearisation."""
    value = above.sum() / max(below.sum(), 1e-9)
    left = above - value * below
    return float(value), float((left**2).sum() / max(below.sum(), 1e-9) ** 2)


def _slope(x: Floats, y: Floats, home: Ints, n: int) -> tuple[float, float]:
    """Slope of a least-squares line, and its variance with errors summed by household."""
    away = x - x.mean()
    squares = max(float(away @ away), 1e-9)
    slope = float(away @ y) / squares
    left = _summed(home, away * (y - y.mean() - slope * away), n)
    return slope, float((left**2).sum()) / squares**2


def pieces(replicates: int) -> list[Piece]:
    """One piece per sample, small ones first."""
    return [
        {"n": n, "epsilon": epsilon, "delta": delta, "keep": keep}
        for n in SIZES
        for epsilon, delta, keep in SETTINGS
        for _ in range(replicates)
    ]


def run(
    seed: np.random.SeedSequence, n: int, epsilon: float, delta: float, keep: bool
) -> pd.DataFrame:
    """Run one measurement: intervals by quantity, in standard errors of the records' estimate."""
    rng = np.random.default_rng(seed)
    records = households(n, rng)
    mechanism = Households(epsilon, delta=delta, keep=KEEP if keep else ())
    fit = Synthesizer(SCHEMA, mechanism).fit(records)
    made = fit.sample(DATASETS, accept="none", seed=int(rng.integers(2**31)))
    measured = intervals(estimates, QUANTITIES, truth(), records, made.datasets)
    return measured.assign(n=n, epsilon=epsilon, delta=f"{delta:g}", keep=keep)


def intervals(
    estimates: Callable[[pd.DataFrame], tuple[Vector, Vector]],
    quantities: Sequence[str],
    truth: Vector,
    records: pd.DataFrame,
    datasets: Sequence[pd.DataFrame],
) -> pd.DataFrame:
    """Compare 95% intervals by quantity with the population's values.

    Args:
        estimates: estimates of the quantities from a table, and their variances.
        truth: their values in the population.
    """
    each = [estimates(data) for data in datasets]
    combined = combine([value for value, _ in each], [spread for _, spread in each], "reiter2002")
    low, high = map(np.asarray, combined.interval())
    own, variances = estimates(records)
    sd = np.sqrt(variances)
    columns = {
        "quantity": quantities,
        "covered": (low <= truth) & (truth <= high),
        "off": (np.asarray(combined.estimate) - truth) / sd,
        "half": (high - low) / 2 / sd,
        "records": np.abs(own - truth) <= 1.96 * sd,
    }
    return pd.DataFrame(columns)


INDEX = ("n", "epsilon", "delta", "keep")


def table(found: pd.DataFrame, index: Sequence[str] = INDEX) -> pd.DataFrame:
    """Coverage, and errors in standard errors of the estimate from the records."""
    grouped = found.groupby([*index, "quantity"], sort=False)
    return pd.DataFrame(
        {
            "coverage": grouped["covered"].mean(),
            "bias": grouped["off"].mean(),
            "sd": grouped["off"].std(),
            "half-width": grouped["half"].median(),
            "coverage, records": grouped["records"].mean(),
            "replicates": grouped.size(),
        }
    ).reset_index()


def reported(
    found: pd.DataFrame, of: str, quantities: Sequence[str], index: Sequence[str]
) -> Report:
    """Report coverage and bias, a column for each quantity.

    Args:
        of: what the population consists of.
        index: columns of the settings.
    """
    coverage = table(found, index)
    parts = []
    for name in ("coverage", "bias"):
        wide = coverage.pivot(index=list(index), columns="quantity", values=name)
        parts.append(f"{name}\n{rounded(wide[list(quantities)].reset_index(), 2)}")
    text = (
        f"95 % intervals for the population of {of}; biases in standard errors of the records' "
        "estimates\n\n" + "\n\n".join(parts)
    )
    return Report(text, {"coverage": coverage})


def report(found: pd.DataFrame) -> Report:
    """Report coverage and bias of the quantities."""
    return reported(found, "households", QUANTITIES, INDEX)


STUDY = Study(
    "households",
    "coverage for a population from 2,000 households, ε = 1 and 3",
    REPLICATES,
    pieces,
    run,
    report,
)
