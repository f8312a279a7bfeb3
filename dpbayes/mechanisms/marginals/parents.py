"""What noisy tables say of a column and those before it, and functions of those by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.marginals.counting import Measurement, Some
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

_LEAST = 3.0  # of the logarithm of the evidence
_MOST = 150  # functions of two columns together that a column follows from


@dataclass(frozen=True)
class Parents:
    """Columns before a column, with which tables of it were counted.

    Attributes:
        single: by tables of pairs.
        double: two of them together, by tables of three columns.
        groups, merged: of all columns, for tables of pairs and of three.
    """

    single: Sequence[int]
    double: Sequence[Some]
    groups: Sequence[Groups]
    merged: Sequence[Groups]

    @classmethod
    def of(
        cls,
        measured: Measurement,
        groups: Sequence[Groups],
        column: int,
        before: Sequence[int],
    ) -> Parents:
        """All there are."""
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
        return cls(single, double, groups, merged)

    def phis(self, codes: Ints) -> list[Floats]:
        """By block, functions by row that go on inside groups: shape (N, D)."""
        return self._of(codes, [g.fine for g in self.groups], [m.fine for m in self.merged])

    def psis(self, codes: Ints) -> list[Floats]:
        """By block, functions by row as tables of groups have them: shape (N, D)."""
        own = [g.basis[g.of] for g in self.groups]
        return self._of(codes, own, [m.basis[m.of] for m in self.merged])

    def _of(self, codes: Ints, own: Sequence[Floats], merged: Sequence[Floats]) -> list[Floats]:
        none = np.empty((len(codes), 0))
        found = [np.hstack([none, *(own[k][codes[:, k]] for k in self.single)])]
        if self.double:
            both = (
                merged[k][codes[:, k], :, None] * merged[m][codes[:, m], None, :]
                for k, m in self.double
            )
            found.append(np.hstack([each.reshape(len(codes), -1) for each in both]))
        return found


def fit_relation(
    measured: Measurement,
    parents: Parents,
    column: int,
    codes: Ints,
    left: Floats | None,
    *,
    least: float,
    rng: np.random.Generator | None,
) -> tuple[Conditional, Parents]:
    """How a column follows from others, and from which, fitted to synthetic rows.

    What two columns say together is taken in where the tables of three have evidence for it beside
    what the pairs foresee.

    Args:
        codes: fine levels of the rows, shape (N, columns).
        left: as for ``Conditional.probabilities``.
        least: sd of relations, where evidence asks for a smaller one.
        rng: for a draw.
    """
    group = parents.groups[column]
    target = _pairs_target(measured, parents, column, least)
    every = zip(parents.psis(codes), parents.phis(codes), strict=True)
    first, *others = list(every)
    own = RelationBlock(group.basis, target, *first)
    if others:
        found = fit_conditional(group.mass, [own], None, left)
        block, double = _told(measured, parents, column, found, own, others[0], left)
        parents = replace(parents, double=double)
        if block is not None:
            return fit_conditional(group.mass, [own, block], rng, left), parents
    return fit_conditional(group.mass, [own], rng, left), parents


def _told(
    measured: Measurement,
    parents: Parents,
    column: int,
    found: Conditional,
    own: RelationBlock,
    functions: tuple[Floats, Floats],
    left: Floats | None,
) -> tuple[RelationBlock | None, list[Some]]:
    """The block of tables of three columns that tell more than pairs do, and their columns."""
    group, merged = parents.groups[column], parents.merged[column]
    first = np.array([np.flatnonzero(group.of == g)[0] for g in range(group.size)])
    basis = merged.basis[merged.of[first]]
    targets = [_triple_target(measured, parents, column, pair) for pair in parents.double]
    ends = np.cumsum([target.mean.shape[1] for target in targets])[:-1]
    parts = [np.split(each, ends, axis=1) for each in functions]
    kept: list[tuple[float, Some, RelationBlock]] = []
    for pair, target, psi, phi in zip(parents.double, targets, *parts, strict=True):
        block = RelationBlock(basis, target, psi, phi)
        off = missed_means(found, [own], left, block)
        variance = (measured.n + target.noise) / measured.n**2
        scale, gain = evidence(off, variance, target.prior_sd)
        if gain > _LEAST:
            scaled = replace(target, prior_sd=scale * target.prior_sd)
            kept.append((gain, pair, replace(block, target=scaled)))
    kept.sort(key=lambda each: -each[0])
    widths = np.cumsum([block.psi.shape[1] for *_, block in kept])
    kept = [each for each, width in zip(kept, widths, strict=True) if width <= _MOST]
    if not kept:
        return None, []
    blocks = [block for *_, block in kept]
    target = Target(
        measured.n,
        *(
            np.hstack([getattr(b.target, name) for b in blocks])
            for name in ("mean", "noise", "prior_sd")
        ),
    )
    psi, phi = (np.hstack([getattr(b, name) for b in blocks]) for name in ("psi", "phi"))
    return RelationBlock(basis, target, psi, phi), [pair for _, pair, _ in kept]


def _pairs_target(measured: Measurement, parents: Parents, column: int, least: float) -> Target:
    """What the tables of pairs say of a column and those before it."""
    one = parents.groups[column]
    empty = np.empty((one.size - 1, 0))
    means, noises, sds = [empty], [empty], [empty]
    for k in parents.single:
        other = parents.groups[k]
        table = measured.tables[_key(column, k)]
        mean = one.basis.T @ (table if column < k else table.T) @ other.basis / measured.n
        noise = measured.sd**2 * np.outer(_squares(one), _squares(other))
        sd = np.outer(one.prior_sd, other.prior_sd)
        means.append(mean)
        noises.append(noise)
        scale = evident_scale(mean, (measured.n + noise) / measured.n**2, sd)
        sds.append(max(scale, least) * sd)
    return Target(measured.n, np.hstack(means), np.hstack(noises), np.hstack(sds))


def _triple_target(measured: Measurement, parents: Parents, column: int, pair: Some) -> Target:
    """The same of a table of three columns, with prior sds up to a scale."""
    columns = (column, *pair)
    key = _key(*columns)
    table = np.transpose(measured.triples[key], [key.index(j) for j in columns])
    one, a, b = (parents.merged[j] for j in columns)
    mean = np.einsum("xyz,xi,yj,zk->ijk", table, one.basis, a.basis, b.basis, optimize=True)
    size = one.size - 1
    noise = measured.triple_sd**2 * np.outer(_squares(one), np.kron(_squares(a), _squares(b)))
    sd = np.outer(one.prior_sd, np.kron(a.prior_sd, b.prior_sd))
    return Target(measured.n, mean.reshape(size, -1) / measured.n, noise, sd)


def _squares(groups: Groups) -> Floats:
    """Of the functions, summed over groups: what they make of noise of variance 1."""
    return np.asarray((groups.basis**2).sum(axis=0))


def _key(*columns: int) -> Some:
    return tuple(sorted(columns))
