"""Mechanisms for which the intervals of a rule are known to cover, and warnings for the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpbayes.schema.table import unit_of

# For m data sets, each from a separate draw of a private posterior.
DEFAULT_RULE = "modips"
# For data sets of one private measurement: their spread includes all uncertainty about it.
RULES_BY_MECHANISM = dict.fromkeys(("marginals", "households", "panels", "score"), "reiter2002")
_OF_ONE_MEASUREMENT = ("reiter2002", "raghunathan", "mixture")
_OWN_NOISE = ("modips", "modips-choice")  # each data set has separate noise
# Mechanisms whose intervals had near-nominal coverage in a study (ours, or a repeated one).
COVERED = ("marginals", "modips", "modips-choice", "unweighted")

# Records to a cell below which intervals after ``modips`` are not known to cover: 500 records with
# 10 to a cell covered a mean in 82 % of 60 runs at ε = 1, with 5 in 35 %, with 15 and more in 92 %.
FEWEST_TO_A_CELL = 15

# Records to a declared row above which intervals are not known to cover: with 2 the mean of a
# skewed income was covered in 98 % of 45 runs, with 5 in 65 % of 60 (4,000 records, ε = 1).
MOST_TO_A_ROW = 2

# Share of the population that weights may be apart from it without a warning; or three of its sds.
UNLIKE_POPULATION = 0.05
_OF_GROUPS = (
    "intervals are for figures of the whole population. Of a group whose weights are far above the "
    "mean they are too short, as its records are fewer than they seem: where the weights of one in "
    "twenty were ten times those of others, 95% intervals of their share covered 78 to 88%"
)
_OF_DESIGN = (
    "a posterior given weighted records has not the spread that the design of the sample has "
    "(Williams & Savitsky, 2021), and no correction was paid for: use the data sets for figures, "
    "not for intervals"
)

_SHRUNK = (
    "its data shrink towards the synthesizer's prior (bias of 54 to 90% at ε = 2, Charest, Table "
    "1). Use share_posterior or from_synthetic_counts for counts of beta-binomial"
)
_CLAMPED = (
    "its clamp shifts the posterior: with five data sets 95% intervals of a share covered 7% at "
    "ε = 1 and 81% at ε = 3 (`python -m studies known-draws`). Use from_clamped_draws for shares, "
    "or ask for a release by 'anchored'"
)
_ANCHORED = (
    "with five data sets 95% intervals of a share covered 90 to 96% (`python -m studies "
    "known-draws`), and of regressions nothing is known: where ε is small the clamp shifts "
    "coefficients, up to their sign, and the spread between data sets does not show it. Do not "
    "trust a small p-value "
    "that rests on it"
)
_NEAR = (
    "draw = mode makes each data set as near to the records as the noisy counts allow, so that "
    "they differ by less than what is unknown and intervals come out too short. Use a release "
    "with draw = posterior"
)
_NESTED = (
    "nested data sets share a private draw, and the spread between all of them shows less than "
    "what noise added. Take the first of each draw"
)
_RIDGED = (
    "a ridge draws its logistic regressions towards 0, which the spread between data sets does not "
    "show: with 500 records and five data sets 95% intervals of such a slope covered 2% at ε = 1 "
    "and 23% at ε = 5, those of shares, means and regressions of numbers 92% or more"
)
_GRIDDED = (
    "draws on a grid are spread over its cells by the noise, which pulls estimates towards the "
    "middle of the grid, and no study has the coverage of their intervals. Use draw = sbs"
)
_THIN = (
    "with fewer than {fewest} records to a cell, noise pulls the cells towards one another: means "
    "of numbers were covered in 0 to 82% of runs with 3 to 10 records to a cell at ε = 1. Use "
    "fewer bins or levels, or mechanism 'marginals'"
)
_BINNED = (
    "numbers are spread evenly over the bins, and noise and prior fill empty ones: with 15 to 70 "
    "records to a cell means of skewed incomes were 6 to 35% too high and covered in 0 to 5% of "
    "runs, of ages in 75% (4,000 records, ε = 1). Shares of levels are covered. For numbers use "
    "mechanism 'marginals'"
)
_NORMAL = (
    "{names} came from a normal distribution, and draws beyond the bounds were moved to them: "
    "where many values lie near a bound, means are shifted (of skewed incomes by 2%, covered in 45 "
    "to 60% of 40 runs of 4,000 records). Of columns that are about normal, well inside of their "
    "bounds, they are covered"
)
_BETWEEN = (
    "noise and the steps in which members are drawn pull slopes between them towards 0: of 20 "
    "samples of 2,000 simulated households, 95% intervals of a child's schooling by the head's "
    "covered 4 to 8, of a partner's 11 to 17, of means, shares and distances 16 to 20 (ε = 1 and 3)"
)
_CHAINED = (
    "rows of one person are not independent. With errors summed by person, as `combine` and "
    "`formula_fit` with `release.unit` do, 95% intervals covered 7 to 10 times of 10 samples of "
    "5,000 simulated persons, and within persons they were 7 to 35 standard errors of the records "
    "wide on either side (ε = 1 and 3)"
)
_UNKNOWN = (
    "noise, cells or weights can shift an estimate, up to its sign, and the spread between data "
    "sets does not show a shift. No study has the coverage of these intervals: do not trust a "
    "small p-value that rests on them"
)
# What intervals of slopes are known to do where those of shares and means cover.
_OF_SLOPES = {
    "marginals": (
        "correlations of numeric columns are drawn towards 0, and intervals of slopes can miss "
        "although those of shares and means cover: of two related normal covariates 95% intervals "
        "covered slopes in 80 to 100% of 20 runs, and the correlation in 56 to 100% (3,000 and "
        "30,000 records, ε = 1 and 3), and in a panel of 738 firms, whose covariates "
        "are correlated by .8 to .9, they missed 13 of 30 slopes"
    )
}
_BIASED = {
    "multinomial-dirichlet": _SHRUNK,
    "beta-binomial": _SHRUNK,
    "beta-binomial-mr": _SHRUNK,
    "smoothed-histogram": _SHRUNK,
    "censored": _CLAMPED,
    "censored-weighted": _CLAMPED,
    "anchored": _ANCHORED,
    "households": _BETWEEN,
    "panels": _CHAINED,
}


def too_few_declared(settings: Mapping[str, Any]) -> str | None:
    """Warning that a declared number of rows is far below the records; None if it is not.

    Args:
        settings: settings of the release.
    """
    estimated, declared = settings.get("estimated_records", 0), settings.get("public_rows", 0)
    binned = any(isinstance(edges, list) for edges in settings.get("bins", {}).values())
    if estimated <= MOST_TO_A_ROW * declared or not binned:
        return None
    return (
        f"about {estimated:,} records were counted where {declared:,} rows had been declared, and "
        "bins are as wide as so few pay for: means of skewed columns are off by more than their "
        "intervals say. Declare a number near that of the records, or none"
    )


def cut_off(settings: Mapping[str, Any]) -> str | None:
    """Warning that the posterior of mechanism ``score`` was cut off; None if it was not.

    Args:
        settings: settings of the release.
    """
    if not settings.get("cut"):
        return None
    return (
        "the noisy answers leave the parameters open over a wider range than simulated records "
        "could cover, and the posterior was cut off there: estimates may be several of their "
        "standard errors off, and intervals far too short. "
        "More ε, narrower bounds of the outcome or fewer parameters avoid this"
    )


def prior_decided(settings: Mapping[str, Any]) -> str | None:
    """Warning of parameters that the prior decides on, by mechanism ``score``; None if none.

    Args:
        settings: settings of the release.
    """
    names = settings.get("by_prior", ())
    if not names:
        return None
    return (
        f"the noisy answers say little of {', '.join(names)}: the posterior is mostly the prior "
        "there, and estimates are as far off as the prior is. More ε, narrower bounds of the "
        "outcome or fewer parameters avoid this"
    )


def weights_cut(settings: Mapping[str, Any]) -> str | None:
    """Warning that cut weights represent too little of the population; None if they do not.

    Args:
        settings: settings of the release.
    """
    counted, sd = settings.get("weight_counted", 1.0), settings.get("weight_counted_sd", 0.0)
    if abs(counted - 1) < max(UNLIKE_POPULATION, 3 * sd):
        return None
    largest = settings.get("survey", {}).get("largest", math.nan)
    message = (
        f"the records' weights, cut at the largest one declared, {largest:,.10g}, add up to about "
        f"{counted:.0%} of the population"
    )
    if counted > 1:
        return (
            f"{message}: is it larger? Shares and means do not depend on it, but the effective "
            "number of records does, and with it the length of intervals"
        )
    return (
        f"{message}. If many are larger, the synthetic rows lean towards records with small "
        "weights; a larger one cuts less, and makes the noise larger in proportion. If none is, "
        "the population is smaller, or weights are not numbers of units"
    )


def doubts(settings: Mapping[str, Any]) -> list[str]:
    """What is wrong with a release by its own settings, whatever is estimated from it."""
    tests = (too_few_declared, cut_off, weights_cut, prior_decided)
    return [doubt for test in tests if (doubt := test(settings)) is not None]


def records_of(settings: Mapping[str, Any]) -> int | None:
    """Number of records that a release states: estimated, or else public; None if it has none."""
    counted = settings.get("effective_records", settings.get("estimated_records"))
    number: int | None = counted or settings.get("public_rows")
    return number


def told_apart(settings: Mapping[str, Any]) -> dict[str, str]:
    """Sentence on the levels that tables of pairs tell apart, by column where that is not all."""
    return {
        str(name): f"Levels of {name!r} told apart in tables of two columns: "
        f"{', '.join(levels) or 'none'}. How other columns differ between its "
        f"{'other ' if levels else ''}levels is lost, but for regressions in `keep`."
        for name, levels in settings.get("told_apart", {}).items()
    }


def _of_private_draw(fit: Mapping[str, Any], records: int | None) -> str | None:
    """Reason why intervals after a private draw of ``modips`` may not cover; None if they do.

    Args:
        fit: settings of the model.
        records: number of records as released.
    """
    if fit.get("ridge"):
        return _RIDGED
    if fit.get("draw", "sbs") != "sbs":
        return _GRIDDED
    if records is not None and records < FEWEST_TO_A_CELL * fit.get("cells", 1):
        return _THIN.format(fewest=FEWEST_TO_A_CELL)
    if any(isinstance(edges, list) for edges in fit.get("bins", {}).values()):
        return _BINNED
    if fit.get("normal"):
        return _NORMAL.format(names=", ".join(map(repr, fit["normal"])))
    return None


def size_ratio(settings: Mapping[str, Any], rows: int) -> float:
    """Size of a data set relative to the records: of rows, or of households if it has some."""
    size = rows if unit_of(settings) is None else int(settings["rows"])
    return size / (records_of(settings) or size)


def uncovered(mechanism: str | None, settings: Mapping[str, Any]) -> str | None:
    """Reason why intervals of a release may not cover; None if they do, or if nothing is known.

    Args:
        mechanism: its name; None if only data frames are available.
        settings: settings of the release.
    """
    if mechanism is None:
        return None
    for test in (too_few_declared, cut_off, weights_cut):  # a prior is part of what is estimated
        if (doubt := test(settings)) is not None:
            return f"{doubt}."
    if "survey" in settings and settings.get("draw") != "mode":
        return f"{_OF_GROUPS if 'effective_records' in settings else _OF_DESIGN}."
    why = _BIASED.get(mechanism, None if mechanism in COVERED else _UNKNOWN)
    if mechanism == "modips" and "stages" in settings:  # draw = clamped
        why = _ANCHORED
    elif mechanism in _OWN_NOISE:
        fits, n = (settings, *settings.get("fits", ())), records_of(settings)
        why = next(filter(None, (_of_private_draw(fit, n) for fit in fits)), None)
    if why is None and settings.get("nested", 1) > 1:
        why = _NESTED
    if settings.get("draw") == "mode":
        why = _NEAR
    return None if why is None else f"no rule fits mechanism {mechanism!r}: {why}."


def of_slopes(mechanism: str | None) -> str | None:
    """What is known of intervals of slopes after a mechanism; None if they are as others."""
    why = _OF_SLOPES.get(mechanism or "")
    return None if why is None else f"{why}."


def unfit(rule: str | None, mechanism: str | None) -> str | None:
    """Reason why a requested rule does not suit the data sets of a mechanism; None if it may.

    Data sets of one measurement differ by draws of what it leaves open: this uncertainty does not
    shrink with their number, although ``modips`` divides the spread B by m.
    """
    own = RULES_BY_MECHANISM.get(mechanism or "")
    if rule is None or mechanism is None or rule == own:
        return None
    if own is not None and rule not in _OF_ONE_MEASUREMENT:
        return (
            f"rule {rule!r} is not for data sets of {mechanism!r}, which share one measurement: "
            f"intervals come out too short. Use rule {own!r}."
        )
    if rule == "mixture" and mechanism in _OWN_NOISE:
        return (
            f"rule 'mixture' is for data sets that share one measurement or posterior; each of "
            f"{mechanism!r} has noise of its own: intervals come out too long. Use rule "
            f"{DEFAULT_RULE!r}."
        )
    return None


def not_large(rows: int, n: int | None, datasets: int) -> str | None:
    """Reason why a mixture of posteriors may be too wide or too rough; None if it is fine.

    Args:
        rows: number of rows of each data set.
        n: public number of confidential records; None if unknown.
        datasets: number of data sets.
    """
    reasons = []
    if n is None or rows < _LARGE * n:
        reasons.append(
            f"data sets of {rows:,} rows add their own sampling error, so that intervals are too "
            f"wide: ask for `rows` of {_LARGE} times the records or more"
        )
    if datasets < _MANY:
        reasons.append(
            f"{datasets} data sets leave the ends of an interval rough: ask for {_MANY} or more"
        )
    return f"rule 'mixture': {'; '.join(reasons)}." if reasons else None


_LARGE = 10  # smallest ratio of synthetic rows to records for a mixture
_MANY = 20  # smallest number of data sets for a mixture
