"""Beta-binomial counts of Charest 2011, vectorised over replicates; not for release."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.mechanisms import BetaBinomial

N = 100  # confidential records, and records of a synthetic set


def noise(epsilon: float, datasets: int) -> float:
    """Prior parameter α for one of M data sets; above 0 so that it is valid for large ε."""
    return max(BetaBinomial.least_alpha(epsilon / datasets, N), 1e-12)


def synthesize(x: NDArray[Any], epsilon: float, datasets: int, rng: np.random.Generator) -> Floats:
    """Draw synthetic counts of ones, shape (..., M), for confidential counts x, shape (...)."""
    alpha = noise(epsilon, datasets)
    shape = (*np.shape(x), datasets)
    ones = np.asarray(x)[..., None]
    return rng.binomial(N, rng.beta(alpha + ones, alpha + N - ones, shape)).astype(float)
