"""Forecasts of how noise will affect a release, from public facts alone.

Nothing here takes records: the inputs are a schema, a public number of rows and a mechanism's
settings. So a forecast costs no epsilon, may be printed, and is part of a release.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from dpbayes.core.errors import listed
from dpbayes.privacy.accounting import stated
from dpbayes.schema import Schema
from dpbayes.schema.clusters import Cluster

NOISY = 0.1  # share of rows decided by noise alone, from which a forecast warns
INSTEAD = (
    "`marginals` (the default mechanism) counts columns and pairs of them instead; or take fewer "
    "bins or merge levels."
)
COUNTED, DISTANCE = "counted per parameter", "distance from the fit, at most"
MOST_NOISE = 0.25  # sd of a noisy number of rows, as a share of it, above which a forecast warns
GROUPS = (
    "Beside confidential covariates, differences of public groups are kept in two ways alone: by "
    "marginals, with the group as a covariate (`+ group`) in `keep`, a δ, and enough rows for each "
    "level; or by anchored, with a model of each confidential column (`[[model]]`). Where `plan` "
    "warns of both, no mechanism keeps them at this ε."
)
NOISE_IN_ROWS = 100.0  # sd of a noisy number of rows of which whoever makes a release is warned
FEWER = 3  # times fewer records of a person that a remedy suggests
MOST_NAMES = 8  # public columns that a warning names
FEWEST = 10.0  # counted records per parameter: a distance of up to 0.16 from the fit


@dataclass(frozen=True)
class ForecastWarning:
    """A reason to expect low utility of a release.

    Attributes:
        problem: the expected problem, which the release reports to its readers.
        remedy: advice for those who make the release.
        against: it counts where a plan compares mechanisms: their figures do not have it, and
            others are not known to share it.
    """

    problem: str
    remedy: str
    against: bool = True

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


@dataclass(frozen=True)
class Forecast:
    """The expected utility of a release, from public facts.

    Attributes:
        facts: derived numbers by name, documented in the function that computes them.
        cautions: warnings of low utility.
    """

    facts: Mapping[str, float] = field(default_factory=dict)
    cautions: tuple[ForecastWarning, ...] = ()

    def at_delta(self, delta: float, rows: int) -> Forecast:
        """This forecast, with a warning if δ is above 1 / n.

        Source: dwork-roth-2014.

        Args:
            delta: δ at which ε is stated.
            rows: public number of records, n.
        """
        if delta * rows <= 1:
            return self
        outright = int(delta * rows)
        caution = ForecastWarning(
            f"δ = {stated(delta)} is above 1 / n, here {1 / rows:.2g}: a δ so large would also "
            f"allow that {outright:,} of {rows:,} records were published as they are.",
            "Take a δ far below 1 / n, or none.",
        )
        return self._with(caution)

    def at_noise(
        self, sd: float, rows: int, most: float = math.inf, counted: str = "rows"
    ) -> Forecast:
        """This forecast, with a warning if the number of rows is mostly noise.

        Args:
            sd: of the noise in the number of rows; infinite if a number is declared.
            rows: number of records, or what stands for it.
            most: sd from which the warning comes in any case.
            counted: what a record is, in the plural.
        """
        if math.isinf(sd) or (sd <= rows * MOST_NOISE and sd < most):
            return self
        return self._with(noisy_rows(sd, counted, f"the {rows:,} records"))

    def for_release(
        self,
        delta: float,
        rows: int,
        rows_sd: float,
        schema: Schema,
        left_out: Collection[str] = (),
    ) -> Forecast:
        """This forecast, with the warnings that concern any mechanism.

        Args:
            delta, rows: as in ``at_delta``.
            rows_sd: as ``sd`` in ``at_noise``.
            schema: for what a record is, and who may have several.
            left_out: public columns that the model does not use.
        """
        forecast = self.at_delta(delta, rows).at_noise(rows_sd, rows, counted=schema.counted)
        cluster = schema.cluster
        if left_out:
            forecast = forecast._with(_without_columns(left_out))
        return forecast if cluster is None else forecast._with(_without_persons(cluster))

    def _with(self, caution: ForecastWarning) -> Forecast:
        """This forecast with one more caution, unless it has it."""
        return replace(self, cautions=tuple(dict.fromkeys((*self.cautions, caution))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Expected problems with their remedies, for those who make the release."""
        return tuple(map(str, self.cautions))

    @property
    def notes(self) -> tuple[str, ...]:
        """Expected problems, for readers of the release."""
        return tuple(caution.problem for caution in self.cautions)


def _without_columns(names: Collection[str]) -> ForecastWarning:
    return ForecastWarning(
        f"The model does not use {listed(map(repr, names), MOST_NAMES)}: what these public columns "
        "say beyond those in its formula is lost.",
        "Add them to the formula where analyses need them.",
    )


def _without_persons(cluster: Cluster) -> ForecastWarning:
    fewer = math.ceil(cluster.most / FEWER)
    remedy = (
        "Where it matters, declare [panel] in place of [cluster], which draws persons with all "
        "rows; or make one row of each person first, such as with a column for each year."
    )
    if cluster.most > FEWER:
        remedy += (
            f" ε is for up to {cluster.most} records together: if you keep up to {fewer} of each "
            f"person, by a public rule, and declare `most = {fewer}`, each record has about "
            f"{cluster.most / fewer:.2g} times as much of it."
        )
    return ForecastWarning(
        f"A person has up to {cluster.most} records, and synthetic rows have no persons: what ties "
        "the records of a person together is lost, and standard errors do not account for it.",
        remedy,
    )


def noisy_rows(sd: float, counted: str, records: str = "the records") -> ForecastWarning:
    """Warning of the noise in the number of records.

    Args:
        sd: of that noise.
        counted: what a record is, in the plural, as ``Schema.counted`` has it.
        records: words for the records that it is compared with.
    """
    return ForecastWarning(
        f"The number of {counted} has noise with an sd of {sd:,.0f} beside {records}: a data set "
        f"may have far fewer or far more {counted}, and is as coarse or fine as for that number.",
        "Give it a larger part of ε, as by rows = {noisy = 0.2}, or declare a number that is known "
        "publicly.",
    )


def noise_share(cells: int, rows: int, epsilon: float) -> float:
    """Lower bound on the expected share of rows that come from cells without a record.

    Counts have discrete Laplace noise, q = e^-epsilon, and are set to 0 where negative. The mean of
    an empty cell is then m = q / (1 - q²), less the fraction q^n of it where counts are cut at n; a
    cell with records gains at most q m. At least K - n of the K cells are empty.

    Args:
        cells: number of cells, K.
        rows: number of rows, n.
        epsilon: privacy loss of one cell's noise when its count changes by 1.
    """
    q = math.exp(-epsilon)
    m = q / -math.expm1(-2 * epsilon)
    cells = min(cells, 10**300)  # the product of many columns' levels may be no float
    empty = max(0, cells - rows) * m * -math.expm1(-epsilon * rows)
    return empty / (rows + min(cells, rows) * q * m + empty)


def urn_share(cells: int, rows: int, alpha: float) -> float:
    """Expected share of rows that are uniform over K cells: K α / (n + K α), exactly."""
    return cells * alpha / (rows + cells * alpha)


def of_cells(cells: int, rows: int, share: float, epsilon: float, meaning: str) -> Forecast:
    """Forecast for a mechanism that counts the full cross-tabulation.

    Args:
        cells: number of cells of all columns together, public ones included.
        rows: the public number of rows.
        share: share of rows that noise decides.
        epsilon: the epsilon to report in a warning.
        meaning: description of the share, with a placeholder ``{}`` for the number.
    """
    facts = {"cells": cells, "records per cell": rows / cells, "share of noise": share}
    if share < NOISY:
        return Forecast(facts)
    warning = (
        f"The full cross-tabulation has {cells:,} cells for {rows:,} records: at "
        f"ε = {stated(epsilon)} {meaning.format(f'{share:.0%}')}."
    )
    return Forecast(facts, (ForecastWarning(warning, INSTEAD),))


def of_posterior(
    rows: int,
    parameters: int,
    alpha: float,
    columns: int,
    epsilon: float | None,
    *,
    anchor: float = 0.0,
) -> Forecast:
    """Forecast for a draw from a posterior with tempered log-likelihoods.

    n records count as α n. In a regular model with p parameters a draw deviates by δ with variance
    (α n I)^-1, I the Fisher information of a record, so the mean Kullback-Leibler divergence of the
    drawn distribution from the fitted one, δ' I δ / 2, is p / (2 α n). By Pinsker's inequality the
    mean total variation distance is at most the square root of half of that. The effect of the
    clamp is not included.

    Args:
        rows: the public number of rows, n.
        parameters: number of parameters, p.
        alpha: constant weight α of the records.
        columns: number of modelled columns.
        epsilon: the epsilon to report in a warning, or None.
        anchor: records per parameter from which a drawn anchor is near enough.
    """
    per_parameter, counted = rows / parameters, alpha * rows / parameters
    distance = min(1.0, math.sqrt(parameters / (4 * alpha * rows)))
    facts = {
        "α": alpha,
        "records per parameter": per_parameter,
        COUNTED: counted,
        DISTANCE: distance,
    }
    if counted >= FEWEST and per_parameter >= anchor:
        return Forecast(facts)
    needed = math.ceil(max(FEWEST / alpha, anchor))
    budget = "" if epsilon is None else f" at ε = {stated(epsilon)}"
    several = f" for {columns} columns" if columns > 1 else ""
    problem = (
        f"{rows:,} records count as {alpha * rows:,.0f} (α = {alpha:.2g}), {counted:.1f} for each "
        f"of about {parameters} parameters{several}: what is drawn follows the prior more than "
        "the records."
    )
    score = "" if columns > 1 else "mechanism score where its covariates are public, "
    remedy = (
        f"Take fewer terms, more ε, {score}or marginals, which keeps a regression (`keep`) with "
        "less noise. Where its plan is not accurate enough either, no mechanism is at this ε."
    )
    if per_parameter < anchor:
        problem = (
            f"The anchor is a draw that {rows:,} records put too far from the fit of about "
            f"{parameters} parameters{several}: the clamp decides where the posterior lies."
        )
        remedy = "Leave anchor at auto, or take one from earlier records."
    requirement = (
        f"About {needed:,} records per parameter are needed{budget}, {needed * parameters:,} in "
        "all. "
    )
    # The figures of a plan have how few records count, but not where the clamp puts a posterior.
    against = per_parameter < anchor
    return Forecast(facts, (ForecastWarning(problem, requirement + remedy, against),))
