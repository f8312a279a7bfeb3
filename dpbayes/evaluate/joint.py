"""Distances of two whole tables of levels: marginals, conditionals, and k columns at a time.

All results are computed from the confidential records and are confidential themselves.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd, special, stats
from dpbayes.core.threads import one_thread
from dpbayes.mechanisms.pegs.keys import KeyLayout
from dpbayes.mechanisms.pegs.regressions import fit_regressions, log_odds

LEAF = 20  # smallest number of rows in a leaf of a tree
PERMUTATIONS = 20  # for the mean pMSE of rows that change tables at random
MOST_ROWS = 50_000  # that a tree uses, taken evenly from both tables
WEAK = 1e-3  # ridge of the pMSE regression: keeps it finite if a column separates the tables


@dataclass(frozen=True)
class Coded:
    """Two tables with the same columns, as level numbers.

    Attributes:
        names: names of the columns.
        sizes: number of levels of each column that occur in either table.
        original, synthetic: level numbers, shape (n, columns) and (n', columns).
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    original: Ints
    synthetic: Ints

    @classmethod
    def of(cls, original: pd.DataFrame, synthetic: pd.DataFrame) -> Coded:
        """Code the columns of ``original``: whole numbers in numerical order, others as text."""
        codes, sizes = [], []
        for name in original:
            column = pd.concat([original[name], synthetic[name]])
            if column.dtype.kind != "i":
                column = column.astype(str)
            places, levels = pd.factorize(column, sort=True, use_na_sentinel=False)
            codes.append(places)
            sizes.append(len(levels))
        stacked = np.column_stack(codes).astype(np.int64)
        n = len(original)
        return cls(tuple(map(str, original)), tuple(sizes), stacked[:n], stacked[n:])

    def shares(self, *columns: int) -> tuple[Floats, Floats]:
        """Shares of the combinations of these columns' levels that occur, in each table."""
        cell = np.zeros(len(self.original) + len(self.synthetic), dtype=np.int64)
        for j in columns:
            level = np.concatenate([self.original[:, j], self.synthetic[:, j]])
            # Renumber after each column: the product of many sizes would overflow 64 bits.
            cell = np.asarray(pd.factorize(cell * self.sizes[j] + level)[0], dtype=np.int64)
        n, cells = len(self.original), int(cell.max(initial=0)) + 1
        counts = [np.bincount(part, minlength=cells) for part in (cell[:n], cell[n:])]
        return counts[0] / n, counts[1] / len(self.synthetic)

    def table(self, part: Ints, condition: int, column: int) -> Floats:
        """Counts of ``part`` by the levels of two columns."""
        shape = self.sizes[condition], self.sizes[column]
        cell = part[:, condition] * shape[1] + part[:, column]
        return np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)


def marginal_distance(tables: Coded, column: int) -> float:
    """Sum over levels of the squared difference of their shares.

    Source: park-ghosh-2014, section 4.3.
    """
    p, q = tables.shares(column)
    return float(((p - q) ** 2).sum())


def conditional_distance(tables: Coded, column: int, condition: int) -> float:
    """Sum of squared differences of the shares of ``column`` within each level of ``condition``.

    If only one table has a level of ``condition``, the shares of the other table count as 0 there.

    Source: park-ghosh-2014, section 4.3.
    """
    shares = []
    for part in (tables.original, tables.synthetic):
        counts = tables.table(part, condition, column)
        total = counts.sum(axis=1, keepdims=True)
        shares.append(counts / np.where(total > 0, total, 1))
    return float(((shares[0] - shares[1]) ** 2).sum())


def association(tables: Coded, column: int, other: int) -> tuple[float, float]:
    """Cramér's V of two columns, in each table; 0 if one of the columns does not vary."""
    associations = []
    for part in (tables.original, tables.synthetic):
        counts = tables.table(part, column, other)
        counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
        varies = min(counts.shape) > 1
        associations.append(
            float(stats.contingency.association(counts.astype(int))) if varies else 0.0
        )
    return associations[0], associations[1]


def regression_distance(original: ArrayLike, synthetic: ArrayLike) -> float:
    """Sum of the relative differences |β' - β| / |β| of coefficients.

    Source: park-ghosh-2014, section 4.3.
    """
    a, b = np.asarray(original, float), np.asarray(synthetic, float)
    return float(np.abs((b - a) / a).sum())


def total_variation(tables: Coded, k: int) -> Floats:
    """Total variation distance of every choice of k columns, in [0, 1]; shape (choices,)."""
    distances = []
    for columns in itertools.combinations(range(len(tables.names)), k):
        p, q = tables.shares(*columns)
        distances.append(np.abs(p - q).sum() / 2)
    return np.asarray(distances)


@one_thread()
def pmse_ratio(tables: Coded) -> float:
    """Ratio of the pMSE of a logistic regression on all columns to its expectation for a bootstrap.

    Near 1 if synthetic rows are draws from the records' own distribution. The expected pMSE is
    (k - 1)(1 - c)² c / N for k coefficients, N rows and their synthetic share c. Another sample of
    the same population has a ratio of 1/(1 - c), because both tables vary then.

    Source: snoke-2018.
    """
    n, synthetic = len(tables.original), len(tables.synthetic)
    membership = np.repeat([0, 1], [n, synthetic])
    codes = np.column_stack([membership, np.concatenate([tables.original, tables.synthetic])])
    layout = KeyLayout(("which", *tables.names), (2, *tables.sizes))
    beta = fit_regressions(layout, codes, WEAK, only=(0,), most=len(codes))[0]
    odds = log_odds(layout, 0, beta, codes)
    share = synthetic / len(codes)
    pmse = float(((special.expit(odds[:, 1] - odds[:, 0]) - share) ** 2).mean())
    free = sum(size - 1 for size in tables.sizes)
    return pmse / (free * (1 - share) ** 2 * share / len(codes))


def tree_ratio(tables: Coded, seed: int = 1) -> float:
    """Ratio of the pMSE of a classification tree to its mean if rows change tables at random.

    Near 1 if synthetic rows are another sample of the records' population. A tree detects
    interactions of columns, which a logistic regression on columns does not. nan without
    scikit-learn.

    Source: snoke-2018.
    """
    if importlib.util.find_spec("sklearn") is None:
        return math.nan
    from sklearn.tree import DecisionTreeClassifier

    every = len(tables.original) + len(tables.synthetic)
    step = max(1, -(-every // MOST_ROWS))
    parts = tables.original[::step], tables.synthetic[::step]
    x = np.concatenate(parts).astype(np.float32)
    membership = np.repeat([0, 1], [len(part) for part in parts])
    rng = np.random.default_rng(seed)

    def pmse(labels: Ints) -> float:
        tree = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=0).fit(x, labels)
        return float(((tree.predict_proba(x)[:, 1] - labels.mean()) ** 2).mean())

    null = np.mean([pmse(rng.permutation(membership)) for _ in range(PERMUTATIONS)])
    return pmse(membership) / float(null) if null > 0 else math.nan
