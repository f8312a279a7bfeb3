"""What synthetic panels keep, and coverage of 95% intervals for their population.

Each replicate draws a sample of simulated persons with up to six waves, synthesises it by
``panels``, and estimates quantities of the population from the data sets, with errors summed by
person. NumPy's noise: for study only.
"""

from __future__ import annotations

import functools

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import Panels
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.ours.households import intervals, reported
from studies.runner import Piece, Report, Study

REPLICATES = 10
DATASETS = 10
PERSONS = 5_000
POPULATION = 100_000
SETTINGS = (
    (1.0, 1e-6, False), (1.0, 0.0, False), (3.0, 1e-6, False),
    (1.0, 1e-6, True), (1.0, 0.0, True), (3.0, 1e-6, True),
)  # fmt: skip
KEEP = ("wage ~ before.wage + member + before.member + year + schooling + sex",)
WAVES, YEARS = 6, (2010, 2015)
QUANTITIES = (
    "mean wage", "members", "waves", "wage by wage before", "wage by member", "within: member",
    "within: year",
)  # fmt: skip
SCHEMA = Schema.from_dict(
    {
        "panel": {"id": "nr", "most": WAVES, "time": "year", "columns": ["sex", "schooling"]},
        "columns": {
            "nr": {"type": "identifier"},
            "year": {"type": "count", "lower": YEARS[0], "upper": YEARS[1]},
            "sex": {"type": "binary", "levels": ["m", "f"]},
            "schooling": {"type": "count", "lower": 6, "upper": 20},
            "member": {"type": "count", "lower": 0, "upper": 1},
            "wage": {"type": "continuous", "lower": 0, "upper": 5},
        },
    }
)


def panel(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up n persons: log wages stay near a person's level, and members earn .12 more."""
    sex = rng.integers(0, 2, n)
    schooling = np.clip(np.rint(rng.normal(12, 2.5, n)), 6, 20)
    level = 0.35 * rng.standard_normal(n) + 0.07 * (schooling - 12) + 0.15 * sex
    start = rng.integers(YEARS[0], YEARS[1] + 1, n)
    last = np.minimum(start + rng.integers(0, WAVES, n), YEARS[1])
    chance = 1 / (1 + np.exp(1 - 1.2 * level))
    member, left = rng.random(n) < chance, rng.normal(0, 0.2, n)
    rows = []
    for year in range(YEARS[0], YEARS[1] + 1):
        there = np.flatnonzero((start <= year) & (year <= last))
        member = np.where(rng.random(n) < 0.75, member, rng.random(n) < chance)
        left = 0.3 * left + rng.normal(0, 0.2, n)
        wage = 2 + 0.03 * (year - YEARS[0]) + level + 0.12 * member + left
        values = {"nr": there, "year": year, "sex": np.array(["m", "f"])[sex[there]],
                  "schooling": schooling[there].astype(int), "member": member[there].astype(int),
                  "wage": np.clip(wage[there], 0, 5)}  # fmt: skip
        rows.append(pd.DataFrame(values))
    return pd.concat(rows, ignore_index=True)


@functools.cache
def truth() -> Vector:
    """Values of ``QUANTITIES`` in the population."""
    return estimates(panel(POPULATION, np.random.default_rng([1, POPULATION])))[0]


def estimates(rows: pd.DataFrame) -> tuple[Vector, Vector]:
    """Estimates of ``QUANTITIES``, and their variances between persons."""
    rows = rows.sort_values(["nr", "year"])
    who = pd.factorize(rows["nr"])[0]
    names = ("wage", "member", "year", "schooling")
    wage, member, year, schooling = (rows[name].to_numpy(dtype=float) for name in names)
    fixed = np.column_stack([year - YEARS[0], schooling, rows["sex"].astype(str) == "f"])
    ones, later = np.ones((len(rows), 1)), np.r_[False, who[1:] == who[:-1]]
    before = np.flatnonzero(later) - 1
    waves = np.bincount(who).astype(float)
    lagged = np.column_stack([ones[later], wage[before], member[later], member[before],
                              fixed[later]])  # fmt: skip
    inside = [_within(value, who) for value in (wage, member, year)]
    found = [
        _regressed(ones, wage, who)[0],
        _regressed(ones, member, who)[0],
        _regressed(np.ones((len(waves), 1)), waves, np.arange(len(waves)))[0],
        _regressed(lagged, wage[later], who[later])[1],
        _regressed(np.column_stack([ones, member, fixed]), wage, who)[1],
        *_regressed(np.column_stack(inside[1:]), inside[0], who),
    ]
    return np.array([value for value, _ in found]), np.array([variance for _, variance in found])


def _within(values: Floats, who: Ints) -> Floats:
    """Values less their person's mean."""
    return np.asarray(values - (np.bincount(who, values) / np.bincount(who))[who])


def _regressed(x: Floats, y: Floats, who: Ints) -> list[tuple[float, float]]:
    """Coefficients of least squares, and their variances with errors summed by person."""
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ (x.T @ y)
    left = x * (y - x @ slopes)[:, None]
    sums = np.column_stack([np.bincount(who, column) for column in left.T])
    variances = np.diag(inverse @ (sums.T @ sums) @ inverse)
    return list(zip(slopes.tolist(), variances.tolist(), strict=True))


def pieces(replicates: int) -> list[Piece]:
    """One piece per sample, of all settings in turn."""
    return [
        {"epsilon": epsilon, "delta": delta, "keep": keep}
        for _ in range(replicates)
        for epsilon, delta, keep in SETTINGS
    ]


def run(seed: np.random.SeedSequence, epsilon: float, delta: float, keep: bool) -> pd.DataFrame:
    """Run one measurement: intervals by quantity, in standard errors of the records' estimate."""
    rng = np.random.default_rng(seed)
    records = panel(PERSONS, rng)
    mechanism = Panels(epsilon, delta=delta, keep=KEEP if keep else ())
    fit = Synthesizer(SCHEMA, mechanism).fit(records)
    made = fit.sample(DATASETS, accept="none", seed=int(rng.integers(2**31)))
    measured = intervals(estimates, QUANTITIES, truth(), records, made.datasets)
    return measured.assign(epsilon=epsilon, delta=f"{delta:g}", keep=keep)


def report(found: pd.DataFrame) -> Report:
    """Report coverage and bias of the quantities."""
    return reported(found, "persons", QUANTITIES, ("epsilon", "delta", "keep"))


STUDY = Study(
    "panels",
    f"coverage for a population from {PERSONS:,} persons with up to {WAVES} waves, ε = 1 and 3",
    REPLICATES,
    pieces,
    run,
    report,
)
