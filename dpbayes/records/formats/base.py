"""What a file format is, and how a file of it is to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from dpbayes.core.errors import DataError, OutputError
from dpbayes.core.lazy import pd
from dpbayes.records.chunks import Part
from dpbayes.records.formats.source import File
from dpbayes.schema import Schema
from dpbayes.schema.draft import Labels


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How records are read, where the file does not say so itself. All of it is public.

    Attributes:
        file_format: its name, whatever the file's ending.
        separator: between fields of a CSV file, one character or ``tab``.
        decimal: mark of a CSV file, ``.`` or ``,``.
        encoding: of text in CSV, Stata, SPSS and SAS files.
        sheet: of a workbook.
        catalog: file with the value labels of a SAS file, ``.sas7bcat``.
        query: SELECT, or a table's name, for a database.
    """

    file_format: str | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    catalog: str | None = None
    query: str | None = None

    def only(self, names: tuple[str, ...], what: str) -> Reading:
        """Itself. DataError if more is given than a format has a use for."""
        for one in fields(self):
            if one.name not in ("file_format", *names) and getattr(self, one.name) is not None:
                raise DataError(
                    f"{one.name} = {getattr(self, one.name)!r} (--{one.name}) is not for {what}; "
                    "leave it out."
                )
        return self


@dataclass(frozen=True, eq=False)
class RecordsRead:
    """What was read. Confidential.

    Attributes:
        frame: n records.
        said: how it was read, for the screen; no values.
        labels: of codes, where the file has some.
        titles: what the file says that columns are, by name.
    """

    frame: pd.DataFrame
    said: str
    labels: Labels = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FoundParts:
    """Records that are read in parts. Confidential.

    Attributes:
        read: starts from the beginning, and gives what reads each part: rows with all columns.
        names: of the columns.
        said: how they are read, for the screen; no values.
    """

    read: Callable[[], Iterator[Part]]
    names: list[str]
    said: str = ""


@dataclass(frozen=True)
class Size:
    """How large parts are.

    Attributes:
        rows: of a part, at most.
        apart: each part is read by itself, maybe elsewhere: then a format may have parts of its
            own, of other sizes.
    """

    rows: int
    apart: bool = False


def _not_written(frame: pd.DataFrame, schema: Schema) -> bytes:
    raise OutputError("data sets are not written in this format.")


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        title: for people.
        endings: of its files, with the dot, in lower case.
        options: fields of ``Reading`` that it takes.
        read: the records; the schema only says which columns are numbers.
        parts: the same in parts; None where a file is read whole.
        write: a data set as bytes, by the schema alone.
        check: raises OutputError if data sets of a schema cannot be written.
    """

    title: str
    endings: tuple[str, ...]
    options: tuple[str, ...]
    read: Callable[[File, Reading, Schema | None], RecordsRead]
    parts: Callable[[File, Reading, Schema, Size], FoundParts] | None = None
    write: Callable[[pd.DataFrame, Schema], bytes] = _not_written
    check: Callable[[Schema], None] = lambda schema: None

    @property
    def written(self) -> bool:
        """Data sets can go out in it."""
        return self.write is not _not_written
