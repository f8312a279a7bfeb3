"""Park & Ghosh 2014: R-U maps, coefficients, attacks, histograms, and what their text says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from dpbayes.arrays import Vector
from dpbayes.heavy import pd
from dpbayes.report.charts import COLOURS, LINES
from dpbayes.studies.park_ghosh import chains, maps
from dpbayes.studies.park_ghosh.maps import (
    BOOTSTRAPS,
    EPSILONS,
    MARGINAL,
    PEGS,
    PER_BLOCK,
    PMI,
    RESET,
    RISK,
    TERMS,
    UTILITY,
)
from dpbayes.studies.runner import Chart, Piece, Report, Study, rounded

REPLICATES = 10
CLEAR = 3.0  # standard errors of the mean difference, over replicates
SMALL, LARGE = EPSILONS[:3], EPSILONS[4:]
DISTRIBUTIONS = UTILITY[:3]
ALGORITHMS = (PEGS, RESET, PMI)
Pairs = list[tuple[str, float, str, float]]  # mechanism and ε that has more, and that has less


@dataclass(frozen=True)
class Ordering:
    """What the paper's text says of a figure.

    Attributes:
        said: in few words.
        measures: of which it says it.
        pairs: what has more than what, for one name of `pegs-rs`.
    """

    said: str
    measures: tuple[str, ...]
    pairs: Callable[[str], Pairs]


def _over(first: tuple[str, ...], second: tuple[str, ...], epsilons: tuple[float, ...]) -> Pairs:
    return [(a, e, b, e) for a in first for b in second for e in epsilons if a != b]


def _over_bootstrap(reset: str) -> Pairs:
    return [(a, e, BOOTSTRAPS[0], np.inf) for a in (PEGS, reset, PMI) for e in EPSILONS]


def _less_with_more(reset: str) -> Pairs:
    return [(a, EPSILONS[0], a, EPSILONS[-1]) for a in (PEGS, reset, PMI)]


ORDERINGS = (
    Ordering("all are closer at ε = 100 than at 0.1", DISTRIBUTIONS, _less_with_more),
    Ordering(
        "pegs-rs is closest at small ε (to 1)",
        DISTRIBUTIONS,
        lambda reset: _over((PEGS, PMI), (reset,), SMALL),
    ),
    Ordering(
        "pegs is closer than pegs-rs at large ε (from 10)",
        DISTRIBUTIONS,
        lambda reset: _over((reset,), (PEGS,), LARGE),
    ),
    Ordering(
        "pegs-rs has the closest coefficients",
        UTILITY[3:],
        lambda reset: _over((PEGS, PMI), (reset,), EPSILONS),
    ),
    Ordering("diagnoses are harder to infer than from a bootstrap", RISK[:1], _over_bootstrap),
    Ordering("errors in charges are larger at ε = 0.1 than at 100", RISK[1:2], _less_with_more),
    Ordering("more unique records than a bootstrap has", RISK[2:], _over_bootstrap),
)


def orderings(found: pd.DataFrame) -> pd.DataFrame:
    """Each ordering under both readings of ε: pairs that hold, that do not, and that are unclear.

    Differences are within a replicate; ``CLEAR`` standard errors of their mean decide.
    """
    keys = ["measure", "mechanism", "epsilon"]
    by_case = {case: part.to_numpy() for case, part in _wide(found, keys)}
    rows = []
    for one in ORDERINGS:
        for reset in (RESET, PER_BLOCK):
            for measure in one.measures:
                pairs = one.pairs(reset)
                z = np.array(
                    [_z(by_case[measure, a, e] - by_case[measure, b, f]) for a, e, b, f in pairs]
                )
                rows.append(
                    (one.said, measure, reset, len(z), int((z > CLEAR).sum()),
                     int((z < -CLEAR).sum()), int((np.abs(z) <= CLEAR).sum()))
                )  # fmt: skip
    return pd.DataFrame(
        rows, columns=["the paper", "measure", "with", "pairs", "hold", "opposite", "unclear"]
    )


def _wide(
    found: pd.DataFrame, keys: list[str]
) -> Iterator[tuple[tuple[str, str, float], pd.Series]]:
    wide = found.pivot_table(index=keys, columns="piece", values="value")
    yield from wide.iterrows()  # type: ignore[misc]  # a tuple, of three keys


def _z(difference: Vector) -> float:
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return float(difference.mean() / error) if error > 0 else 0.0


def chart(found: pd.DataFrame, measures: tuple[str, ...], *, total: bool = False) -> Chart:
    """A panel for each measure: its mean by ε for every mechanism, bootstraps as lines.

    Source: park-ghosh-2014, figure 5; figure 6; figure 7; figure 9.

    Args:
        total: ε of the whole release below, in place of that of a record.
    """
    key = "total" if total else "epsilon"
    shown = found[found["measure"].isin(measures)]
    means = shown.groupby(["measure", "mechanism", key])["value"].mean().reset_index()
    figure = Figure(figsize=(3.3 * len(measures), 3.8), dpi=150, layout="constrained")
    names = (*ALGORITHMS, PER_BLOCK, MARGINAL)
    for ax, measure in zip(np.atleast_1d(figure.subplots(1, len(measures))), measures, strict=True):
        part = means[means["measure"] == measure]
        for place, name in enumerate(names):
            one = part[part["mechanism"] == name]
            style = ("-", *LINES)[place]
            ax.plot(
                one[key], one["value"], marker="o", markersize=3, label=name, color=COLOURS[place],
                linestyle=style,
            )  # fmt: skip
        for name, style in zip(BOOTSTRAPS, ("-", ":"), strict=True):
            level = float(part.loc[part["mechanism"] == name, "value"].iloc[0])
            ax.axhline(level, color="0.5", linestyle=style, linewidth=1, label=name)
        ax.set_xscale("log")
        if measure in UTILITY:
            ax.set_yscale("log")
        ax.set_title(measure, fontsize=9)
        ax.set_xlabel("ε of the release" if total else "ε of a synthetic record")
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=7, loc="outside right upper")
    return Chart(figure, means)


def coefficients(found: pd.DataFrame) -> Chart:
    """Coefficients of the linear regression less those of the records, at ε = 0.1 and 10.

    Source: park-ghosh-2014, figure 8.
    """
    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    data = []
    for ax, epsilon in zip(figure.subplots(1, 2, sharey=True), (0.1, 10.0), strict=True):
        for place, name in enumerate(ALGORITHMS):
            here = found[(found["mechanism"] == name) & (found["epsilon"] == epsilon)]
            means = here.groupby("measure")["value"].mean()
            values = [means[f"linear: {term}"] for term in TERMS]
            data += [(epsilon, name, t, v) for t, v in zip(TERMS, values, strict=True)]
            ax.plot(values, range(len(TERMS)), "osD"[place], color=COLOURS[place], label=name)
        ours = found[found["mechanism"] == BOOTSTRAPS[0]].groupby("measure")["value"].mean()
        values = [ours[f"linear: {term}"] for term in TERMS]
        data += [(epsilon, "bootstrap", t, v) for t, v in zip(TERMS, values, strict=True)]
        ax.plot(values, range(len(TERMS)), "k|", markersize=14, label="bootstrap of the records")
        ax.set_yticks(range(len(TERMS)), TERMS)
        ax.set_title(f"ε = {epsilon:g} of a record", fontsize=9)
        ax.set_xlabel("coefficient for charge, in bins")
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=7, loc="outside right upper")
    columns = ["epsilon", "mechanism", "term", "coefficient"]
    return Chart(figure, pd.DataFrame(data, columns=columns))


def _by_total(found: pd.DataFrame) -> pd.DataFrame:
    """Means by measure, mechanism, δ and ε."""
    return found.pivot_table(
        index=["measure", "mechanism"], columns=["delta", "epsilon"], values="value"
    )


def pieces(replicates: int) -> list[Piece]:
    """Replicates of the maps, the chains, one record, and replicates at a total ε."""
    one: list[Piece] = [{"part": "chains"}, {"part": "steps"}]
    return [*[{"part": "maps"}] * replicates, *one, *[{"part": "totals"}] * replicates]


def piece(seed: np.random.SeedSequence, part: str) -> pd.DataFrame:
    """One of them."""
    runs = {
        "maps": maps.run, "chains": chains.run, "steps": chains.steps, "totals": maps.totals
    }  # fmt: skip
    return runs[part](seed).assign(part=part)


def report(found: pd.DataFrame) -> Report:
    """Means by mechanism and ε, the orderings, and the figures."""
    parts = {
        str(part): rows.dropna(axis="columns", how="all").drop(columns="part")
        for part, rows in found.groupby("part")
    }
    of_maps = parts["maps"]
    held = orderings(of_maps)
    lines = ["Perturbed Gibbs samplers on made-up discharges (Park & Ghosh 2014), means"]
    tables = {"maps": of_maps, "orderings": held}
    for measure in maps.MEASURES:
        here = of_maps[of_maps["measure"] == measure]
        table = here.pivot_table(index="mechanism", columns="epsilon", values="value")
        lines += [f"\n{measure}, by ε of a synthetic record\n", rounded(table, 4)]
    lines += [f"\nWhat the paper says, by differences of {CLEAR:g} standard errors\n"]
    lines += [held.to_string(index=False)]
    if "totals" in parts:
        tables["totals"] = parts["totals"]
        lines += ["\nAt a total ε of the release, noisy keys paid for, uniform seeds"]
        lines += [rounded(_by_total(parts["totals"]), 4)]
    figures = {
        "figure-5-6-7": chart(of_maps, UTILITY),
        "figure-5-6-7-total": chart(of_maps, UTILITY, total=True),
        "figure-8": coefficients(of_maps),
        "figure-9": chart(of_maps, RISK),
    }
    if "chains" in parts:
        figures["figure-4"] = chains.chart(parts["chains"])
    if "steps" in parts:
        steps = parts["steps"].drop(columns="piece")
        tables["table-3"] = steps
        numbers = steps.columns.drop("step")
        text = steps.astype(dict.fromkeys(numbers, int)).to_string(index=False)
        lines += ["\nOne record, step by step (as Table 3)\n", text]
    return Report("\n".join(lines), tables, figures)


STUDY = Study(
    "pegs",
    "Park & Ghosh 2014, section 4: utility and risk of perturbed Gibbs samplers by ε",
    REPLICATES,
    pieces,
    piece,
    report,
    least=2,
)
