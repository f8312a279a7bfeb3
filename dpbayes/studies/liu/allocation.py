"""Liu, section 5.3: the part of ε for the mean against the part for the variance.

Normal data, n = 100 and 1,000, ε = 1, m = 10, inference on μ. The paper shows it in a figure only
(figure 8). Its truncation draws again at the plain scale, which costs more than ε
(``Statistic.sanitised``); here it costs ε.
"""

from __future__ import annotations

import itertools

import numpy as np

from dpbayes.arrays import Floats
from dpbayes.heavy import pd, stats
from dpbayes.mechanisms.modips.conjugate import draw_normal, normal_statistics
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import OutOfRange, Statistic
from dpbayes.studies.coverage import BUDGET, summarise
from dpbayes.studies.runner import Report, in_one_piece, rounded

M, EPSILON = 10, 1.0
REPLICATES = 5000
SIZES = (100, 1000)
BOUNDS = ((-4.0, 4.0), (-4.0, 5.0))
PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)
RULES: tuple[OutOfRange, ...] = ("bit", "truncate")


def run(replicates: int = REPLICATES, seed: int = 1) -> pd.DataFrame:
    """One row for each bounds, out-of-range rule, n and part w; ``communal`` marks w = 1/(1+R).

    Source: liu-2016, section 5.3; figure 8.
    """
    noise = StudyNoise(seed)
    rows = []
    for bounds, how, n in itertools.product(BOUNDS, RULES, SIZES):
        x = stats.truncnorm.rvs(*bounds, size=(replicates, n), random_state=noise.rng)
        mean, variance = x.mean(axis=1), x.var(axis=1, ddof=1)
        statistics = normal_statistics(x, bounds, n)
        original = summarise(mean[None], variance[None] / n, 0.0)
        communal = 1 / (1 + bounds[1] - bounds[0])
        for part in sorted({communal, *PARTS}):
            estimates, variances = _synthetic(statistics, part, how, n, noise)
            rows.append(
                {
                    "bounds": f"{bounds[0]:g}, {bounds[1]:g}", "out of range": how, "n": n,
                    "w": part, "communal": part == communal,
                    **summarise(estimates, variances, 0.0),
                    "original width": original["width"],
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _synthetic(
    statistics: list[Statistic], part: float, how: OutOfRange, n: int, noise: StudyNoise
) -> Floats:
    """Means of the synthetic data sets and their variances, shape (2, data sets, replicates)."""
    mean, variance = statistics
    rng = noise.rng
    sets = []
    for _ in range(M):  # the paper's sensitivities are those of a changed record
        first = mean.sanitised(part * EPSILON / M, "substitution", noise, how)
        second = variance.sanitised((1 - part) * EPSILON / M, "substitution", noise, how)
        mu, sd = draw_normal(first, second, n, rng)
        # Mean and variance of n normal values, without the values.
        centre = rng.normal(mu, sd / np.sqrt(n))
        s2 = sd**2 * rng.chisquare(n - 1, sd.shape) / (n - 1)
        sets.append((centre, s2 / n))
    return np.array(sets).transpose(1, 0, 2)


def report(found: pd.DataFrame) -> Report:
    """One table."""
    head = "Inference on μ by the part w of ε for the mean (Liu, section 5.3; m = 10, ε = 1)\n"
    return Report(
        f"{head}{BUDGET}\n\n" + rounded(found.drop(columns="piece")), {"allocation": found}
    )


STUDY = in_one_piece(
    "allocation",
    "Liu, section 5.3: parts of ε for mean and variance",
    REPLICATES,
    run,
    report,
)
