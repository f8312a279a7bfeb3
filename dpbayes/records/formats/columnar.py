"""Reader and writer of Parquet and Feather (Arrow) files."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dpbayes.core.errors import DataError
from dpbayes.core.frames import from_arrow
from dpbayes.core.lazy import needed, pd
from dpbayes.records.chunks import Part
from dpbayes.records.formats.base import FoundParts, Reading, RecordsRead, Size
from dpbayes.records.formats.names import check_names
from dpbayes.records.formats.source import File, parsed
from dpbayes.schema import Schema

if TYPE_CHECKING:
    import pyarrow


def read_parquet(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read one Parquet file; folder names add no columns."""
    parquet = needed("pyarrow.parquet", file.where)
    with file.seekable() as stream:
        return _found(file, lambda: parquet.ParquetFile(stream).read())


def read_feather(file: File, reading: Reading, schema: Schema | None) -> RecordsRead:
    """Read a Feather or Arrow IPC file."""
    feather = needed("pyarrow.feather", file.where)
    with file.seekable() as stream:
        return _found(file, lambda: feather.read_table(stream))


def parquet_parts(file: File, reading: Reading, schema: Schema, size: Size) -> FoundParts:
    """Chunks of a Parquet file: batches of rows, or its row groups if chunks are read apart."""
    parquet = _arrow("pyarrow.parquet", file)
    with parsed(file.where), parquet.ParquetFile(file.path) as opened:
        names, groups = opened.schema_arrow.names, opened.num_row_groups
    check_names(file.where, names, "it")

    def one_after_the_other() -> Iterator[Part]:
        # Pre-buffering would hold the whole file in memory in the end.
        with parsed(file.where), parquet.ParquetFile(file.path, pre_buffer=False) as opened:
            for batch in opened.iter_batches(batch_size=size.rows):
                yield Batch(batch)

    def apart() -> Iterator[Part]:
        return (functools.partial(_row_group, file, number) for number in range(groups))

    return FoundParts(apart if size.apart else one_after_the_other, names)


def _row_group(file: File, number: int) -> Any:
    with parsed(file.where), _arrow("pyarrow.parquet", file).ParquetFile(file.path) as opened:
        return _valid(opened.read_row_group(number))


def feather_parts(file: File, reading: Reading, schema: Schema, size: Size) -> FoundParts:
    """Chunks of a Feather file: the batches that it was written in, by default of 65,536 rows."""
    with _batches(file) as opened:
        names, count = opened.schema.names, opened.num_record_batches
    check_names(file.where, names, "it")
    batches = [functools.partial(_batch, file, number) for number in range(count)]
    return FoundParts(lambda: iter(batches), names)


def _batch(file: File, number: int) -> Any:
    with _batches(file) as opened:
        return Batch(opened.get_batch(number))()


@contextlib.contextmanager
def _batches(file: File) -> Iterator[Any]:
    arrow = _arrow("pyarrow", file)
    with file.opened(), parsed(file.where), arrow.memory_map(str(file.path)) as stream:
        yield arrow.ipc.open_file(stream)


def _arrow(name: str, file: File) -> Any:
    if file.packed:
        raise DataError(f"{file.where} is packed, and cannot be read in parts. Unpack it first.")
    return needed(name, file.where)


class Batch:
    """Chunk that was read; its representation shows no values."""

    def __init__(self, batch: pyarrow.RecordBatch) -> None:
        self._batch = batch

    def __call__(self) -> pyarrow.Table:
        return _valid(needed("pyarrow", "a batch").Table.from_batches([self._batch]))


def _valid(table: Any) -> Any:
    table.validate(full=True)  # offsets of a damaged file point anywhere
    return table


def _found(file: File, read: Callable[[], Any]) -> RecordsRead:
    with parsed(file.where):
        table = _valid(read())
        check_names(file.where, table.column_names, "it")
        return RecordsRead(from_arrow(table), "")


def write_parquet(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Bytes of a data set; levels of several types become texts."""
    stream = io.BytesIO()
    needed("pyarrow.parquet", "a Parquet file").write_table(_table(frame, schema), stream)
    return stream.getvalue()


def write_feather(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Bytes of a data set; levels of several types become texts."""
    stream = io.BytesIO()
    needed("pyarrow.feather", "a Feather file").write_feather(_table(frame, schema), stream)
    return stream.getvalue()


def check_arrow(schema: Schema) -> None:
    """Raise an error unless pyarrow is installed."""
    needed("pyarrow", "a Parquet or Feather file")


def _type(level: object) -> type:
    return float if isinstance(level, int) and not isinstance(level, bool) else type(level)


def _table(frame: pd.DataFrame, schema: Schema) -> Any:
    writable = frame.copy()
    for name in writable.columns.intersection(list(schema.columns)):
        levels = schema[name].levels
        if len({_type(level) for level in levels}) > 1:  # a column of Arrow has one type
            texts = {level: str(level) for level in levels}
            writable[name] = writable[name].astype(object).map(texts)
    return needed("pyarrow", "a Parquet or Feather file").Table.from_pandas(
        writable, preserve_index=False
    )
