"""Commands that run as processes of their own, so that the page answers meanwhile.

Their standard error is a terminal, as they show progress and the time that is left on one only.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

MOST_LINES = 2000  # of a command's output, the latest
PATIENCE = 60.0  # seconds that a command may take to end after a signal
_BROKEN_OFF = "Traceback (most recent call last)"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(r" \d+% \d+:\d\d:\d\d |^trying .* \.\.\.$|^at work for ")  # progress


class RunningCommand:
    """A command that runs, or ended.

    Args:
        words: the command's words after ``python -m``, first the module.

    Attributes:
        lines: what it printed, without progress.
        progress: its latest line of progress.
        cancelled: whether it was asked to end.

    Examples:
        >>> job = RunningCommand(["dpbayes", "--version"])
        >>> job.wait()
        0
        >>> job.lines[0].split()[0]
        'dpbayes'
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.progress = ""
        self.cancelled = False
        self.words = list(words)
        terminal, end = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            # -P: no module is taken from the current folder, which has the records.
            [sys.executable, "-P", "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=end,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the page, which then ends its jobs
        )
        os.close(end)
        assert self._process.stdout is not None
        self._readers = [
            threading.Thread(target=self._read, args=(source,), daemon=True)
            for source in (self._process.stdout, open(terminal, "rb"))  # noqa: SIM115
        ]
        for reader in self._readers:
            reader.start()

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        """Whether it has not ended, or something that it printed is yet to be read."""
        return self.code is None or any(reader.is_alive() for reader in self._readers)

    @property
    def done(self) -> bool:
        """Whether it ended without an error."""
        return not self.running and self.code == 0

    @property
    def said(self) -> list[str]:
        """What it printed; without what Python prints if it was cancelled before it began."""
        ends = (k for k, line in enumerate(self.lines) if self.cancelled and _BROKEN_OFF in line)
        return self.lines[: next(ends, len(self.lines))]

    def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join()
        return code

    def cancel(self) -> None:
        """Ask it to end, as Ctrl-C does: what is not yet drawn is not spent."""
        self.cancelled = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Ask it to end, and wait; it is not killed while it writes a release."""
        if self.running:
            self.cancel()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)

    def _read(self, source: IO[bytes]) -> None:
        """Collect the lines of a stream until it ends."""
        left, ended = b"", False
        with source:
            while not ended:
                try:
                    part = os.read(source.fileno(), 2**16)
                except OSError:  # the other end of a terminal is closed
                    part = b""
                ended = not part
                *whole, left = re.split(rb"[\r\n]+", left + part)
                for line in [*whole, left] if ended else whole:
                    self._take(_CONTROL.sub("", line.decode(errors="replace")).rstrip())

    def _take(self, line: str) -> None:
        if _BAR.search(line):
            self.progress = line.strip()
        elif line:
            self.lines.append(line)
            del self.lines[:-MOST_LINES]
