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
_SHORTEST, _OVER = 0.01, 0.5  # of a step; slope beyond the top that is too far, next to that before
_LOST, _FARTHEST = 1e3, 3.0  # W that no relation has; of a step in W, where steps led there
_OFF = 0.1  # of a share of a group, from which a relation does not give the shares
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

    The mode is that of the likelihood of n records with the measured means, which is concave, with
    a prior that is stronger where the means are noisier: near independence, where a mean has
    variance (1 + noise / n) / n, that is the mode given the noise. A draw has the curvature of the
    means' normal likelihood. Intercepts follow from the shares.

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
        weights = weights + found.moved(weights, rng)
    # The intercepts of a draw, or of steps that were cut short, need not give the shares. Where a
    # relation without exceptions took weights so far that nothing gives them, it is left out.
    made = Conditional(found.mass, basis, weights, np.zeros(len(mass))).balanced(phi, left)
    if (
        left is None
        and np.abs(made.probabilities(phi, None).mean(axis=0) - found.mass).max() > _OFF
    ):
        made = replace(made, weights=np.zeros_like(weights), shift=np.zeros(len(mass)))
    return made


class _Mode:
    """Where what is measured is what is expected, less the penalty: by Newton steps."""

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
        self.mean = np.hstack([(mass @ basis)[:, None], target.mean])
        self.noise = np.hstack([np.zeros((a, 1)), target.noise])
        flat = np.full((a, 1), _VAGUE)
        self.precision = np.hstack([flat, target.prior_sd**-2.0])
        self.penalty = (1 + self.noise / target.n) * self.precision
        self.some = _spaced(len(psi))

    def climbed(self) -> Floats:
        """The mode of W and intercepts, shape (A, 1 + D).

        Of a relation without exceptions there may be none, and curvature vanishes on the way. Short
        steps keep the direction; what meets the measured means better is taken.
        """
        found = self._climbed(np.inf)
        if np.abs(found[:, 1:]).max(initial=0.0) <= _LOST:
            return found
        return min(found, self._climbed(_FARTHEST), key=self._missed)

    def _missed(self, weights: Floats) -> float:
        """Squared distance of what is expected from what is measured."""
        off = self._off(weights) + self.penalty * weights
        return float((off**2).sum())

    def _climbed(self, farthest: float) -> Floats:
        weights = np.zeros_like(self.mean)
        off = self._off(weights)
        for _ in range(_STEPS):
            curvature = self.n * self._slope(weights)
            curvature[np.diag_indices_from(curvature)] += self.penalty.ravel()
            step = np.linalg.solve(curvature, off.ravel()).reshape(off.shape)
            gain = float((step * off).sum())
            far = float(np.abs(step[:, 1:]).max(initial=0.0))  # intercepts may go on
            length = longest = min(1.0, farthest / max(far, 1e-300))
            while True:
                there = self._off(weights + length * step)
                if length < _SHORTEST * longest or float((step * there).sum()) > -_OVER * gain:
                    break
                length /= 2  # past the top along the step
            weights, off = weights + length * step, there
            if gain < _CLOSE:
                break
        return weights

    def _off(self, weights: Floats) -> Floats:
        """Gradient of the penalised log-likelihood."""
        expected = np.zeros_like(weights)
        for start in range(0, len(self.psi), _BY):
            rows = slice(start, start + _BY)
            expected += (self._chances(weights, rows) @ self.basis).T @ self.psi[rows]
        return np.asarray(self.n * (self.mean - expected / len(self.psi)) - self.penalty * weights)

    def _chances(self, weights: Floats, rows: slice | Ints) -> Floats:
        logits = self.log + (self.phi[rows] @ weights.T) @ self.basis.T
        return softmax(logits if self.left is None else logits + self.left[rows])

    def _slope(self, weights: Floats) -> Floats:
        """Of the expected means in W, and their covariance, for one record.

        Shape (A (1 + D), A (1 + D)).
        """
        psi = self.psi[self.some]
        p = self._chances(weights, self.some)
        mean = p @ self.basis
        a, d = weights.shape
        found = np.empty((a, d, a, d))
        for i in range(a):
            for j in range(i + 1):
                both = p @ (self.basis[:, i] * self.basis[:, j]) - mean[:, i] * mean[:, j]
                found[i, :, j] = found[j, :, i] = (psi * (both / len(psi))[:, None]).T @ psi
        return found.reshape(a * d, a * d)

    def moved(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """A draw about the mode."""
        slope = self.n * self._slope(weights)
        found = error_drawn(slope, self.noise.ravel(), self.precision.ravel(), rng)
        return found.reshape(weights.shape)


def error_drawn(
    slope: Floats, noise: Floats, precision: Floats, rng: np.random.Generator
) -> Floats:
    """Of weights about their mode, shape (F,), by the normal likelihood of noisy sums.

    Args:
        slope: of the sums in the weights, and their covariance: shape (F, F).
        noise, precision: variances of the noise in the sums, and of the prior: shape (F,).
    """
    variance = slope.copy()
    variance[np.diag_indices_from(variance)] += noise + _VAGUE
    information = slope @ np.linalg.solve(variance, slope)
    information[np.diag_indices_from(information)] += precision
    root = np.linalg.cholesky((information + information.T) / 2)
    return np.asarray(np.linalg.solve(root.T, rng.standard_normal(len(slope))))


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
