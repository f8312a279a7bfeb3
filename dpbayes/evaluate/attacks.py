"""Singling-out, linkability and inference attacks by Anonymeter, which is installed by the user.

Its requirements forbid the NumPy and pyarrow of this package, with which it runs; so it stands
beside, by ``pip install --no-deps``. Its licence grants no rights to a patent that is pending.
"""

from __future__ import annotations

import importlib
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.errors import DataError
from dpbayes.evaluate.disclosure import MOST_ROWS, attribution
from dpbayes.heavy import pd
from dpbayes.schema import Schema

MISSING = (
    "the attacks are those of Anonymeter: pip install 'dpbayes[attacks]', and then pip install "
    "--no-deps anonymeter, whose own requirements are older than this package's."
)
MOST_ATTACKS = 500
MOST_TRIES = 20_000  # queries that are made up to find those that single out
COLUMNS = 3  # of a query


@dataclass(frozen=True)
class Attack:
    """Guesses about records, and how many of them are right.

    Attributes:
        name: what is guessed.
        rate: share of right guesses about records.
        without: the same attack on the holdout; without one, guesses by chance. nan where neither
            is known.
        about_one: a guess is about one record, whose part in it ε bounds. Whether a query finds
            exactly one record depends on all of them.
    """

    name: str
    rate: float
    without: float
    about_one: bool


def attacks(
    schema: Schema,
    records: pd.DataFrame,
    synthetic: pd.DataFrame,
    keys: Sequence[str],
    sensitive: str | None,
    holdout: pd.DataFrame | None = None,
    seed: int = 1,
) -> list[Attack]:
    """Up to ``MOST_ATTACKS`` of each kind, against up to ``MOST_ROWS`` rows of each table.

    Rates are Wilson's, which no guess right out of 500 makes 0.4 %; queries that could not be made
    count as wrong. Of a holdout as many rows are attacked as of the records.

    Source: giomi-2023.

    Args:
        keys, sensitive: columns that an intruder knows, and wants to know. Linkability is of the
            keys and all other columns.
    Raises:
        DataError: Anonymeter is not installed.
    """
    evaluators = _anonymeter()
    rng = np.random.default_rng(seed)
    most = min([len(records), MOST_ROWS, *([] if holdout is None else [len(holdout)])])
    ours, others = (None if t is None else _some(_plain(schema, t), most, rng)
                    for t in (records, holdout))  # fmt: skip
    theirs = _some(_plain(schema, synthetic), MOST_ROWS, rng)
    assert ours is not None
    names, tries = list(keys), min(MOST_ATTACKS, most)
    found: list[Attack] = []
    with _quiet(seed):
        for columns in sorted({1, min(COLUMNS, len(schema.columns))}):
            found.append(_singling_out(evaluators, ours, theirs, others, columns, seed))
        rest = [str(name) for name in ours if name not in names]
        if rest:
            rates = _rates(
                evaluators.LinkabilityEvaluator(
                    ori=ours, syn=theirs, control=others, n_attacks=tries, aux_cols=(names, rest)
                )
            )
            without = rates[1] if others is not None else 1 / len(theirs)
            found.append(Attack("linkability of keys and the rest", rates[0], without, True))
        if sensitive is not None:
            numeric = not schema[sensitive].levels
            rates = _rates(
                evaluators.InferenceEvaluator(
                    ori=ours, syn=theirs, control=others, n_attacks=tries, aux_cols=names,
                    secret=sensitive, regression=numeric,
                )
            )  # fmt: skip
            without = rates[1]
            if others is None and not numeric:
                without = attribution(ours, theirs, names, sensitive).baseline
            within = f"{sensitive} within 5 %" if numeric else sensitive
            found.append(Attack(f"inference of {within}", rates[0], without, True))
    return found


def _singling_out(
    evaluators: Any,
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    others: pd.DataFrame | None,
    columns: int,
    seed: int,
) -> Attack:
    """Queries that find one synthetic row: how many find one record, or one of the holdout."""
    found = []
    for table in [ours, *([] if others is None else [others])]:
        one = evaluators.SinglingOutEvaluator(  # the same queries for both, of the same seed
            ori=table, syn=theirs, n_attacks=MOST_ATTACKS, n_cols=columns, max_attempts=MOST_TRIES,
            seed=seed,
        )  # fmt: skip
        one.evaluate(mode="univariate" if columns == 1 else "multivariate")
        results = one.results()
        found.append((results.attack_rate.value, results.baseline_rate.value))
    name = f"singling out by {columns} column{'s' if columns > 1 else ''}"
    return Attack(name, found[0][0], found[0][1] if others is None else found[1][0], False)


def _rates(evaluator: Any) -> tuple[float, float]:
    """Of right guesses about records, and about the holdout."""
    results = evaluator.evaluate(n_jobs=1).results()
    control = results.control_rate
    return float(results.attack_rate.value), math.nan if control is None else float(control.value)


def _anonymeter() -> Any:
    try:
        return importlib.import_module("anonymeter.evaluators")
    except ImportError:
        raise DataError(MISSING) from None


def _plain(schema: Schema, table: pd.DataFrame) -> pd.DataFrame:
    """Levels as text, a missing one too; numbers as such, a missing one as nan."""
    columns: dict[str, pd.Series] = {}
    for name, column in schema.columns.items():
        values = table[name]
        if column.levels:
            columns[name] = values.astype(object).where(values.notna(), "(missing)").astype(str)
        else:
            columns[name] = pd.to_numeric(values).astype(float)
    return pd.DataFrame(columns).reset_index(drop=True)


def _some(table: pd.DataFrame, most: int, rng: np.random.Generator) -> pd.DataFrame:
    if len(table) <= most:
        return table
    return table.iloc[rng.choice(len(table), most, replace=False)].reset_index(drop=True)


@contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """Its draws, from NumPy's global generator, by a seed; no warnings of attacks that fail."""
    logging.getLogger("anonymeter").addHandler(logging.NullHandler())
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(before)
