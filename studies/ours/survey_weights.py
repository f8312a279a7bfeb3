"""Coverage of 95% intervals for a population, from samples whose weights tell of the outcome.

Each replicate draws a sample of a simulated population by one of four designs, synthesises it by
``marginals`` with its weights, and estimates seven quantities of the population from the data sets.
NumPy's noise: for study only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import pd, special
from dpbayes.inference.combining import combine
from dpbayes.mechanisms import Marginals
from dpbayes.schema import Schema, Survey
from dpbayes.schema.rows import ASSUMED
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.ours import table_coverage
from studies.ours.table_coverage import QUANTITIES
from studies.runner import Piece, Report, Study, rounded

REPLICATES = 40
DATASETS = 20
EPSILONS = (0.5, 1.0, 3.0)
SIZES = (1_000, 10_000)
PEOPLE = 200_000
STEEPEST = 30  # ratio of the largest weight to the smallest, at most
AREAS, OF_AREA = 2_000, 10  # areas of a hundred people, and people who are drawn of an area
ALIKE = 0.05  # correlation of the incomes of two people of an area


@dataclass(frozen=True)
class Design:
    """A sampling design.

    Attributes:
        sizes: what chances are in proportion to, shape (people,), by people and their areas.
        by_area: areas are drawn, and ``OF_AREA`` people of each.
        deff: public design effect beyond that of the weights.
    """

    sizes: Callable[[pd.DataFrame], Floats]
    by_area: bool = False
    deff: float = 1.0


def _by_strata(people: pd.DataFrame) -> Floats:
    """Four strata by income, of which the highest are in the sample ten times as often."""
    return np.array([1.0, 2.0, 4.0, 10.0])[pd.qcut(people["income"], 4, labels=False)]


def _by_size(people: pd.DataFrame) -> Floats:
    """Sizes that go with income and chance, such as last year's turnover."""
    noise = np.random.default_rng(2).normal(0, 0.4, len(people))
    return np.asarray(people["income"].to_numpy() * np.exp(noise))


def _by_response(people: pd.DataFrame) -> Floats:
    """Chances to respond, which grow with age and are lower for those who work and earn much."""
    rich = (people["income"] > people["income"].median()).to_numpy(dtype=float)
    works = (people["job"] == "yes").to_numpy(dtype=float)
    return np.asarray(special.expit((people["age"].to_numpy() - 60) / 12 - works - rich))


def _by_region(people: pd.DataFrame) -> Floats:
    """Small regions are in the sample more often."""
    sizes = people["region"].map({"w": 6.0, "s": 3.0, "e": 2.0, "n": 1.0})
    return np.asarray(sizes, dtype=float)


DESIGNS = {
    "strata": Design(_by_strata),
    "size": Design(_by_size),
    "response": Design(_by_response),
    "areas": Design(_by_region, by_area=True, deff=1 + (OF_AREA - 1) * ALIKE),
}


@functools.cache
def people() -> pd.DataFrame:
    """The population, with areas of people whose incomes are somewhat alike."""
    rng = np.random.default_rng([1, PEOPLE])  # not the seed of a sample
    frame = table_coverage.population(PEOPLE, rng)
    ranks = special.ndtri((frame["income"].rank().to_numpy() - 0.5) / PEOPLE)
    order = np.argsort(np.sqrt(ALIKE) * ranks + np.sqrt(1 - ALIKE) * rng.standard_normal(PEOPLE))
    area = np.empty(PEOPLE, dtype=np.int64)
    area[order] = np.arange(PEOPLE) // (PEOPLE // AREAS)
    return frame.assign(area=area)


@functools.cache
def truth() -> Vector:
    """Values of ``QUANTITIES`` in the population."""
    return table_coverage.estimates(people())[0]


@functools.cache
def chances(design: str, n: int) -> Vector:
    """Probabilities of being drawn, shape (people,); they add up to n."""
    sizes = DESIGNS[design].sizes(people())
    sizes = np.clip(sizes, np.quantile(sizes, 0.9) * 2 / STEEPEST, np.quantile(sizes, 0.9) * 2)
    return np.asarray(n * sizes / sizes.sum())


def sample(design: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Survey]:
    """Draw about n records with weights, and what is public of these."""
    how, chance = DESIGNS[design], chances(design, n)
    if how.by_area:  # areas by the flip of a coin, and people within by their chances
        areas = rng.random(AREAS) < n / OF_AREA / AREAS
        inside = areas[people()["area"].to_numpy()]
        drawn = inside & (rng.random(PEOPLE) < chance * OF_AREA * AREAS / n)
    else:
        drawn = rng.random(PEOPLE) < chance
    rows: Ints = np.flatnonzero(drawn)
    weights = 1 / chance
    records = people().iloc[rows].drop(columns="area").assign(weight=weights[rows])
    largest = float(np.ceil(weights.max()))
    return records, Survey("weight", PEOPLE, largest, how.deff)


def standard_errors(records: pd.DataFrame) -> Vector:
    """Standard errors of the weighted estimates, by linearisation, without strata and areas."""
    return np.sqrt(table_coverage.estimates(records, records["weight"].to_numpy())[1])


def pieces(replicates: int) -> list[Piece]:
    """One piece per sample, small ones first."""
    return [
        {"design": design, "n": n, "epsilon": epsilon}
        for n in SIZES
        for epsilon in EPSILONS
        for design in DESIGNS
        for _ in range(replicates)
    ]


def run(seed: np.random.SeedSequence, design: str, n: int, epsilon: float) -> pd.DataFrame:
    """Run one measurement: intervals by quantity, in standard errors of the weighted estimate."""
    rng = np.random.default_rng(seed)
    records, survey = sample(design, n, rng)
    columns = table_coverage.SCHEMA.columns
    schema = Schema(columns, rows=ASSUMED, survey=survey)
    fit = Synthesizer(schema, Marginals(epsilon)).fit(records)
    made = fit.sample(DATASETS, accept="none", seed=int(rng.integers(2**31)))
    statistics: tuple[list[Vector], list[Vector]] = ([], [])
    for data in made.datasets:
        for values, value in zip(statistics, table_coverage.estimates(data), strict=True):
            values.append(value)
    combined = combine(*statistics, "reiter2002")
    low, high = map(np.asarray, combined.interval())
    sd = standard_errors(records) * np.sqrt(survey.deff)
    weighted = table_coverage.estimates(records, records["weight"].to_numpy())[0]
    found = {
        "quantity": QUANTITIES,
        "covered": (low <= truth()) & (truth() <= high),
        "off": (np.asarray(combined.estimate) - truth()) / sd,
        "half": (high - low) / 2 / sd,
        "records": (weighted - truth()) / sd,
        "unweighted": (table_coverage.estimates(records)[0] - truth()) / sd,
    }
    return pd.DataFrame(found).assign(design=design, n=n, epsilon=epsilon)


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Coverage, and errors in standard errors of the weighted estimate from the records."""
    grouped = found.groupby(["n", "epsilon", "design", "quantity"], sort=False)
    return pd.DataFrame(
        {
            "coverage": grouped["covered"].mean(),
            "bias": grouped["off"].mean(),
            "sd": grouped["off"].std(),
            "half-width": grouped["half"].median(),
            "bias, records": grouped["records"].mean(),
            "bias, without weights": grouped["unweighted"].mean(),
            "replicates": grouped.size(),
        }
    ).reset_index()


def report(found: pd.DataFrame) -> Report:
    """Report coverage, a column for each quantity."""
    coverage = table(found)
    index = ["n", "epsilon", "design"]
    wide = coverage.pivot(index=index, columns="quantity", values="coverage")
    error = np.sqrt(0.95 * 0.05 / coverage["replicates"].min())
    text = (
        f"Coverage of 95 % intervals for the population (standard error {error:.3f} at .95)\n\n"
        + rounded(wide[list(QUANTITIES)].reset_index(), 2)
    )
    return Report(text, {"coverage": coverage})


STUDY = Study(
    "survey-weights",
    "coverage for a population from samples with informative weights, n = 1,000 and 10,000",
    REPLICATES,
    pieces,
    run,
    report,
)
