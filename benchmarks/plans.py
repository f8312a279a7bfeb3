"""Do the accuracies of `dpbayes plan` come true? Plans beside what real records give.

The earnings (all columns confidential) are synthesised by each mechanism; beside it stands what a
plan foresees from people made up from the schema, and from the other half of the records.
"""

from __future__ import annotations

import argparse

import dpbayes as dpb
from dpbayes.core.errors import DpbayesError
from dpbayes.demo.earnings import earnings
from dpbayes.planning.plan import EPSILONS
from dpbayes.planning.population import Population
from dpbayes.planning.trial import try_out

MECHANISMS = (dpb.Marginals, dpb.Modips, dpb.PerturbedHistogram, dpb.Laplace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
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
            try:
                found = [try_out(kind(epsilon), t, given.rows, given.runs) for t in tables.values()]
            except DpbayesError as error:
                print(f"| {kind.name} | {epsilon:g} | {error} |||")
                continue
            cells = [f"{f.columns:.3f} / {f.pairs:.3f}" for f in found]
            print(f"| {kind.name} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
