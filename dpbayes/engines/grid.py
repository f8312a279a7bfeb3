"""The exact engine: the posterior on a public grid, summed and sampled without a Markov chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.arrays import Floats, Vector
from dpbayes.engines.base import SamplerSettings, StanData
from dpbayes.engines.draws import SAMPLER_STATS, make_draws
from dpbayes.engines.embedded import EmbeddedBinding, EmbeddedEngine, EmbeddedModel
from dpbayes.errors import EngineError
from dpbayes.heavy import special, xr
from dpbayes.privacy.guarantee import Draw
from dpbayes.stan.program import StanProgram

MOST_PARAMETERS = 3
POINTS = {1: 2**14, 2: 2**18, 3: 2**20}  # in all, by number of parameters
TAIL = 1e-3  # prior probability beyond either end of each axis, before widening
WIDEN = 0.25  # of the length between those ends, added at either side: priors are heavy-tailed
# A sum over a lattice of spacing h stands for the integral of a normal density of sd s up to
# exp(-2 pi^2 (s/h)^2), which is below 1% down to s = h/2.
LEAST_SD = 0.5  # posterior sd in cells
MOST_EDGE = 0.02  # posterior probability in the outermost cells
_PRIOR = SamplerSettings(chains=4, warmup=1000, draws=5000, seed=1, metric="dense_e")


@dataclass(frozen=True)
class Grid:
    """Points of the parameter space, fixed without any confidential value.

    Attributes:
        axes: d increasing arrays, equally spaced in unconstrained coordinates (cell centres).
        points: shape (G, d), all combinations, the last axis fastest.
        draws: the same points as constrained parameters, one chain of G draws.
    """

    axes: tuple[Vector, ...]
    points: Floats
    draws: xr.DataTree

    @property
    def cell(self) -> Vector:
        """Shape (d,), widths of a cell."""
        return np.array([axis[1] - axis[0] for axis in self.axes])


class ExactEngine:
    """Draws from the posterior restricted to a grid: exact, for up to three parameters.

    Source: mcsherry-talwar-2007; hu-williams-savitsky, definition 2; eq. 1.1.

    Guarantee: with each record's term in a window of width w, the normalised probability of every
    grid point changes by at most a factor exp(w) when one record is added or removed, and each
    draw is one categorical draw from them (exponential mechanism,
    McSherry & Talwar 2007). No chain has to converge. What is left out is floating-point
    rounding, relative 1e-16 in each log density term, and that a uniform of 53 bits never reaches
    probabilities below 2^-53.

    The grid covers the central 99.8 % of the *prior* along each axis and a quarter of that length
    on either side, which truncates the prior there: a public change. Its ends come from draws of
    the prior with a fixed seed.

    Args:
        points: of the grid in all; by default 2^14, 2^18, 2^20 for one, two, three parameters.
        jitter: add uniform noise within the cell, in unconstrained coordinates.
    """

    name = "exact"
    draw: Draw = "grid"

    def __init__(self, points: int | None = None, *, jitter: bool = False) -> None:
        if points is not None and (not isinstance(points, int) or points < 8):
            raise EngineError(f"points = {points!r} must be a whole number, at least 8.")
        self.points = points
        self.jitter = jitter
        self._embedded = EmbeddedEngine()

    def versions(self) -> dict[str, str]:
        return self._embedded.versions()

    def compile(self, program: StanProgram) -> ExactModel:
        return ExactModel(self, self._embedded.compile(program))


class ExactModel:
    """A program for the grid."""

    def __init__(self, engine: ExactEngine, model: EmbeddedModel) -> None:
        self._engine = engine
        self._model = model

    def bind(self, data: StanData) -> ExactBinding:
        bound = self._model.bind(data)
        return ExactBinding(self._engine, bound, _GridMaker(self._engine, bound, int(data["n"])))


class ExactBinding:
    """A program with data, evaluated by the embedded engine."""

    def __init__(self, engine: ExactEngine, bound: EmbeddedBinding, maker: _GridMaker) -> None:
        self._engine = engine
        self._bound = bound
        self._maker = maker

    def rebind(self, **changes: Any) -> ExactBinding:
        # The grid is that of the prior, which no weight, anchor, window or record changes.
        return ExactBinding(self._engine, self._bound.rebind(**changes), self._maker)

    def grid(self) -> Grid:
        """The public grid of this program with this n and these public constants."""
        return self._maker.grid

    def log_posterior(self, grid: Grid) -> Vector:
        """Log probabilities of the grid's points, shape (G,), normalised over the grid.

        ``grid`` may come from another binding, such as that of a neighbouring data set.
        """
        # Another n may give other unconstrained coordinates to the same parameters.
        if self._maker.made(grid):
            log_density = self._bound.log_density(grid.points)
        else:
            log_density = self._bound.log_prob(grid.draws)
        log_density[np.isnan(log_density)] = -np.inf
        total = special.logsumexp(log_density)
        if not np.isfinite(total):
            raise EngineError("the density is 0 or infinite at every point of the grid.")
        return np.asarray(log_density - total)

    def sample(self, settings: SamplerSettings, starts: xr.DataTree | None = None) -> xr.DataTree:
        """Independent draws; of the settings only chains, draws and seed are used."""
        grid = self.grid()
        log_posterior = self.log_posterior(grid)
        probability = np.exp(log_posterior)
        probability /= probability.sum()
        self._check(grid, probability)
        rng = np.random.default_rng(settings.resolved_seed())
        shape = (settings.chains, settings.draws)
        index = rng.choice(probability.size, size=shape, p=probability)
        points = grid.points[index]
        if self._engine.jitter:
            points = points + rng.uniform(-0.5, 0.5, points.shape) * grid.cell
        stats = {
            key: np.zeros(shape, dtype=bool if name == "diverging" else float)
            for key, name in SAMPLER_STATS.items()
        }
        stats["lp__"] = log_posterior[index]
        stats["energy__"] = -stats["lp__"]
        stats["accept_stat__"] = np.ones(shape)
        return make_draws(self._bound.constrain(points), stats)

    def random_points(self, count: int, seed: int) -> xr.DataTree:
        return self._bound.random_points(count, seed)

    def log_prob(self, draws: xr.DataTree) -> Vector:
        return self._bound.log_prob(draws)

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        return self._bound.log_lik(draws)

    def y_rep(self, draws: xr.DataTree, index: int, seed: int) -> NDArray[Any]:
        return self._bound.y_rep(draws, index, seed)

    def _check(self, grid: Grid, probability: Vector) -> None:
        """Refuse a grid that cannot show the posterior; the grid itself is never changed by it."""
        cube = probability.reshape([axis.size for axis in grid.axes])
        for k, axis in enumerate(grid.axes):
            margin = cube.sum(axis=tuple(j for j in range(cube.ndim) if j != k))
            mean = margin @ axis
            sd = np.sqrt(margin @ (axis - mean) ** 2) / grid.cell[k]
            remedy = (
                "Use more points (--grid-points), a prior nearer to what "
                "is publicly known, or the embedded engine."
            )
            if sd < LEAST_SD:
                raise EngineError(
                    f"the posterior is too narrow for the grid: its sd along parameter {k + 1} of "
                    f"{cube.ndim} is {sd:.2g} cells. {remedy}"
                )
            if margin[0] + margin[-1] > MOST_EDGE:
                raise EngineError(
                    f"the posterior lies at the edge of the grid along parameter {k + 1} of "
                    f"{cube.ndim}, where the prior has less than {TAIL:g}. Use a wider prior."
                )


class _GridMaker:
    """Makes the grid once for a program, its public constants and n."""

    def __init__(self, engine: ExactEngine, bound: EmbeddedBinding, n: int) -> None:
        self._points = engine.points
        self._bound = bound
        self._n = n

    def made(self, grid: Grid) -> bool:
        return grid is vars(self).get("grid")  # not to make one for the question

    @cached_property
    def grid(self) -> Grid:
        prior = self._bound.rebind(weights=np.zeros(self._n), anchor=np.zeros(self._n))
        entries = sum(
            values.size for values in prior.random_points(1, seed=1)["posterior"].data_vars.values()
        )
        if entries > MOST_PARAMETERS:
            raise EngineError(
                f"the exact engine takes up to {MOST_PARAMETERS} parameters, the program has "
                f"{entries}. Leave out covariates or groups, or use --engine embedded."
            )
        if not entries:
            raise EngineError("the program has no parameters to draw.")
        draws = prior.unconstrain(prior.sample(_PRIOR))
        size = round((self._points or POINTS[entries]) ** (1 / entries))
        ends = np.quantile(draws, [TAIL, 1 - TAIL], axis=0)
        more = WIDEN * (ends[1] - ends[0])
        spans = zip(ends[0] - more, ends[1] + more, strict=True)
        axes = tuple(np.linspace(low, high, size) for low, high in spans)
        mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, entries)
        constrained = self._bound.constrain(mesh[None])
        return Grid(axes, mesh, make_draws(constrained))
