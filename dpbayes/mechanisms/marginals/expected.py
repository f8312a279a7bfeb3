"""Expected information of two ways to synthesise a whole table: counts, or a sequence of models.

It uses public facts only: it can be computed before any record is seen, and costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.marginals.groups import groups_for
from dpbayes.privacy.guarantee import check_epsilon, inside

MOST = 10**15  # rows and columns
RELATIONS = 0.65  # share of epsilon for relations, in both ways; margins get the rest
RANGE = 2.0  # half-width of the log-likelihood ratios that ``anchored`` does not clamp


@dataclass(frozen=True)
class ExpectedInformation:
    """Share of the information about a linear relation of two columns that privacy leaves.

    Attributes:
        measured: share from 0 to 1 with noisy pair tables.
        sequence: share from 0 to 1 with a tempered, clamped posterior of all columns.

    Examples:
        >>> import dpbayes as dpb
        >>> expected = dpb.expected_information(rows=2000, columns=12, epsilon=1)
        >>> round(expected.measured, 2), round(expected.sequence, 2), expected.better
        (0.01, 0.16, 'sequence')
    """

    measured: float
    sequence: float

    @property
    def better(self) -> Literal["marginals", "sequence"]:
        """Name of the way that is expected to preserve relations better."""
        return "sequence" if self.sequence > self.measured else "marginals"


def expected_information(
    rows: int,
    columns: int,
    epsilon: float,
    *,
    groups: float | None = None,
    range: float = RANGE,
) -> ExpectedInformation:
    """Compare ``marginals`` with a ``Sequence`` under ``anchored``, from public facts alone.

    With s = 0.65 of ε for relations, P = d(d - 1)/2 pairs have tables with noise of scale
    b = P / (s ε), since a record is in one cell of each. A linear association of two columns of q
    groups then has noise of variance 2 b² q² beside its own sampling variance n: the information
    left is n / (n + 2 P² q² / (s ε)²), near 1 for many records. A posterior clamped to a window of
    width s ε that leaves ratios up to ±L free is tempered by α = s ε / (2 L), whatever n is. So a
    sequence leads where P q > √(s) √(L n ε), about 0.8 √(L n ε): many columns, few records.

    The comparison leaves out margins, which counts preserve better, relations of three columns,
    and whether the models fit: a sequence can use subject knowledge, and counts cannot.

    Args:
        rows: n, declared.
        columns: d, number of columns.
        epsilon: for the whole table, for one record added or removed.
        groups: q, groups of a column; by default the number that ``marginals`` would use.
        range: L, 1 to 2 with a good anchor.
    Raises:
        GuaranteeError: an argument out of range.
    """
    check_epsilon(epsilon)
    for name, value, least in (("rows", rows, 1), ("columns", columns, 2)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise GuaranteeError(f"{name} = {value!r} must be a whole number, at least {least}.")
        if value > MOST:
            raise GuaranteeError(f"{name} must be at most {MOST:,}.")
    for name, number in (("range", range), ("groups", 1.0 if groups is None else groups)):
        if not inside(number, 0, math.inf):
            raise GuaranteeError(f"{name} = {number!r} must be a finite number above 0.")
    pairs = columns * (columns - 1) // 2
    scale = pairs / (RELATIONS * epsilon)
    q = groups_for(rows, math.sqrt(2) * scale) if groups is None else groups
    measured = rows / (rows + 2 * (scale * q) ** 2)
    return ExpectedInformation(measured, min(1.0, RELATIONS * epsilon / (2 * range)))
