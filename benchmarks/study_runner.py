"""Throughput of the study runner on one machine.

python benchmarks/study_runner.py
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import pandas as pd

from studies.bowen_liu import comparison, comparison_1
from studies.hu_williams_savitsky import censoring
from studies.runner import Report, Study, run_study

WORKERS = (1, 2)
REPLICATES = 5000  # of comparison-1, as in the paper


def trivial(seed: np.random.SeedSequence) -> pd.DataFrame:
    return pd.DataFrame({"x": [0.0]})


def no_report(rows: pd.DataFrame) -> Report:
    """Tables and figures are not what is measured."""
    return Report(str(len(rows)), {})


TRIVIAL = Study("trivial", "", 2, lambda runs: [{} for _ in range(runs)], trivial, no_report)


def seconds(study: Study, replicates: int, workers: int) -> float:
    """Of a whole run, with starting and stopping the cluster."""
    start = time.perf_counter()
    run_study(replace(study, report=no_report), replicates, workers=workers)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=4, help="of the study `censoring`")
    pieces = parser.parse_args().pieces
    once = seconds(TRIVIAL, 2, 1)
    print(f"A trivial study, one worker, the first in a process: {once:.1f} s")
    print("\n| workers | local cluster, start to stop, s |\n|---|---|")
    cluster = {}
    for workers in WORKERS:
        cluster[workers] = float(np.median([seconds(TRIVIAL, 2, workers) for _ in range(3)]))
        print(f"| {workers} | {cluster[workers]:.1f} |", flush=True)

    fits = len(list(censoring.cases()))
    print(
        f"\n`censoring`, {pieces} pieces of {fits} Stan fits and {len(censoring.EPSILONS)} "
        "histograms, time of the cluster taken off\n\n"
        "| workers | s | pieces per minute | Stan fits per minute | speed-up |\n"
        "|---|---|---|---|---|"
    )
    first = None
    for workers in WORKERS:
        time_taken = seconds(censoring.STUDY, pieces, workers) - cluster[workers]
        first = first or time_taken
        rate = 60 * pieces / time_taken
        print(
            f"| {workers} | {time_taken:.1f} | {rate:.2f} | {rate * fits:.0f} "
            f"| {first / time_taken:.2f} x |",
            flush=True,
        )

    scenarios = len(comparison_1.SIZES) * len(comparison_1.SHARES) * len(comparison.EPSILONS)
    methods = len(comparison_1.METHODS)
    print(
        f"\n`comparison-1`, {REPLICATES:,} replicates of {scenarios} scenarios under {methods} "
        "methods, the cluster included\n\n| workers | s | replicates per second |\n|---|---|---|"
    )
    for workers in WORKERS:
        time_taken = seconds(comparison_1.STUDY, REPLICATES, workers)
        print(f"| {workers} | {time_taken:.1f} | {REPLICATES * scenarios / time_taken:,.0f} |")


if __name__ == "__main__":
    main()
