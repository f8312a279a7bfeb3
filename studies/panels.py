"""Grids of curves for studies with several measures in several cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from dpbayes.core.lazy import pd
from dpbayes.plots.charts import COLOURS, LINES

HEIGHT = 2.1  # of a row, in inches
NOMINAL = 0.95  # coverage, marked by a line in its panels


def grid(
    panels: Mapping[str, pd.DataFrame],
    measures: Mapping[str, str],
    x: str,
    by: str,
    width: float = 2.3,
) -> tuple[Figure, Any]:
    """Draw a grid of curves: columns are panels, rows are measures, lines are values of ``by``.

    A value has the same colour and dash pattern in all panels; the legend is above them.

    Args:
        panels: data of each panel, by title.
        measures: axis labels, by column of the data.
        x: column of the horizontal axis.
        by: column whose values are the lines.
        width: width of a panel in inches.
    Returns:
        The figure, and its axes, shape (measures, panels).
    """
    total_width = width * len(panels) + 0.6
    figure = Figure(
        figsize=(total_width, HEIGHT * max(len(measures), 1.5)), dpi=120, layout="constrained"
    )
    axes = figure.subplots(len(measures), len(panels), sharex=True, sharey="row", squeeze=False)
    places: dict[str, int] = {}  # in order of appearance, so that colours agree in all panels
    for column, (title, rows) in zip(axes.T, panels.items(), strict=True):
        for ax, measure in zip(column, measures, strict=True):
            _lines(ax, rows, x, measure, by, places)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel(x)
    for row, label in zip(axes, measures.values(), strict=True):
        row[0].set_ylabel(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    one_line = sum(0.6 + 0.075 * len(label) for label in labels) <= total_width
    columns = len(labels) if one_line else len(panels)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    return figure, axes


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, more of them if it covers a short range."""
    low, high = axis.get_view_interval()
    subs = (1, 2, 3, 4, 5, 6, 8) if high < 20 * low else (1, 3) if high < 200 * low else (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _lines(
    ax: Axes, rows: pd.DataFrame, x: str, measure: str, by: str, places: dict[str, int]
) -> None:
    for name, part in rows.groupby(by, sort=False):
        place = places.setdefault(str(name), len(places))
        ax.plot(
            part[x], part[measure], color=(*COLOURS, "black")[place],
            linestyle=("-", *LINES)[place], linewidth=1.4, label=str(name),
        )  # fmt: skip
    if measure == "coverage":
        ax.axhline(NOMINAL, color="black", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
