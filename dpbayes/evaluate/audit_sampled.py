"""Audit by many runs: a lower confidence bound on epsilon. The result is confidential."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpbayes.core.errors import GuaranteeError
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd, stats, xr
from dpbayes.engines import SamplerSettings
from dpbayes.engines.base import BoundModel
from dpbayes.engines.draws import one_draw
from dpbayes.mechanisms.posterior.fit import PosteriorFit
from dpbayes.privacy.accounting import stated, stated_left
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.synthesis.synthesizer import Synthesizer

LEVEL = 0.05 / 4  # Bonferroni: two limits in each of two directions
MOST_RUNS = 100_000  # on each side


@dataclass(frozen=True)
class SampledAudit:
    """A lower confidence bound on epsilon from runs on two neighbours.

    Attributes:
        guarantee: the mechanism's claim.
        epsilon_lower: 95 % Clopper-Pearson lower bound for add/remove; 0 if nothing is shown.
        runs: number of runs on each side.
    """

    guarantee: Guarantee
    epsilon_lower: float
    runs: int

    @property
    def violated(self) -> bool:
        """True if the bound exceeds the claim: wrong with probability at most 0.05."""
        return self.epsilon_lower > self.guarantee.epsilon

    def __str__(self) -> str:
        claimed = self.guarantee.epsilon
        nominal = stated(claimed) if math.isfinite(claimed) else "no ε"
        return (
            f"{self.guarantee.mechanism}: ε is at least {stated_left(self.epsilon_lower)} "
            f"(add/remove, 95 % confidence, {self.runs} runs a side), claimed {nominal}: "
            + ("EXCEEDED" if self.violated else "not exceeded")
        )


def check_runs(runs: int) -> None:
    """Raise GuaranteeError if there are too few runs for a bound, or too many to finish."""
    if not 20 <= runs <= MOST_RUNS:
        raise GuaranteeError(f"runs = {runs} must be from 20 to {MOST_RUNS:,} a side.")


def audit_sampled(
    synthesizer: Synthesizer[PosteriorFit],
    records: pd.DataFrame,
    record: pd.DataFrame,
    runs: int = 200,
) -> SampledAudit:
    """Run the mechanism on records with and without ``record``, and bound epsilon from below.

    Each run is a fit with its own seed and gives one draw. Half the runs choose a threshold for
    the log ratio of the two last-stage densities, the other half count how often it is exceeded.
    The bound is log(p1 / p0) with Clopper-Pearson limits, in both directions (Bonferroni).
    """
    added = pd.concat([as_frame(records), record], ignore_index=True)
    check_runs(runs)
    sides: list[list[xr.DataTree]] = [[], []]
    bounds: list[BoundModel] = []
    for side, data in zip(sides, (records, added), strict=True):
        for run in range(runs):
            settings = SamplerSettings(chains=2, warmup=500, draws=50, seed=run)
            fit = synthesizer.with_settings(settings).fit(data, allow_nonconvergence=True)
            side.append(one_draw(fit.fitted.draws, 0))
            if run == 0:
                bounds.append(fit.fitted.posterior.bound_stage.bound)
    without, with_ = (
        np.array([bounds[1].log_prob(d)[0] - bounds[0].log_prob(d)[0] for d in side])
        for side in sides
    )
    half = runs // 2
    best_bound = 0.0
    for high, low in ((with_, without), (-without, -with_)):
        # A threshold chosen on the runs that it is tested on would make the bound invalid.
        thresholds = np.quantile(np.r_[high[:half], low[:half]], np.arange(0.05, 1, 0.05))
        gain = [(1 + (high[:half] >= t).sum()) / (1 + (low[:half] >= t).sum()) for t in thresholds]
        threshold = thresholds[int(np.argmax(gain))]
        k1, k0 = (int((side[half:] >= threshold).sum()) for side in (high, low))
        best_bound = max(best_bound, log_ratio_bound(k1, k0, runs - half, LEVEL))
    return SampledAudit(synthesizer.guarantee(), best_bound, runs)


def log_ratio_bound(k1: int, k0: int, n: int, level: float, delta: float = 0.0) -> float:
    """Lower confidence bound on log((p1 - delta) / p0) from k1 and k0 of n, at least 0.

    For an (epsilon, delta)-DP mechanism it is at most epsilon, as p1 <= e^epsilon p0 + delta.

    Args:
        level: probability that each of the two Clopper-Pearson limits is wrong.
    """
    low = stats.beta.ppf(level, k1, n - k1 + 1) if k1 else 0.0
    high = stats.beta.ppf(1 - level, k0 + 1, n - k0) if k0 < n else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0
