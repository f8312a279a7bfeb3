"""An audit of the claim: how far one record moves the posterior, and whether ε covers it.

Everything here is computed from the confidential records and is confidential. An audit can reject
a claim and never prove it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from dpbayes.engines import SamplerSettings
from dpbayes.engines.base import BoundModel, count_draws
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.grid import ExactBinding, ExactEngine, Grid
from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms import Stage, Unweighted
from dpbayes.mechanisms.posterior.risk import Vector, record_risk
from dpbayes.mechanisms.posterior.weights import Reference
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.schema import Column
from dpbayes.synthesizer import Synthesizer, one_draw

POINTS = 4096  # of the audit's grid: the claim holds on every grid, so a coarse one can refute it
FINALISTS = 4  # candidate records that are added in full
TOLERANCE = 1e-6  # of log ratios: rounding in sums of n terms


@dataclass(frozen=True)
class Audit:
    """Largest log ratios found, for one data set.

    Attributes:
        claim: what the mechanism says.
        add_remove, substitution: sup over the grid of |log posterior ratio| of the neighbours
            tried, summed over stages.
        record: the record from the declared domain that did most when added.
        candidates: number of records tried.
    """

    claim: Guarantee
    add_remove: float
    substitution: float
    record: dict[str, Any]
    candidates: int

    @property
    def violated(self) -> bool:
        """True if a ratio exceeds the epsilon of the claim, whatever its basis."""
        return (
            self.add_remove > self.claim.epsilon + TOLERANCE
            or self.substitution > self.claim.epsilon_substitution + 2 * TOLERANCE
        )

    def __str__(self) -> str:
        nominal = (
            f"{self.claim.epsilon:.4g} / {self.claim.epsilon_substitution:.4g}"
            if math.isfinite(self.claim.epsilon)
            else "no ε"
        )
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        return (
            f"{self.claim.mechanism} (weights: {self.claim.weights}, {self.claim.basis}): largest "
            f"log ratio found {self.add_remove:.6g} (add/remove) / {self.substitution:.6g} "
            f"(substitution), claimed {nominal}: {verdict}"
        )


class _Data:
    """Records bound to the program, with weights from given draws of an unweighted fit.

    Neighbours share those draws, so that a difference of weights is the record's doing and no
    Monte Carlo noise.
    """

    def __init__(
        self, synthesizer: Synthesizer, engine: ExactEngine, records: pd.DataFrame
    ) -> None:
        self.design, data = synthesizer.stan_data(synthesizer.schema.validate(records))
        self.synthesizer = synthesizer
        self.n = len(records)
        self.plain = engine.compile(synthesizer.program).bind({**data, **contract_defaults(self.n)})
        self.unweighted: xr.DataTree | None = None

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        return self.plain.log_lik(draws)

    def sensitivity(self) -> Vector:
        assert self.unweighted is not None
        return record_risk(self.log_lik(self.unweighted), np.ones(self.n)).sensitivity

    def stage(self, stage: Stage, anchor: xr.DataTree | None) -> ExactBinding:
        """The program as the mechanism's stage sees it, with ``anchor`` drawn before."""
        changes: dict[str, Any] = {"weights": stage.weights.weighting(self).weights}
        changes.update(self.synthesizer.stage_data(stage))
        at = stage.anchor.anchor() if isinstance(stage.anchor, Reference) else anchor
        if stage.anchor != "none":
            assert at is not None
            (found,) = self.log_lik(at)
            changes["anchor"] = np.where(np.isfinite(found), found, 0.0)
        return self.plain.rebind(**changes)


def audit(
    synthesizer: Synthesizer, records: pd.DataFrame, candidates: int = 60, seed: int = 1
) -> Audit:
    """Compare both neighbours' posteriors on one grid, over records searched in the domain.

    Candidates are extremes of the declared domain, random records, and an optimiser's (a finer
    search around the best). Each is scored by the range of its own term; the best are then added
    to the records in full, and put in the place of another record.

    Args:
        synthesizer: with up to three parameters.
        records: the confidential records.
    Raises:
        EngineError: more than three parameters; use ``audit_sampled``.
    """
    engine = ExactEngine(POINTS)
    base = _Data(synthesizer, engine, records)
    grid = base.plain.grid()
    stages = synthesizer.mechanism.stages(synthesizer.problem(base.design))
    if any(stage.weights.name == "confidential" for stage in stages):
        base.unweighted = _unweighted_draws(synthesizer, records)
    rng = np.random.default_rng(seed)
    tried = _search(synthesizer, engine, records, base, stages[-1], grid, candidates, rng)
    best = (0.0, 0.0, {str(k): v for k, v in tried.iloc[0].items()})
    for position in range(min(FINALISTS, len(tried))):
        record = tried.iloc[[position]]
        added = pd.concat([records, record], ignore_index=True)
        # In place of the record nearest to the middle: one extreme for one ordinary record.
        other = _ordinary(synthesizer.formula.outcome, records)
        swapped = pd.concat([records.drop(index=records.index[other]), record], ignore_index=True)
        found = [
            _ratio(synthesizer, engine, base, neighbour, stages, grid, rng)
            for neighbour in (added, swapped)
        ]
        worst = {str(k): v for k, v in record.iloc[0].items()}
        best = (
            max(best[0], found[0]),
            max(best[1], found[1]),
            worst if found[0] >= best[0] else best[2],
        )
    return Audit(synthesizer.mechanism.guarantee(), best[0], best[1], best[2], candidates)


def _ratio(
    synthesizer: Synthesizer,
    engine: ExactEngine,
    base: _Data,
    neighbour: pd.DataFrame,
    stages: tuple[Stage, ...],
    grid: Grid,
    rng: np.random.Generator,
) -> float:
    """Sum over stages of sup |log p(θ | base) - log p(θ | neighbour)| over the grid."""
    other = _Data(synthesizer, engine, neighbour)
    other.unweighted = base.unweighted
    anchor = None
    total = 0.0
    for stage in stages:
        ours, theirs = (d.stage(stage, anchor).log_posterior(grid) for d in (base, other))
        both = np.isfinite(ours) & np.isfinite(theirs)
        if (np.isfinite(ours) != np.isfinite(theirs)).any():
            return math.inf  # a record makes a parameter value impossible
        total += float(np.abs(ours - theirs)[both].max())
        anchor = one_draw(grid.draws, int(rng.choice(ours.size, p=_normalise(ours))))
    return total


def _search(
    synthesizer: Synthesizer,
    engine: ExactEngine,
    records: pd.DataFrame,
    base: _Data,
    stage: Stage,
    grid: Grid,
    count: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Records of the declared domain, the one whose term moves the posterior most first."""
    columns = synthesizer.schema.columns
    outcome = synthesizer.formula.outcome
    domain = pd.DataFrame({n: _domain(c, count, rng) for n, c in columns.items()})
    few = grid.draws.isel(draw=np.sort(rng.choice(count_draws(grid.draws), 512, replace=False)))
    last = _normalise(base.plain.log_posterior(grid))
    centre = one_draw(grid.draws, int(np.argmax(last)))

    def score(candidates: pd.DataFrame) -> NDArray[np.float64]:
        data = _Data(synthesizer, engine, candidates)
        f = np.stack(list(data.log_lik(few)))
        (typical,) = data.log_lik(centre)
        low, high = stage.window
        # With confidential weights the record acts through everybody's: its sensitivity counts.
        if stage.weights.name == "confidential":
            return np.abs(np.nan_to_num(typical, nan=1e300, neginf=-1e300, posinf=1e300))
        terms = np.clip(np.nan_to_num(f, nan=-1e300, neginf=-1e300, posinf=1e300), low, high)
        return np.asarray(np.ptp(terms, axis=0))

    if not outcome.levels:
        ranked = domain.iloc[np.argsort(-score(domain), kind="stable")]
        low, high = float(outcome.lower or 0), float(outcome.upper or 0)
        width = (high - low) / max(4, count)
        for _ in range(3):  # shrinking steps around the best
            near = pd.concat([ranked.iloc[[0]]] * 9, ignore_index=True)
            values = ranked[outcome.name].iloc[0] + width * np.linspace(-1, 1, 9)
            inside = np.clip(values, *_inside(outcome))
            near[outcome.name] = np.rint(inside) if outcome.type == "count" else inside
            pool = pd.concat([near.drop_duplicates(), ranked], ignore_index=True)
            ranked = pool.iloc[np.argsort(-score(pool), kind="stable")]
            width /= 4
        domain = ranked
    else:
        domain = domain.iloc[np.argsort(-score(domain), kind="stable")]
    return domain.drop_duplicates().reset_index(drop=True)


def _domain(column: Column, count: int, rng: np.random.Generator) -> NDArray[Any]:
    """``count`` values: the ends of the declared domain first, then random ones."""
    if column.levels:
        each = np.arange(count - count // 2) % len(column.levels)
        codes = np.concatenate([each, rng.integers(len(column.levels), size=count // 2)])
        return np.asarray([column.levels[code] for code in codes], dtype=object)
    low, high = _inside(column)
    values = np.concatenate([np.tile([low, high], 2), rng.uniform(low, high, count - 4)])
    return np.asarray(np.rint(values) if column.type == "count" else values)


def _inside(column: Column) -> tuple[float, float]:
    """Ends of the domain; for a continuous column 1e-9 of its range inside them."""
    if column.lower is None or column.upper is None:
        raise GuaranteeError(f"column {column.name!r} needs bounds to be searched by the audit.")
    margin = 1e-9 * (column.upper - column.lower) if column.type == "continuous" else 0.0
    return column.lower + margin, column.upper - margin


def _ordinary(outcome: Column, records: pd.DataFrame) -> int:
    values = records[outcome.name]
    if outcome.levels:
        return int(np.flatnonzero((values == values.mode()[0]).to_numpy())[0])
    numbers = values.to_numpy(dtype=float)
    return int(np.argmin(np.abs(numbers - np.median(numbers))))


def _normalise(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.exp(log_p)
    return np.asarray(p / p.sum())


def _unweighted_draws(synthesizer: Synthesizer, records: pd.DataFrame) -> xr.DataTree:
    plain = synthesizer.with_engine("embedded").with_mechanism(Unweighted())
    return plain.fit(records).draws


@dataclass(frozen=True)
class SampledAudit:
    """A lower confidence bound on epsilon from runs on two neighbours.

    Attributes:
        claim: what the mechanism says.
        epsilon_lower: 95 % Clopper-Pearson lower bound for add/remove; 0 if nothing is shown.
        runs: on each side.
    """

    claim: Guarantee
    epsilon_lower: float
    runs: int

    @property
    def violated(self) -> bool:
        """True if the bound exceeds the claim: wrong with probability at most 0.05."""
        return self.epsilon_lower > self.claim.epsilon

    def __str__(self) -> str:
        nominal = f"{self.claim.epsilon:.4g}" if math.isfinite(self.claim.epsilon) else "no ε"
        return (
            f"{self.claim.mechanism}: ε is at least {self.epsilon_lower:.3g} (add/remove, 95 % "
            f"confidence, {self.runs} runs a side), claimed {nominal}: "
            + ("EXCEEDED" if self.violated else "not exceeded")
        )


def audit_sampled(
    synthesizer: Synthesizer, records: pd.DataFrame, record: pd.DataFrame, runs: int = 200
) -> SampledAudit:
    """Run the mechanism on records with and without ``record``, and bound epsilon from below.

    Each run is a fit with its own seed and gives one draw. Half the runs choose a threshold for
    the log ratio of the two last-stage densities, the other half count how often it is passed.
    The bound is log(p1 / p0) with Clopper-Pearson limits, in both directions (Bonferroni).
    """
    added = pd.concat([records, record], ignore_index=True)
    if runs < 20:
        raise GuaranteeError(f"runs = {runs} must be at least 20 a side.")
    sides: list[list[xr.DataTree]] = [[], []]
    bounds: list[BoundModel] = []
    for side, data in zip(sides, (records, added), strict=True):
        for run in range(runs):
            settings = SamplerSettings(chains=2, warmup=500, draws=50, seed=run)
            fit = synthesizer.with_settings(settings).fit(data, allow_nonconvergence=True)
            side.append(one_draw(fit.draws, 0))
            if run == 0:
                bounds.append(fit.posterior.bound)
    without, with_ = (
        np.array([bounds[1].log_prob(d)[0] - bounds[0].log_prob(d)[0] for d in side])
        for side in sides
    )
    half = runs // 2
    found = 0.0
    for high, low in ((with_, without), (-without, -with_)):
        # The first half chooses the threshold, the second half counts.
        thresholds = np.quantile(np.r_[high[:half], low[:half]], np.arange(0.05, 1, 0.05))
        gain = [(1 + (high[:half] >= t).sum()) / (1 + (low[:half] >= t).sum()) for t in thresholds]
        threshold = thresholds[int(np.argmax(gain))]
        k1, k0 = (int((side[half:] >= threshold).sum()) for side in (high, low))
        found = max(found, _log_ratio_bound(k1, k0, runs - half))
    return SampledAudit(synthesizer.mechanism.guarantee(), found, runs)


def _log_ratio_bound(k1: int, k0: int, n: int) -> float:
    """Lower 95 % bound on log(p1 / p0) from k1 and k0 of n; Bonferroni over both directions."""
    level = 0.05 / 4
    low = stats.beta.ppf(level, k1, n - k1 + 1) if k1 else 0.0
    high = stats.beta.ppf(1 - level, k0 + 1, n - k0) if k0 < n else 1.0
    return max(0.0, float(np.log(low / high))) if low > 0 else 0.0
