"""Contingency tables and histograms with discrete Laplace noise in every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ModelFreeFitted, ModelFreeMechanism
from dpbayes.mechanisms.forecast import Forecast, noise_share, of_cells
from dpbayes.mechanisms.tables.cells import BIN_RULES, BinRule, TableCells, check_cells
from dpbayes.privacy.guarantee import Adjacency, inside
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import OUT_OF_RANGE, Change, Statistic
from dpbayes.schema import Schema
from dpbayes.stan.model import Model

TableRange = Literal["zero", "bit", "truncate"]
# One record is in one cell; a changed one leaves a cell and enters another.
IN_ONE_CELL: dict[Adjacency, Change] = {
    "add-remove": Change(1, 1),
    "substitution": Change(1, 2, norm=math.sqrt(2)),
}


def noisy_counts(
    counts: Ints,
    most: float,
    epsilon: float,
    adjacency: Adjacency,
    noise: Noise,
    out_of_range: TableRange = "bit",
) -> Ints:
    """Add discrete Laplace noise to counts of disjoint cells; the result is at or above 0.

    Args:
        counts: shape (..., K).
        most: public number of records, or inf for no upper limit.
        out_of_range: ``zero`` and ``bit`` move negative counts to 0, and ``bit`` moves counts above
            ``most`` to it; ``truncate`` draws again (``Statistic.sanitised``).

    Source: dwork-mcsherry-nissim-smith-2006; bowen-liu-2020, section 3.1.1; theorem 2.2.

    Sensitivity: one record is in one cell, so that L1 = 1 for add/remove and 2 for substitution,
    for any number of records.
    """
    upper = math.inf if out_of_range == "zero" else float(most)
    how: Literal["bit", "truncate"] = "truncate" if out_of_range == "truncate" else "bit"
    table = Statistic("counts", counts, IN_ONE_CELL, 0, upper, integer=True)
    return table.sanitised(epsilon, adjacency, noise, how)


@dataclass(frozen=True)
class NoisyTable(ModelFreeMechanism):
    """Base of the mechanisms that release a noisy table.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``.
        bins: rule for numeric columns, or one rule by column: ``log``, ``sqrt``, ``scott``, a
            number, or edges (``cells.make_axis``).
        sigma: public standard deviations by column, for ``scott``.
        out_of_range: ``zero``, ``bit`` or ``truncate`` (``noisy_counts``).
    """

    epsilon: float
    adjacency: Adjacency | None = None
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

    def check_columns(self, schema: Schema) -> None:
        check_cells(schema, self.bins, self.sigma)

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedTable:
        return FittedTable(self, schema, records, rows)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        cells = TableCells.of(schema, rows, self.bins, self.sigma)
        size = cells.strata * cells.size
        share = self.noise_share(cells, rows)
        least = "at least" if cells.strata == 1 else "about"
        message = (
            f"{least} {{}} of the rows will come from cells that hold no record, by noise alone"
        )
        return of_cells(size, rows, share, self.epsilon, message)

    @property
    def step(self) -> float:
        """Pure-DP loss when the counts change by 1 in L1."""
        return self.epsilon / IN_ONE_CELL[self.neighbours].l1

    def noise_share(self, cells: TableCells, rows: int) -> float:
        """Expected share of rows from noise alone, at least, if all strata are of equal size."""
        return noise_share(cells.size, max(1, rows // cells.strata), self.step)

    def sanitise(self, fitted: FittedTable, noise: Noise) -> Floats:
        """Cell weights at or above 0, shape (strata, K)."""
        return self.with_noise(fitted.counts, fitted.sizes, self.epsilon, noise)

    def with_noise(self, counts: Ints, sizes: Ints | None, epsilon: float, noise: Noise) -> Floats:
        """Add noise to counts; with two cells and a public sum only to one of them.

        Args:
            sizes: public number of records of each stratum, or None.
        """
        if sizes is None:
            return self._noisy(counts, math.inf, epsilon, noise)
        two = counts.shape[1] == 2 and self.out_of_range != "zero"
        pairs = zip(counts, sizes.tolist(), strict=True)
        noisy = [self._noisy(row[1:] if two else row, n, epsilon, noise) for row, n in pairs]
        if two:
            noisy = [
                np.array([n - first[0], first[0]]) for first, n in zip(noisy, sizes, strict=True)
            ]
        return np.stack(noisy)

    def _noisy(self, counts: Ints, most: float, epsilon: float, noise: Noise) -> Floats:
        noisy = noisy_counts(counts, most, epsilon, self.neighbours, noise, self.out_of_range)
        return noisy.astype(float)


class FittedTable(ModelFreeFitted[Floats]):
    """Exact counts of the n records by stratum and cell, shape (strata, K).

    Attributes:
        cells: axes of the table; public.
        stratum: stratum number of each record, shape (n,), if there are public columns; else None.
        sizes: number of records in each stratum, shape (strata,), if n is public; else None.
    """

    mechanism: NoisyTable
    stratum: Ints | None
    sizes: Ints | None

    def __init__(
        self, mechanism: NoisyTable, schema: Schema, records: pd.DataFrame, rows: int
    ) -> None:
        cells = TableCells.of(schema, rows, mechanism.bins, mechanism.sigma)
        super().__init__(
            mechanism, schema, {"cells": cells.strata * cells.size, "bins": cells.to_dict()}
        )
        self.cells = cells
        self.counts = cells.counts(records)
        self.stratum, self.sizes = None, None
        if cells.public_axes:
            self.stratum = cells.stratum(records)
            self.sizes = np.bincount(self.stratum, minlength=cells.strata)
        elif schema.rows.public:
            self.sizes = np.array([rows])

    def draw_private(self, noise: Noise) -> Floats:
        return self.mechanism.sanitise(self, noise)

    def synthetic(self, output: Floats, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        draw = apportion if self.mechanism.as_counts else draw_cells
        if self.stratum is None:
            drawn = draw(output[0], rows, rng)
        else:
            drawn = np.empty(rows, dtype=np.int64)
            for g in np.unique(self.stratum):
                members = np.flatnonzero(self.stratum == g)
                drawn[members] = draw(output[g], len(members), rng)
        return self.cells.decode(self.cells.unravel(drawn), rng)


def draw_cells(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Draw cells with probabilities proportional to weights; uniform if all weights are 0."""
    counts = rng.multinomial(size, proportions(weights))
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def apportion(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Draw cells in numbers proportional to weights, rounded at random by systematic sampling."""
    ends = np.cumsum(proportions(weights)) * size
    marks = np.floor(ends + rng.random())
    counts = np.diff(marks, prepend=0.0).astype(np.int64)
    counts[-1] += size - counts.sum()  # rounding of the last end
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def proportions(weights: Floats) -> Floats:
    """Weights divided by their sum; equal ones if all are 0."""
    total = weights.sum()
    return np.asarray(weights / total if total > 0 else np.full(len(weights), 1 / len(weights)))


@dataclass(frozen=True)
class Laplace(NoisyTable):
    """Full cross-tabulation with Laplace noise; numeric columns enter it by their bins.

    The noise is discrete Laplace.

    Source: dwork-mcsherry-nissim-smith-2006; bowen-liu-2020, section 3.1.1.

    Sensitivity: 1 for add/remove, 2 for substitution (``noisy_counts``), for any number of records:
    bins and scale follow public numbers only.

    Guarantee: strict. Counts plus noise of scale sensitivity / epsilon are epsilon-DP; synthesising
    any number of rows in proportion to them is post-processing. Strata of public columns are
    disjoint, so that epsilon is spent once.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``NoisyTable``.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> records = pd.DataFrame({"smoker": ["no", "yes", "no", "no", "yes"]})
        >>> smoker = dpb.Column("smoker", "binary", levels=("no", "yes"))
        >>> schema = dpb.Schema({"smoker": smoker}, rows=5)
        >>> dpb.Synthesizer(schema, dpb.Laplace(epsilon=1)).fit(records).sample()
        <Release 1 x 5 rows; laplace: ε = 1 (add/remove), 2 (substitution); strict ε-DP>
    """

    as_counts: ClassVar[bool] = True
    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "full cross-tabulation with Laplace noise; strict ε-DP"


@dataclass(frozen=True)
class PerturbedHistogram(NoisyTable):
    """Noisy histogram of the numeric columns inside each noisy cell of the others.

    Values are uniform inside their bin. If all columns have levels, or all are numeric, there is
    only one table, which gets all of epsilon.

    Source: wasserman-zhou-2010; hu-williams-savitsky, section 2.3; supplement 1; bowen-liu-2020,
    eq. 3.1; section 4.3.1.

    Sensitivity: 1 for add/remove, 2 for substitution, in each of the two tables, for any number of
    records.

    Guarantee: strict. ``share`` of epsilon is for the cells, the rest for the histograms, which
    are disjoint; the two compose.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``NoisyTable``.
        share: share of epsilon for the cells, in (0, 1).

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"income": dpb.Column("income", "continuous", lower=0, upper=9e4)})
        >>> mechanism = dpb.PerturbedHistogram(epsilon=1, bins={"income": 30})
        >>> mechanism.outlook(schema, 1000, None).facts["cells"]
        30
    """

    share: float = 0.5
    name: ClassVar[str] = "perturbed-histogram"
    summary: ClassVar[str] = "noisy histogram inside each noisy cell; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not inside(self.share, 0, 1):
            raise GuaranteeError(
                f"share = {self.share!r} must lie in (0, 1): the part of epsilon for the cells."
            )

    def noise_share(self, cells: TableCells, rows: int) -> float:
        levels = [axis.size for axis in cells.axes if axis.edges is None]
        if len(levels) in (0, len(cells.axes)):
            return super().noise_share(cells, rows)
        # From the cells alone: the noise of bins inside them depends on how records are spread.
        per_stratum = max(1, rows // cells.strata)
        return noise_share(math.prod(levels), per_stratum, self.share * self.step)

    def sanitise(self, fitted: FittedTable, noise: Noise) -> Floats:
        numeric = [j for j, axis in enumerate(fitted.cells.axes) if axis.edges is not None]
        if not numeric or len(numeric) == len(fitted.cells.axes):
            return super().sanitise(fitted, noise)
        shape = [axis.size for axis in fitted.cells.axes]
        over = tuple(1 + j for j in numeric)
        table = fitted.counts.reshape(-1, *shape)
        coarse = table.sum(axis=over)
        cells = self.with_noise(
            coarse.reshape(len(coarse), -1), fitted.sizes, self.share * self.epsilon, noise
        ).reshape(coarse.shape)
        bins = self.with_noise(
            fitted.counts, fitted.sizes, (1 - self.share) * self.epsilon, noise
        ).reshape(table.shape)
        total = bins.sum(axis=over, keepdims=True)
        uniform = 1 / math.prod(shape[j] for j in numeric)  # where noise left no bin
        inside = np.where(total > 0, bins / np.where(total > 0, total, 1), uniform)
        weights = np.expand_dims(cells, over) * inside
        return np.asarray(weights.reshape(fitted.counts.shape))
