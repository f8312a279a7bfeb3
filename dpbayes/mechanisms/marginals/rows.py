"""Synthetic rows from noisy counts, column by column, without access to the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpbayes.core.arrays import Floats, Ints, Mask
from dpbayes.mechanisms.marginals.analyses import Answer
from dpbayes.mechanisms.marginals.counting import Measurement
from dpbayes.mechanisms.marginals.groups import Groups
from dpbayes.mechanisms.marginals.parents import Parents, fit_relation
from dpbayes.mechanisms.marginals.refining import RefinedFactors, fit_factors
from dpbayes.mechanisms.marginals.relations import Conditional, draw_groups, match_margins, softmax
from dpbayes.mechanisms.marginals.structure import AGAIN, Walk
from dpbayes.mechanisms.marginals.tilting import Features, Tilt, fit_tilt, swap_rows

# Least prior sd of relations in posterior draws: these should be unbiased on average over relations
# and not, as the mode, as near as possible to the records.
_DRAWN = 0.3
_BY = 20_000  # rows at a time
_FITTED = 12_000  # most rows to which relations are fitted beside refined tables
_CELLS = 8_000_000  # rows times fine levels, or times moments, at a time
_LEAST = 1e-12  # smallest share of a level
_FLAT = 1e-3  # independence mixed into probabilities that factors of refined tables multiply
_POSSIBLE = 1e-200  # so that rows can be matched to margins even if a probability underflows
_ENOUGH = 100  # rows of a turn from which its shifts are fitted: fewer say little of a margin
_BALANCING = 500  # most rounds of proportional fitting of levels inside a group
_BALANCED = 1e-3  # total variation from the shares of levels at which the fitting stops


def synthetic_codes(
    maker: RowMaker,
    rows: int,
    public_codes: Ints,
    *,
    walk: Walk | None = None,
    spare: tuple[Walk, Ints] | None = None,
) -> Ints:
    """Fine levels of synthetic rows, shape (rows, columns).

    Args:
        public_codes: fine levels of the public columns, which come first: shape
            (rows, public columns).
        walk: rules to keep, or None; holds the values of the rows when the function returns.
        spare: rows that keep the rules, with their levels, in the place of rows that never do.
    """
    codes = maker.rows(rows, public_codes, walk, near=not maker.draw)
    if walk is None:
        return codes
    # Rejection sampling: independent rows that keep the rules have the model's distribution given
    # the rules. If noise makes allowed rows nearly impossible, draws become more and more uniform.
    for flat in np.linspace(-1, 1, AGAIN).clip(min=0):
        dead = walk.dead & ~walk.lost
        if not dead.any():
            break
        again, public = walk.of(dead), public_codes[dead[: len(public_codes)]]
        codes[dead] = maker.rows(int(dead.sum()), public, again, near=False, flat=float(flat))
        walk.put(dead, again)
    if spare is None or not walk.dead.any():
        return codes
    spare_walk, levels = spare
    dead, good = walk.dead.copy(), np.flatnonzero(~spare_walk.dead)
    place = np.arange(rows) if walk.public else good[maker.rng.integers(len(good), size=rows)]
    codes[dead] = levels[place[dead]]
    walk.replaced(dead, spare_walk, place)
    return codes


class RowMaker:
    """Synthesise the rows of a data set; relations are fitted to its first rows.

    Args:
        order: order of the columns; each is drawn given those before it.
        draw: draw shares and relations from their posterior for the population, and rows
            independently; otherwise use the most likely shares and relations of the records, and
            match the expected counts of levels.
        near: a maker of rows from the same counts; searches for relations begin at its own.
        at_once: all rows are made at once. Otherwise counts are rounded up or down at random in
            each block, so that levels too rare for one block have the right frequency over all.
    """

    def __init__(
        self,
        measured: Measurement,
        order: Sequence[int],
        rng: np.random.Generator,
        draw: bool = False,
        at_once: bool = True,
        near: RowMaker | None = None,
    ) -> None:
        if draw:
            measured = measured.with_drawn_number(rng)
        self.measured, self.order = measured, order
        self.groups = measured.drawn(rng) if draw else measured.groups
        self.rng, self.draw, self.at_once = rng, draw, at_once
        self.relations: dict[int, tuple[Conditional, Parents]] = {}
        self._near = {} if near is None else near.relations
        self.tilts: dict[tuple[int, int | None], Tilt] = {}
        self.turn: int | None = None  # of members that are drawn one after the other
        self._tilting = True
        self._seed = int(rng.integers(2**62)) if draw else 0
        self.factors: dict[int, RefinedFactors] = {}
        refinement = measured.refinement
        self.refined: dict[tuple[int, int], Floats] = {}
        if refinement is not None:
            self.refined = refinement.shares(self.groups, measured.n, rng if draw else None)
        self.flat = 0.0

    def forget(self, *, tilting: bool) -> None:
        """Forget relations and tilts, to fit them to other rows.

        Searches begin at those that are forgotten, and posterior draws are of the same random
        numbers.

        Args:
            tilting: rows follow the sums of kept analyses.
        """
        self._near = self.relations or self._near
        self.relations, self.tilts = {}, {}
        self.turn, self._tilting = None, tilting

    def rows(
        self, size: int, public_codes: Ints, walk: Walk | None, near: bool, flat: float = 0.0
    ) -> Ints:
        """Draw fine levels, shape (size, columns); counts of levels match shares if ``near``.

        Args:
            public_codes: fine levels of the public columns, shape (size, public columns).
            flat: weight of a uniform distribution that is mixed in, from 0 to 1.
        """
        self.flat = flat
        codes = np.zeros((size, len(self.groups)), dtype=np.int64)
        before: list[int] = []
        for column in self.order:
            if column < public_codes.shape[1]:
                codes[:, column] = public_codes[:, column]
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
        parents = Parents.of(self.measured, self.groups, column, before, draw=self.draw)
        related = parents.single or parents.uncounted or left is not None
        if related and group.size > 1:
            if column not in self.relations:
                alive = np.ones(rows, dtype=bool) if walk is None else ~walk.dead
                self.relations[column] = self._relation(column, parents, codes, left, alive)
            relation, parents = self.relations[column]
            phis = parents.phis(codes)
            chances, linear = relation.probabilities(phis, left), relation.linear(phis[0])
        else:
            chances = np.tile(group.mass, (rows, 1))
            linear = np.zeros((rows, group.size - 1))
        if self.flat:
            open_groups = np.ones_like(chances) if left is None else np.exp(left)
            alike = open_groups / open_groups.sum(axis=1, keepdims=True)
            chances = (1 - self.flat) * chances + self.flat * alike
        shares = np.maximum(group.shares, max(_LEAST, self.flat / len(group.shares)))
        answers: Sequence[Answer] = []
        if walk is not None and self._tilting:
            answers = self.measured.about(walk.axis(column).column.name)
        beside = [k for k in before if k in self.measured.beside(column)]
        if answers or beside:
            fine = _Fine(group, shares / shares.sum(), chances, linear, allowed)
            out = self._fine(column, answers, beside, fine, codes, walk, near)
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
        """Draw a group for each row, and a fine level inside it."""
        rows = len(chances)
        drawn = draw_groups(chances, self.rng)
        if near:
            drawn = match_margins(chances, drawn, self._counts(group.mass, rows), self.rng)
        out = np.empty(rows, dtype=np.int64)
        for number in range(group.size):
            members = np.flatnonzero(drawn == number)
            open_ = None if allowed is None else allowed[members]
            out[members] = self._inside(group, number, shares, linear[members], near, open_)
        return out

    def _fine(
        self,
        column: int,
        answers: Sequence[Answer],
        beside: Sequence[int],
        fine: _Fine,
        codes: Ints,
        walk: Walk | None,
        near: bool,
    ) -> Ints:
        """Draw levels that follow refined tables and noisy sums of analyses, some rows at a time.

        Args:
            answers: noisy sums for the analyses whose outcome is the column.
            beside: columns before it with which it has a refined table.
        """
        rows, values = len(codes), {} if walk is None or not answers else walk.known()
        levels = np.repeat(np.arange(fine.size), self._counts(fine.shares, rows))
        places = self.rng.permutation(rows)
        moments = sum(answer.moment.analysis.moments for answer in answers)
        parts = -(-rows * max(fine.size, moments) // _CELLS)
        out = np.empty(rows, dtype=np.int64)
        for part in range(parts):
            part_rows = places[part::parts]
            alive = np.ones(len(part_rows), dtype=bool)
            if walk is not None and not walk.dead[part_rows].all():
                alive = ~walk.dead[part_rows]
            chances = fine.chances(part_rows)
            if beside:
                chances = chances + _FLAT * fine.shares * (chances > 0)
                chances = self._refined(column, beside, fine, chances, codes[part_rows], alive)
            features = None
            if walk is not None and answers:
                part_values = {name: value[part_rows] for name, value in values.items()}
                features = Features.of(answers, part_values, walk.axis(column), chances)
                chances = self._tilted(column, answers, fine, chances, features, alive)
            drawn = draw_groups(chances, self.rng)
            if near:
                counts = np.bincount(levels[part::parts], minlength=fine.size)
                drawn = match_margins(chances, drawn, counts, self.rng)
                if features is not None:
                    drawn = swap_rows(features, chances, drawn, self.rng)
            out[part_rows] = drawn
        return out

    def _tilted(
        self,
        column: int,
        answers: Sequence[Answer],
        fine: _Fine,
        chances: Floats,
        features: Features,
        alive: Mask,
    ) -> Floats:
        """Tilt probabilities towards noisy sums; the tilt is fitted to the first rows.

        A tilt that is applied to what it made itself may move a margin farther at each turn. So it
        leaves the shares of groups at each turn where relations have them.
        """
        if (column, None) not in self.tilts:
            self.tilts[column, None] = fit_tilt(
                chances[alive],
                features.of_rows(alive),
                fine.shares,
                answers,
                self.measured.n,
                self._drawing_of(column, "tilt"),
                _DRAWN if self.draw else 0.0,
            )
        if (column, self.turn) not in self.tilts:
            tilt, of = self.tilts[column, None], fine.group.of
            if alive.sum() >= _ENOUGH:
                groups = np.bincount(of, chances[alive].mean(axis=0))
                shares = fine.shares * (groups / np.bincount(of, fine.shares))[of]
                tilt = tilt.balanced(chances[alive], features.of_rows(alive), shares)
            self.tilts[column, self.turn] = tilt
        return self.tilts[column, self.turn].of(chances, features)

    def _drawing_of(
        self, column: int, part: Literal["relation", "tilt"]
    ) -> np.random.Generator | None:
        """Random numbers of the posterior draw of a column's relation or tilt; None for modes."""
        key = [self._seed, column, int(part == "tilt")]
        return np.random.default_rng(key) if self.draw else None

    def _refined(
        self,
        column: int,
        beside: Sequence[int],
        fine: _Fine,
        chances: Floats,
        codes: Ints,
        alive: Mask,
    ) -> Floats:
        """Probabilities that follow the refined tables; factors are fitted to the first rows."""
        if column not in self.factors:
            refinement = self.measured.refinement
            assert refinement is not None
            parents = {
                k: (
                    refinement.groups[k],
                    self.refined[k, column] if k < column else self.refined[column, k].T,
                )
                for k in beside
            }
            self.factors[column] = fit_factors(
                chances[alive], codes[alive], fine.shares, refinement.groups[column], parents
            )
        return self.factors[column].apply(chances, codes, self.flat)

    def _relation(
        self, column: int, parents: Parents, codes: Ints, left: Floats | None, alive: Mask
    ) -> tuple[Conditional, Parents]:
        """Fit the model of the column given its parents to the rows that are ``alive``."""
        if self.measured.refinement is not None and len(codes) > _FITTED:
            some = np.linspace(0, len(codes) - 1, _FITTED).astype(np.int64)
            codes, alive = codes[some], alive[some]
            left = None if left is None else left[some]
        if alive.any() and not alive.all():
            codes, left = codes[alive], None if left is None else left[alive]
        least, rng = _DRAWN if self.draw else 0.0, self._drawing_of(column, "relation")
        near = self._near.get(column)
        return fit_relation(
            self.measured, parents, column, codes, left, least=least, rng=rng, near=near
        )

    def _inside(
        self,
        group: Groups,
        number: int,
        every: Floats,
        linear: Floats,
        near: bool,
        allowed: Mask | None,
    ) -> Ints:
        """Draw fine levels of rows in one group, following the linear predictor inside it.

        Args:
            every: shares of all fine levels, above 0.
        """
        levels = np.flatnonzero(group.of == number)
        if len(levels) == 1 or not len(linear):
            return np.full(len(linear), levels[0])
        shares = every[levels] / every[levels].sum()
        apart = group.fine[levels] - group.basis[number]
        if allowed is None and not apart.any():  # the same probabilities for all rows
            counts = self._counts(shares, len(linear))
            if not near:
                counts = self.rng.multinomial(len(linear), shares)
            return self.rng.permutation(np.repeat(levels, counts))
        chances = _chances(group, number, every, linear, allowed)
        for _ in range(_BALANCING):
            now = chances.mean(axis=0)
            if np.abs(now - shares).sum() < 2 * _BALANCED:
                break
            chances *= shares / np.maximum(now, 1e-300)
            chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
        drawn = draw_groups(chances, self.rng)
        if near:
            drawn = match_margins(chances, drawn, self._counts(shares, len(linear)), self.rng)
        return np.asarray(levels[drawn])

    def _counts(self, shares: Floats, rows: int) -> Ints:
        """Whole numbers with sum ``rows``, as near as possible to ``rows`` times shares."""
        middle = 0.5 if self.at_once else self.rng.random()
        ends = np.floor(np.cumsum(shares) / shares.sum() * rows + middle).astype(np.int64)
        ends[-1] = rows
        return np.asarray(np.diff(ends, prepend=0))


@dataclass(frozen=True)
class _Fine:
    """Probabilities of fine levels, from those of groups and those inside groups.

    Attributes:
        shares: shares of all fine levels, shape (K,), above 0, with sum 1.
        mass: probabilities of the groups, shape (rows, G).
        linear: linear predictor by row, shape (rows, A).
        allowed: mask of levels that rules allow, shape (rows, K); None if all.
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
        """Probabilities of the fine levels for some rows, shape (len(rows), K)."""
        probabilities = np.empty((len(rows), self.size))
        for number in range(self.group.size):
            levels = np.flatnonzero(self.group.of == number)
            open_ = None if self.allowed is None else self.allowed[rows]
            inside = _chances(self.group, number, self.shares, self.linear[rows], open_)
            inside /= np.maximum(inside.sum(axis=1, keepdims=True), 1e-300)
            probabilities[:, levels] = self.mass[rows, number, None] * inside
        return probabilities


def _left(group: Groups, allowed: Mask) -> Floats:
    """Log share of each group's mass that rules allow, shape (rows, groups)."""
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
    """Unnormalised probabilities of the levels inside a group, shape (rows, levels in it)."""
    levels = np.flatnonzero(group.of == number)
    apart = group.fine[levels] - group.basis[number]
    chances = softmax(np.log(every[levels] / every[levels].sum()) + linear @ apart.T)
    chances = np.maximum(chances, _POSSIBLE)
    return chances if allowed is None else chances * allowed[:, levels]
