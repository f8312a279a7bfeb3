"""The synthesizer: schema, mechanism and model, which are public and known before any record."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from dpbayes.core.checks import expect
from dpbayes.core.errors import (
    DataError,
    EngineError,
    GuaranteeError,
    ProgramError,
    SchemaError,
    refused,
)
from dpbayes.core.frames import Frame
from dpbayes.core.lazy import pd
from dpbayes.core.threads import one_thread
from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.mechanisms import Unweighted
from dpbayes.mechanisms.base import F_co, Fitted, Mechanism, Task, free
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.weights import Reference, references
from dpbayes.privacy.accounting import Loss, largest_epsilon, stated
from dpbayes.privacy.assumptions import ANY_PROGRAM, SAME_BITS
from dpbayes.privacy.guarantee import EPSILONS, UNCHECKED_CHAINS, Guarantee
from dpbayes.privacy.noise import Noise, SecureNoise, StudyNoise
from dpbayes.privacy.statistic import scale_for
from dpbayes.records.chunks import (
    IN_PARTS,
    ChunkedTable,
    Chunks,
    InMemoryTable,
    Table,
    nothing,
    table_of,
)
from dpbayes.records.fingerprint import content_digest, hash_of
from dpbayes.schema import Schema
from dpbayes.schema.domain import with_largest_weight
from dpbayes.schema.rows import PUBLIC
from dpbayes.schema.table import require_schema
from dpbayes.stan.model import Model, ModelChoice
from dpbayes.stan.proof.check import Finding, same_bits
from dpbayes.synthesis.fit import Fit

G = TypeVar("G", bound=Fitted[Any])
REHEARSED = 1000  # constant records for which settings are derived where their number is secret
STEPS = 16  # of a search for an ε, to 1e-5 of it
LARGEST = 1e15  # of the numbers among settings: whole numbers are exact in floats up to here


@dataclass(frozen=True)
class Synthesizer(Generic[F_co]):
    """A mechanism, a model if the mechanism needs one, and the public facts about the records.

    Args:
        schema: the public facts; the only source of bounds and levels.
        mechanism: for example ``Censored(epsilon=5)`` or ``Laplace(1)``.
        model: ``Regression(formula, family)`` or ``Program(file, formula)``, for mechanisms that
            draw from a posterior.
        engine: ``"embedded"``, ``"cmdstan"``, ``"candidates"``, or an Engine.
        settings: settings of the sampler.
        paid: losses incurred before the fit, each with its purpose; the guarantee includes them.
        allow_unproved: accept a strict claim that rests on the user's assertion that a Stan program
            keeps the contract, as no analysis proves it.

    Raises:
        SchemaError, ProgramError, GuaranteeError, EngineError: at construction, before any record
            is seen.

    Examples:
        >>> import dpbayes as dpb
        >>> from dpbayes.demo.earnings import earnings
        >>> records, schema = earnings()
        >>> model = dpb.Regression("earnings ~ age + gender", "beta")
        >>> synthesizer = dpb.Synthesizer(schema, dpb.Censored(epsilon=5), model)
        >>> synthesizer.guarantee().lines()[0]
        'ε = 5 when one record is changed (δ = 0).'
    """

    schema: Schema
    mechanism: Mechanism[F_co]
    model: Model | None = None
    engine: Engine = field(default_factory=lambda: get_engine("embedded"))
    settings: SamplerSettings = field(default_factory=SamplerSettings)
    paid: tuple[tuple[Loss, str], ...] = ()  # before the fit: losses and their purposes
    allow_unproved: bool = False

    def __init__(
        self,
        schema: Schema,
        mechanism: Mechanism[F_co],
        model: ModelChoice | Model | None = None,
        *,
        engine: str | Engine = "embedded",
        settings: SamplerSettings | None = None,
        paid: tuple[tuple[Loss, str], ...] = (),
        allow_unproved: bool = False,
    ) -> None:
        require_schema(schema)
        expected = "a mechanism such as Censored(epsilon=5)"
        expect(mechanism, Mechanism, "mechanism", expected, GuaranteeError)
        expected = "a model such as Regression('y ~ x', 'normal')"
        expect(model, Model | ModelChoice | None, "model", expected, SchemaError)
        expect(settings, SamplerSettings | None, "settings", "SamplerSettings(...)", EngineError)
        mechanism.check_asked(schema)
        if schema.rows.assumed and not mechanism.takes("epsilon"):
            schema = replace(schema, rows=PUBLIC)  # there is no ε to pay for a noisy number
        # Bounds on what is drawn when a record is changed hold at a fixed number of records.
        mechanism = mechanism.protecting("substitution" if schema.rows.public else "add-remove")
        bound_model = _bound(model, schema)
        mismatch = f"the settings of mechanism {mechanism.name!r} do not fit the schema"
        with refused(GuaranteeError, mismatch):
            mechanism.check(schema, bound_model)
        _check_settings(mechanism)
        for name, value in (
            ("schema", schema),
            ("mechanism", mechanism),
            ("model", bound_model),
            ("engine", get_engine(engine)),
            ("settings", SamplerSettings() if settings is None else settings),
            ("paid", paid),
            ("allow_unproved", allow_unproved),
        ):
            object.__setattr__(self, name, value)
        _ = self.spent  # an ε too small for a person's records is refused here
        if self.schema.rows.share and not self._rows_loss(self._of_record):
            raise GuaranteeError(
                "at this delta the mechanism's ε is 0, and nothing is left for a noisy number of "
                'rows. Give a smaller delta, or declare rows = "public" or a number.'
            )
        if self.unproved and not allow_unproved:
            _refuse(self.unproved, self.model)

    def guarantee(self) -> Guarantee:
        """The claim for one data set, before anything is computed from records."""
        claim = self._loss_claim(self._of_record).drawn_by(self.engine.draw)
        if self.model is not None:
            if self.mechanism.needs_proof or self.model.program.bundled:
                claim = claim.assuming(*self.model.assumptions)
            else:
                claim = claim.assuming(ANY_PROGRAM)
            if self.mechanism.needs_proof and not same_bits(self.model.program, claim.draw):
                claim = claim.assuming(SAME_BITS)
        for loss, purpose in self.paid:
            claim = claim.having_paid(loss, purpose)
        return claim.with_guesses(self.schema.guesses)

    def outlook(self, rows: int) -> Forecast:
        """Forecast how noise will affect a release, from public facts alone and at no cost.

        Args:
            rows: number of records, where it is public; that of the schema takes precedence.
        Raises:
            DataError: the number is no whole number from 0 on.
        """
        whole = isinstance(rows, int | np.integer) and not isinstance(rows, bool)
        if not whole or not 0 <= rows <= LARGEST:
            raise DataError(f"rows = {rows!r:.40} must be a whole number from 0 to {LARGEST:g}.")
        known = self.mechanism.data_rows(self.schema)
        rows = max(1, rows if known is None else known)
        outlook = self.spent.outlook(self.schema, rows, self.model)
        about = self.rows_sd, self.schema, self.model.left_out if self.model else ()
        return outlook.for_release(self.guarantee().delta, rows, *about)

    @property
    def unproved(self) -> tuple[Finding, ...]:
        """Findings that prevent a proof of the user's program, where a strict claim needs one."""
        if not self.mechanism.needs_proof:
            return ()
        findings = findings_of(self.model)
        return findings if findings and self.mechanism.claim(self.schema).basis == "strict" else ()

    @cached_property
    def spent(self) -> Mechanism[F_co]:
        """The mechanism that is applied to a record, with what is left for it of epsilon.

        A noisy number of rows costs its share, and where a person has several records, epsilon is
        for all of them together.
        """
        return self._without_rows(self._of_record)

    @cached_property
    def _of_record(self) -> Mechanism[F_co]:
        """The mechanism with the epsilon of one record and, if that is noisy, of their number.

        Pure losses of a person add up, and with that of the number of records. At a δ they do not,
        and the largest epsilon is found by what the claim says.
        """
        whole, cluster, share = self.mechanism, self.schema.cluster, self.schema.rows.share
        if not whole.takes("epsilon") or (cluster is None and not share):
            return whole
        asked, most = whole.epsilon_setting, 1 if cluster is None else cluster.most
        part, pure = asked / most, not whole.claim(self.schema).delta
        if pure and cluster is None:
            return whole

        def cost(epsilon: float) -> float:
            return self._loss_claim(whole.with_epsilon(epsilon)).asked

        high = part if pure else min(part / (1 - share), EPSILONS[1])
        largest, _ = largest_epsilon(cost, asked, max(EPSILONS[0], part / 4), high, steps=STEPS)
        if largest is None:
            raise GuaranteeError(
                f"epsilon = {stated(asked)} is for all records of a person, of which the schema "
                f"allows {most}: less than the smallest ε, {EPSILONS[0]:g}, is left for each. "
                "Ask for more, or declare fewer records of a person."
            )
        return whole.with_epsilon(largest)

    def _without_rows(self, mechanism: Mechanism[F_co]) -> Mechanism[F_co]:
        """The mechanism with what a noisy number of rows leaves of its epsilon."""
        share = self.schema.rows.share
        return mechanism.spending(1 - share) if share else mechanism

    def _rows_loss(self, mechanism: Mechanism[F_co]) -> float:
        """Part of a mechanism's epsilon that a noisy number of rows costs, for add/remove."""
        return self.schema.rows.share * mechanism.claim(self.schema).epsilon

    def _loss_claim(self, mechanism: Mechanism[F_co]) -> Guarantee:
        """The claim of a mechanism for records of which one person may have several."""
        cluster, rows = self.schema.cluster, self.schema.rows
        claim = self._without_rows(mechanism).claim(self.schema)
        claim = replace(claim, rows=rows.kind, cluster=1 if cluster is None else cluster.most)
        if rows.share:
            # Neighbours by substitution have the same number of records, which costs them nothing.
            loss = Loss.pure(self._rows_loss(mechanism), changed=0.0)
            claim = claim.having_paid(loss, "the number of rows")
        return claim

    def with_mechanism(self, mechanism: Mechanism[G]) -> Synthesizer[G]:
        """Copy the synthesizer with another mechanism."""
        return Synthesizer(
            self.schema,
            mechanism,
            self.model,
            engine=self.engine,
            settings=self.settings,
            paid=self.paid,
            allow_unproved=self.allow_unproved,
        )

    def with_engine(self, engine: str | Engine) -> Synthesizer[F_co]:
        """Copy the synthesizer with another engine."""
        return replace(self, engine=get_engine(engine))

    def with_settings(self, settings: SamplerSettings) -> Synthesizer[F_co]:
        """Copy the synthesizer with other sampler settings."""
        return replace(self, settings=settings)

    def having_paid(self, loss: Loss, purpose: str) -> Synthesizer[F_co]:
        """Copy the synthesizer with a loss, paid before the fit, that the guarantee includes."""
        return replace(self, paid=(*self.paid, (loss, purpose)))

    def fit(
        self,
        records: Frame | Chunks | Table,
        *,
        allow_nonconvergence: bool = False,
        checkpoint: str | Path | None = None,
        pay: Callable[[], None] = free,
    ) -> Fit[F_co]:
        """Fit to the records: sample the posteriors, or compute what noise will be added to.

        Args:
            records: n confidential rows with every column of the schema, in a frame of pandas,
                polars or pyarrow, or in chunks, for a mechanism that counts; or the result of
                ``table``, which is not validated again.
            allow_nonconvergence: continue although chains have not converged.
            checkpoint: a directory for finished chains and the seed, confidential; used by
                mechanisms with a model. After a crash
                the same call resumes with them and gives the result that it would have given;
                remove it (``Checkpoint.clear``) when it is no longer needed. Chains of other
                inputs are set aside.
            pay: is called before each private draw of the fit, such as of an anchor or of a noisy
                number of rows, so that a ledger can charge for it.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError.
        """
        task = self.task(
            records, allow_nonconvergence=allow_nonconvergence, checkpoint=checkpoint, pay=pay
        )
        return self._fit(task)

    def refit(self, fit: Fit[Any]) -> Fit[F_co]:
        """Fit this mechanism to the records of another fit; both share the unweighted fit.

        Args:
            fit: a fit by a synthesizer that differs in its mechanism only.
        Raises:
            GuaranteeError: the synthesizers differ in more. Otherwise as ``fit``.
        """
        before = fit.task
        self.table(before.table)
        inputs = (before.schema, before.model, before.engine, before.settings)
        if inputs != (self.schema, self.model, self.engine, self.settings):
            raise GuaranteeError(
                "refit takes a fit by a synthesizer that differs in its mechanism only: make this "
                "one by with_mechanism."
            )
        # Composition assumes that the draws of both mechanisms are independent, so this fit needs
        # random numbers of its own.
        entropy = secrets.randbits(128) if self.settings.seed is None else self.settings.seed
        noise = self._noise(entropy)
        # A noisy number of rows is drawn anew, as this mechanism pays for one of its own.
        rows = self.public_rows(len(before.table), noise)
        task = replace(
            before,
            entropy=entropy,
            sealed_noise=noise,
            checkpoint=None,
            rows=rows,
            rows_sd=self.rows_sd,
            pay=free,
        )
        if self.schema.rows.share or rows != before.rows:
            task = replace(task, _shared={})
        return self._fit(task)

    @one_thread()
    def rehearse(self, table: Table | None = None, released_rows: int | None = None) -> None:
        """Raise what a fit refuses whatever the confidential values are, before any of it is paid.

        The mechanism does all that it does before its first draw, with public constants in place of
        confidential values, or without a record where there is no model.

        Args:
            table: the validated records, of which public columns and a public number are read.
            released_rows: as in ``Task``.
        Raises:
            EngineError, GuaranteeError, ProgramError.
        """
        rows, public, count = self.schema.rows, pd.DataFrame(), REHEARSED
        if rows.public and table is not None:
            public, count = table.frame, len(table)
        model, constants = self.model, nothing(self.schema)
        if model is not None:
            constants = with_largest_weight(self.schema, model.constant_records(public, count))
        self.spent.rehearse(
            Task(
                self.schema,
                InMemoryTable(self.schema, constants, constants),
                count if rows.number is None else rows.number,
                model,
                self.engine,
                self.settings,
                self._noise(0),
                0,
                released_rows=released_rows,
            )
        )

    @one_thread()
    def _fit(self, task: Task) -> Fit[F_co]:
        claim = self.guarantee()
        if task.allow_nonconvergence and claim.draw is not None:
            claim = claim.assuming(UNCHECKED_CHAINS)
        mechanism = self.spent
        return Fit(mechanism, claim, task, mechanism.fit(task))

    def task(
        self,
        records: Frame | Chunks | Table,
        *,
        allow_nonconvergence: bool = False,
        checkpoint: str | Path | None = None,
        pay: Callable[[], None] = free,
    ) -> Task:
        """Validate the records and gather what the mechanism may use of them. Confidential."""
        table = self.table(records)
        stored_chains, entropy = None, self.settings.seed
        if checkpoint is not None and self.mechanism.needs_model:  # others have no chains
            stored_chains = Checkpoint(checkpoint)
            entropy = stored_chains.begin(self._inputs(table.frame), entropy)
        if entropy is None:
            entropy = secrets.randbits(128)
        noise = self._noise(entropy)
        if self.schema.rows.share:
            self.rehearse()
            pay()
        return Task(
            self.schema,
            table,
            self.public_rows(len(table), noise),
            self.model,
            self.engine,
            self.settings,
            noise,
            entropy,
            stored_chains,
            allow_nonconvergence,
            pay,
            self.rows_sd,
        )

    def table(self, records: Frame | Chunks | Table, *, show_values: bool = False) -> Table:
        """Validate records; a table that this schema has validated is returned as it is.

        Raises:
            DataError: the records do not fit the schema, or come in chunks although the mechanism
                needs them all.
            GuaranteeError: a reference of the mechanism was made from these very records, and there
                is no seed: what a study makes of a seeded fit is not released.
        """
        table = self._table(records, show_values)
        if self.settings.seed is None:
            for reference in references(self.mechanism):
                reference.check_records(self.schema.without_weights(table.frame))
        return table

    def _table(self, records: Frame | Chunks | Table, show_values: bool) -> Table:
        if isinstance(records, Chunks | ChunkedTable) and not self.mechanism.counts_parts:
            raise DataError(f"mechanism {self.mechanism.name!r}: {IN_PARTS}")
        if isinstance(records, Table):
            if _columns_and_rules(records.schema) != _columns_and_rules(self.schema):
                raise DataError("the table was validated for another schema; pass the records.")
            return records
        return table_of(self.schema, records, show_values=show_values)

    def _noise(self, entropy: int) -> Noise:
        return SecureNoise() if self.settings.seed is None else StudyNoise(entropy)

    def public_rows(self, n: int, noise: Noise) -> int:
        """The public number of rows.

        Guarantee: a noisy number costs its share of epsilon: n changes by 1 when a record is added
        or removed, and has geometric noise (Ghosh, Roughgarden & Sundararajan, 2012).
        """
        number = self.mechanism.data_rows(self.schema)
        if number is not None:
            return number
        if self.schema.rows.public:
            return self.schema.enough(n)
        if self.schema.rows.number is not None:
            return self.schema.rows.number
        return max(1, int(noise.counts([n], self._rows_scale)[0]))

    @property
    def _rows_scale(self) -> float:
        """Scale of the noise in a noisy number of rows."""
        return scale_for(1, self._rows_loss(self._of_record))

    @property
    def rows_sd(self) -> float:
        """Sd of the public number of rows about the number of records (``Task.rows_sd``)."""
        if self.schema.rows.share:
            return math.sqrt(2) * self._rows_scale
        return 0.0 if self.schema.rows.public else math.inf

    def _inputs(self, records: pd.DataFrame) -> dict[str, str]:
        """Hashes of all inputs on which draws depend, by names that users know.

        Args:
            records: validated records: no undeclared column affects a fit.
        """
        # Progress and parallel chains do not change draws; the checkpoint stores the seed itself.
        settings = replace(self.settings, seed=None, progress=False, parallel_chains=None)
        model = None if self.model is None else self.model.identity()
        survey = self.schema.survey
        return {
            "records": content_digest(records).hex(),
            "model": hash_of(model),
            "mechanism": hash_of(repr((self.mechanism, self.spent, self.schema.rows, survey))),
            "sampler settings": hash_of(repr(settings)),
            "engine": self.engine.name,
        }

    def reference(self, records: pd.DataFrame, *, allow_nonconvergence: bool = False) -> Reference:
        """Fit the unweighted posterior to reference records, as a source of weights and an anchor.

        Args:
            records: public rows with every column of the schema, none of them to be protected.
            allow_nonconvergence: continue although chains have not converged.
        """
        task = self.plain.task(records, allow_nonconvergence=allow_nonconvergence)
        return reference_fit(task.shared(BoundRecords))

    @property
    def plain(self) -> Synthesizer[Any]:
        """The unweighted posterior of reference records, whose number is public."""
        schema = replace(self.schema, rows=PUBLIC) if self.schema.rows.share else self.schema
        other: Synthesizer[Any] = self  # of another mechanism
        return replace(other, schema=schema, mechanism=Unweighted())


def require_synthesizer(synthesizer: object, name: str = "synthesizer") -> None:
    """Raise GuaranteeError for an argument that is no synthesizer."""
    expect(synthesizer, Synthesizer, name, "Synthesizer(schema, mechanism)", GuaranteeError)


def require_synthesizers(candidates: object) -> None:
    """Raise GuaranteeError for candidates that are no tuple or list of synthesizers."""
    expected = "a tuple of synthesizers; of a single one, (synthesizer,)"
    expect(candidates, tuple | list, "candidates", expected, GuaranteeError)
    assert isinstance(candidates, tuple | list)
    for candidate in candidates:
        require_synthesizer(candidate, "a candidate")


def reference_fit(records: BoundRecords) -> Reference:
    """Build a source of weights and an anchor from the unweighted fit to reference records."""
    point = records.plain.random_points(1, seed=1)
    parameters = [str(name) for name in point["posterior"].data_vars]
    sensitivity = records.sensitivity()
    draws = records.unweighted_released.draws
    identity = records.model.identity()
    known = records.task.schema.without_weights(records.task.records)
    return Reference.from_draws(draws, sensitivity, parameters, identity, known)


def _columns_and_rules(schema: Schema) -> tuple[list[str], dict[str, Any]]:
    """All that validation depends on; whether the number of rows is public changes no record."""
    return list(schema.columns), {k: v for k, v in schema.to_dict().items() if k != "rows"}


def findings_of(model: Model | None) -> tuple[Finding, ...]:
    """Findings that prevent a proof of a user's program; tests cover the bundled programs."""
    return () if model is None else model.proof.findings


def _bound(model: ModelChoice | Model | None, schema: Schema) -> Model | None:
    """The model on this schema; one that was bound before must have been on the same columns."""
    if model is None:
        return None
    if not isinstance(model, Model):
        return model.on(schema)
    if (list(model.schema.columns.items()), model.schema.rules) != (
        list(schema.columns.items()),
        schema.rules,
    ):
        raise GuaranteeError(
            "the model was made for other columns or rules than those of this schema, and would "
            "use them as declared there: give the choice of a model, such as Regression(...)."
        )
    if not model.program.bundled and model.schema.rows.public and not schema.rows.public:
        raise GuaranteeError(
            "the model was made for a public number of records, and its constants may have a value "
            "for each: give the choice of a model, such as Program(...)."
        )
    return model


def _refuse(findings: tuple[Finding, ...], model: Model | None) -> NoReturn:
    """Raise ProgramError for a user's program that is not proved to keep the contract."""
    assert model is not None
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    raise ProgramError(
        f"program {model.program.name!r} is not proved to keep the contract: {findings[0]}{more} "
        "`dpbayes check` lists all of it. A strict claim would rest on your assertion that each "
        "record's log_lik is a function of that record, public data and parameters. Write the "
        "program so that it can be proved (stan_models/README.md), or assert this with "
        "`allow_unproved=True`; the guarantee then says so."
    )


def _check_settings(mechanism: Mechanism[Any]) -> None:
    """Raise GuaranteeError for a setting that a release could not report as JSON, or a huge number.

    It would end a run when the release is written, after it was paid for.
    """
    if not is_dataclass(mechanism):
        return
    for setting in fields(mechanism):
        value = getattr(mechanism, setting.name, None)
        try:
            text = json.dumps(value, allow_nan=False, default=_reported)
            json.loads(text, parse_int=_usual, parse_float=_usual)
        except (TypeError, ValueError, RecursionError):
            raise GuaranteeError(
                f"{setting.name} = {str(value)[:40]!r}: a setting of mechanism {mechanism.name!r} "
                f"must be made of text, truth values and numbers up to {LARGEST:g}."
            ) from None


def _reported(value: Any) -> Any:
    """Plain form of a setting that is no JSON; TypeError for objects of Python itself."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__module__ == "builtins":
        raise TypeError
    return None  # weights, public records, a model: they check their own settings


def _usual(text: str) -> None:
    if abs(float(text)) > LARGEST:
        raise ValueError
