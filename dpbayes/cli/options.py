"""Options that commands share: groups of them, and what each group stands for.

A command takes a group as one argument, and ``flattened`` turns its fields into options. To add an
option, add a field here and use it in a method of its group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dpbayes.cli.models import ModelOptions, required
from dpbayes.cli.streams import say
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
from dpbayes.mechanisms import Marginals, Mechanism, get_kind, get_mechanism
from dpbayes.mechanisms.options import read_settings
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import CONFIDENTIAL
from dpbayes.records.chunks import IN_PARTS, Apply, Chunks
from dpbayes.records.formats import open_records, read_records
from dpbayes.records.formats.base import RecordsRead
from dpbayes.records.formats.catalog import FORMATS, format_of
from dpbayes.records.formats.reader import CHUNK, read_coded
from dpbayes.records.formats.source import File, is_address
from dpbayes.schema import Schema
from dpbayes.synthesis.synthesizer import Synthesizer

LARGE = 2**27  # bytes of a file, above which it is read in parts where that will do
RECORDS = "FILE or address of confidential records."
Data = Annotated[str, typer.Argument(metavar="DATA", help=RECORDS)]
Command = Callable[..., None]
ShowValues = Annotated[
    bool,
    typer.Option("--show-values", help="Show values in messages about the records: confidential."),
]


def flattened(command: Command) -> Command:
    """The command with the fields of its option groups as parameters, which is what typer reads.

    Args:
        command: some of its parameters are annotated with a dataclass: a group.
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
    """A group's fields, with their defaults, as parameters of a function."""
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


def refuse_confidential(reference: str) -> None:
    """Raise DataError for a file among those that a release has left as confidential."""
    if not is_address(reference) and CONFIDENTIAL in Path(reference).resolve().parts:
        raise DataError(
            f"--reference {reference!r} lies in a folder {CONFIDENTIAL!r}: settings are chosen on "
            "public or earlier records, never on those that are to be released."
        )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How records are read, where their file does not say so itself."""

    input_format: Annotated[
        str | None,
        typer.Option(help=f"Of the records, if their ending does not say: {', '.join(FORMATS)}."),
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="CSV: one character, or tab [recognised].")
    ] = None
    decimal: Annotated[str | None, typer.Option(help="CSV: . or , [recognised].")] = None
    encoding: Annotated[
        str | None, typer.Option(help="Of text: utf-8, cp1252, ... [recognised].")
    ] = None
    sheet: Annotated[str | None, typer.Option(help="Of a workbook [the only one].")] = None
    catalog: Annotated[str | None, typer.Option(help="SAS: file with value labels, .sas7bcat.")] = (
        None
    )
    query: Annotated[str | None, typer.Option(help="Databases: SELECT ..., or a table's name.")] = (
        None
    )

    def read(self, source: str, schema: Schema | None = None) -> pd.DataFrame:
        """The records, with what was recognised said on the screen."""
        return read_records(source, schema, say=say, **self._how())

    def open(
        self, source: str, schema: Schema, chunk_rows: int, apply: Apply[Any] | None
    ) -> Chunks:
        """The records in parts."""
        how = self._how()
        return open_records(source, schema, chunk_rows=chunk_rows, say=say, apply=apply, **how)

    def in_parts(self, source: str) -> bool:
        """It is a large file of a format that is read in parts."""
        if is_address(source):
            return False
        kind = format_of(File.of(Path(source)), self.input_format)
        return kind.parts is not None and Path(source).stat().st_size > LARGE

    def coded(self, source: str) -> RecordsRead:
        """The same, with labels beside their codes."""
        return read_coded(source, say=say, **self._how())

    def _how(self) -> dict[str, Any]:
        return {"file_format" if k == "input_format" else k: v for k, v in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class ChunkOptions:
    """Records that are read in parts, of which one at a time is in memory."""

    chunk_rows: Annotated[
        int | None,
        typer.Option(
            help="measured: read DATA in parts of so many rows [files above "
            f"{LARGE // 2**20} MB: {CHUNK:,}]."
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option(help="measured: count parts on a Dask cluster: tls://HOST:PORT."),
    ] = None

    @contextlib.contextmanager
    def opened(
        self, source: InputOptions, data: str, synthesizer: Synthesizer[Any]
    ) -> Iterator[pd.DataFrame | Chunks]:
        """The records, whole or in parts."""
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
    """A mechanism and its settings; every field but the first and last is a setting's name."""

    mechanism: Annotated[
        str | None, typer.Option(help="See `dpbayes list` [without a model: measured].")
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy loss of one data set, in nats, for --adjacency."),
    ] = None
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="What ε is for: add-remove [default] one record, or substitution of its values."
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
            help="For measured: a regression that synthetic rows are to keep, "
            "'earnings ~ age * gender'. May be given again, and stand in the schema.",
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

    def build(self, model: ModelOptions, delta: float | None = None) -> Mechanism[Any]:
        """The mechanism that the options describe; without a model that of whole tables.

        Args:
            delta: of a release, for mechanisms whose epsilon is meant at one.
        Raises:
            GuaranteeError: there is a model and no mechanism for it, or as ``get_mechanism``.
        """
        name = self.mechanism
        if name is None:
            if model.given:
                raise GuaranteeError(
                    "a model needs --mechanism: anchored or censored are strict for any of them "
                    "(see `dpbayes list`)."
                )
            name = Marginals.name
        named = {key: v for key, v in vars(self).items() if key not in ("mechanism", "more")}
        named["keep"] = self.keep or None
        settings = read_settings(named, self.more or ())
        if delta is not None and get_kind(name, settings).takes("delta"):
            if "delta" in settings:
                raise GuaranteeError("--delta and --set delta=... are the same: give one.")
            settings["delta"] = delta
        return get_mechanism(name, **settings)


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """Which account pays, or is told."""

    ledger: Annotated[
        str | None, typer.Option(help="Account for it in this ledger: FILE or URL; see `ledger`.")
    ] = None
    account: Annotated[
        str | None, typer.Option(help="For --ledger: the data set's account there.")
    ] = None
    note: Annotated[str, typer.Option(help="For --ledger: what it is for.")] = ""

    def open(self) -> Ledger | None:
        """The ledger, if one was named."""
        if (self.ledger is None) != (self.account is None):
            raise LedgerError("--ledger and --account go together.")
        if self.note and self.ledger is None:
            raise LedgerError("--note is kept in a ledger: name one (--ledger, --account).")
        return None if self.ledger is None else Ledger(self.ledger)


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """The engine and how it samples."""

    engine: Annotated[str, typer.Option(help="embedded, cmdstan or candidates.")] = "embedded"
    points: Annotated[
        int | None, typer.Option(help="For --engine candidates: how many public points.")
    ] = None
    chains: Annotated[int, typer.Option(help="Markov chains.")] = 4
    warmup: Annotated[int, typer.Option(help="Warm-up iterations (fewer after a pilot).")] = 1000
    draws: Annotated[int, typer.Option(help="Draws per chain after warm-up.")] = 1000
    adapt_delta: Annotated[float, typer.Option(help="Target acceptance rate, in (0, 1).")] = 0.8
    max_treedepth: Annotated[int, typer.Option(help="Cap on trajectory doublings.")] = 10
    threads: Annotated[
        int, typer.Option(help="Threads per chain, for reduce_sum; for CmdStan.")
    ] = 1

    def settings(self) -> SamplerSettings:
        """Settings of the sampler."""
        return SamplerSettings(
            chains=self.chains,
            warmup=self.warmup,
            draws=self.draws,
            threads_per_chain=self.threads,
            adapt_delta=self.adapt_delta,
            max_treedepth=self.max_treedepth,
            progress=sys.stderr.isatty(),
        )

    def build_engine(self) -> str | Engine:
        """The engine, by its name unless it has settings."""
        if self.points is None:
            return self.engine
        if self.engine != "candidates":
            raise EngineError("--points is for --engine candidates.")
        from dpbayes.engines.candidates import CandidatesEngine

        return CandidatesEngine(self.points)
