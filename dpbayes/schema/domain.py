"""Random records that a schema allows, made up without any data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.columns import Column, Level
from dpbayes.schema.rules import numbers_of, values_of
from dpbayes.schema.table import Schema

MANY = 20  # range above the lower bound in which a count without an upper bound is drawn
FAR = 1000  # the same range, where the end of the domain is asked for
NEAR_ENDS = (1e-3, 1e-6)  # gaps to the ends that are tried, as parts of the range
TOGETHER, TRIES = 1000, 50  # records drawn at once to find some that keep the rules; attempts


def made_up(schema: Schema, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw ``count`` valid records, each column uniform over its declared domain.

    If few draws keep the rules of the schema, those that do are repeated. A value is missing only
    where the column's ``only_if`` is false.

    Raises:
        SchemaError: no record was found that keeps the rules.
    """
    if not schema.kept and not schema.asked:
        return _weighted(
            schema, schema.released.validate(pd.DataFrame(_uniform(schema, count, rng))), rng
        )
    batches: list[pd.DataFrame] = []
    for _ in range(TRIES):
        batches.append(_keeping(schema, _uniform(schema, max(count, TOGETHER), rng)))
        if sum(map(len, batches)) >= count:
            break
    valid = pd.concat(batches, ignore_index=True)
    if valid.empty:
        raise SchemaError(
            f"no record was found that keeps the rules of the schema ({TRIES * TOGETHER:,} were "
            "tried): they may exclude every one."
        )
    repeated = valid.iloc[np.arange(count) % len(valid)].reset_index(drop=True)
    return _weighted(schema, repeated, rng)


def with_largest_weight(schema: Schema, records: pd.DataFrame, times: float = 1.0) -> pd.DataFrame:
    """Add the largest weight to records, or a multiple of it, if the schema has a survey."""
    survey = schema.survey
    if survey is None:
        return records
    return records.assign(**{survey.weights: times * survey.largest})


def _weighted(schema: Schema, records: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Add weights to records, if the schema has a survey: uniform up to the largest."""
    if schema.survey is None:
        return records
    weights = rng.uniform(0.0, schema.survey.largest, len(records))
    return records.assign(**{schema.survey.weights: weights})


def _keeping(schema: Schema, records: dict[str, Any]) -> pd.DataFrame:
    """Select the records that keep the rules, after computing the columns that rules define."""
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
    for _ in schema.asked:  # one condition may depend on another column that has one
        for name, condition in schema.asked.items():
            values[name] = np.where(condition.true(values), values[name], np.nan)
    for rule in schema.kept:
        good &= rule.holds(values)
    for name, column in table.items():
        if not column.levels:
            low, high = bounds(column)
            good &= ~((values[name] < low) | (values[name] > high))
    return pd.DataFrame({n: values_of(c, values[n][good]) for n, c in table.items()})


def ends(column: Column) -> tuple[Level, Level]:
    """Bounds of a column's declared domain, or its first and last level."""
    if column.levels:
        return column.levels[0], column.levels[-1]
    return bounds(column)


def inside(column: Column, numbers: Iterable[float] = ()) -> list[Level]:
    """Values inside of a column's domain where a density may have no gradient; public.

    All levels and atoms, 0, 1 and -1, the middle and the quarters, what is next to the ends, down
    to a millionth of the range, and those of the given numbers that are inside.
    """
    if column.levels:
        return list(column.levels[1:-1])
    if column.calendar is not None:
        return []
    low, high = bounds(column)
    values = {0.0, 1.0, -1.0, low + 1, high - 1, *column.atoms}
    values |= {low + part * (high - low) for part in (0.25, 0.5, 0.75)}
    values |= {x for x in numbers if not column.whole or x == int(x)}
    if column.whole:
        values = {float(round(value)) for value in values}
    else:
        near = [part * (high - low) for part in NEAR_ENDS]
        values |= {low + gap for gap in near} | {high - gap for gap in near}
    return [value for value in sorted(values) if low < value < high]


def places(
    schema: Schema,
    names: Iterable[str],
    rows: int,
    rng: np.random.Generator,
    numbers: Collection[float] = (),
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield records that all have one value in a confidential column, for each value to try.

    These are ends and ``inside`` values, with the other columns uniform over their domain; then the
    ends again, with other columns at a random end of it. All records keep the schema's rules, which
    may leave none with this value; then it is left out, as for a column that a rule computes.

    Args:
        names: the columns whose values are to be tried.
        rows: number of records for each value.
        numbers: further values to try, where a column has them inside of its domain.
    Yields:
        The column and the value, in words; and the records, validated.
    """
    tried = [schema.columns[name] for name in names]
    tried = [column for column in tried if not column.public and column.calendar is None]
    for at_ends in (False, True) if len(tried) > 1 else (False,):
        for column in tried:
            for value in (*ends(column), *(() if at_ends else inside(column, numbers))):
                records = _at(schema, column, value, rows, rng, at_ends=at_ends)
                if records is not None:
                    word = value if isinstance(value, str) else format(value, "g")
                    yield f"{column.name} = {word}{', others at an end' * at_ends}", records


def _at(
    schema: Schema,
    column: Column,
    value: Level,
    rows: int,
    rng: np.random.Generator,
    *,
    at_ends: bool,
) -> pd.DataFrame | None:
    """Draw records with one value in a column; None if none was found that keeps the rules."""
    ruled = bool(schema.kept or schema.asked)
    values, count = _ends if at_ends else _values, TOGETHER if ruled else rows
    drawn = {name: values(other, count, rng) for name, other in schema.columns.items()}
    drawn[column.name] = [value] * count
    valid = pd.DataFrame(drawn)
    if ruled:
        valid = _keeping(schema, drawn)
        expected = column.rounded(pd.Series([value], name=column.name))[0]
        valid = valid[(valid[column.name] == expected).fillna(False).to_numpy(dtype=bool)]
    if valid.empty:
        return None
    return schema.released.validate(valid.iloc[np.arange(rows) % len(valid)].reset_index(drop=True))


def _ends(column: Column, count: int, rng: np.random.Generator) -> Any:
    """Draw ends of a column's domain; dates are uniform."""
    if column.calendar is not None:
        return _values(column, count, rng)
    return np.asarray(ends(column))[rng.integers(2, size=count)]


def bounds(column: Column) -> tuple[float, float]:
    """Bounds of a numeric column; far ones take the place of those that are not declared."""
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
        numbers = rng.integers(int(low), int(high), size=count, endpoint=True)
        return numbers if column.calendar is None else column.calendar.moments(numbers)
    assert column.upper is not None  # Column
    return rng.uniform(low, column.upper, count)
