"""What commands print: text as it is, to a standard output that may close or fill up.

A command's work can be done, and a release paid for, by the time that it prints. A reader that
went away must not turn that into an error, a traceback or another exit code.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from dpbayes.publication.url import redact

FAILED = 2  # exit code: an error that a user can mend
# Names of data sets, notes and paths are the user's: no markup, no emoji codes, no colours.
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
_console = Console(**_PLAIN)


class Stream:
    """A text stream whose errors are kept, and not raised.

    Args:
        hide: passwords, as standard error may repeat what was typed.

    Attributes:
        error: the first one; what was written since then is dropped.
        done: what the command did, in a line, for standard error if this stream fails.
    """

    def __init__(self, stream: TextIO, *, hide: bool = False) -> None:
        self._stream = stream
        self._hide = hide
        self.error: OSError | None = None
        self.done: str | None = None

    def write(self, text: str) -> int:
        """As of any text stream."""
        said = redact(text) if self._hide else text
        self._try(lambda: self._stream.write(said))
        return len(text)

    def flush(self) -> None:
        """As of any text stream."""
        self._try(self._stream.flush)

    def _try(self, operation: Callable[[], Any]) -> None:
        if self.error is not None:
            return
        try:
            operation()
        except OSError as error:
            self.error = error
            # What is left in the buffer would fail again when the interpreter ends.
            with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def run(command: Callable[[], int]) -> int:
    """Exit code of a command with standard streams that do not raise.

    If standard output failed, standard error has what the command did, and its code stays. If it
    did nothing but print, a closed pipe is what the reader wanted, and a full disk is an error.
    """
    output, errors = _guarded(sys.stdout), _guarded(sys.stderr, hide=True)
    output.reconfigure(errors="backslashreplace")  # ε where the locale has no Greek
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = command()
        output.flush()
        if output.error is not None:
            why = f"standard output: {output.error.strerror}"
            if output.done is not None:
                say_error(f"{output.done}\nwarning: {why}; the rest of the report is lost.")
            elif output.error.errno != errno.EPIPE and code == 0:
                say_error(f"error: {why}.")
                code = FAILED
        errors.flush()
    return code


def _guarded(stream: TextIO | None, *, hide: bool = False) -> Stream:
    if stream is not None:
        return Stream(stream, hide=hide)
    # Closed from the start: take its number, or the next file gets it and what libraries print.
    guarded = Stream(open(os.devnull, "w"))  # noqa: SIM115  # open until the process ends
    guarded.error = OSError(errno.EBADF, os.strerror(errno.EBADF))
    return guarded


def say(text: str) -> None:
    """Print a line as it is."""
    _console.print(text, soft_wrap=True)


def say_done(text: str) -> None:
    """Print what the command did to files or ledgers: it is said even if standard output fails."""
    if isinstance(sys.stdout, Stream):
        sys.stdout.done = text.strip()
    say(text)


def say_table(table: Table) -> None:
    """Print a table; a file or pipe has no width to keep to."""
    (_console if _console.is_terminal else Console(width=160, **_PLAIN)).print(table)


def say_error(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr)


def is_terminal() -> bool:
    """People read standard output, not a file or a pipe."""
    return _console.is_terminal
