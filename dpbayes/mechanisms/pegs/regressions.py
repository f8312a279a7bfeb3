"""Multinomial logistic regressions of every column on all others, for perturbed imputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import optimize, sparse, special
from dpbayes.mechanisms.pegs.blocks import Conditionals
from dpbayes.mechanisms.pegs.cost import Grain
from dpbayes.mechanisms.pegs.keys import KeyLayout

MOST_RECORDS = 20_000  # records to which a regression is fitted
MOST_STEPS = 100  # steps of the optimiser


class Regressed(Conditionals):
    """Fitted probabilities plus α at every level: (g + α) / (1 + C_i α).

    The guarantee needs only that every g is at least 0 and that they sum to 1, which holds exactly
    because they are whole numbers; how well the regression fits does not matter.

    Source: park-ghosh-2014, section 3.5.

    Args:
        coefficients: by column, shape (1 + levels of the others, levels), constant first.
        alpha: α, the same for every row.
    """

    def __init__(self, layout: KeyLayout, coefficients: dict[int, Floats], alpha: float):
        self.layout, self.coefficients = layout, coefficients
        self.grains = {}
        for i in layout.drawn:
            grain = Grain.of(alpha, layout.sizes[i])
            assert grain is not None  # checked with the settings
            self.grains[i] = grain

    def weights(self, column: int, codes: Ints) -> Ints:
        beta, grain = self.coefficients[column], self.grains[column]
        logits = log_odds(self.layout, column, beta, codes)
        return whole(special.softmax(np.nan_to_num(logits), axis=1), grain.unit) + grain.extra


def log_odds(layout: KeyLayout, column: int, beta: Floats, codes: Ints) -> Floats:
    """Log probabilities of a column's levels up to a constant by row, shape (n, levels).

    Args:
        beta: coefficients of the column.
        codes: levels of all columns, shape (n, columns).
    """
    logits = np.broadcast_to(beta[0], (len(codes), beta.shape[1])).copy()
    for place, j in _places(layout, column):
        logits += beta[place + codes[:, j]]
    return logits


def whole(p: Floats, unit: int) -> Ints:
    """Round ``unit`` times p to non-negative whole numbers with sum ``unit``, shape (rows, C).

    This holds for any p: cumulative sums that are NaN, or do not increase, are corrected.
    """
    ends = np.nan_to_num(np.cumsum(p, axis=1), nan=1.0).clip(0, 1)
    ends = np.maximum.accumulate(np.floor(ends * unit), axis=1).astype(np.int64)
    ends[:, -1] = unit
    return np.asarray(np.diff(ends, axis=1, prepend=0))


def fit_regressions(
    layout: KeyLayout,
    codes: Ints,
    penalty: float,
    only: Sequence[int] | None = None,
    most: int = MOST_RECORDS,
) -> dict[int, Floats]:
    """Fit ridge regressions of every column to draw; constants are not penalised.

    The paper uses an elastic net, tuned by cross-validation (section 4.3). The optimiser stops
    after ``MOST_STEPS`` at the latest.

    Source: park-ghosh-2014, section 3.5.

    Args:
        codes: levels of all columns, shape (n, columns).
        penalty: factor of half the sum of squared coefficients.
        only: columns to fit; by default all that are drawn.
        most: largest number of records; of more, an evenly spaced sample is used.
    """
    sample = codes[:: max(1, -(-len(codes) // most))]
    return {i: _fit(layout, i, sample, penalty) for i in (layout.drawn if only is None else only)}


def _fit(layout: KeyLayout, column: int, codes: Ints, penalty: float) -> Floats:
    levels = layout.sizes[column]
    width = 1 + sum(layout.sizes[j] for j in layout.others(column))
    if not len(codes):
        return np.zeros((width, levels))
    x = _indicators(layout, column, codes, width)
    at = np.arange(len(codes)), codes[:, column]

    def objective(flat: Vector) -> tuple[float, Vector]:
        beta = flat.reshape(width, levels)
        odds = x @ beta
        odds -= odds.max(axis=1, keepdims=True)
        p = np.exp(odds)
        total = p.sum(axis=1, keepdims=True)
        loss = float(np.log(total).sum() - odds[at].sum())
        p /= total
        p[at] -= 1
        slope = np.asarray(x.T @ p)
        slope[1:] += penalty * beta[1:]
        return loss + penalty / 2 * float((beta[1:] ** 2).sum()), slope.ravel()

    start = np.zeros(width * levels)
    optimum = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS}
    )
    return np.asarray(optimum.x.reshape(width, levels))


def _indicators(layout: KeyLayout, column: int, codes: Ints, width: int) -> sparse.csr_matrix:
    """Design matrix: a constant and an indicator of each level of the others, shape (n, width)."""
    n = len(codes)
    places = [np.zeros(n, dtype=np.int64)]
    places += [place + codes[:, j] for place, j in _places(layout, column)]
    inside = np.column_stack(places)
    ends = np.arange(0, inside.size + 1, inside.shape[1])
    return sparse.csr_matrix((np.ones(inside.size), inside.ravel(), ends), shape=(n, width))


def _places(layout: KeyLayout, column: int) -> Iterator[tuple[int, int]]:
    """Place of the first coefficient of each other column, and the column's number."""
    place = 1
    for j in layout.others(column):
        yield place, j
        place += layout.sizes[j]
