"""Verdict of the confidential page: what holds in the synthetic rows, and what is lost."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.pages.page import PageTable, Section

NEAR = 0.02  # a distance that is held whatever the number of rows
BY_CHANCE = (
    1.5  # allowed distance, relative to the mean one of another sample; about its 95 % point
)
ERRORS = 2.0  # allowed difference of a coefficient or correlation, in standard errors
ALIKE = 0.7  # of the correlation that groups' means have in two samples: what holds
MOST_OF_A_KIND = 4  # columns, pairs, correlations and coefficients that the verdict lists, of each
FEWEST, MOST = 10, 40  # pairs in a table of the worst: those that are lost
KINDS = {
    "column": "columns",
    "missing": "shares of missing values",
    "mean": "means",
    "pair": "pairs of columns",
    "correlation": "correlations",
    "coefficient": "coefficients",
    "group": "groupings",
    "between": "relations between rows of a record",
}


@dataclass(frozen=True)
class Comparison:
    """Distances between records and the synthetic rows of each data set.

    Attributes:
        kind: a key of ``KINDS``.
        name: the column, the pair or the coefficient.
        distances: largest differences of ECDFs or total variations, of relations between rows of a
            record the mean over data sets alone; with their sign, differences of correlations, of
            shares of missing values, of means in standard deviations of the records, or of
            coefficients in standard errors; of groups, how far the correlation of their means is
            below 1; shape (data sets,).
        chance: mean distance of another sample of the population from the records, for a column,
            a pair, or rows of a record; standard error of the difference, for a correlation, a
            share of missing values or a mean; of groups the largest distance that holds.
        lost: text on the distances, if they are too large.
        value: the records' correlation.
    """

    kind: Literal[
        "column", "missing", "mean", "pair", "correlation", "coefficient", "group", "between"
    ]
    name: str
    distances: tuple[float, ...]
    chance: float = 0.0
    lost: Callable[[Sequence[float]], str] = str
    value: float = 0.0

    @property
    def distance(self) -> float:
        """Mean over the data sets; of what has a sign, the distance of the mean."""
        return abs(float(np.mean(self.distances)))

    @property
    def excess(self) -> float:
        """The distance, relative to the largest one that is held."""
        if self.kind == "coefficient":
            return self.distance / ERRORS
        if self.kind == "group":
            return self.distance / self.chance
        by_error = self.kind in ("correlation", "missing", "mean")
        allowed = ERRORS if by_error else BY_CHANCE
        return self.distance / max(NEAR, allowed * self.chance)

    @property
    def text(self) -> str:
        """What is lost, in words."""
        return self.lost(self.distances)


def over_data_sets(outcomes: Sequence[Sequence[Comparison]]) -> list[Comparison]:
    """Join the comparisons of several data sets, for all that any of them has."""
    found: dict[tuple[str, str], Comparison] = {}
    for outcome in itertools.chain.from_iterable(outcomes):
        key = (outcome.kind, outcome.name)
        before = found.get(key)
        joined = outcome.distances if before is None else (*before.distances, *outcome.distances)
        found[key] = replace(before or outcome, distances=joined)
    return list(found.values())


def of_data_sets(count: int) -> str:
    """Words for a caption: figures are means over data sets; empty for one."""
    return f", means of the {count} data sets" if count > 1 else ""


def means(measures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over data sets of the measures of a column (``utility``), for all of the first one."""
    averaged: dict[str, Any] = {}
    for key, value in measures[0].items():
        values = [of[key] for of in measures if key in of]
        averaged[key] = means(values) if isinstance(value, Mapping) else float(np.mean(values))
    return averaged


def chance_of_ecdf(n: float, synthetic: float) -> float:
    """Mean of the largest difference of two ECDFs of one continuous distribution.

    The mean of Kolmogorov's distribution is sqrt(π/2) log 2, about 0.87.
    """
    return float(np.sqrt(np.pi / 2) * np.log(2) * np.sqrt(1 / n + 1 / synthetic))


def chance_of_shares(shares: Floats, n: float, synthetic: float) -> float:
    """Approximate mean of the total variation of two samples with these shares of cells."""
    errors = np.sqrt(shares * (1 - shares) * (1 / n + 1 / synthetic))
    return float(np.sqrt(2 / np.pi) * errors.sum() / 2)


def of_column(name: str, measures: Mapping[str, Any], n: float, synthetic: int) -> list[Comparison]:
    """Compare the values of a column, if it has any, and its share of missing values.

    Args:
        name: name of the column.
        measures: distances and summaries of both tables.
        n, synthetic: numbers of rows, missing values included.
    """
    ours, theirs = measures["original"], measures["synthetic"]
    counts = n * (1 - ours.get("missing", 0)), synthetic * (1 - theirs.get("missing", 0))
    outcomes = []
    if "missing" in ours and "missing" in theirs:
        blank, apart = float(ours["missing"]), float(theirs["missing"] - ours["missing"])
        error = math.sqrt(blank * (1 - blank) * (1 / n + 1 / synthetic))
        lost = _lost_missing(name, blank)
        outcomes.append(Comparison("missing", name, (apart,), error, lost))
    if "total_variation" in measures:
        shares = [share for key, share in ours.items() if key.startswith("share of ")]
        distance, chance = measures["total_variation"], chance_of_shares(np.array(shares), *counts)
        what = f"Column `{name}`, total variation"
    elif "max_ecdf" in measures:
        distance, chance = measures["max_ecdf"], chance_of_ecdf(*counts)
        what = f"Column `{name}`, largest difference of ECDFs"
    else:
        return outcomes
    lost = lost_distance(what, chance)
    return [Comparison("column", name, (distance,), chance, lost), *outcomes]


def _lost_missing(name: str, blank: float) -> Callable[[Sequence[float]], str]:
    """Text of a lost share of missing values, given its difference in each data set."""

    def text(apart: Sequence[float]) -> str:
        low, high = min(apart), max(apart)
        spread = f" ({blank + low:.1%} to {blank + high:.1%})" if len(apart) > 1 else ""
        mean = blank + np.mean(apart)
        return f"Missing values of `{name}`: {mean:.1%}{spread} in place of {blank:.1%}"

    return text


def verdict(outcomes: Sequence[Comparison]) -> Section:
    """Say what holds, and list what is lost, the worst first."""
    held = []
    for kind, words in KINDS.items():
        excess = [outcome.excess for outcome in outcomes if outcome.kind == kind]
        if excess:
            held.append(f"{sum(e <= 1 for e in excess):,} of {len(excess):,} {words}")
    allowed = (
        f"A distance holds up to {NEAR}, or up to {BY_CHANCE} times that of another sample of the "
        f"same size; a correlation or a share of missing values up to {NEAR}, and a mean up to "
        f"{NEAR} standard deviations, or up to {ERRORS:g} standard errors of the difference to "
        f"such a sample; a coefficient within {ERRORS:g} standard errors of the records' "
        "(intercepts are not counted where there are others: they follow from these). The worst is "
        "what exceeds this by the largest factor."
    )
    if any(outcome.kind == "group" for outcome in outcomes):
        allowed += (
            f" A grouping holds if its means' correlation with the records' is {ALIKE:g} times "
            "that of another sample, or more."
        )
    if (count := max((len(o.distances) for o in outcomes), default=1)) > 1:
        allowed += f" All are means of the {count} data sets; in brackets the least and largest."
    lost = sorted((o for o in outcomes if o.excess > 1), key=lambda o: o.excess, reverse=True)
    points, listed = [], Counter[str]()
    for outcome in lost:
        listed[outcome.kind] += 1
        if listed[outcome.kind] <= MOST_OF_A_KIND:
            points.append(outcome.text)
    text = [f"Held: {', '.join(held) or 'nothing to compare'}.", allowed]
    if not lost:
        text.append("Nothing is lost by these measures.")
    elif len(points) < len(lost):
        text.append(
            f"Lost, the worst first ({len(points)} of {len(lost):,}, up to {MOST_OF_A_KIND} of a "
            "kind):"
        )
    else:
        text.append("Lost, the worst first:")
    return Section("Verdict", text, points=points)


def lost_distance(what: str, chance: float) -> Callable[[Sequence[float]], str]:
    """Text of a lost column or pair, given its distance in each data set."""

    def text(distances: Sequence[float]) -> str:
        spread = f" ({min(distances):.3f} to {max(distances):.3f})" if len(distances) > 1 else ""
        beside = f"; another sample has {chance:.3f}" if chance else ""
        return f"{what}: {np.mean(distances):.3f}{spread}{beside}"

    return text


def worst_pairs(outcomes: Sequence[Comparison]) -> PageTable:
    """Table of the pairs that are farthest from what another sample has."""
    rows = [[o.name, round(o.distance, 3), round(o.chance, 3)] for o in _worst(outcomes, "pair")]
    head = ["pair", "total variation", "another sample"]
    return PageTable("Worst pairs of columns" + _of_each(outcomes), head, rows)


def worst_correlations(outcomes: Sequence[Comparison]) -> PageTable:
    """Table of the correlations that are farthest from the records'."""
    rows = [
        [o.name, round(o.value, 3), round(o.value + float(np.mean(o.distances)), 3),
         round(o.chance, 3)]
        for o in _worst(outcomes, "correlation")
    ]  # fmt: skip
    head = ["pair", "records", "synthetic", "standard error of another sample's difference"]
    return PageTable("Worst correlations" + _of_each(outcomes), head, rows)


def _worst(outcomes: Sequence[Comparison], kind: str) -> list[Comparison]:
    """Comparisons of a kind, the worst first: those that are lost, or a few more."""
    of_kind = sorted((o for o in outcomes if o.kind == kind), key=lambda o: o.excess, reverse=True)
    lost = sum(o.excess > 1 for o in of_kind)
    return of_kind[: min(MOST, max(FEWEST, lost))]


def _of_each(outcomes: Sequence[Comparison]) -> str:
    return of_data_sets(max((len(o.distances) for o in outcomes), default=1))
