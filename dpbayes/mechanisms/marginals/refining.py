"""Refined pairs: tables of strongly related columns on fine groups, chosen by noisy scores.

Pair tables on few groups a column lose relations by which one column nearly follows from another.
So the tables of all pairs on fine groups are compared with those of rows made from the noisy counts
so far, and the pairs that differ most are counted on the fine groups, as far as they form a forest.
Most cells of such a table are empty, so that it is estimated as the modelled table times ratios
whose distribution follows from all cells. ``refine`` counts; everything else here is computed from
noisy counts and public facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.marginals.budget import BudgetSplit
from dpbayes.mechanisms.marginals.groups import MOST, UNORDERED, Groups, make_groups
from dpbayes.mechanisms.marginals.levels import ColumnLevels

REFINED = 0.3  # largest share of the pairs' budget for scores and refined tables
SCORED = 0.1  # share of that for the scores
FINER = 2  # nothing is refined with fewer than so many times the coarse groups
FINEST = 64  # most fine groups of a column
_AT_MOST = 2  # largest share of a refined table, relative to that of each of d - 1 of them
_SURE = 2.0  # sds of a score's noise that the gain must exceed
_KEPT = 0.25  # error of a refined table relative to that of its noisy counts
_FLAT = 0.02  # share of independence in the modelled table, so that no ratio is unbounded
_POSSIBLE = 1e-3  # the same in the estimate, so that all margins can be met
_RATIOS = np.concatenate([[0.0], np.geomspace(1 / 64, 64, 37)])  # counts relative to modelled ones
_ROUNDS, _BALANCING = 60, 100  # of fitting the ratios' distribution, and of proportional fitting
_BALANCED = 1e-4  # L1 distance from the margins at which proportional fitting ends
_RAKED = 8000  # rows to which factors are fitted
_RAKING, _MATCHING = 30, 10  # rounds of fitting factors to tables, and to the shares of levels
_NEAR = 2e-3  # L1 distance from the tables at which these end
_FARTHEST = 1e6  # largest factor of a probability
_ROUNDING = 1e-9  # share of the budget that is rounding and is not spent
_LEAST = 1e-300  # so that nothing is divided by 0

Pair = tuple[int, int]
# Exact tables of pairs of columns for the group of each level, as ``FineCounts.tables``.
Tables = Callable[[Sequence[Pair], Sequence[Ints]], list[Ints]]


def can_refine(columns: Sequence[ColumnLevels]) -> bool:
    """Whether any column has so many levels that fine groups could differ from coarse ones."""
    wide = any(column.shares is None and column.most > UNORDERED * MOST for column in columns)
    return wide and len(columns) > 1


def refined_share(
    columns: Sequence[ColumnLevels], n: int, budget: BudgetSplit
) -> tuple[float, int]:
    """Share of the pairs' budget for refined pairs, and number of fine groups, by public facts.

    With as many groups as the root of n / sd the mean cell of a table has as many records as its
    noise has sds. That would be too few if cells had about equally many, but where refining helps,
    most are empty.

    Args:
        budget: budget for all tables of pairs.
    """
    if not can_refine(columns):
        return 0.0, 0
    # What is not needed pays for a second count of pair tables, which by pure noise is worth less.
    share = REFINED if budget.rho is not None else REFINED / 2
    sd = budget.sd(share * (1 - SCORED) / (len(columns) - 1))
    most = int(min(FINEST, math.sqrt(n / sd)))
    return (share, most) if most >= FINER * MOST else (0.0, 0)


@dataclass(frozen=True)
class RefinedTable:
    """Noisy counts of two columns on fine groups, and their estimates.

    Attributes:
        counts: noisy counts, shape (A, B).
        base: modelled counts, above 0, shape (A, B).
        scale: scale of the geometric noise, or sigma of the Gaussian.
        gaussian: whether the noise is Gaussian.
    """

    counts: Floats
    base: Floats
    scale: float
    gaussian: bool

    @cached_property
    def _posterior(self) -> Floats:
        """Probabilities of the ratios by cell, shape (A, B, ratios).

        The ratios' distribution over cells is the most likely one given the noisy counts (Kiefer &
        Wolfowitz, 1956), found by the EM algorithm.
        """
        off = (self.counts[..., None] - self.base[..., None] * _RATIOS) / self.scale
        logs = -(off**2) / 2 if self.gaussian else -np.abs(off)
        likelihood = np.exp(logs - logs.max(axis=-1, keepdims=True))
        posterior = likelihood
        for _ in range(_ROUNDS):
            posterior = posterior / posterior.sum(axis=-1, keepdims=True)
            posterior = likelihood * posterior.mean(axis=(0, 1))
        return np.asarray(posterior / posterior.sum(axis=-1, keepdims=True))

    def best(self, rows: Floats, columns: Floats) -> Floats:
        """Mean shares of the cells, fitted to these margins: shape (A, B)."""
        return _balanced(self.base * (self._posterior @ _RATIOS), rows, columns)

    def drawn(self, rows: Floats, columns: Floats, n: int, rng: np.random.Generator) -> Floats:
        """Draw shares of the cells in the population from which n records are a sample."""
        ends = np.cumsum(self._posterior, axis=-1)
        marks = rng.random(self.base.shape) * ends[..., -1]
        ratios = _RATIOS[(marks[..., None] > ends[..., :-1]).sum(axis=-1)]
        shares = _balanced(self.base * ratios, rows, columns)
        sample = rng.multinomial(n, shares.ravel()).reshape(shares.shape)
        return _balanced(sample.astype(float), rows, columns)


def _balanced(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Shares of the cells with given margins, by iterative proportional fitting."""
    shares = table / max(float(table.sum()), 1.0) + _POSSIBLE * np.outer(rows, columns)
    for _ in range(_BALANCING):
        shares = shares * (rows / np.maximum(shares.sum(axis=1), _LEAST))[:, None]
        now = shares.sum(axis=0)
        shares = shares * (columns / np.maximum(now, _LEAST))
        if np.abs(now - columns).sum() < _BALANCED:
            break
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True)
class Refinement:
    """Refined tables of a forest of pairs of columns.

    Attributes:
        groups: fine groups of each column.
        tables: by pair of columns (i < j).
        most: number of fine groups of a column that was aimed at.
        left: share of the refinement's budget that is not spent.
    """

    groups: Sequence[Groups]
    tables: Mapping[Pair, RefinedTable]
    most: int
    left: float

    def shares(
        self, groups: Sequence[Groups], n: int, rng: np.random.Generator | None
    ) -> dict[Pair, Floats]:
        """Shares of the cells of each table: their means, or drawn.

        Args:
            groups: groups with the shares of the columns' levels.
        """
        shares = {}
        for (a, b), table in self.tables.items():
            rows, columns = (self.groups[j].member @ groups[j].shares for j in (a, b))
            shares[a, b] = (
                table.best(rows, columns) if rng is None else table.drawn(rows, columns, n, rng)
            )
        return shares


def refine(
    counts: Tables,
    model: Tables,
    rows: int,
    groups: Sequence[Groups],
    public: Sequence[bool],
    n: int,
    budget: BudgetSplit,
    most: int,
) -> Refinement:
    """Choose pairs by noisy scores, and count them on fine groups.

    Sensitivity: a score is a ``BudgetSplit.distance`` from the modelled table, which is a function
    of noisy counts.

    Args:
        counts: exact tables of the records.
        model: tables of synthetic rows, in the same form.
        rows: number of the synthetic rows.
        groups: groups with the noisy shares of the columns' levels.
        public: whether each column is public.
        n: public number of records.
        budget: what the refinement may spend.
        most: number of fine groups of a column to aim at.
    """
    fine = [make_groups(group.shares, group.values, most) for group in groups]
    finer = [a.size > b.size for a, b in zip(fine, groups, strict=True)]
    pairs = [
        (a, b)
        for b in range(len(groups))
        for a in range(b)
        if (finer[a] or finer[b]) and not (public[a] and public[b])
    ]
    if not pairs:
        return Refinement(fine, {}, most, 1.0)
    group_of = [group.of for group in fine]
    exact, modelled = counts(pairs, group_of), model(pairs, group_of)
    part, share = SCORED / len(pairs), (1 - SCORED) / (len(groups) - 1)
    gains = _gains(exact, modelled, n, rows, budget, part, share)
    chosen = [pairs.index(pair) for pair in _forest(pairs, gains, budget.moment_sd(part) / 2)]
    share = min(_AT_MOST * share, (1 - SCORED) / max(1, len(chosen)))
    tables = {}
    for i in chosen:
        a, b = pairs[i]
        flat = np.outer(fine[a].mass, fine[b].mass)
        base = n * ((1 - _FLAT) * modelled[i] / rows + _FLAT * flat) + _LEAST
        noisy = budget.counts(exact[i], share)
        tables[a, b] = RefinedTable(noisy, base, budget.scale(share), budget.rho is not None)
    left = 1 - SCORED - len(chosen) * share
    return Refinement(fine, tables, most, left if left > _ROUNDING else 0.0)


def _gains(
    exact: Sequence[Ints],
    modelled: Sequence[Ints],
    n: int,
    rows: int,
    budget: BudgetSplit,
    part: float,
    share: float,
) -> Floats:
    """Noisy records that each modelled table misplaces, beyond chance and the noise of a table.

    Args:
        part: share of the budget for a score.
        share: share of the budget for a table, if all pairs of a tree are counted.
    """
    gains, sd = [], budget.sd(share)
    for table, other in zip(exact, modelled, strict=True):
        expected = n / rows * other
        score = budget.distance(table, np.asarray(expected), part)
        chance = np.sqrt(2 / np.pi * expected * (1 + n / rows)).sum() / 2
        noise = _KEPT * np.minimum(2 * expected, sd).sum() / 2
        gains.append(score - chance - noise)
    return np.array(gains)


def _forest(pairs: Sequence[Pair], gains: Floats, sd: float) -> list[Pair]:
    """Pairs with the largest sure gains that form no circle, by Kruskal's algorithm."""
    tree = list(range(1 + max(b for _, b in pairs)))
    chosen = []
    for i in np.argsort(-gains, kind="stable"):
        a, b = pairs[i]
        if gains[i] > _SURE * sd and tree[a] != tree[b]:
            tree = [tree[a] if number == tree[b] else number for number in tree]
            chosen.append((a, b))
    return chosen


@dataclass(frozen=True)
class RefinedFactors:
    """Factors of a column's level probabilities, by the fine groups of its parents and by level.

    Attributes:
        parents: columns that share a refined table with the column.
        group_of: fine group of each level of those columns.
        by_group: shape (groups of the parent, K) for each parent.
        by_level: shape (K,).
    """

    parents: Sequence[int]
    group_of: Sequence[Ints]
    by_group: Sequence[Floats]
    by_level: Floats

    def apply(self, chances: Floats, codes: Ints, flat: float = 0.0) -> Floats:
        """Multiply probabilities of rows, shape (N, K), and normalise them by row.

        Args:
            codes: levels of the rows, shape (N, columns).
            flat: from 0 to 1: how much nearer to 1 the factors' logarithms are to 0.
        """
        weighted = self._by_group(chances, codes, flat)
        weighted *= self.by_level ** (1 - flat)
        total = weighted.sum(axis=1)
        weighted /= np.maximum(total, _LEAST)[:, None]
        weighted[total == 0] = chances[total == 0]
        return weighted

    def _by_group(self, chances: Floats, codes: Ints, flat: float) -> Floats:
        weighted = chances.copy()
        for parent, of, factors in zip(self.parents, self.group_of, self.by_group, strict=True):
            weighted *= (factors ** (1 - flat))[of[codes[:, parent]]]
        return weighted

    def matched(self, chances: Floats, codes: Ints, shares: Floats) -> RefinedFactors:
        """Choose factors of the levels by which their expected shares are these, shape (K,)."""
        weighted, by_level = self._by_group(chances, codes, 0.0), self.by_level
        for _ in range(_MATCHING):
            total = np.maximum(weighted @ by_level, _LEAST)
            now = by_level * ((1 / total) @ weighted) / len(weighted)
            if np.abs(now - shares).sum() < _NEAR:
                break
            by_level = _bounded(by_level * _factor(shares, now))
        return replace(self, by_level=by_level)


def fit_factors(
    chances: Floats,
    codes: Ints,
    shares: Floats,
    fine: Groups,
    parents: Mapping[int, tuple[Groups, Floats]],
) -> RefinedFactors:
    """Fit factors by which the rows' expected tables become the refined ones.

    By iterative proportional fitting: for the parents in turn, and then for the shares of levels.

    Args:
        chances: probabilities of the levels by row, shape (N, K).
        codes: levels of the rows, shape (N, columns).
        shares: shares of the levels, shape (K,).
        fine: fine groups of the column.
        parents: fine groups of each parent, and shares of the cells (parent, column).
    """
    some = np.linspace(0, len(chances) - 1, min(len(chances), _RAKED)).astype(np.int64)
    p = _normalised(chances[some] @ fine.member.T)
    members = [groups.member[:, codes[some, k]] for k, (groups, _) in parents.items()]
    by_group = [np.ones(table.shape) for _, table in parents.values()]
    by_level, mass = np.ones(fine.size), fine.member @ shares
    for _ in range(_RAKING):
        apart = 0.0
        for k, ((_, table), member) in enumerate(zip(parents.values(), members, strict=True)):
            now = member @ p
            wanted = table * (now.sum(axis=1) / np.maximum(table.sum(axis=1), _LEAST))[:, None]
            apart += float(np.abs(now - wanted).sum()) / len(p)
            factor = np.where(now.sum(axis=1, keepdims=True) > 0, _factor(wanted, now), 1.0)
            by_group[k] = _bounded(by_group[k] * factor)
            p = _normalised(p * (member.T @ factor))
        factor = _factor(mass, p.mean(axis=0))
        by_level = _bounded(by_level * factor)
        p = _normalised(p * factor)
        if apart < _NEAR:
            break
    group_of = [groups.of for groups, _ in parents.values()]
    every = [factors[:, fine.of] for factors in by_group]
    fitted = RefinedFactors(list(parents), group_of, every, by_level[fine.of])
    return fitted.matched(chances, codes, shares)


def _factor(wanted: Floats, now: Floats) -> Floats:
    return _bounded(wanted / np.maximum(now, _LEAST))


def _bounded(factors: Floats) -> Floats:
    return np.asarray(np.clip(factors, 1 / _FARTHEST, _FARTHEST))


def _normalised(chances: Floats) -> Floats:
    return np.asarray(chances / np.maximum(chances.sum(axis=1, keepdims=True), _LEAST))
