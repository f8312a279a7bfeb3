"""Mechanisms without a clamp (Hu, Williams & Savitsky, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpbayes.mechanisms.base import Problem, Stage, StanMechanism, window_width
from dpbayes.mechanisms.posterior.weights import (
    PAPER_WEIGHTS,
    ConfidentialWeights,
    TruncatedWeights,
    WeightSource,
)
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import EXACT_DRAW, REFERENCE, STRICT, Adjacency, Guarantee

NO_CLAIM = Loss.bounded_range(math.inf)
_ASYMPTOTIC = (
    *STRICT,
    "the number of records is large enough for the posterior to have contracted, which cannot be "
    "checked",
)
_CONFIDENTIAL = "the weights are computed from the confidential records"


@dataclass(frozen=True)
class Unweighted(StanMechanism):
    """The posterior itself.

    Guarantee: none. The local ε_x = 2Δ describes these records only.
    """

    name: ClassVar[str] = "unweighted"
    summary: ClassVar[str] = "plain posterior; no differential privacy"

    def stages(self, problem: Problem) -> tuple[Stage, ...]:
        return (Stage(),)

    def guarantee(self) -> Guarantee:
        return Guarantee(self.name, NO_CLAIM, "none", (EXACT_DRAW,))


@dataclass(frozen=True)
class Weighted(StanMechanism):
    """The pseudo-posterior with risk weights, eq. (2.3).

    Guarantee: asymptotic. The local ε_x = 2Δ_α after the refit becomes global as n grows
    (Savitsky, Williams & Hu, JMLR 23, 2022); it is itself confidential.

    Attributes:
        weights: their source; by default the confidential records, as in the paper.
    """

    weights: WeightSource = PAPER_WEIGHTS
    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "risk-weighted pseudo-posterior; asymptotic, local ε only"

    def stages(self, problem: Problem) -> tuple[Stage, ...]:
        return (Stage(self.weights),)

    def guarantee(self) -> Guarantee:
        source = {"confidential": (_CONFIDENTIAL,), "reference": (REFERENCE,)}
        return Guarantee(
            self.name,
            NO_CLAIM,
            "asymptotic",
            (*_ASYMPTOTIC, *source.get(self.weights.name, ())),
            weights=self.weights.name,
        )


@dataclass(frozen=True)
class WeightedE(StanMechanism):
    """Risk weights, set to 0 where they leave a record above epsilon/2, section 2.2.

    Guarantee: asymptotic towards epsilon; the local ε_x may exceed it.

    Attributes:
        epsilon: target, for ``adjacency``.
        weights: scaling and shift of the weights.
    """

    epsilon: float
    weights: ConfidentialWeights = PAPER_WEIGHTS
    adjacency: Adjacency = "add-remove"
    name: ClassVar[str] = "weighted-e"
    summary: ClassVar[str] = "weighted, riskiest records dropped; asymptotic towards ε"

    def __post_init__(self) -> None:
        window_width(self.epsilon, self.adjacency)

    def stages(self, problem: Problem) -> tuple[Stage, ...]:
        width = window_width(self.epsilon, self.adjacency)
        return (Stage(TruncatedWeights(self.weights, width)),)

    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.name,
            Loss.bounded_range(window_width(self.epsilon, self.adjacency)),
            "asymptotic",
            (*_ASYMPTOTIC, _CONFIDENTIAL),
            adjacency=self.adjacency,
            weights="confidential",
        )
