"""A stage, that is one posterior of a mechanism: its weights, its anchor and its window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.posterior.weights import (
    NO_WEIGHTS,
    ConstantWeights,
    Reference,
    WeightSource,
)
from dpbayes.privacy.guarantee import ADJACENCIES, Adjacency, check_epsilon
from dpbayes.schema import Survey
from dpbayes.stan.model import ColumnModel, Model

FARTHEST = 1e6  # largest end of a window: beyond it the width is lost in rounding
NO_WINDOW = (-math.inf, math.inf)
Window = tuple[float, float]
WindowRule = Literal["symmetric", "negative"] | Window

FEWEST_BINS, MOST_BINS = 6, 40  # of a table from which an anchor is made
WIDE = 6.0  # log number of values of a count, 400, above which chains start at large ones
NEAR = 0.25  # distance that noise may add to the anchor; it limits the number of bins


@dataclass(frozen=True)
class PublicFacts:
    """Public facts that a mechanism's settings may depend on.

    Attributes:
        rows: the public number of rows.
        parameters: number of entries of intercepts, dispersions, coefficients and group effects.
        discrete: the record likelihood is a probability mass function, so that f <= 0.
        points: number of public points that a draw is selected from; None where chains draw.
        columns: number of columns whose log-likelihoods add up to a record's.
        centre: public reference value of a record's log-likelihood: its value under uniform
            distributions over the declared domains of its columns.
        covariates: number of covariates in the designs of all columns.
        counted: a single column is drawn given public ones, so that its bins can be counted within
            cells of the public columns.
        wide: a column is a count with so many values that its log-likelihoods are far below 0. All
            records would be clamped by a window that ends at 0, and near a random start.
    """

    rows: int
    parameters: int
    discrete: bool
    points: int | None = None
    columns: int = 1
    centre: float = 0.0
    covariates: int = 0
    counted: bool = False
    wide: bool = False

    @property
    def near_zero(self) -> bool:
        """True if terms are never above 0, and reach it."""
        return self.discrete and not self.wide

    @classmethod
    def of(cls, model: Model, rows: int, survey: Survey | None = None) -> PublicFacts:
        """Public facts of a model that is sampled by chains.

        Records with sampling weights count as fewer (``Survey.counted``), and tables of theirs
        would show the sample.
        """
        centre = sum(column.log_uniform for column in model.columns)
        covariates = sum(len(column.formula.names) for column in model.columns)
        count = len(model.columns)
        single = isinstance(model, ColumnModel) and not model.conditioned
        counted = single and len(model.outcomes) == 1 and survey is None
        rows = rows if survey is None else min(rows, survey.counted)
        wide = any(c.discrete and c.log_uniform < -WIDE for c in model.columns)
        return cls(
            rows, model.parameters, model.discrete, None, count, centre, covariates, counted, wide
        )


@dataclass(frozen=True)
class AnchorTables:
    """The noisy tables from which an anchor is made, a function of public facts only.

    Each table splits the outcome's bins by one covariate, above its mean or not. Without
    covariates, or with too few records for that, there is a single table of the outcome. A record
    is counted once in each table.

    Guarantee: adding or removing a record changes one count of each table by 1, and each count has
    discrete Laplace noise of scale ``count / epsilon``: together epsilon. Changing a record changes
    two counts of each table: 2 epsilon.

    Attributes:
        epsilon: the loss of all tables together when a record is added or removed.
        count: number of tables, at least 1.
        covariates: number of design columns that split a table: the number of tables, or 0.
        bins: number of bins of the outcome, if it has no levels.
        distance: expected distance of the anchor from the fit, in scales of a record.
    """

    epsilon: float
    count: int
    covariates: int
    bins: int
    distance: float
    name: ClassVar[str] = "histogram"

    @classmethod
    def of(cls, epsilon: float, problem: PublicFacts) -> AnchorTables:
        """Choose as many tables and bins as keep the noise small.

        The noise adds 2 scale² cells p / n² to the squared distance of the anchor from the fit.

        Args:
            epsilon: the loss of all tables together.
            problem: public facts.
        """
        n, p = problem.rows, problem.parameters

        def cells(count: int) -> float:
            return (n * epsilon * NEAR / count) ** 2 / (2 * p)

        covariates = problem.covariates
        while covariates and cells(covariates) < 2 * FEWEST_BINS:
            covariates -= 1
        count = max(1, covariates)
        split = 2 if covariates else 1
        bins = int(min(max(cells(count) / split, FEWEST_BINS), MOST_BINS))
        added = 2 * (count / epsilon) ** 2 * split * bins * p / n**2
        return cls(epsilon, count, covariates, bins, math.sqrt(p / n + added))


@dataclass(frozen=True)
class Stage:
    """One posterior: proportional to prior x exp sum_i clip(weights_i (f_i - anchor_i), window).

    Attributes:
        weights: the source of the record weights, which sampling weights multiply.
        window: the ends of the clamp; infinite for none.
        divergence: b; above 0, the score of the beta-divergence with beta = b + 1 replaces f_i.
        anchor: ``none`` (anchor_i = ``centre``), ``draw`` (f_i at one draw of the previous stage),
            a reference fit (f_i at its posterior mean), or a fit to noisy tables of the records.
        coarse: the stage only anchors the next one, so fewer candidates are enough.
        centre: public value near f_i, where terms may be above 0 or all lie far below it.
    """

    weights: WeightSource = NO_WEIGHTS
    window: Window = NO_WINDOW
    divergence: float = 0.0
    anchor: Literal["none", "draw"] | Reference | AnchorTables = "none"
    coarse: bool = False
    centre: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether this is the unweighted posterior."""
        return self == UNWEIGHTED

    def to_dict(self) -> dict[str, Any]:
        """The public settings as JSON values. An infinite end of the window becomes null."""
        return {
            "weights": self.weights.name,
            "alpha": self.weights.alpha if isinstance(self.weights, ConstantWeights) else None,
            "window": [end if math.isfinite(end) else None for end in self.window],
            "divergence": self.divergence,
            "anchor": self.anchor if isinstance(self.anchor, str) else self.anchor.name,
            "centre": self.centre,
        }


UNWEIGHTED = Stage()


def window_width(epsilon: float, adjacency: Adjacency) -> float:
    """Width w of the window at which one draw costs ``epsilon`` under ``adjacency``.

    A draw costs w when a record is added or removed, and 2w when one is changed.
    """
    if adjacency not in ADJACENCIES:
        raise GuaranteeError(f"adjacency = {adjacency!r} must be one of {', '.join(ADJACENCIES)}.")
    return check_epsilon(epsilon) / (1 if adjacency == "add-remove" else 2)


def check_window(window: WindowRule | None, width: float) -> None:
    """Raise GuaranteeError unless ``window`` is a rule, or an interval of exactly ``width``."""
    if window is None or window in ("symmetric", "negative"):
        return
    if not (
        isinstance(window, tuple | list)
        and len(window) == 2
        and all(isinstance(end, int | float) and abs(end) < math.inf for end in window)
    ):
        raise GuaranteeError(
            f"window = {window!r} must be 'symmetric', 'negative' or two finite numbers."
        )
    lower, upper = window
    if max(abs(lower), abs(upper)) > FARTHEST:
        raise GuaranteeError(
            f"window = ({lower:g}, {upper:g}) lies beyond ±{FARTHEST:g}, where its width is lost "
            "in rounding. Log-likelihoods are numbers of the order of 1 to 100."
        )
    # Decimal ends such as -0.1 and 0.2 differ from the exact width by rounding.
    if not math.isclose(upper - lower, width, rel_tol=1e-12):
        comparison = "wider" if upper - lower > width else "narrower"
        raise GuaranteeError(
            f"window = ({lower:g}, {upper:g}) has width {upper - lower:g}, {comparison} than the "
            f"{width:g} that epsilon and adjacency pay for. Take ({lower:g}, {lower + width:g})."
        )


def place_window(window: WindowRule | None, width: float, *, negative: bool) -> Window:
    """Interval of the clamp; by default around 0, or [-width, 0] if ``negative``.

    Any public interval of this width costs the same (mechanisms.md section 4 of the design: the
    removed term g enters the log ratio as g - log E[exp g]).

    Args:
        window: a rule, an interval, or None for the default.
        width: from ``window_width``.
        negative: terms are never above 0, and reach it (``PublicFacts.near_zero``).
    """
    check_window(window, width)
    window = window or ("negative" if negative else "symmetric")
    if window == "negative":
        return (-width, 0.0)
    if window == "symmetric":
        return (-width / 2, width / 2)
    return window
