"""Figures of posterior predictive checks. They are confidential."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.predictive import Check, band
from dpbayes.mechanisms.survival import kaplan_meier
from dpbayes.plots.charts import COLOURS, clean
from dpbayes.schema import Column
from dpbayes.schema.values import short_texts

MOST_PANELS = 6  # most columns that are shown
_BARS = 40
_RECORDS: dict[str, Any] = {"color": "black", "linewidth": 1.6}
_REPLICATE: dict[str, Any] = {"color": COLOURS[0], "linewidth": 0.7, "alpha": 0.5}


def check_panels(check: Check) -> Figure:
    """Draw a hanging rootogram (Kleiber & Zeileis 2016) and residuals of the first six columns.

    Bars hang from the roots of expected numbers: if the model holds, they end near 0. Residuals are
    shown as the difference of their distribution function from the uniform one, with a band.
    Durations that may be censored have a Kaplan-Meier curve instead of the rootogram.
    """
    shown = check.columns[:MOST_PANELS]
    figure = Figure(figsize=(10, 3.2 * len(shown)), dpi=120, layout="constrained")
    panels = figure.subplots(len(shown), 2, squeeze=False)
    for column, (left, right) in zip(shown, panels, strict=True):
        if column.name in check.events:
            _survival(left, column, check)
        else:
            drawn = [replicate[column.name] for replicate in check.replicates]
            _rootogram(left, column, check.observed[column.name], drawn)
        if column.name in check.residuals:
            _differences(right, check.residuals[column.name])
        else:
            right.set_axis_off()
    return figure


def _numbers(column: Column, values: Sequence[pd.Series]) -> tuple[list[Floats], list[str]]:
    """Count the records in each bar, by sample, and name the bars."""
    if column.levels:
        levels = column.levels[:_BARS]
        counts = [sample.astype(str).value_counts() for sample in values]
        bars = [np.asarray([float(each.get(str(k), 0)) for k in levels]) for each in counts]
        return bars, short_texts(levels)
    arrays = [np.asarray(sample, dtype=float) for sample in values]
    low = float(column.lower or 0)
    high = max(float(sample.max()) for sample in arrays)
    wide = (high - low) / _BARS or 1.0
    step = 1.0 if column.whole else _step(arrays[0])
    if step:  # else a bar has one value more than the next
        wide = step * float(np.ceil(wide / step))
        first = float(arrays[0].min())
        low = first - step * float(np.ceil((first - low) / step))
    firsts = low + wide * np.arange(int(np.ceil((high - low) / wide)) + 2)
    names, edges = [f"{value:.3g}" for value in firsts[:-1]], firsts - step / 2
    return [np.histogram(sample, edges)[0].astype(float) for sample in arrays], names


def _step(values: Floats) -> float:
    """Smallest difference of values that are all multiples of it, or 0: scores, rounded amounts."""
    distinct = np.unique(values)
    if len(distinct) < 2:
        return 0.0
    step = float(np.diff(distinct).min())
    parts = (distinct - distinct[0]) / step
    return step if np.allclose(parts, np.rint(parts), rtol=0, atol=1e-3) else 0.0


def _rootogram(ax: Axes, column: Column, observed: pd.Series, drawn: Sequence[pd.Series]) -> None:
    counts, names = _numbers(column, [observed, *drawn])
    expected = np.sqrt(np.mean(counts[1:], axis=0))
    roots = np.sqrt(counts[0])
    place = np.arange(len(names))
    ax.use_sticky_edges = False  # else bars that hang below 0 end in the axis
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
    for number, table in enumerate([*check.replicates, check.observed]):
        times, surviving = kaplan_meier(time, event, table)
        last = max(float(table[time.name].max()), float(times[-1]))
        records = number == len(check.replicates)
        style = _RECORDS if records else _REPLICATE
        label = "records" if records else "replicates" if number == 0 else None
        ax.step(
            np.append(times, last),
            np.append(surviving, surviving[-1]),
            where="post",
            label=label,
            **style,
        )
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
