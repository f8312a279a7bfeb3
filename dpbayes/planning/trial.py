"""Trials of a mechanism on a table that is public or made up, with noise from a seed."""

from __future__ import annotations

from collections.abc import Sequence
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

SEEDS = 1000  # offset between the seeds of populations and those of noise


@dataclass(frozen=True)
class Accuracy:
    """Distances between synthetic rows and the table they were made from.

    Attributes:
        columns, pairs: mean total variation distance of single columns, and of pairs of them,
            numbers in ten bins of their declared range: means over runs.
        se: standard error of ``pairs``; NaN for a single run.
    """

    columns: float
    pairs: float
    se: float

    @classmethod
    def of(cls, by_run: Floats) -> Accuracy:
        """Summarise distances by run, shape (runs, 2)."""
        single, pairs = by_run.mean(axis=0)
        runs = len(by_run)
        se = by_run[:, 1].std(ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
        return cls(float(single), float(pairs), float(se))


def try_out(
    mechanism: Mechanism[Any],
    schema: Schema,
    tables: Sequence[pd.DataFrame],
    datasets: int = 1,
) -> Accuracy:
    """Synthesise each of the tables, and measure the distances.

    Args:
        schema: schema of the tables; nothing of them is confidential.
        datasets: number of data sets of a release; two are measured if there are more, which are
            posterior draws like these.
    Raises:
        DpbayesError: the mechanism cannot synthesise such a table.
    """
    synthesizer = Synthesizer(schema, mechanism)
    by_run = []
    for run, table in enumerate(tables):
        made = synthesizer.fit(table).sample(min(datasets, 2), seed=SEEDS + run).datasets
        each = [distances(schema, table, synthetic) for synthetic in made]
        by_run.append(np.mean(each, axis=0))
    return Accuracy.of(np.array(by_run))


def of_sampling(population: Population, rows: int, runs: int) -> Accuracy:
    """Measure distances between two samples of the population, as a yardstick without privacy."""
    return Accuracy.of(
        np.array([between_samples(population, population.schema, rows, run) for run in range(runs)])
    )


def between_samples(
    population: Population, schema: Schema, rows: int, run: int
) -> tuple[float, float]:
    """Measure distances between two independent samples over the columns of ``schema``."""
    first, second = (population.another(rows, seed) for seed in (run, SEEDS + run))
    return distances(schema, first, second)


def distances(schema: Schema, table: pd.DataFrame, synthetic: pd.DataFrame) -> tuple[float, float]:
    """Mean total variation distance of columns, and of pairs, that are not wholly public.

    If there is no such pair, the distance of columns stands for that of pairs.
    """
    tables = tables_of(Whole.of(schema, table, synthetic))
    # Public columns are copied, not drawn: their distance of 0 says nothing about a mechanism.
    public = [schema[name].public for name in tables.names]
    single, pairs = (
        total_variation(tables, k)[~np.array(list(map(all, combinations(public, k))), dtype=bool)]
        for k in (1, 2)
    )
    return float(single.mean()), float(pairs.mean() if pairs.size else single.mean())
