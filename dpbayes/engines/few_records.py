"""Tests of the contract over tables of a few records, with values from all of their domain.

The tables have the same public values, so that what differs between them is by what is
confidential. Few records make an expensive likelihood cheap, and leave each a large part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import xr
from dpbayes.engines.base import BoundModel, SamplerSettings
from dpbayes.engines.draws import make_draws, some_draws, stacked
from dpbayes.engines.extremes import Ends, Places, broken, close, size_of
from dpbayes.stan.program import StanProgram
from dpbayes.stan.proof.check import unbounded_parameters

FEW = 8  # records in a table
ALIKE = 5  # of the records at hand, how many stand in place of all others in turn
COMPARED = 4  # points of each kind at which log_lik is compared
MIXED = 12  # least number of tables whose records come from different ones
MANY_RECORDS = 2_000  # in a table that shows whether log_lik follows their number
POINTS = 20  # points of each kind
NEAR, FAR = 2.0, 10.0  # largest unconstrained coordinate of points: Stan's own, and far out
WARMUP = 300  # iterations in which chains reach a prior at 30,000 ± 8,000
STRETCHED = 400  # points of which one coordinate is stretched, before the likeliest are taken
STRETCH = 5.0  # decimal logarithm of the largest factor
NEGLIGIBLE = 50.0  # log prior below the largest at which no draw will ever be
TREES = 5  # cap on the doublings of a trajectory of the prior, which may be improper

Table = Mapping[str, NDArray[Any]]
Records = tuple[NDArray[np.intp], BoundModel]  # their indices, and the program with them


@dataclass(frozen=True)
class FewRecords:
    """Tests of a program over tables of a few records.

    Attributes:
        bound: the program with the contract's defaults and a few records.
        many: the program with these records many times over; None if it does not take so many.
        tables: by confidential entry, values of the records, shape (records, ...); each is a table.
        at_ends: the program with a record, at either end of its domain.
        rng: draws tables whose records come from different ones.
    """

    program: StanProgram
    bound: BoundModel
    many: BoundModel | None
    tables: Sequence[Table]
    at_ends: Sequence[BoundModel]
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        program: StanProgram,
        few: Records,
        one: Records,
        many: Records,
        entries: Table,
        ends: Ends,
        inside: Places,
        seed: int,
    ) -> FewRecords:
        """Make the tables: the records at hand, and records alike.

        Alike they are at an end of their domain, at a place inside of it, or one of those at hand.

        Args:
            few: the records of a table.
            one: a single record, for chains.
            many: the records of ``few`` over and over, or others if the program does not take them.
            entries: confidential entries of all records at hand.
            ends, inside: as in ``check_contract``.
        """
        (which, bound), count = few, len(few[0])
        some = np.linspace(0, min(map(len, entries.values())) - 1, ALIKE).astype(int)
        alike = [{k: values[i] for k, values in entries.items()} for i in some]
        alike += [{k: np.asarray(ends[k][end]) for k in entries} for end in range(2)]
        repeated = [_repeated(record, count) for record in alike]
        first = {k: values[which] for k, values in entries.items()}
        places = [{k: np.asarray(at[k])[:count] for k in entries} for _, at in inside]
        at_ends = [one[1].rebind(**_repeated(record, len(one[0]))) for record in alike[-2:]]
        over = None
        if np.array_equal(many[0], np.resize(which, MANY_RECORDS)):
            over = many[1].rebind(**{k: values[many[0]] for k, values in entries.items()})
        tables = [first, *repeated, *places]
        return cls(program, bound, over, tables, at_ends, np.random.default_rng(seed))

    def check(self, seed: int) -> None:
        """Test that no record makes parameters impossible, or has a say in another's log_lik.

        Raises:
            ProgramError: one does.
        """
        # In a window of width 0 no term is infinite: only an error can stop the program.
        closed = self.bound.rebind(clip_lower=0.0, clip_upper=0.0)
        each = [closed.rebind(**table) for table in self.tables]
        count = len(next(iter(self.tables[0].values())))
        numbers = max(MIXED, math.ceil(len(each) / count))  # so that each table is in one of them
        some = np.resize(np.arange(len(each)), numbers * count)
        sources = self.rng.permutation(some).reshape(numbers, count)
        mixed = [closed.rebind(**self._of(source)) for source in sources]
        many = self.many
        for words, draws in self._points(closed, each, seed):
            finite = np.isfinite([table.log_prob(draws) for table in each])
            differ = int((finite.any(axis=0) != finite.all(axis=0)).sum())
            if differ:
                raise broken(
                    self.program,
                    f"at {differ} of {finite.shape[1]} {words} it fails with some values of "
                    f"{self._names} and not with others: one record would make parameters "
                    "impossible. Every value of the domain must have a log-likelihood at all of "
                    "them, if only an infinite one or NaN: `log(1 + x)` has one where `log1p(x)` "
                    "fails.",
                )
            possible = np.flatnonzero(finite.all(axis=0))[:COMPARED]
            if not possible.size:
                continue
            compared = some_draws(draws, possible)
            alone = np.stack([list(table.log_lik(compared)) for table in each])
            for source, table in zip(sources, mixed, strict=True):
                expected = alone[source, :, np.arange(count)].T
                log_lik = np.stack(list(table.log_lik(compared)))
                if not close(log_lik, expected, size_of(expected)):
                    raise broken(
                        self.program,
                        f"a record's log_lik depends on other records' {self._names} (is it "
                        "centred, scaled or ranked by them, or by their smallest or largest?). "
                        "Use public constants passed as data instead.",
                    )
            if many is not None:
                self._check_many(many, some_draws(compared, np.arange(1)), alone[0][0])
                many = None  # once is enough

    def _check_many(self, many: BoundModel, draws: xr.DataTree, alone: Floats) -> None:
        """Require that many records have the log_lik that they have as few, shape (records,)."""
        (log_lik,) = many.log_lik(draws)
        expected = np.resize(alone, len(log_lik))
        if not close(log_lik, expected, size_of(expected)):
            raise broken(
                self.program,
                f"beside {len(log_lik):,} records a record has another log_lik than beside few: it "
                "follows their number. Use `rows`, the public number, or a constant.",
            )

    def _of(self, source: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Make a table whose record i is that of the table ``source[i]``."""
        return {
            name: np.stack([self.tables[k][name][i] for i, k in enumerate(source)])
            for name in self.tables[0]
        }

    def _points(
        self, closed: BoundModel, each: Sequence[BoundModel], seed: int
    ) -> Iterator[tuple[str, xr.DataTree]]:
        """Yield points in words and as draws: random ones, and draws of the prior by chains.

        Parameters of a prior may be far from order 1. Where a record stops the program no chain
        gets to: so chains run at each end of the domain.
        """
        prior = SamplerSettings(
            chains=2, warmup=WARMUP, draws=POINTS // 2, seed=seed, max_treedepth=TREES
        )
        for width in (NEAR, FAR):
            try:
                draws = closed.random_points(POINTS, seed, width)
            except EngineError:  # constraints that coordinates do not keep
                continue
            yield f"random points with coordinates up to {width:g}", draws
            if width == NEAR and (far := self._stretched(each, draws)) is not None:
                yield "points far out in a tail of the prior", far
        for end in self.at_ends:
            try:
                draws = _by_chains(end.rebind(clip_lower=0.0, clip_upper=0.0), prior)
            except EngineError:  # no gradient
                continue
            yield "draws of the prior", draws

    def _stretched(self, each: Sequence[BoundModel], draws: xr.DataTree) -> xr.DataTree | None:
        """Take points with one coordinate far out, where the prior is not negligible; None if none.

        A heavy tail has draws there, which 20 would hardly show. The prior is what target is for
        the table that leaves the program a density.
        """
        best = np.max([table.log_prob(draws) for table in each])
        free = unbounded_parameters(self.program)  # others do not stay parameters when stretched
        values = {str(name): stacked(draws, str(name)) for name in draws["posterior"].data_vars}
        if not any(name in free for name in values):
            return None
        source = self.rng.integers(POINTS, size=STRETCHED)
        moved = {name: of[source].copy() for name, of in values.items()}
        names = self.rng.choice([name for name in moved if name in free], size=STRETCHED)
        factors = np.sort(10 ** self.rng.uniform(0, STRETCH, STRETCHED))[::-1]
        for s, factor in enumerate(factors):
            entries = moved[names[s]][s : s + 1].reshape(-1)  # a view
            entries[self.rng.integers(len(entries))] *= factor
        far = make_draws({name: of[None] for name, of in moved.items()})
        height, left = np.full(STRETCHED, -np.inf), np.arange(STRETCHED)
        for table in each:
            height[left] = table.log_prob(some_draws(far, left))
            left = left[~np.isfinite(height[left])]
            if not left.size:
                break
        likely = np.flatnonzero(height > best - NEGLIGIBLE)[:POINTS]  # the farthest
        return some_draws(far, likely) if likely.size else None

    @property
    def _names(self) -> str:
        return ", ".join(self.tables[0])


def _repeated(record: Table, count: int) -> Table:
    return {name: np.repeat(value[None], count, 0) for name, value in record.items()}


def _by_chains(bound: BoundModel, settings: SamplerSettings) -> xr.DataTree:
    """Sample by chains, for the engine candidates, too."""
    try:
        return bound.density_model().sample(settings)
    except ProgramError:  # CmdStan alone takes the program
        return bound.sample(settings)
