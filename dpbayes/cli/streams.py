"""Printing by commands: plain text, to a standard output that may close or fill up.

When a command prints, its work may be done and a release paid for. A reader that has gone away
must not turn that into an error, a traceback or another exit code.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from dpbayes.engines.progress import under_way
from dpbayes.publication.url import redact

EVERY = 60.0  # seconds between signs of life
FAILED = 2  # exit code: an error that a user can mend
# Names of data sets, notes and paths come from the user: rich must not interpret them.
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
_console = Console(**_PLAIN)
# A setting in a message of the library: `delta`, or `datasets=5`.
_SETTING = re.compile(r"`(\w+)(?:=([^`]*))?`")
_LONG = re.compile(r"(\S{150})\S{150,}(\S{50})")


class Stream:
    """Text stream that records errors instead of raising them.

    Args:
        stream: the stream to write to.
        hide: hide passwords and the middle of words of hundreds of characters, as standard error
            may repeat what was typed.

    Attributes:
        error: first error of the stream; later output is dropped.
        done: line about what the command did, for standard error if this stream fails.
    """

    def __init__(self, stream: TextIO, *, hide: bool = False) -> None:
        self._stream = stream
        self._hide = hide
        self.error: OSError | None = None
        self.done: str | None = None

    def write(self, text: str) -> int:
        """Write text, as any text stream; errors are recorded."""
        shown = _LONG.sub(r"\1 ... \2", redact(text)) if self._hide else text
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        """Flush the stream; errors are recorded."""
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
    """Run a command with standard streams that do not raise, and return its exit code.

    If standard output failed, standard error tells what the command did, and the exit code stays.
    For a command that only prints, a closed pipe is no error, and a full disk is one.
    """
    output, errors = _guarded(sys.stdout), _guarded(sys.stderr, hide=True)
    output.reconfigure(errors="backslashreplace")  # for ε if the locale has no Greek letters
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
    # Closed from the start: occupy its descriptor, or the next opened file would receive output.
    guarded = Stream(open(os.devnull, "w"))  # noqa: SIM115  # open until the process ends
    guarded.error = OSError(errno.EBADF, os.strerror(errno.EBADF))
    return guarded


class Spelling:
    """Spells the settings that messages name as options of the command line.

    Attributes:
        options: returns the options by the names of their parameters; set by the application.
    """

    options: Callable[[], dict[str, str]] = dict

    def __call__(self, text: str) -> str:
        """Return the text with `` `delta` `` as ``--delta``, and so on."""
        return _SETTING.sub(self._option, text) if "`" in text else text

    def _option(self, match: re.Match[str]) -> str:
        name, value = match[1], match[2] and match[2].strip('"')
        option = self.options().get(name)
        if option is None:  # a setting of the mechanism, or a word that is no setting
            return match[0] if value is None else f"--set {name}={value}"
        return option if value in (None, "True") else f"{option} {value}"


spelled = Spelling()


def say(text: str) -> None:
    """Print a line without markup or wrapping."""
    _console.print(spelled(text), soft_wrap=True)


def say_done(text: str) -> None:
    """Print what the command did to files or ledgers; ``run`` repeats it if output fails."""
    if isinstance(sys.stdout, Stream):
        sys.stdout.done = text.strip()
    say(text)


def say_table(table: Table) -> None:
    """Print a table; a file or pipe has no width to keep to."""
    (_console if _console.is_terminal else Console(width=160, **_PLAIN)).print(table)


def say_error(text: str) -> None:
    """Print a line on standard error."""
    print(spelled(text), file=sys.stderr)


@contextlib.contextmanager
def sign_of_life() -> Iterator[None]:
    """Say on standard error, each minute that the block takes, that the command is at work."""
    ended, errors = threading.Event(), sys.stderr

    def say_so() -> None:
        minutes = 0
        while not ended.wait(EVERY):
            minutes += 1
            print(f"at work for {minutes} min{under_way()}", file=errors, flush=True)

    thread = threading.Thread(target=say_so, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def shows_progress() -> bool:
    """True if standard error, which takes the progress, is a terminal, not a file or a pipe."""
    return sys.stderr.isatty()
