"""Days and moments as whole numbers of steps since 1970-01-01, and back.

A column of type ``date`` counts days; one of type ``datetime`` counts seconds, or minutes or hours
if its format says no more. Moments are times on a clock: they have no time zone.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.errors import SchemaError
from dpbayes.core.lazy import pd

LOCAL = ("%c", "%x", "%X")  # signs that depend on the computer's language
DAY, HOUR, MINUTE, SECOND = 86_400, 3600, 60, 1  # lengths of steps, in seconds
ISO, ISO_MOMENT = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"
_FIRST, _LAST = (
    datetime.date(1678, 1, 1),
    datetime.date(2261, 12, 31),
)  # range of pandas
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(?:[+-]\d\d:\d\d)?")
# Universal time may be named. Another zone beside it would be another clock.
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d)?(?:\.0+)?)?(?:Z|\+00:?00)?", re.ASCII
)
_EPOCH = datetime.datetime(1970, 1, 1)
_EXAMPLE, _TURNED = datetime.datetime(2025, 11, 30, 21, 14, 35), datetime.datetime(2025, 3, 2, 4)


class Steps(int):
    """Bound in steps; the type tells it from a plain number, which is no date."""


@dataclass(frozen=True)
class Calendar:
    """How a column of dates or moments counts, reads and writes them.

    Attributes:
        seconds: length of a step.
        format: format in files, as for ``strptime``; None for that of ISO 8601.
    """

    seconds: int
    format: str | None

    @classmethod
    def of(cls, kind: str, written: str | None) -> Calendar | None:
        """Calendar of a column of this type and format; None if it has no dates."""
        if kind == "date":
            return cls(DAY, written)
        if kind != "datetime":
            return None
        text = written if isinstance(written, str) else ISO_MOMENT
        steps = {"%S": SECOND, "%T": SECOND, "%M": MINUTE}
        return cls(next((s for sign, s in steps.items() if sign in text), HOUR), written)

    @property
    def noun(self) -> str:
        """What a value is, for messages."""
        return "day" if self.seconds == DAY else "moment"

    @property
    def _pattern(self) -> str:
        return self.format or (ISO if self.seconds == DAY else ISO_MOMENT)

    def check_format(self, where: str) -> None:
        """Raise SchemaError unless the format fixes the day, and the time of a moment."""
        if self.format is None:
            return
        good = isinstance(self.format, str) and self.format == self.format.strip() != ""
        if good and (local := [sign for sign in LOCAL if sign in self.format]):
            raise SchemaError(
                f"{where}: format = {self.format!r}: {local[0]} is another one on another "
                'computer; write it out, as "%d.%m.%Y".'
            )
        # Dates that arrive as dates pass through ISO text: a format must not read that as another.
        iso = _TURNED.strftime(ISO if self.seconds == DAY else ISO_MOMENT)
        turned = good and self._in_format(iso) not in (None, self._steps(_TURNED))
        if not good or turned or self._in_format(self._text(_EXAMPLE)) != self._steps(_EXAMPLE):
            parts, example = (
                ("year, month and day", "%d.%m.%Y")
                if self.seconds == DAY
                else ("year, month, day and hour", "%d.%m.%Y %H:%M")
            )
            raise SchemaError(
                f'{where}: format = {self.format!r} must say {parts}, such as "{example}".'
            )

    def check_round_trip(self, where: str, lower: float, upper: float) -> None:
        """Raise SchemaError if the format cannot tell all values from ``lower`` to ``upper``."""
        if self.format is None:
            return
        for steps in np.linspace(lower, upper, 40).astype(np.int64).tolist():
            if self._in_format(self.text(steps)) != steps:
                raise SchemaError(
                    f"{where}: format = {self.format!r} does not tell "
                    f"{self.moment(steps).strftime(ISO)} from other days."
                )

    def bound(
        self, where: str, key: str, value: str | datetime.date | float | None
    ) -> Steps | None:
        """Steps of a bound that a schema gives as a date, as a moment or as ISO text."""
        if value is None or isinstance(value, Steps):
            return value
        try:
            moment = self._given(value)
            if not _FIRST <= moment.date() <= _LAST or not self._exact(moment):
                raise ValueError
        except (TypeError, ValueError):
            example = _EXAMPLE.replace(second=0, minute=0)
            shown = example.date() if self.seconds == DAY else example.isoformat(" ")
            raise SchemaError(
                f"{where}: {key} = {value!r} must be a {self.noun} from {_FIRST} to {_LAST}, "
                f"written {key} = {shown}"
                + (f", in whole {self._unit}." if self.seconds in (HOUR, MINUTE) else ".")
            ) from None
        return Steps(self._steps(moment))

    def _given(self, value: object) -> datetime.datetime:
        """The moment of a bound; ValueError if it is none, or has a time zone."""
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
            if self.seconds == DAY and value.time() != datetime.time():
                raise ValueError
        elif self.seconds == DAY and isinstance(value, datetime.datetime):
            raise ValueError  # a moment is a date to Python
        elif not isinstance(value, datetime.date):
            raise ValueError
        elif not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        if value.tzinfo is not None or value.microsecond:
            raise ValueError
        return value

    @property
    def _unit(self) -> str:
        return {HOUR: "hours", MINUTE: "minutes"}.get(self.seconds, "seconds")

    def value(self, steps: float) -> datetime.date:
        """Day or moment of a number of steps, for a schema file."""
        moment = self.moment(steps)
        return moment.date() if self.seconds == DAY else moment

    def moment(self, steps: float) -> datetime.datetime:
        """Moment of a number of steps."""
        return _EPOCH + datetime.timedelta(seconds=int(steps) * self.seconds)

    def moments(self, steps: NDArray[Any]) -> NDArray[np.datetime64]:
        """Moments of whole numbers of steps, of any shape."""
        unit = "D" if self.seconds == DAY else "s"
        factor = 1 if self.seconds == DAY else self.seconds
        moments: NDArray[np.datetime64] = (np.asarray(steps).astype(np.int64) * factor).astype(
            f"datetime64[{unit}]"
        )
        return moments

    def text(self, steps: float) -> str:
        """Text of a number of steps."""
        return self._text(self.moment(steps))

    def iso(self, steps: float) -> str:
        """ISO text of a number of steps, the same for a moment at midnight as for its day."""
        text = self.moment(steps).isoformat(" ")
        return text.removesuffix(" 00:00:00")

    def texts(self, values: pd.Series) -> pd.Series:
        """Texts of steps, None where missing; shape (n,)."""
        moments = self.moments(values.fillna(0).to_numpy())
        written = pd.DatetimeIndex(moments).strftime(self._pattern)
        texts = pd.Series(written, values.index, dtype=object, name=values.name)
        return texts.where(values.notna(), None)

    def steps(self, values: pd.Series) -> pd.Series:
        """Steps of days or moments, shape (n,); NaN for a text of another format.

        A day with a time of day, and a moment between two steps, are NaN too. Numbers are taken as
        steps. Beside texts or missing values, in a column of objects, only integers are: a workbook
        has floats, and counts its days from 1900.
        """
        if pd.api.types.is_bool_dtype(values) or pd.api.types.is_complex_dtype(values):
            return pd.Series(np.nan, index=values.index)
        if pd.api.types.is_numeric_dtype(values):
            return values.astype(float).where(values % 1 == 0)
        if pd.api.types.is_datetime64_any_dtype(values):
            return self._of_moments(values)
        written = [self._written(value) for value in values]
        by_text = {text: self._number(text) for text in set(written)}
        numbers = np.array([by_text[text] for text in written], dtype=float)
        whole = [isinstance(x, int) and not isinstance(x, bool) for x in values]
        numbers[whole] = [float(x) for x, is_whole in zip(values, whole, strict=True) if is_whole]
        return pd.Series(numbers, index=values.index)

    def step_of(self, text: str) -> int | None:
        """Steps of a text that may be a code; None if it has not the format."""
        if self.format is None:
            number = self._number(text)
            return None if np.isnan(number) else int(number)
        return self._in_format(text)

    def remedy(self) -> str:
        """Advice for values that are not days or moments, for a message."""
        if self.seconds == DAY:
            return f"Write days as {self._text(_EXAMPLE)}, or give the column a format."
        return (
            f"Write moments as {self._text(_EXAMPLE)}, without a time zone and in whole "
            f"{self._unit}, or give the column a format."
        )

    def _of_moments(self, values: pd.Series) -> pd.Series:
        moments = values.dt.tz_localize(None).to_numpy()
        unit = "D" if self.seconds == DAY else "s"
        whole = moments.astype(f"datetime64[{unit}]")
        exact = whole.astype(moments.dtype) == moments  # false for NaT
        numbers = np.where(exact, whole.astype(np.int64), 0).astype(np.int64)
        if self.seconds != DAY:
            exact &= numbers % self.seconds == 0
            numbers //= self.seconds
        return pd.Series(np.where(exact, numbers.astype(float), np.nan), index=values.index)

    def _number(self, text: str) -> float:
        """Steps of a text in the format or else in ISO form; NaN if it has neither.

        Each text is read by itself: pandas chooses one unit for all texts of a column, so that a
        time with nine decimals would change which years the others may have.
        """
        moment = None if self.format is None else _moment(text, self.format)
        if moment is None:
            moment = self._iso(text)
        exact = moment is not None and self._exact(moment)
        return float(self._steps(moment)) if moment is not None and exact else np.nan

    def _iso(self, text: str) -> datetime.datetime | None:
        if self.seconds == DAY:
            return _moment(text, ISO)
        parts = _MOMENT.fullmatch(text)
        if parts is None:
            return None
        return _moment(f"{parts[1]} {parts[2] or '00:00'}{parts[3] or ':00'}", ISO_MOMENT)

    def _in_format(self, text: str) -> int | None:
        moment = _moment(text, self._pattern)
        return None if moment is None else self._steps(moment)

    def _exact(self, moment: datetime.datetime) -> bool:
        since = moment - _EPOCH
        return not since.microseconds and since.seconds % self.seconds == 0

    def _steps(self, moment: datetime.datetime) -> int:
        return (moment - _EPOCH) // datetime.timedelta(seconds=self.seconds)

    def _text(self, value: datetime.datetime) -> str:
        try:
            return value.strftime(self._pattern)
        except (TypeError, ValueError):
            return ""

    def _written(self, value: Any) -> str:
        """Text of a value: a time stamp at midnight is its ISO date to a column of days."""
        if isinstance(value, datetime.date) and not pd.isna(value):
            return value.isoformat() if type(value) is datetime.date else str(value)
        text = str(value).strip()
        midnight = _MIDNIGHT.fullmatch(text) if self.seconds == DAY else None
        return midnight[1] if midnight else text


def _moment(text: str, pattern: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.strptime(text, pattern)
    except (TypeError, ValueError, re.error):  # a bad format raises them too
        return None
    return moment if moment.tzinfo is None else None
