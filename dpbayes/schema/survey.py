"""Sampling weights of a survey: how many units of the population a record stands for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.checks import expect
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import Column

HUGE = 1e12  # no weight and no population is larger
MOST_DEFF = 100.0
REPEATED, MOST_REPEATED = 10, 200_000  # rows for a record at equal weights, and of all together
ENTRY = '{weights = "wt", population = 1_250_000, largest = 400}'


@dataclass(frozen=True)
class Survey:
    """Sampling weights, and what is public about them.

    A record counts as its weight divided by the largest one, from 0 to 1, so that no record moves
    a count by more than 1. In a posterior its log-likelihood is multiplied by that, before it is
    clamped (pseudo-likelihood: Savitsky & Toth, 2016). Larger weights are cut to the largest. The
    weights themselves are confidential, and are not released: synthetic rows represent the
    population with equal weights.

    Attributes:
        weights: name of the column of weights, which is not one of the schema's columns.
        population: public number of units that the weights add up to, about.
        largest: public bound of a weight. Of a record with a larger one only this much counts.
        deff: public design effect of strata and clusters, beyond that of unequal weights, by which
            the variance of estimates is multiplied (Kish, 1965).

    Examples:
        >>> import dpbayes as dpb
        >>> survey = dpb.Survey("wt", population=1_250_000, largest=400)
        >>> survey.fewest_records
        3125.0
    """

    weights: str
    population: float
    largest: float
    deff: float = 1.0

    def __post_init__(self) -> None:
        expect(self.weights, str, "survey: weights", "the name of a column", SchemaError)
        if not self.weights.strip() or "\n" in self.weights or "\r" in self.weights:
            raise SchemaError(f"survey: weights = {self.weights!r} must be the name of a column.")
        for key in ("population", "largest", "deff"):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 1 / HUGE <= value <= HUGE:
                raise SchemaError(
                    f"survey: {key} = {value!r:.40} must be a number above 0, from {1 / HUGE:g} to "
                    f"{HUGE:g}."
                )
        if self.largest > self.population:
            raise SchemaError(
                f"survey: largest = {self.largest:,.10g} is more than the population of "
                f"{self.population:,.10g}, which all weights add up to."
            )
        if not 1 / MOST_DEFF <= self.deff <= MOST_DEFF:
            raise SchemaError(
                f"survey: deff = {self.deff:g} must be from {1 / MOST_DEFF:g} to {MOST_DEFF:g}."
            )

    @classmethod
    def parse(cls, value: object) -> Survey:
        """Read the entry of a schema file: ``{weights = "wt", population = ..., largest = ...}``.

        Raises:
            SchemaError: a key is unknown or missing, or has a wrong value.
        """
        keys = [field.name for field in fields(cls)]
        if not isinstance(value, Mapping) or not {*keys[:3]} <= set(value) <= {*keys}:
            raise SchemaError(
                f"survey = {value!r:.100} must name the column of weights, the population and the "
                f"largest weight, and may have a deff: {ENTRY}."
            )
        return cls(**value)

    @cached_property
    def column(self) -> Column:
        """The weights as a column, by which they are read and checked."""
        return Column(self.weights, "continuous", lower=0.0, upper=HUGE)

    @property
    def fewest_records(self) -> float:
        """Fewest records that add up to the population: all have the largest weight.

        It is also what all records count as together, if no weight is cut.
        """
        return self.population / self.largest

    @property
    def counted(self) -> int:
        """``fewest_records`` as a whole number of records, at least 1."""
        return max(1, round(self.fewest_records))

    def typed(self, weights: pd.Series, *, show_values: bool = False) -> Floats:
        """Check weights, and cut them to the largest one, shape (n,)."""
        numbers = self.column.typed(weights, show_values=show_values).to_numpy(dtype=float)
        return np.asarray(np.minimum(numbers, self.largest))

    def shares(self, weights: pd.Series) -> Floats:
        """Compute what records count as, by checked weights: from 0 to 1, shape (n,)."""
        return np.asarray(weights.to_numpy(dtype=float) / self.largest).clip(0.0, 1.0)

    def represented(
        self, records: pd.DataFrame, weights: pd.Series, rows: int | None = None
    ) -> pd.DataFrame:
        """Repeat each record in proportion to its weight, for comparisons with released rows.

        By systematic sampling: a record stands in the result as often as it should, or once less
        or more. Confidential.

        Args:
            records: validated records, n rows.
            weights: their checked weights, shape (n,).
            rows: rows of the result; by default ten times as many, up to 200,000.
        """
        ends = np.cumsum(weights.to_numpy(dtype=float))
        total = ends[-1] if len(ends) else 0.0
        if rows is None:
            rows = min(REPEATED * len(records), MOST_REPEATED)
        rows = rows if total > 0 else 0
        marks = (np.arange(rows) + 0.5) / max(rows, 1) * total
        chosen: Ints = np.searchsorted(ends, marks, side="right")
        return records.iloc[chosen].reset_index(drop=True)

    def effective(self, weights: pd.Series) -> float:
        """Kish's effective number of records, divided by the design effect. Confidential."""
        numbers = weights.to_numpy(dtype=float)
        squares = float(numbers @ numbers)
        return float(numbers.sum()) ** 2 / squares / self.deff if squares else 0.0

    def made_up(self, rows: int, rng: np.random.Generator) -> Floats:
        """Make up weights that add up to about the population, and vary widely, shape (rows,)."""
        mean = min(self.fewest_records / max(rows, 1), 1 - 1 / HUGE)
        return np.asarray(self.largest * rng.beta(_SPREAD * mean, _SPREAD * (1 - mean), rows))

    def check_use(self, mechanism: str, weighs: bool, public: bool) -> None:
        """Raise SchemaError if a mechanism does not weigh records, or columns are public."""
        if not weighs:
            raise SchemaError(
                f"survey: mechanism {mechanism!r} has no use for sampling weights, and its rows "
                "would represent the sample, not the population. Take mechanism marginals, or one "
                "that draws from a posterior, or take [survey] out of the schema."
            )
        if public:
            raise SchemaError(
                "survey: public columns are released as they are, one row for each record, and "
                "cannot represent the population. Make them confidential, or take [survey] out of "
                "the schema: synthetic rows then represent the sample."
            )

    def check_rows(self, rows: int) -> None:
        """Raise SchemaError if so few records cannot add up to the population."""
        if rows < math.floor(self.fewest_records):
            raise SchemaError(
                f"survey: {rows:,} records of a weight up to {self.largest:,.10g} represent "
                f"{rows * self.largest:,.0f} units at most, and not a population of "
                f"{self.population:,.10g}. Correct `largest`, `population` or `rows`."
            )

    def to_plain(self) -> dict[str, Any]:
        """Plain mapping that ``parse`` reads back."""
        plain = {"weights": self.weights, "population": self.population, "largest": self.largest}
        return plain if self.deff == 1.0 else {**plain, "deff": self.deff}


_SPREAD = 2.0  # sum of the parameters of a beta distribution: made-up weights vary widely
