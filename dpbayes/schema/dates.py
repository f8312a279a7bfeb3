"""Conversion of dates to whole days since 1970-01-01, and back."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd

ISO = "%Y-%m-%d"
_FIRST, _LAST = (
    datetime.date(1678, 1, 1),
    datetime.date(2261, 12, 31),
)  # range of pandas
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(?:[+-]\d\d:\d\d)?")
_EPOCH = datetime.date(1970, 1, 1)
_DAY, _TURNED = datetime.date(2025, 11, 30), datetime.date(2025, 3, 2)


def check_format(where: str, kind: str, date_format: str | None) -> None:
    """Raise SchemaError if a format does not fix the day, or its column has no dates."""
    if date_format is None:
        return
    if kind != "date":
        raise SchemaError(f"{where}: a format is for dates; remove the key.")
    good = isinstance(date_format, str) and date_format == date_format.strip()
    # Dates that arrive as dates pass through ISO text: a format must not read that as another day.
    turned = good and day_of(_TURNED.isoformat(), date_format) not in (
        None,
        (_TURNED - _EPOCH).days,
    )
    if not good or turned or day_of(_text(_DAY, date_format), date_format) != (_DAY - _EPOCH).days:
        raise SchemaError(
            f'{where}: format = {date_format!r} must say year, month and day, such as "%d.%m.%Y".'
        )


def check_round_trip(
    where: str, date_format: str | None, lower: float | None, upper: float | None
) -> None:
    """Raise SchemaError if a format cannot tell all days from ``lower`` to ``upper`` apart."""
    if date_format is None:
        return
    assert lower is not None  # dates have bounds
    assert upper is not None
    for days in np.linspace(lower, upper, 40).astype(int).tolist():
        if day_of(text(days, date_format), date_format) != days:
            raise SchemaError(
                f"{where}: format = {date_format!r} does not tell {day(days)} from other days."
            )


def day_of(text: str, date_format: str | None) -> int | None:
    """Days since 1970-01-01 of a text, or None if it does not have the format."""
    moment = _moment(text, date_format or ISO)
    return None if moment is None else (moment.date() - _EPOCH).days


def _moment(text: str, date_format: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(text, date_format)
    except (TypeError, ValueError, re.error):  # a bad format raises them too
        return None


class Days(int):
    """Bound in days; the type tells it from a plain number, which is no date."""


def bound(where: str, key: str, value: str | datetime.date | float | None) -> int | None:
    """Days since 1970-01-01 of a bound that a schema gives as a date or as ISO text."""
    if value is None or isinstance(value, Days):
        return value
    try:
        date = datetime.date.fromisoformat(value) if isinstance(value, str) else value
        # A moment is a date to Python, but does not compare with one.
        if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
            raise ValueError
        if not _FIRST <= date <= _LAST:
            raise ValueError
    except (TypeError, ValueError):
        raise SchemaError(
            f"{where}: {key} = {value!r} must be a day from {_FIRST} to {_LAST}, "
            f"written {key} = {_DAY}."
        ) from None
    return Days((date - _EPOCH).days)


def day(days: float) -> datetime.date:
    """Date of a number of days since 1970-01-01."""
    return _EPOCH + datetime.timedelta(days=int(days))


def text(days: float, date_format: str | None) -> str:
    """Text of a number of days since 1970-01-01, by default in ISO form."""
    return _text(day(days), date_format)


def _text(value: datetime.date, date_format: str | None) -> str:
    try:
        return value.strftime(date_format or ISO)
    except (TypeError, ValueError):
        return ""


def texts(values: pd.Series, date_format: str | None) -> pd.Series:
    """Texts of days since 1970-01-01, None where missing; shape (n,)."""
    formatted = pd.to_datetime(values, unit="D").dt.strftime(date_format or ISO).astype(object)
    return formatted.where(values.notna(), None)


def days(values: pd.Series, date_format: str | None) -> pd.Series:
    """Days since 1970-01-01, shape (n,); NaN for a text of another format, or with a time of day.

    Numbers are taken as days. Beside texts or missing values, in a column of objects, only integers
    are: a workbook has floats, and counts its days from 1900.
    """
    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_complex_dtype(values):
        return pd.Series(np.nan, index=values.index)
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float).where(values % 1 == 0)
    if pd.api.types.is_datetime64_any_dtype(values):
        moments = values.dt.tz_localize(None).to_numpy()
        whole_days = moments.astype("datetime64[D]")
        at_midnight = whole_days.astype(moments.dtype) == moments  # false for NaT
        numbers = np.where(at_midnight, whole_days.astype(np.int64).astype(float), np.nan)
        return pd.Series(numbers, index=values.index)
    written = [_written(value) for value in values]
    by_text = {text: _number(text, date_format) for text in set(written)}
    numbers = np.array([by_text[text] for text in written], dtype=float)
    whole = [isinstance(x, int) and not isinstance(x, bool) for x in values]
    numbers[whole] = [float(x) for x, is_whole in zip(values, whole, strict=True) if is_whole]
    return pd.Series(numbers, index=values.index)


def _number(text: str, date_format: str | None) -> float:
    """Days of a text in the format or else in ISO form; NaN if it has neither, or a time of day.

    Each text is read by itself: pandas chooses one unit for all texts of a column, so that a time
    with nine decimals would change which years the others may have.
    """
    for pattern in filter(None, (date_format, ISO)):
        moment = _moment(text, pattern)
        if moment is not None:
            at_midnight = moment.time() == datetime.time()
            return float((moment.date() - _EPOCH).days) if at_midnight else np.nan
    return np.nan


def _written(value: Any) -> str:
    """Text of a day: a time stamp at midnight becomes its ISO date."""
    if isinstance(value, datetime.date) and not pd.isna(value):
        return value.isoformat() if type(value) is datetime.date else str(value)
    text = str(value).strip()
    midnight = _MIDNIGHT.fullmatch(text)
    return midnight[1] if midnight else text


def remedy(date_format: str | None) -> str:
    """Advice for values that are not days, for a message."""
    return f"Write days as {_DAY.strftime(date_format or ISO)}, or give the column a format."
