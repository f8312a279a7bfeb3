"""Synthetic rows from noisy counts, column by column: no record is in sight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpbayes.arrays import Floats, Ints
from dpbayes.mechanisms.measured.counting import Measurement
from dpbayes.mechanisms.measured.groups import Groups
from dpbayes.mechanisms.measured.relations import (
    Target,
    draw_groups,
    fit_conditional,
    matched,
    softmax,
)

# Of the sd of relations between two columns: each tried, with a log-normal prior.
_SCALES = np.array([0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9])
_USUAL, _SPREAD = 0.25, 1.5
# Of draws, which are to be right on average over relations and not near the records: no less.
_DRAWN = 0.3
_BALANCING = 20  # rounds in which levels inside groups come to their shares


def synthetic_codes(
    measured: Measurement,
    order: Sequence[int],
    rows: int,
    rng: np.random.Generator,
    given: Ints,
    *,
    draw: bool = False,
) -> Ints:
    """Fine levels of synthetic rows, shape (rows, columns).

    Args:
        order: of the columns; each follows from those before it.
        given: fine levels of the public columns, which are the first: shape (rows, of them).
        draw: shares and relations are a draw of what is known of the population, and rows are
            drawn independently; otherwise both are what is most likely of the records, and the
            counts of levels are theirs.
    """
    groups = measured.drawn(rng) if draw else measured.groups
    codes = np.zeros((rows, len(groups)), dtype=np.int64)
    before: list[int] = []
    for column in order:
        if column < given.shape[1]:
            codes[:, column] = given[:, column]
        else:
            codes[:, column] = _column(measured, groups, column, before, codes, rng, draw)
        before.append(column)
    return codes


def _column(
    measured: Measurement,
    groups: Sequence[Groups],
    column: int,
    before: Sequence[int],
    codes: Ints,
    rng: np.random.Generator,
    draw: bool,
) -> Ints:
    group, rows = groups[column], len(codes)
    related = [k for k in before if _pair(column, k) in measured.tables]
    if related and group.size > 1:
        at = [groups[k].of[codes[:, k]] for k in related]
        psi = np.hstack([groups[k].basis[g] for k, g in zip(related, at, strict=True)])
        target = _target(measured, groups, column, related, _DRAWN if draw else 0.0)
        phi = np.hstack([groups[k].fine[codes[:, k]] for k in related])
        found = fit_conditional(group.mass, group.basis, target, psi, phi, rng if draw else None)
        chances, linear = found.probabilities(phi), found.linear(phi)
    else:
        chances = np.tile(group.mass, (rows, 1))
        linear = np.zeros((rows, group.size - 1))
    drawn = draw_groups(chances, rng)
    if not draw:
        drawn = matched(chances, drawn, _apportioned(group.mass, rows), rng)
    out = np.empty(rows, dtype=np.int64)
    for number in range(group.size):
        here = np.flatnonzero(drawn == number)
        out[here] = _inside(group, number, linear[here], rng, draw)
    return out


def _inside(
    group: Groups, number: int, linear: Floats, rng: np.random.Generator, draw: bool
) -> Ints:
    """Fine levels of rows in one group: towards where the linear relation points."""
    levels = np.flatnonzero(group.of == number)
    if len(levels) == 1 or not len(linear):
        return np.full(len(linear), levels[0])
    shares = np.maximum(group.shares[levels], 1e-12)
    shares = shares / shares.sum()
    apart = group.fine[levels] - group.basis[number]
    if not apart.any():  # alike for all rows
        counts = _apportioned(shares, len(linear))
        if draw:
            counts = rng.multinomial(len(linear), shares)
        return rng.permutation(np.repeat(levels, counts))
    chances = softmax(np.log(shares) + linear @ apart.T)
    for _ in range(_BALANCING):
        chances *= shares / np.maximum(chances.mean(axis=0), 1e-300)
        chances /= chances.sum(axis=1, keepdims=True)
    drawn = draw_groups(chances, rng)
    if not draw:
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
    means, noises, sds = [], [], []
    one = groups[column]
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
