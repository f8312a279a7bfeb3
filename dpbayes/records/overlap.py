"""How many records two tables have in common, from keyed hashes of them: no record is kept.

A table is looked at in several views. One is its rows over all declared columns. The others are
single columns that tell records apart (an income, a date of birth): they know a table again that
has gained or lost a column, or in which one was renamed or coded anew. A ledger also looks at the
shapes of rows, which stay when all columns are rescaled, rounded, renamed or coded anew.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.records.fingerprint import cell_texts, content_digest, content_sum, sum_digest
from dpbayes.records.shapes import shapes

Kind = Literal["rows", "column", "shape"]
SHARE = 0.5  # of the smaller table, from which two are taken for the same records
KEPT = 4096  # hashes: up to so many rows overlaps are exact, beyond they are estimated
KEPT_OF_SHAPES = 512  # there are many views of them; the standard error of a share is 2 to 4 %
# A view tells records apart if it has so many different elements per record. Those of other persons
# then rarely coincide: of D equally likely ones n records take n (1 - n / 2D) different ones, and
# that of somebody else is among them with probability n / D.
DISTINCT = 0.9
FEWEST = 30  # records, below which all values of a column have to differ for it to tell


@dataclass(frozen=True, eq=False)
class Identity:
    """What a table is known by. Confidential, as it holds the records.

    Attributes:
        given: the table as it was read, with columns that no schema declares.
        records: validated, the declared columns only.
    """

    given: pd.DataFrame
    records: pd.DataFrame

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", as_frame(self.given))

    @cached_property
    def digest(self) -> bytes:
        """Of the declared columns, whatever the order of rows and columns and how it is written."""
        return content_digest(self.records)

    def known(self, salt: str) -> Known:
        """What somebody with a key of their own keeps of it."""
        return Known(
            (self.digest, sum_digest(content_sum(self.records))),
            (content_digest(self.given), sum_digest(content_sum(self.given))),
            tells_apart(self.given),
            self.records.empty,
            sketches(self.records, salt) + _shape_sketches(self.records, salt),
        )


@dataclass(frozen=True, eq=False)
class Known:
    """Digests and sketches of a table.

    Attributes:
        declared, given: digests of the declared columns, and of all that was read. The same table
            has some of them in common, in a frame or in parts.
        telling: rows tell records apart; otherwise other persons' tables may be the same.
        empty: there is no record, so that nobody's are used.
        sketches: of each view, by the owner's key.
    """

    declared: tuple[bytes, ...]
    given: tuple[bytes, ...]
    telling: bool
    empty: bool
    sketches: tuple[Sketch, ...]


@dataclass(frozen=True, eq=False)
class Sketch:
    """The smallest of the keyed hashes of a view's elements: min-wise sampling (Broder, 1997).

    An element is a row or a value, with how often it came before: a view is a multiset. Two
    sketches with one key have kept the same part of what their tables share, which shows how large
    it is.

    Attributes:
        kind: of the view.
        size: number of elements.
        hashes: shape (min(size, KEPT),), ascending.
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
        texts = (f"{text}\x1d{k}".encode() for text, k in zip(elements, before, strict=True))
        keyed = b"".join(hmac.digest(key, text, "sha256")[:8] for text in texts)
        hashes = np.frombuffer(keyed, "<u8").astype(np.uint64)
        hashes.sort()
        return cls(kind, len(elements), hashes[:kept].copy())

    def share(self, other: Sketch) -> float:
        """Common elements, as a share of the smaller of the two; an estimate beyond ``KEPT``."""
        if self.kind != other.kind or not (self.size and other.size):
            return 0.0
        # Below the last hash that a shortened sketch has kept, both are complete.
        ends = [s.hashes[-1] for s in (self, other) if s.size > s.hashes.size]
        ours, theirs = (
            s.hashes[s.hashes <= min(ends)] if ends else s.hashes for s in (self, other)
        )
        common = np.intersect1d(ours, theirs, assume_unique=True).size
        union = ours.size + theirs.size - common
        jaccard = common / union
        both = jaccard / (1 + jaccard) * (self.size + other.size)
        share = float(min(1.0, both / min(self.size, other.size)))
        # Other persons have some of the same shapes by chance, up to a fifth.
        return 0.0 if self.kind == "shape" and share < SHARE else share

    def same(self, other: Sketch) -> bool:
        """Every element is common, as far as can be seen."""
        alike = (self.kind, self.size) == (other.kind, other.size)
        return self.size > 0 and alike and np.array_equal(self.hashes, other.hashes)

    def to_bytes(self) -> bytes:
        """The hashes, for ``from_bytes``."""
        return self.hashes.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, kind: Kind, size: int, content: bytes) -> Sketch:
        """What ``to_bytes`` wrote."""
        return cls(kind, size, np.frombuffer(content, "<u8").astype(np.uint64))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        text = base64.b64encode(self.to_bytes()).decode()
        return {"kind": self.kind, "size": self.size, "hashes": text}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Sketch:
        """Read what ``to_dict`` wrote. Raises ValueError, KeyError or TypeError."""
        content = base64.b64decode(tree["hashes"], validate=True)
        return cls.from_bytes(tree["kind"], int(tree["size"]), content)


@dataclass(frozen=True)
class TableSketch:
    """Sketches of a table beside their key: others can find out if they have the same records.

    Attributes:
        salt: the key, hex.
        sketches: of the table's views.
    """

    salt: str
    sketches: tuple[Sketch, ...]

    @classmethod
    def of(cls, records: pd.DataFrame) -> TableSketch:
        """Of validated records, with a new key."""
        salt = secrets.token_hex(32)
        return cls(salt, sketches(records, salt))

    def share(self, records: pd.DataFrame) -> float:
        """Records that a validated table has in common with this one, of the smaller of the two.

        Where rows do not tell records apart, tables of other persons agree in most of them: then
        only the same table counts, as 1.
        """
        kinds: tuple[Kind, ...] = ("rows", "column") if tells_apart(records) else ("column",)
        theirs = sketches(records, self.salt)
        if any(one.same(other) for one in self.sketches for other in theirs):
            return 1.0
        return largest_share(self.sketches, [sketch for sketch in theirs if sketch.kind in kinds])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"salt": self.salt, "sketches": [sketch.to_dict() for sketch in self.sketches]}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> TableSketch:
        """Read what ``to_dict`` wrote. Raises ValueError, KeyError or TypeError."""
        bytes.fromhex(tree["salt"])
        return cls(tree["salt"], tuple(map(Sketch.from_dict, tree["sketches"])))


def sketches(records: pd.DataFrame, salt: str) -> tuple[Sketch, ...]:
    """Of each view of validated records."""
    return tuple(Sketch.of(kind, elements, salt) for kind, elements in views(records))


def _shape_sketches(records: pd.DataFrame, salt: str) -> tuple[Sketch, ...]:
    return tuple(
        Sketch.of("shape", elements, salt, KEPT_OF_SHAPES) for elements in shapes(records, DISTINCT)
    )


def largest_share(ours: Sequence[Sketch], theirs: Sequence[Sketch]) -> float:
    """Of common elements, over all pairs of views of one kind."""
    return max((one.share(other) for one in ours for other in theirs), default=0.0)


def views(records: pd.DataFrame) -> Iterator[tuple[Kind, list[str]]]:
    """What each view looks at: a text for each record."""
    texts = {name: cell_texts(records[name]) for name in sorted(records.columns)}
    names = "\x1f".join(texts)
    yield "rows", ["\x1f".join((names, *row)) for row in zip(*texts.values(), strict=True)]
    for column in texts.values():
        all_differ = len(set(column)) == len(column) > 1
        if all_differ or (len(column) >= FEWEST and _distinct(column)):
            yield "column", column


def tells_apart(records: pd.DataFrame) -> bool:
    """Whole rows tell records apart."""
    return _distinct(next(views(records))[1])


def _distinct(elements: Sequence[str]) -> bool:
    return len(set(elements)) >= DISTINCT * len(elements)
