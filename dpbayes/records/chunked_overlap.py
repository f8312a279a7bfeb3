"""Identity of records that come in chunks: additive digests, and sketches of distinct elements."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.records.chunks import ChunkedTable, Chunks, InMemoryTable, Table, nothing
from dpbayes.records.fingerprint import (
    SUMS,
    cell_texts,
    content_sum,
    encoded,
    row_texts,
    sum_digest,
)
from dpbayes.records.overlap import (
    DISTINCT,
    FEWEST,
    KEPT_IN_LEDGER,
    Identity,
    Kind,
    Known,
    Sketch,
    kept_of_column,
)
from dpbayes.schema.table import Schema

Hashes = NDArray[np.uint64]
ROWS, ALL = "", "\x00"  # views of whole rows, declared columns and all; others are column names


@dataclass(frozen=True)
class ChunkSketch:
    """Sums and sketches of one chunk or several; the sum of two covers both.

    Attributes:
        sums: ``content_sum`` of the declared columns, and of all columns.
        smallest: the ``KEPT_IN_LEDGER + 1`` smallest keyed hashes of the distinct elements of each
            view, or all if there are fewer; ascending.
    """

    sums: tuple[int, int]
    smallest: Mapping[str, Hashes]

    def __add__(self, other: ChunkSketch) -> ChunkSketch:
        sums = [(a + b) % SUMS for a, b in zip(self.sums, other.sums, strict=True)]
        smallest = {
            name: _smallest(self.smallest[name], other.smallest[name]) for name in self.smallest
        }
        return ChunkSketch((sums[0], sums[1]), smallest)

    def different(self, view: str) -> int:
        """Number of distinct elements of a view: an estimate beyond ``KEPT_IN_LEDGER``.

        The k-th smallest of D uniform hashes is about k / D; the estimate of D has a standard error
        of 0.4 % (Bar-Yossef, Jayram, Kumar, Sivakumar & Trevisan, 2002).
        """
        hashes = self.smallest[view]
        if len(hashes) <= KEPT_IN_LEDGER:
            return len(hashes)
        return round((KEPT_IN_LEDGER - 1) / (float(hashes[KEPT_IN_LEDGER - 1]) / 2.0**64))

    def sketch(self, kind: Kind, view: str, kept: int) -> Sketch:
        """Sketch of the distinct elements of a view; their multiplicity is not known."""
        return Sketch(kind, self.different(view), self.smallest[view][:kept].copy())


@dataclass(frozen=True, eq=False)
class ChunkedIdentity(Identity):
    """Identity of records in chunks, from one pass over them.

    A frame of the same records has the same sums. The sketches cover distinct elements, so that an
    overlap of two tables is a share of distinct elements.
    """

    given: Chunks  # type: ignore[assignment]
    records: ChunkedTable  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Skip the conversion of the base class: chunks are not a frame."""

    def known(self, salt: str) -> Known:
        parts = self.given.once((salt, repr(self.records.schema)), lambda: self._trace(salt))
        n, views = len(self.records), sorted(self.records.schema.read)
        enough = [v for v in views if n >= FEWEST and parts.different(v) >= DISTINCT * n]
        per_column = kept_of_column(KEPT_IN_LEDGER, len(enough))
        return Known(
            (sum_digest(parts.sums[0]),),
            (sum_digest(parts.sums[1]),),
            parts.different(ALL) >= DISTINCT * n,
            n >= FEWEST and parts.different(ROWS) >= DISTINCT * n,
            not n,
            (
                parts.sketch("rows", ROWS, KEPT_IN_LEDGER),
                *(parts.sketch("column", view, per_column) for view in enough),
            ),
        )

    def _trace(self, salt: str) -> ChunkSketch:
        traced = functools.partial(_traced, self.records.schema, bytes.fromhex(salt))
        none = traced(nothing(self.records.schema))
        return functools.reduce(ChunkSketch.__add__, self.given.map(traced), none)


def identity_of(table: Table) -> Identity:
    """Identity of validated records, by which the ledger recognises them."""
    if isinstance(table, ChunkedTable):
        return ChunkedIdentity(table.original, table)
    assert isinstance(table, InMemoryTable)
    declared = table.frame[list(table.schema.read)]  # the numbers of households follow the rows
    records = with_days(table.schema, declared)
    return Identity(table.original, records, declared, _units(table, records))


def _units(table: InMemoryTable, records: pd.DataFrame) -> list[pd.DataFrame]:
    """Tables of households and persons, who may have several of the records."""
    tables = []
    for persons in table.schema.persons:
        names = persons.names(as_frame(table.original).reset_index(drop=True))[1]
        rows = records.iloc[names.index]
        codes = pd.DataFrame({name: pd.factorize(rows[name])[0] for name in rows})
        groups = codes.groupby(pd.factorize(names)[0], sort=False)
        if groups.ngroups < len(rows):
            agree = groups.nunique().max() == 1
            if agree.any():
                tables.append(rows.loc[~names.duplicated().to_numpy(), agree[agree].index])
    return tables


def with_days(schema: Schema, records: pd.DataFrame) -> pd.DataFrame:
    """Validated records with days and moments as ISO texts.

    So they are the same whether a schema declares a column as days, as moments in any step, or as
    levels in ISO form.
    """
    written = {}
    for name, column in schema.columns.items():
        if column.calendar is not None:
            codes, steps = pd.factorize(records[name])
            texts = np.array([*map(column.calendar.iso, steps), None], dtype=object)
            written[name] = texts[codes]
    return records.assign(**written)


def _traced(schema: Schema, key: bytes, part: pd.DataFrame) -> ChunkSketch:
    """Sums and sketches of one chunk."""
    declared = with_days(schema, schema.typed(part)[list(schema.read)])
    columns = sorted(declared.columns)
    rows = ["\x1f".join(("\x1f".join(columns), text)) for text in row_texts(declared)[1]]
    views = {name: cell_texts(declared[name]) for name in columns}
    elements = {ROWS: rows, ALL: row_texts(part)[1], **views}
    smallest = {view: _hashed(key, texts) for view, texts in elements.items()}
    return ChunkSketch((content_sum(declared), content_sum(part)), smallest)


def _hashed(key: bytes, texts: list[str]) -> Hashes:
    """Smallest keyed hashes of distinct elements, hashed as first occurrences in ``Sketch.of``."""
    keyed = (hmac.digest(key, encoded(f"{text}\x1d0"), "sha256")[:8] for text in set(texts))
    return _smallest(np.frombuffer(b"".join(keyed), "<u8").astype(np.uint64))


def _smallest(*hashes: Hashes) -> Hashes:
    return np.unique(np.concatenate(hashes))[: KEPT_IN_LEDGER + 1]
