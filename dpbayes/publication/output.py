"""Output folder OUT: locked by one process at a time, with a private confidential part.

OUT/release is what may leave. OUT/confidential (mode 0700, its files 0600) must not leave.
OUT/.dpbayes-ENTRY (mode 0700) holds a release until it is complete.

Until then OUT/confidential holds only what a repeated command can resume: finished chains, and a
choice that was paid for. The confidential report is written after the release.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpbayes.core.errors import DataError, OutputError
from dpbayes.core.files import refuse_in_release
from dpbayes.core.lazy import filelock
from dpbayes.records.formats.source import is_address

RELEASE = "release"
CONFIDENTIAL = "confidential"
CHECKPOINT = "checkpoint"  # inside CONFIDENTIAL while a fit runs
SET_ASIDE = f"{CHECKPOINT}.old-"  # where ``Checkpoint`` moves chains of other inputs
CHOICE = f"{CHECKPOINT}.choice-"  # a private choice, with a hash of its inputs
LOCK = ".dpbayes.lock"
ATTEMPTS = 10  # to find and lock OUT while other processes create and remove it
PATIENCE = 1.0  # seconds to wait for a lock that is about to be released
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")  # a path has one slash left of two
_WORK, _UNDRAWN = ".dpbayes-", ".undrawn-"


def check_writable(out: Path) -> None:
    """Raise OutputError unless ``out`` is, or can become, a directory to write in.

    It looks again if the nearest folder vanishes meanwhile, as other runs create and remove it.
    """
    for attempt in range(1, ATTEMPTS + 1):
        if _ADDRESS.match(str(out)):  # not repeated, as it may hold a password
            raise OutputError("`out` is an address; name a directory.")
        if "\0" in str(out):
            raise OutputError(f"{str(out)!r}: no directory has such a name.")
        try:
            if out.exists() and not out.is_dir():
                raise OutputError(f"{str(out)!r} is a file; name a directory.")
            existing = next(p for p in (out, *out.absolute().parents) if p.is_dir())
        except OSError as error:  # a parent folder without permission
            raise OutputError(f"{str(out)!r}: {error.strerror}.") from None
        if os.access(existing, os.W_OK | os.X_OK):
            refuse_in_release(out)
            return
        if existing.is_dir() or attempt == ATTEMPTS:
            raise OutputError(f"{str(out)!r}: no permission to write in {str(existing)!r}.")


def refuse_confidential(reference: str) -> None:
    """Raise DataError if a file of reference records lies in the folder of confidential results."""
    if not is_address(reference) and CONFIDENTIAL in Path(reference).resolve().parts:
        raise DataError(
            f"`reference` {reference!r} lies in a folder {CONFIDENTIAL!r}: settings are chosen on "
            "public or earlier records, never on those that are to be released."
        )


def check_output(out: Path) -> None:
    """Raise OutputError unless ``out`` can take a new release. Call before the fit."""
    try:
        str(out).encode()
    except UnicodeEncodeError:  # a ledger keeps it as text
        message = f"{str(out)!r} has a name that is not UTF-8: choose another one."
        raise OutputError(message) from None
    check_writable(out)
    with contextlib.ExitStack() as stack:
        stack.enter_context(as_output_error(out, "Choose another directory."))
        if (out / LOCK).exists():  # another run is active, or crashed
            stack.enter_context(locked(out))
        _check_contents(out)


def _check_contents(out: Path) -> None:
    if unfinished := sorted(out.glob(f"{_WORK}*")):
        raise OutputError(
            f"{str(out)!r} holds a release that was not finished ({unfinished[0].name}). Run "
            "`dpbayes ledger resolve` if it had a ledger; otherwise remove that folder."
        )
    check_confidential(out)
    own = {RELEASE, CONFIDENTIAL}
    names = [] if not out.is_dir() else [path.name for path in out.iterdir()]
    if others := [name for name in names if name not in own and not name.startswith(".")]:
        raise OutputError(
            f"{str(out)!r} holds other files or folders ({len(others)}). A release has a folder of "
            "its own, so that nothing else leaves with it: name a new one."
        )
    confidential = out / CONFIDENTIAL
    other = confidential.is_dir() and not all(
        _of_a_fit(path) or path.name.startswith(CHOICE) for path in confidential.iterdir()
    )
    released = os.path.lexists(out / RELEASE)  # a link that leads nowhere, too
    if released or other:
        part = RELEASE if released else CONFIDENTIAL
        raise OutputError(
            f"{str(out)!r} already holds a {part} folder; choose another directory. "
            "Releases are never overwritten: each one has been paid for."
        )


def _of_a_fit(path: Path) -> bool:
    """True for a folder of finished chains, of the current fit or of one that was set aside."""
    return path.name == CHECKPOINT or path.name.startswith(SET_ASIDE)


@dataclass(frozen=True)
class Output:
    """Output folder that is locked by this process; ``held`` makes one."""

    path: Path

    @property
    def confidential(self) -> Path:
        """Folder of files that must not leave."""
        return self.path / CONFIDENTIAL

    @property
    def checkpoint(self) -> Path:
        """Folder of the finished chains of the fit."""
        return self.confidential / CHECKPOINT

    def choice(self, inputs: str) -> Path:
        """File of the private choice of a program, named by a hash of its inputs."""
        return self.confidential / f"{CHOICE}{inputs[:32]}.json"

    def choices(self) -> list[Path]:
        """Files of all saved choices."""
        return sorted(self.confidential.glob(f"{CHOICE}*"))

    def forget_choices(self) -> None:
        """Remove the saved choices once their release exists."""
        for path in self.choices():
            path.unlink(missing_ok=True)
        _remove_if_empty(self.confidential)

    def make_confidential(self) -> None:
        """Create the confidential folder, which only its owner can read.

        Raises:
            OSError, OutputError: as ``protect``.
        """
        self.confidential.mkdir(mode=0o700, exist_ok=True)
        self.protect()

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Write confidential files; an incomplete one is removed.

        Args:
            files: contents by name.
        Raises:
            OSError, OutputError: as ``protect``, or the disk is full.
        """
        self.make_confidential()
        for name, content in files.items():
            path = self.confidential / name
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(handle, "wb") as stream:
                    stream.write(content)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def protect(self) -> None:
        """Set confidential folders to mode 0700 and their files to 0600.

        Raises:
            OutputError: as ``check_output``: others could read what will be written.
        """
        for path in check_confidential(self.path):
            path.chmod(0o700 if path.is_dir() else 0o600)


@contextlib.contextmanager
def held(out: Path) -> Iterator[Output]:
    """Lock OUT for this process until the block ends, and create it if needed.

    Folders that were created for it are removed again if they stay empty.

    Raises:
        OutputError: another run writes there, or the folder cannot take a new release.
    """
    check_writable(out)
    output = Output(out)
    with contextlib.ExitStack() as cleanup:
        with as_output_error(out, "Nothing was written."):
            _make_and_lock(out, cleanup)
            _check_contents(out)
            output.protect()
        yield output


def _make_and_lock(out: Path, cleanup: contextlib.ExitStack) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            for folder in _missing(out):
                with contextlib.suppress(FileExistsError):  # another process was faster
                    folder.mkdir(0o755)
                    cleanup.callback(_remove_if_empty, folder)
            cleanup.enter_context(locked(out))
            return
        except FileNotFoundError:  # another process removed the folder just now
            if attempt == ATTEMPTS:
                raise


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock an existing OUT for this process until the block ends.

    The operating system ends the lock with its process, so that a killed run blocks nobody. The
    lock file is removed with the lock.

    Raises:
        OutputError: another process has the lock. OSError: the file system refuses a lock.
    """
    lock = filelock.FileLock(out / LOCK, timeout=PATIENCE, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise OutputError(
            f"{str(out)!r} is in use by another run. Wait until it has ended, or choose "
            "another directory."
        ) from None
    try:
        yield
    finally:
        # Remove the file while the lock is held: a waiting process sees that it has no name any
        # more (filelock checks st_nlink), and starts over with a new file. Windows cannot remove an
        # open file; there filelock removes it afterwards.
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        lock.release()


def _missing(folder: Path) -> list[Path]:
    """Missing folders among ``folder`` and its parents, the highest first."""
    return [path for path in (folder, *folder.parents) if not path.exists()][::-1]


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def check_confidential(out: Path) -> list[Path]:
    """Check that OUT/confidential and all in it belong to this user, and that nothing is a link.

    Returns:
        The folder and all paths in it; empty if there is none.
    Raises:
        OutputError: whoever made a link, or owns a folder, could read what will be written.
    """
    confidential = out / CONFIDENTIAL
    if not os.path.lexists(confidential):
        return []
    _check_own(out, confidential, folder=True)
    paths = [confidential, *sorted(confidential.rglob("*"))]
    for path in paths[1:]:
        _check_own(out, path, folder=path.parent == confidential and _of_a_fit(path))
    return paths


def _check_own(out: Path, path: Path, *, folder: bool) -> None:
    status = path.lstat()
    wrong = None
    if stat.S_ISLNK(status.st_mode):
        wrong = "a symbolic link"
    elif folder and not stat.S_ISDIR(status.st_mode):
        wrong = "not a directory"
    elif hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        wrong = "another user's"
    if wrong is not None:
        raise OutputError(
            f"{str(out)!r}: {str(path.relative_to(out))!r} is {wrong}, and what is "
            "confidential would be written there. Remove it, or choose another directory."
        )


@dataclass(frozen=True)
class Work:
    """Hidden folder OUT/.dpbayes-ENTRY, which holds a release until it is complete.

    Attributes:
        out: folder in which the release will appear.
        entry: id of the ledger entry, or a random name without a ledger.
    """

    out: Path
    entry: str

    @property
    def release(self) -> Path:
        """Folder of the release, which may leave once it is paid for."""
        return self.path / RELEASE

    @property
    def path(self) -> Path:
        """Path of the hidden folder, which only its owner can read."""
        return self.out / f"{_WORK}{self.entry}"

    def allocate(self, sizes: Mapping[str, int]) -> None:
        """Allocate files on the disk, so that a full disk is noticed before the cost is spent.

        Args:
            sizes: bytes by name. They depend on public facts only: anybody may see them, although
                nothing is paid for yet.
        """
        self.path.mkdir(mode=0o700)
        self.release.mkdir(0o755)
        for name, size in sizes.items():
            handle = os.open(self.release / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                if hasattr(os, "posix_fallocate") and size:
                    os.posix_fallocate(handle, 0, size)
            finally:
                os.close(handle)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write the allocated files, and flush them to the disk."""
        for name, content in files.items():
            with (self.release / name).open("r+b") as stream:
                stream.write(content)
                stream.truncate()
        for path in self.path.rglob("*"):
            _flush(path)

    @property
    def _mark(self) -> Path:
        return self.out / f"{_UNDRAWN}{self.entry}"

    @property
    def undrawn(self) -> bool:
        """True if no noise has been drawn for the entry, whatever an old ledger says.

        What proves it is a file that is there. A file that proved the opposite would be missing
        where a folder was emptied, moved or replaced.
        """
        return self._mark.exists()

    def mark_undrawn(self) -> None:
        """Leave an empty hidden file that says so. Call it before the entry is reserved."""
        self._mark.touch(mode=0o600)

    def unmark(self) -> None:
        """Remove that file. Call it before any noise is drawn."""
        self._mark.unlink(missing_ok=True)
        _flush(self.out)

    def appear(self) -> None:
        """Move the finished release into place, in one step."""
        self.release.rename(self.out / RELEASE)
        _flush(self.out)
        shutil.rmtree(self.path, ignore_errors=True)

    def discard(self) -> None:
        """Remove the hidden folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def _flush(path: Path) -> None:
    """Flush a file or folder to the disk, so that a power cut cannot undo it."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no handles of folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def as_output_error(out: Path, meaning: str) -> Iterator[None]:
    """Raise errors of the file system as an OutputError that ends with ``meaning``."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{str(out)!r}: {error.strerror or error}. {meaning}") from None
