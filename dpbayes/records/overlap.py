"""Share of records that two tables have in common, from keyed hashes: no record is kept.

Tables are compared in several views. One is the rows over all declared columns. The others are
single columns that tell records apart (an income, a date of birth): they recognise a table that has
gained or lost a column, or in which a column was renamed or recoded. A ledger also compares small
sets of columns that together tell records apart, and the shapes of rows, which do not change if all
columns are rescaled, rounded, renamed or recoded.
"""

from __future__ import annotations

import base64
import hmac
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.records.column_sets import hashed_sets
from dpbayes.records.fingerprint import cell_texts, content_digest, content_sum, encoded, sum_digest
from dpbayes.records.repeated import LEAST_LEFT, seldom_texts, without_repeated
from dpbayes.records.shapes import shapes
from dpbayes.schema.values import numbers_in

Kind = Literal["rows", "column", "set", "shape"]
SHARE = 0.5  # share of common records from which two tables count as the same data
KEPT = 4096  # hashes of a sketch: overlaps are exact up to so many rows, estimates beyond
# In a ledger: 0.5 MB for rows, and 2 MB for all columns. A small table inside a large one is
# recognised only by those of its hashes that the large one has kept, too.
KEPT_IN_LEDGER = 65_536
KEPT_OF_COLUMNS = 4 * KEPT_IN_LEDGER
KEPT_OF_SHAPES = 512  # fewer, as there are many views; a share has a standard error of 2 to 4 %
# A view tells records apart if it has at least so many distinct elements per record. Elements of
# other persons then rarely coincide: n records take about n (1 - n / 2D) of D equally likely
# elements, and another person's element is among them with probability n / D.
DISTINCT = 0.9
SURE = 3.0  # standard errors by which a share of a set's rows has to exceed what may be chance
NEAR = 0.01  # relative difference up to which steps between values are equal
FEWEST = 30  # records, below which a column tells them apart only if all its values differ


@dataclass(frozen=True, eq=False)
class Identity:
    """Records of a table from which its digests and sketches are computed. Confidential.

    Attributes:
        given: the table as it was read, undeclared columns included.
        records: the validated table, declared columns only; a ledger has days in it as ISO texts
            (``chunked_overlap.identity_of``).
        ranked: the same with days as numbers, by which shapes rank them.
        units: tables with a row for each household or person, of the columns in which all their
            records agree: such a table may come by itself.
    """

    given: pd.DataFrame
    records: pd.DataFrame
    ranked: pd.DataFrame | None = None
    units: Sequence[pd.DataFrame] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", as_frame(self.given))

    @cached_property
    def digest(self) -> bytes:
        """Digest of the declared columns; orders and spellings do not matter."""
        return content_digest(self.records)

    def known(self, salt: str) -> Known:
        """Digests and sketches under a key of the owner.

        Args:
            salt: the key, hex.
        """
        ranked = self.records if self.ranked is None else self.ranked
        return Known(
            (self.digest, sum_digest(content_sum(self.records))),
            (content_digest(self.given), sum_digest(content_sum(self.given))),
            tells_apart(self.given),
            len(self.records) >= FEWEST and tells_apart(self.records),
            self.records.empty,
            (
                *sketches(self.records, salt, KEPT_IN_LEDGER),
                *(
                    sketch
                    for units in self.units
                    for sketch in sketches(units, salt, KEPT_IN_LEDGER)
                    if len(units) >= FEWEST and (sketch.kind == "column" or tells_apart(units))
                ),
                *(sketch for table in _both(self.records) for sketch in _set_sketches(table, salt)),
                *(sketch for table in _both(ranked) for sketch in _shape_sketches(table, salt)),
            ),
        )


@dataclass(frozen=True, eq=False)
class Known:
    """Digests and sketches of a table.

    Attributes:
        declared, given: digests of the declared columns, and of all columns. A table shares at
            least one with itself, whether it comes in a frame or in chunks.
        telling: true if rows tell records apart; otherwise tables of other persons may be equal.
        columns_tell: true if rows of the declared columns do, and are not a handful.
        empty: true if there is no record.
        sketches: sketches of the views, under the owner's key.
    """

    declared: tuple[bytes, ...]
    given: tuple[bytes, ...]
    telling: bool
    columns_tell: bool
    empty: bool
    sketches: tuple[Sketch, ...]


@dataclass(frozen=True, eq=False)
class Sketch:
    """Smallest keyed hashes of a view's elements: min-wise sampling (Broder, 1997).

    An element is a row or a value, with the number of its earlier occurrences: a view is a
    multiset. Sketches with the same key keep the same part of the elements that their tables share,
    which gives an estimate of the shared number.

    Attributes:
        kind: kind of the view.
        size: number of elements.
        hashes: the smallest hashes, ascending; all if there are few.
    """

    kind: Kind
    size: int
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, kind: Kind, elements: Sequence[str], salt: str, kept: int = KEPT) -> Sketch:
        """Hash elements with a key, given as hex digits."""
        key = bytes.fromhex(salt)
        counted = pd.Series(elements, dtype=object)
        before = counted.groupby(counted, sort=False).cumcount().tolist()
        texts = (encoded(f"{text}\x1d{k}") for text, k in zip(elements, before, strict=True))
        keyed = b"".join(hmac.digest(key, text, "sha256")[:8] for text in texts)
        hashes = np.frombuffer(keyed, "<u8").astype(np.uint64)
        hashes.sort()
        return cls(kind, len(elements), hashes[:kept].copy())

    def share(self, other: Sketch) -> float:
        """Common elements as a share of the smaller table; an estimate if hashes were dropped."""
        if self.kind != other.kind or not (self.size and other.size):
            return 0.0
        # Up to the last hash of a truncated sketch, both sketches are complete.
        ends = [s.hashes[-1] for s in (self, other) if s.size > s.hashes.size]
        ours, theirs = (
            s.hashes[s.hashes <= min(ends)] if ends else s.hashes for s in (self, other)
        )
        common = np.intersect1d(ours, theirs, assume_unique=True).size
        union = ours.size + theirs.size - common
        jaccard = common / union
        shared = jaccard / (1 + jaccard) * (self.size + other.size)
        share = float(min(1.0, shared / min(self.size, other.size)))
        if self.kind in ("set", "shape") and ends:
            least = _at_least(share, min(ours.size, theirs.size))
            share = share if least >= SHARE else least
        # Up to a fifth of the shapes of other persons coincide by chance.
        return 0.0 if self.kind == "shape" and share < SHARE else share

    def same(self, other: Sketch) -> bool:
        """True if the sketches are equal: as far as they show, all elements are common."""
        alike = (self.kind, self.size) == (other.kind, other.size)
        return self.size > 0 and alike and np.array_equal(self.hashes, other.hashes)

    def to_bytes(self) -> bytes:
        """Bytes of the hashes, for ``from_bytes``."""
        return self.hashes.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, kind: Kind, size: int, content: bytes) -> Sketch:
        """Read what ``to_bytes`` wrote."""
        return cls(kind, size, np.frombuffer(content, "<u8").astype(np.uint64))

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping, for JSON."""
        text = base64.b64encode(self.to_bytes()).decode()
        return {"kind": self.kind, "size": self.size, "hashes": text}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Sketch:
        """Read what ``to_dict`` wrote. Raises ValueError, KeyError or TypeError."""
        content = base64.b64decode(tree["hashes"], validate=True)
        return cls.from_bytes(tree["kind"], int(tree["size"]), content)


@dataclass(frozen=True)
class TableSketch:
    """Sketches of a table with their key, so that others can look for the same records.

    Attributes:
        salt: the key, hex.
        sketches: sketches of the table's views.
    """

    salt: str
    sketches: tuple[Sketch, ...]

    @classmethod
    def of(cls, records: pd.DataFrame) -> TableSketch:
        """Sketch validated records with a new key."""
        salt = secrets.token_hex(32)
        return cls(salt, sketches(records, salt))

    def share(self, records: pd.DataFrame) -> float:
        """Common records with a validated table, as a share of the smaller table.

        If rows do not tell records apart, tables of other persons share most of them: then only an
        equal table or a telling column counts.
        """
        kinds: tuple[Kind, ...] = ("rows", "column") if tells_apart(records) else ("column",)
        theirs = sketches(records, self.salt)
        if any(own.same(other) for own in self.sketches for other in theirs):
            return 1.0
        return largest_share(self.sketches, [sketch for sketch in theirs if sketch.kind in kinds])

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping, for JSON."""
        return {"salt": self.salt, "sketches": [sketch.to_dict() for sketch in self.sketches]}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> TableSketch:
        """Read what ``to_dict`` wrote. Raises ValueError, KeyError or TypeError."""
        bytes.fromhex(tree["salt"])
        return cls(tree["salt"], tuple(map(Sketch.from_dict, tree["sketches"])))


def sketches(records: pd.DataFrame, salt: str, kept: int = KEPT) -> tuple[Sketch, ...]:
    """Sketches of the rows and of telling columns of validated records.

    Args:
        records: validated records.
        salt: the key, hex.
        kept: number of hashes to keep of each view; fewer if there are many telling columns.
    """
    viewed = list(views(records))
    per_column = kept_of_column(kept, len(viewed) - 1)
    return tuple(
        Sketch.of(kind, elements, salt, kept if kind == "rows" else per_column)
        for kind, elements in viewed
    )


def kept_of_column(kept: int, columns: int) -> int:
    """Number of hashes to keep of each of several telling columns."""
    return min(kept, max(KEPT, KEPT_OF_COLUMNS // max(1, columns)))


def _both(records: pd.DataFrame) -> list[pd.DataFrame]:
    """A table, and the same without repeated rows if that is another.

    Where all rows are much alike, those that are left hardly tell persons apart.
    """
    seldom = without_repeated(records, FEWEST)
    return [records] if len(seldom) == len(records) else [records, seldom]


def _set_sketches(records: pd.DataFrame, salt: str) -> tuple[Sketch, ...]:
    if len(records) < FEWEST:
        return ()
    sets = hashed_sets(records, salt, DISTINCT)
    return tuple(Sketch("set", size, hashes) for size, hashes in sets)


def _shape_sketches(records: pd.DataFrame, salt: str) -> tuple[Sketch, ...]:
    return tuple(
        Sketch.of("shape", elements, salt, KEPT_OF_SHAPES) for elements in shapes(records, DISTINCT)
    )


class SketchIndex:
    """Sketches of a table, sorted so that only pairs with a common hash need be compared.

    Args:
        sketches: sketches of a table's views.
    """

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = sketches
        pool = np.concatenate([np.empty(0, np.uint64), *(s.hashes for s in sketches)])
        owners = np.repeat(np.arange(len(sketches)), [s.hashes.size for s in sketches])
        order = np.argsort(pool, kind="stable")
        self._pool, self._owners = pool[order], owners[order]

    def share(self, other: Sketch) -> float:
        """Largest share of common elements with a view of another table."""
        first = np.searchsorted(self._pool, other.hashes, side="left")
        end = np.searchsorted(self._pool, other.hashes, side="right")
        owners: set[int] = set()
        for a, b in np.unique(np.column_stack([first, end])[end > first], axis=0).tolist():
            owners.update(self._owners[a:b].tolist())
        return max((self._sketches[k].share(other) for k in owners), default=0.0)


def _at_least(share: float, looked_at: int) -> float:
    """Lower bound of a share that was found in a sample, by the score of ``SURE`` (Wilson, 1927).

    Of hundreds of pairs of views the largest share counts, and in each some elements coincide by
    chance.
    """
    if not looked_at:
        return 0.0
    extra = SURE**2 / looked_at
    spread = SURE * math.sqrt(share * (1 - share) / looked_at + extra / (4 * looked_at))
    return max(0.0, (share + extra / 2 - spread) / (1 + extra))


def largest_share(ours: Sequence[Sketch], theirs: Sequence[Sketch]) -> float:
    """Largest share of common elements, over all pairs of views of the same kind."""
    index = SketchIndex(ours)
    return max((index.share(other) for other in theirs), default=0.0)


def views(records: pd.DataFrame) -> Iterator[tuple[Kind, list[str]]]:
    """Kind and elements of each view: a text for each record, or for those that tell it apart."""
    records = records.set_axis([*map(str, records.columns)], axis="columns")  # sorted below
    texts = {name: cell_texts(records[name]) for name in sorted(records.columns)}
    names = "\x1f".join(texts)
    yield "rows", ["\x1f".join((names, *row)) for row in zip(*texts.values(), strict=True)]
    for column in texts.values():
        seldom = column
        if len(set(column)) != len(column) or len(column) < 2:
            seldom = seldom_texts(column)  # without, for example, the cells that are missing
            if len(seldom) < max(FEWEST, LEAST_LEFT * len(column)) or not _distinct(seldom):
                continue
        if not _in_equal_steps(seldom):
            yield "column", seldom


def _in_equal_steps(texts: Sequence[str]) -> bool:
    """True if most values follow each other in equal steps, as days and numbers of rows do.

    The tables of other persons, or of the next year, may have the same ones.
    """
    different = sorted(set(texts) - {""})
    numbers = numbers_in(pd.Series(different, dtype=object))
    if numbers.isna().any():
        numbers = _days(different)
    if numbers.isna().any():  # such as p001
        pairs = enumerate(zip(different[0], different[-1], strict=False))
        start = next((k for k, (a, b) in pairs if a != b), 0)  # they are sorted
        numbers = numbers_in(pd.Series([text[start:] for text in different], dtype=object))
    if numbers.isna().any() or len(numbers) < 2:
        return False
    steps = np.diff(np.sort(numbers.to_numpy(dtype=float)))
    usual = np.median(steps)
    return bool(np.mean(np.abs(steps - usual) <= NEAR * usual) >= SHARE)


def _days(texts: Sequence[str]) -> pd.Series:
    """Seconds of days and moments in ISO form, NaN for other texts; shape (n,)."""
    try:
        days = pd.to_datetime(pd.Series(texts), format="ISO8601", errors="coerce", utc=True)
    except ValueError:  # half a surrogate, or a mixture that pandas refuses in spite of ``coerce``
        return pd.Series(np.full(len(texts), np.nan))
    return days.dt.tz_localize(None).astype("datetime64[s]").astype("int64").where(days.notna())


def tells_apart(records: pd.DataFrame) -> bool:
    """True if whole rows tell records apart."""
    return _distinct(next(views(records))[1])


def _distinct(elements: Sequence[str]) -> bool:
    return len(set(elements)) >= DISTINCT * len(elements)
