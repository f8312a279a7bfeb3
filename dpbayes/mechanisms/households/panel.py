"""Blocks of columns in which persons with their waves are counted and drawn. All is public."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpbayes.core.errors import SchemaError, did_you_mean
from dpbayes.formula.terms import columns_used
from dpbayes.formula.text import parse, quoted
from dpbayes.mechanisms.households.layout import ColumnBlock, Layout
from dpbayes.mechanisms.tables.cells import require_bounds
from dpbayes.schema import Column, Schema
from dpbayes.schema.homes import COMPOSITION, FAMILY, GAP, LEFT
from dpbayes.schema.panels import LAST, MEAN

CHAINED = 6  # pair tables that the part of later waves pays for, by column: most of what is known


class PanelLayout(Layout):
    """The blocks of a panel: the number of waves, the first wave, times, and later waves.

    A later wave is drawn given the wave before and what does not change: a Markov chain of first
    order. Columns of the wave before are called before.NAME.
    """

    def _family_of(self, counts: Sequence[int]) -> tuple[int, ...]:
        return tuple(counts)

    def _levels(self, name: str, count: int) -> Column:
        return Column(name, "count", lower=0, upper=count - 1)

    def _distance(self, column: Column, *, sign: bool) -> Column:
        step = 1.0 if column.whole else 10.0**-column.decimals
        gap = super()._distance(column, sign=sign)
        assert gap.upper is not None
        return replace(gap, lower=step, upper=max(gap.upper, 2 * step))  # no two have one time

    def _blocks(self) -> Iterator[ColumnBlock]:
        for column in self.schema.columns.values():
            if not column.levels:
                require_bounds(column)
        composition = self._levels(COMPOSITION, len(self.compositions))
        yield ColumnBlock((0,), "all", False, (), Schema({COMPOSITION: composition}), ())
        homes, time = self.homes, self.homes.order
        columns = {**homes.shared, **homes.own}
        pairs = [(FAMILY, name) for name in columns]
        pairs += itertools.combinations(columns, 2)
        yield self._block((0,), "all", columns.values(), pairs, self._in_time(FAMILY))
        yield self._later_times(homes.own[time])
        own = [name for name in homes.own if name != time]
        if own:
            pairs = [(f"{LAST}.{name}", name) for name in own]
            pairs += [(f"{MEAN}.{name}", name) for name in own if not homes.own[name].levels]
            pairs += [(name, other) for other in own for name in (time, *homes.shared)]
            pairs += itertools.combinations(own, 2)
            pairs += [(f"{LAST}.{a}", b) for a, b in itertools.permutations(own, 2)]
            block = self._block((1,), "each", [homes.own[name] for name in own], pairs)
            yield replace(block, several_pairs=CHAINED)

    def _later_times(self, time: Column) -> ColumnBlock:
        """Block of the times of later waves, by how far each is from the wave before."""
        before, gap = f"{LAST}.{time.name}", self._distance(time, sign=False)
        rules = [f"`{time.name}` == `{before}` + `{GAP}`", *self._in_time(LEFT)]
        pairs = [(before, GAP), (LEFT, GAP)]
        return self._block((1,), "each", [gap, time], pairs, rules)

    def _in_time(self, waves: str) -> list[str]:
        """Rule that the waves to come have a time each, on the grid of times."""
        time = self.homes.own[self.homes.order]
        assert time.upper is not None
        if time.whole:
            return [f"`{time.name}` + `{waves}` <= {int(time.upper)}"]
        step, last = time.step, time.upper + time.step / 2  # sums of such numbers are rounded
        return [f"`{time.name}` + {step!r} * `{waves}` <= {last!r}"]

    def _known(self, places: tuple[int, ...]) -> dict[str, Column]:
        own = self.homes.own
        means = {f"{MEAN}.{n}": _mean(c) for n, c in own.items() if not c.levels}
        left = self._levels(LEFT, len(self.compositions))
        made = {GAP: own[self.homes.order], FAMILY: self._family, LEFT: left}
        return {**self.homes.known(max(places)), **means, **made}

    def kept_by(self, text: str) -> tuple[tuple[int, ...], str]:
        where, written = f"keep {quoted(text)}", self.homes.quoted(text)
        parsed = parse(written)
        outcome = columns_used(where, [(parsed.outcome,)])
        every = self.homes.known(1)
        names = (*outcome, *columns_used(where, parsed.terms))
        for name in names:
            if name not in every:
                raise SchemaError(
                    f"{where}: {name!r} is no column of a wave, and none of the wave before, "
                    f"written as {LAST}.COLUMN{did_you_mean(name, every)}."
                )
        if not outcome or outcome[0] not in self.homes.own or outcome[0] == self.homes.order:
            raise SchemaError(
                f"{where}: the outcome must be a column of a wave that is not its time and differs "
                "between waves."
            )
        chained = any(name.startswith(f"{LAST}.") for name in names)
        return ((1,) if chained else (0, 1)), written


def _mean(column: Column) -> Column:
    """Column of the mean of the values of earlier waves."""
    name, missing = f"{MEAN}.{column.name}", ("",) if column.optional else ()
    return Column(name, "continuous", lower=column.lower, upper=column.upper, missing=missing)
