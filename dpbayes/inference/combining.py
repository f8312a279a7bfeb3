"""Rules that combine estimates from m synthetic data sets. Arrays in, arrays out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import InferenceError
from dpbayes.core.lazy import pd, stats, xr
from dpbayes.core.markup import card

# (variance T, degrees of freedom) from W, B and m; B > 0 is not assumed.
Rule = Callable[[Floats, Floats, int], tuple[Floats, Floats]]


def _modips(W: Floats, B: Floats, m: int) -> tuple[Floats, Floats]:
    """Variance T = W + B/m, with a t distribution of (m-1)(1 + mW/B)^2 degrees of freedom.

    Source: liu-2016, theorem 7; bowen-liu-2020, eq. 3.6; eq. 3.7; reiter-2003.
    """
    return W + B / m, (m - 1) * (1 + _ratio(m * W, B)) ** 2


def _rubin(W: Floats, B: Floats, m: int) -> tuple[Floats, Floats]:
    """Variance T = W + (1 + 1/m)B, the rule for missing data.

    Source: rubin-1987; charest-2011, eq. 2; liu-2016, section 5.2; bowen-liu-2020, section 3.3.
    """
    return W + (1 + 1 / m) * B, (m - 1) * (1 + _ratio(W, (1 + 1 / m) * B)) ** 2


def _raghunathan(W: Floats, B: Floats, m: int) -> tuple[Floats, Floats]:
    """Variance T = (1 + 1/m)B - W, for fully synthetic populations; may be negative.

    Source: raghunathan-reiter-rubin-2003; charest-2011, eq. 3; liu-2016, section 5.2;
    bowen-liu-2020, section 3.3; park-ghosh-2014, section 2.1.
    """
    return (1 + 1 / m) * B - W, (m - 1) * (1 - _ratio(W, (1 + 1 / m) * B)) ** 2


def _raab(W: Floats, B: Floats, m: int) -> tuple[Floats, Floats]:
    """T = (1 + 2/m)W, normal, for synthetic sets of the original's size.

    Source: raab-nowok-dibben-2017; liu-2016, section 5.2; bowen-liu-2020, section 3.3.
    """
    return (1 + 2 / m) * W, np.full_like(W, np.inf)


def _mixture(W: Floats, B: Floats, m: int) -> tuple[Floats, Floats]:
    """Variance of a mixture of m normal posteriors, one of each data set: W + (1 - 1/m)B.

    Raisa, Jalko and Honkela (2025), Consistent Bayesian inference from synthetic data, JMLR 26:
    posteriors of data sets much larger than the records, drawn given one private measurement, mix
    to the posterior given that measurement. Intervals are quantiles of the mixture.
    """
    return W + (1 - 1 / m) * B, np.full_like(W, np.inf)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        # 0/0: both variances are 0, so that infinite df are as good as any.
        return np.where(denominator > 0, numerator / denominator, np.inf)


RULES: dict[str, Rule] = {
    "modips": _modips,
    "rubin": _rubin,
    "raghunathan": _raghunathan,
    "reiter2002": _raghunathan,  # `combine` gives T a floor
    "raab": _raab,
    "mixture": _mixture,
}
# Numbers of one data set: one number, an array, or a Series or DataArray with labels.
Labelled: TypeAlias = "float | Floats | pd.Series | xr.DataArray"
# Numbers of all data sets: with labels, or what NumPy makes an array of.
SetsOfNumbers: TypeAlias = "ArrayLike | pd.DataFrame | xr.DataArray"


class StatsmodelsResult(Protocol):
    """Result of a fit by statsmodels."""

    params: pd.Series
    bse: pd.Series  # standard errors


Estimates: TypeAlias = "StatsmodelsResult | tuple[Labelled, Labelled]"  # the latter with variances
_LEAST_SETS = {"raab": 1}  # all other rules need the variance between sets

# Known failures of rules that were not made for differentially private data.
_FAILS = {
    "rubin": "its 95% intervals cover 99.5 to 100% (Liu, Table 1)",
    "raghunathan": "its 95% intervals cover 79 to 100% (Liu, Table 1)",
    "reiter2002": "its variance was 10 to 530% too large (Charest, Table 2)",
    "raab": "its 95% intervals cover down to 27% at ε = 0.5 (Liu, Table 1)",
}


@dataclass(frozen=True)
class Combined:
    """Combined estimates from m data sets, with the labels of the input.

    Attributes:
        estimate: mean over the data sets, q.
        variance: T of the rule, at least 0.
        df: degrees of freedom of the t distribution; infinite for a normal one.
        within, between: W, mean of the variances, and B, sample variance of the estimates.
        rule: name of the rule.
        datasets: number of data sets, m.
        notes: known limitations of these intervals, in sentences.
    """

    estimate: Labelled
    variance: Labelled
    df: Labelled
    within: Labelled
    between: Labelled
    rule: str
    datasets: int
    notes: tuple[str, ...] = ()
    _label: Callable[[Floats], Labelled] = field(repr=False, default=lambda a: a)
    _parts: tuple[Floats, Floats] | None = field(repr=False, default=None)  # means and variances

    @property
    def standard_error(self) -> Labelled:
        """Square root of the variance."""
        return self._label(np.sqrt(np.asarray(self.variance)))

    def interval(self, level: float = 0.95) -> tuple[Labelled, Labelled]:
        """Ends of the central interval of a level in (0, 1)."""
        if not 0 < level < 1:
            raise InferenceError(f"level = {level!r} must lie in (0, 1), for example 0.95.")
        if self._parts is not None:
            ends = ((1 - level) / 2, (1 + level) / 2)
            low, high = (_mixture_quantile(*self._parts, q) for q in ends)
            return self._label(low), self._label(high)
        half = stats.t.ppf((1 + level) / 2, np.asarray(self.df)) * np.sqrt(
            np.asarray(self.variance)
        )
        centre = np.asarray(self.estimate)
        return self._label(centre - half), self._label(centre + half)

    def p_value(self, null: float = 0.0) -> Labelled:
        """Two-sided p-value of the hypothesis that the parameter is ``null``.

        For a mixture of m posteriors at least 1/m, as m posteriors do not resolve smaller tails.
        """
        if self._parts is not None:
            below = _mixture_cdf(*self._parts, np.full_like(self._parts[0][0], null))
            tails = 2 * np.minimum(below, 1 - below)
            return self._label(np.maximum(tails, 1 / self.datasets))
        distance = np.abs(np.asarray(self.estimate) - null)
        error = np.sqrt(np.asarray(self.variance))
        with np.errstate(divide="ignore"):
            t = np.divide(distance, error, out=np.where(distance > 0, np.inf, 0.0), where=error > 0)
        return self._label(2 * stats.t.sf(t, np.asarray(self.df)))

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Table of estimates, errors, intervals and p-values, one row per parameter."""
        low, high = self.interval(level)
        columns = {
            "estimate": self.estimate, "std. error": self.standard_error, "df": self.df,
            f"{100 * level:g}% low": low, f"{100 * level:g}% high": high,
            "p-value": self.p_value(),
        }  # fmt: skip
        flat = {name: np.atleast_1d(np.asarray(v)).ravel() for name, v in columns.items()}
        labels = self.estimate.index if isinstance(self.estimate, pd.Series) else None
        return pd.DataFrame(flat, index=labels)

    def __repr__(self) -> str:
        table = self.table().to_string(float_format="{:.4g}".format)
        head = f"{self.datasets} data sets, rule {self.rule!r}"
        return "\n".join([head, table, *(f"Limitation: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        head = card("Combined", {"data sets": str(self.datasets), "rule": self.rule})
        notes = card("Limitations", {str(k): text for k, text in enumerate(self.notes, start=1)})
        table: str = self.table().to_html(float_format="{:.4g}".format, border=0)
        return head + table + (notes if self.notes else "")


def _mixture_cdf(means: Floats, variances: Floats, at: Floats) -> Floats:
    """Distribution function of an equal mixture of normals; m along the first axis."""
    sd = np.sqrt(np.maximum(variances, np.finfo(float).tiny))
    return np.asarray(stats.norm.cdf((at - means) / sd).mean(axis=0))


def _mixture_quantile(means: Floats, variances: Floats, q: float) -> Floats:
    """Quantile of an equal mixture of normals, by bisection between the components' quantiles."""
    quantiles = means + stats.norm.ppf(q) * np.sqrt(variances)
    low, high = quantiles.min(axis=0), quantiles.max(axis=0)
    for _ in range(100):
        middle = (low + high) / 2
        above = _mixture_cdf(means, variances, middle) < q
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)


def combine(
    estimates: SetsOfNumbers,
    variances: SetsOfNumbers,
    rule: str = "modips",
    *,
    size_ratio: float = 1.0,
    strict_dp: bool = False,
) -> Combined:
    """Combine estimates and their variances from m synthetic data sets.

    Source: bowen-liu-2020, eq. 3.5; charest-2011, section 3.1; eq. 4; reiter-2002.

    Args:
        estimates, variances: data sets along the first axis (rows of a DataFrame, dimension
            ``dataset`` of a DataArray), then any other axes, such as parameters or replicates.
        rule: one of ``RULES``. ``modips`` is for synthetic data from m draws of a (private)
            posterior, which is what this package releases.
        size_ratio: synthetic size over confidential size, for ``reiter2002``.
        strict_dp: the data sets are differentially private: warn of rules that fail for them.
    Raises:
        InferenceError: unequal shapes, values that are not finite, negative variances, too few
            data sets, or a negative T of ``raghunathan``.
    """
    if rule not in RULES:
        raise InferenceError(f"rule = {rule!r}: expected one of {', '.join(RULES)}.")
    q, label = _read(estimates, "estimates")
    v, _ = _read(variances, "variances")
    if q.shape != v.shape:
        raise InferenceError(f"estimates have shape {q.shape}, variances {v.shape}.")
    if (v < 0).any():
        raise InferenceError(
            f"{int((v < 0).sum())} variance(s) are negative; give squared standard errors."
        )
    m = len(q)
    if m < _LEAST_SETS.get(rule, 2):
        raise InferenceError(
            f"rule {rule!r} needs at least 2 data sets, there is {m}: the variance between sets "
            "shows what synthesis and noise added. Ask for more data sets, or model the mechanism "
            "(from_synthetic_counts, from_clamped_draws, from_normal_draws)."
        )
    if strict_dp and rule in _FAILS:
        private = f"rule {rule!r} is not made for differentially private data: {_FAILS[rule]}"
        warnings.warn(f"{private}. Use rule 'modips'.", stacklevel=2)
    W = v.mean(axis=0)
    B = q.var(axis=0, ddof=1) if m > 1 else np.zeros_like(W)
    T, df = RULES[rule](W, B, m)
    if rule == "reiter2002":
        # No variance is less than that of the records, which is W scaled to their number, nor
        # than W. Reiter (2002) replaces T < 0 alone; just above 0 are next to no degrees of
        # freedom: one in a hundred intervals of five data sets was 1e26 standard errors long.
        least = max(size_ratio, 1.0) * W
        T, df = np.maximum(T, least), np.where(least < T, df, m - 1.0)
    elif (T < 0).any():
        raise InferenceError(
            f"T = (1 + 1/m)B - W is negative for {int((T < 0).sum())} of {T.size} "
            "parameter(s): rule 'raghunathan' gives no interval. Use 'modips', or "
            "'reiter2002', which replaces it."
        )
    df = np.maximum(df, 1e-3)  # T = 0 has df 0, of which t has no quantiles
    parts = (q, v) if rule == "mixture" else None
    return Combined(
        estimate=label(q.mean(axis=0)),
        variance=label(T),
        df=label(df),
        within=label(W),
        between=label(B),
        rule=rule,
        datasets=m,
        _label=label,
        _parts=parts,
    )


def _read(values: SetsOfNumbers, name: str) -> tuple[Floats, Callable[[Floats], Labelled]]:
    """Return values with m along the first axis, and a function that labels the other axes."""
    array: ArrayLike
    if isinstance(values, xr.DataArray):
        if "dataset" not in values.dims:
            raise InferenceError(f"{name}: the DataArray needs a dimension 'dataset'.")
        values = values.transpose("dataset", ...)
        template = values.isel(dataset=0, drop=True)
        array = values.to_numpy()

        def label(a: Floats) -> Labelled:
            return template.copy(data=np.asarray(a, dtype=float))

    elif isinstance(values, pd.DataFrame):
        columns = values.columns
        array = values.to_numpy()

        def label(a: Floats) -> Labelled:
            return pd.Series(np.asarray(a), index=columns)

    else:
        array = values

        def label(a: Floats) -> Labelled:
            return np.asarray(a)[()]  # a number where there is one

    try:
        numbers = np.asarray(array, dtype=float)
    except (ValueError, TypeError):
        raise InferenceError(f"{name}: expected numbers, equally many for each data set.") from None
    if numbers.ndim == 0 or not len(numbers):
        raise InferenceError(f"{name}: expected one entry per data set along the first axis.")
    if not np.isfinite(numbers).all():
        bad = int((~np.isfinite(numbers)).sum())
        raise InferenceError(f"{name}: {bad} of {numbers.size} values are missing or not finite.")
    return numbers, label
