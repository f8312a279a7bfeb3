"""Audit of a claimed ε: how far one record moves the posterior, and whether ε covers it.

All results are computed from the confidential records and are confidential. An audit can reject a
claim and never prove it. It evaluates the densities that the fit sampled, and those that the fit's
own functions build from neighbouring records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Mask
from dpbayes.core.errors import EngineError, GuaranteeError
from dpbayes.core.lazy import pd, special
from dpbayes.engines.candidates import CandidatesEngine
from dpbayes.engines.choices import Candidates
from dpbayes.engines.draws import count_draws, make_draws, stacked
from dpbayes.evaluate.candidates import domain, extremes, ordinary, outermost, steps_around
from dpbayes.evaluate.exact import same
from dpbayes.evaluate.questions import interview
from dpbayes.evaluate.walked import moved_by_coordinates, moved_in_sampling
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.records import blank_data
from dpbayes.mechanisms.posterior.sampled import BoundStage
from dpbayes.mechanisms.posterior.stage import AnchorTables
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.synthesis.fit import Fit

POINTS = 4096  # prior draws: the claim holds on any set of points, so a coarse set can refute it
FINALISTS = 4  # best candidate records, which are added to the records in full
TOLERANCE = 1e-6  # for log ratios: rounding in sums of n terms
ADDED, CHANGED = 0, 1  # index of each adjacency in `_Search.best`
FAR = 1e300  # replaces log likelihoods that are not finite
FEW = 512  # points at which candidate records are compared


@dataclass(frozen=True)
class Audit:
    """Largest log ratios that the audit observed, for one data set.

    Attributes:
        guarantee: the mechanism's claim.
        add_remove, substitution: sup over the points of |log posterior ratio| for the neighbours
            tried, summed over stages.
        record: the record of the declared domain with the largest effect when added.
        candidates: number of records tried.
        wide: True if the ratios are ranges over draws and random points (many parameters).
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
        amounts = [stated(x) if math.isfinite(x) else "none" for x in numbers]
        nominal = " / ".join(amounts) if math.isfinite(claimed.holding) else "no ε"
        verdict = "EXCEEDED" if self.violated else "not exceeded"
        measure = "range of a log ratio" if self.wide else "log ratio"
        return (
            f"{claimed.mechanism} (weights: {claimed.weights}, {claimed.basis}): largest {measure} "
            f"found {self.add_remove:.6g} (add/remove) / {self.substitution:.6g} "
            f"(substitution), claimed {nominal}: {verdict}"
        )


def audit(fit: Fit[Any], candidates: int = 60, seed: int = 1) -> Audit:
    """Compare the posteriors of neighbouring tables on public points, for records of the domain.

    Candidates are extremes of the declared domain, random records, and records from a finer search
    around the best one. Each is scored by the range of its own log-likelihood term. The best, and
    the extremes whatever their score (a program may let them act through other records), are then
    added to the records in full, and put in the place of another record. The extremes among the
    records are removed, and replaced by the worst candidate.
    Stages, weights and bindings of a neighbour are built by the functions that built the fit's; the
    public number of rows is held fixed (``audit_exact`` examines a noisy one). An anchor that is a
    draw counts as paid for: the audit cannot detect an anchor made of several draws. If the anchor
    comes from noisy tables, both neighbours get the same noisy answers, and their loss is added. If
    draws are selected among candidate points, both neighbours must have the same points.
    With group effects the density that the chains sampled is expressed in the effects themselves,
    for the fit and for the worst record's neighbour: any change of the posterior by the sampling
    coordinates counts as a ratio.

    With more than five parameters the points are draws of the fit and random points. Normalising
    constants are unknown there, and the range of the log ratio over the points is compared with
    epsilon. It is at most the width of a stage's window, from which the claim is computed.

    Source: hu-williams-savitsky, definition 3; eq. 2.4.

    Args:
        fit: fit of a mechanism with posteriors.
        candidates: number of candidate records.
        seed: seed of the random records.
    Raises:
        GuaranteeError: the mechanism has no posterior.
    """
    if not fit.mechanism.draws_posterior:
        raise GuaranteeError(
            "the mechanism has no posterior to look at: evaluate.exact.audit_exact compares its "
            "answers on neighbours (`dpbayes audit` takes either)."
        )
    return _Search(fit, candidates, seed).found()


class _Search:
    """Search over neighbours of a fit's records for the largest log ratios."""

    def __init__(self, fit: Fit[Any], candidates: int, seed: int) -> None:
        self.fit, self.count = fit, candidates
        self.sampled = fit.fitted.bound_stages()
        # Points of the prior leave out those that the program refuses with public constants. The
        # posterior may be there all the same.
        self.draws = _around(fit)
        try:
            self.points, self.wide = _points(fit.task), False
        except EngineError:  # more parameters than points of the prior can cover
            self.points, self.wide = self.draws, True
        self.ours = [_log_posterior(stage, self.points) for stage in self.sampled]
        self.support = [
            None if stage.candidates is not None else _support(stage, self.draws)
            for stage in self.sampled
        ]
        original = fit.task.table.original
        assert isinstance(original, pd.DataFrame)  # posteriors take no chunks
        self.original = original.reset_index(drop=True)
        self.rng = np.random.default_rng(seed)
        self.best = [0.0, 0.0]  # ADDED, CHANGED

    def found(self) -> Audit:
        """Try all neighbours and return the audit."""
        fit, table = self.fit, self.original
        last, ours = self.sampled[-1], self.ours[-1]
        ranked = _search(fit, last, self.points, ours, self.count, self.rng)
        finalists = pd.concat(
            [ranked.head(FINALISTS), extremes(fit.synthesised, ranked, bounds=True)]
        )
        record = ranked.iloc[0]
        # Replace the record nearest to the median: one extreme for one ordinary record.
        place = ordinary(fit.synthesised[0], fit.records) if len(fit.records) else None
        for position in range(len(finalists)):
            finalist = finalists.iloc[[position]]
            before = self.best[ADDED]
            if self._try(pd.concat([table, finalist], ignore_index=True), ADDED) >= before:
                record = finalists.iloc[position]
            if place is not None:
                self._try(_swapped(fit, table, place, finalist), CHANGED)
        worst = pd.DataFrame([record], columns=finalists.columns)
        for at in outermost(fit.synthesised, fit.records):
            if len(fit.records) > 1 or not fit.task.schema.rows.public:  # a table needs a row
                self._try(table.drop(index=table.index[at]), ADDED)
            self._try(_swapped(fit, table, at, worst), CHANGED)
        moved = self._moved(pd.concat([table, worst], ignore_index=True))
        values = {str(name): value for name, value in record.items()}
        claim = fit.mechanism.guarantee()
        added, changed = (ratio + moved for ratio in self.best)
        return Audit(claim, added, changed, values, self.count, self.wide)

    def _try(self, neighbour: pd.DataFrame, adjacency: int) -> float:
        """Largest log ratio on a neighbouring table; remember the best of its adjacency.

        Args:
            adjacency: ``ADDED`` or ``CHANGED``.
        """
        fit = self.fit
        public_too = adjacency == CHANGED or not fit.task.schema.rows.public
        ratio = _ratio(
            fit, self.ours, neighbour, self.points, self.draws, self.support,
            public_too=public_too, wide=self.wide,
        )  # fmt: skip
        ratio += _of_tables(fit, neighbour, public_too=public_too)
        self.best[adjacency] = max(self.best[adjacency], ratio)
        return ratio

    def _moved(self, neighbour: pd.DataFrame) -> float:
        """Largest log ratio that sampling coordinates add to the posteriors of both tables."""
        fitted = self.fit.fitted
        records = fitted.bound_records
        ours = sum(moved_in_sampling(records, posterior) for posterior in fitted.posteriors)
        if not records.grouped:
            return ours
        neighbour_records = fitted.beside(neighbour)
        stages = fitted.bound_stages(neighbour)
        return ours + sum(moved_by_coordinates(neighbour_records, stage) for stage in stages)


def _of_tables(fit: Fit[Any], neighbour: pd.DataFrame, *, public_too: bool) -> float:
    """Privacy loss of an anchor's noisy tables; infinite if equal answers give unequal anchors.

    Args:
        public_too: as in ``_ratio``. If False, an anchor may differ because public rows do.
    """
    loss = 0.0
    for stage in fit.fitted.stages:
        if isinstance(stage.anchor, AnchorTables):
            sides = [fit.fitted.bound_records, fit.fitted.beside(neighbour)]
            works = [partial(tabulated.draw_anchor, stage.anchor, records) for records in sides]
            questions = interview(works[0], works[1], seed=1)
            if questions.results is None or (public_too and not same(*questions.results)):
                return math.inf
            loss += questions.lost.plain
    return loss


def _swapped(fit: Fit[Any], records: pd.DataFrame, at: int, record: pd.DataFrame) -> pd.DataFrame:
    """Put a record in the place of another; position and public values stay."""
    public = [c.name for c in fit.task.schema.columns.values() if c.public]
    old = records.iloc[[at]]
    new = record.assign(**{name: old[name].to_numpy() for name in public})
    return pd.concat([records.iloc[:at], new, records.iloc[at + 1 :]], ignore_index=True)


def _points(task: Task) -> Candidates:
    """Draw points from the prior of the program, with public data only."""
    model = task.model
    assert model is not None  # bound_stages
    data = blank_data(model, task.records, task.rows)
    return CandidatesEngine(POINTS).compile(model.program).bind(data).proposer().candidates(1.0)


def _around(fit: Fit[Any]) -> Candidates:
    """Draws of the fit, followed by random points."""
    random = fit.fitted.bound_records.blank.random_points(FEW, seed=1)
    names = [str(name) for name in random["posterior"].data_vars]
    parts = [{name: stacked(tree, name) for name in names} for tree in (fit.fitted.draws, random)]
    draws = make_draws({k: np.concatenate([part[k][-FEW:] for part in parts])[None] for k in names})
    none = np.zeros(count_draws(draws))
    return Candidates(draws, none[:, None], none, none, 1.0)


def _log_posterior(
    stage: BoundStage, points: Candidates, among: Candidates | None = None
) -> Floats:
    """Log probabilities, normalised over a stage's own candidate points, or else over ``points``.

    Args:
        among: candidate points to use instead of the stage's own.
    """
    if stage.candidates is not None:
        log_weight = stage.bound.among(among or stage.candidates).choices.log_weight
    else:
        log_weight = stage.bound.log_prob(points.draws) - points.log_proposal
    log_weight = np.nan_to_num(log_weight, nan=-np.inf, neginf=-np.inf)
    return np.asarray(log_weight - special.logsumexp(log_weight))


def _ratio(
    fit: Fit[Any],
    ours: list[Floats],
    neighbour: pd.DataFrame,
    points: Candidates,
    draws: Candidates,
    support: list[Mask | None],
    *,
    public_too: bool,
    wide: bool,
) -> float:
    """Sum over stages of sup |log p(θ | records) - log p(θ | neighbour)| over the points.

    Args:
        public_too: the neighbour has the same public values and number of rows. If a record is
            added while the number of rows is public, the public facts are held fixed.
        draws: draws of the fit and random points: both posteriors have to be 0 at the same ones.
        support: by stage, at which of ``draws`` the posterior of the records is above 0; None if
            draws are selected among points.
        wide: return the range of the log ratio, which needs no normalising constant.
    """
    total = 0.0
    sampled, theirs = fit.fitted.bound_stages(), fit.fitted.bound_stages(neighbour)
    for log_ours, above, mine, stage in zip(ours, support, sampled, theirs, strict=True):
        if public_too and not _same_points(mine, stage):
            return math.inf  # a point can be drawn from one table and not from the other
        if above is not None and not np.array_equal(above, _support(stage, draws)):
            return math.inf
        log_theirs = _log_posterior(stage, points, mine.candidates)
        if (np.isfinite(log_ours) != np.isfinite(log_theirs)).any():
            return math.inf  # a record makes a parameter value impossible
        finite = np.isfinite(log_ours)
        ratio = (log_ours - log_theirs)[finite]
        total += float(np.ptp(ratio) if wide else np.abs(ratio).max())
    return total


def _same_points(ours: BoundStage, theirs: BoundStage) -> bool:
    """Return True if both stages use chains, or select from the same points."""
    if ours.candidates is None or theirs.candidates is None:
        return ours.candidates is theirs.candidates
    return np.array_equal(ours.candidates.points, theirs.candidates.points) and np.array_equal(
        ours.candidates.log_proposal, theirs.candidates.log_proposal
    )


def _support(stage: BoundStage, points: Candidates) -> Mask:
    """Points at which a posterior is above 0."""
    return np.asarray(np.isfinite(stage.bound.log_prob(points.draws)))


def _search(
    fit: Fit[Any],
    stage: BoundStage,
    points: Candidates,
    log_posterior: Floats,
    count: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Records of the declared domain, in descending order of their effect on the posterior."""
    points = stage.candidates or points
    subset = points.draws.isel(
        draw=np.sort(rng.choice(points.count, min(FEW, points.count), replace=False))
    )
    centre = points.point(int(np.argmax(log_posterior)))
    low, high = stage.stage.window

    def score(candidates: pd.DataFrame) -> Floats:
        last = fit.fitted.bound_stages(candidates)[-1]
        bound, each_record = last.bound, last.kinds.each_record
        # Confidential weights let the record change the weights of all records, so its
        # own sensitivity counts.
        if stage.stage.weights.name == "confidential":
            (typical,) = bound.log_lik(centre)
            far = np.nan_to_num(typical, nan=FAR, neginf=-FAR, posinf=FAR)
            return np.asarray(each_record(np.abs(far)))
        log_lik = np.stack(list(bound.log_lik(subset)))
        finite = np.nan_to_num(log_lik, nan=-FAR, neginf=-FAR, posinf=FAR)
        anchor = 0.0 if last.anchor is None else last.anchor
        terms = np.clip(last.weighting.weights * (finite - anchor), low, high)
        return np.asarray(each_record(np.ptp(terms, axis=0)))

    def ranked(pool: pd.DataFrame) -> pd.DataFrame:
        pool = pool.drop_duplicates(ignore_index=True)  # equal records have equal scores
        return pool.iloc[np.argsort(-score(pool), kind="stable")]

    best_first = ranked(domain(fit.task.schema, count, rng))
    for outcome in fit.synthesised:
        for near in steps_around(outcome, count):
            best_first = ranked(
                pd.concat([near(best_first.iloc[[0]]), best_first], ignore_index=True)
            )
    return best_first.drop_duplicates().reset_index(drop=True)
