"""What is counted of the records, with noise: the only code here that sees a record.

``FineCounts`` answers questions with exact counts. ``Measurement.of`` asks them, adds noise to
every
answer, and decides what to ask next from noisy answers and public facts alone. All else of the
mechanism is made of a ``Measurement``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.marginals.analyses import Analysis, Answer, Moment
from dpbayes.mechanisms.marginals.budget import UNIT, BudgetSplit
from dpbayes.mechanisms.marginals.groups import (
    FEWEST,
    MERGED,
    MOST,
    UNORDERED,
    Groups,
    groups_for,
    make_groups,
    merge,
    told_apart,
)
from dpbayes.mechanisms.marginals.margins import Shares, fit_shares, reconciled
from dpbayes.mechanisms.tables.cells import TableCells
from dpbayes.records.chunks import ChunkedTable, Table
from dpbayes.schema import Column as Declared
from dpbayes.schema.rules import Values, numbers_of

MARGINS = (0.5, 0.03)  # of a budget for margins where groups are fewest, less for each group more
SCORES = 0.08  # for scores of pairs, where there are many
KEEP = 0.3  # for analyses, where there are any; the other parts are of what is left
MANY = 8  # columns from which pairs are chosen
TRIPLES = 0.2  # of what tables have for those of three columns, where n pays for them
MOST_TRIPLES = 20  # of six columns: of more, relations lose more than is won
KEPT = 0.5  # error of a pair's modelled table, next to that of its noisy table


Some = tuple[int, ...]


@dataclass(frozen=True)
class FineCounts:
    """Records as fine levels, column by column. Confidential.

    Attributes:
        codes: shape (n, columns).
        sizes: number of fine levels by column.
        values: of columns that analyses use, as rules read them, shape (n,) each.
    """

    codes: Ints
    sizes: Sequence[int]
    values: Values = field(default_factory=dict)

    def margins(self) -> list[Ints]:
        """Records by fine level, of each column."""
        columns = enumerate(self.sizes)
        return [np.bincount(self.codes[:, j], minlength=size) for j, size in columns]

    def tables(self, some: Sequence[Some], of: Sequence[Ints]) -> list[Ints]:
        """Records by groups of two or three columns, for each such choice of columns.

        Args:
            of: the group of each fine level, by column.
        """
        sizes = [int(groups.max(initial=0)) + 1 for groups in of]
        found = [groups[self.codes[:, j]] for j, groups in enumerate(of)]
        tables = []
        for columns in some:
            shape = [sizes[j] for j in columns]
            cells = found[columns[0]]
            for j in columns[1:]:
                cells = cells * sizes[j] + found[j]
            tables.append(np.bincount(cells, minlength=math.prod(shape)).reshape(shape))
        return tables

    def sums(self, moments: Sequence[Moment]) -> list[Ints]:
        """Of moments over the records, in their units."""
        return [moment.units(self.values).sum(axis=0) for moment in moments]


@dataclass(frozen=True)
class ChunkedCounts:
    """The same of records in parts, added up: whole numbers, whatever the parts. Confidential.

    Attributes:
        table: of which one part at a time is in memory.
        cells: fine levels of all columns.
        used: columns that analyses use.
    """

    table: Table
    cells: TableCells
    used: Sequence[Declared]

    def margins(self) -> list[Ints]:
        """As ``FineCounts``, by one pass over the records."""
        return self._added(FineCounts.margins)

    def tables(self, some: Sequence[Some], of: Sequence[Ints]) -> list[Ints]:
        """As ``FineCounts``, by one pass for all choices of columns."""
        return self._added(FineCounts.tables, some, of)

    def sums(self, moments: Sequence[Moment]) -> list[Ints]:
        """As ``FineCounts``, by one pass for all moments."""
        return self._added(FineCounts.sums, moments)

    def _added(self, counted: Callable[..., list[Ints]], *what: Any) -> list[Ints]:
        parts = self.table.map(functools.partial(_counted, counted, self.cells, self.used, what))
        return functools.reduce(_sum, parts)


def _counted(
    counted: Callable[..., list[Ints]],
    cells: TableCells,
    used: Sequence[Declared],
    what: Sequence[Any],
    records: pd.DataFrame,
) -> list[Ints]:
    return counted(_counts(cells, used, records), *what)


def _counts(cells: TableCells, used: Sequence[Declared], records: pd.DataFrame) -> FineCounts:
    values = {column.name: numbers_of(column, records[column.name]) for column in used}
    return FineCounts(cells.codes(records), [axis.size for axis in cells.axes], values)


def _sum(some: list[Ints], others: list[Ints]) -> list[Ints]:
    return [a + b for a, b in zip(some, others, strict=True)]


def counts_of(
    table: Table, cells: TableCells, used: Sequence[Declared] = ()
) -> FineCounts | ChunkedCounts:
    """Of records in memory, whose fine levels are found once, or of parts."""
    if isinstance(table, ChunkedTable):
        return ChunkedCounts(table, cells, used)
    return _counts(cells, used, table.frame)


@dataclass(frozen=True)
class ColumnLevels:
    """What is public of one column.

    Attributes:
        size: of its fine levels.
        values: a number for each of them where they are ordered, else None; NaN for the last one,
            of missing values.
        shares: of the fine levels where the column is public, else None.
        atoms: levels that are single values among bins.
    """

    size: int
    values: Floats | None
    shares: Floats | None = None

    atoms: tuple[int, ...] = ()

    @property
    def curve(self) -> Mask:
        """Levels whose shares are near those of their neighbours, shape (size,)."""
        if self.values is None:
            return np.zeros(self.size, dtype=bool)
        found = np.isfinite(self.values)
        found[list(self.atoms)] = False
        return found


@dataclass(frozen=True)
class Measurement:
    """Noisy counts. They are what is paid for; whatever is made of them is free.

    Attributes:
        n: public number of records.
        columns: by number.
        fine: noisy counts by fine level, of each column that is not public.
        fine_sds: of the noise in them.
        tables: noisy counts of groups, by pair of columns (i < j).
        sd: of the noise in them.
        coarse: groups of each column, as tables were counted.
        triples: noisy counts of merged groups, by three columns (i < j < k), where n pays for them.
        triple_sd: of the noise in them.
        merged: groups of groups, of each column.
        answers: about analyses that are to be kept.
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
    answers: tuple[Answer, ...] = ()

    @classmethod
    def of(
        cls,
        counts: FineCounts | ChunkedCounts,
        columns: Sequence[ColumnLevels],
        n: int,
        budget: BudgetSplit,
    ) -> Measurement:
        """Measure margins, then tables on groups that the noisy margins give."""
        pairs = _some(columns, 2)
        parts = BudgetParts.of(
            [c.size for c in columns], [c.shares is not None for c in columns], n, budget
        )
        margins = counts.margins()
        fine = {j: budget.counts(margins[j], part) for j, part in parts.margins.items()}
        sds = {j: budget.sd(part) for j, part in parts.margins.items()}
        many, rest, most = len(columns) >= MANY, parts.rest, parts.most
        groups = []
        for j, column in enumerate(columns):
            # Each of few levels is a group of its own, whatever its share; scores ask for that.
            shares = np.full(column.size, 1 / column.size)
            if column.shares is not None:
                shares = column.shares
            elif many or column.size > FEWEST:
                found = reconciled(fine[j], sds[j], [])
                shares = fit_shares(found, n, curve=column.curve).best()
            groups.append(make_groups(shares, column.values, most))
        exact = dict(zip(pairs, counts.tables(pairs, [g.of for g in groups]), strict=True))
        if many:
            pairs = _chosen(exact, groups, n, budget, rest)
        part = rest / max(1, len(pairs))
        tables = {pair: budget.counts(exact[pair], part) for pair in pairs}
        sd = budget.sd(part) if pairs else 0.0
        merged = [merge(g, parts.merged) for g in groups]
        triples = _some(columns, 3) if parts.triples else []
        part = parts.triples / max(1, len(triples))
        of_three = counts.tables(triples, [g.of for g in merged]) if triples else []
        noisy = {t: budget.counts(c, part) for t, c in zip(triples, of_three, strict=True)}
        noise = budget.sd(part) if triples else 0.0
        return cls(n, columns, fine, sds, tables, sd, groups, noisy, noise, merged)

    def asking(
        self,
        analyses: Sequence[Analysis],
        rows: Values,
        counts: FineCounts | ChunkedCounts,
        budget: BudgetSplit,
    ) -> Measurement:
        """With answers about analyses, which have parts of a budget by their numbers of moments.

        Args:
            rows: values that these noisy counts gave, which say what is asked.
        """
        sizes = np.array([analysis.moments for analysis in analyses])
        parts = (sizes / sizes.sum()).tolist()
        sds = [budget.moment_sd(part) for part in parts]
        moments = [
            Moment.of(one, rows, self.n, budget.norm, sd)
            for one, sd in zip(analyses, sds, strict=True)
        ]
        found = []
        for one, sums, part, sd in zip(moments, counts.sums(moments), parts, sds, strict=True):
            noisy = one.bound * budget.moments(sums, part)
            found.append(Answer(one, noisy, one.bound * sd))
        return replace(self, answers=tuple(found))

    def about(self, name: str) -> list[Answer]:
        """Answers about analyses of a column."""
        return [answer for answer in self.answers if answer.moment.analysis.outcome.name == name]

    @cached_property
    def known(self) -> list[Shares | None]:
        """Of the fine levels of each column, from all counts; None for public columns."""
        found: list[Shares | None] = []
        for j, column in enumerate(self.columns):
            if j not in self.fine:
                found.append(None)
                continue
            sums = _sums(j, self.coarse, self.tables, self.sd)
            counts = reconciled(self.fine[j], self.fine_sds[j], sums)
            found.append(fit_shares(counts, self.n, curve=column.curve))
        return found

    @cached_property
    def groups(self) -> list[Groups]:
        """Of each column, with its shares as they are known from all counts."""
        return self._with([group.shares if k is None else k.best() for group, k in self._both])

    def drawn(self, rng: np.random.Generator) -> list[Groups]:
        """Groups with shares drawn from what is known of the population's."""
        return self._with([group.shares if k is None else k.drawn(rng) for group, k in self._both])

    @property
    def _both(self) -> Iterator[tuple[Groups, Shares | None]]:
        return zip(self.coarse, self.known, strict=True)

    def _with(self, shares: list[Floats]) -> list[Groups]:
        pairs = zip(self.coarse, shares, strict=True)
        return [Groups(group.of, found, group.values) for group, found in pairs]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """All noisy counts, as many numbers whatever they are, for audits: 0 where none is."""
        parts = list(self.fine.values())
        for some, most in ((2, UNORDERED * MOST + 1), (3, MERGED + 1)):
            for columns in _some(self.columns, some):
                room = np.zeros([min(self.columns[j].size, most) for j in columns])
                table = (self.tables if some == 2 else self.triples).get(columns)
                if table is not None:
                    room[tuple(slice(size) for size in table.shape)] = table
                parts.append(room.ravel())
        parts += [answer.sums.ravel() for answer in self.answers]
        return np.concatenate([*parts, np.empty(0)]).astype(dtype or float)


@dataclass(frozen=True)
class BudgetParts:
    """How a budget is divided, by public facts.

    Attributes:
        margins: of each column that is not public.
        rest: of all tables of pairs together.
        pairs: how many there are.
        most: groups of a column that these tables can tell apart.
        triples: of all tables of three columns together; 0 where there are none.
        merged: groups of a column that these can tell apart.
    """

    margins: Mapping[int, float]
    rest: float
    pairs: int
    most: int
    triples: float
    merged: int

    @classmethod
    def of(
        cls, sizes: Sequence[int], public: Sequence[bool], n: int, budget: BudgetSplit
    ) -> BudgetParts:
        """For columns of so many fine levels, some of them public."""
        hidden = [j for j, known in enumerate(public) if not known]
        pairs = math.comb(len(public), 2) - math.comb(sum(public), 2)
        for_margins = _for_margins(n, pairs, budget)
        roots = np.sqrt([sizes[j] for j in hidden])
        margins = dict(zip(hidden, (for_margins * roots / roots.sum()).tolist(), strict=True))
        rest = 1 - for_margins - (SCORES if len(sizes) >= MANY else 0.0)
        most = groups_for(n, budget.sd(rest / pairs)) if pairs else 1
        triples = math.comb(len(public), 3) - math.comb(sum(public), 3)
        if most < MOST or not 0 < triples <= MOST_TRIPLES:
            return cls(margins, rest, pairs, most, 0.0, 0)
        part = TRIPLES * rest
        left = rest - part
        told = told_apart(n, budget.sd(part / triples))
        if told < MERGED or groups_for(n, budget.sd(left / pairs)) < most:
            return cls(margins, rest, pairs, most, 0.0, 0)
        return cls(margins, left, pairs, most, part, MERGED)


def _some(columns: Sequence[ColumnLevels], number: int) -> list[Some]:
    """Choices of so many columns of which one is not public at least."""
    every = itertools.combinations(range(len(columns)), number)
    return [some for some in every if any(columns[j].shares is None for j in some)]


def _for_margins(n: int, pairs: int, budget: BudgetSplit) -> float:
    """Part of the budget: relations get more of it where tables can tell more groups apart."""
    if not pairs:
        return 1.0
    most, less = MARGINS
    return most - less * (groups_for(n, budget.sd((1 - most) / pairs)) - FEWEST)


def _sums(
    column: int, groups: Sequence[Groups], tables: Mapping[Some, Floats], sd: float
) -> list[tuple[Floats, Floats, float]]:
    """What tables say of a column's groups."""
    found = []
    for (a, b), table in tables.items():
        if column in (a, b):
            other = 1 if column == a else 0
            noise = sd * float(np.sqrt(table.shape[other]))
            found.append((table.sum(axis=other), groups[column].member, noise))
    return found


def _chosen(
    exact: Mapping[Some, Ints],
    groups: Sequence[Groups],
    n: int,
    budget: BudgetSplit,
    rest: float,
) -> list[Some]:
    """The pairs to measure, by noisy scores: half the distance of their table from independence.

    Sensitivity: 1/2 for each cell that a record changes, since what is expected of a cell is made
    of noisy shares. In whole UNITs of 1/2, so that sums are exact.

    So many are kept as make the error least that is foreseen: what is told by those that are left
    out, and the noise of those that are kept.
    """
    pairs = list(exact)
    part = SCORES / len(pairs)

    def score(pair: Some) -> float:
        a, b = (groups[j].mass for j in pair)
        expected = np.rint(UNIT * n * np.outer(a, b)).astype(np.int64)
        off = np.abs(UNIT * exact[pair] - expected)
        return float(budget.moments(np.array([off.sum()]), part)[0]) / 2

    scores = np.array([score(pair) for pair in pairs])
    order = np.argsort(-scores)
    cells = np.array([groups[a].size * groups[b].size for a, b in pairs])[order]
    told = np.maximum(scores[order], 0.0)
    kept = np.arange(1, len(pairs) + 1)
    noise = np.array([budget.sd(rest / k) for k in kept]) / np.sqrt(2)
    error = KEPT * 0.5 * np.cumsum(cells) * noise + told.sum() - np.cumsum(told)
    return sorted(pairs[i] for i in order[: int(np.argmin(error)) + 1])
