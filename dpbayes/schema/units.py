"""Records of several rows: what households and persons with their waves have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dpbayes.core.checks import expect
from dpbayes.core.errors import DataError, SchemaError
from dpbayes.core.frames import Frame, as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.clusters import Cluster
from dpbayes.schema.columns import Column
from dpbayes.schema.values import texts_of

if TYPE_CHECKING:
    from dpbayes.schema.homes import Homes

MOST_ROWS = 30  # of one record


class Unit(ABC):
    """Declaration that rows with the same identifier are one record: a frozen dataclass, public.

    Attributes:
        id: the identifier, declared with type = "identifier". Released rows have the numbers of
            synthetic records in its place.
        most: upper bound on the rows of a record.
        columns: columns in which all rows of a record have the same value.
        rules: conditions on several rows of a record.
        table: name of the declaration in a schema file; with an s, of the mechanism that it needs.
        noun: what a record is, in words.
        member: what its rows are, in words.
        example: a declaration as it is written in a schema file.
        lists: the entries that are lists, with what is in them.

    Raises:
        SchemaError: an entry is of a wrong kind.
    """

    id: str
    most: int
    columns: tuple[str, ...]
    rules: tuple[str, ...]
    table: ClassVar[str]
    noun: ClassVar[str]
    member: ClassVar[str]
    example: ClassVar[str]
    lists: ClassVar[Mapping[str, str]] = {"columns": "columns", "rules": "rules"}

    def __post_init__(self) -> None:
        expect(self.id, str, f"{self.table}: id", "the name of a column", SchemaError)
        whole = isinstance(self.most, int) and not isinstance(self.most, bool)
        if not whole or not 2 <= self.most <= MOST_ROWS:
            raise SchemaError(
                f"{self.table}: most = {self.most!r} must be a whole number from 2 to {MOST_ROWS}."
            )
        for key, kind in self.lists.items():
            texts = texts_of(f"{self.table}: {key}", kind, getattr(self, key))
            object.__setattr__(self, key, texts)

    @abstractmethod
    def homes(self, columns: Mapping[str, Column]) -> Homes:
        """The places of rows in a record, and rules between them, given the schema's columns."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read the entry of a schema file, such as ``example``."""
        keys = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if not isinstance(value, Mapping) or not set(keys[:3]) <= set(value) <= set(keys):
            raise SchemaError(
                f"{cls.table} = {value!r:.150} must name the identifier, the most {cls.member}s "
                f"and the column that puts them in order ({', '.join(keys[:3])}), and may have "
                f"{', '.join(keys[3:])}: {cls.example}."
            )
        return cls(**value)

    def to_plain(self) -> dict[str, Any]:
        """Plain mapping that ``parse`` reads back."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        entry = {name: getattr(self, name) for name in names}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in entry.items()}
        return {key: value for key, value in plain.items() if value not in (None, [])}

    @property
    def numbers(self) -> Column:
        """The column of released rows that numbers synthetic records, from 1."""
        return Column(self.id, "count", lower=1)

    @property
    def cluster(self) -> Cluster:
        """The identifier, for the check of how many rows it stands in."""
        return Cluster(self.id, self.most)

    def not_by_rows(self) -> str:
        """Say why a mechanism that takes each row for a record is refused, and what to do."""
        return (
            f"takes each row for a record, and the schema has [{self.table}]. Take mechanism "
            f"{self.table}s; or declare [cluster] in its place, with column = {self.id!r} and "
            f"most = {self.most}, and what ties the rows of a {self.noun} together is lost."
        )

    def check_apart(self, records: Frame, persons: Cluster) -> None:
        """Raise DataError if another identifier stands in several of these records."""
        frame = as_frame(records).reset_index(drop=True)
        if persons.column == self.id or persons.column not in frame.columns:
            return
        both = pd.DataFrame({"home": self.cluster.names(frame)[1], "who": persons.names(frame)[1]})
        homes = both.dropna().drop_duplicates()["who"].value_counts()
        if several := int((homes > 1).sum()):
            raise DataError(
                f"column {persons.column!r}: {several} identifiers stand in several {self.noun}s, "
                f"and ε holds for one {self.noun}. Correct the records; or leave the column out of "
                "the schema, if it does not tell persons apart."
            )
