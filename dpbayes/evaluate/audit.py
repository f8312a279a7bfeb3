"""An audit of the claim: how far one record moves the posterior, and whether ε covers it.

Everything here is computed from the confidential records and is confidential. An audit can reject
a claim and never prove it. It evaluates the bindings that the fit sampled, and those that the
fit's own functions make of neighbouring records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import EngineError
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd, special
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.engines.proposal import Candidates
from dpbayes.evaluate.candidates import domain, extremes, ordinary, outermost, steps_around
from dpbayes.evaluate.exact import same
from dpbayes.evaluate.questions import interview
from dpbayes.evaluate.walked import moved_by_coordinates, moved_in_sampling
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior.records import blank_data
from dpbayes.mechanisms.posterior.sampled import BoundStage
from dpbayes.mechanisms.posterior.tabulated import AnchorTables
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.synthesis.fit import Fit

POINTS = 4096  # of the prior: the claim holds on any set of points, so a coarse one can refute it
FINALISTS = 4  # candidate records that are added in full
TOLERANCE = 1e-6  # of log ratios: rounding in sums of n terms
ADDED, CHANGED = 0, 1  # where each adjacency stands among figures
FAR = 1e300  # in place of what is not finite
FEW = 512  # points at which candidates are compared


@dataclass(frozen=True)
class Audit:
    """Largest log ratios found, for one data set.

    Attributes:
        guarantee: what the mechanism claims.
        add_remove, substitution: sup over the points of |log posterior ratio| of the neighbours
            tried, summed over stages.
        record: the record from the declared domain that did most when added.
        candidates: number of records tried.
        wide: ratios are ranges, over draws and random points of many parameters.
    """

    guarantee: Guarantee
    add_remove: float
    substitution: float
    record: dict[str, Any]
    candidates: int
    wide: bool = False

    @property
    def violated(self) -> bool:
        """True if a ratio exceeds the epsilon of the claim, whatever its basis."""
        return (
            self.add_remove > self.guarantee.epsilon + TOLERANCE
            or self.substitution > self.guarantee.epsilon_substitution + 2 * TOLERANCE
        )

    def __str__(self) -> str:
        claimed = self.guarantee
        numbers = (claimed.epsilon, claimed.epsilon_substitution)
        each = [stated(x) if math.isfinite(x) else "none" for x in numbers]
        nominal = " / ".join(each) if math.isfinite(claimed.holding) else "no ε"
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        what = "range of a log ratio" if self.wide else "log ratio"
        return (
            f"{claimed.mechanism} (weights: {claimed.weights}, {claimed.basis}): largest {what} "
            f"found {self.add_remove:.6g} (add/remove) / {self.substitution:.6g} "
            f"(substitution), claimed {nominal}: {verdict}"
        )


def audit(fit: Fit[Any], candidates: int = 60, seed: int = 1) -> Audit:
    """Compare both neighbours' posteriors on public points, for records searched in the domain.

    Candidates are extremes of the declared domain, random records, and an optimiser's (a finer
    search around the best). Each is scored by the range of its own term; the best, and the extremes
    whatever their score (a program may let them act through other records), are then added to the
    records in full, and put in the place of another record. The records' own extremes are left out,
    and exchanged for the worst.
    Stages, weights and bindings of a neighbour are made anew by the functions that made the fit's;
    the public number of rows is held fixed (``audit_exact`` looks at a noisy one). An anchor counts
    as paid for where it is a draw: that one is made of several draws cannot be seen here. Where it
    comes from noisy tables these are given the same answers, which cost what they do. Where draws
    are among candidate points these are compared, and have to be the same.
    With group effects the density that chains walked through is told in effects, and so is that of
    the worst record's neighbour: what coordinates put into it counts as a ratio.

    With more than five parameters the points are draws of the fit and random ones. No constant can
    be found there, and what is compared with epsilon is the range of the log ratio over them. It
    is at most the width of a stage's window, which the claim is made of.

    Source: hu-williams-savitsky, definition 3; eq. 2.4.

    Args:
        fit: of a mechanism with posteriors.
    Raises:
        GuaranteeError: the mechanism has no posterior.
    """
    return _Search(fit, candidates, seed).found()


class _Search:
    """Neighbours of a fit's records, and the largest ratios among them."""

    def __init__(self, fit: Fit[Any], candidates: int, seed: int) -> None:
        self.fit, self.count = fit, candidates
        self.sampled = fit.fitted.bound_stages()
        try:
            self.points, self.wide = _points(fit.task), False
        except EngineError:  # more parameters than points of the prior can cover
            self.points, self.wide = _around(fit), True
        self.ours = [_log_posterior(stage, self.points) for stage in self.sampled]
        self.given = as_frame(fit.given)
        self.rng = np.random.default_rng(seed)
        self.best = [0.0, 0.0]  # ADDED, CHANGED

    def found(self) -> Audit:
        """Go through all of them."""
        fit, given = self.fit, self.given
        last, ours = self.sampled[-1], self.ours[-1]
        tried = _search(fit, last, self.points, ours, self.count, self.rng)
        finalists = pd.concat([tried.head(FINALISTS), extremes(fit.synthesised, tried)])
        record = tried.iloc[0]
        # In place of the record nearest to the middle: one extreme for one ordinary record.
        place = ordinary(fit.synthesised[0], fit.records) if len(fit.records) else None
        for position in range(len(finalists)):
            one = finalists.iloc[[position]]
            before = self.best[ADDED]
            if self._try(pd.concat([given, one], ignore_index=True), ADDED) >= before:
                record = finalists.iloc[position]
            if place is not None:
                self._try(_swapped(fit, given, place, one), CHANGED)
        worst = pd.DataFrame([record], columns=finalists.columns)
        for at in outermost(fit.synthesised, fit.records):
            if len(fit.records) > 1 or not fit.task.schema.rows.public:  # no table has no rows
                self._try(given.drop(index=given.index[at]), ADDED)
            self._try(_swapped(fit, given, at, worst), CHANGED)
        moved = self._moved(pd.concat([given, worst], ignore_index=True))
        said = {str(name): value for name, value in record.items()}
        claim = fit.mechanism.guarantee()
        added, changed = (one + moved for one in self.best)
        return Audit(claim, added, changed, said, self.count, self.wide)

    def _try(self, neighbour: pd.DataFrame, adjacency: int) -> float:
        fit = self.fit
        public_too = bool(adjacency) or not fit.task.schema.rows.public
        ratio = _ratio(
            fit, self.ours, neighbour, self.points, public_too=public_too, wide=self.wide
        )
        ratio += _of_tables(fit, neighbour, public_too=public_too)
        self.best[adjacency] = max(self.best[adjacency], ratio)
        return ratio

    def _moved(self, neighbour: pd.DataFrame) -> float:
        """What coordinates of chains put into both posteriors."""
        fitted = self.fit.fitted
        ours = sum(moved_in_sampling(fitted.on, one) for one in fitted.posteriors)
        if not fitted.on.grouped:
            return ours
        other = fitted.beside(neighbour)
        stages = fitted.bound_stages(neighbour)
        return ours + sum(moved_by_coordinates(other, stage) for stage in stages)


def _of_tables(fit: Fit[Any], neighbour: pd.DataFrame, *, public_too: bool) -> float:
    """What noisy tables for an anchor cost; infinite where it differs after the same answers.

    Args:
        public_too: as in ``_ratio``. Otherwise an anchor may differ as public rows do.
    """
    found = 0.0
    for stage in fit.fitted.stages:
        if isinstance(stage.anchor, AnchorTables):
            sides = [fit.fitted.on, fit.fitted.beside(neighbour)]
            works = [partial(stage.anchor.draw, one) for one in sides]
            asked = interview(works[0], works[1], seed=1)
            if asked.results is None or (public_too and not same(*asked.results)):
                return math.inf
            found += asked.lost.plain
    return found


def _swapped(fit: Fit[Any], given: pd.DataFrame, at: int, one: pd.DataFrame) -> pd.DataFrame:
    """The records with one in place of another, whose place and public values stay."""
    public = [c.name for c in fit.task.schema.columns.values() if c.public]
    old = given.iloc[[at]]
    new = one.assign(**{name: old[name].to_numpy() for name in public})
    return pd.concat([given.iloc[:at], new, given.iloc[at + 1 :]], ignore_index=True)


def _points(task: Task) -> Candidates:
    """Draws of the prior, made from the program with public data."""
    model = task.model
    assert model is not None  # bound_stages
    data = blank_data(model, task.records, task.rows)
    return CandidatesEngine(POINTS).compile(model.program).proposer(data).candidates(1.0)


def _around(fit: Fit[Any]) -> Candidates:
    """Draws of the fit, and random points."""
    random = fit.fitted.on.blank.random_points(FEW, seed=1)
    names = [str(name) for name in random["posterior"].data_vars]
    parts = [{name: stacked(tree, name) for name in names} for tree in (fit.fitted.draws, random)]
    draws = make_draws({k: np.concatenate([part[k][-FEW:] for part in parts])[None] for k in names})
    none = np.zeros(count_draws(draws))
    return Candidates(draws, none[:, None], none, none, 1.0)


def _log_posterior(
    stage: BoundStage, points: Candidates, among: Candidates | None = None
) -> Floats:
    """Log probabilities, normalised over a stage's own candidates, or else over the points.

    Args:
        among: in place of its own candidates.
    """
    if stage.candidates is not None:
        bound: Any = stage.bound
        log_weight = bound.among(among or stage.candidates).choices.log_weight
    else:
        log_weight = stage.bound.log_prob(points.draws) - points.log_proposal
    log_weight = np.nan_to_num(log_weight, nan=-np.inf, neginf=-np.inf)
    return np.asarray(log_weight - special.logsumexp(log_weight))


def _ratio(
    fit: Fit[Any],
    ours: list[Floats],
    neighbour: pd.DataFrame,
    points: Candidates,
    *,
    public_too: bool,
    wide: bool,
) -> float:
    """Sum over stages of sup |log p(θ | records) - log p(θ | neighbour)| over the points.

    Args:
        public_too: the neighbour has the same public values and number of rows. Where a record is
            added under public rows, what follows from it in public is held fixed.
        wide: take the range of the log ratio, without any normalising constant.
    """
    total = 0.0
    sampled, theirs = fit.fitted.bound_stages(), fit.fitted.bound_stages(neighbour)
    for here, mine, stage in zip(ours, sampled, theirs, strict=True):
        if public_too and not _same_points(mine, stage):
            return math.inf  # points that can be drawn given one table and not given the other
        there = _log_posterior(stage, points, mine.candidates)
        if (np.isfinite(here) != np.isfinite(there)).any():
            return math.inf  # a record makes a parameter value impossible
        both = np.isfinite(here)
        ratio = (here - there)[both]
        total += float(np.ptp(ratio) if wide else np.abs(ratio).max())
    return total


def _same_points(one: BoundStage, other: BoundStage) -> bool:
    """Draws of both are a chain's, or are among the same points."""
    if one.candidates is None or other.candidates is None:
        return one.candidates is other.candidates
    return np.array_equal(one.candidates.points, other.candidates.points) and np.array_equal(
        one.candidates.log_proposal, other.candidates.log_proposal
    )


def _search(
    fit: Fit[Any],
    stage: BoundStage,
    points: Candidates,
    log_posterior: Floats,
    count: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Records of the declared domain, the one whose term moves the posterior most first."""
    points = stage.candidates or points
    few = points.draws.isel(
        draw=np.sort(rng.choice(points.count, min(FEW, points.count), replace=False))
    )
    centre = points.point(int(np.argmax(log_posterior)))
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
        pool = pool.drop_duplicates(ignore_index=True)  # equal ones have one score between them
        return pool.iloc[np.argsort(-score(pool), kind="stable")]

    found = ranked(domain(fit.task.schema, count, rng))
    for outcome in fit.synthesised:
        for near in steps_around(outcome, count):
            found = ranked(pd.concat([near(found.iloc[[0]]), found], ignore_index=True))
    return found.drop_duplicates().reset_index(drop=True)
