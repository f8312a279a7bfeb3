"""Mechanisms, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms.base import NO_WINDOW, Mechanism, Problem, Stage, StanMechanism
from dpbayes.mechanisms.dips_base import Dips
from dpbayes.mechanisms.modips.mechanism import ClampedModips, Modips
from dpbayes.mechanisms.posterior.anchored import Anchored
from dpbayes.mechanisms.posterior.beta_divergence import BetaDivergence
from dpbayes.mechanisms.posterior.censored import Censored, CensoredWeighted
from dpbayes.mechanisms.posterior.pseudo import Unweighted, Weighted, WeightedE
from dpbayes.mechanisms.tables.noisy import EmpiricalBootstrap, Laplace, PerturbedHistogram
from dpbayes.mechanisms.tables.urns import (
    BetaBinomial,
    BetaBinomialMR,
    MultinomialDirichlet,
    SmoothedHistogram,
)

_KINDS = (
    Unweighted, Weighted, WeightedE, Censored, CensoredWeighted, Anchored, BetaDivergence,
    Laplace, PerturbedHistogram, EmpiricalBootstrap, MultinomialDirichlet, SmoothedHistogram,
    BetaBinomial, BetaBinomialMR, Modips,
)  # fmt: skip
MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in _KINDS}


def get_mechanism(name: str, **settings: Any) -> Mechanism:
    """Build a mechanism by name; settings that are None are left at their defaults.

    Raises:
        GuaranteeError: unknown name, a setting that the mechanism lacks, or one that it needs.
    """
    if name not in MECHANISMS:
        raise GuaranteeError(f"unknown mechanism {name!r}; mechanisms: {', '.join(MECHANISMS)}.")
    kind = MECHANISMS[name]
    if name == "modips" and settings.get("draw") == "clamped":
        kind = ClampedModips
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no settings"
            raise GuaranteeError(f"mechanism {name!r} does not use {key}; it {takes}.")
    if "epsilon" in known and "epsilon" not in given:
        raise GuaranteeError(f"mechanism {name!r} needs epsilon.")
    return kind(**given)


__all__ = [
    "MECHANISMS", "NO_WINDOW", "Anchored", "BetaBinomial", "BetaBinomialMR", "BetaDivergence",
    "Censored", "CensoredWeighted", "ClampedModips", "Dips", "EmpiricalBootstrap", "Laplace",
    "Mechanism", "Modips", "MultinomialDirichlet", "PerturbedHistogram", "Problem",
    "SmoothedHistogram", "Stage", "StanMechanism", "Unweighted", "Weighted", "WeightedE",
    "get_mechanism",
]  # fmt: skip
