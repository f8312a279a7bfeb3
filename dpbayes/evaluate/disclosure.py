"""Attacks on single records by means of synthetic rows, whichever mechanism made them.

Tables have levels or numbers, which are compared as text. Results are computed from the
confidential records and are confidential themselves. An attack that fails proves nothing; ε bounds
all attacks (``Bounds``).
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

FALSE_RATES = (0.01, 0.1)  # false positive rates at which an attack's true rate is reported
MOST_ROWS = 5000  # of each table of a distance: computing time grows with their product
_BLOCK = 4_000_000  # distances that are held in memory at once


@dataclass(frozen=True)
class Identification:
    """Re-identification measures: rows that agree with a record in the key columns.

    In fully synthetic data no row belongs to a person. A match counts as true if the row agrees
    with the record in all columns.

    Attributes:
        expected: mean over records of the share of true matches among the rows that agree in the
            keys; 0 for a record without such rows.
        single: share of records with exactly one such row.
        true: share of records whose only such row is a true match.
        false: share of false matches among records with exactly one such row; nan without any.
    """

    expected: float
    single: float
    true: float
    false: float


def identification(
    records: pd.DataFrame, synthetic: pd.DataFrame, keys: Sequence[str]
) -> Identification:
    """Compute expected, true and false matches by the key columns.

    A true match agrees in all columns of ``records``.

    Source: reiter-mitra-2009.
    """
    key_names, all_names = list(keys), [str(name) for name in records]
    by_keys = _numbered(records, synthetic, key_names)
    by_all = _numbered(records, synthetic, all_names)
    matches = _count(by_keys)
    true_matches = _count(by_all)
    single = matches == 1
    true = float((single & (true_matches == 1)).mean())
    return Identification(
        float((true_matches / np.maximum(matches, 1)).mean()),
        float(single.mean()),
        true,
        1 - true / float(single.mean()) if single.any() else math.nan,
    )


@dataclass(frozen=True)
class Attribution:
    """Success of guessing a sensitive column from the key columns.

    Attributes:
        correct: mean over records of the share of their value among rows that agree in the keys;
            its share among all rows if none agrees.
        baseline: mean over records of the share of their value among all rows.
        errors: share of records whose value is not the most frequent one among those rows.
        baseline_errors: share of records whose value is not the most frequent one of all rows.
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
    """Mean absolute error of a number guessed as the mean of the rows that agree in the keys.

    The guess is the mean of all rows if none agrees. Missing values are left out.

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
    """Share of rows whose combination of key values is unique in the table.

    Source: park-ghosh-2014, section 4.4.
    """
    number = _numbered(table, table.head(0), list(keys))[0]
    return float((np.bincount(number)[number] == 1).mean())


@dataclass(frozen=True)
class Closeness:
    """Distances of synthetic rows to the records, compared with a holdout of the same population.

    Attributes:
        to_records, to_holdout: median distance of a synthetic row to the closest record or holdout
            row, in columns.
        closer: share of synthetic rows that are closer to the records; ties count half. About one
            half if the records are no closer than the holdout, with equally many of both.
        advantage: largest difference of true and false rate in telling records from the holdout by
            their distance to the closest synthetic row.
        auc: area under the curve of this attack.
        true_rates: share of records detected at the false rates ``FALSE_RATES``.
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
    """Compute distances to the closest record, and a membership attack that uses them.

    The distance adds 1 for each column with different levels, and for each numeric column the
    difference over the declared range. At most ``MOST_ROWS`` rows of each table are used, equally
    many of the records and of the holdout.

    Source: yeom-2018; park-ghosh-2014, section 4.4.
    """
    rng = np.random.default_rng(seed)
    size = min(len(records), len(holdout), MOST_ROWS)
    inside, outside = (_some(_scaled(schema, t), size, rng) for t in (records, holdout))
    synthetic_rows = _some(_scaled(schema, synthetic), min(len(synthetic), MOST_ROWS), rng)
    levels = np.array([bool(c.levels) for c in schema.columns.values()])
    to_records, to_holdout = (
        nearest_distance(synthetic_rows, other, levels) for other in (inside, outside)
    )
    nearer = (to_records < to_holdout).mean() + (to_records == to_holdout).mean() / 2
    # The attack guesses that who is near to a synthetic row was among the records.
    scores, scores_of_others = (
        -nearest_distance(other, synthetic_rows, levels) for other in (inside, outside)
    )
    return Closeness(
        float(np.median(to_records)),
        float(np.median(to_holdout)),
        float(nearer),
        advantage(scores, scores_of_others),
        auc(scores, scores_of_others),
        tuple(true_rate(scores, scores_of_others, rate) for rate in FALSE_RATES),
    )


def auc(members: Floats, others: Floats) -> float:
    """Probability that a member's score exceeds a non-member's; ties count half."""
    ranks = stats.rankdata(np.concatenate([members, others]))
    n, m = len(members), len(others)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def advantage(members: Floats, others: Floats) -> float:
    """Largest difference between the shares of members and of others at or above a threshold.

    Source: yeom-2018.
    """
    cuts = np.unique(np.concatenate([members, others]))
    shares = [1 - np.searchsorted(np.sort(x), cuts) / len(x) for x in (members, others)]
    return max(0.0, float((shares[0] - shares[1]).max()))


def true_rate(members: Floats, others: Floats, false_rate: float) -> float:
    """Largest share of members at or above a threshold that at most ``false_rate`` others reach."""
    cuts = np.unique(np.concatenate([members, others]))
    passed = np.array([(others >= cut).mean() for cut in cuts]) <= false_rate
    return max((float((members >= cut).mean()) for cut in cuts[passed]), default=0.0)


@dataclass(frozen=True)
class Bounds:
    """Bounds that (ε, δ) gives for every attack on one record, whatever the attacker knows.

    Attributes:
        epsilon, delta: the privacy loss of the release.
        odds: factor by which the odds of a statement about a record can change; infinite if δ > 0.
        advantage: largest difference of true and false rate of a membership attack.
        auc: largest area under the curve of a membership attack.
    """

    epsilon: float
    delta: float
    odds: float
    advantage: float
    auc: float

    @classmethod
    def of(cls, epsilon: float, delta: float = 0.0) -> Bounds:
        """Compute the bounds for a release with this total loss.

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
        """Upper bound on an attack's true-positive rate at a given false-positive rate.

        It holds for the mean over records too, as the bound is concave.

        Source: kairouz-oh-viswanath-2015.
        """
        rising = false_rate * math.exp(min(self.epsilon, 700.0)) + self.delta
        return min(1.0, rising, 1 - math.exp(-self.epsilon) * (1 - self.delta - false_rate))


def nearest_distance(rows: Floats, others: Floats, levels: NDArray[np.bool_]) -> Floats:
    """Distance of each row to the closest of the others, shape (rows,).

    Args:
        rows, others: level numbers, or values scaled to the range, shape (n, columns).
        levels: True for columns whose values are only compared for equality.
    """
    distances = np.full(len(rows), np.inf)
    step = max(1, _BLOCK // max(1, len(others)))
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        total = np.zeros((len(chunk), len(others)))
        for j, level in enumerate(levels):
            apart = chunk[:, j, None] - others[:, j]
            total += (apart != 0) if level else np.abs(apart)
        distances[start : start + step] = total.min(axis=1)
    return distances


def _scaled(schema: Schema, table: pd.DataFrame) -> Floats:
    """Convert levels to their numbers and scale values to the declared range.

    Unbounded counts keep their values.
    """
    scaled: list[Floats] = []
    for column in schema.columns.values():
        values = column.validate(table[column.name])
        if column.levels:
            scaled.append(np.asarray(values.cat.codes, dtype=float))
            continue
        low = column.lower or 0.0
        width = 1.0 if column.upper is None else column.upper - low
        scaled.append((np.asarray(values, dtype=float) - low) / width)
    table_values = np.column_stack(scaled)
    # At -1 a missing value is at least as far from a scaled number as two of these can be apart.
    return np.where(np.isnan(table_values), -1.0, table_values)


def _some(rows: Floats, size: int, rng: np.random.Generator) -> Floats:
    return rows if len(rows) <= size else rows[rng.choice(len(rows), size, replace=False)]


def _numbered(
    records: pd.DataFrame, synthetic: pd.DataFrame, columns: list[str]
) -> tuple[Ints, Ints]:
    """Number the combinations of values of these columns, alike in both tables."""
    number = np.zeros(len(records) + len(synthetic), dtype=np.int64)
    for name in columns:
        column = pd.concat([records[name], synthetic[name]])
        text = column if column.dtype.kind == "i" else column.astype(str)
        level, levels = pd.factorize(text, use_na_sentinel=False)
        # Renumber after each column: the product of many sizes would overflow 64 bits.
        number = np.asarray(pd.factorize(number * len(levels) + level)[0], dtype=np.int64)
    return number[: len(records)], number[len(records) :]


def _count(numbered: tuple[Ints, Ints]) -> Ints:
    """Count the synthetic rows that have the same number as each record."""
    ours, theirs = numbered
    size = int(max(ours.max(initial=0), theirs.max(initial=0))) + 1
    return np.bincount(theirs, minlength=size)[ours]
