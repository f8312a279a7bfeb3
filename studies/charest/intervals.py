"""Charest 2011, Figure 1: coverage of 95% intervals by the mean of M sets and Reiter's variance.

Beta-binomial synthetic counts, n = ñ = 100, against ε and M for p = 0.25 and 0.5. The paper prints
no numbers for it; ``SAID`` quotes its text. The caption says 10,000 iterations, the text 1,000; we
run 10,000. The paper does not say which t distribution an interval has if T_M is negative, and the
result depends on it: at ε = 3, p = 0.25 and M = 2 the coverage is 0.77 by the normal distribution,
0.87 by ν_M of the formula and 1.00 by M - 1 degrees of freedom, which ``combine`` uses. The first
is nearest to the text and is drawn; all are in the table. Coverage falls with more sets from ε = 2
on; below, five sets cover more than two.
"""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.figure import Figure

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, stats
from dpbayes.inference.combining import RULES
from dpbayes.plots.charts import COLOURS, LINES
from studies.charest.synthesizer import N, synthesize
from studies.runner import Chart

RUNS = 10_000
SHARES = (0.25, 0.5)
EPSILONS = tuple(float(e) for e in np.arange(1, 13) / 4)  # 0.25 to 3
SETS = (2, 5, 10)
NEGATIVE = ("normal", "ν_M", "M - 1")  # degrees of freedom if T_M is negative
DRAWN = NEGATIVE[0]
SAID = (
    "p = 0.25: barely 80% at ε = 3 with M = 2, less with more sets; p = 0.5: almost 100%, very "
    "high with more sets; confidential data: very close to 95%"
)


def run(runs: int = RUNS, seed: int | np.random.SeedSequence = 1) -> pd.DataFrame:
    """Simulate coverage by p, M, ε and ``negative``; M = 0 is the confidential data for any ε.

    Source: charest-2011, figure 1.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for p, m, epsilon in itertools.product(SHARES, (0, *SETS), EPSILONS):
        x = rng.binomial(N, p, runs)
        shares = (synthesize(x, epsilon, m, rng) if m else x[:, None]) / N
        for negative in NEGATIVE if m else (DRAWN,):
            centre, half = interval(shares, negative)
            covered = float((abs(centre - p) <= half).mean())
            error = float(np.sqrt(max(covered * (1 - covered), 1 / runs) / runs))
            rows.append((p, m, negative, epsilon, covered, error))
    return pd.DataFrame(rows, columns=["p", "M", "negative", "epsilon", "coverage", "se"])


def interval(shares: Floats, negative: str) -> tuple[Floats, Floats]:
    """Compute centres and half widths of 95% intervals, shape (...), from shares (..., M).

    A single set gets the normal interval of a share.

    Source: charest-2011, section 3.1; eq. 4.
    """
    m = shares.shape[-1]
    within = (shares * (1 - shares) / N).mean(axis=-1)
    centre = shares.mean(axis=-1)
    if m == 1:
        return centre, stats.norm.ppf(0.975) * np.sqrt(within)
    T, df = RULES["raghunathan"](within, shares.var(axis=-1, ddof=1), m)
    negative_df = {"normal": np.inf, "ν_M": df, "M - 1": m - 1.0}[negative]
    df = np.maximum(np.where(T < 0, negative_df, df), 1e-3)  # 0 degrees have no quantile
    variance = np.where(T < 0, within, T)
    return centre, stats.t.ppf(0.975, df) * np.sqrt(variance)


def chart(found: pd.DataFrame) -> Chart:
    """Draw Figure 1: a panel for each p, a line over ε for each M.

    Source: charest-2011, figure 1.
    """
    shown = found[found["negative"] == DRAWN]
    figure = Figure(figsize=(8.4, 3.9), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(SHARES), sharey=True)
    for ax, p in zip(axes, SHARES, strict=True):
        for place, m in enumerate((0, *SETS)):
            line = shown[(shown["p"] == p) & (shown["M"] == m)]
            ax.plot(
                line["epsilon"], line["coverage"], label=f"M = {m}" if m else "confidential data",
                color=("black", *COLOURS)[place], linestyle=("-", *LINES)[place],
            )  # fmt: skip
        ax.axhline(0.95, color="0.6", linewidth=0.8)
        ax.set_title(f"p = {p:g}", fontsize=10)
        ax.set_xlabel("ε of all sets together")
        ax.set_ylim(0, 1.02)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("coverage of 95% intervals")
    axes[-1].legend(frameon=False, loc="lower right")
    return Chart(figure, shown)


def text(found: pd.DataFrame) -> str:
    """Format the coverages as a table, with the paper's text on its figure."""
    wide = found.pivot(index=["p", "M", "negative"], columns="epsilon", values="coverage")
    return (
        "Figure 1, coverage by ε, by the distribution that intervals have where T_M is negative\n"
        f"(M = 0: confidential data; drawn: {DRAWN}; standard error at most "
        f"{found['se'].max():.3f})\n\n{wide.round(3).to_string()}\n\nThe paper's text: {SAID}."
    )
