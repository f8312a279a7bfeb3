"""Outcome families: their Stan programs, column types, public scaling and default priors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.checks import expect
from dpbayes.core.errors import ProgramError, SchemaError, did_you_mean
from dpbayes.core.lazy import pd
from dpbayes.schema import Column, ColumnType
from dpbayes.stan.cells import NumberCells
from dpbayes.stan.family_text import read_family
from dpbayes.stan.outcomes import decode_outcome, encode_outcome

if TYPE_CHECKING:
    from dpbayes.stan.program import StanProgram

Prior = float | tuple[float, float]

# Priors shared by families. Coefficients belong to columns that are orthonormal over the public
# domain (formula.py), so that the scale of their priors needs no data.
_COMMON: dict[str, Prior] = {"coefficient": 1.0, "group_sd": 1.0}
# Priors whose first entry is a location and may be negative; all other entries are scales,
# shapes or rates and must be positive for the prior to be proper.
_LOCATED = ("intercept", "cutpoint")
# Largest number of a prior, and one over the smallest scale. A sampling statement leaves out the
# normalising constant, so that target is as large as a prior's numbers where parameters likely are.
# Beside it a record's clamped term must not be lost in rounding (LARGEST in engines/contract.py).
MOST_PRIOR = 1e6
# Largest bound of a count. Stan's generator stops at a mean of 2^30, which a gamma distribution may
# reach far above its own mean: in the programs it is cut there.
MOST_DRAWN = 2**29
MOST_COMPONENTS = 20


@dataclass(frozen=True)
class Family:
    """An outcome family. ``register_family`` adds further ones.

    Attributes:
        name: name of the family, and of its Stan file unless ``program`` or ``file`` is given.
        density: text for `dpbayes list`.
        column_type: type of the outcome.
        scaling: how the outcome enters the program, always by declared bounds: ``range``
            (y - lower) / (upper - lower), ``upper`` y / upper, ``none`` unscaled, ``cells`` the
            number of its cell (``NumberCells``). Record log-likelihoods are log densities on that
            scale, or log probabilities of cells, which fixes what the clamp at ±epsilon/2 means; a
            density in other units would differ by a constant.
        priors: default priors, passed to the program as ``prior_NAME``.
        open_at: ends of the scaled outcome's range at which the density is not finite.
        divergence: whether the program can score outcomes by the beta-divergence (``switches``),
            for probability mass functions only, which have the public bound 1. For a program
            outside the package a fit checks on made-up records that a record's score depends on
            that record alone; that its range is as claimed is the author's assertion.
        program: Stan file outside the package, which has to keep the contract of
            stan_models/README.md; None for a bundled one.
        file: bundled program that several families share, if it is not named like the family.
        constants: program data that tell such a program which family it is.
        settings: settings in parentheses after the name, with defaults: ``bins`` of ``cells``;
            ``sigma``, a formula of the scale, None for one scale; ``components``, the number of
            components of a mixture.
        parts: labels and families of the two parts of a joined family: the point, and the rest
            (joined.py).
        rule: how the parts are joined.
        make: function that writes the program, if it is not a file.
        link: link of the linear predictor to a continuous outcome, ``identity`` or ``log``, by
            which parameters are reported in the outcome's own units (``predictor_units``).

    Raises:
        SchemaError: scaling or divergence does not fit the type of the outcome; a prior is no
            number, or too large or small.

    Examples:
        A Poisson family with a narrower prior of its intercept than ``poisson``:

        >>> import dpbayes as dpb
        >>> priors = {"intercept": (0.0, 1.0), "coefficient": 1.0, "group_sd": 1.0}
        >>> whole = {"positive": 0}  # 0 is a count, too
        >>> family = dpb.Family(
        ...     "rare", "rare events", "count", "none", priors, file="poisson", constants=whole
        ... )
        >>> dpb.register_family(family)
        >>> dpb.StanProgram.for_family("rare").name
        'poisson'
    """

    name: str
    density: str
    column_type: ColumnType
    scaling: Literal["range", "upper", "none", "cells"]
    priors: Mapping[str, Prior]
    open_at: tuple[Literal["lower", "upper"], ...] = ()
    divergence: bool = False
    program: Path | None = None
    file: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    rule: Literal["", "hurdle", "inflated", "atoms", "censored"] = ""
    make: Callable[[], StanProgram] | None = None
    link: Literal["identity", "log"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", self.file or self.name)
        if self.column_type != "continuous" and self.scaling != "none":
            raise SchemaError(
                f"family {self.name!r}: scaling = {self.scaling!r} is for continuous outcomes; "
                f"that of a {self.column_type} outcome is 'none'."
            )
        fixed = {k.removeprefix("prior_"): v for k, v in self.constants.items() if "prior_" in k}
        for key, prior in {**fixed, **self.priors}.items():
            _check_prior(key, prior, prior)
        if self.divergence and not self.discrete:
            raise SchemaError(
                f"family {self.name!r}: divergence needs outcomes with probabilities, whose public "
                "bound is 1; the density of a continuous outcome has none."
            )

    @property
    def discrete(self) -> bool:
        """True if a record's likelihood is a probability rather than a density."""
        return self.column_type != "continuous" or self.scaling == "cells"

    @property
    def _outcomes(self) -> tuple[object, ...]:
        """All on which it depends which outcomes reach the program."""
        constants = {k: v for k, v in self.constants.items() if not k.startswith("prior_")}
        return self.column_type, self.scaling, tuple(self.open_at), constants

    def given(self, settings: Mapping[str, Any]) -> Family:
        """Return the family with some settings changed.

        Raises:
            SchemaError: a setting that the family does not have, or a value out of range.
        """
        for name in settings:
            if name not in self.settings:
                known = ", ".join(self.settings) or "none"
                raise SchemaError(f"family {self.name!r} has no setting {name!r}; it has {known}.")
        sigma = settings.get("sigma")
        if sigma is not None and (not isinstance(sigma, str) or not sigma.strip().startswith("~")):
            raise SchemaError(
                f"family {self.name!r}: sigma = {sigma!r:.60} must be a formula of the scale, "
                "'~ x', without an outcome."
            )
        components = settings.get("components", 2)
        is_integer = isinstance(components, int) and not isinstance(components, bool)
        if not is_integer or not 2 <= components <= MOST_COMPONENTS:
            raise SchemaError(
                f"family {self.name!r}: components = {components!r:.60} must be a whole number "
                f"from 2 to {MOST_COMPONENTS}, from public knowledge."
            )
        with_settings = replace(self, settings={**self.settings, **settings})
        if sigma is None:
            return with_settings
        return replace(with_settings, **_with_scale(self))

    def check_column(self, column: Column) -> None:
        """Raise SchemaError if the outcome's declaration does not fit the family."""
        if column.type != self.column_type:
            names = ", ".join(f.name for f in FAMILIES.values() if f.column_type == column.type)
            others = f"Families for a {column.type} outcome: {names}."
            raise SchemaError(
                f"column {column.name!r} is {column.type}, family {self.name!r} models a "
                f"{self.column_type} outcome. "
                + (others if names else f"There is no family for a {column.type} outcome.")
            )
        self._check_points(column)
        if column.type == "count" and column.upper is not None and column.upper > MOST_DRAWN:
            raise SchemaError(
                f"column {column.name!r}: family {self.name!r} draws counts up to {MOST_DRAWN:,}, "
                f"and upper = {int(column.upper):,}. Count in thousands, or declare it continuous."
            )
        if self.scaling == "upper" and (column.lower is None or column.lower < 0):
            raise SchemaError(
                f"column {column.name!r}: family {self.name!r} models positive values, but the "
                f"declared lower bound is {column.lower:g}. Declare lower = 0 or use family normal."
            )

    def _check_points(self, column: Column) -> None:
        """Raise SchemaError unless family and declaration agree on points with probability mass."""
        if self.rule == "atoms" and not column.atoms:
            raise SchemaError(
                f"column {column.name!r} has no atoms, which family {self.name!r} needs: values "
                "that many records have exactly. Add atoms = [0] to its declaration, or use family "
                f"{self.parts['density']}."
            )
        if column.atoms and self.column_type == "continuous" and not self.keeps_atoms:
            fitting = [f.name for f in FAMILIES.values() if f.keeps_atoms]
            raise SchemaError(
                f"column {column.name!r} has atoms {list(column.atoms)}, and a density as that of "
                f"family {self.name!r} gives no value mass of its own. Use one of "
                f"{', '.join(fitting)}, or take atoms out of its declaration."
            )
        low = column.lower or 0
        if self.rule in ("hurdle", "inflated") and low > 0:
            raise SchemaError(
                f"column {column.name!r} starts at {low:g}, and family {self.name!r} is for counts "
                f"with zeros. Use zero_truncated_poisson, or declare lower = 0."
            )
        if self.constants.get("positive") and low < 1:
            raise SchemaError(
                f"column {column.name!r} may be 0, where family {self.name!r} has no mass. Declare "
                "lower = 1, or use family poisson or hurdle_poisson."
            )

    @property
    def keeps_atoms(self) -> bool:
        """True if atoms of a continuous outcome have probabilities of their own."""
        return self.scaling == "cells" or self.rule == "atoms"

    def scaled_atoms(self, column: Column) -> NDArray[np.float64]:
        """Return a column's atoms on the program's scale."""
        location, scale = self._affine(column)
        return (np.asarray(column.atoms, dtype=float) - location) / scale

    def encode(self, column: Column, values: pd.Series) -> NDArray[Any]:
        """Convert the outcome to the program's scale: shape (n,), float or int (levels from 1)."""
        y = encode_outcome(column, values)
        if self.scaling == "none":
            return y
        if self.scaling == "cells":
            return self._cells(column).numbers(y)
        location, scale = self._affine(column)
        low, high = self.support(column)
        scaled = np.asarray((np.clip(y, low, high) - location) / scale)
        if self.rule == "atoms":
            # Exactly equal values, because the program compares outcomes with atoms by ==.
            for atom, value in zip(column.atoms, self.scaled_atoms(column), strict=True):
                scaled[self.at_atom(column, y, atom)] = value
        return scaled

    def at_atom(self, column: Column, values: NDArray[Any], atom: float) -> NDArray[np.bool_]:
        """Whether the program takes each value for an atom, which has a probability."""
        if self.scaling == "cells":
            return np.asarray(values == atom)
        return np.asarray(np.abs(values - atom) < column.step / 2)

    def support(self, column: Column) -> tuple[float, float]:
        """Return the range, in the column's units, to which outcomes are clipped.

        Where the density is not finite at an end, the range stops half of the column's public
        precision inside it, so that every value of the declared domain has a density. The range is
        public and the same for every table.
        """
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        location, scale = self._affine(column)
        low, high = column.lower, column.upper
        # nextafter, because half a step may be lost in rounding beside a large bound.
        if "lower" in self.open_at:
            low = max(low, location + column.step / 2, math.nextafter(location, math.inf))
        if "upper" in self.open_at:
            end = location + scale
            high = min(high, end - column.step / 2, math.nextafter(end, -math.inf))
        return low, high

    def decode(self, column: Column, y: NDArray[Any]) -> pd.Series:
        """Convert synthetic outcomes to the column's units or levels, clipped to its bounds."""
        if self.scaling == "cells":
            y = self._cells(column).values(y)
        elif self.scaling != "none":
            location, scale = self._affine(column)
            y = location + scale * y
        return decode_outcome(column, y)

    def stan_data(self, column: Column, priors: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the family's public program data: priors, the number C of levels, switches."""
        data: dict[str, Any] = dict(self.constants) | {
            f"prior_{name}": value for name, value in self._priors(priors or {}).items()
        }
        if column.type in ("categorical", "ordinal") and column.type == self.column_type:
            data["C"] = len(column.levels)
        if self.scaling == "cells":
            cells = self._cells(column)
            shares = data["prior_shares"] * cells.shares
            data |= {"C": cells.count, "prior_shares": shares, "base": cells.count // 2}
        if data.get("truncated"):
            data |= self._truncation(column)
        if "components" in self.settings:
            data["components"] = self.settings["components"]
        data |= self.switches
        if "y_upper" in data and column.upper is not None:
            data["y_upper"] = int(column.upper)
        return data

    @property
    def switches(self) -> dict[str, float]:
        """Program data that a mechanism may change, at their defaults.

        ``divergence`` is beta - 1 of the beta-divergence; 0 gives the log-likelihood. The score of
        a count is a sum up to ``y_upper``, its declared bound.
        """
        if not self.divergence:
            return {}
        return {"divergence": 0.0, **({"y_upper": 0} if self.column_type == "count" else {})}

    def coordinates(self, groups: int, levels: int) -> dict[str, NDArray[np.float64]]:
        """Return program data for a non-centred parametrisation of J group effects.

        See stan_models/include/group_effects.stan. Chains get better coordinates
        (mechanisms/posterior/coordinates.py); everything else uses these.

        Args:
            groups: J, the number of group effects.
            levels: number of levels of a categorical or ordinal outcome.
        """
        zeros = np.zeros((groups, levels - 1) if self.column_type == "categorical" else groups)
        data = {"group_information": zeros, "group_estimate": zeros}
        if self.file == "ordinal":
            data["gap_share"] = np.zeros(levels - 2)
        return data

    def _cells(self, column: Column) -> NumberCells:
        return NumberCells.of(column, self.settings["bins"])

    def _truncation(self, column: Column) -> dict[str, Any]:
        """Return the declared bounds on the program's scale; log y has no lower one at 0."""
        assert column.lower is not None  # continuous: checked by the schema
        location, scale = self._affine(column)
        low, high = ((float(end or 0) - location) / scale for end in (column.lower, column.upper))
        if not self.constants["logged"]:
            return {"ends": (low, high), "truncated": 2}
        if low > 0:
            return {"ends": (math.log(low), math.log(high)), "truncated": 2}
        return {"ends": (-1.0, math.log(high)), "truncated": 1}  # the program ignores -1.0

    def _affine(self, column: Column) -> tuple[float, float]:
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        if self.scaling == "range":
            return column.lower, column.upper - column.lower
        return 0.0, column.upper

    def predictor_units(self, column: Column) -> tuple[float, float]:
        """Location and scale that convert the linear predictor to the outcome's own units.

        Under a log link that is log(y) with y in its own units. (0, 1) where the predictor has no
        units, as that of a probability.
        """
        if self.scaling not in ("range", "upper") or self.link is None:
            return 0.0, 1.0
        location, scale = self._affine(column)
        return (location, scale) if self.link == "identity" else (math.log(scale), 1.0)

    def log_unit(self, column: Column, values: NDArray[Any]) -> NDArray[np.float64]:
        """Log of the program's unit in the outcome's units, by which log densities differ.

        A program of cells computes their probabilities: its unit is the width of a value's cell.

        Args:
            values: outcomes in their own units, none of them an atom, shape (n,).
        """
        if self.scaling == "cells":
            cells = self._cells(column)
            return np.log(np.diff(cells.ends).ravel()[cells.numbers(values) - 1])
        unit = self._affine(column)[1] if self.scaling in ("range", "upper") else 1.0
        return np.full(len(values), math.log(unit))

    def _priors(self, overrides: Mapping[str, Any]) -> dict[str, Prior]:
        for name, value in overrides.items():
            if name not in self.priors:
                raise SchemaError(
                    f"family {self.name!r} has no prior {name!r}; it has {', '.join(self.priors)}."
                )
            _check_prior(name, value, self.priors[name])
        return {**self.priors, **overrides}


def _check_prior(name: str, value: Any, like: Any) -> None:
    """Raise SchemaError unless a prior has the numbers of ``like``, none too large or small."""
    numbers, length = _numbers(value), np.size(np.asarray(like))
    scales = numbers[1:] if name.partition("__")[0] in _LOCATED else numbers
    good = numbers.shape == (length,) and bool((np.abs(numbers) <= MOST_PRIOR).all())
    if not good or (scales < 1 / MOST_PRIOR).any():
        raise SchemaError(
            f"prior {name!r} = {value!r}: expected {length} finite number(s) up to "
            f"{MOST_PRIOR:g}, scales from {1 / MOST_PRIOR:g}, like {like}."
        )


def _numbers(value: Any) -> NDArray[np.float64]:
    """Convert the values of a prior to floats; an empty array if they are not numbers."""
    items = value if isinstance(value, list | tuple | np.ndarray) else (value,)
    if not all(isinstance(n, int | float | np.number) and not isinstance(n, bool) for n in items):
        return np.empty(0)
    try:
        return np.asarray([float(n) for n in items])
    except OverflowError:  # a whole number that no float holds
        return np.full(len(items), np.inf)


# Data that tell location_scale.stan which family it is, and priors that only some families have.
_SCALE: dict[str, Any] = {
    "logged": 0, "student": 0, "truncated": 0, "ends": (0.0, 1.0), "prior_nu": (2.0, 0.1),
    "prior_sigma_coefficient": 1.0,
}  # fmt: skip
_ORDINAL: dict[str, Any] = {"probit": 0, "binned": 0, "base": 1, "prior_shares": ()}
_SIGMA: dict[str, Any] = {"sigma": None}
_MIXED: dict[str, Prior] = {"least_sigma": 0.005, "share": 2.0}


def _with_scale(family: Family) -> dict[str, Any]:
    """Return the fields that change when the scale of a family has a formula."""
    constants = {**_SCALE, "logged": int(family.scaling == "upper"), **family.constants}
    constants.pop("censored", None)
    priors = {**family.priors, "sigma_coefficient": constants.pop("prior_sigma_coefficient")}
    return {"file": "location_scale", "constants": constants, "priors": priors}


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "normal", "y ~ normal(eta, sigma)", "continuous", "range",
            {"intercept": (0.5, 1.0), **_COMMON, "sigma": 1.0}, settings=_SIGMA,
            link="identity",
        ),
        Family(
            "lognormal", "log(y) ~ normal(eta, sigma)", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, "sigma": 2.0}, open_at=("lower",),
            constants={"censored": 0}, settings=_SIGMA,
            link="log",
        ),
        Family(
            "student_t", "y ~ student_t(nu, eta, sigma)", "continuous", "range",
            {"intercept": (0.5, 1.0), **_COMMON, "sigma": 1.0, "nu": (2.0, 0.1)},
            file="location_scale", constants={**_SCALE, "student": 1}, settings=_SIGMA,
            link="identity",
        ),
        Family(
            "truncated_normal", "y ~ normal(eta, sigma) between the bounds", "continuous", "range",
            {"intercept": (0.5, 1.0), **_COMMON, "sigma": 1.0},
            file="location_scale", constants={**_SCALE, "truncated": 1}, settings=_SIGMA,
            link="identity",
        ),
        Family(
            "truncated_lognormal", "log(y) ~ normal(eta, sigma) between the bounds", "continuous",
            "upper", {"intercept": (-1.0, 2.0), **_COMMON, "sigma": 2.0}, open_at=("lower",),
            file="location_scale", constants={**_SCALE, "logged": 1, "truncated": 1},
            settings=_SIGMA,
            link="log",
        ),
        Family(
            "mixture", "y ~ one of several normal(eta + shift, sigma)", "continuous", "range",
            {"intercept": (0.5, 1.0), **_COMMON, **_MIXED, "sigma": 0.5, "gap": 0.5},
            constants={"logged": 0}, settings={"components": 2},
            link="identity",
        ),
        Family(
            "mixture_lognormal", "log(y) ~ one of several normal(eta + shift, sigma)",
            "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, **_MIXED, "sigma": 2.0, "gap": 2.0},
            open_at=("lower",), file="mixture", constants={"logged": 1},
            settings={"components": 2},
            link="log",
        ),
        Family(
            "histogram", "P(y in the first c cells) = inv_logit(cutpoint_c - eta), uniform inside",
            "continuous", "cells", {"shares": 15.0, **_COMMON}, divergence=True, file="ordinal",
            constants={**_ORDINAL, "binned": 1, "prior_cutpoint": (0.0, 5.0)},
            settings={"bins": 30},
        ),
        Family(
            "beta", "y ~ beta(mu lambda, (1 - mu) lambda), logit mu = eta", "continuous", "range",
            {"intercept": (0.0, 1.0), **_COMMON, "lambda": (0.1, 1.5)}, open_at=("lower", "upper"),
        ),
        Family(
            "gamma", "y ~ gamma(shape, shape / mu), log mu = eta", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, "shape": (2.0, 0.1)}, open_at=("lower",),
            link="log",
        ),
        Family(
            "weibull", "P(y > t) = exp(-(t / exp(eta))^shape)", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON, "shape": (2.0, 1.0)}, open_at=("lower",),
            constants={"exponential": 0, "censored": 0},
            link="log",
        ),
        Family(
            "exponential", "P(y > t) = exp(-t / exp(eta))", "continuous", "upper",
            {"intercept": (-1.0, 2.0), **_COMMON}, open_at=("lower",), file="weibull",
            constants={"exponential": 1, "censored": 0, "prior_shape": ()},
            link="log",
        ),
        Family(
            "bernoulli", "y ~ bernoulli(p), logit p = eta", "binary", "none",
            {"intercept": (0.0, 2.5), **_COMMON}, divergence=True,
        ),
        Family(
            "poisson", "y ~ poisson(mu), log mu = eta", "count", "none",
            {"intercept": (0.0, 5.0), **_COMMON}, divergence=True, constants={"positive": 0},
        ),
        Family(
            "neg_binomial", "y ~ neg_binomial_2(mu, phi), log mu = eta", "count", "none",
            {"intercept": (0.0, 5.0), **_COMMON, "phi": (2.0, 0.1)}, divergence=True,
            constants={"positive": 0},
        ),
        Family(
            "zero_truncated_poisson", "y ~ poisson(mu) given y > 0", "count", "none",
            {"intercept": (0.0, 5.0), **_COMMON}, divergence=True, file="poisson",
            constants={"positive": 1},
        ),
        Family(
            "zero_truncated_neg_binomial", "y ~ neg_binomial_2(mu, phi) given y > 0", "count",
            "none", {"intercept": (0.0, 5.0), **_COMMON, "phi": (2.0, 0.1)}, divergence=True,
            file="neg_binomial", constants={"positive": 1},
        ),
        Family(
            "categorical", "y ~ categorical(softmax(eta))", "categorical", "none",
            {"intercept": (0.0, 2.5), **_COMMON}, divergence=True,
        ),
        Family(
            "ordinal", "P(y <= c) = inv_logit(cutpoint_c - eta)", "ordinal", "none",
            {"cutpoint": (0.0, 5.0), **_COMMON}, divergence=True, constants=_ORDINAL,
        ),
        Family(
            "ordinal_probit", "P(y <= c) = Phi(cutpoint_c - eta)", "ordinal", "none",
            {"cutpoint": (0.0, 5.0), **_COMMON}, divergence=True, file="ordinal",
            constants={**_ORDINAL, "probit": 1},
        ),
    )
}  # fmt: skip


ELSEWHERE = {  # names of families in other packages
    "gaussian": "normal",
    "student": "student_t",
    "binomial": "bernoulli",
    "logistic": "bernoulli",
    "negbinomial": "neg_binomial",
    "cumulative": "ordinal",
    "multinomial": "categorical",
}


def family_of(text: str) -> Family:
    """Look up a family by name, with settings in parentheses: ``histogram(bins = 20)``.

    Raises:
        ProgramError: an unknown name.
        SchemaError: unknown settings, or a text of another form.
    """
    name, settings = read_family(text)
    if name not in FAMILIES:
        here = f" (here {ELSEWHERE[name]!r})" if name in ELSEWHERE else did_you_mean(name, FAMILIES)
        raise ProgramError(f"unknown family {name!r}{here}; families: {', '.join(FAMILIES)}.")
    return FAMILIES[name].given(settings)


def fitting(column: Column) -> list[str]:
    """Names of the families that a column's declaration fits, in the order of the list."""
    names = []
    for name, family in FAMILIES.items():
        with contextlib.suppress(SchemaError):
            family.check_column(column)
            names.append(name)
    return names


def register_family(family: Family) -> None:
    """Add a family.

    Raises:
        SchemaError: another family has its name; a function writes its program, which nothing
            checks; or its bundled program has no family with outcomes of the same kind, so that
            nothing says that the program accepts all of them.
    """
    expect(family, Family, "family", "a dpbayes.Family", SchemaError)
    if family.make is not None:
        raise SchemaError(
            f"family {family.name!r}: `make` is for families of the package. Write the program "
            "to a file, and give its path as `program`."
        )
    if FAMILIES.get(family.name, family) != family:
        raise SchemaError(
            f"a family {family.name!r} is there already; families: {', '.join(FAMILIES)}."
        )
    same = [other for other in FAMILIES.values() if other.file == family.file]
    if (
        family.program is None
        and same
        and family._outcomes not in [other._outcomes for other in same]
    ):
        raise SchemaError(
            f"family {family.name!r}: program {family.file!r} is for the outcomes of "
            f"{', '.join(other.name for other in same)}. Take column_type, scaling, open_at and "
            "constants from one of them, or give a `program` of your own."
        )
    FAMILIES[family.name] = family
