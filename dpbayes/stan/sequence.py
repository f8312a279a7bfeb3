"""Sequences: columns drawn one after the other, each given those before it, under one epsilon.

The log-likelihood of a record is the sum over its columns. Anchor, weights and window apply to that
sum, so that a mechanism's claim about a record covers the whole row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpbayes.core.checks import expect
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import columns_of
from dpbayes.formula.text import quoted
from dpbayes.schema import Schema
from dpbayes.schema.domain import ends, places
from dpbayes.schema.table import read_toml, require_schema
from dpbayes.stan.composition import COLUMN, SEPARATOR, Piece, composed, entry
from dpbayes.stan.model import ColumnModel, Model, Program, Regression, Replicate
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import Proof, proof_of_pieces, refuse_broken

TABLE = "model"  # name of an array of tables in a TOML file, [[model]]
_KEYS = ("formula", "family", "priors", "program", "constants")


@dataclass(frozen=True)
class Sequence:
    """Models of all confidential columns, in the order in which they are drawn.

    A formula may use public columns and the confidential ones of models before it: records enter
    with their own values, synthetic rows with the values drawn before. Bounds and levels of such
    columns standardise the design, never their values.

    Attributes:
        models: a ``Regression`` or ``Program`` for each confidential column.

    Examples:
        >>> import dpbayes as dpb
        >>> smoker = dpb.Column("smoker", "binary", levels=("no", "yes"))
        >>> visits = dpb.Column("visits", "count", upper=50)
        >>> models = (
        ...     dpb.Regression("smoker ~ 1", "bernoulli"),
        ...     dpb.Regression("visits ~ smoker", "poisson"),
        ... )
        >>> model = dpb.Sequence(models).on(dpb.Schema({"smoker": smoker, "visits": visits}))
        >>> [column.formula.text for column in model.columns]
        ['smoker ~ 1', 'visits ~ smoker']
    """

    models: tuple[Regression | Program, ...]

    def __init__(self, models: Iterable[Regression | Program]) -> None:
        kinds = "Regression(formula, family) and Program(file, formula)"
        expect(models, Iterable, "models", f"a list of {kinds}", SchemaError)
        listed = tuple(models)
        if not listed:
            raise SchemaError(f"a sequence is a list of {kinds}, found none.")
        for model in listed:
            expect(model, Regression | Program, "an entry of a sequence", kinds, SchemaError)
        object.__setattr__(self, "models", listed)

    @classmethod
    def from_toml(cls, path: str | Path, what: str = "model") -> Sequence | None:
        """Read the tables [[model]] of a TOML file, in their order; None if it has none.

        Each table has ``formula`` and ``family``, optionally with ``priors``; or ``formula`` and
        ``program``, the file of a Stan program, optionally with ``constants``, a table or a JSON
        file. Names of files are relative to the TOML file.

        Args:
            path: path of the file, which may be the schema's.
            what: kind of the file, for messages.
        Raises:
            SchemaError: no such file, no TOML, or a table with other entries.
        """
        where, tables = f"{what} file {str(path)!r}", read_toml(path, what).get(TABLE)
        if tables is None:
            return None
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise SchemaError(f"{where}: models are tables [[{TABLE}]], one for each column.")
        return cls(_read(where, table, Path(path).parent) for table in tables)

    def on(self, schema: Schema) -> SequenceModel:
        """Check the sequence against a schema and return its model.

        Raises:
            SchemaError: a column that has two models or none, or that is used before it is drawn;
                otherwise as ``Regression.on`` and ``Program.on``.
            ProgramError: as there, or programs that cannot be combined.
        """
        require_schema(schema)
        _check_order([columns_of(model.formula) for model in self.models], schema)
        columns: list[ColumnModel] = []
        for model in self.models:
            drawn = [column.name for before in columns for column in before.outcomes]
            columns.append(model.on(schema, drawn))
        labels = _labels([column.outcome.name for column in columns])
        # Once more than in ``Program.on``: confidential covariates are known only in a sequence.
        for column in columns:
            refuse_broken(column.program, column.private, column.conditioned)
        return SequenceModel(schema, tuple(columns), labels, _program(columns, labels))


def _read(where: str, table: Mapping[str, Any], folder: Path) -> Regression | Program:
    """Read one table [[model]]; ``where`` begins messages, ``folder`` has the files it names."""
    formula = table.get("formula")
    if not isinstance(formula, str):
        raise SchemaError(f'{where}: a [[{TABLE}]] needs formula = "column ~ covariates".')
    where = f"{where}, {quoted(formula)}"
    unknown = [key for key in table if key not in _KEYS]
    if unknown:
        raise SchemaError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(_KEYS)}.")
    entries = {key: table.get(key) for key in _KEYS}
    if (entries["family"] is None) == (entries["program"] is None):
        raise SchemaError(f"{where} needs either family or program.")
    of_other = "constants" if entries["program"] is None else "priors"
    if entries[of_other] is not None:
        raise SchemaError(f"{where}: a family takes priors, a program takes constants.")
    for key, kinds in (("family", str), ("program", str), ("priors", dict)):
        if not isinstance(entries[key], kinds | None):
            raise SchemaError(f"{where}: {key} = {entries[key]!r:.50} is not what it should be.")
    if entries["family"] is not None:
        return Regression(formula, entries["family"], entries["priors"])
    constants = entries["constants"]
    if isinstance(constants, str):
        constants = folder / constants
    elif not isinstance(constants, dict | None):
        raise SchemaError(f"{where}: constants are a table, or the name of a JSON file.")
    return Program(folder / str(entries["program"]), formula, constants)


def _check_order(models: list[tuple[tuple[str, ...], tuple[str, ...]]], schema: Schema) -> None:
    """Raise SchemaError unless each confidential column has one model and is drawn before use.

    Args:
        models: outcomes and used columns of each model.
        schema: declaration of the columns.
    """
    needs = {outcome: used for outcomes, used in models for outcome in outcomes}
    for name in needs:
        _ = schema[name]  # raises SchemaError if it is not declared
    if () in dict(models):
        return  # an outcome is not a column, which its own model refuses with a better message
    drawn: set[str] = set()
    for outcomes, used in models:
        outcome = outcomes[0]
        for twice in (name for name in outcomes if name in drawn):
            raise SchemaError(f"column {twice!r} has two models: a sequence draws it once.")
        for name in used:
            if schema[name].public or name in drawn:
                continue
            subject = f"column {name!r}, a covariate of {outcome!r},"
            if name in outcomes:
                raise SchemaError(f"column {name!r} is a covariate of itself; leave it out.")
            if name not in needs:
                raise SchemaError(
                    f"{subject} is confidential and no model draws it. Give it a model before "
                    f"that of {outcome!r}, or leave it out of the formula."
                )
            if circle := _path(needs, name, outcome):
                raise SchemaError(
                    f"no order draws these columns, as each is given the next: "
                    f"{' ~ '.join((outcome, *circle))}. Leave a covariate out."
                )
            raise SchemaError(
                f"{subject} is drawn after it: put the model of {name!r} before that of "
                f"{outcome!r}."
            )
        drawn |= set(outcomes)
    left = [c.name for c in schema.columns.values() if not c.public and c.name not in needs]
    if left:
        raise SchemaError(
            f"column {left[0]!r} is confidential and no model draws it: a sequence has a model for "
            "every confidential column. Add one, or leave the column out of the schema."
        )


def _path(needs: Mapping[str, tuple[str, ...]], start: str, end: str) -> list[str] | None:
    """Find a path between columns, each a covariate of the one before; None if there is none."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        for name in needs.get(way[-1], ()):
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None


def _labels(names: list[str]) -> tuple[str, ...]:
    """Return unique endings of Stan names: the columns' own names where these are valid."""
    labels: list[str] = []
    for number, name in enumerate(names, start=1):
        plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*[A-Za-z0-9]|[A-Za-z]", name, re.ASCII)
        label = name if plain and SEPARATOR not in name else f"column{number}"
        while label in labels or (label != name and label in names):
            label += "x"
        labels.append(label)
    return tuple(labels)


def _program(columns: Iterable[ColumnModel], labels: Iterable[str]) -> StanProgram:
    """Write the program of a sequence, with a comment on each column's model."""

    def about(model: ColumnModel) -> str:
        kind = f"{model.program.name}.stan" if model.family is None else model.family.name
        return f"{' '.join(model.formula.text.split())}, {kind}"

    pairs = zip(columns, labels, strict=True)
    return composed([Piece(label, about(model), model.program) for model, label in pairs])


@dataclass(frozen=True, eq=False)
class SequenceModel(Model):
    """Model of a sequence. Names of a column's data and parameters end in its label."""

    schema: Schema
    columns: tuple[ColumnModel, ...]
    labels: tuple[str, ...]
    program: StanProgram

    def _each(self) -> Iterator[tuple[ColumnModel, str]]:
        return zip(self.columns, self.labels, strict=True)

    @property
    def generated(self) -> bool:
        return True

    @property
    def predictors(self) -> tuple[tuple[ColumnModel, str], ...]:
        parts = (
            (model, part, label) for model, label in self._each() for _, part in model.predictors
        )
        return tuple(
            (m, SEPARATOR.join((part, label)) if part else label) for m, part, label in parts
        )

    @property
    def private(self) -> tuple[str, ...]:
        return tuple(entry(name, label) for m, label in self._each() for name in m.private)

    @cached_property
    def proof(self) -> Proof:
        return proof_of_pieces(
            self.program, [(m.program.name, m.proof) for m in self.columns if not m.program.bundled]
        )

    @cached_property
    def constants(self) -> Mapping[str, Any]:  # type: ignore[override]  # read only
        return self._joined(model.constants for model in self.columns)

    def _joined(self, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        pairs = zip(parts, self.labels, strict=True)
        return {entry(name, label): value for part, label in pairs for name, value in part.items()}

    def data(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        return {**self._joined(model.data(records, rows) for model in self.columns), COLUMN: 0}

    def ends(self) -> dict[str, tuple[Any, Any]]:
        count = 2
        frame = pd.DataFrame(
            {
                name: column.validate(
                    column.constant(count) if column.public else pd.Series(ends(column), name=name)
                )
                for name, column in self.schema.columns.items()
            }
        )
        data = self.data(frame, count)
        return {name: (data[name][0], data[name][1]) for name in self.private}

    def inside(self, rows: int) -> list[tuple[str, dict[str, Any]]]:
        own = [model.program.numbers for model in self.columns if not model.program.bundled]
        numbers, rng = sorted(set().union(*own)), np.random.default_rng(1)
        made_up = places(self.schema, self.schema.columns, rows, rng, numbers)
        data = ((words, self.data(records, rows)) for words, records in made_up)
        return [(words, {name: of[name] for name in self.private}) for words, of in data]

    def draw(self, public: pd.DataFrame, replicate: Replicate) -> pd.DataFrame:
        # Later columns are drawn given the released values of earlier ones: rounded and validated.
        table = public.reset_index(drop=True)
        drawn = pd.DataFrame(index=table.index)
        for number, (model, label) in enumerate(self._each(), start=1):
            design = model.design_data(table) if model.conditioned else {}
            changes = {entry(name, label): design[name] for name in model.conditioned}
            columns = model.decoded(replicate({COLUMN: number, **changes}))
            for column in model.outcomes:
                values = column.rounded(columns[column.name])
                drawn[column.name] = values
                table = table.assign(**{column.name: column.validate(values).array})
        return drawn

    def drawn_data(self, public: pd.DataFrame, replicate: Replicate) -> dict[str, Any]:
        drawn = self.draw(public, replicate)
        typed = {c.name: c.validate(drawn[c.name]).array for c in self.outcomes}
        data = self.data(public.reset_index(drop=True).assign(**typed), len(public))
        return {name: data[name] for name in self.private}

    def by_column(self) -> tuple[Mapping[str, int], ...]:
        return tuple({COLUMN: number} for number in range(1, len(self.columns) + 1))

    def identity(self) -> dict[str, Any]:
        identities = [model.identity() for model in self.columns]
        return {
            "program": self.program.name,
            "program_sha256": self.program.sha256,
            "formula": "; ".join(identity["formula"] for identity in identities),
            "constants": [identity["constants"] for identity in identities],
            "columns": identities[0]["columns"],
        }

    def public_settings(self) -> dict[str, Any]:
        return {
            "model": [model.public_settings() for model in self.columns],
            "proved": self.proof.proved,
        }
