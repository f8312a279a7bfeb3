"""Urn mechanisms: rows drawn from the confidential records and α extra records in every cell.

Four mechanisms of the literature are such urns: with every drawn record put back twice (Pólya's
urn, the Dirichlet-multinomial distribution) or once, over K cells or two. Draws are exact: α is
rounded up to a multiple of 2^-30, and every draw is a uniform whole number.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ModelFreeFitted, ModelFreeMechanism
from dpbayes.mechanisms.forecast import Forecast, of_cells, urn_share
from dpbayes.mechanisms.tables.cells import BinRule, TableCells, check_cells
from dpbayes.privacy.guarantee import SECRET_DRAWS, Adjacency
from dpbayes.privacy.noise import BALLS, Noise
from dpbayes.schema import Schema
from dpbayes.schema.columns import listed_columns
from dpbayes.stan.model import Model


@dataclass(frozen=True)
class Urn(ModelFreeMechanism):
    """Base of the urn mechanisms: their settings and the sampling.

    Attributes:
        epsilon: privacy loss of one data set; it holds for both adjacencies.
        adjacency: neighbouring relation that epsilon is for, as in ``NoisyMechanism``.
        bins, sigma: bins of numeric columns, as in ``NoisyTable``.
    """

    epsilon: float
    adjacency: Adjacency | None = None
    bins: BinRule | Mapping[str, BinRule] = "sqrt"
    sigma: Mapping[str, float] | None = None
    both: ClassVar[bool] = True
    randomness: ClassVar[str] = SECRET_DRAWS
    doubled: ClassVar[bool]

    @staticmethod
    @abstractmethod
    def least_alpha(epsilon: float, size: int) -> float:
        """Extra records per cell that a data set of ``size`` records at ``epsilon`` needs."""

    @classmethod
    def alpha_at(cls, epsilon: float, size: int) -> float:
        """Extra records per cell: ``least_alpha`` rounded up to a multiple of 2^-30."""
        return balls(cls.least_alpha(epsilon, size)) / BALLS

    def alpha(self, size: int) -> float:
        """Extra records per cell for a data set of ``size`` records."""
        return self.alpha_at(self.epsilon, size)

    def check_columns(self, schema: Schema) -> None:
        check_cells(schema, self.bins, self.sigma)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        cells = TableCells.of(schema, rows, self.bins, self.sigma)
        per_stratum = max(1, rows // cells.strata)  # as if strata were of equal size
        share = urn_share(cells.size, per_stratum, self.alpha(per_stratum))
        message = "{} of the rows will be uniform over them"
        return of_cells(cells.strata * cells.size, rows, share, self.epsilon, message)

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedUrn:
        return FittedUrn(self, schema, records, rows)


class FittedUrn(ModelFreeFitted[Ints]):
    """Cell of each of the n records on each axis, shape (n, axes).

    Attributes:
        cells: axes of the table; public.
        places: row numbers of the records in each non-empty stratum of the public columns, which
            have an urn each; None without public columns, for one urn.
        rows: public number of synthetic records.
    """

    mechanism: Urn
    places: list[Ints] | None

    def __init__(self, mechanism: Urn, schema: Schema, records: pd.DataFrame, rows: int) -> None:
        cells = TableCells.of(schema, rows, mechanism.bins, mechanism.sigma)
        self.cells, self.rows, self.places = cells, rows, None
        self.codes = cells.codes(records)
        sizes = [rows]
        if cells.public_axes:
            stratum = cells.stratum(records)
            self.places = [np.flatnonzero(stratum == g) for g in np.unique(stratum)]
            sizes = [len(place) for place in self.places]
        alphas = sorted({mechanism.alpha(size) for size in sizes})
        settings = {
            "alpha": alphas[0] if len(alphas) == 1 else alphas,
            "cells": cells.strata * cells.size,
            "bins": cells.to_dict(),
        }
        super().__init__(mechanism, schema, settings)

    def draw_private(self, noise: Noise) -> Ints:
        if self.places is None:
            return self._drawn(self.codes, self.rows, noise)
        drawn = np.empty_like(self.codes)
        for place in self.places:
            drawn[place] = self._drawn(self.codes[place], len(place), noise)
        return drawn

    def _drawn(self, codes: Ints, size: int, noise: Noise) -> Ints:
        sizes = [axis.size for axis in self.cells.axes]
        extra = balls(self.mechanism.least_alpha(self.mechanism.epsilon, size))
        return noise.urn(codes, sizes, extra, size, doubled=self.mechanism.doubled)

    def most_rows(self, rows: int) -> int:
        return rows

    def synthetic(self, output: Ints, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        return self.cells.decode(output[:rows], rng)  # draws are exchangeable


def odds(x: float) -> float:
    """Return 1 / (e^x - 1) without overflow for large x."""
    return math.exp(-x) / -math.expm1(-x)


def balls(alpha: float) -> int:
    """Number of balls that stand for ``alpha`` extra records in a cell, rounded up."""
    return max(1, math.ceil(alpha * BALLS * (1 + 1e-12)))


@dataclass(frozen=True)
class MultinomialDirichlet(Urn):
    """Cell probabilities from a Dirichlet posterior, counts from a multinomial: Pólya's urn.

    Prior α = ñ / (e^ε - 1) in every cell, for ñ synthetic records.

    Source: machanavajjhala-2008; bowen-liu-2020, section 3.2.1.

    Sensitivity, for any number n of records and K of cells: synthetic records of which s are in a
    cell have a probability proportional to a (a + 1) ... (a + s - 1), a = α + the cell's records.
    Taking a record out of the cell divides that by r(a, s) = (a - 1 + s) / (a - 1), which is at
    least 1, and at most 1 + ñ/α since a - 1 >= α and s <= ñ. Substitution divides by one such
    factor and multiplies by another. Removing a record divides by r(a, s) and, for the urn's
    total A = K α + n >= a, multiplies by r(A, ñ), which is between 1 and 1 + ñ/α, too. Each time
    the log probability moves by at most log(1 + ñ/α) = ε.

    Guarantee: strict, epsilon for both adjacencies. The draws are the synthetic cells themselves;
    probabilities are not released. Strata of public columns are separate urns.

    Attributes:
        epsilon, adjacency, bins, sigma: as in ``Urn``.

    Examples:
        Each cell gets 58.2 extra records where 100 records are drawn:

        >>> import dpbayes as dpb
        >>> mechanism = dpb.MultinomialDirichlet(epsilon=1)
        >>> round(mechanism.alpha(100), 1)
        58.2
    """

    name: ClassVar[str] = "multinomial-dirichlet"
    summary: ClassVar[str] = "Dirichlet-multinomial cells with a prior for ε; strict ε-DP"
    doubled: ClassVar[bool] = True

    @staticmethod
    def least_alpha(epsilon: float, size: int) -> float:
        return size * odds(epsilon)


@dataclass(frozen=True)
class SmoothedHistogram(Urn):
    """Empirical distribution mixed with the uniform one over all cells.

    f* = (1 - λ) f + λ / K with λ = K / (K + ñ(e^{ε/ñ} - 1)) for ñ records, which is
    (n_k + α) / (n + K α) with α = 1 / (e^{ε/ñ} - 1) where ñ = n.

    Source: wasserman-zhou-2010; bowen-liu-2020, eq. 3.2; eq. 3.3.

    Sensitivity, for any number n of records and K of cells: one synthetic record is in cell k with
    probability (n_k + α) / A, A = n + K α. A record that leaves the cell divides n_k + α, and one
    that is removed divides A, by something between 1 and 1 + 1/α: what is left is at least α.
    Substitution has one factor in each direction at most, and so has a removal, which leaves the
    total as well as the cell: the log probability moves by at most log(1 + 1/α) = ε/ñ.

    Guarantee: strict, epsilon for both adjacencies, for ñ independent records together.

    Attributes:
        epsilon, adjacency, bins, sigma: as in ``Urn``.

    Examples:
        Each cell gets 99.5 extra records where 100 records are drawn:

        >>> import dpbayes as dpb
        >>> mechanism = dpb.SmoothedHistogram(epsilon=1)
        >>> round(mechanism.alpha(100), 1)
        99.5
    """

    name: ClassVar[str] = "smoothed-histogram"
    summary: ClassVar[str] = "histogram mixed with a uniform one; strict ε-DP"
    doubled: ClassVar[bool] = False

    @staticmethod
    def least_alpha(epsilon: float, size: int) -> float:
        return odds(epsilon / size)


def _require_binary(name: str, alternative: str, schema: Schema) -> None:
    columns = schema.confidential()
    if len(columns) != 1 or columns[0].type != "binary":
        raise SchemaError(
            f"{name} is for one confidential column of type binary; found "
            f"{listed_columns(columns)}. Take {alternative}."
        )


@dataclass(frozen=True)
class BetaBinomial(MultinomialDirichlet):
    """``MultinomialDirichlet`` for one binary column; the model of ``from_synthetic_counts``.

    Source: abowd-vilhuber-2008; charest-2011, section 2.2; bowen-liu-2020, section 3.2.1.

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> mechanism = dpb.BetaBinomial(epsilon=1)
        >>> mechanism.claim(schema).epsilon, round(mechanism.alpha(100), 1)
        (1.0, 58.2)
    """

    name: ClassVar[str] = "beta-binomial"
    summary: ClassVar[str] = "multinomial-dirichlet for one binary column; strict ε-DP"

    def check_columns(self, schema: Schema) -> None:
        _require_binary(self.name, "multinomial-dirichlet", schema)
        super().check_columns(schema)


@dataclass(frozen=True)
class BetaBinomialMR(SmoothedHistogram):
    """``SmoothedHistogram`` for one binary column: p = (n_1 + α) / (n + 2α), not drawn.

    Source: mcclure-reiter-2012; bowen-liu-2020, section 3.2.1.

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> mechanism = dpb.BetaBinomialMR(epsilon=1)
        >>> mechanism.claim(schema).epsilon, round(mechanism.alpha(100), 1)
        (1.0, 99.5)
    """

    name: ClassVar[str] = "beta-binomial-mr"
    summary: ClassVar[str] = "smoothed-histogram for one binary column; strict ε-DP"

    def check_columns(self, schema: Schema) -> None:
        _require_binary(self.name, "smoothed-histogram", schema)
        super().check_columns(schema)
