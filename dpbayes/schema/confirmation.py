"""Confirmation of a drafted schema's guesses, in the text of its file: comments stay.

Each function takes the text of a schema file as ``dpbayes schema draft`` writes it, in which every
key has a line of its own, and returns a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass

from dpbayes.core.errors import SchemaError
from dpbayes.schema.columns import COLUMN_TYPES, KEYS, NUMERIC
from dpbayes.schema.draft import LEVELS, MARK, MOST_LEVELS, line_of

_COMMENT = "  # GUESSED: "
_OF_NUMBERS = ("lower", "upper", "digits", "atoms", "unit")  # keys that levels do not have
_SUGGESTED = re.compile(rf"# \d+ different values only\..*({LEVELS}\[.*?\])")
_LEFT_OUT = re.compile(r"# (\[columns\..*\]) left out")
_KEPT = "#: "  # begins each line of the section of a column that was left out
_SECTION = re.compile(r"\[columns\..*\]\s*")


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
    """List the columns with guesses left, in the order of the file.

    Raises:
        SchemaError: a guessed key is not on a line of its own.
    """
    lines, columns = text.split("\n"), []
    for name, (start, end) in _sections(lines).items():
        section = lines[start:end]
        marked = _marks(section)
        if not marked:
            continue
        guessed = {}
        for key in marked:
            places = _places_in(section, key)
            if not places:
                raise _not_on_a_line(name, key)
            guessed[key] = section[places[0]].partition(_COMMENT)
        above = _notes_from(lines, start)
        columns.append(
            GuessedColumn(
                name,
                {key: parts[0] for key, parts in guessed.items()},
                {key: parts[2] for key, parts in guessed.items()},
                tuple(line.removeprefix("#").strip() for line in lines[above:start]),
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
    lines = text.split("\n")
    marked = _marked(lines, column)
    if unknown := [key for key in keys if key not in marked]:
        raise SchemaError(
            f"column {column!r}: {unknown[0]!r} is no guess; guesses are {', '.join(marked)}."
        )
    shown = "".join(c if c.isprintable() else " " for c in source).strip()
    for key in keys:
        place = _place(lines, column, key)
        lines[place] = lines[place].partition(_COMMENT)[0] + (f"  # {shown}" if shown else "")
    left = [key for key in marked if key not in keys]
    place = _place(lines, column, MARK)
    lines[place : place + 1] = [line_of(MARK, left)] if left else []
    return "\n".join(lines)


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
    lines = text.split("\n")
    if key == "type" and value in COLUMN_TYPES and value not in NUMERIC:
        lines = _with_levels(lines, column)
    elif key == "type" and value in ("continuous", "count"):
        lines = _with_bounds(lines, column)
    if key not in KEYS or key == MARK:
        keys = ", ".join(known for known in KEYS if known != MARK)
        raise SchemaError(f"{key!r} is no key of a column; keys are {keys}.")
    if not _places(lines, column, key):
        lines.insert(_place(lines, column, "type") + 1, line_of(key, value))
        return "\n".join(lines)
    place = _place(lines, column, key)
    comment = "".join(lines[place].partition(_COMMENT)[1:])
    lines[place : _end_of(lines, place)] = [line_of(key, value) + comment]
    return "\n".join(lines)


def removed(text: str, column: str, key: str) -> str:
    """Take a key out of a column's section, and out of its list of guesses."""
    lines = text.split("\n")
    if key in _marked(lines, column):
        lines = confirmed(text, column, [key]).split("\n")
    place = _place(lines, column, key)
    del lines[place : _end_of(lines, place)]
    return "\n".join(lines)


def declared(text: str, key: str, value: object) -> str:
    """Set a key of the table, at the top of the file; take it out if the value is None.

    A section of that name goes, as TOML has each key once; a comment that suggests the key, too.
    """
    lines = text.split("\n")
    own = re.compile(rf"(# )?{re.escape(key)}\s*=|\[+{re.escape(key)}[].]")
    first = next((k for k, line in enumerate(lines) if line.startswith("[")), len(lines))
    place, start = first, 0
    while start < len(lines):
        if (match := own.match(lines[start])) and (start < first or match[0].startswith("[")):
            place = start if start < place else place
            end = _end_of(lines, start)
            del lines[start:end]
            first -= (end - start) * (start < first)
        else:
            start += 1
    place, before_section = min(place, first), place >= first
    while before_section and place and lines[place - 1].startswith("#"):
        place -= 1  # the notes of the first section stay with it
    if value is not None:
        lines[place:place] = [line_of(key, value)] + [""] * before_section
    return "\n".join(lines)


def _end_of(lines: list[str], start: int) -> int:
    """The line after a section's own lines, or after a value that may stand on several."""
    end = start + 1
    if lines[start].startswith("["):
        while end < len(lines) and not lines[end].startswith(("[", "#")):
            end += 1
        return end
    while end < len(lines):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            tomllib.loads("\n".join(lines[start:end]))
            break
        end += 1
    return end


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
    start, end = _sections(lines)[column]
    after = start + 1  # what follows the section's own lines, such as notes of the next one
    while after < end and lines[after].strip() and not lines[after].startswith("#"):
        after += 1
    own = [_KEPT + line for line in lines[start + 1 : after]]
    return "\n".join([*lines[:start], f"# {lines[start].strip()} left out", *own, *lines[after:]])


def taken_back(text: str, column: str) -> str:
    """Turn the comments that ``left_out`` made into the column's section again.

    Raises:
        SchemaError: no such column was left out, or the draft never had a section of it.
    """
    lines = text.split("\n")
    title, start, end = _left_out_at(lines, column)
    if end == start + 1:
        raise SchemaError(f"column {column!r} has no section: write one into the file.")
    own = [line.removeprefix(_KEPT) for line in lines[start + 1 : end]]
    return "\n".join([*lines[:start], title, *own, *lines[end:]])


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
    return "\n".join([*lines[:start], title, 'type = "identifier"', *lines[end:]])


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


def _with_levels(lines: list[str], column: str) -> list[str]:
    """The lines with levels in place of what only numbers have, as suggested or whole ones."""
    start, end = _sections(lines)[column]
    entry = tomllib.loads("\n".join(lines[start + 1 : end]))
    if "levels" in entry or not {"lower", "upper"} <= set(entry):
        return lines
    lower, upper = entry["lower"], entry["upper"]
    place, marks = _place(lines, column, "lower"), _marked(lines, column)
    levels, why = _suggested(lines, start), "those that were found; are there others?"
    guessed = levels is not None or bool(set(marks) & {"lower", "upper"})
    if levels is None:
        if entry["type"] != "count" or not 1 <= upper - lower < MOST_LEVELS:
            raise SchemaError(
                f"column {column!r}: only whole numbers with bounds less than {MOST_LEVELS} apart "
                "become levels. Change the bounds first, or write the levels into the file."
            )
        levels = list(range(lower, upper + 1))
        why = "from the lower to the upper bound; are there others?"
    lines[place] = line_of("levels", levels) + (_COMMENT + why if guessed else "")
    left = [key for key in marks if key not in _OF_NUMBERS] + ["levels"] * guessed
    if marks:
        lines[_place(lines, column, MARK)] = line_of(MARK, left)
    elif left:  # what was found is a guess, though the bounds were confirmed
        lines[place] += f"\n{line_of(MARK, left)}"
    others = {k for key in _OF_NUMBERS for k in _places(lines, column, key)}
    kept = [line for k, line in enumerate(lines) if k not in others]
    return "\n".join(kept).split("\n")


def _with_bounds(lines: list[str], column: str) -> list[str]:
    """The lines with bounds in place of levels that are numbers; other lines as they are."""
    start, end = _sections(lines)[column]
    entry = tomllib.loads("\n".join(lines[start + 1 : end]))
    levels = entry.get("levels", [])
    if not levels or not all(type(level) in (int, float) for level in levels):
        return lines
    place, marks = _place(lines, column, "levels"), _marked(lines, column)
    guessed = "levels" in marks
    bounds = {"lower": (min(levels), "smallest"), "upper": (max(levels), "largest")}
    new = [
        line_of(key, value) + (f"{_COMMENT}the {which} level" if guessed else "")
        for key, (value, which) in bounds.items()
    ]
    if guessed:
        left = [key for key in marks if key != "levels"] + list(bounds)
        lines[_place(lines, column, MARK)] = line_of(MARK, left)
    lines[place : _end_of(lines, place)] = new
    return lines


def _suggested(lines: list[str], start: int) -> list[float] | None:
    """Levels that a comment above a column's section suggests; None if there is no such comment."""
    for note in lines[_notes_from(lines, start) : start]:
        if match := _SUGGESTED.match(note):
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
    sections = {}
    for start, end in itertools.pairwise([*starts, len(lines)]):
        if _SECTION.fullmatch(lines[start].strip()):
            (name,) = tomllib.loads(lines[start])["columns"]
            sections[name] = start, end
    return sections


def _marked(lines: list[str], column: str) -> list[str]:
    start, end = _sections(lines)[column]
    return _marks(lines[start:end])


def _marks(section: list[str]) -> list[str]:
    """Keys of a column's section that are marked as guessed."""
    marks = [line for line in section if re.match(rf"{MARK}\s*=", line)]
    return list(tomllib.loads(marks[0])[MARK]) if marks else []


def _place(lines: list[str], column: str, key: str) -> int:
    if places := _places(lines, column, key):
        return places[0]
    raise _not_on_a_line(column, key)


def _not_on_a_line(column: str, key: str) -> SchemaError:
    return SchemaError(f"column {column!r} has no line that begins with {key} =")


def _places(lines: list[str], column: str, key: str) -> list[int]:
    start, end = _sections(lines)[column]
    return [start + place for place in _places_in(lines[start:end], key)]


def _places_in(section: list[str], key: str) -> list[int]:
    return [k for k, line in enumerate(section) if re.match(rf"{re.escape(key)}\s*=", line)]
