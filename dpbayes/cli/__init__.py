"""The ``dpbayes`` command."""

import signal
import sys

from dpbayes.core.interrupts import first_signal, ignore, leave, listen


def main() -> None:
    """Entry point: signals are heard before anything else is imported."""
    try:
        listen()
        from dpbayes.cli.app import run_command

        run_command()
    except KeyboardInterrupt:  # before there was a command to end
        ignore()
        number = first_signal() or signal.SIGINT
        sys.stderr.write(f"error: interrupted by {signal.Signals(number).name}.\n")
        leave(128 + number)


__all__ = ["main"]
