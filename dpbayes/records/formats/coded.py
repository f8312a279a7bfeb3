"""Data sets as Stata and SPSS files: levels become codes with value labels, columns have labels.

All labels come from the schema.
"""

from __future__ import annotations

import datetime
import io
import os
import warnings
from collections.abc import Callable
from typing import Any

from dpbayes.core.errors import OutputError
from dpbayes.core.lazy import needed, pd
from dpbayes.schema import Column, Schema

MOST = 2_147_483_620  # largest four-byte integer of Stata; those above are its missing values
_LABEL = {"Stata": 32_000, "SPSS": 120}  # bytes of a value label
# The same records give the same file: when it was written says when the run ended.
_EPOCH = datetime.datetime(2000, 1, 1)
_WRITTEN = slice(92, 109)  # day and time in the header of a .sav file
MEASURES = {"ordinal": "ordinal", "continuous": "scale", "count": "scale"}


def write_stata(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Bytes of a Stata file, version 118, which Stata 14 and later read."""
    stream = io.BytesIO()
    labels: dict[Any, dict[float, str]] = dict(_labels(frame, schema))
    _coded(frame, schema).to_stata(
        stream,
        write_index=False,
        version=118,
        time_stamp=_EPOCH,
        value_labels=labels,
        variable_labels=_titles(frame, schema),
    )
    return stream.getvalue()


def write_spss(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Bytes of a ``.sav`` file, built in memory: data reach the disk only once paid for."""
    handle = os.memfd_create("release")
    with open(handle, "rb") as stream:
        needed("pyreadstat", "an SPSS file").write_sav(
            _coded(frame, schema),
            f"/proc/self/fd/{handle}",
            column_labels=_titles(frame, schema),
            variable_value_labels=_labels(frame, schema),
            variable_measure={
                column.name: MEASURES.get(column.type, "nominal") for column in _of(frame, schema)
            },
        )
        content = bytearray(stream.read())
    content[_WRITTEN] = b"01 Jan 0000:00:00"
    return bytes(content)


def check_stata(schema: Schema) -> None:
    """Raise OutputError for names or labels that Stata does not take."""
    _check(schema, "Stata", write_stata)


def check_spss(schema: Schema) -> None:
    """Raise OutputError for names or labels that SPSS does not take, or off Linux."""
    needed("pyreadstat", "an SPSS file")
    if not hasattr(os, "memfd_create"):
        raise OutputError(
            "SPSS files are made on Linux alone, where they need no disk before they are paid for. "
            "Take stata: SPSS reads it, labels and all."
        )
    _check(schema, "SPSS", write_spss)


def _check(schema: Schema, title: str, write: Callable[[pd.DataFrame, Schema], bytes]) -> None:
    """Raise OutputError unless a row of public constants can be written: then any data set can."""
    home = [] if schema.unit is None else [schema.unit.numbers]
    for column in (*home, *schema.columns.values()):
        if any(len(str(level).encode()) > _LABEL[title] for level in column.levels):
            raise OutputError(
                f"column {column.name!r}: {title} takes labels of at most {_LABEL[title]} bytes. "
                "Shorten its levels, or take csv."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas warns of names that it would change
            try:
                write(column.released(column.constant(1)).to_frame(), schema)
            except Exception as error:  # from pandas or pyreadstat; only public names can cause it
                raise OutputError(
                    f"column {column.name!r} cannot be written for {title} "
                    f"({type(error).__name__}): it takes names of letters, digits and _ alone, up "
                    "to 32 of them, and no words of its own. Rename it, or take csv."
                ) from None


def _of(frame: pd.DataFrame, schema: Schema) -> list[Column]:
    """Columns of a data set."""
    return schema.released_columns(map(str, frame))


def _codes(column: Column) -> dict[object, int]:
    """Code of each level: the level itself if all are whole numbers, else 1, 2, ... in order."""
    whole = all(isinstance(level, int) and abs(level) <= MOST for level in column.levels)
    return {level: int(level) if whole else number for number, level in enumerate(column.levels, 1)}


def _coded(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Convert a data set to numbers, whose types depend on the schema alone."""
    coded = {}
    for column in _of(frame, schema):
        name, values = column.name, frame[column.name]
        kind: Any = "int32"
        if column.calendar is not None:  # text, as in other formats
            coded[name] = values.astype(object).where(values.notna(), "").astype(str)
            continue
        if column.levels:
            values = values.astype(object).map(_codes(column))
        elif column.type != "count" or column.upper is None or column.upper > MOST:
            kind = "float64"
        if column.optional:
            kind, values = "float64", values.astype("Float64")  # a type with missing values
        coded[name] = values.astype(kind)
    return pd.DataFrame(coded)


def _titles(frame: pd.DataFrame, schema: Schema) -> dict[Any, str]:
    """Labels of the columns that have one."""
    labels = {column.name: column.label for column in _of(frame, schema)}
    return {name: label for name, label in labels.items() if label is not None}


def _labels(frame: pd.DataFrame, schema: Schema) -> dict[str, dict[float, str]]:
    """Value labels by column, where levels are not their own codes."""
    labels: dict[str, dict[float, str]] = {}
    for column in _of(frame, schema):
        codes = _codes(column)
        if any(level != code or isinstance(level, bool) for level, code in codes.items()):
            labels[column.name] = {code: str(level) for level, code in codes.items()}
    return labels
