"""Perturbed multiple imputation: each column from a regression on all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.pegs.blocks import Conditionals
from dpbayes.mechanisms.pegs.cost import Kind
from dpbayes.mechanisms.pegs.gibbs import FittedGibbs, Gibbs
from dpbayes.mechanisms.pegs.keys import KeyLayout
from dpbayes.mechanisms.pegs.regressions import Regressed, fit_regressions
from dpbayes.privacy.guarantee import inside
from dpbayes.privacy.noise import Noise

MOST_COEFFICIENTS = 1_000_000  # coefficients in the regression of one column


@dataclass(frozen=True)
class PerturbedImputation(Gibbs):
    """Perturbed multiple imputation by multinomial logistic regressions with a public ridge.

    The paper uses an elastic net that is tuned by cross-validation.

    Source: park-ghosh-2014, table 1; section 3.5.

    Sensitivity: log(1 + 1/α) for a step, for any two data sets: (g + α)/(1 + Cα) lies between
    α/(1 + Cα) and (1 + α)/(1 + Cα) for any records. No bound on the effect of one record on the
    coefficients is needed.

    Guarantee: strict, M w for each synthetic record, for both adjacencies, and for any number of
    records that change together.

    Attributes:
        penalty: ridge penalty of squared coefficients; public.
        all others: as in ``Gibbs``.

    Examples:
        >>> import dpbayes as dpb
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "fair", "good"))
        >>> schema = dpb.Schema({"health": health})
        >>> claim = dpb.PerturbedImputation(epsilon=1, penalty=2.0).claim(schema)
        >>> claim.basis, claim.epsilon, claim.epsilon_substitution
        ('strict', 1.0, 1.0)
    """

    penalty: float = 1.0
    name: ClassVar[str] = "pmi"
    summary: ClassVar[str] = "perturbed regressions of each column on the others; strict ε-DP"
    kind: ClassVar[Kind] = "any"
    both: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not inside(self.penalty, 0, 1e12):
            raise GuaranteeError(f"penalty = {self.penalty!r} must be a number above 0.")

    def check_layout(self, layout: KeyLayout) -> None:
        width = 1 + sum(layout.sizes)
        for i in layout.drawn:
            if (width - layout.sizes[i]) * layout.sizes[i] > MOST_COEFFICIENTS:
                raise GuaranteeError(
                    f"column {layout.names[i]!r}: its regression has more than the "
                    f"{MOST_COEFFICIENTS:,} coefficients that are held. Merge levels, or take pegs."
                )

    def conditionals(self, fitted: FittedGibbs, noise: Noise) -> Conditionals:
        assert fitted.plan is not None  # it has a claim
        if "coefficients" not in fitted.kept:
            coefficients = fit_regressions(fitted.layout, fitted.codes, self.penalty)
            fitted.kept["coefficients"] = coefficients
        return Regressed(fitted.layout, fitted.kept["coefficients"], fitted.plan.alpha)
