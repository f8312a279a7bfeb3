"""Anchored censoring: clamp the log-likelihood ratio to an anchor instead of the log-likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage, place_window, window_width
from dpbayes.mechanisms.posterior.tabulated import AnchorTables
from dpbayes.mechanisms.posterior.weights import ConstantWeights, Reference
from dpbayes.privacy.accounting import NOTHING, Loss
from dpbayes.privacy.guarantee import (
    POSTERIOR,
    REFERENCE,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
    inside,
)
from dpbayes.privacy.noise import opendp
from dpbayes.schema import Schema
from dpbayes.stan.model import Model

# Public range L of |f - h| that stays unclamped, by anchor.
RANGE_NONE = 6.0
RANGE_COLUMN = 3.0  # of a column among several, around a uniform distribution; grows with the root
RANGE_REFERENCE = 0.9
RANGE_DRAWN = (1.0, 2.0)  # from and to, after a drawn anchor
RANGE_TABLES = 1.5  # least around an anchor from tables: bins and cells are coarse
GROWTH = 3.0  # of epsilon from one anchor to the next
MOST_ANCHORS = 7
# Expected distance from the fit, in scales of a record, up to which a drawn anchor is better than
# what else there is (`python -m studies anchors`): than one from tables, and than none.
NEAR_TABLES = 0.8
NEAR_NONE = 1.2
NamedAnchor = Literal["auto", "two-stage", "histogram", "none"]
NAMED_ANCHORS: tuple[NamedAnchor, ...] = get_args(NamedAnchor)
PAID = ("auto", "two-stage", "histogram")  # a share of epsilon is set apart


@dataclass(frozen=True)
class Anchored(PosteriorMechanism):
    """Tempered log-likelihood ratios to an anchor θ0, clamped: sum_i clip(α (f_i - h_i), ±w/2).

    h_i = f_θ0(x_i). Subtracting it changes nothing without the clamp; with it, terms near the
    anchor are near 0, so that the clamp hardly acts where the posterior is. α = min(1, w / (2L))
    keeps ratios up to the public range L unclamped (w / L where terms are never above 0).

    Anchors: ``none`` (h = 0); a ``Reference`` fit (its posterior mean, public); ``two-stage``: one
    draw θ0 from the mechanism without anchor at epsilon1 = share x epsilon, then the anchored one
    with the rest; ``histogram``: the mode given records made up from noisy tables of the outcome,
    which epsilon1 pays for (``tabulated.Tables``; one column given public ones; noise by OpenDP);
    ``auto``: one of these by public facts (``taken``). Where draws are among public points (engine
    ``candidates``) epsilon1 is divided among as many drawn anchors as it takes to get near the
    posterior.

    Guarantee: strict. h and α depend on record i, public data and a θ0 that is public or paid for,
    so the argument of ``Censored`` holds in each stage given the stages before. Together they cost
    epsilon1 + epsilon2 = epsilon for one data set; anchors are paid once, so m data sets cost
    epsilon1 + m epsilon2.

    Attributes:
        epsilon: for one data set, for ``adjacency``.
        anchor: ``auto``, ``two-stage``, ``histogram``, ``none``, or a Reference.
        range: L of the stage that is released; by default 6 without anchor (3 sqrt(q) around a
            public value for the q columns of a sequence), 0.9 with a reference, and
            ``second_range`` after a drawn anchor or one from tables.
        share: of epsilon for the anchor.
        adjacency: what epsilon is for.
    """

    epsilon: float
    anchor: NamedAnchor | Reference = "auto"
    range: float | None = None
    share: float = 0.15
    adjacency: Adjacency = "add-remove"
    name: ClassVar[str] = "anchored"
    summary: ClassVar[str] = (
        "log-likelihood ratio to a paid-for, public or no anchor, tempered and clamped; strict ε-DP"
    )

    def __post_init__(self) -> None:
        window_width(self.epsilon, self.adjacency)
        if not (isinstance(self.anchor, Reference) or self.anchor in NAMED_ANCHORS):
            raise GuaranteeError(
                f"anchor = {self.anchor!r} must be 'auto', 'two-stage', 'histogram', 'none' or a "
                "Reference (--anchor FILE, written by `dpbayes tune`)."
            )
        if self.range is not None and not inside(self.range, 0, math.inf):
            raise GuaranteeError(
                f"range = {self.range!r} must be a finite number above 0: the public range L of "
                "|log-likelihood ratio| that stays unclamped, about 1 to 6."
            )
        if not inside(self.share, 0, 1):
            raise GuaranteeError(
                f"share = {self.share!r} must lie in (0, 1): the part of epsilon for the anchor."
            )

    def _widths(self) -> tuple[float, float]:
        """Widths of the stages for anchors together (0 without one), and of the released stage."""
        width = window_width(self.epsilon, self.adjacency)
        first = self.share * width if self.anchor in PAID else 0.0
        return first, width - first

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        assert model is not None  # super
        if self.anchor == "histogram" and not PublicFacts.of(model, 1).counted:
            raise SchemaError(
                "anchor = 'histogram' counts one column given public ones, and this model draws "
                "several. Leave anchor at 'auto'."
            )

    def check_release(self) -> None:
        if self.anchor == "histogram":
            opendp()

    def taken(self, problem: PublicFacts) -> NamedAnchor | Reference:
        """The anchor, where it is ``auto`` one by public facts: never ``auto`` itself.

        A draw where it is expected near the fit. With fewer records, or less epsilon, tables of the
        outcome, if it is one and continuous, and else none: on either side the best of the three in
        simulations, or as good as it (`python -m studies anchors`). With ``none`` the share is not
        used, but claimed: the claim is made before the number of records is known.
        """
        if self.anchor != "auto":
            return self.anchor
        tables = problem.counted and not problem.discrete
        first, _ = self._widths()
        far = distance(first, problem)
        if problem.points is not None or far <= (NEAR_TABLES if tables else NEAR_NONE):
            return "two-stage"
        return "histogram" if tables else "none"

    def stages(self, problem: PublicFacts) -> tuple[Stage, ...]:
        first, last = self._widths()
        anchor = self.taken(problem)
        if anchor == "none":
            return (_without_anchor(last, self.range, problem),)
        if anchor == "histogram":
            tables = AnchorTables.of(first, problem)
            reach = max(range_at(tables.distance), RANGE_TABLES)
            return (_stage(last, self.range or reach, tables),)
        if isinstance(anchor, Reference):
            return (_stage(last, self.range or RANGE_REFERENCE, anchor),)
        parts = anchor_parts(problem)
        stages = [_without_anchor(parts[0] * first, None, problem)]
        for width in (*(part * first for part in parts[1:]), last):
            before = stages[-1].weights
            assert isinstance(before, ConstantWeights)
            reach = second_range(before.alpha, problem)
            if width is last and self.range:
                reach = self.range
            stages.append(_stage(width, reach, "draw"))
        return (*(replace(stage, coarse=True) for stage in stages[:-1]), stages[-1])

    def anchor_needs(self, problem: PublicFacts) -> float:
        *before, _ = self.stages(problem)
        if not before:
            return 0.0
        weights = before[-1].weights
        assert isinstance(weights, ConstantWeights)
        return 1 / (weights.alpha * NEAR_NONE**2)

    def guarantee(self) -> Guarantee:
        first, last = self._widths()
        tables = self.anchor in ("auto", "histogram")
        once = Loss.pure(first) if tables else Loss.bounded_range(first)
        return Guarantee(
            self.name,
            Loss.bounded_range(last),
            "strict",
            (
                *POSTERIOR,
                *((REFERENCE,) if isinstance(self.anchor, Reference) else ()),
                *((SECRET_NOISE,) if tables else ()),
            ),
            "chain",
            once=once if first else NOTHING,
            adjacency=self.adjacency,
            weights="constant",
        )


def _stage(
    width: float, reach: float, anchor: Literal["none", "draw"] | Reference | AnchorTables
) -> Stage:
    window = place_window(None, width, negative=False)
    return Stage(ConstantWeights(min(1.0, width / (2 * reach))), window, anchor=anchor)


def _without_anchor(width: float, reach: float | None, problem: PublicFacts) -> Stage:
    """The log-likelihood itself; that of several columns around a public value.

    A sum over q columns lies q times as far from 0 as a column's, and its values apart from each
    other by about the root of q. Any public window of the same width costs the same.
    """
    if problem.columns == 1:
        window = place_window(None, width, negative=problem.discrete)
        farthest = max(abs(end) for end in window)  # width where f <= 0, else width / 2
        return Stage(ConstantWeights(min(1.0, farthest / (reach or RANGE_NONE))), window)
    reach = reach or RANGE_COLUMN * math.sqrt(problem.columns)
    alpha = min(1.0, width / (2 * reach))
    middle = alpha * problem.centre
    return Stage(ConstantWeights(alpha), (middle - width / 2, middle + width / 2))


def anchor_parts(problem: PublicFacts) -> tuple[float, ...]:
    """Parts of epsilon1 for the anchors, each drawn around the one before; they sum to 1.

    Chains find the posterior wherever it is, so one anchor is enough. K points find a region
    that is about K / 30 times smaller than the one they are spread over. From the prior to the
    posterior it takes as many stages, of K / 4 points, as the ratio of their volumes asks for:
    about 10 sqrt(rows) along each parameter. An early stage needs little of epsilon: its posterior
    need not be narrower than its points are apart.
    """
    if problem.points is None:
        return (1.0,)
    ratio = 10 * math.sqrt(problem.rows)
    step = math.log(max(problem.points / 4, 300) / 30)
    stages = math.ceil(problem.parameters * math.log(ratio) / step) - 1
    parts = [GROWTH**k for k in range(min(max(stages, 1), MOST_ANCHORS))]
    return tuple(part / sum(parts) for part in parts)


def distance(width: float, problem: PublicFacts) -> float:
    """Expected distance of a draw without anchor from the fit, in scales of a record.

    That of one parameter is 1 / sqrt(α n): p of them are sqrt(p / (α n)) away.
    """
    weights = _without_anchor(width, None, problem).weights
    assert isinstance(weights, ConstantWeights)
    return math.sqrt(problem.parameters / (weights.alpha * problem.rows))


def second_range(alpha: float, problem: PublicFacts) -> float:
    """Range L after an anchor drawn with tempering ``alpha``: a function of public facts only.

    Anchor and posterior are about sqrt(p / (alpha n)) posterior scales apart, p parameters, and
    log ratios of records grow with that distance. In simulations (`python -m studies anchored`) a
    factor of 8 leaves the clamp idle for nearly all records; below 1 the clamp begins to move the
    posterior where the anchor is bad, and above 2 tempering costs more than it saves.
    """
    return range_at(math.sqrt(problem.parameters / (alpha * problem.rows)))


def range_at(distance: float) -> float:
    """Range L around an anchor at an expected distance from the fit, in scales of a record."""
    low, high = RANGE_DRAWN
    return min(high, max(low, 8.0 * distance))
