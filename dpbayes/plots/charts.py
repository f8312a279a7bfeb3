"""Figures for the confidential side. Colours are safe for colour-blind readers; lines and labels
carry the same information in grey."""

from __future__ import annotations

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

# Okabe & Ito's palette and Tol's wine, in an order that also separates in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255")
LINES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2, 2, 2)))
CELLS = 4_000  # of a density of more values than these
MOST_BARS = 100  # of one series
LARGE = 10_000  # numbers on an axis that need a mark between thousands
TICKS = 60  # characters of all labels below bars
DATA = "#333333"


def _axes(ax: Axes | None, width: float) -> tuple[Figure, Axes]:
    if ax is not None:
        figure = ax.get_figure(root=True)
        assert isinstance(figure, Figure)
        return figure, ax
    figure = Figure(figsize=(width, 4.2), dpi=150, layout="constrained")
    return figure, figure.add_subplot()


def clean(ax: Axes) -> None:
    """Axes without a frame above and at the right."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def spell(ax: Axes) -> None:
    """Large numbers below the axis as people write them, without a factor at its end."""
    if max(map(abs, ax.get_xlim())) >= LARGE:
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter("{x:,.0f}")


def mark(figure: Figure, text: str) -> Figure:
    """The figure with a small line at its lower edge: whose eyes it is for, n and ε."""
    figure.supxlabel(text, x=0.995, ha="right", fontsize=7, color="0.4")
    return figure


def confidential_mark(n: int, claim: Mapping[str, Any]) -> str:
    """What a figure of the confidential side says of itself.

    Args:
        n: records.
        claim: ``Guarantee.to_dict``.
    """
    epsilon, basis, change = claim["epsilon"], claim["basis"], "add/remove"
    if epsilon is None:
        epsilon, change = claim.get("epsilon_substitution"), "substitution"
    if epsilon is None:
        paid = "no ε"
    else:
        at = f" at δ = {stated(claim['delta'])}" if claim["delta"] else ""
        paid = f"{'' if basis == 'strict' else 'target '}ε = {stated(epsilon)} ({change}){at}"
    return f"CONFIDENTIAL · n = {n:,} · {paid}"


def lipschitz_violin(
    bounds: Mapping[str, ArrayLike],
    epsilon: float | None = None,
    ax: Axes | None = None,
    *,
    line: str = "ε/2",
) -> Figure:
    """Violins of Lipschitz bounds, one per synthesizer; dashed line at epsilon/2.

    Args:
        bounds: by label: of each record (``fit.fitted.lipschitz``), or of each Monte Carlo
            replicate.
        epsilon: target; None draws no line.
        ax: axes to draw on.
        line: what the dashed line is called.
    Returns:
        the figure. Confidential: bounds are computed from the records.
    """
    values = {label: np.asarray(found, dtype=float) for label, found in bounds.items()}
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
    """A violin with quartiles for each group; with its largest value if ``maxima``."""
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
    """A colour for each label: a mechanism's own, the same in every figure, by its place in the
    registry; the next free one where it is taken, and for labels of something else."""
    order, found = list(MECHANISMS), dict[str, str]()
    for label in names:
        name = label.split("\n")[0]
        first = order.index(name) if name in MECHANISMS else 0
        ring = [COLOURS[(first + k) % len(COLOURS)] for k in range(len(COLOURS))]
        free = [colour for colour in ring if colour not in found.values()]
        found[label] = (free or ring)[0]
    return found


def _styles(names: Mapping[str, Any]) -> dict[str, Any]:
    """Colour and line of each label; the data are dark and solid."""
    found: dict[str, Any] = {"data": (DATA, "-")}
    for name, colour in _colours(name for name in names if name != "data").items():
        found[name] = colour, LINES[COLOURS.index(colour)]
    return {name: found[name] for name in names}


def violin_panels(
    panels: Mapping[str, Mapping[str, Floats]],
    label: str,
    lines: Mapping[str, float] | None = None,
) -> Figure:
    """Violins side by side in panels with one scale, each with a dashed line.

    Args:
        panels: by title: values by group, such as one per Monte Carlo replicate.
        label: of the values.
        lines: height of the dashed line by panel.
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
    """The confidential outcome next to synthetic ones: densities, or shares of levels.

    Args:
        column: declaration of the outcome.
        original: shape (n,).
        synthetic: by label.
    """
    figure, ax = _axes(ax, width=7.2)
    every = {"data": original, **synthetic}
    label = _label(column, every)
    series = {name: values.dropna() for name, values in every.items()}
    if column.levels or column.whole:
        _shares(ax, column, series, [_styles(series)[name][0] for name in series])
    else:
        curves = {k: density(v.to_numpy(dtype=float), column) for k, v in series.items()}
        return density_lines(curves, label, ax)
    ax.set_xlabel(label)
    top = ax.get_ylim()[1]
    ax.set_ylim(0, 1.25 * top if column.levels else top)  # bars leave no room for a legend
    ax.legend(frameon=False, ncols=2 if column.levels else 1)
    clean(ax)
    return figure


def _label(column: Column, series: Mapping[str, pd.Series]) -> str:
    """A column's name, and how much of it is missing."""
    if not column.optional:
        return column.title
    shares = ", ".join(f"{values.isna().mean():.0%} of {name}" for name, values in series.items())
    return f"{column.title} (missing: {shares})"


def density_lines(
    curves: Mapping[str, tuple[Floats, Floats]], label: str, ax: Axes | None = None
) -> Figure:
    """Densities as lines; that of the data is filled.

    Args:
        curves: by label: points and densities, such as ``density`` gives.
        label: of the outcome.
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
    """``density_overlay`` with a panel for each synthetic outcome, the label above it."""
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
    axes[0].autoscale(axis="y")  # each panel had fixed the scale that all share
    axes[0].set_ylim(bottom=0)
    _one_legend(figure, list(axes[: len(synthetic)]))
    return figure


def _one_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """The legend that axes share, above all of them."""
    for ax in axes:
        legend = ax.get_legend()
        assert legend is not None
        legend.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


MOST_PANELS = 12


def density_overlays(
    columns: Sequence[Column], original: pd.DataFrame, synthetic: Mapping[str, pd.DataFrame]
) -> Figure:
    """``density_overlay`` for several columns, one panel each; the first twelve of them."""
    shown = list(columns)[:MOST_PANELS]
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure = Figure(figsize=(7.2 * across, 4.2 * down), dpi=150, layout="constrained")
    for number, column in enumerate(shown, start=1):
        ax = figure.add_subplot(down, across, number)
        values = {label: data[column.name] for label, data in synthetic.items()}
        density_overlay(column, original[column.name], values, ax)
    if len(shown) > 1:
        _one_legend(figure, figure.axes)
    return figure


def density(values: Floats, column: Column) -> tuple[Floats, Floats]:
    """Kernel density on the declared range, reflected at the bounds so that no mass leaves it."""
    assert column.lower is not None
    assert column.upper is not None
    # From here on the range shown: the declared one can be far wider than the values.
    top = min(column.upper, values.max(initial=column.lower) * 1.1)
    x = np.linspace(column.lower, top, 400)
    if len(values) < 2 or np.ptp(values) == 0:
        return x, np.zeros_like(x)
    kernel = _kernel(values)
    reflected = kernel(2 * column.lower - x) + kernel(2 * column.upper - x)
    return x, kernel(x) + reflected


def _kernel(values: Floats) -> stats.gaussian_kde:
    """By Scott's rule; of many values by their counts in cells, which is a thousand times less."""
    if len(values) <= CELLS:
        return stats.gaussian_kde(values)
    counts, edges = np.histogram(values, CELLS)
    middle = (edges[1:] + edges[:-1])[counts > 0] / 2
    return stats.gaussian_kde(middle, len(values) ** -0.2, counts[counts > 0])


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
    wide_name = max(map(len, names), default=1)
    step = max(1, -(-len(names) * wide_name // TICKS))
    ax.set_xticks(range(0, len(names), step), names[::step])
    ax.set_ylabel("share of records" if wide == 1 else f"share of records by {wide:,} values")


Shares = tuple[list[str], dict[str, Floats], int]  # names, heights by label, values of each bar


def _level_shares(column: Column, series: Mapping[str, pd.Series]) -> Shares:
    """A bar for each level, the first of them where there are very many."""
    levels = [str(level) for level in column.levels[:MOST_BARS]]
    found: dict[str, Floats] = {}
    for label, values in series.items():
        shares = values.astype(str).value_counts(normalize=True)
        heights = [float(shares.get(level, 0.0)) for level in levels]
        found[label] = np.array(heights, dtype=np.float64)
    return levels, found, 1


def _count_shares(column: Column, series: Mapping[str, pd.Series]) -> Shares:
    """A bar for each whole number, or for classes of as many of them as keep the bars few."""
    values = {label: s.to_numpy(dtype=np.int64) for label, s in series.items()}
    low = int(column.lower or 0)
    if not sum(map(len, values.values())):
        return [], dict.fromkeys(values, np.empty(0)), 1
    top = max(int(np.quantile(np.concatenate(list(values.values())), 0.995)), low + 1)
    wide = -(-(top - low + 1) // MOST_BARS)
    bars = (top - low) // wide + 1
    names = [column.shown(low + k * wide) for k in range(bars)]  # of the lowest in each
    found: dict[str, Floats] = {}
    for label, numbers in values.items():
        place = (numbers - low) // wide
        inside = place[(place >= 0) & (place < bars)]
        counts = np.bincount(inside, minlength=bars)
        found[label] = np.asarray(counts / max(len(numbers), 1), dtype=np.float64)
    return names, found, wide
