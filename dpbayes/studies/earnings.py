"""Every mechanism on the shipped earnings at one ε per data set, in one table.

Earnings are confidential, gender, age, education and region public. Tables cut age and education in
two and earnings in twenty; the posteriors are beta regressions by NUTS. NumPy's noise: for study
only.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dpbayes.demo import FORMULA, earnings
from dpbayes.dips import DipsFit, DipsSynthesizer
from dpbayes.engines import SamplerSettings
from dpbayes.fit import Fit
from dpbayes.mechanisms import (
    Anchored,
    BetaDivergence,
    Censored,
    CensoredWeighted,
    EmpiricalBootstrap,
    Laplace,
    Mechanism,
    Modips,
    MultinomialDirichlet,
    PerturbedHistogram,
    SmoothedHistogram,
    StanMechanism,
    Unweighted,
    Weighted,
    WeightedE,
)
from dpbayes.synthesizer import Synthesizer
from dpbayes.utility import avg_ecdf, max_ecdf

EPSILON = 1.0
DATASETS = 20
BINS = {"age": 2, "education": 2, "earnings": 20}
# Not for a continuous column: scores and urns of levels, counts and binary columns.
NOT_HERE = (BetaDivergence.name, "beta-binomial", "beta-binomial-mr")


def mechanisms(epsilon: float) -> list[Mechanism]:
    """All that can synthesise a continuous column."""
    return [
        Unweighted(), Weighted(), WeightedE(epsilon), CensoredWeighted(epsilon), Censored(epsilon),
        Anchored(epsilon),
        PerturbedHistogram(epsilon, bins=BINS), Laplace(epsilon, bins=BINS),
        EmpiricalBootstrap(epsilon, bins=BINS), MultinomialDirichlet(epsilon, bins=BINS),
        SmoothedHistogram(epsilon, bins=BINS), Modips(epsilon, "sequential"),
    ]  # fmt: skip


def run(datasets: int = DATASETS, seed: int = 1, epsilon: float = EPSILON) -> pd.DataFrame:
    """One row per mechanism: guarantee of one data set, utility as means over data sets.

    ``education`` is the difference of synthetic earnings per year of education (least squares) from
    the confidential one, in dollars an hour.
    """
    records, schema = earnings()
    base = Synthesizer(schema, FORMULA, "beta", Unweighted(), settings=SamplerSettings(seed=seed))
    rows = []
    for mechanism in mechanisms(epsilon):
        fit: Fit | DipsFit
        if isinstance(mechanism, StanMechanism):
            fit = base.with_mechanism(mechanism).fit(records, allow_nonconvergence=True)
        else:
            fit = DipsSynthesizer(schema, mechanism).fit(records)
        claim = fit.claim()
        release = fit.sample(datasets, accept="none", seed=seed)
        original = fit.records["earnings"]
        slope = _slope(fit.records)
        distance = [avg_ecdf(original, d["earnings"]) for d in release.datasets]
        largest = [max_ecdf(original, d["earnings"]) for d in release.datasets]
        rows.append(
            {
                "mechanism": mechanism.name,
                "basis": claim.basis,
                "ε": claim.epsilon,
                "ε (substitution)": claim.epsilon_substitution,
                "avg-ECDF": np.mean(distance),
                "se": np.std(distance, ddof=1) / np.sqrt(datasets),
                "max-ECDF": np.mean(largest),
                "education": np.mean([_slope(d) for d in release.datasets]) - slope,
            }
        )
    return pd.DataFrame(rows).set_index("mechanism")


def _slope(data: pd.DataFrame) -> float:
    slope, _ = np.polyfit(data["education"].astype(float), data["earnings"].astype(float), 1)
    return float(slope)
