"""Columns of a design matrix, standardised over the declared domain of the covariates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.lazy import formulaic, pd
from dpbayes.formula.terms import Domain, Factors
from dpbayes.formula.tree import Term
from dpbayes.schema import Column

_DOMAIN_POINTS = 4096  # size of the fixed sample that stands for the declared domain
_LARGEST = 1e140  # largest value of a term: its square still fits into a float


class Columns:
    """Columns of terms, centred and orthonormalised in their order over the declared domain.

    The domain is given by bounds and levels in the schema, taken as uniform and independent.

    Args:
        where: beginning of messages.
        terms: terms from ``parse``, including the intercept, checked by ``columns_used``.
        used: the columns that the terms use, by name.

    Attributes:
        names: names of the K columns.
        centre, basis: public constants, shapes (K,) and (K, K): values are (raw - centre) @ basis.

    Raises:
        SchemaError: a term is not finite or too large inside the domain, or depends on others.
    """

    def __init__(self, where: str, terms: Iterable[Term], used: Mapping[str, Column]) -> None:
        self._where = where
        domains = {name: _domain(column) for name, column in used.items()}
        factors = Factors(where, terms, domains)
        matrix = matrix_of(factors.formula(), factors.table(_domain_sample(used)))
        # With confidential covariates no value may be refused: the error would disclose it.
        self._total = not all(column.public for column in used.values())
        self._factors = Factors(where, terms, domains, total=self._total)
        self._spec = matrix.model_spec
        self.names = tuple(n for n in self._spec.column_names if n != "Intercept")
        self.centre, self.basis = self._scaled(matrix.drop(columns="Intercept").to_numpy(float))

    def _scaled(self, values: Floats) -> tuple[Floats, Floats]:
        if not np.isfinite(values).all():
            raise SchemaError(f"{self._where} is not finite everywhere inside the declared bounds.")
        with np.errstate(all="ignore"):
            centre = values.mean(axis=0)
            centred = (values - centre) / np.sqrt(_DOMAIN_POINTS)
        if not (np.abs(centred) < _LARGEST).all():
            raise SchemaError(
                f"{self._where}: its terms are too large; scale them, as in I(x / 1e9)."
            )
        triangle = np.linalg.qr(centred, mode="r")
        spread = np.abs(np.diag(triangle))
        dependent = spread <= 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
        if dependent.any():
            name = self.names[int(np.argmax(dependent))]
            raise SchemaError(
                f"{self._where}: term {name!r} is constant or a linear combination of the "
                "terms before it; leave it out."
            )
        # QR leaves the signs open: each column keeps the direction of its term.
        return centre, np.linalg.inv(triangle) * np.sign(np.diag(triangle))

    def values(self, records: pd.DataFrame) -> Floats:
        """Return the standardised columns of validated records, shape (n, K).

        With confidential columns, values that are not finite or too large become 0, so that no
        record of the domain is refused.

        Raises:
            DataError: a term of public columns is not finite for some records.
        """
        raw = np.empty((len(records), 0))
        if self.names:
            matrix = matrix_of(self._spec, self._factors.table(records))
            raw = matrix.drop(columns="Intercept").to_numpy(dtype=float)
        if self._total:
            with np.errstate(all="ignore"):
                standardised = _times(raw - self.centre, self.basis)
            usable = np.abs(standardised) < _LARGEST  # False for NaN, too
            return np.where(usable, standardised, 0.0)
        if not np.isfinite(raw).all():
            name = self.names[int(np.argmin(np.isfinite(raw).all(axis=0)))]
            raise DataError(f"{self._where}: term {name!r} is not finite for some records.")
        return _times(raw - self.centre, self.basis)


def matrix_of(
    spec: formulaic.Formula | formulaic.ModelSpec, table: pd.DataFrame
) -> formulaic.ModelMatrix:
    """Build the model matrix from the columns of ``Factors.table``; terms are products of them.

    No text of a formula is evaluated as code.
    """
    with np.errstate(all="ignore"):  # callers check that values are finite
        return formulaic.model_matrix(spec, table, na_action="ignore", context={})


def _times(rows: Floats, basis: Floats) -> Floats:
    """Multiply rows by an upper triangular basis, in an order that never depends on the rows.

    A library's product sums in blocks of its own choice: with one record more, the values of other
    records could change in the last bit.
    """
    product = np.zeros_like(rows)
    for j in range(len(basis)):
        product[:, j:] += rows[:, j : j + 1] * basis[j, j:]
    return product


def _domain(column: Column) -> Domain:
    """Return the public domain of a covariate: its levels or its bounds."""
    return Domain(column.levels, None if column.levels else _bounds(column))


def _bounds(column: Column) -> tuple[float, float]:
    if column.lower is None or column.upper is None:
        raise SchemaError(
            f"column {column.name!r} is used as a covariate and needs lower and upper bounds."
        )
    return float(column.lower), float(column.upper)


def _domain_sample(columns: Mapping[str, Column]) -> pd.DataFrame:
    """Draw a sample of the declared domain of columns with a fixed seed: equal in every run."""
    rng = np.random.default_rng(0)
    sample = {}
    for name, column in columns.items():
        if column.levels:
            codes = rng.permutation(np.arange(_DOMAIN_POINTS) % len(column.levels))
            levels = np.asarray(column.levels, dtype=object)
            sample[name] = pd.Series(
                pd.Categorical(levels[codes], categories=list(column.levels), ordered=True)
            )
            continue
        grid = np.linspace(*_bounds(column), _DOMAIN_POINTS)
        sample[name] = pd.Series(rng.permutation(grid if column.type != "count" else np.rint(grid)))
    return pd.DataFrame(sample, index=range(_DOMAIN_POINTS))
