"""Formula to design matrix, from public columns and public constants only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.errors import DataError, SchemaError
from dpbayes.heavy import formulaic, pd
from dpbayes.schema import Column, Schema

_GROUP_TERM = re.compile(r"\(\s*1\s*\|\s*([^)|]+?)\s*\)")
_DOMAIN_POINTS = 4096


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

    Columns of the design matrix are centred and orthonormalised, in the order of the terms, over
    the *declared domain* of the covariates (bounds and levels in the schema, taken as uniform and
    independent), never over the records: with sample moments one record more or less would move
    every other record's linear predictor, and the bound of the clamp would not hold under
    add/remove adjacency. For the same reason transforms that learn from data (center, scale, poly,
    bs, ...) are refused. Coefficients and their priors are those of the orthonormal columns, which
    NUTS samples several times faster; ``Fit.coefficients`` gives them in the covariates' units.

    Raises:
        SchemaError: a covariate that is not public, not declared, or without a public domain.
    """

    def __init__(self, formula: str, schema: Schema) -> None:
        self.text = formula
        self._schema = schema
        left, tilde, right = formula.partition("~")
        outcome = left.strip().strip("`")
        if not tilde or not outcome:
            raise SchemaError(
                f"formula {formula!r}: expected 'outcome ~ covariates', for example 'y ~ 1'."
            )
        if outcome not in schema.columns and re.search(r"\W", outcome):
            raise SchemaError(
                f"formula {formula!r}: the left side must be a column name, not an expression; "
                "choose a family instead of transforming the outcome."
            )
        self.outcome = schema[outcome]
        if self.outcome.public:
            raise SchemaError(
                f"column {outcome!r} is public and needs no synthesis; set public = false if it "
                "is the confidential outcome."
            )
        if re.search(r"(^|\+)\s*0\s*(\+|$)|-\s*1\s*(\+|$)", right):
            raise SchemaError(f"formula {formula!r}: the intercept cannot be removed.")
        right, self.group = self._split_group(right)
        self._spec, self.centre, self.basis = self._prepare(right)
        self.names = tuple(n for n in self._spec.column_names if n != "Intercept")

    def _split_group(self, right: str) -> tuple[str, Column | None]:
        terms = _GROUP_TERM.findall(right)
        rest = re.sub(rf"\+?\s*{_GROUP_TERM.pattern}", "", right).strip().removeprefix("+") or "1"
        if "|" in rest:
            raise SchemaError(
                f"formula {self.text!r}: only group intercepts (1 | group) are supported."
            )
        if not terms:
            return rest, None
        if len(terms) > 1:
            raise SchemaError(
                f"formula {self.text!r}: one group term is supported, found {len(terms)}."
            )
        group = self._public(terms[0].strip("`"))
        if not group.levels:
            raise SchemaError(
                f"column {group.name!r} groups records and needs declared levels; "
                'give it type = "categorical".'
            )
        return rest, group

    def _public(self, name: str) -> Column:
        column = self._schema[name]
        if not column.public:
            raise SchemaError(
                f"column {name!r} is used as a covariate but is not public: covariates are "
                "conditioned on and released as they are. Add public = true to its declaration "
                "if that is true of it, or leave it out of the formula."
            )
        return column

    def _prepare(self, right: str) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
        used = {name: self._public(name) for name in _names(right)}
        try:
            matrix = formulaic.model_matrix(
                right, _domain_sample(used), na_action="ignore", context={}
            )
        except formulaic.errors.FormulaicError as error:
            raise SchemaError(f"formula {self.text!r}: {str(error).splitlines()[0]}") from None
        spec = matrix.model_spec
        if any(spec.transform_state.values()):
            learned = ", ".join(str(k) for k, v in spec.transform_state.items() if v)
            raise SchemaError(
                f"formula {self.text!r}: {learned} learns constants from the records. Write public "
                "constants instead, for example I((age - 40) / 10)."
            )
        values = matrix.drop(columns="Intercept").to_numpy(dtype=float)
        if not np.isfinite(values).all():
            raise SchemaError(
                f"formula {self.text!r} is not finite everywhere inside the declared bounds."
            )
        centre = values.mean(axis=0)
        triangle = np.linalg.qr((values - centre) / np.sqrt(_DOMAIN_POINTS), mode="r")
        spread = np.abs(np.diag(triangle))
        dependent = spread <= 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
        if dependent.any():
            terms = [n for n in spec.column_names if n != "Intercept"]
            name = terms[int(np.argmax(dependent))]
            raise SchemaError(
                f"formula {self.text!r}: term {name!r} is constant or a linear combination of the "
                "terms before it; leave it out."
            )
        basis = np.linalg.inv(triangle) * np.sign(np.diag(triangle))
        return spec, centre, basis

    def design(self, records: pd.DataFrame) -> Design:
        """Build the design of validated records (n rows)."""
        raw = np.empty((len(records), 0))
        if self.names:
            matrix = self._spec.get_model_matrix(records, na_action="ignore", context={})
            raw = matrix.drop(columns="Intercept").to_numpy(dtype=float)
        if not np.isfinite(raw).all():
            name = self.names[int(np.argmin(np.isfinite(raw).all(axis=0)))]
            raise DataError(f"formula {self.text!r}: term {name!r} is not finite for some records.")
        group: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        levels: tuple[str | int | float, ...] = ()
        if self.group is not None:
            levels = self.group.levels
            group = np.asarray(records[self.group.name].cat.codes, dtype=np.int64) + 1
        return Design(
            outcome=self.outcome.name,
            names=self.names,
            X=np.ascontiguousarray((raw - self.centre) @ self.basis),
            centre=self.centre,
            basis=self.basis,
            group=group,
            group_levels=levels,
        )


def _names(right: str) -> list[str]:
    """Names of columns: words that are neither functions, nor settings of one, nor numbers."""
    words = re.findall(r"`([^`]+)`|(?<![\w.])([^\W\d]\w*)(?!\w|\s*[(=.])", right)
    return list(dict.fromkeys(quoted or word for quoted, word in words))


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
        if column.lower is None or column.upper is None:
            raise SchemaError(
                f"column {name!r} is used as a covariate and needs lower and upper bounds."
            )
        grid = np.linspace(column.lower, column.upper, _DOMAIN_POINTS)
        sample[name] = pd.Series(rng.permutation(grid if column.type != "count" else np.rint(grid)))
    return pd.DataFrame(sample, index=range(_DOMAIN_POINTS))
