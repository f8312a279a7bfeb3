"""The outcome families: which Stan program, which column types, which public scaling and priors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbayes.errors import SchemaError
from dpbayes.heavy import pd
from dpbayes.schema import Column, ColumnType

Prior = float | tuple[float, float]

# Priors shared by families. Coefficients are those of columns orthonormal over the public domain
# (formula.py), so their scale needs no data.
_COMMON: dict[str, Prior] = {"coefficient": 1.0, "group_sd": 1.0}
# Priors whose first entry is a location and may be negative; all other entries are scales,
# shapes or rates and must be positive for the prior to be proper.
_LOCATED = ("intercept", "cutpoint")


@dataclass(frozen=True)
class Family:
    """An outcome family. Another one is entered with ``register_family``.

    Attributes:
        name: also of its Stan file, where ``program`` is not given.
        density: for `dpbayes list`.
        column_type: of the outcome.
        scaling: how the outcome enters the program, always by declared bounds: ``range``
            (y - lower) / (upper - lower), ``upper`` y / upper, ``none`` as it is. Record
            log-likelihoods are log densities on that scale, which fixes what the clamp at
            ±epsilon/2 means; a density in other units would differ by a constant.
        priors: the defaults, passed to the program as ``prior_NAME``.
        open_at: ends of the scaled outcome's range at which the density is not finite.
        divergence: the program scores outcomes by the beta-divergence where it is asked to
            (``switches``), for probability mass functions only, which 1 bounds publicly. Of a
            program outside the package this is the author's claim; the contract check does not
            try it.
        program: a Stan file outside the package, which has to keep the contract of
            stan_models/README.md; None for a bundled one.

    Raises:
        SchemaError: scaling or divergence that outcomes of this type do not have.
    """

    name: str
    density: str
    column_type: ColumnType
    scaling: Literal["range", "upper", "none"]
    priors: Mapping[str, Prior]
    open_at: tuple[Literal["lower", "upper"], ...] = ()
    divergence: bool = False
    program: Path | None = None

    def __post_init__(self) -> None:
        if self.column_type != "continuous" and self.scaling != "none":
            raise SchemaError(
                f"family {self.name!r}: scaling = {self.scaling!r} is for continuous outcomes; "
                f"that of a {self.column_type} outcome is 'none'."
            )
        if self.column_type == "continuous" and self.divergence:
            raise SchemaError(
                f"family {self.name!r}: divergence needs outcomes with probabilities, whose public "
                "bound is 1; the density of a continuous outcome has none."
            )

    def check_column(self, column: Column) -> None:
        """Raise SchemaError if the outcome's declaration does not fit the family."""
        if column.type != self.column_type:
            fitting = ", ".join(f.name for f in FAMILIES.values() if f.column_type == column.type)
            raise SchemaError(
                f"column {column.name!r} is {column.type}, family {self.name!r} models a "
                f"{self.column_type} outcome. Families for a {column.type} outcome: {fitting}."
            )
        if self.scaling == "upper" and (column.lower is None or column.lower < 0):
            raise SchemaError(
                f"column {column.name!r}: family {self.name!r} models positive values, but the "
                f"declared lower bound is {column.lower:g}. Declare lower = 0 or use family normal."
            )

    def encode(self, column: Column, values: pd.Series) -> NDArray[Any]:
        """The outcome on the program's scale: shape (n,), float or int (levels from 1)."""
        y = encode_outcome(column, values)
        if self.scaling == "none":
            return y
        location, scale = self._affine(column)
        low, high = self.support(column)
        return np.asarray((np.clip(y, low, high) - location) / scale)

    def support(self, column: Column) -> tuple[float, float]:
        """Ends of the values that the program is given: inside an end at which it is open.

        A value on such an end counts as half of the column's public precision inside it, so that
        every value of the declared domain has a density. Public, and the same for every table.
        """
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        location, scale = self._affine(column)
        low, high = column.lower, column.upper
        if "lower" in self.open_at:
            low = max(low, location + column.step / 2, math.nextafter(location, math.inf))
        if "upper" in self.open_at:
            end = location + scale
            high = min(high, end - column.step / 2, math.nextafter(end, -math.inf))
        return low, high

    def decode(self, column: Column, y: NDArray[Any]) -> pd.Series:
        """Synthetic outcomes in the column's own units or levels; numbers are kept in bounds."""
        if self.scaling != "none":
            location, scale = self._affine(column)
            y = location + scale * y
        return decode_outcome(column, y)

    def stan_data(self, column: Column, priors: Mapping[str, Any] | None) -> dict[str, Any]:
        """Family constants for the program: priors and, where there are levels, their number C."""
        data: dict[str, Any] = {
            f"prior_{name}": value for name, value in self._priors(priors or {}).items()
        }
        if column.type in ("categorical", "ordinal"):
            data["C"] = len(column.levels)
        data |= self.switches
        if "y_upper" in data and column.upper is not None:
            data["y_upper"] = int(column.upper)
        return data

    @property
    def switches(self) -> dict[str, float]:
        """Program data that a mechanism may change, at their defaults.

        ``divergence`` is beta - 1 of the beta-divergence; 0 is the log-likelihood. A count's score
        is summed up to ``y_upper``, its declared bound.
        """
        if not self.divergence:
            return {}
        return {"divergence": 0.0, **({"y_upper": 0} if self.column_type == "count" else {})}

    def coordinates(self, groups: int, levels: int) -> dict[str, NDArray[np.float64]]:
        """Program data for the way through J group effects: non-centred.

        They are those of stan_models/include/group_effects.stan. Chains get better ones
        (mechanisms/posterior/coordinates.py), and everything else has these.
        """
        each = np.zeros((groups, levels - 1) if self.column_type == "categorical" else groups)
        found = {"group_information": each, "group_estimate": each}
        if self.column_type == "ordinal":
            found["gap_share"] = np.zeros(levels - 2)
        return found

    def _affine(self, column: Column) -> tuple[float, float]:
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        if self.scaling == "range":
            return column.lower, column.upper - column.lower
        return 0.0, column.upper

    def _priors(self, overrides: Mapping[str, Any]) -> dict[str, Prior]:
        for name, value in overrides.items():
            if name not in self.priors:
                raise SchemaError(
                    f"family {self.name!r} has no prior {name!r}; it has {', '.join(self.priors)}."
                )
            length = np.size(np.asarray(self.priors[name]))
            numbers = _numbers(value)
            scales = numbers[1:] if name in _LOCATED else numbers
            if numbers.shape != (length,) or not np.isfinite(numbers).all() or (scales <= 0).any():
                raise SchemaError(
                    f"prior {name!r} = {value!r}: expected {length} finite number(s), scales and "
                    f"shapes above 0, like the default {self.priors[name]}. An improper prior "
                    "would void the guarantee."
                )
        return {**self.priors, **overrides}


def _numbers(value: Any) -> NDArray[np.float64]:
    """What a prior was given as; nothing where it is text, a date or a table."""
    items = value if isinstance(value, list | tuple | np.ndarray) else (value,)
    if not all(isinstance(n, int | float | np.number) and not isinstance(n, bool) for n in items):
        return np.empty(0)
    try:
        return np.asarray([float(n) for n in items])
    except OverflowError:  # a whole number that no float holds
        return np.full(len(items), np.inf)


def encode_outcome(column: Column, values: pd.Series) -> NDArray[Any]:
    """A validated outcome as the numbers a Stan program reads, unscaled.

    Binary levels become 0 and 1 in declared order, other levels 1..C, counts int, the rest float.
    """
    if column.type == "binary":
        return np.asarray(values.cat.codes, dtype=np.int64)
    if column.levels:
        return np.asarray(values.cat.codes, dtype=np.int64) + 1
    return np.asarray(values)


def decode_outcome(column: Column, y: NDArray[Any]) -> pd.Series:
    """The inverse of ``encode_outcome``; numbers outside the declared bounds are set to the bound.

    Setting to the bound is post-processing by public numbers and costs no privacy.
    """
    if column.levels:
        codes = np.asarray(np.rint(y), dtype=np.int64) - (0 if column.type == "binary" else 1)
        return pd.Series(np.asarray(column.levels, dtype=object)[codes], name=column.name)
    lower = -math.inf if column.lower is None else column.lower
    upper = math.inf if column.upper is None else column.upper
    y = np.clip(y, lower, upper)
    if column.type == "count":
        y = np.rint(y).astype(np.int64)
    return pd.Series(y, name=column.name)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "normal", "y ~ normal(eta, sigma)", "continuous", "range",
            {"intercept": (0.5, 1.0), **_COMMON, "sigma": 1.0},
        ),
        Family(
            "lognormal", "log(y) ~ normal(eta, sigma)", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, "sigma": 2.0}, open_at=("lower",),
        ),
        Family(
            "beta", "y ~ beta(mu lambda, (1 - mu) lambda), logit mu = eta", "continuous", "range",
            {"intercept": (0.0, 1.0), **_COMMON, "lambda": (0.1, 1.5)}, open_at=("lower", "upper"),
        ),
        Family(
            "gamma", "y ~ gamma(shape, shape / mu), log mu = eta", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, "shape": (2.0, 0.1)}, open_at=("lower",),
        ),
        Family(
            "bernoulli", "y ~ bernoulli(p), logit p = eta", "binary", "none",
            {"intercept": (0.0, 2.5), **_COMMON}, divergence=True,
        ),
        Family(
            "poisson", "y ~ poisson(mu), log mu = eta", "count", "none",
            {"intercept": (0.0, 5.0), **_COMMON}, divergence=True,
        ),
        Family(
            "neg_binomial", "y ~ neg_binomial_2(mu, phi), log mu = eta", "count", "none",
            {"intercept": (0.0, 5.0), **_COMMON, "phi": (2.0, 0.1)}, divergence=True,
        ),
        Family(
            "categorical", "y ~ categorical(softmax(eta))", "categorical", "none",
            {"intercept": (0.0, 2.5), **_COMMON}, divergence=True,
        ),
        Family(
            "ordinal", "P(y <= c) = inv_logit(cutpoint_c - eta)", "ordinal", "none",
            {"cutpoint": (0.0, 5.0), **_COMMON}, divergence=True,
        ),
    )
}  # fmt: skip


def register_family(family: Family) -> None:
    """Enter a family of one's own; SchemaError if another one has its name."""
    if FAMILIES.setdefault(family.name, family) != family:
        raise SchemaError(
            f"a family {family.name!r} is there already; families: {', '.join(FAMILIES)}."
        )
