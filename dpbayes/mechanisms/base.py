"""Interface of all mechanisms: a privacy claim, and a fit from which outputs are drawn.

A mechanism is a frozen dataclass of public settings. ``fit`` turns a ``Task`` (the records, and
what may be used to model them) into a ``Fitted``. A release asks the ``Fitted`` for private
outputs, which cost epsilon, and for synthetic columns, which are computed from an output and cost
nothing more (post-processing).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines.base import Engine, SamplerSettings
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.mechanisms.predictive import Check
from dpbayes.privacy.accounting import NOTHING, Loss, stated
from dpbayes.privacy.guarantee import (
    ADJACENCIES,
    EPSILONS,
    PUBLIC_INPUTS,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
    check_epsilon,
)
from dpbayes.privacy.noise import Noise, opendp
from dpbayes.records.chunks import InMemoryTable, Table
from dpbayes.schema import Column, Schema
from dpbayes.schema.units import Unit
from dpbayes.stan.model import Model

if TYPE_CHECKING:
    import arviz_stats

T = TypeVar("T")
Output = TypeVar("Output")  # a private output, which costs epsilon
M = TypeVar("M", bound="Mechanism[Any]")

SEVERAL = 20  # data sets of a release that pays for all of them at once
FEWEST, PLENTY = 5, 20_000_000  # least number of them where SEVERAL would have more values
NO_DRAWS = (
    "the mechanism has no posterior draws to summarise or plot: its findings() and the reports "
    "(`dpbayes utility`, `dpbayes report`) describe its fit to the records."
)


def free() -> None:
    """Pay nothing: no ledger accounts for the private draws of a fit."""


@dataclass(frozen=True)
class Task:
    """Records to be protected, and what a mechanism may use to model them. Confidential.

    Attributes:
        schema: the public facts about the records.
        table: the validated records.
        rows: the public number of rows (``schema.rows``), from which settings and scales are
            derived; it equals n only where n is public.
        released_rows: rows that a data set will have if it is another number; None if it is not.
        rows_sd: sd of ``rows`` about n: 0 where n is public, infinite where ``rows`` is declared.
        model: the Stan model, for mechanisms that need one.
        engine, settings: the sampler and its settings, for mechanisms that draw from posteriors.
        sealed_noise: the noise of private choices that a fit makes; take ``noise``.
        entropy: the seed of every other random number of the fit; as secret as the records.
        checkpoint: storage of finished chains, or None.
        allow_nonconvergence: continue although chains have not converged.
        pay: is called before each private draw of a fit: a job spends its ledger entry there.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> smoker = dpb.Column("smoker", "binary", levels=("no", "yes"))
        >>> schema = dpb.Schema({"smoker": smoker}, rows=5)
        >>> task = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1)).task(records)
        >>> task.rows, task.records["smoker"].value_counts().to_dict()
        (5, {'no': 3, 'yes': 2})
    """

    schema: Schema
    table: Table
    rows: int
    model: Model | None
    engine: Engine
    settings: SamplerSettings
    sealed_noise: Noise
    entropy: int
    checkpoint: Checkpoint | None = None
    allow_nonconvergence: bool = False
    pay: Callable[[], None] = field(default=free, repr=False, compare=False)
    rows_sd: float = 0.0
    released_rows: int | None = None
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def noise(self) -> Noise:
        """Noise of a private choice that the fit is about to make, which is paid for first."""
        self.pay()
        return self.sealed_noise

    @property
    def records(self) -> pd.DataFrame:
        """Validated records, shape (n, columns of the schema). DataError if read in chunks."""
        return self.table.frame

    def of(self, records: pd.DataFrame) -> Task:
        """Copy the task for other validated records."""
        return replace(self, table=InMemoryTable(self.schema, records, records), _shared={})

    def shared(self, make: Callable[[Task], T]) -> T:
        """Result of ``make`` on this task, computed once and shared by several mechanisms."""
        if make not in self._shared:
            self._shared[make] = make(self)
        result: T = self._shared[make]
        return result


@dataclass(frozen=True)
class Findings:
    """Results of a fit for the confidential reports.

    Attributes:
        summary: entries of the JSON report.
        lines: lines for the holder of the records; printed as confidential.
        warnings: where the protection cost more utility than usual, in sentences.
        measures: rows of Hu, Williams & Savitsky's Table 2 that only some mechanisms have.
        by_record: a table with a row for each record.
        draws: posterior draws.
        bounds: by-record Lipschitz bounds by label, for a figure.
        epsilon: the width of the window that terms were clamped to, drawn beside ``bounds``; or
            None.
        half: label in figures of half of ``epsilon``.
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


class Fitted(ABC, Generic[Output]):
    """A mechanism with the records that it is applied to. Confidential.

    Attributes:
        settings: the public settings that a release reports.
        synthesised: columns whose values are synthetic.
        posterior_shape: draws of a posterior that a release holds, at most, and their numbers.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> fitted = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1)).fit(records).fitted
        >>> fitted.settings["cells"], [column.name for column in fitted.synthesised]
        (2, ['smoker'])
    """

    settings: Mapping[str, Any]
    synthesised: tuple[Column, ...]
    posterior_shape: tuple[int, int] = (0, 0)

    @abstractmethod
    def draw_private(self, noise: Noise) -> Output:
        """Draw one private output: the random quantity that costs epsilon."""

    def draw_outputs(self, count: int, noise: Noise) -> Iterator[Output]:
        """Draw ``count`` private outputs."""
        return (self.draw_private(noise) for _ in range(count))

    def check_outputs(self, count: int) -> None:
        """Raise ConvergenceError unless ``count`` private outputs can be drawn."""
        return  # there is no limit, unless chains hold only so many effective draws

    def most_rows(self, rows: int) -> int | None:
        """Largest number of rows that epsilon covers, where each row costs; else None.

        Args:
            rows: the public number of rows.
        """
        return None

    def for_datasets(self, datasets: int) -> Fitted[Output]:
        """This object with the settings that depend on the number of data sets."""
        return self

    @abstractmethod
    def synthetic(self, output: Output, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """Synthetic columns, given the public columns if there are any.

        They are computed from the output and public facts, from no confidential value.

        Args:
            rows: number of rows; as many as records where public columns are released.
        """

    def told(self, output: Output) -> Mapping[str, Any]:
        """Settings for readers that follow from a private output, which paid for them."""
        return {}

    def posterior_of(self, output: Output) -> xr.DataTree | None:
        """The posterior within a private output, as an ArviZ tree; None if there is none.

        It is released together with the data sets.
        """
        return None

    def begin_at(self, records: pd.DataFrame) -> None:
        """Start chains at these validated records, where a mechanism starts at public ones.

        Audits use this: the claim holds wherever chains start, and a start at the records reveals
        most.
        """
        return  # most mechanisms do not start at records

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame | None:
        """Synthetic columns drawn without any protection; None if the mechanism has none.

        They serve confidential comparisons and are never released.
        """
        return None

    def versions(self) -> Mapping[str, str]:
        """Versions of the packages that draw outputs, other than dpbayes."""
        return {}

    def check(self, replicates: int = 20) -> Check:
        """Compute posterior predictive checks (``predictive.Check``). Confidential.

        Raises:
            GuaranteeError: there is no posterior.
        """
        raise GuaranteeError(
            "the mechanism draws from no model: there is nothing to check but its releases, by "
            "the utility report."
        )

    def to_datatree(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, thin: int = 1
    ) -> xr.DataTree:
        """The posterior as an ArviZ tree (``Fit.to_datatree``). Confidential.

        Raises:
            GuaranteeError: there is no posterior.
        """
        raise GuaranteeError(NO_DRAWS)

    def loo(self) -> arviz_stats.ELPDData:
        """Leave-one-out cross-validation (``Fit.loo``). GuaranteeError without a posterior."""
        raise GuaranteeError(NO_DRAWS)

    def findings(self) -> Findings:
        """Results for the confidential report."""
        return Findings({"settings": dict(self.settings)})


class ReferenceData(ABC):
    """A mechanism's setting that was derived from reference data, not the confidential records."""

    @abstractmethod
    def check_records(self, records: pd.DataFrame) -> None:
        """Raise GuaranteeError if most of the reference data are among these validated records."""


# The kind of Fitted that a mechanism returns, so that type checkers know which attributes it has.
F_co = TypeVar("F_co", bound="Fitted[Any]", covariant=True)


class Mechanism(ABC, Generic[F_co]):
    """Base class of the mechanisms. Subclasses are frozen dataclasses of public settings.

    Attributes:
        name, summary: shown by `dpbayes list`; the summary says in one line what the mechanism
            does and what it guarantees.
        counts_parts: it accepts records that are read in chunks.
        weighs: its records may have sampling weights.
        units: kinds of records of several rows that it takes, such as households.
        needs_model: it needs a Stan model.
        draws_posterior: data sets are drawn from one posterior of the model, whose density audits
            compare between neighbours (``PosteriorMechanism``).
        needs_proof: a strict claim needs a proof that the user's program keeps the contract.

    Examples:
        >>> import dpbayes as dpb
        >>> mechanism = dpb.get_mechanism("censored", epsilon=5)
        >>> isinstance(mechanism, dpb.Mechanism), mechanism.needs_model
        (True, True)
        >>> mechanism.guarantee().lines()[0]
        'ε = 5 when one record is changed (δ = 0).'
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    counts_parts: ClassVar[bool] = False
    weighs: ClassVar[bool] = False
    units: ClassVar[tuple[type[Unit], ...]] = ()
    needs_model: ClassVar[bool] = True
    needs_proof: ClassVar[bool] = True
    draws_posterior: ClassVar[bool] = False

    @classmethod
    def variant(cls, settings: Mapping[str, Any]) -> type[Mechanism[Any]]:
        """The class to build for these settings, as some settings select another class."""
        return cls

    @classmethod
    def takes(cls, setting: str) -> bool:
        """Whether the mechanism has a setting of this name."""
        return setting in {f.name for f in fields(cls)}  # type: ignore[arg-type]  # a dataclass

    @property
    def neighbours(self) -> Adjacency:
        """Neighbour relation that the setting ``epsilon`` is for (``protecting``)."""
        asked: Adjacency | None = getattr(self, "adjacency", None)
        # Until a schema says what is protected, as where the number of records is public.
        return "substitution" if asked is None else asked

    def protecting(self: M, neighbours: Adjacency) -> M:
        """Copy the mechanism with epsilon for these neighbours, unless others were asked for."""
        if not self.takes("adjacency") or self.adjacency is not None:  # type: ignore[attr-defined]
            return self
        return replace(self, adjacency=neighbours)  # type: ignore[type-var]  # a dataclass

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The claim for one data set, known before anything is computed from records."""

    def claim(self, schema: Schema) -> Guarantee:
        """The claim (``guarantee``) for this schema; some claims depend on the columns."""
        return self.guarantee()

    def data_rows(self, schema: Schema) -> int | None:
        """Number of rows of a data set, if it is known before any record is seen; else None."""
        return schema.rows.number

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Forecast how noise will affect a release, from public facts alone.

        Args:
            rows: the public number of rows (``Task.rows``).
        """
        return Forecast()

    def check_asked(self, schema: Schema) -> None:
        """Raise SchemaError if the schema asks for what the mechanism cannot do with any column."""
        if schema.keep and not self.takes("keep"):
            raise SchemaError(
                f"keep = {list(schema.keep)}: mechanism {self.name!r} cannot keep analyses; "
                "take mechanism marginals, or take keep out of the schema."
            )
        if schema.unit is not None and not isinstance(schema.unit, self.units):
            raise SchemaError(f"mechanism {self.name!r} {schema.unit.not_by_rows()}")
        if schema.survey is not None:
            public = any(column.public for column in schema.columns.values())
            schema.survey.check_use(self.name, self.weighs, public)

    @abstractmethod
    def check(self, schema: Schema, model: Model | None) -> None:
        """Raise SchemaError or GuaranteeError unless the mechanism can synthesise the columns."""

    def given(self, model: Model | None) -> Model:
        """Return the model; raise GuaranteeError if there is none."""
        if model is None:
            raise GuaranteeError(
                f"mechanism {self.name!r} draws from a posterior and needs a model: "
                "a `formula` with a `family` (Regression) or a `program` (Program)."
            )
        return model

    @abstractmethod
    def fit(self, task: Task) -> F_co:
        """Fit the mechanism to the records of a task."""

    def check_datasets(self, datasets: int, settings: SamplerSettings) -> None:
        """Raise GuaranteeError unless this number of data sets can be drawn."""

    def check_release(self) -> None:
        """Raise GuaranteeError unless a release can be drawn on this machine."""

    def rehearse(self, task: Task) -> None:
        """Raise what a fit refuses whatever the records are: do all that it does before it draws.

        Args:
            task: public constants in place of the records, or no record.
        """
        self.fit(task)  # most draw nothing

    @property
    def epsilon_setting(self) -> float:
        """The setting ``epsilon`` of a mechanism that has one (``takes``)."""
        epsilon: float = self.epsilon  # type: ignore[attr-defined]  # a field
        return epsilon

    def with_epsilon(self: M, epsilon: float) -> M:
        """Copy a mechanism that has the setting ``epsilon`` (``takes``), with another one."""
        return replace(self, epsilon=epsilon)  # type: ignore[type-var]  # a dataclass

    def spending(self: M, part: float) -> M:
        """Copy the mechanism with a fraction of its epsilon.

        Args:
            part: the fraction, in (0, 1).
        Raises:
            GuaranteeError: the mechanism has no epsilon.
        """
        if not self.takes("epsilon"):
            raise GuaranteeError(
                f"mechanism {self.name!r} has no epsilon of which noisy rows could take a part; "
                'declare rows = "public" or a number.'
            )
        left = part * self.epsilon_setting
        if left < EPSILONS[0] <= self.epsilon_setting:
            raise GuaranteeError(
                f"epsilon = {stated(self.epsilon_setting)} leaves {stated(left)}, less than the "
                f"smallest ε, {EPSILONS[0]:g}, beside a noisy number of rows. Ask for more, or "
                'declare rows = "public" or a number in the schema.'
            )
        return self.with_epsilon(left)

    @property
    def sets_per_output(self) -> int | None:
        """Number of data sets computed from each private output; None if one serves them all."""
        return 1

    @property
    def usual_datasets(self) -> int:
        """Number of data sets of a release that asks for no number.

        Where all are paid for at once and each is another posterior draw, twenty let readers
        estimate the uncertainty (``inference.analyse``); elsewhere each costs epsilon again. Of
        fewer, the variance between data sets, and with it the length of an interval, is a guess:
        95 % intervals by ``reiter2002`` are in the median 3.4 times as long as they need to be
        with 5 data sets, 1.3 times with 20, where that variance is twice the one within.
        """
        return 1

    def datasets_of(self, asked: int | None, values: int = 1) -> int:
        """Number of data sets of a release that asks for this number, or for none.

        Args:
            values: public number of values of a data set, rows times columns: of the usual number
                as many as have ``PLENTY`` together, and not below ``FEWEST``.
        """
        if asked is not None:
            return asked
        return min(self.usual_datasets, max(FEWEST, PLENTY // max(1, values)))

    def to_dict(self) -> dict[str, Any]:
        """The chosen settings as JSON values; public."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        plain = (str, int, float, Mapping, list, tuple)
        return {key: value for key, value in settings.items() if isinstance(value, plain)}


class NoisyMechanism(Mechanism[F_co]):
    """Base class of mechanisms whose private outputs are epsilon-DP by noise, not by a posterior.

    Attributes:
        epsilon: the loss of one private output, for ``adjacency``.
        adjacency: the neighbouring relation that epsilon is for; by default that which a release
            protects (``Guarantee.holds_for``).
        both: epsilon holds under both adjacencies.
        halves: adding or removing a record costs half of changing one.
        randomness: the source of its random numbers, in the words of the guarantee.
    """

    epsilon: float
    adjacency: Adjacency | None
    both: ClassVar[bool] = False
    randomness: ClassVar[str] = SECRET_NOISE

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.neighbours not in ADJACENCIES:
            raise GuaranteeError(
                f"adjacency = {self.adjacency!r} must be one of {', '.join(ADJACENCIES)}."
            )

    def check_release(self) -> None:
        if self.noisy:
            opendp()

    @property
    def loss(self) -> Loss:
        """Privacy loss of one private output.

        Unless ``both``, epsilon for add/remove implies 2 epsilon for substitution, as a changed
        record is one removed and one added. The converse, epsilon / 2 for add/remove, holds only
        where ``halves``.
        """
        if self.both:
            return Loss.pure(self.epsilon, changed=self.epsilon)
        if self.neighbours == "add-remove":
            return Loss.pure(self.epsilon)
        return Loss.pure(self.epsilon / 2 if self.halves else self.epsilon, changed=self.epsilon)

    @property
    def halves(self) -> bool:
        """Whether adding or removing a record costs half of changing one."""
        return False

    @property
    def noisy(self) -> bool:
        """Whether the mechanism draws noise with OpenDP."""
        return self.randomness == SECRET_NOISE

    def guarantee(self) -> Guarantee:
        return self._claim(self.loss)

    def _claim(self, loss: Loss) -> Guarantee:
        """The claim for a private output of this loss."""
        assumptions = (PUBLIC_INPUTS, self.randomness)
        claim = Guarantee(self.name, loss, "strict", assumptions, adjacency=self.neighbours)
        if self.sets_per_output is not None:
            return replace(claim, nested=self.sets_per_output)
        return replace(claim, once=loss, each=NOTHING, once_for="the sanitised distribution")


class ModelFreeMechanism(NoisyMechanism[Fitted[Any]]):
    """Base class of mechanisms without a Stan model.

    They synthesise every confidential column of the schema, given the public ones.

    Attributes:
        structured: synthetic rows follow the schema's missing values and rules.
        blanks: a missing value counts as one more level, where the schema declares missing values.

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> mechanism = dpb.get_mechanism("laplace", epsilon=1)
        >>> isinstance(mechanism, dpb.ModelFreeMechanism), mechanism.claim(schema).asked
        (True, 1.0)
    """

    needs_model: ClassVar[bool] = False
    structured: ClassVar[bool] = False
    blanks: ClassVar[bool] = False

    @abstractmethod
    def check_columns(self, schema: Schema) -> None:
        """Raise SchemaError unless the mechanism can synthesise these columns."""

    @abstractmethod
    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> Fitted[Any]:
        """Fit the mechanism to validated records, shape (n, columns of the schema).

        Args:
            rows: the public number of rows, from which settings are derived (``Task.rows``).
        """

    def check(self, schema: Schema, model: Model | None) -> None:
        if model is not None:
            raise GuaranteeError(
                f"mechanism {self.name!r} synthesises every confidential column of the schema "
                "without a Stan program: leave out the model (`formula`, `family`, `program`, "
                "`constants`, `priors`)."
            )
        if not self.structured:
            subject = f"mechanism {self.name!r}"
            schema.require_plain(schema.columns, subject, blanks=self.blanks)
        self.check_columns(schema)

    def fit(self, task: Task) -> Fitted[Any]:
        return self.prepare(task.schema, task.records, task.rows)


class ModelFreeFitted(Fitted[Output]):
    """A ``ModelFreeMechanism`` with the records that it is applied to. Confidential.

    Args:
        schema: the schema whose confidential columns are synthesised.
        settings: public settings of the fit, in addition to those of the mechanism.
    """

    def __init__(
        self, mechanism: ModelFreeMechanism, schema: Schema, settings: Mapping[str, Any]
    ) -> None:
        self.mechanism = mechanism
        self.settings = {**mechanism.to_dict(), **settings}
        self.synthesised = tuple(schema.confidential())

    def versions(self) -> Mapping[str, str]:
        return versions("opendp") if self.mechanism.noisy else {}
