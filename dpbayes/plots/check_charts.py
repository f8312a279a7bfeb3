"""Figures of posterior predictive checks. Confidential."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.posterior.predictive import Check, band
from dpbayes.mechanisms.posterior.survival import kaplan_meier
from dpbayes.plots.charts import COLOURS, clean
from dpbayes.schema import Column

MOST_PANELS = 6  # columns
_BARS = 40
_RECORDS: dict[str, Any] = {"color": "black", "linewidth": 1.6}
_REPLICATE: dict[str, Any] = {"color": COLOURS[0], "linewidth": 0.7, "alpha": 0.5}


def check_panels(check: Check) -> Figure:
    """Per column, the first six: a hanging rootogram (Kleiber & Zeileis 2016), and residuals.

    Bars hang from the roots of expected numbers: where the model holds they end near 0. Residuals
    are shown as the difference of their distribution function from the uniform one, in a band. Of
    durations whose event need not be seen the Kaplan-Meier curve stands in place of the rootogram.
    """
    shown = check.columns[:MOST_PANELS]
    figure = Figure(figsize=(10, 3.2 * len(shown)), dpi=120, layout="constrained")
    panels = figure.subplots(len(shown), 2, squeeze=False)
    for column, (left, right) in zip(shown, panels, strict=True):
        if column.name in check.events:
            _survival(left, column, check)
        else:
            drawn = [one[column.name] for one in check.replicates]
            _rootogram(left, column, check.observed[column.name], drawn)
        if column.name in check.residuals:
            _differences(right, check.residuals[column.name])
        else:
            right.set_axis_off()
    return figure


def _numbers(column: Column, values: Sequence[pd.Series]) -> tuple[list[Floats], list[str]]:
    """How many records are in each bar, and the bars' names."""
    if column.levels:
        names = [str(level) for level in column.levels[:_BARS]]
        found = [one.astype(str).value_counts() for one in values]
        return [np.asarray([float(one.get(k, 0)) for k in names]) for one in found], names
    every = [np.asarray(one, dtype=float) for one in values]
    low = float(column.lower or 0)
    high = max(float(one.max()) for one in every)
    wide = (high - low) / _BARS or 1.0
    if column.whole:
        wide = float(np.ceil(wide))
    edges = low + wide * np.arange(int(np.ceil((high - low) / wide)) + 2)
    names = [f"{edge:.3g}" for edge in edges[:-1]]
    return [np.histogram(one, edges)[0].astype(float) for one in every], names


def _rootogram(ax: Axes, column: Column, observed: pd.Series, drawn: Sequence[pd.Series]) -> None:
    counts, names = _numbers(column, [observed, *drawn])
    expected = np.sqrt(np.mean(counts[1:], axis=0))
    roots = np.sqrt(counts[0])
    place = np.arange(len(names))
    ax.use_sticky_edges = False  # bars that hang below 0 do not end in the axis
    ax.bar(place, roots, bottom=expected - roots, color="0.8", edgecolor="0.4", linewidth=0.5)
    ax.plot(place, expected, color=COLOURS[0], marker="o", markersize=3, label="expected")
    ax.axhline(0, color="black", linewidth=1)
    step = max(1, len(names) // 8)
    ax.set_xticks(place[::step], names[::step])
    ax.set_xlabel(column.title)
    ax.set_ylabel("root of the number of records")
    ax.legend(frameon=False)
    clean(ax)


def _survival(ax: Axes, time: Column, check: Check) -> None:
    event = check.events[time.name]
    for number, one in enumerate([*check.replicates, check.observed]):
        at, left = kaplan_meier(time, event, one)
        last = max(float(one[time.name].max()), float(at[-1]))
        records = number == len(check.replicates)
        style = _RECORDS if records else _REPLICATE
        label = "records" if records else "replicates" if number == 0 else None
        ax.step(np.append(at, last), np.append(left, left[-1]), where="post", label=label, **style)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel(time.title)
    ax.set_ylabel(f"share without {event.name} (Kaplan-Meier)")
    ax.legend(frameon=False)
    clean(ax)


def _differences(ax: Axes, residuals: Vector) -> None:
    n, half = len(residuals), band(len(residuals))
    ordered = np.sort(residuals)
    ax.fill_between([0, 1], -half, half, color="0.9", linewidth=0)
    ax.step(ordered, np.arange(1, n + 1) / n - ordered, color=COLOURS[5])
    ax.axhline(0, color="black", linewidth=1)
    ax.set_xlabel("quantile residual")
    ax.set_ylabel("ECDF less uniform")
    clean(ax)
