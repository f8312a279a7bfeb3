"""Tables for trials of mechanisms: reference records, or people made up from a schema."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd, special, stats
from dpbayes.mechanisms.marginals.bins import auto_bins
from dpbayes.mechanisms.marginals.structure import AGAIN, Structure, Walk
from dpbayes.mechanisms.tables.cells import Axis, make_axis
from dpbayes.schema import Column, Schema
from dpbayes.schema.rows import PUBLIC, Rows

COMMON = 0.2  # squared loading of every column on a factor that all of them share
SKEW = (1.5, 4.0)  # parameters of the beta distribution of numbers between their bounds
SPECIAL = 0.1  # share of each atom, and of missing values
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
            if schema.unit is not None:
                raise SchemaError(
                    f"{schema.unit.table}: {schema.unit.noun}s cannot be made up. Give public or "
                    "earlier ones, as `reference`."
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


def invented(schema: Schema, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Make up people with skewed columns that are correlated through one normal factor.

    Levels have shares in proportion to 1, 1/2, 1/3, ... in their order, numbers a beta distribution
    over the declared range. Two columns have a correlation of about 0.2 on the normal scale, also
    where rules tie columns together: of its levels or bins a column takes those that rules allow.

    Raises:
        SchemaError: there is no column, a count has no upper bound, or no row was found that keeps
            the rules.
    """
    if not schema.columns:
        raise SchemaError("the schema declares no column but identifiers, which are dropped.")
    for column in schema.columns.values():
        if not column.levels and column.upper is None:
            raise SchemaError(
                f"column {column.name!r} needs a public upper bound; add upper = ... (from "
                "documentation, never from the confidential data)."
            )
    # Public columns are made up like all others, so that rules among them hold here, too.
    columns = {name: replace(column, public=False) for name, column in schema.columns.items()}
    axes = [Axis(c) if c.levels else _axis(c, rows) for c in columns.values()]
    walk = Walk(Structure(Schema(columns, Rows(), schema.rules), axes), rows, {})
    _draw_all(walk, rng)
    for _ in range(AGAIN):
        if not walk.dead.any():
            break
        again = walk.of(walk.dead)
        _draw_all(again, rng)
        walk.put(walk.dead.copy(), again)
    valid = walk.frame(list(columns))[~walk.dead]
    if valid.empty:
        raise SchemaError(
            "no row was found that keeps the rules of the schema "
            f"({', '.join(map(repr, schema.rules))}): they may exclude every one."
        )
    valid = valid.iloc[np.arange(rows) % len(valid)].reset_index(drop=True)
    return pd.DataFrame({name: column.released(valid[name]) for name, column in columns.items()})


def _axis(column: Column, rows: int) -> Axis:
    return make_axis(column, auto_bins(column, rows), None, 1)


def _draw_all(walk: Walk, rng: np.random.Generator) -> None:
    """Draw every column of the rows of a walk, one after the other."""
    factor = rng.standard_normal(walk.rows)
    for number in range(len(walk.structure.axes)):
        weights = _weights(walk.axis(number), factor)
        allowed = walk.allowed(number)
        total = np.cumsum(weights if allowed is None else weights * allowed, axis=1)
        codes = (total <= rng.random((walk.rows, 1)) * total[:, -1:]).sum(axis=1)
        walk.take(number, np.minimum(codes, weights.shape[1] - 1), rng)


def _weights(axis: Axis, factor: Floats) -> Floats:
    """Probabilities of the levels of a column given the common factor, shape (rows, levels).

    Atoms and missing values have a share of their own, whatever the factor is.
    """
    apart = np.zeros(axis.size, dtype=bool)
    apart[axis.valued :] = True
    if axis.edges is None:
        ends = np.cumsum(1 / np.arange(1, axis.valued + 1))
        ends = ends / ends[-1]
    else:
        apart[: axis.valued] = axis.ranges[2]
        lower, upper = axis.edges[0], axis.edges[-1]
        ends = stats.beta.cdf((axis.edges[1:] - lower) / (upper - lower), *SKEW)
    cuts = (special.ndtri(ends) - np.sqrt(COMMON) * factor[:, None]) / np.sqrt(1 - COMMON)
    below = special.ndtr(cuts)
    below[:, -1] = 1.0
    share = min(SPECIAL, 0.5 / max(apart.sum(), 1))
    weights = np.full((len(factor), axis.size), share)
    weights[:, ~apart] = np.diff(below, prepend=0.0) * (1 - share * apart.sum())
    return weights
