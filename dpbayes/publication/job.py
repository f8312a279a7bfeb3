"""The whole job of ``dpbayes synthesize``: plan, budget check, choice, fit and release."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpbayes.core.checks import PATH, expect
from dpbayes.core.errors import GuaranteeError, LedgerError, OutputError
from dpbayes.core.frames import Frame
from dpbayes.mechanisms.base import Findings
from dpbayes.mechanisms.forecast import NOISE_IN_ROWS, noisy_rows
from dpbayes.privacy.accounting import NOTHING, Loss
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.privacy.noise import opendp
from dpbayes.publication.account import Account
from dpbayes.publication.choosing import Choosing
from dpbayes.publication.ledger import A_LEDGER, Ledger
from dpbayes.publication.output import Output, check_output, held
from dpbayes.publication.payment import Payment
from dpbayes.publication.terms import Say, Terms, require_secret_seed
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import Chunks, Table
from dpbayes.records.formats.catalog import CSV, writer
from dpbayes.records.overlap import Identity
from dpbayes.schema.rows import check_room
from dpbayes.synthesis.choice import CHOICE, check_candidates, choice_loss, of_record
from dpbayes.synthesis.fit import Fit, refuse_other_rows
from dpbayes.synthesis.release import Release
from dpbayes.synthesis.synthesizer import Synthesizer, require_synthesizers

WARNING = "warning: "
NUMBERS = 1, 10**9  # of records, between which warnings that depend on the number differ


@dataclass(frozen=True)
class Outcome:
    """Result of a job.

    Attributes:
        release: the release in OUT/release, which may leave.
        fit: the fit; confidential.
        findings: findings of the report; confidential; None if they could not be computed.
        account: account of the data set after the release; None without a ledger.
    """

    release: Release
    fit: Fit[Any]
    findings: Findings | None
    account: Account | None


@dataclass(frozen=True)
class Job:
    """Release that is planned from public facts; ``run`` takes the records.

    Attributes:
        candidates: tuple of one synthesizer, or of several with different models to choose from
            privately.
        out: new folder for release/ and confidential/.
        datasets: number m of data sets; None for the mechanism's usual number
            (``Mechanism.datasets_of``).
        accept, delta, rows: as in ``Fit.sample``.
        choose_epsilon: ε of the choice among several candidates, paid once.
        ledger: ledger that accounts for the release, in the account of ``dataset``.
        dataset: name of the data set in the ledger; empty without a ledger.
        note: note for the ledger's history.
        file_format: format of the data sets: csv, parquet, feather, stata or spss.
        allow_nonconvergence: release even if chains have not converged.
        show_values: messages about records that do not fit the schema show some of their values.

    Raises:
        GuaranteeError, LedgerError, OutputError: at construction, for all that can be refused
            without the records.

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> synthesizer = dpb.Synthesizer(schema, dpb.Laplace(epsilon=1))
        >>> job = dpb.Job((synthesizer,), out="web", datasets=3)
        >>> job.claim.lines()[0]
        'ε = 2.9 when one record is added or removed (δ = 0).'
    """

    candidates: tuple[Synthesizer[Any], ...]
    out: Path
    datasets: int | None = None
    accept: Basis = "strict"
    delta: float | None = None
    rows: int | None = None
    choose_epsilon: float | None = None
    ledger: Ledger | None = None
    dataset: str = ""
    note: str = ""
    file_format: str = CSV
    allow_nonconvergence: bool = False
    show_values: bool = False

    def __post_init__(self) -> None:
        require_synthesizers(self.candidates)
        expect(self.out, PATH, "out", "the path of a folder", OutputError)
        expect(self.ledger, Ledger | None, "ledger", A_LEDGER, LedgerError)
        object.__setattr__(self, "candidates", tuple(self.candidates))
        object.__setattr__(self, "out", Path(self.out))
        if (self.ledger is None) != (not self.dataset):
            raise LedgerError("`ledger` and `dataset` go together.")
        if self.choose_epsilon is not None:
            check_candidates(self.candidates)
            opendp()
        elif len(self.candidates) != 1:
            raise GuaranteeError(
                f"{len(self.candidates)} candidates: give one, or choose_epsilon to choose one."
            )
        schema = self.candidates[0].schema
        declared = self.candidates[0].mechanism.data_rows(schema)
        rows = self.rows if self.rows is not None else declared
        if rows is not None:
            columns, rows = len(schema.columns), schema.most_rows(rows)
            number = self.candidates[0].mechanism.datasets_of(self.datasets, rows * columns)
            check_room(rows, columns, number)
        check_output(self.out)
        writer(self.file_format).rehearse(schema)
        self.claim.require(self.accept)
        for candidate in self.candidates:
            require_secret_seed(candidate.settings)
            candidate.mechanism.check_datasets(self.number, candidate.settings)
            candidate.mechanism.check_release()

    @property
    def number(self) -> int:
        """Number of data sets; of a large table a release that asks for none has fewer."""
        return self.candidates[0].mechanism.datasets_of(self.datasets)

    @property
    def claim(self) -> Guarantee:
        """Guarantee of all data sets and the choice, from public facts alone."""
        return (
            self._having_chosen(self.candidates[0])
            .guarantee()
            .for_datasets(self.number, self.delta)
        )

    def run(self, records: Frame | Chunks, say: Say = print) -> Outcome:
        """Choose, fit and release. After a crash the same job reuses the finished chains.

        Args:
            records: n confidential rows with every column of the schema, in a frame or in parts.
            say: receives messages: the program chosen, chains of an earlier run, a missing ledger,
                an incomplete confidential report.
        Raises:
            DataError, ConvergenceError, EngineError, ProgramError: as ``Synthesizer.fit``. If the
                cost counts because noise had been drawn, a message says so.
            BudgetError, LedgerError, OutputError: as ``publish``, and before the fit if possible.
        """
        # Imported here: it draws figures, and matplotlib takes long to import.
        from dpbayes.publication.gate import bill_of, release_into, report_into

        table = self._validated(records)
        known = self._warnings(len(table))
        for text in known:
            say(WARNING + text)
        with held(self.out) as output:
            chosen = self._chosen(table, output, say)
            synthesizer, terms = self._having_chosen(chosen), self._terms(chosen)
            bill = bill_of(output, synthesizer.guarantee(), table, terms)
            with bill.settled(say):
                fit = synthesizer.fit(
                    table,
                    allow_nonconvergence=self.allow_nonconvergence,
                    checkpoint=output.checkpoint,
                    pay=bill.spend,
                )
                _say_what_was_kept(fit, say)
                terms = replace(terms, datasets=fit.datasets_of(self.datasets, self.rows))
                release = release_into(output, fit, terms, bill, say)
            if self.candidates[0].schema.rows.share:  # a noisy number has now been paid for
                for text in self._warnings_at(fit, known):
                    say(WARNING + text)
            # Before the report: the release exists, so that nothing can be resumed any more.
            output.forget_choices()
            if fit.checkpoint is not None:
                fit.checkpoint.clear()
            findings = report_into(output, fit, release, say)
        return Outcome(release, fit, findings, bill.account)

    def _validated(self, records: Frame | Chunks) -> Table:
        """Validate the records for this job, before a choice is paid for."""
        table = self.candidates[0].table(records, show_values=self.show_values)
        for candidate in self.candidates if self.rows is not None else ():
            assert self.rows is not None
            refuse_other_rows(candidate.schema, candidate.model, self.rows, len(table))
            if candidate.model is not None and not candidate.model.program.bundled:
                candidate.rehearse(table, self.rows)
        return table

    def _warnings(self, records: int) -> tuple[str, ...]:
        """Warnings about this job from public facts, to which n belongs if it is public."""
        schema = self.candidates[0].schema
        if schema.rows.share:  # a noisy number is not drawn yet, but its noise is known
            sd = self.candidates[0].rows_sd
            noisy = () if sd < NOISE_IN_ROWS else (str(noisy_rows(sd, schema.counted)),)
            # What is said of hardly any records and of very many is said of any number.
            few, many = (self._outlook_warnings(number) for number in NUMBERS)
            return (*noisy, *(text for text in few if text in many))
        return self._outlook_warnings(records if schema.rows.public else schema.rows.number or 0)

    def _outlook_warnings(self, n: int) -> tuple[str, ...]:
        """Warnings of all candidates, of n records."""
        outlooks = [each.outlook(n).at_delta(self.claim.delta, n) for each in self.candidates]
        return tuple(dict.fromkeys(text for outlook in outlooks for text in outlook.warnings))

    def _warnings_at(self, fit: Fit[Any], known: Collection[str]) -> list[str]:
        """Warnings that a noisy number of rows adds to those that were given before it was drawn.

        Args:
            known: warnings that were given, without that number.
        """
        schema, sd, rows = self.candidates[0].schema, fit.task.rows_sd, fit.task.rows
        said = {*known}
        if str(noisy_rows(sd, schema.counted)) in said:
            said.add(str(noisy_rows(sd, schema.counted, f"the {rows:,} records")))
        outlook = fit.outlook.at_delta(self.claim.delta, rows)
        return [text for text in outlook.warnings if text not in said]

    def _having_chosen(self, candidate: Synthesizer[Any]) -> Synthesizer[Any]:
        """Candidate whose guarantee includes the cost of the choice."""
        if self.choose_epsilon is None:
            return candidate
        return candidate.having_paid(self._choice_loss, CHOICE)

    @property
    def _choice_loss(self) -> Loss:
        if self.choose_epsilon is None:
            return NOTHING
        return choice_loss(*of_record(self.candidates[0], self.choose_epsilon))

    def _terms(self, chosen: Synthesizer[Any]) -> Terms:
        return Terms(
            self.number,
            self.accept,
            self.delta,
            self.rows,
            self.ledger,
            self.dataset,
            self.note,
            self.file_format,
            owed=chosen.guarantee(),  # the choice has an entry of its own
        )

    def _chosen(self, table: Table, output: Output, say: Say) -> Synthesizer[Any]:
        """Candidate to fit, after a check that the budget admits all later costs."""
        identity = identity_of(table)
        if self.choose_epsilon is None:
            self._check_budget(identity)
            return self.candidates[0]
        epsilon, adjacency = of_record(self.candidates[0], self.choose_epsilon)
        payment = Payment(self.ledger, self.dataset, self.note, "choice")
        choosing = Choosing(self.candidates, epsilon, adjacency, table, identity, payment, output)
        index = choosing.kept()
        if index is None:
            self._check_budget(identity, self._choice_loss)
            index = choosing.make()
        else:
            self._check_budget(identity)
            say("Went on with the choice of an earlier run, which is paid for.")
        chosen = self.candidates[index]
        assert chosen.model is not None  # candidates differ in it
        say(f"Chosen program: {chosen.model.program.name}.")
        return chosen

    def _check_budget(self, identity: Identity, besides: Loss = NOTHING) -> None:
        """Raise BudgetError or LedgerError if the release would be refused after the fit."""
        if self.ledger is not None:
            claim = self.candidates[0].guarantee().for_datasets(self.number, self.delta)
            self.ledger.check(self.dataset, claim, identity, besides)


def _say_what_was_kept(fit: Fit[Any], say: Say) -> None:
    if fit.checkpoint is None:
        return
    if fit.checkpoint.set_aside is not None:
        say(fit.checkpoint.set_aside)
    if fit.checkpoint.reused:
        say(f"Went on with {fit.checkpoint.reused} chains of an earlier run.")
