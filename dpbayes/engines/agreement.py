"""A check after sampling: draws read from output have the log density that the chain reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpbayes.core.arrays import Vector
from dpbayes.core.errors import EngineError
from dpbayes.core.lazy import xr

CHECKED_DRAWS = 5  # draws checked per chain, equally spaced
# Largest difference of two log densities, in nats. Writing draws as text and the special functions
# of two libraries cause about 1e-9 of a log density's size; a wrong draw causes whole nats.
MOST_ABSOLUTE = 1e-3
MOST_RELATIVE = 1e-9


class OtherDensityError(EngineError):
    """Error: draws in the output have another log density than the chain reports."""


def require_own_draws(
    draws: xr.DataTree, densities: Mapping[str, Callable[[xr.DataTree], Vector]], sampler: str
) -> None:
    """Require that draws in the output have the log densities that their chains report.

    A few draws of each chain are evaluated. Log densities may differ by a constant.

    Args:
        draws: groups posterior and sample_stats, chains and draws first.
        densities: by a name for the message, functions that give the log density with Jacobian at
            each draw of a DataTree, -inf where they reject it.
        sampler: name and version of the sampler, for the message.
    Raises:
        OtherDensityError: log densities differ, so the draws are not those of the posterior.
    """
    written = draws["posterior"].to_dataset()
    last = written.sizes["draw"] - 1
    positions = np.unique(np.linspace(0, last, CHECKED_DRAWS).round().astype(int))
    checked = xr.DataTree.from_dict({"posterior": written.isel(draw=positions)})
    reported = draws["sample_stats"]["lp"].to_numpy()[:, positions].reshape(-1)
    allowed = MOST_ABSOLUTE + MOST_RELATIVE * float(np.abs(reported).max())
    for name, density in densities.items():
        gap = largest_gap(reported, density(checked))
        if not gap <= allowed:  # NaN fails, too
            raise OtherDensityError(
                f"{sampler} has written draws that are not those it sampled: their log density by "
                f"{name} is another than the chain's. Nothing is released. Causes that are known: "
                "an expression as offset or multiplier of a parameter (let a function of yours "
                "return it), and with several threads a function that reduce_sum sums and that "
                "takes other records than its own (`dpbayes check` with two threads says so). "
                "Otherwise take another release of CmdStan, or the embedded engine."
            ).saying(f"The log densities differ by up to {gap:.3g}.", "The check")


def largest_gap(reported: Vector, evaluated: Vector) -> float:
    """Largest difference between two log densities at the same points, up to a constant.

    Infinite if any difference is not finite.
    """
    gaps = evaluated - reported
    return float(np.ptp(gaps)) if np.isfinite(gaps).all() else float("inf")
