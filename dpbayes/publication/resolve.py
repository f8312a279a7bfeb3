"""Resolution of ledger entries that a crash left unfinished."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

from dpbayes.core.checks import expect
from dpbayes.core.errors import LedgerError, OutputError
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.publication.choosing import outcome_of
from dpbayes.publication.ledger import A_LEDGER, Entry, Ledger
from dpbayes.publication.output import RELEASE, Output, Work, as_output_error, locked
from dpbayes.synthesis.release import Release


@dataclass(frozen=True)
class Resolution:
    """Outcome for an unfinished entry: its new state, or None if it was left alone, and why."""

    entry: Entry
    state: str | None
    reason: str


def resolve(ledger: Ledger, entry: str | None = None) -> list[Resolution]:
    """Finish or void what crashed releases and choices left behind.

    ``reserved`` becomes ``void``: its process asks the ledger before it draws anything private, and
    is refused from now on. If the folder does not say that nothing was drawn (``Work.undrawn``),
    the ledger is a backup that is older than the release, or the folder was emptied, moved or
    replaced: the entry counts as ``writing``.

    ``writing`` becomes ``released`` if all files are complete, or if a choice was saved; otherwise
    ``lost``: the cost counts, because the data may have been seen, and how the run ended may depend
    on them.

    Args:
        ledger: the ledger.
        entry: id of an entry to resolve even if its process seems to run, or ran on another
            computer; by default all entries are resolved whose process has ended here.
    Raises:
        LedgerError: the entry is not among the unfinished ones.
    """
    expect(ledger, Ledger, "ledger", A_LEDGER, LedgerError)
    unresolved = ledger.unresolved()
    if entry is not None:
        unresolved = [e for e in unresolved if e.id == entry]
        if not unresolved:
            raise LedgerError(f"entry {entry!r} is not among the unfinished ones.")
    return [_resolve(ledger, e, forced=entry is not None) for e in unresolved]


def _resolve(ledger: Ledger, entry: Entry, *, forced: bool) -> Resolution:
    work = Work(entry.directory, entry.id)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(as_output_error(entry.directory, "It was left as it is."))
            if not forced and (reason := _why_not(entry)):
                return Resolution(entry, None, reason)
            if entry.state == "reserved":
                if work.undrawn:  # no lock is needed: this stops a slow process too
                    ledger.void(entry.id)
                    work.discard()
                    with contextlib.suppress(OSError):  # a mark of a void entry says nothing
                        work.unmark()
                    return Resolution(
                        entry, "void", "nothing had been drawn; the cost was given back"
                    )
                ledger.writing(entry.id)
            if entry.directory.is_dir():
                stack.enter_context(locked(entry.directory))
            if entry.kind == "choice":
                return _finish_choice(ledger, entry)
            return _finish(ledger, entry, work)
    except OutputError as error:
        return Resolution(entry, None, str(error).rstrip("."))


def _why_not(entry: Entry) -> str | None:
    """Reason to leave an entry alone unless the user names it; None if there is none."""
    again = f"to treat it all the same: `entry={entry.id}`"
    if entry.host != socket.gethostname():
        return f"made on {entry.host}: resolve it there, or {again}"
    if _runs(entry.process):
        return f"process {entry.process} still runs; {again}"
    if not entry.directory.is_dir():  # perhaps moved, with a release that was drawn
        return f"{entry.directory} is not there; {again}"
    return None


def _finish(ledger: Ledger, entry: Entry, work: Work) -> Resolution:
    """Close a writing entry: released if its files are complete, otherwise lost."""
    release = entry.directory / RELEASE
    if Release.entry_of(release) != entry.id:
        if Release.entry_of(work.release) != entry.id:
            ledger.lost(entry.id)
            work.discard()
            return Resolution(entry, "lost", "the files are not whole; the cost counts")
        if release.exists():
            return Resolution(entry, None, f"another release is in {entry.directory}")
        work.appear()
    ledger.released(entry.id)
    work.discard()
    output = Output(entry.directory)
    output.forget_choices()
    Checkpoint(output.checkpoint).clear()
    return Resolution(entry, "released", f"the release is in {release}")


def _finish_choice(ledger: Ledger, entry: Entry) -> Resolution:
    """Close the entry of a choice: released if its outcome was saved, otherwise lost."""
    if outcome_of(Output(entry.directory), entry.id) is None:
        ledger.lost(entry.id)
        return Resolution(entry, "lost", "its outcome was not kept; the cost counts")
    ledger.released(entry.id)
    return Resolution(entry, "released", "repeat the command to go on with it; the cost counts")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # a number that is too large is no process
        return False
    except OSError:  # it runs, as another user
        return True
    return process != os.getpid()
