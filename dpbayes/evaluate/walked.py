"""Check that sampling coordinates leave the posterior of group effects unchanged.

With group effects the chains use coordinates that depend on the records. The posterior is the same
only if the program's density includes their Jacobian. This module computes the Jacobian again, by
finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.engines.base import BoundModel, DensityModel
from dpbayes.engines.draws import make_draws
from dpbayes.mechanisms.posterior.coordinates import non_centred
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.sampled import BoundStage, Posterior

POINTS = 24  # number of points at which densities are compared
STEP = 1e-5  # of finite differences, in coordinates whose posterior has a width of about 1
EXACT = 1e-6  # numerical error allowed in a log density; 1e-9 was observed


def moved_by_coordinates(records: BoundRecords, stage: BoundStage, seed: int = 1) -> float:
    """Largest log ratio that sampling coordinates add to a stage's posterior; 0 if none.

    Args:
        records: the records that the stage is bound to.
    """
    walked = records.for_chains(stage)
    if walked is stage.bound:
        return 0.0
    return _moved(records, stage, walked, seed)


def moved_in_sampling(records: BoundRecords, posterior: Posterior, seed: int = 1) -> float:
    """Largest log ratio that coordinates add to the binding that was sampled; 0 if none."""
    if posterior.walked is posterior.bound_stage.bound or posterior.choices is not None:
        return 0.0
    return _moved(records, posterior.bound_stage, posterior.walked, seed)


def _moved(records: BoundRecords, stage: BoundStage, sampled: BoundModel, seed: int) -> float:
    labels, data = records.grouped, {**records.data, **stage.changes}
    if not labels:
        return 0.0
    plain, walked = stage.bound.density_model(), sampled.density_model()
    points = walked.unconstrain(walked.random_points(POINTS, seed, 1.0))
    log_ratio = walked.log_density(points) - _log_volume(plain, walked, points, data, labels)
    log_ratio -= plain.log_density(_told(plain, walked, points, data, labels))
    log_ratio = log_ratio[np.isfinite(log_ratio)]
    spread = float(np.ptp(log_ratio)) if len(log_ratio) else 0.0
    return spread if spread > EXACT else 0.0


def _told(
    plain: DensityModel,
    walked: DensityModel,
    points: Floats,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Floats:
    """Convert points of the sampled binding to coordinates of the plain one, shape (S, d)."""
    draws = make_draws(walked.constrain(points[None]))
    for label in labels:
        draws = non_centred(draws, data, label)
    return plain.unconstrain(draws)


def _log_volume(
    plain: DensityModel,
    walked: DensityModel,
    points: Floats,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Vector:
    """Log absolute determinant of the Jacobian of ``_told``, shape (S,)."""
    size = points.shape[1]
    steps = STEP * np.eye(size)
    moved = np.concatenate([points[:, None] + steps, points[:, None] - steps], axis=1)
    coordinates = _told(plain, walked, moved.reshape(-1, size), data, labels)
    coordinates = coordinates.reshape(len(points), 2, size, size)
    return np.asarray(np.linalg.slogdet((coordinates[:, 0] - coordinates[:, 1]) / (2 * STEP))[1])
