"""Noisy counts of the records.

``Measurement.of`` requests exact counts, adds noise to every one, and decides what to count next
from noisy counts and public facts alone. Everything after that is computed from a ``Measurement``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.marginals.analyses import Analysis, Answer, Moment, Products
from dpbayes.mechanisms.marginals.budget import BudgetSplit
from dpbayes.mechanisms.marginals.exact_counts import ChunkedCounts, FineCounts, Some
from dpbayes.mechanisms.marginals.groups import (
    FEWEST,
    MERGED,
    MOST,
    UNORDERED,
    Groups,
    make_groups,
    merge,
)
from dpbayes.mechanisms.marginals.levels import ColumnLevels, axes_of, pooled
from dpbayes.mechanisms.marginals.margins import Shares, fit_shares, reconciled
from dpbayes.mechanisms.marginals.parts import SCORES, BudgetParts
from dpbayes.mechanisms.marginals.refining import Refinement, refine
from dpbayes.mechanisms.tables.cells import Axis
from dpbayes.schema.rules import Values

PRODUCTS = 0.2  # share of an analysis for products of its covariates
NOISY_PRODUCT = 0.15  # their noise, in variances, from which on they are not measured
UNCOUNTED = 0.15  # prior sd of the correlation of a pair without a table
_APART = 0.3  # total variation from independence, by correlation
_CORRELATIONS = np.linspace(0, 0.9, 91)
KEPT = 0.5  # error of a pair's modelled table relative to that of its noisy table


@dataclass(frozen=True)
class Measurement:
    """All noisy counts. They alone spend the budget; everything after them is post-processing.

    Attributes:
        n: number of records: public, or estimated from noisy counts of all of them.
        columns: fine levels by column number, of public bins or of parts into which noisy counts
            divided them.
        fine: noisy counts by fine level, of each column that is not public.
        fine_sds: sd of the noise in ``fine``, by column.
        tables: noisy counts of groups, by pair of columns (i < j).
        sd: sd of the noise in ``tables``.
        coarse: groups of each column, on which ``tables`` were counted.
        triples: noisy counts of merged groups, by triple of columns (i < j < k); empty for small n.
        triple_sd: sd of the noise in ``triples``.
        merged: groups of each column after merging, on which ``triples`` were counted.
        uncounted: by pair without a table, the correlation to expect (root mean square) given its
            noisy score.
        answers: noisy sums for the analyses to preserve.
        refinement: tables of some pairs on fine groups; None where none could be counted.
        n_sd: sd of the estimate ``n``; 0 where it is public.
        stands_for: number of equally weighted records for one of the largest weight
            (``BudgetSplit``); 1 without weights.
    """

    n: int
    columns: Sequence[ColumnLevels]
    fine: Mapping[int, Floats]
    fine_sds: Mapping[int, float]
    tables: Mapping[Some, Floats]
    sd: float
    coarse: Sequence[Groups]
    triples: Mapping[Some, Floats]
    triple_sd: float
    merged: Sequence[Groups]
    uncounted: Mapping[Some, float] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    refinement: Refinement | None = None
    n_sd: float = 0.0
    stands_for: float = 1.0

    @classmethod
    def of(
        cls,
        counts: FineCounts | ChunkedCounts,
        columns: Sequence[ColumnLevels],
        n: int,
        budget: BudgetSplit,
        n_sd: float = 0.0,
        asked: Sequence[Some] | None = None,
    ) -> Measurement:
        """Measure margins, then tables on groups that follow from the noisy margins.

        The bins of some columns are counted first, and divided by their noisy counts; their parts
        are counted to see where records heap. The three rounds together cost what the column's
        margin costs without.

        Args:
            counts: the records.
            columns: their public levels.
            n: public number of rows, by which the budget and sizes of tables are chosen.
            budget: what counting may spend.
            n_sd: sd of that number about the number of records: 0 if it is theirs, infinite if it
                says nothing about them.
            asked: pairs of columns that alone may have tables; None for all.
        """
        pairs = _some(columns, 2) if asked is None else list(asked)
        parts = BudgetParts.of(columns, n, budget, None if asked is None else len(pairs))
        for round_of in (parts.first, parts.second) if parts.first else ():
            margins = counts.margins()
            columns = list(columns)
            for j, part in round_of.items():
                first, noise = budget.counts(margins[j], part), budget.sd(part)
                if columns[j].coarser:
                    columns[j] = columns[j].with_heaps(first, noise)
                else:
                    finer_sd = pooled(budget.sd(parts.second[j]), budget.sd(parts.margins[j]))
                    columns[j] = columns[j].by(first, noise, finer_sd)
            counts = counts.on({j: axis for j in round_of if (axis := columns[j].axis) is not None})
        margins = counts.margins()
        fine = {j: budget.counts(margins[j], part) for j, part in parts.margins.items()}
        sds = {j: budget.sd(part) for j, part in parts.margins.items()}
        n, n_sd = _number_of_records(n, n_sd, columns, fine, sds)
        many, pair_share, most = parts.scores > 0, parts.rest, parts.most
        groups = []
        for j, column in enumerate(columns):
            # Few levels are a group each, whatever their shares; only scores use shares then.
            shares = np.full(column.size, 1 / column.size)
            if column.shares is not None:
                shares = column.shares
            elif many or column.size > FEWEST:
                margin = reconciled(fine[j], sds[j], column.sums)
                shares = fit_shares(margin, n, curve=column.curve, offset=column.offset).best()
            groups.append(make_groups(shares, column.values, most))
        exact = dict(zip(pairs, counts.tables(pairs, [g.of for g in groups]), strict=True))
        uncounted: dict[Some, float] = {}
        if many:
            pairs, uncounted = _chosen(exact, groups, n, budget, pair_share)
        part = pair_share / max(1, len(pairs))
        tables = {pair: budget.counts(exact[pair], part) for pair in pairs}
        sd = budget.sd(part) if pairs else 0.0
        merged = [merge(g, parts.merged) for g in groups]
        triples = _some(columns, 3) if parts.triples else []
        part = parts.triples / max(1, len(triples))
        of_three = counts.tables(triples, [g.of for g in merged]) if triples else []
        noisy = {t: budget.counts(c, part) for t, c in zip(triples, of_three, strict=True)}
        noise = budget.sd(part) if triples else 0.0
        return cls(
            n, columns, fine, sds, tables, sd, groups, noisy, noise, merged, uncounted, n_sd=n_sd,
            stands_for=budget.stands_for,
        )  # fmt: skip

    def asking(
        self,
        analyses: Sequence[Analysis],
        rows: Values,
        counts: FineCounts | ChunkedCounts,
        budget: BudgetSplit,
    ) -> Measurement:
        """Add noisy sums for analyses; each gets a share of the budget by its number of moments.

        Args:
            rows: synthetic values made from these noisy counts, from which moments are derived.
        """
        sizes = np.array([analysis.moments for analysis in analyses])
        parts = (sizes / sizes.sum()).tolist()
        questions: list[Moment | Products] = []
        shares = []
        for analysis, part in zip(analyses, parts, strict=True):
            product_share = self._product_share(analysis, budget.of(part))
            share = (1 - product_share) * part
            moment = Moment.of(analysis, rows, self.n, budget.norm, budget.moment_sd(share))
            questions.append(moment)
            shares.append(share)
            if product_share:
                share = product_share * part
                questions.append(Products.of(moment, rows, self.n, budget.moment_sd(share)))
                shares.append(share)
        answers: list[Answer] = []
        exact = counts.sums(questions)
        for question, sums, share in zip(questions, exact, shares, strict=True):
            noisy = question.bound * budget.moments(sums, share)
            sd = question.bound * budget.moment_sd(share)
            if isinstance(question, Moment):
                answers.append(Answer(question, noisy, sd))
            else:
                answers[-1] = answers[-1].with_products(question, noisy, sd, rows, self.n)
        return self._with_more(answers=tuple(answers))

    def refined(
        self, codes: Ints, counts: FineCounts | ChunkedCounts, budget: BudgetSplit, most: int
    ) -> Measurement:
        """Add tables of pairs on fine groups, where rows from the counts so far differ most.

        What is left of the budget is spent on counting the pair tables a second time.

        Args:
            codes: fine levels of synthetic rows made from these noisy counts.
            most: number of fine groups of a column to aim at.
        """
        divided = {j: c.axis for j, c in enumerate(self.columns) if c.coarser}
        if divided:
            counts = counts.on({j: axis for j, axis in divided.items() if axis is not None})
        model = FineCounts(codes, [column.size for column in self.columns])
        public = [column.shares is not None for column in self.columns]
        refinement = refine(
            counts.tables,
            model.tables,
            len(codes),
            self.groups,
            public,
            self.n,
            budget,
            most,
        )
        if not (self.tables and refinement.left):
            return self._with_more(refinement=refinement)
        pairs, part = list(self.tables), refinement.left / len(self.tables)
        again = counts.tables(pairs, [group.of for group in self.coarse])
        precision, second = self.sd**-2, budget.sd(part) ** -2
        tables = {
            pair: (precision * self.tables[pair] + second * budget.counts(table, part))
            / (precision + second)
            for pair, table in zip(pairs, again, strict=True)
        }
        sd = (precision + second) ** -0.5
        return replace(self, refinement=refinement, tables=tables, sd=sd)

    def told_apart(self) -> dict[int, list[int]]:
        """Levels with a group of their own in some table, of unordered columns where not all have.

        They follow from noisy margins. Numbers of levels, by that of the column.
        """
        found = {}
        for j, column in enumerate(self.columns):
            grouped = [self.coarse[j]] if any(j in pair for pair in self.tables) else []
            if self.refinement is not None and any(j in pair for pair in self.refinement.tables):
                grouped.append(self.refinement.groups[j])
            if column.values is not None or not grouped:
                continue
            alone = [np.bincount(groups.of)[groups.of] == 1 for groups in grouped]
            own = np.any(alone, axis=0)
            if not own.all():
                found[j] = np.flatnonzero(own).tolist()
        return found

    def _with_more(self, **added: Any) -> Measurement:
        """Add noisy counts; shares are those given the counts before, and not fitted again."""
        measured = replace(self, **added)
        measured.__dict__["known"] = self.known
        return measured

    def beside(self, column: int) -> set[int]:
        """Columns that share a refined table with a column."""
        tables = () if self.refinement is None else self.refinement.tables
        return {j for pair in tables if column in pair for j in pair} - {column}

    def _product_share(self, analysis: Analysis, budget: BudgetSplit) -> float:
        """Share of an analysis' budget for products of its covariates, by public facts."""
        k = len(analysis.terms)
        length = k if budget.norm == 2 else k * (k + 1) / 2
        noise = length * budget.moment_sd(PRODUCTS) / max(self.n, 1)
        return PRODUCTS if k > 1 and noise < NOISY_PRODUCT else 0.0

    def about(self, name: str) -> list[Answer]:
        """Noisy sums for the analyses whose outcome is this column."""
        return [answer for answer in self.answers if answer.moment.analysis.outcome.name == name]

    @cached_property
    def known(self) -> list[Shares | None]:
        """Shares of each column's fine levels given all counts; None for public columns."""
        shares: list[Shares | None] = []
        for j, column in enumerate(self.columns):
            if j not in self.fine:
                shares.append(None)
                continue
            sums = column.sums + _sums(j, self.coarse, self.tables, self.sd)
            counts = reconciled(self.fine[j], self.fine_sds[j], sums)
            shares.append(fit_shares(counts, self.n, curve=column.curve, offset=column.offset))
        return shares

    @cached_property
    def groups(self) -> list[Groups]:
        """Groups of each column, with the most likely shares given all counts."""
        return self._with([group.shares if k is None else k.best() for group, k in self._both])

    def with_drawn_number(self, rng: np.random.Generator) -> Measurement:
        """These counts of a number of records that is drawn given all of them."""
        if not self.n_sd:
            return self
        n = max(1, round(rng.normal(self.n, self.n_sd)))
        measured = replace(self, n=n)
        measured.__dict__["known"] = [
            shares if shares is None else replace(shares, n=n) for shares in self.known
        ]
        return measured

    def drawn(self, rng: np.random.Generator) -> list[Groups]:
        """Groups of each column, with population shares drawn given all counts."""
        return self._with([group.shares if k is None else k.drawn(rng) for group, k in self._both])

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Fine levels on which the columns were counted."""
        return axes_of(self.columns)

    @property
    def _both(self) -> Iterator[tuple[Groups, Shares | None]]:
        return zip(self.coarse, self.known, strict=True)

    def _with(self, shares: list[Floats]) -> list[Groups]:
        pairs = zip(self.coarse, shares, strict=True)
        return [Groups(group.of, column_shares, group.values) for group, column_shares in pairs]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """All noisy counts as a vector of public length, for audits; 0 for what was not counted."""
        parts = [_padded(counts, self.columns[j].most) for j, counts in self.fine.items()]
        parts += [_padded(sums, c.most) for c in self.columns for sums, *_ in c.sums]
        for number, most in ((2, UNORDERED * MOST + 1), (3, MERGED + 1)):
            for columns in _some(self.columns, number):
                room = np.zeros([min(self.columns[j].most, most) for j in columns])
                table = (self.tables if number == 2 else self.triples).get(columns)
                if table is not None:
                    room[tuple(slice(size) for size in table.shape)] = table
                parts.append(room.ravel())
        pairs = _some(self.columns, 2)
        parts.append(np.array([self.uncounted.get(pair, 0.0) for pair in pairs]))
        if self.refinement is not None:
            finest = UNORDERED * (self.refinement.most + 1)
            for a, b in _some(self.columns, 2):
                room = np.zeros([min(self.columns[j].most, finest) for j in (a, b)])
                if (a, b) in self.refinement.tables:
                    counts = self.refinement.tables[a, b].counts
                    room[tuple(slice(size) for size in counts.shape)] = counts
                parts.append(room.ravel())
        for answer in self.answers:
            parts.append(answer.sums.ravel())
            if answer.covariance is not None:
                parts.append(answer.covariance.ravel())
        return np.concatenate([*parts, np.empty(0)]).astype(dtype or float)


def _padded(counts: Floats, size: int) -> Floats:
    return np.pad(counts, (0, size - len(counts)))


def _some(columns: Sequence[ColumnLevels], number: int) -> list[Some]:
    """All choices of ``number`` columns with at least one that is not public."""
    choices = itertools.combinations(range(len(columns)), number)
    return [choice for choice in choices if any(columns[j].shares is None for j in choice)]


def _number_of_records(
    rows: int,
    sd: float,
    columns: Sequence[ColumnLevels],
    fine: Mapping[int, Floats],
    fine_sds: Mapping[int, float],
) -> tuple[int, float]:
    """Estimate the number of records, of which every margin is a noisy sum, and its sd.

    Args:
        rows: public number of rows.
        sd: sd of that number about the number of records: 0 if it is theirs, infinite if it says
            nothing about them.
    """
    if not sd:
        return rows, 0.0
    sums = [(float(rows), sd)]
    for j, counts in fine.items():
        rounds = [(counts, fine_sds[j]), *((c, noise) for c, _, noise in columns[j].sums)]
        sums += [(float(c.sum()), noise * math.sqrt(len(c))) for c, noise in rounds]
    numbers, sds = np.array(sums).T
    precision = sds**-2
    return max(1, round(numbers @ precision / precision.sum())), float(precision.sum() ** -0.5)


def _sums(
    column: int, groups: Sequence[Groups], tables: Mapping[Some, Floats], sd: float
) -> list[tuple[Floats, Floats, float]]:
    """Sums of pair tables over the other column: group counts, membership matrix, noise sd."""
    sums = []
    for (a, b), table in tables.items():
        if column in (a, b):
            axis = 1 if column == a else 0
            noise = sd * float(np.sqrt(table.shape[axis]))
            sums.append((table.sum(axis=axis), groups[column].member, noise))
    return sums


def _chosen(
    exact: Mapping[Some, Ints],
    groups: Sequence[Groups],
    n: int,
    budget: BudgetSplit,
    pair_share: float,
) -> tuple[list[Some], dict[Some, float]]:
    """Choose the pairs to measure by noisy scores: half the L1 distance from independence.

    Sensitivity: of a ``BudgetSplit.distance``, as the expected counts follow from noisy shares.

    The number of pairs minimises the expected error: the distance from independence of the pairs
    that are left out, plus the noise of those that are measured.

    Returns:
        The pairs, and for each other pair the correlation to expect (``_expected_correlation``).
    """
    pairs = list(exact)
    part = SCORES / len(pairs)

    def score(pair: Some) -> float:
        a, b = (groups[j].mass for j in pair)
        return budget.distance(exact[pair], n * np.outer(a, b), part)

    scores = np.array([score(pair) for pair in pairs])
    order = np.argsort(-scores)
    cells = np.array([groups[a].size * groups[b].size for a, b in pairs])[order]
    distances = np.maximum(scores[order], 0.0)
    numbers = np.arange(1, len(pairs) + 1)
    noise = np.array([budget.sd(pair_share / k) for k in numbers]) / np.sqrt(2)
    error = KEPT * 0.5 * np.cumsum(cells) * noise + distances.sum() - np.cumsum(distances)
    number = int(np.argmin(error)) + 1
    sd = budget.moment_sd(part) / 2
    others = {
        pairs[i]: _expected_correlation(scores[i] / n, sd / n, math.sqrt(size / (2 * math.pi * n)))
        for i, size in zip(order[number:], cells[number:], strict=True)
    }
    return sorted(pairs[i] for i in order[:number]), others


def _expected_correlation(distance: float, sd: float, by_chance: float) -> float:
    """Root mean square of a correlation given its pair's noisy distance from independence.

    In groups of equal size two normal columns of correlation r are .27 to .38 r from independence.

    Args:
        distance: noisy total variation from independence.
        sd: sd of its noise.
        by_chance: its expectation for n records of independent columns.
    """
    r = _CORRELATIONS
    off = (distance - np.hypot(by_chance, _APART * r)) / sd
    log = -0.5 * (r / UNCOUNTED) ** 2 - 0.5 * off**2
    weights = np.exp(log - log.max())
    return float(np.sqrt(weights @ r**2 / weights.sum()))
