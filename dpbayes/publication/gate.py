"""The release gate: account first, write where nobody looks, and let it appear in one step.

OUT/release is what may leave. OUT/confidential (mode 0700) must not.

1. Reserve the cost in the ledger.
2. Draw the data sets in memory; write what the fit says and empty files of the right size into
   OUT/.dpbayes-ENTRY (mode 0700).
3. Move the entry to ``writing``, and only then write a byte of synthetic data.
4. Flush to disk, rename to OUT/release, move the entry to ``released``.

A crash before 3 leaves a reserved entry, which ``resolve`` can void: no data set was written.
A crash after 3 leaves a writing entry, which ``resolve`` finishes if the files are whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dpbayes.dips import DipsFit
from dpbayes.errors import LedgerError, OutputError
from dpbayes.fit import Fit
from dpbayes.privacy.guarantee import Basis
from dpbayes.publication.ledger import Entry, Ledger
from dpbayes.release import Release
from dpbayes.report.report import check_writable, release_report, write_fit_report
from dpbayes.schema.fingerprint import content_digest

RELEASE = "release"
CONFIDENTIAL = "confidential"
CHECKPOINT = "checkpoint"  # inside CONFIDENTIAL while a fit runs
_WORK = ".dpbayes-"


def check_output(out: Path) -> None:
    """Raise OutputError unless ``out`` can take a new release. Call before the fit."""
    check_writable(out)
    if unfinished := sorted(out.glob(f"{_WORK}*")):
        raise OutputError(
            f"--out {str(out)!r} holds a release that was not finished ({unfinished[0].name}). Run "
            "`dpbayes ledger resolve` if it had a ledger; otherwise remove that folder."
        )
    confidential = out / CONFIDENTIAL
    other = confidential.is_dir() and any(p.name != CHECKPOINT for p in confidential.iterdir())
    if (out / RELEASE).exists() or other:
        part = RELEASE if (out / RELEASE).exists() else CONFIDENTIAL
        raise OutputError(
            f"--out {str(out)!r} already holds a {part} folder; choose another directory. "
            "Releases are never overwritten: each one has been paid for."
        )


def publish(
    fit: Fit | DipsFit,
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
        datasets, accept, delta: as in ``Fit.sample``.
        seed: for studies and tests only.
        ledger: account for the release in it, as one of data set ``dataset``.
        note: for the ledger's history.
    Raises:
        BudgetError: the budget does not admit it; nothing was drawn or written.
        OutputError: disk full, no permission. The message says whether the cost counts.
    """
    out = Path(out)
    check_output(out)
    claim = fit.claim(datasets, delta)
    claim.require(accept)
    seed = fit.before_release(seed)  # slow or refused, so before anything is reserved
    entry = secrets.token_hex(16)
    work = out / f"{_WORK}{entry}"
    account = None
    if ledger is not None:
        ledger.reserve(dataset, claim, content_digest(fit.source), entry, out.absolute(), note)
        account = ledger.account(dataset)
    try:
        with _as_output_error(out, "Nothing was released."):
            _make_private(work / CONFIDENTIAL)
            (work / RELEASE).mkdir()
            write_fit_report(work / CONFIDENTIAL, fit)
            release = fit.sample(datasets, accept=accept, delta=delta, seed=seed)
            if account is not None:
                public = {
                    "entry": entry,
                    "budget_epsilon": account.budget.epsilon,
                    "budget_delta": account.budget.delta,
                    "budget_adjacency": account.adjacency,
                }
                release = replace(release, ledger=public)
            files = {f"{RELEASE}/{k}": v for k, v in release.files().items()}
            reports = release_report(fit, release, seed)
            files |= {f"{CONFIDENTIAL}/{k}": v for k, v in reports.items()}
            _allocate(work, files)
        if ledger is not None:
            ledger.writing(entry)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        if ledger is not None:
            with contextlib.suppress(LedgerError):  # then it stays reserved, and counts
                ledger.void(entry)
        raise
    counts = "" if ledger is None else f" The cost counts: entry {entry}, `dpbayes ledger resolve`."
    try:
        with _as_output_error(out, f"The release was not finished.{counts}"):
            _write(work, files)
            _appear(work, out)
    except BaseException:
        if ledger is None:
            shutil.rmtree(work, ignore_errors=True)
        raise
    if ledger is not None:
        try:
            ledger.released(entry)
        except LedgerError as error:
            raise LedgerError(
                f"the release is in {out / RELEASE} and counts, but its entry could not be closed: "
                f"{error} Run `dpbayes ledger resolve` later."
            ) from None
    return release


@dataclass(frozen=True)
class Resolution:
    """What became of an unfinished entry: its new state, or None if it was left alone."""

    entry: Entry
    state: str | None
    reason: str


def resolve(ledger: Ledger, entry: str | None = None) -> list[Resolution]:
    """Finish or void what crashed releases left behind.

    ``reserved`` becomes ``void``: its writer asks the ledger before the first byte, and is refused
    from now on. ``writing`` becomes ``released`` if all files are there and whole, otherwise
    ``lost``: paid for, because nobody can prove that they were not seen.

    Args:
        entry: treat this one even if its process seems to run, or ran on another computer.
    """
    unresolved = ledger.unresolved()
    if entry is not None:
        unresolved = [e for e in unresolved if e.id == entry]
        if not unresolved:
            raise LedgerError(f"entry {entry!r} is not among the unfinished ones.")
    return [_resolve(ledger, e, forced=entry is not None) for e in unresolved]


def _resolve(ledger: Ledger, entry: Entry, *, forced: bool) -> Resolution:
    if not forced:
        again = f"to treat it all the same: --entry {entry.id}"
        if entry.host != socket.gethostname():
            return Resolution(entry, None, f"made on {entry.host}: resolve it there, or {again}")
        if _runs(entry.process):
            return Resolution(entry, None, f"process {entry.process} still runs; {again}")
        if entry.state == "writing" and not entry.directory.is_dir():
            return Resolution(entry, None, f"{entry.directory} is not there; {again}")
    work = entry.directory / f"{_WORK}{entry.id}"
    if entry.state == "reserved":
        ledger.void(entry.id)
        shutil.rmtree(work, ignore_errors=True)
        return Resolution(entry, "void", "nothing had been written; the cost was given back")
    if Release.entry_of(entry.directory / RELEASE) != entry.id:
        if Release.entry_of(work / RELEASE) != entry.id:
            ledger.lost(entry.id)
            shutil.rmtree(work, ignore_errors=True)
            return Resolution(entry, "lost", "the files are not whole; the cost counts")
        if (entry.directory / RELEASE).exists():
            return Resolution(entry, None, f"another release is in {entry.directory}")
        _appear(work, entry.directory)
    ledger.released(entry.id)
    for left in (work, entry.directory / CONFIDENTIAL / CHECKPOINT):
        shutil.rmtree(left, ignore_errors=True)
    return Resolution(entry, "released", f"the release is in {entry.directory / RELEASE}")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, as another user
        return True
    return process != os.getpid()


def _make_private(directory: Path) -> None:
    """A directory for the owner only, like the one above it."""
    directory.parent.parent.mkdir(parents=True, exist_ok=True)
    directory.parent.mkdir(mode=0o700)
    directory.mkdir(mode=0o700)


def _allocate(work: Path, files: Mapping[str, bytes]) -> None:
    """Empty files with their space on the disk, so that a full disk is noticed before it costs."""
    for name, content in files.items():
        with (work / name).open("xb") as stream:
            if hasattr(os, "posix_fallocate") and content:
                os.posix_fallocate(stream.fileno(), 0, len(content))


def _write(work: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        with (work / name).open("r+b") as stream:
            stream.write(content)
            stream.truncate()
    for path in work.rglob("*"):
        _flush(path)


def _appear(work: Path, out: Path) -> None:
    """Move the finished files into place, the release last and in one step."""
    confidential = out / CONFIDENTIAL
    confidential.mkdir(mode=0o700, exist_ok=True)
    if (work / CONFIDENTIAL).is_dir():  # not so if a crash came between
        for path in (work / CONFIDENTIAL).iterdir():
            path.replace(confidential / path.name)
        _flush(confidential)
    (work / RELEASE).rename(out / RELEASE)
    _flush(out)
    shutil.rmtree(work, ignore_errors=True)


def _flush(path: Path) -> None:
    """To the disk, so that a power cut cannot undo it."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no handle for it
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _as_output_error(out: Path, meaning: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"--out {str(out)!r}: {error.strerror or error}. {meaning}") from None
