"""What a mechanism for Stan synthesizers is: a weight rule, a window, and the claim they earn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpbayes.privacy.guarantee import Guarantee
from dpbayes.risk import Vector

NO_WINDOW = (-math.inf, math.inf)


@dataclass(frozen=True)
class Weighting:
    """Record weights, shape (n,), and which records Weighted-e truncated to 0."""

    weights: Vector
    truncated: NDArray[np.bool_]

    @classmethod
    def of(cls, weights: Vector) -> Weighting:
        """Weights without truncation."""
        return cls(weights, np.zeros(weights.shape, dtype=bool))


class Mechanism:
    """Base of the mechanisms. Subclasses are frozen dataclasses of public settings.

    ``refits`` is False where the unweighted fit is already the release's posterior. ``needs_risk``
    is True where the weights come from the sensitivities of an unweighted fit to the records.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for `dpbayes list`: what it does and what it guarantees
    refits: ClassVar[bool] = True
    needs_risk: ClassVar[bool] = False

    @property
    def window(self) -> tuple[float, float]:
        """The clamp on each record's term."""
        return NO_WINDOW

    def weighting(self, sensitivity: Vector) -> Weighting:
        """Weights from the record sensitivities of the unweighted fit, shape (n,).

        Without ``needs_risk`` only the shape of ``sensitivity`` may be used.
        """
        return Weighting.of(np.ones_like(sensitivity))

    def guarantee(self) -> Guarantee:
        """The claim for one data set, before anything is computed from records."""
        raise NotImplementedError
