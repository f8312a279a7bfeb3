"""Records of one person or household: a declared largest number, for what ε is of all of them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpbayes.core.arrays import Ints
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import needed, pd
from dpbayes.schema.values import NO_FIELD, WRITTEN, level_text

MOST = 1000
MEMORY = "500MB"  # of DuckDB, before it goes to the disk


@dataclass(frozen=True)
class Cluster:
    """Which records are of one person.

    Attributes:
        column: an identifier, which is dropped.
        most: records of one person, public; above 1.
    """

    column: str
    most: int

    @classmethod
    def parse(cls, value: Any, identifiers: tuple[str, ...]) -> Cluster:
        """From a schema file: ``{column = "person", most = 5}``."""
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

    def check(self, records: Any) -> None:
        """Raise DataError where a person has more records than declared, or is not named."""
        nameless, names = self._names(as_frame(records))
        self.refuse(nameless, int((names.value_counts() > self.most).sum()))

    def _names(self, records: pd.DataFrame) -> tuple[int, pd.Series]:
        """How many records have no identifier, and those that others have."""
        if self.column not in records.columns:
            raise DataError(f"column {self.column!r} of the schema's cluster is not in the data.")
        given = records[self.column]
        names = given.map(level_text)
        nobody = given.isna() | names.str.strip().isin({*NO_FIELD, *WRITTEN})
        return int(nobody.sum()), names[~nobody]

    def hashed(self, key: bytes, records: pd.DataFrame) -> tuple[int, Ints]:
        """How many have no identifier, and 64 keyed bits of those that others have.

        Two persons in 10^9 have the same with a chance of 3 %; then a table may be refused that
        need not be.
        """
        nameless, names = self._names(records)
        keyed = functools.partial(hashlib.blake2b, digest_size=8, key=key)
        found = b"".join(keyed(name.encode()).digest() for name in names)
        return nameless, np.frombuffer(found, "<i8")

    def refuse(self, nameless: int, over: int) -> None:
        """Raise DataError if a record has no identifier, or a person is ``over`` the number."""
        if nameless:
            raise DataError(f"column {self.column!r}: {nameless} rows have no identifier.")
        if over:
            raise DataError(
                f"column {self.column!r}: {over} have more than the declared {self.most} records. "
                "Leave records out by a rule of your own, or declare more from public knowledge."
            )

    def to_plain(self) -> dict[str, Any]:
        """What ``parse`` reads."""
        return {"column": self.column, "most": self.most}


class Tally:
    """How often each of many numbers comes: by DuckDB, which goes to the disk for what is long.

    Its folder is this user's alone, and goes with it.

    Attributes:
        key: for the hashes that are counted; it is in memory alone.
    """

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        duckdb = needed("duckdb", "a cluster of records that come in parts", extra="large")
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dpbayes-"))
        found = duckdb.connect(f"{folder}/tally.duckdb", config={"memory_limit": MEMORY})
        self._database = self._stack.enter_context(found)
        self._database.execute("CREATE TABLE tally (one BIGINT)")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, found: Ints) -> None:
        """Count these, shape (m,)."""
        self._database.execute("INSERT INTO tally SELECT column0 FROM found")

    def above(self, most: int) -> int:
        """How many different ones came more often than that."""
        query = "SELECT count(*) FROM (SELECT one FROM tally GROUP BY one HAVING count(*) > ?)"
        return int(self._database.execute(query, [most]).fetchone()[0])
