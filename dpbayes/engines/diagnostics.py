"""Convergence diagnostics of a fit, and the limits at which it is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dpbayes.core.errors import ConvergenceError
from dpbayes.core.lazy import xr

# Each pair: aim, reported when missed, and limit, at which a fit is refused. Aims for R-hat and
# ESS: Vehtari et al. 2021, Bayesian Analysis 16(2), section 4. Even well-mixed chains have an
# R-hat of about 1.01 at the smallest ESS aimed at, so the limit must lie above that.
RHAT = (1.01, 1.05)
ESS_PER_CHAIN = (100, 50)
EBFMI = (0.3, 0.2)  # Betancourt 2016, arXiv:1604.00695
TREEDEPTH_SHARE = 0.25  # saturation costs efficiency, not validity
# A clamped log-likelihood has kinks, at which single divergences are expected.
DIVERGENCE_SHARE = 0.005


@dataclass(frozen=True)
class Diagnostics:
    """Rank-normalised split R-hat, ESS (smallest over parameters) and NUTS statistics.

    Source: vehtari-2021; betancourt-2016.

    Attributes:
        max_rhat: largest R-hat; min_ess_bulk, min_ess_tail: smallest effective sample sizes.
        worst: the parameter entry with the largest R-hat.
        divergences, treedepth_hits: transitions, of ``transitions`` after warm-up.
        min_ebfmi: smallest energy Bayesian fraction of missing information over chains.
        problems: values past their limits, in words; a fit with problems is refused.
        notes: values that miss their aims only, in words.
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
        """Whether no check is past its limit."""
        return not self.problems

    def require(self, what: str) -> None:
        """Raise ConvergenceError if there are problems."""
        if self.problems:
            raise ConvergenceError(
                f"the {what} has not converged: {'; '.join(self.problems)}. The privacy "
                "statement is for a draw of the posterior, which these chains do not give. Raise "
                "warmup, draws or adapt_delta, or simplify the model; `allow_nonconvergence=True` "
                "overrides."
            )

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
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


class _Mixing(NamedTuple):
    """R-hat and effective sample sizes of one parameter entry."""

    rhat: float
    bulk: float  # effective sample sizes
    tail: float


def _mixing(draws: xr.DataTree, known: Collection[str]) -> dict[str, _Mixing]:
    """R-hat and effective sample sizes by entry, such as ``beta[0]``.

    Entries that never vary are left out, such as the zeros of a Cholesky factor, unless none does:
    chains start at points of their own, so that those which are stuck differ.
    """
    from arviz_stats.base import array_stats  # slow to import: load_checks

    mixing: dict[str, _Mixing] = {}
    constant: dict[str, _Mixing] = {}
    for name, variable in draws["posterior"].data_vars.items():
        if name in known:
            continue
        values = variable.to_numpy()
        for index in np.ndindex(values.shape[2:]):
            entry = values[(slice(None), slice(None), *index)]
            always = (entry == entry.flat[0]).all() or np.isnan(entry).all()
            axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
            with np.errstate(
                invalid="ignore", divide="ignore"
            ):  # draws that are all the same give NaN
                of = constant if always else mixing
                of[f"{name}{list(index)}" if index else str(name)] = _Mixing(
                    float(array_stats.rhat(entry, **axes)),
                    float(array_stats.ess(entry, **axes, method="bulk")),
                    float(array_stats.ess(entry, **axes, method="tail", prob=(0.05, 0.95))),
                )
    return mixing or constant


class _Check(NamedTuple):
    """A value that should reach its aim and must reach its limit."""

    value: float
    aim: float
    limit: float
    text: str


def _checks(mixing: dict[str, _Mixing], worst: str, chains: int, ebfmi: float) -> Iterator[_Check]:
    """Yield the checks that have an aim and a limit."""
    rhat = mixing[worst].rhat
    aim, limit = RHAT
    text = f"R-hat of {worst} is {rhat:.3f} (aim below {aim:g})"
    yield _Check(-rhat, -aim, -limit, text)  # the smaller the better
    aim, limit = ESS_PER_CHAIN
    for kind in ("bulk", "tail"):
        sizes = ((label, float(getattr(entry, kind))) for label, entry in mixing.items())
        least, ess = min(sizes, key=itemgetter(1))
        text = f"{kind} ESS of {least} is {ess:.0f} (aim {aim:g} per chain)"
        yield _Check(ess / chains, aim, limit, text)
    aim, limit = EBFMI
    yield _Check(ebfmi, aim, limit, f"E-BFMI is {ebfmi:.2f} (aim {aim:g})")


def diagnose(draws: xr.DataTree, max_treedepth: int, known: Collection[str] = ()) -> Diagnostics:
    """Compute all checks for one fit.

    Args:
        draws: groups posterior and sample_stats.
        max_treedepth: cap on the doublings of a trajectory in the fit.
        known: names of parameters that others determine; they are not checked.
    """
    from arviz_stats.base import array_stats  # slow to import: load_checks

    chains = int(draws["posterior"].sizes["chain"])
    mixing = _mixing(draws, known)
    # Draws that never move have an R-hat of NaN, which counts as worst.
    worst = max(mixing, key=lambda label: np.nan_to_num(mixing[label].rhat, nan=np.inf))
    stats = draws["sample_stats"]
    divergences = int(stats["diverging"].sum())
    hits = int((stats["tree_depth"] >= max_treedepth).sum())
    energy = stats["energy"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        ebfmi = float(np.min(array_stats.bfmi(energy)))
    transitions = energy.size

    problems, notes = [], []
    for check in _checks(mixing, worst, chains, ebfmi):
        if not check.value >= check.limit:  # NaN is a failure too
            problems.append(check.text)
        elif check.value < check.aim:
            notes.append(check.text)
    if divergences:
        too_many = divergences > DIVERGENCE_SHARE * transitions
        (problems if too_many else notes).append(f"{divergences} of {transitions} draws diverged")
    if hits > TREEDEPTH_SHARE * transitions:
        notes.append(f"{hits} of {transitions} draws reached max_treedepth")
    return Diagnostics(
        chains=chains,
        transitions=transitions,
        max_rhat=mixing[worst].rhat,
        worst=worst,
        min_ess_bulk=min(entry.bulk for entry in mixing.values()),
        min_ess_tail=min(entry.tail for entry in mixing.values()),
        divergences=divergences,
        treedepth_hits=hits,
        min_ebfmi=ebfmi,
        problems=tuple(problems),
        notes=tuple(notes),
    )
