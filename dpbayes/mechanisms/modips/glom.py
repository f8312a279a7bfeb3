"""General location model: a table of the levels, normal numbers inside each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd, stats
from dpbayes.mechanisms.modips.conjugate import draw_dirichlet
from dpbayes.mechanisms.modips.settings import positive
from dpbayes.mechanisms.modips.statistic_model import (
    FittedStatistics,
    Sanitised,
    Spending,
    StatisticModel,
    most_records,
    no_public,
)
from dpbayes.mechanisms.modips.units import (
    MOST,
    UNITS,
    about_mean,
    cell_sums,
    clipped,
    from_unit,
    whole_columns,
)
from dpbayes.mechanisms.tables.cells import TableCells, require_bounds
from dpbayes.mechanisms.tables.noisy import IN_ONE_CELL, draw_cells
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.statistic import Change, Statistic
from dpbayes.schema import Column, Schema

# Sums by cell of numbers in [-1, 1], in multiples of 1/UNITS.
ONE_SUM: dict[Adjacency, Change] = {"add-remove": Change(UNITS), "substitution": Change(UNITS, 2)}


def products(columns: list[Column]) -> dict[tuple[int, int], str]:
    """Names of the sums of squares and products, by their places in the matrix.

    Names of columns may make two of them equal, which ``Modips.check_columns`` refuses.
    """
    names = [c.name for c in columns]
    p = range(len(columns))
    return {(a, b): f"product {names[a]} * {names[b]}" for a in p for b in p if a <= b}


def moment_statistics(
    columns: list[Column], z: Ints, cell: Ints, cells: int, most: float
) -> list[Statistic]:
    """Sums by cell, and sums of squares and products about cell means, of numbers on [-1, 1].

    Sensitivity, for any number of records: sums 1 and 2. Removing a record from a cell of n_k
    lowers the matrix of products by (1 - 1/n_k) d d', d its distance from the mean of the others,
    |d_a| <= 2. So 4 for squares, also for a changed record: one term of each sign, both at most 4.
    Products have terms of any sign: 4, and 8 if changed. All of it holds in whole numbers, for
    products as each cell is rounded down (``about_mean``).

    Args:
        z: whole numbers (``whole_columns``), shape (n, columns).
        cell: cell of each record, shape (n,).
        cells: number of cells.
        most: largest number of records that is known publicly, which determines the ranges.
    """
    sums = [cell_sums(cell, z_j, cells) for z_j in z.T]
    counts = np.bincount(cell, minlength=cells)
    held = np.flatnonzero(counts)
    end = most * UNITS
    statistics = [
        Statistic(f"sum {c.name}", clipped(s), ONE_SUM, -end, end, integer=True, unit=1 / UNITS)
        for c, s in zip(columns, sums, strict=True)
    ]
    for (a, b), name in products(columns).items():
        total = cell_sums(cell, z[:, a] * z[:, b], cells)
        within = about_mean(counts[held], total[held], sums[a][held], sums[b][held]).sum()
        statistics.append(_product(name, int(within), most, square=a == b))
    return statistics


def _product(name: str, within: int, most: float, *, square: bool) -> Statistic:
    square_unit = UNITS**2
    change: dict[Adjacency, Change] = {
        "add-remove": Change(4 * square_unit),
        "substitution": Change((4 if square else 8) * square_unit),
    }
    end = min(most * square_unit, MOST)
    lower = 0 if square else -end
    return Statistic(name, clipped(within), change, lower, end, integer=True, unit=1 / square_unit)


def draw_covariance(
    sanitised: Sanitised, columns: list[Column], df: int, rng: np.random.Generator
) -> Floats:
    """Draw Σ ~ Inv-Wishart(df, sums of products), after making these positive definite."""
    p = len(columns)
    df = max(df, p + 2)  # also with more cells than records
    matrix = np.full((p, p), np.nan)
    for (a, b), name in products(columns).items():
        matrix[a, b] = matrix[b, a] = float(sanitised[name])
    values, vectors = np.linalg.eigh(matrix)
    floor = 1e-4 * df  # a standard deviation of 1% of the half-range
    repaired = (vectors * np.maximum(values, floor)) @ vectors.T
    drawn = stats.invwishart.rvs(df, (repaired + repaired.T) / 2, random_state=rng)
    return np.asarray(drawn).reshape(p, p)


@dataclass(frozen=True)
class Glom(StatisticModel):
    """Cells of the levels ~ Multinomial(n, π); numbers in cell k ~ Normal(μ_k, Σ), one Σ for all.

    Statistics, numbers on [-1, 1] by their public bounds: cell counts; sums by cell, one array per
    numeric column; pooled sums of squares and products within cells.

    Sensitivities: counts 1 (add/remove) and 2 (substitution); sums 1 and 2, because a record is in
    one cell; squares 4 and 4, products 4 and 8 (``moment_statistics``); for any number of records.

    One change that the guarantee needs: the paper adds noise of scale (c1 - c0) / (n_k ε) to cell
    means, but the count n_k is confidential, and a record that changes cells moves two of them.
    Here the sums get the noise, and means are ratios of noisy numbers.

    Source: bowen-liu-2020, section 4.3.1.

    Attributes:
        alpha: concentration of the Dirichlet prior in each cell.
    """

    alpha: float = 0.5
    name: ClassVar[str] = "glom"
    summary: ClassVar[str] = "levels in a table, normal numbers in each cell"

    def __post_init__(self) -> None:
        positive(self.alpha, 1, "alpha")

    def check(self, schema: Schema) -> None:
        require_both_kinds(schema, self.name, "multinomial, or normal")

    def parts(self, schema: Schema) -> list[str]:
        numeric, _ = split_columns(schema)
        return ["counts", *(f"sum {c.name}" for c in numeric), *products(numeric).values()]

    def fit(
        self, schema: Schema, records: pd.DataFrame, spending: Spending, rows: int
    ) -> FittedGlom:
        return FittedGlom(self, schema, records, rows)


def split_columns(schema: Schema) -> tuple[list[Column], list[Column]]:
    """Confidential numeric columns, and those with levels; SchemaError without bounds."""
    columns = schema.confidential()
    numeric = [c for c in columns if not c.levels]
    for column in numeric:
        require_bounds(column)
    return numeric, [c for c in columns if c.levels]


def require_both_kinds(schema: Schema, model: str, instead: str) -> None:
    """Raise SchemaError unless there are numeric columns and levels, all confidential."""
    numeric, levels = split_columns(schema)
    no_public(schema, model)
    if not numeric or not levels:
        raise SchemaError(
            f"model {model!r} needs confidential columns with levels and numeric ones; take "
            f"{instead}."
        )


class FittedGlom(FittedStatistics[Mapping[str, Floats]]):
    """Statistics of ``Glom``: counts and sums by cell, pooled sums of products."""

    def __init__(self, model: Glom, schema: Schema, records: pd.DataFrame, rows: int) -> None:
        self.model, self.rows = model, rows
        self.numeric, levels = split_columns(schema)
        self.cells = TableCells.of(Schema({c.name: c for c in levels}), rows)
        (counts,) = self.cells.counts(records)
        most = most_records(schema, rows)
        z, cell = whole_columns(self.numeric, records), self.cells.cell(records)
        self.statistics = [
            Statistic("counts", counts, IN_ONE_CELL, 0, most, integer=True),
            *moment_statistics(self.numeric, z, cell, self.cells.size, most),
        ]
        self.known = schema.rows.public
        self.settings = {
            "prior": model.alpha,
            "cells": self.cells.size,
            "normal": [column.name for column in self.numeric],
        }

    def draw(self, sanitised: Sanitised, rng: np.random.Generator) -> dict[str, Floats]:
        counts = sanitised["counts"]
        size = np.maximum(counts, 1)  # empty cells have a mean, too: of noise alone
        means = np.stack([sanitised[f"sum {c.name}"] for c in self.numeric], axis=1) / size[:, None]
        n = self.rows if self.known else int(counts.sum())
        sigma = draw_covariance(sanitised, self.numeric, n - len(counts), rng)
        root = np.linalg.cholesky(sigma)
        noise = rng.standard_normal(means.shape) @ root.T / np.sqrt(size)[:, None]
        return {
            "shares": draw_dirichlet(self.model.alpha + counts, rng),
            "means": np.clip(means, -1, 1) + noise,
            "root": np.asarray(root, dtype=float),
        }

    def predict(
        self, parameters: Mapping[str, Floats], rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        drawn = draw_cells(parameters["shares"], rows, rng)
        frame = self.cells.decode(self.cells.unravel(drawn), rng)
        spread = rng.standard_normal((rows, len(self.numeric))) @ parameters["root"].T
        z = parameters["means"][drawn] + spread
        for j, column in enumerate(self.numeric):
            frame[column.name] = from_unit(column, z[:, j])
        return frame
