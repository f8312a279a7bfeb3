"""A mechanism with the records, whichever mechanism it is, and the drawing of releases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic

from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.heavy import pd
from dpbayes.mechanisms.base import F_co, Findings, Mechanism, Task
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.privacy.noise import SecureNoise, StudyNoise
from dpbayes.release import Release, assemble, versions
from dpbayes.schema import Column


@dataclass(frozen=True, repr=False)
class Fit(Generic[F_co]):
    """A mechanism with the records. All of it is confidential; only what ``sample`` returns is not.

    Attributes:
        mechanism: whose settings are public.
        claimed: for one data set, before the records were seen.
        task: the validated records, and what the mechanism used to model them.
        given: the records as they were given, from which the ledger knows them again.
        fitted: what the mechanism keeps of them; a ``PosteriorFit`` has draws, diagnostics, risk.
    """

    mechanism: Mechanism[F_co]
    claimed: Guarantee
    task: Task
    given: pd.DataFrame
    fitted: F_co

    @property
    def records(self) -> pd.DataFrame:
        """The validated confidential records."""
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
        return self.fitted.guarantee(self.claimed)

    def findings(self) -> Findings:
        """What the fit says of the records. Confidential, and slow where it asks for a fit."""
        found = self.fitted.findings()
        return replace(found, summary={"guarantee": self.guarantee.to_dict(), **found.summary})

    def sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float = 0.0,
        seed: int | None = None,
    ) -> Release:
        """Draw synthetic data sets.

        Every call spends the mechanism's epsilon once more per private output; the guarantee
        returned covers the data sets of this call only.

        Args:
            datasets: number m of data sets. Each has a private output of its own, or shares one
                with others (``Mechanism.sets_per_output``).
            accept: the weakest claim that will do: ``strict``, ``asymptotic`` or ``none``.
            delta: 0 adds epsilons up; above 0 zCDP is used where it gives a smaller total.
            seed: for studies and tests only; None takes randomness from the operating system.
                Mechanisms that are not ``reproducible`` give a result that is not for release.
        Raises:
            GuaranteeError: the mechanism's claim is weaker than ``accept``; bad arguments; OpenDP
                is missing and there is no seed.
        """
        claim = self.guarantee.for_datasets(datasets, delta)
        self.mechanism.check_datasets(datasets, self.task.settings)
        claim.require(accept)
        noise = SecureNoise() if seed is None else StudyNoise(seed)
        shared = self.mechanism.sets_per_output or datasets
        outputs = self.fitted.outputs(-(-datasets // shared), noise)
        frames = []
        for number in range(datasets):
            if number % shared == 0:
                output = next(outputs)
            synthetic = self.fitted.synthetic(output, noise.rng)
            frames.append(assemble(self.task.schema, self.records, synthetic, noise.rng))
        model = self.task.model
        return Release(
            datasets=tuple(frames),
            guarantee=claim,
            program=None if model is None else model.program.name,
            program_sha256=None if model is None else model.program.sha256,
            versions={**versions("dpbayes"), **self.fitted.versions()},
            settings={
                **self.fitted.settings,
                "n": len(self.records),
                "synthesised": [column.name for column in self.synthesised],
                **({} if self.mechanism.reproducible else {"noise": noise.name}),
            },
            releasable=noise.releasable or self.mechanism.reproducible,
        )

    def __repr__(self) -> str:
        return f"<Fit of {len(self.records)} records; {self.guarantee}>"
