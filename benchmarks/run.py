"""`make bench`: end-to-end comparison with a record loop, and scaling in the number of records.

Each case is a process of its own, so that time includes imports and memory is the process's peak.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from dpbayes.engines.cmdstan import CmdStanEngine
from dpbayes.errors import EngineError

CASE = Path(__file__).with_name("case.py")
SIZES = (10**3, 10**4, 10**5, 10**6)


def run(case: str, n: int, engine: str, repeats: int = 1) -> dict[str, float]:
    """Medians over ``repeats`` processes."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, str(CASE), case, str(n), engine]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{case} {n} {engine} failed:\n{done.stderr}")
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(f[key] for f in found) for key in found[0]}


def has_cmdstan() -> bool:
    try:
        CmdStanEngine()
    except EngineError:
        return False
    return True


def compare(n: int, repeats: int) -> None:
    """(a) the record loop against (b) dpbayes."""
    engines = ["cmdstan", "embedded"] if has_cmdstan() else ["embedded"]
    print(f"Censored beta model, n = {n}, 4 x (1000 + 1000), medians of {repeats}\n")
    print("| case | s | peak MB | min. ESS | (b) faster | (b) faster per effective draw |")
    print("|---|---|---|---|---|---|")
    ours = run("ours", n, "embedded", repeats)
    for engine in engines:
        loop = run("record_loop", n, engine, repeats)
        times = loop["seconds"] / ours["seconds"]
        per_draw = times * ours["ess"] / loop["ess"]
        row("(a) record loop, " + engine, loop, f"{times:.1f} x", f"{per_draw:.1f} x")
    row("(b) dpbayes, embedded", ours, "", "")
    if len(engines) == 1:
        print("\nCmdStan is not found, so (a) is run by the embedded engine only.")


def row(name: str, f: dict[str, float], *rest: str) -> None:
    cells = (name, f"{f['seconds']:.1f}", f"{f['peak_mb']:.0f}", f"{f['ess']:.0f}", *rest)
    print("| " + " | ".join(cells) + " |", flush=True)


def scale(sizes: list[int]) -> None:
    """Normal regression, K = 5, 4 x (200 + 200)."""
    print("\nNormal regression, K = 5, censored at ε = 5, 4 x (200 + 200), embedded engine\n")
    print("| n | s | µs per record | leapfrog steps per draw | peak MB | min. ESS |")
    print("|---|---|---|---|---|---|")
    for n in sizes:
        f = run("scaling", n, "embedded")
        cells = (
            f"{n:,}", f"{f['seconds']:.1f}", f"{1e6 * f['seconds'] / n:.0f}",
            f"{f['leapfrogs']:.1f}", f"{f['peak_mb']:.0f}", f"{f['ess']:.0f}",
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="processes per compared case")
    parser.add_argument("--largest", type=int, default=10**6, help="largest n of the scaling table")
    arguments = parser.parse_args()
    compare(2000, arguments.repeats)
    scale([n for n in SIZES if n <= arguments.largest])
