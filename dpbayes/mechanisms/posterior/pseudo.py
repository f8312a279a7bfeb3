"""Pseudo-posterior mechanisms without a clamp (Hu, Williams & Savitsky, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpbayes.core.checks import expect
from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage, window_width
from dpbayes.mechanisms.posterior.weights import (
    PAPER_WEIGHTS,
    ConfidentialWeights,
    TruncatedWeights,
    WeightSource,
    check_weights,
)
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import POSTERIOR, REFERENCE, Adjacency, Guarantee

NO_CLAIM = Loss.bounded_range(math.inf)
_ASYMPTOTIC = (
    *POSTERIOR,
    "the number of records is large enough for the posterior to have contracted, which cannot be "
    "checked",
)
_CONFIDENTIAL = "the weights are computed from the confidential records"


@dataclass(frozen=True)
class Unweighted(PosteriorMechanism):
    """The unweighted posterior, without protection.

    Guarantee: none. The local ε_x = 2Δ describes these records only.

    Examples:
        >>> import dpbayes as dpb
        >>> print(dpb.Unweighted().guarantee())
        unweighted: no differential privacy
    """

    name: ClassVar[str] = "unweighted"
    summary: ClassVar[str] = "plain posterior; no differential privacy"

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        return (Stage(),)

    def guarantee(self) -> Guarantee:
        return Guarantee(self.name, NO_CLAIM, "none", (), "chain")


@dataclass(frozen=True)
class Weighted(PosteriorMechanism):
    """The pseudo-posterior with risk weights, which temper the likelihood of risky records.

    Source: hu-williams-savitsky, eq. 2.3; savitsky-williams-hu-2022.

    Guarantee: asymptotic. The local ε_x = 2Δ_α after the refit becomes global as n grows; it is
    itself confidential.

    Attributes:
        weights: source of the weights; by default the confidential records, as in the paper.

    Examples:
        >>> import dpbayes as dpb
        >>> mechanism = dpb.Weighted(dpb.ConfidentialWeights(c1=0.8, c2=0.1))
        >>> print(mechanism.guarantee())
        weighted: asymptotic only, no ε promised for a finite number of records
    """

    weights: WeightSource = PAPER_WEIGHTS
    name: ClassVar[str] = "weighted"
    summary: ClassVar[str] = "risk-weighted pseudo-posterior; asymptotic, local ε only"

    def __post_init__(self) -> None:
        check_weights(self.weights)

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        return (Stage(self.weights),)

    def guarantee(self) -> Guarantee:
        source = {"confidential": (_CONFIDENTIAL,), "reference": (REFERENCE,)}
        return Guarantee(
            self.name,
            NO_CLAIM,
            "asymptotic",
            (*_ASYMPTOTIC, *source.get(self.weights.name, ())),
            "chain",
            weights=self.weights.name,
        )


@dataclass(frozen=True)
class WeightedE(PosteriorMechanism):
    """The pseudo-posterior with risk weights, set to 0 for records still above epsilon/2.

    Source: hu-williams-savitsky, section 2.2.

    Guarantee: asymptotic towards epsilon; the local ε_x may exceed it.

    Attributes:
        epsilon: the target under ``adjacency``.
        weights: scaling and shift of the weights.
        adjacency: the neighbouring relation that epsilon is for; by default that which a release
            protects (``Guarantee.holds_for``).

    Examples:
        >>> import dpbayes as dpb
        >>> claim = dpb.WeightedE(epsilon=5).guarantee()
        >>> claim.basis, claim.asked
        ('asymptotic', 5.0)
    """

    epsilon: float
    weights: ConfidentialWeights = PAPER_WEIGHTS
    adjacency: Adjacency | None = None
    name: ClassVar[str] = "weighted-e"
    summary: ClassVar[str] = "weighted, riskiest records dropped; asymptotic towards ε"

    def __post_init__(self) -> None:
        window_width(self.epsilon, self.neighbours)
        expected = "ConfidentialWeights(c1=..., c2=...)"
        expect(self.weights, ConfidentialWeights, "weights", expected, GuaranteeError)

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        width = window_width(self.epsilon, self.neighbours)
        return (Stage(TruncatedWeights(self.weights, width)),)

    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.name,
            Loss.bounded_range(window_width(self.epsilon, self.neighbours)),
            "asymptotic",
            (*_ASYMPTOTIC, _CONFIDENTIAL),
            "chain",
            adjacency=self.neighbours,
            weights="confidential",
        )
