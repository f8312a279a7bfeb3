"""A mechanism tried on a table that is public or made up, with noise from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd
from dpbayes.evaluate.joint import total_variation
from dpbayes.mechanisms.base import Mechanism
from dpbayes.planning.population import Population
from dpbayes.report.whole import Whole, tables_of
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer

SEEDS = 1000  # between the seeds of populations and of noise


@dataclass(frozen=True)
class Accuracy:
    """How far synthetic rows are from the table they were made of.

    Attributes:
        one, two: mean total variation distance of single columns, and of pairs of them, numbers in
            ten bins of their declared range: means over runs.
        se: standard error of ``two``; NaN of a single run.
    """

    one: float
    two: float
    se: float

    @classmethod
    def of(cls, found: Floats) -> Accuracy:
        """Of distances by run, shape (runs, 2)."""
        one, two = found.mean(axis=0)
        runs = len(found)
        se = found[:, 1].std(ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
        return cls(float(one), float(two), float(se))


def try_out(
    mechanism: Mechanism[Any],
    population: Population,
    rows: int,
    runs: int,
    between: Callable[[], None] = lambda: None,
) -> Accuracy:
    """Synthesise a table of ``rows`` records, anew in each run.

    Args:
        between: is called before every run: it may raise, to end the work.
    Raises:
        DpbayesError: the mechanism cannot synthesise such a table.
    """
    synthesizer = Synthesizer(population.schema, mechanism)
    found = []
    for run in range(runs):
        between()
        table = population.sample(rows, run)
        fit = synthesizer.fit(table)
        (made,) = fit.sample(1, seed=SEEDS + run).datasets
        found.append(distances(population.schema, table, made))
    return Accuracy.of(np.array(found))


def of_sampling(population: Population, rows: int, runs: int) -> Accuracy:
    """The same for two samples of the population, as a yardstick: no privacy, no model."""
    return Accuracy.of(
        np.array([between_samples(population, population.schema, rows, run) for run in range(runs)])
    )


def between_samples(
    population: Population, schema: Schema, rows: int, run: int
) -> tuple[float, float]:
    """Distances, over the columns of ``schema``, of two samples that have nothing in common."""
    one, two = (population.another(rows, seed) for seed in (run, SEEDS + run))
    return distances(schema, one, two)


def distances(schema: Schema, table: pd.DataFrame, made: pd.DataFrame) -> tuple[float, float]:
    """Mean total variation distance of single columns, and of pairs, where some of it is drawn.

    A single column has no pair: its own distance stands for it.
    """
    tables = tables_of(Whole.of(schema, table, made))
    public = [schema[name].public for name in tables.names]
    one, two = (
        total_variation(tables, k)[~np.array(list(map(all, combinations(public, k))), dtype=bool)]
        for k in (1, 2)
    )
    return float(one.mean()), float(two.mean() if two.size else one.mean())
