"""Threads inside a chain: records summed by blocks (reduce_sum_static), one chain after another.

python benchmarks/threads.py                   # up to a million records: some ten minutes
python benchmarks/threads.py --largest 100000

Normal regression, K = 5, censored at ε = 5. Time per leapfrog step is of draws alone: the time of a
long run less that of a short one with the same warm-up. Each row is a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time

import case
import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.engines import get_engine
from dpbayes.engines.contract import contract_defaults

SIZES = (10**5, 10**6)
THREADS = (1, 2)
WARMUP, SHORT, LONG = 40, 4, 44


def bind(n: int, engine: str):
    """The bundled program with data; K = 5."""
    rng = np.random.default_rng(1)
    x = {f"x{k}": rng.uniform(-1, 1, n) for k in range(1, 6)}
    records = pd.DataFrame({"y": np.clip(rng.normal(sum(x.values()), 1), -10, 10), **x})
    columns = {"y": {"type": "continuous", "lower": -10, "upper": 10}}
    for name in x:
        columns[name] = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
    schema = dpb.Schema.from_dict({"columns": columns})
    model = dpb.Regression("y ~ " + " + ".join(x), "normal").on(schema)
    data = model.data(schema.validate(records), len(records))
    window = {"clip_lower": -2.5, "clip_upper": 2.5}
    compiled = get_engine(engine).compile(model.program)
    return compiled.bind({**data, **contract_defaults(n), **window})


def measure(n: int, engine: str, threads: int) -> dict[str, float]:
    """Seconds per leapfrog step and peak memory."""
    bound = bind(n, engine)
    seconds, steps = [], []
    for draws in (SHORT, LONG):
        settings = dpb.SamplerSettings(
            chains=2, warmup=WARMUP, draws=draws, seed=1, parallel_chains=1,
            threads_per_chain=threads,
        )  # fmt: skip
        start = time.perf_counter()
        found = bound.sample(settings)
        seconds.append(time.perf_counter() - start)
        steps.append(int(found["sample_stats"]["n_steps"].sum()))
    step = (seconds[1] - seconds[0]) / (steps[1] - steps[0])
    return {"step": step, "long": seconds[1], "peak_mb": case.peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--engines", nargs="+", default=["embedded", "cmdstan"])
    parser.add_argument("--one", nargs=3, metavar=("N", "ENGINE", "THREADS"))
    given = parser.parse_args()
    if given.one:
        n, engine, threads = given.one
        print(json.dumps(measure(int(n), engine, int(threads))))
        return
    print("| engine | n | threads | ms per leapfrog step | speed-up | peak MB |")
    print("|---|---|---|---|---|---|")
    for engine in given.engines:
        for n in (n for n in SIZES if n <= given.largest):
            first = None
            for threads in THREADS:
                command = [sys.executable, __file__, "--one", str(n), engine, str(threads)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"| {engine} | {n:,} | left out: {done.stderr.splitlines()[-1]} |")
                    break
                f = json.loads(done.stdout.splitlines()[-1])
                first = first or f["step"]
                print(
                    f"| {engine} | {n:,} | {threads} | {1000 * f['step']:.1f} "
                    f"| {first / f['step']:.2f} x | {f['peak_mb']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
