"""Text of a family: its name, with settings in parentheses, as in ``histogram(bins = 20)``."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from dpbayes.core.errors import SchemaError

_TEXT = re.compile(r"\s*(\w+)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_BETWEEN = re.compile(r",(?![^()]*\))")


def read_family(text: str) -> tuple[str, dict[str, Any]]:
    """Read a family's name, and its settings, which are written as in TOML.

    Raises:
        SchemaError: the text is not of this form.
    """
    parts = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise SchemaError(
            f"family = {text!r:.80} is a name, with settings in parentheses where it has some: "
            "'beta', 'histogram(bins = 20)'."
        )
    try:
        settings = tomllib.loads(f"given = {{{parts[2] or ''}}}")["given"]
    except (ValueError, RecursionError):  # ValueError also for a number of thousands of digits
        raise SchemaError(
            f"family = {text!r:.80}: settings are written name = value, as in TOML, and separated "
            "by commas: 'histogram(bins = [0, 10, 20, 50])', 'normal(sigma = \"~ age\")'."
        ) from None
    return parts[1], settings


def families_in(text: str) -> list[str]:
    """Split a comma-separated list of families; commas inside parentheses do not separate."""
    return _BETWEEN.split(text)
