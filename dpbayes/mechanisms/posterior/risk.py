"""Record sensitivities, risk weights and local Lipschitz bounds, as functions of arrays.

Everything here is a function of the confidential records and is itself confidential.
Log-likelihoods are read draw by draw, so memory is O(n) however many draws there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Mask, Vector
from dpbayes.core.errors import GuaranteeError
from dpbayes.engines.alike import UniqueRows

LARGEST_C1 = 8.0  # of the search: beyond it nearly all weights are 0 or 1


@dataclass(frozen=True)
class RecordRisk:
    """By-record sensitivities and Lipschitz bounds over posterior draws.

    Attributes:
        sensitivity: shape (n,), max over draws of |f_i|; infinite where any f_i is not finite.
        lipschitz: shape (n,), max over draws of |clip(alpha_i f_i)|.
        censored: shape (n,), True where alpha_i f_i left the window for at least one draw.
    """

    sensitivity: Vector
    lipschitz: Vector
    censored: Mask

    @classmethod
    def joined(cls, parts: Sequence[RecordRisk]) -> RecordRisk:
        """Risk of all records, from that of consecutive blocks of them."""
        by_field = zip(
            *((part.sensitivity, part.lipschitz, part.censored) for part in parts), strict=True
        )
        return cls(*(np.concatenate(values) for values in by_field))

    def of_each(self, kinds: UniqueRows) -> RecordRisk:
        """Risk of every record, from this risk of the unique records."""
        expand = kinds.each_record
        return RecordRisk(expand(self.sensitivity), expand(self.lipschitz), expand(self.censored))

    @property
    def bound(self) -> float:
        """The local Lipschitz bound: the maximum over records.

        Source: hu-williams-savitsky, section 2.1.
        """
        return float(self.lipschitz.max())


def record_risk(
    log_lik: Iterable[Vector],
    weights: Vector,
    window: tuple[float, float] = (-np.inf, np.inf),
) -> RecordRisk:
    """Sensitivities and by-record Lipschitz bounds over draws.

    Source: hu-williams-savitsky, section 2.1.

    Args:
        log_lik: S arrays of shape (n,), the record log-likelihoods f at each draw.
        weights: shape (n,), alpha in [0, 1]. A record of weight 0 has bound 0 whatever its f.
        window: the clamp (lower, upper); infinite for none.
    """
    lower, upper = window
    highest = np.full(weights.shape, -np.inf)  # of f
    lowest = np.full(weights.shape, np.inf)
    count = 0
    for f in log_lik:
        np.maximum(highest, f, out=highest)  # NaN stays NaN
        np.minimum(lowest, f, out=lowest)
        count += 1
    if not count:
        raise ValueError("record_risk needs at least one draw")
    undefined = ~(np.isfinite(highest) & np.isfinite(lowest))
    sensitivity = np.where(undefined, np.inf, np.maximum(np.abs(highest), np.abs(lowest)))
    # alpha >= 0 and clip are monotone, so the extremes of f give those of clip(alpha f).
    with np.errstate(invalid="ignore"):
        top = np.where(weights == 0, 0.0, weights * np.where(undefined, np.inf, highest))
        bottom = np.where(weights == 0, 0.0, weights * np.where(undefined, -np.inf, lowest))
    lipschitz = np.maximum(
        np.abs(np.clip(top, lower, upper)), np.abs(np.clip(bottom, lower, upper))
    )
    return RecordRisk(sensitivity, lipschitz, (top > upper) | (bottom < lower))


def check_scaling(c1: float, c2: float) -> None:
    """Raise GuaranteeError unless c1 >= 0 and both are finite."""
    for name, value in (("c1", c1), ("c2", c2)):
        if not np.isfinite(value):
            raise GuaranteeError(f"{name} = {value!r} must be a finite number.")
    if c1 < 0:
        raise GuaranteeError(f"c1 = {c1!r} must not be negative: riskier records would weigh more.")


def linear_weights(sensitivity: Vector, c1: float = 1.0, c2: float = 0.0) -> Vector:
    """Risk weights alpha_i = clip(c1 (1 - scaled f_i) + c2, 0, 1).

    f_i is scaled to [0, 1] by its smallest and largest finite value over the records, so each
    weight depends on all records. Records with a non-finite sensitivity get weight 0; if all
    sensitivities are equal the weight is clip(c1 + c2, 0, 1).

    Source: savitsky-williams-hu-2022, algorithm 1; hu-williams-savitsky, section 2.1; section 4.4.

    Args:
        sensitivity: shape (n,), max over draws of |f_i| under the unweighted fit.
    Returns:
        shape (n,).
    """
    finite = sensitivity[np.isfinite(sensitivity)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    return scaled_weights(sensitivity, low, high, c1, c2)


def scaled_weights(sensitivity: Vector, low: float, high: float, c1: float, c2: float) -> Vector:
    """Risk weights as in ``linear_weights``, with f_i scaled by ``low`` and ``high``.

    Weights are finite whatever the ends are: whether a fit succeeds must not depend on a record.
    """
    check_scaling(c1, c2)
    finite = np.isfinite(sensitivity)
    weights = np.zeros_like(sensitivity)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (sensitivity[finite] - low) / (high - low) if high > low else 0.0
        linear = np.clip(c1 * (1 - scaled) + c2, 0.0, 1.0)
    weights[finite] = np.where(np.isnan(linear), 0.0, linear)
    return weights


def largest_scaling(sensitivity: Vector, bound: float) -> tuple[float, float]:
    """The pair (c1, c2) with the largest sum of weights such that every alpha_i f_i <= bound.

    At a given c1 a record above the bound requires c2 <= bound / f_i - c1 (1 - scaled f_i), and a
    record below it allows any c2. So c2 is the smallest of these, and c1 is searched on a grid.

    Args:
        sensitivity: shape (n,), f_i; not finite for a record that gets weight 0 anyway.
        bound: above 0.
    Returns:
        c1 in [0, 8] and c2 <= 1.
    """
    f = sensitivity[np.isfinite(sensitivity)]
    risky = f[f > bound]
    if not risky.size:
        return 0.0, 1.0
    low, high = f.min(), f.max()
    scaled = (risky - low) / (high - low) if high > low else np.zeros_like(risky)
    pairs = [
        (c1, min(1.0, float((bound / risky - c1 * (1 - scaled)).min())))
        for c1 in np.linspace(0, LARGEST_C1, 161)
    ]
    totals = [linear_weights(f, *pair).sum() for pair in pairs]
    return pairs[int(np.argmax(totals))]


def truncated_weights(weights: Vector, sensitivity: Vector, width: float) -> tuple[Vector, Mask]:
    """Weights of Weighted-e: 0 where alpha_i f_i > width / 2, f_i from the unweighted fit.

    The paper's width is epsilon.

    Source: hu-williams-savitsky, section 2.2.

    Returns:
        the new weights and a mask of the truncated records, both shape (n,).
    """
    with np.errstate(invalid="ignore"):
        truncated = (weights > 0) & (weights * sensitivity > width / 2)
    return np.where(truncated, 0.0, weights), truncated
