"""Tune scaling and shift of risk weights on reference data, for use on later records."""

from __future__ import annotations

from typing import Any

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import Weighted
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.risk import largest_scaling
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import check_epsilon
from dpbayes.synthesis.synthesizer import Synthesizer, reference_fit, require_synthesizer

STEPS = 8  # most refits
FACTOR = 2.0  # by which the planned bound changes until the target lies between two of them


def tune(synthesizer: Synthesizer[Any], records: pd.DataFrame, target_epsilon: float) -> Reference:
    """Find the (c1, c2) with the largest weights whose weighted fit has 2Δ <= target_epsilon.

    For a planned bound on alpha_i f_i, f_i from the unweighted fit, ``risk.largest_scaling`` gives
    the pair with the largest sum of weights. A refit changes f_i, so the planned bound is found by
    bisection with a refit at each step. Pair and reference fit can then be used in later periods.

    Source: hu-williams-savitsky, section 4.5.

    Args:
        synthesizer: has the schema, formula and family of the later use; its mechanism is not used.
        records: public records, such as those of an earlier period.
        target_epsilon: upper bound on the local ε_x = 2Δ on the reference records.
    Raises:
        GuaranteeError: none of the weights tried meet the target.
    """
    require_synthesizer(synthesizer)
    check_epsilon(target_epsilon)
    task = synthesizer.plain.task(records)
    bound_records = task.shared(BoundRecords)
    reference = reference_fit(bound_records)

    def try_plan(bound: float) -> tuple[float, Reference]:
        scaled = reference.with_scaling(
            *largest_scaling(bound_records.kinds.each_record(bound_records.sensitivity()), bound)
        )
        return Weighted(scaled).fit(task).epsilon_local, scaled

    best: tuple[float, Reference] | None = None
    low, high = 0.0, float("inf")  # plans that meet the target and that do not
    planned_bound = target_epsilon / 2
    for _ in range(STEPS):
        result = try_plan(planned_bound)
        if result[0] <= target_epsilon:
            low, best = planned_bound, result
            if (best[1].c1, best[1].c2) == (0.0, 1.0):
                break  # all weights are 1
        else:
            high = planned_bound
        planned_bound = (
            (low + high) / 2 if low and high < float("inf") else (low * FACTOR or high / FACTOR)
        )
    if best is None:
        raise GuaranteeError(
            f"no weights meet the target ε = {stated(target_epsilon)}, down to a planned bound of "
            f"{high:.2g}: they would have to remove nearly everything. Raise the target."
        )
    reached, chosen = best
    return chosen.with_scaling(
        chosen.c1,
        chosen.c2,
        {"target_epsilon": target_epsilon, "local_epsilon": reached, "n": len(records)},
    )
