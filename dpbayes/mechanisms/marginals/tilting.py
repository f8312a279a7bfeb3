"""Exponential tilting of a column's levels, row by row, towards the sums of kept analyses.

Given the columns before, level k of row i has probability proportional to p_ik exp(s_k + sum_f
lambda_f h_f(i, k)): p are the probabilities of the log-linear model, h the moments of the analyses,
and s preserves the margin. Among all tables with these margins and sums it is the one nearest to p
in Kullback-Leibler divergence (Csiszar, 1975).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.mechanisms.marginals.analyses import Answer
from dpbayes.mechanisms.marginals.relations import error_drawn, evident_scale
from dpbayes.mechanisms.tables.cells import Axis
from dpbayes.schema.rules import Values

_STEPS, _CLOSE = 60, 1e-4  # rounds of the fit, at most, and the error of the shares to end at
_FARTHEST = 1.0  # largest change of a log probability in one step
_EXCHANGES = 20  # rounds in which pairs of rows exchange levels
_RARE = 1e-12  # share below which a level counts as empty


@dataclass(frozen=True)
class Features:
    """Moments U r of N rows for each of the K possible levels of the outcome.

    Attributes:
        directions: U of each block, turned as ``Answer.directions``, shape (N, K_b).
        lengths: r of each block, by level of the outcome, shape (N, K).
    """

    directions: Sequence[Floats]
    lengths: Sequence[Floats]

    @classmethod
    def of(cls, answers: Sequence[Answer], values: Values, axis: Axis, chances: Floats) -> Features:
        """Compute one block for each function of the outcome in each of its analyses.

        Args:
            values: columns before the outcome, shape (N,) each.
            axis: levels of the outcome.
            chances: their probabilities, shape (N, K).
        """
        directions, lengths = [], []
        for answer in answers:
            moment = answer.moment
            u, expected = moment.covariates(values)
            scores = moment.analysis.level_scores(axis)
            r, unclipped = moment.residuals(u, expected[:, None, :], scores)
            inside = (chances * unclipped).sum(axis=1)
            directions += [answer.directions(u, inside)] * r.shape[2]
            lengths += [r[:, :, v] for v in range(r.shape[2])]
        return cls(directions, lengths)

    def of_rows(self, rows: Mask) -> Features:
        """Restrict the moments to some rows."""
        return Features([u[rows] for u in self.directions], [r[rows] for r in self.lengths])

    def exponent(self, weights: Floats) -> Floats:
        """Sum of weights times moments, shape (N, K), for weights of shape (F,)."""
        total, start = np.zeros_like(self.lengths[0]), 0
        for u, r in zip(self.directions, self.lengths, strict=True):
            end = start + u.shape[1]
            total += (u @ weights[start:end])[:, None] * r
            start = end
        return total

    def at(self, rows: Ints, levels: Ints) -> Floats:
        """Moments of some rows at these levels, shape (len(rows), F)."""
        pairs = zip(self.directions, self.lengths, strict=True)
        return np.hstack([u[rows] * r[rows, levels, None] for u, r in pairs])

    def means(self, chances: Floats) -> Floats:
        """Mean expected moments over rows, shape (F,), for level probabilities of shape (N, K)."""
        block_sums = [
            u.T @ (chances * r).sum(axis=1)
            for u, r in zip(self.directions, self.lengths, strict=True)
        ]
        return np.concatenate(block_sums) / len(chances)

    def covariance(self, chances: Floats) -> Floats:
        """Mean covariance of a row's moments given its covariates, shape (F, F)."""
        means = [(chances * r).sum(axis=1) for r in self.lengths]
        rows = []
        for i, u in enumerate(self.directions):
            row = []
            for j, w in enumerate(self.directions):
                crossed = (chances * self.lengths[i] * self.lengths[j]).sum(axis=1)
                row.append((u * (crossed - means[i] * means[j])[:, None]).T @ w)
            rows.append(np.hstack(row))
        return np.vstack(rows) / len(chances)


@dataclass(frozen=True)
class Tilt:
    """Exponential tilt of level probabilities.

    Attributes:
        weights: coefficients lambda of the moments, shape (F,).
        shift: s, added to the log probability of each level, shape (K,).
    """

    weights: Floats
    shift: Floats

    def of(self, chances: Floats, features: Features) -> Floats:
        """Tilted probabilities, shape (N, K); probabilities of 0 stay 0."""
        return _tilted(chances, features.exponent(self.weights) + self.shift)


def fit_tilt(
    chances: Floats,
    features: Features,
    shares: Floats,
    answers: Sequence[Answer],
    n: int,
    rng: np.random.Generator | None = None,
    least: float = 0.0,
) -> Tilt:
    """Fit the tilt to noisy sums: weights at the posterior mode, or drawn; shifts keep the shares.

    A weight is a priori normal with mean 0, which leaves the untilted model, and with the sd of the
    largest evidence. As in ``fit_conditional`` the prior is the stronger, the noisier the sums.

    Args:
        chances: untilted probabilities, shape (N, K).
        shares: shares of the levels, shape (K,).
        n: number of records in the sums.
        rng: draws the weights if given; otherwise they are the mode.
        least: lower bound of the prior sd, where evidence favours a smaller one.
    """
    fit = _Fit(chances, features, shares)
    target = np.concatenate([answer.sums.T.ravel() for answer in answers]) / n
    noise = np.concatenate([np.full(answer.sums.size, answer.sd**2) for answer in answers])
    none = fit.balanced(np.zeros(len(target)))
    p = none.of(chances, features)
    covariance = features.covariance(p)
    variances = np.maximum(np.diag(covariance), _RARE)
    off = target - features.means(p)
    sd = max(evident_scale(off, (variances * n + noise) / n**2, variances), least)
    penalty = (1 + noise / (n * variances)) / (n * sd**2)
    weights = fit.climbed(target, penalty)
    if rng is not None:
        slope = n * features.covariance(fit.balanced(weights).of(chances, features))
        precision = np.full(len(weights), sd**-2.0)
        weights = weights + error_drawn(slope, noise, precision, rng)
    return fit.balanced(weights)


class _Fit:
    """Alternating fit of shifts and weights, which are blocks of one concave problem."""

    def __init__(self, chances: Floats, features: Features, shares: Floats) -> None:
        self.chances, self.features, self.shares = chances, features, shares
        self.shift = np.zeros(len(shares))

    def _round(self, weights: Floats) -> tuple[Floats, float]:
        """Update the shifts once; return probabilities, and the L1 error of shares before it."""
        exponent = self.features.exponent(weights)
        mean = _tilted(self.chances, exponent + self.shift).mean(axis=0)
        present = (mean > _RARE) & (self.shares > 0)
        self.shift[present] += np.log(self.shares[present] / mean[present])
        return _tilted(self.chances, exponent + self.shift), float(
            np.abs(mean - self.shares)[present].sum()
        )

    def balanced(self, weights: Floats) -> Tilt:
        """Shifts for given weights, by iterative proportional fitting."""
        for _ in range(_STEPS):
            if self._round(weights)[1] < _CLOSE:
                break
        return Tilt(weights, self.shift.copy())

    def climbed(self, target: Floats, penalty: Floats) -> Floats:
        """Weights at the mode, by Newton steps that change no probability by much."""
        weights = np.zeros(len(target))
        for _ in range(_STEPS):
            p, apart = self._round(weights)
            off = target - self.features.means(p) - penalty * weights
            curvature = self.features.covariance(p) + np.diag(penalty + _RARE)
            step = np.asarray(np.linalg.solve(curvature, off), dtype=float)
            far = float(np.abs(self.features.exponent(step)).max())
            weights = weights + step * min(1.0, _FARTHEST / max(far, _RARE))
            if apart < _CLOSE and float(step @ off) < _CLOSE**2:
                break
        return weights


def swap_rows(features: Features, chances: Floats, drawn: Ints, rng: np.random.Generator) -> Ints:
    """Exchange levels between few pairs of rows, so that the sums of moments match expected ones.

    Random pairs are exchanged if a Metropolis step accepts it, which preserves the distribution of
    everything else, and if the exchange brings the sums nearer.

    Args:
        chances: probabilities of levels by row, shape (N, K).
        drawn: level of each row, shape (N,).
    """
    levels, rows = drawn.copy(), np.arange(len(drawn))
    gap = len(rows) * features.means(chances) - features.at(rows, levels).sum(axis=0)
    for _ in range(_EXCHANGES):
        first, second = np.array_split(rng.permutation(rows)[: len(rows) // 2 * 2], 2)
        mine, theirs = levels[first], levels[second]
        change = features.at(first, theirs) + features.at(second, mine)
        change -= features.at(first, mine) + features.at(second, theirs)
        after, before = (
            chances[first, a] * chances[second, b] for a, b in ((theirs, mine), (mine, theirs))
        )
        nearer = change @ gap > (change**2).sum(axis=1) / 2
        swapped = np.flatnonzero(nearer & (after >= rng.random(len(first)) * before) & (after > 0))
        remaining = ((gap - change[swapped].cumsum(axis=0)) ** 2).sum(axis=1)
        if not len(swapped) or remaining.min() >= gap @ gap:
            break
        swapped = swapped[: int(np.argmin(remaining)) + 1]
        levels[first[swapped]], levels[second[swapped]] = theirs[swapped], mine[swapped]
        gap = gap - change[swapped].sum(axis=0)
    return levels


def _tilted(chances: Floats, exponent: Floats) -> Floats:
    """Probabilities times exp(exponent), normalised by row; a row of zeros stays so."""
    weights = chances * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))
