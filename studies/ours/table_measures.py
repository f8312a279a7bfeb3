"""Measures of how close a synthetic table is to the records, for ``tables`` and the benchmarks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import pd
from dpbayes.evaluate.joint import Coded, total_variation
from dpbayes.evaluate.utility import avg_ecdf, interval_overlap
from dpbayes.mechanisms.tables.cells import make_axis
from dpbayes.schema import Schema

TABLES = (1, 2, 3)  # numbers of columns whose total variation is compared


@dataclass(frozen=True)
class Comparison:
    """Measures to compute for a table.

    Attributes:
        schema: schema of the columns.
        bins: numbers of bins between the declared bounds, for total variation.
        fine: bins of numeric columns for ``marginals``: its own choice (``auto``), or ``bins``.
        outcome: the numeric column whose ECDF is compared.
        formula: a regression by least squares.
        propensity: terms of the logistic regression that tells synthetic rows from records.
        target: a column of two levels to be classified from all others, or None.
    """

    schema: Schema
    bins: Mapping[str, int]
    outcome: str
    formula: str
    propensity: str
    target: str | None = None
    fine: Literal["auto", "bins"] = "bins"

    def coded(self, original: pd.DataFrame, synthetic: pd.DataFrame) -> Coded:
        """Code both tables as levels and bins, without separate bins for atoms."""
        columns = {n: replace(c, atoms=()) for n, c in self.schema.columns.items()}
        axes = {n: make_axis(c, self.bins.get(n, 1), None, 1) for n, c in columns.items()}
        tables = [
            pd.DataFrame({n: axis.encode(d[n]) for n, axis in axes.items()})
            for d in (original, synthetic)
        ]
        return Coded.of(*tables)

    def measures(self, original: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
        """Compute all measures of two validated tables.

        The ECDF and the regression leave out rows with a missing value, as analysts do.

        Returns:
            ``avg_ecdf`` of the outcome; ``tvd1`` to ``tvd3``, means over the choices of columns;
            ``outcome_tvd1`` to ``outcome_tvd3``, of those with the outcome among them;
            ``pmse``, a ratio; ``regression`` and ``regression_mean``, largest and mean error of a
            coefficient in standard errors of the fit to the records; ``overlap``, mean overlap of
            95% intervals of the coefficients (karr-2006), 1 if they agree.
        """
        tables = self.coded(original, synthetic)
        fit, errors = least_squares(self.formula, original)
        theirs, their_errors = least_squares(self.formula, synthetic)
        off = np.abs(theirs - fit) / errors
        overlap = interval_overlap((fit, errors), (theirs, their_errors))
        return {
            "avg_ecdf": avg_ecdf(*(d[self.outcome].dropna() for d in (original, synthetic))),
            **self._variations(tables),
            "pmse": propensity_ratio(self.propensity, *map(self.filled, (original, synthetic))),
            "regression": float(off.max()),
            "regression_mean": float(off.mean()),
            "overlap": float(overlap.mean()),
        }

    def filled(self, data: pd.DataFrame) -> pd.DataFrame:
        """Replace missing levels by a level of their own, and missing numbers by 0.

        An additional column, ``NAME_missing``, is 1 where a number is missing.
        """
        completed = data.copy()
        for column in self.schema.columns.values():
            values = data[column.name]
            if column.levels and column.optional:
                completed[column.name] = values.astype(object).where(values.notna(), "missing")
            elif column.optional:
                completed[f"{column.name}_missing"] = values.isna().astype(float)
                completed[column.name] = values.astype(float).fillna(0)
        return completed

    def _variations(self, tables: Coded) -> dict[str, float]:
        variations = {}
        for k in TABLES:
            distances = total_variation(tables, k)
            chosen = [self.outcome in names for names in itertools.combinations(tables.names, k)]
            variations[f"tvd{k}"] = float(distances.mean())
            variations[f"outcome_tvd{k}"] = float(distances[chosen].mean())
        return variations

    def auc(self, train: pd.DataFrame, test: pd.DataFrame) -> float:
        """Area under the curve of a logistic regression for ``target`` on all other columns."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score
        from sklearn.preprocessing import StandardScaler

        assert self.target is not None
        predictors = [n for n in self.schema.columns if n != self.target]
        x = pd.get_dummies(pd.concat([train[predictors], test[predictors]]), dtype=float)
        scaled = StandardScaler().fit_transform(x.to_numpy())
        positive = self.schema[self.target].levels[1]
        labels = [(d[self.target] == positive).to_numpy() for d in (train, test)]
        model = LogisticRegression(max_iter=500).fit(scaled[: len(train)], labels[0])
        return float(roc_auc_score(labels[1], model.decision_function(scaled[len(train) :])))


def least_squares(formula: str, data: pd.DataFrame) -> tuple[Vector, Vector]:
    """Fit a least-squares regression; return coefficients and standard errors, shape (terms,)."""
    import formulaic

    sides = formulaic.model_matrix(formula, data)
    y, x = (np.asarray(side, dtype=float) for side in (sides.lhs, sides.rhs))
    coefficients, *_ = np.linalg.lstsq(x, y[:, 0], rcond=None)
    residual = y[:, 0] - x @ coefficients
    variance = residual @ residual / (len(x) - x.shape[1])
    return coefficients, np.sqrt(np.diag(variance * np.linalg.pinv(x.T @ x)))


def propensity_ratio(terms: str, original: pd.DataFrame, synthetic: pd.DataFrame) -> float:
    """Ratio of pMSE to its expectation for data from the fitted distribution.

    For N rows with a synthetic share c, and k coefficients, that is (k - 1)(1 - c)² c / N.
    Numbers are standardised first.

    Source: snoke-2018.
    """
    import formulaic
    from sklearn.linear_model import LogisticRegression

    pooled = pd.concat([original, synthetic], ignore_index=True)
    for name in pooled.select_dtypes("number"):
        values = pooled[name].astype(float)
        pooled[name] = (values - values.mean()) / values.std()
    x = formulaic.model_matrix(terms, pooled).drop(columns="Intercept").to_numpy(dtype=float)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    y = np.arange(len(pooled)) >= len(original)
    c = y.mean()
    model = LogisticRegression(C=1e6, solver="newton-cholesky", max_iter=1000).fit(x, y)
    pmse = np.mean((model.predict_proba(x)[:, 1] - c) ** 2)
    return float(pmse / (x.shape[1] * (1 - c) ** 2 * c / len(pooled)))
