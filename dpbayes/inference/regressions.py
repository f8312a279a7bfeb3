"""Regressions of a data set by statsmodels, for ``analyse``: formulas in, estimates out."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.errors import InferenceError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import DataFormula, columns_of
from dpbayes.formula.text import quoted


@dataclass(frozen=True)
class Kind:
    """A regression of statsmodels.

    Attributes:
        module, name: of its class.
        options: of the class.
        coded: the outcome may be a column of levels: their places, from 0.
        most: places of levels that it takes; None for as many as there are.
        above, below: what values of the outcome lie between, ends excluded.
        intercept: it has one; cutpoints stand in its place otherwise.
    """

    module: str
    name: str
    options: Callable[[Any], dict[str, Any]] = lambda sm: {}
    coded: bool = False
    most: int | None = None
    above: float = -np.inf
    below: float = np.inf
    intercept: bool = True


KINDS: dict[str, Kind] = {
    "ols": Kind("statsmodels.api", "OLS"),
    "logit": Kind("statsmodels.api", "Logit", coded=True, most=2),
    "poisson": Kind("statsmodels.api", "Poisson"),
    "negbin": Kind("statsmodels.api", "NegativeBinomial"),
    "gamma": Kind(
        "statsmodels.api", "GLM",
        lambda sm: {"family": sm.families.Gamma(sm.families.links.Log())}, above=0.0,
    ),
    "beta": Kind("statsmodels.othermod.betareg", "BetaModel", above=0.0, below=1.0),
    "ordinal": Kind(
        "statsmodels.miscmodels.ordinal_model", "OrderedModel", lambda sm: {"distr": "logit"},
        coded=True, intercept=False,
    ),
}  # fmt: skip
MODELS = tuple(KINDS)
MOST_CUTPOINTS = 50
_DIRECT = ("ols", "gamma")  # fitted without an optimiser that talks


def formula_fit(
    formula: str, model: str = "ols", levels: Mapping[str, Sequence[Any]] | None = None
) -> Callable[[pd.DataFrame], Any]:
    """A function for ``analyse`` that fits a regression by statsmodels.

    ``negbin`` has the variance mu + alpha mu²; ``gamma`` and ``beta`` the links log and logit;
    ``ordinal`` is the proportional odds model, whose cutpoints are among the estimates.

    Args:
        formula: what formulas of a synthesizer may use, of the released columns: a formula is
            read and never run as code. Splines and polynomials need bounds, ``lower`` and
            ``upper``; the outcome may be an expression. For ``logit`` and ``ordinal`` it may be a
            column of levels.
        model: one of ``MODELS``.
        levels: of columns, in order, as the release has them (``ReleasedData.levels``): the first
            is what others are compared with. By default those of each data set, sorted.
    Raises:
        InferenceError: statsmodels is missing, the formula is none, or it does not fit the data.
    """
    if model not in KINDS:
        raise InferenceError(f"model = {model!r}: expected one of {', '.join(MODELS)}.")
    try:
        made = importlib.import_module(KINDS[model].module)
        api = importlib.import_module("statsmodels.api")
    except ImportError:
        raise InferenceError(
            'formulas need statsmodels: pip install "dpbayes[analysis]".'
        ) from None
    try:
        read = DataFormula(formula)
        outcomes, _ = columns_of(formula)
    except SchemaError as error:
        raise InferenceError(str(error)) from None
    declared = {name: [str(each) for each in found] for name, found in (levels or {}).items()}
    kind = KINDS[model]

    def fit(data: pd.DataFrame) -> Any:
        where = f"{model} {quoted(formula)} on columns {', '.join(map(str, data.columns))}"
        data = _complete(data, read.columns)
        data = _in_order(data, read.columns, declared)
        try:
            for outcome in outcomes if kind.coded else ():
                if outcome in data:
                    data = data.assign(**{outcome: _coded(kind, model, data[outcome])})
            y, X = read.matrices(data)
            _check_range(kind, model, y)
            X = X if kind.intercept else X.drop(columns="Intercept")
            quiet: dict[str, Any] = {} if model in _DIRECT else {"disp": 0}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is asked for below
                found = getattr(made, kind.name)(y, X, **kind.options(api)).fit(**quiet)
            _converge(found, where)
            return found if kind.intercept else _cutpoints(found)
        except InferenceError:
            raise
        except Exception as error:  # libraries raise errors of many kinds
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise InferenceError(f"{where}: {said}") from None

    return fit


def _in_order(
    data: pd.DataFrame, names: Iterable[str], declared: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Columns of levels in the order that the release declares, as far as they are there.

    Numbers stay numbers, as whoever names them in a formula means them.
    """
    changed: dict[str, pd.Series] = {}
    for name in names:
        if name not in data or name not in declared or _is_number(data[name]):
            continue
        text = data[name].astype(str)
        there = [level for level in declared[name] if (text == level).any()]
        if text.isin(there).all():
            changed[name] = pd.Series(pd.Categorical(text, categories=there), index=data.index)
    found = data.copy(deep=False)
    for name, values in changed.items():
        found[name] = values
    return found


def _is_number(values: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(values) and not types.is_bool_dtype(values)


def _coded(kind: Kind, model: str, values: pd.Series) -> pd.Series:
    """An outcome of levels as their places, from 0; numbers as they are."""
    name = str(values.name)
    if _is_number(values):
        if not kind.intercept and values.nunique() > MOST_CUTPOINTS:
            raise InferenceError(
                f"model {model!r} needs an outcome of few ordered levels; {name!r} has "
                f"{values.nunique():,} values. Take ols, or another model for numbers."
            )
        return values
    found = pd.Categorical(values)
    if kind.most is not None and len(found.categories) != kind.most:
        raise InferenceError(
            f"model {model!r} needs {kind.most} levels of {name!r}, a data set has "
            f"{len(found.categories)}: {', '.join(map(str, found.categories))}. Say which is "
            f"meant: I({name} == 'level') ~ ..."
        )
    return pd.Series(found.codes, index=values.index, dtype=float)


def _check_range(kind: Kind, model: str, y: pd.Series) -> None:
    outside = int((~((y > kind.above) & (y < kind.below))).sum())
    if outside:
        end = "" if np.isinf(kind.below) else f" and below {kind.below:g}"
        raise InferenceError(
            f"model {model!r} needs an outcome above {kind.above:g}{end}; {outside} of {len(y)} "
            "values are not. Write the outcome as an expression, such as I(y / 100), take another "
            "model, or a function of your own for analyse."
        )


def _converge(found: Any, where: str) -> None:
    """Raise InferenceError if the optimiser gave up."""
    said = getattr(found, "mle_retvals", None)
    done = said.get("converged", True) if said else getattr(found, "converged", True)
    if not done or not np.isfinite(np.asarray(found.bse)).all():
        raise InferenceError(
            f"{where}: the maximum of the likelihood was not found. Take a model that fits the "
            "outcome, or fewer terms."
        )


def _cutpoints(found: Any) -> tuple[pd.Series, pd.Series]:
    """Estimates and variances of coefficients and cutpoints.

    statsmodels has the first cutpoint and the logarithms of the steps between them; the variances
    of sums of steps are by the delta method.
    """
    slopes, values = found.model.k_vars, found.params.to_numpy()
    steps = np.exp(values[slopes + 1 :])
    cuts = values[slopes] + np.concatenate([[0.0], np.cumsum(steps)])
    jacobian = np.eye(len(values))
    jacobian[slopes:, slopes] = 1.0
    jacobian[slopes + 1 :, slopes + 1 :] = np.tri(len(steps)) * steps
    variances = np.diag(jacobian @ found.cov_params().to_numpy() @ jacobian.T)
    labels = [*found.params.index[:slopes], *(f"cutpoint {k + 1}" for k in range(len(cuts)))]
    return pd.Series(np.concatenate([values[:slopes], cuts]), labels), pd.Series(variances, labels)


def _complete(data: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Rows without a missing value in these columns; a warning says so where some are left out."""
    some = [name for name in names if name in data and data[name].isna().any()]
    if not some:
        return data
    warnings.warn(
        f"rows with a missing value are left out ({', '.join(some)}): the analysis is of those "
        "that have one, as it would be of the records.",
        stacklevel=2,
    )
    return data.dropna(subset=some)
