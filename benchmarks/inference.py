"""Times of inference from releases and of the ledger; run by `make bench`, after run.py."""

import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from dpbayes import SamplerSettings
from dpbayes.inference import from_synthetic_counts
from dpbayes.mechanisms import Anchored
from dpbayes.publication.ledger import Ledger
from dpbayes.records.overlap import Identity
from studies.charest import synthesizer
from studies.charest import tables as charest
from studies.liu import modips_rules


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    rows = [
        ("Charest, Tables 1-4, 100,000 runs", seconds(charest.run, 1)),
        ("Liu, Table 1, 24 rows, 5,000 runs", seconds(modips_rules.run, 1)),
    ]
    counts, noise = [[30, 70]], synthesizer.noise(2.0, 1)
    posterior = from_synthetic_counts(counts, noise, synthesizer.N)
    posterior.sample_with_stan(SamplerSettings(seed=1))  # compiled and imported
    exact = seconds(lambda: from_synthetic_counts(counts, noise, synthesizer.N).mean, 50)
    stan = seconds(lambda: posterior.sample_with_stan(SamplerSettings(seed=1)), 5)
    rows += [("one posterior, exact", exact), ("the same by Stan, 4 x (1000 + 1000)", stan)]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(f"{folder}/ledger.db")
        ledger.add_dataset("one", 1e9)
        claim = Anchored(0.1).guarantee()

        table = pd.DataFrame({"x": range(100)})
        records = Identity(table, table)

        def reserve() -> None:
            ledger.reserve("one", claim, records, secrets.token_hex(16), Path(folder))

        rows.append(("one reservation in an SQLite ledger", seconds(reserve, 50)))
    print("\n| what | s |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value:.2g} |")
    print(f"\nThe exact posterior is {stan / exact:.0f} times faster than Stan's.")


if __name__ == "__main__":
    main()
