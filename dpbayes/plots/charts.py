"""Figures for the confidential side.

Colours are safe for colour-blind readers; lines and labels carry the same information in grey.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.mechanisms import MECHANISMS
from dpbayes.privacy.accounting import stated
from dpbayes.schema import Column
from dpbayes.schema.values import short_texts

# Okabe & Ito's palette and Tol's wine, in an order that also separates in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255")
LINES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2, 2, 2)))
BULK = (0.01, 0.99)  # quantiles; a tail longer than their distance is cut to a fifth of it
CELLS = 4_000  # values beyond which a density is computed from counts in as many cells
MOST_BARS = 100  # most bars of one series
FEW_BARS = 30  # bars up to which those of records and synthetic rows stand side by side
LARGE = 10_000  # numbers on an axis that need a thousands separator
LETTERS = 32  # characters of all labels of numbers below a figure half as wide as a page
TICKS = 60  # characters of all labels below bars together, so that they do not overlap
SPACE = 1  # characters between them
NAMED, HIGH = 12, 3  # bars that all have labels, and the lines of these
STEPS = (1, 2, 5, 10, 20, 25, 50)  # bars from one label to the next, for round numbers
DATA = "#333333"
CONFIDENTIAL = "CONFIDENTIAL · computed from the records"


def _axes(ax: Axes | None, width: float) -> tuple[Figure, Axes]:
    if ax is not None:
        figure = ax.get_figure(root=True)
        assert isinstance(figure, Figure)
        return figure, ax
    figure = Figure(figsize=(width, 4.2), dpi=150, layout="constrained")
    return mark(figure, CONFIDENTIAL), figure.add_subplot()  # a fuller mark may replace it


def clean(ax: Axes) -> None:
    """Remove the frame above and at the right of axes, and draw grids below the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def spell(ax: Axes) -> None:
    """Label large numbers on the x axis in full, with thousands separators, not with a factor."""
    largest = max(map(abs, ax.get_xlim()))
    if largest >= LARGE:
        steps = LETTERS // len(f"{largest:,.0f}")
        ax.xaxis.set_major_locator(MaxNLocator(min(max(steps, 3), 5)))
        ax.xaxis.set_major_formatter("{x:,.0f}")


def mark(figure: Figure, text: str) -> Figure:
    """Add a small line of text, such as ``confidential_mark``, at the figure's lower edge."""
    figure.supxlabel(text, x=0.995, ha="right", fontsize=7, color="0.4")
    return figure


def png(figure: Figure, text: str) -> bytes:
    """Render a figure with a mark, such as ``confidential_mark``, as a PNG file."""
    content = io.BytesIO()
    mark(figure, text).savefig(content)
    return content.getvalue()


def confidential_mark(n: int, claim: Mapping[str, Any]) -> str:
    """Compose the text that marks a figure as confidential, with n and ε.

    Args:
        n: number of records.
        claim: the guarantee, as ``Guarantee.to_dict`` gives it.
    """
    change = "add/remove" if claim["holds_for"] == "add-remove" else "substitution"
    epsilon = claim["epsilon" if change == "add/remove" else "epsilon_substitution"]
    if "epsilon_person" in claim:
        epsilon, change = claim["epsilon_person"], f"{change}, all records of a person"
    paid = "no ε"
    if epsilon is not None:
        at = f" at δ = {stated(claim['delta'])}" if claim["delta"] else ""
        target = "" if claim["basis"] == "strict" else "target "
        paid = f"{target}ε = {stated(epsilon)} ({change}){at}"
    return f"CONFIDENTIAL · n = {n:,} · {paid}"


def lipschitz_violin(
    bounds: Mapping[str, ArrayLike],
    epsilon: float | None = None,
    ax: Axes | None = None,
    *,
    line: str = "ε/2",
) -> Figure:
    """Draw violins of Lipschitz bounds, one per synthesizer, and a dashed line at epsilon/2.

    Args:
        bounds: by label, the bounds of all records (``fit.fitted.lipschitz``), or of all Monte
            Carlo replicates.
        epsilon: target; None draws no line.
        ax: axes to draw on.
        line: label of the dashed line.
    Returns:
        the figure. Confidential: bounds are computed from the records.
    """
    values = {label: np.asarray(by_record, dtype=float) for label, by_record in bounds.items()}
    figure, ax = _axes(ax, width=1.6 + 1.35 * max(2, len(values)))
    if epsilon is not None:
        ax.axhline(epsilon / 2, color="black", linestyle="--", linewidth=1)
        ax.annotate(
            f"{line} = {epsilon / 2:.3g}", (1, epsilon / 2), (4, 0), ha="left", va="center",
            xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=8,
        )  # fmt: skip
    _violins(ax, values, _colours(values), maxima=True)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("Lipschitz bound  max |α log-likelihood|")
    clean(ax)
    return figure


def _violins(
    ax: Axes, groups: Mapping[str, Floats], colours: Mapping[str, str], *, maxima: bool
) -> None:
    """Draw a violin with quartiles for each group; mark its largest value if ``maxima``."""
    for position, (name, values) in enumerate(groups.items()):
        if np.ptp(values) > 0:  # a density needs spread
            violin = ax.violinplot(values, [position], widths=0.85, showextrema=False)
            for body in violin["bodies"]:  # type: ignore[attr-defined]
                body.set(facecolor=colours[name], edgecolor="black", alpha=0.75, linewidth=0.8)
        quartiles = np.quantile(values, [0.25, 0.5, 0.75])
        ax.vlines(position, quartiles[0], quartiles[2], color="black", linewidth=3)
        ax.plot(position, quartiles[1], "o", color="white", markeredgecolor="black", markersize=5)
        if maxima:
            ax.plot(position, values.max(), "_", color="black", markersize=18)
            ax.annotate(
                f"{values.max():.2f}", (position, values.max()), (0, 3), ha="center", va="bottom",
                textcoords="offset points", fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # over the line
            )  # fmt: skip
    ax.set_xticks(range(len(groups)), list(groups))
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.grid(axis="y", color="0.9")


def _colours(names: Iterable[str]) -> dict[str, str]:
    """Choose a colour for each label.

    A mechanism has the same colour in every figure, by its place in the registry. If that is taken,
    and for labels of anything else, the next free colour is used.
    """
    order, colours = list(MECHANISMS), dict[str, str]()
    for label in names:
        name = label.split("\n")[0]
        first = order.index(name) if name in MECHANISMS else 0
        ring = [COLOURS[(first + k) % len(COLOURS)] for k in range(len(COLOURS))]
        free = [colour for colour in ring if colour not in colours.values()]
        colours[label] = (free or ring)[0]
    return colours


def _styles(names: Mapping[str, Any]) -> dict[str, Any]:
    """Choose colour and line style of each label; data are dark and solid."""
    styles: dict[str, Any] = {"data": (DATA, "-")}
    for name, colour in _colours(name for name in names if name != "data").items():
        styles[name] = colour, LINES[COLOURS.index(colour)]
    return {name: styles[name] for name in names}


def violin_panels(
    panels: Mapping[str, Mapping[str, Floats]],
    label: str,
    lines: Mapping[str, float] | None = None,
) -> Figure:
    """Draw violins side by side in panels that share a scale, each with a dashed line.

    Args:
        panels: by title, values by group, such as one per Monte Carlo replicate.
        label: label of the values.
        lines: height of the dashed line by panel; None draws no line.
    """
    names = list(dict.fromkeys(name for values in panels.values() for name in values))
    down = -(-len(panels) // 2)
    size = (2.0 + 1.5 * len(names), 0.4 + 3.6 * down)
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    axes = figure.subplots(down, 2, sharey=True, squeeze=False).ravel()
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax, (title, values) in zip(axes, panels.items(), strict=False):
        _violins(ax, values, _colours(names), maxima=False)
        ax.tick_params(axis="x", labelrotation=30, labelsize=8)
        ax.set_title(title, fontsize=10)
        if lines is not None:
            ax.axhline(lines[title], color="black", linestyle="--", linewidth=1)
        clean(ax)
    for ax in axes[::2]:
        ax.set_ylabel(label)
    return figure


def density_overlay(
    column: Column,
    original: pd.Series,
    synthetic: Mapping[str, pd.Series],
    ax: Axes | None = None,
) -> Figure:
    """Draw the confidential outcome next to synthetic ones, as densities or shares of levels.

    Args:
        column: declaration of the outcome.
        original: confidential values, shape (n,).
        synthetic: synthetic values by label.
        ax: axes to draw on.
    """
    figure, ax = _axes(ax, width=7.2)
    every = {"data": original, **synthetic}
    missing = {name: f"{values.isna().mean():.0%}" for name, values in every.items()}
    label = _label(column, missing)
    series = {name: values.dropna() for name, values in every.items()}
    if column.levels or column.whole:
        _shares(ax, column, series, [_styles(series)[name][0] for name in series])
    else:
        numbers = {k: v.to_numpy(dtype=float) for k, v in series.items()}
        shown = shown_range(list(numbers.values()))
        curves = {k: density(v, column, shown) for k, v in numbers.items()}
        return density_lines(curves, label + beyond(shown, numbers), ax)
    ax.set_xlabel(label)
    top = ax.get_ylim()[1]
    ax.set_ylim(0, 1.25 * top if column.levels else top)  # bars leave no room for a legend
    ax.legend(frameon=False, ncols=2 if column.levels else 1)
    clean(ax)
    return figure


def _label(column: Column, missing: Mapping[str, str]) -> str:
    """Label a column with its title and, if it is optional, shares of missing values by series."""
    shares = ", ".join(f"{share} of {name}" for name, share in missing.items())
    return f"{column.title} (missing: {shares})" if column.optional else column.title


def density_lines(
    curves: Mapping[str, tuple[Floats, Floats]], label: str, ax: Axes | None = None
) -> Figure:
    """Draw densities as lines; that of the data is filled.

    Args:
        curves: by label, points and densities as ``density`` returns them.
        label: label of the outcome.
        ax: axes to draw on.
    """
    figure, ax = _axes(ax, width=7.2)
    for name, (colour, line) in _styles(curves).items():
        x, y = curves[name]
        if name == "data":
            ax.fill_between(x, y, color="0.85", linewidth=0)
        ax.plot(x, y, color=colour, linestyle=line, linewidth=1.8, label=name)
    ax.set_xlabel(label)
    ax.set_ylabel("density")
    ax.set_ylim(bottom=0)
    spell(ax)
    ax.legend(frameon=False)
    clean(ax)
    return figure


def density_panels(
    column: Column, original: pd.Series, synthetic: Mapping[str, pd.Series], across: int = 4
) -> Figure:
    """Draw a ``density_overlay`` for each synthetic outcome, in panels titled with its label."""
    down = -(-len(synthetic) // across)
    figure = Figure(figsize=(2.7 * across, 2.5 * down), dpi=150, layout="constrained")
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for ax in axes[len(synthetic) :]:
        ax.set_axis_off()
    for number, (label, values) in enumerate(synthetic.items()):
        ax = axes[number]
        density_overlay(column, original, {"synthetic": values}, ax)
        ax.set_title(label, fontsize=9)
        if number % across:
            ax.set_ylabel("")
        lowest = number + across >= len(synthetic)
        ax.tick_params(labelbottom=lowest)
        ax.set_xlabel(column.title if lowest else "")
    axes[0].autoscale(axis="y")  # each panel has fixed the shared scale
    axes[0].set_ylim(bottom=0)
    _one_legend(figure, list(axes[: len(synthetic)]))
    return figure


def _one_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Replace the legends of axes by a single one above them all."""
    for ax in axes:
        legend = ax.get_legend()
        assert legend is not None
        legend.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


MOST_PANELS = 20


def beside_records(
    columns: Sequence[Column], original: pd.DataFrame, datasets: Sequence[pd.DataFrame]
) -> Figure:
    """Draw each column of the records beside the data sets, for the first columns.

    Of several data sets the mean is drawn, and the range between the smallest and the largest.

    Args:
        columns: synthetic columns.
        original: the confidential records.
        datasets: the m synthetic data sets.
    """
    shown = list(columns)[:MOST_PANELS]
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure = Figure(figsize=(7.2 * across, 3.4 * down), dpi=150, layout="constrained")
    for number, column in enumerate(shown, start=1):
        ax = figure.add_subplot(down, across, number)
        _beside(ax, column, original[column.name], [data[column.name] for data in datasets])
        clean(ax)
    if len(shown) > 1:
        _one_legend(figure, figure.axes)
    return figure


def _beside(ax: Axes, column: Column, original: pd.Series, synthetic: Sequence[pd.Series]) -> None:
    """Draw shares or densities of one column: records in grey, data sets in blue."""
    series = {str(i): values.dropna() for i, values in enumerate([original, *synthetic])}
    counted = bool(column.levels or column.whole)
    if counted:
        shares = _level_shares if column.levels else _count_shares
        names, heights, wide = shares(column, series)
        _set_ticks(ax, names, wide)
        edges, curves = np.arange(len(names) + 1) - 0.5, list(heights.values())
    else:
        numbers = {label: values.to_numpy(dtype=float) for label, values in series.items()}
        shown = shown_range(list(numbers.values()))
        drawn = [density(values, column, shown) for values in numbers.values()]
        edges, curves = drawn[0][0], [y for _, y in drawn]
        ax.set_ylabel("density")
    data, made = curves[0], np.array(curves[1:])
    mean, low, high = made.mean(axis=0), made.min(axis=0), made.max(axis=0)
    label = f"synthetic, mean and range of {len(made)}" if len(made) > 1 else "synthetic"
    if not counted:
        ax.fill_between(edges, data, color="0.85", linewidth=0, label="data")
        ax.plot(edges, data, color=DATA, linewidth=1)
        ax.fill_between(edges, low, high, color=COLOURS[0], alpha=0.25, linewidth=0)
        ax.plot(edges, mean, color=COLOURS[0], linewidth=1.6, label=label)
    elif len(data) > FEW_BARS:
        ax.stairs(data, edges, fill=True, color="0.8", label="data")
        ax.stairs(data, edges, color=DATA, linewidth=0.7)
        ax.stairs(high, edges, baseline=low, fill=True, color=COLOURS[0], alpha=0.25)
        ax.stairs(mean, edges, color=COLOURS[0], linewidth=1.4, label=label)
    else:
        middle = np.arange(len(data))
        ax.bar(middle - 0.2, data, 0.4, color="0.8", edgecolor=DATA, linewidth=0.5, label="data")
        ax.bar(middle + 0.2, mean, 0.4, color=COLOURS[0], label=label)
        if len(made) > 1:
            ax.vlines(middle + 0.2, low, high, color="black", linewidth=1.2)
    ax.set_ylim(bottom=0)
    if not counted:
        spell(ax)
    missing = [float(values.isna().mean()) for values in synthetic]
    ends = dict.fromkeys(f"{share:.0%}" for share in (min(missing), max(missing)))
    blank = {"data": f"{original.isna().mean():.0%}", "synthetic": " to ".join(ends)}
    far = "" if counted else beyond(shown, {"data": numbers["0"], "synthetic": numbers["1"]})
    ax.set_xlabel(_label(column, blank) + far)
    ax.legend(frameon=False)


def shown_range(series: Sequence[Floats]) -> tuple[float, float] | None:
    """Return the range to show of several samples: all of it, but for a tail that is longer.

    A few values far out would make a line of all others. None if there are no values.
    """
    filled = [values for values in series if len(values)]
    if not filled:
        return None
    low, high = (float(end) for end in (min(map(np.min, filled)), max(map(np.max, filled))))
    inner = np.quantile(np.concatenate(filled), BULK)
    width, below, above = float(np.ptp(inner)), inner[0] - low, high - inner[1]
    if not width:
        return low, high
    return (
        float(low if below < width else inner[0] - width / 5),
        float(high if above < width else inner[1] + width / 5),
    )


def beyond(shown: tuple[float, float] | None, series: Mapping[str, Floats]) -> str:
    """Say in a label which share of each sample lies outside of what is shown; empty if none."""
    if shown is None:
        return ""
    shares = {
        name: float(((values < shown[0]) | (values > shown[1])).mean())
        for name, values in series.items()
        if len(values)
    }
    if not any(shares.values()):
        return ""
    said = (f"{_percent(share)} of {name}" for name, share in shares.items())
    return f" (beyond: {', '.join(said)})"


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def density(
    values: Floats, column: Column, shown: tuple[float, float] | None = None
) -> tuple[Floats, Floats]:
    """Estimate a kernel density, reflected at the declared bounds so that no mass leaves them.

    Args:
        values: shape (n,).
        column: declaration of the outcome.
        shown: range of the points, and a twentieth of it at either end; that of ``values`` if None.

    Returns:
        points and densities, shape (400,) each.
    """
    assert column.lower is not None
    assert column.upper is not None
    # Shows only the range of the values: the declared one can be far wider.
    low, high = shown or shown_range([values]) or (column.lower, column.upper)
    margin = 0.05 * (high - low) or 0.05 * (column.upper - column.lower)
    x = np.linspace(max(column.lower, low - margin), min(column.upper, high + margin), 400)
    if len(values) < 2 or np.ptp(values) == 0:
        return x, np.zeros_like(x)
    kernel, share = _kernel(values, x[0], x[-1])
    reflected = kernel(2 * column.lower - x) + kernel(2 * column.upper - x)
    return x, share * (kernel(x) + reflected)


def _kernel(values: Floats, low: float, high: float) -> tuple[stats.gaussian_kde, float]:
    """Kernel density of the values near a range, and the share that they are of all.

    The bandwidth is Scott's, of the sd or of the interquartile range over 1.34, which a long tail
    does not widen. Many values are counted in bins, which takes a thousandth of the work.
    """
    spread = float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34
    bandwidth = len(values) ** -0.2 * min(float(values.std()), spread or np.inf)
    far = 4 * bandwidth
    near = values[(values >= low - far) & (values <= high + far)]
    if len(near) < 2 or np.ptp(near) == 0:
        near = values
    share, weights = len(near) / len(values), None
    if len(near) > CELLS:
        counts, edges = np.histogram(near, CELLS)
        near, weights = (edges[1:] + edges[:-1])[counts > 0] / 2, counts[counts > 0]
    sd = float(np.sqrt(np.cov(near, aweights=weights)))
    return stats.gaussian_kde(near, bandwidth / sd, weights), share


def _shares(ax: Axes, column: Column, series: Mapping[str, pd.Series], colours: list[str]) -> None:
    bars = _level_shares(column, series) if column.levels else _count_shares(column, series)
    names, shares, wide = bars
    width = 0.8 / len(series)
    for i, (label, colour) in enumerate(zip(series, colours, strict=False)):
        positions = np.arange(len(names)) + (i - (len(series) - 1) / 2) * width
        ax.bar(
            positions, shares[label], width, color=colour, edgecolor="black", linewidth=0.3,
            label=label,
        )  # fmt: skip
    _set_ticks(ax, names, wide)


def _set_ticks(ax: Axes, names: Sequence[str], wide: int) -> None:
    """Name the bars, or every few of them, and say how many values a bar has."""
    if 1 < len(names) <= NAMED:
        room = TICKS // len(names) - SPACE
        names = [
            textwrap.fill(textwrap.shorten(name, HIGH * room, placeholder=" …"), room)
            for name in names
        ]
    wide_name = max((len(line) for name in names for line in name.splitlines()), default=1)
    least = max(1, -(-len(names) * (wide_name + SPACE) // TICKS))
    step = next((step for step in STEPS if step >= least), least)
    ax.set_xticks(range(0, len(names), step), names[::step])
    ax.set_ylabel("share of records" if wide == 1 else f"share of records by {wide:,} values")


Shares = tuple[list[str], dict[str, Floats], int]  # bar names, heights by label, values per bar


def _level_shares(column: Column, series: Mapping[str, pd.Series]) -> Shares:
    """Compute a bar for each level, up to the first ``MOST_BARS``."""
    levels = [str(level) for level in column.levels[:MOST_BARS]]
    heights_by_label: dict[str, Floats] = {}
    for label, values in series.items():
        shares = values.astype(str).value_counts(normalize=True)
        heights = [float(shares.get(level, 0.0)) for level in levels]
        heights_by_label[label] = np.array(heights, dtype=np.float64)
    return short_texts(column.levels[:MOST_BARS]), heights_by_label, 1


def _count_shares(column: Column, series: Mapping[str, pd.Series]) -> Shares:
    """Compute a bar for each whole number, or for classes of several, so that bars stay few."""
    values = {label: s.to_numpy(dtype=np.int64) for label, s in series.items()}
    low = int(column.lower or 0)
    if not sum(map(len, values.values())):
        return [], dict.fromkeys(values, np.empty(0)), 1
    top = max(int(np.quantile(np.concatenate(list(values.values())), 0.995)), low + 1)
    wide = -(-(top - low + 1) // MOST_BARS)
    bars = (top - low) // wide + 1
    names = [column.shown(low + k * wide) for k in range(bars)]  # named after the lowest value
    heights: dict[str, Floats] = {}
    for label, numbers in values.items():
        place = (numbers - low) // wide
        inside = place[(place >= 0) & (place < bars)]
        counts = np.bincount(inside, minlength=bars)
        heights[label] = np.asarray(counts / max(len(numbers), 1), dtype=np.float64)
    return names, heights, wide
