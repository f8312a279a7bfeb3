"""How one column follows from those before it: a log-linear model of noisy pair tables.

Given the groups x of the columns before, group g of a column has probability proportional to
m_g exp(B(g)' (W phi(x) + a)): m are its shares, B functions of the group, phi of the other columns.
Where rules leave only some levels of a group, it has the part of m_g that they have.
What was measured is the noisy mean of B(g) psi(x)', psi being the means of phi by group. W has a
normal prior about 0, which is independence. No record is in sight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpbayes.arrays import Floats, Ints

_STEPS = 30
_FOR_CURVATURE = 4000  # rows that curvature is computed from
_CLOSE = 1e-3  # twice the gain of a last step
_SHORTEST = 0.01  # of a step
_OVER = 0.5  # slope beyond the top that is too far, next to that before
_SOME = 1e-4  # of the gain expected of a step, that it must bring
_RECORD = 1.0  # variance of a sum without noise: none is known nearer than to a record
_RARE = 1e-9  # share of a group that has none
_BY = 20_000  # rows at a time, and that margins are balanced on
_BALANCING, _BALANCED = 60, 1e-4  # rounds until shares of groups are right, and how near
_VAGUE = 1e-6  # precision of the intercepts' prior
# Of the sd of relations between two columns: each tried, with a log-normal prior.
_SCALES = np.array([0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9])
_USUAL, _SPREAD = 0.25, 1.5


@dataclass(frozen=True)
class Target:
    """Noisy means of products, and what is known of them before.

    Attributes:
        n: number of records that they are of.
        mean: of B_a(g) psi_b(x), shape (A, D).
        noise: their variances from noise alone, times n^2; shape (A, D).
        prior_sd: of W, shape (A, D).
    """

    n: float
    mean: Floats
    noise: Floats
    prior_sd: Floats


@dataclass(frozen=True)
class Conditional:
    """Probabilities of a column's groups given the columns before.

    Attributes:
        mass: shares of the groups, shape (G,).
        basis: functions of the group, shape (G, A).
        weights: shape (A, 1 + D), the intercepts first.
        shift: of the logarithm of each group's share, shape (G,): what intercepts leave.
    """

    mass: Floats
    basis: Floats
    weights: Floats
    shift: Floats

    @property
    def _log(self) -> Floats:
        with np.errstate(divide="ignore"):  # of a group that no row may have
            return np.asarray(np.log(self.mass))

    def linear(self, phi: Floats) -> Floats:
        """W phi + a by row, shape (N, A)."""
        return np.asarray(phi @ self.weights[:, 1:].T + self.weights[:, 0])

    def probabilities(self, phi: Floats, left: Floats | None = None) -> Floats:
        """Shape (N, G), for rows of phi, shape (N, D).

        Args:
            left: logarithm of the part of each group that rules leave, shape (N, G); None if all.
        """
        logits = self._log + self.shift + self.linear(phi) @ self.basis.T
        return softmax(logits if left is None else logits + left)

    def balanced(self, phi: Floats, left: Floats | None) -> Conditional:
        """With shifts that make the groups' mean probabilities their shares.

        By iterative proportional fitting. A group that rules leave to too few rows for its share
        has what they leave.
        """
        rows = np.linspace(0, len(phi) - 1, min(len(phi), _BY)).astype(np.int64)
        tilt = self.linear(phi[rows]) @ self.basis.T
        logits = self._log + (tilt if left is None else tilt + left[rows])
        shift = np.zeros(len(self.mass))
        for _ in range(_BALANCING):
            mean = softmax(logits + shift).mean(axis=0)
            if np.abs(mean - self.mass).sum() < _BALANCED:
                break
            some = (mean > _RARE) & (self.mass > 0)
            shift[some] += np.log(self.mass[some] / mean[some])
        return replace(self, shift=shift)


def softmax(logits: Floats) -> Floats:
    """Along the last axis."""
    found = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def fit_conditional(
    mass: Floats,
    basis: Floats,
    target: Target,
    psi: Floats,
    phi: Floats,
    rng: np.random.Generator | None = None,
    left: Floats | None = None,
) -> Conditional:
    """The mode of W, or a draw from the normal distribution that its posterior is near.

    A draw has the curvature of a normal likelihood of the measured sums, that have the covariance
    of n records besides their noise. Intercepts follow from the shares.

    Args:
        mass, basis: as in ``Conditional``.
        psi, phi: shape (N, D), functions of the columns before by synthetic row.
        rng: for a draw.
        left: as for ``Conditional.probabilities``.
    """
    mass = np.maximum(mass, _RARE)
    if left is not None:  # what no row may have has no share
        mass = np.where(np.isfinite(left).any(axis=0), mass, 0.0)
    found = _Mode(mass / mass.sum(), basis, target, psi, phi, left)
    weights = found.climbed()
    if rng is not None:
        weights = found.moved(weights, rng)
    # The intercepts of a draw, or of steps that were cut short, need not give the shares.
    return Conditional(found.mass, basis, weights, np.zeros(len(mass))).balanced(phi, left)


class _Mode:
    """Of the posterior of W and intercepts, given noisy sums."""

    def __init__(
        self,
        mass: Floats,
        basis: Floats,
        target: Target,
        psi: Floats,
        phi: Floats,
        left: Floats | None,
    ) -> None:
        self.mass, self.basis, self.n, self.left = mass, basis, target.n, left
        with np.errstate(divide="ignore"):
            self.log = np.log(mass)
        one = np.ones((len(psi), 1))
        self.psi, self.phi = np.hstack([one, psi]), np.hstack([one, phi])
        a = basis.shape[1]
        self.sums = target.n * np.hstack([(mass @ basis)[:, None], target.mean]).ravel()
        self.noise = np.hstack([np.zeros((a, 1)), target.noise]).ravel()
        self.precision = np.hstack([np.full((a, 1), _VAGUE), target.prior_sd**-2.0]).ravel()
        self.shape = (a, self.phi.shape[1])
        self.some = _spaced(len(psi))

    def climbed(self) -> Floats:
        """The mode, shape (A, 1 + D)."""
        found = self._exact()
        return (self._noisy() if found is None else found).reshape(self.shape)

    def _exact(self) -> Floats | None:
        """Of n records with these sums, the prior stronger where there is noise; by Newton steps.

        Near independence, where a sum has variance n + noise, that is the mode given the noise.
        None if steps do not end: of a relation without exceptions, or of sums that noise took to
        where no W has them, there may be no such mode, and curvature vanishes on the way.
        """
        penalty = (1 + self.noise / self.n) * self.precision
        weights = np.zeros(len(self.sums))
        off = self._missed(weights)
        for _ in range(_STEPS):
            step = np.linalg.solve(self._slope(weights) + np.diag(penalty), off)
            gain = float(step @ off)
            length = 1.0
            while True:
                there = weights + length * step
                off = self._missed(there) - penalty * there
                if length < _SHORTEST or float(step @ off) > -_OVER * gain:
                    break
                length /= 2  # past the top along the step
            weights = there
            if gain < _CLOSE:
                return weights
        return None

    def _noisy(self) -> Floats:
        """Of a normal likelihood of the sums, that flattens as W grows; by Gauss-Newton steps."""
        weights = np.zeros(len(self.sums))
        missed = self._missed(weights)
        for _ in range(_STEPS):
            slope = self._slope(weights)
            variance = _variance(slope, self.noise)
            gradient = slope @ np.linalg.solve(variance, missed) - self.precision * weights
            step = np.linalg.solve(_information(slope, variance, self.precision), gradient)
            gain = float(step @ gradient)
            lost, length = self._lost(variance, missed, weights), 1.0
            while True:
                there = weights + length * step
                missed = self._missed(there)
                less = lost - self._lost(variance, missed, there)
                if length < _SHORTEST or less >= _SOME * length * gain:
                    break
                length /= 2
            weights = there
            if gain < _CLOSE or length < _SHORTEST:
                break
        return weights

    def _missed(self, weights: Floats) -> Floats:
        """The sums less what is expected, shape (A (1 + D),)."""
        expected = np.zeros(self.shape)
        for start in range(0, len(self.psi), _BY):
            rows = slice(start, start + _BY)
            expected += (self._chances(weights, rows) @ self.basis).T @ self.psi[rows]
        return np.asarray(self.sums - self.n * expected.ravel() / len(self.psi))

    def _lost(self, variance: Floats, missed: Floats, weights: Floats) -> float:
        """Twice the negative logarithm of likelihood and prior, but for constants."""
        prior = (self.precision * weights**2).sum()
        return float(missed @ np.linalg.solve(variance, missed) + prior)

    def _chances(self, weights: Floats, rows: slice | Ints) -> Floats:
        logits = self.log + (self.phi[rows] @ weights.reshape(self.shape).T) @ self.basis.T
        return softmax(logits if self.left is None else logits + self.left[rows])

    def _slope(self, weights: Floats) -> Floats:
        """Of the expected sums in W, and their covariance: shape (A (1 + D), A (1 + D))."""
        psi = self.psi[self.some]
        p = self._chances(weights, self.some)
        mean = p @ self.basis
        a, d = self.shape
        found = np.empty((a, d, a, d))
        for i in range(a):
            for j in range(i + 1):
                both = p @ (self.basis[:, i] * self.basis[:, j]) - mean[:, i] * mean[:, j]
                found[i, :, j] = found[j, :, i] = (psi * (both / len(psi))[:, None]).T @ psi
        return self.n * found.reshape(a * d, a * d)

    def moved(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """A draw about the mode."""
        slope = self._slope(weights.ravel())
        return weights + error_drawn(slope, self.noise, self.precision, rng).reshape(self.shape)


def error_drawn(
    slope: Floats, noise: Floats, precision: Floats, rng: np.random.Generator
) -> Floats:
    """Of weights about their mode, shape (F,), by the normal likelihood of noisy sums.

    Args:
        slope: of the sums in the weights, and their covariance: shape (F, F).
        noise, precision: variances of the noise in the sums, and of the prior: shape (F,).
    """
    information = _information(slope, _variance(slope, noise), precision)
    root = np.linalg.cholesky(information)
    return np.asarray(np.linalg.solve(root.T, rng.standard_normal(len(slope))))


def _variance(slope: Floats, noise: Floats) -> Floats:
    """Of noisy sums."""
    found = slope.copy()
    found[np.diag_indices_from(found)] += noise + _RECORD
    return found


def _information(slope: Floats, variance: Floats, precision: Floats) -> Floats:
    """Of noisy sums and the prior, on weights."""
    found = slope @ np.linalg.solve(variance, slope)
    found[np.diag_indices_from(found)] += precision
    return np.asarray((found + found.T) / 2)


def evident_scale(mean: Floats, variance: Floats, sd: Floats) -> float:
    """Of the sds of weights: that of the largest evidence.

    Args:
        mean, variance: of noisy means, about 0 where weights are 0; of any one shape.
        sd: what a weight of 1 makes of them.
    """
    total = variance[..., None] + (sd[..., None] * _SCALES) ** 2
    evidence = -0.5 * (np.log(total) + mean[..., None] ** 2 / total)
    evidence = evidence.reshape(-1, len(_SCALES)).sum(axis=0)
    evidence -= 0.5 * (np.log(_SCALES / _USUAL) / _SPREAD) ** 2
    return float(_SCALES[int(np.argmax(evidence))])


def _spaced(size: int) -> Ints:
    """Rows for curvature, evenly spaced: rows are sorted by public columns, or in no order."""
    return np.linspace(0, size - 1, min(size, _FOR_CURVATURE)).astype(np.int64)


def draw_groups(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """A group for each row, shape (N,)."""
    ends = np.cumsum(probabilities, axis=1)
    marks = rng.random(len(ends)) * ends[:, -1]
    return np.asarray((marks[:, None] > ends[:, :-1]).sum(axis=1), dtype=np.int64)


def matched(probabilities: Floats, drawn: Ints, counts: Ints, rng: np.random.Generator) -> Ints:
    """Groups by row, with as few of them changed as make them come in given counts.

    A row that changes is one that the new group suits about as well as the old one.

    Args:
        probabilities: shape (N, G); a row never comes to a group that has none.
        drawn: shape (N,).
        counts: of the groups, with sum N.
    """
    found = drawn.copy()
    over = np.bincount(found, minlength=len(counts)) - counts
    for g in np.flatnonzero(over > 0):
        rows = np.flatnonzero(found == g)
        short = np.flatnonzero(over < 0)
        logs = np.log(np.maximum(probabilities[rows], 1e-300))
        gain = logs[:, short] - logs[:, [g]] + rng.gumbel(size=(len(rows), len(short)))
        order = np.argsort(-gain, axis=None)
        left = over[g]
        taken = np.zeros(len(rows), dtype=bool)
        for at in order:
            if not left:
                break
            row, to = divmod(int(at), len(short))
            if taken[row] or over[short[to]] >= 0 or not probabilities[rows[row], short[to]]:
                continue
            taken[row] = True
            found[rows[row]] = short[to]
            over[short[to]] += 1
            left -= 1
        over[g] = left
    return found
