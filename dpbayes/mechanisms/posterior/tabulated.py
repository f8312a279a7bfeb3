"""An anchor from noisy tables: counts of the outcome's public bins within public covariate cells.

What is counted is the outcome alone. Cells of covariates, and how many records are in each, are
public as covariates are, and so are bins. The model is then fitted to records made up from the
noisy counts: that costs nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd, xr
from dpbayes.engines import get_engine
from dpbayes.engines.contract import contract_defaults
from dpbayes.engines.draws import make_draws
from dpbayes.privacy.noise import Noise
from dpbayes.privacy.statistic import scale_for
from dpbayes.schema import Column
from dpbayes.stan.cells import NumberCells
from dpbayes.stan.composition import SEPARATOR
from dpbayes.stan.model import ColumnModel

if TYPE_CHECKING:
    from dpbayes.mechanisms.posterior.records import BoundRecords
    from dpbayes.mechanisms.posterior.stage import PublicFacts

FEWEST_BINS, MOST_BINS = 6, 40
NEAR = 0.25  # distance that noise may add to the anchor: bins are as many as that allows
SEED = 19  # public: the order in which made-up outcomes are given to public rows
MADE_UP = 4_000  # records that the model is fitted to: more would not make the anchor better
DECADES = 4.0  # powers of ten below the upper bound that bins of a logarithm divide
AVERAGED = ("X", "Z")  # data of covariates that records of a cell share in their means


@dataclass(frozen=True)
class AnchorTables:
    """Which noisy tables an anchor is made from; a function of public facts only.

    There is a table for each of some covariates, of the outcome's bins where the covariate is above
    its mean and where it is not; without covariates, or too few records for that, the outcome's
    alone. A record is counted once in each.

    Guarantee: adding or removing a record moves one count of each table by 1; the noise of a count
    is discrete Laplace of scale ``count / epsilon``. Together: epsilon. A record that is changed
    moves two counts of each: 2 epsilon.

    Attributes:
        epsilon: of all tables together, where a record is added or removed.
        count: of tables, 1 at least.
        covariates: columns of the design that split a table, as many as tables, or 0.
        bins: of the outcome, where it has no levels.
        distance: of the anchor from the fit, as expected, in the unit of ``second_range``.
    """

    epsilon: float
    count: int
    covariates: int
    bins: int
    distance: float
    name: ClassVar[str] = "histogram"

    @classmethod
    def of(cls, epsilon: float, problem: PublicFacts) -> AnchorTables:
        """As many as keep the noise small: 2 scale² cells p / n² adds to the squared distance."""
        n, p = problem.rows, problem.parameters

        def cells(count: int) -> float:
            return (n * epsilon * NEAR / count) ** 2 / (2 * p)

        covariates = problem.covariates
        while covariates and cells(covariates) < 2 * FEWEST_BINS:
            covariates -= 1
        count = max(1, covariates)
        split = 2 if covariates else 1
        bins = int(min(max(cells(count) / split, FEWEST_BINS), MOST_BINS))
        added = 2 * (count / epsilon) ** 2 * split * bins * p / n**2
        return cls(epsilon, count, covariates, bins, math.sqrt(p / n + added))

    def draw(self, records: BoundRecords, noise: Noise, held: Sequence[str] = ()) -> xr.DataTree:
        """The anchor, as one draw of the parameters: a mode given made-up records.

        Args:
            held: parameters that stay at 0 in unconstrained coordinates.
        """
        model, task = records.model, records.task
        assert isinstance(model, ColumnModel)  # Anchored.check
        public = model.public(task.records, task.rows)
        design = model.formula.design(public).X
        bins = _Bins.of(model, self.bins)
        of_record = bins.numbers(task.records[model.outcome.name])
        every = max(1, self.count * len(public) // MADE_UP)
        place = np.random.default_rng(SEED).permutation(len(public))
        found: list[_CellRecords] = []
        for cell in self._cells(design):
            table = np.zeros((2, bins.count), dtype=np.int64)
            # Without public columns there are as many rows as are public, not as many as records.
            inside = cell if design.shape[1] else np.zeros(len(of_record), dtype=np.int64)
            np.add.at(table, (inside, of_record), 1)
            scale = scale_for(self.count, self.epsilon)
            noisy = noise.counts(table.ravel(), scale).reshape(table.shape)
            for k in np.unique(cell):
                members = place[cell[place] == k]
                some = members[::every]
                found.append(_CellRecords(members, some, bins.made_up(noisy[k], len(some))))
        # What follows sees the made-up records and public facts.
        blank = model.blank(task.records, task.rows)
        return _mode(model, public, blank, found, held)

    def _cells(self, design: Floats) -> Iterator[Ints]:
        """For each table the cell of each public row, 0 or 1: by what varies most."""
        spread = design.std(axis=0) if len(design) else np.zeros(design.shape[1])
        order = [k for k in np.argsort(-spread, kind="stable") if spread[k] > 0]
        if not order[: self.covariates]:
            yield np.zeros(len(design), dtype=np.int64)
        for k in order[: self.covariates]:
            yield (design[:, k] > design[:, k].mean()).astype(np.int64)


class _CellRecords(NamedTuple):
    """Made-up records of a cell.

    Attributes:
        members: public rows of the cell.
        rows: those that a record is made up for.
        values: its outcomes, shape (rows,).
    """

    members: Ints
    rows: Ints
    values: NDArray[Any]


def _mode(
    model: ColumnModel,
    public: pd.DataFrame,
    blank: Mapping[str, Any],
    parts: list[_CellRecords],
    held: Sequence[str],
) -> xr.DataTree:
    """The mode given made-up records, each with the mean covariates of its cell.

    ``blank``: program data without a confidential value.

    Within a cell the outcome is counted without covariates: with covariates of single rows, slopes
    would come out too flat (Berkson 1950 has the other way round).
    """
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.values for part in parts])
    frame = public.iloc[rows].reset_index(drop=True)
    frame[model.outcome.name] = model.outcome.validate(pd.Series(values)).array
    data = model.data(frame, blank["rows"])
    for key, value in data.items():
        if key.partition(SEPARATOR)[0] in AVERAGED and np.size(value):
            of_row = np.asarray(blank[key])
            means = [np.tile(of_row[p.members].mean(axis=0), (len(p.rows), 1)) for p in parts]
            data[key] = np.concatenate(means)
    data |= model.constants_at(rows, len(public))
    compiled = get_engine("embedded").compile(model.program)
    bound: Any = compiled.bind({**data, **contract_defaults(len(rows))})
    point = bound.mode(held=held)
    found = bound.constrain(point[None, None])
    names = model.program.declared("parameters")
    return make_draws({name: found[name] for name in names if name in found})


@dataclass(frozen=True)
class _Bins:
    """Public bins of an outcome: its levels, or cells between edges."""

    column: Column
    cells: NumberCells | None

    @classmethod
    def of(cls, model: ColumnModel, bins: int) -> _Bins:
        column = model.outcome
        if column.levels:
            return cls(column, None)
        assert column.lower is not None  # a strict mechanism's: checked before
        assert column.upper is not None
        logarithm = model.family is not None and model.family.scaling == "upper"
        whole = column.type == "count"
        low, high = float(column.lower), float(column.upper)
        if whole:  # an integer at least to a bin, wider ones further out
            edges = low + np.round(np.geomspace(1, high - low + 2, bins + 1)) - 1
            return cls(column, NumberCells(tuple(np.unique(edges).tolist()), ()))
        edges = np.linspace(low, high, bins + 1)
        if model.family is not None and model.family.open_at == ("lower", "upper"):
            # A density may be infinite there: of the arcsine law each bin has as much.
            edges = low + (high - low) * np.sin(np.linspace(0, np.pi / 2, bins + 1)) ** 2
        if logarithm:
            least = low if low > 0 else high / 10**DECADES
            edges = np.concatenate([[low], np.geomspace(least, high, bins)])
        kept = [low]
        for edge in edges[1:-1]:
            inside = [*kept[-1:], high, *column.atoms]
            if all(abs(edge - other) >= column.step for other in inside):
                kept.append(float(edge))
        return cls(
            column,
            NumberCells(
                tuple(np.union1d([*kept, high], column.atoms).tolist()),
                tuple(map(float, column.atoms)),
            ),
        )

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.column.levels) if self.cells is None else self.cells.count

    def numbers(self, values: pd.Series) -> Ints:
        """The bin of each value, from 0."""
        if self.cells is None:
            return np.asarray(values.cat.codes, dtype=np.int64)
        return self.cells.numbers(np.asarray(values, dtype=float)) - 1

    def made_up(self, noisy: Ints, size: int) -> NDArray[Any]:
        """Outcomes in the shares of noisy counts, spread evenly inside a bin; uniform if all are 0.

        Counts below 0 are 0.
        """
        share = np.maximum(noisy, 0).astype(float)
        share = share if share.sum() else np.ones_like(share)
        ends = np.cumsum(share) / share.sum()
        at = (np.arange(size) + 0.5) / max(size, 1)
        number = np.minimum(np.searchsorted(ends, at, side="right"), self.count - 1)
        if self.cells is None:
            return np.asarray(self.column.levels, dtype=object)[number]
        before = ends[number] - share[number] / share.sum()
        inside = np.clip((at - before) * share.sum() / share[number], 0, 1)
        if self.column.type == "count":  # the whole numbers from an edge to before the next
            low, high = self.cells.ends[number].T
            whole = np.minimum(low + np.floor(inside * (high - low)), high - 1)
            return np.asarray(whole, dtype=np.int64)
        return np.asarray(self.cells.values(number + 1 + inside - 0.5))
