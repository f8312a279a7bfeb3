"""Coarse groups of a column's levels, made from noisy counts, and functions on them.

Pair tables are counted on groups, and relations between columns are modelled on them. Everything
here is computed from noisy counts and public facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpbayes.core.arrays import Floats, Ints

FEWEST, MOST = 3, 8  # groups of a column
MERGED = 5  # groups in tables of three columns
UNORDERED = 2  # times as many where levels have no order
_FINER = (1.0, 0.4, 0.2)  # prior sds of linear, quadratic, ... relations; the last ones alike


@dataclass(frozen=True)
class Groups:
    """Groups of a column's K fine levels.

    Attributes:
        of: the group of each fine level, shape (K,), from 0.
        shares: of the fine levels, shape (K,), at or above 0 with sum 1.
        values: a number for each fine level where they are ordered, else None; NaN for a level
            outside of the order, of missing values, which is a group of its own.
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
        """Shape (size, K): 1 where a group holds a level."""
        return np.asarray(self.of == np.arange(self.size)[:, None], dtype=float)

    @cached_property
    def mass(self) -> Floats:
        """Shares of the groups, shape (size,)."""
        return np.asarray(self.member @ self.shares)

    @cached_property
    def _weights(self) -> Floats:
        """Shares above 0, by which functions are orthonormal."""
        floor = 1e-3 / self.size
        weights = np.maximum(self.mass, floor)
        return np.asarray(weights / weights.sum())

    @cached_property
    def scores(self) -> Floats | None:
        """Mean value of each group, NaN for one outside of the order."""
        if self.values is None:
            return None
        known = np.isfinite(self.values)
        inside = self.member[:, known] * np.maximum(self.shares[known], 1e-9)
        mass = inside.sum(axis=1)
        found = np.full(self.size, np.nan)
        np.divide(inside @ self.values[known], mass, out=found, where=mass > 0)
        return found

    @cached_property
    def basis(self) -> Floats:
        """Functions of the group, orthonormal under its shares and with mean 0: (size, size - 1).

        Of ordered levels polynomials, the linear one first. Of others those that are independent
        where effects of levels are, from frequent to rare ones.
        """
        scores = self.scores
        root = np.sqrt(self._weights)[:, None]
        if scores is None:
            return np.asarray(self._unordered[1] / root)
        known = np.isfinite(scores)
        weights, inside = self._weights[known], scores[known]
        away = inside - weights @ inside / weights.sum()
        scaled = away / max(float(np.abs(away).max()), 1e-300)
        columns = np.eye(self.size)[:, 1:]  # that of the last group, where it has no score
        columns[known, : len(inside) - 1] = scaled[:, None] ** np.arange(1, len(inside))
        q, r = np.linalg.qr(root * np.column_stack([np.ones(self.size), columns]))
        return np.asarray((q * np.where(np.diag(r) < 0, -1.0, 1.0) / root)[:, 1:])

    @cached_property
    def _unordered(self) -> tuple[Floats, Floats]:
        """Of independent effects of groups with sd 1, weighted by their shares and with mean 0.

        Returns:
            Variances along their axes, shape (size - 1,), and the axes in columns.
        """
        root = np.sqrt(self._weights)
        centred = np.eye(self.size) - np.outer(root, root)
        # 2 sets the direction of a constant apart, whose variance is 0: others have below 1.
        weighted = centred * self._weights @ centred + 2 * np.outer(root, root)
        variances, axes = np.linalg.eigh(weighted)
        return variances[-2::-1], axes[:, -2::-1]

    @cached_property
    def fine(self) -> Floats:
        """``basis`` on the fine levels, shape (K, size - 1).

        Of ordered levels a line between the mean values of neighbouring groups, moved so that its
        mean in each group is the group's.
        """
        line = self.basis[self.of]
        if self.scores is None:
            return line
        assert self.values is not None
        known = np.isfinite(self.values)
        values, scores = self.values[known], self.scores[np.isfinite(self.scores)]
        if len(scores) < 2 or (np.diff(scores) <= 0).any():
            return line
        basis = self.basis[: len(scores)]
        left = np.clip(np.searchsorted(scores, values) - 1, 0, len(scores) - 2)
        slope = np.diff(basis, axis=0) / np.diff(scores)[:, None]
        line[known] = basis[left] + slope[left] * (values - scores[left])[:, None]
        inside = self.member * np.maximum(self.shares, 1e-9)
        mean = inside @ line / inside.sum(axis=1, keepdims=True)
        return np.asarray(line + (self.basis - mean)[self.of])

    @cached_property
    def prior_sd(self) -> Floats:
        """Of relations along each function, next to a linear one: shape (size - 1,).

        Effects of levels without order are as large for rare levels as for frequent ones. Along
        functions of mean square 1 they would be far larger, and noise would be taken for them.
        """
        if self.values is None:
            variances = self._unordered[0]
            return np.sqrt(variances / variances.mean()) if self.size > 1 else variances
        assert self.scores is not None
        found = np.array([_FINER[min(i, len(_FINER) - 1)] for i in range(self.size - 1)])
        if self.size > 1 and not np.isfinite(self.scores[-1]):
            found[-1] = 1.0
        return found


def groups_for(n: float, sd: float) -> int:
    """How many groups tables of n records with noise of an sd can tell apart."""
    return int(np.clip(round(float(np.sqrt(n / (5 * sd)))), FEWEST, MOST))


def told_apart(n: int, sd: float) -> float:
    """Groups of a column that tables of three columns can tell apart."""
    return float(np.cbrt(n / (5 * sd)))


def merge(groups: Groups, most: int) -> Groups:
    """Groups of groups: about ``most``, and one of missing values."""
    if most < 1 or groups.size <= most:
        return groups
    mass, scores = groups.mass, groups.scores
    if scores is None:
        of = np.minimum(np.argsort(np.argsort(-mass, kind="stable")), most - 1)
    else:
        known = np.isfinite(scores)
        of = np.full(groups.size, -1)
        part = mass[known] / mass[known].sum()
        place = np.cumsum(part) - part / 2
        equal = np.minimum((place * most).astype(np.int64), most - 1)
        _, of[known] = np.unique(equal, return_inverse=True)
        of[~known] = of.max() + 1
    return Groups(of[groups.of], groups.shares, groups.values)


def make_groups(shares: Floats, values: Floats | None, most: int) -> Groups:
    """Groups of about equal mass of ordered levels; of others, those that are frequent and a rest.

    Args:
        shares: of K fine levels.
        values: as in ``Groups``.
        most: groups.
    """
    size = len(shares)
    if size <= min(most, FEWEST):
        return Groups(np.arange(size), shares, values)
    if values is None:
        return Groups(_frequent(shares, most), shares, None)
    known = np.isfinite(values)
    of = np.empty(size, dtype=np.int64)
    of[known] = _stretches(shares[known] / max(float(shares[known].sum()), 1e-300), most)
    of[~known] = of[known].max() + 1
    return Groups(of, shares, values)


def _frequent(shares: Floats, most: int) -> Ints:
    """The most frequent levels, up to twice ``most``, and a group of the rest."""
    order = np.argsort(-shares, kind="stable")
    kept = np.zeros(len(shares), dtype=bool)
    kept[order[: UNORDERED * most]] = True
    kept &= (shares >= 0.5 / most**2) | (shares >= shares[order[min(most, len(shares)) - 1]])
    of = np.where(kept, np.cumsum(kept) - 1, kept.sum())
    if shares[~kept].sum() <= 0:  # a rest without mass joins the smallest group
        of[~kept] = of[int(np.argmin(np.where(kept, shares, np.inf)))]
    return np.asarray(of, dtype=np.int64)


def _stretches(shares: Floats, most: int) -> Ints:
    """Each level of mass 1/most or more is a group, and so is each stretch between them."""
    atom = shares >= 1 / most
    # A level's place among equal parts of the mass between atoms.
    of, start, number = np.zeros(len(shares), dtype=np.int64), 0, -1
    while start < len(shares):
        if atom[start]:
            number += 1
            of[start] = number
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
        of[start:end] = number + 1 + place
        number = int(of[end - 1])
        start = end
    return of
