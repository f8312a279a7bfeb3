"""A family as a user writes it: its name, and settings in parentheses, ``histogram(bins = 20)``."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from dpbayes.core.errors import SchemaError

_TEXT = re.compile(r"\s*(\w+)\s*(?:\((.*)\)\s*)?", re.DOTALL)
_BETWEEN = re.compile(r",(?![^()]*\))")


def read_family(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings, the latter as TOML writes them.

    Raises:
        SchemaError: it is not such a text.
    """
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise SchemaError(
            f"family = {text!r:.80} is a name, with settings in parentheses where it has some: "
            "'beta', 'histogram(bins = 20)'."
        )
    try:
        settings = tomllib.loads(f"given = {{{found[2] or ''}}}")["given"]
    except (tomllib.TOMLDecodeError, RecursionError):
        raise SchemaError(
            f"family = {text!r:.80}: settings are written name = value, as in TOML, and separated "
            "by commas: 'histogram(bins = [0, 10, 20, 50])', 'normal(sigma = \"~ age\")'."
        ) from None
    return found[1], settings


def families_in(text: str) -> list[str]:
    """Families in a list that commas separate."""
    return _BETWEEN.split(text)
