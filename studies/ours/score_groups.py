"""Group effects by noisy sums of scores: error, coverage and time.

Simulated records have public groups with an intercept each. The study measures the error of the
released means of the effects and of the unprotected means, the coverage of the true effects by
95 % intervals, and the estimated standard deviation of the effects.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd, special
from dpbayes.engines import SamplerSettings
from dpbayes.engines.draws import stacked
from dpbayes.mechanisms import Anchored, Mechanism, Score, Unweighted
from dpbayes.schema import Schema
from dpbayes.stan.model import Regression
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.ours.score import drawn
from studies.runner import Piece, Report, Study, rounded

SLOPE, RANGE = 0.8, 16.0  # slope of the covariate; range of a normal outcome, scaled to (0, 1)
# Records, groups, sd of effects, family, values of ε, and whether to run anchored too.
CELLS: tuple[tuple[int, int, float, str, tuple[float, ...], bool], ...] = (
    (600, 3, 0.5, "normal", (1.0,), True),
    (2000, 30, 0.5, "normal", (0.3, 1.0, 3.0), True),
    (2000, 30, 0.5, "poisson", (1.0,), False),
    (2000, 30, 0.5, "gamma", (1.0,), False),
    (2000, 30, 0.5, "bernoulli", (1.0,), False),
    (6000, 100, 0.1, "normal", (1.0,), False),
    (6000, 300, 0.5, "normal", (1.0,), False),
)


def population(
    n: int, groups: int, sd: float, family: str, rng: np.random.Generator
) -> tuple[pd.DataFrame, Schema, np.ndarray[Any, Any], float]:
    """Simulate records; return them, schema, effects on the program's scale, and that scale."""
    x, g = rng.uniform(-1, 1, n), rng.integers(groups, size=n)
    effects = rng.normal(0, sd, groups)
    eta = 0.3 + SLOPE * x + effects[g]
    column: dict[str, Any] = {"type": "continuous", "lower": 0, "upper": 100}
    y: Any
    scale = 1.0
    if family == "normal":
        column = {"type": "continuous", "lower": -RANGE / 2, "upper": RANGE / 2}
        y, scale = np.clip(rng.normal(eta, 1), -RANGE / 2, RANGE / 2), 1 / RANGE
    elif family == "gamma":
        y = np.clip(rng.gamma(2, np.exp(eta) / 2), 1e-3, 100)
    elif family == "poisson":
        column = {"type": "count", "upper": 200}
        y = np.minimum(rng.poisson(np.exp(eta)), 200)
    else:
        column = {"type": "binary", "levels": ["no", "yes"]}
        y = np.where(rng.random(n) < special.expit(eta), "yes", "no")
    levels = [f"g{k}" for k in range(groups)]
    columns = {
        "y": column,
        "x": {"type": "continuous", "lower": -1, "upper": 1, "public": True},
        "g": {"type": "categorical", "levels": levels, "public": True},
    }
    frame = pd.DataFrame({"y": y, "x": x, "g": np.array(levels)[g]})
    return frame, Schema.from_dict({"columns": columns}), scale * effects, scale


def run(
    seed: np.random.SeedSequence, n: int, groups: int, sd: float, family: str,
    epsilons: list[float], *, anchored: bool,
) -> pd.DataFrame:  # fmt: skip
    """Run one data set: a row for each ε and mechanism."""
    rng = np.random.default_rng(seed)
    frame, schema, true, scale = population(n, groups, sd, family, rng)
    settings = SamplerSettings(seed=int(rng.integers(2**31)), parallel_chains=1)
    base = Synthesizer(
        schema, Unweighted(), Regression("y ~ x + (1 | g)", family), settings=settings
    )
    cases: list[tuple[float, Mechanism[Any]]] = [(np.inf, Unweighted())]
    for epsilon in epsilons:
        cases.append((epsilon, Score(epsilon, adjacency="add-remove")))
        if anchored:
            cases.append((epsilon, Anchored(epsilon, adjacency="add-remove")))
    rows = []
    for epsilon, mechanism in cases:
        start = time.process_time()
        fit: Any = base.with_mechanism(mechanism).fit(frame, allow_nonconvergence=True)
        draws, good = drawn(fit, rng)
        seconds = time.process_time() - start
        effects = stacked(draws, "group_effect")
        low, high = np.quantile(effects, [0.025, 0.975], axis=0)
        away = effects.mean(axis=0) - true
        covered = float(np.mean((low <= true) & (true <= high)))
        error = float(np.sqrt(np.mean(away**2))) / scale
        spread = float(np.median(stacked(draws, "group_sd"))) / scale
        rows.append((epsilon, mechanism.name, error, covered, spread, seconds, good))
    columns = ["epsilon", "mechanism", "error", "covered", "sd_found", "seconds", "converged"]
    results = pd.DataFrame(rows, columns=columns)
    return results.assign(n=n, groups=groups, sd=sd, family=family)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over data sets by cell, ε and mechanism; the median for seconds."""
    by = rows.groupby(["family", "n", "groups", "sd", "epsilon", "mechanism"])
    return by.agg(
        error=("error", "mean"), covered=("covered", "mean"), sd_found=("sd_found", "mean"),
        seconds=("seconds", "median"), converged=("converged", "mean"), sets=("error", "size"),
    ).reset_index()  # fmt: skip


def report(rows: pd.DataFrame) -> Report:
    """Report a row for each cell, ε and mechanism."""
    means = table(rows)
    text = f"Effects of groups by noisy sums of scores\n\n{rounded(means, 3)}"
    return Report(text, {"cells": means})


def pieces(replicates: int) -> list[Piece]:
    """One piece per data set and cell."""
    cells = [
        {
            "n": n, "groups": groups, "sd": sd, "family": family, "epsilons": list(epsilons),
            "anchored": beside,
        }
        for n, groups, sd, family, epsilons, beside in CELLS
    ]  # fmt: skip
    return [cell for _ in range(replicates) for cell in cells]


STUDY = Study(
    "score-groups",
    "group effects by noisy sums of scores: distance from the true ones, coverage, time",
    20,
    pieces,
    run,
    report,
)
