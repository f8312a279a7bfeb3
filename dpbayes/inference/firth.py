"""Firth's bias-reduced logistic regression, for many data sets of one shape at a time.

The penalty is Jeffreys' prior: the log-likelihood plus half the log determinant of the information
X'WX is maximised. If X has full rank the mode is finite, also where the maximum likelihood estimate
is not (separation, one class only). The R package logistf implements the same method.

Source: firth-1993; heinze-schemper-2002.
"""

from __future__ import annotations

import numpy as np

from dpbayes.core.arrays import Floats, Mask

AT_ONCE = 16  # data sets whose arrays fit into a processor's cache together
EVALUATIONS = 250  # nearly separated data need many
MOST = 5.0  # largest change of a coefficient in a step, as in logistf
ACCURACY = 1e-6  # largest step left, in standard errors
RANK = 1e-10  # smallest over largest eigenvalue of a design of full rank


def fit_firth(x: Floats, y: Mask, use: Floats | None = None) -> tuple[Floats, Floats]:
    """Compute modes and their asymptotic variances, the diagonal of (X'WX)^-1.

    Newton's method on the modified score, with X'W(1 + h)X, h the leverages, for its Jacobian; that
    is exact for saturated designs. Steps are halved until the penalised likelihood does not fall.

    Args:
        x: design matrices with an intercept, shape (S, n, d).
        y: outcomes, shape (S, n).
        use: 1 for records that enter and 0 for others, shape (S, n); None takes all.
    Returns:
        Coefficients and variances, shape (S, d); NaN if X lacks rank or no mode was found.
    """
    use = np.ones(y.shape) if use is None else use
    estimates = np.full((2, len(x), x.shape[2]), np.nan)
    for start in range(0, len(x), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        columns = np.ascontiguousarray(np.swapaxes(x[part], 1, 2))
        estimates[:, part] = _newton(columns, np.where(y[part], 1.0, -1.0), use[part])
    return estimates[0], estimates[1]


def _newton(x: Floats, sign: Floats, use: Floats) -> Floats:
    """Compute modes and variances, shape (2, S, d), for designs of shape (S, d, n)."""
    estimates = np.full((2, *x.shape[:2]), np.nan)
    spread = np.linalg.eigvalsh((x * use[:, None]) @ x.swapaxes(1, 2))
    active = np.flatnonzero(spread[:, 0] > RANK * spread[:, -1])
    x, sign, use = x[active], sign[active], use[active]
    b, size = np.zeros(x.shape[:2]), np.ones((len(active), 1))
    value, step, inverse = _evaluate(x, sign, use, b)
    for _ in range(EVALUATIONS):
        error = np.sqrt(np.maximum(np.einsum("sdd->sd", inverse), 0))
        converged = (np.abs(step) <= ACCURACY * error).all(axis=1)
        if converged.any():
            estimates[:, active[converged]] = b[converged], error[converged] ** 2
            keep = ~converged
            active, x, sign, use = active[keep], x[keep], sign[keep], use[keep]
            b, size, value, step, inverse = (
                a[keep] for a in (b, size, value, step, inverse)
            )  # fmt: skip
        if not len(active):
            break
        tried = b + size * step / np.maximum(1, np.abs(step).max(axis=1, keepdims=True) / MOST)
        new = _evaluate(x, sign, use, tried)
        rose = new[0] >= value - 1e-9 * np.abs(value)
        b[rose], value[rose] = tried[rose], new[0][rose]
        step[rose], inverse[rose] = new[1][rose], new[2][rose]
        size = np.where(rose[:, None], 1.0, size / 2)
    return estimates


def _evaluate(x: Floats, sign: Floats, use: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Penalised log-likelihood, Newton step and (X'WX)^-1 at coefficients of shape (S, d).

    The likelihood is -inf where X'WX is numerically singular, far from the mode.
    """
    margin = sign * (b[:, None] @ x)[:, 0]
    tail = np.exp(-np.abs(margin))
    missed = np.where(margin > 0, tail, 1.0) / (1 + tail)  # probability of the other outcome
    weight = use * tail / (1 + tail) ** 2
    information = (x * weight[:, None]) @ x.swapaxes(1, 2)
    positive, log_det = np.linalg.slogdet(information)
    bad = (positive <= 0) | ~np.isfinite(log_det)
    information[bad] = np.eye(b.shape[1])
    inverse = np.linalg.inv(information)
    leverage = weight * (x * (inverse @ x)).sum(axis=1)
    residual = sign * (use * missed + leverage * (missed - 0.5))  # y - p + h (1/2 - p)
    hessian = information + (x * (weight * leverage)[:, None]) @ x.swapaxes(1, 2)
    step = np.linalg.solve(hessian, x @ residual[..., None])[..., 0]
    log_likelihood = (use * (np.minimum(margin, 0) - np.log1p(tail))).sum(axis=1)
    return np.where(bad, -np.inf, log_likelihood + log_det / 2), step, inverse
