"""The registry of mechanisms by name.

To add a mechanism, write a module in one of the folders and list its class here. Other packages
call ``register_mechanism``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from dpbayes.core.errors import GuaranteeError, did_you_mean, refused
from dpbayes.mechanisms.base import Fitted, Mechanism, ModelFreeMechanism, Task
from dpbayes.mechanisms.households.mechanism import Households
from dpbayes.mechanisms.households.panels import Panels
from dpbayes.mechanisms.marginals.mechanism import Marginals
from dpbayes.mechanisms.modips.chosen import ChosenModips
from dpbayes.mechanisms.modips.clamped import ClampedModips
from dpbayes.mechanisms.modips.mechanism import Modips
from dpbayes.mechanisms.pegs.imputation import PerturbedImputation
from dpbayes.mechanisms.pegs.samplers import DiversePegs, MarginalBootstrap, Pegs, PegsReset
from dpbayes.mechanisms.posterior.anchored import Anchored
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.beta_divergence import BetaDivergence
from dpbayes.mechanisms.posterior.censored import Censored, CensoredWeighted
from dpbayes.mechanisms.posterior.pseudo import Unweighted, Weighted, WeightedE
from dpbayes.mechanisms.score.mechanism import Score
from dpbayes.mechanisms.tables.bootstrap import EmpiricalBootstrap
from dpbayes.mechanisms.tables.noisy import Laplace, PerturbedHistogram
from dpbayes.mechanisms.tables.urns import (
    BetaBinomial,
    BetaBinomialMR,
    MultinomialDirichlet,
    SmoothedHistogram,
)

Kind = TypeVar("Kind", bound=type[Mechanism[Any]])
MECHANISMS: dict[str, type[Mechanism[Any]]] = {}


def register_mechanism(kind: Kind) -> Kind:
    """Register a mechanism under its name; a decorator. GuaranteeError if the name is taken."""
    if MECHANISMS.setdefault(kind.name, kind) is not kind:
        raise GuaranteeError(f"a mechanism {kind.name!r} is registered already.")
    return kind


for _kind in (
    Unweighted, Weighted, WeightedE, Censored, CensoredWeighted, Anchored, Score, BetaDivergence,
    Laplace, PerturbedHistogram, EmpiricalBootstrap, MultinomialDirichlet, SmoothedHistogram,
    BetaBinomial, BetaBinomialMR, Modips, ChosenModips, Marginals, Households, Panels, Pegs,
    PegsReset, PerturbedImputation, MarginalBootstrap,
):  # fmt: skip
    register_mechanism(_kind)


RENAMED = {"measured": "marginals"}  # old names since 0.1: refused with the new name


def get_kind(name: str, settings: Mapping[str, Any]) -> type[Mechanism[Any]]:
    """Class of a mechanism by name and settings. GuaranteeError if the name is unknown."""
    if name in RENAMED:
        raise GuaranteeError(f"mechanism {name!r} is now {RENAMED[name]!r}.")
    if name not in MECHANISMS:
        raise GuaranteeError(
            f"unknown mechanism {name!r}{did_you_mean(name, MECHANISMS)}; mechanisms: "
            f"{', '.join(MECHANISMS)}."
        )
    return MECHANISMS[name].variant(settings)


def get_mechanism(name: str, /, **settings: object) -> Mechanism[Any]:
    """Build a mechanism by name; settings that are None are left at their defaults.

    Raises:
        GuaranteeError: unknown name, a setting that the mechanism does not have, or a required
            setting that is missing.
    """
    chosen = {key: value for key, value in settings.items() if value is not None}
    kind = get_kind(name, chosen)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses
    for key in chosen:
        if key not in known:
            accepted = f"takes {', '.join(known)}" if known else "takes no settings"
            raise GuaranteeError(f"mechanism {name!r} does not use {key}; it {accepted}.")
    if "epsilon" in known and "epsilon" not in chosen:
        raise GuaranteeError(f"mechanism {name!r} needs `epsilon`.")
    with refused(GuaranteeError, f"mechanism {name!r}: a setting is not of the kind it takes"):
        return kind(**chosen)


__all__ = [
    "MECHANISMS", "Anchored", "BetaBinomial", "BetaBinomialMR", "BetaDivergence", "Censored",
    "CensoredWeighted", "ChosenModips", "ClampedModips", "DiversePegs", "EmpiricalBootstrap",
    "Fitted", "Households", "Laplace", "MarginalBootstrap", "Marginals", "Mechanism", "Modips",
    "MultinomialDirichlet", "Panels", "Pegs", "PegsReset", "PerturbedHistogram",
    "PerturbedImputation", "PosteriorMechanism", "ModelFreeMechanism", "Score", "SmoothedHistogram",
    "Task", "Unweighted", "Weighted", "WeightedE", "get_mechanism", "register_mechanism",
]  # fmt: skip
