"""JSON Schema of schema files, built from the code that reads them."""

from __future__ import annotations

import inspect
import re
import types
from dataclasses import MISSING, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dpbayes.schema.clusters import Cluster
from dpbayes.schema.columns import KEYS, Column
from dpbayes.schema.draft import MARK
from dpbayes.schema.rows import MOST_VALUES
from dpbayes.schema.survey import Survey
from dpbayes.schema.table import IDENTIFIER, MOST_TITLE, UNITS

_TITLES = {
    "title": "Title of the data, for readers of the release.",
    "publisher": "Who publishes the data.",
    "unit_of_record": "What one row describes: a person aged 16 or over.",
}
TABLES: dict[str, type[Any]] = {  # tables of the file beside the columns
    "cluster": Cluster, **{kind.table: kind for kind in UNITS}, "survey": Survey,
}  # fmt: skip
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number"}


def json_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12. Only ``Column`` checks conditions such as lower < upper."""
    hints, descriptions = get_type_hints(Column), key_descriptions(Column)
    keys = {key: {**_kind(hints[key]), "description": descriptions[key]} for key in KEYS}
    keys[MARK]["items"] = {"enum": [key for key in KEYS if key != MARK]}
    keys["type"]["enum"] = [*keys["type"]["enum"], IDENTIFIER]
    day = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    codes = {"type": ["string", "number"]}
    for key in ("lower", "upper"):  # editors read a date of TOML as text
        keys[key]["anyOf"] = [{"type": keys[key].pop("type")}, day]
    keys["atoms"]["items"] = {"anyOf": [keys["atoms"]["items"], day]}
    code_list = {"type": keys["missing"].pop("type"), "items": codes}
    keys["missing"].pop("items")
    keys["missing"]["anyOf"] = [{"type": "boolean"}, code_list]
    needed = [f.name for f in fields(Column) if f.name in KEYS and f.default is MISSING]
    column = {
        "type": "object",
        "properties": keys,
        "required": needed,
        "additionalProperties": False,
    }
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    rows = [
        {"enum": ["public", "noisy"]},
        {"type": "integer", "minimum": 1, "maximum": MOST_VALUES},
        {
            "type": "object",
            "properties": {"noisy": share},
            "required": ["noisy"],
            "additionalProperties": False,
        },
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Schema of dpbayes",
        "type": "object",
        "properties": {
            **{key: _line(description) for key, description in _TITLES.items()},
            "rows": {"oneOf": rows, "description": "What is public of the number of records."},
            "columns": {"type": "object", "additionalProperties": column, "minProperties": 1},
            "rules": _texts("What holds in every record, and in every synthetic row."),
            "keep": _texts("Formulas of regressions that synthetic rows are to keep."),
            **{name: _table(kind) for name, kind in TABLES.items()},
            "model": {
                "type": "array",
                "items": {"type": "object"},
                "description": "A model for each confidential column, in the order of drawing.",
            },
        },
        "required": ["columns"],
        "additionalProperties": False,
    }


def _table(kind: type[Any]) -> dict[str, Any]:
    """JSON Schema of a table of the file that a dataclass describes; its first line says what."""
    hints, descriptions = get_type_hints(kind), key_descriptions(kind)
    keys = keys_of(kind)
    return {
        "type": "object",
        "properties": {
            key: {**_kind(hints[key]), "description": descriptions[key]} for key in keys
        },
        "required": [key for key, needed in keys.items() if needed],
        "additionalProperties": False,
        "description": inspect.cleandoc(kind.__doc__ or "").partition("\n")[0],
    }


def _line(description: str) -> dict[str, Any]:
    """JSON Schema of a line of text."""
    return {"type": "string", "maxLength": MOST_TITLE, "description": description}


def _texts(description: str) -> dict[str, Any]:
    """JSON Schema of a list of texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def keys_of(kind: type[Any]) -> dict[str, bool]:
    """Keys of a table of the file that a dataclass describes, and whether each is needed."""
    keys = [field for field in fields(kind) if field.name != "declared"]  # set by the reader
    return {field.name: field.default is MISSING for field in keys}


def key_descriptions(kind: type[Any]) -> dict[str, str]:
    """Description of each key of a column or table, from the docstring of its dataclass."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    return {key: " ".join(words.replace("``", "").split()) for key, words in entries}


def _kind(hint: Any) -> dict[str, Any]:
    """JSON Schema of a Python type; None is left out, as TOML has no null."""
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not type(None)]
    if origin is Literal:
        return {"enum": parts}
    if origin in (Union, types.UnionType):
        kinds = [_kind(part) for part in parts]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is tuple:
        return {"type": "array", "items": _kind(parts[0])}
    return {"type": _PLAIN[hint]}
