"""Mechanisms without a clamp (Hu, Williams & Savitsky, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpbayes.mechanisms.base import Mechanism, Weighting
from dpbayes.privacy.guarantee import (
    EXACT_DRAW,
    PROPER_PRIOR,
    PUBLIC_INPUTS,
    SECRET_SEED,
    Guarantee,
    check_epsilon,
)
from dpbayes.risk import Vector, check_scaling, linear_weights, truncated_weights

_ASYMPTOTIC = (
    EXACT_DRAW,
    PUBLIC_INPUTS,
    PROPER_PRIOR,
    SECRET_SEED,
    "the number of records is large enough for the posterior to have contracted, which cannot be "
    "checked; the weights are computed from the confidential records",
)


@dataclass(frozen=True)
class Unweighted(Mechanism):
    """The posterior itself.

    Guarantee: none. The local ε_x = 2Δ describes these records only.
    """

    name: ClassVar[str] = "unweighted"
    summary: ClassVar[str] = "plain posterior; no differential privacy"
    refits: ClassVar[bool] = False

    def guarantee(self) -> Guarantee:
        return Guarantee(self.name, math.inf, math.inf, "none", (EXACT_DRAW,))


@dataclass(frozen=True)
class Weighted(Mechanism):
    """The pseudo-posterior with risk weights, eq. (2.3).

    Guarantee: asymptotic. The local ε_x = 2Δ_α after the refit becomes global as n grows
    (Savitsky, Williams & Hu, JMLR 23, 2022); it is itself confidential.

    Attributes:
        c1, c2: scaling and shift of the weights, section 4.4.
    """

    c1: float = 1.0
    c2: float = 0.0
    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "risk-weighted pseudo-posterior; asymptotic, local ε only"
    needs_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_scaling(self.c1, self.c2)

    def weighting(self, sensitivity: Vector) -> Weighting:
        return Weighting.of(linear_weights(sensitivity, self.c1, self.c2))

    def guarantee(self) -> Guarantee:
        return Guarantee(self.name, math.inf, math.inf, "asymptotic", _ASYMPTOTIC)


@dataclass(frozen=True)
class WeightedE(Mechanism):
    """Risk weights, set to 0 where they leave a record above epsilon/2, section 2.2.

    Guarantee: asymptotic towards epsilon; the local ε_x may exceed it.

    Attributes:
        epsilon: target, add/remove.
        c1, c2: scaling and shift of the weights.
    """

    epsilon: float
    c1: float = 1.0
    c2: float = 0.0
    name: ClassVar[str] = "weighted-e"
    summary: ClassVar[str] = "weighted, riskiest records dropped; asymptotic towards ε"
    needs_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_scaling(self.c1, self.c2)

    def weighting(self, sensitivity: Vector) -> Weighting:
        weights = linear_weights(sensitivity, self.c1, self.c2)
        return Weighting(*truncated_weights(weights, sensitivity, self.epsilon))

    def guarantee(self) -> Guarantee:
        return Guarantee(self.name, self.epsilon, 2 * self.epsilon, "asymptotic", _ASYMPTOTIC)
