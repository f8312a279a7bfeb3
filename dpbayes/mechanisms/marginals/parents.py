"""Noisy sums for the model of a column given those before it, and the functions of these by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.exact_counts import Some
from dpbayes.mechanisms.marginals.groups import Groups
from dpbayes.mechanisms.marginals.relations import (
    Conditional,
    RelationBlock,
    Target,
    evidence,
    evident_scale,
    fit_conditional,
    missed_means,
)

_LEAST = 3.0  # least gain in log evidence for which a table of three columns enters the model
_MOST = 150  # most functions of two columns jointly in the model of a column
_UNKNOWN = 1e18  # variance of the sum of a relation that was not measured


@dataclass(frozen=True)
class Parents:
    """Columns drawn before a column that share a noisy table with it.

    Attributes:
        single: columns that share a pair table with it.
        double: pairs of columns that share a table of three columns with it.
        uncounted: columns without a table with it, and the correlation to expect with each: for
            posterior draws, which know no more of them.
        groups, merged: groups of all columns, in pair tables and in tables of three.
    """

    single: Sequence[int]
    double: Sequence[Some]
    groups: Sequence[Groups]
    merged: Sequence[Groups]
    uncounted: Mapping[int, float]

    @classmethod
    def of(
        cls,
        measured: Measurement,
        groups: Sequence[Groups],
        column: int,
        before: Sequence[int],
        *,
        draw: bool,
    ) -> Parents:
        """All parents of a column among the columns before it; ``uncounted`` ones for a draw."""
        merged = [
            replace(coarse, shares=group.shares)
            for coarse, group in zip(measured.merged, groups, strict=True)
        ]
        single = [k for k in before if _key(column, k) in measured.tables]
        double = [
            (k, other)
            for i, k in enumerate(before)
            for other in before[:i]
            if _key(column, k, other) in measured.triples
            and min(merged[j].size for j in (column, k, other)) > 1
        ]
        refined = measured.beside(column)
        uncounted = {
            k: measured.uncounted[key]
            for k in before
            if draw and (key := _key(column, k)) in measured.uncounted
            if k not in refined and groups[k].size > 1
        }
        return cls(single, double, groups, merged, uncounted)

    def phis(self, codes: Ints) -> list[Floats]:
        """Functions by row that vary inside groups, by block: shape (N, D)."""
        return self._of(codes, [g.fine for g in self.groups], [m.fine for m in self.merged])

    def psis(self, codes: Ints) -> list[Floats]:
        """Functions by row that are constant inside groups, as measured, by block: shape (N, D)."""
        own = [g.basis[g.of] for g in self.groups]
        return self._of(codes, own, [m.basis[m.of] for m in self.merged])

    def _of(self, codes: Ints, own: Sequence[Floats], merged: Sequence[Floats]) -> list[Floats]:
        empty = np.empty((len(codes), 0))
        blocks = [np.hstack([empty, *(own[k][codes[:, k]] for k in self.single)])]
        if self.double:
            products = (
                merged[k][codes[:, k], :, None] * merged[m][codes[:, m], None, :]
                for k, m in self.double
            )
            blocks.append(np.hstack([product.reshape(len(codes), -1) for product in products]))
        if self.uncounted:
            blocks.append(np.hstack([own[k][codes[:, k], :1] for k in self.uncounted]))
        return blocks


def fit_relation(
    measured: Measurement,
    parents: Parents,
    column: int,
    codes: Ints,
    left: Floats | None,
    *,
    least: float,
    rng: np.random.Generator | None,
    near: tuple[Conditional, Parents] | None,
) -> tuple[Conditional, Parents]:
    """Fit the model of a column given its parents to synthetic rows; return the parents used.

    Functions of two parents jointly enter the model where a table of three columns has evidence
    for them beyond what the pair tables predict.

    Args:
        codes: fine levels of the rows, shape (N, columns).
        left: as for ``Conditional.probabilities``.
        least: lower bound of the prior sd of relations, where evidence favours a smaller one.
        rng: draws the weights if given; otherwise they are the posterior mode.
        near: a model of the column, with its parents, at which the search for the mode begins.
    """
    start = near[0].weights if near else ()
    group = parents.groups[column]
    target = _pairs_target(measured, parents, column, least)
    every = zip(parents.psis(codes), parents.phis(codes), strict=True)
    first, *others = list(every)
    blocks = [RelationBlock(group.basis, target, *first)]
    if parents.double:
        pairs_fit = fit_conditional(group.mass, blocks, None, left, start[:1])
        block, double = _told(measured, parents, column, pairs_fit, blocks[0], others[0], left)
        parents = replace(parents, double=double)
        same = near is not None and near[1].double == double
        start = start if same else start[:1]
        if block is not None:
            blocks.append(block)
    if parents.uncounted:
        blocks.append(
            RelationBlock(group.basis[:, :1], _unknown(measured, parents, column), *others[-1])
        )
    return fit_conditional(group.mass, blocks, rng, left, start[: len(blocks)]), parents


def _unknown(measured: Measurement, parents: Parents, column: int) -> Target:
    """Prior of the relations of a column to those without a table with it; no mean is known."""
    correlations = np.array([list(parents.uncounted.values())])
    beside = np.array([parents.groups[k].prior_sd[0] for k in parents.uncounted])
    sd = correlations * parents.groups[column].prior_sd[0] * beside
    return Target(measured.n, np.zeros_like(sd), np.full_like(sd, _UNKNOWN), sd)


def _told(
    measured: Measurement,
    parents: Parents,
    column: int,
    pairs_fit: Conditional,
    own: RelationBlock,
    functions: tuple[Floats, Floats],
    left: Floats | None,
) -> tuple[RelationBlock | None, list[Some]]:
    """Block of the tables of three columns that improve on pair tables, and their parents."""
    group, merged = parents.groups[column], parents.merged[column]
    first = np.array([np.flatnonzero(group.of == g)[0] for g in range(group.size)])
    basis = merged.basis[merged.of[first]]
    targets = [_triple_target(measured, parents, column, pair) for pair in parents.double]
    ends = np.cumsum([target.mean.shape[1] for target in targets])[:-1]
    parts = [np.split(block_functions, ends, axis=1) for block_functions in functions]
    chosen: list[tuple[float, Some, RelationBlock]] = []
    for pair, target, psi, phi in zip(parents.double, targets, *parts, strict=True):
        block = RelationBlock(basis, target, psi, phi)
        off = missed_means(pairs_fit, [own], left, block)
        variance = (measured.n + target.noise) / measured.n**2
        scale, gain = evidence(off, variance, target.prior_sd)
        if gain > _LEAST:
            scaled = replace(target, prior_sd=scale * target.prior_sd)
            chosen.append((gain, pair, replace(block, target=scaled)))
    chosen.sort(key=lambda candidate: -candidate[0])
    widths = np.cumsum([block.psi.shape[1] for *_, block in chosen])
    chosen = [candidate for candidate, width in zip(chosen, widths, strict=True) if width <= _MOST]
    if not chosen:
        return None, []
    blocks = [block for *_, block in chosen]
    target = Target(
        measured.n,
        *(
            np.hstack([getattr(b.target, name) for b in blocks])
            for name in ("mean", "noise", "prior_sd")
        ),
    )
    psi, phi = (np.hstack([getattr(b, name) for b in blocks]) for name in ("psi", "phi"))
    return RelationBlock(basis, target, psi, phi), [pair for _, pair, _ in chosen]


def _pairs_target(measured: Measurement, parents: Parents, column: int, least: float) -> Target:
    """Noisy means from the pair tables of a column and its parents, with their prior."""
    own = parents.groups[column]
    empty = np.empty((own.size - 1, 0))
    means, noises, sds = [empty], [empty], [empty]
    for k in parents.single:
        other = parents.groups[k]
        table = measured.tables[_key(column, k)]
        mean = own.basis.T @ (table if column < k else table.T) @ other.basis / measured.n
        noise = measured.sd**2 * np.outer(_squares(own), _squares(other))
        sd = np.outer(own.prior_sd, other.prior_sd)
        means.append(mean)
        noises.append(noise)
        scale = evident_scale(mean, (measured.n + noise) / measured.n**2, sd)
        sds.append(max(scale, least) * sd)
    return Target(measured.n, np.hstack(means), np.hstack(noises), np.hstack(sds))


def _triple_target(measured: Measurement, parents: Parents, column: int, pair: Some) -> Target:
    """Noisy means from a table of three columns, with prior sds up to a common scale."""
    columns = (column, *pair)
    key = _key(*columns)
    table = np.transpose(measured.triples[key], [key.index(j) for j in columns])
    own, a, b = (parents.merged[j] for j in columns)
    mean = np.einsum("xyz,xi,yj,zk->ijk", table, own.basis, a.basis, b.basis, optimize=True)
    size = own.size - 1
    noise = measured.triple_sd**2 * np.outer(_squares(own), np.kron(_squares(a), _squares(b)))
    sd = np.outer(own.prior_sd, np.kron(a.prior_sd, b.prior_sd))
    return Target(measured.n, mean.reshape(size, -1) / measured.n, noise, sd)


def _squares(groups: Groups) -> Floats:
    """Squares of the basis, summed over groups: variance of the sums for noise of variance 1."""
    return np.asarray((groups.basis**2).sum(axis=0))


def _key(*columns: int) -> Some:
    return tuple(sorted(columns))
