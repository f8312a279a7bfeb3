"""Whole tables: noisy counts, a model of the counts, synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ModelFreeFitted, ModelFreeMechanism, Task
from dpbayes.mechanisms.forecast import Forecast, ForecastWarning
from dpbayes.mechanisms.marginals import counting
from dpbayes.mechanisms.marginals.analyses import Analysis
from dpbayes.mechanisms.marginals.budget import MOVES, BudgetSplit, concentrated_loss, rho_to_spend
from dpbayes.mechanisms.marginals.rows import RowMaker, synthetic_codes
from dpbayes.mechanisms.marginals.structure import Structure, Walk, computed_by
from dpbayes.mechanisms.tables.cells import (
    Axis,
    BinRule,
    TableCells,
    check_bins,
    make_axis,
    require_bounds,
)
from dpbayes.privacy.accounting import check_delta, stated
from dpbayes.privacy.guarantee import Adjacency, Guarantee
from dpbayes.privacy.noise import Noise, StudyNoise
from dpbayes.records.chunks import InMemoryTable, Table
from dpbayes.schema import Column, Schema
from dpbayes.schema.rules import numbers_of
from dpbayes.schema.values import texts_of
from dpbayes.stan.model import Model

UNIT_BINS = 100  # whole numbers that have a bin each
BINS = 32  # of others, for few records
USUAL = 1600  # records times epsilon, from which on bins grow in number with their square root
FINER = 4  # at most so many times
WIDE = 100  # ends of a positive range whose ratio asks for bins of equal width in the logarithm
MOST_COLUMNS = 100
FAR = 0.5 / math.sqrt(2)  # half the mean absolute value of Laplace noise, by its sd
LOST = 0.5  # of the records, from which it is said
_FEWEST, _MOST = 4000, 50_000  # rows that what is asked about analyses is made of
BLOCK = 100_000  # rows that are made at a time
NO_CODES: Ints = np.empty((0, 0), dtype=np.int64)
MOST_LEVELS = (400, 1000)  # of one column, ordered and not: what is fitted in seconds


@dataclass(frozen=True)
class Marginals(ModelFreeMechanism):
    """Noisy counts of every column and of pairs of columns, and rows from a model of the counts.

    Margins are counted on fine levels, pairs on coarse groups of them that the noisy margins give,
    and where the number of rows pays for it three columns on fewer groups.
    A log-linear model, column by column, takes the noisy counts for what they are. Epsilon is paid
    by counting alone: data sets cost nothing more, however many.

    Source: mckenna-miklau-sheldon-2021; raisa-jalko-kaski-honkela-2023.

    Sensitivity: a record is in one cell of each table, which ``BudgetSplit`` makes norms of.
    Groups, choices of columns and their order follow noisy counts and the public number of rows.

    Guarantee: strict, by composition over the tables; no assumption on chains or on the model. At
    delta = 0 epsilon-DP; above, the tables together are rho-zCDP with the largest rho from which
    (epsilon, delta)-DP follows, or epsilon-DP where that leaves less noise.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``; of all data sets together.
        delta: at which epsilon is meant. Above 0 noise is Gaussian if there are so many tables
            (columns and pairs of them) that it is less for it.
        bins: fine levels of numeric columns: ``auto``, a number, or one rule by column, as in
            ``cells.make_axis``. ``auto``: up to a hundred whole numbers have one each; others 32 to
            128 by the public number of rows, whose widths grow with the value where the bounds
            differ by a factor of a hundred.
        draw: ``mode`` makes every data set as near to the records as the counts allow.
            ``posterior`` makes each from another draw of what the counts leave open, so that
            ``combine`` and ``analyse`` find the uncertainty by comparing them.
        keep: formulas of regressions that rows are to keep, beside those of the schema.
    """

    epsilon: float
    adjacency: Adjacency = "add-remove"
    bins: BinRule | Mapping[str, BinRule] = "auto"
    draw: Literal["mode", "posterior"] = "mode"
    delta: float = 0.0
    keep: Sequence[str] = ()
    structured: ClassVar[bool] = True
    counts_parts: ClassVar[bool] = True
    name: ClassVar[str] = "marginals"
    summary: ClassVar[str] = "noisy margins and pair tables, and a model of them; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.delta)
        if self.draw not in ("mode", "posterior"):
            raise GuaranteeError(f"draw = {self.draw!r} must be mode or posterior.")
        if isinstance(self.bins, str) and self.bins != "auto":
            raise GuaranteeError(f"bins = {self.bins!r} must be auto, a number, or by column.")
        check_bins(self.bins)
        object.__setattr__(self, "keep", texts_of("keep", "formulas", self.keep))

    def analyses(self, schema: Schema) -> tuple[Analysis, ...]:
        """Regressions that rows are to keep: those of the schema and its own.

        Raises:
            SchemaError: as ``Analysis`` and ``drawn_after``.
        """
        texts = dict.fromkeys((*schema.keep, *self.keep))
        return tuple(Analysis(text, schema) for text in texts)

    @property
    def halves(self) -> bool:
        return True

    @property
    def sets_per_output(self) -> int | None:
        return None

    def rho(self, schema: Schema) -> float | None:
        """What is spent on tables of these columns, for ``adjacency``; None for pure epsilon."""
        drawn = drawn_columns(schema)
        public = sum(column.public for column in drawn)
        hidden = len(drawn) - public
        tables = hidden + math.comb(len(drawn), 2) - math.comb(public, 2)
        return rho_to_spend(self.epsilon, self.delta, self.adjacency, tables)

    def guarantee(self) -> Guarantee:
        if self.delta:
            raise GuaranteeError(
                f"what delta = {stated(self.delta)} buys follows from the number of columns: ask "
                "claim(schema), or a Synthesizer's guarantee()."
            )
        return super().guarantee()

    def claim(self, schema: Schema) -> Guarantee:
        rho = self.rho(schema)
        if rho is not None:
            kept = counting.KEEP if schema.keep or self.keep else 0.0
            scores = counting.SCORES if len(drawn_columns(schema)) >= counting.MANY else 0.0
            loss = concentrated_loss(rho, self.adjacency, kept + (1 - kept) * scores)
            return replace(self._claim(loss), delta=self.delta)
        if not self.delta:
            return self._claim(self.loss)
        few = f"Of so few tables noise is less by pure ε than at δ = {stated(self.delta)}."
        return replace(self._claim(self.loss), parts=few)

    def check_columns(self, schema: Schema) -> None:
        schema.confidential()
        if len(schema.columns) > MOST_COLUMNS:
            raise SchemaError(
                f"{len(schema.columns)} columns have {math.comb(len(schema.columns), 2):,} pairs; "
                f"up to {MOST_COLUMNS} columns can be synthesised together."
            )
        structure = Structure(schema, self.axes(schema, 1))
        structure.after(self.analyses(schema))
        if structure.bonds and not any(axis.column.public for axis in structure.axes.values()):
            structure.spare(0, {}, NO_CODES)

    def axes(self, schema: Schema, rows: int) -> tuple[Axis, ...]:
        """Fine levels of each column that is drawn, public ones first, from public facts.

        Raises:
            SchemaError: a count without upper bound, or too many levels. GuaranteeError: bad bins.
        """
        for name in self.bins if isinstance(self.bins, Mapping) else ():
            if schema[name].levels:
                raise GuaranteeError(f"bins: column {name!r} has levels and needs no bins.")
        found = tuple(self._axis(column, rows) for column in drawn_columns(schema))
        for axis in found:
            most = MOST_LEVELS[values_of(axis) is None]
            if axis.size > most:
                raise SchemaError(
                    f"column {axis.column.name!r} has {axis.size:,} levels, of which noise leaves "
                    f"little; up to {most:,}. Merge levels, or take fewer bins."
                )
        return found

    def _axis(self, column: Column, rows: int) -> Axis:
        rule = self.bins
        if isinstance(rule, Mapping):
            rule = rule.get(column.name, "auto")
        if column.levels or rule != "auto":
            return make_axis(column, rule, None, 1)
        return make_axis(column, auto_bins(column, rows * self.epsilon), None, 1)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Noise of margins and of tables of pairs, beside what their cells hold in the mean."""
        axes = self.axes(schema, rows)
        budget = BudgetSplit(self.epsilon, MOVES[self.adjacency], StudyNoise(0), self.rho(schema))
        public = [axis.column.public for axis in axes]
        parts = counting.BudgetParts.of([axis.size for axis in axes], public, rows, budget)
        worst, found = 0.0, ""
        for j, part in parts.margins.items():
            off = FAR * axes[j].size * budget.sd(part) / rows
            worst, found = max((worst, found), (off, axes[j].column.name))
        facts = {"noise in a column, share of records": worst}
        cautions = []
        if worst > LOST:
            what = (
                f"Noise in the levels or bins of column {found!r} amounts to {worst:.0%} of the "
                f"records at ε = {stated(self.epsilon)}: no more than its coarse shape will be "
                "kept."
            )
            cautions.append(ForecastWarning(what, "Take fewer bins, merge levels, or more ε."))
        if parts.pairs:
            sd, cell = budget.sd(parts.rest / parts.pairs), rows / parts.most**2
            facts |= {"noise sd in a pair's cell": sd, "records in a pair's cell": cell}
            if sd > cell:
                needed = math.ceil(sd * parts.most**2)
                what = (
                    f"Each of {parts.pairs} pairs of columns has noise of sd {sd:,.0f} in cells "
                    f"that hold {cell:,.0f} records in the mean: relations between columns will be "
                    f"lost at ε = {stated(self.epsilon)}."
                )
                remedy = (
                    f"About {needed:,} records are needed, or fewer columns, more ε, or a δ "
                    "(--delta)."
                )
                cautions.append(ForecastWarning(what, remedy))
        return Forecast(facts, tuple(cautions))

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedMarginals:
        return FittedMarginals(self, InMemoryTable(schema, records), rows)

    def fit(self, task: Task) -> FittedMarginals:
        return FittedMarginals(self, task.table, task.rows)


def drawn_columns(schema: Schema) -> list[Column]:
    """Public columns, then those that are drawn: the others follow from them by a rule."""
    computed = computed_by(schema)
    drawn = [column for column in schema.columns.values() if column.name not in computed]
    return sorted(drawn, key=lambda column: not column.public)


def auto_bins(column: Column, weight: float) -> BinRule:
    """A number of bins, or their edges, from public facts.

    Args:
        weight: public number of records times epsilon.
    """
    lower, upper = require_bounds(column)
    width = upper - lower
    bins = round(BINS * min(max(math.sqrt(weight / USUAL), 1), FINER))
    if column.whole and width < UNIT_BINS:
        return int(width) + 1
    if column.type == "count":
        ends = np.geomspace(1, width + 1, bins + 1) - 1
        return [float(edge) for edge in np.unique(np.rint(ends)) + lower]
    if 0 < WIDE * lower < upper:
        ends = np.geomspace(lower, upper, bins + 1)
        ends[[0, -1]] = lower, upper
        return [float(edge) for edge in ends]
    return bins


class FittedMarginals(ModelFreeFitted):
    """The records as fine levels.

    Attributes:
        cells: fine levels of all columns, public ones first; public.
        counts: of the records; nothing else here comes from a confidential column.
        analyses: regressions to be kept; public.
        given: fine levels of the public columns by record, sorted: shape (n, public columns).
        structure: rules of the schema.
        rho: what counts are paid with, or None where that is pure epsilon; public.
    """

    mechanism: Marginals

    def __init__(self, mechanism: Marginals, table: Table, rows: int) -> None:
        schema = table.schema
        self.cells = TableCells((), mechanism.axes(schema, rows))
        self.structure = Structure(schema, self.cells.axes)
        given = [axis for axis in self.cells.axes if axis.column.public]
        self.rho = mechanism.rho(schema)
        spent = {} if self.rho is None else {"rho": self.rho}
        self.analyses = mechanism.analyses(schema)
        kept = {"keep": [analysis.text for analysis in self.analyses]}
        super().__init__(mechanism, schema, {"bins": self.cells.to_dict(), **kept, **spent})
        self._after = self.structure.after(self.analyses)
        used = sorted({name for analysis in self.analyses for name in analysis.names})
        self.counts = counting.counts_of(table, self.cells, [schema[name] for name in used])
        self.rows = rows
        # Without public columns nothing here has the length of the records. With them, rows are
        # made in an order of their own: that of the confidential file is not public.
        known = table.public
        public = TableCells((), tuple(given)).codes(known) if given else NO_CODES
        values = {a.column.name: numbers_of(a.column, known[a.column.name]) for a in given}
        self._order = np.lexsort(list(values.values())) if given else None
        self.given = public if self._order is None else public[self._order]
        self._values = {name: value[self._order] for name, value in values.items()}
        self._spare = None  # before anything is paid for: what it takes is public
        if self.structure.bonds:
            self._spare = self.structure.spare(len(table), self._values, self.given)
        self.columns = [
            counting.ColumnLevels(
                axis.size,
                values_of(axis),
                _shares(self.given[:, j], axis.size) if j < len(given) else None,
                () if axis.edges is None else tuple(np.flatnonzero(axis.ranges[2]).tolist()),
            )
            for j, axis in enumerate(self.cells.axes)
        ]

    def private(self, noise: Noise) -> counting.Measurement:
        moves = MOVES[self.mechanism.adjacency]
        budget = BudgetSplit(self.mechanism.epsilon, moves, noise, self.rho)
        if not self.analyses:
            return counting.Measurement.of(self.counts, self.columns, self.rows, budget)
        rest = budget.of(1 - counting.KEEP)
        found = counting.Measurement.of(self.counts, self.columns, self.rows, rest)
        # What is asked next follows from rows of the noisy counts, the same for the same counts.
        rows = len(self.given) or min(max(self.rows, _FEWEST), _MOST)
        maker = self._maker(found, np.random.default_rng(1), draw=False, one=True)
        _, walk = self._made(maker, rows)
        assert walk is not None
        return found.asking(self.analyses, walk.known(), self.counts, budget.of(counting.KEEP))

    def synthetic(
        self, output: counting.Measurement, rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        public = self.given.shape[1]
        # Rows beside public columns are made at once, as they are in an order.
        sizes = [rows] if public else _blocks(rows)
        maker = self._maker(
            output, rng, draw=self.mechanism.draw == "posterior", one=len(sizes) == 1
        )
        found = pd.concat([self._block(maker, size) for size in sizes], ignore_index=True)
        if self._order is not None:  # beside the public columns of the records again
            found = found.iloc[np.argsort(self._order)].reset_index(drop=True)
        return found

    def _maker(
        self, output: counting.Measurement, rng: np.random.Generator, *, draw: bool, one: bool
    ) -> RowMaker:
        order = order_of(output, self.given.shape[1], self._after)
        return RowMaker(output, order, rng, draw, one)

    def _made(self, maker: RowMaker, rows: int) -> tuple[Ints, Walk | None]:
        """Fine levels of synthetic rows, and their values where anything reads them."""
        walk = None
        if self.structure.bonds or self.analyses:
            walk = Walk(self.structure, rows, self._values)
        codes = synthetic_codes(maker, rows, self.given, walk=walk, spare=self._spare)
        return codes, walk

    def _block(self, maker: RowMaker, rows: int) -> pd.DataFrame:
        """Some rows, of which nothing but their values stays in memory."""
        codes, walk = self._made(maker, rows)
        if walk is not None:
            return walk.frame([column.name for column in self.synthesised])
        public = self.given.shape[1]
        return TableCells((), self.cells.axes[public:]).decode(codes[:, public:], maker.rng)


def _blocks(rows: int) -> list[int]:
    """Rows that are made at a time."""
    whole, rest = divmod(rows, BLOCK)
    return [BLOCK] * whole + [rest] * bool(rest or not whole)


def order_of(
    measured: counting.Measurement, public: int, after: Mapping[int, Collection[int]]
) -> list[int]:
    """Columns in the order of synthesis: public ones, then by number of groups and of levels.

    Args:
        after: columns that come before others whatever their sizes, by the latter.
    """
    sizes = [
        (-1, 0, j) if j < public else (group.size, len(group.of), j)
        for j, group in enumerate(measured.groups)
    ]
    left = sorted(sizes)
    found: list[int] = []
    while left:
        free = next(size for size in left if set(after.get(size[-1], ())) <= set(found))
        left.remove(free)
        found.append(free[-1])
    return found


def values_of(axis: Axis) -> Floats | None:
    """A number for each fine level, where they are ordered."""
    if axis.edges is None and axis.column.type != "ordinal":
        return None
    found = np.full(axis.size, np.nan)
    if axis.edges is None:
        found[: axis.valued] = np.arange(axis.valued)
    else:
        low, high, _ = axis.ranges
        found[: axis.valued] = (low + high) / 2
    return found


def _shares(codes: Ints, size: int) -> Floats:
    counts = np.bincount(codes, minlength=size)
    return np.asarray(counts / max(1, counts.sum()))
