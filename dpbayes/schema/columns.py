"""What is public: column types, bounds, levels, and which columns are released as they are.

The schema is the only source of bounds and levels. Nothing here is ever computed from the
confidential records: a bound read off the data would be an unpaid disclosure.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tomli_w

from dpbayes.errors import DataError, SchemaError
from dpbayes.heavy import pd

ColumnType = Literal["continuous", "count", "binary", "categorical", "ordinal"]
COLUMN_TYPES: tuple[str, ...] = get_args(ColumnType)
_KEYS = ("type", "lower", "upper", "levels", "public")
_SHOWN = 3  # values shown in an error message


@dataclass(frozen=True)
class Column:
    """One declared column.

    ``lower`` and ``upper`` are inclusive public bounds in the column's own units (continuous and
    count columns), ``levels`` the public levels in order (binary, categorical, ordinal). A
    ``public`` column is conditioned on and released as it is.
    """

    name: str
    type: ColumnType
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str | int | float, ...] = ()
    public: bool = False

    def __post_init__(self) -> None:
        where = f"column {self.name!r}"
        if self.type not in COLUMN_TYPES:
            raise SchemaError(
                f"{where}: type = {self.type!r} is not one of {', '.join(COLUMN_TYPES)}."
            )
        if not isinstance(self.public, bool):
            raise SchemaError(f"{where}: public = {self.public!r} must be true or false.")
        if self.type in ("continuous", "count"):
            self._check_bounds(where)
        else:
            self._check_levels(where)

    def _check_bounds(self, where: str) -> None:
        if self.levels:
            raise SchemaError(f"{where}: a {self.type} column has bounds, not levels.")
        for key, value in (("lower", self.lower), ("upper", self.upper)):
            if value is None:
                if self.type == "count":
                    continue
                raise SchemaError(
                    f"{where}: a continuous column needs public bounds; add {key} = ... "
                    "(from documentation, never from the confidential data)."
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SchemaError(f"{where}: {key} = {value!r} must be a number.")
            if not math.isfinite(value):
                raise SchemaError(f"{where}: {key} = {value} must be finite.")
        if self.type == "count":
            if self.lower is None:
                object.__setattr__(self, "lower", 0)
            if self.lower is not None and self.lower < 0:
                raise SchemaError(f"{where}: lower = {self.lower}; a count starts at 0 or above.")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise SchemaError(f"{where}: lower = {self.lower} must be below upper = {self.upper}.")

    def _check_levels(self, where: str) -> None:
        if self.lower is not None or self.upper is not None:
            raise SchemaError(f"{where}: a {self.type} column has levels, not bounds.")
        levels = self.levels
        if isinstance(levels, str) or not isinstance(levels, list | tuple):
            raise SchemaError(f"{where}: levels = {levels!r} must be a list.")
        if self.type == "binary" and not levels:
            levels = (0, 1)
        object.__setattr__(self, "levels", tuple(levels))
        if len(set(self.levels)) != len(self.levels):
            raise SchemaError(f"{where}: levels {list(self.levels)} has duplicates.")
        if self.type == "binary" and len(self.levels) != 2:
            raise SchemaError(f"{where}: a binary column has 2 levels, found {len(self.levels)}.")
        if len(self.levels) < 2:
            raise SchemaError(
                f"{where}: a {self.type} column needs its public levels, at least two; "
                'add levels = ["...", "..."].'
            )

    def validate(self, values: pd.Series) -> pd.Series:
        """Return ``values`` as float, int or ordered categorical, or raise DataError.

        Args:
            values: shape (n,).
        """
        missing = int(values.isna().sum())
        if missing:
            raise DataError(
                f"column {self.name!r}: {missing} of {len(values)} rows are missing "
                "(empty or NaN). Drop or impute them before the fit; nothing is dropped silently."
            )
        if self.type in ("continuous", "count"):
            return self._validate_numbers(values)
        return self._validate_levels(values)

    def _validate_numbers(self, values: pd.Series) -> pd.Series:
        numbers = pd.to_numeric(values, errors="coerce").astype(float)
        self._refuse(values, numbers.isna(), "not numbers", "Write plain decimal numbers.")
        self._refuse(values, numbers.abs() == math.inf, "infinite", "Remove or correct them.")
        lower = -math.inf if self.lower is None else self.lower
        upper = math.inf if self.upper is None else self.upper
        self._refuse(
            values,
            (numbers < lower) | (numbers > upper),
            f"outside the declared bounds [{lower:g}, {upper:g}]",
            "Correct the values, or widen the bounds in the schema from public knowledge.",
        )
        if self.type == "count":
            self._refuse(values, numbers % 1 != 0, "not whole numbers", "Use type continuous.")
            return numbers.astype(np.int64)
        return numbers

    def _validate_levels(self, values: pd.Series) -> pd.Series:
        # A file gives text or numbers as it likes: compare as text, keep the declared level.
        by_text = {_text(level): level for level in self.levels}
        found = values.map(_text).map(by_text)
        shown = ", ".join(map(repr, self.levels))
        self._refuse(
            values,
            found.isna(),
            f"not among the declared levels ({shown})",
            "Correct the values, or add the level to the schema from public knowledge.",
        )
        codes = pd.Categorical(found, categories=list(self.levels), ordered=True)
        return pd.Series(codes, index=values.index, name=self.name)

    def _refuse(self, values: pd.Series, bad: pd.Series, what: str, remedy: str) -> None:
        count = int(bad.sum())
        if count:
            shown = ", ".join(repr(v) for v in values[bad].head(_SHOWN).tolist())
            more = ", ..." if count > _SHOWN else ""
            raise DataError(
                f"column {self.name!r}: {count} of {len(values)} rows are {what}: "
                f"{shown}{more}. {remedy}"
            )


def _text(value: object) -> str:
    """``1``, ``1.0``, ``"1"`` and ``True`` are one level."""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


@dataclass(frozen=True)
class Schema:
    """The declared columns, in file order."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Schema:
        """Build from the tree of a TOML file: ``{"columns": {name: {key: value}}}``."""
        _refuse_unknown_keys(tree, ("columns",), "schema")
        entries = tree.get("columns")
        if not isinstance(entries, Mapping) or not entries:
            raise SchemaError("the schema declares no column; add a table [columns.NAME].")
        columns = {}
        for name, entry in entries.items():
            if not isinstance(entry, Mapping):
                raise SchemaError(f"column {name!r}: expected a table [columns.{name}].")
            _refuse_unknown_keys(entry, _KEYS, f"column {name!r}")
            if "type" not in entry:
                raise SchemaError(
                    f"column {name!r}: type is missing; one of {', '.join(COLUMN_TYPES)}."
                )
            columns[str(name)] = Column(name=str(name), **entry)
        return cls(columns)

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        try:
            with open(path, "rb") as stream:
                tree = tomllib.load(stream)
        except FileNotFoundError:
            raise SchemaError(f"schema file {str(path)!r} does not exist.") from None
        except OSError as error:
            raise SchemaError(f"schema file {str(path)!r}: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SchemaError(f"schema file {str(path)!r} is not valid TOML: {error}.") from None
        return cls.from_dict(tree)

    def to_dict(self) -> dict[str, Any]:
        """The tree that ``from_dict`` reads."""
        tree: dict[str, Any] = {}
        for column in self.columns.values():
            entry = {key: getattr(column, key) for key in _KEYS}
            entry["levels"] = list(column.levels) or None
            tree[column.name] = {k: v for k, v in entry.items() if v is not None}
        return {"columns": tree}

    def to_toml(self, path: str | Path) -> None:
        """Write a schema file that ``from_toml`` reads back unchanged."""
        Path(path).write_bytes(tomli_w.dumps(self.to_dict()).encode())

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            raise SchemaError(
                f"column {name!r} is not declared in the schema{_suggest(name, self.columns)}; "
                f"declared: {', '.join(self.columns)}."
            ) from None

    def confidential(self) -> list[Column]:
        """Columns that are not public, in schema order; SchemaError if there are none."""
        columns = [column for column in self.columns.values() if not column.public]
        if not columns:
            raise SchemaError("every column is public; there is nothing to synthesise.")
        return columns

    def validate(self, records: pd.DataFrame) -> pd.DataFrame:
        """Check every declared column; return them, typed, in schema order.

        Undeclared columns are dropped: what the schema does not name is neither used nor released.

        Args:
            records: n rows.
        Raises:
            DataError: no rows, duplicate or missing columns, or values that don't fit.
        """
        duplicates = records.columns[records.columns.duplicated()].unique().tolist()
        if duplicates:
            raise DataError(f"duplicate column names: {duplicates}. Rename or drop them.")
        if records.empty:
            raise DataError("the data have no rows. At least 2 records are needed.")
        for name in self.columns:
            if name not in records.columns:
                found = [str(c) for c in records.columns]
                raise DataError(
                    f"column {name!r} of the schema is not in the data{_suggest(name, found)}; "
                    f"found: {', '.join(found)}."
                )
        return pd.DataFrame(
            {name: column.validate(records[name]) for name, column in self.columns.items()}
        )


def _refuse_unknown_keys(tree: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in tree:
        if key not in known:
            raise SchemaError(
                f"{where}: unknown key {key!r}{_suggest(key, known)}; "
                f"known keys: {', '.join(known)}."
            )


def _suggest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
