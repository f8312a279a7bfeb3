"""Records under mechanism ``score``: noisy sums of their scores, and data sets given these."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Vector
from dpbayes.core.errors import DpbayesError, EngineError, GuaranteeError, ProgramError
from dpbayes.core.lazy import pd, xr
from dpbayes.core.versions import versions
from dpbayes.engines.alike import UniqueRows
from dpbayes.engines.apart import RecordsApart
from dpbayes.engines.diagnostics import Diagnostics
from dpbayes.engines.embedded import EmbeddedEngine, EmbeddedModel
from dpbayes.engines.one_record import bound_to
from dpbayes.formula.groups import COORDINATES
from dpbayes.mechanisms.base import Findings, Fitted, Task
from dpbayes.mechanisms.posterior import tabulated
from dpbayes.mechanisms.posterior.fit import at_random_draw, check_of
from dpbayes.mechanisms.posterior.records import BoundRecords
from dpbayes.mechanisms.posterior.stage import AnchorTables
from dpbayes.mechanisms.posterior.tree import named
from dpbayes.mechanisms.predictive import REPLICATES, Check
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
from dpbayes.mechanisms.score.inference import NoisySum, best_of_modes, settle
from dpbayes.mechanisms.score.posterior import ScoreChains, prior_decides
from dpbayes.mechanisms.score.rounds import Rounds
from dpbayes.mechanisms.score.simulated import (
    SEED,
    Simulator,
    by_row,
    without_coordinates,
)
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Column
from dpbayes.schema.domain import made_up
from dpbayes.stan.model import Model
from dpbayes.stan.program import StanProgram
from dpbayes.stan.scored import NOISE, scored, scored_groups

if TYPE_CHECKING:
    import arviz_stats

TRIED = 20  # random points at which a user's program simulates records
SIZE, MORE = 2_000, 10_000  # simulated records, without and with groups
LONGER = 1, 3  # multiples of the iterations asked for; the second if the first did not converge
NOT_YET = (
    "mechanism 'score' has a posterior only after sample(), which pays for it and returns it as "
    "release.posterior: it is released together with the data sets."
)
BINS = (6, 24)  # fewest and most bins of the table
PER_BIN = 2.0  # records times the table's epsilon, in each bin


@dataclass(frozen=True)
class ScorePosterior:
    """A private output: noisy sums of scores, and the posterior given them.

    Attributes:
        sums: the two noisy sums over all records.
        groups: the noisy sums by group, for each term.
        draws: posterior draws.
        diagnostics: convergence diagnostics of the chains.
        records: the noisy number of records, where it was measured; else None.
        cut: the posterior is cut off (``ScoreChains.cut``), or its mode in doubt.
        by_prior: parameters of which the prior says most (``prior_decides``).
    """

    sums: tuple[NoisySum, ...]
    groups: tuple[GroupSums, ...]
    draws: xr.DataTree
    diagnostics: Diagnostics
    records: int | None = None
    cut: bool = False
    by_prior: tuple[str, ...] = ()


def program_given_scores(model: Model) -> StanProgram:
    """Program of the posterior given noisy sums of scores."""
    return (scored_groups if grouped(model) else scored)(model.program)


class FittedScore(Fitted[ScorePosterior]):
    """Records bound to the program one by one, with what is public of them. Confidential.

    Args:
        task: the records and the means to model them.
        rounds_of: function that splits the budget by the public numbers of rows, of parameters,
            and of groups and effects of each term.
        settings: the mechanism's settings.
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
        compiled = EmbeddedEngine().compile(on.model.program)
        public = on.model.public(task.records, task.rows)
        size = MORE if grouped(on.model) else SIZE
        self._simulator = Simulator(on.model, compiled, public, task.rows, size)
        self._terms = terms_of(on.model, self._simulator.design)
        # Program data without a row for each record come from public constants, so that a record
        # affects nothing but its own row.
        constants = without_coordinates(on.model.blank(task.records, task.rows))
        records = on.model.constant_record() if task.records.empty else task.records
        columns = by_row(on.model, {**on.model.data(records, task.rows), "n": on.n}, task.rows)
        # Records count as equal only if all that the program reads of them is equal.
        self._kinds = kinds = UniqueRows.among(columns, on.n)
        unique_columns = {name: values[kinds.rows] for name, values in columns.items()}
        self._groups_of = [
            np.asarray(unique_columns["group_index"])[:, term.columns[0]] - term.first
            for term in self._terms
        ]
        self._apart = RecordsApart(compiled, constants, unique_columns, kinds.size)
        if not on.model.program.bundled:
            self._check_alone(compiled, constants)
            # Its records are simulated after the table is paid for: somewhere they have a density.
            self._simulator.records(self._simulator.scattered(TRIED))
        # What chains will sample is compiled here: after the sums are drawn no text may fail.
        task.engine.compile(program_given_scores(on.model))
        rounds = rounds_of(task.rows, len(self._simulator.fixed), group_sizes(on.model))
        rounds.check()
        self._rounds = rounds
        lengths = [rounds.length(part) for part in rounds.sums]
        parts: dict[str, Any] = {
            **({"number": rounds.number} if rounds.declared else {}),
            "table": rounds.table, "sums": list(rounds.sums), "lengths": lengths,
        }  # fmt: skip
        if self._terms:
            parts["by_group"] = rounds.by_group
            parts["lengths_by_group"] = [rounds.length_by_group(*size) for size in rounds.groups]
        self.settings = {**on.model.public_settings(), **settings, **parts}
        self.synthesised: tuple[Column, ...] = on.model.outcomes
        draws = task.settings.chains * task.settings.draws * LONGER[-1]
        self.posterior_shape = draws, self._simulator.numbers

    def _check_alone(self, compiled: EmbeddedModel, constants: Mapping[str, Any]) -> None:
        """Raise ProgramError unless the program accepts a single made-up record (n = 1)."""
        on = self._on
        record = made_up(self._task.schema, 1, np.random.default_rng(SEED))
        rows = self._task.rows
        constants_of_record = on.model.constants_at(np.zeros(1, dtype=int), rows)
        columns = by_row(
            on.model, {**on.model.data(record, rows), **constants_of_record, "n": 1}, rows
        )
        point = self._simulator.scattered(1)
        try:
            bound = bound_to(compiled, constants, columns, 1)
            next(bound.log_lik_at(point, strict=True))
        except DpbayesError as error:
            raise ProgramError(
                f"{compiled.program.name}.stan does not take one record by itself, and mechanism "
                f"'score' gives it one after the other, with n = 1: {error.said or error}"
            ) from None

    def versions(self) -> Mapping[str, str]:
        return {**self._task.engine.versions(), **versions("opendp")}

    def draw_private(self, noise: Noise) -> ScorePosterior:
        task, records = self._task, self._number_of_records(noise)
        simulator = self._simulator.counting(
            task.rows if records is None else records,
            task.rows_sd if records is None else self._rounds.number_sd,
        )
        point = self._first_guess(noise)
        sums: list[NoisySum] = []
        if self._terms:
            point = simulator.without_effects(point)
        directions = simulator.directions
        for part in self._rounds.sums:
            directions = simulator.whitened(point, directions)
            score_point = point
            score = ClippedScore(point, directions, self._rounds.length(part))
            sums.append(self._noisy(score, part, noise))
            belief = settle(simulator, sums[-1], point)
            point = belief.point
        doubted = False
        model = self._on.model
        if model.several_modes or not model.program.bundled:
            belief, doubted = best_of_modes(simulator, sums, belief)
        groups = tuple(
            self._by_group(term, group_of_record, score_point, noise)
            for term, group_of_record in zip(self._terms, self._groups_of, strict=True)
        )
        seed = int(noise.rng.integers(2**31))
        sampler = Hierarchical if groups else ScoreChains
        chains = sampler(simulator, task.engine, sums[-1], groups, belief, seed)
        settings = replace(task.settings, progress=False)  # draws are secret until their release
        for times in LONGER:  # the claim does not depend on convergence
            longer = replace(settings, warmup=times * settings.warmup, draws=times * settings.draws)
            draws, diagnostics = chains.sample(longer)
            if task.allow_nonconvergence or diagnostics.converged:
                break
        cut, by_prior = doubted or chains.cut, prior_decides(simulator, draws)
        return ScorePosterior(tuple(sums), groups, draws, diagnostics, records, cut, by_prior)

    def _number_of_records(self, noise: Noise) -> int | None:
        """Draw a noisy number of records, where the number of rows is declared."""
        rounds = self._rounds
        if not rounds.declared:
            return None
        draw = noise.counts if rounds.rho is None else noise.gaussian
        (number,) = draw(np.array([len(self._task.records)]), rounds.number_scale)
        return max(1, round(float(number)))

    def told(self, output: ScorePosterior) -> dict[str, Any]:
        counted = {} if output.records is None else {"estimated_records": output.records}
        by_prior = {"by_prior": list(output.by_prior)} if output.by_prior else {}
        return {**counted, **({"cut": True} if output.cut else {}), **by_prior}

    def _first_guess(self, noise: Noise) -> Vector:
        """Find the mode given records made up from a noisy table of the outcome."""
        rounds = self._rounds
        epsilon = rounds.spent(rounds.table) / rounds.moves
        low, high = BINS
        bins = int(min(max(rounds.rows * epsilon / PER_BIN, low), high))
        tables = AnchorTables(epsilon, 1, 0, bins, 1.0)
        # A table of the outcome holds no information on groups.
        draw = tabulated.draw_anchor(tables, self._on, noise, COORDINATES if self._terms else ())
        return np.asarray(self._simulator.points_of(draw)[0])

    def _noisy(self, score: ClippedScore, part: float, noise: Noise) -> NoisySum:
        """Draw the noisy sum of scores over all records.

        Args:
            part: part of the budget for the sum.
        """
        rounds = self._rounds
        total, scale = self._whole(score).sum(axis=0), rounds.scale(part)
        pure = rounds.rho is None
        noisy = noise.radial(total, scale) if pure else noise.gaussian(total, scale)
        sd = rounds.sd(part) * score.length
        return NoisySum(
            score, np.asarray(noisy * score.unit), sd, scale * score.unit if pure else 0.0
        )

    def _by_group(
        self, term: GroupColumns, group_of_record: Ints, point: Vector, noise: Noise
    ) -> GroupSums:
        """Draw the noisy sum of scores for each group of a term.

        A record is in one group, so that it affects only that group's sum.

        Args:
            term: the term's columns and groups.
            group_of_record: the public group of each unique record.
            point: the point at which scores are taken.
            noise: the noise of the sums.
        """
        rounds, simulator, width = self._rounds, self._simulator, len(term.columns)
        directions = simulator.whitened(point, simulator.along_effects(point, term.columns))
        score = ClippedScore(point, directions, rounds.length_by_group(term.groups, width))
        total = np.zeros((term.groups, width), dtype=np.int64)
        np.add.at(total, group_of_record, self._whole(score))
        scale, pure = rounds.scale(rounds.by_group), rounds.rho is None
        if not pure:
            noisy = noise.gaussian(total, scale)
        elif width == 1:
            noisy = noise.counts(total, scale)
        else:
            noisy = np.stack([noise.radial(group_total, scale) for group_total in total])
        sd, unit = rounds.sd(rounds.by_group, width) * score.length, score.unit
        return GroupSums(term, score, np.asarray(noisy * unit), sd, scale * unit if pure else 0.0)

    def _whole(self, score: ClippedScore) -> Ints:
        """Integer scores of the unique records, multiplied by their frequencies."""
        present = self._kinds.counts[:, None] * int(self._on.present)
        return np.asarray(score.whole(self._apart) * present)

    def synthetic(
        self, output: ScorePosterior, rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        return at_random_draw(self._on, output.draws, rows, rng, released=True)

    def posterior_of(self, output: ScorePosterior) -> xr.DataTree:
        draws = output.draws["posterior"].to_dataset().drop_vars(NOISE, errors="ignore")
        if not self._on.model.program.bundled:
            # What a program computes from its parameters may be a function of data, too, and these
            # are simulated records: it would look like a leak and say nothing.
            names = self._on.model.program.declared("parameters")
            draws = draws[[name for name in names if name in draws]]  # draws have no empty arrays
        stats = output.draws["sample_stats"].to_dataset()
        tree = xr.DataTree.from_dict({"posterior": draws, "sample_stats": stats})
        return named(tree, self._on.model)

    def unclamped(self, rng: np.random.Generator) -> pd.DataFrame:
        return at_random_draw(self._on, self._on.unweighted.draws, self._task.rows, rng)

    def check(self, replicates: int = REPLICATES) -> Check:
        """Compute posterior predictive checks of the model under the unweighted posterior."""
        return check_of(self._on, self._on.unweighted.draws, replicates)

    def to_datatree(
        self, *, log_likelihood: bool = False, posterior_predictive: bool = False, thin: int = 1
    ) -> xr.DataTree:
        raise GuaranteeError(NOT_YET)

    def loo(self) -> arviz_stats.ELPDData:
        raise GuaranteeError(NOT_YET)

    def findings(self) -> Findings:
        """Results for the confidential report: by record, length of its score and bound on its ε.

        Both are computed at the mean of the unweighted posterior, not at the points at which sums
        were taken, which are part of a release. Half of the bound on ε takes the place of the
        Lipschitz bound of other mechanisms, as an ε is twice such a bound.
        """
        on, rounds = self._on, self._rounds
        plain = on.unweighted
        before = plain.risk.of_each(on.kinds).lipschitz
        simulator = self._simulator
        point = simulator.points_of(plain.draws).mean(axis=0)
        direction_sets = [simulator.directions]
        if self._terms:
            point = simulator.without_effects(point)
            direction_sets += [simulator.along_effects(point, term.columns) for term in self._terms]
        length, *by_term = [self._lengths(point, directions) for directions in direction_sets]
        clip = rounds.length(rounds.sums[-1])
        cost, unbounded = rounds.cost(length, by_term), np.array([np.inf])
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
            epsilon=float(rounds.cost(unbounded, [unbounded] * len(self._terms))[0]),
            half="ε/2 (add/remove)",
        )

    def _lengths(self, point: Vector, directions: Floats) -> Vector:
        """Length of each record's score before clipping, in standard deviations, shape (n,)."""
        whitened = self._simulator.whitened(point, directions)
        slopes = finite(slopes_along(self._apart, point, whitened))
        return self._kinds.each_record(np.linalg.norm(slopes, axis=1))


class RehearsedScore(FittedScore):
    """Public constants in place of records, and a score of 0 for each, which takes no time."""

    def rehearse(self) -> None:
        """Draw a release, so that no step is new to a program when it is paid for.

        What a sampler fails to do is not raised: that may depend on where the noisy sums are.

        Raises:
            EngineError: no draw of several generates records for the public rows.
        """
        noise = self._task.sealed_noise
        try:
            output = self.draw_private(noise)
        except EngineError:
            return
        self.posterior_of(output)
        rows = self._task.released_rows or self._task.rows
        for _ in range(TRIED):
            with contextlib.suppress(EngineError):
                at_random_draw(self._on, output.draws, rows, noise.rng)
                return
        at_random_draw(self._on, output.draws, rows, noise.rng)

    def _whole(self, score: ClippedScore) -> Ints:
        return np.zeros((len(self._kinds.counts), len(score.directions)), dtype=np.int64)
