"""Confidential tables that compare a whole synthetic table with the records."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import DataError, GuaranteeError, refused
from dpbayes.core.files import STATEMENT, read_whole
from dpbayes.core.lazy import pd
from dpbayes.evaluate.disclosure import (
    FALSE_RATES,
    Bounds,
    attribution,
    closeness,
    identification,
    inferred_error,
    uniqueness,
)
from dpbayes.evaluate.joint import (
    Coded,
    association,
    conditional_distance,
    marginal_distance,
    pmse_ratio,
    total_variation,
    tree_ratio,
)
from dpbayes.evaluate.members import joined
from dpbayes.formula.formula import columns_of, without_groups
from dpbayes.mechanisms.tables.cells import Axis, require_bounds
from dpbayes.privacy.accounting import check_delta
from dpbayes.schema import Column, Schema

BINS = 10  # of a numeric column, with equally many records where values allow it
MOST_TOGETHER = 3  # largest number of columns whose joint shares are compared
_CONSTANT = 1e-10  # variance of a standardised column below which it does not vary
TREES = "classification tree"  # this measure is nan without scikit-learn


@dataclass(frozen=True)
class Whole:
    """Confidential records and a synthetic table, both validated.

    Attributes:
        schema: schema of all tables.
        records, synthetic: tables of shape (n, columns) and (n', columns).
        holdout: records of the same population that the synthesis did not use, or None.
        weights: sampling weights of the records, shape (n,), or None.
        unit: column of both tables that tells whose rows they are, and what a record is, where
            records have several rows; else None.
    """

    schema: Schema
    records: pd.DataFrame
    synthetic: pd.DataFrame
    holdout: pd.DataFrame | None = None
    weights: pd.Series | None = None
    unit: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        schema: Schema,
        records: pd.DataFrame,
        synthetic: pd.DataFrame,
        holdout: pd.DataFrame | None = None,
        *,
        show_values: bool = False,
    ) -> Whole:
        """Validate the tables.

        Raises:
            DataError: a table does not fit the schema, or has no rows.
        """

        def valid(of: Schema, table: pd.DataFrame) -> pd.DataFrame:
            validated = of.validate(table, show_values=show_values)
            if validated.empty:
                raise DataError("a table has no rows: there is nothing to compare.")
            return validated

        own, made = valid(schema.of_rows, records), valid(schema.released, synthetic)
        others = None if holdout is None else valid(schema, holdout)[list(schema.columns)]
        weights = None
        if schema.survey is not None:
            weights = own[schema.survey.weights]
            if not weights.any():
                raise DataError("all weights are 0: there is nothing to compare.")
        return cls(schema, own[list(schema.columns)], made, others, weights)

    def of_members(
        self, schema: Schema, records: pd.DataFrame, synthetic: pd.DataFrame, formula: str
    ) -> Whole:
        """The tables that a regression is of: these, or members beside the head of a household.

        Args:
            schema: the declared schema.
            records, synthetic: the tables as they were read.
        Raises:
            SchemaError: a regression of members that is none.
        """
        outcomes, others = columns_of(without_groups(formula)[0])
        names = {*outcomes, *others}
        if schema.unit is None:
            return self
        unit = {"id": schema.unit.id, "noun": schema.unit.noun}
        both = [schema.validate(table) for table in (records, synthetic)]
        if names <= {*self.schema.columns}:
            kept = [*self.schema.columns, unit["id"]]
            return Whole(self.schema, both[0][kept], both[1][kept], unit=unit)
        (of, own), (_, made) = (joined(schema, table, formula) for table in both)
        return Whole(of, own, made, unit=unit)

    @cached_property
    def weighed(self) -> pd.DataFrame:
        """The records at equal weights, as the synthetic rows have them."""
        survey = self.schema.survey
        if survey is None or self.weights is None:
            return self.records
        return survey.represented(self.records, self.weights)

    @property
    def size(self) -> float:
        """Number of records that are worth as much as these, at equal weights."""
        survey = self.schema.survey
        if survey is None or self.weights is None:
            return len(self.records)
        return survey.effective(self.weights)


def stated_loss(statement: Mapping[str, Any]) -> float | None:
    """Stated ε of a person for the neighbours that a release protects; None if none is claimed."""
    key = "epsilon" if statement["holds_for"] == "add-remove" else "epsilon_substitution"
    key = "epsilon_person" if "epsilon_person" in statement else key
    epsilon = statement[key]
    return None if epsilon is None or statement["basis"] != "strict" else float(epsilon)


def bounds_of(statement: Mapping[str, Any], *, row: bool = False) -> Bounds | None:
    """Bounds on attacks that a release's stated ε implies; None if none is claimed.

    Args:
        row: attacks on one row, which changes the record that it is part of, or is all of it: of a
            household with one member fewer nothing better is known than that it is another one.
    """
    epsilon = stated_loss(statement)
    if row and epsilon is not None and statement.get("unit", "record") != "record":
        epsilon = float(statement["epsilon_member"])
    return None if epsilon is None else Bounds.of(epsilon, check_delta(statement["delta"]))


def stated(synthetic: Path, epsilon: float | None, delta: float | None) -> Bounds | None:
    """Bounds for a given ε, or for the ε stated beside a synthetic file; None without either.

    Raises:
        GuaranteeError: ε is not above 0, δ is invalid or without an ε. DataError: the statement
            cannot be read.
    """
    if epsilon is not None:
        if not 0 < epsilon < math.inf:
            raise GuaranteeError(f"epsilon = {epsilon!r} must be a number above 0, not infinite.")
        return Bounds.of(epsilon, check_delta(delta or 0.0))
    if delta is not None:
        raise GuaranteeError("`delta` belongs to an `epsilon`: give both, or neither.")
    statement = synthetic.parent / STATEMENT
    try:
        content = read_whole(statement)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{str(statement)!r}: {error.strerror}.") from None
    with refused(DataError, f"{str(statement)!r} is no statement of a release, or was edited"):
        return bounds_of(json.loads(content), row=True)


Row = tuple[str, float, float, float]


def risk(
    whole: Whole,
    keys: Sequence[str],
    sensitive: str | None,
    bounds: Bounds | None,
) -> pd.DataFrame:
    """Disclosure measures with the synthetic table and without it, and the bound that ε implies.

    The measure without the table uses the holdout if there is one, else chance. A bound refers to
    the mean over all possible releases, of which this is one.

    Args:
        keys: columns that an intruder knows.
        sensitive: the column that an intruder wants to know.
    Raises:
        SchemaError: a column is not declared. GuaranteeError: no keys, or a key that is sensitive.
    """
    names = list(dict.fromkeys(keys))
    if not names or sensitive in names:
        raise GuaranteeError(f"keys = {names} must be columns other than the sensitive one.")
    for name in (*names, *([] if sensitive is None else [sensitive])):
        whole.schema[name]
    records, synthetic = whole.records, whole.synthetic
    matches = identification(records, synthetic, names)
    rows: list[Row] = [
        ("expected match", matches.expected, np.nan, np.nan),
        ("single match", matches.single, np.nan, np.nan),
        ("true match rate", matches.true, np.nan, np.nan),
        ("false match rate", matches.false, np.nan, np.nan),
        ("unique by keys", uniqueness(synthetic, names), uniqueness(records, names), np.nan),
    ]
    if sensitive is not None:
        rows += _attribute(whole, names, sensitive, bounds)
    if whole.holdout is not None:
        rows += _membership(whole, bounds)
    if bounds is not None:
        rows.append(("odds of a statement, factor", np.nan, 1.0, bounds.odds))
    columns = ["measure", "synthetic", "without", "bound by ε"]
    return pd.DataFrame(rows, columns=columns)


def _attribute(whole: Whole, keys: list[str], sensitive: str, bounds: Bounds | None) -> list[Row]:
    records, synthetic, holdout = whole.records, whole.synthetic, whole.holdout
    if not whole.schema[sensitive].levels:
        error = inferred_error(records, synthetic, keys, sensitive)
        values = records[sensitive].dropna().to_numpy(dtype=float)
        guess = synthetic[sensitive].dropna().to_numpy(dtype=float).mean()
        plain = float(np.abs(values - guess).mean())
        return [(f"error of {sensitive}", error, plain, np.nan)]
    guesses = attribution(records, synthetic, keys, sensitive)
    rows = [
        (f"correct attribution of {sensitive}", guesses.correct, guesses.baseline, np.nan),
        (f"errors in {sensitive}", guesses.errors, guesses.baseline_errors, np.nan),
    ]
    if holdout is not None:
        holdout_rate = 1 - attribution(holdout, synthetic, keys, sensitive).errors
        bound = np.nan if bounds is None else bounds.true_rate(holdout_rate)
        rows.append((f"{sensitive} guessed right", 1 - guesses.errors, holdout_rate, bound))
    return rows


def _membership(whole: Whole, bounds: Bounds | None) -> list[Row]:
    assert whole.holdout is not None
    distances = closeness(whole.schema, whole.records, whole.holdout, whole.synthetic)
    advantage, auc = (np.nan, np.nan) if bounds is None else (bounds.advantage, bounds.auc)
    return [
        ("closest record, distance", distances.to_records, distances.to_holdout, np.nan),
        ("closer to records than to holdout", distances.closer, 0.5, np.nan),
        ("membership, advantage", distances.advantage, 0.0, advantage),
        ("membership, AUC", distances.auc, 0.5, auc),
        *[
            (f"membership, found at {rate:.0%} false", true, rate,
             np.nan if bounds is None else bounds.true_rate(rate))
            for rate, true in zip(FALSE_RATES, distances.true_rates, strict=True)
        ],
    ]  # fmt: skip


def tables_of(whole: Whole) -> Coded:
    """Code both tables as levels; numeric columns in bins (``_edges``).

    Raises:
        SchemaError: a count without an upper bound.
    """
    axes = _axes(whole)
    return Coded.of(
        *(
            pd.DataFrame({a.column.name: a.encode(t[a.column.name]) for a in axes})
            for t in (whole.weighed, whole.synthetic)
        )
    )


def _axes(whole: Whole) -> list[Axis]:
    """Axes of all columns, the public ones first."""
    columns = sorted(whole.schema.columns.values(), key=lambda column: not column.public)
    return [
        Axis(column) if column.levels else Axis(column, _edges(column, whole.weighed[column.name]))
        for column in columns
    ]


def _edges(column: Column, values: pd.Series) -> Floats:
    """Edges of bins that hold about a tenth of the records each. Confidential.

    Between the public bounds nearly all of a skewed column would be in one bin. A value that more
    records have than that is in a bin of its own.
    """
    lower, upper = require_bounds(column)
    ends = (lower - 0.5, upper + 0.5) if column.whole else (lower, upper)
    numbers, counts = np.unique(values.dropna().to_numpy(dtype=float), return_counts=True)
    share = counts / max(counts.sum(), 1)
    tenth = np.floor(BINS * (np.cumsum(share) - share / 2))
    frequent = share > 1 / BINS
    starts = np.flatnonzero((np.diff(tenth) > 0) | frequent[1:] | frequent[:-1])
    cuts = (numbers[starts] + numbers[starts + 1]) / 2
    if column.whole:
        cuts = np.floor(cuts) + 0.5
    return np.array([ends[0], *cuts, ends[1]])


def contingency(whole: Whole, names: Sequence[str]) -> pd.DataFrame:
    """Contingency table of columns: percentages of the records and of the synthetic rows.

    Cells that are empty in both tables are left out.

    Raises:
        SchemaError: a column is not declared, or is a count without an upper bound.
        DataError: no column is named, or one twice.
    """
    for name in names:
        whole.schema[name]
    if not names or len(set(names)) < len(names):
        raise DataError(f"table = {', '.join(names)!r} must be one or more different columns.")
    axes = {axis.column.name: axis for axis in _axes(whole) if axis.column.name in names}
    shares = []
    for table in (whole.weighed, whole.synthetic):
        coded = pd.DataFrame({name: axes[name].encode(table[name]) for name in names})
        shares.append(100 * coded.value_counts(normalize=True))
    cells = pd.concat(shares, axis=1, keys=["records, %", "synthetic, %"]).fillna(0.0)
    cells = cells.sort_index().reset_index()
    for name in names:
        cells[name] = [axes[name].names[code] for code in cells[name]]
    return cells.assign(difference=cells["synthetic, %"] - cells["records, %"])


def joint_utility(whole: Whole) -> pd.DataFrame:
    """Distances of the coded tables (``tables_of``); a measure without its library is nan."""
    tables = tables_of(whole)
    every = range(len(tables.names))
    rows: list[tuple[str, float, float]] = []

    def add(name: str, values: ArrayLike) -> None:
        array = np.asarray(values, dtype=float)
        if array.size:
            rows.append((name, float(array.mean()), float(array.max())))

    for k in range(1, min(MOST_TOGETHER, len(every)) + 1):
        add(f"total variation, {k} at once", total_variation(tables, k))
    add("marginal distance", [marginal_distance(tables, i) for i in every])
    pairs = [(i, j) for i in every for j in every if i != j]
    add("conditional distance", [conditional_distance(tables, i, j) for i, j in pairs])
    associations = [association(tables, i, j) for i, j in pairs if i < j]
    add("Cramér's V, difference", [abs(a - b) for a, b in associations])
    pairs_of = correlations(whole)
    add("correlation, difference", (pairs_of["synthetic"] - pairs_of["records"]).abs())
    if whole.schema.survey is None:  # the ratios expect that each row was drawn by itself
        rows.append(("pMSE ratio, logistic", pmse_ratio(tables), np.nan))
        rows.append((f"pMSE ratio, {TREES}", tree_ratio(tables), np.nan))
    return pd.DataFrame(rows, columns=["measure", "mean", "largest"])


def correlations(whole: Whole) -> pd.DataFrame:
    """Pearson correlations in both tables, one row for each pair of ordered columns.

    Ordinal and binary levels count by their number; rows in which either column is missing are left
    out. Pairs that do not vary in the records are left out, and have no correlation where they do
    not vary in the synthetic rows.

    Returns:
        Columns ``first`` and ``second`` (names), ``records`` and ``synthetic`` (correlations), and
        ``error``, the standard error of their difference if the synthetic rows were another sample
        of the population, for any distribution of the two columns.
    """
    names = [c.name for c in whole.schema.columns.values() if c.type != "categorical"]
    if len(names) < 2:
        return pd.DataFrame(columns=["first", "second", "records", "synthetic", "error"])
    ours, theirs = (
        _pairwise(np.column_stack([numbers_of(whole.schema[name], table[name]) for name in names]))
        for table in (whole.weighed, whole.synthetic)
    )
    shares = ours.counts / len(whole.weighed)
    with np.errstate(divide="ignore"):
        errors = ours.sds * np.sqrt(1 / (whole.size * shares) + 1 / np.maximum(theirs.counts, 1))
    rows = [
        (names[i], names[j], ours.values[i, j], np.nan_to_num(theirs.values[i, j]), errors[i, j])
        for i, j in itertools.combinations(range(len(names)), 2)
        if not np.isnan(ours.values[i, j])
    ]
    return pd.DataFrame(rows, columns=["first", "second", "records", "synthetic", "error"])


def numbers_of(column: Column, values: pd.Series) -> Floats:
    """Values of an ordered column as numbers, levels by their number; nan where missing."""
    if column.levels:
        values = values.cat.codes.where(values.notna())
    return pd.to_numeric(values).to_numpy(dtype=float, na_value=np.nan)


class _Pairwise(NamedTuple):
    """Pearson correlations of p columns over the rows in which both have a value, shapes (p, p).

    Attributes:
        values: correlations, nan where a column does not vary.
        sds: sd over rows of the influence function of each.
        counts: numbers of rows.
    """

    values: Floats
    sds: Floats
    counts: Floats


def _pairwise(numbers: Floats) -> _Pairwise:
    """Correlate columns of shape (n, p); nan where a value is missing.

    The influence function of a correlation r of u and v, standardised, is u v - r (u² + v²) / 2; so
    its variance is one of moments up to the fourth, which products of whole tables give.
    """
    present = ~np.isnan(numbers)
    some = np.where(present.any(axis=0), numbers, 0.0)  # no column without a value
    z = some - np.nanmean(some, axis=0)
    spread = np.nanstd(z, axis=0)
    z = np.where(present, z / np.where(spread > 0, spread, 1.0), 0.0)
    powers = [present.astype(float), *(z**k for k in range(1, 5))]
    counts = powers[0].T @ powers[0]

    def mean(a: int, b: int) -> Floats:
        return np.asarray(powers[a].T @ powers[b] / np.maximum(counts, 1))

    # About the means m and k of the rows in which both have a value.
    m = mean(1, 0)
    k, square, both, skewed = m.T, mean(2, 0), mean(1, 1), mean(2, 1)
    variance = square - m**2
    mixed = both - m * k
    third = mean(3, 1) - 3 * m * skewed + 3 * m**2 * both - m**3 * k
    third -= k * (mean(3, 0) - 3 * m * square + 2 * m**3)
    fourth = mean(4, 0) - 4 * m * mean(3, 0) + 6 * m**2 * square - 3 * m**4
    crossed = mean(2, 2) - 2 * k * skewed - 2 * m * skewed.T + 4 * m * k * both - 3 * (m * k) ** 2
    crossed += k**2 * square + m**2 * square.T
    varies = (variance > _CONSTANT) & (variance.T > _CONSTANT)
    s, t = np.where(varies, variance, 1.0), np.where(varies, variance.T, 1.0)
    r = mixed / np.sqrt(s * t)
    steep = third / (s * np.sqrt(s * t))
    influence = crossed / (s * t) * (1 + r**2 / 2) - r * (steep + steep.T)
    influence += r**2 * (fourth / s**2 + fourth.T / t**2) / 4
    return _Pairwise(np.where(varies, r, np.nan), np.sqrt(np.maximum(influence, 0.0)), counts)
