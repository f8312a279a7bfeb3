"""Posterior of a normal mean from a release that was drawn from a tempered posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.errors import InferenceError
from dpbayes.core.lazy import stats


@dataclass(frozen=True)
class NormalPosterior:
    """Normal posterior of a mean.

    Attributes:
        mean, sd: mean and standard deviation of the posterior.
    """

    mean: float
    sd: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Central credible interval with probability ``level``."""
        if not 0 < level < 1:
            raise InferenceError(f"level = {level!r} must lie in (0, 1), for example 0.95.")
        half = float(stats.norm.ppf((1 + level) / 2)) * self.sd
        return self.mean - half, self.mean + half


def from_normal_draws(
    released: ArrayLike,
    n: int,
    sigma: float,
    *,
    size: int | None = None,
    weight: float = 1.0,
    synthesis_prior: tuple[float, float] = (0.0, math.inf),
    prior: tuple[float, float] = (0.0, math.inf),
) -> NormalPosterior:
    """Posterior of a normal mean θ from m draws, or m data sets, of a tempered posterior.

    x_i ~ Normal(θ, sigma) for n confidential records; each θ_j is drawn from the posterior with
    record weight ``weight`` and the synthesizer's normal prior; a data set is ``size`` records of
    Normal(θ_j, sigma). All θ_j share the records, which are integrated out. This is the clamped
    posterior where no term is clamped, as an anchored clamp is meant to be.

    Args:
        released: the draws θ_j (m known draws), or the means of m data sets if ``size`` is given.
        n: number of confidential records.
        sigma: known sd of a record.
        size: records of each data set; None if ``released`` are the draws themselves.
        weight: power by which the synthesizer tempers each record's likelihood.
        synthesis_prior, prior: means and sds of the synthesizer's and the analyst's prior; an
            infinite sd is a flat prior.
    """
    values = np.asarray(released, dtype=float).ravel()
    if not values.size or not np.isfinite(values).all():
        raise InferenceError("released: expected one finite number per draw or data set.")
    for name, number in (("n", n), ("sigma", sigma), ("weight", weight), ("size", size or 1)):
        if not 0 < number < math.inf:
            raise InferenceError(f"{name} = {number!r} must be a finite number above 0.")
    for name, (_, sd) in (("synthesis_prior", synthesis_prior), ("prior", prior)):
        if not sd > 0:
            raise InferenceError(f"{name}: its sd must be above 0, not {sd!r}.")
    # θ_j | mean of x ~ Normal(start + slope mean, spread)
    spread = 1 / (weight * n / sigma**2 + 1 / synthesis_prior[1] ** 2)
    slope = spread * weight * n / sigma**2
    start = spread * synthesis_prior[0] / synthesis_prior[1] ** 2
    released_variance = spread + (sigma**2 / size if size else 0.0)
    # mean of the released | θ ~ Normal(start + slope θ, variance)
    variance = slope**2 * sigma**2 / n + released_variance / values.size
    precision = slope**2 / variance + 1 / prior[1] ** 2
    mean = (slope * (values.mean() - start) / variance + prior[0] / prior[1] ** 2) / precision
    return NormalPosterior(float(mean), float(precision**-0.5))
