"""A model: a program, a formula and public constants; from records to data, and back to columns.

A model is an input of the mechanisms that draw from a posterior. ``Regression`` and ``Program``
say what the user wants; ``on(schema)`` checks it and gives the frozen ``Model`` that fits use.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import Formula
from dpbayes.formula.groups import neutral
from dpbayes.formula.text import quoted
from dpbayes.privacy.assumptions import CUSTOM_PROGRAM, PROVED_PROGRAM
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import ends
from dpbayes.stan.families import FAMILIES, Family, family_of
from dpbayes.stan.joined import check_event, named, part_data
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.outcomes import decode_outcome, encode_outcome, events_of, with_events
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import Proof, check_constants, prove, refuse_broken

_SDS = ("intercept", "cutpoint", "coefficient")
PRIVATE = ("y",)  # data entries that hold confidential values
Replicate = Callable[[Mapping[str, Any]], NDArray[Any]]


class ModelChoice(Protocol):
    """What a user gives as a model."""

    def on(self, schema: Schema) -> Model:
        """The model over a schema's columns."""
        ...


@dataclass(frozen=True)
class Regression:
    """A bundled program: one outcome of a family, given public covariates.

    Attributes:
        formula: ``"outcome ~ covariates + (1 | group)"`` over public covariates.
        family: name of an outcome family; see `dpbayes list`.
        priors: overrides of the family's priors, such as ``{"intercept": (0, 1)}``.
    """

    formula: str
    family: str
    priors: Mapping[str, Any] | None = None

    def on(self, schema: Schema, drawn: Sequence[str] = ()) -> ColumnModel:
        """Check it against a schema.

        Args:
            drawn: confidential columns that a sequence draws before, and that may be covariates.
        Raises:
            SchemaError, ProgramError.
        """
        program = StanProgram.for_family(self.family)  # first: formulas take time to import
        if not program.bundled:
            refuse_broken(program, PRIVATE)
        formula = Formula(self.formula, schema, drawn)
        family = family_of(self.family)
        family.check_column(formula.outcome)
        check_event(formula, family)
        constants = {
            **part_data(family, formula.outcome),
            **family.stan_data(formula.outcome, self.priors),
        }
        scale = None
        if text := family.settings.get("sigma"):
            scale = Formula(f"`{formula.outcome.name}` {text}", schema, drawn)
            if scale.groups:
                raise SchemaError(f"sigma = {quoted(text)}: a scale takes no group terms.")
        return ColumnModel(schema, formula, program, constants, family, scale)


@dataclass(frozen=True)
class Program:
    """A user's Stan file that keeps the contract of stan_models/README.md.

    It is given n, y, K, X, J, group as the bundled programs are, the outcome unscaled.

    Attributes:
        file: of the program.
        formula: as in ``Regression``.
        constants: further *public* data of the program, or a JSON file with them.
    """

    file: str | Path
    formula: str
    constants: Mapping[str, Any] | str | Path | None = None

    def on(self, schema: Schema, drawn: Sequence[str] = ()) -> ColumnModel:
        """Check it against a schema, and the program's text against the contract.

        Args:
            drawn: as in ``Regression``.
        Raises:
            SchemaError, ProgramError; DataError for a bad JSON file.
        """
        formula = Formula(self.formula, schema, drawn)
        check_event(formula, None)
        program = StanProgram.from_file(self.file)
        refuse_broken(program, PRIVATE)
        given = self.constants
        constants = dict(given if isinstance(given, Mapping) else read_json_data(given))
        check_constants(program, PRIVATE, constants, rows_public=schema.rows.public)
        if formula.outcome.levels:
            constants.setdefault("C", len(formula.outcome.levels))
        return ColumnModel(schema, formula, program, constants)


class Model(ABC):
    """A program with the public facts that turn records into its data, and replicates into columns.

    Attributes:
        schema, program: what is modelled, and how.
        constants: public data of the program besides n and the design.
        columns: models of single columns, in the order in which they are drawn.
        labels: what names of their data and parameters end in; see ``composition.entry``.
    """

    schema: Schema
    program: StanProgram
    constants: Mapping[str, Any]
    columns: tuple[ColumnModel, ...]
    labels: tuple[str, ...]

    @property
    @abstractmethod
    def private(self) -> tuple[str, ...]:
        """Data entries that hold confidential values."""

    @abstractmethod
    def data(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        """Program data of validated records, entries of the contract excepted.

        Args:
            rows: the public number of rows, which scales of a program may follow; its ``n`` is
                the length of vectors and nothing else.
        """

    @abstractmethod
    def ends(self) -> dict[str, tuple[Any, Any]]:
        """Confidential program data of one record at either end of the declared domain."""

    @abstractmethod
    def draw(self, public: pd.DataFrame, replicate: Replicate) -> pd.DataFrame:
        """Synthetic columns, in the outcomes' own units or levels.

        Args:
            public: the public columns of the rows to be drawn; none, with an index as long.
            replicate: gives y_rep, shape (rows,), of the program with some data changed.
        """

    @abstractmethod
    def drawn_data(self, public: pd.DataFrame, replicate: Replicate) -> dict[str, Any]:
        """Confidential program data of drawn records; arguments as for ``draw``."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a reference fit must share with the model that uses it; public."""

    @abstractmethod
    def public_settings(self) -> dict[str, Any]:
        """What an analyst may model: formula, family and priors; all public by assumption."""

    @property
    def generated(self) -> bool:
        """dpbayes wrote the program, which is released with what was drawn by it."""
        return False

    def by_column(self) -> tuple[Mapping[str, int], ...]:
        """Changes of program data by which log_lik is that of each column alone."""
        return ({},)

    @property
    @abstractmethod
    def predictors(self) -> tuple[tuple[ColumnModel, str], ...]:
        """Models of columns with the endings of their data and parameters, one for each part."""

    @property
    def outcomes(self) -> tuple[Column, ...]:
        """Columns that the model synthesises."""
        return tuple(column for model in self.columns for column in model.formula.outcomes)

    @property
    def events(self) -> dict[str, Column]:
        """By the name of a duration, the column that says whether its event was seen."""
        formulas = [model.formula for model in self.columns]
        return {f.outcome.name: f.event for f in formulas if f.event is not None}

    @property
    def parameters(self) -> int:
        """About how many there are: of each column intercept, dispersion, coefficients, groups."""
        return sum(model.size for model in self.columns)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee assumes of the program beyond what the mechanism assumes."""
        if self.program.bundled:
            return ()
        return (PROVED_PROGRAM if self.proof.proved else CUSTOM_PROGRAM,)

    @property
    @abstractmethod
    def proof(self) -> Proof:
        """That the program keeps the contract, as far as its text shows it."""

    @property
    def discrete(self) -> bool:
        """The likelihood of a record is a probability, so that its logarithm is at most 0."""
        return all(model.discrete for model in self.columns)

    @property
    def several_modes(self) -> bool:
        """The posterior is likely to have modes that chains do not find by themselves."""
        families = [model.family for model in self.columns]
        mixed = any(family and "components" in family.settings for family in families)
        return mixed and self.program.bundled

    @property
    def scored(self) -> bool:
        """Every column's program has the beta-divergence."""
        return all("divergence" in model.constants for model in self.columns)

    def blank(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        """Program data in which every confidential value is a public constant.

        What is released is generated from them, and so are candidates: no record can be in it.

        Args:
            records: only their public columns are read.
            rows: number of rows; that of the records where there are public columns.
        """
        return self.data(self._with_constants(self.public(records, rows)), rows)

    def public(self, records: pd.DataFrame, rows: int) -> pd.DataFrame:
        """The public columns of records; without any, that many rows of nothing."""
        names = [name for name, column in self.schema.columns.items() if column.public]
        return records[names] if names else pd.DataFrame(index=range(rows))

    def constant_record(self) -> pd.DataFrame:
        """One record of public constants, for a table without any and without public columns."""
        return self._with_constants(pd.DataFrame(index=range(1)))

    def _with_constants(self, frame: pd.DataFrame) -> pd.DataFrame:
        each = {c.name: c.validate(c.constant(len(frame))).array for c in self.outcomes}
        return frame.assign(**each)

    def constants_at(self, index: Ints, rows: int) -> dict[str, NDArray[Any]]:
        """Of a user's program the public data that have a value for each of the rows, at some.

        Args:
            index: which rows.
            rows: the public number.
        """
        if not self.schema.rows.public or any(column.family for column in self.columns):
            return {}  # a family's priors may be as long as there are rows
        each = {k: np.asarray(v) for k, v in self.constants.items() if np.shape(v)[:1] == (rows,)}
        return {name: values[index] for name, values in each.items()}

    def left_out(self) -> list[str]:
        """Declared columns that are not released: neither public nor an outcome."""
        released = {column.name for column in self.outcomes}
        columns = self.schema.columns.values()
        return [c.name for c in columns if not c.public and c.name not in released]


@dataclass(frozen=True, eq=False)
class ColumnModel(Model):
    """A model of one column.

    Attributes:
        formula: given what.
        family: None for a user's program.
        scale: the formula of a scale, where it has one.
    """

    schema: Schema
    formula: Formula
    program: StanProgram
    constants: Mapping[str, Any] = field(repr=False)
    family: Family | None = None
    scale: Formula | None = None
    labels = ("",)

    def __post_init__(self) -> None:
        groups = self.formula.groups
        one = len(groups) == 1 and groups[0].slope is None
        # As the bundled programs: a family of one's own may be made like them.
        stacked = self.family is not None and "group_index" in self.program.declared("data")
        if groups and not one and not stacked:
            raise SchemaError(
                f"program {self.program.name!r} is given n, y, K, X, J, group, and so no more than "
                f"one group term with intercepts, (1 | g); formula {quoted(self.formula.text)} has "
                f"{', '.join(f'({c.name})' for c in groups)}. Leave out all but one, or use a "
                "family's program."
            )

    @property
    def columns(self) -> tuple[ColumnModel, ...]:  # type: ignore[override]  # read only
        return (self,)

    @property
    def outcome(self) -> Column:
        """The column that it draws, or the first of two."""
        return self.formula.outcome

    @property
    def private(self) -> tuple[str, ...]:
        return (*PRIVATE, *self.conditioned)

    @property
    def proof(self) -> Proof:
        return prove(self.program, self.private, self.conditioned)

    @property
    def size(self) -> int:
        """About how many parameters it has."""
        scale = 0 if self.scale is None else len(self.scale.names)
        cells = int(self.constants["C"]) if self.family and self.family.scaling == "cells" else 0
        parts = len(self.predictors)
        more = 3 * (int(self.constants.get("components", 1)) - 1)  # shares, shifts, sds
        each = 2 + len(self.formula.names) + self.formula.effects
        return parts * each + scale + cells + more

    @property
    def log_uniform(self) -> float:
        """Log density of the uniform distribution over the outcome's declared domain, as the
        program has it; 0 for a count without an upper bound."""
        column = self.outcome
        if column.levels or "C" in self.constants:
            return -math.log(len(column.levels) or self.constants["C"])
        if self.formula.event is not None:
            return -math.log(2)
        if column.upper is None or (self.family is not None and self.family.scaling != "none"):
            return 0.0
        return -math.log(column.upper - (column.lower or 0) + (column.type == "count"))

    @property
    def discrete(self) -> bool:
        return self.outcome.type != "continuous" if self.family is None else self.family.discrete

    @property
    def conditioned(self) -> tuple[str, ...]:
        """Data entries made of confidential covariates, which a sequence has drawn before."""
        scale = () if self.scale is None or not self.scale.entries else ("Z",)
        each = (*self.formula.entries, *scale)
        return tuple(named(name, label) for _, label in self.predictors for name in each)

    def data(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        y = self.encoded(records)
        return {**self.design_data(records), "y": y, "rows": rows, **self.constants}

    def design_data(self, records: pd.DataFrame) -> dict[str, Any]:
        """Program data of covariates and groups alone."""
        design = self.formula.design(records)
        if self.family is None:
            return design.stan_data()
        given = design.stan_data()
        data: dict[str, Any] = {}
        for label, family in self._parts.items():
            levels = self.constants.get(named("C", label), 0)
            coordinates = family.coordinates(design.effects, levels)
            groups = design.group_data(self._prior_sds(label))
            of_part = {**given, **self._scale_data(family, records), **coordinates, **groups}
            data |= {named(name, label): value for name, value in of_part.items()}
        # Coordinates are for the chain alone, and no confidential covariate is in those of others.
        return {**data, **neutral(data)} if self.conditioned else data

    def _scale_data(self, family: Family, records: pd.DataFrame) -> dict[str, Any]:
        """Covariates of the scale, for programs that have them."""
        if family.file != "location_scale":
            return {}
        Z = np.empty((len(records), 0)) if self.scale is None else self.scale.design(records).X
        return {"M": Z.shape[1], "Z": Z}

    @property
    def _parts(self) -> Mapping[str, Family]:
        """Families of its parts by label; a family of one part has the label ""."""
        assert self.family is not None
        return {k: FAMILIES[name] for k, name in self.family.parts.items()} or {"": self.family}

    @property
    def predictors(self) -> tuple[tuple[ColumnModel, str], ...]:
        labels = ("",) if self.family is None else tuple(self._parts)
        return tuple((self, label) for label in labels)

    def _prior_sds(self, label: str) -> tuple[float, float]:
        """Of coefficients and intercept, or about that."""
        of = {name: self.constants.get(named(f"prior_{name}", label)) for name in _SDS}
        located = of["cutpoint"] if of["intercept"] is None else of["intercept"]
        sd = 1.0 if located is None else float(located[1])
        return float(1.0 if of["coefficient"] is None else of["coefficient"]), sd

    def ends(self) -> dict[str, tuple[Any, Any]]:
        each = {c.name: c.validate(pd.Series(ends(c), name=c.name)) for c in self.outcomes}
        low, high = self.encoded(pd.DataFrame(each))
        return {"y": (low, high)}

    def encoded(self, records: pd.DataFrame) -> NDArray[Any]:
        """The outcome of records as the program reads it, shape (n,)."""
        encode = self.family.encode if self.family else encode_outcome
        y = encode(self.outcome, records[self.outcome.name])
        event = self.formula.event
        return y if event is None else with_events(event, records[event.name], y)

    def decoded(self, y: NDArray[Any]) -> pd.DataFrame:
        """A replicate, shape (n,), as columns in their own units or levels."""
        decode = self.family.decode if self.family else decode_outcome
        event = self.formula.event
        if event is None:
            return pd.DataFrame({self.outcome.name: decode(self.outcome, y)})
        times = decode(self.outcome, np.abs(y))
        return pd.DataFrame({self.outcome.name: times, event.name: events_of(event, y)})

    def draw(self, public: pd.DataFrame, replicate: Replicate) -> pd.DataFrame:
        return self.decoded(replicate({}))

    def drawn_data(self, public: pd.DataFrame, replicate: Replicate) -> dict[str, Any]:
        y = replicate({})
        return {"y": np.rint(y).astype(np.int64) if self.discrete else y}

    def identity(self) -> dict[str, Any]:
        return {
            "program": self.program.name,
            "program_sha256": self.program.sha256,
            "formula": " ".join(self.formula.text.split()),
            "constants": self._plain_constants(),
            "columns": self.schema.to_dict()["columns"],
        }

    def public_settings(self) -> dict[str, Any]:
        return {
            "formula": self.formula.text,
            "family": self.family and self.family.name,
            "settings": dict(self.family.settings) if self.family else {},
            "constants": self._plain_constants() if self.family else {},
            **self._support(),
        }

    def _support(self) -> dict[str, Any]:
        """Values that the program is given where that is less than the declared domain."""
        if self.family is None or not self.family.open_at:
            return {}
        return {"support": list(self.family.support(self.outcome))}

    def _plain_constants(self) -> dict[str, Any]:
        return {key: np.asarray(value).tolist() for key, value in sorted(self.constants.items())}
