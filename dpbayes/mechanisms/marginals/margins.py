"""Shares of one column's levels from noisy counts: reconciled between tables, smoothed, drawn.

Everything here is computed from noisy counts and public facts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
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
_RARE = 1e-12  # share of its precision that is left of a count which others imply
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
class LogPrior:
    """Normal prior of the log shares of K levels, up to a constant.

    Attributes:
        mean: prior mean, shape (K,).
        precision: inverse of the prior covariance, shape (K, K).
        log_determinant: of that precision.
        sd, smooth: roots of the covariance: the sds of independent parts of each level, shape (K,),
            and a factor of all else, shape (K, rank).
    """

    mean: Floats
    precision: Floats
    log_determinant: float
    sd: Floats
    smooth: Floats

    def drawn(self, rng: np.random.Generator) -> Floats:
        """Draw log shares from the prior, shape (K,)."""
        own = self.sd * rng.standard_normal(len(self.sd))
        return np.asarray(self.mean + own + self.smooth @ rng.standard_normal(self.smooth.shape[1]))


@dataclass(frozen=True)
class Shares:
    """Posterior of the shares of levels given noisy counts.

    Their posterior mode is found by Gauss-Newton steps.

    Attributes:
        n: public number of records.
        counts: Gaussian posterior of the counts of the K levels.
        prior: prior of the log shares.
        log: log shares at the mode, up to a constant, shape (K,).
    """

    n: int
    counts: NormalCounts
    prior: LogPrior
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
        root = np.linalg.cholesky(self.counts.precision).T
        moved = self.counts.mean + np.linalg.solve(root, rng.standard_normal(len(root)))
        log, *_ = self._climbed(self.log, moved, self.prior.drawn(rng))
        return np.asarray(rng.multinomial(self.n, shares_at(log)) / self.n)

    def at_mode(self, start: Floats) -> tuple[Shares, float]:
        """Find the mode, and its log evidence (Laplace)."""
        log, value, information = self._climbed(start, self.counts.mean, self.prior.mean)
        free = float(np.linalg.slogdet(information)[1]) - self.prior.log_determinant
        return replace(self, log=log), -value - free / 2

    def outlying(self) -> Mask:
        """Mask of levels whose count the others do not predict, linearised at the mode.

        One level at a time, the least predicted first: a spike also bends the curve beside it.
        """
        shares, precision = self.best(), self.counts.precision
        information = _information(self.n, shares, precision) + self.prior.precision
        derivative = self.n * (np.diag(shares) - np.outer(shares, shares))
        slope = derivative @ precision
        given = precision - slope.T @ np.linalg.solve(information, slope)
        off = self.counts.mean - self.n * shares + derivative @ (self.log - self.prior.mean)
        residual = given @ off
        alone = np.zeros(len(shares), dtype=bool)
        while not alone.all():
            variance = np.diag(given)
            known = ~alone & (variance > _RARE * np.diag(precision))
            score = np.abs(residual) / np.sqrt(np.where(known, variance, np.inf))
            worst = int(score.argmax())
            if score[worst] <= _ATOM:
                break
            alone[worst] = True  # its count says nothing about the others
            gain = given[worst] / variance[worst]
            residual = residual - gain * residual[worst]
            given = given - np.outer(gain, given[worst])
        return alone

    def _climbed(
        self, start: Floats, counts: Floats, centre: Floats
    ) -> tuple[Floats, float, Floats]:
        """Log shares at the mode, minus the log posterior there, and its information."""
        precision, prior = self.counts.precision, self.prior.precision

        def at(log: Floats) -> tuple[float, Floats, Floats, Floats]:
            shares = shares_at(log)
            off = precision @ (counts - self.n * shares)
            pull = prior @ (log - centre)
            value = (counts - self.n * shares) @ off + (log - centre) @ pull
            return float(value) / 2, shares, off, pull

        log = start
        value, shares, off, pull = at(log)
        for _ in range(_STEPS):
            information = _information(self.n, shares, precision) + prior
            gradient = self.n * (shares * off - shares * (shares @ off)) - pull
            step, length = np.linalg.solve(information, gradient), 1.0
            there = at(log + step)
            while there[0] > value and length > _SHORTEST:
                length /= 2
                there = at(log + length * step)
            if value - there[0] < _CLOSE:
                break
            log, (value, shares, off, pull) = log + length * step, there
        return log, value, information


def _information(n: int, shares: Floats, precision: Floats) -> Floats:
    """Information of the counts about log shares, shape (K, K).

    It is n^2 C P C for the derivative C = diag(shares) - shares shares' of the shares.
    """
    scaled = shares[:, None] * precision * shares
    rows = scaled.sum(axis=1)
    scaled += rows.sum() * np.outer(shares, shares)
    scaled -= np.outer(rows, shares) + np.outer(shares, rows)
    return np.asarray(n**2 * scaled)


def shares_at(log: Floats) -> Floats:
    """Shares from log shares up to a constant."""
    exponentials = np.exp(log - log.max())
    return np.asarray(exponentials / exponentials.sum())


def fit_shares(noisy: NormalCounts, n: int, *, curve: Mask, offset: Floats | None = None) -> Shares:
    """Shares of n records from their noisy counts.

    Log shares are the sum of a smooth curve over ordered levels, whose third differences are normal
    (Silverman, 1982), and a deviation of each level. The sds of both have the largest evidence
    among a few candidates. A level that the others do not predict, such as a round number, is not
    smoothed.

    Args:
        noisy: Gaussian posterior of the counts.
        n: public number of records.
        curve: mask of the levels on the curve, in their order, shape (K,); others are free.
        offset: prior mean of the log shares up to a constant, shape (K,); 0 by default.
    """
    size = len(noisy.mean)
    log = np.log(np.maximum(noisy.mean / n, _LEAST / size))
    search = _PriorSearch(noisy, n, curve, np.zeros(size) if offset is None else offset)
    evidence, chosen = search.best(log - log.mean(), np.zeros(size, dtype=bool))
    if curve.sum() >= _SMALL:
        stiff = search.best(chosen.log, np.zeros(size, dtype=bool), own=(_OWN[0],))[1]
        alone = stiff.outlying()
        if 0 < alone.sum() <= size / _FEW:
            with_alone = search.best(chosen.log, alone)
            chosen = with_alone[1] if with_alone[0] > evidence else chosen
    return chosen


@dataclass(frozen=True)
class _PriorSearch:
    """Search for the sds of the prior with the largest evidence."""

    noisy: NormalCounts
    n: int
    curve: Mask
    offset: Floats

    def best(self, log: Floats, alone: Mask, own: Sequence[float] = _OWN) -> tuple[float, Shares]:
        """The largest log evidence, and the mode there: by steps to the better neighbour.

        Args:
            log: log shares at which to start.
            alone: mask of outlying levels.
            own: candidates for the sd of each level's deviation, in increasing order.
        """
        bent = _CURVE if self.curve.sum() >= _SMALL else (0.0,)
        tried: dict[tuple[int, int], tuple[float, Shares]] = {}

        def at(place: tuple[int, int], start: Floats) -> tuple[float, Shares]:
            if place not in tried:
                prior, penalty = self._prior(bent[place[0]], own[place[1]], alone)
                mode, evidence = Shares(self.n, self.noisy, prior, start).at_mode(start)
                tried[place] = evidence - penalty, mode
            return tried[place]

        place = len(bent) // 2, len(own) // 2
        best = at(place, log)
        while True:
            near = [(place[0] + i, place[1] + j) for i, j in ((0, 1), (0, -1), (1, 0), (-1, 0))]
            near = [(i, j) for i, j in near if 0 <= i < len(bent) and 0 <= j < len(own)]
            better = max(near, key=lambda other: at(other, best[1].log)[0], default=place)
            if tried[better][0] <= best[0]:
                return best
            place, best = better, tried[better]

    def _prior(self, bent: float, own: float, alone: Mask) -> tuple[LogPrior, float]:
        """Prior for these sds of the curve and of levels, and minus its sds' log prior."""
        size, ordered = len(self.curve), int(self.curve.sum())
        sd = np.full(size, own)
        if not bent:
            penalty, smooth = _unusual(own, _UNORDERED_USUAL), np.zeros((size, 0))
            precision = np.diag(sd**-2.0)
        else:
            penalty = _unusual(bent, _CURVE_USUAL) + _unusual(own, _OWN_USUAL)
            vague, bends, directions = _smooth(ordered)
            scales = _VAGUE**2 * vague + bent**2 * bends
            sd[~self.curve] = np.hypot(own, _VAGUE)  # levels off the curve are free
            precision = np.diag(sd**-2.0)
            among = np.ix_(self.curve, self.curve)
            precision[among] = (directions / (scales + own**2)) @ directions.T
            smooth = np.zeros((size, ordered))
            smooth[self.curve] = directions * np.sqrt(scales)
        determinant = float(np.linalg.slogdet(precision)[1])
        if alone.any():  # a level of variance a^2 more: a rank-one change each
            columns = precision[:, alone]
            inner = np.eye(int(alone.sum())) / _ALONE**2 + columns[alone]
            precision = precision - columns @ np.linalg.solve(inner, columns.T)
            determinant -= float(np.linalg.slogdet(inner * _ALONE**2)[1])
            sd[alone] = np.hypot(sd[alone], _ALONE)
        return LogPrior(self.offset, precision, determinant, sd, smooth), penalty


@functools.lru_cache(maxsize=64)
def _smooth(ordered: int) -> tuple[Floats, Floats, Floats]:
    """Prior of a curve over ordered levels: variances in orthonormal directions.

    Returns:
        Variances of its linear and quadratic parts if they are vague, and of what bends more if
        the mean variance of a level is 1, both of shape (ordered,), and the directions as columns.
    """
    # From the differences and not from their crossproduct, whose smallest eigenvalues are lost to
    # rounding.
    _, lengths, rows = np.linalg.svd(np.diff(np.eye(ordered), _ORDER, axis=0))
    parts = np.polynomial.legendre.legvander(np.linspace(-1, 1, ordered), _ORDER - 1)
    polynomials, scales = np.linalg.qr(parts)
    directions = np.vstack([polynomials.T, rows[: ordered - _ORDER]]).T
    bends = np.concatenate([np.zeros(_ORDER), lengths**-2.0])
    vague = np.zeros(ordered)
    vague[1:_ORDER] = np.diag(scales)[1:] ** 2
    return vague, bends / bends.mean(), directions


def _unusual(sd: float, usual: float) -> float:
    return 0.5 * float(np.log(sd / usual) / _SPREAD) ** 2
