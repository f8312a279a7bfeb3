"""Code book of a release: each column in words, in numbers and as a small picture.

Everything here is public: it is computed from a synthetic data set and the schema.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.mechanisms.marginals.structure import computed_by
from dpbayes.pages.page import BookEntry, Section, per_cent, plain, to_spread
from dpbayes.schema import Column, Schema

BARS = 30  # largest number in a histogram
TAIL = 0.01  # share of numbers in a tail
LONG = 0.5  # tails are cut where the rest takes less of the range
TYPES = {
    "continuous": "number",
    "count": "whole number",
    "date": "day",
    "datetime": "day and time",
    "binary": "levels",
    "categorical": "levels",
    "ordinal": "levels in order",
}


def code_book(schema: Schema, data_sets: Sequence[pd.DataFrame]) -> Section:
    """Describe every column of the synthetic data sets.

    Args:
        schema: the schema that the release was made with.
        data_sets: data sets of the release, as read, at least one.
    Raises:
        DataError, SchemaError: a data set does not fit the schema.
    """
    data = data_sets[0]
    names = [name for name in schema.columns if name in data]
    home = None if schema.unit is None else schema.unit.id
    other = next((str(name) for name in data if name not in (*schema.columns, home)), None)
    if other is not None:
        raise SchemaError(
            f"column {other!r} of the release is not in the schema; give the schema that the "
            "release was made with."
        )
    declared = Schema({name: schema[name] for name in names})
    typed = [declared.validate(each, show_values=True) for each in data_sets]
    sources = {name: f"computed from {named}" for name, named in computed(schema).items()}
    sources |= {name: "public, unchanged" for name in names if schema[name].public}
    entries = [
        _entry(schema[name], [each[name] for each in typed], sources.get(name, "synthetic"))
        for name in names
    ]
    text = "Shares, quartiles and pictures are those of the synthetic rows"
    if len(data_sets) > 1:
        text += (
            f" of {len(data_sets)} data sets together; beside a mean stand the least and the "
            "largest of theirs, which show how uncertain it is"
        )
    return Section("Code book", [f"{text}."], book=entries)


def computed(schema: Schema) -> dict[str, str]:
    """Name the columns from which a rule of the schema computes a column, for each of these.

    Columns that all rows of a unit share are left out: in some rows others are computed from them.
    """
    shared = () if schema.unit is None else schema.homes.shared
    return {
        name: ", ".join(other for other in schema.columns if other in part.names)
        for name, part in computed_by(schema).items()
        if name not in shared
    }


def _entry(column: Column, each: Sequence[pd.Series], source: str) -> BookEntry:
    values = pd.concat(each) if len(each) > 1 else each[0]
    kind = TYPES[column.type] + ("" if column.unit is None else f", {column.unit}")
    missing = "never"
    if column.optional:
        only = "" if column.only_if is None else f"; has a value only where {column.only_if}"
        missing = f"{per_cent(values.isna().mean())}{only}"
    entry = BookEntry(
        column.name,
        column.label or "",
        [
            ("Type", kind),
            ("Values", _range(column)),
            ("Missing", missing),
            ("Source", source),
        ],
    )
    present = values.dropna()
    if present.empty:
        return entry
    if column.levels:
        counts = present.astype(str).value_counts(normalize=True)
        shares = [float(counts.get(str(level), 0.0)) for level in column.levels]
        heights, parts = (
            shares,
            [
                f"{level} {per_cent(share)}"
                for level, share in zip(column.levels, shares, strict=True)
            ],
        )
        return entry.drawn(heights, "Shares of the levels", parts)
    numbers = present.to_numpy(dtype=float)
    quartiles = np.quantile(numbers, [0.25, 0.5, 0.75], method="inverted_cdf")
    low, middle, high = (_text(column, value, numbers) for value in quartiles)
    parts = [f"median {middle}", f"middle half {low} to {high}"]
    if column.calendar is None and numbers.min() < numbers.max():
        parts.append(_mean(numbers, [float(one.mean()) for one in each if one.notna().any()]))
    if set(numbers) == {0, 1}:
        parts = [f"{k} {per_cent(float((numbers == k).mean()))}" for k in (0, 1)]
    inside = _most(numbers)
    ends = [_text(column, end, numbers) for end in (inside.min(), inside.max())]
    beyond = [inside.min() > numbers.min(), inside.max() < numbers.max()]
    words = (f"{ends[0]} or less" if beyond[0] else ends[0],
             f"{ends[1]} or more" if beyond[1] else ends[1])  # fmt: skip
    return entry.drawn(_heights(column, inside), "Histogram", parts, words)


def _range(column: Column) -> str:
    if column.levels:
        return f"{len(column.levels)} levels"
    ends = [
        plain(float(end)) if column.calendar is None else column.shown(end)
        for end in (column.lower, column.upper)
        if end is not None
    ]
    return " to ".join(ends) if len(ends) == 2 else f"{ends[0]} or more"


def _mean(numbers: Floats, means: Sequence[float]) -> str:
    """Mean, and its range over data sets if there are several."""
    mean, *ends = (
        to_spread(value, float(numbers.std())) for value in (numbers.mean(), min(means), max(means))
    )
    return f"mean {mean}" + (f" ({ends[0]} to {ends[1]})" if len(means) > 1 else "")


def _text(column: Column, value: float, numbers: Floats) -> str:
    if column.whole:
        return plain(value) if column.calendar is None else column.shown(value)
    return to_spread(value, float(numbers.std()))


def _most(numbers: Floats) -> Floats:
    """The numbers, those of long tails moved to where the tail begins, so that bars are not one."""
    ends = np.quantile(numbers, [TAIL, 1 - TAIL], method="inverted_cdf")
    long = ends[1] - ends[0] < LONG * (numbers.max() - numbers.min())
    return np.clip(numbers, *ends) if long and ends[0] < ends[1] else numbers


def _heights(column: Column, numbers: Floats) -> list[float]:
    # Bins hold equally many of the values that are possible, or some would look like peaks.
    low, high, step = numbers.min(), numbers.max(), column.step
    width = step * np.ceil(((high - low) / step + 1) / BARS)
    bars = int((high - low + step / 2) // width) + 1
    edges = low - step / 2 + width * np.arange(bars + 1)
    return [float(count) for count in np.histogram(numbers, edges)[0]]
