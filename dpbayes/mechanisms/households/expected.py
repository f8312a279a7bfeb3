"""How much of households or panels noise will hide, from public facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbayes.mechanisms.forecast import ForecastWarning
from dpbayes.mechanisms.marginals.budget import BudgetSplit
from dpbayes.mechanisms.marginals.levels import ColumnLevels
from dpbayes.mechanisms.marginals.mechanism import FAINT, FAR, LOST, besides
from dpbayes.mechanisms.marginals.parts import BudgetParts
from dpbayes.mechanisms.tables.cells import Axis

MOST = 0.5  # correlation from which on nothing of most relations is left
REMEDY = "Take fewer columns, merge levels, or more ε{delta}."


@dataclass(frozen=True)
class BlockNoise:
    """Noise of a block of columns, where all records have rows in it.

    Attributes:
        column: the column in whose levels or bins noise is largest.
        share: that noise, as a share of the records.
        faintest: correlation of two columns of which two thirds are kept; None without pair tables.
        besides: what else relations lose; empty if nothing.
    """

    column: str
    share: float
    faintest: float | None
    besides: str

    @classmethod
    def of(
        cls, axes: Sequence[Axis], given: int, asked: int, budget: BudgetSplit, rows: int
    ) -> BlockNoise:
        """Compute the noise.

        Args:
            axes: fine levels of the columns, those that are given first.
            given: number of columns that are given.
            asked: number of pair tables that may be counted.
            budget: that of the block's tables.
            rows: number of records.
        """
        levels = []
        for j, axis in enumerate(axes):
            made = ColumnLevels.of(axis, None, divisible=j >= given)
            # Shares of given columns are not known yet, and make no difference.
            uniform = np.full(made.size, 1 / made.size)
            levels.append(replace(made, shares=uniform) if j < given else made)
        parts = BudgetParts.of(levels, rows, budget, asked)
        share, column = max(
            (FAR * axes[j].size * budget.sd(part + parts.first.get(j, 0.0)) / rows, j)
            for j, part in parts.margins.items()
        )
        faintest = parts.faintest(rows, budget) if parts.pairs else None
        return cls(axes[column].column.name, share, faintest, besides(axes, parts))


def cautions(
    noises: Sequence[BlockNoise], counted: str, *, delta: bool, kept: bool
) -> tuple[ForecastWarning, ...]:
    """Warnings of what noise hides in the worst block.

    Args:
        noises: of the blocks with columns of the schema.
        counted: what a record is, in the plural.
        delta: the guarantee has a δ.
        kept: regressions are to be kept.
    """
    remedy = REMEDY.format(delta="" if delta else ", or a δ such as 1e-6")
    found = []
    worst = max(noises, key=lambda noise: noise.share)
    if worst.share > LOST:
        problem = (
            f"Noise in the levels or bins of column {worst.column!r} amounts to {worst.share:.0%} "
            f"of the {counted}: no more than its coarse shape will be kept."
        )
        found.append(ForecastWarning(problem, remedy))
    faintest = max((noise.faintest for noise in noises if noise.faintest), default=0.0)
    if faintest > MOST:
        also = ", regressions in `keep` among them" if kept else ""
        problem = (
            f"Noise hides nearly all relations between columns{also}: it takes a third or more of "
            f"{'any' if faintest >= 1 else f'a correlation of {faintest:.2f}'}."
        )
        found.append(ForecastWarning(problem, remedy))
    elif faintest > FAINT:
        problem = (
            "Do not rely on relations between two columns whose correlation is below "
            f"{faintest:.2f}: noise takes a third of their strength or more, turns them round, or "
            f"makes them up.{max((noise.besides for noise in noises), key=len)}"
        )
        found.append(ForecastWarning(problem, remedy))
    return tuple(found)
