"""Noisy sums of clipped scores, and the posterior given them: strict for any program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpbayes.arrays import Vector
from dpbayes.engines import get_engine
from dpbayes.engines.apart import RecordsApart
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.draws import count_draws
from dpbayes.engines.embedded import EmbeddedModel
from dpbayes.engines.one_record import bound_to
from dpbayes.errors import GuaranteeError, SchemaError
from dpbayes.heavy import pd, xr
from dpbayes.mechanisms.base import Fitted, NoisyMechanism, Task
from dpbayes.mechanisms.measured.budget import MOVES
from dpbayes.mechanisms.outlook import Caution, Outlook
from dpbayes.mechanisms.posterior.fit import synthetic_columns
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.sampled import Drawn
from dpbayes.mechanisms.posterior.tabulated import Tables
from dpbayes.mechanisms.score.clipped import GRAINS, ClippedScore
from dpbayes.mechanisms.score.inference import NoisySum, settle
from dpbayes.mechanisms.score.posterior import sample
from dpbayes.mechanisms.score.simulated import SEED, Simulator, by_row
from dpbayes.privacy.accounting import Loss, check_delta, rho_for, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee, inside
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import RADIAL, scale_for
from dpbayes.release import versions
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import made_up
from dpbayes.stan.model import ColumnModel, Model

# Parts of the budget: for the table of outcomes at most, and of the rest for the first of two sums.
TABLE, FIRST = 0.15, 0.25
COUNTED = 20.0  # records times the table's epsilon, with which it tells where outcomes are
BINS = (6, 24)  # of the table, from and to
PER_BIN = 2.0  # the same records, in each
# Lengths of scores: the least beside the root of d, the most, and the share of the variance of a
# sum of scores that noise may add where there is more than enough ε.
LEAST, MOST, ADDED = 0.8, 12.0, 0.3
SIZE = 2_000  # simulated records
CLIPS = 1e-3, 1e6
LOST = 15.0  # records times ε by parameter, below which it is said


@dataclass(frozen=True)
class Rounds:
    """What a budget is spent on, by public facts alone.

    Attributes:
        epsilon: of everything, where rho is None.
        rho: of everything, or None where it is pure.
        moves: scores of which the sums of two neighbours differ.
        rows: the public number of rows.
        parameters: d.
    """

    epsilon: float
    rho: float | None
    moves: int
    rows: int
    parameters: int

    @property
    def table(self) -> float:
        """Part of the budget for the table of outcomes, which is pure."""
        if self.rho is not None:  # a claim at a delta tells it apart, before rows are known
            return TABLE
        return min(TABLE, COUNTED * self.moves / (self.rows * self.epsilon))

    def spent(self, part: float) -> float:
        """The ε of a pure answer that is a part of the budget."""
        return part * self.epsilon if self.rho is None else math.sqrt(2 * part * self.rho)

    @property
    def sums(self) -> tuple[float, float]:
        """Parts of the budget for the two sums."""
        rest = 1 - self.table
        return FIRST * rest, (1 - FIRST) * rest

    def scale(self, part: float) -> float:
        """Of noise for whole scores: sigma, or what the length of radial noise is divided by."""
        return scale_for(self.moves * GRAINS, self.spent(part))

    def sd(self, part: float) -> float:
        """Of the noise in an entry of a sum, by the length of a score."""
        more = math.sqrt(self.parameters + 1) if self.rho is None else 1.0
        return more * self.scale(part) / GRAINS

    def length(self, part: float) -> float:
        """To which scores are clipped: the longer, the nearer the likelihood's posterior is."""
        room = math.sqrt(ADDED * self.rows) / self.sd(part)
        return max(LEAST * math.sqrt(self.parameters), min(MOST, room))


@dataclass(frozen=True)
class Score(NoisyMechanism["FittedScore"]):
    """Noisy sums of clipped scores, and the posterior of the model given them.

    A table of the outcome with noise gives a first guess of the parameters, a noisy sum of clipped
    scores there a second, and a noisy sum there is what the posterior is conditioned on: prior and
    constraints are the program's own, the likelihood that of the sum under the model, noise
    included. Draws, data sets and intervals follow from it and cost nothing more. Of the source is
    the noise.

    Source: hardt-talwar-2010.

    Sensitivity: each record's score is computed with that record alone in the program, at a point
    that noisy answers gave, and has a bounded length (``ClippedScore``).

    Guarantee: strict, for any program, whatever chains do: by composition over the three answers.
    A changed record moves two scores, and two counts of the table.

    Attributes:
        epsilon, adjacency: as in ``NoisyMechanism``; of all data sets together.
        delta: at which epsilon is meant. Above 0 noise of sums is normal.
        clip: length of a score, in standard deviations of what one record of the model says; by
            default from public facts (``Rounds.length``).
    """

    epsilon: float
    adjacency: Adjacency = "add-remove"
    delta: float = 0.0
    clip: float | None = None
    name: ClassVar[str] = "score"
    summary: ClassVar[str] = "noisy sums of clipped scores, and a posterior given them; strict ε-DP"
    needs_proof: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_delta(self.delta) and not rho_for(self.epsilon, self.delta):
            raise GuaranteeError(
                f"epsilon = {self.epsilon:g} at delta = {self.delta:g} is too little for any "
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

    def rounds(self, rows: int, parameters: int) -> Rounds:
        """What the budget is spent on."""
        rho = rho_for(self.epsilon, self.delta) if self.delta else None
        return Rounds(self.epsilon, rho, MOVES[self.adjacency], rows, parameters)

    def guarantee(self) -> Guarantee:
        if not self.delta:
            return self._claim(self.loss)
        every = self.rounds(1, 1)  # no part follows the number of rows here
        assert every.rho is not None
        table, rho = every.spent(TABLE) / every.moves, (1 - TABLE) * every.rho / every.moves**2
        loss = Loss.pure(table).plus(Loss.concentrated(rho))
        return replace(self._claim(loss), delta=self.delta)

    def _claim(self, loss: Loss) -> Guarantee:
        return replace(super()._claim(loss), once_for="noisy sums of clipped scores")

    def check(self, schema: Schema, model: Model | None) -> None:
        model = self.given(model)
        if not isinstance(model, ColumnModel) or model.conditioned or len(model.outcomes) > 1:
            raise SchemaError(
                f"mechanism {self.name!r} draws one column given public ones. For several columns "
                "take anchored, or measured for whole tables."
            )
        if model.formula.groups and model.family:
            raise SchemaError(
                f"mechanism {self.name!r} has no group terms yet: take anchored, or the groups as "
                "a covariate."
            )
        column = model.outcome
        if not column.levels and column.upper is None:
            raise SchemaError(
                f"column {column.name!r}: mechanism {self.name!r} counts outcomes in public bins; "
                "add upper = ... (from documentation, never from the confidential data)."
            )

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Outlook:
        assert model is not None  # check
        d = model.parameters
        told = rows * self.rounds(rows, d).spent(1.0) / (MOVES[self.adjacency] * d)
        facts = {"records times ε by parameter": told}
        if told >= LOST:
            return Outlook(facts)
        what = (
            f"{rows:,} records at ε = {stated(self.epsilon)} say little of about {d} parameters: "
            "what is drawn follows the prior more than the records."
        )
        needed = math.ceil(rows * LOST / told)
        remedy = f"About {needed:,} records are needed, or fewer terms, or more ε."
        return Outlook(facts, (Caution(what, remedy),))

    def fit(self, task: Task) -> FittedScore:
        return FittedScore(self, task)


@dataclass(frozen=True)
class ScorePosterior:
    """A private output: what was measured, and the posterior given it.

    Attributes:
        sums: the two noisy sums.
        draws: of the posterior.
        diagnostics: of the chains.
    """

    sums: tuple[NoisySum, ...]
    draws: xr.DataTree
    diagnostics: Diagnostics


class FittedScore(Fitted):
    """The records apart from each other, and what is public of them. Confidential."""

    def __init__(self, mechanism: Score, task: Task) -> None:
        self._mechanism, self._task = mechanism, task
        self._on = on = task.shared(BoundRecords)
        engine: Any = get_engine("embedded")
        compiled: EmbeddedModel = engine.compile(on.model.program)
        public = on.model.public(task.records, task.rows)
        self._simulator = Simulator(on.model, compiled, public, task.rows, SIZE)
        # What is no column of records is that of public constants: no record can be in it.
        constants = on.model.blank(task.records, task.rows)
        columns = by_row(on.model, {**on.data, "n": on.size}, task.rows)
        self._apart = RecordsApart(compiled, constants, columns, on.size)
        if not on.model.program.bundled:
            self._check_alone(compiled, constants)
        rounds = mechanism.rounds(task.rows, self._simulator.dimension)
        if rounds.rho is None and rounds.parameters > RADIAL:
            raise GuaranteeError(
                f"the model has {rounds.parameters} parameters; noise for a pure ε is drawn for up "
                f"to {RADIAL}. Leave out terms, or give a delta (--delta)."
            )
        self._rounds = rounds
        lengths = [mechanism.clip or rounds.length(part) for part in rounds.sums]
        parts = {"table": rounds.table, "sums": list(rounds.sums), "lengths": lengths}
        self.settings = {**on.model.public_settings(), **mechanism.to_dict(), **parts}
        self.synthesised: tuple[Column, ...] = on.model.outcomes

    def _check_alone(self, compiled: EmbeddedModel, constants: Mapping[str, Any]) -> None:
        """EngineError, with what Stan says, unless the program takes a made-up record alone."""
        on = self._on
        made = made_up(self._task.schema, 1, np.random.default_rng(SEED))
        data = on.model.data(made, self._task.rows)
        columns = by_row(on.model, {**data, "n": 1}, self._task.rows)
        point = self._simulator.anywhere()
        for _ in bound_to(compiled, constants, columns, 1).log_lik_at(point[None], strict=True):
            pass

    def versions(self) -> Mapping[str, str]:
        return {**self._task.engine.versions(), **versions("opendp")}

    def private(self, noise: Noise) -> ScorePosterior:
        simulator, task = self._simulator, self._task
        point = self._first_guess(noise)
        sums: list[NoisySum] = []
        directions = np.eye(len(point))
        for part in self._rounds.sums:
            directions = simulator.whitened(point, directions)
            length = self._mechanism.clip or self._rounds.length(part)
            sums.append(self._noisy(ClippedScore(point, directions, length), part, noise))
            belief = settle(simulator, sums[-1], point)
            point = belief.point
        seed = int(noise.rng.integers(2**31))
        quiet = replace(task.settings, progress=False)  # of what is private until it is released
        draws, diagnostics = sample(simulator, task.engine, sums[-1], belief, quiet, seed)
        if not task.allow_nonconvergence:
            diagnostics.require("posterior given the noisy scores")
        return ScorePosterior(tuple(sums), draws, diagnostics)

    def _first_guess(self, noise: Noise) -> Vector:
        """The mode given records made up from a noisy table of the outcome."""
        rounds = self._rounds
        epsilon = rounds.spent(rounds.table) / rounds.moves
        low, high = BINS
        bins = int(min(max(rounds.rows * epsilon / PER_BIN, low), high))
        tables = Tables(epsilon, 1, 0, bins, 1.0)
        return np.asarray(self._simulator.points_of(tables.draw(self._on, noise))[0])

    def _noisy(self, score: ClippedScore, part: float, noise: Noise) -> NoisySum:
        """The sum over all records."""
        on, rounds = self._on, self._rounds
        whole = score.whole(self._apart) * (on.kinds.counts[:, None] * int(on.present))
        total, scale = whole.sum(axis=0), rounds.scale(part)
        pure = rounds.rho is None
        told = noise.radial(total, scale) if pure else noise.gaussian(total, scale)
        sd = rounds.sd(part) * score.length
        return NoisySum(
            score, np.asarray(told * score.unit), sd, scale * score.unit if pure else 0.0
        )

    def synthetic(
        self, output: ScorePosterior, rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        number = int(rng.integers(count_draws(output.draws)))
        return synthetic_columns(self._on, Drawn(output.draws, number), rows, rng)
