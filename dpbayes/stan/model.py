"""A model: a program, a formula and public constants; from records to data, and back to columns.

A model is an input of the mechanisms that draw from a posterior. ``Regression`` and ``Program``
say what the user wants; ``on(schema)`` checks it and gives the frozen ``Model`` that fits use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpbayes.errors import SchemaError
from dpbayes.heavy import pd
from dpbayes.privacy.guarantee import CUSTOM_PROGRAM, PROVED_PROGRAM
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import ends
from dpbayes.stan.dataflow import prove, refuse_broken
from dpbayes.stan.families import FAMILIES, Family, decode_outcome, encode_outcome
from dpbayes.stan.formula import Design, Formula
from dpbayes.stan.formula_text import quoted
from dpbayes.stan.json_data import read_json_data
from dpbayes.stan.program import StanProgram

PRIVATE = ("y",)  # data entries that hold confidential values


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

    def on(self, schema: Schema) -> Model:
        """Check it against a schema.

        Raises:
            SchemaError, ProgramError.
        """
        program = StanProgram.for_family(self.family)  # first: formulas take time to import
        if not program.bundled:
            refuse_broken(program, PRIVATE)
        formula = Formula(self.formula, schema)
        family = FAMILIES[self.family]
        family.check_column(formula.outcome)
        constants = family.stan_data(formula.outcome, self.priors)
        return Model(schema, formula, program, constants, family)


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

    def on(self, schema: Schema) -> Model:
        """Check it against a schema, and the program's text against the contract.

        Raises:
            SchemaError, ProgramError; DataError for a bad JSON file.
        """
        formula = Formula(self.formula, schema)
        program = StanProgram.from_file(self.file)
        refuse_broken(program, PRIVATE)
        given = self.constants
        constants = dict(given if isinstance(given, Mapping) else read_json_data(given))
        if formula.outcome.levels:
            constants.setdefault("C", len(formula.outcome.levels))
        return Model(schema, formula, program, constants)


@dataclass(frozen=True, eq=False)
class Model:
    """A program with the public facts that turn records into its data, and replicates into columns.

    Attributes:
        schema, formula, program: what is modelled, given what, and how.
        constants: public data of the program besides n and the design.
        family: None for a user's program.
    """

    schema: Schema
    formula: Formula
    program: StanProgram
    constants: Mapping[str, Any] = field(repr=False)
    family: Family | None = None

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
    def outcomes(self) -> tuple[Column, ...]:
        """Columns that the model synthesises."""
        return (self.formula.outcome,)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee assumes of the program beyond what the mechanism assumes."""
        if self.program.bundled:
            return ()
        return (PROVED_PROGRAM if prove(self.program, PRIVATE).proved else CUSTOM_PROGRAM,)

    @property
    def discrete(self) -> bool:
        """The likelihood of a record is a probability, so that its logarithm is at most 0."""
        return all(column.type != "continuous" for column in self.outcomes)

    def data(self, records: pd.DataFrame, rows: int) -> tuple[Design, dict[str, Any]]:
        """Design and program data of validated records, entries of the contract excepted.

        Args:
            rows: the public number of rows, which scales of a program may follow; its ``n`` is
                the length of vectors and nothing else.
        """
        design = self.formula.design(records)
        data = {**design.stan_data(), "y": self._encoded(records), "rows": rows}
        if self.family is not None:
            data |= self.family.coordinates(design.effects, self.constants.get("C", 0))
            data |= design.group_data(self._prior_sds())
        return design, {**data, **self.constants}

    def _prior_sds(self) -> tuple[float, float]:
        """Of coefficients and intercept, or about that."""
        located = self.constants.get("prior_intercept", self.constants.get("prior_cutpoint"))
        sd = 1.0 if located is None else float(located[1])
        return float(self.constants.get("prior_coefficient", 1.0)), sd

    def blank(self, records: pd.DataFrame, rows: int) -> dict[str, Any]:
        """Program data in which every confidential value is a public constant.

        What is released is generated from them, and so are candidates: no record can be in it.

        Args:
            records: only their public columns are read.
            rows: number of rows; that of the records where there are public columns.
        """
        public = [name for name, column in self.schema.columns.items() if column.public]
        frame = records[public] if public else pd.DataFrame(index=range(rows))
        return self.data(self._with_constants(frame), rows)[1]

    def ends(self) -> dict[str, tuple[Any, Any]]:
        """Confidential program data of one record at either end of the declared domain."""
        (column,) = self.outcomes
        values = column.validate(pd.Series(ends(column), name=column.name))
        low, high = self._encoded(pd.DataFrame({column.name: values}))
        return {"y": (low, high)}

    def constant_record(self) -> pd.DataFrame:
        """One record of public constants, for a table without any and without public columns."""
        return self._with_constants(pd.DataFrame(index=range(1)))

    def _with_constants(self, frame: pd.DataFrame) -> pd.DataFrame:
        typed = {c.name: c.validate(c.constant(len(frame))) for c in self.outcomes}
        return frame.assign(
            **{
                name: values.to_numpy() if not self.schema[name].levels else values.array
                for name, values in typed.items()
            }
        )

    def _encoded(self, records: pd.DataFrame) -> NDArray[Any]:
        encode = self.family.encode if self.family else encode_outcome
        (column,) = self.outcomes
        return encode(column, records[column.name])

    def decode(self, y: NDArray[Any]) -> pd.DataFrame:
        """A replicate, shape (n,), as columns in the outcomes' own units or levels."""
        decode = self.family.decode if self.family else decode_outcome
        (column,) = self.outcomes
        return pd.DataFrame({column.name: decode(column, y)})

    def identity(self) -> dict[str, Any]:
        """What a reference fit must share with the model that uses it; public."""
        return {
            "program": self.program.name,
            "program_sha256": self.program.sha256,
            "formula": " ".join(self.formula.text.split()),
            "constants": self._plain_constants(),
            "columns": self.schema.to_dict()["columns"],
        }

    def public_settings(self) -> dict[str, Any]:
        """What an analyst may model: formula, family and priors; all public by assumption."""
        return {
            "formula": self.formula.text,
            "family": self.family and self.family.name,
            "constants": self._plain_constants() if self.family else {},
            **self._support(),
        }

    def _support(self) -> dict[str, Any]:
        """Values that the program is given where that is less than the declared domain."""
        (column,) = self.outcomes
        if self.family is None or not self.family.open_at:
            return {}
        return {"support": list(self.family.support(column))}

    def _plain_constants(self) -> dict[str, Any]:
        return {key: np.asarray(value).tolist() for key, value in sorted(self.constants.items())}

    def left_out(self) -> list[str]:
        """Declared columns that are not released: neither public nor an outcome."""
        released = {column.name for column in self.outcomes}
        columns = self.schema.columns.values()
        return [c.name for c in columns if not c.public and c.name not in released]
