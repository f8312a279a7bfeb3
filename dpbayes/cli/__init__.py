"""The ``dpbayes`` command."""

from dpbayes.core.interrupts import listen


def main() -> None:
    """Entry point: signals are heard before anything else is imported."""
    listen()
    from dpbayes.cli.app import run_command

    run_command()


__all__ = ["main"]
