"""Dates as whole days since 1970-01-01, and back."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from dpbayes.errors import SchemaError
from dpbayes.heavy import pd

ISO = "%Y-%m-%d"
_FIRST, _LAST = datetime.date(1678, 1, 1), datetime.date(2261, 12, 31)  # of nanoseconds in 64 bits
_EPOCH = datetime.date(1970, 1, 1)
_DAY = datetime.date(2025, 11, 30)


def check_format(where: str, kind: str, given: Any) -> None:
    """Raise SchemaError for a format that does not say the day, or of a column without dates."""
    if given is None:
        return
    if kind != "date":
        raise SchemaError(f"{where}: a format is for dates; remove the key.")
    try:
        good = datetime.datetime.strptime(_DAY.strftime(given), given).date() == _DAY
    except (TypeError, ValueError):
        good = False
    if not good:
        raise SchemaError(
            f'{where}: format = {given!r} must say year, month and day, such as "%d.%m.%Y".'
        )


def bound(where: str, key: str, given: Any) -> int | None:
    """Days of a bound that a schema gives as a date or its ISO text."""
    if given is None:
        return None
    try:
        found = datetime.date.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime.datetime) or not _FIRST <= found <= _LAST:
            raise ValueError
    except (TypeError, ValueError):
        raise SchemaError(
            f"{where}: {key} = {given!r} must be a day from {_FIRST} to {_LAST}, "
            f"written {key} = {_DAY}."
        ) from None
    return (found - _EPOCH).days


def day(days: float) -> datetime.date:
    """The date of a number of days."""
    return _EPOCH + datetime.timedelta(days=int(days))


def text(days: float, given: str | None) -> str:
    """A number of days as text."""
    return day(days).strftime(given or ISO)


def texts(values: pd.Series, given: str | None) -> pd.Series:
    """Dates as text, None where one is missing; shape (n,)."""
    found = pd.to_datetime(values, unit="D").dt.strftime(given or ISO).astype(object)
    return found.where(values.notna(), None)


def days(values: pd.Series, given: str | None) -> pd.Series:
    """Days, shape (n,); NaN where a value is not a day: text of another form, or with a time.

    Numbers are days already.
    """
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float).where(values % 1 == 0)
    if not pd.api.types.is_datetime64_any_dtype(values):
        # Midnight is what spreadsheets and databases put behind a day.
        plain = values.map(lambda value: str(value).strip().removesuffix(" 00:00:00"))
        values = pd.to_datetime(plain, format=given or ISO, errors="coerce")
    naive = values.dt.tz_localize(None)
    found = naive.to_numpy().astype("datetime64[ns]")
    whole = found.astype("datetime64[D]")
    same = whole.astype("datetime64[ns]") == found  # never of NaT
    number = np.where(same, whole.astype(np.int64).astype(float), np.nan)
    return pd.Series(number, index=values.index)


def remedy(given: str | None) -> str:
    """What to write instead of what is no day."""
    return f"Write days as {_DAY.strftime(given or ISO)}, or give the column a format."
