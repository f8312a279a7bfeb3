"""Starting points of chains: after a pilot run of their own, or at the modes of a mixture.

A pilot run estimates a metric. Its chains start far apart, and each continues from its own last
point, so that R-hat still detects disagreement between them.

The posterior of a mixture has several modes. A chain that starts at random ends in some mode near
its start and never leaves it, even where that mode holds e^-100 of the posterior mass. So the mode
in which chains start is the mode that is released. Each start is drawn among the modes with
probability proportional to their estimated mass, as for an exact draw: there is no threshold that
one record could move a mode across. A mode that no climb finds is missed, and the chains do not
show it; the guarantee assumes an exact draw, and ``SEVERAL`` says so in the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr
from dpbayes.engines import get_engine
from dpbayes.engines.base import BoundModel, DensityModel, SamplerSettings
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.diagnostics import diagnose
from dpbayes.engines.draws import make_draws, stacked
from dpbayes.mechanisms.forecast import ForecastWarning
from dpbayes.stan.model import Model

MANY = 20  # parameters above which Stan's first estimates of a dense metric are far off
LONG = 500  # iterations of warm-up from which a pilot run is shorter than the warm-up itself
# A pilot run's warm-up and draws, each as a share of the warm-up asked for and a minimum (Stan
# adapts no metric in fewer than 150 iterations); and the least draws of all chains per parameter.
BEFORE = 0.15, 150
DRAWN = 0.1, 100
EACH = 8
AGREE = 1.1  # R-hat of a pilot run, below which its chains are taken to draw from one posterior
SPARE, MOST_ROUNDS = 4, 250  # random points tried for each start, and how often
CLIMBS = 30  # random points from which an optimiser climbs to a mode
WIDTH = 0.1  # half-width of starts around a mode, in units of 1 / sqrt(n), a posterior sd or so
SAME = 0.1, 0.5  # largest difference in log density, and in any coordinate, within one mode
SEVERAL = ForecastWarning(
    "The posterior of a mixture has several modes. Chains start at those that were found from "
    "random points, by what each is estimated to hold, and stay there: of a mode that was missed "
    "R-hat does not tell, and ε is of an exact draw.",
    'Take fewer components, another family, or `engine="candidates"`, which has no chains.',
)


class Pilot(NamedTuple):
    """Draws of a pilot run, and whether its chains agree by R-hat."""

    draws: xr.DataTree
    agree: bool


def piloted(
    bound: DensityModel,
    starts: xr.DataTree,
    settings: SamplerSettings,
    rng: np.random.Generator,
) -> Pilot | None:
    """Run the chains briefly from their starts; None where it would not save time.

    Stan's first two estimates of a dense metric use 25 and 50 draws of one chain. With more
    parameters than that they are nearly singular, and trajectories have hundreds of steps until
    the next estimate. Here the pilot run uses a diagonal metric, for which few draws are enough,
    and the main run begins with the covariances of the draws of all chains. Public facts decide
    whether there is a pilot run, and its chains only decide where the main run begins: the
    posterior is the same.
    """
    parameters = len(bound.coordinates())
    if settings.metric != "dense_e" or parameters <= MANY or settings.warmup < LONG:
        return None
    warmup, draws = (max(round(share * settings.warmup), least) for share, least in (BEFORE, DRAWN))
    draws = max(draws, math.ceil(EACH * parameters / settings.chains))
    seed = int(rng.integers(2**31))  # not the seed of the main run
    short = replace(settings, warmup=warmup, draws=draws, metric="diag_e", seed=seed)
    pilot_draws = bound.sample(replace(short, progress=False), starts)
    return Pilot(pilot_draws, diagnose(pilot_draws, settings.max_treedepth).max_rhat < AGREE)


def independent(points: Floats) -> bool:
    """Whether draws, shape (draws, d), show no more correlation than chance explains.

    A diagonal metric then takes fewer steps than a dense one, and each step costs less. The
    correlation matrix of N independent draws has eigenvalues within (1 ± sqrt(d / N))^2 (the law
    of Marchenko and Pastur): a condition number of twice their ratio is allowed.
    """
    share = math.sqrt(points.shape[1] / len(points))
    by_chance = ((1 + share) / (1 - share)) ** 2
    return bool(np.linalg.cond(np.atleast_2d(np.corrcoef(points.T))) < 2 * by_chance)


def climbed(
    bound: DensityModel, n: int, chains: int, rng: np.random.Generator
) -> xr.DataTree | None:
    """Draw a start for each chain at one of the modes; None if no mode was found.

    The mass of a mode is estimated as its height times the volume of the normal density with its
    curvature (Laplace's approximation). Starts are uniform around the mode, close enough to stay
    there, with 53 random bits for each coordinate, as for starts without modes.
    """
    size = len(bound.coordinates())
    climbs = [bound.mode(start) for start in rng.uniform(-2, 2, (CLIMBS, size))]
    heights = np.array([bound.density(mode)[0] for mode in climbs])
    order = np.argsort(-np.where(np.isfinite(heights), heights, -np.inf))
    modes: list[int] = []
    for i in order[np.isfinite(heights[order])]:
        if not any(
            heights[k] - heights[i] < SAME[0] and np.abs(climbs[k] - climbs[i]).max() < SAME[1]
            for k in modes
        ):
            modes.append(int(i))
    if not modes:
        return None
    log_masses = np.array([heights[i] + _log_volume(bound, climbs[i], n) for i in modes])
    if not np.isfinite(log_masses).any():
        return None
    shares = np.exp(log_masses - log_masses.max())
    picked = rng.choice(len(modes), size=chains, p=shares / shares.sum())
    around = rng.uniform(-1, 1, (chains, size)) * WIDTH / np.sqrt(n)
    points = np.stack([climbs[modes[i]] for i in picked]) + around
    if not np.isfinite([bound.density(point)[0] for point in points]).all():
        return None
    return make_draws(bound.constrain(points[None]))


def _log_volume(bound: DensityModel, mode: Vector, n: int) -> float:
    """Log volume of the normal density with a mode's curvature, up to a constant.

    It is -inf where a gradient is not finite. The curvature comes from differences of gradients
    over a step in which the kinks of a clamp average out. Directions in which the density does not
    fall count as wide as the prior.
    """
    step = WIDTH / np.sqrt(n)
    falls = np.empty((len(mode), len(mode)))
    for j, away in enumerate(step * np.eye(len(mode))):
        falls[j] = (bound.density(mode - away)[1] - bound.density(mode + away)[1]) / (2 * step)
    if not np.isfinite(falls).all():
        return -np.inf
    values = np.linalg.eigvalsh((falls + falls.T) / 2)
    return -0.5 * float(np.log(np.maximum(values, 1.0)).sum())


def random_starts(
    bound: BoundModel,
    source: BoundModel,
    chains: int,
    rng: np.random.Generator,
    mode: xr.DataTree | None,
) -> xr.DataTree | None:
    """Random points at which a density is positive, one for each chain, as one chain of draws.

    Args:
        bound: the density.
        source: draws the points, about 0 in unconstrained coordinates.
        mode: where the points lie instead of 0, or None.
    Returns:
        The starts; None if the source has no other points (recorded draws).
    Raises:
        EngineError: the density is 0 at nearly all points.
    """
    usable: list[dict[str, Any]] = []
    # An engine's own starts follow from its seed, which has 31 bits and can be enumerated.
    for _ in range(MOST_ROUNDS):
        try:
            points = source.random_points(SPARE * chains, int.from_bytes(rng.bytes(16)))
        except EngineError:
            return None
        if mode is not None:
            points = moved_to(source.density_model(), points, mode)
        values = {str(n): stacked(points, str(n)) for n in points["posterior"].data_vars}
        positive = np.flatnonzero(np.isfinite(bound.log_prob(points)))
        usable += [{name: value[k] for name, value in values.items()} for k in positive]
        if len(usable) >= chains:
            names = usable[0]
            return make_draws({n: np.stack([p[n] for p in usable[:chains]])[None] for n in names})
    raise EngineError(
        f"chains find no start: the density is 0 at nearly all of {MOST_ROUNDS * SPARE * chains:,} "
        "points between -2 and 2 (unconstrained). Declare the bounds of priors with the parameters."
    )


def moved_to(density: DensityModel, points: xr.DataTree, mode: xr.DataTree) -> xr.DataTree:
    """Move points that are scattered about 0 to a mode, in unconstrained coordinates."""
    there = density.unconstrain(points) + density.unconstrain(mode)
    values = density.constrain(there[None])
    return make_draws({str(name): values[str(name)] for name in points["posterior"].data_vars})


def mode_given(
    model: Model, data: Mapping[str, Any], count: int, held: Sequence[str] = ()
) -> xr.DataTree:
    """The mode given program data of made-up records, as one draw of the parameters.

    Args:
        data: program data, without the entries that the contract declares.
        count: number of records.
        held: parameters that are fixed at 0 in unconstrained coordinates.
    """
    compiled = get_engine("embedded").compile(model.program)
    bound = compiled.bind({**data, **contract_defaults(count)}).density_model()
    values = bound.constrain(bound.mode(held=held)[None, None])
    names = model.program.declared("parameters")
    return make_draws({name: values[name] for name in names if name in values})
