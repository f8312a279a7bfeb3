"""Base of the perturbed Gibbs samplers: settings, budget, chains and privacy guarantee."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import DataError, GuaranteeError, SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.base import ModelFreeFitted, ModelFreeMechanism, Task
from dpbayes.mechanisms.forecast import NOISY, Forecast, ForecastWarning, urn_share
from dpbayes.mechanisms.pegs.blocks import Conditionals, draw_blocks
from dpbayes.mechanisms.pegs.cost import Grain, Kind, Sampler, alpha_for
from dpbayes.mechanisms.pegs.keys import KeyLayout
from dpbayes.mechanisms.pegs.public import PublicRecords
from dpbayes.mechanisms.tables.cells import MAX_CELLS, TableCells, check_bins
from dpbayes.privacy.accounting import NOTHING, Loss, check_delta, rho_for, stated
from dpbayes.privacy.guarantee import (
    PUBLIC_INPUTS,
    REFERENCE,
    SECRET_DRAWS,
    SECRET_NOISE,
    Adjacency,
    Guarantee,
)
from dpbayes.privacy.noise import Noise
from dpbayes.schema import Schema
from dpbayes.schema.rows import MOST_VALUES
from dpbayes.stan.model import Model

Unit = Literal["data-set", "block", "record"]
Seeds = Literal["uniform", "reference"]
Bins = int | Sequence[float]
MOST_BLOCK = 10_000  # records of a block: the row of each is compared with those visited before
MOST_RECORDS = 2**31 - 1  # confidential records: counts are in 32 bits, sums of weights in 64
_RECORDS = "`records=300`, say"


@dataclass(frozen=True)
class GibbsPlan:
    """Noise and privacy loss of a data set for a budget.

    Attributes:
        sampler: number and composition of the steps that draw the data set.
        step: w, the loss of each step.
        order: ε spent on the order of the columns, for ``adjacency``; 0 if that is public.
        adjacency: neighbouring relation of the budget.
    """

    sampler: Sampler
    step: float
    order: float
    adjacency: Adjacency

    @property
    def alpha(self) -> float:
        """α, which is added to every count or fitted probability."""
        return alpha_for(self.step)

    @property
    def order_loss(self) -> Loss:
        """Loss of the noisy pair tables; a changed record moves them twice as much as a new one."""
        if not self.order:
            return NOTHING
        if self.adjacency == "add-remove":
            return Loss.pure(self.order)
        return Loss.pure(self.order / 2, changed=self.order)

    @property
    def loss(self) -> Loss:
        """Loss of the data set, including the order of its columns."""
        return self.order_loss.plus(self.records)

    @property
    def records(self) -> Loss:
        """Loss of all synthetic records of the data set."""
        return self.sampler.loss(self.step)

    def words(self, block: int) -> str:
        """Describe the components of the loss in words."""
        unit_cost, total_cost = (
            f"ε = {stated(loss.epsilon)} (add/remove), "
            f"{stated(loss.substitution().epsilon)} (substitution)"
            for loss in (replace(self.sampler, units=1).loss(self.step), self.records)
        )
        unit = f"block of {block} records" if self.sampler.kind == "reset" else "synthetic record"
        parts = [
            f"Each {unit} costs {unit_cost}",
            f"the {self.sampler.units:,} of a data set cost {total_cost}",
        ]
        if self.order:
            order = self.order_loss
            parts.append(
                f"the order of its columns costs {stated(order.epsilon)}, "
                f"{stated(order.substitution().epsilon)}"
            )
        return "; ".join(parts) + "."


class GibbsChains(ModelFreeMechanism):
    """Base of the samplers with and without a guarantee: chains that start from public seeds.

    Attributes:
        records, block, bins, seeds, reference: as in ``Gibbs``.
    """

    records: int | None
    block: int
    bins: Mapping[str, Bins] | int | None
    seeds: Seeds
    reference: PublicRecords | None
    blanks: ClassVar[bool] = True

    @abstractmethod
    def conditionals(self, fitted: FittedGibbs, noise: Noise) -> Conditionals:
        """Conditional distributions to draw from, computed from the confidential records."""

    @abstractmethod
    def plan(self, layout: KeyLayout, rows: int) -> GibbsPlan | None:
        """Division of ε over the steps of a data set; None without a guarantee."""

    def check_layout(self, layout: KeyLayout) -> None:
        """Raise SchemaError or GuaranteeError if the settings do not fit the columns."""

    def data_rows(self, schema: Schema) -> int | None:
        return schema.rows.number if self.records is None else self.records

    def cells(self, schema: Schema) -> TableCells:
        """Levels and bins; SchemaError for a numeric column without bins or with a single one."""
        return cells_of(schema, self.bins)

    def check_columns(self, schema: Schema) -> None:
        schema.confidential()
        self.check_layout(layout_of(self.cells(schema)))
        if self.reference is not None:
            self.reference.validated(schema)

    def fit(self, task: Task) -> FittedGibbs:
        if self.reference is not None:
            self.reference.check_records(task.records)
        return self.prepare(task.schema, task.records, task.rows)

    def prepare(self, schema: Schema, records: pd.DataFrame, rows: int) -> FittedGibbs:
        return FittedGibbs(self, schema, records, rows)


@dataclass(frozen=True)
class Gibbs(GibbsChains):
    """Base of the samplers with a guarantee: their settings.

    Attributes:
        epsilon: ε of one data set, or of the unit in ``of``.
        adjacency: neighbouring relation that epsilon is for, as in ``NoisyMechanism``.
        of: unit that ε covers. ``data-set``: α follows from the number of records. ``record`` or
            ``block``: one synthetic record or block, as in the paper; the ε of a data set is the
            multiple of it.
        delta: δ at which the ε of a data set is stated, and at which ``epsilon`` of a data set is
            meant; above 0 the smaller of pure composition and zCDP is used.
        records: number of records of a data set; by default the public number of rows.
        block: B, records of a chain, each drawn from the one before; the first from a seed.
        bins: bins of numeric columns, which have no default: a number, or edges, by column.
        seeds: starts of the chains: ``uniform`` over the declared levels, or rows of ``reference``.
        reference: public records.
        kind: composition of the steps of a data set (``cost.Sampler``).
    """

    epsilon: float
    adjacency: Adjacency | None = None
    of: Unit = "data-set"
    delta: float = 0.0
    records: int | None = None
    block: int = 1
    bins: Mapping[str, Bins] | int | None = None
    seeds: Seeds = "uniform"
    reference: PublicRecords | None = None
    kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of not in get_args(Unit):
            raise GuaranteeError(f"of = {self.of!r} must be one of {', '.join(get_args(Unit))}.")
        check_delta(self.delta)
        check_shared(self)

    def order_share(self, layout: KeyLayout) -> float:
        """Share of a data set's budget that is spent on the order of the columns."""
        return 0.0

    def plan(self, layout: KeyLayout, rows: int) -> GibbsPlan:
        """Divide ε over the steps of a data set of ``rows`` records.

        Source: park-ghosh-2014, eq. 6; section 3.4.

        Raises:
            GuaranteeError: ε is too little for so many records.
        """
        units = -(-rows // self.block) if self.kind == "reset" else rows
        sampler = Sampler(self.kind, len(layout.drawn), units)
        share = self.order_share(layout)
        total = self.epsilon * self._times(units)
        order, step = share * total, sampler.step_for((1 - share) * total, self.neighbours)
        # At a delta, zCDP may allow larger steps than pure composition.
        if self.delta and self.of == "data-set":
            rho = rho_for(self.epsilon, self.delta)
            zcdp_step = sampler.step_for_rho((1 - share) * rho, self.neighbours)
            if zcdp_step > step:
                order, step = math.sqrt(2 * share * rho), zcdp_step
        if any(Grain.of(alpha_for(step), layout.sizes[i]) is None for i in layout.drawn):
            raise GuaranteeError(
                f"epsilon = {stated(self.epsilon)} of a {self.of} is too little for {rows:,} "
                f"records of {len(layout.drawn)} columns: what is drawn would be uniform. Ask "
                "for fewer."
            )
        return GibbsPlan(sampler, step, order, self.neighbours)

    def _times(self, units: int) -> float:
        """Ratio of the ε of a data set to ``epsilon``."""
        if self.of == "data-set":
            return 1
        if self.kind == "reset":
            return units if self.of == "block" else units * self.block
        return units if self.of == "record" else units / self.block

    def claim(self, schema: Schema) -> Guarantee:
        rows = self.data_rows(schema)
        if rows is None:
            self._require_whole()
            return self.guarantee()
        plan = self.plan(layout_of(self.cells(schema)), rows)
        return replace(self._claim(plan.loss), parts=plan.words(self.block))

    def outlook(self, schema: Schema, rows: int, model: Model | None) -> Forecast:
        """Forecast the share of values that are uniform draws.

        A step draws uniformly with probability C α / (N + C α): N <= n in a row of a table of
        counts, and N = 1 for a fitted distribution.
        """
        layout = layout_of(self.cells(schema))
        alpha = self.plan(layout, rows).alpha
        total = 1 if self.kind == "any" else rows
        sizes = [layout.sizes[i] for i in layout.drawn]
        share = sum(urn_share(size, total, alpha) for size in sizes) / len(sizes)
        facts = {"α": alpha, "share of noise": share}
        if share < NOISY:
            return Forecast(facts)
        least = "" if self.kind == "any" else "at least "
        message = (
            f"At ε = {stated(self.epsilon)} a step adds α = {alpha:.3g} to every level: {least}"
            f"{share:.0%} of all values will be uniform over their levels."
        )
        remedy = f"`marginals` pays once for all rows; or ask for fewer rows: {_RECORDS}."
        return Forecast(facts, (ForecastWarning(message, remedy),))

    def guarantee(self) -> Guarantee:
        self._require_whole()
        return self._claim(self.loss)

    def _require_whole(self) -> None:
        if self.of != "data-set" or self.delta:
            raise GuaranteeError(
                f"mechanism {self.name!r} needs the records of one data set, {_RECORDS}: "
                + (
                    f"ε of a {self.of}"
                    if self.of != "data-set"
                    else f"ε at δ = {stated(self.delta)}"
                )
                + " says what a data set costs only if its number of records is known before."
            )

    def _claim(self, loss: Loss) -> Guarantee:
        assumptions: tuple[str, ...] = (PUBLIC_INPUTS, self.randomness)
        if self.noisy:
            assumptions = (*assumptions, SECRET_NOISE)
        if self.reference is not None:
            assumptions = (*assumptions, REFERENCE)
        return Guarantee(
            self.name, loss, "strict", assumptions, adjacency=self.neighbours, delta=self.delta
        )

    @property
    def loss(self) -> Loss:
        """Loss of a data set with any number of records and columns, at δ = 0."""
        substitution = self.epsilon
        if self.kind == "reset":
            changed = None if self.neighbours == "add-remove" else substitution
            return Loss.pure(self.epsilon, changed=changed)
        # A changed record moves two cells of each noisy pair table, an added one moves one.
        if self.noisy and self.neighbours == "add-remove":
            substitution *= 2
        return Loss.pure(self.epsilon, changed=substitution)

    def spending(self, part: float) -> Gibbs:
        self._require_whole()
        return super().spending(part)

    @property
    def randomness(self) -> str:  # type: ignore[override]  # of the draws only; noise has its own
        return SECRET_DRAWS

    @property
    def noisy(self) -> bool:
        return False

    def check(self, schema: Schema, model: Model | None) -> None:
        super().check(schema, model)
        if self.bins is not None:
            check_bins(self.bins)
        if schema.rows.share and self.records is not None:
            raise GuaranteeError(
                f"records = {self.records}: a noisy number of rows would be paid for and not used. "
                "Leave records out, or declare rows in the schema."
            )
        self.claim(schema)


def check_shared(mechanism: GibbsChains) -> None:
    """Raise GuaranteeError for invalid settings that all samplers share."""
    for setting, most in (("block", MOST_BLOCK), ("records", MOST_VALUES)):
        value = getattr(mechanism, setting)
        if value is None and setting == "records":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise GuaranteeError(
                f"{setting} = {value!r} must be a whole number from 1 to {most:,}."
            )
    if mechanism.seeds not in get_args(Seeds):
        raise GuaranteeError(
            f"seeds = {mechanism.seeds!r} must be uniform or reference: seeds of the confidential "
            "records would be part of what is released, and void ε."
        )
    if mechanism.reference is not None and not isinstance(mechanism.reference, PublicRecords):
        raise GuaranteeError(
            f"reference is a {type(mechanism.reference).__name__}; it must be "
            "PublicRecords(table), or at the command line a CSV file."
        )
    if mechanism.seeds == "reference" and mechanism.reference is None:
        raise GuaranteeError("seeds = reference needs reference = ...: a file of public records.")


def cells_of(schema: Schema, bins: Mapping[str, Bins] | int | None) -> TableCells:
    """Levels and bins of every column, from public facts alone.

    Raises:
        SchemaError: a numeric column without bins, or a column with fewer than two cells.
        GuaranteeError: bins that are neither a number nor edges.
    """
    for column in schema.columns.values():
        rule = bins.get(column.name) if isinstance(bins, Mapping) else bins
        if rule is None and not column.levels:
            raise SchemaError(
                f"column {column.name!r}: this mechanism takes columns with levels; found type "
                f"{column.type}. Give it public bins: bins = {{{column.name} = 10}} or a list of "
                "edges (from documentation, never from the confidential data)."
            )
        odd = isinstance(rule, int) and not 1 <= rule <= MAX_CELLS
        if isinstance(rule, str | bool | float) or odd:
            raise GuaranteeError(
                f"bins of column {column.name!r}: {rule!r:.40} must be a number of bins, up to "
                f"{MAX_CELLS:,}, or edges."
            )
    cells = TableCells.of(schema, 1, 2 if bins is None else bins)
    for axis in (*cells.public_axes, *cells.axes):
        if axis.size < 2:
            raise SchemaError(
                f"column {axis.column.name!r} has one bin: there is nothing to draw. Take two or "
                "more, or leave the column out."
            )
    return cells


def layout_of(cells: TableCells) -> KeyLayout:
    """Layout of the columns: public columns first, then those to draw."""
    axes = (*cells.public_axes, *cells.axes)
    names = tuple(axis.column.name for axis in axes)
    return KeyLayout(names, tuple(axis.size for axis in axes), len(cells.public_axes))


class FittedGibbs(ModelFreeFitted[Ints]):
    """Levels of the n records, shape (n, columns), public columns first.

    Attributes:
        cells, layout: axes and numbers of levels; public.
        plan: noise and loss of a data set; public. None for a sampler without guarantee.
        rows: public number of synthetic records.
        length: records of a chain, at most ``rows``.
        given: public columns of every record of every chain, shape (chains, B, columns), or None.
        starts: levels of public records, from which chains start; None for uniform seeds.
    """

    mechanism: GibbsChains

    def __init__(
        self, mechanism: GibbsChains, schema: Schema, records: pd.DataFrame, rows: int
    ) -> None:
        self.cells: TableCells = mechanism.cells(schema)
        self.layout, self.rows = layout_of(self.cells), rows
        if len(records) > MOST_RECORDS:
            raise DataError(f"there are more than {MOST_RECORDS:,} records.")
        if self.cells.public_axes and len(records) != rows:  # n is public with public columns
            raise GuaranteeError(
                f"records = {rows}: a column is public and released as it is, so there are as many "
                f"rows as records, {len(records)}. Leave records out, or declare that number."
            )
        mechanism.check_layout(self.layout)
        self.plan = mechanism.plan(self.layout, rows)
        self.codes = _codes(self.cells, records)
        self.length = min(mechanism.block, rows)  # of a chain
        self.public_codes = self._given(self.codes) if self.cells.public_axes else None
        self.starts = self.open = None
        settings: dict[str, Any] = {"bins": self.cells.to_dict()}
        if self.plan is not None:
            settings["alpha"] = self.plan.alpha
        if mechanism.reference is not None:
            self.open = _codes(self.cells, mechanism.reference.validated(schema))
            self.starts = self.open if mechanism.seeds == "reference" else None
        super().__init__(mechanism, schema, settings)
        self.kept: dict[str, Any] = {}

    def _given(self, codes: Ints) -> Ints:
        chains, public = -(-self.rows // self.length), self.layout.public_columns
        cycled = np.resize(codes[:, :public], (chains * self.length, public))
        return cycled.reshape(chains, self.length, -1)

    def draw_private(self, noise: Noise) -> Ints:
        source = self.mechanism.conditionals(self, noise)
        start = self._seeds(-(-self.rows // self.length), noise)
        full, remainder = divmod(self.rows, self.length)
        # The last chain may be shorter, so that every draw is released and accounted for.
        parts = [(slice(full), self.length), (slice(full, None), remainder)]
        blocks = []
        for chains, length in parts:
            if length:
                public = None if self.public_codes is None else self.public_codes[chains, :length]
                drawn = draw_blocks(source, start[chains], length, noise, public)
                blocks.append(drawn.reshape(-1, drawn.shape[2]))
        return np.concatenate(blocks)

    def _seeds(self, chains: int, noise: Noise) -> Ints:
        """Public start of each chain, shape (chains, columns)."""
        if self.starts is not None:
            return self.starts[noise.rng.integers(0, len(self.starts), chains)]
        return noise.rng.integers(0, self.layout.sizes, (chains, len(self.layout.sizes)))

    def begin_at(self, records: pd.DataFrame) -> None:
        self.starts = _codes(self.cells, records)

    def most_rows(self, rows: int) -> int:
        return rows

    def synthetic(self, output: Ints, rows: int, rng: np.random.Generator) -> pd.DataFrame:
        return self.cells.decode(output[:rows], rng)


def _codes(cells: TableCells, records: pd.DataFrame) -> Ints:
    axes = (*cells.public_axes, *cells.axes)
    return np.column_stack([axis.encode(records[axis.column.name]) for axis in axes])
