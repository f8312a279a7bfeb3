"""Claims of Liu about Figures 6 and 8, in words and as tests.

Like the paper's figures, the tests use its own accounting of truncation (``bounding``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpbayes.core.lazy import pd
from studies.coverage import BUDGET
from studies.findings import Cases, StudyFinding, judged, verdicts
from studies.liu.bounding import NOT_PRIVATE
from studies.runner import Chart, Report, rounded

MANY = 10_000  # records from which shares are inferred besides
EVEN, UNEVEN = "-4, 4", "-4, 5"
TRUNCATE = NOT_PRIVATE
LARGE = [0.5, 0.75, 0.9]

ALLOCATION = (
    StudyFinding(
        "5.3, first",
        "w hardly matters for the bias with symmetric bounds; with asymmetric ones and n = 100 it "
        "is large, falls with w and stays from 0.5 on.",
        {
            "symmetric: bias below a tenth of the RMSE": lambda c: (
                np.abs(c.get("bias", bounds=EVEN)) < 0.1 * c.get("rmse", bounds=EVEN)
            ),
            "asymmetric: above 0.2 at w = 0.1, and less at 0.5": lambda c: [
                c.one("bias", bounds=UNEVEN, bounding=how, n=100, w=0.1)
                > max(0.2, c.one("bias", bounds=UNEVEN, bounding=how, n=100, w=0.5))
                for how in ("bit", TRUNCATE)
            ],
            "within a quarter from w = 0.5 to 0.9": lambda c: [
                c.one("bias", bounds=UNEVEN, bounding=how, n=100, w=0.9)
                > 0.75 * c.one("bias", bounds=UNEVEN, bounding=how, n=100, w=0.5)
                for how in ("bit", TRUNCATE)
            ],
        },
    ),
    StudyFinding(
        "5.3, second",
        "Boundary inflation covers about 95 %, slightly more from w = 0.5 on; truncation "
        "undercovers at n = 100 for all w, and at n = 1,000 above 0.5.",
        {
            "boundary inflation from 0.93 to 0.99": lambda c: (
                np.abs(c.get("coverage", bounding="bit") - 0.96) < 0.03
            ),
            "truncation below 0.95 at n = 100, asymmetric bounds": lambda c: (
                c.get("coverage", bounding=TRUNCATE, bounds=UNEVEN, n=100) < 0.95
            ),
            "truncation below 0.95 at n = 100, symmetric bounds": lambda c: (
                c.get("coverage", bounding=TRUNCATE, bounds=EVEN, n=100) < 0.95
            ),
            "truncation below 0.93 at n = 1,000 for w of 0.75 and 0.9, asymmetric": lambda c: (
                c.get("coverage", bounding=TRUNCATE, bounds=UNEVEN, n=1000, w=LARGE[1:]) < 0.93
            ),
        },
    ),
    StudyFinding(
        "5.3, third",
        "Intervals are wider than the original's: far at n = 100, falling with w; close to it at "
        "n = 1,000 above w = 0.5.",
        {
            "n = 100: more than twice as wide": lambda c: (
                c.get("width", n=100) > 2 * c.get("original width", n=100)
            ),
            "falling from w = 0.1 to 0.9": lambda c: c.get("width", w=0.9) < c.get("width", w=0.1),
            "n = 1,000, w = 0.75: within twice the original's": lambda c: (
                c.get("width", n=1000, w=0.75) < 2 * c.get("original width", n=1000, w=0.75)
            ),
        },
    ),
)

FEW, MIDDLE = [2, 3, 5, 10], [20, 40, 100, 200]
BOTH = ["bit", TRUNCATE]

NUMBER_OF_SETS = (
    StudyFinding(
        "5.1, shares, n as printed",
        "Little bias but for n = 100, p = 0.1 and m > 200; coverage near 95 % but there; the "
        "estimated sd is least at m = 30 to 40 with n = 100.",
        {
            "bias below 0.01 up to m = 200": lambda c: (
                np.abs(c.get("bias", case="p = 0.1", n=100, bounding=BOTH, m=MIDDLE)) < 0.01
            ),
            "coverage above 0.9 up to m = 200": lambda c: (
                c.get("coverage", case="p = 0.1", n=100, bounding=BOTH, m=MIDDLE) > 0.9
            ),
            "sd least at m = 20 to 70": lambda c: (
                c.get("sd", case="p = 0.1", n=100, bounding="bit", m=[20, 40, 70]).min()
                < c.get("sd", case="p = 0.1", n=100, bounding="bit", m=FEW).min()
            ),
        },
    ),
    StudyFinding(
        "5.1, shares, n = 10,000",
        "The same sentence, for a hundred times as many records.",
        {
            "bias below 0.01 up to m = 200": lambda c: (
                np.abs(c.get("bias", case="p = 0.1", n=MANY, bounding=BOTH, m=MIDDLE)) < 0.01
            ),
            "coverage above 0.9 up to m = 200": lambda c: (
                c.get("coverage", case="p = 0.1", n=MANY, bounding=BOTH, m=MIDDLE) > 0.9
            ),
            "sd least at m = 20 to 70": lambda c: (
                c.get("sd", case="p = 0.1", n=MANY, bounding="bit", m=[20, 40, 70]).min()
                < c.get("sd", case="p = 0.1", n=MANY, bounding="bit", m=FEW).min()
            ),
        },
    ),
    StudyFinding(
        "5.1, means (1)",
        "No bias with symmetric bounds; with asymmetric ones and n = 100 it is plain above m = 10.",
        {
            "symmetric: below 0.05": lambda c: (
                np.abs(c.get("bias", case=EVEN, bounding=BOTH)) < 0.05
            ),
            "asymmetric: above 0.1 from m = 40 on, below 0.05 up to 10": lambda c: [
                c.get("bias", case=UNEVEN, n=100, bounding=BOTH, m=[40, 70, 100]) > 0.1,
                np.abs(c.get("bias", case=UNEVEN, n=100, bounding=BOTH, m=FEW)) < 0.05,
            ],
        },
    ),
    StudyFinding(
        "5.1, means (2)",
        "The estimated variance rises with m to a peak, and falls again: near 20 (truncation) and "
        "40 (boundary inflation) with n = 100, 50 and 150 with n = 1,000.",
        {
            "n = 100, truncation: peak from 10 to 40": lambda c: _peak(c, TRUNCATE, 100, 10, 40),
            "n = 100, boundary inflation: peak from 20 to 70": lambda c: _peak(
                c, "bit", 100, 20, 70
            ),
            "n = 1,000, truncation: peak from 40 to 100": lambda c: _peak(
                c, TRUNCATE, 1000, 40, 100
            ),
            "n = 1,000, boundary inflation: peak from 100 to 300": lambda c: _peak(
                c, "bit", 1000, 100, 300
            ),
        },
    ),
    StudyFinding(
        "5.1, means (3)",
        "Symmetric bounds cover but for m = 2, where it is 91 %, with overcoverage above 40 at "
        "n = 100; asymmetric ones undercover severely at n = 100 above 20 (truncation) and 40 "
        "(boundary inflation), at n = 1,000 above 80 to 150.",
        {
            "symmetric: 0.89 to 0.95 at m = 2, above 0.93 from m = 3 to 10": lambda c: [
                np.abs(c.get("coverage", case=EVEN, bounding=BOTH, m=2) - 0.92) < 0.03,
                c.get("coverage", case=EVEN, bounding=BOTH, m=FEW[1:]) > 0.93,
            ],
            "symmetric: overcoverage from m = 70 on, n = 100, by both (boundary inflation: 95 to "
            "97 %)": lambda c: (
                c.get("coverage", case=EVEN, n=100, bounding=BOTH, m=[70, 100, 200, 500]) > 0.955
            ),
            "asymmetric, n = 100: below 0.8 at m = 70 (truncation), 150 (boundary inflation)": (
                lambda c: [
                    c.get("coverage", case=UNEVEN, n=100, bounding=TRUNCATE, m=70) < 0.8,
                    c.get("coverage", case=UNEVEN, n=100, bounding="bit", m=150) < 0.8,
                ]
            ),
            "asymmetric, n = 1,000: below 0.8 at m = 300 by both (boundary inflation: at 500)": (
                lambda c: c.get("coverage", case=UNEVEN, n=1000, bounding=BOTH, m=300) < 0.8
            ),
        },
    ),
)


def _peak(c: Cases, how: str, n: int, low: int, high: int) -> bool:
    """Return True if the m with the largest estimated sd (symmetric bounds) is in a range."""
    sd = c.get("sd", case=EVEN, n=n, bounding=how)
    best = c.get("m", case=EVEN, n=n, bounding=how)[np.argmax(sd)]
    return bool(low <= best <= high)


def with_verdicts(
    what: str,
    name: str,
    found: pd.DataFrame,
    findings: tuple[StudyFinding, ...],
    charts: Mapping[str, Chart],
) -> Report:
    """Report one table under its name, the verdicts on the paper's claims, and the figures."""
    judgement = judged(findings, found)
    text = f"{what}\n{BUDGET}; not kept by: {NOT_PRIVATE}\n\n{rounded(found)}\n\n"
    return Report(text + verdicts(judgement), {name: found, "findings": judgement}, charts)
