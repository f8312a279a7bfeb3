"""How one column follows from those before it: a log-linear model of noisy tables.

Given the groups x of the columns before, group g of a column has probability proportional to
m_g exp(B(g)' (W phi(x) + a)): m are its shares, B functions of the group, phi of the other columns.
Where rules leave only some levels of a group, it has the part of m_g that they have.
What was measured is the noisy mean of B(g) psi(x)', psi being the means of phi by group. W has a
normal prior about 0, which is independence. Tables of three columns add a block of the same kind:
fewer functions of the group, and products of functions of two other columns. No record is in sight.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask

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
class RelationBlock:
    """Products of functions of a column and of those before it, whose means were measured.

    Attributes:
        basis: functions of the column's group, shape (G, A).
        target: of the means.
        psi: functions of the columns before by synthetic row, as measured, shape (N, D).
        phi: the same as they bear on the column, which may go on inside groups, shape (N, D).
    """

    basis: Floats
    target: Target
    psi: Floats
    phi: Floats

    def of_rows(self, rows: Mask) -> RelationBlock:
        """Of some of them."""
        return replace(self, psi=self.psi[rows], phi=self.phi[rows])


@dataclass(frozen=True)
class Conditional:
    """Probabilities of a column's groups given the columns before.

    Attributes:
        mass: shares of the groups, shape (G,).
        bases: functions of the group of each block, shape (G, A).
        weights: of each block, shape (A, D); in the first the intercepts come before, (A, 1 + D).
        shift: of the logarithm of each group's share, shape (G,): what intercepts leave.
    """

    mass: Floats
    bases: Sequence[Floats]
    weights: Sequence[Floats]
    shift: Floats

    @property
    def _log(self) -> Floats:
        with np.errstate(divide="ignore"):  # of a group that no row may have
            return np.asarray(np.log(self.mass))

    def linear(self, phi: Floats) -> Floats:
        """W phi + a of the first block by row, shape (N, A)."""
        return np.asarray(phi @ self.weights[0][:, 1:].T + self.weights[0][:, 0])

    def _tilt(self, phis: Sequence[Floats], rows: Ints | slice = slice(None)) -> Floats:
        """What all blocks add to the logarithms, shape (N, G)."""
        found = self.linear(phis[0][rows]) @ self.bases[0].T
        for phi, basis, weights in zip(phis[1:], self.bases[1:], self.weights[1:], strict=True):
            found += (phi[rows] @ weights.T) @ basis.T
        return found

    def probabilities(self, phis: Sequence[Floats], left: Floats | None = None) -> Floats:
        """Shape (N, G), for rows of each block's phi, shape (N, D).

        Args:
            left: logarithm of the part of each group that rules leave, shape (N, G); None if all.
        """
        logits = self._log + self.shift + self._tilt(phis)
        return softmax(logits if left is None else logits + left)

    def balanced(self, phis: Sequence[Floats], left: Floats | None) -> Conditional:
        """With shifts that make the groups' mean probabilities their shares.

        By iterative proportional fitting. A group that rules leave to too few rows for its share
        has what they leave.
        """
        size = len(phis[0])
        rows = np.linspace(0, size - 1, min(size, _BY)).astype(np.int64)
        tilt = self._tilt(phis, rows)
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
    blocks: Sequence[RelationBlock],
    rng: np.random.Generator | None = None,
    left: Floats | None = None,
) -> Conditional:
    """The mode of W, or a draw from the normal distribution that its posterior is near.

    A draw has the curvature of a normal likelihood of the measured sums, that have the covariance
    of n records besides their noise. Intercepts follow from the shares.

    Args:
        mass: as in ``Conditional``.
        blocks: the first has functions that are a basis of all of the groups.
        rng: for a draw.
        left: as for ``Conditional.probabilities``.
    """
    mass = np.maximum(mass, _RARE)
    if left is not None:  # what no row may have has no share
        mass = np.where(np.isfinite(left).any(axis=0), mass, 0.0)
    found = _Mode(mass / mass.sum(), blocks, left)
    weights = found.climbed()
    if rng is not None:
        weights = found.moved(weights, rng)
    # The intercepts of a draw, or of steps that were cut short, need not give the shares.
    bases, phis = [block.basis for block in blocks], [block.phi for block in blocks]
    made = Conditional(found.mass, bases, found.split(weights), np.zeros(len(mass)))
    return made.balanced(phis, left)


def missed_means(
    found: Conditional, blocks: Sequence[RelationBlock], left: Floats | None, other: RelationBlock
) -> Floats:
    """Means of another block less those that a fit expects, shape (A, D)."""
    size = len(other.psi)
    phis = [block.phi for block in blocks]
    expected = np.zeros(other.target.mean.shape)
    for rows in _slices(size):
        some = None if left is None else left[rows]
        chances = found.probabilities([phi[rows] for phi in phis], some)
        expected += (chances @ other.basis).T @ other.psi[rows]
    return np.asarray(other.target.mean - expected / size)


class _Mode:
    """Of the posterior of W and intercepts, given noisy sums."""

    def __init__(self, mass: Floats, blocks: Sequence[RelationBlock], left: Floats | None) -> None:
        self.mass, self.n, self.left = mass, blocks[0].target.n, left
        with np.errstate(divide="ignore"):
            self.log = np.log(mass)
        first = blocks[0]
        one, a = np.ones((len(first.psi), 1)), first.basis.shape[1]
        self.bases = [block.basis for block in blocks]
        self.psis = [np.hstack([one, first.psi]), *(block.psi for block in blocks[1:])]
        self.phis = [np.hstack([one, first.phi]), *(block.phi for block in blocks[1:])]
        self.shapes = [(b.shape[1], p.shape[1]) for b, p in zip(self.bases, self.psis, strict=True)]

        def joined(start: Floats, own: Floats, others: Sequence[Floats]) -> Floats:
            return np.concatenate([np.hstack([start, own]).ravel(), *(o.ravel() for o in others)])

        means, noises, sds = (
            [getattr(b.target, name) for b in blocks] for name in ("mean", "noise", "prior_sd")
        )
        self.sums = self.n * joined((mass @ first.basis)[:, None], means[0], means[1:])
        self.noise = joined(np.zeros((a, 1)), noises[0], noises[1:])
        vague = np.full((a, 1), _VAGUE**-0.5)
        self.precision = joined(vague, sds[0], sds[1:]) ** -2.0
        self.some = _spaced(len(first.psi))

    def split(self, weights: Floats) -> list[Floats]:
        """By block, shape (A, D), that of the first with the intercepts."""
        ends = np.cumsum([a * d for a, d in self.shapes])[:-1]
        parts = np.split(weights, ends)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def climbed(self) -> Floats:
        """The mode of all weights, shape (F,)."""
        found = self._exact()
        return self._noisy() if found is None else found

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
        """The sums less what is expected, shape (F,)."""
        expected = [np.zeros(shape) for shape in self.shapes]
        size = len(self.psis[0])
        for rows in _slices(size):
            chances = self._chances(weights, rows)
            for total, basis, psi in zip(expected, self.bases, self.psis, strict=True):
                np.add(total, (chances @ basis).T @ psi[rows], out=total)
        every = np.concatenate([total.ravel() for total in expected])
        return np.asarray(self.sums - self.n * every / size)

    def _lost(self, variance: Floats, missed: Floats, weights: Floats) -> float:
        """Twice the negative logarithm of likelihood and prior, but for constants."""
        prior = (self.precision * weights**2).sum()
        return float(missed @ np.linalg.solve(variance, missed) + prior)

    def _chances(self, weights: Floats, rows: slice | Ints) -> Floats:
        logits = self.log
        for phi, basis, some in zip(self.phis, self.bases, self.split(weights), strict=True):
            logits = logits + (phi[rows] @ some.T) @ basis.T
        return softmax(logits if self.left is None else logits + self.left[rows])

    def _slope(self, weights: Floats) -> Floats:
        """Of the expected sums in W, and their covariance: shape (F, F)."""
        psis = [psi[self.some] for psi in self.psis]
        p = self._chances(weights, self.some) / len(self.some)
        functions = [(b, f) for b, basis in enumerate(self.bases) for f in basis.T]
        means = [len(self.some) * p @ f for _, f in functions]
        ends = np.cumsum([0, *(self.shapes[b][1] for b, _ in functions)])
        found = np.empty((ends[-1], ends[-1]))
        for i, j in itertools.combinations_with_replacement(range(len(functions)), 2):
            (b, f), (c, g) = functions[i], functions[j]
            both = p @ (f * g) - means[i] * means[j] / len(self.some)
            here, there = slice(*ends[i : i + 2]), slice(*ends[j : j + 2])
            found[here, there] = (psis[b] * both[:, None]).T @ psis[c]
            found[there, here] = found[here, there].T
        return self.n * found

    def moved(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """A draw about the mode."""
        slope = self._slope(weights)
        return weights + error_drawn(slope, self.noise, self.precision, rng)


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
    return evidence(mean, variance, sd)[0]


def evidence(mean: Floats, variance: Floats, sd: Floats) -> tuple[float, float]:
    """The same, and what it has more of it, by the logarithm, than weights of 0."""
    total = variance[..., None] + (sd[..., None] * _SCALES) ** 2
    square, before = mean[..., None] ** 2, variance[..., None]
    gain = np.log(before / total) + square / before - square / total
    found = 0.5 * gain.reshape(-1, len(_SCALES)).sum(axis=0)
    found -= 0.5 * (np.log(_SCALES / _USUAL) / _SPREAD) ** 2
    best = int(np.argmax(found))
    return float(_SCALES[best]), float(found[best])


def _slices(size: int) -> list[slice]:
    return [slice(start, start + _BY) for start in range(0, size, _BY)]


def _spaced(size: int) -> Ints:
    """Rows for curvature, evenly spaced: rows are sorted by public columns, or in no order."""
    return np.linspace(0, size - 1, min(size, _FOR_CURVATURE)).astype(np.int64)


def draw_groups(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """A group for each row, shape (N,)."""
    ends = np.cumsum(probabilities, axis=1)
    marks = rng.random(len(ends)) * ends[:, -1]
    return np.asarray((marks[:, None] > ends[:, :-1]).sum(axis=1), dtype=np.int64)


def match_margins(
    probabilities: Floats, drawn: Ints, counts: Ints, rng: np.random.Generator
) -> Ints:
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
