"""Figures for report pages: distributions, pairs of columns, risks, regressions, weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd
from dpbayes.pages.page import plain
from dpbayes.plots.charts import COLOURS, DATA, beyond, shown_range, spell
from dpbayes.schema import Column
from dpbayes.schema.values import short_texts

SYNTHETIC = COLOURS[0]
MOST = 40  # largest number of levels shown as bars
FEW, RARE = 12, 0.001  # levels that are always shown, and the share of others that are


def distribution(
    column: Column, original: pd.Series, synthetic: pd.Series, label: str = "data"
) -> Figure:
    """Plot shares of levels side by side, or cumulative shares of numbers, which show atoms.

    A column that has two different numbers at most, such as 0 and 1, is shown as levels.

    Args:
        column: its declaration.
        original, synthetic: validated, shape (n,) and (n',).
        label: legend entry of ``original``.
    """
    columns = {label: original.dropna(), "synthetic": synthetic.dropna()}
    names = [str(level) for level in column.levels]
    if not names and column.calendar is None:
        distinct = sorted({float(x) for values in columns.values() for x in values.unique()})
        if len(distinct) <= 2:
            names = [plain(x) for x in distinct]
            columns = {key: values.astype(float).map(plain) for key, values in columns.items()}
    shares = _shares(names, columns) if names else pd.DataFrame()
    shares = shares.rename(dict(zip(names, short_texts(column.levels), strict=False)))
    bars = len(shares)
    height = 1.1 + 0.28 * bars if bars < 8 else 0.8 + 0.19 * bars
    figure = Figure(figsize=(4.4, max(1.8, height) if names else 2.7), layout="constrained")
    ax = figure.add_subplot()
    if names:
        for i, (key, colour) in enumerate(zip(columns, (DATA, SYNTHETIC), strict=True)):
            place = np.arange(len(shares)) + 0.4 * (i - 0.5)
            ax.barh(place, shares[key].to_numpy(), 0.38, color=colour, label=key)
        ax.set_yticks(range(len(shares)), [_cut(name, 30) for name in shares.index], fontsize=8)
        ax.set_ylim(len(shares) - 0.4, -0.6)
        ax.set_xlabel("share of records with a value" if column.optional else "share of records")
    else:
        samples = {name: np.sort(values.to_numpy(dtype=float)) for name, values in columns.items()}
        for (name, numbers), colour in zip(samples.items(), (DATA, SYNTHETIC), strict=True):
            line = "-" if name == label else "--"
            share = np.arange(1, len(numbers) + 1) / max(1, len(numbers))
            ax.step(_axis(column, numbers), share, line, where="post", color=colour, label=name)
        ax.set_ylabel("share at or below")
        ax.set_ylim(0, 1.02)
        if column.calendar is not None:
            ax.tick_params(axis="x", labelrotation=30, labelsize=8)
        else:
            if shown := shown_range(list(samples.values())):
                ax.set_xlim(*shown)
            ax.set_xlabel(beyond(shown, samples).strip(" ()"), fontsize=8)
            spell(ax)
    ax.set_title(_cut(column.title, 40), fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower right")
    return figure


def _shares(names: Sequence[str], columns: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Shares of levels in the given order; if there are many, rare ones are merged."""
    shares = pd.DataFrame(
        {
            name: values.astype(str).value_counts(normalize=True).reindex(list(names)).fillna(0.0)
            for name, values in columns.items()
        }
    )
    largest = shares.max(axis=1)
    if len(shares) <= FEW or (len(shares) <= MOST and (largest >= RARE).all()):
        return shares
    frequent = largest[largest >= RARE].nlargest(MOST - 1).index
    shown = shares.loc[[name for name in names if name in set(frequent)]]
    rest = (shares.sum() - shown.sum()).to_frame(f"{len(shares) - len(shown):,} others").T
    return pd.concat([shown, rest])


def _axis(column: Column, numbers: Floats) -> NDArray[Any]:
    """Convert days and moments to dates for Matplotlib; other numbers stay."""
    return numbers if column.calendar is None else column.calendar.moments(numbers)


def pairs(names: Sequence[str], distances: Floats) -> Figure:
    """Plot the total variation distance of every pair of columns, as a grid.

    Args:
        names: names of the columns.
        distances: symmetric, shape (columns, columns); single columns on the diagonal.
    """
    size = max(3.6, 0.42 * len(names) + 1.8)
    figure = Figure(figsize=(size + 0.8, size), layout="compressed")  # suits a fixed aspect ratio
    ax = figure.add_subplot()
    shown = ax.imshow(distances, cmap="Blues", vmin=0, vmax=max(0.1, float(distances.max())))
    ticks = [_cut(name, 14) for name in names]
    ax.set_xticks(range(len(names)), ticks, rotation=60, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), ticks, fontsize=8)
    if len(names) <= 12:
        for i, j in np.ndindex(distances.shape):
            dark = distances[i, j] > 0.6 * shown.get_clim()[1]
            ax.text(
                j, i, f"{distances[i, j]:.2f}", ha="center", va="center", fontsize=7,
                color="white" if dark else "black",
            )  # fmt: skip
    figure.colorbar(shown, ax=ax, label="total variation distance", shrink=0.8)
    return figure


def risk(table: pd.DataFrame) -> Figure:
    """Plot the shares of a risk table: with synthetic rows, without them, and the bound by ε.

    Args:
        table: with columns ``measure``, ``synthetic``, ``without`` and ``bound by ε``; only shares
            are shown.
    """
    shares = ["measure", "synthetic", "without", "bound by ε"]
    shown = table[table["synthetic"].between(0, 1) & ~table["measure"].str.contains("distance")]
    shown = shown[~shown["measure"].str.startswith("error of")][shares]
    figure = Figure(figsize=(6.4, 1.1 + 0.3 * max(3, len(shown))), layout="constrained")
    ax = figure.add_subplot()
    place = np.arange(len(shown))
    series = zip(shares[1:], ("o", "|", "<"), (SYNTHETIC, DATA, COLOURS[5]), strict=True)
    for name, marker, colour in series:
        values = shown[name].to_numpy(dtype=float)
        present = ~np.isnan(values)
        if not present.any():
            continue
        ax.plot(
            values[present], place[present], marker, color=colour, label=name,
            markersize=12 if marker == "|" else 6, markeredgewidth=1.6,
        )  # fmt: skip
    names = [_cut(str(name), 40) for name in shown["measure"]]
    ax.set_yticks(place, names, fontsize=8)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xlabel("share or rate", fontsize=9)
    ax.grid(axis="both", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def regression(
    formula: str, fits: Mapping[str, tuple[Floats, Floats]], names: Sequence[str]
) -> Figure:
    """Plot coefficients with 95 % intervals for the records and for synthetic rows.

    Each is shown as its difference from the records' coefficient, in standard errors of the latter.

    Args:
        formula: title of the figure.
        fits: for ``data`` and ``synthetic``, coefficients and standard errors, shape (p,) each.
        names: names of the coefficients.
    """
    figure = Figure(figsize=(6.0, 0.9 + 0.42 * max(2, len(names))), layout="constrained")
    ax = figure.add_subplot()
    centre, unit = fits["data"]
    unit = np.where(unit > 0, unit, 1.0)
    for k, (label, colour) in enumerate((("data", DATA), ("synthetic", SYNTHETIC))):
        value, error = fits[label]
        place = np.arange(len(names)) + 0.24 * (k - 0.5)
        off = (value - centre) / unit
        ax.errorbar(off, place, xerr=1.96 * error / unit, fmt="o", color=colour, label=label,
                    capsize=2, markersize=4)  # fmt: skip
    ax.axvline(0, color="0.6", linewidth=0.8)
    ax.set_yticks(range(len(names)), [_cut(name, 36, 22) for name in names], fontsize=8)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("difference from the records, in standard errors", fontsize=9)
    ax.set_title(_cut(formula, 44), fontsize=9, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower right")
    return figure


def weights(table: pd.DataFrame) -> Figure:
    """Plot the weight of each record against its unweighted Lipschitz bound.

    Args:
        table: columns ``weight`` and ``lipschitz_unweighted`` by record.
    """
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot(table["lipschitz_unweighted"], table["weight"], ".", color=SYNTHETIC, markersize=3)
    ax.set_xlabel("Lipschitz bound of the record, unweighted")
    ax.set_ylabel("weight α")
    ax.set_ylim(-0.02, 1.05)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def _cut(name: str, most: int = 24, end: int | None = None) -> str:
    """Shorten a long name in the middle and keep its last ``end`` characters.

    Names often differ at the end.
    """
    end = most // 3 if end is None else end
    return name if len(name) <= most else f"{name[: most - end - 1]}…{name[-end:]}"
