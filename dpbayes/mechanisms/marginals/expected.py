"""Which of two ways to a whole table keeps more of what is in it: counts, or a sequence of models.

Public facts only: it may be asked before any record is seen, and costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.marginals.groups import groups_for
from dpbayes.privacy.guarantee import check_epsilon, inside

RELATIONS = 0.65  # part of epsilon for relations, in either way; margins have the rest
RANGE = 2.0  # of log-likelihood ratios that ``anchored`` leaves unclamped


@dataclass(frozen=True)
class ExpectedInformation:
    """What is left of the information on a linear relation of two columns, from 0 to 1.

    Attributes:
        measured: by noisy pair tables.
        sequence: by a tempered, clamped posterior of all columns.
    """

    measured: float
    sequence: float

    @property
    def better(self) -> Literal["marginals", "sequence"]:
        """Which of the two is expected to keep relations better."""
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

    It says nothing of margins, which counts keep better, of relations of three columns, or of
    whether the models fit: a sequence brings what is known of the subject, and counts do not.

    Args:
        rows: n, declared.
        columns: d, among which relations are kept.
        epsilon: for the whole table, for one record added or removed.
        groups: q of a column; by default as many as ``marginals`` would take.
        range: L, 1 to 2 with a good anchor.
    Raises:
        GuaranteeError: an argument that is no such number.
    """
    check_epsilon(epsilon)
    for name, value, least in (("rows", rows, 1), ("columns", columns, 2)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise GuaranteeError(f"{name} = {value!r} must be a whole number, at least {least}.")
    for name, number in (("range", range), ("groups", 1.0 if groups is None else groups)):
        if not inside(number, 0, math.inf):
            raise GuaranteeError(f"{name} = {number!r} must be a finite number above 0.")
    pairs = columns * (columns - 1) // 2
    scale = pairs / (RELATIONS * epsilon)
    q = groups_for(rows, math.sqrt(2) * scale) if groups is None else groups
    measured = rows / (rows + 2 * (scale * q) ** 2)
    return ExpectedInformation(measured, min(1.0, RELATIONS * epsilon / (2 * range)))
