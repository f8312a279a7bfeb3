"""Coarse groups of a column's levels, formed from noisy counts, and basis functions on them.

Pair tables are counted on groups, and relations between columns are modelled on them. Everything
here is computed from noisy counts and public facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import special

FEWEST, MOST = 3, 8  # groups of a column
MERGED = 5  # groups of a column in tables of three columns
UNORDERED = 2  # unordered levels may have so many times as many groups
_FINER = (1.0, 0.4, 0.2)  # prior sds of linear, quadratic and all higher-order relations
_TAIL = 0.005  # share of a column at either end in which all levels have one normal score


@dataclass(frozen=True)
class Groups:
    """Groups of a column's K fine levels.

    Attributes:
        of: the group of each fine level, shape (K,), from 0.
        shares: shares of the fine levels, shape (K,), at or above 0 with sum 1.
        values: a number for each fine level of an ordered column, else None; NaN for the level of
            missing values, which is a group of its own.
    """

    of: Ints
    shares: Floats
    values: Floats | None

    @cached_property
    def size(self) -> int:
        """Number of groups."""
        return int(self.of.max()) + 1

    @cached_property
    def member(self) -> Floats:
        """Membership matrix, shape (size, K): 1 where a group contains a level."""
        return np.asarray(self.of == np.arange(self.size)[:, None], dtype=float)

    @cached_property
    def mass(self) -> Floats:
        """Shares of the groups, shape (size,)."""
        return np.asarray(self.member @ self.shares)

    @cached_property
    def _weights(self) -> Floats:
        """Positive shares of the groups, for which the basis functions are orthonormal."""
        floor = 1e-3 / self.size
        weights = np.maximum(self.mass, floor)
        return np.asarray(weights / weights.sum())

    @cached_property
    def scores(self) -> Floats | None:
        """Mean value of each group, NaN for missing values; None for unordered levels."""
        if self.values is None:
            return None
        ordered = np.isfinite(self.values)
        inside = self.member[:, ordered] * np.maximum(self.shares[ordered], 1e-9)
        mass = inside.sum(axis=1)
        means = np.full(self.size, np.nan)
        np.divide(inside @ self.values[ordered], mass, out=means, where=mass > 0)
        return means

    @cached_property
    def basis(self) -> Floats:
        """Functions of the group, orthonormal under its shares and with mean 0: (size, size - 1).

        Polynomials for ordered levels, the linear one first. For unordered levels, functions whose
        coefficients are independent if the effects of levels are, from frequent to rare levels.
        """
        scores = self.scores
        root = np.sqrt(self._weights)[:, None]
        if scores is None:
            return np.asarray(self._unordered[1] / root)
        ordered = np.isfinite(scores)
        weights, inside = self._weights[ordered], scores[ordered]
        away = inside - weights @ inside / weights.sum()
        scaled = away / max(float(np.abs(away).max()), 1e-300)
        # Powers of the scores replace all but the column of missing values, which have no score.
        columns = np.eye(self.size)[:, 1:]
        columns[ordered, : len(inside) - 1] = scaled[:, None] ** np.arange(1, len(inside))
        q, r = np.linalg.qr(root * np.column_stack([np.ones(self.size), columns]))
        return np.asarray((q * np.where(np.diag(r) < 0, -1.0, 1.0) / root)[:, 1:])

    @cached_property
    def _unordered(self) -> tuple[Floats, Floats]:
        """Principal axes of independent group effects of sd 1, weighted by shares and with mean 0.

        Returns:
            Variances along the axes, shape (size - 1,), and the axes as columns.
        """
        root = np.sqrt(self._weights)
        centred = np.eye(self.size) - np.outer(root, root)
        # The constant has variance 0. Adding 2 separates it from the others, which have below 1.
        weighted = centred * self._weights @ centred + 2 * np.outer(root, root)
        variances, axes = np.linalg.eigh(weighted)
        return variances[-2::-1], axes[:, -2::-1]

    @cached_property
    def fine(self) -> Floats:
        """Values of ``basis`` at the fine levels, shape (K, size - 1).

        For ordered levels it is interpolated linearly between neighbouring groups, and shifted so
        that its mean in each group is the group's. A level lies at its normal score, not at its
        value: beyond the last group's mean, a line in the value would run through an empty tail to
        the bound, and what few records are near would be moved into it.
        """
        line = self.basis[self.of]
        if self.scores is None:
            return line
        assert self.values is not None
        ordered = np.isfinite(self.values)
        shares = np.maximum(self.shares, 1e-9)
        inside, mass = self.member * shares, shares * ordered
        share = (np.cumsum(mass) - mass / 2) / mass.sum()
        place = special.ndtri(share.clip(_TAIL, 1 - _TAIL))
        last = int(np.isfinite(self.scores).sum())  # the group of missing values comes after it
        centre = (inside @ place / inside.sum(axis=1))[:last]
        if last < 2 or (np.diff(centre) <= 0).any():
            return line
        basis, at = self.basis[:last], place[ordered]
        lower = np.clip(np.searchsorted(centre, at) - 1, 0, last - 2)
        slope = np.diff(basis, axis=0) / np.diff(centre)[:, None]
        line[ordered] = basis[lower] + slope[lower] * (at - centre[lower])[:, None]
        mean = inside @ line / inside.sum(axis=1, keepdims=True)
        return np.asarray(line + (self.basis - mean)[self.of])

    @cached_property
    def prior_sd(self) -> Floats:
        """Prior sd of the coefficient of each function, relative to a linear one: (size - 1,).

        A priori the effect of an unordered level, or of a missing value, does not depend on its
        frequency. Equal sds for all functions, which have mean square 1, would allow rare levels
        far larger effects, and the fit would take noise for them.
        """
        if self.values is None:
            variances = self._unordered[0]
            return np.sqrt(variances / variances.mean()) if self.size > 1 else variances
        assert self.scores is not None
        sds = np.array([_FINER[min(i, len(_FINER) - 1)] for i in range(self.size - 1)])
        if self.size > 1 and not np.isfinite(self.scores[-1]):
            missing = self._weights[-1]
            sds[-1] = 2 * np.sqrt(missing * (1 - missing))  # 1 if half are
        return sds


def groups_for(n: float, sd: float) -> int:
    """Number of groups that pair tables of n records with noise of this sd can tell apart."""
    return int(np.clip(round(float(np.sqrt(n / (5 * sd)))), FEWEST, MOST))


def told_apart(n: int, sd: float) -> float:
    """Number of groups of a column that tables of three columns can tell apart."""
    return float(np.cbrt(n / (5 * sd)))


def merge(groups: Groups, most: int) -> Groups:
    """Merge groups into about ``most``, and one of missing values."""
    if most < 1 or groups.size <= most:
        return groups
    mass, scores = groups.mass, groups.scores
    if scores is None:
        group_of = np.minimum(np.argsort(np.argsort(-mass, kind="stable")), most - 1)
    else:
        ordered = np.isfinite(scores)
        group_of = np.full(groups.size, -1)
        part = mass[ordered] / mass[ordered].sum()
        place = np.cumsum(part) - part / 2
        equal = np.minimum((place * most).astype(np.int64), most - 1)
        _, group_of[ordered] = np.unique(equal, return_inverse=True)
        group_of[~ordered] = group_of.max() + 1
    return Groups(group_of[groups.of], groups.shares, groups.values)


def make_groups(shares: Floats, values: Floats | None, most: int) -> Groups:
    """Form groups: of about equal mass for ordered levels; else frequent levels and a rest.

    Args:
        shares: shares of the K fine levels.
        values: as in ``Groups``.
        most: number of groups to aim at.
    """
    size = len(shares)
    if size <= min(most, FEWEST):
        return Groups(np.arange(size), shares, values)
    if values is None:
        return Groups(_frequent(shares, most), shares, None)
    ordered = np.isfinite(values)
    group_of = np.empty(size, dtype=np.int64)
    group_of[ordered] = _stretches(
        shares[ordered] / max(float(shares[ordered].sum()), 1e-300), most
    )
    group_of[~ordered] = group_of[ordered].max() + 1
    return Groups(group_of, shares, values)


def _frequent(shares: Floats, most: int) -> Ints:
    """Group of each level: one per frequent level, up to twice ``most``, and one of the rest."""
    order = np.argsort(-shares, kind="stable")
    frequent = np.zeros(len(shares), dtype=bool)
    frequent[order[: UNORDERED * most]] = True
    frequent &= (shares >= 0.5 / most**2) | (shares >= shares[order[min(most, len(shares)) - 1]])
    group_of = np.where(frequent, np.cumsum(frequent) - 1, frequent.sum())
    if shares[~frequent].sum() <= 0:  # a rest without mass joins the smallest group
        group_of[~frequent] = group_of[int(np.argmin(np.where(frequent, shares, np.inf)))]
    return np.asarray(group_of, dtype=np.int64)


def _stretches(shares: Floats, most: int) -> Ints:
    """Group of each ordered level: alone if its mass is 1/most or more, else one of its stretch."""
    atom = shares >= 1 / most
    # Stretches between such levels are divided into parts of about equal mass.
    group_of, start, number = np.zeros(len(shares), dtype=np.int64), 0, -1
    while start < len(shares):
        if atom[start]:
            number += 1
            group_of[start] = number
            start += 1
            continue
        end = start
        while end < len(shares) and not atom[end]:
            end += 1
        part = shares[start:end]
        parts = max(1, round(part.sum() * most))
        middle = (np.cumsum(part) - part / 2) / max(part.sum(), 1e-300)
        place = np.minimum((middle * parts).astype(np.int64), parts - 1)
        _, place = np.unique(place, return_inverse=True)
        group_of[start:end] = number + 1 + place
        number = int(group_of[end - 1])
        start = end
    return group_of
