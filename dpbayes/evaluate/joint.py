"""How close two whole tables of levels are: marginals, conditionals, k columns at a time.

Every figure here is computed from the confidential records and is confidential itself.
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

LEAF = 20  # rows at least in a leaf of a tree
PERMUTATIONS = 20
MOST_ROWS = 50_000  # that trees look at, spread over both tables
WEAK = 1e-3  # ridge of the regression behind pMSE: for columns that tell the tables apart for sure


@dataclass(frozen=True)
class Coded:
    """Two tables with the same columns, as level numbers.

    Attributes:
        names: of the columns.
        sizes: levels of each that occur in either table.
        original, synthetic: shape (n, columns) and (n', columns).
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    original: Ints
    synthetic: Ints

    @classmethod
    def of(cls, original: pd.DataFrame, synthetic: pd.DataFrame) -> Coded:
        """The columns of ``original``: whole numbers in their order, all else as text."""
        codes, sizes = [], []
        for name in original:
            both = pd.concat([original[name], synthetic[name]])
            if both.dtype.kind != "i":
                both = both.astype(str)
            found, levels = pd.factorize(both, sort=True, use_na_sentinel=False)
            codes.append(found)
            sizes.append(len(levels))
        stacked = np.column_stack(codes).astype(np.int64)
        n = len(original)
        return cls(tuple(map(str, original)), tuple(sizes), stacked[:n], stacked[n:])

    def shares(self, *columns: int) -> tuple[Floats, Floats]:
        """Of the combinations of these columns' levels that occur, in both tables."""
        cell = np.zeros(len(self.original) + len(self.synthetic), dtype=np.int64)
        for j in columns:
            level = np.concatenate([self.original[:, j], self.synthetic[:, j]])
            # Numbered anew with each column: products of many sizes are no 64-bit numbers.
            cell = np.asarray(pd.factorize(cell * self.sizes[j] + level)[0], dtype=np.int64)
        n, most = len(self.original), int(cell.max(initial=0)) + 1
        counts = [np.bincount(part, minlength=most) for part in (cell[:n], cell[n:])]
        return counts[0] / n, counts[1] / len(self.synthetic)

    def table(self, part: Ints, given: int, column: int) -> Floats:
        """Counts of ``part`` by the levels of two columns."""
        shape = self.sizes[given], self.sizes[column]
        cell = part[:, given] * shape[1] + part[:, column]
        return np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)


def marginal_distance(tables: Coded, column: int) -> float:
    """Σ over levels of the squared difference of their shares.

    Source: park-ghosh-2014, section 4.3.
    """
    p, q = tables.shares(column)
    return float(((p - q) ** 2).sum())


def conditional_distance(tables: Coded, column: int, given: int) -> float:
    """Σ over the levels of ``given`` and of ``column`` of the squared difference of their shares.

    Levels of ``given`` that only one table has count as if the other had nothing there.

    Source: park-ghosh-2014, section 4.3.
    """
    found = []
    for part in (tables.original, tables.synthetic):
        counts = tables.table(part, given, column)
        total = counts.sum(axis=1, keepdims=True)
        found.append(counts / np.where(total > 0, total, 1))
    return float(((found[0] - found[1]) ** 2).sum())


def association(tables: Coded, column: int, other: int) -> tuple[float, float]:
    """Cramér's V of two columns, in both tables; 0 where one of them does not vary."""
    found = []
    for part in (tables.original, tables.synthetic):
        counts = tables.table(part, column, other)
        counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
        varies = min(counts.shape) > 1
        found.append(float(stats.contingency.association(counts.astype(int))) if varies else 0.0)
    return found[0], found[1]


def regression_distance(original: ArrayLike, synthetic: ArrayLike) -> float:
    """Σ |β' - β| / |β| over coefficients.

    Source: park-ghosh-2014, section 4.3.
    """
    a, b = np.asarray(original, float), np.asarray(synthetic, float)
    return float(np.abs((b - a) / a).sum())


def total_variation(tables: Coded, k: int) -> Floats:
    """Total variation distance of every k columns together, in [0, 1]; shape (choices,)."""
    found = []
    for columns in itertools.combinations(range(len(tables.names)), k):
        p, q = tables.shares(*columns)
        found.append(np.abs(p - q).sum() / 2)
    return np.asarray(found)


@one_thread()
def pmse_ratio(tables: Coded) -> float:
    """pMSE of a logistic regression on all columns, over its expectation for a bootstrap.

    Near 1 where synthetic rows are draws from the records' own distribution: (k - 1)(1 - c)² c / N
    for k coefficients, N rows and their synthetic share c. Another sample of the same population
    has 1/(1 - c) times as much, as both tables vary then.

    Source: snoke-2018.
    """
    n, synthetic = len(tables.original), len(tables.synthetic)
    which = np.repeat([0, 1], [n, synthetic])
    codes = np.column_stack([which, np.concatenate([tables.original, tables.synthetic])])
    layout = KeyLayout(("which", *tables.names), (2, *tables.sizes))
    beta = fit_regressions(layout, codes, WEAK, only=(0,), most=len(codes))[0]
    odds = log_odds(layout, 0, beta, codes)
    share = synthetic / len(codes)
    pmse = float(((special.expit(odds[:, 1] - odds[:, 0]) - share) ** 2).mean())
    free = sum(size - 1 for size in tables.sizes)
    return pmse / (free * (1 - share) ** 2 * share / len(codes))


def tree_ratio(tables: Coded, seed: int = 1) -> float:
    """pMSE of a classification tree, over its mean where rows change tables at random.

    Near 1 where synthetic rows are another sample of the records' population. A tree finds what
    several columns do together, a logistic regression on columns does not. nan without
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
    which = np.repeat([0, 1], [len(part) for part in parts])
    rng = np.random.default_rng(seed)

    def pmse(labels: Ints) -> float:
        tree = DecisionTreeClassifier(min_samples_leaf=LEAF, random_state=0).fit(x, labels)
        return float(((tree.predict_proba(x)[:, 1] - labels.mean()) ** 2).mean())

    null = np.mean([pmse(rng.permutation(which)) for _ in range(PERMUTATIONS)])
    return pmse(which) / float(null) if null > 0 else math.nan
