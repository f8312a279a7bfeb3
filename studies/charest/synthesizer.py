"""The beta-binomial counts of Charest 2011, as many at once as a study needs; not for release."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.mechanisms import BetaBinomial

N = 100  # confidential records, and records of a synthetic set


def noise(epsilon: float, datasets: int) -> float:
    """α of one of M data sets; at large ε it is as good as 0."""
    return max(BetaBinomial.least_alpha(epsilon / datasets, N), 1e-12)


def synthesize(x: NDArray[Any], epsilon: float, datasets: int, rng: np.random.Generator) -> Floats:
    """Synthetic counts of ones, shape (..., M), for confidential counts x of shape (...)."""
    alpha = noise(epsilon, datasets)
    shape = (*np.shape(x), datasets)
    ones = np.asarray(x)[..., None]
    return rng.binomial(N, rng.beta(alpha + ones, alpha + N - ones, shape)).astype(float)
