"""Public points, and the weights by which a private draw chooses one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import special, xr
from dpbayes.engines.draws import count_draws, one_draw

# Simulates confidential data of every ``stride``-th row, given a function that draws y_rep.
Outcomes = Callable[[Callable[[Mapping[str, Any]], NDArray[Any]], int], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Candidates:
    """K public points of the parameter space, with log densities of prior and proposal.

    Attributes:
        draws: the points as parameters, one chain of K draws.
        points: shape (K, d), the points in unconstrained coordinates of the public binding.
        log_prior, log_proposal: shape (K,), log densities there, each up to a constant.
        tempering: weight of a record in the stage that draws from them.
    """

    draws: xr.DataTree
    points: Floats = field(repr=False)
    log_prior: Vector = field(repr=False)
    log_proposal: Vector = field(repr=False)
    tempering: float

    @property
    def count(self) -> int:
        """Number of points, K."""
        return count_draws(self.draws)

    def point(self, index: int) -> xr.DataTree:
        """Return one of the points, as the anchor of the next stage."""
        return one_draw(self.draws, index)


@dataclass(frozen=True, eq=False)
class Choices:
    """Log weights of one private draw among candidates. Confidential, the points excepted.

    Attributes:
        candidates: the public points.
        log_weight: shape (K,), sum_i clip(...) + log prior - log proposal, less its maximum.
            An index with P(k) proportional to exp(log_weight[k]) is one private output, which
            costs the width of the stage's window.
    """

    candidates: Candidates
    log_weight: Vector = field(repr=False)

    @property
    def points(self) -> xr.DataTree:
        """The public points as parameters, one chain of K draws."""
        return self.candidates.draws

    @property
    def probability(self) -> Vector:
        """Probability of each point, shape (K,). Confidential."""
        return np.asarray(special.softmax(self.log_weight))

    @property
    def effective(self) -> float:
        """Effective number of candidates, 1 / sum of squared probabilities. Confidential."""
        return float(1 / np.sum(self.probability**2))


class CandidateSource(Protocol):
    """Chooses public points for a stage (``proposal.Proposer``).

    Attributes:
        count: number of points, K.
        dimension: number of parameters, d.
    """

    count: int
    dimension: int

    def candidates(
        self,
        tempering: float,
        anchor: xr.DataTree | None = None,
        before: Candidates | None = None,
        count: int | None = None,
    ) -> Candidates:
        """Choose the points of one stage, around an anchor that was paid for, if there is one."""
        ...
