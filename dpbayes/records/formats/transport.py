"""Check that all records of a SAS transport file (``.xpt``) can be read.

The file consists of cards of 80 bytes: headers, then the records one after the other, then blanks
to the end of a card. Version 8 states the number of records; version 5 does not, so that a file cut
at the end of both a card and a record looks complete. The reader, ReadStat, checks none of this.

A record may consist of blanks alone: its text is missing, and its numbers are the one that eight
blanks stand for, 3.7e-40. At the end of a file of version 5 ReadStat takes such records for padding
and drops them. Records of 80 bytes or more are counted by the length of the file; shorter ones
cannot be told from padding.

The layout follows technical note TS-140 of SAS Institute.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dpbayes.core.errors import DataError
from dpbayes.core.lazy import pd
from dpbayes.records.formats.source import File
from dpbayes.schema import Column, Schema

_CARD = 80  # bytes
_MEMBER = b"HEADER RECORD*******MEMB"
_NAMES = b"HEADER RECORD*******NAM"
_RECORDS = b"HEADER RECORD*******OBS"
_COUNTED = _RECORDS + b"V8"
_TEXT = 2  # type of a text column; 1 is a number


@dataclass(frozen=True)
class Transport:
    """Layout of a transport file with one table.

    Attributes:
        where: the file, for messages.
        kinds: type and length in bytes of each column.
        header: the cards before the records.
        records: number of records; None if blank ones at the end cannot be told from padding.
    """

    where: str
    kinds: list[tuple[int, int]]
    header: bytes
    records: int | None

    @classmethod
    def of(cls, file: File) -> Transport:
        """Read the layout; raise DataError if the file is cut, or holds several tables."""
        with file.seekable() as stream:
            content = stream.read()
        try:
            kinds, start = _columns(content)
        except (ValueError, struct.error):
            raise _damaged(file.where) from None
        count_text = content[start - 32 : start - 17].strip()
        if _card_at(content, _MEMBER, start) >= 0:
            raise DataError(f"{file.where} holds several tables; export each to a file of its own.")
        size, width = len(content) - start, sum(length for _, length in kinds)
        counted = content[start - _CARD : start].startswith(_COUNTED) and count_text.isdigit()
        records = int(count_text) if counted else size // width
        end = start + records * width
        if size % _CARD or not 0 <= len(content) - end < _CARD or content[end:].strip(b" "):
            raise _damaged(file.where)
        known = counted or width >= _CARD
        return cls(file.where, kinds, content[:start], records if known else None)

    def lost(self, frame: pd.DataFrame, schema: Schema | None) -> int:
        """Number of blank records at the end that ReadStat dropped.

        Args:
            frame: the records that it read, with all columns of the file.
            schema: the schema that decides whether records may be blank; None for a draft.
        Raises:
            DataError: the number is unknown, and a record that fits the schema may be blank. The
                last record does not matter, so that nothing depends on it. Or the file is damaged.
        """
        if self.records is None:
            if schema is not None and self._may_be_blank(list(frame.columns), schema):
                raise DataError(
                    f"{self.where}: every declared column may be blank, and a last record of "
                    "blanks leaves no trace in a SAS transport file of version 5: n would tell of "
                    "it. Save the records as CSV, or in version 8."
                )
            return 0
        if len(frame) > self.records:
            raise _damaged(self.where)
        return self.records - len(frame)

    def _may_be_blank(self, names: list[str], schema: Schema) -> bool:
        """True if each declared column, by the schema alone, may have a value of blanks."""
        kind_of = dict(zip(names, self.kinds, strict=False))
        return all(
            _blank_fits(column, *kind_of[name])
            for name, column in schema.read.items()
            if name in kind_of
        )

    @property
    def blank(self) -> bytes:
        """A file of the same columns with a blank record, and one behind it that is not blank.

        Only files that do not state their number of records lose some.
        """
        width = sum(length for _, length in self.kinds)
        records = b" " * width + b"1" * width
        return self.header + records.ljust(-(-len(records) // _CARD) * _CARD)


def _blank_fits(column: Column, kind: int, length: int) -> bool:
    """True if a column of the schema accepts blanks of a file's column."""
    if kind == _TEXT:
        return column.optional
    if column.calendar is not None:  # the number may be a day or a moment
        return True
    # IBM floating point: the first blank, 32, is the exponent of 16 plus 64, the others a fraction.
    fraction = int.from_bytes((b" " * (length - 1)).ljust(7, b"\0")[:7]) / 2.0**56
    try:
        column.typed(pd.Series([16.0 ** (32 - 64) * fraction]))
    except DataError:
        return False
    return True


def _columns(content: bytes) -> tuple[list[tuple[int, int]], int]:
    """Type and length in bytes of each column, and the position where the records start.

    Raises:
        ValueError, struct.error: the headers are incomplete.
    """
    names, records = _card_at(content, _NAMES), _card_at(content, _RECORDS)
    member = content[_card_at(content, _MEMBER) :]
    if min(names, records) < 0:
        raise ValueError
    entry, number = int(member[74:78]), int(content[names + 54 : names + 58])
    kinds = [
        struct.unpack_from(">h2xh", content, names + _CARD + at * entry) for at in range(number)
    ]
    if any(length < 1 for _, length in kinds) or not kinds:
        raise ValueError
    return kinds, records + _CARD


def _card_at(content: bytes, begin: bytes, start: int = 0) -> int:
    """Position of the first card from ``start`` on that begins with ``begin``; -1 if none does."""
    at = content.find(begin, start)
    while at >= 0 and at % _CARD:
        at = content.find(begin, at + 1)
    return at


def _damaged(where: str) -> DataError:
    return DataError(f"{where} cannot be read: it is damaged or cut short.")
