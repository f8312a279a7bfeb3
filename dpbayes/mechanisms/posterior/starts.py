"""Where chains start if a posterior has several modes, as those of mixtures have.

A chain that starts at random ends in some mode near its start and never leaves it, also where that
mode holds e^-100 of the posterior. Where a chain starts is no part of its posterior, so ε does not
change.
"""

from __future__ import annotations

import numpy as np

from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.heavy import xr

CLIMBS = 12  # random points from which a mode is looked for
WIDTH = 0.1  # of starts, in coordinates that n records tell to about 1 / sqrt(n)
NEAR = 10.0  # log density below the highest, up to which a mode may hold a share of the posterior


def climbed(
    bound: EmbeddedBinding, n: int, chains: int, rng: np.random.Generator
) -> xr.DataTree | None:
    """A start for each chain at one of the highest modes; None if none was found.

    Modes that are nearly as high as the highest are taken at random, so that R-hat tells of them.
    Starts are uniform around them, near enough to stay there: 53 bits for each coordinate, as it is
    without modes.
    """
    size = len(bound.coordinates())
    modes = np.stack([bound.mode(start) for start in rng.uniform(-2, 2, (CLIMBS, size))])
    heights = np.array([bound.density(mode)[0] for mode in modes])
    heights[~np.isfinite(heights)] = -np.inf
    highest = modes[heights > heights.max() - NEAR]
    if not len(highest):
        return None
    around = rng.uniform(-1, 1, (chains, size)) * WIDTH / np.sqrt(n)
    points = highest[rng.integers(len(highest), size=chains)] + around
    if not np.isfinite([bound.density(point)[0] for point in points]).all():
        return None
    return make_draws(bound.constrain(points[None]))
