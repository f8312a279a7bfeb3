"""Confirmation of a drafted schema's guesses, in the text of its file: comments stay.

Each function takes the text of a schema file as ``dpbayes schema draft`` writes it, in which every
key has a line of its own, and returns a new one. Of another layout it either says what was
asked, or is refused: the new text is read, and all that was not to change must be as it was.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from dpbayes.core.errors import SchemaError
from dpbayes.schema.columns import COLUMN_TYPES, KEYS, NUMERIC
from dpbayes.schema.draft import LEVELS, MARK, MOST_LEVELS, line_of

GUESSED = "# GUESSED: "  # begins the comment on a guess
OF_NUMBERS = ("lower", "upper", "digits", "atoms", "unit")  # keys that levels do not have
_SUGGESTED = re.compile(rf"# \d+ different values only\..*({LEVELS}\[.*?\])")
_LEFT_OUT = re.compile(r"# (\[columns\..*\]) left out")
_KEPT = "#:"  # begins each line of the section of a column that was left out
_WITH_TYPE = ("type", "levels", *OF_NUMBERS, MARK)  # keys that a change of type changes


@dataclass(frozen=True)
class GuessedColumn:
    """Section of a column with guesses left.

    Attributes:
        name: name of the column.
        lines: its lines with guessed keys, by key, without the comments.
        reasons: comments on the guesses, by key; empty where there is none.
        notes: comments above the section.
    """

    name: str
    lines: dict[str, str]
    reasons: dict[str, str]
    notes: tuple[str, ...]


def guessed_columns(text: str) -> list[GuessedColumn]:
    """List the columns with guesses left, in the order of the file."""
    lines, columns = text.split("\n"), []
    sections = _sections(lines)
    for name, entry in tomllib.loads(text).get("columns", {}).items():
        if not entry.get(MARK):
            continue
        start, end = sections.get(name, (0, 0))
        parts = {}
        for key in entry[MARK]:
            places = _places_in(lines[start:end], key)
            written = lines[start + places[0]] if places else line_of(key, entry.get(key, ""))
            parts[key] = _parts(written)
        notes = lines[_notes_from(lines, start) : start]
        columns.append(
            GuessedColumn(
                name,
                {key: value for key, (value, _) in parts.items()},
                {key: _reason(comment) for key, (_, comment) in parts.items()},
                tuple(note.removeprefix("#").strip() for note in notes),
            )
        )
    return columns


def confirmed(text: str, column: str, keys: Collection[str], source: str = "") -> str:
    """Take keys out of a column's list of guesses.

    Args:
        text: the schema file.
        column: name of the column.
        keys: keys to confirm.
        source: where it is said, as a comment at each of the keys; on one line.
    Raises:
        SchemaError: one of the keys is not marked as guessed.
    """
    lines, marked = text.split("\n"), _marked(text, column)
    if unknown := [key for key in keys if key not in marked]:
        raise SchemaError(
            f"column {column!r}: {unknown[0]!r} is no guess; guesses are {', '.join(marked)}."
        )
    for key in keys:
        place = _place(lines, column, key)
        lines[place] = _parts(lines[place])[0] + _said(source)
    left = [key for key in marked if key not in keys]
    return _edited(text, _with_marks(lines, column, left), column, (MARK,), {MARK: left})


def sourced(text: str, column: str, key: str, source: str) -> str:
    """Say at a key of a column where its value is said."""
    lines = text.split("\n")
    place = _place(lines, column, key)
    if _end_of(lines, place) == place + 1:
        lines[place] = _parts(lines[place])[0] + _said(source)
    return _edited(text, lines, column, ())


def changed(text: str, column: str, line: str) -> str:
    """Replace the value of a column's key by another line ``key = value``, or add the line.

    A column of numbers whose type becomes one with levels has those that the draft suggests, or
    else the whole ones from its lower to its upper bound. One with numbers as levels whose type
    becomes one of numbers has the smallest and largest as bounds.

    Raises:
        SchemaError: this is no such line, or columns have no such key.
    """
    try:
        ((key, value),) = tomllib.loads(line).items()
    except (tomllib.TOMLDecodeError, ValueError):
        raise SchemaError(f"{line!r} is no line of the schema, as: upper = 100") from None
    if key not in KEYS or key == MARK:
        keys = ", ".join(known for known in KEYS if known != MARK)
        raise SchemaError(f"{key!r} is no key of a column; keys are {keys}.")
    lines = text.split("\n")
    entry = _entry(text, column)
    if key == "type" and value in COLUMN_TYPES and value not in NUMERIC:
        lines = _with_levels(lines, column, entry)
    elif key == "type" and value in ("continuous", "count"):
        lines = _with_bounds(lines, column, entry)
    if _places(lines, column, key):
        place = _place(lines, column, key)
        comment = _parts(lines[place])[1]
        kept = f"  {comment}" if comment.startswith(GUESSED) else ""
        lines[place : _end_of(lines, place)] = [line_of(key, value) + kept]
    else:
        lines.insert(_place(lines, column, "type") + 1, line_of(key, value))
    keys_of = _WITH_TYPE if key == "type" else (key,)
    return _edited(text, lines, column, keys_of, {key: value})


def removed(text: str, column: str, key: str) -> str:
    """Take a key out of a column's section, and out of its list of guesses."""
    lines, marked = text.split("\n"), _marked(text, column)
    place = _place(lines, column, key)
    del lines[place : _end_of(lines, place)]
    left = [mark for mark in marked if mark != key]
    if left != marked:
        lines = _with_marks(lines, column, left)
    return _edited(text, lines, column, (key, MARK), {MARK: left})


def declared(text: str, key: str, value: object) -> str:
    """Set a key of the table, at the top of the file; take it out if the value is None.

    A section of that name goes, as TOML has each key once; a comment that suggests the key, too.
    """
    lines = text.split("\n")
    own = re.compile(rf"(# )?{re.escape(key)}\s*=|\[+\s*{re.escape(key)}\s*[].]")
    first = next((k for k, line in enumerate(lines) if line.startswith("[")), len(lines))
    place, start = first, 0
    while start < len(lines):
        match = own.match(lines[start])
        suggestion = match is not None and lines[start].startswith("#")
        if suggestion and not _is_toml(lines[start].removeprefix("# ")):
            match = None  # a comment in words
        if match and (start < first or match[0].startswith("[")):
            place = start if start < place else place
            section = match[0].startswith("[")
            end = _own_end(lines, start) if section else _end_of(lines, start)
            del lines[start:end]
            first -= (end - start) * (start < first)
        else:
            start += 1
    place, before_section = min(place, first), place >= first
    while before_section and place and lines[place - 1].startswith("#"):
        place -= 1  # the notes of the first section stay with it
    if value is not None:
        lines[place:place] = [line_of(key, value)] + [""] * before_section
    return _edited(text, lines, top=key)


@dataclass(frozen=True)
class LeftOutColumn:
    """A column that is neither used nor released.

    Attributes:
        notes: comments above it.
        has_section: whether its section is kept, so that it can be taken back.
    """

    notes: tuple[str, ...]
    has_section: bool


def left_out(text: str, column: str) -> str:
    """Turn a column's section into comments, so that it is neither used nor released."""
    lines = text.split("\n")
    start, _ = _section(lines, column)
    end = _own_end(lines, start)
    own = [f"{_KEPT} {line}" for line in lines[start + 1 : end]]
    title = _parts(lines[start].strip())[0]
    lines[start:end] = [f"# {title} left out", *own]
    return _edited(text, lines, column)


def taken_back(text: str, column: str) -> str:
    """Turn the comments that ``left_out`` made into the column's section again.

    Raises:
        SchemaError: no such column was left out, or the draft never had a section of it.
    """
    lines = text.split("\n")
    title, start, end = _left_out_at(lines, column)
    if end == start + 1:
        raise SchemaError(f"column {column!r} has no section: write one into the file.")
    own = [line.removeprefix(_KEPT).removeprefix(" ") for line in lines[start + 1 : end]]
    return _edited(text, [*lines[:start], title, *own, *lines[end:]], column)


def columns_left_out(text: str) -> dict[str, LeftOutColumn]:
    """Columns that the draft, or somebody since, left out."""
    lines, columns = text.split("\n"), {}
    for name, (_, start, end) in _all_left_out(lines).items():
        notes = lines[_notes_from(lines, start) : start]
        stripped = tuple(note.removeprefix("#").strip() for note in notes)
        columns[name] = LeftOutColumn(stripped, has_section=end > start + 1)
    return columns


def as_identifier(text: str, column: str) -> str:
    """Declare a column that was left out as identifier, so that rows of a person are known.

    Raises:
        SchemaError: no such column was left out.
    """
    lines = text.split("\n")
    title, start, end = _left_out_at(lines, column)
    return _edited(text, [*lines[:start], title, 'type = "identifier"', *lines[end:]], column)


def _edited(
    text: str,
    lines: list[str],
    column: str | None = None,
    keys: Collection[str] | None = None,
    said: dict[str, Any] | None = None,
    *,
    top: str = "",
) -> str:
    """Join the lines of a new file, in which nothing but these keys may have changed.

    Args:
        text: the file before.
        column: the column that was to change; None if no column was.
        keys: its keys that may have changed; None if the column may have come or gone.
        said: what some of them must be now; an empty list for a key that must be gone.
        top: key of the table that may have changed.
    Raises:
        SchemaError: something else changed, because of the layout of the file.
    """
    new = "\n".join(lines)
    with contextlib.suppress(tomllib.TOMLDecodeError):
        same = _rest(text, column, keys, top) == _rest(new, column, keys, top)
        entry = tomllib.loads(new).get("columns", {}).get(column, {}) if said else {}
        if same and all(entry.get(key, []) == value for key, value in (said or {}).items()):
            return new
    raise SchemaError(
        f"{column or top!r} cannot be changed in this way, because of how the file is laid out. "
        "Edit it as text: each key on a line of its own, below the [columns.NAME] of its column."
    )


def _rest(text: str, column: str | None, keys: Collection[str] | None, top: str) -> dict[str, Any]:
    """What a file says apart from a column's keys, or the column, and a key of the table."""
    tree = tomllib.loads(text)
    columns = tree.pop("columns", {})
    tree.pop(top, None)
    if keys is None:
        columns.pop(column, None)
    else:
        columns = {
            name: {k: v for k, v in entry.items() if name != column or k not in keys}
            for name, entry in columns.items()
        }
    return {**tree, "columns": columns}


def _parts(line: str) -> tuple[str, str]:
    """A line ``key = value`` without its comment, and the comment; a text may hold a # as well."""
    for place in (k for k, character in enumerate(line) if character == "#"):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(line[:place]) == tomllib.loads(line):
                return line[:place].rstrip(), line[place:]
    return line, ""


def _reason(comment: str) -> str:
    return comment.removeprefix(GUESSED) if comment.startswith(GUESSED) else ""


def _said(source: str) -> str:
    """A source as the end of a line."""
    shown = "".join(c if c.isprintable() else " " for c in source).strip()
    return f"  # {shown}" if shown else ""


def _is_toml(line: str) -> bool:
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return bool(tomllib.loads(line))
    return False


def _end_of(lines: list[str], start: int) -> int:
    """The line after a value that may stand on several.

    Raises:
        SchemaError: the value does not end before the next section.
    """
    for end in range(start + 1, len(lines) + 1):
        if _is_toml("\n".join(lines[start:end]).removeprefix("# ")):
            return end
        if end < len(lines) and _title(lines[end]) is not None:
            break
    raise SchemaError(f"{lines[start]!r} is no line of a schema.")


def _own_end(lines: list[str], start: int) -> int:
    """The line after a section's own lines, which notes on the next section do not belong to."""
    end = start + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end


def _left_out_at(lines: list[str], column: str) -> tuple[str, int, int]:
    """Title, first and last line of what is left of a column; the last is not included.

    Raises:
        SchemaError: no such column was left out.
    """
    places = _all_left_out(lines)
    if column not in places:
        raise SchemaError(f"column {column!r} was not left out.")
    return places[column]


def _all_left_out(lines: list[str]) -> dict[str, tuple[str, int, int]]:
    """What ``_left_out_at`` returns, by column; without those that somebody wrote in again."""
    there, places = _sections(lines), {}
    for start, line in enumerate(lines):
        if not (match := _LEFT_OUT.fullmatch(line.strip())):
            continue
        with contextlib.suppress(tomllib.TOMLDecodeError):  # a comment that somebody wrote
            (name,) = tomllib.loads(match[1])["columns"]
            own = itertools.takewhile(lambda own: own.startswith(_KEPT), lines[start + 1 :])
            if name not in there:
                places[name] = match[1], start, start + 1 + len(list(own))
    return places


def _with_levels(lines: list[str], column: str, entry: dict[str, Any]) -> list[str]:
    """The lines with levels in place of what only numbers have, as suggested or whole ones."""
    if "levels" in entry or not {"lower", "upper"} <= set(entry):
        return lines
    lower, upper, marks = entry["lower"], entry["upper"], entry.get(MARK, [])
    levels, why = (
        _suggested(lines, _section(lines, column)[0]),
        "those that were found; are there others?",
    )
    guessed = levels is not None or bool(set(marks) & {"lower", "upper"})
    if levels is None:
        if entry["type"] != "count" or not 1 <= upper - lower < MOST_LEVELS:
            raise SchemaError(
                f"column {column!r}: only whole numbers with bounds less than {MOST_LEVELS} apart "
                "become levels. Change the bounds first, or write the levels."
            )
        levels = list(range(lower, upper + 1))
        why = "from the lower to the upper bound; are there others?"
    written = [line_of("levels", levels) + (f"  {GUESSED}{why}" if guessed else "")]
    lines = _with_marks(
        lines, column, [key for key in marks if key not in OF_NUMBERS] + ["levels"] * guessed
    )
    for key in OF_NUMBERS:
        for place in _places(lines, column, key)[:1]:
            lines[place : _end_of(lines, place)] = written
            written = []
    return lines


def _with_bounds(lines: list[str], column: str, entry: dict[str, Any]) -> list[str]:
    """The lines with bounds in place of levels that are numbers; other lines as they are."""
    levels, marks = entry.get("levels", []), entry.get(MARK, [])
    if not levels or not all(type(level) in (int, float) for level in levels):
        return lines
    guessed = "levels" in marks
    bounds = {"lower": (min(levels), "smallest"), "upper": (max(levels), "largest")}
    written = [
        line_of(key, value) + (f"  {GUESSED}the {which} level" if guessed else "")
        for key, (value, which) in bounds.items()
    ]
    if guessed:
        lines = _with_marks(lines, column, [key for key in marks if key != "levels"] + list(bounds))
    place = _place(lines, column, "levels")
    lines[place : _end_of(lines, place)] = written
    return lines


def _with_marks(lines: list[str], column: str, marks: Collection[str]) -> list[str]:
    """The lines with another list of guesses; without one if there is none left."""
    new = [line_of(MARK, list(marks))] if marks else []
    if places := _places(lines, column, MARK):
        start, end = places[0], _end_of(lines, places[0])
    elif marks:
        start = end = _own_end(lines, _section(lines, column)[0])
    else:
        return lines
    return [*lines[:start], *new, *lines[end:]]


def _suggested(lines: list[str], start: int) -> list[float] | None:
    """Levels that a comment above a column's section suggests; None if there is no such comment."""
    for note in lines[_notes_from(lines, start) : start]:
        match = _SUGGESTED.match(note)
        if match and _is_toml(match[1]):
            return list(tomllib.loads(match[1])["levels"])
    return None


def _notes_from(lines: list[str], start: int) -> int:
    """First line of the comments above a section."""
    while start and _is_note(lines[start - 1]):
        start -= 1
    return start


def _is_note(line: str) -> bool:
    return line.startswith("#") and not (line.startswith(_KEPT) or _LEFT_OUT.fullmatch(line))


def _sections(lines: list[str]) -> dict[str, tuple[int, int]]:
    """First and last line of each column's section, by name; the last is not included."""
    starts = [k for k, line in enumerate(lines) if line.lstrip().startswith("[")]
    titled = (
        (start, end, _title(lines[start]))
        for start, end in itertools.pairwise([*starts, len(lines)])
    )
    return {name: (start, end) for start, end, name in titled if name is not None}


def _title(line: str) -> str | None:
    """Name of the column whose section begins with this line; None if none does."""
    if line.lstrip().startswith("["):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            columns = tomllib.loads(line).get("columns")
            if isinstance(columns, dict) and list(columns.values()) == [{}]:
                return str(next(iter(columns)))
    return None


def _section(lines: list[str], column: str) -> tuple[int, int]:
    """First and last line of a column's section.

    Raises:
        SchemaError: it has none, or says all in one line.
    """
    sections = _sections(lines)
    if column not in sections:
        raise SchemaError(
            f"column {column!r} has no section [columns.NAME] of its own: edit the file as text."
        )
    return sections[column]


def _entry(text: str, column: str) -> dict[str, Any]:
    """What the file says of a column."""
    return dict(tomllib.loads(text)["columns"][column])


def _marked(text: str, column: str) -> list[str]:
    """Keys of a column that are marked as guessed."""
    return list(_entry(text, column).get(MARK, []))


def _place(lines: list[str], column: str, key: str) -> int:
    if places := _places(lines, column, key):
        return places[0]
    raise SchemaError(f"column {column!r} has no line that begins with {key} =")


def _places(lines: list[str], column: str, key: str) -> list[int]:
    start, end = _section(lines, column)
    return [start + place for place in _places_in(lines[start:end], key)]


def _places_in(section: list[str], key: str) -> list[int]:
    own = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    return [k for k, line in enumerate(section) if own.match(line)]
