"""Private posterior draws by a public grid over the parameters (Liu, algorithms 2 to 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.lazy import special
from dpbayes.mechanisms.modips.statistic_model import Scalar
from dpbayes.mechanisms.tables.noisy import proportions
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for

WIDE = 3.0  # half-width of a standardised grid in standard deviations


@dataclass(frozen=True)
class CellGrid:
    """Grid of equal cells over public or privately estimated ranges of the parameters.

    Attributes:
        edges: edges of the cells along each parameter, shape (cells + 1,) each.
        middle: constant that is subtracted from log densities before clipping.
    """

    edges: list[Floats]
    middle: float = 0.0

    @classmethod
    def over(cls, ranges: list[tuple[float, float]], cells: int) -> CellGrid:
        """Divide each range into ``cells`` cells."""
        return cls([np.linspace(low, high, cells + 1) for low, high in ranges])

    @classmethod
    def standard(
        cls, points: Floats, ranges: list[tuple[float, float]], cells: int
    ) -> tuple[CellGrid, float, float]:
        """Grid over the mean of points +- ``WIDE`` standard deviations, and the bounds A and G.

        The points stand for a multivariate normal posterior whose correlations are 0, as those of
        the models here are. Its density falls from the mean to a corner by exp(-p WIDE^2 / 2):
        half of that exponent is A, about the middle. G is such that G times the volume of a cell is
        the largest probability of one, (Φ(h/2) - Φ(-h/2))^p.

        Source: liu-2016, section 3.3 normal.

        Args:
            points: posterior draws given noisy statistics, shape (parameters, draws).
            ranges: public range of each parameter.
            cells: number of cells along each parameter.
        """
        edges, spread = [], 1.0
        for values, (low, high) in zip(points, ranges, strict=True):
            sd = min(max(float(np.std(values)), 1e-6 * (high - low)), high - low)
            mean = float(np.clip(np.mean(values), low, high))
            least, most = max(mean - WIDE * sd, low), min(mean + WIDE * sd, high)
            edges.append(np.linspace(least, most, cells + 1))
            spread *= sd
        p = len(edges)
        highest = -p / 2 * math.log(2 * math.pi) - math.log(spread)
        bound = p * WIDE**2 / 4
        grid = cls(edges, highest - bound)
        share = math.erf(WIDE / cells / math.sqrt(2)) ** p  # h / 2 = WIDE / cells
        return grid, bound, share / grid.volume

    @property
    def volume(self) -> float:
        """Volume of one cell."""
        return math.prod(float(e[1] - e[0]) for e in self.edges)

    def midpoints(self) -> Floats:
        """Midpoints of the cells, shape (cells, parameters)."""
        middle = [(e[1:] + e[:-1]) / 2 for e in self.edges]
        return np.stack([m.ravel() for m in np.meshgrid(*middle, indexing="ij")], axis=1)

    def inside(self, cell: int, rng: np.random.Generator) -> Floats:
        """Draw a point uniformly in a cell, shape (parameters,)."""
        place = np.unravel_index(cell, [len(e) - 1 for e in self.edges])
        return np.array(
            [rng.uniform(e[i], e[i + 1]) for e, i in zip(self.edges, place, strict=True)]
        )

    def log_density(self, fitted: Scalar[Any]) -> Floats:
        """Log posterior density at the midpoints, normalised over the grid, less ``middle``.

        Source: liu-2016, section 3.3 midpoint.
        """
        logs = fitted.log_density(self.midpoints())
        logs = np.where(np.isnan(logs), -np.inf, logs)
        total = special.logsumexp(logs)
        if not np.isfinite(total):  # a grid that holds none of the posterior
            return np.full(logs.size, -np.inf)
        return np.asarray(logs - total - math.log(self.volume) - self.middle)


def sdd(fitted: Scalar[Any], grid: CellGrid, bound: float, epsilon: float, noise: Noise) -> Floats:
    """Draw a cell by the exponential mechanism on log mass, then a point inside (algorithm 2).

    Log densities are clipped to [-bound, bound] = [-A, A], so that A holds for every data set.

    Source: liu-2016, algorithm 2; proposition 3; mcsherry-talwar-2007.

    Sensitivity: 2A (proposition 3), the whole range of the utility. So epsilon holds between any
    two data sets, not only neighbours, and more records buy no accuracy.

    Guarantee: epsilon-DP, scale 2 x 2A / epsilon.
    """
    # All cells have one volume: log density is log mass up to a constant, which changes no choice.
    utility = np.clip(grid.log_density(fitted), -bound, bound)
    sensitivity = 2 * bound
    cell = noise.select(utility, scale_for(2 * sensitivity, epsilon))
    return grid.inside(cell, noise.rng)


def sdd_mc(
    fitted: Scalar[Any], grid: CellGrid, bound: float, epsilon: float, noise: Noise, samples: int
) -> Floats:
    """Add Laplace noise to the logs of a histogram of posterior draws (algorithm 3).

    Source: liu-2016, algorithm 3; proposition 4.

    Sensitivity: 2A for one of the b cells (proposition 4), and all of them move when a record
    does. The paper's noise of scale 2A / epsilon in each costs b epsilon; here it is 2A b /
    epsilon.

    Guarantee: epsilon-DP, for any two data sets, as in ``sdd``.
    """
    counts = _histogram(fitted, grid, samples, noise)
    with np.errstate(divide="ignore"):
        logs = np.clip(
            np.log(counts / samples) - math.log(grid.volume) - grid.middle, -bound, bound
        )
    noisy = noise.reals(logs, scale_for(2 * bound * logs.size, epsilon))
    return _draw(np.exp(noisy - noisy.max()), grid, noise.rng)


def sphc(
    fitted: Scalar[Any], grid: CellGrid, bound: float, epsilon: float, noise: Noise, samples: int
) -> Floats:
    """Add Laplace noise to the counts of a histogram of posterior draws (algorithm 4).

    Counts are clipped at N G V, for a density of at most G = ``bound`` on cells of volume V.

    Source: liu-2016, algorithm 4; proposition 5.

    Sensitivity: N G V for one cell (proposition 5); for all together the sum over cells, and never
    above 2N. The paper's noise of scale N G V / epsilon in each cell costs as many epsilons as
    there are cells.

    Guarantee: epsilon-DP, for any two data sets.
    """
    most = math.floor(samples * bound * grid.volume)
    counts = np.minimum(_histogram(fitted, grid, samples, noise), most)
    sensitivity = min(2 * samples, most * counts.size)
    noisy = noise.counts(counts, scale_for(max(1, sensitivity), epsilon))
    return _draw(np.maximum(noisy, 0).astype(float), grid, noise.rng)


def _histogram(fitted: Scalar[Any], grid: CellGrid, samples: int, noise: Noise) -> Floats:
    # A separate generator: otherwise later draws would depend on how many numbers exact draws use.
    (rng,) = noise.rng.spawn(1)
    exact = {s.name: np.full(samples, s.exact) for s in fitted.statistics}
    points = np.reshape(fitted.draw(exact, rng), (len(grid.edges), samples))
    inside = [np.clip(p, e[0], e[-1]) for p, e in zip(points, grid.edges, strict=True)]
    counts, _ = np.histogramdd(np.column_stack(inside), grid.edges)
    return np.asarray(counts.ravel())


def _draw(weights: Floats, grid: CellGrid, rng: np.random.Generator) -> Floats:
    return grid.inside(int(rng.choice(weights.size, p=proportions(weights))), rng)


GRIDDED: dict[str, Callable[..., Floats]] = {"sdd": sdd, "sdd-mc": sdd_mc, "sphc": sphc}
