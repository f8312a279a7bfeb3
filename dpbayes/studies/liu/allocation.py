"""Liu, section 5.3: the part of ε for the mean against the part for the variance.

Normal data, n = 100 and 1,000, ε = 1, m = 10, inference on μ. The paper shows
figure 8 only. Its truncation draws again
at the plain scale, which costs more than ε (``Statistic.sanitised``); here it costs ε.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from dpbayes.mechanisms.modips.conjugate import draw_normal, normal_statistics
from dpbayes.privacy.noise import OutOfRange, StudyNoise
from dpbayes.studies.bowen_liu.comparison import BUDGET, summarise
from dpbayes.studies.runner import Report, in_one_piece, rounded

M, EPSILON = 10, 1.0
REPLICATES = 5000
SIZES = (100, 1000)
BOUNDS = ((-4.0, 4.0), (-4.0, 5.0))
PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)
RULES: tuple[OutOfRange, ...] = ("bit", "truncate")


def run(replicates: int = REPLICATES, seed: int = 1) -> pd.DataFrame:
    """One row for each bounds, out-of-range rule, n and part w; ``communal`` marks w = 1/(1+R)."""
    noise = StudyNoise(seed)
    rng = noise.rng
    rows = []
    for bounds in BOUNDS:
        width = bounds[1] - bounds[0]
        communal = 1 / (1 + width)
        for how in RULES:
            for n in SIZES:
                x = stats.truncnorm.rvs(*bounds, size=(replicates, n), random_state=rng)
                mean, variance = normal_statistics(x.mean(axis=1), x.var(axis=1, ddof=1), n, bounds)
                original = summarise(x.mean(axis=1)[None], x.var(axis=1, ddof=1)[None] / n, 0.0)
                for part in sorted({communal, *PARTS}):
                    sets = []
                    for _ in range(M):
                        first = mean.sanitised(part * EPSILON / M, "add-remove", noise, how)
                        second = variance.sanitised(
                            (1 - part) * EPSILON / M, "add-remove", noise, how
                        )
                        mu, sd = draw_normal(first, second, n, rng)
                        # Mean and variance of n normal values, without the values.
                        centre = rng.normal(mu, sd / np.sqrt(n))
                        s2 = sd**2 * rng.chisquare(n - 1, sd.shape) / (n - 1)
                        sets.append((centre, s2 / n))
                    estimates, variances = np.array(sets).transpose(1, 0, 2)
                    rows.append(
                        {
                            "bounds": f"{bounds[0]:g}, {bounds[1]:g}", "out of range": how, "n": n,
                            "w": part, "communal": part == communal,
                            **summarise(estimates, variances, 0.0),
                            "original width": original["width"],
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


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
