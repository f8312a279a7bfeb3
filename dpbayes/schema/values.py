"""Reading of single values: which of them are the same level, and which are missing."""

from __future__ import annotations

import contextlib
import decimal
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd
from dpbayes.schema.refusals import Refusal, Shown

NO_FIELD = ("", "NaN", "nan")  # fields of a file that are missing values, never a level
# R writes missing values as NA, Stata and SAS as a point. A declared level takes precedence, such
# as "NA" for Namibia.
WRITTEN = ("NA", ".")
CLOSE = 1e-13  # relative rounding error within which numbers are equal: 0.1 + 0.2 == 0.3
MOST_BITS = 2**13  # of whole numbers that are written in decimal digits
_WHOLE = re.compile(r"-?(0|[1-9]\d*)\.0+")
_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf(inity)?)\s*", re.ASCII | re.IGNORECASE
)
# Text that may be a level that is a number: 01 and 1,000 are codes and words, not numbers.
_LEVEL_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_TRUTH = {"true": "1", "false": "0"}


def level_text(value: object) -> str:
    """Text that is the same for all spellings of a level: 1, 1.0, "1", "1.0", True, "TRUE"."""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"{value:#x}"  # Python refuses to write so many decimal digits
    text = str(value).strip()
    if _WHOLE.fullmatch(text):
        whole = text.partition(".")[0]
        return "0" if whole == "-0" else whole
    return _TRUTH.get(text.lower(), text)


def of_one_type(levels: Sequence[str | float]) -> tuple[str | float, ...]:
    """Convert levels to floats if they are whole numbers and decimals: pandas holds them so."""
    kinds = {type(level) for level in levels}
    return tuple(map(float, levels)) if kinds == {int, float} else tuple(levels)


def short_texts(levels: Sequence[str | float]) -> list[str]:
    """Texts of levels for figures: decimals with 6 significant digits, if that tells them apart.

    Single precision, and spreadsheets, write 2.4 as 2.40000009536743.
    """
    texts = [f"{x:.6g}" if isinstance(x, float) else str(x) for x in levels]
    return texts if len(set(texts)) == len(texts) else list(map(str, levels))


def level_places(values: Iterable[object], levels: Sequence[object]) -> list[int]:
    """Find the position of each value among levels; -1 where it is none of them.

    A value is the level that has the same ``level_text``, or else the number that it is equal to:
    6.50 is the level 6.5. Levels that are text have one spelling: codes such as 250.1 and 250.10
    may differ.
    """
    texts = {level_text(level): k for k, level in enumerate(levels)}
    numbers = {float(x): k for k, x in enumerate(levels) if isinstance(x, int | float)}
    places = []
    for value in values:
        place = texts.get(level_text(value))
        if place is None:
            number = not isinstance(value, str) or _LEVEL_NUMBER.fullmatch(value.strip())
            place = numbers.get(_number(value), -1) if number else -1
        places.append(place)
    return places


def refuse_missing(missing_by_column: Mapping[str, pd.Series]) -> None:
    """Raise Refusal if a value is missing, and name every column with missing values.

    Args:
        missing_by_column: masks of missing values by column, each of shape (n,).
    """
    counts = {name: int(missing.sum()) for name, missing in missing_by_column.items()}
    if any(counts.values()):
        rows = len(next(iter(missing_by_column.values())))
        raise Refusal((0,), counts, rows, functools.partial(_missing, tuple(missing_by_column)))


def _missing(columns: tuple[str, ...], counts: Mapping[str, int], rows: int, shown: Shown) -> str:
    first, *others = [name for name in columns if counts[name]]
    more = "".join(f"; {name!r}: {counts[name]}" for name in others)
    return (
        f"column {first!r}: {counts[first]} of {rows} rows are missing{more} (empty, "
        "NaN, NA or a single point). Declare missing = true in the schema, or drop or impute them "
        "before the fit; nothing is dropped silently."
    )


def check_line(where: str, words: object, most: int) -> None:
    """Raise SchemaError unless ``words`` is one printable line of at most ``most`` characters.

    Args:
        where: the key, for the message: "column 'age': unit".
        words: the value to check; None stands for a key that is not given.
        most: largest number of characters.
    """
    if words is None or (
        isinstance(words, str) and words.strip() and len(words) <= most and words.isprintable()
    ):
        return
    raise SchemaError(
        f"{where} = {words!r:.200} must be a text of at most {most} characters, on one line."
    )


def texts_of(key: str, content: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Check that a value of the schema or a setting is a list of texts, and return a tuple.

    Args:
        key: name of the key or setting, for the message.
        content: what the texts are, for the message: "formulas".
        texts: the value to check.
    Raises:
        SchemaError: it is not a list of texts.
    """
    lists = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not lists or not all(isinstance(text, str) for text in texts):
        raise SchemaError(f"{key} = {texts!r} must be a list of {content}, as text.")
    return tuple(texts)


def numbers_in(values: pd.Series) -> pd.Series:
    """Numbers of values, shape (n,); NaN for what is none. Zero has no sign.

    Each value is converted by itself: beside a decimal, pandas reads whole numbers in a text column
    as floats, in which -0 keeps its sign and long numbers are rounded in another way.
    """
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iubf":
        return values.astype(float) + 0.0
    try:
        codes, index = pd.factorize(values)
        distinct = list(index)
    except TypeError:  # lists and the like have no hash
        codes, distinct = np.arange(len(values)), list(values)
    numbers = np.array([*map(_number, distinct), math.nan])
    return pd.Series(numbers[codes] + 0.0, index=values.index, name=values.name)


def _number(value: object) -> float:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else math.nan
    if isinstance(value, int | float | np.integer | np.floating | np.bool_ | decimal.Decimal):
        with contextlib.suppress(OverflowError, ValueError):
            return float(value)
    return math.nan
