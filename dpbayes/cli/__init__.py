"""The ``dpbayes`` command."""

from dpbayes.cli.app import main

__all__ = ["main"]
