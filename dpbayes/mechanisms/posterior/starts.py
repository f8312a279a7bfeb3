"""Where chains start: after a pilot run of their own, or at the modes of a mixture.

A pilot run finds a metric. Chains start it far apart and go on from where it leaves them, each for
itself, so that R-hat still sees what they found.

The posterior of a mixture has several modes. A chain that starts at random ends in some mode near
its start and never leaves it, also where that mode holds e^-100 of the posterior. So the mode in
which chains start is the mode that is released. Each start is at a mode by what it is estimated to
hold of the posterior, as an exact draw is: no threshold that one record could move a mode across. A
mode that no climb finds is missed, and chains do not tell; the guarantee is of an exact draw, and
``SEVERAL`` says so beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.core.lazy import xr
from dpbayes.engines.base import SamplerSettings
from dpbayes.engines.diagnostics import diagnose
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.mechanisms.forecast import ForecastWarning

MANY = 20  # parameters above which Stan's first estimates of a dense metric are far off
LONG = 500  # iterations of warm-up from which a pilot run is shorter
# Of warm-up, in a pilot run: the part before its draws and the least, as Stan adapts no metric in
# fewer than 150; the part that is draws and the least, and draws of all chains for a parameter.
BEFORE = 0.15, 150
DRAWN = 0.1, 100
EACH = 8
AGREE = 1.1  # R-hat of a pilot run, below which its chains are taken to draw from one posterior
CLIMBS = 30  # random points from which a mode is looked for
WIDTH = 0.1  # of starts, in coordinates that n records tell to about 1 / sqrt(n)
SAME = 0.1, 0.5  # log density, and any coordinate, between climbs that ended in one mode
SEVERAL = ForecastWarning(
    "The posterior of a mixture has several modes. Chains start at those that were found from "
    "random points, by what each is estimated to hold, and stay there: of a mode that was missed "
    "R-hat does not tell, and ε is of an exact draw.",
    "Take fewer components, another family, or --engine candidates, which has no chains.",
)


class Pilot(NamedTuple):
    """Draws of a pilot run, and whether its chains agree."""

    draws: xr.DataTree
    agree: bool


def piloted(
    bound: EmbeddedBinding,
    starts: xr.DataTree,
    settings: SamplerSettings,
    rng: np.random.Generator,
) -> Pilot | None:
    """A short run of the chains from their starts; None where it would not pay.

    Stan's first two estimates of a dense metric are of 25 and 50 draws of one chain. With more
    parameters than that they are nearly singular, and trajectories have hundreds of steps until
    the next. Here a diagonal metric, which few draws tell, is followed by the covariances of what
    all chains drew. Whether that is done follows from public facts, and from the chains what they
    begin with: the posterior is the same.
    """
    size = len(bound.coordinates())
    if settings.metric != "dense_e" or size <= MANY or settings.warmup < LONG:
        return None
    before, draws = (max(round(part * settings.warmup), n) for part, n in (BEFORE, DRAWN))
    draws = max(draws, math.ceil(EACH * size / settings.chains))
    seed = int(rng.integers(2**31))  # of other random numbers than the chains' own
    short = replace(settings, warmup=before, draws=draws, metric="diag_e", seed=seed)
    found = bound.sample(replace(short, progress=False), starts)
    return Pilot(found, diagnose(found, settings.max_treedepth).max_rhat < AGREE)


def independent(points: Floats) -> bool:
    """Whether draws, shape (draws, d), are no more correlated than chance makes them.

    A diagonal metric then takes fewer steps than one with their correlations, and a step costs
    less. Chance gives correlations of N independent draws eigenvalues of (1 ± sqrt(d / N))^2 (the
    law of Marchenko and Pastur): twice the ratio of these is allowed.
    """
    share = math.sqrt(points.shape[1] / len(points))
    by_chance = ((1 + share) / (1 - share)) ** 2
    return bool(np.linalg.cond(np.atleast_2d(np.corrcoef(points.T))) < 2 * by_chance)


def climbed(
    bound: EmbeddedBinding, n: int, chains: int, rng: np.random.Generator
) -> xr.DataTree | None:
    """A start for each chain at one of the modes; None if none was found.

    What a mode holds is its height times the volume of the normal density of its curvature
    (Laplace's approximation). Starts are uniform around it, near enough to stay there: 53 bits for
    each coordinate, as it is without modes.
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
    held = np.array([heights[i] + _log_volume(bound, climbs[i], n) for i in modes])
    if not np.isfinite(held).any():
        return None
    shares = np.exp(held - held.max())
    picked = rng.choice(len(modes), size=chains, p=shares / shares.sum())
    around = rng.uniform(-1, 1, (chains, size)) * WIDTH / np.sqrt(n)
    points = np.stack([climbs[modes[i]] for i in picked]) + around
    if not np.isfinite([bound.density(point)[0] for point in points]).all():
        return None
    return make_draws(bound.constrain(points[None]))


def _log_volume(bound: EmbeddedBinding, mode: Vector, n: int) -> float:
    """Of a normal density with the curvature at a mode, up to a constant; -inf where it has none.

    By differences of gradients over a step that a clamp's kinks average out in. Directions in which
    the density does not fall count as wide as the prior.
    """
    step = WIDTH / np.sqrt(n)
    falls = np.empty((len(mode), len(mode)))
    for j, away in enumerate(step * np.eye(len(mode))):
        falls[j] = (bound.density(mode - away)[1] - bound.density(mode + away)[1]) / (2 * step)
    if not np.isfinite(falls).all():
        return -np.inf
    values = np.linalg.eigvalsh((falls + falls.T) / 2)
    return -0.5 * float(np.log(np.maximum(values, 1.0)).sum())
