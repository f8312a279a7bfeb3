"""Multinomial logistic regressions of every column on all others, for perturbed imputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.lazy import optimize, sparse, special
from dpbayes.mechanisms.pegs.blocks import Conditionals
from dpbayes.mechanisms.pegs.cost import Grain
from dpbayes.mechanisms.pegs.keys import KeyLayout

MOST_RECORDS = 20_000  # that a regression is fitted to
MOST_STEPS = 100  # of the optimiser


class Regressed(Conditionals):
    """Fitted probabilities with α more at every level: (g + α) / (1 + C_i α).

    The fit is a function of the records like any other: nothing rests on it but that every g is at
    least 0 and that they sum to 1, which whole numbers make exact.

    Source: park-ghosh-2014, section 3.5.

    Args:
        coefficients: of each column, shape (1 + levels of the others, levels), constant first.
        alpha: the same for every row.
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
    """Of the levels of a column, but for a constant; shape (n, levels).

    Args:
        beta: coefficients of the column.
        codes: levels, shape (n, columns).
    """
    found = np.broadcast_to(beta[0], (len(codes), beta.shape[1])).copy()
    for place, j in _places(layout, column):
        found += beta[place + codes[:, j]]
    return found


def whole(p: Floats, unit: int) -> Ints:
    """Whole numbers at or above 0 near ``unit`` times p, shape (rows, C), with sum ``unit``.

    Whatever p is: ends that are no numbers, or do not grow, are mended.
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
    """Coefficients of every column to draw, with a ridge; constants are free.

    The paper's penalty is an elastic net, by cross-validation (section 4.3). The optimiser ends
    after ``MOST_STEPS``.

    Source: park-ghosh-2014, section 3.5.

    Args:
        penalty: the sum of squared coefficients is multiplied by half of it.
        only: of these columns.
        most: records; of more an evenly spread part is looked at.
    """
    some = codes[:: max(1, -(-len(codes) // most))]
    return {i: _fit(layout, i, some, penalty) for i in (layout.drawn if only is None else only)}


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
    found = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS}
    )
    return np.asarray(found.x.reshape(width, levels))


def _indicators(layout: KeyLayout, column: int, codes: Ints, width: int) -> sparse.csr_matrix:
    """A constant and a column for each level of each other column, shape (n, width)."""
    n = len(codes)
    places = [np.zeros(n, dtype=np.int64)]
    places += [place + codes[:, j] for place, j in _places(layout, column)]
    inside = np.column_stack(places)
    ends = np.arange(0, inside.size + 1, inside.shape[1])
    return sparse.csr_matrix((np.ones(inside.size), inside.ravel(), ends), shape=(n, width))


def _places(layout: KeyLayout, column: int) -> Iterator[tuple[int, int]]:
    """The first coefficient of each other column, and its number."""
    place = 1
    for j in layout.others(column):
        yield place, j
        place += layout.sizes[j]
