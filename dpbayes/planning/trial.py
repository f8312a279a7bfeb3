"""Trials of a mechanism on a table that is public or made up, with noise from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.evaluate.joint import total_variation
from dpbayes.mechanisms.base import Mechanism
from dpbayes.mechanisms.households.layouts import layout_of
from dpbayes.mechanisms.households.rows import kept_rows
from dpbayes.mechanisms.marginals.analyses import Analysis
from dpbayes.planning.population import Population, schema_of
from dpbayes.report.whole import Whole, tables_of
from dpbayes.schema import Schema
from dpbayes.schema.rules import Values, numbers_of
from dpbayes.synthesis.synthesizer import Synthesizer

KEPT = 5  # data sets from which coefficients of kept regressions are combined
SEEDS = 1000  # offset between the seeds of populations and those of noise
Regression = tuple[Analysis, Values, Floats]  # with its rows' values, and what each counts as


@dataclass(frozen=True)
class Kept:
    """How well a kept regression can be estimated from data sets, by its K slopes.

    Attributes:
        off: distance of the combined slopes from the table's own, in standard errors that these
            have, as a root mean square over slopes.
        longer: standard error of the combined slopes, relative to theirs, likewise.
    """

    off: float
    longer: float

    @classmethod
    def over(cls, runs: Sequence[Kept]) -> Kept:
        """Root mean square over runs."""
        return cls(*np.sqrt(np.mean([[of.off**2, of.longer**2] for of in runs], axis=0)))


@dataclass(frozen=True)
class Accuracy:
    """Distances between synthetic rows and the table they were made from.

    Attributes:
        columns, pairs: mean total variation distance of single columns, and of pairs of them,
            numbers in ten bins with equally many records: means over runs.
        se: standard error of ``pairs``; NaN for a single run.
        kept: the regressions that are kept, by their formulas.
    """

    columns: float
    pairs: float
    se: float
    kept: Mapping[str, Kept] = field(default_factory=dict)

    @classmethod
    def of(cls, by_run: Floats, kept: Mapping[str, Kept] | None = None) -> Accuracy:
        """Summarise distances by run, shape (runs, 2)."""
        single, pairs = by_run.mean(axis=0)
        runs = len(by_run)
        se = by_run[:, 1].std(ddof=1) / np.sqrt(runs) if runs > 1 else np.nan
        return cls(float(single), float(pairs), float(se), kept or {})


def try_out(
    mechanism: Mechanism[Any],
    schema: Schema,
    tables: Sequence[pd.DataFrame],
    datasets: int = 1,
) -> Accuracy:
    """Synthesise each of the tables, and measure the distances.

    Args:
        schema: schema of the tables; nothing of them is confidential.
        datasets: number of data sets of a release; if there are more, which are posterior draws
            like these, distances are of two, and coefficients of five.
    Raises:
        DpbayesError: the mechanism cannot synthesise such a table.
    """
    by_run, kept = [], dict[str, list[Kept]]()
    for run, table in enumerate(tables):
        number = min(datasets, KEPT if schema.keep else 2)
        synthesizer = Synthesizer(schema_of(schema, table), mechanism)
        made = synthesizer.fit(table).sample(number, seed=SEEDS + run).datasets
        each = [distances(schema, table, synthetic) for synthetic in made[:2]]
        by_run.append(np.mean(each, axis=0))
        each_kept = zip(*(_regressions(schema, data) for data in (table, *made)), strict=True)
        for of_each in each_kept:
            if (of_run := _kept(of_each)) is not None:
                kept.setdefault(of_each[0][0].text, []).append(of_run)
    return Accuracy.of(np.array(by_run), {text: Kept.over(runs) for text, runs in kept.items()})


def _regressions(schema: Schema, data: pd.DataFrame) -> Iterator[Regression]:
    """Yield the regressions that are kept, with the values and weights of their rows."""
    if schema.unit is not None:
        layout = layout_of(schema)
        yield from kept_rows(layout, schema.homes.of(schema.validate(data)))
        return
    weights, survey = np.ones(len(data)), schema.survey
    if survey is not None and survey.weights in data:
        weights = survey.typed(data[survey.weights])
        weights = weights * (weights.sum() / (weights @ weights))  # they add up to Kish's number
    for text in schema.keep:
        analysis = Analysis(text, schema)
        columns = [schema[name] for name in analysis.names]
        values = {c.name: numbers_of(c, c.validate(data[c.name])) for c in columns}
        yield analysis, values, weights


def _kept(of_each: Sequence[Regression]) -> Kept | None:
    """Compare the slopes of a regression on the table, and on data sets; None if it has none."""
    (own, known), *others = (_slopes(*regression) for regression in of_each)
    if not (known > 0).any():
        return None
    slopes, variances = np.array([of[0] for of in others]), np.array([of[1] for of in others])
    spread = np.zeros(own.shape)
    if len(others) > 1:
        spread = (1 + 1 / len(others)) * slopes.var(axis=0, ddof=1) - variances.mean(axis=0)
    told = np.maximum(spread, variances.mean(axis=0))
    pairs = ((slopes.mean(axis=0) - own) ** 2, told)
    return Kept(*(float((part[known > 0] / known[known > 0]).mean()) ** 0.5 for part in pairs))


def _slopes(analysis: Analysis, values: Values, weights: Floats) -> tuple[Floats, Floats]:
    """Least squares of the outcome's V functions on K terms, by the records' weights.

    Returns:
        Slopes and their variances, shape (K, V) each.
    """
    terms, whole = analysis.design(values)
    scores = analysis.scores(values[analysis.outcome.name])
    rows = whole & ~np.isnan(scores).any(axis=1)
    if not rows.any():
        raise GuaranteeError(f"keep {analysis.text!r}: no row has a value of every column.")
    weights = weights[rows]
    terms, scores = (
        part[rows] - np.average(part[rows], axis=0, weights=weights) for part in (terms, scores)
    )
    weighted = terms.T * weights
    inverse = np.linalg.pinv(weighted @ terms)
    slopes = inverse @ weighted @ scores
    left = (weights[:, None] * (scores - terms @ slopes) ** 2).sum(axis=0)
    left /= max(1.0, float(weights.sum()) - terms.shape[1] - 1)
    return slopes, np.outer(np.diag(inverse), left)


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
    return distances(schema, first, schema.at_equal_weights(schema.validate(second)))


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
