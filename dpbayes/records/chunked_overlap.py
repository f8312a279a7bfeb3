"""Whose records come in parts: digests that add up, and sketches of what is different."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.lazy import pd
from dpbayes.records.chunks import ChunkedTable, Chunks, Table, nothing
from dpbayes.records.fingerprint import SUMS, cell_texts, content_sum, row_texts, sum_digest
from dpbayes.records.overlap import DISTINCT, FEWEST, KEPT, Identity, Kind, Known, Sketch
from dpbayes.schema.table import Schema

Hashes = NDArray[np.uint64]
ROWS, ALL = "", "\x00"  # whole rows, of the declared columns and of all, beside names of columns


@dataclass(frozen=True)
class ChunkSketch:
    """What is known of a part, or of several.

    Attributes:
        sums: ``content_sum`` of the declared columns, and of all.
        smallest: of the different elements of each view, the ``KEPT`` smallest keyed hashes,
            ascending, and one more where there are more.
    """

    sums: tuple[int, int]
    smallest: Mapping[str, Hashes]

    def __add__(self, other: ChunkSketch) -> ChunkSketch:
        sums = [(a + b) % SUMS for a, b in zip(self.sums, other.sums, strict=True)]
        both = {
            name: _smallest(self.smallest[name], other.smallest[name]) for name in self.smallest
        }
        return ChunkSketch((sums[0], sums[1]), both)

    def different(self, view: str) -> int:
        """How many different elements a view has: exact up to ``KEPT``, beyond an estimate.

        Of uniform hashes the k-th smallest is about k over their number; its estimate has a
        standard error of 1.6 % (Bar-Yossef, Jayram, Kumar, Sivakumar & Trevisan, 2002).
        """
        hashes = self.smallest[view]
        if len(hashes) <= KEPT:
            return len(hashes)
        return round((KEPT - 1) / (float(hashes[KEPT - 1]) / 2.0**64))

    def sketch(self, kind: Kind, view: str) -> Sketch:
        """As ``Sketch.of``, of different elements: how often each came is not known."""
        return Sketch(kind, self.different(view), self.smallest[view][:KEPT].copy())


@dataclass(frozen=True, eq=False)
class ChunkedIdentity(Identity):
    """What records in parts are known by, from one pass over them.

    A frame of the same records has the same sums. Sketches are of different elements: what two
    tables share is then a share of those.
    """

    given: Chunks  # type: ignore[assignment]
    records: ChunkedTable  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """It is no frame."""

    def known(self, salt: str) -> Known:
        parts = self.given.once((salt, repr(self.records.schema)), lambda: self._trace(salt))
        n, views = len(self.records), sorted(self.records.schema.columns)
        enough = [v for v in views if n >= FEWEST and parts.different(v) >= DISTINCT * n]
        return Known(
            (sum_digest(parts.sums[0]),),
            (sum_digest(parts.sums[1]),),
            parts.different(ALL) >= DISTINCT * n,
            not n,
            (parts.sketch("rows", ROWS), *(parts.sketch("column", view) for view in enough)),
        )

    def _trace(self, salt: str) -> ChunkSketch:
        traced = functools.partial(_traced, self.records.schema, bytes.fromhex(salt))
        none = traced(nothing(self.records.schema))
        return functools.reduce(ChunkSketch.__add__, self.given.map(traced), none)


def identity_of(given: pd.DataFrame | Chunks, table: Table) -> Identity:
    """Of records as they were given, and validated."""
    if isinstance(given, Chunks):
        assert isinstance(table, ChunkedTable)
        return ChunkedIdentity(given, table)
    return Identity(given, table.frame)


def _traced(schema: Schema, key: bytes, given: pd.DataFrame) -> ChunkSketch:
    """Of one part."""
    declared = schema.typed(given)
    columns = sorted(declared.columns)
    rows = ["\x1f".join(("\x1f".join(columns), text)) for text in row_texts(declared)[1]]
    views = {name: cell_texts(declared[name]) for name in columns}
    elements = {ROWS: rows, ALL: row_texts(given)[1], **views}
    smallest = {view: _hashed(key, texts) for view, texts in elements.items()}
    return ChunkSketch((content_sum(declared), content_sum(given)), smallest)


def _hashed(key: bytes, texts: list[str]) -> Hashes:
    """Of different elements, as ``Sketch.of`` hashes what has not come before."""
    keyed = (hmac.digest(key, f"{text}\x1d0".encode(), "sha256")[:8] for text in set(texts))
    return _smallest(np.frombuffer(b"".join(keyed), "<u8").astype(np.uint64))


def _smallest(*some: Hashes) -> Hashes:
    return np.unique(np.concatenate(some))[: KEPT + 1]
