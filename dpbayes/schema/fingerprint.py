"""Hashes of data: to know records and inputs again without keeping them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbayes.heavy import pd
from dpbayes.schema.values import level_text


def content_digest(records: pd.DataFrame) -> bytes:
    """SHA-256 of a table's content, whatever the order of its rows and columns.

    Numbers count by value, so that text "1.50" read from a file and the number 1.5 are one. It is
    confidential: whoever can guess the whole table can check the guess.
    """
    names = sorted(map(str, records.columns))
    table = records.set_axis(list(map(str, records.columns)), axis="columns")
    digest = hashlib.sha256(json.dumps(names).encode())
    cells = [cell_texts(table[name]) for name in names]
    for row in sorted("\x1f".join(row) for row in zip(*cells, strict=True)):
        digest.update(b"\x1e" + row.encode())
    return digest.digest()


def salted(salt: str, digest: bytes) -> str:
    """The digest as an outsider without the salt cannot recompute it: HMAC-SHA-256, hex."""
    return hmac.new(bytes.fromhex(salt), digest, hashlib.sha256).hexdigest()


def hash_of(*parts: Any) -> str:
    """SHA-256 of JSON values, hex."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def data_hash(data: Mapping[str, Any]) -> str:
    """SHA-256 of a program's data, hex."""
    digest = hashlib.sha256()
    for key in sorted(data):
        array = np.ascontiguousarray(data[key])
        digest.update(repr((key, array.shape, array.dtype.str)).encode() + array.tobytes())
    return digest.hexdigest()


def cell_texts(column: pd.Series) -> pd.Series:
    """One text per cell: numbers and booleans by value, all else as it is written."""
    cells = zip(column.tolist(), column.isna().tolist(), strict=True)
    written = ["" if missing else level_text(value) for value, missing in cells]
    texts = pd.Series(written, dtype=object)
    numbers = pd.to_numeric(texts, errors="coerce").astype(float)
    by_value = pd.Series([repr(number) for number in numbers.tolist()], dtype=object)
    return texts.where(numbers.isna(), by_value)
