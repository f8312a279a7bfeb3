"""Normal approximation of the posterior given a noisy sum of clipped scores. Public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import stats
from dpbayes.mechanisms.score.clipped import LARGEST, ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.simulated import Simulator, whitening

STEPS = 40  # most steps towards the mode
CLOSE = 0.02  # twice the predicted gain in log density, below which a step is the last
_TRIES = 8  # shorter steps to try if one does not gain
EDGE = 3.0  # sds beyond sqrt(d), the usual distance from a mode, that a posterior has
# Of the search for other modes: points along a direction, their largest distance as a power of two,
# arbitrary points, points to start from, steps from each; and log odds by the last and by all sums
# beyond which a mode does not count, the latter large as sums are less exact far from their point.
_ALONG, _FAR, _SCATTERED, _AGAIN, _FEW = 12, 6.0, 8, 3, 12
_RIVAL, _SPOKEN = 7.0, 20.0
_DOUBTED = 1e-3  # probability of a sum below which it does not fit a mode given a later sum
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
    h = np.clip(finite(slopes_along(there, point, score.directions)), -LARGEST, LARGEST)
    norm = np.linalg.norm(h, axis=1, keepdims=True)
    h = h * np.minimum(1.0, _LONGEST / np.maximum(norm, 1e-9))
    g = score.clipped(score.slopes(there))
    n, size = simulator.n, len(g)
    away, control = g - g.mean(axis=0), h - h.mean(axis=0)
    cross = control.T @ control
    ridge = _RIDGE * max(float(np.trace(cross)), 1e-300) / len(cross)
    slope = np.linalg.solve(cross + ridge * np.eye(len(cross)), control.T @ away)
    return ExpectedScores(
        n * (g - h @ slope).mean(axis=0), n * away.T @ h / size, n * away.T @ away / size
    )


def settle(simulator: Simulator, measured: NoisySum, start: Vector, steps: int = STEPS) -> Belief:
    """Find the posterior mode given a noisy sum, by damped Gauss-Newton steps, and its curvature.

    Args:
        simulator: simulates records of the model.
        measured: the noisy sum over all records.
        start: an unconstrained point.
        steps: most steps to take.
    """
    score = measured.score
    directions = score.directions
    noise = measured.sd**2 * np.eye(len(directions)) + unsure(simulator, measured)
    point, radius = start, 1.0
    current = expected(simulator, score, point)
    for _ in range(steps):
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


def best_of_modes(
    simulator: Simulator, sums: Sequence[NoisySum], found: Belief
) -> tuple[Belief, bool]:
    """Search for other modes, and return the best one and whether it is in doubt.

    Slopes of a likelihood with heavy tails grow and fall again with the distance, so that two
    points may give the same sum. Points along each direction of the last score, and arbitrary ones,
    are compared by all noisy sums; the best are where ``settle`` starts again. A mode is in doubt
    if another is nearly as good by the last sum, by which chains go, and earlier ones do not speak
    clearly against it; or if an earlier sum does not fit it.

    Args:
        simulator: simulates records of the model.
        sums: the noisy sums over all records, in order.
        found: the mode given the last sum, from the point at which it was taken.
    """
    *before, last = sums
    d, fixed = len(simulator.fixed), simulator.fixed
    lengths = 2.0 ** np.linspace(0, _FAR, max(3, _ALONG // d))
    ways = np.concatenate(
        [k * last.score.directions for length in lengths for k in (length, -length)]
    )
    points = np.concatenate([last.score.point + ways, simulator.scattered(_SCATTERED)])
    heights = np.array([log_posterior(simulator, sums, point) for point in points])
    order = np.argsort(-heights, kind="stable")[:_AGAIN]
    starts = points[order[np.isfinite(heights[order])]]
    modes = [found, *(settle(simulator, last, start, _FEW) for start in starts)]
    volumes = [np.linalg.slogdet(mode.root(fixed))[1] for mode in modes]
    by_all, by_last = (
        volumes + np.array([log_posterior(simulator, of, mode.point) for mode in modes])
        for of in (sums, [last])
    )
    place = int(np.argmax(by_all))
    best = modes[place]
    whitened = whitening(best.covariance[np.ix_(fixed, fixed)])
    away = np.stack([mode.point - best.point for mode in modes])[:, fixed]
    others = np.linalg.norm(away @ whitened.T, axis=1) > math.sqrt(d) + EDGE
    near = (by_last > by_last[place] - _RIVAL) & (by_all > by_all[place] - _SPOKEN)
    rivalled = bool((others & near).any())
    likely = float(stats.chi2.isf(_DOUBTED, d))
    return best, rivalled or any(misfit(simulator, one, best) > likely for one in before)


def log_posterior(simulator: Simulator, sums: Sequence[NoisySum], point: Vector) -> float:
    """Log density given noisy sums at a point, up to a constant; -inf if none can be simulated."""
    height = simulator.prior(point)[0]
    for measured in sums:
        try:
            gap, covariance, _ = _gap(simulator, measured, point)
        except EngineError:
            return -math.inf
        distance = float(gap @ np.linalg.solve(covariance, gap))
        height -= (distance + float(np.linalg.slogdet(covariance)[1])) / 2
    return height if math.isfinite(height) else -math.inf


def misfit(simulator: Simulator, measured: NoisySum, belief: Belief) -> float:
    """Squared distance of a noisy sum from what is expected, in sds: about chi-squared.

    It allows for what the belief leaves open of the parameters.
    """
    gap, covariance, change = _gap(simulator, measured, belief.point)
    fixed = simulator.fixed
    steps = np.linalg.inv(measured.score.directions[:, fixed])
    of_point = steps.T @ belief.covariance[np.ix_(fixed, fixed)] @ steps
    return float(gap @ np.linalg.solve(covariance + change @ of_point @ change.T, gap))


def _gap(simulator: Simulator, measured: NoisySum, point: Vector) -> tuple[Vector, Floats, Floats]:
    """A noisy sum less what is expected at a point, its covariance, and the change of the latter.

    The covariance is that of noise, of records, of their number and of simulated records.
    """
    there = expected(simulator, measured.score, point)
    covariance = (1 + simulator.n / simulator.size) * there.spread + unsure(simulator, measured)
    covariance = covariance + measured.sd**2 * np.eye(len(covariance))
    return measured.total - there.total, covariance, there.change


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
