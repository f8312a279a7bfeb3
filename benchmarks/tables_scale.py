"""Whole tables in the number of records: time and peak memory of `dpbayes synthesize`.

    python benchmarks/tables_scale.py [--largest 10000000] [--sql]

A generated table of 15 columns, as Parquet and as CSV, is made in a folder of its own: 220 MB and
680 MB at 10^7 rows. Each case is a process of its own. --sql counts the margins and all pairs of
the largest table by SQL alone, for comparison: columns as they are cut by the mechanism, nothing
validated.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

BLOCK = 100_000
REGIONS = [f"R{i}" for i in range(20)]
JOBS = [f"job {i}" for i in range(14)]
SCHEMA = f"""
columns.age = {{type = "count", lower = 16, upper = 90}}
columns.sex = {{type = "binary", levels = ["f", "m"]}}
columns.education = {{type = "count", upper = 15}}
columns.region = {{type = "categorical", levels = {REGIONS}}}
columns.occupation = {{type = "categorical", levels = {JOBS}}}
columns.hours = {{type = "count", upper = 99, missing = ["-9"]}}
columns.income = {{type = "continuous", lower = 0, upper = 500000, digits = 2, atoms = [0]}}
columns.wealth = {{type = "continuous", lower = 1, upper = 5000000}}
columns.married = {{type = "binary", levels = ["no", "yes"]}}
columns.children = {{type = "count", upper = 12}}
columns.health = {{type = "ordinal", levels = [1, 2, 3, 4, 5]}}
columns.since = {{type = "date", lower = 2000-01-01, upper = 2024-12-31}}
columns.rooms = {{type = "count", lower = 1, upper = 15}}
columns.smoker = {{type = "binary"}}
columns.height = {{type = "continuous", lower = 120, upper = 220, digits = 1}}
"""


def records(n, seed):
    rng = np.random.default_rng(seed)
    age, sex = rng.integers(16, 91, n), rng.integers(0, 2, n)
    education = np.minimum(rng.binomial(15, np.clip(0.35 + 0.003 * age, 0, 0.9)), 15)
    job = rng.integers(0, len(JOBS), n)
    hours = pd.Series(np.clip(rng.normal(38 + 2 * (job % 3), 10), 0, 99).round())
    income = np.exp(rng.normal(9.5 + 0.08 * education + 0.01 * age, 0.6)).clip(0, 500000).round(2)
    married = rng.random(n) < 1 / (1 + np.exp(-(age - 30) / 8))
    days = np.datetime64("2000-01-01") + rng.integers(0, 9000, n)
    return pd.DataFrame(
        {
            "age": age,
            "sex": np.array(["f", "m"])[sex],
            "education": education,
            "region": rng.choice(REGIONS, n, p=np.arange(1, 21) / 210),
            "occupation": np.array(JOBS)[job],
            "hours": hours.where(rng.random(n) > 0.05),
            "income": np.where(rng.random(n) < 0.12, 0, income),
            "wealth": np.exp(rng.normal(10 + 0.02 * age, 1.2)).clip(1, 5e6).round(),
            "married": np.where(married, "yes", "no"),
            "children": np.minimum(rng.poisson(np.where(married, 1.4, 0.3)), 12),
            "health": rng.integers(1, 6, n),
            "since": days.astype(str),
            "rooms": np.minimum(1 + rng.poisson(2.5, n), 15),
            "smoker": rng.integers(0, 2, n),
            "height": rng.normal(165 + 12 * sex, 7).clip(120, 220).round(1),
        }
    )


def make(folder, n):
    """The table in both formats, in blocks."""
    parquet, csv = folder / f"{n}.parquet", folder / f"{n}.csv"
    writer = None
    for start in range(0, n, BLOCK):
        some = records(min(BLOCK, n - start), start)
        some.to_csv(csv, mode="a", header=not start, index=False)
        table = pa.Table.from_pandas(some, preserve_index=False)
        writer = writer or pq.ParquetWriter(parquet, table.schema)
        writer.write_table(table)
    writer.close()
    return parquet, csv


def run(folder, source, n, *options):
    """Seconds, CPU seconds and peak MB of a release, in a process of its own."""
    out = folder / f"out-{len(list(folder.iterdir()))}"
    schema = folder / "schema.toml"
    command = ["synthesize", source, "--schema", schema, "--epsilon", 1, "--out", out, *options]
    code = (
        "import resource, sys, time; from dpbayes.cli import main; start = time.perf_counter()\n"
        "try: main()\n"
        "finally:\n"
        "    use = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    seconds = time.perf_counter() - start\n"
        "    print('USED', seconds, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    used = next(line for line in done.stdout.splitlines() if line.startswith("USED"))
    wall, cpu, peak = map(float, used.split()[1:])
    said = " ".join(map(str, options))
    print(
        f"| {n:,} | {source.suffix[1:]} | {said} | {wall:.0f} | {cpu:.0f} | {peak:.0f} |",
        flush=True,
    )


def by_sql(source):
    """All margins and pair tables by SQL, on eight groups of a column at most."""
    import duckdb

    start = time.perf_counter()
    database = duckdb.connect(config={"memory_limit": "1GB"})
    names = list(records(1, 0))
    numbers = [n for n, kind in records(9, 0).dtypes.items() if kind.kind in "if"]
    cut = {
        name: f"CAST(least(7, floor(coalesce({name}, -1) / 10)) AS INT)" if name in numbers
        else f"hash({name}) % 16" for name in names
    }  # fmt: skip
    for pair in [*((name,) for name in names), *itertools.combinations(names, 2)]:
        cells = ", ".join(cut[name] for name in pair)
        database.execute(f"SELECT {cells}, count(*) FROM '{source}' GROUP BY ALL").fetchall()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - start
    print(f"SQL, margins and pairs of {source.name}: {seconds:.0f} s, {peak:.0f} MB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=10_000_000)
    parser.add_argument("--sql", action="store_true")
    asked = parser.parse_args()
    print("| n | file | options | s | CPU s | peak MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.toml").write_text(SCHEMA.replace("'", '"'))
        for power in range(4, 8):
            n = 10**power
            if n > asked.largest:
                break
            parquet, csv = make(folder, n)
            rows = ("--rows", "10000", "--chunk-rows", str(BLOCK))
            run(folder, parquet, n, *rows)
            if n == 10**6:
                run(folder, csv, n, *rows)
                run(folder, parquet, n)
                run(folder, parquet, n, "--chunk-rows", str(BLOCK))
            if asked.sql and n == asked.largest:
                by_sql(parquet)
            parquet.unlink()
            csv.unlink()


if __name__ == "__main__":
    main()
