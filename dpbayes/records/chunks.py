"""Records in parts, of which one at a time is in memory, and tables whether they come in parts.

What is counted of a table is counted of each part and added up. Whole numbers add up to the same
in any parts and any order, so that a release follows from no part of this.
"""

from __future__ import annotations

import functools
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dpbayes.core.errors import DataError
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.clusters import Cluster, Tally
from dpbayes.schema.refusals import Refusal, joined
from dpbayes.schema.table import NO_ROWS, Schema
from dpbayes.schema.values import absent

T = TypeVar("T")
Part = Callable[[], Any]  # reads it; a frame as ``as_frame`` takes
# A function of a part and of what goes with it: its results, in the order of the parts.
Apply = Callable[[Callable[..., T], Iterator[Part], Sequence[Iterable[Any]]], Iterator[T]]


def here(work: Callable[..., T], parts: Iterator[Part], beside: Sequence[Iterable[Any]]) -> Any:
    """Apply a function to one part after the other, in this process."""
    return map(work, parts, *beside)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Records that are read in parts, anew whenever they are asked for. Confidential.

    Attributes:
        read: starts from the beginning, and gives what reads each part: rows with the columns that
            all parts have, in the same order each time.
        apply: a function to every part, here or on a cluster.
    """

    read: Callable[[], Iterator[Part]]
    apply: Apply[Any] = here
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)  # of earlier passes

    @classmethod
    def of(cls, frames: Callable[[], Iterable[Any]]) -> Chunks:
        """Of frames of pandas, polars or pyarrow.

        Args:
            frames: gives them, the same ones whenever it is called.
        """
        return cls(functools.partial(_held, frames))

    def map(self, work: Callable[..., T], *beside: Iterable[Any]) -> Iterator[T]:
        """``work`` of every part, a plain frame, and of what is ``beside`` it."""
        return self.apply(functools.partial(_worked, work), self.read(), beside)

    def checked(self, schema: Schema, *, show_values: bool = False) -> ChunkedTable:
        """The same records, found to be what a schema says: one pass, and none the second time.

        Raises:
            DataError: as ``Schema.validate`` of all parts together, with the same message.
        """
        return self.once(repr(schema), lambda: self._checked(schema, show_values))

    def once(self, what: Any, make: Callable[[], T]) -> T:
        """What takes a pass over the records; kept for the next time."""
        if what not in self._known:
            self._known[what] = make()
        found: T = self._known[what]
        return found

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
        found = [look.public for look in looks if look.public is not None]
        every = found or [nothing(schema)[public_names(schema)]]
        return ChunkedTable(schema, pd.concat(every, ignore_index=True), self, tuple(sizes))

    def check_cluster(self, cluster: Cluster) -> None:
        """As ``Cluster.check``, with the persons on the disk, as hashes whose key is nowhere."""
        self.once(cluster, lambda: self._counted(cluster))

    def _counted(self, cluster: Cluster) -> None:
        with Tally() as tally:
            nameless = 0
            for nobody, hashes in self.map(functools.partial(cluster.hashed, tally.key)):
                nameless += nobody
                tally.add(hashes)
            cluster.refuse(nameless, tally.above(cluster.most))


class Table(ABC):
    """Validated records. Confidential.

    Attributes:
        schema: which they fit.
        public: the public columns, shape (n, of them); always in memory.
    """

    schema: Schema
    public: pd.DataFrame

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """All of them, shape (n, columns). DataError where they come in parts."""

    @abstractmethod
    def map(self, work: Callable[..., T], *beside: Iterable[Any]) -> Iterator[T]:
        """``work`` of every part, a validated frame, and of what is ``beside`` it."""

    @abstractmethod
    def sample(self, most: int) -> pd.DataFrame:
        """All records, or ``most`` of them at random where they come in parts."""


@dataclass(frozen=True, eq=False)
class InMemoryTable(Table):
    """A table in memory."""

    schema: Schema
    records: pd.DataFrame

    def __len__(self) -> int:
        return len(self.records)

    @property
    def public(self) -> pd.DataFrame:  # type: ignore[override]
        return self.records[public_names(self.schema)]

    @property
    def frame(self) -> pd.DataFrame:
        return self.records

    def map(self, work: Callable[..., T], *beside: Iterable[Any]) -> Iterator[T]:
        return map(work, [self.records], *beside)

    def sample(self, most: int) -> pd.DataFrame:
        return self.records


@dataclass(frozen=True, eq=False)
class ChunkedTable(Table):
    """A table that is read in parts.

    Attributes:
        parts: as they were given.
        sizes: records of each.
    """

    schema: Schema
    public: pd.DataFrame
    parts: Chunks
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def frame(self) -> pd.DataFrame:
        raise DataError(IN_PARTS)

    def map(self, work: Callable[..., T], *beside: Iterable[Any]) -> Iterator[T]:
        typed = functools.partial(_typed, self.schema, work)
        sizes = []
        for size, found in self.parts.map(typed, *beside):
            sizes.append(size)
            yield found
        if tuple(sizes) != self.sizes:
            raise DataError(CHANGED)
        if not sizes:  # whether there is a record may be private: nothing fails for want of one
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
    """No validated record."""
    return schema.typed(pd.DataFrame(columns=list(schema.columns), dtype=object))


def public_names(schema: Schema) -> list[str]:
    """Columns that are released as they are."""
    return [name for name, column in schema.columns.items() if column.public]


def plain(records: Any) -> pd.DataFrame | Chunks:
    """Records as they are given to a synthesis: parts, or a frame as of ``as_frame``."""
    return records if isinstance(records, Chunks) else as_frame(records)


def table_of(schema: Schema, records: Any, *, show_values: bool = False) -> Table:
    """Records that a schema allows, in a frame or in parts, as a table.

    Raises:
        DataError: as ``Schema.validate``.
    """
    if isinstance(records, Chunks):
        return records.checked(schema, show_values=show_values)
    return InMemoryTable(schema, schema.validate(records, show_values=show_values))


def check_cluster(schema: Schema, records: Any) -> None:
    """As ``Schema.check_cluster``, of a frame or of parts."""
    if isinstance(records, Chunks) and schema.cluster is not None:
        records.check_cluster(schema.cluster)
    elif not isinstance(records, Chunks):
        schema.check_cluster(records)


@dataclass(frozen=True)
class _Look:
    """What the first pass finds in a part.

    Attributes:
        rows: of it.
        public: its public columns.
        refusal: what is wrong with it.
        there: values of columns that may have none.
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
        there = {c.name: int((~absent(frame[c.name], c)).sum()) for c in columns}
        return _Look(len(frame), refusal=refusal, there=there)
    optional = [name for name, column in schema.columns.items() if column.optional]
    there = {name: int(typed[name].notna().sum()) for name in optional}
    return _Look(len(frame), typed[public_names(schema)], there=there)


def _typed(
    schema: Schema, work: Callable[..., T], frame: pd.DataFrame, *beside: Any
) -> tuple[int, T]:
    return len(frame), work(schema.typed(frame), *beside)


def _rows(frame: pd.DataFrame, places: Any) -> pd.DataFrame:
    found: pd.DataFrame = frame.iloc[places]
    return found


def _worked(work: Callable[..., T], part: Part, *beside: Any) -> T:
    return work(as_frame(part()), *beside)


def _held(frames: Callable[[], Iterable[Any]]) -> Iterator[Part]:
    return (functools.partial(_itself, frame) for frame in frames())


def _itself(frame: Any) -> Any:
    return frame


CHANGED = "the records changed while they were read; leave them alone until the release is written."
IN_PARTS = (
    "this needs all records in memory, and they come in parts: of the mechanisms measured alone "
    "counts parts. Read them by dpbayes.read_records (at the command line: leave --chunk-rows and "
    "--scheduler out)."
)
