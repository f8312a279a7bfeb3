"""Whole files: atomic writes outside of releases, and reads of regular files of limited size."""

from __future__ import annotations

import errno
import os
import stat
import threading
from io import BufferedReader
from pathlib import Path

from dpbayes.core.errors import OutputError

STATEMENT = "guarantee.json"  # of a release: it marks a folder that is published as it is
MOST_MEGABYTES = 64  # of a file that is read whole
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would wait; Windows has none


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file for reading; OSError if it cannot be opened or is no regular file.

    A pipe would be waited for without end, and a device such as /dev/zero read without end.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "no file has such a name", str(path))
    stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device; write it to a file", str(path))
    return stream


def read_whole(path: str | Path) -> bytes:
    """Read a file of settings or results; OSError as ``open_regular``, or if it is too large."""
    with open_regular(path) as stream:
        content = stream.read(MOST_MEGABYTES * 10**6 + 1)
    if len(content) > MOST_MEGABYTES * 10**6:
        what = f"it has more than {MOST_MEGABYTES} MB; name another file, or shorten it"
        raise OSError(errno.EFBIG, what, str(path))
    return content


def read_text(path: str | Path) -> str:
    """Read a text in UTF-8 with line ends of any kind; ValueError if it is not UTF-8."""
    return read_whole(path).decode().replace("\r\n", "\n").replace("\r", "\n")


def refuse_in_release(path: Path) -> None:
    """Raise OutputError if a path is inside a release, which is published as it is."""
    try:
        folders = (path, *path.absolute().resolve().parents)
    except (OSError, ValueError, RuntimeError):  # a name, or links, that no file can be written to
        return
    for parent in folders:
        if os.path.exists(parent / STATEMENT):  # no error without permission
            raise OutputError(
                f"{str(path)!r} is inside the release {str(parent)!r}, which is to be published. "
                "Write to some other place."
            )


def write_whole(path: Path, content: bytes, mode: int = 0o644, *, in_release: bool = False) -> None:
    """Write a file atomically: it appears once all of its content is on the disk.

    Args:
        path: file to create or replace.
        content: all of its bytes.
        mode: permissions of the file, reduced by the user's umask.
        in_release: the content is public, and may be put into a release.
    Raises:
        OutputError: the path is inside a release, and the content is not for one.
        OSError: the file cannot be written; no partial file is left, nor after Ctrl-C.
    """
    if not in_release:
        refuse_in_release(path)
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
