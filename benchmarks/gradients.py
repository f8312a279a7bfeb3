"""What the clamp costs in a gradient, and what it takes to build an evaluator; CPU time, one run.

    python benchmarks/gradients.py [--records 2000] [--largest 100000]

Before: evaluators by stanli.bridgestan_model.
"""

import argparse
import time
from functools import partial
from statistics import median

import numpy as np
import pandas as pd
import stanli

import dpbayes as dpb
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.engines.evaluator import evaluator

SCORES = {
    "normal": {"type": "continuous", "lower": -10, "upper": 10},
    "beta": {"type": "continuous", "lower": -10, "upper": 10},
    "gamma": {"type": "continuous", "lower": 0, "upper": 100},
    "bernoulli": {"type": "binary", "levels": [0, 1]},
    "poisson": {"type": "count", "upper": 100},
}


def problem(family, n, covariates=5):
    """A model and its program data."""
    rng = np.random.default_rng(1)
    x = {f"x{k}": rng.uniform(-1, 1, n) for k in range(covariates)}
    eta = rng.normal(sum(x.values()), 1)
    y = {
        "normal": eta, "beta": eta, "gamma": np.exp(eta / 2), "bernoulli": (eta > 0).astype(int),
        "poisson": rng.poisson(np.exp(eta / 2)),
    }[family]  # fmt: skip
    columns = {"y": SCORES[family]}
    columns |= {k: {"type": "continuous", "lower": -1, "upper": 1, "public": True} for k in x}
    schema = dpb.Schema.from_dict({"columns": columns})
    low, high = (SCORES[family].get(end) for end in ("lower", "upper"))
    records = pd.DataFrame({"y": y if high is None else np.clip(y, low or 0, high), **x})
    model = dpb.Regression("y ~ " + " + ".join(x), family).on(schema)
    return model, model.data(schema.validate(records), n)


def seconds(call, repeats):
    """Median CPU seconds."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return median(found)


def gradient(program, data, n, repeats, wide):
    """CPU milliseconds of a gradient in a window; some terms leave one of 1.5."""
    window = {"clip_lower": -wide, "clip_upper": wide}
    bound = EmbeddedEngine().compile(program).bind({**data, **contract_defaults(n), **window})
    point = np.full(len(bound.coordinates()), 0.01)
    bound.density(point)
    return 1e3 * seconds(partial(bound.density, point), repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--largest", type=int, default=100_000, help="records of the build")
    given = parser.parse_args()
    print("| family | gradient, ms | of it the clamp |\n|---|---|---|")
    for family in SCORES:
        model, data = problem(family, given.records)
        found = gradient(model.program, data, given.records, 300, 1.5)
        free = gradient(model.program, data, given.records, 300, np.inf)
        print(f"| {family} | {found:.3f} | {1 - free / found:.0%} |", flush=True)
    model, data = problem("normal", given.largest)
    compiled = EmbeddedEngine().compile(model.program)
    bound = compiled.bind({**data, **contract_defaults(given.largest)})
    text = bound._data.text(emit=0, emit_y_rep=0)
    before = seconds(lambda: stanli.bridgestan_model(mir=compiled.mir, data=text), 3)
    now = seconds(lambda: evaluator(compiled.mir, text), 3)
    print(f"\nAn evaluator of {given.largest:,} records: {before:.2f} s before, {now:.2f} s now.")


if __name__ == "__main__":
    main()
