"""The privacy claim, apart from the code that earns it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dpbayes.errors import GuaranteeError

Basis = Literal["strict", "asymptotic", "none"]
Adjacency = Literal["add-remove", "substitution"]

EXACT_DRAW = (
    "each synthetic data set uses one exact draw of the posterior; MCMC draws are approximate, and "
    "their unknown distance from the posterior is not part of epsilon"
)
PUBLIC_INPUTS = (
    "column bounds and levels, covariates, group labels, priors, the number of records and the "
    "mechanism's settings are public or were fixed without looking at the confidential records"
)
PROPER_PRIOR = "the prior is proper and does not depend on confidential columns"
SECRET_SEED = "the random seed stays secret; Stan's generator is not cryptographic"
CUSTOM_PROGRAM = (
    "the user's Stan program passed the contract check at random points only; that each record's "
    "log-likelihood is a function of that record's data, the public data and the parameters "
    "everywhere is the user's claim"
)


def check_epsilon(epsilon: float) -> float:
    """``epsilon`` as a float, or GuaranteeError unless it is finite and above 0."""
    ok = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not ok or not math.isfinite(epsilon) or epsilon <= 0:
        raise GuaranteeError(f"epsilon = {epsilon!r} must be a finite number above 0.")
    return float(epsilon)


@dataclass(frozen=True)
class Guarantee:
    """What holds for a release, and on what grounds.

    Attributes:
        mechanism: name of the mechanism.
        epsilon: total over the data sets for add/remove-one-record neighbours; infinite without
            a claim.
        epsilon_substitution: total for neighbours that differ in one record's confidential values
            at the same n and the same public columns.
        delta: 0 for all mechanisms so far.
        adjacency: the neighbour relation that the user's epsilon is meant for.
        basis: ``strict``, a theorem for every data set under the assumptions; ``asymptotic``, as
            n grows, with no finite-sample bound; ``none``.
        datasets: number of synthetic data sets that epsilon pays for.
        assumptions: what the claim rests on and the code cannot check.
        epsilon_local: the local epsilon_x = 2 Δ found on these records, per data set. It is
            computed from the confidential records: never part of a release (``public``).
    """

    mechanism: str
    epsilon: float
    epsilon_substitution: float
    basis: Basis
    assumptions: tuple[str, ...]
    delta: float = 0.0
    adjacency: Adjacency = "add-remove"
    datasets: int = 1
    epsilon_local: float | None = None

    def for_datasets(self, m: int) -> Guarantee:
        """The guarantee of m data sets from m draws, by pure composition (m times epsilon)."""
        factor = m / self.datasets
        return replace(
            self,
            datasets=m,
            epsilon=self.epsilon * factor,
            epsilon_substitution=self.epsilon_substitution * factor,
        )

    def public(self) -> Guarantee:
        """Without what was computed from the confidential records."""
        return replace(self, epsilon_local=None)

    def assuming(self, *more: str) -> Guarantee:
        """With further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *more))

    def to_dict(self) -> dict[str, Any]:
        """For JSON: an infinite epsilon, which JSON lacks, becomes null, with basis to match."""
        tree = asdict(self)
        for key in ("epsilon", "epsilon_substitution"):
            tree[key] = tree[key] if math.isfinite(tree[key]) else None
        if tree["epsilon_local"] is None:
            del tree["epsilon_local"]
        return {**tree, "assumptions": list(self.assumptions), "statement": self.paragraph()}

    def to_json(self) -> str:
        """The tree of ``to_dict`` as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def __str__(self) -> str:
        """One line."""
        local = ""
        if self.epsilon_local is not None:
            local = f"; local ε_x = 2Δ = {self.epsilon_local:.3g} on these records (confidential)"
        return f"{self.mechanism}: {self._claim()}{local}"

    def _claim(self) -> str:
        if self.basis == "none":
            return "no differential privacy"
        sets = f", {self.datasets} data sets" if self.datasets > 1 else ""
        if not math.isfinite(self.epsilon):
            return f"asymptotic only, no ε promised for a finite number of records{sets}"
        both = (
            f"ε = {self.epsilon:.4g} (add/remove), "
            f"{self.epsilon_substitution:.4g} (substitution){sets}"
        )
        if self.basis == "asymptotic":
            return f"target {both}; asymptotic, not ε-DP"
        return f"{both}; strict ε-DP for an exact draw"

    def paragraph(self) -> str:
        """A paragraph for people who read the release."""
        if self.basis == "none":
            return (
                f"The synthesizer {self.mechanism!r} gives no differential privacy guarantee: the "
                "parameters were drawn from the plain posterior."
            )
        sets = "data set" if self.datasets == 1 else "data sets"
        opening = f"{self.datasets} synthetic {sets} by the mechanism {self.mechanism!r}. "
        if self.basis == "strict":
            claim = (
                f"The release is differentially private with ε = {self.epsilon:.4g} when one "
                f"record is added or removed, and with ε = {self.epsilon_substitution:.4g} when "
                "one record's confidential values are changed (δ = 0). "
            )
        elif math.isfinite(self.epsilon):
            claim = (
                f"The target is ε = {self.epsilon:.4g} (one record added or removed; "
                f"{self.epsilon_substitution:.4g} for one record changed). It is met "
                "asymptotically as the number of records grows; for a finite number of records no "
                "ε is guaranteed. "
            )
        else:
            claim = (
                "The guarantee is asymptotic as the number of records grows; for a finite number "
                "of records no ε is guaranteed, and the ε found on these records is confidential. "
            )
        return opening + claim + "This assumes that " + "; that ".join(self.assumptions) + "."
