"""Posteriors of a mechanism given records: draws, by-record risk and synthetic outcomes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Mask, Vector
from dpbayes.core.errors import ConvergenceError, EngineError, ProgramError, SchemaError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines.base import BoundModel
from dpbayes.engines.choices import Candidates
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.draws import count_draws, one_draw
from dpbayes.mechanisms.base import Findings, Fitted, Task
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.records import (
    BoundRecords,
    NeighbourRecords,
    bind_stage,
    check_references,
)
from dpbayes.mechanisms.posterior.risk import RecordRisk
from dpbayes.mechanisms.posterior.sampled import BoundStage, Drawn, Posterior
from dpbayes.mechanisms.posterior.stage import AnchorTables, PublicFacts, Stage, Window
from dpbayes.mechanisms.posterior.tree import coefficients_of, datatree, group_sds_of, loo, named
from dpbayes.mechanisms.predictive import REPLICATES as CHECKED
from dpbayes.mechanisms.predictive import Check, replicated
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Column
from dpbayes.stan.model import ColumnModel

if TYPE_CHECKING:
    import arviz_stats

ROWS_AT_ONCE = 100_000  # most synthetic rows in a program's data, which bounds memory
REPLICATES = 4  # replicates with seeds of their own, among which each synthetic row chooses
CLAMPED = 0.1  # share of clamped records above which a warning is given
# Widths about 0 of the unconstrained points at which a user's program generates rows, and points of
# each: with covariates of any scale an exponential overflows less often near 0.
TRIED_WITHIN, TRIED = (2.0, 0.1), 10
UNLIKE_POPULATION = 0.1  # part of the population by which weights may miss it without a warning
FAR = 4.0  # standard errors of a draw from the unclamped fit above which a warning is given


def prepare_stages(
    task: Task, stages_of: Callable[[PublicFacts], tuple[Stage, ...]]
) -> tuple[BoundRecords, tuple[Stage, ...]]:
    """Bind the records and derive the stages: whatever is refused by public facts is refused here.

    Args:
        task: the records and the means to model them.
        stages_of: function that derives the stages from public facts.
    Raises:
        DataError, EngineError, GuaranteeError, ProgramError.
    """
    records = task.shared(BoundRecords)
    stages = stages_of(records.problem())
    for differing in {stage.divergence: stage for stage in stages}.values():
        records.check_stage(differing)
    for stage in stages:
        check_references(records, stage)
    if not records.model.program.bundled:
        _check_public_rows(records)
    return records, stages


def _check_public_rows(records: BoundRecords) -> None:
    """Raise EngineError unless a user's program generates outcomes for the public rows somewhere.

    A constant or covariate of one row may make its generator fail, which a release would show only
    after payment. Rows and points are public, and values of the records are not read.
    """
    rng, failed = np.random.default_rng(0), EngineError("")
    rows = records.task.released_rows or records.task.rows
    for width in TRIED_WITHIN:
        points = records.blank.random_points(TRIED, 0, width)
        for index in range(TRIED):
            try:
                synthetic_columns(records, Drawn(points, index), rows, rng)
            except EngineError as error:
                failed = error
            else:
                return
    raise failed


def fit_stages(
    task: Task, name: str, stages_of: Callable[[PublicFacts], tuple[Stage, ...]]
) -> PosteriorFit:
    """Sample the stages of a mechanism in order.

    Where no weight depends on the records, the unweighted fit is postponed until a result needs it
    (``PosteriorFit.risk_unweighted``).

    Args:
        task: the records and the means to model them.
        name: name of the mechanism, for messages.
        stages_of: function that derives the stages from public facts.
    Raises:
        DataError, ConvergenceError, EngineError, ProgramError.
    """
    records, stages = prepare_stages(task, stages_of)
    # One seed for the unweighted fit, one for the draws between stages, one for each stage.
    _, between_stages, *seeds = np.random.SeedSequence(task.entropy).spawn(2 + len(stages))
    rng = np.random.default_rng(between_stages)
    posteriors: list[Posterior] = []
    drawn: xr.DataTree | None = None
    before: Candidates | None = None
    anchors: list[xr.DataTree | None] = []
    try:
        for number, (stage, seed) in enumerate(zip(stages, seeds, strict=True), start=1):
            if stage.anchor == "draw":
                drawn = one_draw(*next(posteriors[-1].chosen(1, task.noise, rng)))
                before = posteriors[-1].bound_stage.candidates
            elif isinstance(stage.anchor, AnchorTables):
                drawn = tabulated.draw_anchor(stage.anchor, records, task.noise)
            if stage.plain:
                posterior, description = records.unweighted_released, "unweighted fit"
            else:
                bound = bind_stage(records, stage, drawn, before)
                previous_draws = posteriors[-1].draws if stage.anchor == "draw" else None
                posterior = records.sample(bound, seed, task.checkpoint, previous_draws)
                description = f"{name} fit" + (f", stage {number}" if len(stages) > 1 else "")
            records.require(posterior, description)
            posteriors.append(posterior)
            anchors.append(drawn)
    except ConvergenceError:  # stored chains would fail again, so a second call needs new ones
        if task.checkpoint is not None:
            task.checkpoint.clear()
        raise
    return PosteriorFit(
        name, records, stages_of, stages, tuple(posteriors), tuple(anchors), task.entropy
    )


def synthetic_columns(
    bound_records: BoundRecords,
    output: Drawn,
    rows: int,
    rng: np.random.Generator,
    released: bool = False,
) -> pd.DataFrame:
    """Draw synthetic columns from the program, with constants for every confidential value.

    Seeds of Stan's generator have 31 bits, which can be enumerated: each row therefore takes its
    values from one of several replicates with seeds of their own, chosen row by row. A bundled
    program draws each row independently of the others, so that rows are drawn in blocks.

    Args:
        released: the output is paid for, so that a warning may tell what is drawn from it.
    """
    public = bound_records.model.public(bound_records.task.records, rows)
    if rows <= ROWS_AT_ONCE or not bound_records.model.program.bundled:
        blank = (
            bound_records.blank if rows == bound_records.task.rows else bound_records.blank_of(rows)
        )
        return _replicated(bound_records, output, public, blank, rng, released)
    blocks = (public.iloc[k : k + ROWS_AT_ONCE] for k in range(0, rows, ROWS_AT_ONCE))
    drawn = [
        _replicated(bound_records, output, b, bound_records.blank_block(b), rng, released)
        for b in blocks
    ]
    return pd.concat(drawn, ignore_index=True)


def at_random_draw(
    bound_records: BoundRecords,
    draws: xr.DataTree,
    rows: int,
    rng: np.random.Generator,
    released: bool = False,
) -> pd.DataFrame:
    """Draw synthetic columns as ``synthetic_columns`` at one of the draws, chosen at random."""
    output = Drawn(draws, int(rng.integers(count_draws(draws))))
    return synthetic_columns(bound_records, output, rows, rng, released)


def check_of(bound_records: BoundRecords, draws: xr.DataTree, replicates: int) -> Check:
    """Compute posterior predictive checks. DataError if there are no records."""
    records, survey = bound_records.task.records, bound_records.task.schema.survey
    if survey is not None:  # as many rows as vary about as much as the weighted records
        weights = records[survey.weights]
        alike = min(len(records), math.ceil(survey.effective(weights)))
        records = survey.represented(records, weights, alike)
    rows = max(len(records), 1)
    public = bound_records.model.public(records, rows)
    drawn = replicated(bound_records.model, bound_records.blank_of(rows), draws, public, replicates)
    return Check.of(bound_records.model.outcomes, records, list(drawn), bound_records.model.events)


def _replicated(
    bound_records: BoundRecords,
    output: Drawn,
    public: pd.DataFrame,
    blank: BoundModel,
    rng: np.random.Generator,
    released: bool,
) -> pd.DataFrame:
    """Draw synthetic columns for public rows to which ``blank`` is bound."""
    rows = len(public)

    def replicate(changes: Mapping[str, Any]) -> NDArray[Any]:
        bound = blank.rebind(**changes) if changes else blank
        seeds = rng.integers(2**31, size=REPLICATES).tolist()
        replicates = np.stack([bound.y_rep(*output, seed) for seed in seeds])
        y = np.asarray(replicates[rng.integers(REPLICATES, size=rows), np.arange(rows)])
        wrong = int(np.isnan(y).sum())
        if wrong and released:
            warnings.warn(
                f"y_rep of {bound_records.model.program.name}.stan is no number in {wrong:,} of "
                f"{rows:,} rows, where 0 or the value nearest to it is released. Keep what its "
                "generators take inside their domain, and release anew.",
                stacklevel=2,
            )
        return y

    return bound_records.model.draw(public, replicate)


@dataclass(frozen=True, repr=False)
class PosteriorFit(Fitted[Drawn]):
    """Posteriors of a mechanism given records. Confidential.

    Attributes:
        name: name of the mechanism.
        bound_records: the records bound to the program.
        stages_of: function that derives the mechanism's stages from public facts.
        stages, posteriors: the stages and their posteriors in order; data sets are drawn from the
            last.
        anchors: the draw at which each stage is anchored, or None.
        seed: reproduces the fit as ``SamplerSettings(seed=...)``; as secret as the records.
    """

    name: str
    bound_records: BoundRecords
    stages_of: Callable[[PublicFacts], tuple[Stage, ...]]
    stages: tuple[Stage, ...]
    posteriors: tuple[Posterior, ...]
    anchors: tuple[xr.DataTree | None, ...]
    seed: int

    @property
    def settings(self) -> Mapping[str, Any]:  # type: ignore[override]  # read only
        """Formula, family, priors, survey, and the weight and window of each stage; public."""
        stages = [stage.to_dict() for stage in self.stages]
        survey = self.bound_records.task.schema.survey
        weighed = {} if survey is None else {"survey": survey.to_plain()}
        return {**self.bound_records.model.public_settings(), **weighed, "stages": stages}

    @property
    def synthesised(self) -> tuple[Column, ...]:  # type: ignore[override]  # read only
        """Columns whose values are synthetic."""
        return self.bound_records.model.outcomes

    def draw_private(self, noise: Noise) -> Drawn:
        return next(self.draw_outputs(1, noise))

    def draw_outputs(self, count: int, noise: Noise) -> Iterator[Drawn]:
        """Take ``count`` posterior draws."""
        return self.posterior.chosen(count, noise, noise.rng)

    def check_outputs(self, count: int) -> None:
        self.posterior.check_draws(count)

    def synthetic(self, output: Drawn, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        return synthetic_columns(self.bound_records, output, rows, rng, released=True)

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame | None:
        if self.stages[-1].plain:
            return None
        return at_random_draw(
            self.bound_records, self.unweighted.draws, self.bound_records.task.rows, rng
        )

    def versions(self) -> Mapping[str, str]:
        engine_versions = self.bound_records.task.engine.versions()
        drawn = any(isinstance(stage.anchor, AnchorTables) for stage in self.stages)
        uses_opendp = drawn or self.posterior.bound_stage.candidates is not None  # both by OpenDP
        return {**engine_versions, **(versions("opendp") if uses_opendp else {})}

    def beside(self, records: pd.DataFrame) -> NeighbourRecords:
        """Bind other records, in the form that ``Synthesizer.fit`` takes, to the program."""
        return NeighbourRecords(self.bound_records, records)

    def bound_stages(self, records: pd.DataFrame | None = None) -> tuple[BoundStage, ...]:
        if records is None:
            return tuple(posterior.bound_stage for posterior in self.posteriors)
        other = self.beside(records)
        stages: list[BoundStage] = []
        for stage, drawn in zip(self.stages_of(other.problem()), self.anchors, strict=True):
            before = stages[-1].candidates if stages and stage.anchor == "draw" else None
            stages.append(bind_stage(other, stage, drawn, before))
        return tuple(stages)

    @property
    def posterior(self) -> Posterior:
        """The posterior of the last stage, from which data sets are drawn."""
        return self.posteriors[-1]

    @property
    def draws(self) -> xr.DataTree:
        """Draws of the last stage, with groups posterior and sample_stats."""
        return self.posterior.draws

    @property
    def diagnostics(self) -> Diagnostics:
        """Convergence diagnostics of the last stage."""
        return self.posterior.diagnostics

    @property
    def risk(self) -> RecordRisk:
        """By-record risk of the last stage."""
        return self.posterior.risk.of_each(self.bound_records.kinds)

    @property
    def weights(self) -> Vector:
        """Weights of the last stage, shape (n,): ones, or risk weights alpha_i; and w / largest.

        Sampling weights w multiply the others as parts of the largest one.
        """
        return self.bound_records.kinds.each_record(self.posterior.bound_stage.weighting.weights)

    @property
    def truncated(self) -> Mask:
        """Mask of the records whose weight Weighted-e set to 0, shape (n,)."""
        return self.bound_records.kinds.each_record(self.posterior.bound_stage.weighting.truncated)

    @property
    def window(self) -> Window:
        """Ends of the clamp of the last stage; infinite without one."""
        return self.stages[-1].window

    @property
    def unweighted(self) -> Posterior:
        """The unweighted fit, computed at first use; no release depends on that computation."""
        released = [p for p in self.posteriors if p.bound_stage.stage.plain]
        return released[0] if released else self.bound_records.unweighted

    @property
    def risk_unweighted(self) -> RecordRisk:
        """By-record risk under the unweighted fit, before any protection."""
        return self.unweighted.risk.of_each(self.bound_records.kinds)

    @property
    def lipschitz(self) -> Vector:
        """By-record Lipschitz bounds of the last stage, shape (n,)."""
        return self.risk.lipschitz

    @property
    def lipschitz_unweighted(self) -> Vector:
        """By-record Lipschitz bounds under the unweighted fit, shape (n,)."""
        return self.risk_unweighted.lipschitz

    @property
    def lipschitz_bound(self) -> float:
        """Lipschitz bound Δ: the largest by-record bound of the last stage."""
        return self.risk.bound

    @property
    def lipschitz_bound_unweighted(self) -> float:
        """The largest by-record Lipschitz bound under the unweighted fit."""
        return self.risk_unweighted.bound

    @property
    def epsilon_local(self) -> float:
        """Local ε_x = 2Δ on these records; confidential."""
        return 2 * self.lipschitz_bound

    @property
    def n_censored(self) -> int:
        """Number of records whose weighted term left the window for at least one draw."""
        return int(self.risk.censored.sum())

    @property
    def n_truncated(self) -> int:
        """Number of records whose weight Weighted-e set to 0."""
        return int(self.truncated.sum())

    @property
    def converged(self) -> bool:
        """Whether every fit that the release depends on passed all convergence checks."""
        diagnostics = [
            posterior.diagnostics for posterior in self.posteriors if posterior.choices is None
        ]
        # Confidential weights are computed from the unweighted fit, which must converge as well.
        if any(stage.weights.name == "confidential" for stage in self.stages):
            diagnostics.append(self.bound_records.unweighted.diagnostics)
        return all(checks.converged for checks in diagnostics)

    def coefficients(self, column: str | None = None) -> pd.DataFrame:
        """Posterior mean and sd of the regression coefficients, in dollars per year or the like.

        They are in the outcome's and the covariates' own units, and the intercept at covariates 0;
        under a log link those of log(y). ``draws`` has the parameters on the program's scale. For
        families with one linear predictor and an intercept.

        Args:
            column: name of the modelled column, or of a part of its family (``zero``, ``count``);
                required where there are several.
        """
        return coefficients_of(self.draws, *self._model_of(column))

    def group_sds(self, column: str | None = None) -> pd.DataFrame:
        """Posterior mean and sd of the sds of group effects, and of their correlations.

        In the outcome's own units, on the link scale; slopes are those of columns standardised over
        the declared domain, and intercepts at the middle of it. For families with one linear
        predictor.

        Args:
            column: as for ``coefficients``.
        """
        model, label = self._model_of(column)
        return group_sds_of(self.draws, self.bound_records.data, model, label)

    def _model_of(self, column: str | None) -> tuple[ColumnModel, str]:
        """The model of a column and its label; those of the only column if none is named.

        Parts of a family are identified by their labels.
        """
        pairs = self.bound_records.model.predictors
        parts = len(pairs) > len(self.bound_records.model.columns)
        by_name = {label if parts else model.outcome.name: (model, label) for model, label in pairs}
        if column is None and len(by_name) == 1:
            return next(iter(by_name.values()))
        if column not in by_name:
            raise SchemaError(f"column = {column!r} must be one of {', '.join(by_name)}.")
        return by_name[column]

    def lost(self) -> pd.DataFrame:
        """Compare coefficients with those of the unclamped fit: ``mean``, ``sd`` and ``off``.

        ``off`` is the root mean squared distance of a draw from the unclamped posterior's mean, in
        sds of that posterior: sqrt((m - m0)² + s²) / s0, which is 1 without any protection. There
        is one row for each coefficient of each column that has coefficients; confidential.
        """
        tables, whole = [], self.bound_records.model
        for model, label in zip(whole.columns, whole.labels, strict=True):
            try:
                protected = coefficients_of(self.draws, model, label)
                plain = coefficients_of(self.unweighted.draws, model, label)
            except ProgramError:
                continue
            protected.index = [f"{model.outcome.name}: {name}" for name in protected.index]
            distances = np.hypot(
                protected["mean"].to_numpy() - plain["mean"].to_numpy(), protected["sd"]
            )
            tables.append(protected.assign(off=np.asarray(distances) / plain["sd"].to_numpy()))
        return pd.concat(tables) if tables else pd.DataFrame(columns=["mean", "sd", "off"])

    def _warnings(self) -> tuple[str, ...]:
        """Warnings where clamp and weights cost more utility than usual."""
        if self.stages[-1].plain:
            return ()
        warnings = []
        task = self.bound_records.task
        if task.schema.survey is not None and not task.records.empty:
            survey = task.schema.survey
            part = task.records[survey.weights].sum() / survey.population
            if abs(part - 1) > UNLIKE_POPULATION:
                warnings.append(
                    f"The weights, cut at {survey.largest:,.10g}, add up to {part:.0%} of the "
                    f"population that is declared, {survey.population:,.10g}: correct it, or "
                    "`largest`. Rows lean towards records with small weights where many are cut, "
                    "and with weights that are far too small the prior alone is released."
                )
        share = self.n_censored / self.bound_records.n
        if share > CLAMPED:
            warnings.append(
                f"{share:.0%} of the records were clamped at some draw: what they say of the "
                "parameters was cut. More ε, tempering (`anchored`, or a larger range L of it) or "
                "a simpler model leaves more of it."
            )
        distances = self.lost()["off"]
        if len(distances) and distances.max() > FAR:
            warnings.append(
                f"A draw of the coefficient {distances.idxmax()!r} is {distances.max():.1f} "
                "standard errors of the unclamped fit away from it "
                f"({distances.median():.1f} for the median coefficient; 1 is what a posterior has "
                "without protection): this regression is lost in part."
            )
        return tuple(warnings)

    def check(self, replicates: int = CHECKED) -> Check:
        """Compute posterior predictive checks of the model from which data sets are drawn.

        Args:
            replicates: number of replicated data sets that the records are compared with.
        Raises:
            DataError: there are no records.
        """
        return check_of(self.bound_records, self.draws, replicates)

    def to_datatree(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, thin: int = 1
    ) -> xr.DataTree:
        if posterior_predictive:
            self._refuse_weights("posterior_predictive")
        return datatree(
            self.posterior,
            self.bound_records,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            thin=thin,
        )

    def loo(self) -> arviz_stats.ELPDData:
        self._refuse_weights("loo()")
        return loo(self.posterior, self.bound_records)

    def _refuse_weights(self, what: str) -> None:
        """Raise SchemaError where records have sampling weights, of which ArviZ knows nothing."""
        if self.bound_records.task.schema.survey is not None:
            raise SchemaError(
                f"survey: {what} would compare the model of the population with the sample. "
                "check() compares it with the weighted records."
            )

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
            draws=named(self.draws, self.bound_records.model),
            bounds={"unweighted": before, **refit},
            epsilon=high - low if np.isfinite(high - low) else None,
        )

    def _summary(self) -> dict[str, Any]:
        task = self.bound_records.task
        return {
            "lipschitz_bound": self.lipschitz_bound,
            "lipschitz_bound_unweighted": self.lipschitz_bound_unweighted,
            "epsilon_local": self.epsilon_local,
            "n_censored": self.n_censored,
            "n_truncated": self.n_truncated,
            "diagnostics": self.diagnostics.to_dict(),
            "diagnostics_unweighted": self.unweighted.diagnostics.to_dict(),
            "formula": "; ".join(m.formula.text for m in self.bound_records.model.columns),
            "engine": task.engine.name,
            "settings": {**vars(task.settings), "seed": self.seed},
        }

    def _lines(self) -> tuple[str, ...]:
        return (
            f"Lipschitz bound {self.lipschitz_bound_unweighted:.3f} unweighted, "
            f"{self.lipschitz_bound:.3f} here; local ε_x = 2Δ = {stated(self.epsilon_local)}; "
            f"{self.n_censored} records censored, {self.n_truncated} truncated.",
            self._quality(),
        )

    def _quality(self) -> str:
        """One line on the quality of the draws: convergence, or effective candidate points."""
        choices = self.posterior.choices
        if choices is None:
            return f"convergence {self.diagnostics}"
        return (
            f"{choices.effective:.0f} of {choices.candidates.count} public points "
            "share the posterior (1 / sum of squared probabilities). With few, raise `points`."
        )

    def __repr__(self) -> str:
        stages = ", ".join(stage.weights.name for stage in self.stages)
        n = self.bound_records.n
        return f"<PosteriorFit {self.name} of {n} records; weights by stage: {stages}>"
