"""Bowen & Liu, simulation study 1: inference on a share from binary data, as curves over ε.

The paper shows it in a figure only. NumPy's noise behind the package's own mechanisms: for study
only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.lazy import pd
from dpbayes.mechanisms import BetaBinomial, BetaBinomialMR
from dpbayes.mechanisms.modips.conjugate import draw_share
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import Statistic, same_change
from studies.bowen_liu.comparison import (
    EPSILONS,
    REPLICATES,
    WIDE,
    M,
    Seed,
    curves,
    piece,
    pieces,
    table,
)
from studies.bowen_liu.findings import STUDY_1
from studies.coverage import BUDGET, summarise
from studies.findings import judged, verdicts
from studies.runner import Report, Study

SIZES, SHARES = (40, 100, 1000), (0.10, 0.25, 0.50)
PRIOR = (1 / 3, 1 / 3)
METHODS = ("original", "MS", "modips", "laplace", "beta-binomial", "beta-binomial-mr", WIDE)
LEAST = 1e-12  # replaces a parameter of 0, for which a beta distribution is undefined


def release(method: str, ones: Ints, n: int, epsilon: float, noise: StudyNoise) -> Ints:
    """Draw synthetic counts, shape (data sets, replicates), for a total budget ``epsilon``.

    Source: bowen-liu-2020, section 4.1.
    """
    rng = noise.rng
    x = np.broadcast_to(ones, (M, ones.size))
    if method == "original":
        return ones[None]
    if method == "MS":
        return rng.binomial(n, draw_share(x, n, PRIOR, rng))
    if method == "beta-binomial":
        alpha = BetaBinomial.alpha_at(epsilon / M, n)
        return rng.binomial(n, draw_share(x, n, (alpha, alpha), rng))
    if method == "beta-binomial-mr":  # one data set
        alpha = BetaBinomialMR.alpha_at(epsilon, n)
        return np.asarray(rng.binomial(n, (ones + alpha) / (n + 2 * alpha)))[None]
    a, b = PRIOR if method == WIDE else (0, 0)
    count = Statistic("count", x, same_change(1), -a, n + b, integer=True)
    sanitised = count.sanitised(epsilon / M, "add-remove", noise)
    if method == WIDE:
        ends = np.maximum((a + sanitised, b + n - sanitised), LEAST)
        return np.asarray(rng.binomial(n, rng.beta(*ends)))
    if method == "laplace":
        return sanitised
    return np.asarray(rng.binomial(n, draw_share(sanitised, n, PRIOR, rng)))


def run(
    replicates: int = REPLICATES, seed: Seed = 1, epsilons: Iterable[float] = EPSILONS
) -> pd.DataFrame:
    """Run study 1, inference on a share: one row for each ε, n, π and method."""
    noise = StudyNoise(np.random.default_rng(seed))
    rows = []
    for epsilon, n, share in itertools.product(epsilons, SIZES, SHARES):
        ones = noise.rng.binomial(n, share, replicates)
        for method in METHODS:
            p = release(method, ones, n, epsilon, noise) / n
            summary = summarise(p, p * (1 - p) / n, share)
            case = {"epsilon": epsilon, "n": n, "truth": share, "method": method}
            rows.append({**case, "parameter": "share", **summary})
    return pd.DataFrame(rows)


def scenarios(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split the rows by n and true share."""
    cases = found.groupby(["n", "truth"], sort=False)
    return {f"n = {n:,}, share {share:g}": part for (n, share), part in cases}


def report(found: pd.DataFrame) -> Report:
    """Report study 1: curves, and tables for n = 100.

    Source: bowen-liu-2020, figure 2.
    """
    found = found.sort_values("epsilon", kind="stable")
    text = f"Inference on a share from synthetic data sets (Bowen & Liu, study 1)\n{BUDGET}\n\n"
    judgement = judged(STUDY_1, found)
    shown = f"{table(found, 'share', 100)}\n\n{verdicts(judgement)}"
    tables = {"share": found, "findings": judgement}
    return Report(text + shown, tables, {"share": curves(scenarios(found))})


STUDY = Study(
    "comparison-1",
    "Bowen & Liu, study 1: inference on a share, by ε, as curves",
    REPLICATES,
    pieces,
    functools.partial(piece, run),
    report,
)
