"""Base class of the mechanisms that draw from posteriors of a Stan program."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.engines.base import SamplerSettings
from dpbayes.mechanisms.base import Mechanism, Task
from dpbayes.mechanisms.forecast import Forecast, ForecastWarning, of_posterior
from dpbayes.mechanisms.posterior.fit import PosteriorFit, fit_stages, prepare_stages
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage
from dpbayes.mechanisms.posterior.starts import SEVERAL
from dpbayes.mechanisms.posterior.weights import ConstantWeights
from dpbayes.privacy.guarantee import SURVEY, Guarantee
from dpbayes.schema import Schema
from dpbayes.stan.model import ColumnModel, Model

NARROW_COUNTS = ForecastWarning(
    "Counts between bounds this wide, by a family without dispersion: all records are clamped but "
    "where parameters are within a few percent, and chains may never come there.",
    "Take mechanism score, a negative binomial family, or narrower bounds.",
)


def _narrow(column: ColumnModel) -> bool:
    """Whether a column has a family without dispersion for a count of many values."""
    family, wide = column.family, PublicFacts.of(column, 1).wide
    return wide and family is not None and "phi" not in family.priors


class PosteriorMechanism(Mechanism[PosteriorFit]):
    """A mechanism that samples a sequence of posteriors; it needs a model.

    Examples:
        >>> import dpbayes as dpb
        >>> mechanism = dpb.get_mechanism("anchored", epsilon=5)
        >>> isinstance(mechanism, dpb.PosteriorMechanism), mechanism.guarantee().draw
        (True, 'chain')
    """

    draws_posterior: ClassVar[bool] = True
    weighs: ClassVar[bool] = True

    @abstractmethod
    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        """The posteriors to sample, in order.

        Data sets are drawn from the last one; of the earlier ones a single draw is used, to anchor
        the next.
        """

    def claim(self, schema: Schema) -> Guarantee:
        claim = self.guarantee()
        return claim if schema.survey is None else claim.assuming(SURVEY)

    def anchor_needs(self, problem: PublicFacts) -> float:
        """Number of records per parameter from which a drawn anchor is near enough; 0 if none."""
        return 0.0

    def check(self, schema: Schema, model: Model | None) -> None:
        model = self.given(model)
        if self.guarantee().basis != "strict":
            return
        for column in model.outcomes:
            if column.type == "count" and column.upper is None:
                raise SchemaError(
                    f"column {column.name!r}: mechanism {self.name!r} is strict for every table "
                    "of a declared domain; add upper = ... (from documentation, never from the "
                    "confidential data)."
                )

    def check_datasets(self, datasets: int, settings: SamplerSettings) -> None:
        most = settings.chains * settings.draws
        if datasets > most:
            raise GuaranteeError(
                f"datasets = {datasets} is more than the {most} posterior draws; raise draws."
            )

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        assert model is not None  # check
        problem = PublicFacts.of(model, rows, schema.survey)
        stage = self.stages(problem)[-1]
        forecast = Forecast()
        if isinstance(stage.weights, ConstantWeights):  # other weights depend on records
            epsilon = getattr(self, "epsilon", None)
            forecast = of_posterior(
                problem.rows,
                problem.parameters,
                stage.weights.alpha,
                problem.columns,
                epsilon,
                anchor=self.anchor_needs(problem),
            )
        if math.isfinite(stage.window[0]) and any(map(_narrow, model.columns)):
            forecast = replace(forecast, cautions=(*forecast.cautions, NARROW_COUNTS))
        if model.several_modes:
            forecast = replace(forecast, cautions=(*forecast.cautions, SEVERAL))
        return forecast

    def rehearse(self, task: Task) -> None:
        prepare_stages(task, self.stages)

    def fit(self, task: Task) -> PosteriorFit:
        return fit_stages(task, self.name, self.stages)
