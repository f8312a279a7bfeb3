"""Models: a Stan program, a formula and public constants; records to data, and back to columns.

Mechanisms that draw from a posterior take a model. ``Regression`` and ``Program`` hold the user's
choice; ``on(schema)`` checks it and returns the frozen ``Model`` that fits use.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Ints
from dpbayes.core.checks import PATH, expect
from dpbayes.core.errors import ProgramError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.formula import Formula, columns_of
from dpbayes.formula.groups import neutral
from dpbayes.formula.text import quoted
from dpbayes.privacy.assumptions import CUSTOM_PROGRAM, PROVED_PROGRAM
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import ends, places
from dpbayes.schema.table import require_schema
from dpbayes.stan.families import FAMILIES, Family, family_of
from dpbayes.stan.joined import check_event, named, part_data
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.outcomes import decode_outcome, encode_outcome, events_of, with_events
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import Proof, check_constants, prove, refuse_broken, rows_in

_SDS = ("intercept", "cutpoint", "coefficient")
PRIVATE = ("y",)  # program data that hold confidential values
Replicate = Callable[[Mapping[str, Any]], NDArray[Any]]  # changed program data to y_rep


@runtime_checkable
class ModelChoice(Protocol):
    """A user's choice of model, such as ``Regression`` or ``Program``."""

    def on(self, schema: Schema) -> Model:
        """Check the choice against a schema and return the model of its columns."""
        ...


@dataclass(frozen=True)
class Regression:
    """A regression by a bundled program: one outcome of a family, given public covariates.

    Attributes:
        formula: ``"outcome ~ covariates + (1 | group)"`` over public covariates.
        family: name of an outcome family; see `dpbayes list`.
        priors: overrides of the family's priors, such as ``{"intercept": (0, 1)}``.

    Examples:
        >>> import dpbayes as dpb
        >>> from dpbayes.demo.earnings import earnings
        >>> records, schema = earnings()
        >>> model = dpb.Regression("earnings ~ age + gender", "beta").on(schema)
        >>> model.formula.names
        ('age', 'gender[T.female]')
    """

    formula: str
    family: str
    priors: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_formula(self.formula)
        expected = "a mapping such as {'intercept': (0, 1)}"
        expect(self.priors, Mapping | None, "priors", expected, SchemaError)

    def on(self, schema: Schema, drawn: Sequence[str] = ()) -> ColumnModel:
        """Check the regression against a schema and return its model.

        Args:
            schema: declaration of the columns.
            drawn: confidential columns that a sequence draws before, and that may be covariates.
        Raises:
            SchemaError: the formula, the family's settings or the priors do not fit the columns.
            ProgramError: an unknown family, or a program that breaks the contract.
        """
        require_schema(schema)
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
        if not program.bundled:
            own = constants.keys() - family.switches.keys()
            check_constants(program, PRIVATE, own, rows_public=schema.rows.public)
        scale = None
        if text := family.settings.get("sigma"):
            scale = Formula(f"`{formula.outcome.name}` {text}", schema, drawn)
            if scale.groups:
                raise SchemaError(f"sigma = {quoted(text)}: a scale takes no group terms.")
        return ColumnModel(schema, formula, program, constants, family, scale)


@dataclass(frozen=True)
class Program:
    """A user's Stan file that keeps the contract of stan_models/README.md.

    The program receives n, y, K, X, J and group like the bundled programs, the outcome unscaled.

    Attributes:
        file: path of the program.
        formula: as in ``Regression``.
        constants: further *public* data of the program, or a JSON file with them.

    Examples:
        With your own program in ``income.stan``; no findings means that it is proved to keep the
        contract:

        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"income": dpb.Column("income", "continuous", lower=0, upper=9)})
        >>> model = dpb.Program("income.stan", "income ~ 1").on(schema)
        >>> model.proof.findings
        ()
    """

    file: str | Path
    formula: str
    constants: Mapping[str, Any] | str | Path | None = None

    def __post_init__(self) -> None:
        _check_formula(self.formula)
        expect(self.file, PATH, "the program", "the path of a Stan file", ProgramError)
        expected = "a mapping of names to numbers, or the path of a JSON file"
        expect(self.constants, Mapping | PATH | None, "constants", expected, SchemaError)

    def on(self, schema: Schema, drawn: Sequence[str] = ()) -> ColumnModel:
        """Check the formula against a schema, and the program's text against the contract.

        Args:
            schema: declaration of the columns.
            drawn: as in ``Regression.on``.
        Raises:
            SchemaError: the formula does not fit the columns.
            ProgramError: the program or its constants break the contract.
            DataError: a bad JSON file.
        """
        require_schema(schema)
        formula = Formula(self.formula, schema, drawn)
        check_event(formula, None)
        program = StanProgram.from_file(self.file)
        refuse_broken(program, PRIVATE)
        declared = self.constants
        constants = dict(declared if isinstance(declared, Mapping) else read_json_data(declared))
        check_constants(program, PRIVATE, constants, rows_public=schema.rows.public)
        if formula.outcome.levels:
            constants.setdefault("C", len(formula.outcome.levels))
        return ColumnModel(schema, formula, program, constants)


def _check_formula(formula: object) -> None:
    expect(formula, str, "formula", "text such as 'y ~ 1'", SchemaError)


class Model(ABC):
    """A Stan program, and the public facts that link its data and replicates to columns.

    Attributes:
        schema: declaration of the columns.
        program: the Stan program.
        constants: public data of the program besides n and the design.
        columns: models of single columns, in the order in which they are drawn.
        labels: endings of the names of their data and parameters; see ``composition.entry``.
    """

    schema: Schema
    program: StanProgram
    constants: Mapping[str, Any]
    columns: tuple[ColumnModel, ...]
    labels: tuple[str, ...]

    @property
    @abstractmethod
    def private(self) -> tuple[str, ...]:
        """Names of the program data that hold confidential values."""

    @abstractmethod
    def data(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        """Convert validated records to program data, without the entries of the contract.

        Args:
            records: validated records.
            rows: public number of rows, on which scales of a program may depend; its ``n`` is only
                the length of vectors.
        """

    @abstractmethod
    def ends(self) -> dict[str, tuple[Any, Any]]:
        """Return confidential program data of one record at either end of the declared domain."""

    @abstractmethod
    def inside(self, rows: int) -> list[tuple[str, dict[str, Any]]]:
        """Return public ``places`` of the domain, in words and as confidential program data.

        Args:
            rows: number of records at each place.
        """

    @abstractmethod
    def draw(self, public: pd.DataFrame, replicate: Replicate) -> pd.DataFrame:
        """Draw synthetic columns, in the outcomes' own units or levels.

        Args:
            public: public columns of the rows to be drawn; may have no column, only an index.
            replicate: returns y_rep, shape (rows,), of the program with some data changed.
        """

    @abstractmethod
    def drawn_data(self, public: pd.DataFrame, replicate: Replicate) -> dict[str, Any]:
        """Draw records and return their confidential program data; arguments as for ``draw``."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the public facts that a reference fit must share with the model that uses it."""

    @abstractmethod
    def public_settings(self) -> dict[str, Any]:
        """Return the settings for analysts: formula, family, priors; all public by assumption."""

    @property
    def generated(self) -> bool:
        """True if dpbayes wrote the program, which is then released with the synthetic data."""
        return False

    def by_column(self) -> tuple[Mapping[str, int], ...]:
        """Changes of program data, one for each column, that restrict log_lik to that column."""
        return ({},)

    @property
    @abstractmethod
    def predictors(self) -> tuple[tuple[ColumnModel, str], ...]:
        """Pairs of a column's model and the ending of its names, one for each linear predictor."""

    @property
    def outcomes(self) -> tuple[Column, ...]:
        """Columns that the model synthesises."""
        return tuple(column for model in self.columns for column in model.formula.outcomes)

    @property
    def events(self) -> dict[str, Column]:
        """Columns that record whether an event was observed, by the name of the duration."""
        formulas = [model.formula for model in self.columns]
        return {f.outcome.name: f.event for f in formulas if f.event is not None}

    @property
    def parameters(self) -> int:
        """Approximate number of parameters, summed over the columns."""
        return sum(model.size for model in self.columns)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions about the program, besides the mechanism's own."""
        if self.program.bundled:
            return ()
        return (PROVED_PROGRAM if self.proof.proved else CUSTOM_PROGRAM,)

    @property
    @abstractmethod
    def proof(self) -> Proof:
        """Proof from the program's text that it keeps the contract, or what prevents it."""

    @property
    def discrete(self) -> bool:
        """True if a record's likelihood is a probability, so that its logarithm is at most 0."""
        return all(model.discrete for model in self.columns)

    @property
    def several_modes(self) -> bool:
        """True if the posterior is likely to have several modes, of which chains may miss some."""
        families = [model.family for model in self.columns]
        mixed = any(family and "components" in family.settings for family in families)
        return mixed and self.program.bundled

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of public columns that are in no formula, to which no outcome is related."""
        formulas = [f for model in self.columns for f in (model.formula, model.scale) if f]
        used = {name for formula in formulas for name in columns_of(formula.text)[1]}
        public = (column.name for column in self.schema.columns.values() if column.public)
        return tuple(name for name in public if name not in used)

    @property
    def scored(self) -> bool:
        """True if the program of every column has the beta-divergence."""
        return all("divergence" in model.constants for model in self.columns)

    def blank(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        """Return program data in which every confidential value is a public constant.

        Releases and candidates are generated from these data, so that they cannot contain a record.

        Args:
            records: only their public columns are read.
            rows: number of rows; that of the records if there are public columns.
        """
        return self.data(self.constant_records(records, rows), rows)

    def constant_records(self, records: pd.DataFrame, rows: int) -> pd.DataFrame:
        """Return records in which every confidential value is a public constant (``blank``)."""
        return self._with_constants(self.public(records, rows))

    def public(self, records: pd.DataFrame, rows: int) -> pd.DataFrame:
        """Return the public columns of records, or ``rows`` rows without a column."""
        names = [name for name, column in self.schema.columns.items() if column.public]
        return records[names] if names else pd.DataFrame(index=range(rows))

    def constant_record(self) -> pd.DataFrame:
        """Return one record of public constants, for a table without records or public columns."""
        return self._with_constants(pd.DataFrame(index=range(1)))

    def _with_constants(self, frame: pd.DataFrame) -> pd.DataFrame:
        constants = {c.name: c.validate(c.constant(len(frame))).array for c in self.outcomes}
        return frame.assign(**constants)

    def constants_at(self, index: Ints, rows: int) -> dict[str, NDArray[Any]]:
        """Select rows of the public data of a user's program that have a value for each row.

        Args:
            index: positions of the rows.
            rows: public number of rows.
        Returns:
            Selected values by name; empty for a program of a family.
        """
        if not self.schema.rows.public or self.program.bundled:
            return {}
        # Not by their length: priors, and others, may by chance be as long as there are rows.
        by_row = {
            k: np.asarray(self.constants[k]) for k in rows_in(self.program) if k in self.constants
        }
        return {k: v[index] for k, v in by_row.items() if v.shape[:1] == (rows,)}


@dataclass(frozen=True, eq=False)
class ColumnModel(Model):
    """Model of one column, or of a duration and its event.

    Attributes:
        formula: outcome and covariates.
        family: outcome family; None for a user's program.
        scale: formula of the scale, if it has one.
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
        single_intercept = len(groups) == 1 and groups[0].slope is None
        # A registered family's program may read stacked groups like the bundled ones.
        stacked = self.family is not None and "group_index" in self.program.declared("data")
        if groups and not single_intercept and not stacked:
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
        """Column that the model draws; the duration if there is an event, too."""
        return self.formula.outcome

    @property
    def private(self) -> tuple[str, ...]:
        return (*PRIVATE, *self.conditioned)

    @property
    def proof(self) -> Proof:
        return prove(self.program, self.private, self.conditioned)

    @property
    def size(self) -> int:
        """Approximate number of parameters."""
        scale = 0 if self.scale is None else len(self.scale.names)
        cells = int(self.constants["C"]) if self.family and self.family.scaling == "cells" else 0
        parts = len(self.predictors)
        mixture = 3 * (int(self.constants.get("components", 1)) - 1)  # shares, shifts, sds
        per_part = 2 + len(self.formula.names) + self.formula.effects
        return parts * per_part + scale + cells + mixture

    @property
    def log_uniform(self) -> float:
        """Log density of a uniform outcome over its declared domain, on the program's scale.

        It is 0 for a count without an upper bound.
        """
        column = self.outcome
        if self.family is not None and self.family.scaling == "cells":
            return -math.log(self.constants["C"])
        if column.levels:
            return -math.log(len(column.levels))
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
        """Names of program data that depend on confidential covariates, drawn in a sequence."""
        scale = () if self.scale is None or not self.scale.entries else ("Z",)
        entries = (*self.formula.entries, *scale)
        if self.family is None:  # a user's program is given ``group`` alone
            entries = tuple(name for name in entries if name != "group_index")
        return tuple(named(name, label) for _, label in self.predictors for name in entries)

    def data(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        y = self.encoded(records)
        return {**self.design_data(records), "y": y, "rows": rows, **self.constants}

    def design_data(self, records: pd.DataFrame) -> dict[str, Any]:
        """Convert the covariates and groups of records to program data."""
        design = self.formula.design(records)
        if self.family is None:
            return design.stan_data()
        design_entries = design.stan_data()
        data: dict[str, Any] = {}
        for label, family in self.parts.items():
            levels = self.constants.get(named("C", label), 0)
            coordinates = family.coordinates(design.effects, levels)
            groups = design.group_data(self._prior_sds(label))
            # Coordinates only help the chain. They are sums over rows, and so must not depend on
            # confidential values, nor enter a density that is proved as a sum over records.
            if self.conditioned or not self.program.bundled:
                groups = {**groups, **neutral(groups)}
            scale_entries = self._scale_data(family, records)
            entries = {**design_entries, **scale_entries, **coordinates, **groups}
            data |= {named(name, label): value for name, value in entries.items()}
        return data

    def log_unit(self, records: pd.DataFrame) -> NDArray[np.float64]:
        """Log of the outcome's unit in its program (``Family.log_unit``), shape (n,).

        It is 0 for an outcome that has a probability and no density.
        """
        dense, log_unit = self._dense(records), np.zeros(len(records))
        if self.family is not None:
            values = records[self.outcome.name].to_numpy()[dense]
            log_unit[dense] = self.family.log_unit(self.outcome, values)
        return log_unit

    def log_uniform_at(self, records: pd.DataFrame) -> NDArray[np.float64]:
        """Log density in the program of outcomes, were they uniform over their domain, shape (n,).

        Log-likelihoods of two programs have the same units after it is subtracted. As in
        ``log_unit``, it is 0 for an outcome that has a probability.
        """
        column = self.outcome
        if column.type != "continuous":
            return np.zeros(len(records))
        assert column.lower is not None  # continuous: checked by the schema
        assert column.upper is not None
        log_range = math.log(column.upper - column.lower)
        return self.log_unit(records) - log_range * self._dense(records)

    def _dense(self, records: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether each outcome has a density, and no probability, shape (n,)."""
        column, event = self.outcome, self.formula.event
        dense = np.full(len(records), column.type == "continuous")
        values = records[column.name].to_numpy()
        if self.family is None:
            dense &= ~np.isin(values, column.atoms)
        elif self.family.keeps_atoms:
            for atom in column.atoms:
                dense &= ~self.family.at_atom(column, values, atom)
        if event is not None:  # a censored duration only has a probability
            dense &= (records[event.name] == event.levels[1]).to_numpy(dtype=bool)
        return dense

    def _scale_data(self, family: Family, records: pd.DataFrame) -> dict[str, Any]:
        """Return the design of the scale's formula, for programs that read one."""
        if family.file != "location_scale":
            return {}
        Z = np.empty((len(records), 0)) if self.scale is None else self.scale.design(records).X
        return {"M": Z.shape[1], "Z": Z}

    @property
    def parts(self) -> Mapping[str, Family]:
        """Families of the parts by label; a family of one part has the label ""."""
        assert self.family is not None
        return {k: FAMILIES[name] for k, name in self.family.parts.items()} or {"": self.family}

    @property
    def predictors(self) -> tuple[tuple[ColumnModel, str], ...]:
        labels = ("",) if self.family is None else tuple(self.parts)
        return tuple((self, label) for label in labels)

    def _prior_sds(self, label: str) -> tuple[float, float]:
        """Prior standard deviations of coefficients and of the intercept or cutpoints."""
        priors = {name: self.constants.get(named(f"prior_{name}", label)) for name in _SDS}
        located = priors["cutpoint"] if priors["intercept"] is None else priors["intercept"]
        sd = 1.0 if located is None else float(located[1])
        return float(1.0 if priors["coefficient"] is None else priors["coefficient"]), sd

    def ends(self) -> dict[str, tuple[Any, Any]]:
        extremes = {c.name: c.validate(pd.Series(ends(c), name=c.name)) for c in self.outcomes}
        low, high = self.encoded(pd.DataFrame(extremes))
        return {"y": (low, high)}

    def inside(self, rows: int) -> list[tuple[str, dict[str, Any]]]:
        names = [column.name for column in self.outcomes]
        numbers = () if self.program.bundled else self.program.numbers
        made_up = places(self.schema, names, rows, np.random.default_rng(1), numbers)
        return [(words, {"y": self.encoded(records)}) for words, records in made_up]

    def encoded(self, records: pd.DataFrame) -> NDArray[Any]:
        """Convert the outcome of records to the program's scale, shape (n,)."""
        encode = self.family.encode if self.family else encode_outcome
        y = encode(self.outcome, records[self.outcome.name])
        event = self.formula.event
        return y if event is None else with_events(event, records[event.name], y)

    def decoded(self, y: NDArray[Any]) -> pd.DataFrame:
        """Convert a replicate, shape (n,), to columns in their own units or levels."""
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
        if self.family is None:  # what a user's program draws may be no value of the column
            values = self.outcome.rounded(self.decoded(y)[self.outcome.name])
            return {"y": self.encoded(self.outcome.validate(values).to_frame())}
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
        """Return the range of outcome values that the program reads, if narrower than declared."""
        if self.family is None or not self.family.open_at:
            return {}
        return {"support": list(self.family.support(self.outcome))}

    def _plain_constants(self) -> dict[str, Any]:
        return {key: np.asarray(value).tolist() for key, value in sorted(self.constants.items())}
