"""Records of one person or household: a declared largest number, for what ε is of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpbayes.errors import DataError, SchemaError
from dpbayes.schema.frames import as_frame
from dpbayes.schema.values import level_text


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
        records = as_frame(records)
        if self.column not in records.columns:
            raise DataError(f"column {self.column!r} of the schema's cluster is not in the data.")
        given = records[self.column]
        names = given.map(level_text)
        nameless = int((given.isna() | (names == "")).sum())
        if nameless:
            raise DataError(f"column {self.column!r}: {nameless} rows have no identifier.")
        over = int((names.value_counts() > self.most).sum())
        if over:
            raise DataError(
                f"column {self.column!r}: {over} have more than the declared {self.most} records. "
                "Leave records out by a rule of your own, or declare more from public knowledge."
            )

    def to_plain(self) -> dict[str, Any]:
        """What ``parse`` reads."""
        return {"column": self.column, "most": self.most}


MOST = 1000
