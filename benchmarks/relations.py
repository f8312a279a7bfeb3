"""Relations between columns: how ``marginals`` draws them, beside NUTS for the same posterior.

    python benchmarks/relations.py

Earnings, every column that follows from others in one data set: over its weights the largest
difference of posterior means, by the sd, and the smallest and largest ratio of sds, ours by NUTS's.
"""

from __future__ import annotations

import copy
import time
from typing import Any
from unittest.mock import patch

import numpy as np

from dpbayes import Marginals, SamplerSettings, Synthesizer
from dpbayes.engines import get_engine
from dpbayes.mechanisms.marginals import parents, relations
from dpbayes.stan.program import StanProgram
from studies.ours.tables import earnings_table

CASES = ((1_601, 0.5), (1_601, 1.0), (1_601, 3.0), (61_395, 1.0))
DRAWS = 300
ROWS = 2000  # synthetic rows that both are given
SETTINGS = SamplerSettings(chains=2, warmup=500, draws=1000, seed=1)


def asked(n: int, epsilon: float) -> list[Any]:
    """What is fitted for one data set: shares and blocks, column by column."""
    records, compared = earnings_table(whole=n > 2_000)
    found = []

    def recorded(mass: Any, blocks: Any, rng: Any = None, *others: Any) -> Any:
        if rng is not None:
            found.append((mass, blocks))
        return relations.fit_conditional(mass, blocks, rng, *others)

    with patch.object(parents, "fit_conditional", recorded):
        mechanism = Marginals(epsilon, bins=compared.bins, draw="posterior", adjacency="add-remove")
        fit = Synthesizer(compared.schema, mechanism).fit(records)
        fit.sample(accept="none", seed=1)
    return found


def row(mass: Any, blocks: Any) -> dict[str, float]:
    """Of one column's relations, of the pairs' block."""
    block = blocks[0].of_rows(np.linspace(0, len(blocks[0].psi) - 1, ROWS).astype(int))
    mode = relations._Mode(mass, [block], None)
    rng, start = np.random.default_rng(1), time.process_time()
    weights = mode.climbed(mode.joined(()))
    slope = mode._slope(weights)
    draws = [copy.copy(mode).drawn(weights, rng) for _ in range(DRAWS)]
    ours = (np.array(draws), (time.process_time() - start) / DRAWS)
    spread = ours[0].std(axis=0).reshape(mode.shapes[0])
    a, d = mode.shapes[0]
    data = {
        "N": ROWS, "G": len(mass), "A": a, "D": d, "n": mode.n, "log_mass": mode.log,
        "basis": block.basis, "psi": mode.psis[0], "phi": mode.phis[0], "sums": mode.sums,
        "L": np.linalg.cholesky(relations._variance(slope, mode.noise)),
        "sd": (mode.precision**-0.5).reshape(a, d),
        "centre": weights.reshape(a, d), "spread": spread,
    }  # fmt: skip
    program = StanProgram.for_inference("noisy_relations")
    start = time.process_time()
    tree = get_engine("embedded").compile(program).bind(data).sample(SETTINGS)
    seconds = time.process_time() - start
    theirs = tree["posterior"]["W"].to_numpy().reshape(-1, a * d)
    apart = np.abs(ours[0].mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    ratio = ours[0].std(axis=0) / theirs.std(axis=0)
    own = np.ones((a, d), dtype=bool)
    own[:, 0] = False  # intercepts follow from the shares
    return {
        "weights": a * (d - 1), "off": apart[own.ravel()].max(),
        "least": ratio[own.ravel()].min(), "most": ratio[own.ravel()].max(),
        "seconds": ours[1], "nuts": seconds,
    }  # fmt: skip


def main() -> None:
    print("| n | ε | weights | means apart, sd | ratio of sds | CPU s | NUTS |")
    print("|---|---|---|---|---|---|---|")
    for n, epsilon in CASES:
        for mass, blocks in asked(n, epsilon):
            r = row(mass, blocks)
            print(
                f"| {n:,} | {epsilon:g} | {r['weights']} | {r['off']:.2f} | "
                f"{r['least']:.2f} to {r['most']:.2f} | {r['seconds']:.1f} | {r['nuts']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
