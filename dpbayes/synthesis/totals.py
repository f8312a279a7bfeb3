"""Find the largest ε per data set that keeps all data sets within a total budget."""

from __future__ import annotations

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.base import F_co
from dpbayes.privacy.accounting import largest_epsilon, stated
from dpbayes.privacy.guarantee import EPSILONS, check_epsilon
from dpbayes.synthesis.synthesizer import Synthesizer, require_synthesizer


def for_total(
    synthesizer: Synthesizer[F_co], total: float, datasets: int = 1, delta: float | None = None
) -> Synthesizer[F_co]:
    """Copy the synthesizer with the largest ε at which m data sets together cost ``total``.

    It searches by the claim itself, so that it holds for any composition: sums, zCDP at a δ, and
    costs that are paid once.

    Args:
        synthesizer: the synthesizer; its mechanism's own ε is not used.
        total: ε of all m data sets together, for the mechanism's adjacency.
        datasets: number of data sets, m.
        delta: δ at which the total is stated, as in ``Fit.sample``.
    Raises:
        GuaranteeError: the mechanism has no ε, or the total is too small for m data sets.

    Examples:
        >>> import dpbayes as dpb
        >>> smoker = dpb.Column("smoker", "binary", levels=("no", "yes"))
        >>> schema = dpb.Schema({"smoker": smoker}, rows="public")
        >>> synthesizer = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1))
        >>> dpb.for_total(synthesizer, total=1, datasets=4).mechanism.epsilon
        0.25
    """
    require_synthesizer(synthesizer)
    check_epsilon(total)
    mechanism = synthesizer.mechanism
    if not mechanism.takes("epsilon"):
        raise GuaranteeError(f"mechanism {mechanism.name!r} has no ε to fit into a total.")

    def at(epsilon: float) -> Synthesizer[F_co]:
        return synthesizer.with_mechanism(mechanism.with_epsilon(epsilon))

    def cost(epsilon: float) -> float:
        return at(epsilon).guarantee().for_datasets(datasets, delta).asked

    # A noisy number of rows takes a share, and the rest must still be a valid ε.
    least = EPSILONS[0] / (1 - synthesizer.schema.rows.share) * (1 + 1e-9)
    largest, needed = largest_epsilon(cost, total, least, total)
    if largest is None:
        raise GuaranteeError(
            f"a total of ε = {stated(total)} is too little for {datasets} data sets by "
            f"{mechanism.name!r}, of which each needs {stated(needed)} at least. Ask for fewer "
            "data sets or more ε, or give a `delta`."
        )
    return at(largest)
