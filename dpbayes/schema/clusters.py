"""Several records of one person or household: their declared maximum, for a person-level ε."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.frames import Frame, as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.values import NO_FIELD, WRITTEN, level_text

MOST = 1000  # records of a person: group privacy multiplies ε by their number
FILES = 64  # of hashes: of 10^9 records, 125 MB each, of which one at a time is in memory

# Characters that are not shown (Unicode's Default_Ignorable_Code_Point), besides control characters
# and marks such as U+FEFF, which have categories of their own.
_IGNORED = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF),
)  # fmt: skip
_DASHES = "\u2043\u2212"  # a bullet and a minus, which look like hyphens


@dataclass(frozen=True)
class Cluster:
    """Identifier column that groups the records of a person, and the most records of a person.

    Attributes:
        column: name of the identifier column; it is dropped after the check.
        most: public upper bound on the number of records of one person.
        declared: false for an identifier that is not declared as cluster. It may be missing, or not
            in the data, and should not stand in more records than a person has.
    """

    column: str
    most: int
    declared: bool = True

    @classmethod
    def parse(cls, value: object, identifiers: tuple[str, ...]) -> Cluster:
        """Read the entry of a schema file: ``{column = "person", most = 5}``."""
        if not isinstance(value, Mapping) or set(value) != {"column", "most"}:
            raise SchemaError(
                f"cluster = {value!r} must name an identifier and the largest number of its "
                'records: {column = "person", most = 5}.'
            )
        column, most = value["column"], value["most"]
        if column not in identifiers:
            raise SchemaError(
                f'cluster: column {column!r} must be declared with type = "identifier".'
            )
        if isinstance(most, bool) or not isinstance(most, int) or not 2 <= most <= MOST:
            raise SchemaError(f"cluster: most = {most!r} must be a whole number from 2 to {MOST}.")
        return cls(column, most)

    def check(self, records: Frame) -> None:
        """Raise DataError if a person has too many records, or a record has no identifier."""
        nameless, names = self.names(as_frame(records))
        self.refuse(nameless, int((names.value_counts() > self.most).sum()))

    def names(self, records: pd.DataFrame) -> tuple[int, pd.Series]:
        """Number of records without an identifier, and the identifiers of all other records."""
        if self.column not in records.columns:
            if not self.declared:
                return 0, pd.Series(dtype=object)
            raise DataError(f"column {self.column!r} of the schema's cluster is not in the data.")
        identifiers = records[self.column]
        texts = [_one_way(level_text(x)) for x in identifiers]
        names = pd.Series(texts, identifiers.index, dtype=object)
        written = [name in {*NO_FIELD, *WRITTEN} for name in names]
        nobody = identifiers.isna() | np.array(written, dtype=bool)
        return int(nobody.sum()), names[~nobody]

    def hashed(self, key: bytes, records: pd.DataFrame) -> tuple[int, Ints]:
        """Number of records without an identifier, and 64-bit keyed hashes of the others.

        Among 10^9 persons two share a hash with a probability of 3 %; a table may then be refused
        without need.
        """
        nameless, names = self.names(records)
        keyed = functools.partial(hashlib.blake2b, digest_size=8, key=key)
        digests = b"".join(keyed(name.encode("utf-8", "surrogatepass")).digest() for name in names)
        return nameless, np.frombuffer(digests, "<i8")

    def check_chunks(self, chunks: Iterable[tuple[int, Ints]]) -> None:
        """Check as ``check``, by what ``hashed`` returned for each chunk, with the same key.

        Hashes are sorted into files, of which one at a time is in memory. A file has no name on
        Linux and macOS, and vanishes with this process, however it ends.
        """
        nameless = over = 0
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(FILES)]
            for nobody, hashes in chunks:
                nameless += nobody
                numbers = hashes % FILES
                for number, file in enumerate(files):
                    file.write(hashes[numbers == number].tobytes())
            for file in files:
                file.seek(0)
                hashes = np.sort(np.frombuffer(file.read(), np.int64))
                again = hashes[self.most :] == hashes[: -self.most]
                over += np.unique(hashes[self.most :][again]).size
        self.refuse(nameless, over)

    def refuse(self, nameless: int, over: int) -> None:
        """Raise DataError if a record has no identifier, or a person has too many records.

        Args:
            nameless: number of records without an identifier.
            over: number of persons with more records than declared.
        """
        if not self.declared:
            if over:
                several = "several" if self.most == 1 else f"more than {self.most}"
                raise DataError(
                    f"column {self.column!r}: {over} identifiers stand in {several} records. Are "
                    "they persons or households? Declare [cluster] with this column, and the most "
                    "records of one from public knowledge: ε holds for all of them together. If "
                    "not, leave the column out of the schema, and ε holds for "
                    + ("one record." if self.most == 1 else "those of one cluster.")
                )
            return
        if nameless:
            raise DataError(f"column {self.column!r}: {nameless} rows have no identifier.")
        if over:
            raise DataError(
                f"column {self.column!r}: {over} have more than the declared {self.most} records. "
                "Leave records out by a rule of your own, or declare more from public knowledge."
            )

    def to_plain(self) -> dict[str, Any]:
        """Plain mapping that ``parse`` reads back."""
        return {"column": self.column, "most": self.most}


def _one_way(name: str) -> str:
    """An identifier without what is not seen, so that one person stays one.

    Marks and control characters are left out, accents and widths are written in one way (NFKC),
    all hyphens and dashes are one, and blanks are single.
    """
    seen = (c for c in name if c.isspace() or not _unseen(c))
    text = unicodedata.normalize("NFKC", "".join(seen))
    dashed = ("-" if unicodedata.category(c) == "Pd" or c in _DASHES else c for c in text)
    return " ".join("".join(dashed).split())


def _unseen(character: str) -> bool:
    code = ord(character)
    ignored = any(first <= code <= last for first, last in _IGNORED)
    return ignored or unicodedata.category(character) in ("Cc", "Cf")
