"""Synthetic rows from noisy counts, column by column: no record is in sight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpbayes.arrays import Floats, Ints, Mask
from dpbayes.errors import SchemaError
from dpbayes.mechanisms.measured.counting import Measurement
from dpbayes.mechanisms.measured.groups import Groups
from dpbayes.mechanisms.measured.relations import (
    Conditional,
    Target,
    draw_groups,
    fit_conditional,
    matched,
    softmax,
)
from dpbayes.mechanisms.measured.structure import Walk

# Of the sd of relations between two columns: each tried, with a log-normal prior.
_SCALES = np.array([0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9])
_USUAL, _SPREAD = 0.25, 1.5
# Of draws, which are to be right on average over relations and not near the records: no less.
_DRAWN = 0.3
_LEAST = 1e-12  # share of a level
_AGAIN = 50  # times that rows are drawn anew which cannot keep the rules
_BALANCING = 20  # rounds in which levels inside groups come to their shares


def synthetic_codes(
    measured: Measurement,
    order: Sequence[int],
    rows: int,
    rng: np.random.Generator,
    given: Ints,
    *,
    draw: bool = False,
    walk: Walk | None = None,
) -> Ints:
    """Fine levels of synthetic rows, shape (rows, columns).

    Args:
        order: of the columns; each follows from those before it.
        given: fine levels of the public columns, which are the first: shape (rows, of them).
        draw: shares and relations are a draw of what is known of the population, and rows are
            drawn independently; otherwise both are what is most likely of the records, and the
            counts of levels are theirs.
        walk: rules that rows are to keep, and the rows' values, which it is left with.
    Raises:
        SchemaError: no row was found that keeps them.
    """
    groups = measured.drawn(rng) if draw else measured.groups
    maker = _Maker(measured, groups, order, rng, draw)
    codes = maker.rows(rows, given, walk, near=not draw)
    if walk is None:
        return codes
    # What is left of independent rows has the distribution that the rules leave. Where noise makes
    # all that is allowed nearly impossible, levels become more and more alike.
    for flat in np.linspace(-1, 1, _AGAIN).clip(min=0):
        dead = walk.dead.copy()
        if not dead.any():
            return codes
        again, public = walk.of(dead), given[dead[: len(given)]]
        codes[dead] = maker.rows(int(dead.sum()), public, again, near=False, flat=float(flat))
        walk.put(dead, again)
    return _replaced(codes, walk, rng)


def _replaced(codes: Ints, walk: Walk, rng: np.random.Generator) -> Ints:
    """Rows with others that keep the rules in the place of those for which none was found."""
    good = np.flatnonzero(~walk.dead)
    if walk.public or not len(good):
        raise SchemaError(
            f"{int(walk.dead.sum())} of {walk.rows} rows were not found that keep the rules of the "
            "schema. Declare fewer rules, or bounds that leave more of the rows."
        )
    place = np.where(walk.dead, good[rng.integers(len(good), size=walk.rows)], np.arange(walk.rows))
    walk.copied(place)
    return np.asarray(codes[place])


class _Maker:
    """Makes rows, by relations that are fitted beside the first of them."""

    def __init__(
        self,
        measured: Measurement,
        groups: Sequence[Groups],
        order: Sequence[int],
        rng: np.random.Generator,
        draw: bool,
    ) -> None:
        self.measured, self.groups, self.order = measured, groups, order
        self.rng, self.draw = rng, draw
        self.relations: dict[int, Conditional] = {}
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
        related = [k for k in before if _pair(column, k) in self.measured.tables]
        if (related or left is not None) and group.size > 1:
            empty = np.empty((rows, 0))
            phi = np.hstack([empty, *(self.groups[k].fine[codes[:, k]] for k in related)])
            found = self._relation(column, related, codes, phi, left)
            chances, linear = found.probabilities(phi, left), found.linear(phi)
        else:
            chances = np.tile(group.mass, (rows, 1))
            linear = np.zeros((rows, group.size - 1))
        if self.flat:
            open_groups = np.ones_like(chances) if left is None else np.exp(left)
            alike = open_groups / open_groups.sum(axis=1, keepdims=True)
            chances = (1 - self.flat) * chances + self.flat * alike
        drawn = draw_groups(chances, self.rng)
        if near:
            drawn = matched(chances, drawn, _apportioned(group.mass, rows), self.rng)
        out = np.empty(rows, dtype=np.int64)
        for number in range(group.size):
            here = np.flatnonzero(drawn == number)
            open_ = None if allowed is None else allowed[here]
            shares = np.maximum(group.shares, max(_LEAST, self.flat / len(group.shares)))
            out[here] = _inside(group, number, shares, linear[here], self.rng, near, open_)
        if walk is not None:
            walk.take(column, out, self.rng)
        return out

    def _relation(
        self, column: int, related: Sequence[int], codes: Ints, phi: Floats, left: Floats | None
    ) -> Conditional:
        """How the column follows from others, fitted when it is first asked for."""
        if column not in self.relations:
            group, groups = self.groups[column], self.groups
            at = [groups[k].of[codes[:, k]] for k in related]
            parts = [groups[k].basis[g] for k, g in zip(related, at, strict=True)]
            psi = np.hstack([np.empty((len(codes), 0)), *parts])
            target = _target(self.measured, groups, column, related, _DRAWN if self.draw else 0.0)
            rng = self.rng if self.draw else None
            self.relations[column] = fit_conditional(
                group.mass, group.basis, target, psi, phi, rng, left
            )
        return self.relations[column]


def _left(group: Groups, allowed: Mask) -> Floats:
    """Logarithm of the part of each group's mass that is allowed, shape (rows, groups)."""
    shares = np.maximum(group.shares, _LEAST)
    part = (allowed * shares) @ group.member.T / (group.member @ shares)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(part))


def _inside(
    group: Groups,
    number: int,
    every: Floats,
    linear: Floats,
    rng: np.random.Generator,
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
        counts = _apportioned(shares, len(linear))
        if not near:
            counts = rng.multinomial(len(linear), shares)
        return rng.permutation(np.repeat(levels, counts))
    chances = softmax(np.log(shares) + linear @ apart.T)
    if allowed is not None:
        chances *= allowed[:, levels]
    for _ in range(_BALANCING):
        chances *= shares / np.maximum(chances.mean(axis=0), 1e-300)
        chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
    drawn = draw_groups(chances, rng)
    if near:
        drawn = matched(chances, drawn, _apportioned(shares, len(linear)), rng)
    return np.asarray(levels[drawn])


def _apportioned(shares: Floats, rows: int) -> Ints:
    """Counts with sum ``rows`` near shares of it."""
    ends = np.floor(np.cumsum(shares) / shares.sum() * rows + 0.5).astype(np.int64)
    return np.asarray(np.diff(ends, prepend=0))


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _target(
    measured: Measurement,
    groups: Sequence[Groups],
    column: int,
    related: Sequence[int],
    least: float,
) -> Target:
    """What the tables say of a column and those before it.

    Args:
        least: sd of relations, where evidence asks for a smaller one.
    """
    one = groups[column]
    empty = np.empty((one.size - 1, 0))
    means, noises, sds = [empty], [empty], [empty]
    for k in related:
        table = measured.tables[_pair(column, k)]
        table = table if column < k else table.T
        other = groups[k]
        mean = one.basis.T @ table @ other.basis / measured.n
        lengths = np.outer((one.basis**2).sum(axis=0), (other.basis**2).sum(axis=0))
        noise = measured.sd**2 * lengths
        sd = np.outer(one.prior_sd, other.prior_sd)
        means.append(mean)
        noises.append(noise)
        scale = _scale(mean, (measured.n + noise) / measured.n**2, sd)
        sds.append(max(scale, least) * sd)
    return Target(measured.n, np.hstack(means), np.hstack(noises), np.hstack(sds))


def _scale(mean: Floats, variance: Floats, sd: Floats) -> float:
    """Of the sds of two columns' relations: that of the largest evidence."""
    total = variance[..., None] + (sd[..., None] * _SCALES) ** 2
    evidence = (-0.5 * np.log(total) - 0.5 * mean[..., None] ** 2 / total).sum(axis=(0, 1))
    evidence -= 0.5 * (np.log(_SCALES / _USUAL) / _SPREAD) ** 2
    return float(_SCALES[int(np.argmax(evidence))])
