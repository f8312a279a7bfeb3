"""What an intruder learns of single records from synthetic ones, whichever mechanism made them.

Tables of levels or numbers, compared by the text of their values. Figures are computed from the
confidential records and are confidential themselves. An attack that fails proves nothing; what ε
says bounds all of them (``Bounds``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.arrays import Floats, Ints
from dpbayes.core.lazy import pd, stats
from dpbayes.schema import Schema

FALSE_RATES = (0.01, 0.1)  # at which the true rate of an attack is given
MOST_ROWS = 5000  # of either side of a distance
_BLOCK = 4_000_000  # numbers that are held at once


@dataclass(frozen=True)
class Identification:
    """Rows that agree with a record in the key columns.

    In fully synthetic data no row belongs to a person. A match counts as true if the row agrees
    with the record in all columns.

    Attributes:
        expected: mean over records of the share of true ones among the rows that agree in the keys;
            0 where none does.
        single: share of records with exactly one such row.
        true: share of records whose only such row is a true match.
        false: share of records with one whose only one is not; nan without any.
    """

    expected: float
    single: float
    true: float
    false: float


def identification(
    records: pd.DataFrame, synthetic: pd.DataFrame, keys: Sequence[str]
) -> Identification:
    """Expected, true and false matches by the key columns, over all columns of ``records``.

    Source: reiter-mitra-2009.
    """
    some, every = list(keys), [str(name) for name in records]
    there = _numbered(records, synthetic, some)
    exact = _numbered(records, synthetic, every)
    rows = _count(there)
    same = _count(exact)
    single = rows == 1
    true = float((single & (same == 1)).mean())
    return Identification(
        float((same / np.maximum(rows, 1)).mean()),
        float(single.mean()),
        true,
        1 - true / float(single.mean()) if single.any() else math.nan,
    )


@dataclass(frozen=True)
class Attribution:
    """A sensitive column guessed from the key columns.

    Attributes:
        correct: mean over records of the share of their value among rows that agree in the keys;
            where none does, its share among all rows.
        baseline: that share among all rows, for every record.
        errors: share of records whose value is not the most frequent one among those rows.
        baseline_errors: the same for the most frequent one of all.
    """

    correct: float
    baseline: float
    errors: float
    baseline_errors: float


def attribution(
    records: pd.DataFrame, synthetic: pd.DataFrame, keys: Sequence[str], sensitive: str
) -> Attribution:
    """Correct attribution probability, and the errors of an intruder who takes the mode.

    Source: park-ghosh-2014, section 4.4; taub-2018.
    """
    ours, theirs = _numbered(records, synthetic, list(keys))
    values, others = _numbered(records, synthetic, [sensitive])
    levels = int(max(values.max(), others.max())) + 1
    everywhere = np.bincount(others, minlength=levels) / len(others)
    rows = int(max(ours.max(), theirs.max())) + 1
    counts = np.zeros((rows, levels))
    np.add.at(counts, (theirs, others), 1)
    total = counts.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, counts / np.where(total > 0, total, 1), everywhere)
    return Attribution(
        float(shares[ours, values].mean()),
        float(everywhere[values].mean()),
        float((shares.argmax(axis=1)[ours] != values).mean()),
        float((everywhere.argmax() != values).mean()),
    )


def inferred_error(
    records: pd.DataFrame, synthetic: pd.DataFrame, keys: Sequence[str], sensitive: str
) -> float:
    """Mean absolute error of a number that is guessed as the mean of rows that agree in the keys.

    Where none does, of all rows. Of records and rows where it is not missing.

    Source: park-ghosh-2014, section 4.4.
    """
    records, synthetic = (t[t[sensitive].notna()] for t in (records, synthetic))
    ours, theirs = _numbered(records, synthetic, list(keys))
    values = synthetic[sensitive].to_numpy(dtype=float)
    rows = int(max(ours.max(), theirs.max())) + 1
    count = np.bincount(theirs, minlength=rows)
    sums = np.bincount(theirs, weights=values, minlength=rows)
    guess = np.where(count > 0, sums / np.maximum(count, 1), values.mean())
    return float(np.abs(guess[ours] - records[sensitive].to_numpy(dtype=float)).mean())


def uniqueness(table: pd.DataFrame, keys: Sequence[str]) -> float:
    """Share of rows that no other row of the table agrees with in the key columns.

    Source: park-ghosh-2014, section 4.4.
    """
    number = _numbered(table, table.head(0), list(keys))[0]
    return float((np.bincount(number)[number] == 1).mean())


@dataclass(frozen=True)
class Closeness:
    """Synthetic rows and the confidential records, beside a holdout of the same population.

    Attributes:
        to_records, to_holdout: median distance of a synthetic row to the closest one, in columns.
        closer: share of synthetic rows that are closer to the records; ties count half. About one
            half where the records are no closer than others are, for equally many of both.
        advantage: largest true rate less false rate of telling records from the holdout by their
            distance to the closest synthetic row.
        auc: of the same.
        true_rates: share of records found at false rates ``FALSE_RATES``.
    """

    to_records: float
    to_holdout: float
    closer: float
    advantage: float
    auc: float
    true_rates: tuple[float, ...]


def closeness(
    schema: Schema,
    records: pd.DataFrame,
    holdout: pd.DataFrame,
    synthetic: pd.DataFrame,
    seed: int = 1,
) -> Closeness:
    """Distance to the closest record, and a membership attack by it.

    A distance is the number of columns with other levels, and of numeric ones the difference over
    the declared range. At most ``MOST_ROWS`` of each table are looked at, as many of the records as
    of the holdout.

    Source: yeom-2018; park-ghosh-2014, section 4.4.
    """
    rng = np.random.default_rng(seed)
    size = min(len(records), len(holdout), MOST_ROWS)
    inside, outside = (_some(_scaled(schema, t), size, rng) for t in (records, holdout))
    made = _some(_scaled(schema, synthetic), min(len(synthetic), MOST_ROWS), rng)
    levels = np.array([bool(c.levels) for c in schema.columns.values()])
    near, far = (nearest_distance(made, other, levels) for other in (inside, outside))
    members, others = (nearest_distance(other, made, levels) for other in (inside, outside))
    return Closeness(
        float(np.median(near)),
        float(np.median(far)),
        float((near < far).mean() + (near == far).mean() / 2),
        advantage(-members, -others),
        auc(-members, -others),
        tuple(true_rate(-members, -others, rate) for rate in FALSE_RATES),
    )


def auc(members: Floats, others: Floats) -> float:
    """Chance that a member's score is above another one's; ties count half."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    n, m = len(members), len(others)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def advantage(members: Floats, others: Floats) -> float:
    """Largest share of members above a cut, less that of the others.

    Source: yeom-2018.
    """
    cuts = np.unique(np.concatenate([members, others]))
    shares = [1 - np.searchsorted(np.sort(x), cuts) / len(x) for x in (members, others)]
    return max(0.0, float((shares[0] - shares[1]).max()))


def true_rate(members: Floats, others: Floats, false_rate: float) -> float:
    """The largest share of members above a cut, with at most ``false_rate`` of the others."""
    cuts = np.unique(np.concatenate([members, others]))
    passed = np.array([(others >= cut).mean() for cut in cuts]) <= false_rate
    return max((float((members >= cut).mean()) for cut in cuts[passed]), default=0.0)


@dataclass(frozen=True)
class Bounds:
    """What an (ε, δ) of one record bounds, for every attack on it, with whatever knowledge.

    Attributes:
        epsilon, delta: of the release.
        odds: factor by which the odds of a statement about a record can change; infinite with δ.
        advantage: true rate less false rate of an attack on membership.
        auc: area under its curve.
    """

    epsilon: float
    delta: float
    odds: float
    advantage: float
    auc: float

    @classmethod
    def of(cls, epsilon: float, delta: float = 0.0) -> Bounds:
        """Of a release with this total.

        A test with false rate x has a true rate of at most min(e^ε x + δ, 1 - e^-ε (1 - δ - x)):
        with δ = 0, corners at x = 1/(1 + e^ε), so that the advantage is at most
        (e^ε - 1)/(e^ε + 1) and the area e^ε/(1 + e^ε).

        Source: wasserman-zhou-2010; kairouz-oh-viswanath-2015.
        """
        small = math.exp(-epsilon)
        corner = (1 - delta) * small / (1 + small)  # false rate where the two lines meet
        top = 1 - small * (1 - delta - corner)
        # From (0, δ) to the corner, from there to (1 - δ, 1).
        area = corner * (delta + top) / 2 + (1 - delta - corner) * (top + 1) / 2 + delta
        odds = math.exp(epsilon) if not delta and epsilon < 700 else math.inf
        return cls(epsilon, delta, odds, top - corner, area)

    def true_rate(self, false_rate: float) -> float:
        """How often a guess about a record can be right that is right so often without it.

        Holds for the mean over records too, as the bound is concave.

        Source: kairouz-oh-viswanath-2015.
        """
        left = false_rate * math.exp(min(self.epsilon, 700.0)) + self.delta
        return min(1.0, left, 1 - math.exp(-self.epsilon) * (1 - self.delta - false_rate))


def nearest_distance(rows: Floats, others: Floats, levels: NDArray[np.bool_]) -> Floats:
    """Distance of each row to the closest of the others, shape (rows,).

    Args:
        rows, others: shape (n, columns), numbers of levels or parts of a range.
        levels: columns that are equal or not.
    """
    found = np.full(len(rows), np.inf)
    step = max(1, _BLOCK // max(1, len(others)))
    for first in range(0, len(rows), step):
        here = rows[first : first + step]
        total = np.zeros((len(here), len(others)))
        for j, level in enumerate(levels):
            apart = here[:, j, None] - others[:, j]
            total += (apart != 0) if level else np.abs(apart)
        found[first : first + step] = total.min(axis=1)
    return found


def _scaled(schema: Schema, table: pd.DataFrame) -> Floats:
    """Numbers of levels, and parts of the declared range; unbounded counts as they are."""
    found: list[Floats] = []
    for column in schema.columns.values():
        values = column.validate(table[column.name])
        if column.levels:
            found.append(np.asarray(values.cat.codes, dtype=float))
            continue
        low = column.lower or 0.0
        width = 1.0 if column.upper is None else column.upper - low
        found.append((np.asarray(values, dtype=float) - low) / width)
    every = np.column_stack(found)
    return np.where(np.isnan(every), -1.0, every)  # as far from any value as values can be


def _some(rows: Floats, size: int, rng: np.random.Generator) -> Floats:
    return rows if len(rows) <= size else rows[rng.choice(len(rows), size, replace=False)]


def _numbered(
    records: pd.DataFrame, synthetic: pd.DataFrame, columns: list[str]
) -> tuple[Ints, Ints]:
    """A number for each combination of values, in both tables."""
    number = np.zeros(len(records) + len(synthetic), dtype=np.int64)
    for name in columns:
        both = pd.concat([records[name], synthetic[name]])
        text = both if both.dtype.kind == "i" else both.astype(str)
        level, found = pd.factorize(text, use_na_sentinel=False)
        # Numbered anew with each column: products of many sizes are no 64-bit numbers.
        number = np.asarray(pd.factorize(number * len(found) + level)[0], dtype=np.int64)
    return number[: len(records)], number[len(records) :]


def _count(numbered: tuple[Ints, Ints]) -> Ints:
    """Synthetic rows with the number of each record."""
    ours, theirs = numbered
    most = int(max(ours.max(initial=0), theirs.max(initial=0))) + 1
    return np.bincount(theirs, minlength=most)[ours]
