"""Convergence diagnostics of a fit, and the gate that they keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from dpbayes.errors import ConvergenceError

# Each pair: aim, reported when missed, and limit, at which a fit is refused. Aims for R-hat and
# ESS: Vehtari et al. 2021, Bayesian Analysis 16(2), section 4. At the smallest ESS aimed at, R-hat
# of well-mixed chains is itself about 1.01, so that the limit must lie above it.
RHAT = (1.01, 1.05)
ESS_PER_CHAIN = (100, 50)
EBFMI = (0.3, 0.2)  # Betancourt 2016, arXiv:1604.00695
TREEDEPTH_SHARE = 0.25  # saturation costs efficiency, not validity
# A clamped log-likelihood has kinks, at which single divergences are expected.
DIVERGENCE_SHARE = 0.005


@dataclass(frozen=True)
class Diagnostics:
    """Rank-normalised split R-hat, ESS (smallest over parameters) and NUTS statistics.

    Attributes:
        max_rhat: largest R-hat; min_ess_bulk, min_ess_tail: smallest effective sample sizes.
        worst: the parameter entry with the largest R-hat.
        divergences, treedepth_hits: transitions, of ``transitions`` after warm-up.
        min_ebfmi: smallest energy Bayesian fraction of missing information over chains.
        problems: what is past its limit, in words; a fit with problems is refused.
        notes: what misses its aim only.
    """

    chains: int
    transitions: int
    max_rhat: float
    worst: str
    min_ess_bulk: float
    min_ess_tail: float
    divergences: int
    treedepth_hits: int
    min_ebfmi: float
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def converged(self) -> bool:
        """True if no check is past its limit."""
        return not self.problems

    def require(self, what: str) -> None:
        """Raise ConvergenceError if there are problems."""
        if self.problems:
            raise ConvergenceError(
                f"the {what} has not converged: {'; '.join(self.problems)}. The privacy "
                "statement is for a draw of the posterior, which these chains do not give. Raise "
                "warmup, draws or adapt_delta, or simplify the model; allow_nonconvergence=True "
                "(--allow-nonconvergence) overrides."
            )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"R-hat {self.max_rhat:.3f} (max), ESS bulk {self.min_ess_bulk:.0f} / tail "
            f"{self.min_ess_tail:.0f} (min), divergences {self.divergences}, treedepth "
            f"limit hit {self.treedepth_hits} times, E-BFMI {self.min_ebfmi:.2f} (min)"
            + "".join(f"; {note}" for note in (*self.problems, *self.notes))
        )


def load_checks() -> None:
    """Import the library behind ``diagnose``, which takes about half a second."""
    import arviz_stats  # noqa: F401


def diagnose(draws: xr.DataTree, max_treedepth: int) -> Diagnostics:
    """Compute all checks for one fit."""
    from arviz_stats.base import array_stats  # slow to import: load_checks

    chains = int(draws["posterior"].sizes["chain"])
    rhat, bulk, tail = {}, {}, {}
    for name, variable in draws["posterior"].data_vars.items():
        values = variable.to_numpy()
        for index in np.ndindex(values.shape[2:]):
            one = values[(slice(None), slice(None), *index)]
            label = f"{name}{list(index)}" if index else str(name)
            rhat[label] = float(array_stats.rhat(one, chain_axis=0, draw_axis=1))
            bulk[label] = float(array_stats.ess(one, chain_axis=0, draw_axis=1, method="bulk"))
            tail[label] = float(
                array_stats.ess(one, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95))
            )
    worst = max(rhat, key=lambda label: np.nan_to_num(rhat[label], nan=np.inf))

    stats = draws["sample_stats"]
    divergences = int(stats["diverging"].sum())
    hits = int((stats["tree_depth"] >= max_treedepth).sum())
    energy = stats["energy"].to_numpy()
    ebfmi = float(np.min(array_stats.bfmi(energy)))
    transitions = energy.size

    least_bulk, least_tail = (min(ess, key=lambda k: ess[k]) for ess in (bulk, tail))
    checks = [
        (rhat[worst], RHAT, -1, f"R-hat of {worst} is {rhat[worst]:.3f} (aim below {{:g}})"),
        *(
            (
                ess[least] / chains,
                ESS_PER_CHAIN,
                1,
                f"{kind} ESS of {least} is {ess[least]:.0f} (aim {{:g}} per chain)",
            )
            for kind, ess, least in (("bulk", bulk, least_bulk), ("tail", tail, least_tail))
        ),
        (ebfmi, EBFMI, 1, f"E-BFMI is {ebfmi:.2f} (aim {{:g}})"),
    ]
    problems, notes = [], []
    for value, (aim, limit), sign, text in checks:
        if not sign * value >= sign * limit:  # NaN is a failure too
            problems.append(text.format(aim))
        elif sign * value < sign * aim:
            notes.append(text.format(aim))
    if divergences:
        share = divergences > DIVERGENCE_SHARE * transitions
        (problems if share else notes).append(f"{divergences} of {transitions} draws diverged")
    if hits > TREEDEPTH_SHARE * transitions:
        notes.append(f"{hits} of {transitions} draws reached max_treedepth")
    return Diagnostics(
        chains=chains,
        transitions=transitions,
        max_rhat=rhat[worst],
        worst=worst,
        min_ess_bulk=min(bulk.values()),
        min_ess_tail=min(tail.values()),
        divergences=divergences,
        treedepth_hits=hits,
        min_ebfmi=ebfmi,
        problems=tuple(problems),
        notes=tuple(notes),
    )
