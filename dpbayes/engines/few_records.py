"""Tests of the contract over tables of a few records, with values from all of their domain.

The tables have the same public values, so that what differs between them is by what is
confidential. Few records make an expensive likelihood cheap, and leave each a large part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.errors import EngineError, ProgramError
from dpbayes.core.lazy import xr
from dpbayes.engines.base import BoundModel, SamplerSettings
from dpbayes.engines.draws import some_draws
from dpbayes.engines.extremes import Ends, Places, broken, close
from dpbayes.stan.program import StanProgram

FEW = 8  # records in a table
ALIKE = 5  # of the records at hand, how many stand in place of all others in turn
COMPARED = 4  # points of each kind at which log_lik is compared
MIXED = 12  # tables whose records come from different ones
POINTS = 20  # points of each kind
NEAR, FAR = 2.0, 10.0  # largest unconstrained coordinate of points: Stan's own, and far out
WARMUP = 300  # iterations in which chains reach a prior at 30,000 ± 8,000
TREES = 5  # cap on the doublings of a trajectory of the prior, which may be improper

Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class FewRecords:
    """Tests of a program over tables of a few records.

    Attributes:
        bound: the program with the contract's defaults and a few records.
        tables: by confidential entry, values of the records, shape (records, ...); each is a table.
        at_ends: the program with a record, at either end of its domain.
        rng: draws tables whose records come from different ones.
    """

    program: StanProgram
    bound: BoundModel
    tables: Sequence[Table]
    at_ends: Sequence[BoundModel]
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        program: StanProgram,
        few: tuple[int, BoundModel],
        one: tuple[int, BoundModel],
        entries: Table,
        ends: Ends,
        inside: Places,
        seed: int,
    ) -> FewRecords:
        """Make the tables: the records at hand, and records alike.

        Alike they are at an end of their domain, at a place inside of it, or one of those at hand.

        Args:
            few: number of records in a table, and the program with them and contract's defaults.
            one: the same for chains, which one record is enough for.
            entries: confidential entries of all records at hand.
            ends, inside: as in ``check_contract``.
        """
        count, bound = few
        some = np.linspace(0, min(map(len, entries.values())) - 1, ALIKE).astype(int)
        alike = [{k: values[i] for k, values in entries.items()} for i in some]
        alike += [{k: np.asarray(ends[k][end]) for k in entries} for end in range(2)]
        repeated = [_repeated(record, count) for record in alike]
        first = {k: values[:count] for k, values in entries.items()}
        places = [{k: np.asarray(at[k])[:count] for k in entries} for _, at in inside]
        at_ends = [one[1].rebind(**_repeated(record, one[0])) for record in alike[-2:]]
        rng = np.random.default_rng(seed)
        return cls(program, bound, [first, *repeated, *places], at_ends, rng)

    def check(self, seed: int) -> None:
        """Test that no record makes parameters impossible, or has a say in another's log_lik.

        Raises:
            ProgramError: one does.
        """
        # In a window of width 0 no term is infinite: only an error can stop the program.
        closed = self.bound.rebind(clip_lower=0.0, clip_upper=0.0)
        each = [closed.rebind(**table) for table in self.tables]
        count = len(next(iter(self.tables[0].values())))
        sources = self.rng.integers(len(each), size=(MIXED, count))
        mixed = [closed.rebind(**self._of(source)) for source in sources]
        for words, draws in self._points(closed, seed):
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
                size = np.nan_to_num(np.abs(expected), posinf=0.0)
                if not close(np.stack(list(table.log_lik(compared))), expected, size):
                    raise broken(
                        self.program,
                        f"a record's log_lik depends on other records' {self._names} (is it "
                        "centred, scaled or ranked by them, or by their smallest or largest?). "
                        "Use public constants passed as data instead.",
                    )

    def _of(self, source: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Make a table whose record i is that of the table ``source[i]``."""
        return {
            name: np.stack([self.tables[k][name][i] for i, k in enumerate(source)])
            for name in self.tables[0]
        }

    def _points(self, closed: BoundModel, seed: int) -> Iterator[tuple[str, xr.DataTree]]:
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
        for end in self.at_ends:
            try:
                draws = _by_chains(end.rebind(clip_lower=0.0, clip_upper=0.0), prior)
            except EngineError:  # no gradient
                continue
            yield "draws of the prior", draws

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
