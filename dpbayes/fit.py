"""A fitted synthesizer: draws, by-record risk, the claim, and the drawing of releases."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dpbayes.engines import SamplerSettings
from dpbayes.engines.base import BoundModel, count_draws, stacked
from dpbayes.engines.checkpoint import Checkpoint
from dpbayes.engines.diagnostics import Diagnostics, diagnose
from dpbayes.errors import ProgramError
from dpbayes.mechanisms.base import UNWEIGHTED, Stage, Window
from dpbayes.mechanisms.posterior.risk import RecordRisk, Vector, record_risk
from dpbayes.mechanisms.posterior.weights import Weighting
from dpbayes.privacy.guarantee import Basis, Guarantee
from dpbayes.release import Release, assemble, versions
from dpbayes.schema import Column
from dpbayes.stan.formula import Design

if TYPE_CHECKING:
    from dpbayes.synthesizer import Synthesizer


@dataclass(frozen=True)
class Posterior:
    """One fitted stage: the program with data, draws, diagnostics, and the risk that they show."""

    bound: BoundModel
    weighting: Weighting
    draws: xr.DataTree
    diagnostics: Diagnostics
    risk: RecordRisk

    @classmethod
    def sample(
        cls,
        bound: BoundModel,
        settings: SamplerSettings,
        weighting: Weighting,
        stage: Stage = UNWEIGHTED,
        anchor: Vector | None = None,
        starts: xr.DataTree | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Posterior:
        """Sample ``bound``, judge the chains, and measure by-record bounds of the terms."""
        if checkpoint is None:
            draws = bound.sample(settings, starts)
        else:
            draws = checkpoint.sample(bound, settings, starts)
        diagnostics = diagnose(draws, settings.max_treedepth)
        log_lik = bound.log_lik(draws)
        terms = log_lik if anchor is None else (f - anchor for f in log_lik)
        if stage.divergence:  # the part of the score that the record's own value moves
            terms = (np.expm1(stage.divergence * f) / stage.divergence for f in log_lik)
        risk = record_risk(terms, weighting.weights, stage.window)
        return cls(bound, weighting, draws, diagnostics, risk)


class FittedRecords:
    """The records bound to the program, with the unweighted fit made when first asked for.

    It is what weight sources see (``weights.RecordsView``).
    """

    def __init__(self, n: int, plain: BoundModel, unweighted: Callable[[], Posterior]) -> None:
        self.n = n
        self.plain = plain
        self.unweighted = unweighted

    def sensitivity(self) -> Vector:
        """Shape (n,): max over draws of |f_i| under the unweighted fit."""
        return self.unweighted().risk.sensitivity

    def log_lik(self, draws: xr.DataTree) -> Iterator[Vector]:
        """Record log-likelihoods at given draws."""
        return self.plain.log_lik(draws)


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted synthesizer. All of it is confidential; only what ``sample`` returns is not.

    Attributes:
        records: the validated confidential records.
        design: the design matrix and its public scaling.
        stages, posteriors: of the mechanism, in order; data sets are drawn from the last.
        seed: reproduces the fit as ``SamplerSettings(seed=...)``; as secret as the records.
        source: the records as they were given, from which the ledger knows them again.
        checkpoint: where finished chains are kept, or None.
    """

    synthesizer: Synthesizer
    records: pd.DataFrame
    design: Design
    stages: tuple[Stage, ...]
    posteriors: tuple[Posterior, ...]
    seed: int
    fitted_records: FittedRecords
    source: pd.DataFrame
    checkpoint: Checkpoint | None = None

    @property
    def posterior(self) -> Posterior:
        """The stage that data sets are drawn from."""
        return self.posteriors[-1]

    @property
    def synthesised(self) -> list[Column]:
        """Columns whose values are synthetic."""
        return [self.synthesizer.formula.outcome]

    @property
    def draws(self) -> xr.DataTree:
        """Draws of that stage, groups posterior and sample_stats."""
        return self.posterior.draws

    @property
    def diagnostics(self) -> Diagnostics:
        """Diagnostics of that stage."""
        return self.posterior.diagnostics

    @property
    def risk(self) -> RecordRisk:
        """By-record risk of that stage."""
        return self.posterior.risk

    @property
    def weights(self) -> Vector:
        """Shape (n,), alpha_i of that stage; ones for mechanisms without weights."""
        return self.posterior.weighting.weights

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Shape (n,), records whose weight Weighted-e set to 0."""
        return self.posterior.weighting.truncated

    @property
    def window(self) -> Window:
        """The clamp of that stage, infinite without one."""
        return self.stages[-1].window

    @property
    def risk_unweighted(self) -> RecordRisk:
        """Sensitivities and bounds before, under the unweighted fit, made now if need be."""
        return self.fitted_records.unweighted().risk

    @property
    def diagnostics_unweighted(self) -> Diagnostics:
        """Of the unweighted fit."""
        return self.fitted_records.unweighted().diagnostics

    @property
    def lipschitz(self) -> Vector:
        """By-record Lipschitz bounds after the refit, shape (n,)."""
        return self.risk.lipschitz

    @property
    def lipschitz_unweighted(self) -> Vector:
        """By-record bounds before, under the unweighted fit, shape (n,)."""
        return self.risk_unweighted.lipschitz

    @property
    def lipschitz_bound(self) -> float:
        """Δ: the largest by-record bound after the refit."""
        return self.risk.bound

    @property
    def lipschitz_bound_unweighted(self) -> float:
        """The largest by-record bound before."""
        return self.risk_unweighted.bound

    @property
    def epsilon_local(self) -> float:
        """ε_x = 2Δ on these records; confidential."""
        return 2 * self.lipschitz_bound

    @property
    def n_censored(self) -> int:
        """Records whose weighted log-likelihood left the window for at least one draw."""
        return int(self.risk.censored.sum())

    @property
    def n_truncated(self) -> int:
        """Records whose weight Weighted-e set to 0."""
        return int(self.truncated.sum())

    @property
    def guarantee(self) -> Guarantee:
        """The claim for one data set, with the local ε_x (confidential) beside it."""
        return self._claim(self.epsilon_local)

    def claim(self, datasets: int = 1, delta: float = 0.0) -> Guarantee:
        """The claim for a release of m data sets, with nothing computed from the records."""
        return self._claim(None).for_datasets(datasets, delta)

    def _claim(self, epsilon_local: float | None) -> Guarantee:
        claim = self.synthesizer.claim()
        if not self.converged:
            claim = claim.assuming(
                "the chains had converged, although their diagnostics say that they had not"
            )
        return replace(claim, epsilon_local=epsilon_local)

    @property
    def converged(self) -> bool:
        """True if every fit that the release rests on passed every check."""
        fits = [posterior.diagnostics for posterior in self.posteriors]
        if any(stage.weights.name == "confidential" for stage in self.stages):
            fits.append(self.diagnostics_unweighted)
        return all(fit.converged for fit in fits)

    def coefficients(self) -> pd.DataFrame:
        """Posterior mean and sd of the regression coefficients in the covariates' own units.

        The intercept is at covariates 0, on the link scale. For families with one linear
        predictor and an intercept.
        """
        names = ["Intercept", *self.design.names]
        try:
            slope = stacked(self.draws, "coefficient") if self.design.names else None
            intercept = stacked(self.draws, "intercept")
        except KeyError:
            intercept = np.empty((0, 0))
        if intercept.ndim != 1:
            raise ProgramError("coefficients() needs a program with one intercept; see fit.draws.")
        if slope is None:
            values = intercept[:, None]
        else:
            slope = slope @ self.design.basis.T
            values = np.column_stack([intercept - slope @ self.design.centre, slope])
        return pd.DataFrame({"mean": values.mean(axis=0), "sd": values.std(axis=0)}, index=names)

    def before_release(self, seed: int | None) -> int:
        """Make what a report needs, and the seed of a release unless a test gives one."""
        self.risk_unweighted  # noqa: B018  # a fit
        return secrets.randbits(128) if seed is None else seed

    def sample(
        self,
        datasets: int = 1,
        *,
        accept: Basis = "strict",
        delta: float = 0.0,
        seed: int | None = None,
    ) -> Release:
        """Draw synthetic data sets, each from the posterior predictive at one posterior draw.

        Every call spends the mechanism's epsilon once more per private draw; the guarantee returned
        covers the data sets of this call only.

        Args:
            datasets: number m of data sets, from m different draws.
            accept: the weakest claim that will do: ``strict``, ``asymptotic`` or ``none``.
            delta: 0 adds epsilons up; above 0 zCDP is used where it gives a smaller total.
            seed: for studies and tests only; None takes randomness from the operating system.
        Raises:
            GuaranteeError: the mechanism's claim is weaker than ``accept``; bad ``delta``.
        """
        synthesizer = self.synthesizer
        claim = self.claim(datasets, delta)
        synthesizer.check_datasets(datasets)
        claim.require(accept)
        rng = np.random.default_rng(seed)
        draws = rng.choice(count_draws(self.draws), size=claim.draws, replace=False)
        frames = []
        for number in range(datasets):
            index = int(draws[number // claim.nested])
            y = self.posterior.bound.y_rep(self.draws, index, int(rng.integers(2**31)))
            values = pd.DataFrame({synthesizer.formula.outcome.name: synthesizer.decode(y)})
            frames.append(assemble(synthesizer.schema, self.records, values, rng))
        program = synthesizer.program
        engine = "cmdstanpy" if synthesizer.engine.name == "cmdstan" else "stanli"
        return Release(
            datasets=tuple(frames),
            guarantee=claim,
            program=program.name,
            program_sha256=program.sha256,
            versions=versions("dpbayes", engine),
            settings={
                **synthesizer.public_settings(),
                "n": len(self.records),
                "stages": [stage.to_dict() for stage in self.stages],
            },
        )

    def __repr__(self) -> str:
        return (
            f"<Fit of {len(self.records)} records; {self.guarantee}; "
            f"Lipschitz bound {self.lipschitz_bound_unweighted:.3g} -> {self.lipschitz_bound:.3g}, "
            f"{self.n_censored} censored, {self.n_truncated} truncated; {self.diagnostics}>"
        )
