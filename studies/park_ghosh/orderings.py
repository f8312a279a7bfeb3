"""Claims in the text of Park & Ghosh about their figures, and whether they hold here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.lazy import pd
from studies.park_ghosh.maps import (
    BLOCK,
    BOOTSTRAPS,
    DELTA,
    EPSILONS,
    PEGS,
    PER_BLOCK,
    PMI,
    RESET,
    RISK,
    TOTALS,
    UTILITY,
    with_block,
)

CLEAR = 3.0  # standard errors of the mean difference, over replicates
DISTRIBUTIONS = UTILITY[:3]
# Mechanism and ε with the larger value, then with the smaller one.
Pairs = list[tuple[str, float, str, float]]


@dataclass(frozen=True)
class OrderingCase:
    """A reading of what ε covers, which the paper leaves open.

    Attributes:
        what: short description.
        part: part of the study.
        delta: δ at which ε is stated.
        reset: name of `pegs-rs` in this part.
        epsilons: values of ε at which mechanisms are compared.
        small, large: values of ε that the text calls small and large.
    """

    what: str
    part: str
    delta: float
    reset: str
    epsilons: tuple[float, ...]
    small: tuple[float, ...]
    large: tuple[float, ...]


_BY_RECORD = (EPSILONS, EPSILONS[:3], EPSILONS[4:])
_BY_TOTAL = (TOTALS, TOTALS[:1], TOTALS[-1:])
READINGS = (
    OrderingCase("of a record", "maps", 0.0, RESET, *_BY_RECORD),
    OrderingCase("of a record, of a block with reset", "maps", 0.0, PER_BLOCK, *_BY_RECORD),
    OrderingCase("in total", "totals", 0.0, with_block(BLOCK), *_BY_TOTAL),
    OrderingCase("in total, δ = 10^-6", "totals", DELTA, with_block(BLOCK), *_BY_TOTAL),
)


@dataclass(frozen=True)
class Ordering:
    """A claim of the paper's text about a figure.

    Attributes:
        said: the claim in a few words.
        measures: measures that the claim is about.
        pairs: function of a reading of ε; returns which value is claimed to exceed which.
    """

    said: str
    measures: tuple[str, ...]
    pairs: Callable[[OrderingCase], Pairs]


def _over(larger: tuple[str, ...], smaller: tuple[str, ...], epsilons: tuple[float, ...]) -> Pairs:
    return [(a, e, b, e) for a in larger for b in smaller for e in epsilons]


def _algorithms(reading: OrderingCase) -> tuple[str, ...]:
    return PEGS, reading.reset, PMI


def _over_bootstrap(reading: OrderingCase) -> Pairs:
    return [(a, e, BOOTSTRAPS[0], np.inf) for a in _algorithms(reading) for e in reading.epsilons]


def _less_with_more(reading: OrderingCase) -> Pairs:
    ends = reading.epsilons[0], reading.epsilons[-1]
    return [(a, ends[0], a, ends[1]) for a in _algorithms(reading)]


ORDERINGS = (
    Ordering(
        "all are closer at the largest ε than at the smallest", DISTRIBUTIONS, _less_with_more
    ),
    Ordering(
        "pegs-rs is closest at small ε",
        DISTRIBUTIONS,
        lambda reading: _over((PEGS, PMI), (reading.reset,), reading.small),
    ),
    Ordering(
        "pegs is closer than pegs-rs at large ε",
        DISTRIBUTIONS,
        lambda reading: _over((reading.reset,), (PEGS,), reading.large),
    ),
    Ordering(
        "pegs-rs has the closest coefficients",
        UTILITY[3:],
        lambda reading: _over((PEGS, PMI), (reading.reset,), reading.epsilons),
    ),
    Ordering("levels are harder to infer than from a bootstrap", RISK[:1], _over_bootstrap),
    Ordering("errors in numbers are larger at small ε", RISK[1:2], _less_with_more),
    Ordering("more unique records than a bootstrap has", RISK[2:], _over_bootstrap),
)


def orderings(found: pd.DataFrame) -> pd.DataFrame:
    """Test each ordering under each reading of ε: count pairs that hold, do not, or are unclear.

    Differences are within a replicate; ``CLEAR`` standard errors of their mean decide.

    Args:
        found: rows of one table, of all parts and replicates.
    """
    rows = []
    for reading in READINGS:
        by_case = _by_case(found, reading)
        for ordering in ORDERINGS:
            for measure in ordering.measures:
                pairs = ordering.pairs(reading)
                z = np.array(
                    [_z(by_case[measure, a, e] - by_case[measure, b, f]) for a, e, b, f in pairs]
                )
                counts = (int((z > CLEAR).sum()), int((z < -CLEAR).sum()))
                unclear = len(z) - sum(counts)
                rows.append((ordering.said, measure, reading.what, *counts, unclear))
    return pd.DataFrame(rows, columns=["the paper", "measure", "ε", "hold", "opposite", "unclear"])


def _by_case(rows: pd.DataFrame, reading: OrderingCase) -> Mapping[tuple[str, str, float], Vector]:
    """Values by replicate for each measure, mechanism and ε."""
    parts = rows["part"].isin([reading.part, "bootstrap"])
    deltas = (rows["delta"] == reading.delta) | (rows["part"] == "bootstrap")
    wide = rows[parts & deltas].pivot_table(
        index=["measure", "mechanism", "epsilon"], columns="piece", values="value"
    )
    return {case: part.to_numpy() for case, part in wide.iterrows()}  # type: ignore[misc]


def _z(difference: Vector) -> float:
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return float(difference.mean() / error) if error > 0 else 0.0


def side_by_side(held: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Table of pairs that hold / do not / are unclear, with a column for each data table."""
    keys = ["the paper", "measure", "ε"]
    columns = []
    for name, table in held.items():
        counts = table[["hold", "opposite", "unclear"]].astype(str).agg("/".join, axis=1)
        columns.append(table[keys].assign(**{name: counts}).set_index(keys))
    return pd.concat(columns, axis=1).reset_index()
