"""Synthesis of whole tables: noisy margins and pair tables, a model of them, synthetic rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.errors import GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.formula.text import quoted
from dpbayes.mechanisms.base import Task
from dpbayes.mechanisms.forecast import Forecast, ForecastWarning
from dpbayes.mechanisms.marginals import counting
from dpbayes.mechanisms.marginals.analyses import MOST_TOGETHER, Analysis
from dpbayes.mechanisms.marginals.bins import auto_bins
from dpbayes.mechanisms.marginals.budget import MOVES, BudgetSplit, concentrated_loss, rho_to_spend
from dpbayes.mechanisms.marginals.exact_counts import counts_of
from dpbayes.mechanisms.marginals.groups import UNORDERED
from dpbayes.mechanisms.marginals.levels import ColumnLevels, values_of
from dpbayes.mechanisms.marginals.paid_once import NoisyTablesFitted, NoisyTablesMechanism
from dpbayes.mechanisms.marginals.parts import KEEP, MANY, SCORES, BudgetParts
from dpbayes.mechanisms.marginals.refining import REFINED, SCORED, can_refine
from dpbayes.mechanisms.marginals.rows import RowMaker, synthetic_codes
from dpbayes.mechanisms.marginals.structure import Structure, Walk, computed_by
from dpbayes.mechanisms.marginals.weighting import effective_records
from dpbayes.mechanisms.tables.cells import (
    Axis,
    BinRule,
    TableCells,
    check_bins,
    make_axis,
)
from dpbayes.privacy.accounting import stated
from dpbayes.privacy.guarantee import EPSILONS, SURVEY, Adjacency, Guarantee
from dpbayes.privacy.noise import Noise, StudyNoise
from dpbayes.records.chunks import InMemoryTable, Table
from dpbayes.schema import Column, Schema
from dpbayes.schema.rules import numbers_of
from dpbayes.schema.values import texts_of
from dpbayes.stan.model import Model

MOST_COLUMNS = 100
FAR = 0.5 / math.sqrt(2)  # half the mean absolute value of Laplace noise, by its sd
STRONG = " Strong relations of columns with many values can lose half."
# Of 5,914 respondents with 11 columns, one with 62 bins lost 10 to 35 % of correlations of .5 to
# .77 with eight that have up to 4 levels, which mostly kept those between them (ε = 1, δ = 1e-6).
# Of three to six columns one with many bins lost 1 to 6 % in the mean (6,000 simulated records).
STRONG_OF_ONE = " Strong relations of a column with many values can lose a third."
CHOSEN = " Of pairs that have no table relations may be lost at any strength."
FAINT = 0.05  # correlation that a forecast warns of if weaker ones alone are kept
SURE = 0.995  # correlation that no two columns have which do not say the same
HELPS = 0.9  # a remedy is named if it lowers that correlation by this factor or more
MORE = 3  # times ε that a forecast suggests
USUAL_DELTA = 1e-6  # that a forecast suggests
STEEP = 8  # ratio of the largest weight to the mean above which the forecast warns
OFF = 0.3  # noise in a level's effect, in residual sds, above which the forecast warns
LOST = 0.5  # noise in a column, as a share of the records, above which the forecast warns
_FEWEST, _MOST = 4000, 50_000  # synthetic rows from which the moments of analyses are derived
FITTED = 2500  # rows to which the relations of a first draft are fitted
BLOCK = 100_000  # rows that are synthesised at a time
NO_CODES: Ints = np.empty((0, 0), dtype=np.int64)
MOST_LEVELS = (400, 1000)  # levels of an ordered and an unordered column: fitted in seconds


@dataclass(frozen=True)
class Marginals(NoisyTablesMechanism):
    """Noisy counts of every column and of pairs of columns, and rows from a model of the counts.

    Margins are counted on fine levels, pairs on coarse groups of levels that follow from the noisy
    margins. Where there are rows enough, triples of columns are counted on fewer groups, and on
    more groups a few pairs that the other counts describe worst. A log-linear model of each column
    given those before it is fitted to the counts and their known noise variance. Where records are
    many, bins of numeric columns are divided by noisy counts of them first, and round numbers on
    which these show a heap become levels. Only counting spends epsilon: any number of data sets
    costs the same. A number of records that is not public is estimated from the counts.

    Source: mckenna-miklau-sheldon-2021; raisa-jalko-kaski-honkela-2023.

    Sensitivity: a record is in one cell of each table; ``BudgetSplit`` gives the norms. Groups,
    choices of columns and their order follow noisy counts and the public number of rows.

    Guarantee: strict, by composition over the tables; no assumption on chains or on the model. At
    delta = 0 it is epsilon-DP. At delta > 0 the tables together are rho-zCDP with the largest rho
    that implies (epsilon, delta)-DP, or epsilon-DP where that needs less noise.

    Attributes:
        epsilon, adjacency: as in ``ModelFreeMechanism``; they cover all data sets together.
        delta: the delta of (epsilon, delta)-DP. Above 0 the noise is Gaussian if there are so many
            tables (columns and pairs of columns) that Gaussian noise is the smaller one.
        bins: fine levels of numeric columns: ``auto``, a number, or one rule by column, as in
            ``cells.make_axis``. ``auto``: up to a hundred whole numbers have a bin each; other
            columns have 32 to 128 bins by the public number of rows, of widths that grow with the
            value where the bounds differ by a factor of a hundred.
        draw: ``mode`` makes every data set as near to the records as the counts allow.
            ``posterior`` makes each data set from a new posterior draw given the counts, so that
            ``combine`` and ``analyse`` can estimate the uncertainty by comparing data sets.
            ``auto``: the mode for one data set, posterior draws for several.
        keep: formulas of regressions to preserve, in addition to those of the schema.

    Examples:
        >>> import dpbayes as dpb
        >>> from dpbayes.demo.earnings import earnings
        >>> records, schema = earnings()
        >>> claim = dpb.Marginals(epsilon=1).claim(schema)
        >>> claim.for_datasets(20).asked
        1.0
    """

    epsilon: float
    adjacency: Adjacency | None = None
    bins: BinRule | Mapping[str, BinRule] = "auto"
    draw: Literal["auto", "mode", "posterior"] = "auto"
    delta: float = 0.0
    keep: Sequence[str] = ()
    structured: ClassVar[bool] = True
    counts_parts: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    name: ClassVar[str] = "marginals"
    summary: ClassVar[str] = "noisy margins and pair tables, and a model of them; strict ε-DP"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bins, str) and self.bins != "auto":
            raise GuaranteeError(f"bins = {self.bins!r} must be auto, a number, or by column.")
        check_bins(self.bins)
        object.__setattr__(self, "keep", texts_of("keep", "formulas", self.keep))

    def analyses(self, schema: Schema) -> tuple[Analysis, ...]:
        """Regressions that synthetic rows preserve: those of the schema and of ``keep``.

        Raises:
            SchemaError: a formula that ``Analysis`` refuses; too many coefficients of an outcome.
        """
        texts = dict.fromkeys((*schema.keep, *self.keep))
        analyses = tuple(Analysis(text, schema) for text in texts)
        together = Counter[str]()
        for analysis in analyses:
            together[analysis.outcome.name] += analysis.moments
        for name, moments in together.items():
            if moments > MOST_TOGETHER:
                raise SchemaError(
                    f"keep: the regressions of column {name!r} have {moments:,} coefficients "
                    f"together; up to {MOST_TOGETHER:,} are kept. Leave one out, or merge levels."
                )
        return analyses

    def rho(self, schema: Schema) -> float | None:
        """Rho to spend on the tables of these columns, for ``adjacency``; None for pure epsilon."""
        drawn = drawn_columns(schema)
        public = sum(column.public for column in drawn)
        hidden = len(drawn) - public
        tables = hidden + math.comb(len(drawn), 2) - math.comb(public, 2)
        return rho_to_spend(self.epsilon, self.delta, self.neighbours, tables)

    def claim(self, schema: Schema) -> Guarantee:
        claim = self._claim_of_tables(schema)
        return claim if schema.survey is None else claim.assuming(SURVEY)

    def _claim_of_tables(self, schema: Schema) -> Guarantee:
        rho = self.rho(schema)
        if rho is not None:
            keep_share = KEEP if schema.keep or self.keep else 0.0
            scores = SCORES if len(drawn_columns(schema)) >= MANY else 0.0
            if can_refine(self.levels(self.axes(schema, 1))):
                scores += REFINED * SCORED  # at most, if the number of rows pays for it
            loss = concentrated_loss(rho, self.neighbours, keep_share + (1 - keep_share) * scores)
            return replace(self._claim(loss), delta=self.delta)
        if not self.delta:
            return self._claim(self.loss)
        reason = f"Of so few tables noise is less by pure ε than at δ = {stated(self.delta)}."
        return replace(self._claim(self.loss), parts=reason)

    def check_columns(self, schema: Schema) -> None:
        schema.confidential()
        if len(schema.columns) > MOST_COLUMNS:
            raise SchemaError(
                f"{len(schema.columns)} columns have {math.comb(len(schema.columns), 2):,} pairs; "
                f"up to {MOST_COLUMNS} columns can be synthesised together."
            )
        structure = Structure(schema, self.axes(schema, 1))
        structure.after(self.analyses(schema))
        if not any(axis.column.public for axis in structure.axes.values()):
            if structure.bonds:
                structure.spare(0, {}, NO_CODES)
        else:
            structure.refuse_told()

    def axes(self, schema: Schema, rows: int) -> tuple[Axis, ...]:
        """Fine levels of each drawn column, public columns first, computed from public facts.

        Raises:
            SchemaError: a count without upper bound, or too many levels. GuaranteeError: bad bins.
        """
        for name in self.bins if isinstance(self.bins, Mapping) else ():
            if schema[name].levels:
                raise GuaranteeError(f"bins: column {name!r} has levels and needs no bins.")
        counted = _counted(schema, rows)
        axes = tuple(self._axis(column, counted) for column in drawn_columns(schema))
        for axis in axes:
            most = MOST_LEVELS[values_of(axis) is None]
            if axis.size > most:
                raise SchemaError(
                    f"column {axis.column.name!r} has {axis.size:,} levels, too many for "
                    f"noisy counts; at most {most:,}. Merge levels, or take fewer bins."
                )
        return axes

    def levels(self, axes: Sequence[Axis]) -> list[ColumnLevels]:
        """Levels of the axes; bins that follow no rule of the user's may be divided."""
        return [
            ColumnLevels.of(
                axis,
                None,
                divisible=self._rule(axis.column) == "auto" and not axis.column.public,
            )
            for axis in axes
        ]

    def _rule(self, column: Column) -> BinRule:
        return self.bins.get(column.name, "auto") if isinstance(self.bins, Mapping) else self.bins

    def _axis(self, column: Column, rows: int) -> Axis:
        rule = self._rule(column)
        if rule == "auto" and not column.levels:
            rule = auto_bins(column, rows * self.epsilon)
        return make_axis(column, rule, None, 1)

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Forecast the noise of margins and pair tables next to the mean count of their cells."""
        axes = self.axes(schema, rows)
        cautions, every, rows = [], rows, _counted(schema, rows)
        if every > STEEP * rows:
            message = (
                f"The largest weight is {every / rows:,.0f} times the mean: noise is that of "
                f"{rows:,} records, although there are {every:,}."
            )
            remedy = "Declare a smaller `largest` in [survey]: weights above it are cut."
            cautions.append(ForecastWarning(message, remedy))
        budget = self._budget_of_tables(schema)
        levels = self.levels(axes)
        for j, axis in enumerate(axes):
            if axis.column.public:  # their shares, which are not known yet, make no difference
                levels[j] = replace(levels[j], shares=np.full(axis.size, 1 / axis.size))
        parts = BudgetParts.of(levels, rows, budget)
        worst, worst_column = 0.0, ""
        for j, part in parts.margins.items():
            off = FAR * axes[j].size * budget.sd(part + parts.first.get(j, 0.0)) / rows
            worst, worst_column = max((worst, worst_column), (off, axes[j].column.name))
        facts = {"noise in a column, share of records": worst}
        if worst > LOST:
            message = (
                f"Noise in the levels or bins of column {worst_column!r} amounts to {worst:.0%} of "
                f"the records at ε = {stated(self.epsilon)}: no more than its coarse shape will "
                "be kept."
            )
            cautions.append(ForecastWarning(message, "Take fewer bins, merge levels, or more ε."))
        if parts.pairs:
            sd, cell = budget.sd(parts.rest / parts.pairs), rows / parts.most**2
            facts |= {"noise sd in a pair's cell": sd, "records in a pair's cell": cell}
            faintest = facts["correlation that is kept, at least"] = parts.faintest(rows, budget)
            if message := _unreliable(axes, parts, faintest):
                remedies = self._remedies(schema, levels, rows, faintest).strip()
                cautions.append(ForecastWarning(message, remedies))
            merged = UNORDERED * max(parts.most, parts.finest)
            many = {
                axis.column.name: axis.valued
                for axis, level in zip(axes, levels, strict=True)
                if level.values is None and axis.valued > merged
            }
            if many:
                named = ", ".join(f"{name!r} ({number} levels)" for name, number in many.items())
                message = (
                    f"Of column {named} at most {merged} frequent levels are told apart "
                    "in tables of pairs: how other columns differ between the others is lost."
                )
                alone = self._whole_budget(schema).of(KEEP).moment_sd(1.0)
                remedy = "A regression in `keep` has a sum for each level; or merge levels."
                if _of_each_level(max(many.values()), alone, rows) > OFF:
                    remedy = (
                        "Merge levels: in a regression of `keep` so many spoil all coefficients."
                    )
                cautions.append(ForecastWarning(message, remedy))
        return Forecast(facts, (*cautions, *self._of_levels(schema, rows)))

    def _of_levels(self, schema: Schema, rows: int) -> Iterator[ForecastWarning]:
        """Yield warnings of kept regressions whose levels have too few records for the noise."""
        kept = self.analyses(schema)
        budget = self._whole_budget(schema).of(KEEP)
        for analysis in kept:
            sd = budget.moment_sd(analysis.moments / sum(each.moments for each in kept))
            for name in analysis.covariates:
                levels = len(schema[name].levels)
                off = _of_each_level(levels, sd, rows)
                if off > OFF:
                    remedy = "Leave it out of this regression, merge levels, or take more ε"
                    remedy += "." if self.delta else " or a δ."
                    if all(schema[each].public for each in analysis.covariates):
                        remedy += " Mechanism score has effects of public groups, as (1 | group)."
                    yield ForecastWarning(
                        f"keep {quoted(analysis.text)}: noise moves the effect of each of the "
                        f"{levels} levels of {name!r} by about {off:.1f} residual sds, and other "
                        "coefficients with them.",
                        remedy,
                    )

    def _budget_of_tables(self, schema: Schema) -> BudgetSplit:
        """Budget of margins and tables, for forecasts: analyses take their share of it."""
        whole = self._whole_budget(schema)
        return whole.of(1 - KEEP) if self.analyses(schema) else whole

    def _whole_budget(self, schema: Schema) -> BudgetSplit:
        return BudgetSplit(self.epsilon, MOVES[self.neighbours], StudyNoise(0), self.rho(schema))

    def _remedies(
        self, schema: Schema, levels: Sequence[ColumnLevels], rows: int, faintest: float
    ) -> str:
        """Say what would keep fainter relations, and from which correlation on, by public facts."""
        more = self.with_epsilon(min(MORE * self.epsilon, EPSILONS[1]))
        some = levels[-max(2, len(levels) // 2) :]
        lower = {}
        for name, mechanism, columns in (
            (f"δ = {stated(USUAL_DELTA)}", replace(self, delta=self.delta or USUAL_DELTA), levels),
            (f"{MORE} times the ε", more, levels),
            ("half of the columns", self, some),
        ):
            budget = mechanism._budget_of_tables(schema)
            number = BudgetParts.of(columns, rows, budget).faintest(rows, budget)
            if number < HELPS * min(faintest, 1.0):
                lower[name] = number
        options = ", ".join(f"{n:.2f} with {name}" for name, n in lower.items())
        of = "That correlation would be"
        if faintest >= SURE:
            of = "They are kept from a correlation of"
        keep = "" if schema.keep or self.keep else " A regression in `keep` has sums of its own."
        return (f"{of} {options}." if options else "") + keep

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedMarginals:
        sd = 0.0 if schema.rows.public else math.inf
        return FittedMarginals(self, InMemoryTable(schema, records, records), rows, sd)

    def fit(self, task: Task) -> FittedMarginals:
        return FittedMarginals(self, task.table, task.rows, task.rows_sd)


def _counted(schema: Schema, rows: int) -> int:
    """Convert a public number of records to what they count as: to records of largest weight."""
    return rows if schema.survey is None else schema.survey.counted


def _of_each_level(levels: int, sd: float, rows: int) -> float:
    """Noise in the effect of one of many levels in a kept regression, in residual sds.

    The vector U r of a record at one of L levels is clipped at about 4 sqrt(L), with residuals of
    two sds, and a level's effect is sqrt(L) times a coefficient of U. On 7,185 pupils of 160
    schools at ε = 1 the noise was 0.8 residual sds, and is 0.8 by this. ``sd`` is that of the noise
    in a sum of moments.
    """
    return 4 * levels * sd / rows


def _unreliable(axes: Sequence[Axis], parts: BudgetParts, faintest: float) -> str:
    """Say on which relations not to rely, if some may matter; empty otherwise.

    Args:
        faintest: correlation from which relations are kept, if all records have both values.
    """
    # Of an optional column the number of values is not known, but may well be half.
    optional = any(axis.column.optional for axis in axes)
    if faintest * (2 if optional else 1) <= FAINT:
        return ""
    half = f"{2 * faintest:.2f} where half of the records have both values, any where few have"
    if 2 * faintest >= SURE:
        half = "any where half of the records or fewer have both values"
    below = f" whose correlation is below {faintest:.2f}{f' ({half})' if optional else ''}"
    return (
        "Do not rely on relations between two columns"
        f"{below if faintest < SURE else ', however strong'}: noise takes a third of their "
        "strength or more, turns them round, or makes them up."
        f"{besides(axes, parts)}"
    )


def besides(axes: Sequence[Axis], parts: BudgetParts) -> str:
    """Say what else relations lose; empty if nothing."""
    many_values = sum(axis.size > parts.most for axis in axes)
    of_one = STRONG_OF_ONE if many_values and parts.scores else ""
    return f"{STRONG if many_values > 1 else of_one}{CHOSEN if parts.scores else ''}"


def drawn_columns(schema: Schema) -> list[Column]:
    """Public columns, then confidential ones, without those that a rule computes from others."""
    computed = computed_by(schema)
    drawn = [column for column in schema.columns.values() if column.name not in computed]
    return sorted(drawn, key=lambda column: not column.public)


class FittedMarginals(NoisyTablesFitted[counting.Measurement]):
    """Records coded as fine levels, ready to be counted with noise.

    Attributes:
        cells: public levels and bins of all columns, public columns first; noisy counts may divide
            the bins of a measurement.
        counts: exact counts of the records; nothing else here uses a confidential column.
        analyses: regressions to preserve; public.
        public_codes: fine levels of the public columns by record, sorted: shape
            (n, public columns).
        structure: rules of the schema, on ``cells``.
        rho: zCDP budget of the counts, or None for pure epsilon; public.
    """

    mechanism: Marginals

    def __init__(self, mechanism: Marginals, table: Table, rows: int, rows_sd: float) -> None:
        schema = table.schema
        self.cells = TableCells((), mechanism.axes(schema, rows))
        self.structure = Structure(schema, self.cells.axes)
        public_axes = [axis for axis in self.cells.axes if axis.column.public]
        self.rho = mechanism.rho(schema)
        spent = {} if self.rho is None else {"rho": self.rho}
        self.analyses = mechanism.analyses(schema)
        asked: dict[str, Any] = {"keep": [analysis.text for analysis in self.analyses]}
        if schema.survey is not None:
            asked["survey"] = schema.survey.to_plain()
        super().__init__(mechanism, schema, {"bins": self.cells.to_dict(), **asked, **spent})
        self._after = self.structure.after(self.analyses)
        used = sorted({name for analysis in self.analyses for name in analysis.names})
        self.counts = counts_of(table, self.cells, [schema[name] for name in used])
        self.rows, self._rows_sd, self._survey = rows, rows_sd, schema.survey
        self._modes: tuple[counting.Measurement, RowMaker] | None = None
        # Without public columns nothing here may have the length of the records, which can be
        # confidential. With them, rows are sorted: the order of the file is not public.
        public_records = table.public
        public = (
            TableCells((), tuple(public_axes)).codes(public_records) if public_axes else NO_CODES
        )
        values = {
            a.column.name: numbers_of(a.column, public_records[a.column.name]) for a in public_axes
        }
        self._order = np.lexsort(list(values.values())) if public_axes else None
        self.public_codes = public if self._order is None else public[self._order]
        self._values = {name: value[self._order] for name, value in values.items()}
        # Fallback rows are found before anything is spent: they use public facts only.
        self._spare = None
        if self.structure.bonds:
            self._spare = self.structure.spare(len(table), self._values, self.public_codes)
            if public_axes:  # as they are, and not only as they might be
                self.structure.refuse_told(self._values, self.public_codes)
        self.columns = mechanism.levels(self.cells.axes)
        for j in range(len(public_axes)):
            shares = _shares(self.public_codes[:, j], self.columns[j].size)
            self.columns[j] = replace(self.columns[j], shares=shares)

    def draw_private(self, noise: Noise) -> counting.Measurement:
        moves = MOVES[self.mechanism.neighbours]
        budget = BudgetSplit(self.mechanism.epsilon, moves, noise, self.rho)
        n, n_sd = self.rows, self._rows_sd
        if self._survey is not None:
            most = n + 2 * n_sd if math.isfinite(n_sd) else n
            n, budget = effective_records(self.counts.squares()[0], self._survey, most, budget)
            n_sd = math.inf
        counts_budget = budget.of(1 - KEEP) if self.analyses else budget
        measured = counting.Measurement.of(self.counts, self.columns, n, counts_budget, n_sd)
        parts = BudgetParts.of(self.columns, n, counts_budget)
        rows = len(self.public_codes) or min(max(self.rows, _FEWEST), _MOST)
        if parts.refined:
            maker = self._interim(measured)
            if not len(self.public_codes) and self.rows > FITTED:
                self._made(maker, FITTED)  # relations are fitted to the first rows
            codes = self._made(maker, rows)[0]
            own = counts_budget.of(parts.refined)
            measured = measured.refined(codes, self.counts, own, parts.finest)
        if not self.analyses:
            return measured
        _, walk = self._made(self._interim(measured), rows)
        assert walk is not None
        return measured.asking(self.analyses, walk.known(), self.counts, budget.of(KEEP))

    def _interim(self, measured: counting.Measurement) -> RowMaker:
        """Maker of the rows that decide what to count next.

        Its seed is fixed, so that they are a function of the noisy counts alone.
        """
        return self._maker(measured, np.random.default_rng(1), draw=False, one=True)

    def told(self, output: counting.Measurement) -> dict[str, Any]:
        names = [axis.column.name for axis in self.cells.axes]
        pairs = [[names[j] for j in pair] for pair in output.tables] if output.uncounted else []
        facts: dict[str, Any] = {"pairs": pairs} if pairs else {}
        axes = self.cells.axes
        apart = {names[j]: axes[j].named(own) for j, own in output.told_apart().items()}
        facts |= {"told_apart": apart} if apart else {}
        if self._survey is not None:
            part = 1 / output.stands_for / self._survey.fewest_records
            sizes = {"weight_counted": output.n, "weight_counted_sd": output.n_sd}
            facts |= {name: round(float(size * part), 3) for name, size in sizes.items()}
            return facts | {"effective_records": output.n}
        return facts | ({"estimated_records": output.n} if output.n_sd else {})

    def synthetic(
        self, output: counting.Measurement, rows: int, rng: np.random.Generator
    ) -> pd.DataFrame:
        public = self.public_codes.shape[1]
        # With public columns all rows are made at once, because they must match those in order.
        sizes = [rows] if public else _blocks(rows)
        drawn = self.mechanism.draw == "posterior"
        near = self._near(output) if drawn else None
        maker = self._maker(output, rng, draw=drawn, one=len(sizes) == 1, near=near)
        frame = pd.concat([self._block(maker, size) for size in sizes], ignore_index=True)
        if self._order is not None:  # undo the sorting, to match the public columns of the records
            frame = frame.iloc[np.argsort(self._order)].reset_index(drop=True)
        return frame

    def _near(self, output: counting.Measurement) -> RowMaker:
        """Maker whose relations are the modes, near which those of all posterior draws are."""
        if self._modes is None or self._modes[0] is not output:
            maker = self._interim(output)
            self._made(maker, len(self.public_codes) or FITTED)
            self._modes = output, maker
        return self._modes[1]

    def _maker(
        self,
        output: counting.Measurement,
        rng: np.random.Generator,
        *,
        draw: bool,
        one: bool,
        near: RowMaker | None = None,
    ) -> RowMaker:
        order = order_of(output, self.public_codes.shape[1], self._after)
        return RowMaker(output, order, rng, draw, one, near)

    def _made(self, maker: RowMaker, rows: int) -> tuple[Ints, Walk | None]:
        """Fine levels of synthetic rows, and their values where rules or analyses need them."""
        walk, spare = None, self._spare
        if self.structure.bonds or self.analyses:
            structure = Structure(self.structure.schema, maker.measured.axes)
            walk = Walk(structure, rows, self._values)
            if spare is not None:
                spare = spare[0], structure.codes(spare[0].values)
        codes = synthetic_codes(maker, rows, self.public_codes, walk=walk, spare=spare)
        return codes, walk

    def _block(self, maker: RowMaker, rows: int) -> pd.DataFrame:
        """Synthesise a block of rows; only their values stay in memory."""
        codes, walk = self._made(maker, rows)
        if walk is not None:
            return walk.frame([column.name for column in self.synthesised])
        public = self.public_codes.shape[1]
        return TableCells((), maker.measured.axes[public:]).decode(codes[:, public:], maker.rng)


def _blocks(rows: int) -> list[int]:
    """Sizes of the blocks in which ``rows`` synthetic rows are made."""
    full, remainder = divmod(rows, BLOCK)
    return [BLOCK] * full + [remainder] * bool(remainder or not full)


def order_of(
    measured: counting.Measurement, public: int, after: Mapping[int, Collection[int]]
) -> list[int]:
    """Columns in the order of synthesis: public ones, then by number of groups and of levels.

    A column that shares a refined table with one before it comes as soon as it may.

    Args:
        after: for a column, those that must come before it whatever their sizes.
    """
    sizes = [
        (-1, 0, j) if j < public else (group.size, len(group.of), j)
        for j, group in enumerate(measured.groups)
    ]
    remaining = sorted(sizes)
    order: list[int] = []
    while remaining:
        free = [size for size in remaining if set(after.get(size[-1], ())) <= set(order)]
        related = (
            [size for size in free if size[-1] in measured.beside(k)] for k in reversed(order)
        )
        first = free[0] if free[0][0] < 0 else next(filter(None, related), free)[0]
        remaining.remove(first)
        order.append(first[-1])
    return order


def _shares(codes: Ints, size: int) -> Floats:
    counts = np.bincount(codes, minlength=size)
    return np.asarray(counts / max(1, counts.sum()))
