"""Release gate: reserve the cost, write to a hidden folder, and publish by one rename.

1. Reserve the cost in the ledger; a job does it before a fit that draws a noisy number of rows.
2. Draw the data sets in memory, and make empty files of a public size in OUT/.dpbayes-ENTRY.
3. Move the entry to ``writing``, and only then write synthetic data. From here on no signal
   interrupts the work until the release is in place.
4. Flush to disk, rename to OUT/release, move the entry to ``released``.
5. Write the confidential report, which no longer affects the release.

A crash before 3 leaves a reserved entry, which ``resolve`` can void: no data set was written. With
a noisy number of rows the entry is in ``writing`` from 1 on: how a fit ends depends on the number.
A crash after 3 leaves a writing entry, which ``resolve`` finishes if the files are whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dpbayes.core.errors import DpbayesError
from dpbayes.core.interrupts import breakable, finish, uninterrupted
from dpbayes.mechanisms.base import Findings
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import RELEASE, Output, Work, as_output_error, held
from dpbayes.publication.payment import Payment
from dpbayes.publication.room import room
from dpbayes.publication.terms import NO_LEDGER, UNACCOUNTED, Say, Terms, require_secret_seed
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.formats.catalog import CSV, writer
from dpbayes.records.overlap import Identity
from dpbayes.report.report import UTILITY, check_report, fit_report, release_report
from dpbayes.report.utility_warnings import told
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import STATEMENT, Release

T = TypeVar("T")
STATEMENT_UNIT = 2**14  # bytes: the space for guarantee.json is rounded up to a multiple


def publish(
    fit: Fit[Any],
    out: str | Path,
    datasets: int = 1,
    *,
    accept: Basis = "strict",
    delta: float | None = None,
    rows: int | None = None,
    ledger: Ledger | None = None,
    dataset: str = "",
    note: str = "",
    file_format: str = CSV,
    say: Say = print,
) -> Release:
    """Draw m data sets and write OUT/release, then OUT/confidential.

    Args:
        fit: the fit to draw from.
        out: a new folder, or one that holds no release; it is locked meanwhile.
        datasets, accept, delta, rows, ledger, dataset, note, file_format: as in ``Terms``.
        say: receives messages: there is no ledger, or the confidential report is incomplete.
    Raises:
        GuaranteeError: the guarantee is weaker than ``accept``, or a seed was set.
        BudgetError: the budget does not admit the release; nothing was drawn or written.
        OutputError: the folder is in use, the disk full, or permission is missing. The message
            says whether the cost counts.
    """
    terms = Terms(datasets, accept, delta, rows, ledger, dataset, note, file_format)
    with held(Path(out)) as output:
        release = release_into(output, fit, terms, say)
        report_into(output, fit, release, say)
    return release


def release_into(
    output: Output,
    fit: Fit[Any],
    terms: Terms,
    say: Say = print,
    reserved: Payment | None = None,
) -> Release:
    """Run steps 1 to 4 of the gate in a folder that is locked already.

    Args:
        reserved: entry that was reserved before the fit (``paid_fit``); by default a new one.
    """
    fit.check_sample(terms.datasets, accept=terms.accept, delta=terms.delta, rows=terms.rows)
    require_secret_seed(fit.task.settings)
    fit.mechanism.check_release()
    writer(terms.file_format).check(fit.task.schema)
    if terms.ledger is None:
        say(NO_LEDGER)
    payment = terms.payment() if reserved is None else reserved
    work = Work(output.path, payment.entry)
    identity = identity_of(fit.task.table) if reserved is None else None
    with contextlib.ExitStack() as to_the_end:
        try:
            if identity is not None:
                with uninterrupted():
                    payment.reserve(_owed(fit.guarantee, terms), identity, output.path)
            with as_output_error(output.path, "Nothing was released."):
                with payment.counted():
                    release = _draw(fit, terms, payment)
                    files = release.files(terms.file_format)
                work.allocate(_space(fit, terms, files))
            to_the_end.enter_context(uninterrupted())
            payment.writing()
        except BaseException:
            with uninterrupted(look=False):
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
        payment.released(f"the release is in {output.path / RELEASE}")
        finish()
    return release


def paid_fit(
    output: Output,
    make: Callable[[], Fit[Any]],
    claim: Guarantee,
    identity: Identity,
    terms: Terms,
    say: Say,
) -> tuple[Fit[Any], Payment]:
    """Reserve the cost of a release, then make its fit, which draws a noisy number of rows.

    Bins and other settings follow the number, and the fit may fail because of it, or be killed for
    the memory or time that it takes. How it ends shows something of the number: the entry goes to
    ``writing`` first, so that its cost counts however that is.
    """
    payment = terms.payment()
    with uninterrupted():
        payment.reserve(_owed(claim, terms), identity, output.path)
        payment.writing()
    try:
        with payment.counted():
            fit = make()
            fit.check_sample(
                terms.datasets, accept=terms.accept, delta=terms.delta, rows=terms.rows
            )
    except BaseException:
        if terms.ledger is not None:
            say(f"The fit ended after its number of rows was drawn.{payment.reminder}")
        raise
    return fit, payment


def _owed(claim: Guarantee, terms: Terms) -> Guarantee:
    """Guarantee that the release's ledger entry pays for, by the claim for one data set."""
    guarantee = claim if terms.owed is None else terms.owed
    return guarantee.for_datasets(terms.datasets, terms.delta)


def _draw(fit: Fit[Any], terms: Terms, payment: Payment) -> Release:
    """Draw the data sets in memory, and add the public facts of the ledger entry."""
    release = fit.sample(terms.datasets, accept=terms.accept, delta=terms.delta, rows=terms.rows)
    if terms.ledger is None:
        return replace(release, guarantee=release.guarantee.assuming(UNACCOUNTED))
    return replace(release, ledger=payment.public())


def _space(fit: Fit[Any], terms: Terms, files: dict[str, bytes]) -> dict[str, int]:
    """Bytes to allocate for each file before the release is paid for, from public facts alone.

    A noisy number of rows is not public yet: if it determines the size, nothing is allocated.
    """
    schema = fit.task.schema
    rows = terms.rows
    if rows is None:
        rows = 0 if schema.rows.kind == "noisy" else fit.task.rows
    released = [c for c in schema.columns.values() if c.public or c in fit.synthesised]
    data = room(released, rows, terms.file_format) if rows else 0
    statement = -(-len(files[STATEMENT]) // STATEMENT_UNIT) * STATEMENT_UNIT if rows else 0
    return {name: statement if name == STATEMENT else data for name in files}


def report_into(
    output: Output, fit: Fit[Any], release: Release, say: Say = print
) -> Findings | None:
    """Run step 5 of the gate: write the confidential report of the fit and its utility.

    It may need another fit, as risks are measured under an unclamped one, which may not exist or
    converge. The release exists and its entry is closed: a failure here is reported in a line and
    raises no error.

    Returns:
        Findings of the fit with warnings about utility; None if they could not be computed.
    """

    findings = _attempt(fit.findings, say)
    if findings is not None:
        _attempt(lambda: output.keep(fit_report(findings)), say)
    _attempt(lambda: output.keep(check_report(fit)), say)
    measures = _attempt(lambda: release_report(fit, release), say)
    if measures is None:
        return findings
    _attempt(lambda: output.keep(measures), say)
    if findings is None:
        return None
    warnings = told(findings.warnings, json.loads(measures[UTILITY]))
    return replace(findings, warnings=tuple(warnings))


def _attempt(work: Callable[[], T], say: Say) -> T | None:
    """Result of ``work``; None if it failed or was interrupted."""
    try:
        with breakable():
            return work()
    except (Exception, KeyboardInterrupt) as error:
        # Only our own messages are known to repeat no value of a record.
        ours = isinstance(error, DpbayesError | OSError)
        why = str(error) if ours else type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            why = "interrupted."
        say(f"The confidential report is incomplete: {' '.join(why.split())}")
        return None
