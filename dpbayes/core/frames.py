"""Conversion of pandas, polars and pyarrow frames to pandas, with the same values from each.

Types that are recognised here decide nothing: the schema declares what a column is. A value becomes
a number, a boolean or a text, as it would be read from a CSV file. What it becomes depends on no
other record: a column of whole numbers is not made one of floats because one of them is missing.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from dpbayes.core.errors import DataError, refused
from dpbayes.core.lazy import needed, pd

if TYPE_CHECKING:
    import pyarrow


class ArrowStream(Protocol):
    """Table with the Arrow PyCapsule interface, such as those of polars and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as a PyCapsule."""
        ...


Frame: TypeAlias = "pd.DataFrame | ArrowStream"  # all that ``as_frame`` takes
BEYOND = "records have a value that cannot be read, such as a day before year 1 or after 9999"
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
        table = needed("pyarrow", "a frame that is not of pandas").table
        with refused(DataError, "records have a column of a type that pyarrow does not read"):
            read = table(records)
        frame = from_arrow(read)
    else:
        raise DataError(
            f"records are a {type(records).__name__}; expected a data frame of pandas, polars or "
            "pyarrow. Files are read by dpbayes.read_records(path, schema)."
        )
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    with refused(DataError, BEYOND):
        plain = [_plain(column) for column in columns]
    if all(new is old for new, old in zip(plain, columns, strict=True)):
        return frame
    converted = pd.DataFrame(dict(enumerate(plain)), index=frame.index)
    return converted.set_axis(frame.columns, axis="columns")


def from_arrow(table: pyarrow.Table) -> pd.DataFrame:
    """Convert all columns of a pyarrow table; an index that pandas noted in it is ignored.

    Whole numbers beside a null stay whole: as floats, those above 2^53 would change with the null.
    """
    arrow = needed("pyarrow", "a table of pyarrow")
    texts = arrow.string(), arrow.large_string(), arrow.string_view()
    with refused(DataError, BEYOND):
        for place, column in enumerate(table.columns):
            if not arrow.types.is_dictionary(column.type):
                continue
            # Of other values a dictionary would be converted in another way than the values, and
            # one record's null or NaN in it would decide which.
            if not (column.type.value_type in texts and all(map(_distinct, column.chunks))):
                chunks = [_values(chunk) for chunk in column.chunks]
                plain = arrow.chunked_array(chunks, None if chunks else column.type.value_type)
                table = table.set_column(place, table.column_names[place], plain)
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True, integer_object_nulls=True)
    return frame


def _values(chunk: pyarrow.DictionaryArray) -> pyarrow.Array:
    """Convert a dictionary array to its values; views of text, which have no such cast, to text."""
    kind = chunk.type.value_type
    if str(kind) == "string_view":
        kind = "large_string"
        chunk = type(chunk).from_arrays(chunk.indices, chunk.dictionary.cast(kind))
    return chunk.cast(kind)


def _distinct(chunk: pyarrow.DictionaryArray) -> bool:
    """True if a dictionary's values can be categories of pandas: different, and none missing."""
    values = chunk.dictionary
    nulls = values.is_null(nan_is_null=True).true_count
    return not nulls and len(values.unique()) == len(values)


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
    elif pd.api.types.is_float_dtype(kind):
        array = column.to_numpy(na_value=np.nan)
        numbers = pd.Series(array, index=column.index, name=column.name)
        return _plain(numbers)  # of 16, 32 or 64 bits
    elif pd.api.types.is_integer_dtype(kind) and not column.hasnans:
        unsigned = pd.api.types.is_unsigned_integer_dtype(kind)
        return column.astype("uint64" if unsigned else "int64")
    elif isinstance(kind, pd.CategoricalDtype):  # by category: cell by cell can take minutes
        held = [*_plain(pd.Series(kind.categories)), None]
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
    if isinstance(value, decimal.Decimal):  # such as whole numbers of 128 bits from DuckDB
        whole = value.is_finite() and value == value.to_integral_value()
        return _cell(int(value)) if whole else float(value)
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
