"""Coverage of 95% intervals of slopes from tables of related normal columns by ``marginals``.

Each replicate has n records with y = (a + b) / 2 + e, where a, b and e are standard normal and a
and b have a correlation. Relations of normal columns live in their tails, where tables are coarse:
the hardest case for a mechanism of tables. NumPy's noise: for study only.
"""

from __future__ import annotations

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import pd
from dpbayes.inference.combining import combine
from dpbayes.mechanisms import Marginals
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Piece, Report, Study, rounded

REPLICATES = 20
DATASETS = 20
EPSILONS = (1.0, 3.0)
SIZES = (3_000, 30_000)
CORRELATIONS = (0.5, 0.8, 0.9)
KEEP = "y ~ a + b"
KEPT = (3_000,)  # numbers of records with which it is tried as well
SLOPE = 0.5  # of y in a, and in b
BOUND = 6.0  # of all columns
QUANTITIES = ("mean of y", "correlation of a and b", "slope in a", "slope in b")
_COLUMN = {"type": "continuous", "lower": -BOUND, "upper": BOUND}
SCHEMA = Schema.from_dict({"rows": "public", "columns": dict.fromkeys("aby", _COLUMN)})


def population(n: int, correlation: float, rng: np.random.Generator) -> pd.DataFrame:
    """Simulate n records."""
    a, z, e = rng.standard_normal((3, n))
    b = correlation * a + np.sqrt(1 - correlation**2) * z
    return pd.DataFrame({"a": a, "b": b, "y": SLOPE * (a + b) + e}).clip(-BOUND, BOUND)


def estimates(data: pd.DataFrame) -> tuple[Vector, Vector]:
    """Estimates of ``QUANTITIES`` and their variances, shape (4,); robust ones for slopes."""
    a, b, y = (data[name].to_numpy(dtype=float) for name in "aby")
    n = len(y)
    x = np.column_stack([np.ones(n), a, b])
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ (x.T @ y)
    scores = x * (y - x @ slopes)[:, None]
    robust = np.diag(inverse @ (scores.T @ scores) @ inverse)
    u, v = ((c - c.mean()) / c.std() for c in (a, b))
    correlation = float((u * v).mean())
    influence = u * v - correlation * (u**2 + v**2) / 2
    found = [y.mean(), correlation, *slopes[1:]]
    return np.array(found), np.array([y.var() / n, influence.var() / n, *robust[1:]])


def truth(correlation: float) -> Vector:
    """Values of ``QUANTITIES`` in the population."""
    return np.array([0.0, correlation, SLOPE, SLOPE])


def pieces(replicates: int) -> list[Piece]:
    """One piece per sample of the population, small ones first."""
    return [
        {"n": n, "epsilon": epsilon, "correlation": correlation, "kept": kept}
        for n in SIZES
        for epsilon in EPSILONS
        for kept in ((False, True) if n in KEPT else (False,))
        for correlation in CORRELATIONS
        for _ in range(replicates)
    ]


def run(
    seed: np.random.SeedSequence, n: int, epsilon: float, correlation: float, kept: bool
) -> pd.DataFrame:
    """Run one measurement: intervals by quantity, in standard errors on the records."""
    rng = np.random.default_rng(seed)
    records = population(n, correlation, rng)
    mechanism = Marginals(epsilon, draw="posterior", keep=[KEEP] if kept else [])
    fit = Synthesizer(SCHEMA, mechanism).fit(records)
    made = fit.sample(DATASETS, accept="none", seed=int(rng.integers(2**31)))
    centres, variances = zip(*map(estimates, made.datasets), strict=True)
    combined = combine(centres, variances, "reiter2002")
    low, high = map(np.asarray, combined.interval())
    true, sd = truth(correlation), np.sqrt(estimates(records)[1])
    found = {
        "quantity": QUANTITIES,
        "covered": (low <= true) & (true <= high),
        "estimate": combined.estimate,
        "off": (np.asarray(combined.estimate) - true) / sd,
        "half": (high - low) / 2 / sd,
    }
    return pd.DataFrame(found).assign(n=n, epsilon=epsilon, correlation=correlation, kept=kept)


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Coverage and mean estimate; mean error and median half-width, in the units of ``run``."""
    cells = ["n", "epsilon", "kept", "correlation", "quantity"]
    grouped = found.groupby(cells, sort=False)
    return pd.DataFrame(
        {
            "coverage": grouped["covered"].mean(),
            "estimate": grouped["estimate"].mean(),
            "bias": grouped["off"].mean(),
            "half-width": grouped["half"].median(),
            "replicates": grouped.size(),
        }
    ).reset_index()


def report(found: pd.DataFrame) -> Report:
    """Report coverage, a column for each quantity."""
    coverage = table(found)
    index = ["n", "epsilon", "kept", "correlation"]
    wide = coverage.pivot(index=index, columns="quantity", values="coverage")
    error = np.sqrt(0.95 * 0.05 / coverage["replicates"].min())
    text = (
        f"Coverage of 95 % intervals from {DATASETS} data sets of one measurement (standard error "
        f"{error:.3f} at .95); kept: {KEEP} in keep\n\n"
        + rounded(wide[list(QUANTITIES)].reset_index(), 2)
    )
    return Report(text, {"coverage": coverage})


STUDY = Study(
    "slope-coverage",
    "coverage of slopes of related normal columns from whole tables, n = 3,000 and 30,000",
    REPLICATES,
    pieces,
    run,
    report,
)
