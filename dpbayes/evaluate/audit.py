"""An audit of the claim: how far one record moves the posterior, and whether ε covers it.

Everything here is computed from the confidential records and is confidential. An audit can reject
a claim and never prove it. It evaluates the bindings that the fit sampled, and those that the
fit's own functions make of neighbouring records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbayes.arrays import Floats
from dpbayes.engines.base import BoundModel
from dpbayes.engines.draws import count_draws, one_draw
from dpbayes.engines.grid import ExactEngine, Grid
from dpbayes.evaluate.candidates import domain, ordinary, steps_around
from dpbayes.fit import Fit
from dpbayes.heavy import pd, special
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior.records import BoundRecords, BoundStage
from dpbayes.privacy.guarantee import Guarantee

POINTS = 4096  # of the audit's grid: the claim holds on every grid, so a coarse one can refute it
FINALISTS = 4  # candidate records that are added in full
TOLERANCE = 1e-6  # of log ratios: rounding in sums of n terms
FAR = 1e300  # in place of what is not finite
FEW = 512  # grid points at which candidates are compared


@dataclass(frozen=True)
class Audit:
    """Largest log ratios found, for one data set.

    Attributes:
        guarantee: what the mechanism claims.
        add_remove, substitution: sup over the grid of |log posterior ratio| of the neighbours
            tried, summed over stages.
        record: the record from the declared domain that did most when added.
        candidates: number of records tried.
    """

    guarantee: Guarantee
    add_remove: float
    substitution: float
    record: dict[str, Any]
    candidates: int

    @property
    def violated(self) -> bool:
        """True if a ratio exceeds the epsilon of the claim, whatever its basis."""
        return (
            self.add_remove > self.guarantee.epsilon + TOLERANCE
            or self.substitution > self.guarantee.epsilon_substitution + 2 * TOLERANCE
        )

    def __str__(self) -> str:
        claimed = self.guarantee
        nominal = (
            f"{claimed.epsilon:.4g} / {claimed.epsilon_substitution:.4g}"
            if math.isfinite(claimed.epsilon)
            else "no ε"
        )
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        return (
            f"{claimed.mechanism} (weights: {claimed.weights}, {claimed.basis}): largest "
            f"log ratio found {self.add_remove:.6g} (add/remove) / {self.substitution:.6g} "
            f"(substitution), claimed {nominal}: {verdict}"
        )


def audit(fit: Fit[Any], candidates: int = 60, seed: int = 1) -> Audit:
    """Compare both neighbours' posteriors on one grid, over records searched in the domain.

    Candidates are extremes of the declared domain, random records, and an optimiser's (a finer
    search around the best). Each is scored by the range of its own term; the best are then added
    to the records in full, and put in the place of another record.

    Source: hu-williams-savitsky, definition 3; eq. 2.4.

    Args:
        fit: of a mechanism with posteriors, whose program has up to three parameters.
    Raises:
        GuaranteeError: the mechanism has no posterior.
        EngineError: more than three parameters; use ``audit_sampled``.
    """
    sampled = fit.fitted.bound_stages()
    grid = _grid(fit.task)
    rng = np.random.default_rng(seed)
    ours = [_log_posterior(stage.bound, grid) for stage in sampled]
    tried = _search(fit, sampled[-1], grid, ours[-1], candidates, rng)
    best = [0.0, 0.0]
    record = tried.iloc[0]
    # In place of the record nearest to the middle: one extreme for one ordinary record.
    place = fit.given.index[ordinary(fit.synthesised[0], fit.records)]
    for position in range(min(FINALISTS, len(tried))):
        one = tried.iloc[[position]]
        added = pd.concat([fit.given, one], ignore_index=True)
        swapped = pd.concat([fit.given.drop(index=place), one], ignore_index=True)
        found = [_ratio(fit, ours, neighbour, grid) for neighbour in (added, swapped)]
        if found[0] >= best[0]:
            record = tried.iloc[position]
        best = [max(pair) for pair in zip(best, found, strict=True)]
    said = {str(name): value for name, value in record.items()}
    return Audit(fit.guarantee, best[0], best[1], said, candidates)


def _grid(task: Task) -> Grid:
    """The public grid of the program, coarser than that of the exact engine."""
    exact = replace(task, engine=ExactEngine(POINTS), _shared={})
    found: Grid = BoundRecords(exact).plain.grid()  # type: ignore[attr-defined]  # that engine's
    return found


def _log_posterior(bound: BoundModel, grid: Grid) -> Floats:
    """Log probabilities of the grid's points, shape (G,), normalised over the grid."""
    log_density = np.nan_to_num(bound.log_prob(grid.draws), nan=-np.inf, neginf=-np.inf)
    return np.asarray(log_density - special.logsumexp(log_density))


def _ratio(fit: Fit[Any], ours: list[Floats], neighbour: pd.DataFrame, grid: Grid) -> float:
    """Sum over stages of sup |log p(θ | records) - log p(θ | neighbour)| over the grid."""
    total = 0.0
    for here, stage in zip(ours, fit.fitted.bound_stages(neighbour), strict=True):
        there = _log_posterior(stage.bound, grid)
        if (np.isfinite(here) != np.isfinite(there)).any():
            return math.inf  # a record makes a parameter value impossible
        both = np.isfinite(here)
        total += float(np.abs(here - there)[both].max())
    return total


def _search(
    fit: Fit[Any],
    stage: BoundStage,
    grid: Grid,
    log_posterior: Floats,
    count: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Records of the declared domain, the one whose term moves the posterior most first."""
    few = grid.draws.isel(draw=np.sort(rng.choice(count_draws(grid.draws), FEW, replace=False)))
    centre = one_draw(grid.draws, int(np.argmax(log_posterior)))
    low, high = stage.stage.window

    def score(candidates: pd.DataFrame) -> Floats:
        bound = fit.fitted.bound_stages(candidates)[-1].bound
        # With confidential weights the record acts through everybody's: its sensitivity counts.
        if stage.stage.weights.name == "confidential":
            (typical,) = bound.log_lik(centre)
            return np.asarray(np.abs(np.nan_to_num(typical, nan=FAR, neginf=-FAR, posinf=FAR)))
        f = np.stack(list(bound.log_lik(few)))
        terms = np.clip(np.nan_to_num(f, nan=-FAR, neginf=-FAR, posinf=FAR), low, high)
        return np.asarray(np.ptp(terms, axis=0))

    def ranked(pool: pd.DataFrame) -> pd.DataFrame:
        return pool.iloc[np.argsort(-score(pool), kind="stable")]

    found = ranked(domain(fit.task.schema, count, rng))
    for outcome in fit.synthesised:
        for near in steps_around(outcome, count):
            found = ranked(pd.concat([near(found.iloc[[0]]), found], ignore_index=True))
    return found.drop_duplicates().reset_index(drop=True)
