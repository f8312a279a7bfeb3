"""Records in chunks, of which one at a time is in memory, and tables in memory or in chunks.

Statistics of a table are counts, added up over its chunks. Sums of whole numbers do not depend on
the division into chunks or on their order, so that a release does not depend on them either.
"""

from __future__ import annotations

import functools
import random
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.frames import Frame, as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.clusters import Cluster
from dpbayes.schema.columns import absent
from dpbayes.schema.refusals import Refusal, joined
from dpbayes.schema.table import NO_ROWS, Schema

T = TypeVar("T")
Part = Callable[[], Frame]  # reads a chunk
# Applies a function to each chunk and its further arguments; results are in the chunks' order.
Apply = Callable[[Callable[..., T], Iterator[Part], Sequence[Iterable[object]]], Iterator[T]]


def here(
    work: Callable[..., T], parts: Iterator[Part], beside: Sequence[Iterable[object]]
) -> Iterator[T]:
    """Apply a function to one chunk after the other, in this process."""
    return map(work, parts, *beside)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Records in chunks, which are read anew in each pass. Confidential.

    Attributes:
        read: starts a pass and yields a reader of each chunk; all chunks have the same columns, and
            rows come in the same order in each pass.
        apply: applies a function to every chunk, in this process or on a cluster.

    Examples:
        >>> import dpbayes as dpb
        >>> import pandas as pd
        >>> frames = [pd.DataFrame({"age": [34, 51, 29]}), pd.DataFrame({"age": [62, 40]})]
        >>> chunks = dpb.Chunks.of(lambda: frames)
        >>> list(chunks.map(len))
        [3, 2]
    """

    read: Callable[[], Iterator[Part]]
    apply: Apply[Any] = here
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)  # results of earlier passes

    @classmethod
    def of(cls, frames: Callable[[], Iterable[Frame]]) -> Chunks:
        """Chunks from frames of pandas, polars or pyarrow.

        Args:
            frames: function that gives the same frames whenever it is called.
        """
        return cls(functools.partial(_held, frames))

    def map(self, work: Callable[..., T], *beside: Iterable[object]) -> Iterator[T]:
        """Apply ``work`` to every chunk, a plain frame, and to its item of each ``beside``."""
        return self.apply(functools.partial(_worked, work), self.read(), beside)

    def checked(self, schema: Schema, *, show_values: bool = False) -> ChunkedTable:
        """Check the records against a schema in one pass; a second call needs no pass.

        Raises:
            DataError: as ``Schema.validate`` of all chunks together, with the same message.
        """
        return self.once(repr(schema), lambda: self._checked(schema, show_values))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Result of ``make``, a pass over the records, cached under ``key``."""
        if key not in self._known:
            self._known[key] = make()
        result: T = self._known[key]
        return result

    def _checked(self, schema: Schema, show_values: bool) -> ChunkedTable:
        looks = list(self.map(functools.partial(_look, schema, show_values)))
        sizes = [look.rows for look in looks]
        refused = [look.refusal for look in looks if look.refusal is not None]
        if refused:
            rows: Counter[str] = Counter()
            for look in looks:
                rows.update(look.there)
            raise joined(refused, rows, sum(sizes))
        if not sum(sizes) and schema.rows.public:
            raise DataError(NO_ROWS)
        public = [look.public for look in looks if look.public is not None]
        public = public or [nothing(schema)[public_names(schema)]]
        return ChunkedTable(schema, pd.concat(public, ignore_index=True), self, tuple(sizes))

    def check_persons(self, persons: Cluster) -> None:
        """Check as ``Cluster.check``, with keyed hashes of identifiers on the disk."""
        hashed = functools.partial(persons.hashed, secrets.token_bytes(32))
        self.once(persons, lambda: persons.check_chunks(self.map(hashed)))


class Table(ABC):
    """Validated records. Confidential.

    Attributes:
        schema: the schema that the records fit.
        public: the public columns, shape (n, public columns); always in memory.
        original: the records as they were read, undeclared columns included, by which the ledger
            recognises them.
    """

    schema: Schema
    public: pd.DataFrame
    original: pd.DataFrame | Chunks

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """All records, shape (n, columns). Raises DataError if they come in chunks."""

    @abstractmethod
    def map(self, work: Callable[..., T], *beside: Iterable[object]) -> Iterator[T]:
        """Apply ``work`` to every chunk, a validated frame, and to its item of each ``beside``."""

    @abstractmethod
    def sample(self, most: int) -> pd.DataFrame:
        """All records; ``most`` of them at random if they come in chunks."""


@dataclass(frozen=True, eq=False)
class InMemoryTable(Table):
    """A table in memory."""

    schema: Schema
    records: pd.DataFrame
    original: pd.DataFrame

    def __len__(self) -> int:
        return self.schema.units(self.records)

    @property
    def public(self) -> pd.DataFrame:  # type: ignore[override]
        return self.records[public_names(self.schema)]

    @property
    def frame(self) -> pd.DataFrame:
        return self.records

    def map(self, work: Callable[..., T], *beside: Iterable[object]) -> Iterator[T]:
        return map(work, [self.records], *beside)

    def sample(self, most: int) -> pd.DataFrame:
        return self.records


@dataclass(frozen=True, eq=False)
class ChunkedTable(Table):
    """A table that is read in chunks.

    Attributes:
        original: the chunks, not validated.
        sizes: number of records of each chunk.
    """

    schema: Schema
    public: pd.DataFrame
    original: Chunks
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def frame(self) -> pd.DataFrame:
        raise DataError(IN_PARTS)

    def map(self, work: Callable[..., T], *beside: Iterable[object]) -> Iterator[T]:
        typed = functools.partial(_typed, self.schema, work)
        sizes = []
        for size, result in self.original.map(typed, *beside):
            sizes.append(size)
            yield result
        if tuple(sizes) != self.sizes:
            raise DataError(CHANGED)
        if not sizes:  # the number of records may be private: an empty table must not fail
            yield work(nothing(self.schema), *([] for _ in beside))

    def sample(self, most: int) -> pd.DataFrame:
        n = len(self)
        rows = np.sort(random.Random(0).sample(range(n), min(most, n)))
        ends = np.cumsum(self.sizes)
        inside = np.split(rows, np.searchsorted(rows, ends[:-1]))
        starts = ends - np.asarray(self.sizes)
        places = [part - start for part, start in zip(inside, starts, strict=False)]
        return pd.concat(list(self.map(_rows, places)), ignore_index=True)


def nothing(schema: Schema) -> pd.DataFrame:
    """Validated table without records."""
    home = [] if schema.unit is None else [schema.unit.id]
    return schema.typed(pd.DataFrame(columns=[*schema.read, *home], dtype=object))


def public_names(schema: Schema) -> list[str]:
    """Names of the public columns, which are released unchanged."""
    return [name for name, column in schema.columns.items() if column.public]


def table_of(schema: Schema, records: Frame | Chunks, *, show_values: bool = False) -> Table:
    """Validate records, in a frame or in chunks, and return them as a table.

    Raises:
        DataError: as ``Schema.validate`` and ``Schema.check_identifiers``.
    """
    if isinstance(records, Chunks):
        table = records.checked(schema, show_values=show_values)
        for persons in schema.persons:
            records.check_persons(persons)
        return table
    frame = as_frame(records)
    validated = schema.validate(frame, show_values=show_values)
    schema.check_identifiers(frame)
    return InMemoryTable(schema, validated, frame)


@dataclass(frozen=True)
class _Look:
    """Result of the first pass for a chunk.

    Attributes:
        rows: number of rows.
        public: the public columns.
        refusal: the error, if the rows do not fit the schema.
        there: number of values that are not missing, by column that may have missing values.
    """

    rows: int
    public: pd.DataFrame | None = None
    refusal: Refusal | None = None
    there: Mapping[str, int] = field(default_factory=dict)


def _look(schema: Schema, show_values: bool, frame: pd.DataFrame) -> _Look:
    try:
        typed = schema.typed(frame, show_values=show_values)
    except Refusal as refusal:
        columns = [column for column in schema.columns.values() if column.optional]
        present = {c.name: int((~absent(frame[c.name], c)).sum()) for c in columns}
        return _Look(len(frame), refusal=refusal, there=present)
    optional = [name for name, column in schema.columns.items() if column.optional]
    present = {name: int(typed[name].notna().sum()) for name in optional}
    return _Look(len(frame), typed[public_names(schema)], there=present)


def _typed(
    schema: Schema, work: Callable[..., T], frame: pd.DataFrame, *beside: Any
) -> tuple[int, T]:
    return len(frame), work(schema.typed(frame), *beside)


def _rows(frame: pd.DataFrame, places: Any) -> pd.DataFrame:
    selected: pd.DataFrame = frame.iloc[places]
    return selected


def _worked(work: Callable[..., T], part: Part, *beside: Any) -> T:
    return work(as_frame(part()), *beside)


def _held(frames: Callable[[], Iterable[Frame]]) -> Iterator[Part]:
    return (functools.partial(_itself, frame) for frame in frames())


def _itself(frame: Any) -> Any:
    return frame


CHANGED = "the records changed while they were read; leave them alone until the release is written."
IN_PARTS = (
    "this needs all records in memory, and they come in parts: only mechanism marginals "
    "counts parts. Read them whole: by dpbayes.read_records, without `chunk_rows` and `scheduler`."
)
