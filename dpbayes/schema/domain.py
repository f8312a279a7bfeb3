"""Records that a schema allows, made up without any data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import Column
from dpbayes.schema.rules import numbers_of, values_of
from dpbayes.schema.table import Schema

MANY = 20  # above the lower bound of a count without an upper one
FAR = 1000  # the same, for its end
TOGETHER, TRIES = 1000, 50  # records that are tried where rules are to be kept, and how often


def made_up(schema: Schema, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """``count`` valid records, each column uniform over its declared domain.

    Where few of those keep the rules of the schema, some are there several times. A value is
    missing where it is not asked for, and nowhere else.

    Raises:
        SchemaError: no record was found that keeps the rules.
    """
    if not schema.kept and not schema.asked:
        return schema.validate(pd.DataFrame(_uniform(schema, count, rng)))
    found: list[pd.DataFrame] = []
    for _ in range(TRIES):
        found.append(_keeping(schema, _uniform(schema, max(count, TOGETHER), rng)))
        if sum(map(len, found)) >= count:
            break
    every = pd.concat(found, ignore_index=True)
    if every.empty:
        raise SchemaError(
            f"no record was found that keeps the rules of the schema ({TRIES * TOGETHER:,} were "
            "tried): they may exclude every one."
        )
    return every.iloc[np.arange(count) % len(every)].reset_index(drop=True)


def _keeping(schema: Schema, records: dict[str, Any]) -> pd.DataFrame:
    """Those of some records that keep the rules, after what follows from others is put in."""
    table = schema.columns
    values = {
        name: column.rounded_numbers(numbers_of(column, column.validate(pd.Series(records[name]))))
        for name, column in table.items()
    }
    good = np.ones(len(next(iter(values.values()))), dtype=bool)
    for rule in schema.kept:
        if rule.defined is not None:
            name, part = rule.defined
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                value = np.broadcast_to(part.value(values), values[name].shape)
            good &= np.isfinite(value)
            column, value = table[name], np.where(np.isfinite(value), value, 0.0)
            values[name] = np.rint(value) if column.whole else column.rounded_numbers(value)
    for _ in schema.asked:  # one may be asked only if another is
        for name, asked in schema.asked.items():
            values[name] = np.where(asked.true(values), values[name], np.nan)
    for rule in schema.kept:
        good &= rule.holds(values)
    for name, column in table.items():
        if not column.levels:
            low, high = ends(column)
            good &= ~((values[name] < low) | (values[name] > high))
    return pd.DataFrame({n: values_of(c, values[n][good]) for n, c in table.items()})


def ends(column: Column) -> tuple[Any, Any]:
    """The ends of a column's declared domain, or its first and last level."""
    if column.levels:
        return column.levels[0], column.levels[-1]
    low = 0 if column.lower is None else column.lower
    return low, low + FAR if column.upper is None else column.upper


def _uniform(schema: Schema, count: int, rng: np.random.Generator) -> dict[str, Any]:
    return {name: _values(column, count, rng) for name, column in schema.columns.items()}


def _values(column: Column, count: int, rng: np.random.Generator) -> Any:
    if column.levels:
        codes = rng.permutation(np.arange(count) % len(column.levels))
        return np.asarray([column.levels[code] for code in codes], dtype=object)
    low = 0.0 if column.lower is None else column.lower
    if column.whole:
        high = low + MANY if column.upper is None else column.upper
        found = rng.integers(int(low), int(high), size=count, endpoint=True)
        return found.astype("datetime64[D]") if column.type == "date" else found
    assert column.upper is not None  # Column
    return rng.uniform(low, column.upper, count)
