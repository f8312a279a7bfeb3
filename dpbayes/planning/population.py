"""Tables for trials of mechanisms: reference records, or people made up from a schema."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.planning.made_up import invented
from dpbayes.planning.made_up_panels import invented_panel
from dpbayes.schema import Schema
from dpbayes.schema.rows import PUBLIC, Rows

MOST = 20_000  # most rows of a trial; in larger tables noise matters less


@dataclass(frozen=True)
class Population:
    """A population to draw samples of records from: public records, or made-up people.

    Attributes:
        schema: columns, rules and weights of the records, and whether their number is public.
        reference: the reference records as read, or None for made-up people.
    """

    schema: Schema
    reference: pd.DataFrame | None = None

    @classmethod
    def of(cls, schema: Schema, reference: pd.DataFrame | None) -> Population:
        """Make a population; DataError if reference records do not fit the schema, or are none."""
        plain = Schema(
            schema.columns, schema.rows, schema.rules, keep=schema.keep, survey=schema.survey
        )
        if schema.unit is not None:
            plain = replace(
                plain,
                household=schema.household,
                panel=schema.panel,
                identifiers=(schema.unit.id,),
            )
        if reference is None:
            if schema.household is not None:
                raise SchemaError(
                    "household: households cannot be made up. Give public or earlier ones, as "
                    "`reference`."
                )
            return cls(plain)
        replace(plain, rows=PUBLIC).validate(reference)
        return cls(plain, reference)

    def sample(self, rows: int, seed: int) -> pd.DataFrame:
        """Draw ``rows`` valid records, with replacement only if the reference has fewer."""
        return self._drawn(rows, seed, again=False)

    def another(self, rows: int, seed: int) -> pd.DataFrame:
        """Draw a sample as from a much larger population: a bootstrap of the reference records."""
        return self._drawn(rows, seed, again=True)

    def _drawn(self, rows: int, seed: int, *, again: bool) -> pd.DataFrame:
        rng = np.random.default_rng([seed, rows])
        if self.reference is None and self.schema.panel is not None:
            return invented_panel(self.schema, rows, rng)
        if self.reference is None:
            people, survey = invented(self.schema, rows, rng), self.schema.survey
            if survey is None:
                return people
            return people.assign(**{survey.weights: survey.made_up(rows, rng)})
        available = self.schema.units(self.reference)
        positions = rng.choice(available, rows, replace=again or rows > available)
        home = self.schema.unit
        if home is None:
            return self.reference.iloc[positions].reset_index(drop=True)
        number = pd.Series(pd.factorize(self.reference[home.id])[0])
        members = number.groupby(number).indices
        index = [members[position] for position in positions]
        drawn = self.reference.iloc[np.concatenate(index)].reset_index(drop=True)
        return drawn.assign(**{home.id: np.repeat(np.arange(rows), list(map(len, index)))})


def schema_of(schema: Schema, table: pd.DataFrame) -> Schema:
    """Schema for a trial on a table: it declares the number of rows, if that is not public.

    Weights, if it has some, add up to its own population. Nothing of the table is confidential.
    """
    rows, survey = schema.rows, schema.survey
    if not rows.public:  # a mechanism then counts the records, which takes a part of its ε
        rows = Rows.parse(schema.units(table))
    if survey is not None:
        total = max(float(survey.typed(table[survey.weights]).sum()), survey.largest)
        survey = replace(survey, population=total)
    return replace(schema, rows=rows, survey=survey)
