"""Hashes of data, to recognise records and inputs without keeping them."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpbayes.core.lazy import pd
from dpbayes.schema.values import level_text, numbers_in

SUMS = 2**512  # modulus: sums of SHA-512 hashes stay in 64 bytes


def content_digest(records: pd.DataFrame) -> bytes:
    """SHA-256 of a table's content, whatever the order of its rows and columns.

    Numbers count by value, so that the text "1.50" of a file and the number 1.5 are the same. The
    digest is confidential: whoever can guess the whole table can check the guess.
    """
    names, rows = row_texts(records)
    digest = hashlib.sha256(names)
    for row in sorted(rows):
        digest.update(b"\x1e" + encoded(row))
    return digest.digest()


def content_sum(records: pd.DataFrame) -> int:
    """Additive hash of a table's content: chunks of a table add up to the table, modulo ``SUMS``.

    It is the sum of the hashes of the rows, an incremental multiset hash (Clarke, Devadas, van
    Dijk, Gassend & Suh, 2003), and as confidential as ``content_digest``.
    """
    names, rows = row_texts(records)
    start = hashlib.sha512(names)
    total = 0
    for row in rows:
        digest = start.copy()
        digest.update(b"\x1e" + encoded(row))
        total += int.from_bytes(digest.digest())
    return total % SUMS


def sum_digest(total: int) -> bytes:
    """SHA-256 of a ``content_sum``, with a prefix that separates it from other digests."""
    return hashlib.sha256(b"sum" + total.to_bytes(64)).digest()


def row_texts(records: pd.DataFrame) -> tuple[bytes, list[str]]:
    """Sorted names of the columns as JSON, and a text for each row."""
    names = sorted(map(str, records.columns))
    table = records.set_axis(list(map(str, records.columns)), axis="columns")
    cells = [cell_texts(table[name]) for name in names]
    return json.dumps(names).encode(), ["\x1f".join(row) for row in zip(*cells, strict=True)]


def encoded(text: str) -> bytes:
    """Encode any text of Python, such as half of an emoji that was cut, which UTF-8 refuses."""
    return text.encode("utf-8", "surrogatepass")


def salted(salt: str, digest: bytes) -> str:
    """HMAC-SHA-256 of a digest, hex: nobody can recompute it without the salt."""
    return hmac.new(bytes.fromhex(salt), digest, hashlib.sha256).hexdigest()


def hash_of(*parts: object) -> str:
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
    """Text of each cell: numbers and booleans by value, all other values as written."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iubf":
        numbers = column.to_numpy(dtype=float)
        return ["" if math.isnan(x) else repr(x) for x in numbers.tolist()]
    # Convert each distinct value once: equal values of different types have the same text.
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and the like have no hash
        codes, values = pd.factorize(pd.Series(list(map(_hashable, column)), dtype=object))
    written = pd.Series([level_text(value) for value in values], dtype=object)
    known = numbers_in(written).tolist()
    texts = [
        text if math.isnan(x) else repr(x) for text, x in zip(written.tolist(), known, strict=True)
    ]
    return [texts[code] if code >= 0 else "" for code in codes.tolist()]


def _hashable(value: object) -> object:
    """The value, or a text in its place if it is a list or the like, which has no hash."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
