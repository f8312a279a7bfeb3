"""What a paper says of its figures in words, judged by a study's figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd


class Cases:
    """Rows of a study by their columns; ``k`` is log ε."""

    def __init__(self, found: pd.DataFrame) -> None:
        self.found = found
        if "epsilon" in found:
            self.found = found.assign(k=np.log(found["epsilon"]).round().astype(int))

    def get(self, measure: str, **where: Any) -> Floats:
        """A measure of the rows with these values, in their order; KeyError if there is none.

        Args:
            where: a value for each column, or several as a list or range.
        """
        rows = np.full(len(self.found), True)
        for column, value in where.items():
            several = list(value) if isinstance(value, list | tuple | range) else [value]
            rows &= self.found[column].isin(several).to_numpy()
        if not rows.any():
            raise KeyError(f"no row has {where}")
        return np.asarray(self.found.loc[rows, measure], dtype=float)

    def one(self, measure: str, **where: Any) -> float:
        """The measure of the one row with these values."""
        (value,) = self.get(measure, **where)
        return float(value)

    def ratio(self, measure: str, method: str, other: str, **where: Any) -> Floats:
        """Of the absolute values of two methods, case by case."""
        above, below = (np.abs(self.get(measure, method=m, **where)) for m in (method, other))
        return above / below


@dataclass(frozen=True)
class StudyFinding:
    """A result of a paper.

    Attributes:
        where: section and number.
        says: in words.
        parts: what it comes to in figures, each with its test.
    """

    where: str
    says: str
    parts: Mapping[str, Callable[[Cases], Any]]

    def judge(self, cases: Cases) -> tuple[str, str]:
        """``held``, ``half`` or ``not``, and the parts that do not hold.

        ``open`` where a case was not run.
        """
        try:
            off = [what for what, test in self.parts.items() if not _all(test(cases))]
        except KeyError:
            return "open", ""
        verdict = "held" if not off else "not" if len(off) == len(self.parts) else "half"
        return verdict, "; ".join(off)


def _all(found: Any) -> bool:
    """True if every number of an array, or of a list of arrays, is."""
    return all(bool(np.all(part)) for part in (found if isinstance(found, list) else [found]))


def judged(findings: tuple[StudyFinding, ...], found: pd.DataFrame) -> pd.DataFrame:
    """A row for each finding: where, says, verdict, and what does not hold."""
    cases = Cases(found)
    rows = [(f.where, f.says, *f.judge(cases)) for f in findings]
    return pd.DataFrame(rows, columns=["where", "the paper", "verdict", "not here"])


def verdicts(judgement: pd.DataFrame) -> str:
    """As text."""
    lines = [
        f"{row.verdict:5} {row.where}: {row[2]}" + (f" Not: {row[4]}." if row[4] else "")
        for row in judgement.itertuples()
    ]
    return "What the paper says of its figures\n\n" + "\n".join(lines)


def within(value: Any, most: float) -> Any:
    """Ratios of at most ``most``, either way."""
    return np.abs(np.log(value)) <= math.log(most)
