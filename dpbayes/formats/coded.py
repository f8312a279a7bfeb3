"""Data sets as Stata and SPSS files: levels as codes with labels, by the schema alone."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable
from typing import Any

from dpbayes.errors import OutputError
from dpbayes.heavy import needed, pd
from dpbayes.schema import Column, Schema

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STATA = 32  # characters of a name
_SPSS = 64  # bytes of a name
_LABEL = {"Stata": 32_000, "SPSS": 120}  # bytes of a value label
MEASURES = {"ordinal": "ordinal", "continuous": "scale", "count": "scale"}


def write_stata(frame: pd.DataFrame, schema: Schema) -> bytes:
    """Version 118, which Stata 14 and later read."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what pandas would change silently, check_stata refuses
        labels: dict[Any, dict[float, str]] = dict(_labels(frame, schema))
        _coded(frame, schema).to_stata(stream, write_index=False, version=118, value_labels=labels)
    return stream.getvalue()


def write_spss(frame: pd.DataFrame, schema: Schema) -> bytes:
    """``.sav``; made in memory, as nothing may be on a disk before it is paid for."""
    handle = os.memfd_create("release")
    with open(handle, "rb") as stream:
        needed("pyreadstat", "an SPSS file").write_sav(
            _coded(frame, schema),
            f"/proc/self/fd/{handle}",
            variable_value_labels=_labels(frame, schema),
            variable_measure={n: MEASURES.get(schema[n].type, "nominal") for n in map(str, frame)},
        )
        return stream.read()


def check_stata(schema: Schema) -> None:
    """Raise OutputError for names or labels that Stata does not take."""
    _check(schema, "Stata", lambda name: bool(_NAME.fullmatch(name)) and len(name) <= _STATA)


def check_spss(schema: Schema) -> None:
    """Raise OutputError for names or labels that SPSS does not take, or where none is made."""
    needed("pyreadstat", "an SPSS file")
    if not hasattr(os, "memfd_create"):
        raise OutputError(
            "SPSS files are made on Linux alone, where they need no disk before they are paid for. "
            "Take stata (--format): SPSS reads it, labels and all."
        )
    _check(schema, "SPSS", lambda name: bool(_NAME.fullmatch(name)) and len(name) <= _SPSS)


def _check(schema: Schema, title: str, fits: Callable[[str], bool]) -> None:
    for column in schema.columns.values():
        if not fits(column.name):
            raise OutputError(
                f"column {column.name!r}: {title} takes names of letters, digits and _ alone, up "
                f"to {_STATA if title == 'Stata' else _SPSS}. Rename it, or take csv (--format)."
            )
        if any(len(str(level).encode()) > _LABEL[title] for level in column.levels):
            raise OutputError(
                f"column {column.name!r}: {title} takes labels of at most {_LABEL[title]} bytes. "
                "Shorten its levels, or take csv (--format)."
            )


def _codes(column: Column) -> dict[object, int]:
    """Code of each level: the level itself if all are whole numbers, else 1, 2, ... in order."""
    whole = all(isinstance(level, int) and abs(level) < 2**31 for level in column.levels)
    return {level: int(level) if whole else at for at, level in enumerate(column.levels, 1)}


def _coded(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    coded = {}
    for name in map(str, frame):
        column, values = schema[name], frame[name]
        if column.levels:
            values = values.astype(object).map(_codes(column)).astype("int32")
        coded[name] = values
    return pd.DataFrame(coded)


def _labels(frame: pd.DataFrame, schema: Schema) -> dict[str, dict[float, str]]:
    """Those of levels that are no whole numbers."""
    found: dict[str, dict[float, str]] = {}
    for name in map(str, frame):
        codes = _codes(schema[name])
        if any(level != code or isinstance(level, bool) for level, code in codes.items()):
            found[name] = {code: str(level) for level, code in codes.items()}
    return found
