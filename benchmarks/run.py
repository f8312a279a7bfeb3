"""`make bench`: comparison with a record loop, and scaling in records, covariates and groups.

Each case is a process of its own, so that time includes imports and memory is the process's peak.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from dpbayes.core.errors import EngineError
from dpbayes.engines.cmdstan import CmdStanEngine

CASE = Path(__file__).with_name("case.py")
SIZES = (10**3, 10**4, 10**5, 10**6)
COVARIATES = (1, 5, 20, 50)
GROUPS = (0, 10, 100, 1000)
RECORDS = 10**4  # of the tables in K and J


def once(case: str, n: int, engine: str, *options: str) -> dict[str, float]:
    """One process."""
    command = [sys.executable, str(CASE), case, str(n), engine, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case} {n} {engine} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def has_cmdstan() -> bool:
    try:
        CmdStanEngine()
    except EngineError:
        return False
    return True


def compare(n: int, repeats: int) -> None:
    """(a) the record loop against (b) dpbayes, in turn, so that a slow minute slows all alike.

    Programs of dpbayes are compiled before; the record loop is compiled each time, as by who writes
    it for one job.
    """
    engines = ["embedded"]
    if has_cmdstan():
        engines.append("cmdstan")
        once("ours", n, "cmdstan")
    cases = {
        **{f"(a) record loop, {engine}": ("record_loop", engine) for engine in engines},
        **{f"(b) dpbayes, {engine}": ("ours", engine) for engine in engines},
    }
    rounds = [{name: once(case, n, e) for name, (case, e) in cases.items()} for _ in range(repeats)]
    medians = {
        name: {key: statistics.median(r[name][key] for r in rounds) for key in rounds[0][name]}
        for name in cases
    }
    print(f"Censored beta model, n = {n}, 4 x (1000 + 1000), medians of {repeats} in turn\n")
    print("| case | s | CPU s | peak MB | min. ESS | (b) faster | (b) faster per effective draw |")
    print("|---|---|---|---|---|---|---|")
    ours = medians["(b) dpbayes, embedded"]
    for name, figures in medians.items():
        times = figures["seconds"] / ours["seconds"]
        per_draw = times * ours["ess"] / figures["ess"]
        row(name, figures, f"{times:.1f} x", f"{per_draw:.1f} x")
    if len(engines) == 1:
        print("\nCmdStan is not found, so the embedded engine alone is compared.")


def row(name: str, f: dict[str, float], *rest: str) -> None:
    seconds = (f"{f['seconds']:.1f}", f"{f['cpu']:.1f}")
    cells = (name, *seconds, f"{f['peak_mb']:.0f}", f"{f['ess']:.0f}", *rest)
    print("| " + " | ".join(cells) + " |", flush=True)


def scale(sizes: list[int]) -> None:
    """In records, in covariates and in groups."""
    print("\nNormal regression, K = 5, censored at ε = 5, 4 x (200 + 200), embedded engine\n")
    scaling_table("n", [(f"{n:,}", n, []) for n in sizes])
    print(f"\nThe same in K covariates, n = {RECORDS:,}\n")
    scaling_table("K", [(str(k), RECORDS, ["--covariates", str(k)]) for k in COVARIATES])
    print(f"\nThe same with an intercept for each of J groups, K = 5, n = {RECORDS:,}\n")
    scaling_table("J", [(f"{j:,}", RECORDS, ["--groups", str(j)]) for j in GROUPS])


def scaling_table(what: str, cases: list[tuple[str, int, list[str]]]) -> None:
    print(f"| {what} | s | µs per record | leapfrog steps per draw | peak MB | min. ESS |")
    print("|---|---|---|---|---|---|")
    for name, n, options in cases:
        f = once("scaling", n, "embedded", *options)
        doubt = "" if f["converged"] else ", not converged"
        cells = (
            name, f"{f['seconds']:.1f}", f"{1e6 * f['seconds'] / n:.0f}",
            f"{f['leapfrogs']:.1f}", f"{f['peak_mb']:.0f}", f"{f['ess']:.0f}{doubt}",
        )  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds of the compared cases")
    parser.add_argument("--largest", type=int, default=10**6, help="largest n of the scaling table")
    arguments = parser.parse_args()
    compare(2000, arguments.repeats)
    scale([n for n in SIZES if n <= arguments.largest])
