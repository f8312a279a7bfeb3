"""HTML of objects for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def card(title: str, rows: Mapping[str, str]) -> str:
    """Format a small HTML table with a title; all text is escaped."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{cells}</tbody></table>"
