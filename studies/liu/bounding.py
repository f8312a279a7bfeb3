"""What Liu's examples do with values out of bounds: sanitised statistics, and synthetic records.

``bit`` moves them to the boundary; ``truncate`` draws again. Drawing a statistic again at the scale
of the Laplace mechanism is not free, as the paper has it (``Statistic.sanitised``): its own
accounting stands beside ours, which raises the scale. Records follow from what is paid for: there
both are free.
"""

from __future__ import annotations

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import special
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import OutOfRange, Statistic, scale_for

NOT_PRIVATE = "truncate, paper's accounting (not private)"
BOUNDING = ("bit", "truncate", NOT_PRIVATE)
BOUNDS = {"-4, 4": (-4.0, 4.0), "-4, 5": (-4.0, 5.0)}


def sanitised(statistic: Statistic, epsilon: float, how: str, noise: StudyNoise) -> Floats:
    """With Laplace noise for a changed record, which is what the paper's sensitivities are for.

    Source: liu-2016, section 5.1.
    """
    if how != NOT_PRIVATE:
        out_of_range: OutOfRange = "bit" if how == "bit" else "truncate"
        return statistic.sanitised(epsilon, "substitution", noise, out_of_range)
    scale = scale_for(statistic.change["substitution"].l1, epsilon)
    inside = np.clip(statistic.value, statistic.lower, statistic.upper)
    found = np.array(noise.counts(inside, scale))
    while (outside := (found < statistic.lower) | (found > statistic.upper)).any():
        found[outside] = noise.counts(inside[outside], scale)
    return np.asarray(statistic.origin + statistic.unit * found)


def bounded(
    mu: Floats, sd: Floats, n: int, ends: tuple[float, float], how: str, rng: np.random.Generator
) -> Floats:
    """n normal records for each mean and sd, inside the bounds, shape (..., n)."""
    shape = (*mu.shape, n)
    if how == "bit":
        return np.asarray(np.clip(rng.normal(mu[..., None], sd[..., None], shape), *ends))
    low, high = (special.ndtr((end - mu) / sd)[..., None] for end in ends)
    drawn = special.ndtri(low + (high - low) * rng.random(shape))
    return np.asarray(np.clip(mu[..., None] + sd[..., None] * drawn, *ends))
