"""A schema, a mechanism and a model: all that is public about a synthesis, before any record."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from dpbayes.core.errors import DataError, GuaranteeError, ProgramError, SchemaError, refused
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.core.threads import one_thread
from dpbayes.engines import Engine, SamplerSettings, get_engine
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.mechanisms import Unweighted
from dpbayes.mechanisms.base import F_co, Fitted, Mechanism, Task
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.assumptions import ANY_PROGRAM, CUSTOM_SUMS
from dpbayes.privacy.guarantee import UNCHECKED_CHAINS, Guarantee
from dpbayes.privacy.noise import Noise, SecureNoise, StudyNoise
from dpbayes.privacy.statistic import scale_for
from dpbayes.records.chunks import IN_PARTS, Chunks, Table, check_cluster, plain, table_of
from dpbayes.records.fingerprint import content_digest, hash_of
from dpbayes.schema import Schema
from dpbayes.stan.model import Model, ModelChoice
from dpbayes.stan.proof.check import Finding
from dpbayes.synthesis.fit import Fit

G = TypeVar("G", bound=Fitted)


@dataclass(frozen=True)
class Synthesizer(Generic[F_co]):
    """A mechanism, a model where it needs one, and the public facts about the records.

    Args:
        schema: what is public; the only source of bounds and levels.
        mechanism: for example ``Censored(epsilon=5)`` or ``Laplace(1)``.
        model: ``Regression(formula, family)`` or ``Program(file, formula)``, for mechanisms that
            draw from a posterior.
        engine: ``"embedded"``, ``"cmdstan"``, ``"candidates"``, or an Engine.
        settings: of the sampler.
        allow_unproved: accept a strict claim that rests on the user's word for a Stan program,
            as no analysis proves that it keeps the contract.

    Raises:
        SchemaError, ProgramError, GuaranteeError: at construction, before any record is seen.
    """

    schema: Schema
    mechanism: Mechanism[F_co]
    model: Model | None = None
    engine: Engine = field(default_factory=lambda: get_engine("embedded"))
    settings: SamplerSettings = field(default_factory=SamplerSettings)
    paid: tuple[tuple[Loss, str], ...] = ()  # before the fit, each with what for
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
        if not isinstance(mechanism, Mechanism):
            raise GuaranteeError(
                f"mechanism = {mechanism!r}: expected a mechanism such as Censored(epsilon=5)."
            )
        if schema.keep and not mechanism.takes("keep"):
            raise SchemaError(
                f"keep = {list(schema.keep)}: mechanism {mechanism.name!r} cannot keep analyses; "
                "take mechanism measured, or take keep out of the schema."
            )
        over = model if model is None or isinstance(model, Model) else model.on(schema)
        unfit = f"the settings of mechanism {mechanism.name!r} do not fit the schema"
        with refused(GuaranteeError, unfit):
            mechanism.check(schema, over)
        for name, value in (
            ("schema", schema),
            ("mechanism", mechanism),
            ("model", over),
            ("engine", get_engine(engine)),
            ("settings", settings or SamplerSettings()),
            ("paid", paid),
            ("allow_unproved", allow_unproved),
        ):
            object.__setattr__(self, name, value)
        if self.unproved and not allow_unproved:
            _refuse(self.unproved, self.model)

    def guarantee(self) -> Guarantee:
        """The claim for one data set, before anything is computed from records."""
        rows = self.schema.rows
        claim = self.spent.claim(self.schema).drawn_by(self.engine.draw)
        cluster = self.schema.cluster
        claim = replace(claim, rows=rows.kind, cluster=1 if cluster is None else cluster.most)
        if rows.share:
            # Neighbours by substitution have the same number of records: nothing is told of it.
            loss = Loss.pure(self._rows_epsilon, changed=0.0)
            claim = claim.having_paid(loss, "the number of rows")
        if self.model is not None:
            if self.mechanism.needs_proof or self.model.program.bundled:
                claim = claim.assuming(*self.model.assumptions)
            else:
                claim = claim.assuming(ANY_PROGRAM)
            if claim.draw == "candidates" and not self.model.program.bundled:
                claim = claim.assuming(CUSTOM_SUMS)
        for loss, what in self.paid:
            claim = claim.having_paid(loss, what)
        return claim.with_guesses(self.schema.guesses)

    def outlook(self, rows: int) -> Forecast:
        """What noise will do to a release, by public facts alone: it costs nothing to ask.

        Args:
            rows: number of records, where that is public; a declared number stands before it.
        """
        known = self.mechanism.data_rows(self.schema)
        rows = rows if known is None else known
        return self.spent.outlook(self.schema, max(1, rows), self.model)

    @property
    def unproved(self) -> tuple[Finding, ...]:
        """What stands against a proof of the user's program behind a strict claim."""
        if not self.mechanism.needs_proof:
            return ()
        found = findings_of(self.model)
        return found if found and self.mechanism.claim(self.schema).basis == "strict" else ()

    @property
    def spent(self) -> Mechanism[F_co]:
        """The mechanism with what noisy rows leave of its epsilon."""
        share = self.schema.rows.share
        return self.mechanism.spending(1 - share) if share else self.mechanism

    @property
    def _rows_epsilon(self) -> float:
        """What noisy rows cost when a record is added or removed."""
        return self.schema.rows.share * self.mechanism.claim(self.schema).epsilon

    def with_mechanism(self, mechanism: Mechanism[G]) -> Synthesizer[G]:
        """The same synthesizer under another mechanism."""
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
        """The same synthesizer on another engine."""
        return replace(self, engine=get_engine(engine))

    def with_settings(self, settings: SamplerSettings) -> Synthesizer[F_co]:
        """The same synthesizer with other sampler settings."""
        return replace(self, settings=settings)

    def having_paid(self, loss: Loss, what: str) -> Synthesizer[F_co]:
        """The same synthesizer, whose guarantee includes a loss that was paid before the fit."""
        return replace(self, paid=(*self.paid, (loss, what)))

    def fit(
        self,
        records: pd.DataFrame | Chunks,
        *,
        allow_nonconvergence: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Fit[F_co]:
        """Take the records: fit the posteriors, or compute what noise will be added to.

        Args:
            records: n confidential rows with every column of the schema, in a frame of pandas,
                polars or pyarrow, or in parts, for a mechanism that counts.
            allow_nonconvergence: go on although chains have not converged.
            checkpoint: a directory for finished chains and the seed, confidential. The same call
                after a crash goes on with them, and gives what it would have given; remove it
                (``Checkpoint.clear``) when it is no longer needed. Chains of other inputs
                are set aside.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError.
        """
        records = plain(records)
        task = self.task(records, allow_nonconvergence=allow_nonconvergence, checkpoint=checkpoint)
        return self._fit(task, records)

    def refit(self, fit: Fit[Any]) -> Fit[F_co]:
        """The records of a fit under this mechanism: both share the unweighted fit.

        Args:
            fit: by a synthesizer that differs in its mechanism only.
        Raises:
            GuaranteeError: it differs in more. Otherwise as ``fit``.
        """
        before = fit.task
        same = (before.schema, before.model, before.engine, before.settings)
        if same != (self.schema, self.model, self.engine, self.settings):
            raise GuaranteeError(
                "refit takes a fit by a synthesizer that differs in its mechanism only: make this "
                "one by with_mechanism."
            )
        # Draws of two mechanisms are paid for as independent ones: other random numbers.
        entropy = secrets.randbits(128) if self.settings.seed is None else self.settings.seed
        noise = self._noise(entropy)
        rows = self.public_rows(
            len(before.table), noise
        )  # a noisy one of its own, which it pays for
        task = replace(before, entropy=entropy, noise=noise, checkpoint=None, rows=rows)
        if self.schema.rows.share or rows != before.rows:
            task = replace(task, _shared={})
        return self._fit(task, fit.given)

    @one_thread()
    def _fit(self, task: Task, given: pd.DataFrame | Chunks) -> Fit[F_co]:
        claim = self.guarantee()
        if task.allow_nonconvergence and claim.draw is not None:
            claim = claim.assuming(UNCHECKED_CHAINS)
        mechanism = self.spent
        return Fit(mechanism, claim, task, given, mechanism.fit(task))

    def task(
        self,
        records: pd.DataFrame | Chunks,
        *,
        allow_nonconvergence: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Task:
        """Validated records with what the mechanism may use. Confidential."""
        records = plain(records)
        found = self.table(records)
        check_cluster(self.schema, records)
        chains = None
        if checkpoint is not None and not isinstance(records, Chunks):  # counts have no chains
            chains = Checkpoint(checkpoint)
        entropy = self.settings.seed
        if chains is not None:
            entropy = chains.begin(self._inputs(as_frame(records)), entropy)
        if entropy is None:
            entropy = secrets.randbits(128)
        noise = self._noise(entropy)
        return Task(
            self.schema,
            found,
            self.public_rows(len(found), noise),
            self.model,
            self.engine,
            self.settings,
            noise,
            entropy,
            chains,
            allow_nonconvergence,
        )

    def table(self, records: pd.DataFrame | Chunks, *, show_values: bool = False) -> Table:
        """Validated records. DataError where they come in parts, and the mechanism needs all."""
        if isinstance(records, Chunks) and not self.mechanism.counts_parts:
            raise DataError(f"mechanism {self.mechanism.name!r}: {IN_PARTS}")
        return table_of(self.schema, records, show_values=show_values)

    def _noise(self, entropy: int) -> Noise:
        return SecureNoise() if self.settings.seed is None else StudyNoise(entropy)

    def public_rows(self, n: int, noise: Noise) -> int:
        """The public number of rows.

        Guarantee: a noisy one is epsilon-DP with its share of epsilon: n changes by 1 when a record
        is added or removed, and has geometric noise (Ghosh, Roughgarden & Sundararajan, 2012).
        """
        number = self.mechanism.data_rows(self.schema)
        if number is not None:
            return number
        rows = self.schema.rows
        if not rows.share:
            return n
        return max(1, int(noise.counts([n], scale_for(1, self._rows_epsilon))[0]))

    def _inputs(self, records: pd.DataFrame) -> dict[str, str]:
        """What the draws depend on, by names that users know."""
        settings = replace(self.settings, seed=None, progress=False, parallel_chains=None)
        model = None if self.model is None else self.model.identity()
        return {
            "records": content_digest(records).hex(),
            "model": hash_of(model),
            "mechanism": hash_of(repr(self.mechanism)),
            "sampler settings": hash_of(repr(settings)),
            "engine": self.engine.name,
        }

    def reference(self, records: pd.DataFrame, *, allow_nonconvergence: bool = False) -> Reference:
        """Fit unweighted to reference records: a source of weights and an anchor.

        Args:
            records: public or historical rows with every column of the schema; they are paid for
                elsewhere, and are not the records to be protected.
        """
        plain = self.with_mechanism(Unweighted())
        task = plain.task(records, allow_nonconvergence=allow_nonconvergence)
        return reference_fit(task.shared(BoundRecords))


def reference_fit(records: BoundRecords) -> Reference:
    """The unweighted fit to reference records, as a source of weights and an anchor."""
    point = records.plain.random_points(1, seed=1)
    parameters = [str(name) for name in point["posterior"].data_vars]
    sensitivity = records.sensitivity()
    draws = records.unweighted_released.draws
    identity = records.model.identity()
    return Reference.from_draws(draws, sensitivity, parameters, identity, records.task.records)


def findings_of(model: Model | None) -> tuple[Finding, ...]:
    """What stands against a proof of a user's program; the tests cover bundled ones."""
    return () if model is None else model.proof.findings


def _refuse(findings: tuple[Finding, ...], model: Model | None) -> NoReturn:
    """Raise ProgramError for a user's program that nothing proves."""
    assert model is not None
    others = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    raise ProgramError(
        f"program {model.program.name!r} is not proved to keep the contract: {findings[0]}{others} "
        "`dpbayes check` says all of it. A strict claim would rest on your word that each record's "
        "log_lik is a function of that record, public data and parameters. Write it so that it can "
        "be proved (stan_models/README.md), or give your word with allow_unproved=True "
        "(--allow-unproved); the guarantee then says so."
    )
