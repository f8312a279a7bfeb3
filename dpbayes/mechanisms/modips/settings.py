"""Checks of settings that several private draws and models share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.errors import GuaranteeError


def check_nested(nested: int) -> None:
    """Raise GuaranteeError unless ``nested`` is a whole number of data sets per draw."""
    if isinstance(nested, bool) or not isinstance(nested, int) or nested < 1:
        raise GuaranteeError(f"nested = {nested!r} must be a whole number, at least 1.")


def one_of(setting: str, value: str, known: tuple[str, ...]) -> None:
    """Raise GuaranteeError unless a setting has one of the known values."""
    if value not in known:
        raise GuaranteeError(f"{setting} = {value!r} must be one of {', '.join(known)}.")


def positive(values: ArrayLike, size: int, setting: str) -> tuple[float, ...]:
    """Return ``size`` numbers above 0; GuaranteeError for anything else."""
    try:
        numbers = tuple(float(v) for v in np.atleast_1d(values))
    except (TypeError, ValueError, OverflowError):
        numbers = ()
    if len(numbers) != size or not all(0 < v < math.inf for v in numbers):
        raise GuaranteeError(f"{setting} = {values!r}: expected {size} number(s) above 0.")
    return numbers
