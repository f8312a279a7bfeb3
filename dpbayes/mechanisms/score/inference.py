"""Normal approximation of the posterior given a noisy sum of clipped scores. Public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.mechanisms.score.clipped import ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.simulated import Simulator, whitening

STEPS = 40  # most steps towards the mode
CLOSE = 0.02  # twice the predicted gain in log density, below which a step is the last
_TRIES = 8  # shorter steps to try if one does not gain
_RIDGE = 1e-3  # of the regression, for directions in which the prior alone says something
_LONGEST = 50.0  # simulated records' slopes are shortened to it before a regression
_DAMPED = -8.0, 8.0  # range of the damping, in powers of ten


@dataclass(frozen=True, eq=False)
class NoisySum:
    """A sum of clipped scores with noise. Public.

    Attributes:
        score: the clipped score of a record.
        total: the noisy sum, shape (d,).
        sd: standard deviation of the noise in each entry.
        scale: b, where the noise has density proportional to exp(-length / b); 0 where it is
            normal.
    """

    score: ClippedScore
    total: Vector
    sd: float
    scale: float


class ExpectedScores(NamedTuple):
    """Expected sum of scores under the model at a point.

    Attributes:
        total: expectation of the sum, without noise, shape (d,).
        change: its change for a step of 1 along each direction, shape (d, d).
        spread: covariance of the sum, without noise, shape (d, d).
    """

    total: Vector
    change: Floats
    spread: Floats


@dataclass(frozen=True, eq=False)
class Belief:
    """A normal approximation of the posterior.

    Attributes:
        point: the mode, unconstrained, shape (all,).
        covariance: shape (all, all).
    """

    point: Vector
    covariance: Floats

    def root(self, coordinates: Ints | slice = slice(None)) -> Floats:
        """Matrix R such that R R' is the covariance of some coordinates, up to rounding."""
        covariance = self.covariance[coordinates][:, coordinates]
        return np.asarray(np.linalg.inv(whitening(covariance)))


def expected(simulator: Simulator, score: ClippedScore, point: Vector) -> ExpectedScores:
    """Estimate the expected sum of scores at a point from simulated records.

    The slopes at the point itself have mean 0 and serve as control variates.

    Raises:
        EngineError: the program draws no records at the point.
    """
    there = simulator.records(point[None]).bound
    h = finite(slopes_along(there, point, score.directions))
    norm = np.linalg.norm(h, axis=1, keepdims=True)
    h = h * np.minimum(1.0, _LONGEST / np.maximum(norm, 1e-9))
    g = score.clipped(score.slopes(there))
    n, size = simulator.n, len(g)
    cross = h.T @ h
    ridge = _RIDGE * max(float(np.trace(cross)), 1e-300) / len(cross)
    slope = np.linalg.solve(cross + ridge * np.eye(len(cross)), h.T @ g)
    away = g - g.mean(axis=0)
    return ExpectedScores(
        n * (g - h @ slope).mean(axis=0), n * away.T @ h / size, n * away.T @ away / size
    )


def settle(simulator: Simulator, measured: NoisySum, start: Vector) -> Belief:
    """Find the posterior mode given a noisy sum, by damped Gauss-Newton steps, and its curvature.

    Args:
        simulator: simulates records of the model.
        measured: the noisy sum over all records.
        start: an unconstrained point.
    """
    score = measured.score
    directions = score.directions
    noise = measured.sd**2 * np.eye(len(directions)) + unsure(simulator, measured)
    point, radius = start, 1.0
    current = expected(simulator, score, point)
    for _ in range(STEPS):
        precision = np.linalg.inv(current.spread + noise)
        residual = measured.total - current.total
        height, slope = simulator.prior(point)
        of_prior = simulator.curvature(point, directions)
        curve = current.change.T @ precision @ current.change + of_prior
        sizes = np.sqrt(1 + np.diag(of_prior))
        uphill = current.change.T @ precision @ residual + directions @ slope
        before = height - float(residual @ precision @ residual) / 2
        accepted = None
        for _ in range(_TRIES):
            step = _step(curve, uphill, radius, sizes)
            there = point + step @ directions
            try:
                expected_there = expected(simulator, score, there)
            except EngineError:
                after = -math.inf
            else:
                residual = measured.total - expected_there.total
                after = simulator.prior(there)[0] - float(residual @ precision @ residual) / 2
            if after > before - 1e-9:
                accepted = expected_there
                break
            radius = float((sizes * np.abs(step)).max()) / 4
        if accepted is None:
            break
        point, current = there, accepted
        radius = max(radius, 2 * float((sizes * np.abs(step)).max()))
        if step @ curve @ step < CLOSE:
            break
    precision = np.linalg.inv(current.spread + noise)
    curve = current.change.T @ precision @ current.change + simulator.curvature(point, directions)
    return Belief(point, directions.T @ _solved(curve, directions))


def unsure(simulator: Simulator, measured: NoisySum) -> Floats:
    """Covariance of a sum from what is unknown of the number of records, shape (d, d).

    The expected sum is proportional to their number n: an error of n is one of total / n per
    record.
    """
    share = min(1.0, simulator.n_sd / simulator.n)  # first order, which says nothing beyond
    return share**2 * np.outer(measured.total, measured.total)


def _step(curve: Floats, uphill: Vector, radius: float, sizes: Vector) -> Vector:
    """Step to the maximum of a quadratic, damped (Levenberg-Marquardt) to stay in a radius."""
    step = _solved(curve, uphill)
    low, high = _DAMPED
    if (sizes * np.abs(step)).max() <= radius:
        return np.asarray(step)
    for _ in range(40):
        middle = (low + high) / 2
        step = _solved(curve + 10**middle * np.diag(np.diag(curve)), uphill)
        low, high = (middle, high) if (sizes * np.abs(step)).max() > radius else (low, middle)
    return np.asarray(step)


def _solved(curve: Floats, right: Floats) -> Floats:
    """Solve ``curve @ x = right`` for a curvature that may be singular up to rounding."""
    whitened = whitening(curve)  # its cross product W'W is the inverse of the curve
    return np.asarray(whitened.T @ (whitened @ right))
