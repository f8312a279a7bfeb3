"""The empirical distribution behind a noisy table, and what a bootstrap of the records costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.mechanisms.tables.noisy import FittedTable, NoisyTable, noisy_counts
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise


@dataclass(frozen=True)
class EmpiricalBootstrap(NoisyTable):
    """Data sets from a sanitised empirical distribution, by a bootstrap or from one for all.

    ``resample=False`` (Liu, figure 5a): one noisy table, paid once, from which every data set is
    drawn. ``resample=True`` (figure 5b): each data set has a bootstrap sample of the records, its
    noisy table, and its own cost; so the data sets also show the sampling variability.

    The bootstrap is Poisson's: every record has Poisson(1) copies, independently. With n draws with
    replacement, as in the paper, the number of a record's copies depends on n, and so does the
    cost, where n may be confidential.

    Source: liu-2016, section 3.5; figure 5.

    Sensitivity: of the table 1 or 2, for one copy. A bootstrap sample holds one record k times, so
    that noise for one copy costs more than epsilon, of which the paper says nothing. With noise at
    a loss s for one copy it is exp(s) - 1 for a record added or removed and exp(s) - exp(-s) for a
    changed one (``bootstrap_loss``), whatever n is. The noise is scaled so that this is epsilon.

    Guarantee: strict. Let p_k be the output density given k copies of the record, all else summed
    out. p_k / p_0 lies within exp(+-k s), so that sum_k P(k) p_k, over p_0, lies between the means
    of exp(-k s) and exp(k s), exp(exp(-s) - 1) and exp(exp(s) - 1). A changed record has the same
    p_0 before and after: the ratio of its two mixtures is at most that of these means.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``NoisyTable``.
        resample: bootstrap, or one table for all.
    """

    resample: bool = True
    name: ClassVar[str] = "empirical-bootstrap"
    summary: ClassVar[str] = "bootstrap samples behind noisy tables, accounted for; strict ε-DP"

    @property
    def loss(self) -> Loss:
        if not self.resample:
            return super().loss
        step = copy_loss(self.epsilon, self.adjacency)
        # The one of the chosen adjacency is epsilon, but for rounding.
        least, changed = (
            self.epsilon if one == self.adjacency else bootstrap_loss(step, one)
            for one in ("add-remove", "substitution")
        )
        return Loss.pure(least, changed=changed)

    @property
    def sets_per_output(self) -> int | None:
        return 1 if self.resample else None

    @property
    def step(self) -> float:
        return copy_loss(self.epsilon, self.adjacency) if self.resample else super().step

    def sanitise(self, fitted: FittedTable, noise: Noise) -> Floats:
        if not self.resample:
            return super().sanitise(fitted, noise)
        step = copy_loss(self.epsilon, self.adjacency)
        sample = bootstrap(fitted.counts, noise)
        found = noisy_counts(sample, math.inf, step, "add-remove", noise, self.out_of_range)
        return found.astype(float)


def bootstrap(counts: Ints, noise: Noise) -> Ints:
    """Counts of records by cell where every record has Poisson(1) copies, of the same shape.

    The copies' distribution is Poisson's from below (``Noise.poisson``), which is all that
    ``bootstrap_loss`` needs.
    """
    cell = np.repeat(np.arange(counts.size), counts.ravel())
    found = np.zeros(counts.size, dtype=np.int64)
    np.add.at(found, cell, noise.poisson(cell.size))
    return found.reshape(counts.shape)


def bootstrap_loss(step: float, adjacency: Adjacency) -> float:
    """Loss of a mechanism on a Poisson bootstrap sample of the records, for one record.

    Args:
        step: its loss when one copy is added to the sample or removed.
    """
    return math.expm1(step) if adjacency == "add-remove" else 2 * math.sinh(step)


def copy_loss(epsilon: float, adjacency: Adjacency) -> float:
    """The loss for one copy at which ``bootstrap_loss`` is ``epsilon``."""
    return math.log1p(epsilon) if adjacency == "add-remove" else math.asinh(epsilon / 2)
