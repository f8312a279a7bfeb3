"""Writes the tables of docs/results/*.md and benchmarks/README.md from the CSV tables beside them.

    python docs/results.py OUT ...    take the tables of studies that ran into these folders
    python docs/results.py            write the pages
    python docs/results.py --check    compare, and write nothing

A page is prose with marks: what stands between `<!-- NAME ARGUMENT -->` and `<!-- end -->` is
written here, by the function `NAME`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from studies.bowen_liu import findings as bowen_liu
from studies.bowen_liu import findings_mixed as mixed
from studies.catalogue import STUDIES
from studies.findings import StudyFinding, judged
from studies.liu import findings as liu
from studies.park_ghosh.cases import CASES
from studies.park_ghosh.maps import DELTA

HERE = Path(__file__).parent / "results"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MARK = re.compile(r"<!-- (\w+) ([\w =;.,-]+) -->\n.*?<!-- end -->", re.DOTALL)
KEPT = {  # of each study, the tables that pages are made of
    "comparison-1": ["share"],
    "comparison-2": ["mean", "variance", "mean-symmetric", "variance-symmetric"],
    "comparison-3": ["measures"],
    "comparison-4": ["measures"],
    "fertility": ["fertility"],
    "allocation": ["allocation"],
    "number-of-sets": ["number-of-sets"],
    "modips-rules": ["modips-rules"],
    "charest": ["charest"],
    "censoring": ["counts"],
    "pegs": ["orderings", "means"],
    "tables": ["tables"],
    "tables-coverage": ["coverage"],
    "survey-weights": ["coverage"],
    "slope-coverage": ["coverage"],
    "anchors": ["anchors", "bands"],
    "score": ["cells", "skewed"],
    "score-groups": ["cells"],
}
FINDINGS: dict[str, tuple[StudyFinding, ...]] = {
    "comparison-1": bowen_liu.STUDY_1,
    "comparison-2": bowen_liu.STUDY_2,
    "comparison-3": mixed.STUDY_3,
    "comparison-4": mixed.STUDY_4,
    "allocation": liu.ALLOCATION,
    "number-of-sets": liu.NUMBER_OF_SETS,
}
FAR = 3.0  # standard errors


def take(out: Path) -> None:
    """Keep the tables of a study, of the pieces that are there, and how many these are."""
    said = json.loads((out / "study.json").read_text())
    name = said["study"]
    paths = sorted((out / "pieces").glob("*.parquet"))
    report = STUDIES[name].report(pd.concat(map(pd.read_parquet, paths), ignore_index=True))
    tables = [report.tables[table] for table in KEPT[name]]
    pd.concat(tables, ignore_index=True).to_csv(
        HERE / f"{name}.csv", index=False, float_format="%.5g"
    )
    runs = _runs()
    runs[name] = {"replicates": said["replicates"], "seed": said["seed"]}
    if len(paths) < said["pieces"]:
        runs[name] |= {"pieces": len(paths), "of": said["pieces"]}
    (HERE / "runs.json").write_text(json.dumps(runs, indent=2, sort_keys=True) + "\n")


def _runs() -> dict[str, dict[str, int]]:
    """Replicates and seed by study."""
    path = HERE / "runs.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(HERE / f"{name}.csv")


def _markdown(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    names = [str(name) for name in head]
    lines = [
        names,
        ["---"] * len(names),
        *([str(cell).replace("|", "\\|") for cell in row] for row in rows),
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def run(name: str) -> str:
    """What was run."""
    how = _runs()[name]
    asked = STUDIES[name].replicates
    less = "" if how["replicates"] >= asked else f" of the {asked:,} that are its default"
    less += f", {how['pieces']:,} of {how['of']:,} pieces" if "pieces" in how else ""
    return (
        f"`python -m studies {name}`: {how['replicates']:,} replicates{less}, seed {how['seed']}; "
        f"[figures]({name}.csv)."
    )


def findings(name: str) -> str:
    """Results in words, with verdicts."""
    found = judged(FINDINGS[name], _table(name))
    return _markdown(["result", "the paper", "verdict", "what does not hold here"],
                     found.itertuples(index=False))  # fmt: skip


def _verdict(ours: float, error: float, paper: float, digits: float) -> str:
    """Whether a printed figure lies within three standard errors and its own rounding."""
    return "held" if abs(ours - paper) <= FAR * error + digits else "not"


def figures(name: str) -> str:
    """Printed figures beside ours, a row each."""
    found = _table(name)
    key = [c for c in found if c not in ("ours", "se", "paper", "difference", "note")]
    rows = []
    for row in found.dropna(subset=["paper"]).to_dict("records"):
        if "difference" in row:
            verdict = "held" if row["difference"] <= FAR else "not"
        else:
            error = 0.0 if np.isnan(row["se"]) else row["se"]
            half = 0.5 * 10.0 ** -(len(f"{row['paper']:g}".partition(".")[2]))
            verdict = _verdict(row["ours"], error, row["paper"], half)
        shown = ["" if pd.isna(row[c]) else row[c] for c in key]
        error = "" if pd.isna(row["se"]) else f" ({row['se']:.2g})"
        rows.append([*shown, f"{row['ours']:.4g}{error}", f"{row['paper']:g}", verdict])
    return _markdown([*key, "ours (se)", "paper", "verdict"], rows)


def rules(name: str) -> str:
    """Liu's Table 1: a row for each of its rows."""
    found = _table(name)
    methods = list(dict.fromkeys(found["method"]))
    rows = []
    for key, part in found.groupby(["case", "epsilon", "n", "p"], sort=False):
        by = part.set_index("method")
        cells = [f"{by.ours[m]:.3f} ({by.paper[m]:.3f})" for m in methods]
        off = [m for m in methods if by.difference[m] > FAR]
        verdict = "held" if not off else "half: not " + ", ".join(off)
        rows.append([*(f"{k:g}" if not isinstance(k, str) else k for k in key), *cells, verdict])
    head = ["case", "ε", "n", "p", *methods, "verdict"]
    worst = found["se"].max()
    return f"{_markdown(head, rows)}\n\nOurs (paper); standard errors of ours up to {worst:.2g}."


def curves(argument: str) -> str:
    """Bias, RMSE and coverage of one parameter by method and log ε: study, then its name."""
    name, _, parameter = argument.partition(" ")
    found = _table(name)
    found = found[found["parameter"] == parameter]
    found = found.assign(k=np.log(found["epsilon"]).round().astype(int))
    ks = [-2, 0, 1, 2, 4]
    rows = []
    for method, part in found.groupby("method", sort=False):
        by = part.set_index("k")
        cells = [f"{by.bias[k]:.2f} / {by.rmse[k]:.2f} / {by.coverage[k]:.2f}" for k in ks]
        rows.append([f"`{method}`", *cells])
    head = [f"{parameter}: bias / RMSE / coverage", *(f"ε = e^{k}" for k in ks)]
    return f"{_markdown(head, rows)}\n\nStandard error of a coverage up to {found['se'].max():.2g}."


def allocation(measure: str) -> str:
    """Figure 8's coverages, biases or widths by w."""
    found = _table("allocation")
    found = found[found["w"].isin([0.1, 0.25, 0.5, 0.75, 0.9])]
    ws = sorted(found["w"].unique())
    rows = []
    for key, part in found.groupby(["bounds", "bounding", "n"], sort=False):
        by = part.set_index("w")[measure]
        rows.append([*key, *(f"{by[w]:.3f}" for w in ws)])
    head = ["bounds", "out of bounds", "n", *(f"w = {w:g}" for w in ws)]
    return _markdown(head, rows)


def counts(name: str) -> str:
    """Tables 1 and 3 of Hu, Williams & Savitsky: means, with errors."""
    found = _table(name)
    n = _runs()[name]["replicates"]
    rows = []
    keys = ["table", "epsilon", "c1", "synthesizer"]
    for key, part in found.groupby(keys, sort=False):
        by = part.set_index("quantity")
        error = float(np.hypot(by.ours["sd"] / np.sqrt(n), by.paper["sd"] / 10))
        verdict = _verdict(by.ours["mean"], error, by.paper["mean"], 0.5)
        ours = f"{by.ours['mean']:.0f} ({by.ours['sd'] / np.sqrt(n):.0f})"
        rows.append([*key, ours, f"{by.paper['mean']:.0f}", verdict])
    return _markdown([*keys, "ours, mean (se)", "paper, mean", "verdict"], rows)


READINGS = {
    "record": "of a record",
    "block": "of a record, of a block with reset",
    "total": "in total",
    "delta": "in total, δ = 10^-6",
}


def orderings(reading: str) -> str:
    """What Park & Ghosh say of their figures, a row each, with the measures of a row in one cell.

    ``held``: no pair of any table is clear the other way, and more are clear than not; ``not``: as
    many are the other way; ``unclear``: none is clear.
    """
    found = _table("pegs").dropna(subset=["the paper"])
    found = found[found["ε"] == READINGS[reading]]
    names = list(CASES)
    rows = []
    for said, part in found.groupby("the paper", sort=False):
        counts = np.array([[list(map(int, cell.split("/"))) for cell in part[n]] for n in names])
        hold, opposite, unclear = counts.sum(axis=(0, 1))
        held = "held" if hold > unclear and not opposite else "half"
        if opposite >= hold:
            held = "not" if opposite else "unclear"
        rows.append([said, *("; ".join(part[name]) for name in names), held])
    return _markdown(["the paper", *names, "verdict"], rows)


def distances(argument: str) -> str:
    """Means with errors, times 1,000, of a table's measure: by ε of a record, or of the release."""
    name, reading, measure = argument.split(" ", 2)
    found = _table("pegs").dropna(subset=["mean"])
    part = "maps" if reading == "record" else "totals"
    found = found[(found["part"] == part) & (found["table"] == name)]
    found = found[(found["measure"] == measure) & (found["delta"] == (reading == "delta") * DELTA)]
    cells = found.assign(
        cell=[
            f"{float(f'{1000 * m:.3g}'):g} ({float(f'{1000 * s:.1g}'):g})"
            for m, s in found[["mean", "se"]].to_numpy()
        ]
    ).pivot(index="mechanism", columns="epsilon", values="cell")
    head = [f"{name}, {measure}, × 10³ (se)", *(f"ε = {e:g}" for e in cells)]
    return _markdown(head, ([f"`{row[0]}`", *row[1:]] for row in cells.itertuples()))


def whole(population: str) -> str:
    """Measures of whole tables by `marginals`, means with errors, by ε and δ."""
    found = _table("tables")
    found = found[found["population"] == population.replace(" of", ",")]
    scale = {"avg_ecdf": 1e4}
    shown = {
        "avg_ecdf": "avg-ECDF × 10⁴", "tvd1": "TVD 1", "tvd2": "2", "tvd3": "3",
        "pmse": "pMSE ratio", "regression": "regression, largest", "regression_mean": "mean",
        "overlap": "overlap", "auc": "AUC", "seconds": "CPU s",
    }  # fmt: skip
    shown = {name: title for name, title in shown.items() if found[name].notna().any()}
    rows = []
    for row in found.sort_values(["epsilon", "delta"]).to_dict("records"):
        if np.isinf(row["epsilon"]):
            start = ["none, a bootstrap of the records"]
        else:
            start = [f"{row['epsilon']:g}" + f", {row['delta']:g}" * (row["delta"] > 0)]
        pairs = [(scale.get(c, 1) * row[c], scale.get(c, 1) * row[f"{c} se"]) for c in shown]
        rows.append(start + [_with_error(mean, error) for mean, error in pairs])
    return _markdown(["ε, δ", *shown.values()], rows)


def _with_error(mean: float, error: float) -> str:
    """With as many digits as the error bears: its first one."""
    digits = max(0, -math.floor(math.log10(error))) if error > 0 else 2
    return f"{mean:.{digits}f} ({error:.{digits}f})"


def coverage(name: str) -> str:
    """Coverage by number of records, ε and rows, and mean width over the quantities.

    A width is the half-width over 1.96 sds of the estimates, 1 where an interval is as wide as it
    should be.
    """
    found = _table(name)
    quantities = list(dict.fromkeys(found["quantity"]))
    rows = []
    for key, part in found.groupby(["n", "rows", "epsilon"], sort=True):
        by = part.set_index("quantity")
        width = (by["half-width"] / by["sd"] / 1.96).mean()
        cells = [f"{by.coverage[q]:.2f}" for q in quantities]
        rows.append([f"{key[0]:,}", f"{key[1]:,}", f"{key[2]:g}", *cells, f"{width:.2f}"])
    return _markdown(["n", "rows", "ε", *quantities, "width"], rows)


def population(name: str) -> str:
    """Coverage of figures of a population by design, and the bias with and without weights."""
    found = _table(name)
    found["lean"] = found["bias"].abs()
    found["lean, without weights"] = found["bias, without weights"].abs()
    rows = []
    for key, part in found.groupby(["n", "epsilon", "design"], sort=False):
        covered = part["coverage"]
        cells = [f"{part[c].mean():.1f}" for c in ("lean", "lean, without weights")]
        spread = f"{covered.mean():.2f} ({covered.min():.2f}, {covered.max():.2f})"
        width = (part["half-width"] / part["sd"] / 1.96).mean()
        rows.append([f"{key[0]:,}", f"{key[1]:g}", key[2], spread, *cells, f"{width:.2f}"])
    head = ["n", "ε", "design", "coverage", "bias", "bias without weights", "width"]
    return _markdown(head, rows)


def slopes(name: str) -> str:
    """Coverage and mean estimates by number of records, ε, `keep` and correlation."""
    found = _table(name)
    quantities = list(dict.fromkeys(found["quantity"]))
    rows = []
    for key, part in found.groupby(["n", "epsilon", "kept", "correlation"], sort=False):
        by = part.set_index("quantity")
        cells = [f"{by.coverage[q]:.2f} ({by.estimate[q]:.2f})" for q in quantities]
        rows.append(
            [f"{key[0]:,}", f"{key[1]:g}", "yes" if key[2] else "no", f"{key[3]:g}", *cells]
        )
    return _markdown(["n", "ε", "kept", "correlation", *quantities], rows)


ANCHORS = ("none", "two-stage", "histogram")


def bands(outcome: str) -> str:
    """Distance of each anchor in that of the default, by records per parameter."""
    found = _table("anchors")
    found = found[found["outcome"] == outcome]
    rows = []
    for row in found.to_dict("records"):
        low, high = (float(end) for end in row["band"].strip("[)").split(","))
        band = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} and more"
        cells = [
            "1" if row[name] == 1 and row[f"{name} se"] == 0
            else f"{row[name]:.2f}" if pd.isna(row[f"{name} se"])
            else f"{row[name]:.2f} ({row[name] * row[f'{name} se']:.2f})"
            for name in (*ANCHORS, "idle")
        ]  # fmt: skip
        rows.append([band, int(row["data sets"]), *cells])
    return _markdown(["n ε / p", "data sets", *ANCHORS, "default, times √α"], rows)


def anchors(family: str) -> str:
    """Distances by parameters, records and ε: none, two-stage, histogram, the default's in bold."""
    found = _table("anchors")
    found = found[found["family"] == family]
    epsilons = sorted(found["epsilon"].unique())
    rows = []
    for (p, n), part in found.groupby(["p", "n"]):
        by = part.set_index("epsilon")
        cells = []
        for epsilon in epsilons:
            if epsilon not in by.index:
                cells.append("")
                continue
            one = by.loc[epsilon]
            texts = {name: f"{float(f'{one[name]:.2g}'):g}" for name in ANCHORS}
            texts[one["taken"]] = f"**{texts[one['taken']]}**"
            cells.append(" / ".join(texts.values()))
        rows.append([int(p), f"{n:,.0f}", int(part["data sets"].min()), *cells])
    return _markdown(["p", "n", "data sets", *(f"ε = {e:g}" for e in epsilons)], rows)


def scores(family: str) -> str:
    """Distances by parameters, records and ε: score and anchored; and coverage after score."""
    found = _table("score")
    found = found[(found["family"] == family) & found["distance"].notna()]
    epsilons = sorted(set(found["epsilon"]) - {math.inf})
    rows = []
    for (p, n), part in found.groupby(["p", "n"]):
        by = part.set_index(["epsilon", "mechanism"])
        cells = []
        for epsilon in epsilons:
            ours, other = by.loc[(epsilon, "score")], by.loc[(epsilon, "anchored")]
            covered = "" if pd.isna(ours["covered"]) else f", {ours['covered']:.2f}"
            cells.append(f"{ours['distance']:.3g} / {other['distance']:.3g}{covered}")
        plain = by.loc[math.inf].iloc[0]
        seconds = by.xs("score", level="mechanism")["seconds"].median() / plain["seconds"]
        rows.append([int(p), f"{n:,.0f}", int(plain["sets"]), *cells, f"{seconds:.1f}"])
    return _markdown(["p", "n", "data sets", *(f"ε = {e:g}" for e in epsilons), "CPU"], rows)


def groups(name: str) -> str:
    """Errors of effects, coverage, time, by cell, ε and mechanism."""
    found = _table(name)
    rows = []
    for (family, n, count, sd), part in found.groupby(["family", "n", "groups", "sd"]):
        plain = part[part["mechanism"] == "unweighted"].iloc[0]
        for epsilon, own in part[part["mechanism"] != "unweighted"].groupby("epsilon"):
            by = own.set_index("mechanism")
            ours = by.loc["score"]
            other = f"{by.loc['anchored', 'error']:.3f}" if "anchored" in by.index else ""
            rows.append([
                family, f"{n:,.0f}", f"{count:,.0f}", f"{sd:g}", f"{epsilon:g}", int(ours["sets"]),
                f"{plain['error']:.3f}", f"{ours['error']:.3f}", other,
                f"{plain['covered']:.2f}", f"{ours['covered']:.2f}",
                f"{ours['seconds'] / plain['seconds']:.1f}",
            ])  # fmt: skip
    head = [
        "family", "n", "groups", "sd", "ε", "data sets", "error: without privacy", "score",
        "anchored", "covered: without privacy", "score", "CPU",
    ]  # fmt: skip
    return _markdown(head, rows)


def skews(name: str) -> str:
    """avg-ECDF x 10^4 by ε and mechanism."""
    found = _table(name)
    found = found[found["mean"].notna()]
    plain = found[found["mechanism"] == "unweighted"].iloc[0]
    methods = [m for m in found["mechanism"].unique() if m != "unweighted"]
    rows = []
    for epsilon, part in found.groupby("epsilon"):
        by = part.set_index("mechanism")
        if not math.isinf(float(epsilon)):
            cells = [f"{by['mean'][m]:.2f} ({by['sem'][m]:.2f})" for m in methods]
            rows.append([f"{epsilon:g}", *cells])
    text = _markdown(["ε", *methods], rows[::-1])
    return f"{text}\n\nWithout privacy {plain['mean']:.2f} ({plain['sem']:.2f})."


def benchmark(argument: str) -> str:
    """Rows of benchmarks/results/NAME.csv as they are, those that an argument asks for.

    ``NAME; ε=1 or 5; family=normal`` shows the rows with these values, and leaves out a column that
    is the same in all of them. A column ``X (Y)`` after ``X`` stands in brackets in the same cell,
    and a column without any value is left out.
    """
    name, *conditions = argument.split("; ")
    table = pd.read_csv(BENCHMARKS / "results" / f"{name}.csv", dtype=str, keep_default_na=False)
    for condition in conditions:
        column, _, values = condition.partition("=")
        table = table[table[column].isin(values.split(" or "))]
        if table[column].nunique() == 1:
            table = table.drop(columns=column)
    if table.empty:
        raise ValueError(f"no row of benchmarks/results/{name}.csv is asked for by {argument!r}")
    columns: dict[str, list[str]] = {}
    before = ""
    for column in map(str, table):
        cells = [f"{int(c):,}" if c.isdecimal() else c for c in table[column]]
        if not any(cells):
            continue
        if before and column.startswith(f"{before} ("):
            pairs = zip(columns.pop(before), cells, strict=True)
            cells = [f"{cell} ({more})" if more else cell for cell, more in pairs]
        columns[column] = cells
        before = column
    return _markdown(columns, zip(*columns.values(), strict=True))


TABLES: dict[str, Callable[[str], str]] = {
    f.__name__: f
    for f in (
        run, findings, figures, rules, curves, allocation, counts, orderings, distances, whole,
        coverage, population, slopes, bands, anchors, scores, groups, skews, benchmark,
    )
}  # fmt: skip


def write(page: str) -> str:
    """A page with its tables written anew."""

    def filled(found: re.Match[str]) -> str:
        name, argument = found.groups()
        try:
            text = TABLES[name](argument)
        except (KeyError, FileNotFoundError):
            text = f"`{argument}` was not run as the code stands."
        return f"<!-- {name} {argument} -->\n\n{text}\n\n<!-- end -->"

    return MARK.sub(filled, page)


def main(arguments: list[str]) -> int:
    """Exit status."""
    check = arguments == ["--check"]
    for out in [] if check else arguments:
        take(Path(out))
    behind = []
    for path in (*sorted(HERE.glob("*.md")), *BENCHMARKS.glob("README.md")):
        old = path.read_text(encoding="utf-8")
        if (new := write(old)) != old:
            behind.append(path.name)
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and behind:
        print(f"not in step: {', '.join(behind)}; run python docs/results.py", file=sys.stderr)
    return int(check and bool(behind))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
