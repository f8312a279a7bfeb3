"""The engine candidates beside NUTS: how near its draws come, and how long it takes.

    .venv/bin/python benchmarks/candidates.py             # both tables
    .venv/bin/python benchmarks/candidates.py --part speed

Releases of `anchored` with its defaults, drawn with seeds: nothing here is for publication.
"""

import argparse
import time
from functools import partial
from importlib.resources import files

import numpy as np
import pandas as pd

import dpbayes as dpb
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.draws import one_draw, stacked
from dpbayes.evaluate.utility import avg_ecdf
from dpbayes.privacy.noise import StudyNoise

CASES = {
    1: ("gender ~ 1", "bernoulli"),
    2: ("earnings ~ 1", "beta"),
    3: ("earnings ~ gender", "beta"),
    5: ("earnings ~ gender + age + education", "beta"),
}
EPSILONS = (0.5, 1.0, 3.0)
SETTINGS = {"chains": 2, "warmup": 500, "draws": 500}
# Family, formula and number of records of the second table.
SIZES = [
    ("normal", "y ~ a + b + c", 100_000),
    ("bernoulli", "y ~ a + b + c + d", 100_000),
    ("poisson", "y ~ 1", 100_000),
    ("beta", "y ~ 1", 100_000),
    ("beta", "y ~ a + b + c", 100_000),
    ("beta", "y ~ a + b + c", 1_601),
]


def cps(formula):
    """The shipped sample, and its schema with the columns of a formula."""
    folder = files("dpbayes") / "data"
    whole = dpb.Schema.from_toml(str(folder / "cps_earnings.toml")).to_dict()
    words = formula.replace("~", " ").replace("+", " ").split()
    columns = {name: dict(whole["columns"][name]) for name in words if name in whole["columns"]}
    outcome = columns[words[0]]
    outcome.pop("public", None)
    if outcome["type"] == "categorical":
        outcome["type"] = "binary"
    schema = dpb.Schema.from_dict({"rows": "public", "columns": columns})
    return schema, pd.read_csv(str(folder / "cps_earnings.csv"))[list(columns)]


def fitted(schema, records, model, mechanism, seed, engine="embedded"):
    settings = dpb.SamplerSettings(seed=seed, **SETTINGS)
    found = dpb.Synthesizer(schema, mechanism, model, engine=engine, settings=settings)
    return found.fit(records, allow_nonconvergence=True)


def flat(draws, names):
    """Scalar and vector parameters side by side, shape (S, p)."""
    return np.column_stack(
        [stacked(draws, n).reshape(-1, stacked(draws, n)[0].size) for n in names]
    )


def utility(points, replicates):
    print(
        f"\n{replicates} releases each, K = {points}. Error of the drawn parameters: distance from "
        "the posterior mean without privacy, in posterior standard deviations, root mean "
        "square per parameter (1 is a draw without privacy). avg-ECDF of the synthetic outcome "
        "x 10^4, for p = 1 the squared difference of the shares. Median (worst).\n"
    )
    print("| p | ε | stages | NUTS | candidates | avg-ECDF, no privacy | NUTS | candidates |")
    print("|---|---|---|---|---|---|---|---|")
    for p, (formula, family) in CASES.items():
        _, records = cps(formula)
        outcome = formula.split()[0]

        task = partial(fitted, *cps(formula), dpb.Regression(formula, family))

        def distance(release, records=records, outcome=outcome):
            ours, theirs = (frame[outcome] for frame in (release.datasets[0], records))
            if ours.dtype.kind == "f":
                return 1e4 * avg_ecdf(theirs.to_numpy(), ours.to_numpy())
            level = theirs.iloc[0]
            return 1e4 * ((ours == level).mean() - (theirs == level).mean()) ** 2

        plain = task(dpb.Unweighted(), 1)
        names = [str(name) for name in plain.fitted.draws["posterior"].data_vars]
        gold = flat(plain.fitted.draws, names)
        mean, precision = gold.mean(axis=0), np.linalg.inv(np.atleast_2d(np.cov(gold.T)))
        none = [distance(plain.sample(accept="none", seed=seed)) for seed in range(20)]
        for epsilon in EPSILONS:
            rows = []
            for engine in ("embedded", CandidatesEngine(points)):
                found = []
                for seed in range(1, replicates + 1):
                    fit = task(dpb.Anchored(epsilon), seed, engine)
                    away = flat(chosen(fit, seed), names)[0] - mean
                    error = np.sqrt(away @ precision @ away / len(mean))
                    found.append((error, distance(fit.sample(seed=seed))))
                rows.append(np.array(found))
            errors = [f"{np.median(r[:, 0]):.1f} ({r[:, 0].max():.1f})" for r in rows]
            ecdf = [f"{np.median(r[:, 1]):.1f} ({r[:, 1].max():.1f})" for r in rows]
            cells = [str(len(fit.fitted.stages)), *errors, f"{np.median(none):.1f}", *ecdf]
            print(f"| {p} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def chosen(fit, seed):
    """The draw that ``fit.sample(seed=seed)`` makes its data set of."""
    return one_draw(*fit.fitted.draw_private(StudyNoise(seed)))


def speed(points):
    print(f"\nOne release by `anchored` at ε = 1, all stages, K = {points}.\n")
    print("| family | p | n | stages | seconds | of both cores |")
    print("|---|---|---|---|---|---|")
    for family, formula, n in SIZES:
        rng = np.random.default_rng(1)
        y, kind = {
            "normal": (rng.normal(0.4, 0.1, n).clip(0, 1), "continuous"),
            "beta": (rng.beta(2, 3, n), "continuous"),
            "poisson": (rng.poisson(3, n), "count"),
            "bernoulli": (rng.choice(["no", "yes"], n), "binary"),
        }[family]
        bounds = {"continuous": {"lower": 0, "upper": 1}, "count": {"upper": 30}}
        outcome = {"type": kind, **bounds.get(kind, {"levels": ["no", "yes"]})}
        names = [word for word in formula.split()[2:] if word not in "+1"]
        public = {"type": "continuous", "lower": -6, "upper": 6, "public": True}
        schema = dpb.Schema.from_dict({"columns": {"y": outcome, **dict.fromkeys(names, public)}})
        records = pd.DataFrame({"y": y, **{name: rng.normal(size=n).clip(-6, 6) for name in names}})
        settings = dpb.SamplerSettings(seed=1, chains=2, draws=50)
        synthesizer = dpb.Synthesizer(
            schema, dpb.Anchored(1.0), dpb.Regression(formula, family),
            engine=CandidatesEngine(points), settings=settings,
        )  # fmt: skip
        begun, cpu = time.perf_counter(), time.process_time()
        fit = synthesizer.fit(records)
        fit.sample(seed=1)
        took, used = time.perf_counter() - begun, time.process_time() - cpu
        p = sum(v[0, 0].size for v in fit.fitted.draws["posterior"].data_vars.values())
        stages = len(fit.fitted.stages)
        print(f"| {family} | {p} | {n:,} | {stages} | {took:.0f} | {used:.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("utility", "speed", "both"), default="both")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--replicates", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.part != "speed":
        utility(arguments.points, arguments.replicates)
    if arguments.part != "utility":
        speed(arguments.points)
