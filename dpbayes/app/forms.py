"""The schema as a form: what is typed for a column or the table, as lines of the schema file."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_origin, get_type_hints

from dpbayes.core.errors import SchemaError
from dpbayes.core.files import read_text
from dpbayes.schema import Schema
from dpbayes.schema.columns import COLUMN_TYPES, KEYS, NUMERIC
from dpbayes.schema.confirmation import (
    OF_NUMBERS,
    changed,
    confirmed,
    declared,
    guessed_columns,
    left_out,
    removed,
    sourced,
)
from dpbayes.schema.draft import MARK, line_of
from dpbayes.schema.editors import TABLES, key_descriptions, keys_of
from dpbayes.schema.table import IDENTIFIER, TITLES

CHOICE, TRUTH, LINES, LINE = "choice", "truth", "lines", "line"
_OF_LISTS = ("levels", "atoms")
_OF_TEXT = ("type", "format", "only_if", "unit", "label")
_DAYS = ("date", "datetime")
WORDS = {  # what is asked for each key of a column, and what to type
    "type": ("Type", "Codes are categorical, or ordinal in order; an identifier is dropped."),
    "lower": ("Smallest possible value", "Of all who could be in the table, not of those who are."),
    "upper": ("Largest possible value", "Of all who could be in the table, not of those who are."),
    "levels": ("Levels", "All that are possible, in their order; one on each line."),
    "digits": ("Decimals", "To which values are released; -2 for the nearest hundred."),
    "atoms": ("Single values that many have", "Such as an income of 0; one on each line."),
    "format": ("Format of dates", "As in the file: %d.%m.%Y for 31.12.2026."),
    "missing": ("May be missing", "true, or the codes that stand for no value; one on each line."),
    "only_if": ("Asked only if", "A rule, such as: age >= 16. Elsewhere there is no value."),
    "unit": ("Unit", "On the axes of figures: dollars an hour."),
    "label": ("Label", "What the column says, in words."),
    "public": ("Public", "Released unchanged: every value of this column is published."),
}
SHOWN = 6  # levels of a column in the list of columns
_OF_TABLE = (*TITLES, "rows", "rules")


class StaleFormError(SchemaError):
    """What a form shows was changed since it was loaded."""


class BrokenFileError(SchemaError):
    """The schema file was changed beside the page, and is no schema any more."""


@dataclass(frozen=True)
class Field:
    """A key of a column, or of the table, as the page shows it.

    Attributes:
        key: the key of the schema file; TABLE.KEY for one of a table such as ``cluster``.
        kind: ``choice``, ``truth`` (a box to tick), ``lines`` or ``line``.
        typed: its value as it is typed.
        guessed: whether it was read off the records, and nobody has confirmed it.
        reason: the draft's comment on the guess.
        title: what is asked.
        about: what to type.
    """

    key: str
    kind: str
    typed: str
    guessed: bool
    reason: str
    title: str
    about: str


@dataclass(frozen=True)
class ColumnForm:
    """A column of the schema file, as the page shows it.

    Attributes:
        name: name of the column.
        fields: its keys, and those that it could have.
        notes: the draft's comments on the column.
        state: hash of what the file says of the column.
        types: the types that it could have.
    """

    name: str
    fields: tuple[Field, ...]
    notes: tuple[str, ...]
    state: str = ""
    types: tuple[str, ...] = (*COLUMN_TYPES, IDENTIFIER)

    def with_answers(self, answers: Mapping[str, str]) -> ColumnForm:
        """The form as it was sent."""
        fields = (
            replace(field, typed=answers.get(field.key, "" if field.kind == TRUTH else field.typed))
            for field in self.fields
        )
        return replace(self, fields=tuple(fields))

    def typed(self, key: str) -> str:
        """What is typed for a key; empty if the column has no such key."""
        return next((field.typed for field in self.fields if field.key == key), "")

    @property
    def public(self) -> bool:
        """Whether its values are released unchanged."""
        return self.typed("public") == "true"

    @property
    def values(self) -> str:
        """The values that the column may have, in few words."""
        levels = self.typed("levels").split("\n") if self.typed("levels") else []
        text = ", ".join(levels[:SHOWN])
        if len(levels) > SHOWN:
            text += f" … ({len(levels)} levels)"
        if self.typed("upper"):
            text = f"{self.typed('lower') or '0'} to {self.typed('upper')}"
        return text + ("; may be missing" if self.typed("missing") else "")

    @property
    def guesses(self) -> int:
        """Number of guesses that are left."""
        return sum(field.guessed for field in self.fields)


def column_forms(text: str) -> dict[str, ColumnForm]:
    """Read the columns of a schema file, in its order."""
    guessed = {column.name: column for column in guessed_columns(text)}
    forms = {}
    for name, entry in tomllib.loads(text).get("columns", {}).items():
        reasons = guessed[name].reasons if name in guessed else {}
        shown = [key for key in KEYS if key in entry or _could_have(key, entry.get("type"))]
        if entry.get("type") in ("continuous", "count"):
            shown.append("levels")  # for codes, together with another type
        fields = [
            Field(
                key,
                _kind(key, entry.get(key)),
                typed(entry.get(key)),
                key in reasons,
                reasons.get(key, ""),
                *WORDS[key],
            )
            for key in shown
            if key != MARK
        ]
        forms[name] = ColumnForm(
            name,
            tuple(fields),
            guessed[name].notes if name in guessed else (),
            state_of(entry),
        )
    return forms


def next_guess(forms: Sequence[ColumnForm], place: int) -> int | None:
    """Place of the next column with guesses left, after this one; None if there is none."""
    places = [*range(place + 1, len(forms)), *range(place)]
    return next((other for other in places if forms[other].guesses), None)


def _could_have(key: str, kind: object) -> bool:
    """Whether a column of this type can have the key."""
    if kind == IDENTIFIER:
        return key == "type"
    if key == "format":
        return kind in _DAYS
    if key == "digits":
        return kind == "continuous"
    return key not in (["levels"] if kind in NUMERIC else OF_NUMBERS)


def _kind(key: str, value: object) -> str:
    if key in ("type", "public"):
        return CHOICE if key == "type" else TRUTH
    return LINES if key in (*_OF_LISTS, "missing") or isinstance(value, list) else LINE


def typed(value: object) -> str:
    """Write a value of TOML as it is typed: texts without quotes, lists in lines."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(item if isinstance(item, str) else _toml(item) for item in value)
    return value if isinstance(value, str) else _toml(value)


def _toml(value: object) -> str:
    """Write a value as in a schema file; a table on one line."""
    if isinstance(value, Mapping):  # rows = {noisy = 0.05}
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return line_of("x", value).partition("=")[2].strip()


def read_value(key: str, text: str, before: object) -> object:
    """Read what is typed for a key of a column.

    Args:
        key: the key.
        text: what is typed, not empty.
        before: the value that it had; None without one.
    """
    if key == "public":
        return text == "true"
    if key in _OF_TEXT:
        return text
    if key in _OF_LISTS or "\n" in text or isinstance(before, list):
        items = [line.strip() for line in text.split("\n") if line.strip()]
        numbers = [_number(item) for item in items]
        were_texts = isinstance(before, list) and any(isinstance(item, str) for item in before)
        return items if were_texts or None in numbers else numbers
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return [text] if key == "missing" else text


def _lines(text: str) -> str:
    """A text as typed, with its line ends in one form."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _number(text: str) -> int | float | None:
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return None
    return value if type(value) in (int, float) else None


def answered(text: str, column: str, answers: Mapping[str, str], source: str) -> str:
    """Return the schema file's text after a column's form was sent.

    Args:
        text: the schema file.
        column: name of the column.
        answers: what was typed for each key; ``confirm-KEY`` is there where the box was ticked.
        source: where it is said.
    Raises:
        SchemaError: there is no such column, or the file would be no schema.
    """
    forms = column_forms(text)
    if column not in forms:
        raise SchemaError(f"the schema has no column {column!r}.")
    form, kind = forms[column], answers.get("type", forms[column].typed("type"))
    if kind == IDENTIFIER:
        return checked(_identifier(text, form, source))
    retyped = kind != form.typed("type")
    if retyped and kind not in NUMERIC and answers.get("levels", "").strip():
        for key in set(OF_NUMBERS) & set(tomllib.loads(text)["columns"][column]):
            text = removed(text, column, key)  # or levels would be made of bounds
    # The type last: bounds follow from levels, and levels from bounds, as they are typed now.
    for field in sorted(form.fields, key=lambda field: field.key == "type"):
        entry = tomllib.loads(text)["columns"][column]
        if field.key in OF_NUMBERS and field.typed and field.key not in entry:
            continue  # it went with the type
        answer, before = _lines(answers.get(field.key, "")), entry.get(field.key)
        if field.kind == TRUTH:
            answer = "true" if answer else ""
        if answer == _lines(field.typed) or (field.kind == TRUTH and not answer and not before):
            continue
        if answer:
            line = line_of(field.key, read_value(field.key, answer, before))
            text = changed(text, column, line)
            if before is not None and not field.guessed:
                text = sourced(text, column, field.key, source)
        elif field.key in entry:
            text = removed(text, column, field.key)
    for key in tomllib.loads(text)["columns"][column]:
        if retyped and key != MARK and not _could_have(key, kind):
            text = removed(text, column, key)
    # Only what was shown as a guess can be confirmed: a change of type makes others.
    marked = tomllib.loads(text)["columns"][column].get(MARK, [])
    shown = [field.key for field in form.fields if field.guessed and field.key in marked]
    confirm = [key for key in shown if f"confirm-{key}" in answers]
    if confirm:
        if not source.strip():
            raise SchemaError("say who says so, as: questionnaire 2024, p. 12.")
        text = confirmed(text, column, confirm, source)
    return checked(text)


def _identifier(text: str, column: ColumnForm, source: str) -> str:
    """Declare a column as identifier, which has no other key and is dropped."""
    for key in tomllib.loads(text)["columns"][column.name]:
        if key not in ("type", MARK):
            text = removed(text, column.name, key)
    if any(field.key == "type" and field.guessed for field in column.fields):
        text = confirmed(text, column.name, ["type"], source)
    return changed(text, column.name, line_of("type", IDENTIFIER))


def without_columns(text: str, columns: Iterable[str]) -> str:
    """Return the text without columns, which are then neither used nor released.

    Raises:
        SchemaError: there is no such column, or others need it.
    """
    for column in columns:
        if column not in column_forms(text):
            raise SchemaError(f"the schema has no column {column!r}.")
        text = left_out(text, column)
    return checked(text)


def table_form(text: str) -> dict[str, str]:
    """What the schema file says of the whole table, as it is typed."""
    entries = tomllib.loads(text)
    return {key: typed(entries.get(key)) for key in _OF_TABLE}


def state_of(said: object) -> str:
    """Hash of what a form shows, by which it is known whether that has changed since."""
    return hashlib.sha256(repr(said).encode()).hexdigest()


def refuse_stale(answers: Mapping[str, str], said: object) -> None:
    """Raise StaleFormError if a form, which sends its state, showed something else than this."""
    if answers.get("state", state_of(said)) != state_of(said):
        raise StaleFormError(
            "nothing was saved: this was changed since that page was loaded. It stands below as it "
            "is now."
        )


def read_schema(path: Path) -> str:
    """Read a schema file, which somebody may have edited.

    Raises:
        BrokenFileError: it is no schema.
    """
    try:
        return checked(read_text(path))
    except (SchemaError, ValueError) as error:
        raise BrokenFileError(f"the schema file was changed beside the page: {error}") from None


def as_it_is(path: Path) -> str:
    """The text of a schema file, even if it is none, to be mended."""
    return path.read_bytes().decode(errors="replace").replace("\r\n", "\n").lstrip("\ufeff")


def of_table(text: str) -> object:
    """What the form of the whole table shows."""
    return table_form(text), grouping_forms(text)


def grouping_forms(text: str) -> dict[str, tuple[Field, ...]]:
    """Keys of the tables that say which rows belong together, and of the weights, by table."""
    entries, forms = tomllib.loads(text), {}
    for name, kind in TABLES.items():
        entry, about, hints = entries.get(name, {}), key_descriptions(kind), get_type_hints(kind)
        forms[name] = tuple(
            Field(
                f"{name}.{key}",
                LINES if get_origin(hints[key]) is tuple else LINE,
                typed(entry.get(key)),
                False,
                "",
                key if needed else f"{key}, if any",
                about[key][0].upper() + about[key][1:],
            )
            for key, needed in keys_of(kind).items()
        )
    return forms


def with_table(text: str, answers: Mapping[str, str]) -> str:
    """Return the schema file's text after the table's form was sent.

    Raises:
        SchemaError: an entry cannot be read, or the file would be no schema.
    """
    for key, before in table_form(text).items():
        answer = _lines(answers.get(key, before))
        if answer != _lines(before):
            text = declared(text, key, _of_table(key, answer) if answer else None)
    for name, fields in grouping_forms(text).items():
        given = {field.key: _lines(answers.get(field.key, field.typed)) for field in fields}
        if any(given[field.key] != _lines(field.typed) for field in fields):
            text = declared(text, name, _grouping(name, given) or None)
    return checked(text)


def _grouping(name: str, given: Mapping[str, str]) -> dict[str, object]:
    """Read what is typed for the keys of a table such as ``cluster``, without those left empty."""
    hints, entry = get_type_hints(TABLES[name]), {}
    for key, answer in given.items():
        hint = hints[key.removeprefix(f"{name}.")]
        value: object = answer
        if get_origin(hint) is tuple:
            value = [line.strip() for line in answer.split("\n") if line.strip()]
        elif hint in (int, float) and answer and (value := _number(answer)) is None:
            raise SchemaError(f"{key}: {answer!r} must be a number.")
        if value not in ("", []):
            entry[key.removeprefix(f"{name}.")] = value
    return entry


def _of_table(key: str, answer: str) -> object:
    """Read what is typed for a key of the table."""
    if key in TITLES:
        return answer
    if key == "rules":
        return [line.strip() for line in answer.split("\n") if line.strip()]
    if key == "rows" and not answer[0].isdigit() and not answer.startswith("{"):
        return answer
    try:
        return tomllib.loads(f"x = {answer}")["x"]
    except tomllib.TOMLDecodeError:
        raise SchemaError(f"{key}: {answer!r} cannot be read.") from None


def checked(text: str) -> str:
    """Return the text if it is a schema file.

    Raises:
        SchemaError: it is none.
    """
    try:
        Schema.from_dict(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the file is no TOML that can be read: {error}.") from None
    return text
