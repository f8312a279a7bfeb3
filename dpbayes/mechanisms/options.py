"""Parse the settings of mechanisms, as users write them, into arguments of ``get_mechanism``."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.mechanisms.posterior.anchored import NAMED_ANCHORS
from dpbayes.mechanisms.posterior.weights import (
    ConfidentialWeights,
    ConstantWeights,
    Reference,
    WeightSource,
)


def read_settings(
    named: Mapping[str, str | float | list[str] | None], assignments: Iterable[str] = ()
) -> dict[str, Any]:
    """Merge named options and assignments ``NAME=VALUE`` into settings by name.

    An assigned value is read as TOML if it is valid TOML, and otherwise as text. ``window`` may be
    LO,HI; ``weights`` and ``anchor`` may name a file written by `dpbayes tune`, ``reference`` a CSV
    file of public records; ``c1`` and ``c2`` become part of the weights.

    Args:
        named: options by name; those that are None are ignored.
        assignments: texts ``NAME=VALUE`` for settings that are not among ``named``.
    Raises:
        GuaranteeError: not an assignment, a setting that is given twice, or a value that cannot
            be read.
        DataError: a file that cannot be read.
    """
    settings: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for text in assignments:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise GuaranteeError(f"setting {text!r}: expected NAME=VALUE, as in bins=scott.")
        if name in settings:
            raise GuaranteeError(f"setting {text!r}: {name} is given twice.")
        settings[name] = _toml_value(value)
    weights = _weights(
        settings.pop("weights", None), settings.pop("c1", None), settings.pop("c2", None)
    )
    if weights is not None:
        settings["weights"] = weights
    for name, read in (("window", _window), ("anchor", _anchor), ("reference", _reference)):
        if name in settings:
            settings[name] = read(settings[name])
    return settings


def _toml_value(text: str) -> Any:
    """Parse a TOML number, list or table; return anything else as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # text without quotes, such as scott, is not TOML
        return text
    except RecursionError:
        raise GuaranteeError(f"a value is nested too deeply: {text[:40]!r}...") from None


def _window(value: Any) -> Any:
    """Parse the two ends of a window; return the name of a rule unchanged."""
    if isinstance(value, str) and "," not in value:
        return value
    ends = value.split(",") if isinstance(value, str) else value
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError, OverflowError):
        raise GuaranteeError(
            f"window = {value!r} must be symmetric, negative, or two numbers, as in -1,0."
        ) from None
    return low, high


def _weights(value: Any, c1: Any, c2: Any) -> Any:
    """Parse the source of record weights; return a list or table of parts unchanged."""
    parameters = {"c1": c1, "c2": c2}
    scaling = {
        name: _number(name, number) for name, number in parameters.items() if number is not None
    }
    if value == "confidential" or (value is None and scaling):
        return ConfidentialWeights(**scaling)
    constant = _constant(value)
    if isinstance(value, str) and constant is None:
        return _scaled(Reference.load(value), scaling)
    if scaling:
        raise GuaranteeError("`c1` and `c2` scale risk weights; constant weights have none.")
    return value if constant is None else constant


def _constant(value: Any) -> WeightSource | None:
    """Constant weights if the value is a number or a text that holds one; else None."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        return ConstantWeights(float(value))
    except (ValueError, OverflowError):
        return None


def _scaled(reference: Reference, scaling: Mapping[str, float]) -> Reference:
    if not scaling:
        return reference  # keeps the c1 and c2 that it was tuned to
    c1, c2 = scaling.get("c1", reference.c1), scaling.get("c2", reference.c2)
    return reference.with_scaling(c1, c2)


def _number(name: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise GuaranteeError(f"{name} = {value!r} must be a number.")


def _anchor(value: Any) -> Any:
    if not isinstance(value, str) or value in NAMED_ANCHORS:
        return value
    return Reference.load(value)


def _reference(value: Any) -> Any:
    """Load public records if the value names a file."""
    return PublicRecords.load(value) if isinstance(value, str) else value
