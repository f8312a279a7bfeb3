"""Formula to design matrix, from public columns and public constants only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.errors import DataError, SchemaError
from dpbayes.heavy import formulaic, pd
from dpbayes.schema import Column, Schema
from dpbayes.stan.formula_terms import Domain, Factors, columns_used
from dpbayes.stan.formula_text import Name, Node, parse, quoted

_DOMAIN_POINTS = 4096
_LARGEST = 1e140  # of a term: its square is a number


@dataclass(frozen=True)
class Design:
    """Design matrix of a formula.

    Attributes:
        outcome: name of the outcome column.
        names: K names of the columns of X.
        X: shape (n, K), standardised: (raw - centre) @ basis.
        centre, basis: shapes (K,) and (K, K), public constants; see ``Formula``.
        group: shape (n,), index of each record's group from 1; empty without a group term.
        group_levels: the J declared levels of the group column.
    """

    outcome: str
    names: tuple[str, ...]
    X: NDArray[np.float64]
    centre: NDArray[np.float64]
    basis: NDArray[np.float64]
    group: NDArray[np.int64]
    group_levels: tuple[str | int | float, ...]

    @property
    def group_mean(self) -> NDArray[np.float64]:
        """Shape (J, K), of the columns of X by group; 0 in groups without records."""
        groups = len(self.group_levels)
        if not groups:
            return np.zeros((0, self.X.shape[1]))
        count = np.maximum(np.bincount(self.group, minlength=groups + 1)[1:], 1)
        sums = [np.bincount(self.group, x, minlength=groups + 1)[1:] for x in self.X.T]
        return np.reshape(sums, (-1, groups)).T / count[:, None]

    def stan_data(self) -> dict[str, Any]:
        """n, K, X, J, group as the Stan programs read them."""
        return {
            "n": self.X.shape[0],
            "K": self.X.shape[1],
            "X": self.X,
            "J": len(self.group_levels),
            "group": self.group,
        }


class Formula:
    """A parsed formula ``outcome ~ covariates + (1 | group)`` over a schema.

    A formula is data: it is read into a tree of what is allowed (``formula_text``), which is
    evaluated row by row (``formula_terms``). Nothing of it is run as code.

    Columns of the design matrix are centred and orthonormalised, in the order of the terms, over
    the *declared domain* of the covariates (bounds and levels in the schema, taken as uniform and
    independent), never over the records: with sample moments one record more or less would move
    every other record's linear predictor, and the bound of the clamp would not hold under
    add/remove adjacency. For the same reason transforms that learn from data (center, scale, ...)
    are refused, and splines and polynomials are made of public knots and bounds. Coefficients and
    their priors are those of the orthonormal columns, which NUTS samples several times faster;
    ``Fit.coefficients`` gives them in the covariates' units.

    Raises:
        SchemaError: a text that is no such formula; a covariate that is not public, not declared,
            or without a public domain.
    """

    def __init__(self, formula: str, schema: Schema) -> None:
        self.text = formula
        self._schema = schema
        self._where = f"formula {quoted(formula)}"
        parsed = parse(formula)
        self.outcome = self._outcome(parsed.outcome)
        if () not in parsed.terms:
            raise SchemaError(f"{self._where}: the intercept cannot be removed.")
        self.group = self._grouping(parsed.groups)
        used = {name: self._public(name) for name in columns_used(self._where, parsed.terms)}
        domains = {name: _domain(column) for name, column in used.items()}
        self._factors = Factors(self._where, parsed.terms, domains)
        self._spec, self.centre, self.basis = self._prepare(_domain_sample(used))
        self.names = tuple(n for n in self._spec.column_names if n != "Intercept")

    def _outcome(self, left: Node) -> Column:
        if not isinstance(left, Name):
            raise SchemaError(
                f"{self._where}: the left side must be a column name, not an expression; "
                "choose a family instead of transforming the outcome."
            )
        outcome = self._schema[left.value]
        if outcome.public:
            raise SchemaError(
                f"column {outcome.name!r} is public and needs no synthesis; set public = false if "
                "it is the confidential outcome."
            )
        return outcome

    def _grouping(self, columns: tuple[str, ...]) -> Column | None:
        if not columns:
            return None
        if len(columns) > 1:
            raise SchemaError(f"{self._where}: one group term is supported, found {len(columns)}.")
        group = self._public(columns[0])
        if not group.levels:
            raise SchemaError(
                f"column {group.name!r} groups records and needs declared levels; "
                'give it type = "categorical".'
            )
        return group

    def _public(self, name: str) -> Column:
        column = self._schema[name]
        if not column.public:
            raise SchemaError(
                f"column {name!r} is used as a covariate but is not public: covariates are "
                "conditioned on and released as they are. Add public = true to its declaration "
                "if that is true of it, or leave it out of the formula."
            )
        return column

    def _prepare(
        self, sample: pd.DataFrame
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
        matrix = _matrix(self._factors.formula(), self._factors.table(sample))
        spec = matrix.model_spec
        values = matrix.drop(columns="Intercept").to_numpy(dtype=float)
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
            terms = [n for n in spec.column_names if n != "Intercept"]
            name = terms[int(np.argmax(dependent))]
            raise SchemaError(
                f"{self._where}: term {name!r} is constant or a linear combination of the "
                "terms before it; leave it out."
            )
        basis = np.linalg.inv(triangle) * np.sign(np.diag(triangle))
        return spec, centre, basis

    def design(self, records: pd.DataFrame) -> Design:
        """Build the design of validated records (n rows)."""
        raw = np.empty((len(records), 0))
        if self.names:
            matrix = _matrix(self._spec, self._factors.table(records))
            raw = matrix.drop(columns="Intercept").to_numpy(dtype=float)
        if not np.isfinite(raw).all():
            name = self.names[int(np.argmin(np.isfinite(raw).all(axis=0)))]
            raise DataError(f"{self._where}: term {name!r} is not finite for some records.")
        group: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        levels: tuple[str | int | float, ...] = ()
        if self.group is not None:
            levels = self.group.levels
            group = np.asarray(records[self.group.name].cat.codes, dtype=np.int64) + 1
        return Design(
            outcome=self.outcome.name,
            names=self.names,
            X=_times(raw - self.centre, self.basis),
            centre=self.centre,
            basis=self.basis,
            group=group,
            group_levels=levels,
        )


class DataFormula:
    """A formula over tables that are public as they are: for analysts of a release.

    Levels are those that a table has, unless ``C(x, levels=[...])`` names them.

    Raises:
        SchemaError: it is no formula, or has a group term.
    """

    def __init__(self, formula: str) -> None:
        self._where = f"formula {quoted(formula)}"
        parsed = parse(formula)
        if parsed.groups:
            raise SchemaError(f"{self._where}: group terms have no place in a regression.")
        self._outcome, self._terms = parsed.outcome, parsed.terms
        self._columns = columns_used(self._where, [*parsed.terms, (parsed.outcome,)])

    def matrices(self, data: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
        """Outcome and design of a table's n rows.

        Raises:
            SchemaError: columns that are not there, or hold other values than the formula needs.
        """
        missing = [name for name in self._columns if name not in data.columns]
        if missing:
            raise SchemaError(f"{self._where}: there is no column {missing[0]!r}.")
        domains, table = {}, {}
        for name in self._columns:
            values = data[name]
            if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
                domains[name], table[name] = Domain(), values.astype(float)
                continue
            coded = pd.Categorical(values)
            domains[name] = Domain(levels=tuple(coded.categories))
            table[name] = pd.Series(coded, index=data.index)
        records = pd.DataFrame(table, index=data.index)
        factors = Factors(self._where, self._terms, domains)
        design = _matrix(factors.formula(), factors.table(records))
        plain = pd.DataFrame(design.astype(float))
        outcome = pd.Series(factors.numbers(self._outcome, records), index=data.index)
        if not np.isfinite(plain.to_numpy()).all() or not np.isfinite(outcome).all():
            raise SchemaError(f"{self._where} is not finite, or a value is missing.")
        return outcome, plain


def _matrix(spec: Any, table: pd.DataFrame) -> Any:
    """Of the columns that ``Factors.table`` made: terms are products of them, and no code."""
    with np.errstate(all="ignore"):  # what is not finite is refused afterwards
        return formulaic.model_matrix(spec, table, na_action="ignore", context={})


def _times(rows: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """rows @ basis of an upper triangle, summed in one order whatever the number of rows.

    A library's product sums in blocks of its own choice: one record more could move the last bit
    of others' values.
    """
    found = np.zeros_like(rows)
    for j in range(len(basis)):
        found[:, j:] += rows[:, j : j + 1] * basis[j, j:]
    return found


def _domain(column: Column) -> Domain:
    """What is public of a covariate."""
    return Domain(column.levels, None if column.levels else _bounds(column))


def _bounds(column: Column) -> tuple[float, float]:
    if column.lower is None or column.upper is None:
        raise SchemaError(
            f"column {column.name!r} is used as a covariate and needs lower and upper bounds."
        )
    return float(column.lower), float(column.upper)


def _domain_sample(columns: dict[str, Column]) -> pd.DataFrame:
    """A fixed sample of the declared domain of some columns: the same in every run."""
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
