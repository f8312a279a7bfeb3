"""Checks of arguments at the entries of the Python API, where users err."""

from __future__ import annotations

import os
from types import UnionType
from typing import TypeGuard

from dpbayes.core.errors import DpbayesError

PATH = str | os.PathLike  # type: ignore[type-arg]  # no isinstance with arguments


def expect(
    value: object,
    kind: type | UnionType,
    name: str,
    expected: str,
    error: type[DpbayesError],
) -> None:
    """Raise an error of dpbayes unless an argument has the expected type.

    The message names the type that was found. The value may be a table of records, or a URL with a
    password, and is not repeated.

    Args:
        value: the argument.
        kind: its expected type, or a union of types.
        name: its name, with which the message begins.
        expected: what is expected and what to do, without the final full stop.
        error: type of the error.
    """
    if not isinstance(value, kind):
        raise error(f"{name} is of type {type(value).__name__}: expected {expected}.")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a number of Python itself; a boolean is not a number here."""
    return isinstance(value, int | float) and not isinstance(value, bool)
