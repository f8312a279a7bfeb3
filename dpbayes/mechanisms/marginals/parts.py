"""Division of the budget of ``marginals`` among its questions, and sizes of tables.

Only public facts decide: numbers of rows, of columns and of their levels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.mechanisms.marginals.budget import BudgetSplit
from dpbayes.mechanisms.marginals.groups import FEWEST, MERGED, MOST, groups_for, told_apart
from dpbayes.mechanisms.marginals.levels import FIRST, SECOND, ColumnLevels, pooled, worth_dividing
from dpbayes.mechanisms.marginals.refining import refined_share

MARGINS = (0.5, 0.03)  # share of the budget for margins at the fewest groups; less per extra group
SCORES = 0.08  # share of the budget for scores of pairs, where pairs are chosen
KEEP = 0.3  # share of the budget for analyses, if there are any; the other shares are of the rest
MANY = 8  # number of columns from which on pairs are chosen by noisy scores
SEVERAL = 2  # pairs asked for, by column, above which those that are counted are chosen by scores
TRIPLES = 0.2  # share of the tables' budget for triples of columns, where n is large enough
MOST_TRIPLES = 20  # triples of six columns: with more, pairs lose more than triples gain


@dataclass(frozen=True)
class BudgetParts:
    """Shares of the budget, and sizes of tables, by public facts.

    Attributes:
        margins: share for the margin of each column that is not public, on its final levels.
        first: share for the public bins of each column whose bins are then divided.
        second: share for their parts, before the numbers on which records heap become levels.
        rest: share for all pair tables together.
        pairs: number of pair tables.
        scores: share for noisy scores by which pairs are chosen; 0 where all are counted.
        most: number of groups of a column that pair tables can tell apart.
        triples: share for all tables of three columns together; 0 where there are none.
        merged: number of groups of a column that tables of three columns can tell apart.
        refined: share for scores and tables of pairs on fine groups; 0 where there are none.
        finest: number of groups to aim at for these.
    """

    margins: Mapping[int, float]
    first: Mapping[int, float]
    second: Mapping[int, float]
    rest: float
    pairs: int
    scores: float
    most: int
    triples: float
    merged: int
    refined: float
    finest: int

    @classmethod
    def of(
        cls,
        columns: Sequence[ColumnLevels],
        n: int,
        budget: BudgetSplit,
        asked: int | None = None,
    ) -> BudgetParts:
        """Divide the budget by the public levels of the columns.

        Args:
            asked: number of pair tables, where not those of all pairs are asked for; there are no
                others then.
        """
        public = [column.shares is not None for column in columns]
        hidden = [j for j, is_public in enumerate(public) if not is_public]
        pairs = math.comb(len(public), 2) - math.comb(sum(public), 2) if asked is None else asked
        scores = SCORES if are_scored(len(columns), len(hidden), asked) else 0.0
        for_margins = _for_margins(n, pairs, budget)
        roots = np.sqrt([columns[j].size for j in hidden])
        margins = dict(zip(hidden, (for_margins * roots / roots.sum()).tolist(), strict=True))
        first, second = {}, {}
        for j in hidden:
            of_bins, of_parts = FIRST * margins[j], SECOND * margins[j]
            finer = margins[j] - of_bins - of_parts
            sd = pooled(budget.sd(of_parts), budget.sd(finer))
            if columns[j].divisible and worth_dividing(columns[j].size, n, sd):
                first[j], second[j], margins[j] = of_bins, of_parts, finer
        rest = 1 - for_margins - scores
        most = groups_for(n, budget.sd(rest / pairs)) if pairs else 1
        triples = math.comb(len(public), 3) - math.comb(sum(public), 3) if asked is None else 0
        part, merged = 0.0, 0
        if most >= MOST and 0 < triples <= MOST_TRIPLES:
            enough = groups_for(n, budget.sd((1 - TRIPLES) * rest / pairs)) >= most
            if enough and told_apart(n, budget.sd(TRIPLES * rest / triples)) >= MERGED:
                part, merged = TRIPLES * rest, MERGED
        rest -= part
        refined, finest = 0.0, 0
        if pairs and asked is None:
            refined, finest = refined_share(columns, n, budget.of(rest))
        pair_share, refined = (1 - refined) * rest, refined * rest
        return cls(
            margins, first, second, pair_share, pairs, scores, most, part, merged, refined, finest
        )  # fmt: skip

    def faintest(self, rows: int, budget: BudgetSplit) -> float:
        """Correlation of two columns that the noise of their table leaves two thirds of, or more.

        A correlation is a sum of the g × g cells with scores that have mean 0 and variance 1, which
        noise of sd s in each cell makes uncertain by g s / n. In tables made up with 6 to 20
        columns (``tests/statistical/test_lost_relations.py``) correlations of twice that and above
        kept two thirds and more of their size, and those of half as much a third to a half.
        """
        return 2 * self.most * budget.sd(self.rest / self.pairs) / rows


def are_scored(columns: int, hidden: int, asked: int | None) -> bool:
    """Whether pairs are chosen by noisy scores, by public facts.

    Args:
        columns, hidden: number of columns, and of those that are not public.
        asked: as in ``BudgetParts.of``.
    """
    return columns >= MANY if asked is None else asked > SEVERAL * hidden


def _for_margins(n: int, pairs: int, budget: BudgetSplit) -> float:
    """Share of the budget for margins: less where tables can tell more groups apart."""
    if not pairs:
        return 1.0
    most, less = MARGINS
    return most - less * (groups_for(n, budget.sd((1 - most) / pairs)) - FEWEST)
