"""Anchored censoring: clamp the log-likelihood ratio to an anchor, not the log-likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from dpbayes.core.checks import expect
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import (
    AnchorTables,
    PublicFacts,
    Stage,
    place_window,
    window_width,
)
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

# Default of the public range L of |f - h| that stays unclamped, by anchor.
RANGE_NONE = 6.0
RANGE_COLUMN = 3.0  # one of q columns, around a uniform distribution; multiplied by sqrt(q)
RANGE_REFERENCE = 0.9
RANGE_DRAWN = (1.0, 2.0)  # smallest and largest after a drawn anchor
RANGE_TABLES = 1.5  # smallest around an anchor from tables, whose bins and cells are coarse
GROWTH = 3.0  # ratio of the epsilons of successive anchors
MOST_ANCHORS = 7
# Largest expected distance from the fit, in scales of a record, at which a drawn anchor is better
# than the alternative (`python -m studies anchors`): an anchor from tables, or no anchor.
NEAR_TABLES = 0.8
NEAR_NONE = 1.2
NamedAnchor = Literal["auto", "two-stage", "histogram", "none"]
NAMED_ANCHORS: tuple[NamedAnchor, ...] = get_args(NamedAnchor)
PAID = ("auto", "two-stage", "histogram")  # anchors that use a share of epsilon


@dataclass(frozen=True)
class Anchored(PosteriorMechanism):
    """Clamped, tempered log-likelihood ratios to an anchor θ0: sum_i clip(α (f_i - h_i), ±w/2).

    h_i = f_θ0(x_i). Without the clamp, subtracting h_i would not change the posterior; with it,
    terms near the anchor are near 0, so that the clamp hardly acts where the posterior is.
    α = min(1, w / (2L)) keeps ratios up to the public range L unclamped (w / L where terms are
    never above 0).

    Anchors: ``none`` (h = 0); a ``Reference`` fit (its posterior mean, public); ``two-stage``: one
    draw θ0 from the mechanism without anchor at epsilon1 = share x epsilon, then the anchored one
    with the rest; ``histogram``: the mode given records made up from noisy tables of the outcome,
    which cost epsilon1 (``AnchorTables``; one column given public ones; noise by OpenDP);
    ``auto``: one of these, chosen by public facts (``taken``). Where draws are selected from public
    points (engine ``candidates``) epsilon1 is divided among as many drawn anchors as are needed to
    get near the posterior.

    Guarantee: strict. h and α depend on record i, public data and a θ0 that is public or paid for,
    so the argument of ``Censored`` holds in each stage given the previous stages. Together they
    cost epsilon1 + epsilon2 = epsilon for one data set; anchors are paid once, so m data sets cost
    epsilon1 + m epsilon2.

    Attributes:
        epsilon: the bound for one data set under ``adjacency``.
        anchor: ``auto``, ``two-stage``, ``histogram``, ``none``, or a Reference.
        range: L of the stage that is released; by default 6 without anchor (3 sqrt(q) around a
            public value for the q columns of a sequence), 0.9 with a reference, and
            ``second_range`` after a drawn anchor or one from tables.
        share: fraction of epsilon for the anchor, in (0, 1).
        adjacency: the neighbouring relation that epsilon is for; by default that which a release
            protects (``Guarantee.holds_for``).

    Examples:
        Of ε = 5, 0.75 pays once for the anchor, and 4.25 for each data set:

        >>> import dpbayes as dpb
        >>> claim = dpb.Anchored(epsilon=5, share=0.15).guarantee()
        >>> claim.for_datasets(3).asked
        13.5
    """

    epsilon: float
    anchor: NamedAnchor | Reference = "auto"
    range: float | None = None
    share: float = 0.15
    adjacency: Adjacency | None = None
    name: ClassVar[str] = "anchored"
    summary: ClassVar[str] = (
        "log-likelihood ratio to a paid-for, public or no anchor, tempered and clamped; strict ε-DP"
    )

    def __post_init__(self) -> None:
        window_width(self.epsilon, self.neighbours)
        anchors = "'auto', 'two-stage', 'histogram', 'none' or a Reference (a file that "
        anchors += "`dpbayes tune` wrote)"
        expect(self.anchor, str | Reference, "anchor", anchors, GuaranteeError)
        if isinstance(self.anchor, str) and self.anchor not in NAMED_ANCHORS:
            raise GuaranteeError(f"anchor = {self.anchor!r} must be {anchors}.")
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
        """Total window width of the anchors' stages (0 without an anchor), and the last stage's."""
        width = window_width(self.epsilon, self.neighbours)
        first = self.share * width if self.anchor in PAID else 0.0
        return first, width - first

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        assert model is not None  # super
        if self.anchor == "histogram" and not PublicFacts.of(model, 1, schema.survey).counted:
            raise SchemaError(
                "anchor = 'histogram' counts records of one column given public ones: this model "
                "draws several, or records have sampling weights. Leave anchor at 'auto'."
            )

    def check_release(self) -> None:
        if self.anchor == "histogram":
            opendp()

    def taken(self, problem: PublicFacts) -> NamedAnchor | Reference:
        """The anchor to use; ``auto`` is resolved by public facts.

        ``auto`` becomes a drawn anchor where that is expected near the fit. With fewer records, or
        less epsilon, it becomes tables of the outcome, if there is a single continuous outcome, and
        otherwise no anchor. In simulations each of these was the best of the three, or as good as
        it (`python -m studies anchors`). Without an anchor the share of epsilon is not used but is
        still claimed: the claim is made before the number of records is known.
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
        shares = anchor_parts(problem)
        stages = [_without_anchor(shares[0] * first, None, problem)]
        for width in (*(share * first for share in shares[1:]), last):
            weights = stages[-1].weights
            assert isinstance(weights, ConstantWeights)
            reach = second_range(weights.alpha, problem)
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
            adjacency=self.neighbours,
            weights="constant",
        )


def _stage(
    width: float, reach: float, anchor: Literal["none", "draw"] | Reference | AnchorTables
) -> Stage:
    window = place_window(None, width, negative=False)
    return Stage(ConstantWeights(min(1.0, width / (2 * reach))), window, anchor=anchor)


def _without_anchor(width: float, reach: float | None, problem: PublicFacts) -> Stage:
    """A stage without anchor, whose window lies around a public value.

    Log densities of a user's program, in the outcome's own units, may all be far from 0. And a sum
    over q columns is q times as far from 0 as one column's log-likelihood, but its spread grows
    only with sqrt(q). A window at 0 would clamp most of them. Any public window of the same width
    costs the same.
    """
    if problem.columns == 1:
        # Where f <= 0 the window is [-width, 0].
        reach, below = reach or RANGE_NONE, problem.near_zero
    else:
        reach, below = reach or RANGE_COLUMN * math.sqrt(problem.columns), False
    alpha = min(1.0, (width if below else width / 2) / reach)
    window = place_window(None, width, negative=below)
    return Stage(ConstantWeights(alpha), window, centre=0.0 if below else problem.centre)


def anchor_parts(problem: PublicFacts) -> tuple[float, ...]:
    """Fractions of epsilon1 for the anchors, each drawn around the previous one; they sum to 1.

    Chains find the posterior wherever it is, so one anchor is enough. K public points find a region
    that is about K / 30 times smaller than the one over which they are spread. The number of
    stages, of K / 4 points each, follows from the ratio of the volumes of prior and posterior,
    about 10 sqrt(rows) along each parameter. An early stage needs little of epsilon: its posterior
    need not be narrower than the distance between its points.
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

    One parameter is 1 / sqrt(α n) away, and p parameters together sqrt(p / (α n)).
    """
    weights = _without_anchor(width, None, problem).weights
    assert isinstance(weights, ConstantWeights)
    return math.sqrt(problem.parameters / (weights.alpha * problem.rows))


def second_range(alpha: float, problem: PublicFacts) -> float:
    """Range L after an anchor drawn with tempering ``alpha``, a function of public facts only.

    With p parameters, anchor and posterior are about sqrt(p / (alpha n)) scales of a record apart,
    and log ratios of records grow with that distance. In simulations (`python -m studies anchored`)
    a factor of 8 leaves the clamp idle for nearly all records; below 1 the clamp begins to move the
    posterior where the anchor is bad, and above 2 tempering costs more than it saves.
    """
    return range_at(math.sqrt(problem.parameters / (alpha * problem.rows)))


def range_at(distance: float) -> float:
    """Range L around an anchor at a given expected distance from the fit, in scales of a record."""
    low, high = RANGE_DRAWN
    return min(high, max(low, 8.0 * distance))
