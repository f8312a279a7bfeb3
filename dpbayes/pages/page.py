"""A page as one file: text, tables and figures, and nothing from a network."""

from __future__ import annotations

import base64
import functools
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from dpbayes.core.lazy import pd

if TYPE_CHECKING:  # takes time to import
    from jinja2 import Template

_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class PageTable:
    """A table with a caption.

    Attributes:
        caption: what it shows.
        head: names of the columns.
        rows: texts and numbers; the first of each names the row.
        words: they are texts rather than numbers.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    words: bool = False

    def filled(self) -> PageTable:
        """The same without columns in which no row has anything."""
        kept = [
            i
            for i in range(len(self.head))
            if i == 0 or not self.rows or any(shown(row[i]) for row in self.rows)
        ]
        rows = [[row[i] for i in kept] for row in self.rows]
        return replace(self, head=[self.head[i] for i in kept], rows=rows)

    @classmethod
    def of(cls, caption: str, frame: pd.DataFrame) -> PageTable:
        """A data frame without its index."""
        return cls(caption, [str(name) for name in frame], frame.astype(object).to_numpy().tolist())


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows in words, for those who do not see it.

    Attributes:
        content: a PNG file.
        text: what it shows.
        caption: what stands below it.
        width: in pixels, of one that is not enlarged.
        wide: it has panels side by side, and is scrolled rather than shrunk where it is narrow.
    """

    content: bytes
    text: str
    caption: str
    width: int = 720
    wide: bool = False

    @classmethod
    def of(cls, figure: Figure, text: str, caption: str) -> Picture:
        """A Matplotlib figure."""
        content = io.BytesIO()
        figure.savefig(content, dpi=110)
        return cls(content.getvalue(), text, caption, round(110 * figure.get_figwidth()))

    @property
    def address(self) -> str:
        """The file itself, as a data address."""
        return "data:image/png;base64," + base64.b64encode(self.content).decode()


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        title: above it.
        text: paragraphs.
        points: of a list.
        pictures, tables: below the text, in this order.
        folded: what is shown when asked for, at the end: a title and points.
    """

    title: str
    text: Sequence[str] = ()
    points: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[PageTable] = ()
    folded: tuple[str, Sequence[str]] | None = None

    @property
    def anchor(self) -> str:
        """Its name in addresses."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: its heading.
        figures: the numbers that matter first, each with what it is.
        sections: in order.
        confidential: it must not leave; a mark says so.
    """

    title: str
    figures: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    confidential: bool = False
    warnings: Sequence[str] = field(default_factory=tuple)

    def html(self) -> bytes:
        """The page as a file."""
        return _template().render(page=self).encode()


def shown(value: Any) -> str:
    """A cell of a table: whole numbers, others with four digits, nothing where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if math.isinf(value):
            return "infinite"
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def marked(text: str) -> str:
    """A sentence in HTML: escaped, and what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


@functools.cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(shown=shown, marked=marked)
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text)
