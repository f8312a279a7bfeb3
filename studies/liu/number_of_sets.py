"""Liu, section 5.1: inference by the number m of data sets among which ε = 1 is divided.

The parameters are a share, and a mean of normal records with known variance, each with a flat
prior. The paper shows results in a figure only (figure 6). Means and variances of a data set's
bounded records are drawn from their large-sample distribution: a normal distribution with the
moments of one bounded record, and the variance itself. Shares are also inferred from 10,000
records, for which the paper's claims about 100 records hold.
"""

from __future__ import annotations

import itertools

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, special, stats
from dpbayes.mechanisms.modips.conjugate import draw_share, normal_statistics
from dpbayes.privacy.noise import StudyNoise
from dpbayes.privacy.statistic import Statistic, same_change
from studies.coverage import intervals
from studies.liu.bounding import BOUNDING, BOUNDS, sanitised
from studies.liu.findings import MANY, with_verdicts
from studies.liu.findings import NUMBER_OF_SETS as FINDINGS
from studies.panels import grid, plain_numbers
from studies.runner import Chart, Piece, Report, Study

EPSILON = 1.0
REPLICATES = 5000
SIZES = (100, 1000)
SHARES = (0.1, 0.5)
SETS = (2, 3, 5, 10, 20, 40, 70, 100, 150, 200, 300, 500)
MEASURES = ("bias", "sd", "coverage")


def run(
    seed: int | np.random.SeedSequence, replicates: int, case: str, how: str, n: int
) -> pd.DataFrame:
    """Run replicates: a row for each m with bias, mean estimated sd and coverage.

    Source: liu-2016, section 5.1; figure 6.

    Args:
        case: ``p = 0.1`` or another share, or a name of ``BOUNDS``.
        how: one of ``BOUNDING``.
    """
    noise = StudyNoise(np.random.default_rng(seed))
    truth, simulate = (0.0, _gaussian) if case in BOUNDS else (float(case[4:]), _binary)
    statistic = _statistic(noise.rng, replicates, case, truth, n)
    rows = []
    for m in SETS:
        sets = [simulate(statistic, EPSILON / m, case, how, n, noise) for _ in range(m)]
        estimate, variance = np.array(sets).transpose(1, 0, 2)
        centre, low, high = intervals(estimate, variance)
        covered = float(((low <= truth) & (truth <= high)).mean())
        spread = np.sqrt(variance.mean(axis=0) + estimate.var(axis=0, ddof=1) / m)
        rows.append(
            {
                "case": case, "bounding": how, "n": n, "m": m,
                "bias": float((centre - truth).mean()), "sd": float(spread.mean()),
                "coverage": covered,
                "se": float(np.sqrt(max(covered * (1 - covered), 1e-4) / replicates)),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _statistic(
    rng: np.random.Generator, replicates: int, case: str, truth: float, n: int
) -> Statistic:
    if case not in BOUNDS:
        ones = rng.binomial(n, truth, replicates)
        return Statistic("count", ones, same_change(1), 0, n, integer=True)
    x = stats.truncnorm.rvs(*BOUNDS[case], size=(replicates, n), random_state=rng)
    return normal_statistics(x, BOUNDS[case], n, n)[0]


def _binary(
    count: Statistic, epsilon: float, case: str, how: str, n: int, noise: StudyNoise
) -> Floats:
    """Estimated share and variance of a synthetic data set, shape (2, replicates)."""
    p = draw_share(sanitised(count, epsilon, how, noise), n, (1, 1), noise.rng)
    q = noise.rng.binomial(n, p) / n
    return np.stack([q, q * (1 - q) / n])


def _gaussian(
    mean: Statistic, epsilon: float, case: str, how: str, n: int, noise: StudyNoise
) -> Floats:
    """Estimated mean and variance of a synthetic data set, shape (2, replicates)."""
    centre = sanitised(mean, epsilon, how, noise)
    mu = noise.rng.normal(centre, n**-0.5)
    expectation, variance = bounded_moments(mu, BOUNDS[case], moved=how == "bit")
    return np.stack([noise.rng.normal(expectation, np.sqrt(variance / n)), variance / n])


def bounded_moments(mu: Floats, ends: tuple[float, float], *, moved: bool) -> tuple[Floats, Floats]:
    """Mean and variance of a record from Normal(mu, 1) that is kept within bounds.

    Args:
        moved: True if a record outside is moved to the boundary, False if it is drawn again.
    """
    a, b = (end - mu for end in ends)
    below, above = special.ndtr(a), special.ndtr(-b)
    inside = 1 - below - above
    mean = stats.norm.pdf(a) - stats.norm.pdf(b)
    square = inside + a * stats.norm.pdf(a) - b * stats.norm.pdf(b)
    if moved:
        mean = mean + a * below + b * above
        square = square + a**2 * below + b**2 * above
    else:
        inside = np.maximum(inside, 1e-12)
        mean, square = mean / inside, square / inside
    return mu + mean, np.maximum(square - mean**2, 0)


def chart(found: pd.DataFrame) -> Chart:
    """Draw Figure 6: bias, sd and coverage by m, a column for each case and n."""
    panels = {
        f"mean in ({case}), n = {n:,}" if str(case) in BOUNDS else f"{case}, n = {n:,}": part
        for (case, n), part in found.groupby(["case", "n"], sort=False)
    }
    figure, axes = grid(panels, {m: m for m in MEASURES}, "m", "bounding")
    axes[0, 0].set_xscale("log")
    axes[MEASURES.index("sd"), 0].set_yscale("log")
    for axis in (axes[0, 0].xaxis, axes[MEASURES.index("sd"), 0].yaxis):
        plain_numbers(axis)
    return Chart(figure, found)


def report(found: pd.DataFrame) -> Report:
    """Report one table, and Figure 6."""
    title = "Inference by the number m of data sets (Liu, section 5.1; ε = 1 for all of them)"
    found = found.drop(columns="piece")
    return with_verdicts(title, "number-of-sets", found, FINDINGS, {"figure-6": chart(found)})


def pieces(replicates: int) -> list[Piece]:
    """One piece for each case, bounding and n."""
    shares = [f"p = {share}" for share in SHARES]
    cases = [*itertools.product(shares, (*SIZES, MANY)), *itertools.product(BOUNDS, SIZES)]
    return [
        {"replicates": replicates, "case": case, "how": how, "n": n}
        for (case, n), how in itertools.product(cases, BOUNDING)
    ]


STUDY = Study(
    "number-of-sets",
    "Liu, section 5.1: inference by the number of data sets",
    REPLICATES,
    pieces,
    run,
    report,
)
