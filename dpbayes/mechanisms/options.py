"""Settings of mechanisms as people write them, read into what ``get_mechanism`` takes."""

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
    """Settings by name, from named options and from texts ``NAME=VALUE`` alike.

    Texts are read as TOML values where they are such, otherwise as they stand. ``window`` may be
    LO,HI; ``weights`` and ``anchor`` may name a file of `dpbayes tune`, ``reference`` a CSV file of
    public records; ``c1`` and ``c2`` become
    part of the weights.

    Args:
        named: those that are None are left out.
        assignments: of any setting that is not among ``named``.
    Raises:
        GuaranteeError: not an assignment, a setting that is given twice, or a value that cannot
            be read. DataError: a bad file.
    """
    found: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    for text in assignments:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise GuaranteeError(f"--set {text!r}: expected NAME=VALUE, as in bins=scott.")
        if name in found:
            raise GuaranteeError(f"--set {text!r}: {name} is given twice.")
        found[name] = _toml_value(value)
    weights = _weights(found.pop("weights", None), found.pop("c1", None), found.pop("c2", None))
    if weights is not None:
        found["weights"] = weights
    for name, read in (("window", _window), ("anchor", _anchor), ("reference", _reference)):
        if name in found:
            found[name] = read(found[name])
    return found


def _toml_value(text: str) -> Any:
    """A number, list or table as TOML writes it; anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
    except RecursionError:
        raise GuaranteeError(f"a value is nested too deeply: {text[:40]!r}...") from None


def _window(value: Any) -> Any:
    """Two numbers as a tuple; the name of a rule as it is."""
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
    """Where record weights come from; the parts of a model, a list or table, as they are."""
    given = {"c1": c1, "c2": c2}
    scaling = {name: _number(name, number) for name, number in given.items() if number is not None}
    if value == "confidential" or (value is None and scaling):
        return ConfidentialWeights(**scaling)
    constant = _constant(value)
    if isinstance(value, str) and constant is None:
        return _scaled(Reference.load(value), scaling)
    if scaling:
        raise GuaranteeError("--c1 and --c2 scale risk weights; constant weights have none.")
    return value if constant is None else constant


def _constant(value: Any) -> WeightSource | None:
    """Constant weights if the value is one number, in words or not."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        return ConstantWeights(float(value))
    except (ValueError, OverflowError):
        return None


def _scaled(reference: Reference, scaling: Mapping[str, float]) -> Reference:
    if not scaling:
        return reference  # with what it was tuned to
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
    """Public records from a file."""
    return PublicRecords.load(value) if isinstance(value, str) else value
