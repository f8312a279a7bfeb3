"""Synthesis of households with their members, from noisy tables of blocks of columns."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.core.threads import one_thread
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.forecast import Forecast, ForecastWarning
from dpbayes.mechanisms.households.expected import BlockNoise, cautions
from dpbayes.mechanisms.households.layout import ColumnBlock, Layout
from dpbayes.mechanisms.households.layouts import layout_of
from dpbayes.mechanisms.households.rows import empty_members, put, rows_of
from dpbayes.mechanisms.marginals.bins import auto_bins
from dpbayes.mechanisms.marginals.budget import MOVES, BudgetSplit, concentrated_loss, rho_to_spend
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.exact_counts import FineCounts
from dpbayes.mechanisms.marginals.levels import ColumnLevels
from dpbayes.mechanisms.marginals.mechanism import order_of
from dpbayes.mechanisms.marginals.paid_once import NoisyTablesFitted, NoisyTablesMechanism
from dpbayes.mechanisms.marginals.parts import KEEP, SCORES, are_scored
from dpbayes.mechanisms.marginals.rows import RowMaker, synthetic_codes
from dpbayes.mechanisms.marginals.structure import Structure, Walk, computed_by
from dpbayes.mechanisms.marginals.weighting import in_units
from dpbayes.mechanisms.tables.cells import Axis, make_axis
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.privacy.noise import Noise, StudyNoise
from dpbayes.schema import Schema
from dpbayes.schema.homes import COMPOSITION, Members
from dpbayes.schema.households import Household, role_name
from dpbayes.schema.rules import Values, values_of
from dpbayes.schema.units import Unit
from dpbayes.schema.values import texts_of
from dpbayes.stan.model import Model

NUMBER = 0.05  # share of the budget for the number of households, where any is declared
FEWEST, MOST = 2000, 20_000  # synthetic households that decide what to count next
PASSES, DRAFT_PASSES = 8, 2  # in which members are drawn that depend on those before
REPLACED = 0.5  # share of the households that a pass draws again
AGAIN = 20  # times that households are drawn again which keep not all rules
REHEARSED = 200  # households that are drawn from no records, to find some that keep the rules
LITTLE_NOISE = 20.0  # ε of these: at a small one noise would make nearly all of one kind
TOGETHER = (
    "Of what ties the members of a household together, tables have the number of members by place, "
    "how far a member's {order} is from the head's or from that of the member before, and each "
    "other column beside the head's same column. Members of all places that several may have "
    "share the tables of their other columns. Relations between different columns of two members, "
    "or of three members, are kept only as far as they follow from these."
)


@dataclass(frozen=True)
class Households(NoisyTablesMechanism):
    """Whole households: noisy tables of members beside each other, and a model of the tables.

    Households are drawn from the top: how many members there are in each place, the columns of the
    household and of its head, then the other members given the head or the member before. Members
    of a block of tables weigh at most 1 together in each household, so that noise does not grow
    with the number of members. Only counting spends epsilon: any number of data sets costs the
    same.

    Sensitivity: in each table a household's rows weigh at most 1 together. Added or removed, it
    moves the table by at most 1 in the L1 and in the L2 norm; changed, by 2 and by sqrt(2), as
    entries are at or above 0: the norms of ``BudgetSplit``.

    Guarantee: strict, for households with all their members, by composition over the tables; no
    assumption on the model. A member who is added, removed or changed changes one household.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``, for a household.
        delta: the delta of (epsilon, delta)-DP, as in ``Marginals``.
        draw: as in ``Marginals``.
        keep: formulas of regressions to preserve, in addition to those of the schema, with columns
            of members as ROLE.COLUMN: ``child.schooling ~ child.age + head.schooling``.

    Examples:
        >>> import dpbayes as dpb
        >>> from dpbayes.mechanisms import Households
        >>> Households(epsilon=1).draw
        'auto'
    """

    epsilon: float
    adjacency: Adjacency | None = None
    draw: Literal["auto", "mode", "posterior"] = "auto"
    delta: float = 0.0
    keep: Sequence[str] = ()
    structured: ClassVar[bool] = True
    units: ClassVar[tuple[type[Unit], ...]] = (Household,)
    together: ClassVar[str] = TOGETHER
    steady: ClassVar[str] = ""
    name: ClassVar[str] = "households"
    summary: ClassVar[str] = "households with members, from noisy tables; strict ε-DP by household"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "keep", texts_of("keep", "formulas", self.keep))

    def layout(self, schema: Schema) -> Layout:
        """Blocks of columns, with the regressions of the schema and of ``keep``."""
        return layout_of(schema, self.keep)

    def rho(self, layout: Layout) -> float | None:
        """Rho to spend on the tables, for ``adjacency``; None for pure epsilon."""
        tables = sum(len(block.asked) + len(block.hidden) for block in layout.blocks)
        return rho_to_spend(self.epsilon, self.delta, self.neighbours, tables)

    def claim(self, schema: Schema) -> Guarantee:
        layout = self.layout(schema)
        rho, claim = self.rho(layout), self._claim(self.loss)
        if rho is not None:
            shares = shares_of(layout)
            scores = sum(
                share * SCORES
                for block, share in zip(layout.blocks, shares.tables, strict=True)
                if block.asked and are_scored(0, len(drawn(block)), len(block.asked))
            )
            moments = scores + sum(shares.kept)
            claim = self._claim(concentrated_loss(rho, self.neighbours, moments))
            claim = replace(claim, delta=self.delta)
        assert schema.unit is not None
        home = schema.unit
        return replace(claim, unit=home.noun, members=home.most, by=home.id)

    def check_columns(self, schema: Schema) -> None:
        if not isinstance(schema.unit, self.units):
            raise SchemaError(
                f"mechanism {self.name!r} needs a table [{self.units[0].table}] in the schema, "
                "that says which rows belong together."
            )
        schema.confidential()
        of_nobody(schema, self.keep)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        problem, layout = self.together.format(order=schema.homes.order), self.layout(schema)
        remedy = "Look at it in the report, or beforehand on earlier records (`plan`)."
        if not layout.keep:
            remedy += " A regression between them in `keep` has sums of its own."
        remedy = f"{remedy} {self.steady}".strip()
        whole = BudgetSplit(self.epsilon, MOVES[self.neighbours], StudyNoise(0), self.rho(layout))
        noises = []
        for block, share in zip(layout.blocks, shares_of(layout).tables, strict=True):
            if {*drawn(block)} & {*schema.columns}:
                axes, budget = BlockAxes(block, rows * self.epsilon), whole.of(share)
                budget = budget.weighted(1.0) if block.several else budget
                given, asked = len(block.given), len(axes.asked)
                noises.append(BlockNoise.of(axes.axes, given, asked, budget, rows))
        noisy = cautions(noises, schema.counted, delta=bool(self.delta), kept=bool(layout.keep))
        return Forecast({}, (*noisy, ForecastWarning(problem, remedy)))

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedHouseholds:
        return FittedHouseholds(self, schema, schema.homes.of(records), rows)

    def fit(self, task: Task) -> FittedHouseholds:
        members = task.schema.homes.of(task.records)
        return FittedHouseholds(self, task.schema, members, task.rows, task.rows_sd)


@dataclass(frozen=True)
class BlockShares:
    """Shares of the budget by block: for its tables, and for its regressions."""

    tables: list[float]
    kept: list[float]


def shares_of(layout: Layout) -> BlockShares:
    """Divide the budget among blocks; regressions have one part together, by their moments."""
    parts = np.array([block.part for block in layout.blocks])
    moments = np.array([sum(a.moments for a in block.kept) for block in layout.blocks])
    keep = KEEP if moments.any() else 0.0
    tables, kept = (1 - keep) * parts / parts.sum(), keep * moments / max(1, moments.sum())
    return BlockShares(tables.tolist(), kept.tolist())


def drawn(block: ColumnBlock) -> list[str]:
    """Hidden columns that are drawn; a rule computes the others."""
    computed = computed_by(block.schema, block.given)
    return [name for name in block.hidden if name not in computed]


class BlockAxes:
    """Fine levels of a block's columns.

    Attributes:
        axes: given columns first.
        structure: the block's rules on them.
        after: for the outcome of a regression, columns that are drawn before it.
    """

    def __init__(self, block: ColumnBlock, weight: float) -> None:
        names = [*block.given, *drawn(block)]
        columns = [block.schema[name] for name in names]
        self.block = block
        self.axes: tuple[Axis, ...] = tuple(
            make_axis(c, "" if c.levels else auto_bins(c, weight), None, 1) for c in columns
        )
        self.structure = Structure(block.schema, self.axes, block.given)
        self.after = self.structure.after(block.kept)
        self.asked = sorted(tuple(sorted((names.index(a), names.index(b)))) for a, b in block.asked)

    def counts(self, values: dict[str, Floats], weights: Floats) -> FineCounts:
        """Exact counts of rows with these values. Confidential."""
        numbers = {name: values[name] for name in self.structure.axes}
        frame = pd.DataFrame({name: value for name, value in numbers.items()})
        codes = self.structure.codes(numbers).astype(np.int64)
        sizes = [axis.size for axis in self.axes]
        units = in_units(weights) if self.block.several else None
        return FineCounts(codes, sizes, values if self.block.kept else {}, frame, units)

    def levels(self, given: Ints) -> list[ColumnLevels]:
        """Levels of the columns, with shares of those that are given.

        Args:
            given: fine levels of the given columns in synthetic rows, shape (rows, given).
        """
        levels = [
            ColumnLevels.of(axis, None, divisible=j >= len(self.block.given))
            for j, axis in enumerate(self.axes)
        ]
        for j in range(len(self.block.given)):
            counts = np.bincount(given[:, j], minlength=levels[j].size)
            levels[j] = replace(levels[j], shares=counts / max(1, counts.sum()))
        return levels


Answers = tuple[Measurement | None, ...]


class FittedHouseholds(NoisyTablesFitted[Answers]):
    """Households coded as fine levels, ready to be counted with noise.

    Attributes:
        layout: blocks of columns; public.
        counts: exact counts of each block; nothing else here uses the records.
        rho: zCDP budget, or None for pure epsilon; public.
    """

    mechanism: Households

    def __init__(
        self,
        mechanism: Households,
        schema: Schema,
        members: Members,
        rows: int,
        rows_sd: float = 0.0,
    ) -> None:
        self.layout = mechanism.layout(schema)
        self.rho = mechanism.rho(self.layout)
        spent = {} if self.rho is None else {"rho": self.rho}
        assert schema.unit is not None
        asked = {schema.unit.table: schema.unit.to_plain(), "keep": list(self.layout.keep)}
        super().__init__(mechanism, schema, {**asked, **spent})
        weight = rows * mechanism.epsilon
        self.blocks = [BlockAxes(block, weight) for block in self.layout.blocks]
        self.counts = []
        for axes in self.blocks:
            own = rows_of(self.layout, axes.block, members)
            self.counts.append(axes.counts(own.values, own.weights))
        self.rows, self._rows_sd, self._schema = rows, rows_sd, schema

    def draw_private(self, noise: Noise) -> Answers:
        moves = MOVES[self.mechanism.neighbours]
        budget = BudgetSplit(self.mechanism.epsilon, moves, noise, self.rho)
        rows, rows_sd = self.rows, self._rows_sd
        if not math.isfinite(rows_sd):  # of many compositions the sum says little
            every = np.array([self.counts[0].margins()[0].sum()])
            rows, rows_sd = max(1, round(budget.counts(every, NUMBER)[0])), budget.sd(NUMBER)
            budget = budget.of(1 - NUMBER)
        shares, number = shares_of(self.layout), min(max(self.rows, FEWEST), MOST)
        total: dict[str, float] = {}

        def part_of(k: int, share: float) -> BudgetSplit:
            part = budget.of(share)
            return part.weighted(1.0) if self.blocks[k].block.several else part

        def measure(k: int, levels: Sequence[ColumnLevels], weight: float) -> Measurement:
            axes, part = self.blocks[k], part_of(k, shares.tables[k])
            if not k:
                first = Measurement.of(self.counts[0], levels, rows, part, rows_sd)
                total["n"] = first.n
                return first
            n = max(1, round(weight / number * total["n"]))
            return Measurement.of(self.counts[k], levels, n, part, 0.0, axes.asked)

        def ask(k: int, measured: Measurement, rows: Values) -> Measurement:
            kept, part = self.blocks[k].block.kept, part_of(k, shares.kept[k])
            return measured.asking(kept, rows, self.counts[k], part)

        # The seed is fixed: what is counted next is a function of the noisy counts alone.
        draft = _Draft(self, Questions(measure, ask), np.random.default_rng(1), drawing=False)
        draft.members(number)
        return tuple(draft.answers.get(k) for k in range(len(self.blocks)))

    def told(self, output: Answers) -> dict[str, Any]:
        assert output[0] is not None
        facts: dict[str, Any] = {"estimated_records": output[0].n} if output[0].n_sd else {}
        apart: dict[str, list[str]] = {}  # in every block that has the column
        for block, measured in zip(self.blocks, output, strict=True):
            for j, cells in (measured.told_apart() if measured else {}).items():
                axis = block.axes[j]
                levels, name = axis.named(cells), axis.column.name
                if name in self._schema.columns:
                    apart[name] = [own for own in apart.get(name, levels) if own in levels]
        return facts | ({"told_apart": apart} if apart else {})

    def synthetic(self, output: Answers, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        draft = _Draft(self, output, rng, drawing=self.mechanism.draw == "posterior")
        members, dead = draft.members(rows)
        for _ in range(AGAIN):
            if not dead.any():
                break
            again, lost = draft.members(int(dead.sum()))
            members, dead = replaced(members, dead, again, lost)
        if dead.any():
            spare = chosen(members, np.flatnonzero(~dead)) if not dead.all() else self._spare
            take = rng.integers(spare.count, size=int(dead.sum()))
            members, dead = replaced(members, dead, chosen(spare, take), np.zeros(len(take), bool))
        return self._frame(members, rng)

    @cached_property
    def _spare(self) -> Members:
        return of_nobody(self._schema, self.mechanism.keep)

    def _frame(self, members: Members, rng: np.random.Generator) -> pd.DataFrame:
        """Rows of members, household by household: in random order, or one after the other."""
        homes, count = self.layout.homes, len(members.home)
        numbers = rng.permutation(members.count) + 1
        inside = np.arange(count) if homes.chain else rng.random(count)
        rows = np.lexsort((inside, numbers[members.home]))
        frame: dict[str, Any] = {homes.unit.id: numbers[members.home][rows]}
        for name, column in self._schema.columns.items():
            if name == homes.role:
                levels = {
                    role_name(level): level for level in column.levels
                }  # as they are declared
                roles = np.array([levels[place] for place in homes.places], dtype=object)
                frame[name] = roles[members.place[rows]]
                continue
            shared = name in homes.shared
            values = members.households[name][members.home] if shared else members.members[name]
            typed = values_of(column, values[rows])
            frame[name] = (typed.astype(object) if column.levels else typed).array
        return pd.DataFrame(frame)


def of_nobody(schema: Schema, keep: Sequence[str] = ()) -> Members:
    """Households drawn from no record, that keep the rules; SchemaError if there are none."""
    with one_thread():
        return _of_nobody(json.dumps(schema.to_dict(), default=str), tuple(keep))


@functools.lru_cache(maxsize=8)  # a synthesizer is made several times before it is used
def _of_nobody(plain: str, keep: tuple[str, ...]) -> Members:
    schema = Schema.from_dict(json.loads(plain))
    mechanism = Households(LITTLE_NOISE, keep=keep)
    nobody = empty_members(mechanism.layout(schema), np.empty(0, dtype=np.int64))
    fitted = FittedHouseholds(mechanism, schema, nobody, REHEARSED)
    answers = fitted.draw_private(StudyNoise(1))
    members, dead = _Draft(fitted, answers, np.random.default_rng(1), drawing=True).members(
        REHEARSED
    )
    if dead.all():
        raise SchemaError(
            f"no {schema.homes.unit.noun} was found that keeps the rules of the schema, within and "
            f"between {schema.homes.unit.member}s: they may exclude every one."
        )
    return chosen(members, np.flatnonzero(~dead))


@dataclass(frozen=True)
class Questions:
    """What is asked about the records when a block is reached.

    Attributes:
        measure: counts a block, by its number, its levels and the weight of its synthetic rows.
        ask: adds noisy sums for its regressions, by its number, its counts and synthetic rows.
    """

    measure: Callable[[int, Sequence[ColumnLevels], float], Measurement]
    ask: Callable[[int, Measurement, Values], Measurement]


class _Draft:
    """Households that are drawn block by block.

    Args:
        fitted: the blocks.
        answers: noisy counts of each block; or the questions, which are asked when it is reached.
        rng: draws the rows, and shares and relations if ``drawing`` them from their posterior.
    """

    def __init__(
        self,
        fitted: FittedHouseholds,
        answers: Answers | Questions,
        rng: np.random.Generator,
        *,
        drawing: bool,
    ) -> None:
        self._fitted, self._rng, self._drawing = fitted, rng, drawing
        self._questions = answers if isinstance(answers, Questions) else None
        self.answers: dict[int, Measurement] = {}
        if not isinstance(answers, Questions):
            self.answers = {k: a for k, a in enumerate(answers) if a is not None}
        self._makers: dict[int, RowMaker] = {}

    def members(self, households: int) -> tuple[Members, Mask]:
        """Draw households; return their members, and a mask of households that break a rule."""
        layout, dead = self._fitted.layout, np.zeros(households, dtype=bool)
        values, _ = self._drawn(0, {}, households, np.ones(households))
        compositions = values[COMPOSITION].astype(np.int64)
        if self._questions is not None:
            compositions, dead = self._with_all_places(compositions, dead)
        members = empty_members(layout, compositions)
        for k, block in enumerate(layout.blocks[1:], start=1):
            rows = rows_of(layout, block, members, given=True)
            if not len(rows.index):
                continue
            if block.chained:
                self._chain(k, members, dead)
                continue
            values, lost = self._drawn(k, rows.values, len(rows.index), rows.weights)
            put(layout.homes, members, rows.index, values)
            dead[members.home[rows.index[lost]]] = True
        return members, dead

    def _with_all_places(self, compositions: Ints, dead: Mask) -> tuple[Ints, Mask]:
        """Add households that have somebody in each place, so that every block is asked about.

        A data set may draw a place that no household of this draft has.
        """
        counts = self._fitted.layout.compositions
        most, drafted = counts.max(axis=0), counts[compositions].max(axis=0)
        # A later member of a place has a block of its own.
        more = counts.argmax(axis=0)[drafted < np.minimum(most, 2)]
        return np.append(compositions, more), np.append(dead, np.zeros(len(more), dtype=bool))

    def _chain(self, k: int, members: Members, dead: Mask) -> None:
        """Draw members one after the other, each given the one before.

        Relations are fitted to rows, but rows have the values of members before only once these are
        drawn: the first pass is drawn by what was fitted to the first members alone. Relations that
        fit the rows of one pass may drive those of the next far away; so passes between the first
        and the last replace a part of the households. Kept regressions ask about the last pass but
        one, and tilts are fitted to its rows.
        """
        layout = self._fitted.layout
        block = layout.blocks[k]
        whole = rows_of(layout, block, members, given=True)
        last, every = int(members.turn[whole.index].max()), float(whole.weights.sum())
        drafted = self._questions is not None and not block.kept
        passes = 1 if k in self._makers else DRAFT_PASSES if drafted else PASSES
        for number in range(1, passes + 1):
            if number > 1:
                rows = rows_of(layout, block, members)
                if block.kept and number == passes and self._questions is not None:
                    drawn_rows = _some(rows.values, rows.weights, self._rng)
                    self.answers[k] = self._questions.ask(k, self.answers[k], drawn_rows)
                    self._makers[k] = self._maker(k)
                self._makers[k].forget(tilting=bool(block.kept) and number == passes)
                given = {name: rows.values[name] for name in block.given}
                self._fit_to(k, given, len(rows.index), rows.weights)
            again = np.ones(members.count, dtype=bool)
            if 1 < number < passes:
                again = self._rng.random(members.count) < REPLACED
            for turn in range(last + 1):
                rows = rows_of(layout, block, members, turn, given=True)
                rows = rows.of(again[members.home[rows.index]])
                if not len(rows.index):
                    continue
                if k in self._makers:
                    self._makers[k].turn = turn
                values, lost = self._drawn(k, rows.values, len(rows.index), rows.weights, every)
                put(layout.homes, members, rows.index, values)
                if number == passes:
                    dead[members.home[rows.index[lost]]] = True

    def _drawn(
        self,
        k: int,
        given: dict[str, Floats],
        count: int,
        weights: Floats,
        every: float | None = None,
    ) -> tuple[dict[str, Floats], Mask]:
        """Draw the hidden columns of rows; return their values, and a mask of rows without any.

        Args:
            every: weight of all rows of the block, if these are some of them.
        """
        axes = self._fitted.blocks[k]
        codes = self._codes(axes, given, count)
        if k not in self.answers:
            assert self._questions is not None
            levels = axes.levels(codes)
            weight = float(weights.sum()) if every is None else every
            self.answers[k] = self._questions.measure(k, levels, weight)
            if axes.block.kept and not axes.block.chained:
                rows = self._rows(k, given, count, weights)
                self.answers[k] = self._questions.ask(k, self.answers[k], rows)
        if k not in self._makers:
            self._makers[k] = self._maker(k)
            self._makers[k].forget(tilting=not axes.block.chained)
            self._fit_to(k, given, count, weights)
        return self._made(k, given, codes, count)

    def _fit_to(self, k: int, given: dict[str, Floats], count: int, weights: Floats) -> None:
        """Fit the relations of a block to its rows by their weights: what is drawn is not kept."""
        if self._fitted.blocks[k].block.several:
            self._by_weight(k, self._makers[k], given, count, weights)

    def _rows(self, k: int, given: dict[str, Floats], count: int, weights: Floats) -> Values:
        """Values of rows that are drawn, by their weights, from the counts of a block so far."""
        return self._by_weight(k, self._maker(k), given, count, weights)

    def _by_weight(
        self, k: int, maker: RowMaker, given: dict[str, Floats], count: int, weights: Floats
    ) -> Values:
        some, axes = given, self._fitted.blocks[k]
        if axes.block.several:
            some = _some(given, weights, self._rng)
        return self._walk(k, maker, some, self._codes(axes, some, count), count).known()

    def _codes(self, axes: BlockAxes, given: dict[str, Floats], count: int) -> Ints:
        if not axes.block.given:
            return np.empty((0, 0), dtype=np.int64)
        columns = axes.axes[: len(axes.block.given)]
        return Structure(axes.block.schema, columns, axes.block.given).codes(given).astype(np.int64)

    def _maker(self, k: int) -> RowMaker:
        axes, measured = self._fitted.blocks[k], self.answers[k]
        order = order_of(measured, len(axes.block.given), axes.after)
        return RowMaker(measured, order, self._rng, self._drawing, True, None)

    def _made(
        self, k: int, given: dict[str, Floats], codes: Ints, count: int
    ) -> tuple[dict[str, Floats], Mask]:
        walk = self._walk(k, self._makers[k], given, codes, count)
        values = walk.known()
        return {name: values[name] for name in self._fitted.blocks[k].block.hidden}, walk.dead

    def _walk(
        self, k: int, maker: RowMaker, given: dict[str, Floats], codes: Ints, count: int
    ) -> Walk:
        """Draw the columns of rows that are not given."""
        block = self._fitted.blocks[k].block
        walk = Walk(Structure(block.schema, maker.measured.axes, block.given), count, given)
        synthetic_codes(maker, count, codes, walk=walk, spare=None)
        return walk


def _some(
    values: Mapping[str, Floats], weights: Floats, rng: np.random.Generator
) -> dict[str, Floats]:
    """Rows drawn by their weights, as many as there are."""
    rows = rng.choice(len(weights), len(weights), p=weights / weights.sum())
    return {name: value[rows] for name, value in values.items()}


def chosen(members: Members, households: Ints) -> Members:
    """Copies of some households, in this order."""
    sizes = np.bincount(members.home, minlength=members.count)
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    take = sizes[households]
    inside = np.arange(take.sum()) - np.repeat(np.cumsum(take) - take, take)
    rows = np.repeat(starts[households], take) + inside
    return Members(
        {name: value[households] for name, value in members.households.items()},
        {name: value[rows] for name, value in members.members.items()},
        np.repeat(np.arange(len(households)), take).astype(np.int64),
        members.place[rows],
    )


def replaced(members: Members, dead: Mask, others: Members, lost: Mask) -> tuple[Members, Mask]:
    """Put other households in the place of dead ones; return a mask of those still dead."""
    both = Members(
        {n: np.append(v, others.households[n]) for n, v in members.households.items()},
        {n: np.append(v, others.members[n]) for n, v in members.members.items()},
        np.append(members.home, others.home + members.count),
        np.append(members.place, others.place),
    )
    take = np.arange(members.count)
    take[dead] = members.count + np.arange(int(dead.sum()))
    still = dead.copy()
    still[dead] = lost
    return chosen(both, take), still
