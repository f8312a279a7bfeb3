"""Where the parameters lie given a noisy sum of clipped scores. Public: nothing else enters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError
from dpbayes.mechanisms.score.clipped import ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.simulated import Simulator

STEPS = 40  # towards a mode, at most
CLOSE = 0.02  # twice the gain in log density that a step promises, from which it is the last
_TRIES = 8  # shorter steps
_LONGEST = 50.0  # slope of a simulated record that regressions see
_DAMPED = -8.0, 8.0  # powers of ten


@dataclass(frozen=True, eq=False)
class NoisySum:
    """A sum of clipped scores with noise. Public.

    Attributes:
        score: of a record.
        total: shape (d,).
        sd: of the noise in each entry.
        scale: b, where the noise has density proportional to exp(-length / b); 0 where it is
            normal.
    """

    score: ClippedScore
    total: Vector
    sd: float
    scale: float


class ExpectedScores(NamedTuple):
    """What the model expects at a point.

    Attributes:
        total: of the sum, without noise, shape (d,).
        change: of that for a step of 1 along each direction, shape (d, d).
        spread: covariance of the sum, without noise.
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


def expected(simulator: Simulator, score: ClippedScore, point: Vector) -> ExpectedScores:
    """By simulated records; slopes at the point itself, whose mean is 0, make the mean more exact.

    Raises:
        EngineError: the program draws no records there.
    """
    there = simulator.records(point[None]).bound
    h = finite(slopes_along(there, point, score.directions))
    norm = np.linalg.norm(h, axis=1, keepdims=True)
    h = h * np.minimum(1.0, _LONGEST / np.maximum(norm, 1e-9))
    g = score.clipped(score.slopes(there))
    rows, size = simulator.rows, len(g)
    slope = np.linalg.lstsq(h, g, rcond=None)[0]
    away = g - g.mean(axis=0)
    return ExpectedScores(
        rows * (g - h @ slope).mean(axis=0), rows * away.T @ h / size, rows * away.T @ away / size
    )


def settle(simulator: Simulator, measured: NoisySum, start: Vector) -> Belief:
    """The mode of the posterior given a noisy sum, by damped Gauss-Newton steps, and the curvature.

    Args:
        start: an unconstrained point.
    """
    score = measured.score
    directions = score.directions
    noise = measured.sd**2 * np.eye(len(directions))
    point, radius = start, 1.0
    seen = expected(simulator, score, point)
    for _ in range(STEPS):
        precision = np.linalg.inv(seen.spread + noise)
        off = measured.total - seen.total
        height, slope = simulator.prior(point)
        curve = seen.change.T @ precision @ seen.change + simulator.curvature(point, directions)
        uphill = seen.change.T @ precision @ off + directions @ slope
        before = height - float(off @ precision @ off) / 2
        taken = None
        for _ in range(_TRIES):
            step = _step(curve, uphill, radius)
            there = point + step @ directions
            try:
                found = expected(simulator, score, there)
            except EngineError:
                after = -math.inf
            else:
                off = measured.total - found.total
                after = simulator.prior(there)[0] - float(off @ precision @ off) / 2
            if after > before - 1e-9:
                taken = found
                break
            radius = float(np.abs(step).max()) / 4
        if taken is None:
            break
        point, seen = there, taken
        radius = max(radius, 2 * float(np.abs(step).max()))
        if step @ curve @ step < CLOSE:
            break
    precision = np.linalg.inv(seen.spread + noise)
    curve = seen.change.T @ precision @ seen.change + simulator.curvature(point, directions)
    return Belief(point, directions.T @ np.linalg.solve(curve, directions))


def _step(curve: Floats, uphill: Vector, radius: float) -> Vector:
    """To the top of a quadratic, or damped (Levenberg-Marquardt) to stay inside a radius."""
    step = np.linalg.solve(curve, uphill)
    low, high = _DAMPED
    if np.abs(step).max() <= radius:
        return np.asarray(step)
    for _ in range(40):
        middle = (low + high) / 2
        step = np.linalg.solve(curve + 10**middle * np.diag(np.diag(curve)), uphill)
        low, high = (middle, high) if np.abs(step).max() > radius else (low, middle)
    return np.asarray(step)
