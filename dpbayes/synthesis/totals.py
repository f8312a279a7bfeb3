"""The ε of a data set that keeps all data sets within a total."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.base import F_co
from dpbayes.privacy.accounting import ROUNDING, stated
from dpbayes.privacy.guarantee import EPSILONS, Guarantee, check_epsilon
from dpbayes.synthesis.synthesizer import Synthesizer

STEPS = 60  # of a bisection: beyond the digits of a float


def for_total(
    synthesizer: Synthesizer[F_co], total: float, datasets: int = 1, delta: float | None = None
) -> Synthesizer[F_co]:
    """The same synthesizer with the largest ε at which all data sets together cost ``total``.

    It follows the claim, whatever that is made of: sums, zCDP at δ, what is paid once.

    Args:
        total: ε of all m data sets, for the mechanism's adjacency.
        datasets: m.
        delta: as in ``Fit.sample``.
    Raises:
        GuaranteeError: the mechanism has no ε, or the total does not reach so far.
    """
    check_epsilon(total)
    mechanism: Any = synthesizer.mechanism
    if not mechanism.takes("epsilon"):
        raise GuaranteeError(f"mechanism {mechanism.name!r} has no ε to fit into a total.")

    def at(epsilon: float) -> Synthesizer[F_co]:
        return synthesizer.with_mechanism(replace(mechanism, epsilon=epsilon))

    def cost(made: Synthesizer[F_co]) -> float:
        return _cost(made.guarantee().for_datasets(datasets, delta))

    whole = at(total)
    if cost(whole) <= total * (1 + ROUNDING):
        return whole
    found = None
    # What noisy rows leave of it is an ε, too.
    low, high = EPSILONS[0] / (1 - synthesizer.schema.rows.share) * (1 + 1e-9), total
    for _ in range(STEPS):
        middle = (low + high) / 2
        try:
            made = at(middle)
        except GuaranteeError:  # a part of it is too small to be an ε
            low = middle
            continue
        fits = cost(made) <= total
        found = made if fits else found
        low, high = (middle, high) if fits else (low, middle)
    if found is None:
        raise GuaranteeError(
            f"a total of ε = {stated(total)} is too little for {datasets} data sets by "
            f"{mechanism.name!r}, of which each needs {stated(low)} at least. Ask for fewer data "
            "sets or more ε, or give a δ (--delta)."
        )
    return found


def _cost(claim: Guarantee) -> float:
    """Of all data sets, for the adjacency that the mechanism's ε is meant for."""
    return claim.epsilon if claim.adjacency == "add-remove" else claim.epsilon_substitution
