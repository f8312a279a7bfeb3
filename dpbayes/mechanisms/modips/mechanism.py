"""Model-based private synthesis (Liu 2016): a private posterior draw, then predictions from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import Mechanism, ModelFreeFitted, ModelFreeMechanism
from dpbayes.mechanisms.forecast import INSTEAD, Forecast, ForecastWarning
from dpbayes.mechanisms.modips.clamped import ClampedModips
from dpbayes.mechanisms.modips.conjugate import Bernoulli, Multinomial, NormalModel, PoissonGamma
from dpbayes.mechanisms.modips.glom import Glom
from dpbayes.mechanisms.modips.grid import GRIDDED, CellGrid
from dpbayes.mechanisms.modips.regression import Sequential, Slomag
from dpbayes.mechanisms.modips.settings import check_nested, one_of
from dpbayes.mechanisms.modips.statistic_model import (
    FittedStatistics,
    Parameters,
    Sanitised,
    Scalar,
    Spending,
    StatisticModel,
)
from dpbayes.mechanisms.tables.cells import TableCells
from dpbayes.privacy.accounting import Loss, check_delta, rho_for, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee, inside
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import OUT_OF_RANGE, OutOfRange, Statistic, shares
from dpbayes.schema import Schema
from dpbayes.schema.domain import made_up
from dpbayes.stan.model import Model

_MODELS = (Bernoulli, PoissonGamma, NormalModel, Multinomial, Glom, Slomag, Sequential)
MODELS: dict[str, type[StatisticModel]] = {model.name: model for model in _MODELS}
DROWNED = 0.3  # scale of noise in a statistic from which on the forecast warns
SHRUNK = 0.5  # lost part of a usual coefficient above which the forecast warns
MANY_CELLS = 10  # cells per record from which on the forecast warns
DRAWS = ("sbs", *GRIDDED, "clamped")


def get_model(model: str | StatisticModel, settings: Mapping[str, Any] | None) -> StatisticModel:
    """Model by name and settings, or the model itself; GuaranteeError for unknown ones."""
    if isinstance(model, StatisticModel):
        return model
    if not isinstance(model, str) or model not in MODELS:
        raise GuaranteeError(f"model = {model!r}: expected one of {', '.join(MODELS)}.")
    if not isinstance(settings, Mapping | None):
        raise GuaranteeError(f"settings = {settings!r}: expected a table, as in {{prior = 1}}.")
    names = [f.name for f in fields(MODELS[model])]  # type: ignore[arg-type]  # dataclasses
    for key in settings or {}:
        if key not in names:
            takes = f"takes {', '.join(names)}" if names else "has no settings"
            raise GuaranteeError(f"model {model!r} does not use {key}; it {takes}.")
    return MODELS[model](**(settings or {}))


@dataclass(frozen=True)
class Modips(ModelFreeMechanism):
    """A private draw of a model's parameters for each data set, then predictions from it.

    Private draws: ``sbs`` adds Laplace noise, or Gaussian noise at a ``delta``, to sufficient
    statistics and draws from the posterior given them; ``sdd``, ``sdd-mc`` and ``sphc`` choose a
    cell of a grid over the parameters (``grid.py``; models with one column), which is public, or
    placed by noisy statistics (``standardise``). For ``clamped``, the package's own posteriors of
    any Stan program, see ``ClampedModips``; for several models, ``ChosenModips``.

    Source: liu-2016, algorithm 1; proposition 1; section 3.3 sufficiency; proposition 2; figure 2;
    figure 3; figure 4; section 3.3 normal; bowen-liu-2020, section 3.2.2; figure 1.

    Sensitivity: see the docstring of each model for its statistics.

    Guarantee: strict. Statistic j gets the part w_j of epsilon (``individual``), or every statistic
    noise of scale sum_j Δ_j / epsilon (``communal``, w_j proportional to Δ_j); the parts compose to
    epsilon. At a delta the parts are of rho, the largest from which (epsilon, delta)-DP follows,
    and the noise of statistic j costs w_j rho. Posterior draws and predictions are post-processing;
    a grid that sanitised statistics place composes with the draw on it.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``, for one private draw.
        delta: δ of one private draw; above 0 for ``sbs`` with Gaussian noise, which is smaller if a
            record moves many statistics.
        model: name or StatisticModel.
        settings: settings of a model given by name, such as ``{"prior": [0.5, 0.5]}``.
        draw: ``sbs``, ``sdd``, ``sdd-mc`` or ``sphc``.
        allocation: ``individual`` or ``communal``.
        weights: parts w_j for ``individual``, in the model's order or by name; equal by default.
        out_of_range: treatment of noisy statistics beyond their range: ``bit`` or ``truncate``
            (``Statistic.sanitised``).
        nested: data sets t per private draw.
        bound: for the grid: A of ``sdd`` and ``sdd-mc``, G of ``sphc``.
        cells: for the grid: number of cells along each parameter.
        samples: number N of posterior draws of ``sdd-mc`` and ``sphc``.
        standardise: for the grid: share of epsilon for noisy statistics, whose posterior determines
            its place and width; ``bound`` is then that of a standard normal density.

    Examples:
        ε of five data sets from one private draw, and from five:

        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> dpb.Modips(epsilon=1, nested=5).claim(schema).for_datasets(5).epsilon
        1.0
        >>> dpb.Modips(epsilon=1).claim(schema).for_datasets(5).epsilon
        5.0
    """

    epsilon: float
    model: str | StatisticModel = "sequential"
    adjacency: Adjacency | None = None
    settings: Mapping[str, Any] | None = None
    draw: Literal["sbs", "sdd", "sdd-mc", "sphc", "clamped"] = "sbs"
    allocation: Literal["individual", "communal"] = "individual"
    weights: Mapping[str, float] | list[float] | None = None
    out_of_range: OutOfRange = "bit"
    nested: int = 1
    bound: float | None = None
    cells: int = 50
    samples: int = 1000
    delta: float = 0.0
    standardise: float | None = None
    name: ClassVar[str] = "modips"
    summary: ClassVar[str] = "private posterior draw of a model, then predictions; strict ε-DP"

    @classmethod
    def variant(cls, settings: Mapping[str, Any]) -> type[Mechanism[Any]]:
        return ClampedModips if settings.get("draw") == "clamped" else cls

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model", get_model(self.model, self.settings))
        one_of("draw", self.draw, DRAWS)
        one_of("allocation", self.allocation, ("individual", "communal"))
        one_of("out_of_range", self.out_of_range, OUT_OF_RANGE)
        check_nested(self.nested)
        for setting, value in (("cells", self.cells), ("samples", self.samples)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 2:
                raise GuaranteeError(f"{setting} = {value!r} must be a whole number, at least 2.")
        if self.allocation == "communal" and self.weights is not None:
            raise GuaranteeError("weights are for allocation 'individual'; communal has none.")
        if check_delta(self.delta) and (self.draw != "sbs" or self.out_of_range != "bit"):
            raise GuaranteeError(
                f"delta = {self.delta!r} is for Gaussian noise on statistics: draw sbs with "
                "out_of_range bit."
            )
        if self.draw == "clamped":
            raise GuaranteeError("the draw 'clamped' needs a Stan program: use ClampedModips.")
        self._check_grid()

    def _check_grid(self) -> None:
        if self.draw == "sbs":
            if (self.standardise, self.bound) != (None, None):
                raise GuaranteeError("standardise and bound are for draws on a grid, not for sbs.")
            return
        if not self._model.few:
            raise GuaranteeError(
                f"draw {self.draw!r} puts a grid over the parameters; models: "
                f"{', '.join(m.name for m in _MODELS if m.few)}, not {self._model.name!r}."
            )
        if self.standardise is not None:
            if not inside(self.standardise, 0, 1):
                raise GuaranteeError(
                    f"standardise = {self.standardise!r} must lie in (0, 1): the part of epsilon "
                    "for the statistics that place the grid."
                )
            if self.bound is not None:
                raise GuaranteeError("bound follows from standardise: give one of them.")
        elif self.bound is None or not 0 < self.bound < math.inf:
            bounded = "the posterior density" if self.draw == "sphc" else "its absolute logarithm"
            raise GuaranteeError(
                f"draw {self.draw!r} needs bound = ..., above 0: a public bound on {bounded}, "
                "chosen without the confidential records. What exceeds it is cut off. Or "
                "standardise = ..., the part of epsilon that places the grid."
            )

    @property
    def _model(self) -> StatisticModel:
        assert isinstance(self.model, StatisticModel)
        return self.model

    @property
    def both(self) -> bool:  # type: ignore[override]  # depends on the model here
        """True if epsilon holds for both adjacencies: for public grids, and for some models."""
        return not self.statistical or self._model.both

    @property
    def halves(self) -> bool:
        return self._model.halves and self.out_of_range == "bit" and self.draw == "sbs"

    @property
    def statistical(self) -> bool:
        """True if noise is added to statistics, for a draw or to place a grid."""
        return self.draw == "sbs" or self.standardise is not None

    @property
    def rho(self) -> float:
        """Largest rho for the statistics that implies (epsilon, delta)-DP."""
        return rho_for(self.epsilon, self.delta)

    @property
    def loss(self) -> Loss:
        if not self.delta:
            return super().loss
        # A changed record moves two cells by 1 instead of one: sqrt 2 in the L2 norm, so that rho
        # doubles. Sums of signed numbers can move twice as far: four times rho, by group privacy.
        table = 2 if self.halves else 1
        if self.neighbours == "substitution":  # a removed record moves no statistic more
            return Loss.concentrated(self.rho / table, changed=self.rho)
        changed = table * self.rho if self.both or self.halves else None
        return Loss.concentrated(self.rho, changed=changed)

    def guarantee(self) -> Guarantee:
        return replace(super().guarantee(), delta=self.delta)

    @property
    def sets_per_output(self) -> int | None:
        return self.nested

    def check(self, schema: Schema, model: Model | None) -> None:
        if model is not None:
            raise GuaranteeError(
                f"mechanism {self.name!r} takes a Stan program with draw = 'clamped' alone: set "
                "that, or leave out the model."
            )
        super().check(schema, model)

    def check_columns(self, schema: Schema) -> None:
        self._model.check(schema)
        parts = self._model.parts(schema)
        twice = next((name for name in parts if parts.count(name) > 1), None)
        if twice is not None:  # noise, budget and draw of one would be those of the other
            raise SchemaError(
                f"two statistics of model {self._model.name!r} would be called {twice!r}: rename a "
                "column."
            )
        if self.statistical and self.allocation == "individual":
            shares(parts, self.weights, f"model {self._model.name!r}")

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Forecast the noise of the statistics, computed with a made-up record.

        The scale of the noise does not depend on the records. Statistics that are whole numbers are
        sums over n records of numbers up to 1 in their units; the others are coefficients of log
        odds, on predictors of norm up to 1. For these the shrinkage of a usual coefficient by the
        ridge is reported instead of the noise, which the ridge keeps small.
        """
        if self.draw != "sbs":
            return Forecast()
        blank = made_up(schema, 1, np.random.default_rng(0))
        fitted = self._model.fit(schema, blank, self.allotted(schema), rows)
        parts, scales = self.budget(schema, fitted), {}
        for s in fitted.statistics:
            scale = self._scale(s, parts[s.name])
            # A single number is in the column's own unit; entries of others are at most 1.
            most = s.reach("add-remove") if np.size(s.value) == 1 else 1.0
            scales[s.name] = scale / (rows * most) if s.integer else scale
        name, worst = max(scales.items(), key=lambda item: item[1])
        cells = TableCells.of(schema, rows)
        facts = {"cells": cells.size, "records per cell": rows / cells.size, "noise": worst}
        column, lost = max(fitted.shrunk.items(), key=lambda item: item[1], default=("", 0.0))
        facts |= {"shrunk": lost} if fitted.shrunk else {}
        if lost > SHRUNK:
            message = (
                f"{rows:,} records at ε = {stated(self.epsilon)} leave {1 - lost:.0%} of what "
                f"other columns usually say of {column!r}: the prior of model "
                f"{self._model.name!r} takes the rest, so that noise does not."
            )
            return Forecast(facts, (ForecastWarning(message, INSTEAD),))
        if worst < DROWNED and cells.size < MANY_CELLS * rows:
            return Forecast(facts)
        unit = "an odds ratio of 2.7" if "coefficients" in name else "what all records amount to"
        message = (
            f"{rows:,} records are few for {cells.size:,} cells, and the statistics of model "
            f"{self._model.name!r} get ε = {stated(self.epsilon)} in {len(parts)} parts: noise "
            f"of scale {worst:.2g} in {name!r}, where 1 is {unit}."
        )
        return Forecast(facts, (ForecastWarning(message, INSTEAD),))

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedModel:
        fitted = self._model.fit(schema, records, self.allotted(schema), rows)
        return FittedModel(self, schema, fitted)

    def allotted(self, schema: Schema) -> Spending:
        """Budget on which a model's settings may depend; equal parts if parts are communal."""
        names = self._model.parts(schema)
        weights = self.weights if self.statistical else None
        parts = shares(names, weights, f"model {self._model.name!r}")
        return Spending(self.epsilon, parts, self.rho if self.delta else None)

    def budget(self, schema: Schema, fitted: FittedStatistics[Any]) -> dict[str, float]:
        """Share of epsilon for each statistic; the shares sum to 1.

        Source: liu-2016, definition 5; definition 6; remark 6.
        """
        statistics = fitted.statistics
        if self.allocation == "communal":
            reach = {s.name: self._reach(s) for s in statistics}
            return {name: value / math.fsum(reach.values()) for name, value in reach.items()}
        parts = self._model.parts(schema)
        by_part = shares(parts, self.weights, f"model {self._model.name!r}")
        names = [fitted.part(s.name) for s in statistics]
        return {
            s.name: by_part[part] / names.count(part)
            for s, part in zip(statistics, names, strict=True)
        }

    def _scale(self, statistic: Statistic, part: float) -> float:
        """Scale of a statistic's noise: L1 sensitivity over its epsilon, or sigma."""
        if not self.delta:
            return statistic.reach(self.neighbours) / (part * self.epsilon)
        moved = statistic.unit * statistic.change[self.neighbours].l2
        return moved / math.sqrt(2 * part * self.rho)

    def _reach(self, statistic: Statistic) -> float:
        """Weight of a statistic in a communal budget, which gives all noise one scale."""
        if not self.delta:
            return statistic.reach(self.neighbours)
        return float((statistic.unit * statistic.change[self.neighbours].l2) ** 2)


class FittedModel(ModelFreeFitted[Parameters]):
    """A model's statistics of the records, and their budget.

    Attributes:
        budget: share of each statistic in the budget of statistics; empty for public grids.
    """

    mechanism: Modips

    def __init__(self, mechanism: Modips, schema: Schema, model: FittedStatistics[Any]) -> None:
        self.model = model
        self.budget = mechanism.budget(schema, model) if mechanism.statistical else {}
        settings = {
            "model": mechanism._model.name,
            "draw": mechanism.draw,
            **model.settings,
            "budget": self.budget,
        }
        if mechanism.draw != "sbs":
            settings |= {"bound": mechanism.bound, "cells": mechanism.cells}
        super().__init__(mechanism, schema, settings)
        if mechanism.draw == "sbs":  # it has no grid
            grid = {"bound", "cells", "samples"} - set(model.settings)
            self.settings = {k: value for k, value in self.settings.items() if k not in grid}

    def draw_private(self, noise: Noise) -> Parameters:
        how = self.mechanism
        if how.draw == "sbs":
            return self._sanitised(how.epsilon, noise)
        assert isinstance(self.model, Scalar)
        epsilon, ranges = how.epsilon, self.model.ranges()
        if how.standardise is None:
            assert how.bound is not None
            grid, bound = CellGrid.over(ranges, how.cells), how.bound
        else:
            sanitised = self._sanitised(how.standardise * epsilon, noise)
            many = {name: np.full(how.samples, value) for name, value in sanitised.items()}
            points = np.reshape(self.model.draw(many, noise.rng), (len(ranges), how.samples))
            grid, log_bound, density = CellGrid.standard(points, ranges, how.cells)
            bound = density if how.draw == "sphc" else log_bound
            epsilon *= 1 - how.standardise
        more = () if how.draw == "sdd" else (how.samples,)
        return GRIDDED[how.draw](self.model, grid, bound, epsilon, noise, *more)

    def _sanitised(self, epsilon: float, noise: Noise) -> Sanitised:
        """Add noise to every statistic, by its share of epsilon, or of rho at a delta."""
        how = self.mechanism
        if how.delta:
            return {
                s.name: s.with_gaussian(self.budget[s.name] * how.rho, how.neighbours, noise)
                for s in self.model.statistics
            }
        return {
            s.name: s.sanitised(
                self.budget[s.name] * epsilon, how.neighbours, noise, how.out_of_range
            )
            for s in self.model.statistics
        }

    def synthetic(self, output: Parameters, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        if self.mechanism.draw == "sbs":
            assert isinstance(output, Mapping)  # sanitised statistics
            output = self.model.draw(output, rng)
        return self.model.predict(output, rows, rng)
