"""What a mechanism is: a claim, and a fit to records that private outputs are drawn from.

A mechanism is a frozen dataclass of public settings. ``fit`` turns a ``Task`` (records, and what
may be used to model them) into a ``Fitted``; a release asks it for private outputs, which epsilon
pays for, and for synthetic columns, which are computed from an output and cost nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines.base import Engine, SamplerSettings
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.privacy.accounting import NOTHING, Loss
from dpbayes.privacy.guarantee import (
    ADJACENCIES,
    PUBLIC_INPUTS,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
    check_epsilon,
)
from dpbayes.privacy.noise import Noise, opendp
from dpbayes.records.chunks import InMemoryTable, Table
from dpbayes.schema import Column, Schema
from dpbayes.stan.model import Model

T = TypeVar("T")
M = TypeVar("M", bound="Mechanism[Any]")

NO_DRAWS = (
    "the mechanism has no posterior draws to summarise or plot: its findings() and the reports "
    "(`dpbayes utility`, `dpbayes report`) say what it made of the records."
)


@dataclass(frozen=True)
class Task:
    """Records to be protected, and what a mechanism may use to model them. Confidential.

    Attributes:
        schema: what is public.
        table: validated.
        rows: the public number of rows (``schema.rows``), which settings and scales follow; n only
            where n is public.
        model: for mechanisms that need one.
        engine, settings: for posteriors.
        noise: for private choices that a fit makes.
        entropy: of every other random number of the fit; as secret as the records.
        checkpoint: where finished chains are kept, or None.
        allow_nonconvergence: go on although chains have not converged.
    """

    schema: Schema
    table: Table
    rows: int
    model: Model | None
    engine: Engine
    settings: SamplerSettings
    noise: Noise
    entropy: int
    checkpoint: Checkpoint | None = None
    allow_nonconvergence: bool = False
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def records(self) -> pd.DataFrame:
        """Validated, shape (n, columns of the schema). DataError where they come in parts."""
        return self.table.frame

    def of(self, records: pd.DataFrame) -> Task:
        """The same for other validated records."""
        return replace(self, table=InMemoryTable(self.schema, records), _shared={})

    def shared(self, make: Callable[[Task], T]) -> T:
        """What several mechanisms compute alike from these records; it is computed once."""
        if make not in self._shared:
            self._shared[make] = make(self)
        found: T = self._shared[make]
        return found


@dataclass(frozen=True)
class Findings:
    """What a fit says of the records, for reports on the confidential side.

    Attributes:
        summary: for JSON.
        lines: for the screen.
        warnings: what the protection cost more than usual, in sentences.
        measures: rows of Hu, Williams & Savitsky's Table 2 that only some mechanisms have.
        by_record: a row for each record.
        draws: of the posterior.
        bounds: by-record Lipschitz bounds by label, and the epsilon to draw beside them.
        epsilon: the width that bounds were clamped to, or None.
        half: what half of that is called in figures.
    """

    summary: Mapping[str, Any]
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    by_record: pd.DataFrame | None = None
    draws: xr.DataTree | None = None
    bounds: Mapping[str, Vector] = field(default_factory=dict)
    epsilon: float | None = None
    half: str = "window/2"


class Fitted(ABC):
    """A mechanism with the records that it is applied to. Confidential.

    Attributes:
        settings: what a release says of it; public.
        synthesised: columns whose values are synthetic.
    """

    settings: Mapping[str, Any]
    synthesised: tuple[Column, ...]

    @abstractmethod
    def private(self, noise: Noise) -> Any:
        """One private output: what epsilon is paid for."""

    def outputs(self, count: int, noise: Noise) -> Iterator[Any]:
        """``count`` private outputs."""
        return (self.private(noise) for _ in range(count))

    def independent(self, count: int, noise: Noise) -> Iterator[Any]:
        """Outputs of ``count`` releases of one data set each: they share nothing paid for once."""
        return self.outputs(count, noise)

    def check_outputs(self, count: int) -> None:
        """Raise ConvergenceError unless ``count`` private outputs are to be had."""
        return  # as many as anybody pays for

    def most_rows(self, rows: int) -> int | None:
        """Rows that an output is paid for where each costs, of ``rows`` public ones; else None."""
        return None

    @abstractmethod
    def synthetic(self, output: Any, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """Synthesised columns, beside the public ones where there are some.

        Uses the output and public facts, and no confidential value.

        Args:
            rows: how many; as many as records where public columns are released.
        """

    def posterior_of(self, output: Any) -> xr.DataTree | None:
        """The posterior that is a part of a private output, as ArviZ reads it; None without one.

        It is released with the data sets.
        """
        return None

    def begin_at(self, records: pd.DataFrame) -> None:
        """Start at these validated records whatever starts at points that cost nothing.

        For audits: the claim holds wherever chains start, and here they tell most.
        """
        return  # most start at none

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame | None:
        """Synthesised columns as they would be without any protection; None where nothing says.

        To compare with, on the confidential side: never for a release.
        """
        return None

    def versions(self) -> Mapping[str, str]:
        """Of the packages that outputs are drawn by, dpbayes excepted."""
        return {}

    def bound_stages(self, records: pd.DataFrame | None = None) -> Sequence[Any]:
        """The programs with data that were sampled (``posterior.records.BoundStage``), in order.

        Args:
            records: others than its own, of which the same functions make other bindings.
        Raises:
            GuaranteeError: there is no posterior.
        """
        raise GuaranteeError(
            "the mechanism has no posterior to look at: evaluate.exact.audit_exact compares its "
            "answers on neighbours (`dpbayes audit` takes either)."
        )

    def check(self, replicates: int = 20) -> Any:
        """Posterior predictive checks (``posterior.predictive.Check``). Confidential.

        Raises:
            GuaranteeError: there is no posterior.
        """
        raise GuaranteeError(
            "the mechanism draws from no model: there is nothing to check but its releases, by "
            "the utility report."
        )

    def to_datatree(self, **groups: Any) -> xr.DataTree:
        """The posterior for ArviZ (``Fit.to_datatree``). Confidential.

        Raises:
            GuaranteeError: there is no posterior.
        """
        raise GuaranteeError(NO_DRAWS)

    def loo(self) -> Any:
        """``Fit.loo``. GuaranteeError where there is no posterior."""
        raise GuaranteeError(NO_DRAWS)

    def findings(self) -> Findings:
        """For the confidential report."""
        return Findings({"settings": dict(self.settings)})


class ReferenceData(ABC):
    """What was made of other records than the confidential ones, among a mechanism's settings."""

    @abstractmethod
    def check_records(self, records: pd.DataFrame) -> None:
        """Raise GuaranteeError if those were, for the most part, these validated records."""


# What a mechanism makes of records: a Fit of a posterior mechanism has draws, and so on.
F_co = TypeVar("F_co", bound=Fitted, covariant=True)


class Mechanism(ABC, Generic[F_co]):
    """Base of the mechanisms. Subclasses are frozen dataclasses of public settings.

    Attributes:
        name, summary: for `dpbayes list`: what it does and what it guarantees, in a line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    counts_parts: ClassVar[bool] = False  # records may come in parts
    needs_model: ClassVar[bool] = True
    needs_proof: ClassVar[bool] = True  # of a user's program, for a strict claim

    @classmethod
    def variant(cls, settings: Mapping[str, Any]) -> type[Mechanism[Any]]:
        """The class that has these settings, where some of them ask for another one."""
        return cls

    @classmethod
    def takes(cls, setting: str) -> bool:
        """It has a setting of this name."""
        return setting in {f.name for f in fields(cls)}  # type: ignore[arg-type]  # a dataclass

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The claim for one data set, before anything is computed from records."""

    def claim(self, schema: Schema) -> Guarantee:
        """``guarantee`` for records with these columns, where they make a difference."""
        return self.guarantee()

    def data_rows(self, schema: Schema) -> int | None:
        """Rows of a data set, where they are known before any record is seen; else None."""
        return schema.rows.number

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """What noise will do to a release, by public facts alone.

        Args:
            rows: the public number (``Task.rows``).
        """
        return Forecast()

    @abstractmethod
    def check(self, schema: Schema, model: Model | None) -> None:
        """Raise SchemaError or GuaranteeError unless it can synthesise these columns."""

    def given(self, model: Model | None) -> Model:
        """The model. GuaranteeError if there is none."""
        if model is None:
            raise GuaranteeError(
                f"mechanism {self.name!r} draws from a posterior and needs a model: "
                "Regression(formula, family) or Program(file, formula) (--formula with --family "
                "or --program)."
            )
        return model

    @abstractmethod
    def fit(self, task: Task) -> F_co:
        """Take the records."""

    def check_datasets(self, datasets: int, settings: SamplerSettings) -> None:
        """Raise GuaranteeError unless so many data sets can be drawn."""

    def check_release(self) -> None:
        """Raise GuaranteeError unless a release can be drawn here."""

    def spending(self: M, part: float) -> M:
        """The same with this part of its epsilon, in (0, 1).

        Raises:
            GuaranteeError: it has no epsilon.
        """
        if not self.takes("epsilon"):
            raise GuaranteeError(
                f"mechanism {self.name!r} has no epsilon of which noisy rows could take a part; "
                'declare rows = "public" or a number.'
            )
        epsilon: float = self.epsilon  # type: ignore[attr-defined]  # a field
        return replace(self, epsilon=part * epsilon)  # type: ignore[type-var]  # a dataclass

    @property
    def sets_per_output(self) -> int | None:
        """Data sets made of each private output; None if all of them come from one."""
        return 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the settings that were chosen; public."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = (str, int, float, Mapping, list, tuple)
        return {key: value for key, value in given.items() if isinstance(value, plain)}


class NoisyMechanism(Mechanism[F_co]):
    """Base of mechanisms whose private outputs are epsilon-DP without any posterior.

    Attributes:
        epsilon: of one private output, for ``adjacency``.
        adjacency: what epsilon is for.
        both: epsilon holds for both adjacencies.
        halves: adding or removing a record costs half of changing one.
        randomness: where its random numbers come from, as the guarantee says it.
    """

    epsilon: float
    adjacency: Adjacency
    both: ClassVar[bool] = False
    randomness: ClassVar[str] = SECRET_NOISE

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.adjacency not in ADJACENCIES:
            raise GuaranteeError(
                f"adjacency = {self.adjacency!r} must be one of {', '.join(ADJACENCIES)}."
            )

    def check_release(self) -> None:
        if self.noisy:
            opendp()

    @property
    def loss(self) -> Loss:
        """Of one private output.

        Without ``both``, epsilon for add/remove bounds twice as much for substitution, and epsilon
        for substitution bounds half of it for add/remove only where ``halves``.
        """
        if self.both:
            return Loss.pure(self.epsilon, changed=self.epsilon)
        if self.adjacency == "add-remove":
            return Loss.pure(self.epsilon)
        return Loss.pure(self.epsilon / 2 if self.halves else self.epsilon, changed=self.epsilon)

    @property
    def halves(self) -> bool:
        """Adding or removing a record costs half of changing one."""
        return False

    @property
    def noisy(self) -> bool:
        """It needs OpenDP."""
        return self.randomness == SECRET_NOISE

    def guarantee(self) -> Guarantee:
        return self._claim(self.loss)

    def _claim(self, loss: Loss) -> Guarantee:
        """For a private output of this loss."""
        more = (PUBLIC_INPUTS, self.randomness)
        claim = Guarantee(self.name, loss, "strict", more, adjacency=self.adjacency)
        if self.sets_per_output is not None:
            return replace(claim, nested=self.sets_per_output)
        return replace(claim, once=loss, each=NOTHING, once_for="the sanitised distribution")


class ModelFreeMechanism(NoisyMechanism[Fitted]):
    """Base of those without a model: they synthesise every confidential column of the schema,
    given the public ones.

    Attributes:
        structured: rows keep missing values and rules of the schema.
        blanks: a missing value is a level like others, where the schema says that there are some.
    """

    needs_model: ClassVar[bool] = False
    structured: ClassVar[bool] = False
    blanks: ClassVar[bool] = False

    @abstractmethod
    def check_columns(self, schema: Schema) -> None:
        """Raise SchemaError unless the mechanism can synthesise these columns."""

    @abstractmethod
    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> Fitted:
        """Take validated records, shape (n, columns of the schema).

        Args:
            rows: the public number that settings follow (``Task.rows``).
        """

    def check(self, schema: Schema, model: Model | None) -> None:
        if model is not None:
            raise GuaranteeError(
                f"mechanism {self.name!r} synthesises every confidential column of the schema "
                "without a Stan program: leave out the model (--formula, --family, --program, "
                "--constants, --priors)."
            )
        if not self.structured:
            who = f"mechanism {self.name!r}"
            schema.require_plain(schema.columns, who, blanks=self.blanks)
        self.check_columns(schema)

    def fit(self, task: Task) -> Fitted:
        return self.prepare(task.schema, task.records, task.rows)


class ModelFreeFitted(Fitted):
    """A ``ModelFreeMechanism`` with the records that it is applied to. Confidential.

    Args:
        schema: its confidential columns are synthesised.
        settings: public, beside those of the mechanism.
    """

    def __init__(
        self, mechanism: ModelFreeMechanism, schema: Schema, settings: Mapping[str, Any]
    ) -> None:
        self.mechanism = mechanism
        self.settings = {**mechanism.to_dict(), **settings}
        self.synthesised = tuple(schema.confidential())

    def versions(self) -> Mapping[str, str]:
        return versions("opendp") if self.mechanism.noisy else {}
