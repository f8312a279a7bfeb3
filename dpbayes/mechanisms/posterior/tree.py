"""Convert posteriors to ArviZ trees: named axes, log-likelihoods, replicates. Confidential.

The draws of a program hold coefficients of orthonormal columns (``formula.Formula``) on the
program's scale of the outcome, and group effects in the sampler's coordinates as well as the
model's. These trees hold parameters in the covariates' and the outcome's own units, and no sampler
coordinates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import DataError, ProgramError
from dpbayes.core.lazy import pd, special, xr
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.base import BoundModel
from dpbayes.engines.draws import count_draws, stacked
from dpbayes.formula.groups import COORDINATES, GroupColumn, correlations
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.sampled import Posterior
from dpbayes.mechanisms.predictive import replicates_at
from dpbayes.schema import Column
from dpbayes.stan.composition import entry
from dpbayes.stan.model import ColumnModel, Model

if TYPE_CHECKING:
    import arviz_stats

MOST_VALUES = 200_000_000  # values of one array held in memory: 1.6 GB
_SAMPLE = ("chain", "draw")

# Parameters in units of the linear predictor.
_IN_UNITS = ("coefficient", "group_effect", "group_sd", "sigma", "shift")
# Parameters of bundled programs by which the sampler moves, in words of what they decide: trees,
# releases and pages have cutpoints, shifts, sds and correlations instead, which follow from them.
_OF_GROUPS = dict(
    zip(COORDINATES, ("effects of groups", "group_sd", "group_correlation"), strict=True)
)
_INTERNAL = {
    "ordinal": {"gap": "the distances between cutpoints", "first_cutpoint": "the cutpoints"},
    "mixture": {"gap": "the distances between components"},
}

Axis = tuple[str, list[str]]  # name of the axis, and labels along it
Values = dict[str, NDArray[Any]]


def named(draws: xr.DataTree, model: Model) -> xr.DataTree:
    """Draws with the names of covariates, levels and groups on their axes.

    Coefficients and intercepts are in the covariates' and the outcome's own units, the intercept
    (for ordinal families: the cutpoints) at covariates 0, on the link scale; so are sds. Group
    effects and their sds refer to standardised columns. Parameters that a user's program declares
    keep their names, axes and units.
    """
    before = draws["posterior"].to_dataset()
    values: Values = {str(name): before[name].to_numpy() for name in before.data_vars}
    axes: dict[str, list[Axis]] = {}
    for column, label in model.predictors:
        if column.family is not None:
            values |= in_own_units(values, column, label)
            axes |= _axes(column, label)
        for name in internal(column, label):
            values.pop(name, None)
    arrays = {}
    for name, array in values.items():
        along = axes.get(name, [])[: array.ndim - 2]
        if array.shape[2:] != tuple(len(names) for _, names in along):
            sizes = enumerate(array.shape[2:])
            along = [(f"{name}_dim_{k}", [str(i) for i in range(size)]) for k, size in sizes]
        coords = {**{d: before[d] for d in _SAMPLE}, **dict(along)}
        arrays[name] = xr.DataArray(array, coords, (*_SAMPLE, *(axis for axis, _ in along)))
    others = {name: draws[name].to_dataset() for name in draws.children if name != "posterior"}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(arrays, attrs=before.attrs), **others})


def internal(model: ColumnModel, label: str) -> dict[str, str]:
    """Parameters that are the sampler's own, by name in the program, in words for readers."""
    if model.family is None:
        return {}
    family = model.parts.get(label, model.family)
    of_family = {} if family.program else _INTERNAL.get(family.file, {})
    return {entry(name, label): text for name, text in {**_OF_GROUPS, **of_family}.items()}


def in_own_units(values: Mapping[str, NDArray[Any]], model: ColumnModel, label: str) -> Values:
    """Convert a program's parameters to the covariates' and the outcome's own units.

    Args:
        values: draws by name, shapes (chain, draw, ...); covariates on the third axis.
        model: the model of the column.
        label: label of the model, or of a part of it.
    Returns:
        the converted parameters by name, in the shapes of ``values``.
    """
    converted: Values = {}
    for slope, start, formula, sign in (
        ("coefficient", "intercept", model.formula, -1),
        # Cutpoints are compared with the predictor, so they move with the opposite sign.
        ("coefficient", "cutpoint", model.formula, 1),
        ("sigma_coefficient", "log_sigma", model.scale, -1),
    ):
        name, at = entry(slope, label), entry(start, label)
        if formula is None or name not in values or values[name].shape[2] != len(formula.names):
            continue
        converted[name] = np.einsum("cdk...,jk->cdj...", values[name], formula.basis)
        if at in values:
            moved = np.einsum("cdj...,j->cd...", converted[name], formula.centre)
            converted[at] = values[at] + sign * moved.reshape(
                *moved.shape, *(1,) * (values[at].ndim - moved.ndim)
            )
    location, scale = outcome_units(model, label)
    for name in _IN_UNITS:
        key = entry(name, label)
        if key in values and scale != 1:
            converted[key] = scale * converted.get(key, values[key])
    start, spread = entry("intercept", label), entry("log_sigma", label)
    if start in values:
        converted[start] = location + scale * converted.get(start, values[start])
    if spread in values:
        converted[spread] = converted.get(spread, values[spread]) + math.log(scale)
    return converted


def outcome_units(model: ColumnModel, label: str) -> tuple[float, float]:
    """Location and scale of a predictor in the outcome's units (``Family.predictor_units``)."""
    if model.family is None:
        return 0.0, 1.0
    return model.parts.get(label, model.family).predictor_units(model.outcome)


def _axes(model: ColumnModel, label: str) -> dict[str, list[Axis]]:
    """Axes after (chain, draw) by parameter, with their labels; levels if there are any."""

    def axis(name: str, names: Iterable[Any]) -> Axis:
        return entry(name, label), [str(text) for text in names]

    groups = model.formula.groups
    levels = axis("level", model.outcome.levels[1:])
    between = (f"{low}|{high}" for low, high in itertools.pairwise(model.outcome.levels))
    by_parameter = {
        "coefficient": [axis("covariate", model.formula.names), levels],
        "intercept": [levels],
        "cutpoint": [axis("between", between)],
        "sigma_coefficient": [axis("scale_covariate", model.scale.names if model.scale else ())],
        "group_sd": [axis("group_term", (column.name for column in groups)), levels],
        "group_effect": [axis("group", (g for c in groups for g in _groups(c))), levels],
    }
    return {entry(name, label): axes for name, axes in by_parameter.items()}


def _groups(column: GroupColumn) -> Iterator[str]:
    for level in column.levels:
        parts = level if isinstance(level, tuple) else (level,)
        yield f"{column.name} [{':'.join(map(str, parts))}]"


def datatree(
    posterior: Posterior,
    bound_records: BoundRecords,
    *,
    log_likelihood: bool = False,
    posterior_predictive: bool = False,
    thin: int = 1,
) -> xr.DataTree:
    """Build the ArviZ tree of a posterior and its records, as ``Fit.to_datatree`` describes."""
    if isinstance(thin, bool) or not isinstance(thin, int) or thin < 1:
        raise DataError(f"thin = {thin!r} must be a whole number, at least 1.")
    more = log_likelihood or posterior_predictive
    if more and not bound_records.present:
        raise DataError("there is no record: a tree of it has draws and nothing else.")
    model, records = bound_records.model, bound_records.task.records
    draws = _thinned(posterior.draws, thin)
    groups = {name: group.to_dataset() for name, group in named(draws, model).children.items()}
    if log_likelihood:
        groups["log_likelihood"] = log_likelihoods(posterior, draws, bound_records)
    if posterior_predictive:
        public = model.public(records, bound_records.n)
        groups["posterior_predictive"] = replicates(
            model, bound_records.blank_of(bound_records.n), draws, public
        )
    if more:
        groups["observed_data"] = observed(model.outcomes, records)
    return xr.DataTree.from_dict(groups)


def _thinned(draws: xr.DataTree, thin: int) -> xr.DataTree:
    at = slice(None, None, thin)
    return xr.DataTree.from_dict(
        {name: group.to_dataset().isel(draw=at) for name, group in draws.children.items()}
    )


def log_likelihoods(
    posterior: Posterior, draws: xr.DataTree, bound_records: BoundRecords
) -> xr.Dataset:
    """log p(record | draw) of each outcome, without weights or clamp: (chain, draw, record).

    Densities are in the outcome's own units: per dollar, where the program's are per share of its
    declared range. It is computed draw by draw, so that nothing larger than the result is held in
    memory.

    Raises:
        DataError: more values than ``MOST_VALUES``.
    """
    arrays, stage, records = {}, posterior.bound_stage, bound_records.task.records
    for model, change in zip(bound_records.model.columns, stage.by_column, strict=True):
        bound = stage.bound.rebind(**change) if change else stage.bound
        by_draw = _by_draw(bound.log_lik(draws), draws, bound_records.kinds)
        arrays[model.outcome.name] = by_draw - model.log_unit(records)
    return xr.Dataset(arrays)


def loo(posterior: Posterior, bound_records: BoundRecords) -> arviz_stats.ELPDData:
    """Leave-one-out cross-validation by Pareto-smoothed importance sampling (``Fit.loo``).

    The posterior without record i has density proportional to p(θ | y) / exp(t_i(θ)), with t_i the
    weighted and clamped term of the record; only in the plain posterior is it log p(y_i | θ). A
    clamped term is constant where it leaves the window, so importance ratios vary by no more than
    a factor exp(window width).

    Vehtari, Gelman & Gabry (2017), section 2.1, describe the plain case.
    """
    from arviz_stats import loo as of_arviz  # slow to import

    tree = datatree(posterior, bound_records, log_likelihood=True)
    likelihood = tree["log_likelihood"].to_dataset()
    whole = sum(likelihood[name] for name in likelihood.data_vars)  # joint over outcomes
    tree["log_likelihood"] = xr.DataTree(xr.Dataset({"record_log_lik": whole}))
    stage = posterior.bound_stage
    (low, high), weights = stage.stage.window, stage.weighting.weights
    clamped = (np.clip(weights * f, low, high) for f in posterior.terms(posterior.draws))
    terms = _by_draw(clamped, posterior.draws, bound_records.kinds)
    reff = min(1.0, posterior.diagnostics.min_ess_bulk / count_draws(posterior.draws))
    smoothed, k = _smoothed(terms, reff)
    return of_arviz(tree, log_weights=smoothed, pareto_k=k, reff=reff, pointwise=True)


def _smoothed(terms: xr.DataArray, reff: float) -> tuple[xr.DataArray, xr.DataArray]:
    """Smoothed log weights of leaving each record out, and the Pareto shape of their tails.

    Where a record is at the clamp in the whole tail, its ratios are bounded and have no tail to
    smooth: they are used as they are, with shape 0.
    """
    from arviz_stats.base import array_stats  # slow to import

    log_weights, shapes = np.empty(terms.shape), np.zeros(terms.shape[-1])
    for i, values in enumerate(np.moveaxis(terms.to_numpy(), -1, 0)):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            try:
                smoothed, k = array_stats.psislw(values, axis=(0, 1), r_eff=reff)
            except ValueError:  # "All tail values are the same"
                smoothed, k = values, np.nan
        bounded = not np.isfinite(k) or not np.isfinite(smoothed).all()
        log_weights[..., i] = -values - special.logsumexp(-values) if bounded else smoothed
        shapes[i] = 0.0 if bounded else k
    return terms.copy(data=log_weights), terms.isel(chain=0, draw=0, drop=True).copy(data=shapes)


def replicates(
    model: Model, blank: BoundModel, draws: xr.DataTree, public: pd.DataFrame
) -> xr.Dataset:
    """Draw a replicate of the records at every draw, by outcome: (chain, draw, record).

    Levels are coded from 0.
    """
    count, rows = count_draws(draws), len(public)
    _check_size(count, rows)
    drawn = {c.name: np.empty((count, rows)) for c in model.outcomes}
    for k, frame in enumerate(replicates_at(model, blank, draws, public, range(count))):
        for column in model.outcomes:
            drawn[column.name][k] = numbers(column, frame[column.name])
    arrays = {name: _shaped(values, draws) for name, values in drawn.items()}
    return xr.Dataset(arrays)


def observed(columns: Iterable[Column], records: pd.DataFrame) -> xr.Dataset:
    """Outcomes of the records, with levels coded from 0 and named in the attributes."""
    arrays = {}
    for column in columns:
        attrs = {"levels": [str(level) for level in column.levels]} if column.levels else {}
        values = numbers(column, records[column.name])
        coords = {"record": np.arange(len(values))}
        arrays[column.name] = xr.DataArray(values, coords, ("record",), attrs=attrs)
    return xr.Dataset(arrays)


def numbers(column: Column, values: pd.Series) -> Vector:
    """Values of a column as numbers, with levels coded from 0."""
    return np.asarray(values.cat.codes if column.levels else values, dtype=float)


def _by_draw(vectors: Iterable[Vector], draws: xr.DataTree, kinds: UniqueRows) -> xr.DataArray:
    """Stack vectors over unique records, one for each draw, into an array over all records."""
    _check_size(count_draws(draws), len(kinds.of))
    by_record = np.empty((count_draws(draws), len(kinds.of)))
    for k, values in enumerate(vectors):
        by_record[k] = kinds.each_record(values)
    return _shaped(by_record, draws)


def _shaped(values: NDArray[Any], draws: xr.DataTree) -> xr.DataArray:
    posterior = draws["posterior"]
    sizes = [posterior.sizes[name] for name in _SAMPLE]
    coords = {**{d: posterior[d] for d in _SAMPLE}, "record": np.arange(values.shape[1])}
    return xr.DataArray(values.reshape(*sizes, -1), coords, (*_SAMPLE, "record"))


def _check_size(count: int, rows: int) -> None:
    if count * rows > MOST_VALUES:
        raise DataError(
            f"{count:,} draws of {rows:,} records are {8e-9 * count * rows:.1f} GB for each "
            f"outcome: take every {-(-count * rows // MOST_VALUES)}th draw (thin=...) or fewer."
        )


def coefficients_of(draws: xr.DataTree, model: ColumnModel, label: str) -> pd.DataFrame:
    """Posterior mean and sd of the coefficients (``PosteriorFit.coefficients``), from draws."""
    names = ["Intercept", *model.formula.names]
    before = draws["posterior"]
    wanted = [entry(name, label) for name in ("intercept", "coefficient")[: 1 + bool(names[1:])]]
    shapes = [before[name].shape[2:] if name in before else None for name in wanted]
    if shapes != [(), (len(names) - 1,)][: len(wanted)]:
        raise ProgramError(
            "coefficients() needs a program with one intercept, and a coefficient for each term; "
            "see draws."
        )
    values = {name: before[name].to_numpy() for name in wanted}
    values |= in_own_units(values, model, label)
    table = np.column_stack([values[n].reshape(-1, *values[n].shape[2:]) for n in wanted])
    return pd.DataFrame({"mean": table.mean(axis=0), "sd": table.std(axis=0)}, index=names)


def group_sds_of(
    draws: xr.DataTree, data: Mapping[str, Any], model: ColumnModel, label: str
) -> pd.DataFrame:
    """Posterior mean and sd of group sds and correlations (``PosteriorFit.group_sds``)."""
    columns = model.formula.groups
    values: dict[str, Vector] = {}
    if columns:
        try:
            sds = stacked(draws, entry("group_sd", label))
        except KeyError:
            sds = np.empty(())
        if sds.ndim != 2:
            raise ProgramError("group_sds() needs a program with one predictor; see draws.")
        scale = outcome_units(model, label)[1]
        values = {f"sd({c.name})": scale * sds[:, t] for t, c in enumerate(columns)}
        if data[entry("P", label)]:
            partial = stacked(draws, entry("group_correlation", label))
            by_pair = correlations(partial, data[entry("group_column", label)])
            for (s, t), r in by_pair.items():
                first, second = columns[s], columns[t]
                values[f"cor({first.slope}, {second.name})"] = r
    table = np.array(list(values.values())).reshape(len(values), -1)
    return pd.DataFrame({"mean": table.mean(1), "sd": table.std(1)}, index=list(values))
