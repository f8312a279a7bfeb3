"""Verdict of the confidential page: what holds in the synthetic rows, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.pages.page import PageTable, Section

NEAR = 0.02  # a distance that is held whatever the number of rows
BY_CHANCE = (
    1.5  # allowed distance, relative to the mean one of another sample; about its 95 % point
)
ERRORS = 2.0  # allowed difference of a coefficient, in standard errors of the records'
MOST_LOST = 10  # entries of the verdict
MOST_OF_A_KIND = 4
WORST_PAIRS = 10
KINDS = {"column": "columns", "pair": "pairs of columns", "coefficient": "coefficients"}


@dataclass(frozen=True)
class Comparison:
    """A distance between records and synthetic rows.

    Attributes:
        kind: a key of ``KINDS``.
        name: the column, the pair or the coefficient.
        distance: largest difference of ECDFs, total variation, or standard errors.
        chance: mean distance of another sample of the population from the records, for a column
            or a pair.
        text: what is lost, if it is.
    """

    kind: Literal["column", "pair", "coefficient"]
    name: str
    distance: float
    chance: float = 0.0
    text: str = ""

    @property
    def excess(self) -> float:
        """The distance, relative to the largest one that is held."""
        if self.kind == "coefficient":
            return self.distance / ERRORS
        return self.distance / max(NEAR, BY_CHANCE * self.chance)


def chance_of_ecdf(n: int, synthetic: int) -> float:
    """Mean of the largest difference of two ECDFs of one continuous distribution.

    The mean of Kolmogorov's distribution is sqrt(π/2) log 2, about 0.87.
    """
    return float(np.sqrt(np.pi / 2) * np.log(2) * np.sqrt(1 / n + 1 / synthetic))


def chance_of_shares(shares: Floats, n: int, synthetic: int) -> float:
    """Approximate mean of the total variation of two samples with these shares of cells."""
    errors = np.sqrt(shares * (1 - shares) * (1 / n + 1 / synthetic))
    return float(np.sqrt(2 / np.pi) * errors.sum() / 2)


def verdict(outcomes: Sequence[Comparison]) -> Section:
    """Say what holds, and list what is lost, the worst first."""
    held = []
    for kind, words in KINDS.items():
        excess = [outcome.excess for outcome in outcomes if outcome.kind == kind]
        if excess:
            held.append(f"{sum(e <= 1 for e in excess):,} of {len(excess):,} {words}")
    allowed = [f"A distance holds up to {NEAR}"]
    if any(outcome.chance for outcome in outcomes):
        allowed.append(f", or up to {BY_CHANCE} times that of another sample of the same size")
    if any(outcome.kind == "coefficient" for outcome in outcomes):
        allowed.append(f"; a coefficient within {ERRORS:g} standard errors of the records'")
    lost = sorted((o for o in outcomes if o.excess > 1), key=lambda o: o.excess, reverse=True)
    points: list[str] = []
    for outcome in lost:
        of_kind = [o for o in lost if o.kind == outcome.kind][:MOST_OF_A_KIND]
        if outcome in of_kind and len(points) < MOST_LOST:
            points.append(outcome.text)
    text = [f"Held: {', '.join(held)}.", "".join(allowed) + ". All are of the first data set."]
    if not lost:
        text.append("Nothing is lost by these measures.")
    elif len(points) < len(lost):
        text.append(f"Lost, the worst first ({len(points)} of {len(lost):,}):")
    else:
        text.append("Lost, the worst first:")
    return Section("Verdict", text, points=points)


def lost_distance(what: str, distance: float, chance: float) -> str:
    """Text of a lost column or pair."""
    beside = f"; another sample has {chance:.3f}" if chance else ""
    return f"{what}: {distance:.3f}{beside}"


def worst_pairs(outcomes: Sequence[Comparison]) -> PageTable:
    """Table of the pairs that are farthest from what another sample has."""
    pairs = sorted((o for o in outcomes if o.kind == "pair"), key=lambda o: o.excess, reverse=True)
    rows = [[o.name, round(o.distance, 3), round(o.chance, 3)] for o in pairs[:WORST_PAIRS]]
    head = ["pair", "total variation", "another sample"]
    return PageTable("Worst pairs of columns", head, rows)
