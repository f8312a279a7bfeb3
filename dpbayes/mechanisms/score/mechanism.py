"""Mechanism ``score``: the posterior given noisy sums of clipped scores, strict for any program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from dpbayes.core.errors import GuaranteeError, ProgramError, SchemaError
from dpbayes.mechanisms.base import SEVERAL, NoisyMechanism, Task, free
from dpbayes.mechanisms.forecast import GROUPS, Forecast, ForecastWarning, of_posterior
from dpbayes.mechanisms.marginals.budget import MOVES
from dpbayes.mechanisms.score.fitted import FittedScore, RehearsedScore
from dpbayes.mechanisms.score.grouped import GroupSizes, group_sizes
from dpbayes.mechanisms.score.rounds import TABLE, Rounds
from dpbayes.privacy.accounting import Loss, check_delta, rho_for, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee, inside
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema import Schema
from dpbayes.stan.model import ColumnModel, Model
from dpbayes.stan.proof.check import flat_parameters

CLIPS = 1e-3, 1e6  # smallest and largest clipping length
MOST_CROSSED = (
    1_000  # most group effects of which any two may share records: they need a dense matrix
)
SHORT = 10  # iterations of warm-up, and draws, of a rehearsal
HIDDEN = 1.5  # times as uncertain as without noise, above which a forecast warns of single groups
LOST = 40.0  # records times ε per parameter, below which a forecast warns


@dataclass(frozen=True)
class Score(NoisyMechanism[FittedScore]):
    """The posterior of the model given noisy sums of clipped scores.

    A noisy table of the outcome gives a first guess of the parameters, and a noisy sum of clipped
    scores at that point a second. The posterior is conditioned on a noisy sum at the second point:
    prior and constraints are the program's own, and the likelihood is that of the sum under the
    model, noise included. Draws, data sets and intervals follow from it and cost nothing more. Only
    the noise is taken from the source.

    Source: hardt-talwar-2010.

    Sensitivity: each record's score is computed with that record alone in the program, at a point
    determined by earlier noisy answers, and has a bounded length (``ClippedScore``).

    Where the number of rows is declared, a twentieth of the budget goes to a noisy number of
    records.

    Guarantee: strict for any program, even if chains do not converge, by composition over the
    answers. A changed record changes two scores and two counts of the table.

    Attributes:
        epsilon, adjacency: as in ``NoisyMechanism``; epsilon covers all data sets together.
        delta: the δ at which epsilon holds. Above 0, sums have Gaussian noise.
        clip: maximum length of a score, in standard deviations of one record's score under the
            model; by default from public facts (``Rounds.length``).

    Examples:
        >>> import dpbayes as dpb
        >>> claim = dpb.Score(epsilon=1).guarantee()
        >>> claim.for_datasets(20).asked
        1.0
    """

    epsilon: float
    adjacency: Adjacency | None = None
    delta: float = 0.0
    clip: float | None = None
    name: ClassVar[str] = "score"
    summary: ClassVar[str] = "noisy sums of clipped scores, and a posterior given them; strict ε-DP"
    needs_proof: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_delta(self.delta) and not rho_for(self.epsilon, self.delta):
            raise GuaranteeError(
                f"epsilon = {self.epsilon!r} at delta = {self.delta!r} is too little for any "
                "noise. Give more epsilon, or leave delta out."
            )
        if self.clip is not None and not inside(self.clip, *CLIPS):
            raise GuaranteeError(
                f"clip = {self.clip!r} must be from {CLIPS[0]:g} to {CLIPS[1]:g}: the length of a "
                "score in standard deviations of what one record says, about 1 to 10."
            )

    @property
    def halves(self) -> bool:
        return True

    @property
    def sets_per_output(self) -> int | None:
        return None

    @property
    def usual_datasets(self) -> int:
        return SEVERAL

    def rounds(
        self, rows: int, parameters: int, groups: GroupSizes = (), *, declared: bool = False
    ) -> Rounds:
        """Split the budget among the answers, from public numbers of rows and parameters.

        Args:
            declared: the number of rows is declared: what is measured is a sum over all records,
                which says little without their number, so that this is measured, too.
        """
        rho = rho_for(self.epsilon, self.delta) if self.delta else None
        moves = MOVES[self.neighbours]
        return Rounds(
            self.epsilon, rho, moves, rows, parameters, self.clip, self.delta, groups, declared
        )

    def guarantee(self) -> Guarantee:
        if not self.delta:
            return self._claim(self.loss)
        rounds = self.rounds(1, 1)  # with a delta no part depends on the number of rows
        assert rounds.rho is not None
        table, rho = rounds.spent(TABLE) / rounds.moves, (1 - TABLE) * rounds.rho / rounds.moves**2
        loss = Loss.pure(table).plus(Loss.concentrated(rho))
        return replace(self._claim(loss), delta=self.delta)

    def _claim(self, loss: Loss) -> Guarantee:
        return replace(super()._claim(loss), once_for="noisy sums of clipped scores")

    def check(self, schema: Schema, model: Model | None) -> None:
        model = self.given(model)
        if not isinstance(model, ColumnModel) or model.conditioned or len(model.outcomes) > 1:
            grouped = any(column.formula.groups for column in model.columns)
            several = "For several columns take anchored, or marginals for whole tables."
            raise SchemaError(
                f"mechanism {self.name!r} draws one column given public ones. "
                f"{GROUPS if grouped else several}"
            )
        if model.family and model.formula.groups:
            _check_groups(self.name, model)
        if flat := flat_parameters(model.program):
            raise ProgramError(
                f"{model.program.name}.stan: {', '.join(flat)} has neither a prior nor two bounds. "
                "Sums of clipped scores say nothing far out, where a flat prior has all of its "
                f"mass: there is no posterior. Write `{flat[0]} ~ normal(0, 1);`, or another prior."
            )
        column = model.outcome
        if not column.levels and column.upper is None:
            raise SchemaError(
                f"column {column.name!r}: mechanism {self.name!r} counts outcomes in public bins; "
                "add upper = ... (from documentation, never from the confidential data)."
            )

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        assert model is not None  # check
        groups = group_sizes(model)
        d = model.parameters - sum(count * width for count, width in groups)
        rounds = self.rounds(rows, d, groups, declared=schema.rows.number is not None)
        rounds.check()
        # Noise at a δ is that of a larger pure ε: it does not grow with the number of sums.
        spent = rounds.spent(1.0) * (1.0 if rounds.rho is None else math.sqrt(d + 1))
        information = rows * spent / (rounds.moves * d)
        # A sum of scores has variance ``rows`` under the model. Noise added to it loses as much
        # information as a smaller number of records would.
        noise = rounds.sd(rounds.sums[-1]) * rounds.length(rounds.sums[-1])
        longer = math.sqrt(1 + noise**2 / rows)
        # Effects of single groups have noise of their own: what counts is the mean over all.
        lost = d * longer**2 + sum(
            count * width * _longer_by_group(rounds, count, width) ** 2 for count, width in groups
        )
        alpha = model.parameters / lost
        facts = of_posterior(rows, model.parameters, alpha, 1, self.epsilon).facts
        if information >= LOST:
            warnings = (*_of_intervals(rounds, longer), *_of_groups(rounds, longer))
            return Forecast(facts, (*warnings, *_of_slopes(model), *_of_counts(model)))
        needed = math.ceil(rows * LOST / information)
        problem = (
            f"{rows:,} records at ε = {stated(self.epsilon)} say too little of about {d} "
            "parameters for mechanism 'score': what is drawn is far from a fit to the records."
        )
        remedy = f"Take anchored, fewer terms or more ε; or about {needed:,} records are needed."
        return Forecast(facts, (ForecastWarning(problem, remedy),))

    def fit(self, task: Task) -> FittedScore:
        declared = task.schema.rows.number is not None
        rounds, settings = partial(self.rounds, declared=declared), self.to_dict()
        fitted, model = FittedScore(task, rounds, settings), self.given(task.model)
        if not model.program.bundled:
            RehearsedScore(_short(task, model), rounds, settings).rehearse()
        return fitted


def _of_intervals(rounds: Rounds, longer: float) -> Iterator[ForecastWarning]:
    """Yield a warning of intervals that are so many times as long as the records' own."""
    if longer > HIDDEN:
        yield ForecastWarning(
            f"Noise makes intervals of the parameters about {longer:.2g} times as long as the "
            "records' own, and what is clipped makes them longer still.",
            f"Take fewer terms{', a `delta`' * (rounds.rho is None)} or more ε.",
            against=False,  # it is in the figures of a plan
        )


def _longer_by_group(rounds: Rounds, groups: int, width: int) -> float:
    """How many times as long noise makes intervals of the effects of one of these groups."""
    noise = rounds.sd(rounds.by_group, width) * rounds.length_by_group(groups, width)
    return math.sqrt(1 + noise**2 * groups / rounds.rows)


def _of_groups(rounds: Rounds, of_slopes: float) -> Iterator[ForecastWarning]:
    """Yield warnings of terms whose single groups are hidden by the noise of their sums.

    Args:
        of_slopes: how many times as long intervals of the other parameters are.
    """
    hold = " Slopes and the sd between groups hold." if of_slopes <= HIDDEN else ""
    for groups, width in rounds.groups:
        if _longer_by_group(rounds, groups, width) > HIDDEN:
            rows = rounds.rows / groups
            yield ForecastWarning(
                f"Noise hides single groups: of {groups:,} groups with about {rows:,.0f} rows each "
                f"readers learn how far they differ, but hardly which ones are high or low.{hold}",
                "If single groups matter most, take larger groups or more ε.",
                against=False,  # it is in the figures of a plan
            )


def _of_slopes(model: Model) -> Iterator[ForecastWarning]:
    """Yield a warning of slopes beside group terms.

    Groups' effects are independent of covariates under the model. Where they are not, noise in the
    sums of groups gives differences between groups more weight (docs/mechanisms.md).
    """
    if isinstance(model, ColumnModel) and model.formula.groups and model.formula.names:
        yield ForecastWarning(
            "Slopes are between those within groups and those of the groups' means, and nearer to "
            "the latter than in a fit without noise: where the two differ, intervals do not cover "
            "the slope of such a fit.",
            "Add the mean of a covariate in its group as a further public covariate (Mundlak "
            "1978): the slope beside it is that within groups.",
            against=False,
        )


def _of_counts(model: Model) -> Iterator[ForecastWarning]:
    """Yield a warning of slopes of counts, whose tails families often do not follow.

    The figures are of seven releases by `neg_binomial` at ε = 1 of the pharmacy visits of 27,765
    persons (VietNamI of Ecdat for R). Of counts simulated from the family all intervals covered.
    """
    if not isinstance(model, ColumnModel) or not model.formula.names:
        return
    if model.formula.outcome.type == "count":
        yield ForecastWarning(
            "Slopes are those of the bulk of the records: what is far from the model is clipped. "
            "Where counts do not follow the family, as with many zeros beside a long tail, slopes "
            "were up to 7 of their standard errors from a fit to the records, and 12 of 29 "
            "intervals missed it.",
            "Compare families on earlier records: hurdle and zero-inflated ones fit counts with "
            "many zeros.",
            against=False,
        )


def _short(task: Task, model: Model) -> Task:
    """The task with public constants in place of confidential values, and the shortest chains."""
    return replace(
        task.of(model.constant_records(task.records, task.rows)),
        settings=replace(task.settings, chains=2, warmup=SHORT, draws=SHORT, seed=0),
        sealed_noise=StudyNoise(0),
        entropy=0,
        checkpoint=None,
        allow_nonconvergence=True,
        pay=free,
    )


def _check_groups(name: str, model: ColumnModel) -> None:
    """Raise SchemaError unless the mechanism supports the model's group terms."""
    family, sizes = model.family, group_sizes(model)
    assert family is not None  # the caller checks that there is one
    instead = "take anchored, or the groups as a covariate."
    categorical = family.column_type == "categorical"
    if len(model.predictors) > 1 or categorical or "components" in family.settings:
        raise SchemaError(
            f"mechanism {name!r} has group terms for families with one linear predictor, and "
            f"{family.name!r} has several: {instead}"
        )
    if not model.program.bundled:
        raise SchemaError(
            f"mechanism {name!r} has group terms for the families of dpbayes, and {family.name!r} "
            f"is your own: {instead}"
        )
    effects = sum(count * width for count, width in sizes)
    if effects > MOST_CROSSED and (len(sizes) > 1 or sizes[0][1] > 1):
        raise SchemaError(
            f"mechanism {name!r} has up to {MOST_CROSSED:,} effects of slopes and of several group "
            f"terms, and these are {effects:,}; an intercept for each group of one term may be "
            f"any number. Leave out a term, or {instead}"
        )
