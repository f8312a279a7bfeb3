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
from dpbayes.mechanisms.marginals.relations import evident_scale, sums_and_prior_drawn
from dpbayes.mechanisms.tables.cells import Axis
from dpbayes.schema.rules import Values

_STEPS, _CLOSE = 60, 1e-4  # rounds of the fit, at most, and the error of the shares to end at
_FARTHEST = 1.0  # largest change of a log probability in one step
_EXCHANGES = 20  # rounds in which pairs of rows exchange levels
_BY = 1000  # rows at a time, whose numbers for each level stay in a processor's cache
_RARE = 1e-12  # share below which a level counts as empty


@dataclass(frozen=True)
class Block:
    """Moments U r of an analysis for N rows and each of the L possible levels of its outcome.

    r = factor (score - expected), for V functions of the outcome. It is not formed for all rows,
    levels and functions together: an outcome of L levels has V = L - 1 functions, and N L V numbers
    do not fit into memory.

    Attributes:
        directions: U, turned as ``Answer.directions``, shape (N, K).
        scores: functions of the outcome by level, in residual sds, shape (L, V).
        expected: their regression on U, shape (N, V).
        factors: clipping factor of U r, 0 for a missing outcome, shape (N, L).
    """

    directions: Floats
    scores: Floats
    expected: Floats
    factors: Floats

    @classmethod
    def of(cls, answer: Answer, values: Values, axis: Axis, chances: Floats) -> Block:
        """Compute the block of an answer; arguments as of ``Features.of``."""
        moment = answer.moment
        u, expected = moment.covariates(values)
        scores = moment.analysis.level_scores(axis)
        factors, inside = np.empty(chances.shape), np.empty(len(u))
        for start in range(0, len(u), _BY):
            rows = slice(start, start + _BY)
            factors[rows], unclipped = moment.factors(u[rows], expected[rows, None, :], scores)
            inside[rows] = (chances[rows] * unclipped).sum(axis=1)
        # Centred against rounding in sums of squares, except indicators, which are mostly 0.
        origin = moment.mean if len(moment.mean) == 1 else 0.0
        return cls(
            answer.directions(u, inside),
            np.where(np.isnan(scores), 0.0, (scores - origin) / moment.spread),
            (expected - origin) / moment.spread,
            factors,
        )

    @property
    def size(self) -> int:
        """Number of moments, V K."""
        return int(self.scores.shape[1] * self.directions.shape[1])

    def of_rows(self, rows: Mask) -> Block:
        """Restrict the moments to some rows."""
        u, expected, factors = self.directions[rows], self.expected[rows], self.factors[rows]
        return Block(u, self.scores, expected, factors)

    def exponent(self, weights: Floats) -> Floats:
        """Sum of weights times moments, shape (N, L), for weights of shape (V K,)."""
        slopes = self.directions @ weights.reshape(self.scores.shape[1], -1).T
        total = slopes @ self.scores.T
        total -= (slopes * self.expected).sum(axis=1)[:, None]
        total *= self.factors
        return np.asarray(total)

    def at(self, rows: Ints, levels: Ints) -> Floats:
        """Moments of some rows at these levels, shape (len(rows), V K)."""
        r = self.factors[rows, levels, None] * (self.scores[levels] - self.expected[rows])
        return _products(r, self.directions[rows])

    def residuals(self, chances: Floats) -> Floats:
        """Mean residuals r of each row, shape (N, V), for level probabilities of shape (N, L)."""
        clipped = chances * self.factors
        return np.asarray(clipped @ self.scores - clipped.sum(axis=1)[:, None] * self.expected)

    def second_moments(self, other: Block, chances: Floats) -> Floats:
        """Sum over rows of expected products with the moments of a block, shape (V K, V' K').

        The product of two residuals is that of their scores, and three products with a number by
        row. The former is 0 for most pairs of functions if these are indicators.
        """
        weights = chances * self.factors * other.factors
        mine, theirs = weights @ self.scores, weights @ other.scores
        theirs -= weights.sum(axis=1)[:, None] * other.expected
        total = -_products(self.expected, self.directions).T @ _products(theirs, other.directions)
        total -= _products(mine, self.directions).T @ _products(other.expected, other.directions)
        both = self.scores[:, :, None] * other.scores[:, None, :]
        pairs = np.argwhere(both.any(axis=0))
        means = both[:, *pairs.T].T @ weights.T
        blocks = total.reshape(both.shape[1], -1, both.shape[2], other.directions.shape[1])
        for (v, w), mean in zip(pairs, means, strict=True):
            blocks[v, :, w] += (self.directions * mean[:, None]).T @ other.directions
        return np.asarray(total)


@dataclass(frozen=True)
class Features:
    """Moments of the analyses of an outcome, F numbers for each row and level.

    Attributes:
        blocks: those of each analysis.
    """

    blocks: Sequence[Block]

    @classmethod
    def of(cls, answers: Sequence[Answer], values: Values, axis: Axis, chances: Floats) -> Features:
        """Compute the moments of synthetic rows.

        Args:
            values: columns before the outcome, shape (N,) each.
            axis: levels of the outcome.
            chances: their probabilities, shape (N, L).
        """
        return cls([Block.of(answer, values, axis, chances) for answer in answers])

    def of_rows(self, rows: Mask) -> Features:
        """Restrict the moments to some rows."""
        return Features([block.of_rows(rows) for block in self.blocks])

    def exponent(self, weights: Floats) -> Floats:
        """Sum of weights times moments, shape (N, L), for weights of shape (F,)."""
        total, start = np.zeros_like(self.blocks[0].factors), 0
        for block in self.blocks:
            end = start + block.size
            total += block.exponent(weights[start:end])
            start = end
        return total

    def at(self, rows: Ints, levels: Ints) -> Floats:
        """Moments of some rows at these levels, shape (len(rows), F)."""
        return np.hstack([block.at(rows, levels) for block in self.blocks])

    def means(self, chances: Floats) -> Floats:
        """Mean expected moments over rows, shape (F,), for level probabilities of shape (N, L)."""
        return np.asarray(self._of_each(chances).mean(axis=0))

    def covariance(self, chances: Floats) -> Floats:
        """Mean covariance of a row's moments given its covariates, shape (F, F)."""
        lower = [
            [block.second_moments(other, chances) for other in self.blocks[: i + 1]]
            for i, block in enumerate(self.blocks)
        ]
        numbers = range(len(lower))
        second = [[lower[i][j] if j <= i else lower[j][i].T for j in numbers] for i in numbers]
        means = self._of_each(chances)
        return np.asarray((np.block(second) - means.T @ means) / len(chances))

    def _of_each(self, chances: Floats) -> Floats:
        """Expected moments of each row, shape (N, F)."""
        blocks = self.blocks
        return np.hstack([_products(b.residuals(chances), b.directions) for b in blocks])


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

    def balanced(self, chances: Floats, features: Features, shares: Floats) -> Tilt:
        """The tilt with shifts that give other rows these shares of the levels, shape (K,)."""
        fit = _Fit(chances, features, shares)
        fit.shift = self.shift.copy()
        return fit.balanced(self.weights)


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
    weights = fit.climbed(target, penalty, np.zeros(len(target)))
    if rng is not None:  # as ``fit_conditional``
        slope = n * features.covariance(fit.balanced(weights).of(chances, features))
        precision = np.full(len(weights), sd**-2.0)
        missed, before = sums_and_prior_drawn(slope, noise, precision, rng)
        weights = fit.climbed(target + missed / n + penalty * before, penalty, weights)
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

    def climbed(self, target: Floats, penalty: Floats, weights: Floats) -> Floats:
        """Weights at the mode, by Newton steps from a start that change no probability by much."""
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


def _products(left: Floats, right: Floats) -> Floats:
    """Products of each row's numbers, shape (N, A B), of shapes (N, A) and (N, B)."""
    products = left[:, :, None] * right[:, None, :]
    return products.reshape(len(left), left.shape[1] * right.shape[1])


def _tilted(chances: Floats, exponent: Floats) -> Floats:
    """Probabilities times exp(exponent), normalised by row; a row of zeros stays so."""
    weights = chances * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300))
