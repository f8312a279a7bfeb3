"""Atomic file writes."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: it appears once all of its content is on the disk.

    Args:
        path: file to create or replace.
        content: all of its bytes.
        mode: permissions of the file, reduced by the user's umask.
    Raises:
        OSError: the file cannot be written; no partial file is left, nor after Ctrl-C.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
