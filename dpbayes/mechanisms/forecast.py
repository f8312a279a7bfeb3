"""What public facts say of a release before a record is seen: what noise will do, in numbers.

Nothing here takes records: a schema, a public number of rows and a mechanism's settings are all
there is. So an outlook costs nothing, may be printed, and is part of a release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dpbayes.privacy.accounting import stated

NOISY = 0.1  # share of rows that noise alone decides, from which it is said
INSTEAD = (
    "`marginals` (no --mechanism) counts columns and pairs of them instead; or take fewer bins or "
    "merge levels."
)
COUNTED, DISTANCE = "counted per parameter", "distance from the fit, at most"
FEWEST = 10.0  # counted records per parameter: a distance of up to 0.16 from the fit


@dataclass(frozen=True)
class ForecastWarning:
    """A reason to expect little of a release.

    Attributes:
        what: is to be expected; readers of the release are told it.
        remedy: for those who release.
    """

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


@dataclass(frozen=True)
class Forecast:
    """What is to be expected of a release, by public facts.

    Attributes:
        facts: numbers by name, each derived; what they are is in the function that has them.
        cautions: what speaks against it.
    """

    facts: Mapping[str, float] = field(default_factory=dict)
    cautions: tuple[ForecastWarning, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """For those who release: what is to be expected, and what to do."""
        return tuple(map(str, self.cautions))

    @property
    def notes(self) -> tuple[str, ...]:
        """For readers of the release."""
        return tuple(caution.what for caution in self.cautions)


def noise_share(cells: int, rows: int, epsilon: float) -> float:
    """Least expected share of rows that come from cells without a record.

    Counts with discrete Laplace noise, q = e^-epsilon, cut at 0: an empty cell has
    m = q / (1 - q²) in the mean, less a part q^n where counts are cut at n, and a cell with records
    at most q m more than it held. Of K cells K - n are empty at least.

    Args:
        cells: K.
        rows: n.
        epsilon: that noise in one cell costs for a step of 1.
    """
    q = math.exp(-epsilon)
    m = q / -math.expm1(-2 * epsilon)
    empty = max(0, cells - rows) * m * -math.expm1(-epsilon * rows)
    return empty / (rows + min(cells, rows) * q * m + empty)


def urn_share(cells: int, rows: int, alpha: float) -> float:
    """Expected share of rows that are uniform over K cells: K α / (n + K α), exactly."""
    return cells * alpha / (rows + cells * alpha)


def of_cells(cells: int, rows: int, share: float, epsilon: float, what: str) -> Forecast:
    """A full cross-tabulation.

    Args:
        cells: of all columns together, public ones included.
        share: of rows that noise decides.
        what: how the share is meant, in words with a place for the number.
    """
    facts = {"cells": cells, "records per cell": rows / cells, "share of noise": share}
    if share < NOISY:
        return Forecast(facts)
    text = (
        f"The full cross-tabulation has {cells:,} cells for {rows:,} records: at "
        f"ε = {stated(epsilon)} {what.format(f'{share:.0%}')}."
    )
    return Forecast(facts, (ForecastWarning(text, INSTEAD),))


def of_posterior(
    rows: int,
    parameters: int,
    alpha: float,
    columns: int,
    epsilon: float | None,
    *,
    anchor: float = 0.0,
) -> Forecast:
    """A posterior of tempered log-likelihoods.

    n records count as α n. A draw of p parameters of a regular model is off by δ with variance
    (α n I)^-1, I the information of a record, so that the Kullback-Leibler divergence of the drawn
    distribution from the fitted one, δ' I δ / 2, is p / (2 α n) in the mean. By Pinsker's
    inequality the mean total variation distance is at most the root of half of that. What the
    clamp adds is not in it.

    Args:
        rows: n.
        parameters: p.
        alpha: constant weight α of the records.
        columns: that are modelled.
        epsilon: for words.
        anchor: records per parameter from which a drawn anchor is near enough.
    """
    each, counted = rows / parameters, alpha * rows / parameters
    distance = min(1.0, math.sqrt(parameters / (4 * alpha * rows)))
    facts = {
        "α": alpha,
        "records per parameter": each,
        COUNTED: counted,
        DISTANCE: distance,
    }
    if counted >= FEWEST and each >= anchor:
        return Forecast(facts)
    needed = math.ceil(max(FEWEST / alpha, anchor))
    at = "" if epsilon is None else f" at ε = {stated(epsilon)}"
    several = f" for {columns} columns" if columns > 1 else ""
    what = (
        f"{rows:,} records count as {alpha * rows:,.0f} (α = {alpha:.2g}), {counted:.1f} for each "
        f"of about {parameters} parameters{several}: what is drawn follows the prior more than "
        "the records."
    )
    remedy = "Take fewer terms, or more ε."
    if each < anchor:
        what = (
            f"The anchor is a draw that {rows:,} records put too far from the fit of about "
            f"{parameters} parameters{several}: the clamp decides where the posterior lies."
        )
        remedy = "Leave anchor at auto, or take one from earlier records (--anchor FILE)."
    least = (
        f"About {needed:,} records per parameter are needed{at}, {needed * parameters:,} in all. "
    )
    return Forecast(facts, (ForecastWarning(what, least + remedy),))
