"""AIM and MST (OpenDP) beside the mechanisms of dpbayes: same records, same bins, same ε.

python benchmarks/rivals.py     # with opendp[mbi]>=0.16,<0.17 installed; without it, ours alone

The shipped earnings, n = 1601. Each synthesizer at each ε is a process of its own (rival_case.py).
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from dpbayes.privacy.accounting import rho_for

CASE = Path(__file__).with_name("rival_case.py")
EPSILONS = (1.0, 5.0)
DELTA = 1e-9
NEEDED = 'AIM and MST are left out: pip install "opendp[mbi]>=0.16,<0.17".'
# (label, synthesizer, bins, public). Bins are "" where there are none.
Row = tuple[str, str, str, bool]
FLOOR: Row = ("bootstrap of the records", "bootstrap", "", False)
GIVEN: list[Row] = [
    ("beta regression", "unweighted", "", True),
    ("`anchored`, beta regression", "anchored", "", True),
    ("`modips`, sequential", "modips-sequential", "", True),
    ("`laplace`", "laplace", "fine", True),
    ("`laplace`", "laplace", "coarse", True),
    ("`perturbed-histogram`", "perturbed-histogram", "fine", True),
    ("`perturbed-histogram`", "perturbed-histogram", "coarse", True),
]
ALL: list[Row] = [
    ("`measured`", "measured", "fine", False),
    ("`modips`, sequential", "modips-sequential", "", False),
    ("`modips`, glom", "modips-glom", "", False),
    ("`laplace`", "laplace", "fine", False),
    ("`laplace`", "laplace", "coarse", False),
    ("`perturbed-histogram`", "perturbed-histogram", "fine", False),
    ("`perturbed-histogram`", "perturbed-histogram", "coarse", False),
]
RIVALS: list[Row] = [
    ("AIM", "aim", "fine", False),
    ("AIM", "aim", "coarse", False),
    ("MST", "mst", "fine", False),
    ("MST", "mst", "coarse", False),
]
ZCDP: list[Row] = [
    ("`measured`, δ", "measured", "fine", False),
    ("AIM, zCDP", "aim", "fine", False),
    ("MST, zCDP", "mst", "fine", False),
]
NOTES = f"""
Means of the data sets (standard error of avg-ECDF). Each has the whole ε to itself: neighbours
differ by one record added or removed, and the number of records is public. `dpbayes`: strict pure
ε-DP, δ = 0; of `anchored`, for an exact draw of the posterior. AIM and MST: OpenDP's compositor
with max divergence, contributions = 1, hence pure ε-DP too; rows marked zCDP have the largest ρ
that is (ε, {DELTA:g})-DP. Noise is for release everywhere; no row can be had again bit for bit.

Bins, from declared bounds alone, values uniform inside them: fine, 14 x 21 x 20 of age, education
and earnings; coarse, 2 x 2 x 20. Total variation distance (TVD) is on the fine bins for all.
pMSE ratio: 1 if a logistic regression with two-way interactions tells the data from the records no
better than a bootstrap sample; public columns, which cannot differ, can take it below. Regression:
largest error of a coefficient of earnings on the other columns, in standard errors of the
confidential fit. s: until the first data set, with imports; next: until another one. Rivals' times
and memory include importing dpbayes, for records and bins.
"""


def run(row: Row, epsilon: float, sets: int, cache: dict) -> dict | str:
    """What one process found, or the last line of its error."""
    _, name, bins, public = row
    key = (row, epsilon)
    if key not in cache:
        command = [sys.executable, str(CASE), name, f"--epsilon={epsilon}", f"--sets={sets}"]
        command += [f"--bins={bins}"] * bool(bins) + ["--public"] * public
        if row in ZCDP:
            command += [f"--rho={rho_for(epsilon, DELTA)}", f"--delta={DELTA}"]
        print("...", *command[2:], file=sys.stderr, flush=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
        cache[key] = lines[-1] if done.returncode else json.loads(lines[-1])
    return cache[key]


def table(rows: list[Row], sets: int, cache: dict, tvd: str) -> None:
    """A row for each synthesizer and ε. Without privacy there is no ε, and one row."""
    print(
        "| synthesizer | bins | ε | δ | avg-ECDF x 10⁴ | TVD, 1 | 2 | 3 | pMSE ratio "
        "| regression | s | next | peak MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    free = [row for row in rows if row[1] in ("bootstrap", "unweighted")]
    for row in free:
        show(row, run(row, EPSILONS[0], sets, cache), tvd)
    for epsilon in EPSILONS:
        for row in rows:
            if row not in free:
                show(row, run(row, epsilon, sets, cache), tvd)


def show(row: Row, f: dict | str, tvd: str) -> None:
    label, _, bins, _ = row
    if isinstance(f, str):
        print(f"| {label} | {bins} | failed: {f} |", flush=True)
        return
    mean, se = f["mean"], f["se"]
    cells = [
        label, bins,
        "none" if f["epsilon"] is None else f"{f['epsilon']:g}",
        "" if f["delta"] is None else f"{f['delta']:g}",
        f"{1e4 * mean['avg_ecdf']:.1f} ({1e4 * se['avg_ecdf']:.1f})",
        *(f"{mean[f'{tvd}{k}']:.3f}" for k in (1, 2, 3)),
        f"{mean['pmse']:.1f}", f"{mean['regression']:.1f}",
        f"{f['seconds']:.1f}", f"{f['next']:.2f}", f"{f['peak_mb']:.0f}",
    ]  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5, help="data sets per row, at least 2")
    parser.add_argument("--zcdp", action="store_true", help=f"at δ = {DELTA:g} too")
    given = parser.parse_args()
    rivals: list[Row] = []
    if importlib.util.find_spec("mbi") and importlib.util.find_spec("polars"):
        rivals = RIVALS + ZCDP * given.zcdp
    else:
        print(NEEDED, file=sys.stderr)
    cache: dict = {}
    print(f"(a) Earnings given public age, education, gender and region; {given.sets} data sets\n")
    print("AIM and MST know no public columns and synthesise all five at this ε, so they do more.")
    print("TVD is of the tables that have earnings in them.\n")
    table(
        [FLOOR, *GIVEN, *(r for r in rivals if r[2] == "fine" and r[1] != "measured")],
        given.sets,
        cache,
        "outcome_tvd",
    )
    print(f"\n(b) All five columns confidential; {given.sets} data sets\n")
    table([FLOOR, *ALL, *rivals], given.sets, cache, "tvd")
    print(NOTES)


if __name__ == "__main__":
    main()
