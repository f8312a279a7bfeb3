"""Parquet and Feather (Arrow) files."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from dpbayes.formats.base import Found, Reading
from dpbayes.formats.names import check_names
from dpbayes.formats.source import File, parsed
from dpbayes.heavy import needed, pd
from dpbayes.schema import Schema
from dpbayes.schema.frames import from_arrow


def read_parquet(file: File, how: Reading, schema: Schema | None) -> Found:
    """One file; nothing is taken from the names of its folders."""
    parquet = needed("pyarrow.parquet", file.where)
    with file.seekable() as stream:
        return _found(file, lambda: parquet.ParquetFile(stream).read())


def read_feather(file: File, how: Reading, schema: Schema | None) -> Found:
    """Feather and Arrow files (IPC)."""
    feather = needed("pyarrow.feather", file.where)
    with file.seekable() as stream:
        return _found(file, lambda: feather.read_table(stream))


def _found(file: File, read: Callable[[], Any]) -> Found:
    with parsed(file.where):
        table = read()
        table.validate(full=True)  # offsets of a damaged file point anywhere
        check_names(file.where, table.column_names, "it")
        return Found(from_arrow(table), "")


def write_parquet(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Levels as dictionaries of the declared ones."""
    stream = io.BytesIO()
    needed("pyarrow.parquet", "a Parquet file").write_table(_table(frame), stream)
    return stream.getvalue()


def write_feather(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Levels as dictionaries of the declared ones."""
    stream = io.BytesIO()
    needed("pyarrow.feather", "a Feather file").write_feather(_table(frame), stream)
    return stream.getvalue()


def check_arrow(schema: Schema) -> None:
    """pyarrow is there."""
    needed("pyarrow", "a Parquet or Feather file")


def _table(frame: pd.DataFrame) -> Any:
    alike = frame.copy()
    for name in alike:
        if isinstance(alike[name].dtype, pd.CategoricalDtype):
            levels = alike[name].cat.categories
            if len({isinstance(level, str) for level in levels}) > 1:  # Arrow has one type
                alike[name] = alike[name].cat.rename_categories(list(map(str, levels)))
    return needed("pyarrow", "a Parquet or Feather file").Table.from_pandas(
        alike, preserve_index=False
    )
