"""Anchored censoring: clamp the log-likelihood ratio to an anchor instead of the log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dpbayes.errors import GuaranteeError, SchemaError
from dpbayes.mechanisms.outlook import Caution, Outlook
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.mechanisms.posterior.stage import Problem, Stage, place_window, window_width
from dpbayes.mechanisms.posterior.tabulated import Tables
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
from dpbayes.stan.model import ColumnModel, Model

# Public range L of |f - h| that stays unclamped, by anchor.
RANGE_NONE = 6.0
RANGE_COLUMN = 3.0  # of a column among several, around a uniform distribution; grows with the root
RANGE_REFERENCE = 0.9
RANGE_DRAWN = (1.0, 2.0)  # from and to, after a drawn anchor
RANGE_TABLES = 1.5  # least around an anchor from tables: bins and cells are coarse
GROWTH = 3.0  # of epsilon from one anchor to the next
MOST_ANCHORS = 7
NAMED_ANCHORS = ("two-stage", "histogram", "none")


@dataclass(frozen=True)
class Anchored(PosteriorMechanism):
    """Tempered log-likelihood ratios to an anchor θ0, clamped: sum_i clip(α (f_i - h_i), ±w/2).

    h_i = f_θ0(x_i). Subtracting it changes nothing without the clamp; with it, terms near the
    anchor are near 0, so that the clamp hardly acts where the posterior is. α = min(1, w / (2L))
    keeps ratios up to the public range L unclamped (w / L where terms are never above 0).

    Anchors: ``none`` (h = 0); a ``Reference`` fit (its posterior mean, public); ``two-stage``: one
    draw θ0 from the mechanism without anchor at epsilon1 = share x epsilon, then the anchored one
    with the rest; ``histogram``: the mode given records made up from noisy tables of the outcome,
    which epsilon1 pays for (``tabulated.Tables``; one column given public ones; noise by OpenDP).
    Where draws are among public points (engine ``candidates``) epsilon1 is divided
    among as many drawn anchors as it takes to get near the posterior.

    Guarantee: strict. h and α depend on record i, public data and a θ0 that is public or paid for,
    so the argument of ``Censored`` holds in each stage given the stages before. Together they cost
    epsilon1 + epsilon2 = epsilon for one data set; anchors are paid once, so m data sets cost
    epsilon1 + m epsilon2.

    Attributes:
        epsilon: for one data set, for ``adjacency``.
        anchor: ``two-stage``, ``histogram``, ``none``, or a Reference.
        range: L of the stage that is released; by default 6 without anchor (3 sqrt(q) around a
            public value for the q columns of a sequence), 0.9 with a reference, and
            ``second_range`` after a drawn anchor or one from tables.
        share: of epsilon for the anchor.
        adjacency: what epsilon is for.
    """

    epsilon: float
    anchor: Literal["two-stage", "histogram", "none"] | Reference = "two-stage"
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
                f"anchor = {self.anchor!r} must be 'two-stage', 'histogram', 'none' or a Reference "
                "(--anchor FILE, written by `dpbayes tune`)."
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
        first = self.share * width if self.anchor in ("two-stage", "histogram") else 0.0
        return first, width - first

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        if self.anchor != "histogram":
            return
        if not isinstance(model, ColumnModel) or model.conditioned or len(model.outcomes) > 1:
            raise SchemaError(
                "anchor = 'histogram' counts one column given public ones, and this model draws "
                "several. Leave anchor at 'two-stage'."
            )

    def check_release(self) -> None:
        if self.anchor == "histogram":
            opendp()

    def stages(self, problem: Problem) -> tuple[Stage, ...]:
        first, last = self._widths()
        if self.anchor == "none":
            return (_without_anchor(last, self.range, problem),)
        if self.anchor == "histogram":
            tables = Tables.of(first, problem)
            reach = max(range_at(tables.distance), RANGE_TABLES)
            return (_stage(last, self.range or reach, tables),)
        if self.anchor != "two-stage":
            return (_stage(last, self.range or RANGE_REFERENCE, self.anchor),)
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

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Outlook:
        found = super().outlook(schema, rows, model)
        assert model is not None  # check
        stages = self.stages(Problem.of(model, rows))
        if isinstance(stages[-1].anchor, Tables):
            return replace(found, cautions=(*found.cautions, *self._far(stages[-1], model, rows)))
        if len(stages) == 1:
            return found
        before = stages[-2].weights
        assert isinstance(before, ConstantWeights)
        counted = before.alpha * rows
        far = math.sqrt(model.parameters / counted)
        reach = self.range or RANGE_DRAWN[1]
        if far <= reach:
            return found
        what = (
            f"The anchor is drawn from {rows:,} records that count as {counted:.1f} for about "
            f"{model.parameters} parameters: it is expected {far:.1f} from the fit, and ratios are "
            f"clamped beyond {reach:g}, so that the clamp decides where the posterior lies."
        )
        needed = math.ceil(model.parameters / reach**2 / before.alpha)
        remedy = (
            f"About {needed:,} records, more ε, or an anchor from earlier records (--anchor) are "
            "needed."
        )
        return replace(found, cautions=(*found.cautions, Caution(what, remedy)))

    def _far(self, stage: Stage, model: Model, rows: int) -> Iterator[Caution]:
        """What is said where noise puts an anchor from tables far from the fit."""
        tables = stage.anchor
        assert isinstance(tables, Tables)
        reach = self.range or RANGE_DRAWN[1]
        if tables.distance <= reach / 2:
            return
        needed = math.ceil(2 * tables.distance / reach * rows)
        what = (
            f"The anchor comes from counts of {rows:,} records with noise of scale "
            f"{tables.count / tables.epsilon:.0f}: it is expected {tables.distance:.1f} from the "
            f"fit, and ratios are clamped beyond {reach:g}."
        )
        yield Caution(
            what,
            f"About {needed:,} records, more ε, or an anchor from earlier records "
            "(--anchor) are needed.",
        )

    def guarantee(self) -> Guarantee:
        first, last = self._widths()
        tables = self.anchor == "histogram"
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
    width: float, reach: float, anchor: Literal["none", "draw"] | Reference | Tables
) -> Stage:
    window = place_window(None, width, negative=False)
    return Stage(ConstantWeights(min(1.0, width / (2 * reach))), window, anchor=anchor)


def _without_anchor(width: float, reach: float | None, problem: Problem) -> Stage:
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


def anchor_parts(problem: Problem) -> tuple[float, ...]:
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


def second_range(alpha: float, problem: Problem) -> float:
    """Range L after an anchor drawn with tempering ``alpha``: a function of public facts only.

    Anchor and posterior are about sqrt(p / (alpha n)) posterior scales apart, p parameters, and
    log ratios of records grow with that distance. In simulations (`dpbayes study anchored`) a
    factor of 8 leaves the clamp idle for nearly all records; below 1 the clamp begins to move the
    posterior where the anchor is bad, and above 2 tempering costs more than it saves.
    """
    return range_at(math.sqrt(problem.parameters / (alpha * problem.rows)))


def range_at(distance: float) -> float:
    """Range L around an anchor at an expected distance from the fit, in scales of a record."""
    low, high = RANGE_DRAWN
    return min(high, max(low, 8.0 * distance))
