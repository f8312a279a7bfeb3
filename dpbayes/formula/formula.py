"""Formulas, and their design matrices and groups, from public columns and constants only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.columns import Columns, matrix_of
from dpbayes.formula.groups import GroupColumn, group_data, ordered
from dpbayes.formula.terms import Domain, Factors, columns_used
from dpbayes.formula.text import parse, quoted
from dpbayes.formula.tree import GroupTerm, Node, outcomes_in, text_of
from dpbayes.schema import Column, Schema

MOST_GROUPS = 100_000  # most groups of a term that combines the levels of several columns


@dataclass(frozen=True)
class Design:
    """Design matrix and groups of a formula for n records.

    Attributes:
        outcome: name of the outcome column.
        names: names of the K columns of X.
        X: standardised columns, shape (n, K): (raw - centre) @ basis.
        centre, basis: public constants, shapes (K,) and (K, K); see ``Formula``.
        columns: T intercepts and slopes of group terms, in the order of ``groups.ordered``.
        codes: group of each record, from 0, for each of these columns; arrays of shape (n,).
        slope_X: covariates of the slopes, standardised like X, shape (n, S).
    """

    outcome: str
    names: tuple[str, ...]
    X: Floats
    centre: Floats
    basis: Floats
    columns: tuple[GroupColumn, ...]
    codes: tuple[Ints, ...]
    slope_X: Floats

    @property
    def effects(self) -> int:
        """Number of group effects."""
        return sum(len(column.levels) for column in self.columns)

    def group_data(self, sds: tuple[float, float]) -> dict[str, Any]:
        """Return the groups as program data of the bundled programs; see ``groups.group_data``.

        Args:
            sds: prior standard deviations of coefficients and of the intercept.
        """
        return group_data(self.columns, self.codes, self.slope_X, self.X, sds)

    def stan_data(self) -> dict[str, Any]:
        """Return n, K, X, J, group for programs with at most one group term, of intercepts."""
        data = {"n": self.X.shape[0], "K": self.X.shape[1], "X": self.X, "J": self.effects}
        return {**data, "group": self.codes[0] + 1 if self.codes else np.empty(0, dtype=np.int64)}


class Formula:
    """A parsed formula ``outcome ~ covariates + (1 | group)`` over a schema.

    A formula is data: ``text.py`` reads it into a tree of allowed constructs, which ``terms.py``
    evaluates row by row. None of it is run as code.

    Columns of the design matrix are centred and orthonormalised, in the order of the terms, over
    the *declared domain* of the covariates (bounds and levels in the schema, taken as uniform and
    independent), never over the records: with sample moments one record more or less would move
    every other record's linear predictor, and the bound of the clamp would not hold under
    add/remove adjacency. For the same reason transforms that learn from data (center, scale, ...)
    are refused, and splines and polynomials use public knots and bounds. Coefficients and their
    priors belong to the orthonormal columns, which NUTS samples several times faster;
    ``Fit.coefficients`` converts them to the covariates' units. Covariates of slopes in group terms
    are standardised in the same way, separately for each term.

    Args:
        formula: text of the formula.
        schema: declaration of the columns.
        drawn: confidential columns that may be covariates: a sequence has drawn them before, and
            conditions on the drawn values.

    Attributes:
        text: text of the formula.
        outcomes: one column, or time and event of ``Surv(time, event)``.
        outcome: the first of the outcomes.
        groups: intercepts and slopes of the group terms.
        names, centre, basis: as in ``Design``.

    Raises:
        SchemaError: the text is not such a formula, or a covariate is not public, not declared,
            or without a public domain.
    """

    def __init__(self, formula: str, schema: Schema, drawn: Sequence[str] = ()) -> None:
        self.text = formula
        self._schema = schema
        self._drawn = tuple(drawn)
        self._where = f"formula {quoted(formula)}"
        parsed = parse(formula)
        self.outcomes = self._outcomes(parsed.outcome)
        self.outcome = self.outcomes[0]
        if () not in parsed.terms:
            raise SchemaError(f"{self._where}: the intercept cannot be removed.")
        self._slopes: list[Columns] = []
        self._made_of: dict[str, set[str]] = {"slope_X": set(), "group": set()}
        self.groups = self._grouped(parsed.groups)
        used = {name: self._public(name) for name in columns_used(self._where, parsed.terms)}
        self._columns = Columns(self._where, parsed.terms, used)
        self.names = self._columns.names
        self.centre, self.basis = self._columns.centre, self._columns.basis
        self._made_of["X"] = set(used)

    def _outcomes(self, left: Node) -> tuple[Column, ...]:
        names = outcomes_in(left)
        if not names:
            raise SchemaError(
                f"{self._where}: the left side must be a column name, or Surv(time, event) of two, "
                "not an expression; choose a family instead of transforming the outcome."
            )
        outcomes = tuple(self._schema[name] for name in names)
        self._schema.require_plain(names, "a Stan model")
        for outcome in outcomes:
            if outcome.public:
                raise SchemaError(
                    f"column {outcome.name!r} is public and needs no synthesis; set public = false "
                    "if it is the confidential outcome."
                )
        if len(outcomes) > 1 and outcomes[1].type != "binary":
            event = outcomes[1]
            raise SchemaError(
                f"column {event.name!r} is {event.type}; Surv(time, event) takes a binary "
                "event, of whose two levels the second says that it was seen."
            )
        return outcomes

    @property
    def event(self) -> Column | None:
        """Event column of Surv(time, event); None for other formulas."""
        return self.outcomes[1] if len(self.outcomes) > 1 else None

    def _grouped(self, terms: tuple[GroupTerm, ...]) -> tuple[GroupColumn, ...]:
        columns: list[GroupColumn] = []
        for number, term in enumerate(terms):
            levels = self._levels(term.by)
            names: tuple[str | None, ...] = (None,) * (() in term.terms)
            slopes = [factors for factors in term.terms if factors]
            if slopes:
                used = {name: self._public(name) for name in columns_used(self._where, slopes)}
                self._made_of["slope_X"] |= set(used)
                self._slopes.append(Columns(f"{self._where}, {term.text}", [(), *slopes], used))
                names += self._slopes[-1].names
            for name in names:
                column = GroupColumn(number, name, term.by, levels, term.correlated)
                self._check_once(column, columns)
                columns.append(column)
        return tuple(ordered(columns))

    def _check_once(self, column: GroupColumn, before: list[GroupColumn]) -> None:
        if (column.slope, set(column.by)) in [(c.slope, set(c.by)) for c in before]:
            raise SchemaError(
                f"{self._where}: ({column.name}) stands twice among its group terms; (x | g) has "
                "intercepts too, (0 + x | g) has none."
            )

    def _levels(self, by: tuple[str, ...]) -> tuple[str | int | float, ...]:
        """Return the names of groups: the levels of a column, or all combinations of several."""
        columns = [self._public(name) for name in by]
        self._made_of["group"] |= set(by)
        for column in columns:
            if not column.levels:
                raise SchemaError(
                    f"column {column.name!r} groups records and needs declared levels; "
                    'give it type = "categorical".'
                )
        if len(columns) == 1:
            return columns[0].levels
        count = math.prod(len(column.levels) for column in columns)
        if count > MOST_GROUPS:
            raise SchemaError(
                f"{self._where}: the levels of {':'.join(by)} make {count:,} groups, the most are "
                f"{MOST_GROUPS:,}. Declare a column whose levels are the groups that there are."
            )
        levels = itertools.product(*(column.levels for column in columns))
        return tuple(":".join(map(str, combination)) for combination in levels)

    @property
    def effects(self) -> int:
        """Number of group effects."""
        return sum(len(column.levels) for column in self.groups)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the program data, one row per record, that depend on confidential columns."""
        drawn = set(self._drawn)
        confidential = {name for name, sources in self._made_of.items() if sources & drawn}
        indices = ("group_index",) if "group" in confidential else ()
        return (*sorted(confidential), *indices)

    def _public(self, name: str) -> Column:
        column = self._schema[name]
        if not column.public and name not in self._drawn:
            raise SchemaError(
                f"column {name!r} is used as a covariate but is not public: covariates are "
                "conditioned on and released as they are. Add public = true to its declaration "
                "if that is true of it, leave it out of the formula, or synthesise it as well: by "
                "a model of each column, or without a model, by mechanism 'marginals', which takes "
                "this formula as `keep`, with group terms as covariates."
            )
        self._schema.require_plain([name], "a Stan model")
        return column

    def design(self, records: pd.DataFrame) -> Design:
        """Build the design of validated records (n rows)."""
        slopes = [columns.values(records) for columns in self._slopes]
        return Design(
            outcome=self.outcome.name,
            names=self.names,
            X=self._columns.values(records),
            centre=self._columns.centre,
            basis=self._columns.basis,
            columns=self.groups,
            codes=tuple(self._codes(column, records) for column in self.groups),
            slope_X=np.hstack([np.empty((len(records), 0)), *slopes]),
        )

    def _codes(self, column: GroupColumn, records: pd.DataFrame) -> Ints:
        combined = np.zeros(len(records), dtype=np.int64)
        for name in column.by:
            codes = np.asarray(records[name].cat.codes, dtype=np.int64)
            combined = combined * len(self._schema[name].levels) + codes
        return combined


def columns_of(formula: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of a formula: its outcomes, and those on its right side.

    The outcomes are empty if the left side is neither a column nor ``Surv(time, event)``.

    Raises:
        SchemaError: the text is not a formula.
    """
    parsed = parse(formula)
    terms = [*parsed.terms, *(term for group in parsed.groups for term in group.terms)]
    by = [name for group in parsed.groups for name in group.by]
    used = columns_used(f"formula {quoted(formula)}", terms)
    return outcomes_in(parsed.outcome), tuple(dict.fromkeys((*used, *by)))


def without_groups(formula: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """Return the text of a formula without its group terms, and the columns of each of these.

    Raises:
        SchemaError: the text is not a formula.
    """
    parsed = parse(formula)
    if not parsed.groups:
        return formula, ()
    terms = [":".join(map(text_of, term)) for term in parsed.terms if term]
    plain = f"{text_of(parsed.outcome)} ~ {' + '.join(terms) or '1'}"
    return plain, tuple(dict.fromkeys(group.by for group in parsed.groups))


class DataFormula:
    """A formula over public tables, for analysts of a release.

    Levels are those that occur in a table, unless ``C(x, levels=[...])`` names them.

    Raises:
        SchemaError: the text is not a formula, or has a group term.
    """

    def __init__(self, formula: str) -> None:
        self._where = f"formula {quoted(formula)}"
        parsed = parse(formula)
        if parsed.groups:
            raise SchemaError(
                f"{self._where}: group terms have no place in a regression. Give `analyse` a "
                "function that fits a mixed model; where the release has posterior.csv, its draws "
                "are those of the model with groups."
            )
        self._outcome, self._terms = parsed.outcome, parsed.terms
        self.columns = columns_used(self._where, [*parsed.terms, (parsed.outcome,)])

    def matrices(self, data: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
        """Build the outcome and the design matrix of a table's n rows.

        Raises:
            SchemaError: a column is missing, or holds other values than the formula needs.
        """
        missing = [name for name in self.columns if name not in data.columns]
        if missing:
            raise SchemaError(f"{self._where}: there is no column {missing[0]!r}.")
        domains, table = {}, {}
        for name in self.columns:
            values = data[name]
            if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
                domains[name], table[name] = Domain(), values.astype(float)
                continue
            coded = pd.Categorical(values)
            domains[name] = Domain(levels=tuple(coded.categories))
            table[name] = pd.Series(coded, index=data.index)
        records = pd.DataFrame(table, index=data.index)
        factors = Factors(self._where, self._terms, domains)
        design = matrix_of(factors.formula(), factors.table(records))
        plain = pd.DataFrame(design.astype(float))
        outcome = pd.Series(factors.numbers(self._outcome, records), index=data.index)
        if not np.isfinite(plain.to_numpy()).all() or not np.isfinite(outcome).all():
            raise SchemaError(f"{self._where} is not finite in some rows, as a log of 0 is.")
        return outcome, plain
