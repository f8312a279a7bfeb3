"""Synthesis from a noisy empirical distribution, and the privacy loss of bootstrapping records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError
from dpbayes.mechanisms.tables.noisy import FittedTable, NoisyTable, noisy_counts
from dpbayes.privacy.accounting import Loss
from dpbayes.privacy.guarantee import Adjacency
from dpbayes.privacy.noise import Noise


@dataclass(frozen=True)
class EmpiricalBootstrap(NoisyTable):
    """Draws from a noisy empirical distribution, of all records or of a bootstrap sample each.

    ``resample=False`` (Liu, figure 5a): one noisy table, which spends epsilon once, and from which
    every data set is drawn. ``resample=True`` (figure 5b): each data set has its own bootstrap
    sample of the records, noisy table and epsilon; so the data sets also show sampling variability.

    Every record has Poisson(1) copies, independently (Poisson bootstrap). With n draws with
    replacement, as in the paper, the distribution of the number of copies, and with it the cost,
    would depend on n, which may be confidential.

    Source: liu-2016, section 3.5; figure 5.

    Sensitivity: 1 or 2 for one copy of a record in the table. A bootstrap sample holds one record k
    times, so that noise scaled for one copy costs more than epsilon, which the paper leaves out.
    With noise of loss s for one copy the loss is exp(s) - 1 for a record added or removed and
    exp(s) - exp(-s) for a changed one (``bootstrap_loss``), for any n. The noise is scaled so that
    this equals epsilon.

    Guarantee: strict. Let p_k be the output density given k copies of the record, all else summed
    out. p_k / p_0 lies within exp(+-k s), so that sum_k P(k) p_k, over p_0, lies between the means
    of exp(-k s) and exp(k s), exp(exp(-s) - 1) and exp(exp(s) - 1). A changed record has the same
    p_0 before and after: the ratio of its two mixtures is at most that of these means.

    Attributes:
        epsilon, adjacency, bins, sigma, out_of_range: as in ``NoisyTable``.
        resample: a bootstrap sample for each data set, or one table for all.

    Examples:
        >>> import dpbayes as dpb
        >>> schema = dpb.Schema({"smoker": dpb.Column("smoker", "binary", levels=("no", "yes"))})
        >>> dpb.EmpiricalBootstrap(epsilon=1).claim(schema).for_datasets(5).asked
        5.0
        >>> dpb.EmpiricalBootstrap(epsilon=1, resample=False).claim(schema).for_datasets(5).asked
        1.0
    """

    resample: bool = True
    name: ClassVar[str] = "empirical-bootstrap"
    summary: ClassVar[str] = "bootstrap samples behind noisy tables, accounted for; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.resample, bool):
            raise GuaranteeError(f"resample = {self.resample!r} must be true or false.")

    @property
    def loss(self) -> Loss:
        if not self.resample:
            return super().loss
        step = copy_loss(self.epsilon, self.neighbours)
        # The loss for the chosen adjacency is epsilon exactly; computing it would add rounding.
        least, changed = (
            self.epsilon if neighbour == self.neighbours else bootstrap_loss(step, neighbour)
            for neighbour in ("add-remove", "substitution")
        )
        return Loss.pure(least, changed=changed)

    @property
    def sets_per_output(self) -> int | None:
        return 1 if self.resample else None

    @property
    def step(self) -> float:
        return copy_loss(self.epsilon, self.neighbours) if self.resample else super().step

    def sanitise(self, fitted: FittedTable, noise: Noise) -> Floats:
        if not self.resample:
            return super().sanitise(fitted, noise)
        step = copy_loss(self.epsilon, self.neighbours)
        sample = bootstrap(fitted.counts, noise)
        counts = noisy_counts(sample, math.inf, step, "add-remove", noise, self.out_of_range)
        return counts.astype(float)


def bootstrap(counts: Ints, noise: Noise) -> Ints:
    """Draw counts by cell where every record has Poisson(1) copies; same shape as ``counts``.

    The sampler approximates the Poisson distribution from below (``Noise.poisson``), which is
    enough for ``bootstrap_loss``.
    """
    cell = np.repeat(np.arange(counts.size), counts.ravel())
    copies = np.zeros(counts.size, dtype=np.int64)
    np.add.at(copies, cell, noise.poisson(cell.size))
    return copies.reshape(counts.shape)


def bootstrap_loss(step: float, adjacency: Adjacency) -> float:
    """Pure-DP loss, for one record, of a mechanism that is run on a Poisson bootstrap sample.

    Args:
        step: loss of the mechanism when one copy is added to the sample or removed.
    """
    return math.expm1(step) if adjacency == "add-remove" else 2 * math.sinh(step)


def copy_loss(epsilon: float, adjacency: Adjacency) -> float:
    """Loss for one copy at which ``bootstrap_loss`` equals ``epsilon``."""
    return math.log1p(epsilon) if adjacency == "add-remove" else math.asinh(epsilon / 2)
