"""A mechanism with the records, whichever mechanism it is, and the drawing of releases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.interrupts import stop_if_interrupted
from dpbayes.core.lazy import pd, xr
from dpbayes.core.markup import card
from dpbayes.core.threads import one_thread
from dpbayes.core.versions import versions
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.mechanisms.base import F_co, Findings, Mechanism, Task
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.privacy.noise import SecureNoise, StudyNoise
from dpbayes.records.chunks import Chunks
from dpbayes.schema import Column
from dpbayes.schema.rows import check_room
from dpbayes.synthesis.release import Release, assemble
from dpbayes.synthesis.saved_fit import parameters, plotted, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Fit(Generic[F_co]):
    """A mechanism with the records. All of it is confidential; only what ``sample`` returns is not.

    Attributes:
        mechanism: whose settings are public.
        claimed: for one data set, before the records were seen.
        task: the validated records, and what the mechanism used to model them.
        given: the records as they were given, a frame or parts, from which the ledger knows them
            again.
        fitted: what the mechanism keeps of them; a ``PosteriorFit`` has draws, diagnostics, risk.
    """

    mechanism: Mechanism[F_co]
    claimed: Guarantee
    task: Task
    given: pd.DataFrame | Chunks
    fitted: F_co

    @property
    def records(self) -> pd.DataFrame:
        """The validated confidential records. DataError where they come in parts."""
        return self.task.records

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where finished chains are kept."""
        return self.task.checkpoint

    @property
    def synthesised(self) -> tuple[Column, ...]:
        """Columns whose values are synthetic."""
        return self.fitted.synthesised

    @property
    def guarantee(self) -> Guarantee:
        """The claim for one data set; of m: ``guarantee.for_datasets(m, delta)``."""
        return self.claimed

    @property
    def outlook(self) -> Forecast:
        """What public facts say of a release, the number of rows that it pays for among them."""
        task = self.task
        return self.mechanism.outlook(task.schema, max(1, task.rows), task.model)

    @one_thread()
    def check(self, replicates: int = 20) -> Any:
        """Posterior predictive checks: does the family fit? Confidential; nothing is released.

        Args:
            replicates: data sets that the records are compared with.
        Returns:
            a ``Check``: a table with what fits, and quantile residuals.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return self.fitted.check(replicates)

    def to_datatree(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, thin: int = 1
    ) -> xr.DataTree:
        """The posterior that data sets are drawn from, as ArviZ reads it. Confidential.

        Groups ``posterior`` and ``sample_stats``; coefficients and intercepts in the covariates'
        own units, with the names of covariates, levels and groups on the axes. Those asked for are
        computed draw by draw, and bring ``observed_data`` with them.

        Args:
            log_likelihood: log p(record | draw) of each outcome, without weights or clamp.
            posterior_predictive: a replicate of the records at each draw.
            thin: take every so many draws.
        Raises:
            GuaranteeError: the mechanism draws from no model.
            DataError: a group would not fit in memory, or there is no record.
        """
        return self.fitted.to_datatree(
            log_likelihood=log_likelihood, posterior_predictive=posterior_predictive, thin=thin
        )

    def summary(self) -> pd.DataFrame:
        """Mean, sd, interval, effective draws and R-hat of each parameter, by ArviZ. Confidential.

        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return parameters(self.to_datatree())

    def loo(self) -> Any:
        """Expected log predictive density of a record left out, by ArviZ. Confidential.

        ``arviz_stats.loo`` of the tree takes the draws for those of the plain posterior; this takes
        them for what they are: of a weighted and clamped one.

        Returns:
            ``arviz_stats.ELPDData``.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return self.fitted.loo()

    def plot(self, what: str = "check") -> Figure:
        """A figure of the fit, with the CONFIDENTIAL mark.

        Args:
            what: ``check``: records beside replicates of them; ``lipschitz``: by-record bounds.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return plotted(self, what)

    def save(self, folder: str | Path) -> Path:
        """Write what the fit found to a new folder, which nobody else can open. Confidential.

        Draws, diagnostics, weights, bounds and the claim, as in a job's confidential/: no records,
        and no way to draw data sets from it without them. ``dpbayes.load`` reads it. To go on with
        chains after a crash, give ``Synthesizer.fit`` a checkpoint.

        Raises:
            OutputError: the folder is there already, or is in a release.
        """
        return save(self.findings(), folder)

    @one_thread()
    def findings(self) -> Findings:
        """What the fit says of the records. Confidential, and slow where it asks for a fit."""
        found = self.fitted.findings()
        claim = {"guarantee": self.guarantee.to_dict(), "warnings": list(found.warnings)}
        return replace(found, summary={**claim, **found.summary})

    @one_thread()
    def sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float | None = None,
        rows: int | None = None,
        seed: int | None = None,
    ) -> Release:
        """Draw synthetic data sets.

        Every call spends the mechanism's epsilon once more per private output; the guarantee
        returned covers the data sets of this call only.

        Args:
            datasets: number m of data sets. Each has a private output of its own, or shares one
                with others (``Mechanism.sets_per_output``).
            accept: the weakest claim that will do: ``strict``, ``asymptotic`` or ``none``.
            delta: at which ε is stated: 0 adds epsilons up, above 0 zCDP is used where it gives a
                smaller total; by default that of the mechanism's claim, 0 for most.
            rows: of each data set; by default the public number. Parameters are paid for, rows are
                not; where public columns are released there are as many as records.
            seed: for studies and tests only, whose result is not for release; None takes
                randomness from the operating system.
        Raises:
            GuaranteeError: the mechanism's claim is weaker than ``accept``; bad arguments; OpenDP
                is missing and there is no seed.
        """
        claim = self.check_sample(datasets, accept=accept, delta=delta, rows=rows)
        notes = self.outlook.notes  # before anything private is drawn
        rows = self.task.rows if rows is None else rows
        noise = SecureNoise() if seed is None else StudyNoise(seed)
        shared = self._shared(datasets)
        outputs = self.fitted.outputs(-(-datasets // shared), noise)
        frames = []
        for number in range(datasets):
            stop_if_interrupted()
            if number % shared == 0:
                output = next(outputs)
            synthetic = self.fitted.synthetic(output, rows, noise.rng)
            frames.append(assemble(self.task.schema, self.task.table.public, synthetic, noise.rng))
        model, seeded = self.task.model, self.task.settings.seed
        return Release(
            datasets=tuple(frames),
            guarantee=claim,
            program=None if model is None else model.program.name,
            program_sha256=None if model is None else model.program.sha256,
            versions={**versions("dpbayes"), **self.fitted.versions()},
            settings=self._settings(rows, noise.name if seeded is None else StudyNoise.name),
            releasable=noise.releasable and seeded is None,
            schema=self.task.schema,
            notes=notes,
            program_text=model.program.text if model is not None and model.generated else None,
            posterior=self.fitted.posterior_of(output),
        )

    def _settings(self, rows: int, noise: str) -> dict[str, Any]:
        """What a release says of itself; public."""
        return {
            **self.fitted.settings,
            "rows": rows,
            **({"n": len(self.task.table)} if self.task.schema.rows.public else {}),
            "public_rows": self.task.rows,
            "synthesised": [column.name for column in self.synthesised],
            "noise": noise,
        }

    def check_sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float | None = None,
        rows: int | None = None,
    ) -> Guarantee:
        """The guarantee of a sample, or what is wrong with it, before anything private is drawn.

        What ``sample`` raises after it would tell something of a private draw.
        """
        claim = self.guarantee.for_datasets(datasets, delta)
        self.mechanism.check_datasets(datasets, self.task.settings)
        claim.require(accept)
        self.fitted.check_outputs(-(-datasets // self._shared(datasets)))
        schema = self.task.schema
        if rows is not None:
            check_room(rows, len(schema.columns), datasets)
            self._check_rows(rows)
        elif not schema.rows.share:  # a noisy number is private here
            check_room(self.task.rows, len(schema.columns), datasets)
        return claim

    def _shared(self, datasets: int) -> int:
        """Data sets made of each private output."""
        return self.mechanism.sets_per_output or datasets

    def _check_rows(self, rows: int) -> None:
        """Raise GuaranteeError unless a data set can have so many."""
        public = [c.name for c in self.task.schema.columns.values() if c.public]
        if public and rows != len(self.task.table):
            raise GuaranteeError(
                f"rows = {rows}: column {public[0]!r} is public and released as it is, so there "
                "are as many rows as records. Leave rows out."
            )
        most = self.fitted.most_rows(self.task.rows)
        if most is None:
            return
        if self.task.schema.rows.share:  # whether there are enough would tell their number
            raise GuaranteeError(
                f"rows = {rows}: mechanism {self.mechanism.name!r} pays for every row, and their "
                "number is noisy. Leave rows out, or declare a number in the schema."
            )
        if rows > most:
            raise GuaranteeError(
                f"rows = {rows}: mechanism {self.mechanism.name!r} pays for every row, here for "
                f"{most}. Declare rows = {rows} in the schema, or ask for fewer."
            )

    def __repr__(self) -> str:
        return f"<Fit of {len(self.task.table)} records; {self.guarantee}>"

    def _repr_html_(self) -> str:
        findings = {} if self.task.model is None else {"model": self.task.model.program.name}
        return card(
            "Fit: confidential",
            {
                "mechanism": self.mechanism.name,
                "records": f"{len(self.task.table):,}",
                "synthetic": ", ".join(column.name for column in self.synthesised),
                **findings,
                "guarantee": str(self.guarantee),
                "next": "fit.summary(), fit.plot(), fit.check(); fit.sample() alone may leave",
            },
        )
