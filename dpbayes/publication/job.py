"""The whole job: plan, budget, choice, fit, release. What ``dpbayes synthesize`` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbayes.choice import check_candidates, choice_loss, choose_program
from dpbayes.errors import GuaranteeError, LedgerError
from dpbayes.fit import Fit
from dpbayes.heavy import pd
from dpbayes.mechanisms.base import Findings
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.publication.account import Account
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import check_output, held
from dpbayes.release import Release
from dpbayes.schema.fingerprint import content_digest
from dpbayes.synthesizer import Synthesizer

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a job came to.

    Attributes:
        release: what may leave; it is in OUT/release.
        fit, findings: confidential.
        account: what the data set has spent and has left; None without a ledger.
    """

    release: Release
    fit: Fit[Any]
    findings: Findings
    account: Account | None


@dataclass(frozen=True)
class Job:
    """A release that is planned from public facts; ``run`` takes the records.

    Attributes:
        candidates: one synthesizer, or several to choose from by their model.
        out: a new folder for release/ and confidential/.
        datasets, accept, delta: as in ``Fit.sample``.
        choose_epsilon: of the choice among several candidates, paid once.
        ledger: account for the release in it, as one of data set ``dataset``.
        note: for the ledger's history.
        seed: of the release; for studies and tests only.
        allow_nonconvergence: release although chains have not converged.

    Raises:
        GuaranteeError, LedgerError, OutputError: at construction, whatever needs no record to be
            refused.
    """

    candidates: tuple[Synthesizer[Any], ...]
    out: Path
    datasets: int = 1
    accept: Basis = "strict"
    delta: float = 0.0
    choose_epsilon: float | None = None
    ledger: Ledger | None = None
    dataset: str = ""
    note: str = ""
    seed: int | None = None
    allow_nonconvergence: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        object.__setattr__(self, "out", Path(self.out))
        if (self.ledger is None) != (not self.dataset):
            raise LedgerError("ledger and dataset, its name there, go together.")
        if self.choose_epsilon is not None:
            check_candidates(self.candidates)
        elif len(self.candidates) != 1:
            raise GuaranteeError(
                f"{len(self.candidates)} candidates: give one, or choose_epsilon to choose one."
            )
        check_output(self.out)
        self.claim.require(self.accept)
        for candidate in self.candidates:
            candidate.mechanism.check_datasets(self.datasets, candidate.settings)
            candidate.mechanism.check_release(self.seed)

    @property
    def claim(self) -> Guarantee:
        """For all data sets and the choice, before anything is computed from records."""
        claim = self.candidates[0].guarantee()
        if self.choose_epsilon is not None:
            cost = choice_loss(self.choose_epsilon, claim.adjacency)
            claim = self.candidates[0].having_paid(cost, "the choice of a program").guarantee()
        return claim.for_datasets(self.datasets, self.delta)

    def run(self, records: pd.DataFrame, say: Say = lambda text: None) -> Outcome:
        """Choose, fit, release. After a crash the same job goes on with the finished chains.

        Args:
            records: n confidential rows with every column of the schema.
            say: takes lines on the way: the program chosen, chains of an earlier run.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError: as ``Synthesizer.fit``.
            BudgetError, LedgerError, OutputError: as ``publish``, and before the fit if possible.
        """
        # Not above: it draws figures, and matplotlib takes long to import.
        from dpbayes.publication.gate import Terms, release_into

        with held(self.out) as output:
            if self.ledger is not None:
                self.ledger.check(self.dataset, self.claim, content_digest(records))
            fit = self._chosen(records, say).fit(
                records,
                allow_nonconvergence=self.allow_nonconvergence,
                checkpoint=output.checkpoint,
            )
            _say_what_was_kept(fit, say)
            terms = Terms(
                self.datasets,
                self.claim.basis,
                self.delta,
                self.seed,
                self.ledger,
                self.dataset,
                self.note,
            )
            published = release_into(output, fit, terms)
            if fit.checkpoint is not None:
                fit.checkpoint.clear()
        account = None if self.ledger is None else self.ledger.account(self.dataset)
        return Outcome(published.release, fit, published.findings, account)

    def _chosen(self, records: pd.DataFrame, say: Say) -> Synthesizer[Any]:
        if self.choose_epsilon is None:
            return self.candidates[0]
        adjacency = self.claim.adjacency
        choice = choose_program(self.candidates, records, self.choose_epsilon, adjacency=adjacency)
        assert choice.synthesizer.model is not None  # candidates differ in it
        say(f"Chosen program: {choice.synthesizer.model.program.name}.")
        return choice.synthesizer


def _say_what_was_kept(fit: Fit[Any], say: Say) -> None:
    if fit.checkpoint is None:
        return
    if fit.checkpoint.set_aside is not None:
        say(fit.checkpoint.set_aside)
    if fit.checkpoint.reused:
        say(f"Went on with {fit.checkpoint.reused} chains of an earlier run.")
