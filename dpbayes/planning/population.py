"""Tables to try mechanisms on: reference records, or people made up from a schema."""

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
SKEW = (1.5, 4.0)  # of the beta distribution of numbers between their bounds
SPECIAL = 0.1  # share of each atom, and of missing values
MOST = 20_000  # rows of a trial: with more, noise does less


@dataclass(frozen=True)
class Population:
    """What samples of records are drawn from. Public, or made up.

    Attributes:
        schema: of the records.
        reference: as it was read, or None for people who are made up.
    """

    schema: Schema
    reference: pd.DataFrame | None = None

    @classmethod
    def of(cls, schema: Schema, reference: pd.DataFrame | None) -> Population:
        """DataError where reference records do not fit the schema, or there are none."""
        plain = Schema(schema.columns, Rows(), schema.rules, schema.identifiers)
        if reference is None:
            return cls(plain)
        plain.validate(reference)
        return cls(plain, reference)

    def sample(self, rows: int, seed: int) -> pd.DataFrame:
        """``rows`` valid records; of fewer reference records some are there several times."""
        return self._drawn(rows, seed, again=False)

    def another(self, rows: int, seed: int) -> pd.DataFrame:
        """A sample as if there were many more people: of reference records a bootstrap."""
        return self._drawn(rows, seed, again=True)

    def _drawn(self, rows: int, seed: int, *, again: bool) -> pd.DataFrame:
        rng = np.random.default_rng([seed, rows])
        if self.reference is None:
            return invented(self.schema, rows, rng)
        there = len(self.reference)
        some = rng.choice(there, rows, replace=again or rows > there)
        return self.reference.iloc[some].reset_index(drop=True)


def invented(schema: Schema, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """People made up: skewed columns that hang together by one normal factor.

    Levels have shares in proportion to 1, 1/2, 1/3, ... in their order, numbers a beta distribution
    over the declared range. Two columns have a correlation of about 0.3 on the normal scale. Where
    the schema has rules that tie columns together they are uniform and independent instead.
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
    found = {}
    for name, column in schema.columns.items():
        own = rng.standard_normal(rows)
        place = special.ndtr(np.sqrt(COMMON) * factor + np.sqrt(1 - COMMON) * own)
        found[name] = _values(column, place, rng)
    return pd.DataFrame(found)


def _values(column: Column, place: Floats, rng: np.random.Generator) -> pd.Series:
    """Of a column by places in its distribution, from 0 to 1."""
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
