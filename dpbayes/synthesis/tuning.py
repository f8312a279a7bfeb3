"""Choose scaling and shift of risk weights on reference data, for use on later records."""

from __future__ import annotations

from typing import Any

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import Unweighted, Weighted
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.risk import largest_scaling
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import check_epsilon
from dpbayes.synthesis.synthesizer import Synthesizer, reference_fit

STEPS = 8  # refits
FACTOR = 2.0  # of the planned bound, until the target lies between two of them


def tune(synthesizer: Synthesizer[Any], records: pd.DataFrame, target_epsilon: float) -> Reference:
    """The pair (c1, c2) that keeps most weight while the weighted fit has 2Δ <= target_epsilon.

    For a planned bound on alpha_i f_i, f_i from the unweighted fit, the pair with the largest
    sum of weights is known (``risk.largest_scaling``). A refit moves f_i, so the plan is found by
    bisection with a refit at each step. Pair and reference fit then serve later periods.

    Source: hu-williams-savitsky, section 4.5.

    Args:
        synthesizer: schema, formula and family of the later use; its mechanism is not used.
        records: public records, such as those of an earlier period.
        target_epsilon: for the local ε_x = 2Δ on the reference records.
    Raises:
        GuaranteeError: no weights tried meet the target.
    """
    check_epsilon(target_epsilon)
    task = synthesizer.with_mechanism(Unweighted()).task(records)
    on = task.shared(BoundRecords)
    reference = reference_fit(on)

    def try_plan(bound: float) -> tuple[float, Reference]:
        tried = reference.with_scaling(
            *largest_scaling(on.kinds.each_record(on.sensitivity()), bound)
        )
        return Weighted(tried).fit(task).epsilon_local, tried

    best: tuple[float, Reference] | None = None
    low, high = 0.0, float("inf")  # plans that meet the target and that do not
    plan = target_epsilon / 2
    for _ in range(STEPS):
        found = try_plan(plan)
        if found[0] <= target_epsilon:
            low, best = plan, found
            if (best[1].c1, best[1].c2) == (0.0, 1.0):
                break  # all weights are 1
        else:
            high = plan
        plan = (low + high) / 2 if low and high < float("inf") else (low * FACTOR or high / FACTOR)
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
