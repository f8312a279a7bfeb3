"""Synthetic rows from noisy counts, column by column: no record is in sight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.mechanisms.marginals.analyses import Answer
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.groups import Groups
from dpbayes.mechanisms.marginals.parents import Parents, fit_relation
from dpbayes.mechanisms.marginals.relations import Conditional, draw_groups, match_margins, softmax
from dpbayes.mechanisms.marginals.structure import AGAIN, Walk
from dpbayes.mechanisms.marginals.tilting import Features, Tilt, fit_tilt, swap_rows

# Of draws, which are to be right on average over relations and not near the records: no less.
_DRAWN = 0.3
_BY = 20_000  # rows at a time
_CELLS = 8_000_000  # rows times fine levels at a time
_LEAST = 1e-12  # share of a level
_BALANCING = 20  # rounds in which levels inside groups come to their shares


def synthetic_codes(
    maker: RowMaker,
    rows: int,
    given: Ints,
    *,
    walk: Walk | None = None,
    spare: tuple[Walk, Ints] | None = None,
) -> Ints:
    """Fine levels of synthetic rows, shape (rows, columns).

    Args:
        given: fine levels of the public columns, which are the first: shape (rows, of them).
        walk: rules that rows are to keep, and the rows' values, which it is left with.
        spare: rows that keep them, with their levels, for those that would not.
    """
    codes = maker.rows(rows, given, walk, near=not maker.draw)
    if walk is None:
        return codes
    # What is left of independent rows has the distribution that the rules leave. Where noise makes
    # all that is allowed nearly impossible, levels become more and more alike.
    for flat in np.linspace(-1, 1, AGAIN).clip(min=0):
        dead = walk.dead.copy()
        if not dead.any():
            return codes
        again, public = walk.of(dead), given[dead[: len(given)]]
        codes[dead] = maker.rows(int(dead.sum()), public, again, near=False, flat=float(flat))
        walk.put(dead, again)
    assert spare is not None
    other, levels = spare
    dead, good = walk.dead.copy(), np.flatnonzero(~other.dead)
    place = np.arange(rows) if walk.public else good[maker.rng.integers(len(good), size=rows)]
    codes[dead] = levels[place[dead]]
    walk.replaced(dead, other, place)
    return codes


class RowMaker:
    """Makes rows of a data set, by relations that are fitted beside the first of them.

    Args:
        order: of the columns; each follows from those before it.
        draw: shares and relations are a draw of what is known of the population, and rows are
            drawn independently; otherwise both are what is most likely of the records, and the
            counts of levels are theirs.
        one: all rows are made at once. Otherwise what is rounded in each block goes up or down at
            random, so that levels too rare for a block come as often as they should in all.
    """

    def __init__(
        self,
        measured: Measurement,
        order: Sequence[int],
        rng: np.random.Generator,
        draw: bool = False,
        one: bool = True,
    ) -> None:
        self.measured, self.order = measured, order
        self.groups = measured.drawn(rng) if draw else measured.groups
        self.rng, self.draw, self.one = rng, draw, one
        self.relations: dict[int, tuple[Conditional, Parents]] = {}
        self.tilts: dict[int, Tilt] = {}
        self.flat = 0.0

    def rows(
        self, size: int, given: Ints, walk: Walk | None, near: bool, flat: float = 0.0
    ) -> Ints:
        """Fine levels, shape (size, columns); with their shares if ``near``.

        Args:
            flat: part of the rows whose levels are all as likely.
        """
        self.flat = flat
        codes = np.zeros((size, len(self.groups)), dtype=np.int64)
        before: list[int] = []
        for column in self.order:
            if column < given.shape[1]:
                codes[:, column] = given[:, column]
            else:
                codes[:, column] = self._column(column, before, codes, walk, near)
            before.append(column)
        return codes

    def _column(
        self, column: int, before: Sequence[int], codes: Ints, walk: Walk | None, near: bool
    ) -> Ints:
        group, rows = self.groups[column], len(codes)
        allowed = None if walk is None else walk.allowed(column)
        left = None if allowed is None else _left(group, allowed)
        parents = Parents.of(self.measured, self.groups, column, before)
        if (parents.single or left is not None) and group.size > 1:
            if column not in self.relations:
                alive = np.ones(rows, dtype=bool) if walk is None else ~walk.dead
                self.relations[column] = self._relation(column, parents, codes, left, alive)
            found, parents = self.relations[column]
            phis = parents.phis(codes)
            chances, linear = found.probabilities(phis, left), found.linear(phis[0])
        else:
            chances = np.tile(group.mass, (rows, 1))
            linear = np.zeros((rows, group.size - 1))
        if self.flat:
            open_groups = np.ones_like(chances) if left is None else np.exp(left)
            alike = open_groups / open_groups.sum(axis=1, keepdims=True)
            chances = (1 - self.flat) * chances + self.flat * alike
        shares = np.maximum(group.shares, max(_LEAST, self.flat / len(group.shares)))
        answers = [] if walk is None else self.measured.about(walk.axis(column).column.name)
        if walk is not None and answers:
            fine = _Fine(group, shares / shares.sum(), chances, linear, allowed)
            out = self._kept(column, answers, fine, walk, near)
        else:
            out = self._grouped(group, chances, linear, shares, allowed, near)
        if walk is not None:
            walk.take(column, out, self.rng)
        return out

    def _grouped(
        self,
        group: Groups,
        chances: Floats,
        linear: Floats,
        shares: Floats,
        allowed: Mask | None,
        near: bool,
    ) -> Ints:
        """A group for each row, and a level inside it."""
        rows = len(chances)
        drawn = draw_groups(chances, self.rng)
        if near:
            drawn = match_margins(chances, drawn, self._counts(group.mass, rows), self.rng)
        out = np.empty(rows, dtype=np.int64)
        for number in range(group.size):
            here = np.flatnonzero(drawn == number)
            open_ = None if allowed is None else allowed[here]
            out[here] = self._inside(group, number, shares, linear[here], near, open_)
        return out

    def _kept(
        self, column: int, answers: Sequence[Answer], fine: _Fine, walk: Walk, near: bool
    ) -> Ints:
        """Levels of rows that are tilted towards what is known of analyses, some rows at a time."""
        rows, values = walk.rows, walk.known()
        levels = np.repeat(np.arange(fine.size), self._counts(fine.shares, rows))
        places = self.rng.permutation(rows)
        parts = -(-rows * fine.size // _CELLS)
        out = np.empty(rows, dtype=np.int64)
        for part in range(parts):
            here = places[part::parts]
            some = {name: value[here] for name, value in values.items()}
            features = Features.of(answers, some, walk.axis(column))
            chances = fine.chances(here)
            if column not in self.tilts:
                alive = ~walk.dead[here] if not walk.dead[here].all() else walk.dead[here]
                self.tilts[column] = fit_tilt(
                    chances[alive],
                    features.of_rows(alive),
                    fine.shares,
                    answers,
                    self.measured.n,
                    self.rng if self.draw else None,
                    _DRAWN if self.draw else 0.0,
                )
            chances = self.tilts[column].of(chances, features)
            drawn = draw_groups(chances, self.rng)
            if near:
                counts = np.bincount(levels[part::parts], minlength=fine.size)
                drawn = match_margins(chances, drawn, counts, self.rng)
                drawn = swap_rows(features, chances, drawn, self.rng)
            out[here] = drawn
        return out

    def _relation(
        self, column: int, parents: Parents, codes: Ints, left: Floats | None, alive: Mask
    ) -> tuple[Conditional, Parents]:
        """How the column follows from others, fitted to the first rows that are ``alive``."""
        if alive.any() and not alive.all():
            codes, left = codes[alive], None if left is None else left[alive]
        least, rng = (_DRAWN, self.rng) if self.draw else (0.0, None)
        return fit_relation(self.measured, parents, column, codes, left, least=least, rng=rng)

    def _inside(
        self,
        group: Groups,
        number: int,
        every: Floats,
        linear: Floats,
        near: bool,
        allowed: Mask | None,
    ) -> Ints:
        """Fine levels of rows in one group: towards where the linear relation points.

        Args:
            every: shares of all fine levels, above 0.
        """
        levels = np.flatnonzero(group.of == number)
        if len(levels) == 1 or not len(linear):
            return np.full(len(linear), levels[0])
        shares = every[levels] / every[levels].sum()
        apart = group.fine[levels] - group.basis[number]
        if allowed is None and not apart.any():  # alike for all rows
            counts = self._counts(shares, len(linear))
            if not near:
                counts = self.rng.multinomial(len(linear), shares)
            return self.rng.permutation(np.repeat(levels, counts))
        chances = _chances(group, number, every, linear, allowed)
        for _ in range(_BALANCING):
            chances *= shares / np.maximum(chances.mean(axis=0), 1e-300)
            chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
        drawn = draw_groups(chances, self.rng)
        if near:
            drawn = match_margins(chances, drawn, self._counts(shares, len(linear)), self.rng)
        return np.asarray(levels[drawn])

    def _counts(self, shares: Floats, rows: int) -> Ints:
        """Counts with sum ``rows`` near shares of it."""
        middle = 0.5 if self.one else self.rng.random()
        ends = np.floor(np.cumsum(shares) / shares.sum() * rows + middle).astype(np.int64)
        ends[-1] = rows
        return np.asarray(np.diff(ends, prepend=0))


@dataclass(frozen=True)
class _Fine:
    """Probabilities of fine levels: of groups, and inside them, as ``_inside`` draws them.

    Attributes:
        shares: of all fine levels, shape (K,), above 0, with sum 1.
        mass, linear: of the groups and of functions of them, by row.
        allowed: levels that rules leave, shape (rows, K); None if all.
    """

    group: Groups
    shares: Floats
    mass: Floats
    linear: Floats
    allowed: Mask | None

    @property
    def size(self) -> int:
        return len(self.shares)

    def chances(self, rows: Ints) -> Floats:
        """Of some rows, shape (them, K)."""
        found = np.empty((len(rows), self.size))
        for number in range(self.group.size):
            levels = np.flatnonzero(self.group.of == number)
            open_ = None if self.allowed is None else self.allowed[rows]
            inside = _chances(self.group, number, self.shares, self.linear[rows], open_)
            inside /= np.maximum(inside.sum(axis=1, keepdims=True), 1e-300)
            found[:, levels] = self.mass[rows, number, None] * inside
        return found


def _left(group: Groups, allowed: Mask) -> Floats:
    """Logarithm of the part of each group's mass that is allowed, shape (rows, groups)."""
    shares = np.maximum(group.shares, _LEAST)
    share = (group.member * shares / (group.member @ shares)[:, None]).T
    part = np.empty((len(allowed), group.size))
    for start in range(0, len(allowed), _BY):
        part[start : start + _BY] = allowed[start : start + _BY] @ share
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(part))


def _chances(
    group: Groups, number: int, every: Floats, linear: Floats, allowed: Mask | None
) -> Floats:
    """Of the levels inside a group, shape (rows, them)."""
    levels = np.flatnonzero(group.of == number)
    apart = group.fine[levels] - group.basis[number]
    found = softmax(np.log(every[levels] / every[levels].sum()) + linear @ apart.T)
    return found if allowed is None else found * allowed[:, levels]
