"""An audit of mechanisms without a posterior: their outputs on neighbours, run by run.

Confidential, as ``audit`` is. It can reject a claim and never prove it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.arrays import Floats, Vector
from dpbayes.errors import DataError, GuaranteeError
from dpbayes.evaluate.bounds import RUNS, log_ratio_bound
from dpbayes.evaluate.candidates import corners, extremes, ordinary
from dpbayes.heavy import pd
from dpbayes.mechanisms.base import Fitted, Task
from dpbayes.mechanisms.posterior.base import PosteriorMechanism
from dpbayes.privacy.guarantee import Guarantee
from dpbayes.privacy.noise import StudyNoise
from dpbayes.schema import Column, Schema
from dpbayes.schema.domain import made_up
from dpbayes.synthesizer import Synthesizer

LEAST_RUNS = 100
NEAR = 0.01  # of a column's range: synthetic values so near to the record's count as like it
ERROR = 0.05  # chance that any bound of an audit is above the true epsilon
MORE = 10  # private outputs for one that is turned into synthetic rows, which takes longer
MOST_NUMBERS = 10_000_000  # of private outputs that are kept, 80 MB
MOST_ROWS = 1000  # of synthetic data, where fewer may be asked for than are declared
MOST_SEEN = 8  # numbers by which neighbours are told apart, besides all of them together
MADE_UP = 8  # records that keep the rules of a schema
MISSED = -1.0  # a missing value, as far from any other as values can be
MARGIN = 3.0  # standard errors that a log ratio is lowered by where it is chosen
_TINY = 1e-12  # in place of no variance


@dataclass(frozen=True)
class OutputsAudit:
    """Lower confidence bounds on epsilon from runs on neighbours.

    Attributes:
        guarantee: what the mechanism claims.
        add_remove, substitution: lower bounds, together right with probability 1 - ``error``; 0 if
            nothing is shown, infinite where what is public already differs. Where public columns
            are released only ``substitution`` is looked at.
        record: the record that did most.
        runs: on each table.
        error: chance that a bound is above the true epsilon.
    """

    guarantee: Guarantee
    add_remove: float
    substitution: float
    record: dict[str, Any]
    runs: int
    error: float = ERROR

    @property
    def violated(self) -> bool:
        """True if a bound exceeds its claim: wrong with probability ``error`` at most."""
        return (
            self.add_remove > self.guarantee.epsilon
            or self.substitution > self.guarantee.epsilon_substitution
        )

    def __str__(self) -> str:
        claim = self.guarantee
        return (
            f"{claim.mechanism}: ε is at least {self.add_remove:.3g} (add/remove) / "
            f"{self.substitution:.3g} (substitution), {1 - self.error:.6g} confidence, "
            f"{self.runs} runs a table, claimed {claim.epsilon:.4g} / "
            f"{claim.epsilon_substitution:.4g}"
            + (f" at δ = {claim.delta:g}: " if claim.delta else ": ")
            + ("EXCEEDED" if self.violated else "not exceeded")
        )


def audit_outputs(
    synthesizer: Synthesizer[Any],
    records: pd.DataFrame,
    runs: int = RUNS,
    seed: int = 1,
    error: float = ERROR,
) -> OutputsAudit:
    """Run a mechanism often on the records and on neighbours, and bound epsilon from below.

    Neighbours have a record at the ends of the domain, besides the others or with its values in
    place of an ordinary record's. What is looked at are the numbers of private outputs, of which
    there are ten times as many, and how many synthetic rows are like that record. Half of the runs
    choose an event, the other half count how often it happens; Clopper-Pearson limits for all
    neighbours together. What is public has to be the same for all of them.

    Where the number of rows is noisy it is drawn once and held fixed; the claim is then the
    mechanism's own part.

    Args:
        seed: of NumPy's stand-in for the noise of a release.
        error: chance that any of the bounds is above the true epsilon.
    Raises:
        GuaranteeError: fewer than 100 runs; a mechanism with a posterior, whose chains would have
            to be run anew each time: ``audit``.
    """
    if runs < LEAST_RUNS:
        raise GuaranteeError(f"runs = {runs} must be at least {LEAST_RUNS} a table.")
    if isinstance(synthesizer.mechanism, PosteriorMechanism):
        raise GuaranteeError(f"{synthesizer.mechanism.name!r} has a posterior to look at: audit.")
    fit = synthesizer.fit(records)
    task, mechanism = fit.task, fit.mechanism
    if task.records.empty:
        raise GuaranteeError("an audit of outputs needs a record to put others in the place of.")
    tried = _tried(task)
    tables = [(i, *pair) for i in range(len(tried)) for pair in _neighbours(task, tried.iloc[[i]])]
    level = error / (4 * len(tables))  # two limits for each of two events
    claim = mechanism.claim(task.schema) if synthesizer.schema.rows.share else fit.guarantee
    mine = _Runs(mechanism.fit(task), task, tried, runs, [seed, 0])
    best, worst = {"add-remove": 0.0, "substitution": 0.0}, 0
    for number, (i, kind, table) in enumerate(tables, start=1):
        other = task.of(table)
        theirs = _Runs(mechanism.fit(other), other, tried.iloc[[i]], runs, [seed, number])
        found = math.inf
        if mine.same_public(theirs):
            found = max(
                _bound(mine.private, theirs.private, level, claim.delta),
                _bound(mine.like[i], theirs.like[0], level, claim.delta),
            )
        if found > max(best.values()):
            worst = i
        best[kind] = max(best[kind], found)
    said = {str(key): value for key, value in tried.iloc[worst].items()}
    return OutputsAudit(claim, best["add-remove"], best["substitution"], said, runs, error)


def _public(task: Task) -> bool:
    """Public columns are released, and so the number of records."""
    return any(column.public for column in task.schema.columns.values())


def _tried(task: Task) -> pd.DataFrame:
    """An ordinary record, whose public values stay, with values at the ends of the domain."""
    columns = task.schema.confidential()
    here = _plain(task.records).iloc[[ordinary(columns[0], task.records)]]
    found = [extremes(columns, here), corners(columns, here)]
    if task.schema.kept or any(column.optional for column in columns):
        found.append(_plain(made_up(task.schema, MADE_UP, np.random.default_rng(1))))
    every = pd.concat(found).drop_duplicates().reset_index(drop=True)
    return every[[_valid(task.schema, every.iloc[[i]]) for i in range(len(every))]]


def _valid(schema: Schema, record: pd.DataFrame) -> bool:
    """A record that keeps the rules of the schema."""
    try:
        schema.validate(record)
    except DataError:
        return False
    return True


def _plain(records: pd.DataFrame) -> pd.DataFrame:
    """Without categories, which other records may not have."""
    return records.astype({c: object for c in records if records[c].dtype == "category"})


def _neighbours(task: Task, one: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Kind and validated table with this record, in place of the ordinary one or besides."""
    plain = _plain(task.records)
    place = ordinary(task.schema.confidential()[0], task.records)
    parts = {"substitution": [plain.iloc[:place], one, plain.iloc[place + 1 :]]}
    if not _public(task):
        parts["add-remove"] = [plain, one]
    for kind, frames in parts.items():
        table = task.schema.validate(pd.concat(frames, ignore_index=True))
        if not table.equals(task.records):
            yield kind, table


class _Runs:
    """Outputs on one table.

    Attributes:
        settings: what a release says of the mechanism, as text.
        private: numbers of up to MORE private outputs a run, shape (outputs, p); p = 0 where they
            are not looked at.
        like: how many rows are like a record by column, and in all columns, shape (records, runs,
            columns + 1).
    """

    def __init__(
        self, fitted: Fitted, task: Task, records: pd.DataFrame, runs: int, seed: list[int]
    ) -> None:
        noise = StudyNoise(np.random.default_rng(seed))
        columns, private = fitted.synthesised, []
        self.settings = json.dumps(dict(fitted.settings), sort_keys=True, default=str)
        self.like = np.empty((len(records), runs, len(columns) + 1))
        wanted = _coded(columns, records)[:, :, None]
        size = task.rows if _public(task) else min(task.rows, MOST_ROWS)
        for run, output in enumerate(fitted.independent(MORE * runs, noise)):
            numbers = _numbers(output)
            kept = MOST_NUMBERS // numbers.size if numbers.size else 0
            if run >= max(runs, kept):
                break
            if run < kept:
                private.append(numbers)
            if run < runs:
                rows = _coded(columns, fitted.synthetic(output, size, noise.rng))
                alike = np.abs(wanted - rows.T) <= NEAR  # (records, columns, rows)
                self.like[:, run, :-1] = alike.sum(axis=2)
                self.like[:, run, -1] = alike.all(axis=1).sum(axis=1)
        same = len(private) >= LEAST_RUNS and len({numbers.size for numbers in private}) == 1
        self.private = np.stack(private) if same else np.empty((0, 0))

    def same_public(self, other: _Runs) -> bool:
        """Settings, and the shape of what is drawn, are public: one record may change neither."""
        return self.settings == other.settings and self.private.shape == other.private.shape


def _numbers(output: Any) -> Vector:
    """A private output as numbers, shape (p,); none if it is made of something else."""
    parts = output.values() if isinstance(output, Mapping) else [output]
    try:
        return np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])
    except (TypeError, ValueError):
        return np.empty(0)


def _coded(columns: Sequence[Column], data: pd.DataFrame) -> Floats:
    """Level numbers, and parts of the range of numeric columns, shape (rows, columns)."""
    found = np.empty((len(data), len(columns)))
    for j, column in enumerate(columns):
        if column.levels:
            place = {level: at for at, level in enumerate(column.levels)}
            found[:, j] = [place.get(value, MISSED) for value in data[column.name]]
            continue
        assert column.lower is not None  # extremes
        assert column.upper is not None
        width = column.upper - column.lower
        found[:, j] = (data[column.name].to_numpy(dtype=float) - column.lower) / width
    return np.where(np.isnan(found), MISSED, found)


def _bound(without: Floats, with_: Floats, level: float, delta: float) -> float:
    """Lower bound on the |log ratio| of the probabilities of an event chosen on one half.

    Args:
        without, with_: what is looked at, shape (runs, numbers), of each table.
        level: chance that one limit is wrong.
        delta: of the claim.
    """
    if not without.shape[1]:
        return 0.0
    half = len(without) // 2
    event = _Event.chosen(without[:half], with_[:half])
    k0, k1 = (event.count(side[half:]) for side in (without, with_))
    top, bottom = (k1, k0) if event.more else (k0, k1)
    return log_ratio_bound(top, bottom, len(without) - half, level, delta)


@dataclass(frozen=True)
class _Event:
    """A half-line of one number, or of a sum of numbers by how far they tell tables apart.

    Attributes:
        weights: by place of a number.
        cut, over: the sum is at or above a cut, or below it.
        more: it is more probable with the record than without.
    """

    weights: Mapping[int, float]
    cut: float
    over: bool
    more: bool

    @classmethod
    def chosen(cls, without: Floats, with_: Floats) -> _Event:
        """The one whose log ratio is largest, less a margin of some standard errors."""
        spread = np.sqrt((without.var(axis=0) + with_.var(axis=0)) / 2)
        scale = 1 / np.maximum(spread, _TINY)
        apart = scale * (with_.mean(axis=0) - without.mean(axis=0))
        far = np.flatnonzero(np.abs(apart) > MARGIN * math.sqrt(2 / len(without)))
        total = max(float(np.linalg.norm(apart[far])), _TINY)
        first = np.argsort(-np.abs(apart), kind="stable")[:MOST_SEEN]
        ways = [{int(j): float(scale[j])} for j in first]
        ways.append({int(j): float(scale[j] * apart[j] / total) for j in far})
        found = [pair for weights in ways for pair in cls._best(weights, without, with_)]
        return max(found, key=lambda pair: pair[0])[1]

    @classmethod
    def _best(
        cls, weights: Mapping[int, float], without: Floats, with_: Floats
    ) -> Iterator[tuple[float, _Event]]:
        """The best of each of four kinds, with its score."""
        sums = [np.sort(_sums(side, weights)) for side in (without, with_)]
        cuts = np.unique(np.concatenate(sums))
        above = [len(x) - np.searchsorted(x, cuts) for x in sums]
        for over in (True, False):
            k0, k1 = (k + 0.5 if over else len(without) - k + 0.5 for k in above)
            sure = MARGIN * np.sqrt(1 / k0 + 1 / k1)
            for more, gain in ((True, np.log(k1 / k0)), (False, np.log(k0 / k1))):
                at = int(np.argmax(gain - sure))
                yield float((gain - sure)[at]), cls(weights, float(cuts[at]), over, more)

    def count(self, numbers: Floats) -> int:
        """How often it happened."""
        return int(((_sums(numbers, self.weights) >= self.cut) == self.over).sum())


def _sums(numbers: Floats, weights: Mapping[int, float]) -> Vector:
    """Weighted sums, rounded: equal ones stay equal in whatever order they are summed."""
    columns, factors = list(weights), np.array(list(weights.values()))
    return np.asarray(np.round(numbers[:, columns] @ factors, 9))
