"""Mechanisms without a Stan program: time per data set, and the studies of Bowen & Liu.

python benchmarks/dips.py
"""

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.privacy.noise import opendp
from studies.bowen_liu import comparison_1, comparison_2

SCHEMA = dpb.Schema.from_dict(
    {
        "rows": "public",
        "columns": {
            "sex": {"type": "binary", "levels": ["f", "m"]},
            "group": {"type": "categorical", "levels": list("abcd")},
            "y": {"type": "continuous", "lower": 0.0, "upper": 1.0},
        },
    }
)
MECHANISMS = [
    dpb.Laplace(1.0, bins=40), dpb.PerturbedHistogram(1.0, bins=40),
    dpb.EmpiricalBootstrap(1.0, bins=40), dpb.MultinomialDirichlet(1.0, bins=40),
    dpb.SmoothedHistogram(1.0, bins=40), dpb.Modips(1.0, "glom"), dpb.Modips(1.0, "sequential"),
]  # fmt: skip


def records(n):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "group": rng.choice(list("abcd"), n),
            "y": rng.beta(0.5, 3, n),
        }
    )


def timed(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def main():
    study = timed(lambda: comparison_1.run(5000, 1, (1.0,)))
    print(f"study 1, nine scenarios, 5,000 replicates, one ε: {study:.2f} s")
    study = timed(lambda: comparison_2.run(1000, 1, (1.0,)))
    print(f"study 2, nine scenarios, 1,000 replicates, one ε: {study:.2f} s")
    opendp()
    print("\n| mechanism | n | fit, s | release, s | study, s |\n|---|---|---|---|---|")
    for n in (2_000, 100_000):
        data = records(n)
        for mechanism in MECHANISMS:
            synthesizer = dpb.Synthesizer(SCHEMA, mechanism)
            fitted = []
            fit = timed(lambda s=synthesizer, d=data, f=fitted: f.append(s.fit(d)))
            (found,) = fitted
            secure = timed(found.sample)
            study = timed(lambda found=found: found.sample(seed=1))
            name = getattr(getattr(mechanism, "model", None), "name", "")
            print(f"| {mechanism.name} {name} | {n:,} | {fit:.2f} | {secure:.3f} | {study:.3f} |")


if __name__ == "__main__":
    main()
