"""Common parts of Bowen & Liu's simulation studies: ε, measures, and their curves over ε.

NumPy's noise behind the package's own mechanisms: for study only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd
from studies.coverage import MEASURES
from studies.panels import grid, plain_numbers
from studies.runner import Chart, Piece

Seed = int | np.random.SeedSequence
M = 5  # data sets, each of which costs a fifth of ε
REPLICATES = 5000  # of studies 1 to 3, as in the paper
EPSILONS = tuple(math.exp(k) for k in range(-4, 5))
WIDE = "modips, wide bounds"  # study 1 with noisy counts from -a to n + b
AXIS = {"rmse": "RMSE", "width": "width of 95% interval"}


def moments(values: Floats) -> tuple[Floats, ...]:
    """Compute the mean and variance of each row, with their variances.

    Source: bowen-liu-2020, section 4.2.
    """
    n = values.shape[1]
    mean = values.mean(axis=1)
    away = values - mean[:, None]
    squares = (away**2).sum(axis=1)
    s2 = squares / (n - 1)
    fourth = (away**4).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = np.where(squares > 0, fourth / (squares / n) ** 2 - 3, 0.0)
    of_s2 = s2**2 * np.maximum(2 / (n - 1) + kurtosis / n, 0.0)
    return mean, s2 / n, s2, of_s2


def curves(panels: Mapping[str, pd.DataFrame], linear: float | None = None) -> Chart:
    """Draw curves: a column per panel, a row per measure, and a line over log ε per method.

    Args:
        panels: rows with epsilon, method and ``MEASURES``, by title.
        linear: biases whose absolute value exceeds this are on a logarithmic scale.
    """
    over = {t: rows.assign(**{"log ε": np.log(rows["epsilon"])}) for t, rows in panels.items()}
    figure, axes = grid(over, {m: AXIS.get(m, m) for m in MEASURES}, "log ε", "method")
    for row, measure in zip(axes, MEASURES, strict=True):
        if measure in ("rmse", "width"):
            row[0].set_yscale("log")
            plain_numbers(row[0].yaxis)
        elif measure == "bias" and linear is not None:
            row[0].set_yscale("symlog", linthresh=linear)
    shown = [rows.assign(panel=title) for title, rows in panels.items()]
    return Chart(figure, pd.concat(shown, ignore_index=True))


def pieces(replicates: int) -> list[Piece]:
    """One piece for each ε."""
    return [{"replicates": replicates, "epsilon": epsilon} for epsilon in EPSILONS]


def piece(
    run: Callable[..., pd.DataFrame],
    seed: np.random.SeedSequence,
    replicates: int,
    epsilon: float,
) -> pd.DataFrame:
    """Run a study at one ε."""
    return run(replicates, seed, [epsilon])


def table(found: pd.DataFrame, parameter: str, n: int) -> str:
    """Format every measure by log ε, for one parameter and one n."""
    rows = found[(found["parameter"] == parameter) & (found["n"] == n)]
    rows = rows.assign(**{"log ε": rows["epsilon"].map(math.log).round().astype(int)})
    order = list(dict.fromkeys(rows["method"]))
    lines = []
    for measure in MEASURES:
        wide = rows.pivot(index=["truth", "method"], columns="log ε", values=measure)
        shown = wide.reindex(order, level="method").round(3).to_string()
        lines.append(f"{parameter}, n = {n}: {measure} by log ε\n\n{shown}\n")
    lines.append(f"Standard error of coverage at most {rows['se'].max():.3f}.")
    return "\n".join(lines)
