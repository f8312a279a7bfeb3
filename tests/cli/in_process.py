"""The ``dpbayes`` command in this process: no start and no imports to wait for."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import NamedTuple

import studies.__main__ as studies
from dpbayes.cli import main
from dpbayes.core.interrupts import SIGNALS


class Done(NamedTuple):
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


def study(*arguments, cwd=None):
    """Run a study to its end, as ``command.study`` does."""
    return dpbayes(*arguments, cwd=cwd, command=studies.main)


def dpbayes(*arguments, cwd=None, command=main):
    """Run it to its end, as ``command.dpbayes`` does."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    before = sys.argv
    handlers = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    try:
        sys.argv = ["dpbayes", *map(str, arguments)]
        with (
            contextlib.chdir(cwd or os.getcwd()),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
        ):
            command()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = []
    for stream in streams:
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return Done(code, *said)
