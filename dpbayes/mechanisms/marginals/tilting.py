"""Exponential tilting of a column's levels, row by row, towards the sums of kept analyses.

Given the columns before, level k of row i has probability proportional to p_ik exp(s_k + sum_f
lambda_f h_f(i, k)): p is what the pair tables say, h are the moments of the analyses, s keeps the
margin. Of all tables with these margins and sums it is the nearest to p (Csiszar, 1975).
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

_STEPS, _CLOSE = 60, 1e-4  # rounds of the fit, and how near shares and sums come
_FARTHEST = 1.0  # of a step, in logarithms of probabilities
_EXCHANGES = 20  # rounds in which pairs of rows exchange levels
_RARE = 1e-12  # share of a level that has none


@dataclass(frozen=True)
class Features:
    """Moments of N rows whose outcome has any of K levels.

    Attributes:
        directions: U of each block, shape (N, K_b).
        lengths: r of each block by level, shape (N, K).
    """

    directions: Sequence[Floats]
    lengths: Sequence[Floats]

    @classmethod
    def of(cls, answers: Sequence[Answer], values: Values, axis: Axis) -> Features:
        """A block for each function of the outcome in each analysis of it."""
        directions, lengths = [], []
        for answer in answers:
            moment = answer.moment
            u, expected = moment.covariates(values)
            scores = moment.analysis.level_scores(axis)
            r = moment.residuals(u, expected[:, None, :], scores)
            directions += [u] * r.shape[2]
            lengths += [r[:, :, v] for v in range(r.shape[2])]
        return cls(directions, lengths)

    def of_rows(self, rows: Mask) -> Features:
        """Of some of them."""
        return Features([u[rows] for u in self.directions], [r[rows] for r in self.lengths])

    def exponent(self, weights: Floats) -> Floats:
        """Sum of weights times moments, shape (N, K)."""
        found, start = np.zeros_like(self.lengths[0]), 0
        for u, r in zip(self.directions, self.lengths, strict=True):
            end = start + u.shape[1]
            found += (u @ weights[start:end])[:, None] * r
            start = end
        return found

    def at(self, rows: Ints, levels: Ints) -> Floats:
        """Moments of some rows with these levels, shape (them, F)."""
        pairs = zip(self.directions, self.lengths, strict=True)
        return np.hstack([u[rows] * r[rows, levels, None] for u, r in pairs])

    def means(self, chances: Floats) -> Floats:
        """Of the moments over rows, shape (F,)."""
        each = [
            u.T @ (chances * r).sum(axis=1)
            for u, r in zip(self.directions, self.lengths, strict=True)
        ]
        return np.concatenate(each) / len(chances)

    def covariance(self, chances: Floats) -> Floats:
        """Of the moments of one row given its covariates, on average: shape (F, F)."""
        means = [(chances * r).sum(axis=1) for r in self.lengths]
        rows = []
        for i, u in enumerate(self.directions):
            row = []
            for j, w in enumerate(self.directions):
                both = (chances * self.lengths[i] * self.lengths[j]).sum(axis=1)
                row.append((u * (both - means[i] * means[j])[:, None]).T @ w)
            rows.append(np.hstack(row))
        return np.vstack(rows) / len(chances)


@dataclass(frozen=True)
class Tilt:
    """What levels are tilted by.

    Attributes:
        weights: of the moments, shape (F,).
        shift: of the logarithm of each level's share, shape (K,).
    """

    weights: Floats
    shift: Floats

    def of(self, chances: Floats, features: Features) -> Floats:
        """Tilted probabilities, shape (N, K); a level that has none keeps none."""
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
    """The mode of the weights, or a draw, given noisy sums; shifts keep the shares.

    A priori a weight is normal about 0, where the pair tables are right, with the sd of the largest
    evidence. As in ``fit_conditional`` the prior is stronger by what noise takes from the sums.

    Args:
        chances: untilted, shape (N, K).
        shares: of the levels, shape (K,).
        n: records that the sums are of.
        rng: for a draw.
        least: sd of the weights, where evidence asks for a smaller one.
    """
    fit = _Fit(chances, features, shares)
    target = np.concatenate([answer.sums.T.ravel() for answer in answers]) / n
    noise = np.concatenate([np.full(answer.sums.size, answer.sd**2) for answer in answers])
    none = fit.balanced(np.zeros(len(target)))
    p = none.of(chances, features)
    covariance = features.covariance(p)
    each = np.maximum(np.diag(covariance), _RARE)
    off = target - features.means(p)
    sd = max(evident_scale(off, (each * n + noise) / n**2, each), least)
    penalty = (1 + noise / (n * each)) / (n * sd**2)
    weights = fit.climbed(target, penalty)
    if rng is not None:
        slope = n * features.covariance(fit.balanced(weights).of(chances, features))
        precision = np.full(len(weights), sd**-2.0)
        weights = weights + error_drawn(slope, noise, precision, rng)
    return fit.balanced(weights)


class _Fit:
    """Shifts and weights by turns: both are blocks of one concave problem."""

    def __init__(self, chances: Floats, features: Features, shares: Floats) -> None:
        self.chances, self.features, self.shares = chances, features, shares
        self.shift = np.zeros(len(shares))

    def _round(self, weights: Floats) -> tuple[Floats, float]:
        """Probabilities, and how far the levels' shares were off; shifts move towards them."""
        exponent = self.features.exponent(weights)
        mean = _tilted(self.chances, exponent + self.shift).mean(axis=0)
        some = (mean > _RARE) & (self.shares > 0)
        self.shift[some] += np.log(self.shares[some] / mean[some])
        return _tilted(self.chances, exponent + self.shift), float(
            np.abs(mean - self.shares)[some].sum()
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
    """Levels by row, exchanged between few pairs of them so that the sums are the expected ones.

    Of pairs at random those exchange that a Metropolis step would, which leaves everything else as
    it is distributed, and that lead nearer.

    Args:
        chances: of levels by row, shape (N, K).
        drawn: shape (N,).
    """
    found, rows = drawn.copy(), np.arange(len(drawn))
    gap = len(rows) * features.means(chances) - features.at(rows, found).sum(axis=0)
    for _ in range(_EXCHANGES):
        one, other = np.array_split(rng.permutation(rows)[: len(rows) // 2 * 2], 2)
        mine, theirs = found[one], found[other]
        change = features.at(one, theirs) + features.at(other, mine)
        change -= features.at(one, mine) + features.at(other, theirs)
        after, before = (
            chances[one, a] * chances[other, b] for a, b in ((theirs, mine), (mine, theirs))
        )
        nearer = change @ gap > (change**2).sum(axis=1) / 2
        taken = np.flatnonzero(nearer & (after >= rng.random(len(one)) * before) & (after > 0))
        left = ((gap - change[taken].cumsum(axis=0)) ** 2).sum(axis=1)
        if not len(taken) or left.min() >= gap @ gap:
            break
        taken = taken[: int(np.argmin(left)) + 1]
        found[one[taken]], found[other[taken]] = theirs[taken], mine[taken]
        gap = gap - change[taken].sum(axis=0)
    return found


def _tilted(chances: Floats, exponent: Floats) -> Floats:
    """Probabilities times exp(exponent), with sums of 1; all 0 where all were."""
    found = chances * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300))
