"""The fit of any mechanism to the records, and the drawing of releases from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.interrupts import stop_if_interrupted
from dpbayes.core.lazy import pd, xr
from dpbayes.core.markup import card
from dpbayes.core.threads import one_thread
from dpbayes.core.versions import versions
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.progress import progress_of
from dpbayes.mechanisms.base import F_co, Findings, Mechanism, Task
from dpbayes.mechanisms.forecast import Forecast
from dpbayes.mechanisms.predictive import Check
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.privacy.noise import SecureNoise, StudyNoise
from dpbayes.schema import Column, Schema
from dpbayes.schema.rows import check_room
from dpbayes.stan.model import Model
from dpbayes.synthesis.release import Release, assemble, released_names
from dpbayes.synthesis.saved_fit import parameters, plotted, save

if TYPE_CHECKING:
    import arviz_stats
    from matplotlib.figure import Figure


def refuse_other_rows(schema: Schema, model: Model | None, rows: int, records: int) -> None:
    """Raise GuaranteeError if data sets must have as many rows as there are records, and do not."""
    if rows == records:
        return
    public = [
        f"column {c.name!r} is public and released as it is"
        for c in schema.columns.values()
        if c.public
    ]
    given = () if model is None else model.constants_at(np.arange(records), records)
    fixed = (*public, *(f"constant {name!r} has a value for each record" for name in given))
    if fixed:
        raise GuaranteeError(
            f"`rows` = {rows}: {fixed[0]}, so there are as many rows as records. Leave `rows` out."
        )


@dataclass(frozen=True, repr=False)
class Fit(Generic[F_co]):
    """A mechanism fitted to records. Confidential, except for the releases of ``sample``.

    Attributes:
        mechanism: the mechanism, whose settings are public.
        claimed: the claim for one data set, made before the records were seen.
        task: the validated records, and what the mechanism used to model them.
        fitted: the mechanism's own result; a ``PosteriorFit`` has draws, diagnostics and risk.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> fit = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1)).fit(records)
        >>> fit.sample(datasets=2).guarantee.lines()[0]
        'ε = 1.95 when one record is added or removed (δ = 0).'
    """

    mechanism: Mechanism[F_co]
    claimed: Guarantee
    task: Task
    fitted: F_co

    @property
    def records(self) -> pd.DataFrame:
        """The validated confidential records. DataError if they came in chunks."""
        return self.task.records

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that stores finished chains, or None."""
        return self.task.checkpoint

    @property
    def synthesised(self) -> tuple[Column, ...]:
        """Columns whose values are synthetic."""
        return self.fitted.synthesised

    @property
    def guarantee(self) -> Guarantee:
        """The claim for one data set; for m of them: ``guarantee.for_datasets(m, delta)``."""
        return self.claimed

    @property
    def outlook(self) -> Forecast:
        """Forecast of a release from public facts, including a number of rows that it pays for."""
        task, rows = self.task, max(1, self.task.rows)
        outlook = self.mechanism.outlook(task.schema, rows, task.model)
        left_out = () if task.model is None else task.model.left_out
        return outlook.for_release(self.guarantee.delta, rows, task.rows_sd, task.schema, left_out)

    @one_thread()
    def check(self, replicates: int = 20) -> Check:
        """Check whether the family fits, by posterior predictive checks. Confidential.

        Args:
            replicates: number of replicated data sets that the records are compared with.
        Returns:
            a ``Check``: a table of figures that fit or do not, and quantile residuals.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return self.fitted.check(replicates)

    def to_datatree(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, thin: int = 1
    ) -> xr.DataTree:
        """The posterior from which data sets are drawn, as an ArviZ tree. Confidential.

        It has groups ``posterior`` and ``sample_stats``, with coefficients and intercepts in the
        covariates' own units, and the names of covariates, levels and groups on the axes. Further
        groups are computed draw by draw on request, and ``observed_data`` is added to them.

        Args:
            log_likelihood: add log p(record | draw) of each outcome, without weights or clamp.
            posterior_predictive: add a replicate of the records at each draw.
            thin: take every ``thin``-th draw.
        Raises:
            GuaranteeError: the mechanism draws from no model.
            DataError: a group would not fit in memory, or there is no record.
        """
        return self.fitted.to_datatree(
            log_likelihood=log_likelihood, posterior_predictive=posterior_predictive, thin=thin
        )

    def summary(self) -> pd.DataFrame:
        """Mean, sd, interval, effective sample size and R-hat by parameter (ArviZ). Confidential.

        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return parameters(self.to_datatree())

    def loo(self) -> arviz_stats.ELPDData:
        """Leave-one-out expected log predictive density, by ArviZ. Confidential.

        ``arviz_stats.loo`` on the tree would assume draws of the plain posterior; this method
        accounts for weights and clamp.

        Returns:
            ``arviz_stats.ELPDData``.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return self.fitted.loo()

    def plot(self, kind: str = "check") -> Figure:
        """Plot the fit, with the CONFIDENTIAL mark.

        Args:
            kind: ``check``: records and replicates of them; ``lipschitz``: by-record bounds.
        Raises:
            GuaranteeError: the mechanism draws from no model.
        """
        return plotted(self, kind)

    def save(self, folder: str | Path) -> Path:
        """Write the results of the fit to a new folder that only its owner can open. Confidential.

        It contains draws, diagnostics, weights, bounds and the claim, as a job's confidential/
        does, but no records, and without these no data set can be drawn from it. ``dpbayes.load``
        reads it. To resume chains after a crash, pass a checkpoint to ``Synthesizer.fit``.

        Raises:
            OutputError: the folder exists already, or is inside a release.
        """
        return save(self.findings(), folder)

    @one_thread()
    def findings(self) -> Findings:
        """Results for the confidential reports; slow where they need an unweighted fit."""
        findings = self.fitted.findings()
        claim = {"guarantee": self.guarantee.to_dict(), "warnings": list(findings.warnings)}
        return replace(findings, summary={**claim, **findings.summary})

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

        Every call spends the mechanism's epsilon again for each private output; the guarantee
        returned covers the data sets of this call only.

        Args:
            datasets: number m of data sets. Each has a private output of its own, or shares one
                with others (``Mechanism.sets_per_output``).
            accept: the weakest claim to accept: ``strict``, ``asymptotic`` or ``none``.
            delta: the δ at which ε is stated: 0 adds epsilons up, above 0 zCDP is used where it
                gives a smaller total; by default that of the mechanism's claim, 0 for most.
            rows: number of rows of each data set; by default the public number. Most mechanisms
                pay for parameters and not for rows; with public columns there are as many rows as
                records.
            seed: for studies and tests only: a seeded result cannot be released. None takes
                randomness from the operating system.
        Raises:
            GuaranteeError: the mechanism's claim is weaker than ``accept``; bad arguments; OpenDP
                is missing and there is no seed.
        """
        empty = self.empty_release(datasets, accept=accept, delta=delta, rows=rows)
        return self.filled(empty, seed)

    def empty_release(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float | None = None,
        rows: int | None = None,
    ) -> Release:
        """The release that ``sample`` would give, with data sets of no rows: nothing is drawn.

        Args:
            datasets, accept, delta, rows: as in ``sample``.
        Raises:
            GuaranteeError, ConvergenceError: as ``sample``.
        """
        claim = self.check_sample(datasets, accept=accept, delta=delta, rows=rows)
        model = self.task.model
        no_rows = pd.DataFrame(
            columns=released_names(self.task.schema, [c.name for c in self.synthesised])
        )
        return Release(
            datasets=(no_rows,) * datasets,
            guarantee=claim,
            program=None if model is None else model.program.name,
            program_sha256=None if model is None else model.program.sha256,
            versions={**versions("dpbayes"), **self.fitted.versions()},
            settings=self._settings(datasets, self.task.rows if rows is None else rows),
            schema=self.task.schema,
            notes=self.outlook.at_delta(claim.delta, self.task.rows).notes,
            program_text=model.program.text if model is not None and model.generated else None,
        )

    @one_thread()
    def filled(self, empty: Release, seed: int | None = None) -> Release:
        """Draw the data sets of an ``empty_release`` of this fit. This spends ε.

        Args:
            empty: a release without rows.
            seed: as in ``sample``.
        """
        datasets, rows = len(empty.datasets), empty.settings["rows"]
        owed = self.guarantee.for_datasets(datasets, empty.guarantee.delta).loss
        if (empty.guarantee.loss, empty.settings) != (owed, self._settings(datasets, rows)):
            raise GuaranteeError("the release to fill was made for another fit.")
        noise = SecureNoise() if seed is None else StudyNoise(seed)
        shared, fitted = self._shared(datasets), self.fitted.for_datasets(datasets)
        outputs = fitted.draw_outputs(-(-datasets // shared), noise)
        frames = []
        with progress_of(datasets, "data sets", shown=self.task.settings.progress) as made:
            for number in range(datasets):
                stop_if_interrupted()
                if number % shared == 0:
                    output = next(outputs)
                synthetic = fitted.synthetic(output, rows, noise.rng)
                if (
                    self.task.schema.units(synthetic) != rows
                ):  # perhaps that of the records, which nothing paid for
                    raise GuaranteeError(
                        f"mechanism {self.mechanism.name!r} made another number of rows than it "
                        "was asked for: ``synthetic`` has to return as many as its argument says."
                    )
                public = self.task.table.public
                frames.append(assemble(self.task.schema, public, synthetic, noise.rng))
                made()
        seeded = self.task.settings.seed is not None
        return replace(
            empty,
            datasets=tuple(frames),
            settings={
                **empty.settings,
                **fitted.told(output),
                "noise": StudyNoise.name if seeded else noise.name,
            },
            releasable=noise.releasable and not seeded,
            posterior=fitted.posterior_of(output),
        )

    def _settings(self, datasets: int, rows: int) -> dict[str, Any]:
        """Settings that a release reports; public."""
        return {
            **self.fitted.for_datasets(datasets).settings,
            "rows": rows,
            **({"n": len(self.task.table)} if self.task.schema.rows.public else {}),
            "public_rows": self.task.rows,
            "synthesised": [column.name for column in self.synthesised],
            "noise": SecureNoise.name,
        }

    def check_sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float | None = None,
        rows: int | None = None,
    ) -> Guarantee:
        """The guarantee of a sample; raises all that ``sample`` would, before any private draw.

        An error raised after a private draw could reveal something of it.
        """
        claim = self.guarantee.for_datasets(datasets, delta)
        self.mechanism.check_datasets(datasets, self.task.settings)
        claim.require(accept)
        self.fitted.check_outputs(-(-datasets // self._shared(datasets)))
        schema = self.task.schema
        if rows is not None:
            check_room(schema.most_rows(rows), len(schema.columns), datasets)
            self._check_rows(rows)
        elif not schema.rows.share:  # an error could reveal a noisy number
            check_room(schema.most_rows(self.task.rows), len(schema.columns), datasets)
        return claim

    def datasets_of(self, asked: int | None, rows: int | None = None) -> int:
        """Number of data sets of a release that asks for this number, or for none.

        Args:
            rows: number of rows of each; by default as many as the fit's public number.
        """
        schema = self.task.schema
        values = schema.most_rows(rows or self.task.rows) * len(schema.columns)
        return self.mechanism.datasets_of(asked, values)

    def _shared(self, datasets: int) -> int:
        """Number of data sets computed from each private output."""
        return self.mechanism.sets_per_output or datasets

    def _check_rows(self, rows: int) -> None:
        """Raise GuaranteeError unless a data set can have this number of rows."""
        refuse_other_rows(self.task.schema, self.task.model, rows, len(self.task.table))
        most = self.fitted.most_rows(self.task.rows)
        if most is None:
            return
        if self.task.schema.rows.share:  # an error would reveal the noisy number
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
        model = {} if self.task.model is None else {"model": self.task.model.program.name}
        return card(
            "Fit: confidential",
            {
                "mechanism": self.mechanism.name,
                "records": f"{len(self.task.table):,}",
                "synthetic": ", ".join(column.name for column in self.synthesised),
                **model,
                "guarantee": str(self.guarantee),
                "next": "fit.summary(), fit.plot(), fit.check(); fit.sample() alone may leave",
            },
        )
