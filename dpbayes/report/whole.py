"""Tables on a whole synthetic table beside the confidential records: confidential."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.errors import DataError, GuaranteeError
from dpbayes.evaluate.disclosure import (
    FALSE_RATES,
    Bounds,
    attribution,
    closeness,
    identification,
    inferred_error,
    uniqueness,
)
from dpbayes.evaluate.joint import Coded, marginal_distance, pmse_ratio, total_variation
from dpbayes.heavy import pd
from dpbayes.mechanisms.tables.cells import Cells
from dpbayes.privacy.accounting import check_delta
from dpbayes.release import STATEMENT
from dpbayes.schema import Schema

BINS = 10  # of numeric columns, between their public bounds
MOST_TOGETHER = 3  # columns whose joint shares are compared


@dataclass(frozen=True)
class Whole:
    """Confidential records and a synthetic table, both validated.

    Attributes:
        schema: of both.
        records, synthetic: shape (n, columns) and (n', columns).
        holdout: records of the same population that the synthesis did not use, or None.
    """

    schema: Schema
    records: pd.DataFrame
    synthetic: pd.DataFrame
    holdout: pd.DataFrame | None = None

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
        """Validate them. DataError where one does not fit the schema, or has no rows."""
        tables = [
            None if table is None else schema.validate(table, show_values=show_values)
            for table in (records, synthetic, holdout)
        ]
        if any(table is not None and table.empty for table in tables):
            raise DataError("a table has no rows: there is nothing to compare.")
        assert tables[0] is not None
        assert tables[1] is not None
        return cls(schema, tables[0], tables[1], tables[2])


def stated_loss(statement: Mapping[str, Any]) -> float | None:
    """ε for the neighbours that what is published protects; None where none is claimed."""
    key = "epsilon" if statement["holds_for"] == "add-remove" else "epsilon_substitution"
    found = statement[key]
    return None if found is None or statement["basis"] != "strict" else float(found)


def bounds_of(statement: Mapping[str, Any]) -> Bounds | None:
    """What the ε of a release's statement bounds; None where none is claimed."""
    epsilon = stated_loss(statement)
    return None if epsilon is None else Bounds.of(epsilon, check_delta(statement["delta"]))


def stated(synthetic: Path, epsilon: float | None, delta: float) -> Bounds | None:
    """Bounds of the ε that is given, or that is stated beside a synthetic file; None without.

    Raises:
        GuaranteeError: no number above 0, or no δ. DataError: the statement cannot be read.
    """
    if epsilon is not None:
        if not epsilon > 0:
            raise GuaranteeError(f"epsilon = {epsilon!r} must be above 0.")
        return Bounds.of(epsilon, check_delta(delta))
    statement = synthetic.parent / STATEMENT
    if not statement.exists():
        return None
    try:
        return bounds_of(json.loads(statement.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{str(statement)!r} is no statement of a release: {error!r}.") from None


def risk(
    whole: Whole, keys: Sequence[str], sensitive: str | None, bounds: Bounds | None
) -> pd.DataFrame:
    """Disclosure measures: of the synthetic table, what they are without it, and the bound of ε.

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
    found = identification(records, synthetic, names)
    rows: list[tuple[str, float, float, float]] = [
        ("expected match", found.expected, np.nan, np.nan),
        ("single match", found.single, np.nan, np.nan),
        ("true match rate", found.true, np.nan, np.nan),
        ("false match rate", found.false, np.nan, np.nan),
        ("unique by keys", uniqueness(synthetic, names), uniqueness(records, names), np.nan),
    ]
    if sensitive is not None:
        rows += _attribute(whole, names, sensitive)
    if whole.holdout is not None:
        rows += _membership(whole, bounds)
    if bounds is not None:
        rows.append(("odds of a statement, factor", np.nan, 1.0, bounds.odds))
    columns = ["measure", "synthetic", "without", "bound by ε"]
    return pd.DataFrame(rows, columns=columns)


def _attribute(
    whole: Whole, keys: list[str], sensitive: str
) -> list[tuple[str, float, float, float]]:
    records, synthetic = whole.records, whole.synthetic
    if not whole.schema[sensitive].levels:
        error = inferred_error(records, synthetic, keys, sensitive)
        values = records[sensitive].dropna().to_numpy(dtype=float)
        guess = synthetic[sensitive].dropna().to_numpy(dtype=float).mean()
        plain = float(np.abs(values - guess).mean())
        return [(f"error of {sensitive}", error, plain, np.nan)]
    found = attribution(records, synthetic, keys, sensitive)
    return [
        (f"correct attribution of {sensitive}", found.correct, found.baseline, np.nan),
        (f"errors in {sensitive}", found.errors, found.baseline_errors, np.nan),
    ]


def _membership(whole: Whole, bounds: Bounds | None) -> list[tuple[str, float, float, float]]:
    assert whole.holdout is not None
    found = closeness(whole.schema, whole.records, whole.holdout, whole.synthetic)
    none = bounds is None
    return [
        ("closest record, distance", found.to_records, found.to_holdout, np.nan),
        ("closer to records than to holdout", found.closer, 0.5, np.nan),
        ("membership, AUC", found.auc, 0.5, np.nan if none else bounds.auc),  # type: ignore[union-attr]
        *[
            (f"membership, found at {rate:.0%} false", true, rate, np.nan if none else bound)
            for rate, true, bound in zip(
                FALSE_RATES,
                found.true_rates,
                (np.nan,) * len(FALSE_RATES) if bounds is None else bounds.true_rates,
                strict=True,
            )
        ],
    ]


def tables_of(whole: Whole) -> Coded:
    """Both tables as levels; numeric columns by ``BINS`` bins of their public range.

    Raises:
        SchemaError: a count without an upper bound.
    """
    cells = Cells.of(Schema(whole.schema.columns), 1, BINS)
    axes = (*cells.given, *cells.axes)
    return Coded.of(
        *(
            pd.DataFrame({a.column.name: a.encode(t[a.column.name]) for a in axes})
            for t in (whole.records, whole.synthetic)
        )
    )


def joint_utility(whole: Whole) -> pd.DataFrame:
    """Distances of whole tables, of ``tables_of``."""
    tables = tables_of(whole)
    rows = []
    for k in range(1, min(MOST_TOGETHER, len(tables.names)) + 1):
        distances = total_variation(tables, k)
        rows.append((f"total variation, {k} at once", distances.mean(), distances.max()))
    marginal = [marginal_distance(tables, i) for i in range(len(tables.names))]
    rows.append(("marginal distance", np.mean(marginal), np.max(marginal)))
    rows.append(("pMSE ratio", pmse_ratio(tables), np.nan))
    return pd.DataFrame(rows, columns=["measure", "mean", "largest"])
