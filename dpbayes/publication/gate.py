"""The release gate: account first, write where nobody looks, and let it appear in one step.

1. Reserve the cost in the ledger.
2. Draw the data sets in memory, and make empty files of the right size in OUT/.dpbayes-ENTRY.
3. Move the entry to ``writing``, and only then write a byte of synthetic data.
4. Flush to disk, rename to OUT/release, move the entry to ``released``.

A crash before 3 leaves a reserved entry, which ``resolve`` can void: no data set was written.
A crash after 3 leaves a writing entry, which ``resolve`` finishes if the files are whole.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpbayes.errors import LedgerError
from dpbayes.fit import Fit
from dpbayes.mechanisms.base import Findings
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import (
    CONFIDENTIAL,
    RELEASE,
    Output,
    Work,
    as_output_error,
    held,
)
from dpbayes.release import Release
from dpbayes.report.report import fit_report, release_report
from dpbayes.schema.fingerprint import content_digest


@dataclass(frozen=True)
class Terms:
    """How much of a fit is released, and which account pays.

    Attributes:
        datasets, accept, delta: as in ``Fit.sample``.
        seed: for studies and tests only.
        ledger: account for the release in it, as one of data set ``dataset``.
        note: for the ledger's history.
    """

    datasets: int = 1
    accept: Basis = "strict"
    delta: float = 0.0
    seed: int | None = None
    ledger: Ledger | None = None
    dataset: str = ""
    note: str = ""


@dataclass(frozen=True)
class Published:
    """A release on disk, and what its fit says of the records (confidential)."""

    release: Release
    findings: Findings


def publish(
    fit: Fit[Any],
    out: str | Path,
    datasets: int = 1,
    *,
    accept: Basis = "strict",
    delta: float = 0.0,
    seed: int | None = None,
    ledger: Ledger | None = None,
    dataset: str = "",
    note: str = "",
) -> Release:
    """Draw m data sets and write OUT/release and OUT/confidential.

    Args:
        out: a new folder, or one that holds no release; of this process alone meanwhile.
        datasets, accept, delta, seed, ledger, dataset, note: as in ``Terms``.
    Raises:
        BudgetError: the budget does not admit it; nothing was drawn or written.
        OutputError: in use, disk full, no permission. The message says whether the cost counts.
    """
    terms = Terms(datasets, accept, delta, seed, ledger, dataset, note)
    with held(Path(out)) as output:
        return release_into(output, fit, terms).release


def release_into(output: Output, fit: Fit[Any], terms: Terms) -> Published:
    """As ``publish``, into a folder that is held already."""
    claim = fit.guarantee.for_datasets(terms.datasets, terms.delta)
    claim.require(terms.accept)
    fit.mechanism.check_release(terms.seed)
    if terms.seed is None and fit.mechanism.reproducible:
        terms = replace(terms, seed=secrets.randbits(128))
    findings = fit.findings()  # slow, so before anything is reserved
    payment = _Payment(terms)
    payment.reserve(claim, content_digest(fit.given), output.path)
    work = Work(output.path, payment.entry)
    try:
        with as_output_error(output.path, "Nothing was released."):
            release, files = _prepare(work, fit, findings, terms, payment)
        payment.writing()
    except BaseException:
        work.discard()
        payment.void()
        raise
    try:
        with as_output_error(output.path, f"The release was not finished.{payment.reminder}"):
            work.write(files)
            work.appear()
    except BaseException:
        if terms.ledger is None:  # otherwise ``resolve`` decides what becomes of it
            work.discard()
        raise
    payment.released(output.path)
    return Published(release, findings)


def _prepare(
    work: Work, fit: Fit[Any], findings: Findings, terms: Terms, payment: _Payment
) -> tuple[Release, dict[str, bytes]]:
    """The draws and every file in memory, and space on the disk for them."""
    reports = fit_report(findings)
    release = fit.sample(terms.datasets, accept=terms.accept, delta=terms.delta, seed=terms.seed)
    release = replace(release, ledger=payment.public())
    reports |= release_report(fit, release, terms.seed)
    files = {f"{RELEASE}/{name}": content for name, content in release.files().items()}
    files |= {f"{CONFIDENTIAL}/{name}": content for name, content in reports.items()}
    work.make()
    work.allocate(files)
    return release, files


@dataclass(frozen=True)
class _Payment:
    """A release's entry in the ledger, step by step; without a ledger nothing is kept."""

    terms: Terms
    entry: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def ledger(self) -> Ledger | None:
        return self.terms.ledger

    @property
    def reminder(self) -> str:
        """For errors after the cost has begun to count."""
        if self.ledger is None:
            return ""
        return f" The cost counts: entry {self.entry}, `dpbayes ledger resolve`."

    def reserve(self, claim: Guarantee, digest: bytes, out: Path) -> None:
        if self.ledger is not None:
            dataset, note = self.terms.dataset, self.terms.note
            self.ledger.reserve(dataset, claim, digest, self.entry, out.absolute(), note)

    def public(self) -> Mapping[str, Any] | None:
        """What the release says of it."""
        if self.ledger is None:
            return None
        account = self.ledger.account(self.terms.dataset)
        return {
            "entry": self.entry,
            "budget_epsilon": account.budget.epsilon,
            "budget_delta": account.budget.delta,
            "budget_adjacency": account.adjacency,
        }

    def writing(self) -> None:
        if self.ledger is not None:
            self.ledger.writing(self.entry)

    def void(self) -> None:
        if self.ledger is not None:
            with contextlib.suppress(LedgerError):  # then it stays reserved, and counts
                self.ledger.void(self.entry)

    def released(self, out: Path) -> None:
        if self.ledger is None:
            return
        try:
            self.ledger.released(self.entry)
        except LedgerError as error:
            raise LedgerError(
                f"the release is in {out / RELEASE} and counts, but its entry could not be closed: "
                f"{error} Run `dpbayes ledger resolve` later."
            ) from None
