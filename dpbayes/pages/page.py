"""Self-contained HTML pages: text, tables and figures in one file, without network access."""

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
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from dpbayes.core.lazy import pd

if TYPE_CHECKING:  # takes time to import
    from jinja2 import Template

_CODE = re.compile(r"`([^`]+)`")
MOST_PARTS = 8  # levels of a code book that are listed without unfolding


@dataclass(frozen=True)
class PageTable:
    """A table with a caption.

    Attributes:
        caption: text above the table.
        head: names of the columns.
        rows: cells as texts and numbers; the first cell of a row names it.
        words: True if cells are texts rather than numbers.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: bool = False

    def filled(self) -> PageTable:
        """Return the table without columns that are empty in every row."""
        filled_columns = [
            i
            for i in range(len(self.head))
            if i == 0 or not self.rows or any(shown(row[i]) for row in self.rows)
        ]
        rows = [[row[i] for i in filled_columns] for row in self.rows]
        return replace(self, head=[self.head[i] for i in filled_columns], rows=rows)

    @classmethod
    def of(cls, caption: str, frame: pd.DataFrame) -> PageTable:
        """Convert a data frame, without its index."""
        return cls(caption, [str(name) for name in frame], frame.astype(object).to_numpy().tolist())


@dataclass(frozen=True)
class Picture:
    """A figure with an alternative text, for readers who cannot see it.

    Attributes:
        content: bytes of a PNG file.
        text: alternative text.
        caption: text below the figure.
        width: width in pixels, at which it is not enlarged.
        wide: it has panels side by side; on a narrow screen it scrolls instead of shrinking.
    """

    content: bytes
    text: str
    caption: str
    width: int = 720
    wide: bool = False

    @classmethod
    def of(cls, figure: Figure, text: str, caption: str) -> Picture:
        """Render a Matplotlib figure."""
        content = io.BytesIO()
        figure.savefig(content, dpi=110)
        return cls(content.getvalue(), text, caption, round(110 * figure.get_figwidth()))

    @property
    def address(self) -> str:
        """The PNG file as a data URL."""
        return "data:image/png;base64," + base64.b64encode(self.content).decode()


@dataclass(frozen=True)
class BookEntry:
    """A column in a code book.

    Attributes:
        name, label: name of the column, and what it says in words.
        facts: pairs of heading and text; all entries of a section have the same headings.
        parts: shares of the levels, or quantiles, as texts.
        heights: heights of the bars of a small picture, from 0 to 1.
        alternative: text for readers who cannot see the picture.
        ends: texts below the first bar and the last.
    """

    name: str
    label: str
    facts: Sequence[tuple[str, str]]
    parts: Sequence[str] = ()
    heights: Sequence[float] = ()
    alternative: str = ""
    ends: tuple[str, str] | None = None

    def drawn(
        self,
        heights: Sequence[float],
        kind: str,
        parts: Sequence[str],
        ends: tuple[str, str] | None = None,
    ) -> BookEntry:
        """Add a picture of a kind, such as "Histogram", with bars of any scale."""
        top = max(heights) or 1.0
        scaled = [height / top for height in heights]
        where = "" if ends is None else f" from {ends[0]} to {ends[1]}"
        few = "; ".join(parts[:MOST_PARTS])
        text = f"{kind} of {self.name}{where}: {few}{'; ...' if len(parts) > MOST_PARTS else ''}"
        return replace(self, parts=parts, heights=scaled, alternative=text, ends=ends)


@dataclass(frozen=True)
class Link:
    """A file beside the page, and what it contains."""

    file: str
    content: str


@dataclass(frozen=True)
class Code:
    """A program to copy, with a caption."""

    caption: str
    text: str


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        title: heading of the section.
        text: paragraphs.
        points: items of a list.
        pictures, tables, book, code, links: shown below the text, in this order.
        folded: title and items of a part at the end that is shown on request.
    """

    title: str
    text: Sequence[str] = ()
    points: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[PageTable] = ()
    book: Sequence[BookEntry] = ()
    code: Sequence[Code] = ()
    links: Sequence[Link] = ()
    folded: tuple[str, Sequence[str]] | None = None

    @property
    def anchor(self) -> str:
        """Fragment identifier of the section in URLs."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A report page.

    Attributes:
        title: heading of the page.
        figures: headline numbers, as pairs of label and value.
        sections: sections in order.
        confidential: the page must not be published; it is marked as confidential.
        byline: a line below the heading.
        warnings: sentences to show above all sections.
    """

    title: str
    figures: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    confidential: bool = False
    byline: str = ""
    warnings: Sequence[str] = field(default_factory=tuple)

    def html(self) -> bytes:
        """Render the page as an HTML file."""
        return _template().render(page=self).encode()


def shown(value: object) -> str:
    """Format a cell: integers in full, other numbers with three digits, None and nan as empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        if math.isinf(value):
            return "infinite"
        short = f"{value:.3g}"
        return f"{float(short):,.0f}" if 1000 <= abs(value) < 1e15 else short
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def plain(value: float) -> str:
    """Format a number of the schema exactly, without a separator where it may be a year."""
    if abs(value) >= 1e15 or value % 1:
        return f"{value:.12g}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"


def to_spread(value: float, sd: float) -> str:
    """Format a mean or a quantile with three digits; to a tenth of the sd where that is finer.

    So a mean of years is 1987.3, and not 1,990.
    """
    if not 1e-6 < sd < abs(value) / 10 < 1e12:
        return shown(value)
    decimals = 1 - math.floor(math.log10(sd))
    near = round(value, decimals)
    return plain(near) if decimals <= 0 else f"{near:.{decimals}f}"


def per_cent(share: float) -> str:
    """Format a share in per cent with one decimal."""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def marked(text: str) -> str:
    """Convert a sentence to HTML: escape it, and show text between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def breakable(name: str) -> str:
    """Convert a name to HTML that breaks a line at underscores, not inside words."""
    return escape(name).replace("_", "_<wbr>")


@functools.cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(shown=shown, marked=marked, breakable=breakable)
    environment.globals["MOST_PARTS"] = MOST_PARTS
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text)
