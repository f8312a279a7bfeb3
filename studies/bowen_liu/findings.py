"""Claims of Bowen & Liu about simulation studies 1 and 2, in words and as tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.bowen_liu.comparison import WIDE
from studies.findings import Cases, StudyFinding, within

OURS, TABLES, PRIORS = "modips", "laplace", ("beta-binomial", "beta-binomial-mr")
HISTOGRAM = "perturbed-histogram"
SMOOTHED = "smoothed-histogram"
SKEWED = [0.10, 0.25]


def _falls(c: Cases, method: str, **where: Any) -> Any:
    """Return True where the RMSE at ε = e^4 is below that at e^-4."""
    low, high = (c.get("rmse", method=method, k=k, **where) for k in (-4, 4))
    return high < low


def _nearer(c: Cases, method: str, to: str, other: str) -> Any:
    """Return True if the RMSE at ε = e^4, n = 1,000 is nearer to ``to`` than to ``other``."""
    away = [np.abs(np.log(c.ratio("rmse", method, m, k=4, n=1000))) for m in (to, other)]
    return away[0].mean() < away[1].mean()


STUDY_1 = (
    StudyFinding(
        "4.1 (1)",
        "MODIPS and Laplace are alike, the two with priors are alike, and the former are better.",
        {
            "MODIPS and Laplace within a quarter in RMSE": lambda c: within(
                c.ratio("rmse", OURS, TABLES, k=range(-4, 3)), 1.25
            ),
            "the two with priors within 1.4 in RMSE up to ε = 1, π not 1/2": lambda c: within(
                c.ratio("rmse", *PRIORS, k=range(-4, 1), truth=SKEWED), 1.4
            ),
            "at 1/2, too (beta-binomial has half the RMSE: five data sets against one)": (
                lambda c: within(c.ratio("rmse", *PRIORS, k=range(-4, 1), truth=0.5), 1.4)
            ),
            "the former better at ε = 1 and π not 1/2": lambda c: [
                c.ratio("rmse", OURS, m, k=0, truth=SKEWED) < 1 for m in PRIORS
            ],
        },
    ),
    StudyFinding(
        "4.1 (2)",
        "Errors fall as ε grows; MODIPS and Laplace approach multiple synthesis (MS), the two with "
        "priors the original data.",
        {
            "RMSE falls, π not 1/2": lambda c: [
                _falls(c, m, truth=SKEWED) for m in (OURS, TABLES, *PRIORS)
            ],
            "MODIPS goes to MS": lambda c: _nearer(c, OURS, "MS", "original"),
            "Laplace goes to MS (here to the original data: nothing is drawn from a posterior)": (
                lambda c: _nearer(c, TABLES, "MS", "original")
            ),
            "beta-binomial goes to the original data (here to MS: each share is drawn)": (
                lambda c: _nearer(c, PRIORS[0], "original", "MS")
            ),
        },
    ),
    StudyFinding(
        "4.1 (3)",
        "More records make noise matter less in MODIPS and Laplace, and hardly help the two with "
        "priors.",
        {
            "RMSE at ε = 1, π = 0.1 falls to a third from n = 40 to 1,000": lambda c: [
                c.one("rmse", method=m, k=0, truth=0.1, n=1000)
                < c.one("rmse", method=m, k=0, truth=0.1, n=40) / 3
                for m in (OURS, TABLES)
            ],
            "that of the two with priors does not": lambda c: [
                c.one("rmse", method=m, k=0, truth=0.1, n=1000)
                > 0.9 * c.one("rmse", method=m, k=0, truth=0.1, n=40)
                for m in PRIORS
            ],
        },
    ),
    StudyFinding(
        "4.1 (4)",
        "The two with priors pull shares towards 1/2, and are best at 1/2.",
        {
            "bias towards 1/2": lambda c: [
                c.get("bias", method=m, k=range(-4, 1), truth=SKEWED) > 0.05 for m in PRIORS
            ],
            "least RMSE at 1/2": lambda c: [
                c.get("rmse", method=m, k=0, truth=0.5) < c.get("rmse", method=m, k=0, truth=0.25)
                for m in PRIORS
            ],
        },
    ),
    StudyFinding(
        "4.1 (5)",
        "MODIPS and Laplace are best at 1/2, too, where bounds do not skew.",
        {
            "less bias at 1/2 than at 0.1 for ε = e^-2": lambda c: [
                np.abs(c.get("bias", method=m, k=-2, truth=0.5))
                < np.abs(c.get("bias", method=m, k=-2, truth=0.1))
                for m in (OURS, TABLES)
            ],
        },
    ),
    StudyFinding(
        "4.1 (6)",
        "Away from 1/2 MODIPS and Laplace have far smaller errors for most ε; at 1/2 the two with "
        "priors have, at small ε below those of the original data, and falling with ε.",
        {
            "away from 1/2, at ε = e^-1 to e": lambda c: [
                c.ratio("rmse", m, other, k=range(-1, 2), truth=SKEWED, n=[100, 1000]) < 0.8
                for m in (OURS, TABLES)
                for other in PRIORS
            ],
            "at 1/2 below the original at ε = e^-4": lambda c: (
                c.ratio("rmse", PRIORS[0], "original", k=-4, truth=0.5) < 1
            ),
            "and less at smaller ε": lambda c: (
                c.get("rmse", method=PRIORS[0], k=-4, truth=0.5)
                < c.get("rmse", method=PRIORS[0], k=4, truth=0.5)
            ),
        },
    ),
    StudyFinding(
        "4.1 (7)",
        "MODIPS and Laplace cover but at small ε and n; all but McClure & Reiter's come to 95 %.",
        {
            "coverage above 0.9 from ε = 1 on, n = 1,000": lambda c: [
                c.get("coverage", method=m, k=range(5), n=1000) > 0.9 for m in (OURS, TABLES)
            ],
            "all three at ε = e^4, n = 100 and 1,000": lambda c: [
                c.get("coverage", method=m, k=4, n=[100, 1000]) > 0.9
                for m in (OURS, TABLES, PRIORS[0])
            ],
            "McClure & Reiter's does not, π not 1/2": lambda c: (
                c.get("coverage", method=PRIORS[1], k=4, truth=0.1) < 0.9
            ),
        },
    ),
    StudyFinding(
        "4.1 (8)",
        "Intervals of MODIPS and Laplace are much wider below ε = 1/e.",
        {
            "twice as wide at ε = e^-2, n = 40 and 100": lambda c: [
                c.ratio("width", m, PRIORS[0], k=-2, n=[40, 100]) > 2 for m in (OURS, TABLES)
            ],
        },
    ),
    StudyFinding(
        "4.1, bounds",
        "A noisy count bounded to [-α, n + β] in place of [0, n] makes no difference of note.",
        {
            "RMSE within a tenth from ε = e^-2 on": lambda c: within(
                c.ratio("rmse", WIDE, OURS, k=range(-2, 5)), 1.1
            ),
            "coverage within 0.03 for n = 100 and 1,000": lambda c: (
                np.abs(
                    c.get("coverage", method=WIDE, k=range(-2, 5), n=[100, 1000])
                    - c.get("coverage", method=OURS, k=range(-2, 5), n=[100, 1000])
                )
                < 0.03
            ),
        },
    ),
)

_MEAN = {"parameter": "mean", "bounds": "asymmetric", "truth": 1.0}
_VARIANCE = _MEAN | {"parameter": "variance"}
_EVEN = {"bounds": "symmetric"}

STUDY_2 = (
    StudyFinding(
        "4.2 (1)",
        "Errors are large at small ε and fall to those of MS or the original; the perturbed "
        "histogram has the best trade-off.",
        {
            "RMSE falls for both parameters": lambda c: [
                _falls(c, m, **w) for m in (OURS, HISTOGRAM) for w in (_MEAN, _VARIANCE)
            ],
            "MODIPS within a tenth of MS at ε = e^4, n = 1,000": lambda c: [
                within(c.ratio("rmse", OURS, "MS", k=4, n=1000, **w), 1.1)
                for w in (_MEAN, _VARIANCE)
            ],
            "the histogram's RMSE of μ is the least of the private ones up to ε = e^-1": lambda c: [
                c.ratio("rmse", HISTOGRAM, m, k=range(-4, 0), n=[100, 1000], **_MEAN) < 1
                for m in (OURS, SMOOTHED)
            ],
        },
    ),
    StudyFinding(
        "4.2 (2)",
        "More records help MODIPS and the perturbed histogram, not the smoothed one.",
        {
            "RMSE of σ² at ε = 1 falls by more than half from n = 20 to 1,000": lambda c: [
                c.one("rmse", method=m, k=0, n=1000, **_VARIANCE)
                < 0.5 * c.one("rmse", method=m, k=0, n=20, **_VARIANCE)
                for m in (OURS, HISTOGRAM)
            ],
            "not that of the smoothed one": lambda c: (
                c.one("rmse", method=SMOOTHED, k=0, n=1000, **_VARIANCE)
                > 0.9 * c.one("rmse", method=SMOOTHED, k=0, n=20, **_VARIANCE)
            ),
        },
    ),
    StudyFinding(
        "4.2 (3)",
        "Asymmetric bounds bias the mean upwards; σ² is overestimated.",
        {
            "bias of μ above 0 at ε = e^-2, n = 100": lambda c: [
                c.one("bias", method=m, k=-2, n=100, **_MEAN) > 0.05
                for m in (OURS, HISTOGRAM, SMOOTHED)
            ],
            "bias of σ² above 0 at ε = e^-2, n = 100": lambda c: [
                c.one("bias", method=m, k=-2, n=100, **_VARIANCE) > 0.1
                for m in (OURS, HISTOGRAM, SMOOTHED)
            ],
        },
    ),
    StudyFinding(
        "4.2 (4)",
        "For ε < 1 histograms have smaller errors for μ than MODIPS in most cases; for σ² MODIPS "
        "has the smallest.",
        {
            "μ, the perturbed histogram, ε up to e^-1": lambda c: (
                np.mean(c.ratio("rmse", HISTOGRAM, OURS, k=range(-4, 0), **_MEAN) < 1) > 0.5
            ),
            "σ² at ε = e^-4, n = 100": lambda c: (
                c.ratio("rmse", OURS, HISTOGRAM, k=-4, n=100, **_VARIANCE) < 1
            ),
            "σ² at ε = e^-1 and 1, n = 100 (the perturbed histogram has less)": lambda c: (
                c.ratio("rmse", OURS, HISTOGRAM, k=[-1, 0], n=100, **_VARIANCE) < 1
            ),
        },
    ),
    StudyFinding(
        "4.2 (5)",
        "MODIPS covers by wide intervals; the perturbed histogram undercovers mildly, the smoothed "
        "one severely at small ε and large n.",
        {
            "MODIPS above 0.85 everywhere": lambda c: [
                c.get("coverage", method=OURS, **w) > 0.85 for w in (_MEAN, _VARIANCE)
            ],
            "its intervals for μ are the wider ones at ε = e^-2, n = 100": lambda c: (
                c.ratio("width", OURS, HISTOGRAM, k=-2, n=100, **_MEAN) > 2
            ),
            "smoothed: below 0.1 for σ² at ε = e^-2, n = 1,000": lambda c: (
                c.one("coverage", method=SMOOTHED, k=-2, n=1000, **_VARIANCE) < 0.1
            ),
        },
    ),
    StudyFinding(
        "4.2, symmetric bounds",
        "Little bias of μ by any method and nominal coverage; histograms are more precise for μ, "
        "and worse than MODIPS for σ², with undercoverage at small ε.",
        {
            "bias of μ below a tenth of σ from ε = e^-1 on, n = 100 and 1,000": lambda c: [
                np.abs(c.get("bias", method=m, k=range(-1, 5), n=[100, 1000], parameter="mean",
                             **_EVEN)) < 0.1
                for m in (OURS, HISTOGRAM, SMOOTHED)
            ],
            "coverage of μ at least 0.9": lambda c: [
                c.get("coverage", method=m, parameter="mean", **_EVEN) > 0.9
                for m in (OURS, HISTOGRAM, SMOOTHED)
            ],
            "histograms more precise for μ at ε = e^-2": lambda c: (
                c.ratio("rmse", HISTOGRAM, OURS, k=-2, parameter="mean", **_EVEN) < 1
            ),
            "histograms undercover σ² at ε = e^-2, n = 100": lambda c: [
                c.one("coverage", method=m, k=-2, n=100, parameter="variance", **_EVEN) < 0.85
                for m in (HISTOGRAM, SMOOTHED)
            ],
            "MODIPS has the smaller RMSE of σ² at ε = e^-1 and 1, n = 100": lambda c: (
                c.ratio("rmse", OURS, HISTOGRAM, k=[-1, 0], n=100, parameter="variance", **_EVEN)
                < 1
            ),
        },
    ),
)  # fmt: skip
