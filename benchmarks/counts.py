"""Records of few kinds: a fit of 10^6 beside one of as many records as there are kinds.

    python benchmarks/counts.py [--family bernoulli|categorical|poisson]

CPU seconds of `anchored` at epsilon = 1, 4 x (1000 + 1000), records in memory to draws of both
stages, in one process; each kind is there at both sizes.
"""

import argparse
import time

import numpy as np
import pandas as pd

import dpbayes as dpb

LEVELS = list("abcde")
LARGEST = 1_000_000
OUTCOMES = {
    "bernoulli": ({"type": "binary", "levels": ["no", "yes"]}, ["no", "yes"]),
    "categorical": ({"type": "categorical", "levels": list("pqrs")}, list("pqrs")),
    "poisson": ({"type": "count", "upper": 3}, [0, 1, 2, 3]),
}


def records(family: str, n: int) -> pd.DataFrame:
    """Each combination of two columns of five levels, a count below 20 and the outcome; then
    random ones."""
    values = OUTCOMES[family][1]
    whole = pd.MultiIndex.from_product(
        [LEVELS, LEVELS, range(20 * 2 // len(values)), values], names=["a", "b", "c", "y"]
    ).to_frame(index=False)
    some = np.random.default_rng(1).integers(len(whole), size=max(0, n - len(whole)))
    return pd.concat([whole, whole.iloc[some]], ignore_index=True)


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=OUTCOMES, default="bernoulli")
    family = parser.parse_args().family
    level = {"type": "categorical", "levels": LEVELS, "public": True}
    count = {"type": "count", "upper": 19, "public": True}
    columns = {"a": level, "b": level, "c": count, "y": OUTCOMES[family][0]}
    made = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": columns}),
        dpb.Anchored(1),
        dpb.Regression("y ~ a + b + c", family),
        settings=dpb.SamplerSettings(seed=1),
    )
    print("| n | kinds | CPU s | steps | R-hat | time |\n|---|---|---|---|---|---|")
    first = 0.0
    for n in (1000, LARGEST):
        given = records(family, n)
        start = time.process_time()
        fit = made.fit(given, allow_nonconvergence=True).fitted
        seconds = time.process_time() - start
        first = first or seconds
        steps = float(fit.draws["sample_stats"]["n_steps"].mean())
        rhat = fit.diagnostics.max_rhat
        unique = fit.bound_records.kinds.size
        print(
            f"| {n:,} | {unique:,} | {seconds:.1f} | {steps:.0f} | {rhat:.3f} "
            f"| {seconds / first:.2f} x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
