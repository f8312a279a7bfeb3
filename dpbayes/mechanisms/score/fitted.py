"""Records under mechanism score: what is measured of them, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import DpbayesError, GuaranteeError, ProgramError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines import get_engine
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.apart import RecordsApart
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.embedded import EmbeddedModel
from dpbayes.engines.one_record import bound_to
from dpbayes.formula.groups import COORDINATES
from dpbayes.mechanisms.base import Findings, Fitted, Task
from dpbayes.mechanisms.posterior.fit import check_of, one_of
from dpbayes.mechanisms.posterior.predictive import REPLICATES, Check
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.tabulated import AnchorTables
from dpbayes.mechanisms.posterior.tree import named
from dpbayes.mechanisms.score.clipped import ClippedScore, finite, slopes_along
from dpbayes.mechanisms.score.grouped import (
    GroupColumns,
    GroupSizes,
    GroupSums,
    group_sizes,
    grouped,
    terms_of,
)
from dpbayes.mechanisms.score.hierarchical import Hierarchical
from dpbayes.mechanisms.score.inference import NoisySum, settle
from dpbayes.mechanisms.score.posterior import ScoreChains
from dpbayes.mechanisms.score.rounds import Rounds
from dpbayes.mechanisms.score.simulated import (
    SEED,
    Simulator,
    by_row,
    without_coordinates,
)
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import RADIAL
from dpbayes.schema import Column
from dpbayes.schema.domain import made_up
from dpbayes.stan.scored import NOISE

SIZE, MORE = 2_000, 10_000  # simulated records, and with groups
LONGER = 1, 3  # times the iterations that are asked for, if chains have not converged before
NOT_YET = (
    "mechanism 'score' draws from a posterior when that is paid for: sample() returns it, as "
    "release.posterior, and it leaves the house with the data sets."
)
# Rows to a group at least: with fewer, effects are not told to first order, and what is expected
# near a point leads from one point to another and on.
PER_GROUP = 20
BINS = (6, 24)  # of the table, from and to
PER_BIN = 2.0  # the same records, in each


@dataclass(frozen=True)
class ScorePosterior:
    """A private output: what was measured, and the posterior given it.

    Attributes:
        sums: the two noisy sums over all records.
        groups: those by group.
        draws: of the posterior.
        diagnostics: of the chains.
    """

    sums: tuple[NoisySum, ...]
    groups: tuple[GroupSums, ...]
    draws: xr.DataTree
    diagnostics: Diagnostics


class FittedScore(Fitted):
    """The records apart from each other, and what is public of them. Confidential.

    Args:
        rounds_of: what the budget is spent on, by the public numbers of rows and of parameters,
            and of groups and effects of each term.
        settings: of the mechanism.
    """

    def __init__(
        self,
        task: Task,
        rounds_of: Callable[[int, int, GroupSizes], Rounds],
        settings: Mapping[str, Any],
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
        size = MORE if grouped(on.model) else SIZE
        self._simulator = Simulator(on.model, compiled, public, task.rows, size)
        self._terms = terms_of(on.model, self._simulator.design)
        # What is no column of records is that of public constants: no record can be in it.
        constants = without_coordinates(on.model.blank(task.records, task.rows))
        records = on.model.constant_record() if task.records.empty else task.records
        columns = by_row(on.model, {**on.model.data(records, task.rows), "n": on.n}, task.rows)
        # Kinds of what the program is given of a record, and of nothing less.
        self._kinds = kinds = UniqueRows.among(columns, on.n)
        of_kinds = {name: values[kinds.rows] for name, values in columns.items()}
        self._groups_of = [
            np.asarray(of_kinds["group_index"])[:, term.columns[0]] - term.first
            for term in self._terms
        ]
        self._apart = RecordsApart(compiled, constants, of_kinds, kinds.size)
        if not on.model.program.bundled:
            self._check_alone(compiled, constants)
        rounds = rounds_of(task.rows, len(self._simulator.fixed), group_sizes(on.model))
        widest = max(rounds.parameters, *(width for _, width in rounds.groups), 0)
        if rounds.rho is None and widest > RADIAL:
            raise GuaranteeError(
                f"the model has {widest} parameters, or effects of a group; noise for a pure ε is "
                f"drawn for up to {RADIAL}. Leave out terms, or give a delta (--delta)."
            )
        most = max((groups for groups, _ in rounds.groups), default=0)
        if most * PER_GROUP > rounds.rows:
            raise GuaranteeError(
                f"{rounds.rows:,} rows in {most:,} groups: mechanism 'score' needs {PER_GROUP} "
                "rows to a group; intervals are too short with fewer. Take anchored."
            )
        self._rounds = rounds
        lengths = [rounds.length(part) for part in rounds.sums]
        parts: dict[str, Any] = {
            "table": rounds.table, "sums": list(rounds.sums), "lengths": lengths,
        }  # fmt: skip
        if self._terms:
            parts["by_group"] = rounds.by_group
            parts["lengths_by_group"] = [rounds.length_by_group(*size) for size in rounds.groups]
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
        if self._terms:
            point = simulator.without_effects(point)
        directions = simulator.directions
        for part in self._rounds.sums:
            directions = simulator.whitened(point, directions)
            asked = point
            score = ClippedScore(point, directions, self._rounds.length(part))
            sums.append(self._noisy(score, part, noise))
            belief = settle(simulator, sums[-1], point)
            point = belief.point
        groups = tuple(
            self._by_group(term, of_record, asked, noise)
            for term, of_record in zip(self._terms, self._groups_of, strict=True)
        )
        seed = int(noise.rng.integers(2**31))
        made = Hierarchical if groups else ScoreChains
        chains = made(simulator, task.engine, sums[-1], groups, belief, seed)
        quiet = replace(task.settings, progress=False)  # of what is private until it is released
        for times in LONGER:  # what is paid for is released in any case: the claim needs no chain
            how = replace(quiet, warmup=times * quiet.warmup, draws=times * quiet.draws)
            draws, diagnostics = chains.sample(how)
            if task.allow_nonconvergence or diagnostics.converged:
                break
        return ScorePosterior(tuple(sums), groups, draws, diagnostics)

    def _first_guess(self, noise: Noise) -> Vector:
        """The mode given records made up from a noisy table of the outcome."""
        rounds = self._rounds
        epsilon = rounds.spent(rounds.table) / rounds.moves
        low, high = BINS
        bins = int(min(max(rounds.rows * epsilon / PER_BIN, low), high))
        tables = AnchorTables(epsilon, 1, 0, bins, 1.0)
        # A table of the outcome tells nothing of groups.
        draw = tables.draw(self._on, noise, COORDINATES if self._terms else ())
        return np.asarray(self._simulator.points_of(draw)[0])

    def _noisy(self, score: ClippedScore, part: float, noise: Noise) -> NoisySum:
        """The sum over all records."""
        rounds = self._rounds
        total, scale = self._whole(score).sum(axis=0), rounds.scale(part)
        pure = rounds.rho is None
        told = noise.radial(total, scale) if pure else noise.gaussian(total, scale)
        sd = rounds.sd(part) * score.length
        return NoisySum(
            score, np.asarray(told * score.unit), sd, scale * score.unit if pure else 0.0
        )

    def _by_group(
        self, term: GroupColumns, of_record: Ints, point: Vector, noise: Noise
    ) -> GroupSums:
        """A sum for each group of a term. A record is in one, so that only that moves with it.

        Args:
            of_record: the public group of each kind of records.
        """
        rounds, simulator, width = self._rounds, self._simulator, len(term.columns)
        directions = simulator.whitened(point, simulator.along_effects(point, term.columns))
        score = ClippedScore(point, directions, rounds.length_by_group(term.groups, width))
        total = np.zeros((term.groups, width), dtype=np.int64)
        np.add.at(total, of_record, self._whole(score))
        scale, pure = rounds.scale(rounds.by_group), rounds.rho is None
        if not pure:
            told = noise.gaussian(total, scale)
        elif width == 1:
            told = noise.counts(total, scale)
        else:
            told = np.stack([noise.radial(of_group, scale) for of_group in total])
        sd, unit = rounds.sd(rounds.by_group, width) * score.length, score.unit
        return GroupSums(term, score, np.asarray(told * unit), sd, scale * unit if pure else 0.0)

    def _whole(self, score: ClippedScore) -> Ints:
        """Scores in whole numbers, of all records of each kind together."""
        present = self._kinds.counts[:, None] * int(self._on.present)
        return np.asarray(score.whole(self._apart) * present)

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
        simulator = self._simulator
        point = simulator.points_of(plain.draws).mean(axis=0)
        ways = [simulator.directions]
        if self._terms:
            point = simulator.without_effects(point)
            ways += [simulator.along_effects(point, term.columns) for term in self._terms]
        length, *by_term = [self._lengths(point, way) for way in ways]
        clip = rounds.length(rounds.sums[-1])
        cost, most = rounds.cost(length, by_term), np.array([np.inf])
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
            epsilon=float(rounds.cost(most, [most] * len(self._terms))[0]),
            half="ε/2",
        )

    def _lengths(self, point: Vector, directions: Floats) -> Vector:
        """Of each record how long its score is, in standard deviations, shape (n,)."""
        whitened = self._simulator.whitened(point, directions)
        slopes = finite(slopes_along(self._apart, point, whitened))
        return self._kinds.each_record(np.linalg.norm(slopes, axis=1))
