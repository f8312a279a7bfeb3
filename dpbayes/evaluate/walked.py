"""The density that chains walk through, told in effects: coordinates must not change a posterior.

With group effects chains have coordinates that follow the records. The posterior is the same only
if the program's density has their Jacobian. Here that is worked out anew, by differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Vector
from dpbayes.engines import get_engine
from dpbayes.engines.draws import make_draws
from dpbayes.engines.embedded import EmbeddedBinding
from dpbayes.mechanisms.posterior.coordinates import group_coordinates, non_centred
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.sampled import BoundStage, Posterior

POINTS = 24  # where densities are compared
STEP = 1e-5  # of differences, in coordinates whose posterior is about as wide as 1
EXACT = 1e-6  # what differences leave of a log density that is the same; found: 1e-9


def moved_by_coordinates(records: BoundRecords, stage: BoundStage, seed: int = 1) -> float:
    """The largest log ratio that coordinates of chains put into a stage's posterior; 0 if none.

    Args:
        records: that the stage is bound to.
    """
    walked = records.for_chains(stage)
    if walked is stage.bound:
        return 0.0
    return _moved(records, stage, walked, seed)


def moved_in_sampling(records: BoundRecords, posterior: Posterior, seed: int = 1) -> float:
    """The same of the very binding that was sampled."""
    if posterior.walked is posterior.on.bound or posterior.choices is not None:
        return 0.0
    return _moved(records, posterior.on, posterior.walked, seed)


def _moved(records: BoundRecords, stage: BoundStage, walked: Any, seed: int) -> float:
    labels, data = records.grouped, {**records.data, **stage.changes}
    if not labels:
        return 0.0
    plain: Any = stage.bound
    if not isinstance(walked, EmbeddedBinding) or not isinstance(plain, EmbeddedBinding):
        # Another engine's program, whose coordinates are asked of the embedded one.
        plain = get_engine("embedded").compile(records.model.program).bind(data)
        walked = plain.rebind(**group_coordinates(plain, data, stage.at, labels))
    points = walked.unconstrain(walked.random_points(POINTS, seed, 1.0))
    away = walked.log_density(points) - _log_volume(plain, walked, points, data, labels)
    away -= plain.log_density(_told(plain, walked, points, data, labels))
    away = away[np.isfinite(away)]
    spread = float(np.ptp(away)) if len(away) else 0.0
    return spread if spread > EXACT else 0.0


def _told(
    plain: EmbeddedBinding,
    walked: EmbeddedBinding,
    points: Floats,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Floats:
    """Coordinates of the plain binding, shape (S, d), at points of the other one's."""
    draws = make_draws(walked.constrain(points[None]))
    for label in labels:
        draws = non_centred(draws, data, label)
    return plain.unconstrain(draws)


def _log_volume(
    plain: EmbeddedBinding,
    walked: EmbeddedBinding,
    points: Floats,
    data: Mapping[str, Any],
    labels: Sequence[str],
) -> Vector:
    """Log of the absolute determinant of the derivative of ``_told``, shape (S,)."""
    size = points.shape[1]
    steps = STEP * np.eye(size)
    moved = np.concatenate([points[:, None] + steps, points[:, None] - steps], axis=1)
    found = _told(plain, walked, moved.reshape(-1, size), data, labels)
    found = found.reshape(len(points), 2, size, size)
    return np.asarray(np.linalg.slogdet((found[:, 0] - found[:, 1]) / (2 * STEP))[1])
