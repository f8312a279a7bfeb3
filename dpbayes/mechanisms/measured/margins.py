"""Noisy counts of one column's levels, made into shares: reconciled, smoothed, drawn.

Everything here is computed from noisy counts and public facts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpbayes.arrays import Floats, Mask

# A smooth curve's length in levels and its sd, and the sd of what levels have of their own; sds
# next to the mean count.
_LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_CURVES = (0.0, 0.1, 0.3, 0.8, 1.6, 3.2)
_OWN = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
_USUAL = ((0.4, 0.05), (0.12, 0.015))  # of curve and own: log-normal priors' medians, least values
_SPREAD = 1.5  # of the log
_VAGUE = 10.0  # sd of the level of the whole curve, next to the mean count
_ALONE = 100.0  # sd of a level that stands out, likewise
_ATOM = 4.0  # standardised residual of a level that stands out
_ROUNDS = 3  # of looking for them


@dataclass(frozen=True)
class Normal:
    """Counts as they are known: mean, shape (K,), and covariance, shape (K, K)."""

    mean: Floats
    covariance: Floats


def reconciled(
    fine: Floats, sd: float, sums: Iterable[tuple[Floats, Floats, float]]
) -> Normal:
    """Counts with what other tables say of sums of them, by weighted least squares.

    Args:
        fine: shape (K,), with noise of ``sd``.
        sums: counts of G groups of levels, which levels they hold as a matrix (G, K), noise sd.
    """
    precision = np.eye(len(fine)) / sd**2
    score = fine / sd**2
    for counts, member, noise in sums:
        precision += member.T @ member / noise**2
        score = score + member.T @ counts / noise**2
    covariance = np.linalg.inv(precision)
    return Normal(covariance @ score, covariance)


def smoothed(found: Normal) -> Normal:
    """Counts of ordered levels as a smooth curve and what each level has of its own.

    A Gaussian process over the levels (Matérn 3/2), whose scales have the largest evidence among a
    few. A level that the others cannot foresee (an atom, such as a round number) is left alone.
    """
    size = len(found.mean)
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    typical = max(float(found.mean.mean()), 1.0)
    alone = np.zeros(size, dtype=bool)
    for _ in range(_ROUNDS):
        prior = _most_evident(found, apart, typical, alone)
        inverse = np.linalg.inv(prior + found.covariance)
        off = inverse @ (found.mean - typical)
        out = ~alone & (np.abs(off) > _ATOM * np.sqrt(np.diag(inverse)))  # each by the others
        if not out.any():
            break
        alone |= out
    gain = prior @ inverse
    return Normal(typical + prior @ off, prior - gain @ prior)


def _most_evident(found: Normal, apart: Floats, typical: float, alone: Mask) -> Floats:
    """Prior covariance of the counts, shape (K, K)."""
    vague = np.full(apart.shape, _VAGUE**2) + np.diag(np.where(alone, _ALONE**2, 0.0))
    off = found.mean - typical
    best, chosen = -np.inf, vague
    for length in (_L for _L in _LENGTHS if _L <= max(1, len(off) / 2)):
        near = np.sqrt(3) * apart / length
        curve = (1 + near) * np.exp(-near)
        for sd, own in itertools.product(_CURVES, _OWN):
            prior = vague + sd**2 * curve + own**2 * np.eye(len(off))
            root = np.linalg.cholesky(typical**2 * prior + found.covariance)
            evidence = -0.5 * np.sum(np.linalg.solve(root, off) ** 2) - np.log(np.diag(root)).sum()
            for value, (usual, least) in zip((sd, own), _USUAL, strict=True):
                evidence -= 0.5 * (np.log(max(value, least) / usual) / _SPREAD) ** 2
            if evidence > best:
                best, chosen = evidence, prior
    return typical**2 * chosen


def on_simplex(counts: Floats, total: float) -> Floats:
    """The nearest counts at or above 0 with a sum, shape (K,)."""
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def shares_of(found: Normal, n: float, rng: np.random.Generator | None = None) -> Floats:
    """Shares, shape (K,), of n records: the mean, or a draw of those of their population.

    A draw adds what n records may differ from it.
    """
    counts = on_simplex(found.mean, n)
    if rng is not None:
        moved = rng.multivariate_normal(found.mean, found.covariance, method="eigh")
        moved += rng.multinomial(int(n), counts / n) - counts
        counts = on_simplex(moved, n)
    return np.asarray(counts / n)
