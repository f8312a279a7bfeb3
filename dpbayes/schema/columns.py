"""What is public: column types, bounds, levels, and which columns are released as they are.

The schema is the only source of bounds and levels. Nothing here is ever computed from the
confidential records: a bound read off the data would be an unpaid disclosure.
"""

from __future__ import annotations

import difflib
import functools
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
from dpbayes.schema.rows import PUBLIC, Rows

ColumnType = Literal["continuous", "count", "binary", "categorical", "ordinal"]
COLUMN_TYPES: tuple[str, ...] = get_args(ColumnType)
_KEYS = ("type", "lower", "upper", "levels", "digits", "public")
RESOLUTION = 6  # decimal digits that the width of the bounds is cut into, unless digits says more
LARGEST = 1e100  # bound; squares of larger numbers overflow
MOST_DIGITS = 106  # either way: of bounds as large, or as close
MOST_COUNT = 2**31 - 1  # what Stan holds; sums of as many of them as there are rows are exact
MOST_LEVEL = 2**53  # whole numbers up to it have one way to be written
MISSING = ("", "NaN", "nan")  # fields of a file without a value
_SHOWN = 3  # values shown in an error message
ASK_FOR_VALUES = "To see some of them: --show-values (show_values=True)."


@dataclass(frozen=True)
class Column:
    """One declared column.

    ``lower`` and ``upper`` are inclusive public bounds in the column's own units (continuous and
    count columns), ``levels`` the public levels in order (binary, categorical, ordinal). A
    ``public`` column is conditioned on and released as it is. ``digits`` is the public precision of
    a continuous column, in decimals: released values are rounded to it. By default about a
    millionth of the width of the bounds.
    """

    name: str
    type: ColumnType
    lower: float | None = None
    upper: float | None = None
    levels: tuple[str | int | float, ...] = ()
    digits: int | None = None
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
        if self.type == "continuous":
            self._check_precision(where)
        elif self.digits is not None:
            raise SchemaError(f"{where}: digits are for continuous columns; remove the key.")

    def _check_bounds(self, where: str) -> None:
        if self.levels:
            raise SchemaError(f"{where}: a {self.type} column has bounds, not levels.")
        object.__setattr__(self, "levels", ())  # an empty list, too
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
            if not abs(value) <= LARGEST:
                raise SchemaError(f"{where}: {key} must be finite, and within ±{LARGEST:g}.")
            if float(value) != value:  # a whole number between two floating-point ones
                object.__setattr__(self, key, float(value))
            if self.type == "count" and (value % 1 or value > MOST_COUNT):
                raise SchemaError(
                    f"{where}: {key} = {value} must be a whole number, at most "
                    f"{MOST_COUNT:,}. For others use type continuous."
                )
        if self.type == "count":
            if self.lower is None:
                object.__setattr__(self, "lower", 0)
            if self.lower is not None and self.lower < 0:
                raise SchemaError(f"{where}: lower = {self.lower}; a count starts at 0 or above.")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise SchemaError(f"{where}: lower = {self.lower} must be below upper = {self.upper}.")

    def _check_precision(self, where: str) -> None:
        lower, upper = self._bounds
        digits = self.digits
        if digits is not None:
            if isinstance(digits, bool) or not isinstance(digits, int) or abs(digits) > MOST_DIGITS:
                raise SchemaError(
                    f"{where}: digits = {digits!r} must be a whole number of decimal places "
                    f"(below 0: of tens, hundreds...), from {-MOST_DIGITS} to {MOST_DIGITS}."
                )
            if self.step < self._resolution:
                raise SchemaError(
                    f"{where}: digits = {digits} are finer than floating-point numbers between "
                    f"{lower!r} and {upper!r} are, {self._resolution:g}; take at most "
                    f"{_finest(self._resolution)}, or move the column's zero."
                )
        if self.step > upper - lower:
            more = (
                "take more digits" if digits is not None else "scale the column, or move its zero"
            )
            raise SchemaError(
                f"{where}: lower = {lower!r} and upper = {upper!r} are closer than one step of the "
                f"released values, {self.step:g}; {more}."
            )

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.lower is not None  # _check_bounds
        assert self.upper is not None
        return float(self.lower), float(self.upper)

    @property
    def _resolution(self) -> float:
        """Largest distance between neighbouring floating-point numbers inside the bounds."""
        return float(np.spacing(max(map(abs, self._bounds))))

    def _check_levels(self, where: str) -> None:
        if self.lower is not None or self.upper is not None:
            raise SchemaError(f"{where}: a {self.type} column has levels, not bounds.")
        levels = self.levels
        if isinstance(levels, str) or not isinstance(levels, list | tuple):
            raise SchemaError(f"{where}: levels = {levels!r} must be a list.")
        if self.type == "binary" and not levels:
            levels = (0, 1)
        for level in levels:
            self._check_level(where, level)
        object.__setattr__(self, "levels", tuple(levels))
        if len(set(map(level_text, self.levels))) != len(self.levels):
            raise SchemaError(
                f"{where}: levels {list(self.levels)} has duplicates; 1 and '1' are one."
            )
        unreadable = [level for level in self.levels if str(level) in MISSING]
        if unreadable:
            raise SchemaError(
                f"{where}: levels {unreadable} are missing values in a file; take another name."
            )
        if self.type == "binary" and len(self.levels) != 2:
            raise SchemaError(f"{where}: a binary column has 2 levels, found {len(self.levels)}.")
        if len(self.levels) < 2:
            raise SchemaError(
                f"{where}: a {self.type} column needs its public levels, at least two; "
                'add levels = ["...", "..."].'
            )

    @staticmethod
    def _check_level(where: str, level: object) -> None:
        if not isinstance(level, str | int | float):
            raise SchemaError(
                f"{where}: a level is text or a number, found {type(level).__name__} in levels."
            )
        if isinstance(level, int | float) and abs(level) > MOST_LEVEL:
            raise SchemaError(f"{where}: a level that is a number lies within ±{MOST_LEVEL:,}.")

    @property
    def step(self) -> float:
        """10^-digits: released values are whole multiples of it; 1 for whole numbers."""
        if self.type != "continuous":
            return 1.0
        return float(10.0**-self.decimals)

    @property
    def decimals(self) -> int:
        """``digits``, or the public default, which is no finer than floating point."""
        if self.digits is not None:
            return self.digits
        lower, upper = self._bounds
        rule = RESOLUTION - math.ceil(math.log10(upper - lower))
        return min(rule, _finest(self._resolution), MOST_DIGITS)

    def rounded(self, values: pd.Series) -> pd.Series:
        """Released values at the public precision, inside the bounds; levels as they are."""
        if self.type != "continuous":
            return values
        numbers = values.to_numpy(dtype=float).round(self.decimals) + 0.0  # no -0.0
        return pd.Series(numbers.clip(*self._bounds), index=values.index, name=self.name)

    def constant(self, size: int) -> pd.Series:
        """A public value of the column's domain, repeated: shape (size,)."""
        if self.levels:
            value: object = self.levels[0]
        elif self.type == "count":
            value = int(self.lower or 0)
        else:
            lower, upper = self._bounds
            value = lower + (upper - lower) / 2
        return pd.Series([value] * size, name=self.name)

    def validate(self, values: pd.Series, *, show_values: bool = False) -> pd.Series:
        """Return ``values`` as float, int or ordered categorical, or raise DataError.

        Args:
            values: shape (n,).
            show_values: messages show some of those that are wrong. They are confidential.
        """
        missing = int(values.isna().sum())
        if missing:
            raise DataError(
                f"column {self.name!r}: {missing} of {len(values)} rows are missing "
                "(empty or NaN). Drop or impute them before the fit; nothing is dropped silently."
            )
        if self.type in ("continuous", "count"):
            return self._validate_numbers(values, show_values)
        return self._validate_levels(values, show_values)

    def _validate_numbers(self, values: pd.Series, show_values: bool) -> pd.Series:
        refuse = functools.partial(self._refuse, values if show_values else None)
        numbers = pd.to_numeric(values, errors="coerce").astype(float)
        refuse(numbers.isna(), "not numbers", "Write plain decimal numbers.")
        refuse(numbers.abs() == math.inf, "infinite", "Remove or correct them.")
        lower = -math.inf if self.lower is None else self.lower
        upper = MOST_COUNT if self.upper is None else self.upper  # of a count
        refuse(
            (numbers < lower) | (numbers > upper),
            f"outside the declared bounds [{lower:g}, {upper:g}]",
            "Correct the values, or widen the bounds in the schema from public knowledge.",
        )
        if self.type == "count":
            refuse(numbers % 1 != 0, "not whole numbers", "Use type continuous.")
            return numbers.astype(np.int64)
        return numbers

    def _validate_levels(self, values: pd.Series, show_values: bool) -> pd.Series:
        # A file gives text or numbers as it likes: compare as text, keep the declared level.
        by_text = {level_text(level): level for level in self.levels}
        found = values.map(level_text).map(by_text)
        shown = ", ".join(map(repr, self.levels))
        self._refuse(
            values if show_values else None,
            found.isna(),
            f"not among the declared levels ({shown})",
            "Correct the values, or add the level to the schema from public knowledge.",
        )
        codes = pd.Categorical(found, categories=list(self.levels), ordered=True)
        return pd.Series(codes, index=values.index, name=self.name)

    def _refuse(self, shown: pd.Series | None, bad: pd.Series, what: str, remedy: str) -> None:
        """Raise DataError if any value is bad, with a few of them if they may be ``shown``."""
        count = int(bad.sum())
        if not count:
            return
        values, asked = "", f" {ASK_FOR_VALUES}"
        if shown is not None:
            first = [repr(value) for value in shown[bad].head(_SHOWN).tolist()]
            values, asked = ": " + ", ".join(first) + (", ..." if count > _SHOWN else ""), ""
        raise DataError(
            f"column {self.name!r}: {count} of {len(bad)} rows are {what}{values}. {remedy}{asked}"
        )


def _finest(resolution: float) -> int:
    """Most decimal places of a step that is no finer than ``resolution``."""
    return math.floor(-math.log10(resolution))


def level_text(value: object) -> str:
    """``1``, ``1.0``, ``"1"`` and ``True`` are one level."""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


@dataclass(frozen=True)
class Schema:
    """The declared columns, in file order, and what is public of the number of rows.

    Raises:
        SchemaError: public columns, which show how many rows there are, with rows that are not
            public.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    rows: Rows = PUBLIC

    def __post_init__(self) -> None:
        public = [column.name for column in self.columns.values() if column.public]
        if public and not self.rows.public:
            raise SchemaError(
                f"rows = {self.rows.to_plain()!r}: column {public[0]!r} is public and released as "
                'it is, which shows the number of records. Declare rows = "public", or make the '
                "public columns confidential."
            )

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Schema:
        """Build from the tree of a TOML file: ``{"columns": {name: {key: value}}}``.

        Beside the columns ``rows`` may stand, as ``Rows.parse`` reads it, and models of them, which
        ``Sequence.from_toml`` reads.
        """
        if not isinstance(tree, Mapping):
            raise SchemaError(f"the schema must be a table with columns, found {tree!r:.50}.")
        _refuse_unknown_keys(tree, ("columns", "rows", "model"), "schema")
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
        return cls(columns, Rows.parse(tree.get("rows", "public")))

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        return cls.from_dict(read_toml(path, "schema"))

    def to_dict(self) -> dict[str, Any]:
        """The tree that ``from_dict`` reads."""
        tree: dict[str, Any] = {}
        for column in self.columns.values():
            entry = {key: getattr(column, key) for key in _KEYS}
            entry["levels"] = list(column.levels) or None
            tree[column.name] = {k: v for k, v in entry.items() if v is not None}
        rows = {} if self.rows.public else {"rows": self.rows.to_plain()}
        return {**rows, "columns": tree}

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

    def validate(self, records: pd.DataFrame, *, show_values: bool = False) -> pd.DataFrame:
        """Check every declared column; return them, typed, in schema order.

        Undeclared columns are dropped: what the schema does not name is neither used nor released.

        Args:
            records: n rows.
            show_values: messages show some of the values that are wrong, and names of columns that
                are not declared: in a file without a header they are values too.
        Raises:
            DataError: no rows, duplicate or missing columns, or values that don't fit.
        """
        duplicates = records.columns[records.columns.duplicated()].unique()
        if len(duplicates):
            named = [str(name) for name in duplicates if show_values or name in self.columns]
            raise DataError(
                f"duplicate column names: {', '.join(map(repr, named)) or len(duplicates)}. Rename "
                "or drop them."
            )
        if records.empty and self.rows.public:
            raise DataError("the data have no rows.")
        for name in self.columns:
            if name not in records.columns:
                found = [str(c) for c in records.columns]
                listed = f"found: {', '.join(found)}" if show_values else f"found: {len(found)}"
                raise DataError(
                    f"column {name!r} of the schema is not in the data{_suggest(name, found)}; "
                    f"columns {listed}." + ("" if show_values else f" {ASK_FOR_VALUES}")
                )
        return pd.DataFrame(
            {
                name: column.validate(records[name], show_values=show_values)
                for name, column in self.columns.items()
            }
        )


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The tree of a TOML file; ``what`` it is, for messages.

    Raises:
        SchemaError: no such file, or no TOML.
    """
    where = f"{what} file {str(path)!r}"
    try:
        with open(path, "rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        raise SchemaError(f"{where} does not exist.") from None
    except OSError as error:
        raise SchemaError(f"{where}: {error.strerror}.") from None
    except ValueError as error:  # of TOML, of UTF-8, of a number with thousands of digits
        raise SchemaError(f"{where} is not valid TOML: {error}.") from None
    except RecursionError:
        raise SchemaError(f"{where} is nested too deeply.") from None


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
