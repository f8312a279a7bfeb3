"""Tables and histograms with Laplace noise in every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, stats

from dpbayes.errors import GuaranteeError
from dpbayes.mechanisms.dips_base import Dips, Prepared, check_records
from dpbayes.mechanisms.tables.cells import BIN_RULES, BinRule, Cells, check_cells
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import OUT_OF_RANGE, Change, Noise, Statistic
from dpbayes.schema import Schema

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TableRange = Literal["zero", "bit", "truncate"]
# One record is in one cell; a changed one leaves a cell and enters another.
IN_ONE_CELL: dict[Adjacency, Change] = {
    "add-remove": Change(1, 1),
    "substitution": Change(1, 2),
}


def noisy_counts(
    counts: Ints,
    most: Any,
    epsilon: float,
    adjacency: Adjacency,
    noise: Noise,
    out_of_range: TableRange = "bit",
) -> Ints:
    """Counts of disjoint cells with discrete Laplace noise, at or above 0.

    Args:
        counts: shape (..., K).
        most: public number of records, or inf where counts are not cut above.
        out_of_range: ``zero`` and ``bit`` move negative counts to 0, and ``bit`` those above the
            number of records to it; ``truncate`` draws again (``Statistic.sanitised``).

    Sensitivity: one record is in one cell, so that L1 = 1 for add/remove and 2 for substitution
    (Dwork et al. 2006; Bowen & Liu, section 3.1.1).
    """
    upper = math.inf if out_of_range == "zero" else float(most)
    how: Literal["bit", "truncate"] = "truncate" if out_of_range == "truncate" else "bit"
    table = Statistic("counts", counts, IN_ONE_CELL, 0, upper, integer=True)
    return table.sanitised(epsilon, adjacency, noise, how)


@dataclass(frozen=True)
class _Table(Dips):
    """Shared settings of tables.

    Attributes:
        epsilon, adjacency: as in ``Dips``.
        bins: rule for numeric columns, or one rule by column: ``log``, ``sqrt``, ``scott``, a
            number, or edges (``cells.make_axis``).
        sigma: public standard deviations by column, for ``scott``.
        out_of_range: ``zero``, ``bit`` or ``truncate`` (``noisy_counts``).
    """

    epsilon: float
    adjacency: Adjacency = "add-remove"
    bins: BinRule | Mapping[str, BinRule] = "sqrt"
    sigma: Mapping[str, float] | None = None
    out_of_range: TableRange = "bit"
    as_counts: ClassVar[bool] = False  # release the noisy counts, not draws from them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out_of_range not in ("zero", *OUT_OF_RANGE):
            raise GuaranteeError(
                f"out_of_range = {self.out_of_range!r} must be zero, bit or truncate."
            )
        if isinstance(self.bins, str) and self.bins not in BIN_RULES:
            raise GuaranteeError(
                f"bins = {self.bins!r} must be {', '.join(BIN_RULES)}, a number, or by column."
            )

    @property
    def halves(self) -> bool:
        return self.out_of_range != "truncate"

    def check(self, schema: Schema) -> None:
        check_cells(schema, self.bins, self.sigma)

    def prepare(self, schema: Schema, records: pd.DataFrame) -> PreparedTable:
        check_records(records)
        cells = Cells.of(schema, len(records), self.bins, self.sigma)
        return PreparedTable(self, cells, cells.stratum(records), cells.counts(records))

    def sanitise(self, prepared: PreparedTable, noise: Noise) -> Floats:
        """Cell weights at or above 0, shape (strata, K)."""
        return self.with_noise(prepared.counts, prepared.sizes, self.epsilon, noise)

    def with_noise(self, counts: Ints, sizes: Ints, epsilon: float, noise: Noise) -> Floats:
        """Noisy counts; those of two cells by one count, as their sum is public."""
        two = counts.shape[1] == 2 and self.out_of_range != "zero"
        found = [
            noisy_counts(row[1:] if two else row, n, epsilon, self.adjacency, noise,
                         self.out_of_range)
            for row, n in zip(counts, sizes, strict=True)
        ]  # fmt: skip
        if two:
            found = [np.array([n - one[0], one[0]]) for one, n in zip(found, sizes, strict=True)]
        return np.stack(found).astype(float)


class PreparedTable(Prepared):
    """Counts by stratum and cell, shape (strata, K)."""

    def __init__(self, mechanism: _Table, cells: Cells, stratum: Ints, counts: Ints) -> None:
        self.mechanism = mechanism
        self.cells = cells
        self.stratum = stratum
        self.counts = counts
        self.sizes = np.bincount(stratum, minlength=cells.strata)
        self.settings = {"cells": cells.strata * cells.size, "bins": cells.to_dict()}

    def private(self, noise: Noise) -> Floats:
        return self.mechanism.sanitise(self, noise)

    def synthetic(self, output: Floats, rng: np.random.Generator) -> pd.DataFrame:
        drawn = np.empty(len(self.stratum), dtype=np.int64)
        for g in np.flatnonzero(self.sizes):
            draw = apportion if self.mechanism.as_counts else draw_cells
            drawn[self.stratum == g] = draw(output[g], int(self.sizes[g]), rng)
        return self.cells.decode(self.cells.unravel(drawn), rng)


def draw_cells(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Cells with probabilities proportional to weights; uniform if noise left no cell."""
    counts = rng.multinomial(size, proportions(weights))
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def apportion(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Cells in numbers proportional to weights, rounded up or down by systematic sampling."""
    ends = np.cumsum(proportions(weights)) * size
    marks = np.floor(ends + rng.random())
    counts = np.diff(marks, prepend=0.0).astype(np.int64)
    counts[-1] += size - counts.sum()  # rounding of the last end
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def proportions(weights: Floats) -> Floats:
    """Weights over their sum; equal ones where noise left nothing."""
    total = weights.sum()
    return np.asarray(weights / total if total > 0 else np.full(len(weights), 1 / len(weights)))


@dataclass(frozen=True)
class Laplace(_Table):
    """The full cross-tabulation with Laplace noise; numeric columns enter it by their bins.

    Source: Dwork et al. 2006; Bowen & Liu, section 3.1.1. Noise is discrete Laplace.

    Sensitivity: 1 for add/remove, 2 for substitution (``noisy_counts``).

    Guarantee: strict. Counts plus noise of scale sensitivity / epsilon are epsilon-DP; records that
    are written in proportion to them are post-processing. Strata of public columns are disjoint, so
    epsilon is paid once.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``_Table``.
    """

    as_counts: ClassVar[bool] = True
    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "full cross-tabulation with Laplace noise; strict ε-DP"


@dataclass(frozen=True)
class PerturbedHistogram(_Table):
    """A noisy histogram of the numeric columns inside each noisy cell of the others.

    Values are uniform inside their bin. Without columns that have levels, or without numeric ones,
    there is one table and it gets the whole of epsilon.

    Source: Wasserman & Zhou 2010; Hu, Williams & Savitsky, Supplement 1; in cells: Bowen & Liu,
    section 4.3.1.

    Sensitivity: 1 for add/remove, 2 for substitution, in each of the two tables.

    Guarantee: strict. ``share`` of epsilon is for the cells, the rest for the histograms, which
    are disjoint; the two compose.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``_Table``.
        share: of epsilon for the cells, in (0, 1).
    """

    share: float = 0.5
    name: ClassVar[str] = "perturbed-histogram"
    summary: ClassVar[str] = "noisy histogram inside each noisy cell; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise GuaranteeError(
                f"share = {self.share!r} must lie in (0, 1): the part of epsilon for the cells."
            )

    def sanitise(self, prepared: PreparedTable, noise: Noise) -> Floats:
        numeric = [j for j, axis in enumerate(prepared.cells.axes) if axis.edges is not None]
        if not numeric or len(numeric) == len(prepared.cells.axes):
            return super().sanitise(prepared, noise)
        shape = [axis.size for axis in prepared.cells.axes]
        over = tuple(1 + j for j in numeric)
        table = prepared.counts.reshape(-1, *shape)
        coarse = table.sum(axis=over)
        cells = self.with_noise(
            coarse.reshape(len(coarse), -1), prepared.sizes, self.share * self.epsilon, noise
        ).reshape(coarse.shape)
        bins = self.with_noise(
            prepared.counts, prepared.sizes, (1 - self.share) * self.epsilon, noise
        ).reshape(table.shape)
        total = bins.sum(axis=over, keepdims=True)
        uniform = 1 / math.prod(shape[j] for j in numeric)  # where noise left no bin
        inside = np.where(total > 0, bins / np.where(total > 0, total, 1), uniform)
        found = np.expand_dims(cells, over) * inside
        return np.asarray(found.reshape(prepared.counts.shape))


@dataclass(frozen=True)
class EmpiricalBootstrap(_Table):
    """Data sets from a sanitised empirical distribution, by a bootstrap or from one for all.

    ``resample=False`` (Liu, figure 5a): one noisy table, paid once, from which every data set is
    drawn. ``resample=True`` (figure 5b): each data set has a bootstrap sample of the records, its
    noisy table, and its own cost; so the data sets also show the sampling variability.

    Sensitivity: of the table 1 or 2. A bootstrap sample holds one record k times, k ~ Bin(n, 1/n),
    so that noise for one copy costs more than epsilon, of which the paper says nothing. With loss s
    for one copy exchanged, a record added or removed costs at most log E[exp(k s)]; a changed one
    log R with sum_k P(k) max(exp(k s) - R, 1 - R exp(-k s)) = 0 (``bootstrap_loss``). The noise is
    scaled so that this is epsilon.

    Guarantee: strict. Let p_k be the output density given k copies. p_k / p_0 and p_k / p'_k, p' of
    the neighbour, lie within exp(+-k s), and p'_0 = p_0; the largest ratio of the mixtures under
    these bounds is R.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``_Table``.
        resample: bootstrap, or one table for all.
    """

    resample: bool = True
    name: ClassVar[str] = "empirical-bootstrap"
    summary: ClassVar[str] = "bootstrap samples behind noisy tables, accounted for; strict ε-DP"

    @property
    def halves(self) -> bool:
        return super().halves and not self.resample

    @property
    def sets_per_draw(self) -> int:
        return 1 if self.resample else 0

    def sanitise(self, prepared: PreparedTable, noise: Noise) -> Floats:
        if not self.resample:
            return super().sanitise(prepared, noise)
        largest = int(prepared.sizes.max())
        epsilon = bootstrap_epsilon(self.epsilon, self.adjacency, largest)
        found = [
            noisy_counts(
                _bootstrap(row, noise), n, epsilon, "substitution", noise, self.out_of_range
            )
            for row, n in zip(prepared.counts, prepared.sizes, strict=True)
        ]
        return np.stack(found).astype(float)


def _bootstrap(counts: Ints, noise: Noise) -> Ints:
    """Counts of as many records, drawn with replacement."""
    n = int(counts.sum())
    records = noise.below(np.full(n, n)).astype(np.int64)
    cell = np.searchsorted(np.cumsum(counts), records, side="right")
    return np.bincount(cell, minlength=len(counts))


def bootstrap_loss(step: float, n: int, adjacency: Adjacency) -> float:
    """Loss of a mechanism on a bootstrap sample of n records, from n of them.

    Args:
        step: its loss when one record of the sample is exchanged.
    """
    k = np.arange(n + 1)
    weight = stats.binom.pmf(k, n, 1 / n)
    use = weight > 0
    k, weight = k[use], weight[use]
    with np.errstate(over="ignore"):
        up, down = np.exp(k * step), np.exp(-k * step)
    most = float(weight @ up)
    if adjacency == "add-remove":
        return math.log(most)

    def excess(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        return float(weight @ np.maximum(up - ratio, 1 - ratio * down))

    top = math.log(most) - math.log(float(weight @ down))
    return float(optimize.brentq(excess, 0.0, top + 1e-9, xtol=1e-12)) + 1e-11


@lru_cache(maxsize=256)
def bootstrap_epsilon(epsilon: float, adjacency: Adjacency, n: int) -> float:
    """The largest loss of one exchanged record found for which a bootstrap costs ``epsilon``."""
    low, high = 0.0, epsilon
    while high - low > 1e-9 * epsilon:
        middle = (low + high) / 2
        if bootstrap_loss(middle, n, adjacency) <= epsilon:
            low = middle
        else:
            high = middle
    return low
