"""What ``dpbayes study`` runs and prints, by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _anchored(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import anchored

    replicates = replicates or 20
    rows = []
    for row in anchored.run(replicates, seed):
        rows.append(row)
        if sys.stderr.isatty():
            print(f"\r{row.replicate + 1} of {replicates}", end="", file=sys.stderr)
    found = anchored.table(rows)
    print(f"\navg-ECDF x 1e4, n = {anchored.N}, {replicates} replicates (standard error)\n")
    print(anchored.side_by_side(found).to_string())
    print("\nRatio of the mean to the design's figure\n")
    print(found["ratio"].unstack("epsilon").iloc[:, ::-1].round(2).to_string())
    print("\nEarnings, beta regression (NUTS)\n")
    print(anchored.run_earnings((1.0, 0.5), seed).round(5).to_string())
    return found


def _charest(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import charest

    found = charest.run(replicates or charest.RUNS, seed)
    print("\nBeta-binomial synthetic counts, n = 100 (Charest 2010); difference in standard errors")
    for table, rows in found.groupby("table"):
        shown = rows.drop(columns=["table", "note"]).dropna(axis="columns", how="all")
        formats = {"paper": "{:.3f}", "ours": "{:.3f}", "se": "{:.3f}", "difference": "{:.1f}"}
        text = shown.assign(**{k: shown[k].map(v.format) for k, v in formats.items()})
        print(f"\nTable {table}\n")
        print(text.to_string(index=False))
    _notes(found)
    return found


def _modips_rules(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import modips_rules

    found = modips_rules.run(replicates or modips_rules.RUNS, seed)
    stars = found["difference"].gt(3).map({True: "*", False: " "})
    cells = found["ours"].map("{:.3f}".format) + " " + found["paper"].map("{:.3f}".format) + stars
    index = ["case", "epsilon", "n", "p", "method"]
    table = found.assign(cell=cells).set_index(index)["cell"].unstack()[list(modips_rules.METHODS)]
    largest = found["se"].max()
    print("\nCoverage of 95% intervals, m = 10: ours, then Liu's Table 1; n as printed there")
    print(f"(standard error of ours at most {largest:.3f}; * differs by more than 3)\n")
    print(table.sort_index(level=[0, 1], ascending=[True, False]).to_string())
    _notes(found)
    return found


def _known_draws(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import known_draws

    found = known_draws.run(replicates or known_draws.RUNS, seed)
    print(f"\nCoverage of 95% intervals after m releases, n = {known_draws.N}\n")
    print(found.round(3).to_string(na_rep=""))
    return found


def _comparison_1(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import comparison

    found = comparison.run_binary(replicates or comparison.REPLICATES, seed)
    print("\nInference on a share from synthetic data sets (Bowen & Liu, study 1)")
    _print_curves(found, "share", 100)
    return found


def _comparison_2(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import comparison

    found = comparison.run_normal(replicates or comparison.REPLICATES, seed)
    print("\nInference on μ and σ² from synthetic data sets (Bowen & Liu, study 2)")
    for parameter in ("mean", "variance"):
        _print_curves(found[found["truth"] == 1], parameter, 100)
    return found


def _print_curves(found: pd.DataFrame, parameter: str, n: int) -> None:
    rows = found[(found["parameter"] == parameter) & (found["n"] == n)]
    rows = rows.assign(**{"log ε": rows["epsilon"].map(math.log).round().astype(int)})
    order = list(dict.fromkeys(rows["method"]))
    for measure in ("bias", "rmse", "width", "coverage"):
        table = rows.pivot(index=["truth", "method"], columns="log ε", values=measure)
        print(f"\n{parameter}, n = {n}: {measure} by log ε\n")
        print(table.reindex(order, level="method").round(3).to_string())
    print(f"\nStandard error of coverage at most {rows['se'].max():.3f}; --out has every n.")


def _fertility(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import fertility

    found = fertility.run(replicates or fertility.REPLICATES, seed)
    cells = found["ours"].map("{:.3g}".format) + found["paper"].map(" ({:g})".format)
    table = found.assign(cell=cells).pivot(index="quantity", columns="method", values="cell")
    print("\nFertility data, ε = e: ours, and Bowen & Liu's Tables 4 and 5 (in brackets)\n")
    print(table.reindex(list(fertility.PRINTED))[list(fertility.METHODS)].fillna("").to_string())
    print(f"\nStandard errors: consistency at most {found['se'].max():.2g}; see --out.")
    return found


def _allocation(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import allocation

    found = allocation.run(replicates or allocation.REPLICATES, seed)
    print("\nInference on μ by the part w of ε for the mean (Liu, section 5.3; m = 10, ε = 1)\n")
    print(found.round(3).to_string(index=False))
    return found


def _earnings(replicates: int | None, seed: int) -> pd.DataFrame:
    from dpbayes.studies import earnings

    found = earnings.run(replicates or earnings.DATASETS, seed)
    print(f"\nEvery mechanism on the shipped earnings, ε = {earnings.EPSILON:g} per data set\n")
    formats = {"avg-ECDF": "{:.5f}", "se": "{:.5f}", "max-ECDF": "{:.3f}", "education": "{:+.2f}"}
    shown = found.assign(**{k: found[k].map(v.format) for k, v in formats.items()})
    print(shown.to_string())
    print(f"\nNot for a continuous column: {', '.join(earnings.NOT_HERE)}.")
    return found


def _notes(found: pd.DataFrame) -> None:
    for note in dict.fromkeys(note for note in found["note"] if note):
        count = int((found["note"] == note).sum())
        print(f"\n{count} figure(s) of {len(found)} off by more than 3 standard errors: {note}.")


STUDIES: dict[str, Callable[[int | None, int], pd.DataFrame]] = {
    "anchored": _anchored,
    "charest": _charest,
    "modips-rules": _modips_rules,
    "known-draws": _known_draws,
    "comparison-1": _comparison_1,
    "comparison-2": _comparison_2,
    "fertility": _fertility,
    "allocation": _allocation,
    "earnings": _earnings,
}


def figures(name: str, found: pd.DataFrame) -> dict[str, Figure]:
    """Figures of a study's table, by name."""
    from dpbayes.studies import comparison

    if name == "comparison-1":
        return {"share": comparison.curves(found, "share")}
    if name == "comparison-2":
        return {p: comparison.curves(found, p) for p in ("mean", "variance")}
    return {}
