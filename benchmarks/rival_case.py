"""One row of rivals.py in a process of its own: prints one JSON object.

Time and memory are those of the first release: imports, records, fit and one data set.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import case  # first: its clock starts when it is imported
import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.demo.earnings import EARNINGS_MODEL
from dpbayes.mechanisms.marginals.bins import auto_bins
from dpbayes.mechanisms.tables.cells import Axis, make_axis
from dpbayes.schema.rows import PUBLIC
from studies.ours.table_measures import Comparison
from studies.ours.tables import populations

# From declared bounds alone. fine: those that tables are compared on, as five years of age, one of
# education, four dollars; auto: those of `marginals`. coarse: those of the study `earnings`.
BINS = ("fine", "auto", "coarse")
COARSE = {"age": 2, "education": 2, "earnings": 20}
DUST = 1e-9
EDUCATION = Path(__file__).with_name("education.stan")
DPMM = Path(__file__).with_name("rival_dpmm.py")
Claim = dict[str, Any]
Release = Callable[[], tuple[pd.DataFrame, Claim]]
Loaded = tuple[pd.DataFrame, Comparison]


def rules_of(bins: str, compared: Comparison) -> Mapping[str, int] | str:
    """What `bins` of a mechanism is."""
    return {"fine": compared.bins, "coarse": COARSE, "auto": "auto"}[bins]


def sequence() -> dpb.Sequence:
    """Of the five columns of earnings: one who knows them would write something like it."""
    years = {"most": 20}
    return dpb.Sequence(
        [
            dpb.Regression("gender ~ 1", "categorical"),
            dpb.Regression("region ~ gender", "categorical"),
            dpb.Regression("age ~ gender", "histogram(bins = 14)"),
            dpb.Program(EDUCATION, "education ~ age + I(age**2) + gender + region", years),
            dpb.Regression(EARNINGS_MODEL.formula, "histogram(bins = 20)"),
        ]
    )


def mechanism(
    name: str, epsilon: float, bins: Any, delta: float
) -> tuple[dpb.Mechanism[Any], dpb.Regression | dpb.Sequence | None]:
    """With the model that it needs."""
    match name:
        case "sequence":
            return dpb.Anchored(epsilon, adjacency="add-remove"), sequence()
        case "unweighted":
            return dpb.Unweighted(), EARNINGS_MODEL
        case "anchored":
            return dpb.Anchored(epsilon, adjacency="add-remove"), EARNINGS_MODEL
        case "laplace":
            return dpb.Laplace(epsilon, bins=bins, adjacency="add-remove"), None
        case "perturbed-histogram":
            return dpb.PerturbedHistogram(epsilon, bins=bins, adjacency="add-remove"), None
        case "marginals":
            return dpb.Marginals(epsilon, bins=bins, delta=delta, adjacency="add-remove"), None
    return dpb.Modips(epsilon, name.removeprefix("modips-"), adjacency="add-remove"), None


def ours(
    loaded: Loaded, name: str, bins: str, epsilon: float, delta: float, *, public: bool
) -> Release:
    """A mechanism of dpbayes; noise for release, not a study's."""
    records, compared = loaded
    columns = compared.schema.columns.items()
    given = {n: replace(c, public=public and n != compared.outcome) for n, c in columns}
    if name == "sequence":  # densities are of numbers
        given["age"] = replace(given["age"], type="continuous", digits=0)
    synthesizer = dpb.Synthesizer(
        dpb.Schema(given, PUBLIC), *mechanism(name, epsilon, rules_of(bins, compared), delta)
    )

    def release() -> tuple[pd.DataFrame, Claim]:
        found = synthesizer.fit(records).sample(accept="none" if name == "unweighted" else "strict")
        claim = found.guarantee
        (data,) = found.datasets
        if name == "unweighted":
            return data, {"epsilon": None, "delta": None, "basis": "none"}
        assert claim.basis == "strict"
        assert claim.adjacency == "add-remove"
        assert claim.delta in (0, delta)
        assert claim.epsilon <= epsilon * (1 + 1e-9)
        how = f"strict, {claim.composition}"
        return data, {"epsilon": claim.epsilon, "delta": claim.delta, "basis": how}

    return release


def bootstrap(valid: pd.DataFrame) -> Release:
    """Records drawn with replacement: no privacy, and the measures that no error leaves."""
    rng = np.random.default_rng()

    def release() -> tuple[pd.DataFrame, Claim]:
        rows = rng.integers(len(valid), size=len(valid))
        return valid.iloc[rows].reset_index(drop=True), {
            "epsilon": None, "delta": None, "basis": "none",
        }  # fmt: skip

    return release


def rival(
    loaded: Loaded, name: str, bins: str, epsilon: float, rho: float | None, delta: float
) -> Release:
    """AIM or MST of opendp[mbi] on the public bins, one record added or removed."""
    import opendp.prelude as dp
    import polars as pl
    from opendp.extras.mbi import _aim

    # OpenDP 0.16 goes on with the rounding error of its own accounting, about 1e-17, finds no noise
    # scale for it and fails (opendp/opendp#2790). To stop there releases what was paid for.
    step = _aim._make_aim_marginal
    _aim._make_aim_marginal = lambda *a, **k: None if a[4] < DUST * epsilon else step(*a, **k)
    dp.enable_features("contrib")
    valid, compared = loaded
    axes = make_axes(compared, bins, len(valid) * epsilon)
    codes = {n: axis.encode(valid[n]).astype(np.int32) for n, axis in axes.items()}
    frame = pl.DataFrame(codes).lazy()
    # Cells by cuts between their numbers: keys would add an empty level to every column.
    cuts = {n: list(range(axis.size - 1)) for n, axis in axes.items()}
    rng = np.random.default_rng()

    def release() -> tuple[pd.DataFrame, Claim]:
        spent = {"epsilon": epsilon} if rho is None else {"rho": rho}
        context = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(**spent),
        )
        algorithm = {"aim": dp.mbi.AIM, "mst": dp.mbi.MST}[name]()
        query = (
            context.query(**spent).select(*axes).contingency_table(cuts=cuts, algorithm=algorithm)
        )
        loss = query.resolve().map(1)  # of one record more or less, by OpenDP's accounting
        (limit,) = spent.values()
        assert loss <= limit
        found = query.release().synthesize(rows=len(valid))
        data = {n: axis.decode(found[n].to_numpy(), rng) for n, axis in axes.items()}
        claim: Claim = {"epsilon": loss, "delta": 0.0, "basis": "pure"}
        if rho is not None:
            claim = {"epsilon": epsilon, "delta": delta, "basis": "zCDP"}
        return pd.DataFrame(data), claim

    return release


def dpmm(loaded: Loaded, name: str, epsilon: float, delta: float, python: str) -> Release:
    """A model of dpmm, by a Python that has it, on the public bins; ε and δ are its claim."""
    valid, compared = loaded
    axes = make_axes(compared, "fine", len(valid) * epsilon)
    rng = np.random.default_rng()

    def release() -> tuple[pd.DataFrame, Claim]:
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            codes = {n: axis.encode(valid[n]).astype(int) for n, axis in axes.items()}
            pd.DataFrame(codes).to_csv(here / "records.csv", index=False)
            sizes = {n: axis.size for n, axis in axes.items()}
            (here / "levels.json").write_text(json.dumps(sizes))
            command = [python, str(DPMM), name, str(epsilon), str(delta), folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found = pd.read_csv(here / "synthetic.csv")
        data = {n: axis.decode(found[n].to_numpy(), rng) for n, axis in axes.items()}
        return pd.DataFrame(data), {"epsilon": epsilon, "delta": delta, "basis": "its own"}

    return release


def make_axes(compared: Comparison, bins: str, weight: float) -> dict[str, Axis]:
    """Of all columns, from public facts; ``weight``: number of records times epsilon."""
    rules, columns = rules_of(bins, compared), compared.schema.columns.items()
    return {
        n: make_axis(
            c,
            1 if c.levels else rules[n] if isinstance(rules, Mapping) else auto_bins(c, weight),
            None,
            1,
        )
        for n, c in columns
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--bins", choices=BINS, default="fine")
    parser.add_argument("--population", default="earnings", help="of the study `tables`")
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rho", type=float, help="of zCDP, for rivals")
    parser.add_argument("--delta", type=float, default=0.0, help="at which epsilon is meant")
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--dpmm", help="a Python that has it")
    given = parser.parse_args()
    loaded = original, compared = populations()[given.population]()
    if given.name in ("aim", "mst"):
        release = rival(loaded, given.name, given.bins, given.epsilon, given.rho, given.delta)
    elif given.name.startswith("dpmm-"):
        model = given.name.removeprefix("dpmm-")
        release = dpmm(loaded, model, given.epsilon, given.delta, given.dpmm)
    elif given.name == "bootstrap":
        release = bootstrap(original)
    else:
        release = ours(
            loaded, given.name, given.bins, given.epsilon, given.delta, public=given.public
        )
    data, claim = release()
    first = time.perf_counter() - case.START
    peak = case.peak_mb()
    released, times = [data], []
    for _ in range(given.sets - 1):
        start = time.perf_counter()
        released.append(release()[0])
        times.append(time.perf_counter() - start)
    schema = compared.schema
    found = pd.DataFrame([compared.measures(original, schema.validate(d)) for d in released])
    if compared.target is not None:  # tested on the records: none of them is a synthetic row's
        found["auc"] = [compared.auc(schema.validate(d), original) for d in released]
    print(
        json.dumps(
            {
                "seconds": first,
                "next": float(np.median(times)) if times else None,
                "peak_mb": peak,
                **claim,
                "mean": found.mean().to_dict(),
                "se": found.sem().to_dict(),
            }
        )
    )


if __name__ == "__main__":
    main()
