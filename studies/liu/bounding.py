"""Treatment of values out of bounds in Liu's examples: sanitised statistics, synthetic records.

``bit`` moves them to the boundary; ``truncate`` draws again. Drawing a statistic again at the scale
of the Laplace mechanism costs privacy, contrary to the paper (``Statistic.sanitised``): we run its
accounting, and ours, which raises the scale. Synthetic records are computed from released values,
so that both treatments are free for them.
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
    """Add Laplace noise for a changed record, the adjacency of the paper's sensitivities.

    Source: liu-2016, section 5.1.
    """
    if how != NOT_PRIVATE:
        out_of_range: OutOfRange = "bit" if how == "bit" else "truncate"
        return statistic.sanitised(epsilon, "substitution", noise, out_of_range)
    scale = scale_for(statistic.change["substitution"].l1, epsilon)
    inside = np.clip(statistic.value, statistic.lower, statistic.upper)
    noisy = np.array(noise.counts(inside, scale))
    while (outside := (noisy < statistic.lower) | (noisy > statistic.upper)).any():
        noisy[outside] = noise.counts(inside[outside], scale)
    return np.asarray(statistic.origin + statistic.unit * noisy)


def bounded(
    mu: Floats, sd: Floats, n: int, ends: tuple[float, float], how: str, rng: np.random.Generator
) -> Floats:
    """Draw n normal records within the bounds for each mean and sd, shape (..., n)."""
    shape = (*mu.shape, n)
    if how == "bit":
        return np.asarray(np.clip(rng.normal(mu[..., None], sd[..., None], shape), *ends))
    low, high = (special.ndtr((end - mu) / sd)[..., None] for end in ends)
    drawn = special.ndtri(low + (high - low) * rng.random(shape))
    return np.asarray(np.clip(mu[..., None] + sd[..., None] * drawn, *ends))
