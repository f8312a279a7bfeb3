"""Figures of the study of Park & Ghosh: R-U maps, coefficients, attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpbayes.core.lazy import pd
from dpbayes.plots.charts import COLOURS, LINES
from studies.panels import plain_numbers
from studies.park_ghosh.cases import CASES
from studies.park_ghosh.maps import (
    BLOCKS,
    BOOTSTRAPS,
    DELTA,
    MARGINAL,
    PEGS,
    PER_BLOCK,
    PMI,
    RESET,
    UTILITY,
    labels,
    with_block,
)
from studies.runner import Chart

ALGORITHMS = (PEGS, RESET, PMI)
STYLES = {  # colour, marker, and dash pattern
    PEGS: (COLOURS[0], "o", "-"),
    RESET: (COLOURS[1], "s", LINES[0]),
    PMI: (COLOURS[2], "D", LINES[1]),
    PER_BLOCK: (COLOURS[3], "v", LINES[2]),
    MARGINAL: (COLOURS[4], "^", LINES[3]),
    with_block(BLOCKS[0]): (COLOURS[1], "s", "-"),
    with_block(BLOCKS[1]): (COLOURS[5], "x", "-"),
}
BY_RECORD = (*ALGORITHMS, PER_BLOCK, MARGINAL)
BY_TOTAL = (PEGS, *(with_block(block) for block in BLOCKS), PMI, MARGINAL)


def maps(found: pd.DataFrame, case: str, measures: tuple[str, ...], part: str) -> Chart:
    """Draw a panel for each measure: mean and standard error by ε, and bootstraps as lines.

    Source: park-ghosh-2014, figure 5; figure 6; figure 7; figure 9.

    Args:
        found: rows of one table.
        case: name of the table.
        measures: measures to draw.
        part: ``maps`` for ε of a record; ``totals`` for ε of the release, with solid lines
            without δ and dashed lines with it.
    """
    selected = found[found["part"].isin([part, "bootstrap"]) & found["measure"].isin(measures)]
    means = summaries(selected)
    figure = Figure(figsize=(3.3 * len(measures), 3.8), dpi=150, layout="constrained")
    names = labels(CASES[case])
    for ax, measure in zip(np.atleast_1d(figure.subplots(1, len(measures))), measures, strict=True):
        rows = means[means["measure"] == measure]
        _lines(ax, rows, part)
        for name, style in zip(BOOTSTRAPS, ("-", ":"), strict=True):
            level = float(rows.loc[rows["mechanism"] == name, "mean"].iloc[0])
            ax.axhline(level, color="0.5", linestyle=style, linewidth=1, label=name)
        ax.set_xscale("log")
        plain_numbers(ax.xaxis)
        if measure in UTILITY:
            ax.set_yscale("log")
            plain_numbers(ax.yaxis)
        ax.set_title(names.get(measure, measure), fontsize=9)
        ax.set_xlabel(
            "ε of a synthetic record" if part == "maps" else "ε of the release; dashed: δ = 10⁻⁶"
        )
        ax.spines[["top", "right"]].set_visible(False)
    _legend(figure, case)
    return Chart(figure, means)


def _lines(ax: Axes, means: pd.DataFrame, part: str) -> None:
    shown = BY_RECORD if part == "maps" else BY_TOTAL
    for name in shown:
        colour, marker, dashes = STYLES[name]
        for delta in (0.0, DELTA):
            rows = means[(means["mechanism"] == name) & (means["delta"] == delta)]
            if rows.empty:
                continue
            ax.errorbar(
                rows["epsilon"], rows["mean"], rows["se"], marker=marker, markersize=3.5,
                label="_" if delta else name, color=colour, elinewidth=0.8,
                linestyle=dashes if part == "maps" else "--" if delta else "-",
            )  # fmt: skip


def summaries(found: pd.DataFrame) -> pd.DataFrame:
    """Means over replicates with standard errors, by measure, mechanism, δ and ε."""
    keys = ["part", "measure", "mechanism", "delta", "epsilon"]
    return found.groupby(keys, sort=False)["value"].agg(mean="mean", se="sem").reset_index()


def coefficients(found: pd.DataFrame, case: str) -> Chart:
    """Draw coefficients of the linear regression and those of the records, at ε = 0.1 and 10.

    Source: park-ghosh-2014, figure 8.
    """
    terms, data = CASES[case].coefficients, []
    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    for ax, epsilon in zip(figure.subplots(1, 2, sharey=True), (0.1, 10.0), strict=True):
        groups = [(name, epsilon, "maps") for name in ALGORITHMS]
        for place, (name, at, part) in enumerate([*groups, (BOOTSTRAPS[0], np.inf, "bootstrap")]):
            rows = found[
                (found["mechanism"] == name) & (found["epsilon"] == at) & (found["part"] == part)
            ]
            means = rows.groupby("measure")["value"].mean()
            values = [means[f"linear: {term}"] for term in terms]
            data += [(epsilon, name, t, v) for t, v in zip(terms, values, strict=True)]
            style: dict[str, Any]
            if part != "bootstrap":
                style = {"color": STYLES[name][0], "label": name}
            else:
                style = {"color": "black", "markersize": 14, "label": "bootstrap of the records"}
            ax.plot(values, range(len(terms)), "osD|"[place], **style)
        ax.set_yticks(range(len(terms)), terms)
        ax.set_title(f"ε = {epsilon:g} of a record", fontsize=9)
        ax.set_xlabel(f"coefficient for {CASES[case].outcome}, in bins")
        ax.axvline(0, color="0.85", linewidth=0.8, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
    _legend(figure, case)
    columns = ["epsilon", "mechanism", "term", "coefficient"]
    return Chart(figure, pd.DataFrame(data, columns=columns))


def _legend(figure: Figure, case: str) -> None:
    handles, names = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=7, loc="outside right upper")
    figure.suptitle(CASES[case].what, fontsize=9, x=0.01, ha="left")
