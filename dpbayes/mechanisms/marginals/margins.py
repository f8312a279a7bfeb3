"""Noisy counts of one column's levels, made into shares: reconciled, smoothed, drawn.

Everything here is computed from noisy counts and public facts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Mask

# Sds of the logarithm of shares, each tried: of what each level has of its own, and of a curve.
_OWN = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
_CURVE = (0.1, 0.3, 1.0, 3.0)
# Their log-normal priors: medians, and the sd of the logarithm.
_OWN_USUAL, _CURVE_USUAL, _UNORDERED_USUAL, _SPREAD = 0.15, 0.6, 1.0, 1.5
_ORDER = 3  # of the differences that a curve has little of: without any, it is a normal density
_VAGUE = 20.0  # sd of the linear and the quadratic part: an empty tail is far below the rest
_ALONE = 3.0  # sd of the logarithm of a level that stands out
_ATOM = 4.0  # standardised residual of a level that does
_FEW = 4  # of so many levels one may
_SMALL = 5  # levels that are too few for a curve
_STEPS, _SHORTEST, _CLOSE = 40, 1e-3, 1e-4  # Gauss-Newton: most steps, their least length, gain
_LEAST = 0.05  # share at the start, next to an equal one


@dataclass(frozen=True)
class NormalCounts:
    """Counts as they are known: mean, shape (K,), and precision, shape (K, K)."""

    mean: Floats
    precision: Floats


def reconciled(
    fine: Floats, sd: float, sums: Iterable[tuple[Floats, Floats, float]]
) -> NormalCounts:
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
    return NormalCounts(np.asarray(np.linalg.solve(precision, score)), np.asarray(precision))


@dataclass(frozen=True)
class Shares:
    """What noisy counts say of the shares of levels.

    The logarithm of a share is normal a priori; the mode of what it is given the counts is found
    by Gauss-Newton steps.

    Attributes:
        n: public number of records.
        mean: noisy counts, shape (K,).
        root: of their precision, upper triangle.
        prior: root of the covariance of the logarithms, lower triangle.
        log: the logarithms at the mode, up to a constant, shape (K,).
    """

    n: int
    mean: Floats
    root: Floats
    prior: Floats
    log: Floats

    def best(self) -> Floats:
        """The most likely shares of the records, shape (K,)."""
        return shares_at(self.log)

    def drawn(self, rng: np.random.Generator) -> Floats:
        """A draw of the shares in the population that n records are a sample of.

        Of the records' shares by randomised maximum likelihood: the mode for counts and prior means
        that are moved by errors as large as theirs (Bardsley, Solonen, Haario & Laine, 2014).
        """
        size = len(self.mean)
        moved = self.mean + np.linalg.solve(self.root, rng.standard_normal(size))
        log, *_ = self._climbed(self.log, moved, rng.standard_normal(size))
        return np.asarray(rng.multinomial(self.n, shares_at(log)) / self.n)

    def at_mode(self, start: Floats) -> tuple[Shares, float, Mask]:
        """With the mode, log evidence by Laplace's approximation, and levels that stand out."""
        log, value, slope = self._climbed(start, self.mean, np.zeros(len(self.mean)))
        information = slope.T @ slope + np.eye(len(log))
        evidence = -value - float(np.linalg.slogdet(information)[1]) / 2
        # Linearised, each count next to what the others say of it.
        z = np.linalg.solve(self.prior, log)
        off = self.root @ (self.mean - self.n * shares_at(log)) + slope @ z
        inverse = np.linalg.inv(slope @ slope.T + np.eye(len(log)))
        out = np.abs(inverse @ off) > _ATOM * np.sqrt(np.diag(inverse))
        return replace(self, log=log), evidence, out

    def _climbed(
        self, start: Floats, counts: Floats, centre: Floats
    ) -> tuple[Floats, float, Floats]:
        """Logarithms at the mode, minus the log posterior there, and the slope of the counts."""

        def at(z: Floats) -> tuple[float, Floats, Floats]:
            shares = shares_at(self.prior @ z)
            off = self.root @ (counts - self.n * shares)
            return float(off @ off + (z - centre) @ (z - centre)) / 2, shares, off

        z: Floats = np.asarray(np.linalg.solve(self.prior, start))
        value, shares, off = at(z)
        for _ in range(_STEPS):
            # root (diag(shares) - shares shares') prior, with one product of matrices.
            scaled = self.root * shares
            scaled -= np.outer(scaled.sum(axis=1), shares)
            slope = self.n * scaled @ self.prior
            information = slope.T @ slope + np.eye(len(z))
            step, length = np.linalg.solve(information, slope.T @ off - (z - centre)), 1.0
            there = at(z + step)
            while there[0] > value and length > _SHORTEST:
                length /= 2
                there = at(z + length * step)
            if value - there[0] < _CLOSE:
                break
            z, (value, shares, off) = z + length * step, there
        return self.prior @ z, value, slope


def shares_at(log: Floats) -> Floats:
    """Shares with these logarithms up to a constant."""
    found = np.exp(log - log.max())
    return np.asarray(found / found.sum())


def fit_shares(found: NormalCounts, n: int, *, curve: Mask) -> Shares:
    """Shares of n records from their noisy counts.

    The logarithm of a share is a smooth curve over ordered levels, whose third differences are
    normal (Silverman, 1982), and what each level has of its own. The sds of both are those of the
    largest evidence among a few. A level that the others cannot foresee, as a round number, is
    left alone.

    Args:
        curve: levels that are on the curve, in their order, shape (K,); all others are free.
    """
    size = len(found.mean)
    root = np.asarray(np.linalg.cholesky(found.precision).T)
    log = np.log(np.maximum(found.mean / n, _LEAST / size))
    start = Shares(n, found.mean, root, np.eye(size), log - log.mean())
    none = np.zeros(size, dtype=bool)
    evidence, chosen, _ = _most_evident(start, curve, none, _OWN)
    if curve.sum() >= _SMALL:
        *_, alone = _most_evident(start, curve, none, _OWN[:1])
        if 0 < alone.sum() <= size / _FEW:
            other = _most_evident(start, curve, alone, _OWN)
            chosen = other[1] if other[0] > evidence else chosen
    return chosen


def _most_evident(
    start: Shares, curve: Mask, alone: Mask, own: Sequence[float]
) -> tuple[float, Shares, Mask]:
    """Of the priors that of the largest evidence: that, the mode, and levels that stand out."""
    best = -np.inf, start, alone
    free = _ALONE**2 * np.diag(alone.astype(float))
    for prior, penalty in _priors(curve, own):
        lower = np.asarray(np.linalg.cholesky(prior + free))
        found, evidence, out = replace(start, prior=lower).at_mode(best[1].log)
        if evidence - penalty > best[0]:
            best = evidence - penalty, found, out
    return best


def _priors(curve: Mask, sds: Sequence[float]) -> Iterator[tuple[Floats, float]]:
    """Covariances of the logarithms, with minus the log prior of their sds."""
    size, ordered = len(curve), int(curve.sum())
    own = np.eye(size)
    if ordered < _SMALL:
        for sd in sds:
            yield sd**2 * own, _unusual(sd, _UNORDERED_USUAL)
        return
    # The pseudo-inverse of the differences' crossproduct, whose least eigenvalues are too small to
    # be told from 0 in it.
    q, r = np.linalg.qr(np.diff(np.eye(ordered), _ORDER, axis=0).T)
    half = np.linalg.solve(r, q.T)
    inner = half.T @ half
    parts = np.polynomial.legendre.legvander(np.linspace(-1, 1, ordered), _ORDER - 1)[:, 1:]
    among = np.ix_(curve, curve)
    smooth, vague = np.zeros((size, size)), _VAGUE**2 * own  # levels off the curve are free
    smooth[among] = inner / np.diag(inner).mean()
    vague[among] = _VAGUE**2 * parts @ parts.T
    for bent, sd in itertools.product(_CURVE, sds):
        penalty = _unusual(bent, _CURVE_USUAL) + _unusual(sd, _OWN_USUAL)
        yield np.asarray(vague + bent**2 * smooth + sd**2 * own), penalty


def _unusual(sd: float, usual: float) -> float:
    return 0.5 * float(np.log(sd / usual) / _SPREAD) ** 2
