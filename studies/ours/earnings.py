"""Comparison of all mechanisms on the shipped earnings, at one ε per data set.

Earnings are confidential, gender, age, education and region public. Tables cut age and education in
two and earnings in twenty; the posteriors are beta regressions by NUTS. NumPy's noise: for study
only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.demo.earnings import EARNINGS_MODEL, earnings
from dpbayes.engines import SamplerSettings
from dpbayes.evaluate.utility import avg_ecdf, max_ecdf
from dpbayes.mechanisms import (
    Anchored,
    BetaBinomial,
    BetaBinomialMR,
    BetaDivergence,
    Censored,
    CensoredWeighted,
    EmpiricalBootstrap,
    Laplace,
    Marginals,
    Mechanism,
    Modips,
    MultinomialDirichlet,
    PerturbedHistogram,
    SmoothedHistogram,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.stan.model import Regression
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.runner import Report, Study

EPSILON = 1.0
DATASETS = 20
BINS = {"age": 2, "education": 2, "earnings": 20}
# These cannot synthesise a continuous column.
NOT_HERE = (BetaDivergence.name, BetaBinomial.name, BetaBinomialMR.name)


def cases(epsilon: float) -> list[tuple[Mechanism[Any], Regression | None]]:
    """All mechanisms that can synthesise a continuous column, each with the model that it needs."""
    posteriors = (
        Unweighted(), Weighted(), WeightedE(epsilon), CensoredWeighted(epsilon), Censored(epsilon),
        Anchored(epsilon),
    )  # fmt: skip
    tables = (
        PerturbedHistogram(epsilon, bins=BINS), Laplace(epsilon, bins=BINS),
        EmpiricalBootstrap(epsilon, bins=BINS), MultinomialDirichlet(epsilon, bins=BINS),
        SmoothedHistogram(epsilon, bins=BINS),
    )  # fmt: skip
    without = (*tables, Modips(epsilon, "sequential"), Marginals(epsilon))
    models = [*((m, EARNINGS_MODEL) for m in posteriors), *((m, None) for m in without)]
    return [(mechanism.protecting("add-remove"), model) for mechanism, model in models]


def run(
    seed: np.random.SeedSequence, number: int, datasets: int = DATASETS, epsilon: float = EPSILON
) -> pd.DataFrame:
    """Run one mechanism: guarantee of one data set, and utility as means over data sets.

    ``education`` is the difference of synthetic earnings per year of education (least squares) from
    the confidential one, in dollars an hour.
    """
    # All mechanisms use the study's own seed, so that fits of the same posterior agree.
    assert isinstance(seed.entropy, int)
    records, schema = earnings()
    mechanism, model = cases(epsilon)[number]
    settings = SamplerSettings(seed=seed.entropy, parallel_chains=1)
    synthesizer = Synthesizer(schema, mechanism, model, settings=settings)
    fit = synthesizer.fit(records, allow_nonconvergence=True)
    claim = fit.guarantee
    # One release per data set: some mechanisms make all data sets of a release from one output.
    seeds = range(seed.entropy, seed.entropy + datasets)
    drawn = [fit.sample(accept="none", seed=s).datasets[0] for s in seeds]
    original = fit.records["earnings"]
    distance = [avg_ecdf(original, d["earnings"]) for d in drawn]
    largest = [max_ecdf(original, d["earnings"]) for d in drawn]
    row = {
        "mechanism": mechanism.name,
        "basis": claim.basis,
        "ε": claim.epsilon,
        "ε (substitution)": claim.epsilon_substitution,
        "avg-ECDF": np.mean(distance),
        "se": pd.Series(distance).sem(),
        "max-ECDF": np.mean(largest),
        "education": np.mean([_slope(d) for d in drawn]) - _slope(fit.records),
    }
    return pd.DataFrame([row])


def _slope(data: pd.DataFrame) -> float:
    slope, _ = np.polyfit(data["education"].astype(float), data["earnings"].astype(float), 1)
    return float(slope)


def report(found: pd.DataFrame) -> Report:
    """Report one table of all mechanisms."""
    formats = {"avg-ECDF": "{:.5f}", "se": "{:.5f}", "max-ECDF": "{:.3f}", "education": "{:+.2f}"}
    shown = found.drop(columns="piece").assign(
        **{k: found[k].map(v.format) for k, v in formats.items()}
    )
    text = (
        f"Every mechanism on the shipped earnings, ε = {EPSILON:g} per data set\n\n"
        f"{shown.to_string(index=False)}\n\nNot for a continuous column: {', '.join(NOT_HERE)}."
    )
    return Report(text, {"earnings": found})


STUDY = Study(
    "earnings",
    "every mechanism on the shipped earnings, in one table",
    DATASETS,
    lambda replicates: [{"number": i, "datasets": replicates} for i in range(len(cases(EPSILON)))],
    run,
    report,
)
