"""Mechanisms that clamp each record's log-likelihood (Hu, Williams & Savitsky, section 3)."""

from __future__ import annotations

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
from dpbayes.risk import Vector, check_scaling, linear_weights


@dataclass(frozen=True)
class Censored(Mechanism):
    """Each record's log-likelihood clamped to [-epsilon/2, epsilon/2], eqs. (3.5)-(3.6).

    Guarantee: strict. Precondition: proper prior, each term a function of one record, public data
    and the parameters. Removing a record takes away a term g(θ) in a window of width epsilon, so
    the log density ratio of the two posteriors, g(θ) - log E[exp g], is within epsilon. Changing
    a record at fixed n exchanges one such term for another: 2 epsilon.

    Attributes:
        epsilon: width of the window; the bound for add/remove.
    """

    epsilon: float
    name: ClassVar[str] = "censored"
    summary: ClassVar[str] = "log-likelihood clamped at ±ε/2; strict ε-DP (add/remove), 2ε (subst.)"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def window(self) -> tuple[float, float]:
        return (-self.epsilon / 2, self.epsilon / 2)

    def guarantee(self) -> Guarantee:
        assumptions = (EXACT_DRAW, PUBLIC_INPUTS, PROPER_PRIOR, SECRET_SEED)
        return Guarantee(self.name, self.epsilon, 2 * self.epsilon, "strict", assumptions)


@dataclass(frozen=True)
class CensoredWeighted(Mechanism):
    """Risk weights inside the clamp, eqs. (3.5)-(3.6).

    Guarantee: asymptotic, although the paper states strict ε-DP. Its weights are scaled by the
    smallest and largest sensitivity over all records, so one record more or less changes every
    other record's term as well: on an exact grid posterior (n = 2000, Beta(0.5, 3), nominal
    epsilon 5) one added record moved the log posterior ratio by up to 199.

    Attributes:
        epsilon: width of the window.
        c1, c2: scaling and shift of the weights.
    """

    epsilon: float
    c1: float = 1.0
    c2: float = 0.0
    name: ClassVar[str] = "censored-weighted"
    summary: ClassVar[str] = "risk weights inside the clamp; asymptotic (weights see all records)"
    needs_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_scaling(self.c1, self.c2)

    @property
    def window(self) -> tuple[float, float]:
        return (-self.epsilon / 2, self.epsilon / 2)

    def weighting(self, sensitivity: Vector) -> Weighting:
        return Weighting.of(linear_weights(sensitivity, self.c1, self.c2))

    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.name,
            self.epsilon,
            2 * self.epsilon,
            "asymptotic",
            (
                EXACT_DRAW,
                PUBLIC_INPUTS,
                PROPER_PRIOR,
                SECRET_SEED,
                "one record has a negligible influence on the other records' weights, which are "
                "computed from the confidential records; this fails for an extreme record",
            ),
        )
