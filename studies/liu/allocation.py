"""Liu, section 5.3: division of ε between the mean and the variance.

Normal data, n = 100 and 1,000, ε = 1, m = 10, inference on μ. The paper shows it in a figure only
(figure 8). As in the paper, bounds apply to
sanitised statistics and to synthetic records.
"""

from __future__ import annotations

import itertools

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.mechanisms.modips.conjugate import draw_normal, normal_statistics
from dpbayes.privacy.noise import StudyNoise
from studies.coverage import summarise
from studies.liu.bounding import BOUNDING, BOUNDS, bounded, sanitised
from studies.liu.findings import ALLOCATION as FINDINGS
from studies.liu.findings import with_verdicts
from studies.panels import grid
from studies.runner import Chart, Piece, Report, Study

M, EPSILON = 10, 1.0
REPLICATES = 5000
SIZES = (100, 1000)
PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)
AT_ONCE = 1000  # replicates held in memory at once


def run(
    seed: int | np.random.SeedSequence, replicates: int, bounds: str, how: str, n: int
) -> pd.DataFrame:
    """Run replicates: a row for each share w of ε; ``communal`` marks w = 1/(1+R).

    Source: liu-2016, section 5.3; figure 8.

    Args:
        bounds: a name of ``BOUNDS``.
        how: one of ``BOUNDING``.
    """
    noise = StudyNoise(np.random.default_rng(seed))
    ends = BOUNDS[bounds]
    communal = 1 / (1 + ends[1] - ends[0])
    parts = sorted({communal, *PARTS})
    estimates: dict[float, list[Floats]] = {part: [] for part in parts}
    originals = []
    for start in range(0, replicates, AT_ONCE):
        size = (min(AT_ONCE, replicates - start), n)
        x = stats.truncnorm.rvs(*ends, size=size, random_state=noise.rng)
        originals.append(np.stack([x.mean(axis=1)[None], x.var(axis=1, ddof=1)[None] / n]))
        for part in parts:
            estimates[part].append(_synthetic(x, ends, part, how, noise))
    original = _summary(originals)
    rows = [
        {
            "bounds": bounds, "bounding": how, "n": n, "w": part, "communal": part == communal,
            **_summary(blocks), "original width": original["width"],
        }
        for part, blocks in estimates.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _summary(blocks: list[Floats]) -> dict[str, float]:
    estimate, variance = np.concatenate(blocks, axis=2)
    return summarise(estimate, variance, 0.0)


def _synthetic(
    x: Floats, ends: tuple[float, float], part: float, how: str, noise: StudyNoise
) -> Floats:
    """Means of synthetic data sets with their variances, shape (2, data sets, replicates)."""
    n = x.shape[1]
    mean, variance = normal_statistics(x, ends, n, n)
    sets = []
    for _ in range(M):
        noisy_mean = sanitised(mean, part * EPSILON / M, how, noise)
        noisy_variance = sanitised(variance, (1 - part) * EPSILON / M, how, noise)
        mu, sd = draw_normal(noisy_mean, noisy_variance, n, noise.rng)
        drawn = bounded(mu, sd, n, ends, how, noise.rng)
        sets.append((drawn.mean(axis=1), drawn.var(axis=1, ddof=1) / n))
    return np.array(sets).transpose(1, 0, 2)


def chart(found: pd.DataFrame) -> Chart:
    """Draw Figure 8: bias, coverage and half width by w, a column for each bounds and n."""
    found = found.assign(**{"half width": found["width"] / 2})
    panels = {f"({b}), n = {n:,}": p for (b, n), p in found.groupby(["bounds", "n"], sort=False)}
    measures = {"bias": "bias", "coverage": "coverage", "half width": "half width (line: records)"}
    figure, axes = grid(panels, measures, "w", "bounding")
    for ax, rows in zip(axes[-1], panels.values(), strict=True):
        ax.axhline(rows["original width"].mean() / 2, color="black", linewidth=0.6)
    return Chart(figure, found)


def report(found: pd.DataFrame) -> Report:
    """Report one table, and Figure 8."""
    title = "Inference on μ by the part w of ε for the mean (Liu, section 5.3; m = 10, ε = 1)"
    found = found.drop(columns="piece")
    return with_verdicts(title, "allocation", found, FINDINGS, {"figure-8": chart(found)})


def pieces(replicates: int) -> list[Piece]:
    """One piece for each bounds, bounding and n."""
    return [
        {"replicates": replicates, "bounds": bounds, "how": how, "n": n}
        for bounds, how, n in itertools.product(BOUNDS, BOUNDING, SIZES)
    ]


STUDY = Study(
    "allocation",
    "Liu, section 5.3: parts of ε for mean and variance",
    REPLICATES,
    pieces,
    run,
    report,
)
