"""AIM and MST (OpenDP) beside the mechanisms of dpbayes: same records, same bins, same ε.

python benchmarks/rivals.py     # with opendp[mbi]>=0.16,<0.17 installed; without it, ours alone
python benchmarks/rivals.py --population "Adult, 10"     # of the study `tables`: hours with AIM

The shipped earnings, n = 1601, or larger tables. Each synthesizer at each ε is a process of its own
(rival_case.py).
"""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from dpbayes.privacy.accounting import rho_for
from studies.ours.tables import populations

CASE = Path(__file__).with_name("rival_case.py")
DELTA = 1e-9
NEEDED = 'AIM and MST are left out: pip install "opendp[mbi]>=0.16,<0.17".'


class Row(NamedTuple):
    """A synthesizer of rival_case.py; ``bins`` is "" where there are none."""

    label: str
    name: str
    bins: str = ""
    public: bool = False
    population: str = "earnings"
    delta: float = 0.0


FLOOR = Row("bootstrap of the records", "bootstrap")
TABLES = [
    Row(f"`{name}`", name, bins)
    for name in ("laplace", "perturbed-histogram")
    for bins in ("fine", "coarse")
]
GIVEN = [
    Row("beta regression", "unweighted", public=True),
    Row("`anchored`, beta regression", "anchored", public=True),
    Row("`modips`, sequential", "modips-sequential", public=True),
    *(row._replace(public=True) for row in TABLES),
]
ALL = [
    Row("`marginals`", "marginals", "fine"),
    Row("`modips`, sequential", "modips-sequential"),
    Row("`modips`, glom", "modips-glom"),
    *TABLES,
]
RIVALS = [
    Row(title, name, bins)
    for title, name in (("AIM", "aim"), ("MST", "mst"))
    for bins in ("fine", "coarse")
]
ZCDP = [
    Row("`marginals`, δ", "marginals", "fine", delta=DELTA),
    Row("AIM, zCDP", "aim", "fine", delta=DELTA),
    Row("MST, zCDP", "mst", "fine", delta=DELTA),
]
DPMM = [
    Row(f"dpmm {title}", f"dpmm-{title.lower()}", "fine", delta=DELTA)
    for title in ("MST", "AIM", "PrivBayes")
]
SEQUENCE = Row("`Sequence`, `anchored`", "sequence")
# Of a larger table: ours, and the rivals on the bins of the comparison and on ours.
LARGER = [
    Row("`marginals`", "marginals", "auto"),
    Row("MST", "mst", "fine"), Row("MST", "mst", "auto"),
    Row("AIM", "aim", "fine"), Row("AIM", "aim", "auto"),
]  # fmt: skip
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
confidential fit (mean over coefficients). AUC: of income, by a logistic regression that is trained
on the data set and tested on the records. s: until the first data set, with imports; next: until
another one. Rivals' times and memory include importing dpbayes, for records and bins.
"""


class Runs:
    """Runs a row at an ε once.

    Attributes:
        sets: data sets of each.
        limit: seconds that a row may take.
        dpmm: a Python that has it.
    """

    def __init__(self, sets: int, limit: float, dpmm: str = "") -> None:
        self.sets, self.limit, self.dpmm = sets, limit, dpmm
        self.found: dict[tuple[Row, float], dict | str] = {}

    def run(self, row: Row, epsilon: float) -> dict | str:
        """What one process found, or the last line of its error."""
        if (row, epsilon) not in self.found:
            self.found[row, epsilon] = self._run(row, epsilon)
        return self.found[row, epsilon]

    def _run(self, row: Row, epsilon: float) -> dict | str:
        command = [sys.executable, str(CASE), row.name, f"--epsilon={epsilon}"]
        command += [f"--sets={self.sets}", f"--population={row.population}"]
        command += [f"--bins={row.bins}"] * bool(row.bins) + ["--public"] * row.public
        if row in DPMM:
            command += [f"--delta={row.delta}", f"--dpmm={self.dpmm}"]
        elif row.delta:
            command += [f"--rho={rho_for(epsilon, row.delta)}", f"--delta={row.delta}"]
        print("...", *command[2:], file=sys.stderr, flush=True)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=self.limit
            )
        except subprocess.TimeoutExpired:
            return f"no {self.sets} data sets in {self.limit:,.0f} s"
        lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
        return f"failed: {lines[-1]}" if done.returncode else json.loads(lines[-1])


def table(rows: list[Row], epsilons: list[float], runs: Runs, tvd: str = "tvd") -> None:
    """A row for each synthesizer and ε. Without privacy there is no ε, and one row."""
    print(
        "| synthesizer | bins | ε | δ | avg-ECDF x 10⁴ | TVD, 1 | 2 | 3 | pMSE ratio "
        "| regression (mean) | AUC | s | next | peak MB |\n" + "|---" * 14 + "|"
    )
    free = [row for row in rows if row.name in ("bootstrap", "unweighted")]
    for row in free:
        show(row, None, runs.run(row, epsilons[0]), tvd)
    for epsilon in epsilons:
        for row in rows:
            if row not in free:
                show(row, epsilon, runs.run(row, epsilon), tvd)


def show(row: Row, epsilon: float | None, f: dict | str, tvd: str) -> None:
    spent = ["none", ""] if epsilon is None else [f"{epsilon:g}", f"{row.delta:g}"]
    if isinstance(f, str):
        print("| " + " | ".join([row.label, row.bins, *spent, f]) + " |" * 10, flush=True)
        return
    mean, se = f["mean"], f["se"]
    cells = [
        row.label, row.bins, *spent,
        f"{1e4 * mean['avg_ecdf']:.1f} ({1e4 * se['avg_ecdf']:.1f})",
        *(f"{mean[f'{tvd}{k}']:.3f}" for k in (1, 2, 3)),
        f"{mean['pmse']:.1f}", f"{mean['regression']:.1f} ({mean['regression_mean']:.1f})",
        f"{mean['auc']:.3f}" if "auc" in mean else "",
        f"{f['seconds']:.1f}", "" if f["next"] is None else f"{f['next']:.2f}",
        f"{f['peak_mb']:.0f}",
    ]  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)


def _earnings(epsilons: list[float], runs: Runs, rivals: list[Row], sets: str) -> None:
    print(f"(a) Earnings given public age, education, gender and region; {sets}\n")
    print("AIM and MST know no public columns and synthesise all five at this ε, so they do more.")
    print("TVD is of the tables that have earnings in them.\n")
    fine = [r for r in rivals if r.bins == "fine" and r.name != "marginals"]
    table([FLOOR, *GIVEN, *fine], epsilons, runs, "outcome_tvd")
    print(f"\n(b) All five columns confidential; {sets}\n")
    table([FLOOR, *ALL, *rivals, *DPMM * bool(runs.dpmm)], epsilons, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5, help="data sets per row")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument("--zcdp", action="store_true", help=f"at δ = {DELTA:g} too")
    parser.add_argument(
        "--population", nargs="+", choices=list(populations()), default=["earnings"]
    )
    parser.add_argument("--limit", type=float, default=1800, help="seconds of a row")
    parser.add_argument("--dpmm", default="", help="a Python in which it is installed")
    parser.add_argument("--sequence", action="store_true", help="a row for it: a few minutes each")
    given = parser.parse_args()
    installed = bool(importlib.util.find_spec("mbi") and importlib.util.find_spec("polars"))
    if not installed:
        print(NEEDED, file=sys.stderr)
    rivals = (RIVALS + ZCDP * given.zcdp) if installed else []
    rivals = [SEQUENCE] * given.sequence + rivals
    runs, sets = Runs(given.sets, given.limit, given.dpmm), f"{given.sets} data sets"
    for name in given.population:
        if name == "earnings":
            _earnings(given.epsilon, runs, rivals, sets)
            continue
        print(f"\n(c) {name}, all columns confidential; {sets}\n")
        rows = [row._replace(population=name) for row in LARGER]
        table([r for r in rows if installed or r.name == "marginals"], given.epsilon, runs)
    print(NOTES)


if __name__ == "__main__":
    main()
