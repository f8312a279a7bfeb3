"""Modes of ridge logistic regressions, and their sensitivity to one record."""

from __future__ import annotations

import math

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import DataError
from dpbayes.core.lazy import special
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.statistic import Change

GRADIENT = 1e-3  # largest gradient norm at a mode; adds a thousandth to the sensitivity
AIM = 1e-8  # gradient norm at which the search ends
NEWTON_STEPS = 1000
BLOCK = 4096  # records whose products are summed at once
ULP = 2.0**-52


def fit_logistic(x: Floats, y: Ints, classes: int, ridge: float) -> Floats:
    """Mode of a ridge (multinomial) logistic regression: min sum_i loss_i + ridge / 2 |B|^2.

    Two classes have one row of coefficients, more have one row each. The gradient's norm, rounding
    included (``_rounding``), is at most ``GRADIENT``, so that |B - mode| <= GRADIENT / ridge,
    because the objective's curvature is at least ``ridge``. The search converges for every table:
    a Newton step s shortens the gradient g, as g(B - t s) = (1 - t) g + O(t^2), so that steps that
    are halved until they do so lead to the mode from anywhere. Floating point suffices for 10^8
    records.

    Source: bowen-liu-2020, eq. 4.1; eq. 4.2; eq. 4.3.

    Args:
        x: shape (n, d), rows of norm at most 1.
    Returns:
        B, shape (1 or classes, d).
    """
    rows = 1 if classes == 2 else classes
    hot = (y[:, None] == (np.arange(classes) if rows > 1 else [1])).astype(float)
    b = np.zeros((rows, x.shape[1]))
    gradient, p = _gradient(x, hot, b, ridge)
    length = np.linalg.norm(gradient)
    for _ in range(NEWTON_STEPS):
        step = np.linalg.solve(_hessian(x, p, ridge), gradient.ravel()).reshape(b.shape)
        size, before = 1.0, length
        while True:
            gradient, p = _gradient(x, hot, b - size * step, ridge)
            length = np.linalg.norm(gradient)
            if length <= (1 - size / 4) * before:
                break
            size /= 2
        b = b - size * step
        near = length + _rounding(x, b, classes, ridge) <= GRADIENT
        if near and (length <= AIM or size < 1e-6):  # as near as floating point allows
            return b
    raise DataError("a regression did not converge to the accuracy that its noise is scaled for.")


def _gradient(x: Floats, hot: Floats, b: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Gradient of the objective, and probabilities of the classes that have coefficients."""
    p = probabilities(x @ b.T)[:, -len(b) :]
    away, gradient = p - hot, ridge * b
    for i in range(0, len(x), BLOCK):
        gradient += away[i : i + BLOCK].T @ x[i : i + BLOCK]
    return gradient, p


def _rounding(x: Floats, b: Floats, classes: int, ridge: float) -> float:
    """Bound on the rounding error of a computed gradient, in the Euclidean norm.

    It holds for rows of x with norm at most 1 and u = ULP / 2, to first order, times two as margin.
    Linear predictors are off by d u |b|, and the probabilities of a record, which change by no more
    than these, by (classes + 5) u besides; their sums over records, in blocks, by (BLOCK + number
    of blocks) u sqrt 2 per record (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    section 3.1).
    """
    n, d = x.shape
    size = float(np.linalg.norm(b))
    per_record = d * size + classes + 6 + 1.5 * (BLOCK + n / BLOCK)
    return float(ULP * (n * per_record + 2 * ridge * size))


def coefficient_change(
    shape: tuple[int, ...], classes: int, ridge: float
) -> dict[Adjacency, Change]:
    """Sensitivity of the mode of ``fit_logistic``.

    A record's gradient (p - y) x has norm below |x| <= 1, with more than two classes below sqrt 2
    because |p - y| is. The objective is strongly convex with modulus ``ridge``, so one record less
    moves the mode by less than that over ridge, and a changed one by twice as much, for any number
    of records: the ridge is a public number, λ times the public number of rows. What was computed
    is within GRADIENT / ridge of the mode, for both neighbours. All of this is in the L2 norm; in
    L1 it is at most sqrt(dimension) times as much.

    Source: chaudhuri-monteleoni-2009.
    """
    reach = 1.0 if classes == 2 else math.sqrt(2)
    root = math.sqrt(math.prod(shape))
    added, changed = ((k * reach + 2 * GRADIENT) / ridge for k in (1, 2))
    return {
        "add-remove": Change(root * added, norm=added),
        "substitution": Change(root * changed, norm=changed),
    }


def probabilities(eta: Floats) -> Floats:
    """Softmax of the rows' linear predictors, (0, eta) for two classes: shape (n, classes)."""
    logits = eta if eta.shape[1] > 1 else np.hstack([np.zeros_like(eta), eta])
    return np.asarray(special.softmax(logits, axis=1))


def _hessian(x: Floats, p: Floats, ridge: float) -> Floats:
    """Hessian of the objective in all coefficients, row after row."""
    rows, d = p.shape[1], x.shape[1]
    hessian = np.empty((rows, d, rows, d))
    for r in range(rows):
        for c in range(rows):
            weight = p[:, r] * ((r == c) - p[:, c])
            hessian[r, :, c, :] = (x * weight[:, None]).T @ x
    return hessian.reshape(rows * d, rows * d) + ridge * np.eye(rows * d)
