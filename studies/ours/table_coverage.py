"""Coverage of 95% intervals from tables that ``marginals`` draws from one measurement.

Each replicate has n records of a simulated population with four columns. Data sets have n rows and,
if n is small, also five times as many; intervals use the rule that ``analyse`` selects. NumPy's
noise: for study only.
"""

from __future__ import annotations

import functools

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import pd, special
from dpbayes.inference.combining import combine
from dpbayes.mechanisms import Marginals
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Piece, Report, Study, rounded

REPLICATES = 60
DATASETS = 20
EPSILONS = (0.5, 1.0, 3.0)
ROWS = {1_600: (1_600, 8_000), 30_000: (30_000,)}  # rows of a data set, by number of records
SCHEMA = Schema.from_dict(
    {
        "rows": "public",
        "columns": {
            "region": {"type": "categorical", "levels": ["n", "e", "s", "w"]},
            "age": {"type": "count", "lower": 16, "upper": 85},
            "income": {"type": "continuous", "lower": 0, "upper": 200},
            "job": {"type": "binary", "levels": ["no", "yes"]},
        },
    }
)
QUANTITIES = (
    "share of a region", "share with a job", "mean age", "mean income", "correlation",
    "slope in age", "slope in job",
)  # fmt: skip
_MANY = 2_000_000  # records from which the true values are computed


def population(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Simulate a skewed age, a job less likely with age, a log-normal income, and four regions."""
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    age = np.clip(16 + rng.gamma(3, 9, n), 16, 85).round()
    job = rng.random(n) < special.expit((58 - age) / 7)
    centre = 3 + 0.01 * (age - 40) - 0.1 * region + 0.5 * job
    income = np.clip(np.exp(rng.normal(centre, 0.5)), 0, 200)
    columns = {
        "region": np.array(list("nesw"))[region], "age": age.astype(int), "income": income,
        "job": np.where(job, "yes", "no"),
    }  # fmt: skip
    return pd.DataFrame(columns)


def estimates(data: pd.DataFrame, weights: Vector | None = None) -> tuple[Vector, Vector]:
    """Estimates of ``QUANTITIES`` and variances, shape (7,); robust ones for the regression.

    Args:
        weights: sampling weights of the rows, if they have some; variances are then those of
            estimates from a sample that was drawn with replacement.
    """
    age, income = (data[name].to_numpy(dtype=float) for name in ("age", "income"))
    west, job = (
        np.asarray(data[c] == v, dtype=float) for c, v in (("region", "w"), ("job", "yes"))
    )
    w = np.full(len(data), 1 / len(data)) if weights is None else weights / weights.sum()
    x = np.column_stack([np.ones(len(data)), age, job])
    inverse = np.linalg.pinv((x * w[:, None]).T @ x)  # a data set may have no job
    slopes = inverse @ (x.T @ (w * income))
    rest = w * (income - x @ slopes)
    robust = inverse @ ((x * (rest**2)[:, None]).T @ x) @ inverse
    a, b = ((v - w @ v) / np.sqrt(w @ (v - w @ v) ** 2) for v in (age, income))
    correlation = float(w @ (a * b))
    influence = a * b - correlation * (a**2 + b**2) / 2
    means = [*(w @ v for v in (west, job, age, income)), correlation, *slopes[1:]]
    variances = [(w * (v - w @ v)) @ (w * (v - w @ v)) for v in (west, job, age, income, influence)]
    return np.array(means), np.array([*variances, *np.diag(robust)[1:]])


@functools.cache
def truth() -> Vector:
    """True values of the population, to about a thousandth of its sds."""
    return estimates(population(_MANY, np.random.default_rng(1)))[0]


def pieces(replicates: int) -> list[Piece]:
    """One piece per sample of the population, small ones first."""
    return [
        {"n": n, "epsilon": epsilon}
        for n in ROWS
        for epsilon in EPSILONS
        for _ in range(replicates)
    ]


def run(seed: np.random.SeedSequence, n: int, epsilon: float) -> pd.DataFrame:
    """Run one measurement: intervals by quantity and rows, in standard errors on the records."""
    rng = np.random.default_rng(seed)
    records = population(n, rng)
    fit = Synthesizer(SCHEMA, Marginals(epsilon, draw="posterior", adjacency="add-remove")).fit(
        records
    )
    sd = np.sqrt(estimates(records)[1])
    frames = []
    for rows in ROWS[n]:
        number = int(rng.integers(2**31))
        sets = fit.sample(DATASETS, accept="none", seed=number, rows=rows).datasets
        statistics: tuple[list[Vector], list[Vector]] = ([], [])
        for data in sets:
            for values, value in zip(statistics, estimates(data), strict=True):
                values.append(value)
        combined = combine(*statistics, "reiter2002")
        low, high = map(np.asarray, combined.interval())
        frames.append(_rows(np.asarray(combined.estimate), low, high, sd).assign(rows=rows))
    return pd.concat(frames).assign(n=n, epsilon=epsilon)


def _rows(centre: Floats, low: Floats, high: Floats, sd: Floats) -> pd.DataFrame:
    columns = {
        "quantity": QUANTITIES,
        "covered": (low <= truth()) & (truth() <= high),
        "off": (centre - truth()) / sd,
        "half": (high - low) / 2 / sd,
    }
    return pd.DataFrame(columns)


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Coverage, mean and sd of the error, and median half-width, in the units of ``run``."""
    grouped = found.groupby(["n", "epsilon", "rows", "quantity"], sort=False)
    return pd.DataFrame(
        {
            "coverage": grouped["covered"].mean(),
            "bias": grouped["off"].mean(),
            "sd": grouped["off"].std(),
            "half-width": grouped["half"].median(),
            "replicates": grouped.size(),
        }
    ).reset_index()


def report(found: pd.DataFrame) -> Report:
    """Report coverage, a column for each quantity."""
    coverage = table(found)
    wide = coverage.pivot(index=["n", "epsilon", "rows"], columns="quantity", values="coverage")
    error = np.sqrt(0.95 * 0.05 / coverage["replicates"].min())
    text = (
        f"Coverage of 95 % intervals from {DATASETS} data sets of one measurement (standard error "
        f"{error:.3f} at .95)\n\n" + rounded(wide[list(QUANTITIES)].reset_index(), 2)
    )
    return Report(text, {"coverage": coverage})


STUDY = Study(
    "tables-coverage",
    "coverage of intervals from whole tables by marginals, n = 1,600 and 30,000",
    REPLICATES,
    pieces,
    run,
    report,
)
