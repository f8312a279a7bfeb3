"""Release gate: reserve the cost, write to a hidden folder, and publish by one rename.

1. Reserve the cost in the ledger, and make empty files of a public size in OUT/.dpbayes-ENTRY.
2. Move the entry to ``writing``, and only then draw noise: the data sets, in memory.
3. Write the data sets. From here on no signal interrupts the work until the release is in place.
4. Flush to disk, rename to OUT/release, move the entry to ``released``.
5. Write the confidential report, which no longer affects the release.

A fit that draws noise, such as an anchor or a noisy number of rows, moves the entry to ``writing``
before it (``Task.noise``).

A crash before 2 leaves a reserved entry, which ``resolve`` can void: nothing was drawn. A crash
after 2 leaves a writing entry, which ``resolve`` finishes if the files are whole, and otherwise
calls lost: how a run ends may depend on its noise, so that the cost counts.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dpbayes.core.checks import PATH, expect
from dpbayes.core.errors import DpbayesError, GuaranteeError, LedgerError, OutputError
from dpbayes.core.files import STATEMENT
from dpbayes.core.interrupts import breakable, finish, uninterrupted
from dpbayes.mechanisms.base import Findings
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.publication.ledger import A_LEDGER, Ledger
from dpbayes.publication.output import RELEASE, Output, Work, as_output_error, held
from dpbayes.publication.payment import Bill
from dpbayes.publication.room import room, room_of_levels, room_of_pairs, room_of_posterior
from dpbayes.publication.terms import (
    NO_LEDGER,
    OTHER_NEIGHBOURS,
    UNACCOUNTED,
    Say,
    Terms,
    require_secret_seed,
)
from dpbayes.records.chunked_overlap import identity_of
from dpbayes.records.chunks import Table
from dpbayes.records.formats.catalog import CSV, writer
from dpbayes.report.report import UTILITY, check_report, fit_report, release_report
from dpbayes.report.utility_warnings import told
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.release import POSTERIOR, Release

REPORT_FOLLOWS = (
    "The release is written. The report for you also fits the model without protection, which may "
    "take longer than the release; Ctrl-C ends it, and the release stays."
)
INCOMPLETE = "Confidential: the report is incomplete: "
T = TypeVar("T")
STATEMENT_UNIT = 2**14  # bytes: the space for guarantee.json is rounded up to a multiple


def publish(
    fit: Fit[Any],
    out: str | Path,
    datasets: int | None = None,
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
        datasets: number m of data sets; by default the mechanism's usual number
            (``Mechanism.datasets_of``).
        accept, delta, rows, ledger, dataset, note, file_format: as in ``Terms``.
        say: receives messages: there is no ledger, or the confidential report is incomplete.
    Raises:
        GuaranteeError: the guarantee is weaker than ``accept``, or a seed was set.
        BudgetError: the budget does not admit the release; nothing was drawn or written.
        ConvergenceError: a posterior given noisy statistics did not converge; the cost counts.
        OutputError: the folder is in use, the disk full, or permission is missing. The message
            says whether the cost counts.
    """
    expect(fit, Fit, "fit", "a Fit, as synthesizer.fit(records) returns it", GuaranteeError)
    expect(out, PATH, "out", "the path of a folder", OutputError)
    expect(ledger, Ledger | None, "ledger", A_LEDGER, LedgerError)
    expect(rows, int | None, "rows", "a whole number", GuaranteeError)
    expect(say, Callable, "say", "a function of a text, such as print", OutputError)  # type: ignore[arg-type]
    number = fit.datasets_of(datasets, rows)
    terms = Terms(number, accept, delta, rows, ledger, dataset, note, file_format)
    with held(Path(out)) as output:
        bill = bill_of(output, fit.guarantee, fit.task.table, terms)
        with bill.settled(say):
            release = release_into(output, fit, terms, bill, say)
        report_into(output, fit, release, say)
    return release


def bill_of(output: Output, claim: Guarantee, table: Table, terms: Terms) -> Bill:
    """Bill for a release: nothing is reserved yet.

    Args:
        claim: guarantee of one data set of the fit.
        table: the validated records.
    """
    guarantee = claim if terms.owed is None else terms.owed
    owed = guarantee.for_datasets(terms.datasets, terms.delta)
    return Bill(terms.payment(), owed, functools.partial(identity_of, table), output.path)


def release_into(
    output: Output, fit: Fit[Any], terms: Terms, bill: Bill, say: Say = print
) -> Release:
    """Run steps 1 to 4 of the gate in a folder that is locked already.

    Args:
        bill: the release's bill, which the caller settles if this fails. A fit that drew noise has
            spent it.
    """
    fit.check_sample(terms.datasets, accept=terms.accept, delta=terms.delta, rows=terms.rows)
    require_secret_seed(fit.task.settings)
    fit.mechanism.check_release()
    writer(terms.file_format).rehearse(fit.task.schema)
    if terms.ledger is None:
        say(NO_LEDGER)
    elif terms.ledger.account(terms.dataset).adjacency != fit.guarantee.holds_for:
        say(OTHER_NEIGHBOURS)
    work = Work(output.path, bill.payment.entry)
    with contextlib.ExitStack() as to_the_end:
        bill.reserve()
        empty = _empty(fit, terms, bill)
        with as_output_error(output.path, f"Nothing was released.{bill.reminder}"):
            work.allocate(_space(fit, terms, empty))
        bill.spend()
        with as_output_error(output.path, f"Nothing was released.{bill.reminder}"):
            release = fit.filled(empty)
            files = release.files(terms.file_format)
        to_the_end.enter_context(uninterrupted())
        bill.state = "written"
        try:
            with as_output_error(output.path, f"The release was not finished.{bill.reminder}"):
                work.write(files)
                work.appear()
        except BaseException:
            if terms.ledger is None:  # otherwise ``resolve`` decides what becomes of it
                work.discard()
            raise
        bill.account = bill.payment.released(f"the release is in {output.path / RELEASE}")
        work.discard()
        finish()
    return release


def _empty(fit: Fit[Any], terms: Terms, bill: Bill) -> Release:
    """The release without rows, from public facts and the facts of the ledger entry."""
    release = fit.empty_release(
        terms.datasets, accept=terms.accept, delta=terms.delta, rows=terms.rows
    )
    if terms.ledger is None:
        return replace(release, guarantee=release.guarantee.assuming(UNACCOUNTED))
    return replace(release, ledger=bill.payment.public())


def _space(fit: Fit[Any], terms: Terms, empty: Release) -> dict[str, int]:
    """Bytes to allocate for each file before the release is paid for, from public facts alone.

    A noisy number of rows is not public yet: if it determines the size, nothing is allocated.
    """
    schema = fit.task.schema
    rows = terms.rows
    if rows is None:
        rows = 0 if schema.rows.kind == "noisy" else fit.task.rows
    released = schema.released_columns(map(str, empty.datasets[0]))
    data = room(released, schema.most_rows(rows), terms.file_format) if rows else 0
    names = empty.names(terms.file_format)
    draws, numbers = fit.fitted.posterior_shape
    size = room_of_posterior(draws, numbers, schema.columns.values())
    posterior = {POSTERIOR: size} if size else {}
    hashes = dict.fromkeys([*names, *posterior], "0" * 64)
    facts = room_of_pairs(released) + room_of_levels(released)
    statement = len(empty.statement(hashes)) + facts if rows else 0
    whole_units = -(-statement // STATEMENT_UNIT) * STATEMENT_UNIT
    return {**dict.fromkeys(names, data), **posterior, STATEMENT: whole_units}


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

    if fit.mechanism.needs_model:
        say(REPORT_FOLLOWS)
    try:
        return _reported(output, fit, release, say)
    except KeyboardInterrupt:
        say(f"{INCOMPLETE}interrupted.")
        return None


def _reported(output: Output, fit: Fit[Any], release: Release, say: Say) -> Findings | None:
    """Write the report of ``report_into``; KeyboardInterrupt if a signal ends it."""
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
    """Result of ``work``; None if it failed."""
    try:
        with breakable():
            return work()
    except Exception as error:
        # Only our own messages are known to repeat no value of a record.
        ours = isinstance(error, DpbayesError | OSError)
        why = str(error) if ours else type(error).__name__
        say(f"{INCOMPLETE}{' '.join(why.split())}")
        return None
