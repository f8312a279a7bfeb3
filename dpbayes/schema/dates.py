"""Dates as whole days since 1970-01-01, and back."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd

ISO = "%Y-%m-%d"
_FIRST, _LAST = datetime.date(1678, 1, 1), datetime.date(2261, 12, 31)  # of nanoseconds in 64 bits
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(?:[+-]\d\d:\d\d)?")
_EPOCH = datetime.date(1970, 1, 1)
_DAY, _TURNED = datetime.date(2025, 11, 30), datetime.date(2025, 3, 2)


def check_format(where: str, kind: str, given: Any) -> None:
    """Raise SchemaError for a format that does not say the day, or of a column without dates."""
    if given is None:
        return
    if kind != "date":
        raise SchemaError(f"{where}: a format is for dates; remove the key.")
    good = isinstance(given, str) and given == given.strip()
    # Days that are held as such are written 2026-12-31 on their way in: a format may not turn it.
    turned = good and day_of(_TURNED.isoformat(), given) not in (None, (_TURNED - _EPOCH).days)
    if not good or turned or day_of(_text(_DAY, given), given) != (_DAY - _EPOCH).days:
        raise SchemaError(
            f'{where}: format = {given!r} must say year, month and day, such as "%d.%m.%Y".'
        )


def check_round_trip(where: str, given: str | None, lower: Any, upper: Any) -> None:
    """Raise SchemaError for a format that loses some of the days from ``lower`` to ``upper``."""
    if given is None:
        return
    for days in np.linspace(lower, upper, 40).astype(int).tolist():
        if day_of(text(days, given), given) != days:
            raise SchemaError(
                f"{where}: format = {given!r} does not tell {day(days)} from other days."
            )


def day_of(text: str, given: str | None) -> int | None:
    """Days of a text, None if it is none of this format."""
    try:
        return (datetime.datetime.strptime(text, given or ISO).date() - _EPOCH).days
    except (TypeError, ValueError, re.error):  # of a format, too
        return None


class Days(int):
    """A bound as days, told from a number that somebody wrote."""


def bound(where: str, key: str, given: Any) -> int | None:
    """Days of a bound that a schema gives as a date or its ISO text."""
    if given is None or isinstance(given, Days):
        return given
    try:
        found = datetime.date.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime.datetime) or not _FIRST <= found <= _LAST:
            raise ValueError
    except (TypeError, ValueError):
        raise SchemaError(
            f"{where}: {key} = {given!r} must be a day from {_FIRST} to {_LAST}, "
            f"written {key} = {_DAY}."
        ) from None
    return Days((found - _EPOCH).days)


def day(days: float) -> datetime.date:
    """The date of a number of days."""
    return _EPOCH + datetime.timedelta(days=int(days))


def text(days: float, given: str | None) -> str:
    """A number of days as text."""
    return _text(day(days), given)


def _text(value: datetime.date, given: str | None) -> str:
    try:
        return value.strftime(given or ISO)
    except (TypeError, ValueError):
        return ""


def texts(values: pd.Series, given: str | None) -> pd.Series:
    """Dates as text, None where one is missing; shape (n,)."""
    found = pd.to_datetime(values, unit="D").dt.strftime(given or ISO).astype(object)
    return found.where(values.notna(), None)


def days(values: pd.Series, given: str | None) -> pd.Series:
    """Days, shape (n,); NaN where a value is not a day: text of another form, or with a time.

    Numbers are days already.
    """
    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_complex_dtype(values):
        return pd.Series(np.nan, index=values.index)
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float).where(values % 1 == 0)
    if not pd.api.types.is_datetime64_any_dtype(values):
        plain = values.map(_written)
        found = pd.to_datetime(plain, format=given or ISO, errors="coerce")
        if given is not None:
            found = found.fillna(pd.to_datetime(plain, format=ISO, errors="coerce"))
        values = found
    naive = values.dt.tz_localize(None)
    found = naive.to_numpy().astype("datetime64[ns]")
    whole = found.astype("datetime64[D]")
    same = whole.astype("datetime64[ns]") == found  # never of NaT
    number = np.where(same, whole.astype(np.int64).astype(float), np.nan)
    return pd.Series(number, index=values.index)


def _written(value: Any) -> str:
    """A day as text; of one that is held as a moment, which is midnight, as ISO has it."""
    if isinstance(value, datetime.date) and not pd.isna(value):
        return value.isoformat() if type(value) is datetime.date else str(value)
    text = str(value).strip()
    midnight = _MIDNIGHT.fullmatch(text)
    return midnight[1] if midnight else text


def remedy(given: str | None) -> str:
    """What to write instead of what is no day."""
    return f"Write days as {_DAY.strftime(given or ISO)}, or give the column a format."
