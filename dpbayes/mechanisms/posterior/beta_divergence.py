"""A bounded robust score in place of the log-likelihood: an alternative to the clamp."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.forecast import DISTANCE, Forecast
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage, window_width
from dpbayes.mechanisms.posterior.weights import ConstantWeights
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import POSTERIOR, Adjacency, Guarantee, inside
from dpbayes.schema import Schema
from dpbayes.stan.model import Model

MOST_SUMMED = 1_000  # counts of one record: time and memory grow with counts times records


@dataclass(frozen=True)
class BetaDivergence(PosteriorMechanism):
    """One draw from exp(sum_i alpha s_i) with the beta-divergence score s (levels and counts).

    s_i = (p_i^b - 1) / b - (sum_c p_ic^(b+1) - 1) / (b + 1), b = beta - 1, lies in
    [-1/b, 1/(b+1)]: bounded by itself where a log-likelihood is not.

    The paper's bound for a density below B is 2 alpha B^b / b under substitution; here B = 1. The
    sum over c ends at a count's declared bound.

    Source: jewson-ghalebikesabi-holmes-2023; basu-1998.

    Guarantee: strict. alpha s_i lies in a window of width alpha (1/b + 1/(b+1)), which the program
    also enforces, so the argument of ``Censored`` holds. This charges substitution a little more
    than the paper, by a factor (2b+1)/(b+1), and covers add/remove, which the paper does not.

    Attributes:
        epsilon: the bound under ``adjacency``.
        beta: above 1; larger is more robust, nearer to 1 is nearer to the log-likelihood.
        adjacency: the neighbouring relation that epsilon is for; by default that which a release
            protects (``Guarantee.holds_for``).

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> model = dpb.Regression("smoker ~ 1", "bernoulli")
        >>> synthesizer = dpb.Synthesizer(schema, dpb.BetaDivergence(epsilon=2), model)
        >>> synthesizer.guarantee().lines()[0]
        'ε = 2 when one record is added or removed (δ = 0).'
    """

    epsilon: float
    beta: float = 1.5
    adjacency: Adjacency | None = None
    name: ClassVar[str] = "beta-divergence"
    summary: ClassVar[str] = "bounded robust score, tempered; levels and counts; strict ε-DP"

    def __post_init__(self) -> None:
        window_width(self.epsilon, self.neighbours)
        if not inside(self.beta, 1, math.inf):
            raise GuaranteeError(f"beta = {self.beta!r} must be a finite number above 1.")

    def _window(self) -> tuple[float, float, float]:
        """The weight alpha, and the lower and upper bounds of alpha s."""
        b = self.beta - 1
        lower, upper = -1 / b, 1 / (b + 1)
        alpha = min(1.0, window_width(self.epsilon, self.neighbours) / (upper - lower))
        return alpha, alpha * lower, alpha * upper

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        assert model is not None
        if not model.scored:
            raise GuaranteeError(
                "beta-divergence needs an outcome with levels or a count and a family of one part, "
                "whose probabilities have the public bound 1; a density has none. Use anchored."
            )
        for column in model.outcomes:
            if column.type == "count" and column.upper is not None and column.upper > MOST_SUMMED:
                raise SchemaError(
                    f"column {column.name!r}: beta-divergence sums over all counts up to upper = "
                    f"{int(column.upper):,} for each record, and takes up to {MOST_SUMMED:,}. Use "
                    "anchored."
                )

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Forecast without a distance, for which a bounded score has no bound.

        The count α n is an upper bound: a bounded score holds less information than a
        log-likelihood.
        """
        forecast = super().outlook(schema, rows, model)
        return replace(forecast, facts={k: v for k, v in forecast.facts.items() if k != DISTANCE})

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        alpha, lower, upper = self._window()
        # The program adds up the scores of all columns; divided by their number, the sum is a mean
        # and stays in the window.
        return (Stage(ConstantWeights(alpha / problem.columns), (lower, upper), self.beta - 1),)

    def guarantee(self) -> Guarantee:
        _, lower, upper = self._window()
        return Guarantee(
            self.name,
            Loss.bounded_range(upper - lower),
            "strict",
            POSTERIOR,
            "chain",
            adjacency=self.neighbours,
        )
