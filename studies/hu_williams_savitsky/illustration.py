"""Hu, Williams & Savitsky, Figure 1: prior, posterior and censored posterior of a parameter.

2,000 records from Beta(0.5, 2), ε = 1.6. The paper does not name the parameter; here it is the mean
of the beta distribution, whose prior is uniform on (0, 1). Posterior densities are kernel estimates
of the draws.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import pd, special, stats
from dpbayes.engines import SamplerSettings
from dpbayes.engines.draws import stacked
from dpbayes.mechanisms import Censored, Unweighted
from dpbayes.plots.charts import COLOURS, LINES
from dpbayes.synthesis.fit import Fit
from dpbayes.synthesis.synthesizer import Synthesizer
from studies.datasets import SKEWED_MODEL, SKEWED_SCHEMA
from studies.runner import Chart

N = 2000
SHAPE = (0.5, 2.0)
EPSILON = 1.6
POINTS = 200


def run(seed: np.random.SeedSequence) -> pd.DataFrame:
    """Estimate densities: columns distribution, at, density, and the distribution's centre.

    Source: hu-williams-savitsky, figure 1.
    """
    rng = np.random.default_rng(seed)
    records = pd.DataFrame({"y": rng.beta(*SHAPE, N)})
    settings = SamplerSettings(seed=int(rng.integers(2**31)), parallel_chains=1)
    base = Synthesizer(SKEWED_SCHEMA, Unweighted(), SKEWED_MODEL, settings=settings)
    plain = base.fit(records, allow_nonconvergence=True)
    censored = base.with_mechanism(Censored(EPSILON, adjacency="add-remove")).refit(plain)
    at = np.linspace(0, 1, POINTS)
    parts = [_rows("prior", at, np.ones(POINTS), 0.5)]
    for name, fit in (("posterior", plain), ("censored", censored)):
        mean = _mean(fit)
        at = np.linspace(max(0, mean.min() - mean.std()), min(1, mean.max() + mean.std()), POINTS)
        parts.append(_rows(name, at, stats.gaussian_kde(mean)(at), float(mean.mean())))
    return pd.concat(parts, ignore_index=True)


def _mean(fit: Fit) -> Floats:  # type: ignore[type-arg]
    """Draws of the mean of the beta distribution."""
    return np.asarray(special.expit(stacked(fit.fitted.draws, "intercept")))


def _rows(name: str, at: Floats, density: Floats, mean: float) -> pd.DataFrame:
    return pd.DataFrame({"distribution": name, "at": at, "density": density, "centre": mean})


def chart(found: pd.DataFrame) -> Chart:
    """Draw the densities as they are, and centred at their own means.

    Source: hu-williams-savitsky, figure 1.
    """
    figure = Figure(figsize=(8.4, 3.9), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (name, part) in enumerate(found.groupby("distribution", sort=False)):
        style = {"color": COLOURS[place], "linestyle": ("-", *LINES)[place]}
        left.plot(part["at"], part["density"], label=name, **style)
        right.plot(part["at"] - part["centre"], part["density"], label=name, **style)
    # The flat prior continues on both sides, so the posteriors alone set the limits.
    near = found[found["distribution"] != "prior"]
    wide = float(np.ptp(near["at"]))
    left.set_xlim(near["at"].min() - wide / 2, near["at"].max() + wide / 2)
    right.set_xlim(-wide / 2, wide / 2)
    left.set_xlabel("mean of the records' distribution")
    right.set_xlabel("the same, less its own mean")
    left.set_ylabel("density")
    left.set_ylim(bottom=0)
    right.legend(frameon=False, loc="upper right")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return Chart(figure, found)
