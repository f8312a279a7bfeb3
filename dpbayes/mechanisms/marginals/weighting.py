"""Counts of records with sampling weights: how many equally weighted records they are worth."""

from __future__ import annotations

import math

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.marginals.budget import UNIT, BudgetSplit
from dpbayes.schema.survey import Survey

PARTS = (0.01, 0.03, 0.1)  # shares of the budget for the sum of squares, of which one is taken
PRECISE = 0.05  # sd of its noise, relative to the least value expected, that is enough
UNSURE = 0.05  # relative sd of the declared population about the sum of the weights


def in_units(shares: Floats) -> Ints:
    """Convert what records count as, from 0 to 1, to whole UNITs, rounded down, shape (n,)."""
    return (shares * UNIT).astype(np.int64)


def squares(weights: Ints) -> Ints:
    """Sum u^2 and u - u^2 over the records, in whole UNITs, shape (2,).

    Sensitivity: a record adds two numbers at or above 0 with a sum of at most one UNIT, as if they
    were two cells of a table.

    Args:
        weights: what records count as, u, in whole UNITs.
    """
    squared = weights * weights // UNIT
    return np.array([squared.sum(), (weights - squared).sum()])


def effective_records(
    sums: Ints, survey: Survey, rows: float, budget: BudgetSplit
) -> tuple[int, BudgetSplit]:
    """Measure Kish's effective number of records, (Σu)^2 / Σu^2, divided by the design effect.

    A share of equal records as large as the effective number has about the sampling variance of the
    weighted share. So counts of records are multiplied by what makes them add up to that number,
    and everything that is fitted to them knows how much they vary.

    Source: kish-1965, section 11.7.

    Args:
        sums: ``squares`` of the records.
        rows: public number of records, or infinity; no effective number is larger.
        budget: budget for this and all counts that follow.
    Returns:
        The number, and the budget that is left, for records with weights.
    """
    part = next((p for p in PARTS if budget.sd(p) < PRECISE * survey.fewest_records / 2), PARTS[-1])
    first = budget.weighted(1.0)
    square, rest = first.counts(sums, part)
    noise = first.sd(part) * math.sqrt(2)
    known, measured = (UNSURE * survey.fewest_records) ** -2, noise**-2
    total = (known * survey.fewest_records + measured * (square + rest)) / (known + measured)
    total = max(total, 1.0)
    square = min(max(square, total**2 / max(rows, total)), total)
    number = total**2 / square / survey.deff
    return max(1, round(number)), budget.of(1 - part).weighted(number / total)
