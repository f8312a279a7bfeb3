"""Check that all records of a SAS transport file (``.xpt``) can be read.

The file consists of cards of 80 bytes: headers, then the records one after the other, then blanks
to the end of a card. Version 8 states the number of records; version 5 does not, so that a file cut
at the end of both a card and a record looks complete. The reader, ReadStat, checks none of this.

The layout follows technical note TS-140 of SAS Institute.
"""

from __future__ import annotations

import struct

from dpbayes.core.errors import DataError
from dpbayes.records.formats.names import check_ends
from dpbayes.records.formats.source import File
from dpbayes.schema import Schema

_CARD = 80  # bytes
_MEMBER = b"HEADER RECORD*******MEMB"
_NAMES = b"HEADER RECORD*******NAM"
_RECORDS = b"HEADER RECORD*******OBS"
_COUNTED = _RECORDS + b"V8"
_TEXT = 2  # type of a text column; 1 is a number, which is never blank, even if missing


def check_transport(file: File, schema: Schema | None) -> None:
    """Raise DataError if a file is cut, holds several tables, or may have lost its last records.

    Records may be lost if all columns are text: blank records then look like padding of a card.
    """
    with file.seekable() as stream:
        content = stream.read()
    try:
        kinds, start = _columns(content)
    except (ValueError, struct.error):
        raise _damaged(file) from None
    count_text = content[start - 32 : start - 17].strip()
    if _card_at(content, _MEMBER, start) >= 0:
        raise DataError(f"{file.where} holds several tables; export each to a file of its own.")
    size, width = len(content) - start, sum(length for _, length in kinds)
    counted = content[start - _CARD : start].startswith(_COUNTED) and count_text.isdigit()
    end = start + (int(count_text) if counted else size // width) * width
    if size % _CARD or not 0 <= len(content) - end < _CARD or content[end:].strip(b" "):
        raise _damaged(file)
    if not counted and all(kind == _TEXT for kind, _ in kinds):
        check_ends(file.where, schema)


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


def _damaged(file: File) -> DataError:
    return DataError(f"{file.where} cannot be read: it is damaged or cut short.")
