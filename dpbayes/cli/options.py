"""Groups of options that commands share, each with methods that use them.

A command takes a group as one argument, and ``flattened`` turns its fields into options. To add an
option, add a field here and use it in a method of its group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dpbayes.cli.models import ModelOptions, required
from dpbayes.cli.streams import say, shows_progress
from dpbayes.core.cluster import on_cluster
from dpbayes.core.errors import (
    DataError,
    DpbayesError,
    EngineError,
    GuaranteeError,
    LedgerError,
)
from dpbayes.core.lazy import pd
from dpbayes.engines import Engine, SamplerSettings
from dpbayes.mechanisms import Anchored, Mechanism, get_kind, get_mechanism
from dpbayes.mechanisms.options import read_settings
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import refuse_confidential
from dpbayes.records.chunks import IN_PARTS, Apply, Chunks
from dpbayes.records.formats import open_records, read_records
from dpbayes.records.formats.base import RecordsRead
from dpbayes.records.formats.catalog import FORMATS, format_of
from dpbayes.records.formats.reader import CHUNK, read_coded
from dpbayes.records.formats.source import File, is_address
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer
from dpbayes.synthesis.usual import of_tables, usual

LARGE = 2**27  # bytes of a file, above which it is read in chunks if the mechanism can
RECORDS = "FILE or address of confidential records."
Data = Annotated[str, typer.Argument(metavar="DATA", help=RECORDS)]
Command = Callable[..., None]
ShowValues = Annotated[
    bool,
    typer.Option("--show-values", help="Show values in messages about the records: confidential."),
]


def flattened(command: Command) -> Command:
    """Replace the option groups of a command by their fields, which typer reads as options.

    Args:
        command: command whose parameters may be annotated with a dataclass, an option group.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        n: kind for n, kind in hints.items() if dataclasses.is_dataclass(kind)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += _parameters(groups[name]) if name in groups else [own]

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        shown = values.get("show_values", False)
        for name, kind in groups.items():
            values[name] = kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
        try:
            command(**values)
        except DpbayesError as error:
            if shown and error.said:
                error.args = (f"{error}\n{error.said}",)
            raise

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in parameters}
    return flat


def _parameters(group: Any) -> list[inspect.Parameter]:
    """Function parameters for the fields of an option group, with their defaults."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if required(field) else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Options for reading records, where their file does not determine them."""

    input_format: Annotated[
        str | None,
        typer.Option(help=f"Format of the records [by the file's ending]: {', '.join(FORMATS)}."),
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="CSV: separator, one character or tab [detected].")
    ] = None
    decimal: Annotated[str | None, typer.Option(help="CSV: decimal mark, . or , [detected].")] = (
        None
    )
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of text: cp1252, latin-1, ... [UTF-8].")
    ] = None
    sheet: Annotated[str | None, typer.Option(help="Sheet of a workbook [the only one].")] = None
    catalog: Annotated[str | None, typer.Option(help="SAS: file with value labels, .sas7bcat.")] = (
        None
    )
    query: Annotated[str | None, typer.Option(help="Databases: SELECT ..., or a table's name.")] = (
        None
    )

    def read(self, source: str, schema: Schema | None = None) -> pd.DataFrame:
        """Read the records, and print how they were read."""
        return read_records(source, schema, say=say, **self._how())

    def read_reference(self, reference: str, schema: Schema) -> pd.DataFrame:
        """Read public or earlier records, on which settings are chosen.

        Raises:
            DataError: the file lies in the confidential folder of a release.
        """
        refuse_confidential(reference)
        return self.read(reference, schema)

    def open(
        self, source: str, schema: Schema, chunk_rows: int, apply: Apply[Any] | None
    ) -> Chunks:
        """Open the records in chunks."""
        how = self._how()
        return open_records(source, schema, chunk_rows=chunk_rows, say=say, apply=apply, **how)

    def in_parts(self, source: str) -> bool:
        """True for a large file of a format that can be read in chunks."""
        if is_address(source):
            return False
        kind = format_of(File.of(Path(source)), self.input_format)
        return kind.parts is not None and Path(source).stat().st_size > LARGE

    def coded(self, source: str) -> RecordsRead:
        """Read the records, with labels beside their codes."""
        return read_coded(source, say=say, **self._how())

    def _how(self) -> dict[str, Any]:
        return {"file_format" if k == "input_format" else k: v for k, v in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class ChunkOptions:
    """Options for reading records in chunks, of which one at a time is in memory."""

    chunk_rows: Annotated[
        int | None,
        typer.Option(
            help="marginals: read DATA in parts of so many rows [files above "
            f"{LARGE // 2**20} MB: {CHUNK:,}]."
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option(help="marginals: count parts on a Dask cluster: tls://HOST:PORT."),
    ] = None

    @contextlib.contextmanager
    def opened(
        self, source: InputOptions, data: str, synthesizer: Synthesizer[Any]
    ) -> Iterator[pd.DataFrame | Chunks]:
        """Open the records, whole or in chunks, until the block ends."""
        asked = self.chunk_rows is not None or self.scheduler is not None
        if asked and not synthesizer.mechanism.counts_parts:
            raise DataError(f"mechanism {synthesizer.mechanism.name!r}: {IN_PARTS}")
        large = synthesizer.mechanism.counts_parts and source.in_parts(data)
        if not asked and not large:
            yield source.read(data, synthesizer.schema)
            return
        rows = CHUNK if self.chunk_rows is None else self.chunk_rows
        with contextlib.ExitStack() as stack:
            apply = None
            if self.scheduler is not None:
                apply = stack.enter_context(on_cluster(self.scheduler))
            yield source.open(data, synthesizer.schema, rows, apply)


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """Options for a mechanism and its settings; fields but the first and last are settings."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            help="See `dpbayes list` [marginals; with --family: score, if it takes the model and "
            "the settings; else anchored]."
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy loss of one data set, in nats: of a record, or of all records of a "
            "person where the schema has a cluster."
        ),
    ] = None
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="What ε is for: add-remove (one record more or less) or substitution (its values "
            "changed) [what is protected: substitution if the number of rows is public]."
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(help="symmetric (±ε/2), negative ([-ε, 0]), or LO,HI of that width, in nats."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(help="confidential, a constant in (0, 1], or FILE.json written by `tune`."),
    ] = None
    c1: Annotated[float | None, typer.Option(help="Scaling of the risk weights [1].")] = None
    c2: Annotated[float | None, typer.Option(help="Shift of the risk weights [0].")] = None
    anchor: Annotated[
        str | None,
        typer.Option(
            help="For anchored: auto [default], two-stage, histogram, none, or FILE.json as "
            "--weights."
        ),
    ] = None
    range: Annotated[
        float | None,
        typer.Option(help="For anchored: public range L, in nats, left unclamped."),
    ] = None
    share: Annotated[
        float | None,
        typer.Option(
            help="Part of ε in (0, 1): anchored, for the anchor [0.15]; perturbed-histogram, "
            "for the cells [0.5]."
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMULA",
            help="For tables: a regression that synthetic rows are to keep, "
            "'earnings ~ age * gender'. May be repeated; the schema may have some, too.",
        ),
    ] = None
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Further settings of the mechanism; VALUE as in TOML: bins=scott, "
            "'sigma={age = 12}', model=glom, 'weights=[0.7, 0.3]'.",
        ),
    ] = None

    def build(
        self, model: ModelOptions, delta: float | None = None, engine: str = "embedded"
    ) -> Mechanism[Any]:
        """Build the mechanism that the options describe.

        By default it is that of the schema's households or panel, ``Marginals`` without a model,
        ``Score`` for a family where it takes the model and the settings, and ``Anchored``, which
        takes any model, else.

        Args:
            model: options of the model.
            delta: δ of the release, for mechanisms whose ε holds at a δ.
            engine: name of the engine; ``Score`` is no default for candidates.
        Raises:
            GuaranteeError: as ``get_mechanism``.
        """
        named = {key: v for key, v in vars(self).items() if key not in ("mechanism", "more")}
        named["keep"] = self.keep or None
        settings = read_settings(named, self.more or ())
        name = self.mechanism
        if name is None:  # not where it is empty, as an unset variable of the shell is
            name = _usual(model, settings, engine)
        if delta is not None and get_kind(name, settings).takes("delta"):
            if "delta" in settings:
                raise GuaranteeError("--delta and --set delta=... are the same: give one.")
            settings["delta"] = delta
        return get_mechanism(name, **settings)


def check_kept(schema: Schema) -> None:
    """Raise SchemaError if a regression of ``keep`` can be kept by no mechanism."""
    if schema.keep:
        Synthesizer(schema, get_mechanism(of_tables(schema), epsilon=1.0))


def _usual(model: ModelOptions, settings: Mapping[str, Any], engine: str) -> str:
    """Name of the mechanism that is taken if none is named."""
    schema = Schema.from_toml(model.schema)
    if schema.unit is not None or not model.given:
        return of_tables(schema)
    if not model.family or engine == "candidates":
        return Anchored.name
    return usual(schema, model.choice(), settings)


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """Options for the ledger account that pays, or records an audit."""

    ledger: Annotated[
        str | None, typer.Option(help="Account for it in this ledger: FILE or URL; see `ledger`.")
    ] = None
    account: Annotated[
        str | None, typer.Option(help="For --ledger: the data set's account there.")
    ] = None
    note: Annotated[str, typer.Option(help="For --ledger: note for its history.")] = ""

    def open(self) -> Ledger | None:
        """Open the ledger, if one was named."""
        if (self.ledger is None) != (self.account is None):
            raise LedgerError("--ledger and --account go together.")
        if self.note and self.ledger is None:
            raise LedgerError("--note is kept in a ledger: name one (--ledger, --account).")
        return None if self.ledger is None else Ledger(self.ledger)


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """Options for the engine and its sampler."""

    engine: Annotated[str, typer.Option(help="embedded, cmdstan or candidates.")] = "embedded"
    points: Annotated[
        int | None, typer.Option(help="For --engine candidates: number of public points.")
    ] = None
    chains: Annotated[int, typer.Option(help="Markov chains.")] = 4
    warmup: Annotated[int, typer.Option(help="Warm-up iterations (fewer after a pilot).")] = 1000
    draws: Annotated[int, typer.Option(help="Draws per chain after warm-up.")] = 1000
    adapt_delta: Annotated[
        float,
        typer.Option(help="Target acceptance rate, in (0, 1); at least 0.95 under a clamp."),
    ] = 0.8
    max_treedepth: Annotated[int, typer.Option(help="Cap on trajectory doublings.")] = 10
    threads: Annotated[
        int, typer.Option(help="Threads per chain, for reduce_sum; for CmdStan.")
    ] = 1

    def settings(self) -> SamplerSettings:
        """Build the settings of the sampler."""
        return SamplerSettings(
            chains=self.chains,
            warmup=self.warmup,
            draws=self.draws,
            threads_per_chain=self.threads,
            adapt_delta=self.adapt_delta,
            max_treedepth=self.max_treedepth,
            progress=shows_progress(),
        )

    def build_engine(self) -> str | Engine:
        """Name of the engine, or the engine itself if options set its points."""
        if self.points is None:
            return self.engine
        if self.engine != "candidates":
            raise EngineError("--points is for --engine candidates.")
        from dpbayes.engines.candidates import CandidatesEngine

        return CandidatesEngine(self.points)
