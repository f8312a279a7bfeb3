"""Claims of a paper in words, tested with the results of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd


class Cases:
    """Rows of a study, selected by the values of their columns; ``k`` is log ε, rounded."""

    def __init__(self, found: pd.DataFrame) -> None:
        self.found = found
        if "epsilon" in found:
            self.found = found.assign(k=np.log(found["epsilon"]).round().astype(int))

    def get(self, measure: str, **where: Any) -> Floats:
        """Select a measure of the rows with these values, in their order.

        Args:
            measure: column to return.
            where: a value for each column, or several as a list or range.
        Raises:
            KeyError: no row has these values.
        """
        rows = np.full(len(self.found), True)
        for column, value in where.items():
            several = list(value) if isinstance(value, list | tuple | range) else [value]
            rows &= self.found[column].isin(several).to_numpy()
        if not rows.any():
            raise KeyError(f"no row has {where}")
        return np.asarray(self.found.loc[rows, measure], dtype=float)

    def one(self, measure: str, **where: Any) -> float:
        """Return a measure of the only row with these values."""
        (value,) = self.get(measure, **where)
        return float(value)

    def ratio(self, measure: str, method: str, other: str, **where: Any) -> Floats:
        """Ratio of the absolute values of a measure for two methods, case by case."""
        above, below = (np.abs(self.get(measure, method=m, **where)) for m in (method, other))
        return above / below


@dataclass(frozen=True)
class StudyFinding:
    """A claim of a paper.

    Attributes:
        where: section and number.
        says: the claim in words.
        parts: its quantitative statements, each with a test.
    """

    where: str
    says: str
    parts: Mapping[str, Callable[[Cases], Any]]

    def judge(self, cases: Cases) -> tuple[str, str]:
        """Return a verdict, ``held``, ``half`` or ``not``, and the parts that do not hold.

        The verdict is ``open`` if a case was not run.
        """
        try:
            off = [part for part, test in self.parts.items() if not _all(test(cases))]
        except KeyError:
            return "open", ""
        verdict = "held" if not off else "not" if len(off) == len(self.parts) else "half"
        return verdict, "; ".join(off)


def _all(values: Any) -> bool:
    """Return True if every element of an array, or of a list of arrays, is true."""
    return all(bool(np.all(part)) for part in (values if isinstance(values, list) else [values]))


def judged(findings: tuple[StudyFinding, ...], found: pd.DataFrame) -> pd.DataFrame:
    """Table of findings: location, claim, verdict, and the parts that do not hold."""
    cases = Cases(found)
    rows = [(f.where, f.says, *f.judge(cases)) for f in findings]
    return pd.DataFrame(rows, columns=["where", "the paper", "verdict", "not here"])


def verdicts(judgement: pd.DataFrame) -> str:
    """Format the verdicts as text."""
    lines = [
        f"{row.verdict:5} {row.where}: {row[2]}" + (f" Not: {row[4]}." if row[4] else "")
        for row in judgement.itertuples()
    ]
    return "What the paper says of its figures\n\n" + "\n".join(lines)


def within(value: Any, most: float) -> Any:
    """Return True for ratios between 1 / ``most`` and ``most``."""
    return np.abs(np.log(value)) <= math.log(most)
