"""Shares of one column's levels from noisy counts: reconciled between tables, smoothed, drawn.

Everything here is computed from noisy counts and public facts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Mask

# Candidates for the sds of log shares: of each level's own deviation, and of a smooth curve.
_OWN = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
_CURVE = (0.1, 0.3, 1.0, 3.0)
# Log-normal priors of these sds: medians, and the sd of the logarithm.
_OWN_USUAL, _CURVE_USUAL, _UNORDERED_USUAL, _SPREAD = 0.15, 0.6, 1.0, 1.5
_ORDER = 3  # order of the penalised differences: where they are 0, it is a normal density
_VAGUE = 20.0  # prior sd of the linear and quadratic parts: large, as tails may be nearly empty
_ALONE = 3.0  # prior sd of the log share of an outlying level
_ATOM = 4.0  # standardised residual above which a level is outlying
_FEW = 4  # at most one level in so many may be outlying
_SMALL = 5  # fewer ordered levels than this have no curve
_STEPS, _SHORTEST, _CLOSE = 40, 1e-3, 1e-4  # Gauss-Newton: most steps, shortest step, last gain
_LEAST = 0.05  # smallest share at the start, relative to equal shares


@dataclass(frozen=True)
class NormalCounts:
    """Gaussian posterior of the counts: mean, shape (K,), and precision, shape (K, K)."""

    mean: Floats
    precision: Floats


def reconciled(
    fine: Floats, sd: float, sums: Iterable[tuple[Floats, Floats, float]]
) -> NormalCounts:
    """Combine noisy counts of levels with noisy sums of them by weighted least squares.

    Args:
        fine: noisy counts of levels, shape (K,), with noise of ``sd``.
        sums: from each other table: noisy counts of G groups, membership matrix (G, K), noise sd.
    """
    precision = np.eye(len(fine)) / sd**2
    score = fine / sd**2
    for counts, member, noise in sums:
        precision += member.T @ member / noise**2
        score = score + member.T @ counts / noise**2
    return NormalCounts(np.asarray(np.linalg.solve(precision, score)), np.asarray(precision))


@dataclass(frozen=True)
class Shares:
    """Posterior of the shares of levels given noisy counts.

    Log shares are normal a priori; their posterior mode is found by Gauss-Newton steps.

    Attributes:
        n: public number of records.
        mean: noisy counts, shape (K,).
        root: root of the counts' precision, upper triangle.
        prior: root of the prior covariance of log shares, lower triangle.
        log: log shares at the mode, up to a constant, shape (K,).
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
        """Draw shares of the population from which the n records are a sample.

        First the records' shares, by randomised maximum likelihood: the mode for counts and prior
        means to which simulated errors are added (Bardsley, Solonen, Haario & Laine, 2014). Then a
        multinomial sample of size n.
        """
        size = len(self.mean)
        moved = self.mean + np.linalg.solve(self.root, rng.standard_normal(size))
        log, *_ = self._climbed(self.log, moved, rng.standard_normal(size))
        return np.asarray(rng.multinomial(self.n, shares_at(log)) / self.n)

    def at_mode(self, start: Floats) -> tuple[Shares, float, Mask]:
        """Find the mode, its log evidence (Laplace), and a mask of outlying levels."""
        log, value, slope = self._climbed(start, self.mean, np.zeros(len(self.mean)))
        information = slope.T @ slope + np.eye(len(log))
        evidence = -value - float(np.linalg.slogdet(information)[1]) / 2
        # Linearised at the mode: residual of each count given all others.
        z = np.linalg.solve(self.prior, log)
        off = self.root @ (self.mean - self.n * shares_at(log)) + slope @ z
        inverse = np.linalg.inv(slope @ slope.T + np.eye(len(log)))
        out = np.abs(inverse @ off) > _ATOM * np.sqrt(np.diag(inverse))
        return replace(self, log=log), evidence, out

    def _climbed(
        self, start: Floats, counts: Floats, centre: Floats
    ) -> tuple[Floats, float, Floats]:
        """Log shares at the mode, minus the log posterior there, and the Jacobian of the counts."""

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
    """Shares from log shares up to a constant."""
    exponentials = np.exp(log - log.max())
    return np.asarray(exponentials / exponentials.sum())


def fit_shares(noisy: NormalCounts, n: int, *, curve: Mask) -> Shares:
    """Shares of n records from their noisy counts.

    Log shares are the sum of a smooth curve over ordered levels, whose third differences are normal
    (Silverman, 1982), and a deviation of each level. The sds of both have the largest evidence
    among a few candidates. A level that the others do not predict, such as a round number, is not
    smoothed.

    Args:
        noisy: Gaussian posterior of the counts.
        n: public number of records.
        curve: mask of the levels on the curve, in their order, shape (K,); others are free.
    """
    size = len(noisy.mean)
    root = np.asarray(np.linalg.cholesky(noisy.precision).T)
    log = np.log(np.maximum(noisy.mean / n, _LEAST / size))
    start = Shares(n, noisy.mean, root, np.eye(size), log - log.mean())
    none = np.zeros(size, dtype=bool)
    evidence, chosen, _ = _most_evident(start, curve, none, _OWN)
    if curve.sum() >= _SMALL:
        *_, alone = _most_evident(start, curve, none, _OWN[:1])
        if 0 < alone.sum() <= size / _FEW:
            with_alone = _most_evident(start, curve, alone, _OWN)
            chosen = with_alone[1] if with_alone[0] > evidence else chosen
    return chosen


def _most_evident(
    start: Shares, curve: Mask, alone: Mask, own: Sequence[float]
) -> tuple[float, Shares, Mask]:
    """Prior with the largest evidence: its log evidence, mode and mask of outlying levels."""
    best = -np.inf, start, alone
    free = _ALONE**2 * np.diag(alone.astype(float))
    for prior, penalty in _priors(curve, own):
        lower = np.asarray(np.linalg.cholesky(prior + free))
        mode, evidence, out = replace(start, prior=lower).at_mode(best[1].log)
        if evidence - penalty > best[0]:
            best = evidence - penalty, mode, out
    return best


def _priors(curve: Mask, sds: Sequence[float]) -> Iterator[tuple[Floats, float]]:
    """Candidate prior covariances of log shares, with minus the log prior of their sds."""
    size, ordered = len(curve), int(curve.sum())
    own = np.eye(size)
    if ordered < _SMALL:
        for sd in sds:
            yield sd**2 * own, _unusual(sd, _UNORDERED_USUAL)
        return
    # Pseudo-inverse of the differences' crossproduct, from their QR decomposition: the smallest
    # eigenvalues of the crossproduct itself are lost to rounding.
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
