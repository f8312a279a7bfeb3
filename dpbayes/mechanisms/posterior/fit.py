"""A mechanism's posteriors on records: draws, by-record risk, and synthetic outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Mask, Vector
from dpbayes.core.errors import ConvergenceError, ProgramError, SchemaError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines.base import BoundModel
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.draws import count_draws, one_draw
from dpbayes.engines.proposal import Candidates
from dpbayes.mechanisms.base import Findings, Fitted, Task
from dpbayes.mechanisms.posterior.predictive import REPLICATES as CHECKED
from dpbayes.mechanisms.posterior.predictive import Check, replicated
from dpbayes.mechanisms.posterior.records import BoundRecords, NeighbourRecords, bind_stage
from dpbayes.mechanisms.posterior.risk import RecordRisk
from dpbayes.mechanisms.posterior.sampled import BoundStage, Drawn, Posterior
from dpbayes.mechanisms.posterior.stage import PublicFacts, Stage, Window
from dpbayes.mechanisms.posterior.tabulated import AnchorTables
from dpbayes.mechanisms.posterior.tree import coefficients_of, datatree, group_sds_of, loo, named
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Column
from dpbayes.stan.model import ColumnModel

ROWS_AT_ONCE = 100_000  # synthetic rows that a program holds as data
REPLICATES = 4  # of which each synthetic row takes one
CLAMPED = 0.1  # share of records, from which it is said
FAR = 4.0  # of a draw from the unclamped fit, in its standard errors, from which it is said


def fit_stages(
    task: Task, name: str, stages_of: Callable[[PublicFacts], tuple[Stage, ...]]
) -> PosteriorFit:
    """Sample the stages of a mechanism one after the other.

    Where no weight is taken from the records the unweighted fit waits until a result asks for it
    (``PosteriorFit.risk_unweighted``).

    Args:
        name: of the mechanism, for messages.
        stages_of: its stages, from public facts.
    Raises:
        DataError, ConvergenceError, EngineError, ProgramError.
    """
    records = task.shared(BoundRecords)
    stages = stages_of(records.problem())
    # One seed for the unweighted fit, one for the draws between stages, one for each stage.
    _, between, *seeds = np.random.SeedSequence(task.entropy).spawn(2 + len(stages))
    rng = np.random.default_rng(between)
    posteriors: list[Posterior] = []
    drawn: xr.DataTree | None = None
    before: Candidates | None = None
    anchors: list[xr.DataTree | None] = []
    try:
        for number, (stage, seed) in enumerate(zip(stages, seeds, strict=True), start=1):
            if stage.anchor == "draw":
                drawn = one_draw(*next(posteriors[-1].chosen(1, task.noise, rng)))
                before = posteriors[-1].on.candidates
            elif isinstance(stage.anchor, AnchorTables):
                drawn = stage.anchor.draw(records, task.noise)
            if stage.plain:
                posterior, what = records.unweighted_released, "unweighted fit"
            else:
                bound = bind_stage(records, stage, drawn, before)
                around = posteriors[-1].draws if stage.anchor == "draw" else None
                posterior = records.sample(bound, seed, task.checkpoint, around)
                what = f"{name} fit" + (f", stage {number}" if len(stages) > 1 else "")
            records.require(posterior, what)
            posteriors.append(posterior)
            anchors.append(drawn)
    except ConvergenceError:  # the same chains would fail again
        if task.checkpoint is not None:
            task.checkpoint.clear()
        raise
    return PosteriorFit(
        name, records, stages_of, stages, tuple(posteriors), tuple(anchors), task.entropy
    )


def synthetic_columns(
    on: BoundRecords, output: Drawn, rows: int, rng: np.random.Generator
) -> pd.DataFrame:
    """From the program with public constants in place of every confidential value.

    Seeds of Stan's generator have 31 bits, which can be enumerated: each row takes its values
    from one of several replicates with seeds of their own, chosen row by row. A bundled
    program draws no row by others, and is given blocks of them.
    """
    public = on.model.public(on.task.records, rows)
    if rows <= ROWS_AT_ONCE or not on.model.program.bundled:
        blank = on.blank if rows == on.task.rows else on.blank_of(rows)
        return _replicated(on, output, public, blank, rng)
    blocks = (public.iloc[k : k + ROWS_AT_ONCE] for k in range(0, rows, ROWS_AT_ONCE))
    drawn = [_replicated(on, output, b, on.blank_block(b), rng) for b in blocks]
    return pd.concat(drawn, ignore_index=True)


def one_of(
    on: BoundRecords, draws: xr.DataTree, rows: int, rng: np.random.Generator
) -> pd.DataFrame:
    """``synthetic_columns`` of one of the draws."""
    return synthetic_columns(on, Drawn(draws, int(rng.integers(count_draws(draws)))), rows, rng)


def check_of(on: BoundRecords, draws: xr.DataTree, replicates: int) -> Check:
    """Posterior predictive checks. DataError: there are no records."""
    records = on.task.records
    rows = max(len(records), 1)
    public = on.model.public(records, rows)
    drawn = replicated(on.model, on.blank_of(rows), draws, public, replicates)
    return Check.of(on.model.outcomes, records, list(drawn), on.model.events)


def _replicated(
    on: BoundRecords,
    output: Drawn,
    public: pd.DataFrame,
    blank: BoundModel,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """``synthetic_columns`` of public rows that are bound already."""
    rows = len(public)

    def replicate(changes: Mapping[str, Any]) -> NDArray[Any]:
        bound = blank.rebind(**changes) if changes else blank
        seeds = rng.integers(2**31, size=REPLICATES).tolist()
        found = np.stack([bound.y_rep(*output, seed) for seed in seeds])
        return np.asarray(found[rng.integers(REPLICATES, size=rows), np.arange(rows)])

    return on.model.draw(public, replicate)


@dataclass(frozen=True, repr=False)
class PosteriorFit(Fitted):
    """Posteriors of a mechanism given records. Confidential.

    Attributes:
        name: of the mechanism.
        on: the records bound to the program.
        stages_of: the mechanism's stages, from public facts.
        stages, posteriors: of the mechanism, in order; data sets are drawn from the last.
        anchors: for each stage the draw of the stage before that it is anchored at, or None.
        seed: reproduces the fit as ``SamplerSettings(seed=...)``; as secret as the records.
    """

    name: str
    on: BoundRecords
    stages_of: Callable[[PublicFacts], tuple[Stage, ...]]
    stages: tuple[Stage, ...]
    posteriors: tuple[Posterior, ...]
    anchors: tuple[xr.DataTree | None, ...]
    seed: int

    @property
    def settings(self) -> Mapping[str, Any]:  # type: ignore[override]  # read only
        """Formula, family, its priors, weight and window of each stage; public."""
        stages = [stage.to_dict() for stage in self.stages]
        return {**self.on.model.public_settings(), "stages": stages}

    @property
    def synthesised(self) -> tuple[Column, ...]:  # type: ignore[override]  # read only
        """Columns whose values are synthetic."""
        return self.on.model.outcomes

    def private(self, noise: Noise) -> Drawn:
        return next(self.outputs(1, noise))

    def outputs(self, count: int, noise: Noise) -> Iterator[Drawn]:
        """``count`` posterior draws."""
        return self.posterior.chosen(count, noise, noise.rng)

    def check_outputs(self, count: int) -> None:
        self.posterior.check_draws(count)

    def synthetic(self, output: Drawn, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        return synthetic_columns(self.on, output, rows, rng)

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame | None:
        if self.stages[-1].plain:
            return None
        return one_of(self.on, self.unweighted.draws, self.on.task.rows, rng)

    def versions(self) -> Mapping[str, str]:
        of_engine = self.on.task.engine.versions()
        drawn = any(isinstance(stage.anchor, AnchorTables) for stage in self.stages)
        chosen = drawn or self.posterior.on.candidates is not None  # by OpenDP
        return {**of_engine, **(versions("opendp") if chosen else {})}

    def beside(self, records: pd.DataFrame) -> NeighbourRecords:
        """Other records, as they are given to ``Synthesizer.fit``, bound to the program."""
        return NeighbourRecords(self.on, records)

    def bound_stages(self, records: pd.DataFrame | None = None) -> tuple[BoundStage, ...]:
        if records is None:
            return tuple(posterior.on for posterior in self.posteriors)
        other = self.beside(records)
        found: list[BoundStage] = []
        for stage, drawn in zip(self.stages_of(other.problem()), self.anchors, strict=True):
            before = found[-1].candidates if found and stage.anchor == "draw" else None
            found.append(bind_stage(other, stage, drawn, before))
        return tuple(found)

    @property
    def posterior(self) -> Posterior:
        """The stage that data sets are drawn from."""
        return self.posteriors[-1]

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
        return self.posterior.risk.of_each(self.on.kinds)

    @property
    def weights(self) -> Vector:
        """Shape (n,), alpha_i of that stage; ones for mechanisms without weights."""
        return self.on.kinds.each_record(self.posterior.on.weighting.weights)

    @property
    def truncated(self) -> Mask:
        """Shape (n,), records whose weight Weighted-e set to 0."""
        return self.on.kinds.each_record(self.posterior.on.weighting.truncated)

    @property
    def window(self) -> Window:
        """The clamp of that stage, infinite without one."""
        return self.stages[-1].window

    @property
    def unweighted(self) -> Posterior:
        """The unweighted fit, made now if need be. Nothing of a release depends on it."""
        released = [p for p in self.posteriors if p.on.stage.plain]
        return released[0] if released else self.on.unweighted

    @property
    def risk_unweighted(self) -> RecordRisk:
        """Sensitivities and bounds before, under the unweighted fit."""
        return self.unweighted.risk.of_each(self.on.kinds)

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
    def converged(self) -> bool:
        """True if every fit that the release rests on passed every check."""
        fits = [each.diagnostics for each in self.posteriors if each.choices is None]
        if any(stage.weights.name == "confidential" for stage in self.stages):
            fits.append(self.on.unweighted.diagnostics)
        return all(fit.converged for fit in fits)

    def coefficients(self, column: str | None = None) -> pd.DataFrame:
        """Posterior mean and sd of the regression coefficients in the covariates' own units.

        The intercept is at covariates 0, on the link scale. For families with one linear
        predictor and an intercept.

        Args:
            column: whose model is meant, or which part (``zero``, ``count``); needed where there
                are several.
        """
        return coefficients_of(self.draws, *self._model_of(column))

    def group_sds(self, column: str | None = None) -> pd.DataFrame:
        """Posterior mean and sd of the sds of group effects, and of their correlations.

        On the link scale; slopes are those of columns standardised over the declared domain, and
        intercepts at the middle of it. For families with one linear predictor.

        Args:
            column: as for ``coefficients``.
        """
        model, label = self._model_of(column)
        return group_sds_of(self.draws, self.on.data, model, label)

    def _model_of(self, column: str | None) -> tuple[ColumnModel, str]:
        """The model of a column, and its label; of the only one, if there is one.

        Parts of a family are told by their labels.
        """
        pairs = self.on.model.predictors
        parts = len(pairs) > len(self.on.model.columns)
        found = {label if parts else model.outcome.name: (model, label) for model, label in pairs}
        if column is None and len(found) == 1:
            return next(iter(found.values()))
        if column not in found:
            raise SchemaError(f"column = {column!r} must be one of {', '.join(found)}.")
        return found[column]

    def lost(self) -> pd.DataFrame:
        """Coefficients beside those of the unclamped fit: ``mean``, ``sd`` and ``off``.

        ``off`` is what a draw is expected to be away from the unclamped posterior's mean, in sds
        of that posterior: sqrt((m - m0)² + s²) / s0, which is 1 without any protection. One row
        for each coefficient of each column that has some; confidential.
        """
        found = []
        for model, label in zip(self.on.model.columns, self.on.model.labels, strict=True):
            try:
                ours = coefficients_of(self.draws, model, label)
                plain = coefficients_of(self.unweighted.draws, model, label)
            except ProgramError:
                continue
            ours.index = [f"{model.outcome.name}: {name}" for name in ours.index]
            away = np.hypot(ours["mean"].to_numpy() - plain["mean"].to_numpy(), ours["sd"])
            found.append(ours.assign(off=np.asarray(away) / plain["sd"].to_numpy()))
        return pd.concat(found) if found else pd.DataFrame(columns=["mean", "sd", "off"])

    def _warnings(self) -> tuple[str, ...]:
        """What the clamp and the weights cost beyond what is usual."""
        if self.stages[-1].plain:
            return ()
        found = []
        share = self.n_censored / self.on.n
        if share > CLAMPED:
            found.append(
                f"{share:.0%} of the records were clamped at some draw: what they say of the "
                "parameters was cut. More ε, tempering (`anchored`, or a larger range L of it) or "
                "a simpler model leaves more of it."
            )
        off = self.lost()["off"]
        if len(off) and off.max() > FAR:
            found.append(
                f"A draw of the coefficient {off.idxmax()!r} is {off.max():.1f} standard errors of "
                f"the unclamped fit away from it ({off.median():.1f} for the median coefficient; 1 "
                "is what a posterior has without protection): this regression is lost in part."
            )
        return tuple(found)

    def check(self, replicates: int = CHECKED) -> Check:
        """Posterior predictive checks of the model that data sets are drawn from.

        Args:
            replicates: data sets that the records are compared with.
        Raises:
            DataError: there are no records.
        """
        return check_of(self.on, self.draws, replicates)

    def to_datatree(self, **groups: Any) -> xr.DataTree:
        return datatree(self.posterior, self.on, **groups)

    def loo(self) -> Any:
        return loo(self.posterior, self.on)

    def findings(self) -> Findings:
        before, after = self.lipschitz_unweighted, self.lipschitz
        low, high = self.window
        by_record = pd.DataFrame(
            {
                "weight": self.weights,
                "lipschitz_unweighted": before,
                "lipschitz": after,
                "truncated": self.truncated,
                "censored": self.risk.censored,
            }
        )
        refit = {} if self.stages[-1].plain else {self.name: after}
        return Findings(
            summary=self._summary(),
            lines=self._lines(),
            warnings=self._warnings(),
            measures={"Lipschitz": self.lipschitz_bound, "ε = 2Δ": self.epsilon_local},
            by_record=by_record,
            draws=named(self.draws, self.on.model),
            bounds={"unweighted": before, **refit},
            epsilon=high - low if np.isfinite(high - low) else None,
        )

    def _summary(self) -> dict[str, Any]:
        task = self.on.task
        return {
            "lipschitz_bound": self.lipschitz_bound,
            "lipschitz_bound_unweighted": self.lipschitz_bound_unweighted,
            "epsilon_local": self.epsilon_local,
            "n_censored": self.n_censored,
            "n_truncated": self.n_truncated,
            "diagnostics": self.diagnostics.to_dict(),
            "diagnostics_unweighted": self.unweighted.diagnostics.to_dict(),
            "formula": "; ".join(m.formula.text for m in self.on.model.columns),
            "engine": task.engine.name,
            "settings": {**vars(task.settings), "seed": self.seed},
        }

    def _lines(self) -> tuple[str, ...]:
        told = ", ".join(self.on.model.left_out())
        return (
            f"Confidential: Lipschitz bound {self.lipschitz_bound_unweighted:.3f} unweighted, "
            f"{self.lipschitz_bound:.3f} here; local ε_x = 2Δ = {stated(self.epsilon_local)}; "
            f"{self.n_censored} records censored, {self.n_truncated} truncated.",
            self._quality(),
            *([f"Not released, because neither public nor the outcome: {told}"] if told else ()),
        )

    def _quality(self) -> str:
        """How good the draws are of the posterior, in a line."""
        choices = self.posterior.choices
        if choices is None:
            return f"Confidential: convergence {self.diagnostics}"
        return (
            f"Confidential: {choices.effective:.0f} of {choices.candidates.count} public points "
            "share the posterior (1 / sum of squared probabilities). With few, raise --points."
        )

    def __repr__(self) -> str:
        stages = ", ".join(stage.weights.name for stage in self.stages)
        return f"<PosteriorFit {self.name} of {self.on.n} records; weights by stage: {stages}>"
