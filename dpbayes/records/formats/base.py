"""Definition of a file format, and options for reading a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from dpbayes.core.errors import DataError, OutputError
from dpbayes.core.lazy import pd
from dpbayes.records.chunks import Part
from dpbayes.records.formats.source import File
from dpbayes.schema import Schema
from dpbayes.schema.draft import Labels


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options for reading records, where the file does not determine them. All are public.

    Attributes:
        file_format: name of the format, in place of the file's ending.
        separator: separator of fields in a CSV file, one character or ``tab``.
        decimal: decimal mark in a CSV file, ``.`` or ``,``.
        encoding: encoding of text in CSV, Stata, SPSS and SAS files.
        sheet: name of the sheet of a workbook.
        catalog: file with the value labels of a SAS file, ``.sas7bcat``.
        query: SELECT statement or name of a table, for a database.
    """

    file_format: str | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    catalog: str | None = None
    query: str | None = None

    def only(self, names: tuple[str, ...], subject: str) -> Reading:
        """Return the options; raise DataError if one is set that the format has no use for.

        Args:
            names: options that the format takes.
            subject: the format, for the message: "CSV files".
        """
        for option in fields(self):
            name, value = option.name, getattr(self, option.name)
            if name not in ("file_format", *names) and value is not None:
                raise DataError(
                    f"{name} = {value!r} (--{name}) is not for {subject}; leave it out."
                )
        return self


@dataclass(frozen=True, eq=False)
class RecordsRead:
    """Records that were read, with the labels of their file. Confidential.

    Attributes:
        frame: n records.
        said: how they were read, for the screen; contains no values.
        labels: labels of codes by column, if the file has some.
        titles: labels of columns by name, if the file has some.
    """

    frame: pd.DataFrame
    said: str
    labels: Labels = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FoundParts:
    """Records that are read in chunks. Confidential.

    Attributes:
        read: starts a pass and yields a reader of each chunk: rows with all columns.
        names: names of the columns.
        said: how the records are read, for the screen; contains no values.
    """

    read: Callable[[], Iterator[Part]]
    names: list[str]
    said: str = ""


@dataclass(frozen=True)
class Size:
    """Size of chunks.

    Attributes:
        rows: largest number of rows of a chunk.
        apart: true if each chunk is read by itself, maybe on another machine; a format may then
            use chunks of its own, of other sizes.
    """

    rows: int
    apart: bool = False


def _not_written(frame: pd.DataFrame, schema: Schema) -> bytes:
    raise OutputError("data sets are not written in this format.")


def _made_up(schema: Schema) -> pd.DataFrame:
    """A data set of public constants, with every level and, where there may be, a missing value."""
    names = [*([] if schema.unit is None else [schema.unit.id]), *schema.columns]
    columns = schema.released_columns(names)
    rows = 2 + max(len(column.levels) for column in columns)
    data = {}
    for column in columns:
        typed = column.constant(rows)
        if column.levels:
            levels = [column.levels[k % len(column.levels)] for k in range(rows)]
            texts = all(isinstance(level, str) for level in levels)
            typed = pd.Series(levels, dtype=None if texts else object)  # as they are drawn
        if column.optional:
            typed = typed.where(np.arange(rows) < rows - 1)
        data[column.name] = column.released(typed).array
    return pd.DataFrame(data)


@dataclass(frozen=True)
class Format:
    """File format with its reader and writer.

    Attributes:
        title: name of the format for messages.
        endings: endings of its files, with the dot, in lower case.
        options: fields of ``Reading`` that it takes.
        read: reads the records; the schema only tells which columns are numbers.
        parts: reads the records in chunks; None if a file can only be read whole.
        write: converts a data set to bytes, whose layout depends on the schema alone.
        check: raises OutputError if data sets of a schema cannot be written.
    """

    title: str
    endings: tuple[str, ...]
    options: tuple[str, ...]
    read: Callable[[File, Reading, Schema | None], RecordsRead]
    parts: Callable[[File, Reading, Schema, Size], FoundParts] | None = None
    write: Callable[[pd.DataFrame, Schema], bytes] = _not_written
    check: Callable[[Schema], None] = lambda schema: None

    def rehearse(self, schema: Schema) -> None:
        """Write a data set of public constants: every level, and a missing value if there may be.

        After a release is paid for nothing may be found that the format does not take.

        Raises:
            OutputError: it cannot be written.
        """
        self.check(schema)
        try:
            self.write(_made_up(schema), schema)
        except OutputError:
            raise
        except Exception as error:  # from a library; only public facts can cause it
            raise OutputError(
                f"data sets of this schema cannot be written as {self.title} "
                f"({type(error).__name__}). Take csv."
            ) from None

    @property
    def written(self) -> bool:
        """True if data sets can be written in the format."""
        return self.write is not _not_written
