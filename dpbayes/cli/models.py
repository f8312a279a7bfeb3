"""Options for the schema, and for a model of one column or of all confidential columns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpbayes.core.errors import GuaranteeError, ProgramError, SchemaError
from dpbayes.engines import Engine, SamplerSettings
from dpbayes.formula.formula import columns_of
from dpbayes.mechanisms import Mechanism
from dpbayes.schema import Schema
from dpbayes.schema.rows import PUBLIC
from dpbayes.schema.table import read_toml
from dpbayes.stan.families import fitting
from dpbayes.stan.model import ModelChoice, Program, Regression
from dpbayes.stan.sequence import Sequence
from dpbayes.synthesis.synthesizer import Synthesizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def required(field: dataclasses.Field[Any]) -> bool:
    """True if an option has no default."""
    return field.default is dataclasses.MISSING


def require_posterior(mechanism: Mechanism[Any], *groups: DataclassInstance) -> None:
    """Raise GuaranteeError if options for Stan programs are set, and the mechanism needs none.

    Args:
        mechanism: the mechanism that was chosen.
        groups: option groups, of which no option may differ from its default.
    """
    if mechanism.needs_model:
        return
    options = [
        f"--{field.name.replace('_', '-')}"
        for group in groups
        for field in dataclasses.fields(group)
        if not required(field) and getattr(group, field.name) != field.default
    ]
    if options:
        raise GuaranteeError(
            f"mechanism {mechanism.name!r} synthesises every confidential column of the schema "
            f"without a Stan program: leave out {', '.join(options)}."
        )


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options for the schema of the records, and for a model of one or all columns."""

    schema: Annotated[
        Path,
        typer.Option(help="Schema file, TOML: types, public bounds and levels of the columns."),
    ]
    formula: Annotated[
        str | None,
        typer.Option(help="'outcome ~ covariates + (1 | group)'; covariates must be public."),
    ] = None
    family: Annotated[str | None, typer.Option(help="Outcome family; see `dpbayes list`.")] = None
    program: Annotated[Path | None, typer.Option(help="Your Stan file, instead of a family.")] = (
        None
    )
    constants: Annotated[
        Path | None, typer.Option(help="Public constants for --program, JSON.")
    ] = None
    priors: Annotated[
        Path | None, typer.Option(help="Priors of the family, TOML: name = number or [a, b].")
    ] = None
    model: Annotated[
        Path | None,
        typer.Option(
            help="Models of all confidential columns, TOML: a table [[model]] for each, in the "
            "order in which they are drawn [those of the schema file, if it has any]."
        ),
    ] = None

    @property
    def given(self) -> bool:
        """True if options or the schema file give a model."""
        named = (self.formula, self.family, self.program, self.model)
        return named != (None,) * 4 or self._sequence() is not None

    def synthesizer(
        self,
        mechanism: Mechanism[Any],
        engine: str | Engine = "embedded",
        settings: SamplerSettings | None = None,
        *,
        allow_unproved: bool = False,
        reference: bool = False,
    ) -> Synthesizer[Any]:
        """Build the synthesizer that the options describe.

        Args:
            mechanism, engine, settings, allow_unproved: as in ``Synthesizer``.
            reference: whether it is for reference records, whose number needs no noise.
        """
        require_posterior(mechanism, self)
        schema = Schema.from_toml(self.schema)
        if reference and schema.rows.share:
            schema = replace(schema, rows=PUBLIC)
        model = self.choice() if mechanism.needs_model else None
        return Synthesizer(
            schema,
            mechanism,
            model,
            engine=engine,
            settings=settings,
            allow_unproved=allow_unproved,
        )

    def _sequence(self) -> Sequence | None:
        """Models from the file of --model, or from the schema file; None if it has none."""
        if self.model is None:
            return Sequence.from_toml(self.schema, "schema")
        of_one = (self.formula, self.family, self.program, self.priors, self.constants)
        if of_one != (None,) * 5:
            raise SchemaError(
                "--model stands in place of --formula, --family, --priors, --program, --constants."
            )
        sequence = Sequence.from_toml(self.model)
        if sequence is None:
            raise SchemaError(
                f"model file {str(self.model)!r} has no table [[model]] with formula and family."
            )
        return sequence

    def choice(self) -> ModelChoice | None:
        """Build the model that the options describe; None if they give none."""
        if self.model is not None or (self.formula, self.family, self.program) == (None,) * 3:
            return self._sequence()  # if None, a mechanism that needs a model tells how to give it
        if self.formula is None:
            raise SchemaError("--family and --program need --formula 'outcome ~ covariates'.")
        if self.program is None and self.family is not None:
            if self.constants is not None:
                raise ProgramError("--constants is for --program; a family takes --priors.")
            return Regression(self.formula, self.family, _read_priors(self.priors))
        if self.program is not None and self.family is None:
            if self.priors is not None:
                raise ProgramError("--priors is for --family; a program takes --constants.")
            return Program(self.program, self.formula, self.constants)
        if self.program is not None:
            raise ProgramError("--family and --program are two models of one column: give one.")
        raise ProgramError(
            f"--formula needs either family or program (--family, --program). {self._families()}"
        )

    def _families(self) -> str:
        """Name the families that fit the outcome of the formula, as a sentence."""
        schema, (outcomes, _) = Schema.from_toml(self.schema), columns_of(self.formula or "")
        if not outcomes:
            return "`dpbayes list` describes the families."
        column = schema[outcomes[0]]
        names = ", ".join(fitting(column))
        if not names:
            return f"There is no family for a {column.type} outcome."
        return f"Families for the column {column.name!r}: {names}; `dpbayes list` describes them."


def _read_priors(path: Path | None) -> dict[str, Any] | None:
    return None if path is None else read_toml(path, "priors")
