"""Comparison of noisy scores with clamped likelihoods: distance from the fit, coverage, time.

The first part has regressions on public covariates, as in ``anchors``: the distance of a draw from
the fit, the coverage of the true coefficients by 95 % intervals of the released posterior, and CPU
seconds. The second part is the case of Hu, Williams & Savitsky, section 4: avg-ECDF of synthetic
data sets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd, xr
from dpbayes.demo.earnings import earnings
from dpbayes.engines import SamplerSettings
from dpbayes.engines.draws import stacked
from dpbayes.evaluate.utility import avg_ecdf
from dpbayes.mechanisms import Anchored, Mechanism, PerturbedHistogram, Score, Unweighted
from dpbayes.mechanisms.posterior.tree import named
from dpbayes.privacy.noise import StudyNoise
from dpbayes.stan.model import Regression
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.datasets import SKEWED_MODEL, SKEWED_SCHEMA, skewed
from studies.ours.anchors import distance_of, points_of, population
from studies.runner import Piece, Report, Study, rounded

EPSILONS = (0.1, 0.3, 1.0, 3.0)
SKEWED_EPSILONS = (5.0, 3.0, 1.0, 0.5, 0.3, 0.1, 0.03)
N, DATASETS = 2000, 5
# Records, parameters and family.
CELLS = (
    *((n, p, "normal") for n in (300, 2000) for p in (2, 6, 12)),
    *((n, 6, family) for n in (300, 2000) for family in ("bernoulli", "beta")),
)
EARNINGS = "earnings"
MODEL = Regression("earnings ~ gender + age + education", "gamma")
RATE = "n ε / p"


def mechanisms(epsilon: float) -> Mapping[str, Mechanism[Any]]:
    """Mechanisms to compare, by name."""
    return {
        "score": Score(epsilon, adjacency="add-remove"),
        "anchored": Anchored(epsilon, adjacency="add-remove"),
    }


def run(
    seed: np.random.SeedSequence, n: int, p: int, family: str, epsilons: Sequence[float]
) -> pd.DataFrame:
    """Run one data set: a row for each ε and mechanism."""
    rng = np.random.default_rng(seed)
    if family == "skewed":
        return _skewed(epsilons, rng)
    true: np.ndarray[Any, Any] | None = None
    if family == EARNINGS:
        (frame, schema), model = earnings(), MODEL
    else:
        frame, schema, model, true = population(n, p, family, rng)
    settings = SamplerSettings(seed=int(rng.integers(2**31)), parallel_chains=1)
    base = Synthesizer(schema, Unweighted(), model, settings=settings)
    start = time.process_time()
    plain = base.fit(frame, allow_nonconvergence=True)
    seconds = time.process_time() - start
    target = points_of(plain.fitted.draws)
    rows = [(np.inf, "unweighted", 1.0, _covered(plain.fitted.draws, plain, true), seconds, True)]
    for epsilon in epsilons:
        for name, mechanism in mechanisms(epsilon).items():
            start = time.process_time()
            fit: Any = base.with_mechanism(mechanism).fit(frame, allow_nonconvergence=True)
            draws, good = drawn(fit, rng)
            seconds = time.process_time() - start
            away = distance_of(points_of(draws), target)
            rows.append((epsilon, name, away, _covered(draws, plain, true), seconds, good))
    columns = ["epsilon", "mechanism", "distance", "covered", "seconds", "converged"]
    return pd.DataFrame(rows, columns=columns).assign(n=len(frame), p=p, family=family)


def drawn(fit: Any, rng: np.random.Generator) -> tuple[xr.DataTree, bool]:
    """Draws of a fit; for ``score``, draws of the posterior given its noisy scores."""
    if fit.mechanism.name != "score":
        return fit.fitted.draws, fit.fitted.converged
    output = fit.fitted.draw_private(StudyNoise(int(rng.integers(2**31))))
    return output.draws, output.diagnostics.converged


def _covered(draws: xr.DataTree, fit: Any, true: np.ndarray[Any, Any] | None) -> float:
    """Share of the true coefficients that lie in their 95 % intervals."""
    if true is None or not len(true):
        return np.nan
    coefficients = stacked(named(draws, fit.task.model), "coefficient")
    low, high = np.quantile(coefficients, [0.025, 0.975], axis=0)
    return float(np.mean((low <= true) & (true <= high)))


def _skewed(epsilons: Sequence[float], rng: np.random.Generator) -> pd.DataFrame:
    """Compare avg-ECDF on records from Beta(0.5, 3), with a beta model."""
    records = skewed(N, rng)
    settings = SamplerSettings(
        warmup=500, draws=500, seed=int(rng.integers(2**31)), parallel_chains=1
    )
    base = Synthesizer(SKEWED_SCHEMA, Unweighted(), SKEWED_MODEL, settings=settings)
    cases: list[tuple[float, str, Synthesizer[Any]]] = [(np.inf, "unweighted", base)]
    for epsilon in epsilons:
        cases += [(epsilon, k, base.with_mechanism(m)) for k, m in mechanisms(epsilon).items()]
        cells = Synthesizer(SKEWED_SCHEMA, PerturbedHistogram(epsilon, adjacency="add-remove"))
        cases.append((epsilon, "perturbed-histogram", cells))
    rows = []
    for epsilon, name, synthesizer in cases:
        fit = synthesizer.fit(records, allow_nonconvergence=True)
        release = fit.sample(DATASETS, accept="none", seed=int(rng.integers(2**31)))
        (column,) = release.datasets[0].columns
        differences = [avg_ecdf(records[column], data[column]) for data in release.datasets]
        rows.append((epsilon, name, float(np.mean(differences))))
    frame = pd.DataFrame(rows, columns=["epsilon", "mechanism", "avg_ecdf"])
    return frame.assign(n=N, p=2, family="skewed")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Geometric mean distance, coverage and seconds, by cell, ε and mechanism."""
    cells = rows[rows["family"] != "skewed"].assign(log=lambda f: np.log(f["distance"]))
    groups = cells.groupby(["family", "p", "n", "epsilon", "mechanism"])
    means = groups.agg(
        distance=("log", "mean"), error=("log", "sem"), covered=("covered", "mean"),
        seconds=("seconds", "median"), converged=("converged", "mean"), sets=("log", "size"),
    )  # fmt: skip
    means["distance"] = np.exp(means["distance"])
    means["error"] *= means["distance"]
    means = means.reset_index()
    means.insert(4, RATE, means["n"] * means["epsilon"] / means["p"])
    return means


def distances(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error of avg-ECDF x 1e4 in the skewed case."""
    cells = rows[rows["family"] == "skewed"]
    groups = cells.groupby(["epsilon", "mechanism"])["avg_ecdf"]
    return (1e4 * groups.agg(["mean", "sem"])).assign(sets=groups.size()).reset_index()


def report(rows: pd.DataFrame) -> Report:
    """Report both parts."""
    cells, skew = table(rows), distances(rows)
    text = (
        "Distance of a released draw from the unclamped posterior's mean, in its sds (geometric "
        "mean over data sets), coverage of 95 % intervals of coefficients, CPU seconds\n\n"
        f"{rounded(cells, 2)}\n\navg-ECDF x 1e4, n = {N} from Beta(.5, 3), {DATASETS} data sets "
        f"each\n\n{rounded(skew, 2)}"
    )
    return Report(text, {"cells": cells, "skewed": skew})


def pieces(replicates: int) -> list[Piece]:
    """One piece per data set and cell."""
    cells = [
        *({"n": n, "p": p, "family": f, "epsilons": list(EPSILONS)} for n, p, f in CELLS),
        {"n": 0, "p": 5, "family": EARNINGS, "epsilons": [*EPSILONS, 0.5]},
        {"n": N, "p": 2, "family": "skewed", "epsilons": list(SKEWED_EPSILONS)},
    ]
    return [cell for _ in range(replicates) for cell in cells]


STUDY = Study(
    "score",
    "noisy scores beside clamped likelihoods: distance from the fit, coverage, time, avg-ECDF",
    20,
    pieces,
    run,
    report,
)
