"""The layout of a schema's records of several rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dpbayes.mechanisms.households.layout import Layout
from dpbayes.mechanisms.households.panel import PanelLayout
from dpbayes.schema import Schema
from dpbayes.schema.homes import Homes


def layout_of(schema: Schema, keep: Sequence[str] = ()) -> Layout:
    """The layout of a schema's households, or persons with their waves, made once for each."""
    made = _made(schema.homes, tuple(keep))
    if not made:
        kind = Layout if schema.panel is None else PanelLayout
        made.append(kind(schema, keep))
    return made[0]


@functools.lru_cache(maxsize=8)
def _made(homes: Homes, keep: tuple[str, ...]) -> list[Layout]:
    return []
