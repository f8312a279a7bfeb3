"""Records under mechanism score: what is measured of them, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbayes.arrays import Vector
from dpbayes.engines import get_engine
from dpbayes.engines.alike import Kinds
from dpbayes.engines.apart import RecordsApart
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.embedded import EmbeddedModel
from dpbayes.engines.one_record import bound_to
from dpbayes.errors import DpbayesError, GuaranteeError, ProgramError
from dpbayes.heavy import pd, xr
from dpbayes.mechanisms.base import Findings, Fitted, Task
from dpbayes.mechanisms.posterior.fit import check_of, one_of
from dpbayes.mechanisms.posterior.predictive import REPLICATES, Check
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.tabulated import Tables
from dpbayes.mechanisms.posterior.tree import named
from dpbayes.mechanisms.score.clipped import ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.inference import NoisySum, settle
from dpbayes.mechanisms.score.posterior import sample
from dpbayes.mechanisms.score.rounds import Rounds
from dpbayes.mechanisms.score.simulated import SEED, Simulator, by_row
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import RADIAL
from dpbayes.release import versions
from dpbayes.schema import Column
from dpbayes.schema.domain import made_up
from dpbayes.stan.scored import NOISE

SIZE = 2_000  # simulated records
LONGER = 1, 3  # times the iterations that are asked for, if chains have not converged before
NOT_YET = (
    "mechanism 'score' draws from a posterior when that is paid for: sample() returns it, as "
    "release.posterior, and it leaves the house with the data sets."
)
BINS = (6, 24)  # of the table, from and to
PER_BIN = 2.0  # the same records, in each


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
    """The records apart from each other, and what is public of them. Confidential.

    Args:
        rounds_of: what the budget is spent on, by the public number of rows and of parameters.
        settings: of the mechanism.
    """

    def __init__(
        self, task: Task, rounds_of: Callable[[int, int], Rounds], settings: Mapping[str, Any]
    ) -> None:
        if task.engine.draw != "chain":
            raise GuaranteeError(
                f"engine {task.engine.name!r} draws from given points; mechanism 'score' draws "
                "from a posterior of its own: take embedded or cmdstan."
            )
        self._task = task
        self._on = on = task.shared(BoundRecords)
        engine: Any = get_engine("embedded")
        compiled: EmbeddedModel = engine.compile(on.model.program)
        public = on.model.public(task.records, task.rows)
        self._simulator = Simulator(on.model, compiled, public, task.rows, SIZE)
        # What is no column of records is that of public constants: no record can be in it.
        constants = on.model.blank(task.records, task.rows)
        records = on.model.constant_record() if task.records.empty else task.records
        columns = by_row(on.model, {**on.model.data(records, task.rows), "n": on.n}, task.rows)
        # Kinds of what the program is given of a record, and of nothing less.
        self._kinds = kinds = Kinds.among(columns, on.n)
        of_kinds = {name: values[kinds.rows] for name, values in columns.items()}
        self._apart = RecordsApart(compiled, constants, of_kinds, kinds.size)
        if not on.model.program.bundled:
            self._check_alone(compiled, constants)
        rounds = rounds_of(task.rows, self._simulator.dimension)
        if rounds.rho is None and rounds.parameters > RADIAL:
            raise GuaranteeError(
                f"the model has {rounds.parameters} parameters; noise for a pure ε is drawn for up "
                f"to {RADIAL}. Leave out terms, or give a delta (--delta)."
            )
        self._rounds = rounds
        lengths = [rounds.length(part) for part in rounds.sums]
        parts = {"table": rounds.table, "sums": list(rounds.sums), "lengths": lengths}
        self.settings = {**on.model.public_settings(), **settings, **parts}
        self.synthesised: tuple[Column, ...] = on.model.outcomes

    def _check_alone(self, compiled: EmbeddedModel, constants: Mapping[str, Any]) -> None:
        """ProgramError unless the program takes a made-up record alone."""
        on = self._on
        made = made_up(self._task.schema, 1, np.random.default_rng(SEED))
        rows = self._task.rows
        first = on.model.constants_at(np.zeros(1, dtype=int), rows)
        columns = by_row(on.model, {**on.model.data(made, rows), **first, "n": 1}, rows)
        point = self._simulator.anywhere()
        try:
            bound = bound_to(compiled, constants, columns, 1)
            next(bound.log_lik_at(point[None], strict=True))
        except DpbayesError as error:
            raise ProgramError(
                f"{compiled.program.name}.stan does not take one record by itself, and mechanism "
                f"'score' gives it one after the other, with n = 1: {error.said or error}"
            ) from None

    def versions(self) -> Mapping[str, str]:
        return {**self._task.engine.versions(), **versions("opendp")}

    def private(self, noise: Noise) -> ScorePosterior:
        simulator, task = self._simulator, self._task
        point = self._first_guess(noise)
        sums: list[NoisySum] = []
        directions = np.eye(len(point))
        for part in self._rounds.sums:
            directions = simulator.whitened(point, directions)
            score = ClippedScore(point, directions, self._rounds.length(part))
            sums.append(self._noisy(score, part, noise))
            belief = settle(simulator, sums[-1], point)
            point = belief.point
        seed = int(noise.rng.integers(2**31))
        quiet = replace(task.settings, progress=False)  # of what is private until it is released
        for times in LONGER:  # what is paid for is released in any case: the claim needs no chain
            how = replace(quiet, warmup=times * quiet.warmup, draws=times * quiet.draws)
            draws, diagnostics = sample(simulator, task.engine, sums[-1], belief, how, seed)
            if task.allow_nonconvergence or diagnostics.converged:
                break
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
        whole = score.whole(self._apart) * (self._kinds.counts[:, None] * int(on.present))
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
        return one_of(self._on, output.draws, rows, rng)

    def posterior_of(self, output: ScorePosterior) -> xr.DataTree:
        draws = output.draws["posterior"].to_dataset().drop_vars(NOISE, errors="ignore")
        stats = output.draws["sample_stats"].to_dataset()
        tree = xr.DataTree.from_dict({"posterior": draws, "sample_stats": stats})
        return named(tree, self._on.model)

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame:
        return one_of(self._on, self._on.unweighted.draws, self._task.rows, rng)

    def check(self, replicates: int = REPLICATES) -> Check:
        """Posterior predictive checks of the model under the unweighted posterior."""
        return check_of(self._on, self._on.unweighted.draws, replicates)

    def to_datatree(self, **groups: Any) -> xr.DataTree:
        raise GuaranteeError(NOT_YET)

    def loo(self) -> Any:
        raise GuaranteeError(NOT_YET)

    def findings(self) -> Findings:
        """Of each record how long its score is, and what it can cost at most.

        Both where the parameters are under the unweighted posterior, and not at the points that
        answers were asked at: those are in the release. Half of what a record can cost stands where
        other mechanisms have its Lipschitz bound, of which twice is an ε.
        """
        on, rounds = self._on, self._rounds
        plain = on.unweighted
        before = plain.risk.of_each(on.kinds).lipschitz
        point = self._simulator.points_of(plain.draws).mean(axis=0)
        directions = self._simulator.whitened(point, np.eye(len(point)))
        slopes = finite(slopes_along(self._apart, point, directions))
        length = self._kinds.each_record(np.linalg.norm(slopes, axis=1))
        clip = rounds.length(rounds.sums[-1])
        cost = rounds.cost(length)
        clipped = float(np.mean(length > clip)) * on.present
        return Findings(
            summary={
                "settings": dict(self.settings),
                "clipped": clipped,
                "epsilon_local": float(cost.max()),
                "diagnostics_unweighted": plain.diagnostics.to_dict(),
                "formula": "; ".join(m.formula.text for m in on.model.columns),
            },
            lines=(f"scores: {clipped:.1%} of the records are clipped, at {clip:.3g} sds",),
            by_record=pd.DataFrame(
                {
                    "weight": 1.0,
                    "lipschitz_unweighted": before,
                    "lipschitz": cost / 2,
                    "truncated": False,
                    "censored": length > clip,
                    "score": length,
                }
            ),
            bounds={"unweighted": before, "score": cost / 2},
            epsilon=float(rounds.cost(np.array([np.inf]))[0]),
            half="ε/2",
        )
