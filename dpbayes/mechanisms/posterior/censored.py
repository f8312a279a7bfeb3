"""Mechanisms that clamp each record's log-likelihood (Hu, Williams & Savitsky, section 3)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import ClassVar

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.forecast import Forecast, ForecastWarning
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import (
    PublicFacts,
    Stage,
    WindowRule,
    check_window,
    place_window,
    window_width,
)
from dpbayes.mechanisms.posterior.weights import (
    NO_WEIGHTS,
    PAPER_WEIGHTS,
    WeightSource,
    check_weights,
)
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import POSTERIOR, REFERENCE, Adjacency, Guarantee
from dpbayes.schema import Schema
from dpbayes.stan.model import Model

NEGLIGIBLE_INFLUENCE = (
    "one record has a negligible influence on the other records' weights, which are computed from "
    "the confidential records; this fails for an extreme record"
)

# Width below which a forecast warns. Of the paper's 2,000 records of Beta(0.5, 3), 12 % leave a
# window of width 5, 21 % one of width 4, 41 % one of width 3 (python -m studies censoring).
NARROW = 4.0


@dataclass(frozen=True)
class _Clamped(PosteriorMechanism):
    """Base class of the mechanisms with one stage and a window of public width."""

    epsilon: float
    window: WindowRule | None = None
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        if self.adjacency is None:  # a schema decides which, and the width is checked again
            with contextlib.suppress(GuaranteeError):
                check_window(self.window, window_width(self.epsilon, "add-remove"))
                return
        check_window(self.window, self.width)

    @property
    def width(self) -> float:
        """Width of the window, from epsilon and adjacency."""
        return window_width(self.epsilon, self.neighbours)

    @property
    def weight_source(self) -> WeightSource:
        """The source of the record weights."""
        return NO_WEIGHTS

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        source = self.weight_source
        around = self.window is None and source == NO_WEIGHTS and not problem.near_zero
        window = place_window(self.window, self.width, negative=problem.near_zero)
        return (Stage(source, window, centre=problem.centre if around else 0.0),)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        forecast = super().outlook(schema, rows, model)
        if self.width >= NARROW or self.weight_source is not NO_WEIGHTS:
            return forecast
        problem = (
            f"The clamp is {self.width:g} nats wide: log-likelihoods of many records leave it (two "
            "fifths of the paper's at a width of 3), and those tell the fit nothing."
        )
        remedy = "Take `anchored`, which clamps ratios to an anchor and keeps the fit at that ε."
        # Without facts: they describe a fit that such a clamp does not reach.
        return Forecast(cautions=(*forecast.cautions, ForecastWarning(problem, remedy)))

    def guarantee(self) -> Guarantee:
        source = self.weight_source
        reference = (REFERENCE,) if source.name == "reference" else ()
        return Guarantee(
            self.name,
            Loss.bounded_range(self.width),
            "strict" if source.strict else "asymptotic",
            (*POSTERIOR, *(reference if source.strict else (NEGLIGIBLE_INFLUENCE,))),
            "chain",
            adjacency=self.neighbours,
            weights=source.name,
        )


@dataclass(frozen=True)
class Censored(_Clamped):
    """The posterior with each record's log-likelihood clamped to a window of width epsilon.

    Source: hu-williams-savitsky, eq. 3.5; eq. 3.6.

    Guarantee: strict. Preconditions: the prior is proper, and each term is a function of one
    record, public data and the parameters. Removing a record takes away a term g(θ) in a window of
    width w, so the log density ratio of the two posteriors, g(θ) - log E[exp g], is within w.
    Changing a record at fixed n exchanges one such term for another: 2w.

    Attributes:
        epsilon: the bound under ``adjacency``.
        window: ``symmetric`` (the paper's ±ε/2), ``negative``, or a public interval of the right
            width. By default around the log density of a uniform outcome in the program's units,
            which is 0 for most continuous families of dpbayes, and negative for discrete outcomes,
            where f <= 0, but for counts of more than 400 values.
        adjacency: w = epsilon for ``add-remove``, epsilon/2 for ``substitution``; by default that
            which a release protects (``Guarantee.holds_for``).

    Examples:
        >>> import dpbayes as dpb
        >>> claim = dpb.Censored(epsilon=5).guarantee()
        >>> claim.basis, claim.epsilon, claim.epsilon_substitution
        ('strict', 2.5, 5.0)
        >>> dpb.Censored(epsilon=5, adjacency="add-remove").guarantee().epsilon_substitution
        10.0
    """

    name: ClassVar[str] = "censored"
    summary: ClassVar[str] = "log-likelihood clamped to width ε; strict ε-DP"


@dataclass(frozen=True)
class CensoredWeighted(_Clamped):
    """The posterior with each record's weighted log-likelihood clamped to a window.

    Source: hu-williams-savitsky, eq. 3.5; eq. 3.6.

    Guarantee: strict, as for ``Censored``, with weights from a reference fit or constant ones.
    It is asymptotic with weights from the confidential records (the paper's, and the default),
    although the paper states strict ε-DP: these are scaled by the smallest and largest sensitivity
    over all records, so adding or removing one record changes every other record's term as well.
    On an exact grid posterior (n = 2000, Beta(0.5, 3), nominal epsilon 5) one added record changed
    the log posterior ratio by up to 199; `dpbayes audit` shows it.

    Attributes:
        weights: source of the weights.
        epsilon, window, adjacency: as for ``Censored``.

    Examples:
        >>> import dpbayes as dpb
        >>> dpb.CensoredWeighted(epsilon=5).guarantee().basis
        'asymptotic'
        >>> dpb.CensoredWeighted(epsilon=5, weights=dpb.ConstantWeights(0.5)).guarantee().basis
        'strict'
    """

    weights: WeightSource = PAPER_WEIGHTS
    name: ClassVar[str] = "censored-weighted"
    summary: ClassVar[str] = (
        "weights inside the clamp; strict with reference or constant weights, else asymptotic"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self.weights)

    @property
    def weight_source(self) -> WeightSource:
        return self.weights
