"""Log-linear model of one column given those before it, fitted to noisy tables.

Given the groups x of the columns before, group g of a column has probability proportional to
m_g exp(B(g)' (W phi(x) + a)): m are the shares of the groups, B functions of the group, phi
functions of the other columns. Where rules allow only some levels of a group, m_g is multiplied by
their share of it. The data are noisy means of B(g) psi(x)', psi being the means of phi by group.
W has a normal prior with mean 0, which is independence. Tables of three columns add a block of the
same kind: fewer functions of the group, and products of functions of two other columns. Nothing
here reads a record.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.lazy import linalg

_STEPS = 80  # Newton steps, at most
_FARTHEST = 1.0  # longest step, by the mean divergence of a row's probabilities
_DAMPED, _MORE = 1e-6, 10.0  # least damping of longer steps, and the factor until they are shorter
_FOR_CURVATURE = 4000  # rows from which the curvature is computed
_CLOSE = 1e-6  # twice the expected gain in log posterior below which the search ends
_KEPT = 0.5  # a curvature serves on while each step makes the expected gain smaller by this factor
_SHORTEST = 0.01  # shortest step that is tried, as a multiple of the Newton step
_OVER = 0.5  # a step is halved if the slope at its end is below minus this, relative to the start
_SOME = 1e-4  # least share of the expected gain that a step must achieve (Armijo)
_RECORD = 1.0  # variance of a sum without noise, as if it were known to within one record
_RARE = 1e-9  # share below which a group counts as empty
_BY = 20_000  # rows at a time, and rows on which margins are balanced
# Rounds of proportional fitting, and with rules, and the L1 distance to end at.
_BALANCING, _WITH_RULES, _BALANCED = 60, 400, 1e-4
_VAGUE = 1e-6  # precision of the intercepts' prior
# Candidates for the sd of relations between two columns, which has a log-normal prior.
_SCALES = np.array([0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9])
_USUAL, _SPREAD = 0.25, 1.5


@dataclass(frozen=True)
class Target:
    """Noisy means of products of functions of two columns, and the prior of their weights.

    Attributes:
        n: number of records over which the means are taken.
        mean: noisy means of B_a(g) psi_b(x), shape (A, D).
        noise: variances of the means from noise alone, times n^2; shape (A, D).
        prior_sd: prior sd of W, shape (A, D).
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
        target: the noisy means.
        psi: functions of the columns before, by synthetic row, as measured; shape (N, D).
        phi: the functions that the model uses, which may vary inside groups; shape (N, D).
    """

    basis: Floats
    target: Target
    psi: Floats
    phi: Floats

    def of_rows(self, rows: Mask) -> RelationBlock:
        """Restrict the block to some rows."""
        return replace(self, psi=self.psi[rows], phi=self.phi[rows])


@dataclass(frozen=True)
class Conditional:
    """Probabilities of a column's groups given the columns before it.

    Attributes:
        mass: shares of the groups, shape (G,).
        bases: functions of the group of each block, shape (G, A).
        weights: W of each block, shape (A, D); the first block starts with intercepts: (A, 1 + D).
        shift: added to the log share of each group, shape (G,), so that margins are exact.
    """

    mass: Floats
    bases: Sequence[Floats]
    weights: Sequence[Floats]
    shift: Floats

    @property
    def _log(self) -> Floats:
        with np.errstate(divide="ignore"):  # a group that rules exclude has share 0
            return np.asarray(np.log(self.mass))

    def linear(self, phi: Floats) -> Floats:
        """Linear predictor W phi + a of the first block by row, shape (N, A)."""
        return np.asarray(phi @ self.weights[0][:, 1:].T + self.weights[0][:, 0])

    def _tilt(self, phis: Sequence[Floats], rows: Ints | slice = slice(None)) -> Floats:
        """Sum of all blocks' contributions to the log probabilities, shape (N, G)."""
        # Transposed, because NumPy reduces a short axis faster if it comes first in memory.
        tilt = self.bases[0] @ self.linear(phis[0][rows]).T
        for phi, basis, weights in zip(phis[1:], self.bases[1:], self.weights[1:], strict=True):
            tilt += basis @ (weights @ phi[rows].T)
        return tilt.T

    def probabilities(self, phis: Sequence[Floats], left: Floats | None = None) -> Floats:
        """Probabilities of the groups by row, shape (N, G).

        Args:
            phis: phi of each block, shape (N, D).
            left: log share of each group that rules allow, shape (N, G); None without rules.
        """
        logits = self._log + self.shift + self._tilt(phis)
        return softmax(logits if left is None else logits + left)

    def balanced(self, phis: Sequence[Floats], left: Floats | None) -> Conditional:
        """Choose shifts that make the groups' mean probabilities equal to their shares.

        By iterative proportional fitting, on logs: drawn weights of a group that is all but empty
        can be so large that the probabilities of all others underflow. A group that rules allow in
        too few rows for its share gets as large a share as they allow.
        """
        size = len(phis[0])
        rows = np.linspace(0, size - 1, min(size, _BY)).astype(np.int64)
        tilt = self._tilt(phis, rows)
        logits = self._log + (tilt if left is None else tilt + left[rows])
        shift = np.zeros(len(self.mass))
        # A group that has to be in almost all rows where rules allow it gets there slowly.
        for _ in range(_BALANCING if left is None else _WITH_RULES):
            log_mean = _log_mean(logits + shift)
            if np.abs(np.exp(log_mean) - self.mass).sum() < _BALANCED:
                break
            present = (log_mean > -np.inf) & (self.mass > 0)
            shift[present] += self._log[present] - log_mean[present]
        return replace(self, shift=shift)


def softmax(logits: Floats) -> Floats:
    """Softmax along the last axis; equal shares where nothing is possible."""
    highest = logits.max(axis=-1, keepdims=True)
    nothing = highest == -np.inf
    if nothing.any():
        logits, highest = np.where(nothing, 0.0, logits), np.where(nothing, 0.0, highest)
    exponentials = np.exp(logits - highest)
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def _log_mean(logits: Floats) -> Floats:
    """Log of the mean probability of each group, shape (G,), for logits of shape (N, G)."""
    highest = logits.max(axis=1, keepdims=True)
    logs = logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    most = np.maximum(logs.max(axis=0), np.finfo(float).min)  # -inf where a group has no row
    with np.errstate(divide="ignore"):
        return np.asarray(most + np.log(np.exp(logs - most).mean(axis=0)))


def fit_conditional(
    mass: Floats,
    blocks: Sequence[RelationBlock],
    rng: np.random.Generator | None = None,
    left: Floats | None = None,
    start: Sequence[Floats] = (),
) -> Conditional:
    """Fit W at its posterior mode, or draw it from about its posterior.

    A draw is the mode given other sums and another prior mean: these are drawn about their own with
    the variance that they have, for the sums that of n records plus the noise. For linear models
    this is the posterior (randomised maximum a posteriori; Oliver, He & Reynolds, 1996); where a
    cell is all but empty, a normal approximation at the mode would know that it is.
    Intercepts follow from the shares.

    Args:
        mass: as in ``Conditional``.
        blocks: the first one has a complete basis of functions of the group.
        rng: draws W if given; otherwise W is the mode.
        left: as for ``Conditional.probabilities``.
        start: weights of the first blocks, or of all, at which the search for the mode begins.
    """
    mass = np.maximum(mass, _RARE)
    empty = mass == _RARE
    if left is not None:  # a group that rules exclude in every row has no share
        mass = np.where(np.isfinite(left).any(axis=0), mass, 0.0)
    fit = _Mode(mass / mass.sum(), blocks, left)
    weights = fit.climbed(fit.joined(start))
    if rng is not None:
        mode = fit.split(weights)[0][:, 0].copy()
        weights = fit.drawn(weights, rng)
        # Intercepts follow from the shares. Drawn ones of groups that are all but empty are so
        # large that others' probabilities underflow, and no balancing brings them back.
        fit.split(weights)[0][:, 0] = mode
    # A draw, or a search that was cut short, need not reproduce the shares.
    # The functions of a group are the larger, the smaller its share; of an empty one they would
    # decide for it, or against it, in every row.
    bases = [np.where(empty[:, None], 0.0, block.basis) for block in blocks]
    phis = [block.phi for block in blocks]
    conditional = Conditional(fit.mass, bases, fit.split(weights), np.zeros(len(mass)))
    return conditional.balanced(phis, left)


def missed_means(
    relation: Conditional,
    blocks: Sequence[RelationBlock],
    left: Floats | None,
    other: RelationBlock,
) -> Floats:
    """Noisy means of another block minus those that a fit predicts, shape (A, D)."""
    size = len(other.psi)
    phis = [block.phi for block in blocks]
    expected = np.zeros(other.target.mean.shape)
    for rows in _slices(size):
        left_rows = None if left is None else left[rows]
        chances = relation.probabilities([phi[rows] for phi in phis], left_rows)
        expected += (chances @ other.basis).T @ other.psi[rows]
    return np.asarray(other.target.mean - expected / size)


class _Mode:
    """Search for the posterior mode of W and the intercepts given noisy sums."""

    def __init__(self, mass: Floats, blocks: Sequence[RelationBlock], left: Floats | None) -> None:
        self.mass, self.n, self.left = mass, blocks[0].target.n, left
        with np.errstate(divide="ignore"):
            self.log = np.log(mass)
        first = blocks[0]
        ones, a = np.ones((len(first.psi), 1)), first.basis.shape[1]
        self.bases = [block.basis for block in blocks]
        self.psis = [np.hstack([ones, first.psi]), *(block.psi for block in blocks[1:])]
        self.phis = [np.hstack([ones, first.phi]), *(block.phi for block in blocks[1:])]
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
        self.prior = np.zeros(len(self.precision))
        rows = len(first.psi)
        # Evenly spaced, because rows may be sorted by public columns.
        self.some = np.linspace(0, rows - 1, min(rows, _FOR_CURVATURE)).astype(np.int64)

    def split(self, weights: Floats) -> list[Floats]:
        """Weights by block, shape (A, D) each; the first block includes the intercepts."""
        ends = np.cumsum([a * d for a, d in self.shapes])[:-1]
        parts = np.split(weights, ends)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def joined(self, start: Sequence[Floats]) -> Floats:
        """Weights of the first blocks, and 0 for those of the others, shape (F,)."""
        weights = np.zeros(len(self.sums))
        for block, given in zip(self.split(weights), start, strict=False):
            block[:] = given
        return weights

    def climbed(self, start: Floats) -> Floats:
        """Find the posterior mode of all weights from a start, shape (F,)."""
        exact = self._exact(start)
        return self._noisy(start) if exact is None else exact

    def _exact(self, weights: Floats) -> Floats | None:
        """Mode by Newton steps as if the sums were exact, with a stronger prior for noisier sums.

        Near independence, where a sum has variance n + noise, this is the mode given the noise.
        None if the steps do not converge: there may be no such mode if a relation is deterministic,
        or if noise moved the sums to values that no W gives, and the curvature vanishes on the way.
        """
        penalty = (1 + self.noise / self.n) * self.precision
        off = self._missed(weights) - penalty * (weights - self.prior)
        root, gain, past = None, np.inf, list[tuple[Floats, Floats]]()
        for _ in range(_STEPS):
            step = None if root is None else _corrected(root, past, off)
            if step is None or not 0 < float(step @ off) <= _KEPT * gain:
                root, step = self._damped(weights, penalty, off)
                past.clear()
            gain = float(step @ off)
            length, before = 1.0, off
            while True:
                proposal = weights + length * step
                off = self._missed(proposal) - penalty * (proposal - self.prior)
                if length < _SHORTEST or float(step @ off) > -_OVER * gain:
                    break
                length /= 2  # past the top along the step
            past.append((length * step, before - off))
            weights = proposal
            if gain < _CLOSE:
                return weights
        return None

    def _damped(
        self, weights: Floats, penalty: Floats, off: Floats
    ) -> tuple[tuple[Floats, Ints] | None, Floats]:
        """Newton step, or the longest damped one that changes probabilities by little enough.

        Where probabilities are 0 or 1 the curvature vanishes, and a Newton step leads nowhere. It
        is damped by the curvature at independence (Levenberg and Marquardt).

        Returns:
            factors of the curvature, None if it is damped; and the step, shape (F,).
        """
        slope, logits, damping = self._slope(weights), self._logits(weights, self.some), 0.0
        while True:
            curvature = slope + np.diag(penalty)
            if damping:
                curvature += np.diag(damping * self._independent)
            root = linalg.lu_factor(curvature)
            step = np.asarray(linalg.lu_solve(root, off))
            tilt = self._tilt(step, self.some)
            apart = (
                _log_sum(logits + tilt) - _log_sum(logits) - (softmax(logits) * tilt).sum(axis=1)
            )
            if not float(apart.mean()) > _FARTHEST:
                return None if damping else root, step
            damping = max(_DAMPED, _MORE * damping)

    @cached_property
    def _independent(self) -> Floats:
        """Variances of the sums at independence, shape (F,)."""
        return np.diag(self._slope(np.zeros(len(self.sums)))).copy()

    def _noisy(self, weights: Floats) -> Floats:
        """Mode by Gauss-Newton steps for a normal likelihood of the sums, flat for large W."""
        missed = self._missed(weights)
        for _ in range(_STEPS):
            slope = self._slope(weights)
            variance = _variance(slope, self.noise)
            gradient = slope @ np.linalg.solve(variance, missed)
            gradient -= self.precision * (weights - self.prior)
            step = np.linalg.solve(_information(slope, variance, self.precision), gradient)
            gain = float(step @ gradient)
            lost, length = self._lost(variance, missed, weights), 1.0
            while True:
                proposal = weights + length * step
                missed = self._missed(proposal)
                improvement = lost - self._lost(variance, missed, proposal)
                if length < _SHORTEST or improvement >= _SOME * length * gain:
                    break
                length /= 2
            weights = proposal
            if gain < _CLOSE or length < _SHORTEST:
                break
        return weights

    def _missed(self, weights: Floats) -> Floats:
        """Measured sums minus expected sums, shape (F,)."""
        expected = [np.zeros(shape) for shape in self.shapes]
        size = len(self.psis[0])
        for rows in _slices(size):
            chances = self._chances(weights, rows)
            for total, basis, psi in zip(expected, self.bases, self.psis, strict=True):
                np.add(total, (chances @ basis).T @ psi[rows], out=total)
        every = np.concatenate([total.ravel() for total in expected])
        return np.asarray(self.sums - self.n * every / size)

    def _lost(self, variance: Floats, missed: Floats, weights: Floats) -> float:
        """Minus twice the log posterior, up to a constant."""
        prior = (self.precision * (weights - self.prior) ** 2).sum()
        return float(missed @ np.linalg.solve(variance, missed) + prior)

    def _tilt(self, weights: Floats, rows: slice | Ints) -> Floats:
        """Contribution of weights to the log probabilities, shape (rows, G)."""
        tilt = np.zeros((len(self.phis[0][rows]), len(self.mass)))
        parts = zip(self.phis, self.bases, self.split(weights), strict=True)
        for phi, basis, block_weights in parts:
            tilt += (basis @ (block_weights @ phi[rows].T)).T
        return tilt

    def _logits(self, weights: Floats, rows: slice | Ints) -> Floats:
        logits = self.log + self._tilt(weights, rows)
        return logits if self.left is None else logits + self.left[rows]

    def _chances(self, weights: Floats, rows: slice | Ints) -> Floats:
        return softmax(self._logits(weights, rows))

    def _slope(self, weights: Floats) -> Floats:
        """Derivative of the expected sums in W, which is also their covariance: shape (F, F)."""
        psis = [psi[self.some] for psi in self.psis]
        p = self._chances(weights, self.some) / len(self.some)
        functions = [(b, f) for b, basis in enumerate(self.bases) for f in basis.T]
        means = [len(self.some) * p @ f for _, f in functions]
        ends = np.cumsum([0, *(self.shapes[b][1] for b, _ in functions)])
        covariance = np.empty((ends[-1], ends[-1]))
        for i, j in itertools.combinations_with_replacement(range(len(functions)), 2):
            (b, f), (c, g) = functions[i], functions[j]
            crossed = p @ (f * g) - means[i] * means[j] / len(self.some)
            rows, columns = slice(*ends[i : i + 2]), slice(*ends[j : j + 2])
            covariance[rows, columns] = (psis[b] * crossed[:, None]).T @ psis[c]
            covariance[columns, rows] = covariance[rows, columns].T
        return self.n * covariance

    def drawn(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw weights, given their mode."""
        missed, before = sums_and_prior_drawn(self._slope(weights), self.noise, self.precision, rng)
        known = np.ones(len(weights), dtype=bool)
        self.split(known)[0][:, 0] = False  # intercepts
        self.sums, self.prior = self.sums + known * missed, known * before
        return self.climbed(weights)


def _corrected(
    root: tuple[Floats, Ints], past: Sequence[tuple[Floats, Floats]], off: Floats
) -> Floats:
    """Newton step whose curvature, of some rows at an earlier point, is corrected by later steps.

    The corrections of limited-memory BFGS, with this curvature to start from.

    Args:
        root: factors of the curvature.
        past: steps since then, and by how much each made the gradient smaller, shape (F,) each.
        off: gradient, shape (F,).

    Source: liu-nocedal-1989.
    """
    rest, parts = off.copy(), []
    bends = [(step, fall, float(step @ fall)) for step, fall in past]
    bends = [bend for bend in bends if bend[2] > 0]
    for step, fall, bend in reversed(bends):
        parts.append(float(step @ rest) / bend)
        rest -= parts[-1] * fall
    found = np.asarray(linalg.lu_solve(root, rest))
    for (step, fall, bend), part in zip(bends, reversed(parts), strict=True):
        found += (part - float(fall @ found) / bend) * step
    return found


def sums_and_prior_drawn(
    slope: Floats, noise: Floats, precision: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw deviations of the measured sums, and a prior mean of the weights, shape (F,) each.

    Args:
        slope: derivative of the sums in the weights, equal to their covariance: shape (F, F).
        noise, precision: variance of the noise in each sum, and prior precision: shape (F,).
    """
    root = np.linalg.cholesky(_variance(slope, noise))
    missed = np.asarray(root @ rng.standard_normal(len(slope)))
    return missed, rng.standard_normal(len(slope)) / np.sqrt(precision)


def _variance(slope: Floats, noise: Floats) -> Floats:
    """Covariance of the noisy sums, shape (F, F)."""
    variance = slope.copy()
    variance[np.diag_indices_from(variance)] += noise + _RECORD
    return variance


def _information(slope: Floats, variance: Floats, precision: Floats) -> Floats:
    """Information of the noisy sums and the prior about the weights, shape (F, F)."""
    information = slope @ np.linalg.solve(variance, slope)
    information[np.diag_indices_from(information)] += precision
    return np.asarray((information + information.T) / 2)


def evident_scale(mean: Floats, variance: Floats, sd: Floats) -> float:
    """Scale of the weights' prior sds with the largest marginal likelihood.

    Args:
        mean, variance: of noisy means, which have expectation 0 if weights are 0; any one shape.
        sd: prior sds of the means at scale 1.
    """
    return evidence(mean, variance, sd)[0]


def evidence(mean: Floats, variance: Floats, sd: Floats) -> tuple[float, float]:
    """Best scale (see ``evident_scale``), and its log-evidence gain over zero weights."""
    total = variance[..., None] + (sd[..., None] * _SCALES) ** 2
    square, before = mean[..., None] ** 2, variance[..., None]
    gain = np.log(before / total) + square / before - square / total
    log_evidence = 0.5 * gain.reshape(-1, len(_SCALES)).sum(axis=0)
    log_evidence -= 0.5 * (np.log(_SCALES / _USUAL) / _SPREAD) ** 2
    best = int(np.argmax(log_evidence))
    return float(_SCALES[best]), float(log_evidence[best])


def _log_sum(logits: Floats) -> Floats:
    """Log of the sum of exponentials by row, shape (N,)."""
    largest = logits.max(axis=1)
    return np.asarray(largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)))


def _slices(size: int) -> list[slice]:
    return [slice(start, start + _BY) for start in range(0, size, _BY)]


def draw_groups(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """Draw a group for each row, shape (N,), from probabilities of shape (N, G)."""
    ends = np.cumsum(probabilities, axis=1)
    marks = rng.random(len(ends)) * ends[:, -1]
    return np.asarray((marks[:, None] > ends[:, :-1]).sum(axis=1), dtype=np.int64)


def match_margins(
    probabilities: Floats, drawn: Ints, counts: Ints, rng: np.random.Generator
) -> Ints:
    """Change as few drawn groups as possible so that the groups have the target counts.

    Rows are preferred whose probability of the new group is about that of the old one.

    Args:
        probabilities: shape (N, G); a row never gets a group of probability 0.
        drawn: group of each row, shape (N,).
        counts: target counts of the groups, with sum N.
    """
    groups = drawn.copy()
    over = np.bincount(groups, minlength=len(counts)) - counts
    for g in np.flatnonzero(over > 0):
        rows = np.flatnonzero(groups == g)
        short = np.flatnonzero(over < 0)
        logs = np.log(np.maximum(probabilities[rows], 1e-300))
        gain = logs[:, short] - logs[:, [g]] + rng.gumbel(size=(len(rows), len(short)))
        order = np.argsort(-gain, axis=None)
        excess = over[g]
        moved = np.zeros(len(rows), dtype=bool)
        for at in order:
            if not excess:
                break
            row, to = divmod(int(at), len(short))
            if moved[row] or over[short[to]] >= 0 or not probabilities[rows[row], short[to]]:
                continue
            moved[row] = True
            groups[rows[row]] = short[to]
            over[short[to]] += 1
            excess -= 1
        over[g] = excess
    return groups
