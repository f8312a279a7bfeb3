"""Tables for trials of mechanisms: reference records, or people made up from a schema."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd, special, stats
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import made_up
from dpbayes.schema.rows import Rows

COMMON = 0.3  # squared loading of every column on a factor that all of them share
SKEW = (1.5, 4.0)  # parameters of the beta distribution of numbers between their bounds
SPECIAL = 0.1  # share of each atom, and of missing values
MOST = 20_000  # most rows of a trial; in larger tables noise matters less


@dataclass(frozen=True)
class Population:
    """A population to draw samples of records from: public records, or made-up people.

    Attributes:
        schema: columns and rules of the records.
        reference: the reference records as read, or None for made-up people.
    """

    schema: Schema
    reference: pd.DataFrame | None = None

    @classmethod
    def of(cls, schema: Schema, reference: pd.DataFrame | None) -> Population:
        """Make a population; DataError if reference records do not fit the schema, or are none."""
        plain = Schema(schema.columns, Rows(), schema.rules, schema.identifiers)
        if reference is None:
            return cls(plain)
        plain.validate(reference)
        return cls(plain, reference)

    def sample(self, rows: int, seed: int) -> pd.DataFrame:
        """Draw ``rows`` valid records, with replacement only if the reference has fewer."""
        return self._drawn(rows, seed, again=False)

    def another(self, rows: int, seed: int) -> pd.DataFrame:
        """Draw a sample as from a much larger population: a bootstrap of the reference records."""
        return self._drawn(rows, seed, again=True)

    def _drawn(self, rows: int, seed: int, *, again: bool) -> pd.DataFrame:
        rng = np.random.default_rng([seed, rows])
        if self.reference is None:
            return invented(self.schema, rows, rng)
        available = len(self.reference)
        positions = rng.choice(available, rows, replace=again or rows > available)
        return self.reference.iloc[positions].reset_index(drop=True)


def invented(schema: Schema, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up people with skewed columns that are correlated through one normal factor.

    Levels have shares in proportion to 1, 1/2, 1/3, ... in their order, numbers a beta distribution
    over the declared range. Two columns have a correlation of about 0.3 on the normal scale. If the
    schema has rules that tie columns together, columns are uniform and independent instead.
    """
    for column in schema.columns.values():
        if not column.levels and column.upper is None:
            raise SchemaError(
                f"column {column.name!r} needs a public upper bound; add upper = ... (from "
                "documentation, never from the confidential data)."
            )
    if schema.kept or schema.asked:
        valid = made_up(schema, rows, rng)
        columns = schema.columns.items()
        return pd.DataFrame({name: column.released(valid[name]) for name, column in columns})
    factor = rng.standard_normal(rows)
    synthetic = {}
    for name, column in schema.columns.items():
        own = rng.standard_normal(rows)
        place = special.ndtr(np.sqrt(COMMON) * factor + np.sqrt(1 - COMMON) * own)
        synthetic[name] = _values(column, place, rng)
    return pd.DataFrame(synthetic)


def _values(column: Column, place: Floats, rng: np.random.Generator) -> pd.Series:
    """Make values of a column from quantile levels between 0 and 1."""
    if column.levels:
        shares = 1 / np.arange(1, len(column.levels) + 1)
        codes = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], place)
        values = pd.Series(np.array(column.levels, dtype=object)[codes])
    else:
        assert column.upper is not None
        low = float(column.lower or 0)
        numbers = low + (float(column.upper) - low) * stats.beta.ppf(place, *SKEW)
        for atom in column.atoms:
            numbers = np.where(rng.random(len(place)) < SPECIAL, atom, numbers)
        numbers = np.rint(numbers) if column.whole else column.rounded_numbers(numbers)
        values = pd.Series(numbers)
        if column.type == "date":
            values = pd.Series(numbers.astype("datetime64[D]"))
        elif column.whole:
            values = values.astype("int64")
    if column.optional:
        values = values.astype(object).mask(rng.random(len(place)) < SPECIAL)
    return values
