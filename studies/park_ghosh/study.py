"""Study of Park & Ghosh 2014: R-U maps, coefficients, attacks, histograms, and claims."""

from __future__ import annotations

import numpy as np

from dpbayes.core.lazy import pd
from studies.park_ghosh import chains, figures, maps, orderings
from studies.park_ghosh.cases import CASES
from studies.park_ghosh.maps import MEASURES, RISK, UTILITY, labels
from studies.runner import Chart, Piece, Report, Study, rounded

REPLICATES = 10
RUNS = {"maps": maps.run, "chains": chains.run, "steps": chains.steps}


def pieces(replicates: int) -> list[Piece]:
    """Pieces for each table: one record, the chains, and then replicates of the maps."""
    parts = ["steps", "chains", *["maps"] * replicates]
    return [{"part": part, "case": case} for part in parts for case in CASES]


def piece(seed: np.random.SeedSequence, part: str, case: str) -> pd.DataFrame:
    """Run one piece."""
    rows = RUNS[part](seed, case).assign(case=case)
    return rows if "part" in rows else rows.assign(part=part)


def report(found: pd.DataFrame) -> Report:
    """Report means by mechanism and ε, orderings and figures, for each table that was run."""
    lines: list[str] = []
    tables: dict[str, pd.DataFrame] = {}
    charts: dict[str, Chart] = {}
    orderings_by_table, means = {}, []
    for name in [name for name in CASES if (found["case"] == name).any()]:
        rows_of_table = found[found["case"] == name].drop(columns="case")
        of_maps = rows_of_table[rows_of_table["part"].isin(["maps", "totals", "bootstrap"])]
        of_maps = of_maps.dropna(axis="columns", how="all")
        tables[f"maps-{name}"] = of_maps
        orderings_by_table[name] = orderings.orderings(of_maps)
        measured = of_maps[of_maps["measure"].isin(MEASURES)]
        means.append(figures.summaries(measured).assign(table=name))
        lines += _means(of_maps, name)
        for part, end in (("maps", ""), ("totals", "-total")):
            charts[f"figure-5-6-7-{name}{end}"] = figures.maps(of_maps, name, UTILITY, part)
            charts[f"figure-9-{name}{end}"] = figures.maps(of_maps, name, RISK, part)
        charts[f"figure-8-{name}"] = figures.coefficients(of_maps, name)
        for part in ("chains", "steps"):
            rows = rows_of_table[rows_of_table["part"] == part].dropna(axis="columns", how="all")
            if len(rows) and part == "chains":
                charts[f"figure-4-{name}"] = chains.chart(rows, name)
            elif len(rows):
                tables[f"table-3-{name}"] = steps = chains.table(rows)
                lines += ["\nOne record, step by step (as Table 3)\n", steps.to_string(index=False)]
    tables["orderings"] = comparison = orderings.side_by_side(orderings_by_table)
    tables["means"] = pd.concat(means, ignore_index=True)
    lines += [
        "\nWhat the paper says: pairs that hold / do not / are unclear, by differences of "
        f"{orderings.CLEAR:g} standard errors\n",
        comparison.to_string(index=False),
    ]
    return Report("\n".join(lines), tables, charts)


def _means(rows: pd.DataFrame, case: str) -> list[str]:
    """Format means by ε of a record, and by ε of the release."""
    description = CASES[case].what
    lines = [f"\nPerturbed Gibbs samplers on {description} (Park & Ghosh 2014), means"]
    names = labels(CASES[case])
    by_record = rows[rows["part"] != "totals"]
    for measure in MEASURES:
        selected = by_record[by_record["measure"] == measure]
        table = selected.pivot_table(index="mechanism", columns="epsilon", values="value")
        lines += [f"\n{names.get(measure, measure)}, by ε of a synthetic record\n"]
        lines += [rounded(table, 4)]
    totals = rows[(rows["part"] == "totals") & rows["measure"].isin(MEASURES)]
    table = totals.pivot_table(
        index=["measure", "mechanism"], columns=["delta", "epsilon"], values="value", sort=False
    )
    lines += ["\nBy ε of the release and δ, noisy keys paid for, uniform seeds", rounded(table, 4)]
    return lines


STUDY = Study(
    "pegs",
    "Park & Ghosh 2014, section 4: utility and risk of perturbed Gibbs samplers by ε",
    REPLICATES,
    pieces,
    piece,
    report,
    least=2,
)
