"""Hashes of data: to know records and inputs again without keeping them."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.schema.values import level_text

SUMS = 2**512


def content_digest(records: pd.DataFrame) -> bytes:
    """SHA-256 of a table's content, whatever the order of its rows and columns.

    Numbers count by value, so that text "1.50" read from a file and the number 1.5 are one. It is
    confidential: whoever can guess the whole table can check the guess.
    """
    names, rows = row_texts(records)
    digest = hashlib.sha256(names)
    for row in sorted(rows):
        digest.update(b"\x1e" + row.encode())
    return digest.digest()


def content_sum(records: pd.DataFrame) -> int:
    """A hash of a table's content that adds up, modulo ``SUMS``, over the parts of the table.

    The sum of the hashes of its rows: an incremental multiset hash (Clarke, Devadas, van Dijk,
    Gassend & Suh, 2003). As confidential as ``content_digest``.
    """
    names, rows = row_texts(records)
    start = hashlib.sha512(names)
    found = 0
    for row in rows:
        digest = start.copy()
        digest.update(b"\x1e" + row.encode())
        found += int.from_bytes(digest.digest())
    return found % SUMS


def sum_digest(found: int) -> bytes:
    """A ``content_sum`` as bytes, told from digests."""
    return hashlib.sha256(b"sum" + found.to_bytes(64)).digest()


def row_texts(records: pd.DataFrame) -> tuple[bytes, list[str]]:
    """The sorted names of the columns, and a text for each row."""
    names = sorted(map(str, records.columns))
    table = records.set_axis(list(map(str, records.columns)), axis="columns")
    cells = [cell_texts(table[name]) for name in names]
    return json.dumps(names).encode(), ["\x1f".join(row) for row in zip(*cells, strict=True)]


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


def cell_texts(column: pd.Series) -> list[str]:
    """One text per cell: numbers and booleans by value, all else as it is written."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iubf":
        numbers = column.to_numpy(dtype=float)
        return ["" if math.isnan(x) else repr(x) for x in numbers.tolist()]
    # Each value once; those of different types that are equal are written alike.
    codes, values = pd.factorize(column)
    written = pd.Series([level_text(value) for value in values], dtype=object)
    known = pd.to_numeric(written, errors="coerce").astype(float).tolist()
    texts = [
        text if math.isnan(x) else repr(x) for text, x in zip(written.tolist(), known, strict=True)
    ]
    return [texts[code] if code >= 0 else "" for code in codes.tolist()]
