"""Perturbed Gibbs samplers: time and memory by records, columns, levels, and what is drawn.

    .venv/bin/python benchmarks/pegs.py     # some five minutes

Every case is a process of its own; memory is its peak, with the table itself. Seconds are those of
the clock, and in brackets of CPU, which count where the machine has other work.
"""

import multiprocessing
import resource
import time

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.privacy.noise import SecureNoise

DISCHARGE = (6, 18, 3, 4, 7, 16, 16, 13, 9, 25, 25, 3, 2)  # levels of Park & Ghosh's table 2
MECHANISMS = {
    "pegs, noisy keys": lambda: dpb.Pegs(50.0),
    "pegs, m = 2": lambda: dpb.Pegs(50.0, keys="schema"),
    "pegs, m = 3": lambda: dpb.Pegs(50.0, keys="schema", m=3),
    "pegs-rs, noisy keys": lambda: dpb.PegsReset(50.0),
    "pmi": lambda: dpb.PerturbedImputation(50.0),
    "marginal-bootstrap": lambda: dpb.MarginalBootstrap(50.0),
}
CASES = [
    *[(name, DISCHARGE, 1_000_000, 100_000) for name in MECHANISMS],
    *[("pegs, m = 2", DISCHARGE, n, 1000) for n in (10_000, 100_000, 1_000_000, 4_000_000)],
    *[("pegs, m = 2", (10,) * k, 100_000, 1000) for k in (5, 20, 80)],
    *[("pegs, m = 2", (k,) * 13, 100_000, 1000) for k in (2, 10, 40, 120)],
    *[("pegs-rs, noisy keys", DISCHARGE, 100_000, rows) for rows in (1000, 10_000, 100_000)],
]


def table(sizes, n):
    """Columns that follow one hidden number, more or less."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 1000, n)
    columns = {}
    for i, size in enumerate(sizes):
        codes = np.where(rng.random(n) < 0.6, hidden % size, rng.integers(0, size, n))
        columns[f"c{i}"] = pd.Categorical.from_codes(codes, [str(k) for k in range(size)])
    return pd.DataFrame(columns)


def run(name, sizes, n, rows, results):
    levels = {f"c{i}": [str(k) for k in range(size)] for i, size in enumerate(sizes)}
    columns = {key: {"type": "categorical", "levels": found} for key, found in levels.items()}
    schema = dpb.Schema.from_dict({"rows": rows, "columns": columns})
    mechanism, records = MECHANISMS[name](), table(sizes, n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [now()]
    fit = dpb.Synthesizer(schema, mechanism).fit(records)
    mechanism.conditionals(fit.fitted, SecureNoise())
    times.append(now())
    fit.sample()
    times.append(now())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build, draw = np.diff(times, axis=0)
    results.put((build, draw, before / 1024, peak / 1024))


def now():
    return time.perf_counter(), time.process_time()


def seconds(both):
    return "{:.1f} ({:.1f})".format(*both)


def main():
    context = multiprocessing.get_context("spawn")
    print(
        "| mechanism | columns | levels | records | blocks, s (CPU) | synthetic records "
        "| release, s (CPU) | peak |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, sizes, n, rows in CASES:
        results = context.Queue()
        process = context.Process(target=run, args=(name, sizes, n, rows, results))
        process.start()
        build, draw, before, peak = results.get()
        process.join()
        levels = f"{min(sizes)}-{max(sizes)}" if len(set(sizes)) > 1 else sizes[0]
        print(
            f"| {name} | {len(sizes)} | {levels} | {n:,} | {seconds(build)} | {rows:,} "
            f"| {seconds(draw)} | {peak:.0f} MB, {before:.0f} of them before the fit |",
            flush=True,
        )


if __name__ == "__main__":
    main()
