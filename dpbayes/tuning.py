"""Choose the scaling of risk weights on reference data, for use on later records."""

from __future__ import annotations

import pandas as pd

from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms import Weighted
from dpbayes.privacy.guarantee import check_epsilon
from dpbayes.synthesizer import Synthesizer
from dpbayes.weights import Reference

STEPS = 8  # bisections of c1: to about 1 part in 250 of the bracket
LARGEST_C1 = 8.0  # beyond, nearly all weights are 0 or 1


def tune(
    synthesizer: Synthesizer, records: pd.DataFrame, target_epsilon: float, c2: float = 0.0
) -> Reference:
    """The largest c1 found whose weighted fit to reference records has 2Δ <= target_epsilon.

    Bisection on c1 with a refit at each step. The pair (c1, c2) and the reference fit then serve
    later periods (Hu, Williams & Savitsky, sections 4.4-4.5).

    Args:
        synthesizer: schema, formula and family of the later use; its mechanism is not used.
        records: public or historical records, paid for elsewhere.
        target_epsilon: for the local ε_x = 2Δ on the reference records.
        c2: shift of the weights, kept fixed.
    Raises:
        GuaranteeError: not even c1 = 0 meets the target.
    """
    check_epsilon(target_epsilon)
    reference = synthesizer.reference(records)

    def local_epsilon(c1: float) -> float:
        weights = reference.with_scaling(c1, c2)
        return synthesizer.with_mechanism(Weighted(weights)).fit(records).epsilon_local

    least = 2 * min(1.0, c2) * reference.high if c2 > 0 else 0.0
    if least and (least := local_epsilon(0.0)) > target_epsilon:
        raise GuaranteeError(
            f"with c2 = {c2:g} the local ε is {least:.3g} even at c1 = 0; lower c2 below "
            f"{c2 * target_epsilon / least:.2g}, or raise the target of {target_epsilon:g}."
        )
    low, reached, high = 0.0, least, LARGEST_C1
    for _ in range(STEPS):
        middle = 1.0 if high == LARGEST_C1 and low == 0.0 else (low + high) / 2
        found = local_epsilon(middle)
        if found <= target_epsilon:
            low, reached = middle, found
        else:
            high = middle
    if low == 0.0 and c2 == 0.0:
        raise GuaranteeError(
            f"no c1 above {high:.2g} meets the target ε = {target_epsilon:g}: the weights would "
            "have to remove nearly everything. Raise the target."
        )
    return reference.with_scaling(
        low, c2, {"target_epsilon": target_epsilon, "local_epsilon": reached, "n": len(records)}
    )
