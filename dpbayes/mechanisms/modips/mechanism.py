"""Model-based private synthesis (Liu 2016): a private posterior draw, then predictions from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms.base import Problem, Stage, StanMechanism
from dpbayes.mechanisms.dips_base import Dips, Prepared, check_records
from dpbayes.mechanisms.modips.conjugate import (
    Bernoulli,
    Fitted,
    Model,
    Multinomial,
    Normal,
    PoissonGamma,
    Scalar,
)
from dpbayes.mechanisms.modips.glom import Glom
from dpbayes.mechanisms.modips.grid import GRIDDED, Grid
from dpbayes.mechanisms.modips.regression import Sequential, Slomag
from dpbayes.mechanisms.posterior.anchored import Anchored
from dpbayes.mechanisms.posterior.censored import Censored
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.privacy.noise import OUT_OF_RANGE, Noise, OutOfRange, shares
from dpbayes.schema import Schema

_MODELS = (Bernoulli, PoissonGamma, Normal, Multinomial, Glom, Slomag, Sequential)
MODELS: dict[str, type[Model]] = {model.name: model for model in _MODELS}
DRAWS = ("sbs", *GRIDDED, "clamped")


def get_model(model: str | Model, settings: Mapping[str, Any] | None) -> Model:
    """A model by name and settings. GuaranteeError for unknown ones."""
    if isinstance(model, Model):
        return model
    if model not in MODELS:
        raise GuaranteeError(f"model = {model!r}: expected one of {', '.join(MODELS)}.")
    known = [f.name for f in fields(MODELS[model])]  # type: ignore[arg-type]  # dataclasses
    for key in settings or {}:
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "has no settings"
            raise GuaranteeError(f"model {model!r} does not use {key}; it {takes}.")
    return MODELS[model](**(settings or {}))


@dataclass(frozen=True)
class Modips(Dips):
    """A private draw of a model's parameters for each data set, then predictions from it.

    Private draws: ``sbs`` sanitises sufficient statistics with Laplace noise and draws from the
    posterior given them; ``sdd``, ``sdd-mc`` and ``sphc`` choose a cell of a public grid over the
    parameters (``gridded``; models with one column). For ``clamped``, the package's own posteriors
    of any Stan program, see ``ClampedModips``.

    Source: Liu, "Model-based differentially private data synthesis", algorithms 1 to 4 and
    definitions 5 and 6; nested releases: t data sets per sanitised posterior.

    Sensitivity: of each statistic in its model's docstring.

    Guarantee: strict. Statistic j gets the part w_j of epsilon (``individual``), or every statistic
    noise of scale sum_j Δ_j / epsilon (``communal``, w_j proportional to Δ_j); the parts compose to
    epsilon. Posterior draws and predictions are post-processing.

    Attributes:
        epsilon, adjacency: as in ``Dips``, of one private draw.
        model: name or Model.
        settings: of a model given by name, such as ``{"prior": [0.5, 0.5]}``.
        draw: ``sbs``, ``sdd``, ``sdd-mc`` or ``sphc``.
        allocation: ``individual`` or ``communal``.
        weights: parts w_j for ``individual``, in the model's order or by name; equal by default.
        out_of_range: of noisy statistics: ``bit`` or ``truncate`` (``Statistic.sanitised``).
        nested: data sets t per private draw.
        bound: for the grid: A of ``sdd`` and ``sdd-mc``, G of ``sphc``.
        cells: for the grid: of each parameter.
        samples: posterior draws N of ``sdd-mc`` and ``sphc``.
    """

    epsilon: float
    model: str | Model = "sequential"
    adjacency: Adjacency = "add-remove"
    settings: Mapping[str, Any] | None = None
    draw: Literal["sbs", "sdd", "sdd-mc", "sphc", "clamped"] = "sbs"
    allocation: Literal["individual", "communal"] = "individual"
    weights: Mapping[str, float] | list[float] | None = None
    out_of_range: OutOfRange = "bit"
    nested: int = 1
    bound: float | None = None
    cells: int = 50
    samples: int = 1000
    name: ClassVar[str] = "modips"
    summary: ClassVar[str] = "private posterior draw of a model, then predictions; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "model", get_model(self.model, self.settings))
        _one_of("draw", self.draw, DRAWS)
        _one_of("allocation", self.allocation, ("individual", "communal"))
        _one_of("out_of_range", self.out_of_range, OUT_OF_RANGE)
        check_nested(self.nested)
        for what, value in (("cells", self.cells), ("samples", self.samples)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 2:
                raise GuaranteeError(f"{what} = {value!r} must be a whole number, at least 2.")
        if self.allocation == "communal" and self.weights is not None:
            raise GuaranteeError("weights are for allocation 'individual'; communal has none.")
        if self.draw == "sbs":
            return
        if self.draw == "clamped":
            raise GuaranteeError("the draw 'clamped' needs a Stan program: use ClampedModips.")
        if not self._model.few:
            raise GuaranteeError(
                f"draw {self.draw!r} puts a grid over the parameters; models: "
                f"{', '.join(m.name for m in _MODELS if m.few)}, not {self._model.name!r}."
            )
        if self.bound is None or not 0 < self.bound < math.inf:
            what = "the posterior density" if self.draw == "sphc" else "its absolute logarithm"
            raise GuaranteeError(
                f"draw {self.draw!r} needs bound = ..., above 0: a public bound on {what}, chosen "
                "without the confidential records. What exceeds it is cut off."
            )

    @property
    def _model(self) -> Model:
        assert isinstance(self.model, Model)
        return self.model

    @property
    def both(self) -> bool:  # type: ignore[override]  # depends on the model here
        """A grid's claim holds for any two data sets; a model's statistics may move alike."""
        return self.draw != "sbs" or self._model.both

    @property
    def halves(self) -> bool:
        return self._model.halves and self.out_of_range == "bit"

    @property
    def sets_per_draw(self) -> int:
        return self.nested

    def check(self, schema: Schema) -> None:
        self._model.check(schema)
        if self.draw == "sbs" and self.allocation == "individual":
            parts = self._model.parts(schema)
            shares(parts, self.weights, f"model {self._model.name!r}")

    def prepare(self, schema: Schema, records: pd.DataFrame) -> PreparedModel:
        check_records(records)
        return PreparedModel(self, schema, self._model.fit(schema, records, self.epsilon))

    def budget(self, schema: Schema, fitted: Fitted) -> dict[str, float]:
        """Part of epsilon of each statistic; they sum to 1."""
        found = fitted.statistics
        if self.allocation == "communal":
            reach = {s.name: s.change[self.adjacency].l1 for s in found}
            return {name: value / math.fsum(reach.values()) for name, value in reach.items()}
        parts = self._model.parts(schema)
        by_part = shares(parts, self.weights, f"model {self._model.name!r}")
        names = [fitted.part(s.name) for s in found]
        return {
            s.name: by_part[part] / names.count(part) for s, part in zip(found, names, strict=True)
        }


class PreparedModel(Prepared):
    """A model's statistics of the records."""

    def __init__(self, mechanism: Modips, schema: Schema, fitted: Fitted) -> None:
        self.mechanism = mechanism
        self.fitted = fitted
        self.budget = mechanism.budget(schema, fitted) if mechanism.draw == "sbs" else {}
        self.settings = {
            "model": mechanism._model.name,
            "draw": mechanism.draw,
            **fitted.settings,
            "budget": self.budget,
        }
        if mechanism.draw != "sbs":
            self.settings |= {"bound": mechanism.bound, "cells": mechanism.cells}

    def private(self, noise: Noise) -> Any:
        how = self.mechanism
        if how.draw == "sbs":
            return {
                s.name: s.sanitised(
                    self.budget[s.name] * how.epsilon, how.adjacency, noise, how.out_of_range
                )
                for s in self.fitted.statistics
            }
        assert isinstance(self.fitted, Scalar)
        assert how.bound is not None
        grid = Grid.over(self.fitted.ranges(), how.cells)
        more = () if how.draw == "sdd" else (how.samples,)
        return GRIDDED[how.draw](self.fitted, grid, how.bound, how.epsilon, noise, *more)

    def synthetic(self, output: Any, rng: np.random.Generator) -> pd.DataFrame:
        if self.mechanism.draw == "sbs":
            return self.fitted.predict(self.fitted.draw(output, rng), rng)
        return self.fitted.predict(output, rng)


@dataclass(frozen=True)
class ClampedModips(StanMechanism):
    """MODIPS with a clamped posterior of a Stan program as the private draw.

    Guarantee: strict, that of ``Anchored`` or ``Censored`` for each private draw, with t data sets
    per draw.

    Attributes:
        epsilon, adjacency: of one private draw.
        posterior: ``anchored`` or ``censored``.
        nested: data sets t per private draw.
        anchor, range, share: for ``anchored``.
        draw: always ``clamped``.
    """

    epsilon: float
    posterior: Literal["anchored", "censored"] = "anchored"
    nested: int = 1
    adjacency: Adjacency = "add-remove"
    anchor: Literal["two-stage", "none"] | Reference | None = None
    range: float | None = None
    share: float | None = None
    draw: Literal["clamped"] = "clamped"
    name: ClassVar[str] = "modips"
    summary: ClassVar[str] = "clamped posterior as the private draw; strict ε-DP"

    def __post_init__(self) -> None:
        _one_of("posterior", self.posterior, ("anchored", "censored"))
        _one_of("draw", self.draw, ("clamped",))
        check_nested(self.nested)
        if self.posterior == "censored" and (self.anchor, self.range, self.share) != (None,) * 3:
            raise GuaranteeError("anchor, range and share are for posterior 'anchored'.")
        self._inner()

    def _inner(self) -> Anchored | Censored:
        if self.posterior == "censored":
            return Censored(self.epsilon, adjacency=self.adjacency)
        given = {"anchor": self.anchor, "range": self.range, "share": self.share}
        chosen: dict[str, Any] = {key: v for key, v in given.items() if v is not None}
        return Anchored(self.epsilon, adjacency=self.adjacency, **chosen)

    def stages(self, problem: Problem) -> tuple[Stage, ...]:
        return self._inner().stages(problem)

    def guarantee(self) -> Guarantee:
        return replace(self._inner().guarantee(), mechanism=self.name, nested=self.nested)


def check_nested(nested: int) -> None:
    """Raise GuaranteeError unless it is a whole number of data sets per draw."""
    if isinstance(nested, bool) or not isinstance(nested, int) or nested < 1:
        raise GuaranteeError(f"nested = {nested!r} must be a whole number, at least 1.")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise GuaranteeError(f"{what} = {value!r} must be one of {', '.join(known)}.")
