"""Conversion of pandas, polars and pyarrow frames to pandas, with the same values from each.

Types that are recognised here decide nothing: the schema declares what a column is. A value becomes
a number, a boolean or a text, as it would be read from a CSV file.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import needed, pd

if TYPE_CHECKING:
    import pyarrow


class ArrowStream(Protocol):
    """Table with the Arrow PyCapsule interface, such as those of polars and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as a PyCapsule."""
        ...


Frame: TypeAlias = "pd.DataFrame | ArrowStream"  # all that ``as_frame`` takes
MOST_BITS = 1024  # whole numbers with fewer bits fit into a float


def as_frame(records: Frame) -> pd.DataFrame:
    """Convert records to a data frame of numbers, booleans and text.

    Args:
        records: data frame of pandas or polars, table of pyarrow, or any other object with the
            Arrow PyCapsule interface.
    Raises:
        DataError: ``records`` is none of these.
    """
    if isinstance(records, pd.DataFrame):
        frame = records
    elif hasattr(records, "__arrow_c_stream__"):
        frame = from_arrow(needed("pyarrow", "a frame that is not of pandas").table(records))
    else:
        raise DataError(
            f"records are a {type(records).__name__}; expected a data frame of pandas, polars or "
            "pyarrow. Files are read by dpbayes.read_records(path, schema)."
        )
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    plain = [_plain(column) for column in columns]
    if all(new is old for new, old in zip(plain, columns, strict=True)):
        return frame
    converted = pd.DataFrame(dict(enumerate(plain)), index=frame.index)
    return converted.set_axis(frame.columns, axis="columns")


def from_arrow(table: pyarrow.Table) -> pd.DataFrame:
    """Convert all columns of a pyarrow table; an index that pandas noted in it is ignored."""
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def shortest(column: pd.Series) -> pd.Series:
    """Convert floats of 16 or 32 bits by their shortest text: 0.1, not 0.10000000149."""
    single = np.asarray(column, dtype=np.float32)
    numbers = single.astype(str).astype(float)
    return pd.Series(numbers, index=column.index, name=column.name)


def _plain(column: pd.Series) -> pd.Series:
    """Convert a column to numbers, booleans and text; a plain column is returned as it is."""
    kind = column.dtype
    if isinstance(kind, np.dtype):
        if kind.kind in "iub" or kind == np.float64:
            return column
        if kind.kind == "f" and kind.itemsize < 8:
            return shortest(column)
    elif isinstance(kind, pd.StringDtype):
        return column
    elif pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind):
        array = column.to_numpy(dtype=float, na_value=np.nan)
        numbers = pd.Series(array, index=column.index, name=column.name)
        return shortest(numbers) if "float32" in str(kind).lower() else numbers
    elif isinstance(kind, pd.CategoricalDtype):  # by category: cell by cell can take minutes
        held = [*map(_cell, kind.categories.astype(object).tolist()), None]
        plain = np.array(held, dtype=object)[column.cat.codes]
        return pd.Series(plain, index=column.index, name=column.name, dtype=object)
    if kind.kind == "O" and pd.api.types.infer_dtype(column, skipna=False) == "string":
        return column
    cells = [_cell(value) for value in column.astype(object).tolist()]
    return pd.Series(cells, index=column.index, name=column.name, dtype=object)


def _cell(value: Any) -> Any:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        if value.bit_length() < MOST_BITS:
            return value
        return math.inf if value > 0 else -math.inf
    if isinstance(value, np.generic):
        if isinstance(value, np.float16 | np.float32):
            return float(str(value))
        if not isinstance(value, np.datetime64 | np.timedelta64):
            return value.item()
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):  # a Timestamp of pandas, too
        return _moment(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, float) else str(value)


def _moment(value: datetime.datetime) -> str:
    """Format midnight as a date, because Stata, SPSS and pandas store days as moments."""
    midnight = value.time() == datetime.time() and not getattr(value, "nanosecond", 0)
    if value.tzinfo is None and midnight:
        return value.date().isoformat()
    return value.isoformat(sep=" ")
