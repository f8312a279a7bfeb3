"""What ``dpbayes study`` runs and prints, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pandas as pd


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


def _notes(found: pd.DataFrame) -> None:
    for note in dict.fromkeys(note for note in found["note"] if note):
        count = int((found["note"] == note).sum())
        print(f"\n{count} figure(s) of {len(found)} off by more than 3 standard errors: {note}.")


STUDIES: dict[str, Callable[[int | None, int], pd.DataFrame]] = {
    "anchored": _anchored,
    "charest": _charest,
    "modips-rules": _modips_rules,
    "known-draws": _known_draws,
}
