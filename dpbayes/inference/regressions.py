"""Regressions by formula with statsmodels, for use with ``analyse``."""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import InferenceError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import DataFormula, columns_of
from dpbayes.formula.text import quoted
from dpbayes.inference.combining import Estimates
from dpbayes.inference.firth import fit_firth
from dpbayes.inference.several_rows import with_others
from dpbayes.schema.values import level_text

_STEPS = 500  # of an optimiser: statsmodels' own 35 end before some maxima of `negbin`
_LEAST_ALPHA = 0.05  # overdispersion from which `negbin` is fitted


@dataclass(frozen=True)
class Kind:
    """A regression model of statsmodels.

    Attributes:
        module, name: module and name of its class.
        options: function that returns the arguments of the class, given statsmodels.api.
        coded: the outcome may be a column of levels, coded 0, 1, ...
        most: required number of levels of the outcome; None for any number.
        above, below: bounds between which the outcome must lie, excluding the ends.
        intercept: the model has an intercept; otherwise it has cutpoints.
        method: the optimiser; None for that of statsmodels.
        separable: there is no maximum where a level or a covariate separates the outcomes.
        start: function that returns where the optimiser begins, given statsmodels.api, y and X.
    """

    module: str
    name: str
    options: Callable[[ModuleType], dict[str, Any]] = lambda sm: {}
    coded: bool = False
    most: int | None = None
    above: float = -np.inf
    below: float = np.inf
    intercept: bool = True
    method: str | None = None
    separable: bool = False
    start: Callable[[ModuleType, pd.Series, pd.DataFrame], Floats] | None = None


def _poisson_start(sm: ModuleType, y: pd.Series, X: pd.DataFrame) -> Floats:
    """Coefficients of a Poisson regression, and alpha by the moments of its residuals.

    From statsmodels' own start some data sets with long tails are not fitted.
    """
    poisson = sm.GLM(y, X, family=sm.families.Poisson()).fit()
    mean = poisson.fittedvalues
    alpha = float((((y - mean) ** 2 - mean) / mean**2).mean())
    return np.append(poisson.params, max(alpha, _LEAST_ALPHA))


KINDS: dict[str, Kind] = {
    "ols": Kind("statsmodels.api", "OLS"),
    "logit": Kind("statsmodels.api", "Logit", coded=True, most=2, separable=True),
    "poisson": Kind("statsmodels.api", "Poisson", separable=True),
    "negbin": Kind(
        "statsmodels.api", "NegativeBinomial", separable=True, start=_poisson_start
    ),
    "gamma": Kind(
        "statsmodels.api", "GLM",
        lambda sm: {"family": sm.families.Gamma(sm.families.links.Log())}, above=0.0,
    ),
    "beta": Kind("statsmodels.othermod.betareg", "BetaModel", above=0.0, below=1.0),
    "ordinal": Kind(
        "statsmodels.miscmodels.ordinal_model", "OrderedModel", lambda sm: {"distr": "logit"},
        coded=True, intercept=False, method="bfgs",  # Nelder-Mead ends too early
        separable=True,
    ),
}  # fmt: skip
MODELS = tuple(KINDS)
_NO_MAXIMUM = (
    "the maximum of the likelihood was not found; there is none where a level or a covariate "
    "separates the outcomes, as may happen in a single data set. Take a model that fits the "
    "outcome, such as ols for shares, or fewer terms."
)
_LEFT_OUT = (
    "rows with a missing value in a column of the regression are left out: the analysis is of "
    "the others, as it would be of the records."
)
SEPARATED = (
    "in a data set a level or a covariate separates the outcomes, so that the likelihood has no "
    "maximum: the estimates there are those of Firth's penalised likelihood."
)
MOST_CUTPOINTS = 50  # distinct numbers that an ordinal outcome may have
_UNKNOWN = 20.0  # standard error of a log odds or a log mean that no data with a maximum have
_DIRECT = ("OLS", "GLM")  # fitted without an optimiser that talks


def formula_fit(
    formula: str,
    model: str = "ols",
    levels: Mapping[str, Sequence[Any]] | None = None,
    unit: Mapping[str, Any] | None = None,
) -> Callable[[pd.DataFrame], Estimates]:
    """Return a function for ``analyse`` that fits a regression with statsmodels.

    ``negbin`` has the variance mu + alpha mu²; ``gamma`` and ``beta`` the links log and logit;
    ``ordinal`` is the proportional odds model, whose cutpoints are among the estimates, named by
    the levels on either side; one beyond which no row has a level is infinite, with variance nan.
    Where a level or a covariate separates the outcomes of ``logit``, its estimates are those of
    Firth's penalised likelihood (Biometrika, 1993), with a warning; others have no estimate then.

    Args:
        formula: formula on the released columns, in the syntax of the synthesizers' formulas; it
            is parsed and never run as code. Splines and polynomials need bounds, ``lower`` and
            ``upper``; the outcome may be an expression. Columns that are in ``levels`` are levels,
            also where these are numbers; ``I(x)`` means the numbers. For ``logit`` and ``ordinal``
            the outcome may be a column of levels.
        model: one of ``MODELS``.
        levels: levels of columns, in the order of the release (``ReleasedData.levels``): the first
            is the reference level. By default the sorted levels of each data set.
        unit: declaration of records of several rows (``ReleasedData.unit``). Errors are then
            independent between records, not between rows (Liang and Zeger, Biometrika, 1986), but
            for Firth's; and columns of other rows are read as in ``keep``: ``before.wage``,
            ``head.age``.
    Raises:
        InferenceError: no statsmodels; an invalid formula, or one that does not suit the data.
    """
    kind = KINDS.get(model)
    if kind is None:
        raise InferenceError(f"model = {model!r}: expected one of {', '.join(MODELS)}.")
    try:
        module = importlib.import_module(kind.module)
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
    tell = _once()

    def fit(data: pd.DataFrame) -> Estimates:
        where = f"{model} {quoted(formula)} on columns {', '.join(map(str, data.columns))}"
        own = None
        if unit is not None and unit["id"] in data:
            own, data = unit["id"], with_others(data, read.columns, unit)
        data = _complete(data, read.columns, where, tell)
        data = _in_order(data, read.columns, levels or {})
        records = None if own is None else data[own]
        named = next((data[name] for name in outcomes if name in data), None)
        try:
            for outcome in outcomes if kind.coded else ():
                if outcome in data:
                    data = data.assign(**{outcome: _coded(kind, model, data[outcome])})
            y, X = read.matrices(data)
            _check_range(kind, model, y)
            _check_columns(X, where)
            X = X if kind.intercept else X.drop(columns="Intercept")
            model_of_data = getattr(module, kind.name)(y, X, **kind.options(api))
            result = _maximum(lambda: _fitted(kind, model_of_data, api, y, X), X * kind.separable)
            if result is None and model == "logit":
                result = _penalised(y, X, tell)
            if result is None:
                raise InferenceError(f"{where}: {_NO_MAXIMUM}")
            of_outcome = None if kind.intercept else _levels_of(named, y, levels or {})
            return _finished(result, of_outcome, records)
        except InferenceError:
            raise
        except Exception as error:  # libraries raise errors of many kinds
            message = (str(error) or type(error).__name__).splitlines()[0]
            raise InferenceError(f"{where}: {message}") from None

    return fit


def _complete(
    data: pd.DataFrame, names: Iterable[str], where: str, tell: Callable[[str], None]
) -> pd.DataFrame:
    """Rows with values in all of these columns, as far as there are such columns."""
    complete = data.dropna(subset=[name for name in names if name in data])
    if len(complete) < len(data):
        tell(_LEFT_OUT)
    if complete.empty:
        raise InferenceError(f"{where}: no row has values in all of these columns.")
    return complete


def _in_order(
    data: pd.DataFrame, names: Iterable[str], declared: Mapping[str, Sequence[Any]]
) -> pd.DataFrame:
    """Order the levels of columns as the release declares them, leaving out levels that are absent.

    Levels that are numbers are levels, too, as in the synthesizers' formulas. A column without any
    of its levels was recoded, and is left as it is.
    """
    changed: dict[str, pd.Series] = {}
    for name in names:
        levels = _declared(name, declared)
        if name not in data or levels is None:
            continue
        texts = data[name].map(level_text)
        found = set(texts.unique())
        present = {level_text(v): v for v in levels if level_text(v) in found}
        if not present:
            continue
        if others := sorted(found - set(present)):
            raise InferenceError(
                f"column {name!r} has values that are none of its levels, such as {others[0]!r}. "
                "Give a column that was recoded another name."
            )
        changed[name] = pd.Series(
            pd.Categorical(texts.map(present), categories=list(present.values())),
            index=data.index,
        )
    ordered = data.copy(deep=False)
    for name, values in changed.items():
        ordered[name] = values
    return ordered


def _declared(name: str, levels: Mapping[str, Sequence[Any]]) -> Sequence[Any] | None:
    """Declared levels of a column, also as a column of another row, such as before.NAME."""
    return levels.get(name, levels.get(name.partition(".")[2]))


def _is_number(values: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(values) and not types.is_bool_dtype(values)


def _coded(kind: Kind, model: str, values: pd.Series) -> pd.Series:
    """Code the levels of an outcome as 0, 1, ...; numbers stay as they are."""
    name = str(values.name)
    if _is_number(values):
        if not kind.intercept and values.nunique() > MOST_CUTPOINTS:
            raise InferenceError(
                f"model {model!r} needs an outcome of few ordered levels; {name!r} has "
                f"{values.nunique():,} values. Take ols, or another model for numbers."
            )
        return values
    coded = pd.Categorical(values)
    if kind.most is not None and len(coded.categories) != kind.most:
        raise InferenceError(
            f"model {model!r} needs {kind.most} levels of {name!r}, a data set has "
            f"{len(coded.categories)}: {', '.join(map(str, coded.categories))}. Say which is "
            f"meant: I({name} == 'level') ~ ..."
        )
    return pd.Series(coded.codes, index=values.index, dtype=float)


def _check_range(kind: Kind, model: str, y: pd.Series) -> None:
    outside = int((~((y > kind.above) & (y < kind.below))).sum())
    if outside:
        end = "" if np.isinf(kind.below) else f" and below {kind.below:g}"
        raise InferenceError(
            f"model {model!r} needs an outcome above {kind.above:g}{end}; {outside} of {len(y)} "
            "values are not. Write the outcome as an expression, such as I(y / 100), take another "
            "model, or a function of your own for analyse."
        )


def _check_columns(X: pd.DataFrame, where: str) -> None:
    if empty := [str(name) for name in X if not X[name].any()]:
        raise InferenceError(
            f"{where}: {', '.join(empty)} is 0 in every row, and has no coefficient: such a level "
            "is missing here. Merge rare levels, or leave the column out."
        )


def _maximum(fit: Callable[[], Any], X: pd.DataFrame) -> Any | None:
    """Fit a model; None if there is no maximum, or the optimiser did not find it.

    Without a maximum optimisers may end where the slope is small, at huge standard errors.

    Args:
        X: the covariates, times 0 if the model always has a maximum.
    """
    span = np.ptp(X.to_numpy(dtype=float), axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence is checked
        try:
            result = fit()
        except np.linalg.LinAlgError:
            return None
        optimiser = getattr(result, "mle_retvals", None)
        converged = (
            optimiser.get("converged", True) if optimiser else getattr(result, "converged", True)
        )
        errors = np.asarray(result.bse, dtype=float)
        unknown = errors[: len(span)] * span > _UNKNOWN
        return result if converged and np.isfinite(errors).all() and not unknown.any() else None


def _fitted(kind: Kind, model: Any, sm: ModuleType, y: pd.Series, X: pd.DataFrame) -> Any:
    """Fit a model to y and X; what an optimiser says is not printed."""
    if kind.name in _DIRECT:
        return model.fit()
    arguments: dict[str, Any] = {"disp": 0, "maxiter": _STEPS}
    if kind.method is not None:
        arguments["method"] = kind.method
    if kind.start is not None:
        arguments["start_params"] = kind.start(sm, y, X)
    return model.fit(**arguments)


def _finished(
    result: Any, levels: tuple[list[str], list[bool]] | None, records: pd.Series | None
) -> Estimates:
    """Estimates with their variances, between records if these are given for each row.

    Args:
        levels: ``_levels_of`` of an ordinal outcome; None for other models.
    """
    if levels is None and (records is None or isinstance(result, tuple)):
        same: Estimates = result
        return same
    covariance = result.cov_params()
    if records is not None:
        if records.nunique() < 2:
            raise InferenceError("all rows are of one record, which tells nothing of others.")
        sandwich = importlib.import_module("statsmodels.stats.sandwich_covariance")
        covariance = sandwich.cov_cluster(result, np.asarray(pd.factorize(records)[0]))
    if levels is not None:
        return _cutpoints(result, covariance, *levels)
    return result.params, pd.Series(np.diag(covariance), result.params.index)


def _levels_of(
    outcome: pd.Series | None, y: pd.Series, declared: Mapping[str, Sequence[Any]]
) -> tuple[list[str], list[bool]]:
    """Return the levels of an ordinal outcome in order, and whether each of them occurs.

    Args:
        outcome: column of the outcome before it was coded; None if it is an expression.
        y: outcome of the regression.
        declared: declared levels of columns.
    """
    if outcome is None or _is_number(outcome):
        values = [f"{value:.10g}" for value in np.unique(y)]
        return values, [True] * len(values)
    found = list(pd.Categorical(outcome).categories)
    texts, levels = set(map(level_text, found)), _declared(str(outcome.name), declared)
    if levels is None or not texts <= set(map(level_text, levels)):  # it was recoded
        levels = found
    return list(map(str, levels)), [level_text(level) in texts for level in levels]


def _cutpoints(
    result: Any, covariance: ArrayLike, levels: Sequence[str], occurs: Sequence[bool]
) -> tuple[pd.Series, pd.Series]:
    """Estimates and variances of coefficients and cutpoints.

    statsmodels estimates the first cutpoint and the logarithms of the steps between cutpoints;
    variances of the cutpoints follow by the delta method.

    Cutpoint ``b|c`` is the log odds, at covariates 0, of an outcome up to b. Those odds have an
    estimate whether or not b or c occur: no row at c means as many rows up to b as up to c. The
    fitted cutpoint between b and d is therefore the estimate of both ``b|c`` and ``c|d``, where the
    likelihood of all levels has its maximum, and its variance is that of either. No row below b
    makes the odds of ``a|b`` 0, and its cutpoint infinite.
    """
    slopes, values = result.model.k_vars, result.params.to_numpy()
    steps = np.exp(values[slopes + 1 :])
    cuts = values[slopes] + np.concatenate([[0.0], np.cumsum(steps)])
    jacobian = np.eye(len(values))
    jacobian[slopes:, slopes] = 1.0
    jacobian[slopes + 1 :, slopes + 1 :] = np.tri(len(steps)) * steps
    variances = np.diag(jacobian @ np.asarray(covariance) @ jacobian.T)
    fitted = np.cumsum(occurs)[:-1]  # number of levels that occur up to each: 0 is below all rows
    cuts = np.concatenate([[-np.inf], cuts, [np.inf]])[fitted]
    of_cuts = np.concatenate([[np.nan], variances[slopes:], [np.nan]])[fitted]
    names = [f"cutpoint {low}|{high}" for low, high in itertools.pairwise(levels)]
    labels = [*result.params.index[:slopes], *names]
    estimates = pd.Series(np.concatenate([values[:slopes], cuts]), labels)
    return estimates, pd.Series(np.concatenate([variances[:slopes], of_cuts]), labels)


def _penalised(y: pd.Series, X: pd.DataFrame, tell: Callable[[str], None]) -> Estimates | None:
    """Firth's estimates and variances for outcomes 0 and 1, told; None if there are none, either.

    Covariates are scaled to a mean square of 1, because ``fit_firth`` compares their sizes.
    """
    outcome, design = y.to_numpy(dtype=float), X.to_numpy(dtype=float)
    if not np.isin(outcome, (0, 1)).all():
        return None
    scale = np.sqrt((design**2).mean(axis=0))
    (estimates,), (variances,) = fit_firth((design / scale)[None], (outcome == 1)[None])
    if np.isnan(estimates).any():
        return None
    tell(SEPARATED)
    return pd.Series(estimates / scale, X.columns), pd.Series(variances / scale**2, X.columns)


def _once() -> Callable[[str], None]:
    """Return a function that warns, of each message once: data sets share their warnings."""
    told: set[str] = set()

    def tell(message: str) -> None:
        if message not in told:
            told.add(message)
            warnings.warn(message, stacklevel=3)

    return tell
