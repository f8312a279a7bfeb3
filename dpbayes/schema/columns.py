"""Public description of a column: type, bounds, levels, and whether its values are released.

The schema is the only source of bounds and levels. Nothing here is ever computed from the
confidential records: a bound read off the data would be an unpaid disclosure.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from dpbayes.core.arrays import Floats
from dpbayes.core.checks import expect
from dpbayes.core.errors import SchemaError, listed
from dpbayes.core.frames import as_frame
from dpbayes.core.lazy import pd
from dpbayes.schema.dates import Calendar
from dpbayes.schema.draft import MARK, MOST_LABEL
from dpbayes.schema.refusals import Refusal, Shown
from dpbayes.schema.values import (
    NO_FIELD,
    WRITTEN,
    check_line,
    level_places,
    level_text,
    numbers_in,
    of_one_type,
    refuse_missing,
)

ColumnType = Literal["continuous", "count", "date", "datetime", "binary", "categorical", "ordinal"]
COLUMN_TYPES: tuple[str, ...] = get_args(ColumnType)
RESOLUTION = 6  # decimal digits that resolve the width of the bounds, unless ``digits`` is given
LARGEST = 1e100  # largest absolute bound; squares of much larger numbers overflow
MOST_DIGITS = 106  # in absolute value: enough for the largest and for the closest bounds
MOST_COUNT = 2**31 - 1  # largest integer of Stan; sums over all rows stay exact
MOST_UNIT = 40  # characters
MOST_LEVELS = 100_000  # as many as groups of a model
MOST_LEVEL = 2**53  # up to it floating point holds every whole number exactly
_MOST_LEVELS = 12  # shown in an error message
_SHOWN = 3  # values, or columns, shown in an error message
NUMBERS = (
    "Numbers are read as 2483.62, without marks for thousands; another decimal mark is named by "
    "`decimal`."
)
ASK_FOR_VALUES = "To see some of them: `show_values=True`."
NUMERIC = ("continuous", "count", "date", "datetime")  # types with bounds
MOST_ATOMS = 100


Level = str | int | float


@dataclass(frozen=True)
class Column:
    """Declared column of a table, with all that is public about it.

    Attributes:
        name: name of the column in the records.
        type: ``continuous``, ``count``, ``date``, ``datetime``, ``binary``, ``categorical`` or
            ``ordinal``.
        lower: inclusive public lower bound of numbers and dates, in the column's own units; dates
            are held as days since 1970-01-01, and moments (``datetime``) as seconds, or as the
            minutes or hours that their format ends with.
        upper: inclusive public upper bound, in the same units.
        levels: public levels of binary, categorical and ordinal columns, in order; whole numbers
            beside decimals are held as decimals, 6 as 6.0.
        digits: public precision of a continuous column, in decimals: released values are rounded to
            it. By default about a millionth of the width of the bounds.
        atoms: values of a numeric column that many records have exactly, such as an income of 0;
            mechanisms that count records in bins give each of them a cell of its own.
        format: format of dates in files, as for ``strptime``; by default 2026-12-31.
        missing: texts that stand for a missing value, beside an empty field; () if no value may be
            missing.
        only_if: a rule (``rules.Rule``): the column has a value only where it is true.
        unit: unit of the numbers, for the axes of figures: "dollars an hour".
        label: description of the column in words: "usual weekly hours". Goes into Stata and SPSS
            files.
        public: true if the column is conditioned on and released unchanged.
        guessed: keys whose values were read off records and that nobody has confirmed: no privacy
            claim holds for a release made with them.

    Examples:
        >>> import dpbayes as dpb
        >>> income = dpb.Column("income", "continuous", lower=0, upper=9e4, unit="euros a year")
        >>> income.title
        'income (euros a year)'
        >>> health = dpb.Column("health", "ordinal", levels=("bad", "good"), missing=("-9",))
        >>> health.optional
        True
    """

    name: str
    type: ColumnType
    lower: float | None = None
    upper: float | None = None
    levels: tuple[Level, ...] = ()
    digits: int | None = None
    atoms: tuple[float, ...] = ()
    format: str | None = None
    missing: tuple[str, ...] = ()
    only_if: str | None = None
    unit: str | None = None
    label: str | None = None
    public: bool = False
    guessed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        expect(self.name, str, "the name of a column", "text", SchemaError)
        where = f"column {self.name!r}"
        if self.type not in COLUMN_TYPES:
            raise SchemaError(
                f"{where}: type = {self.type!r} is not one of {', '.join(COLUMN_TYPES)}."
            )
        if not isinstance(self.public, bool):
            raise SchemaError(f"{where}: public = {self.public!r} must be true or false.")
        self._check_guessed(where)
        if self.only_if is not None and not isinstance(self.only_if, str):
            raise SchemaError(f"{where}: only_if = {self.only_if!r} must be a rule, as text.")
        self._check_words(where)
        calendar = self.calendar
        if calendar is not None:
            calendar.check_format(where)
            for key in ("lower", "upper"):
                object.__setattr__(self, key, calendar.bound(where, key, getattr(self, key)))
        elif self.format is not None:
            raise SchemaError(f"{where}: a format is for dates; remove the key.")
        if self.type in NUMERIC:
            self._check_bounds(where)
            if calendar is not None:
                calendar.check_round_trip(where, *self._bounds)
        else:
            self._check_levels(where)
        if self.type == "continuous":
            self._check_precision(where)
        elif self.digits is not None:
            raise SchemaError(f"{where}: digits are for continuous columns; remove the key.")
        object.__setattr__(self, "missing", _missing_codes(self))
        object.__setattr__(self, "atoms", _checked_atoms(self))

    @property
    def optional(self) -> bool:
        """True if values may be missing."""
        return bool(self.missing) or self.only_if is not None

    @property
    def calendar(self) -> Calendar | None:
        """How a column of dates or moments counts them; None for any other."""
        return Calendar.of(self.type, self.format)

    @property
    def whole(self) -> bool:
        """True if values are whole numbers: counts, days or steps of time."""
        return self.type == "count" or self.calendar is not None

    @property
    def title(self) -> str:
        """Name and unit of the column, for axes and tables."""
        return self.name if self.unit is None else f"{self.name} ({self.unit})"

    def _check_words(self, where: str) -> None:
        if self.unit is not None and self.type not in ("continuous", "count"):
            raise SchemaError(f"{where}: unit is for continuous columns and counts; remove it.")
        for key, most in (("unit", MOST_UNIT), ("label", MOST_LABEL)):
            check_line(f"{where}: {key}", getattr(self, key), most)

    def _check_guessed(self, where: str) -> None:
        keys = [key for key in KEYS if key != MARK]
        if not isinstance(self.guessed, list | tuple) or any(k not in keys for k in self.guessed):
            raise SchemaError(
                f"{where}: guessed = {self.guessed!r} must be a list of keys: {', '.join(keys)}."
            )
        object.__setattr__(self, "guessed", tuple(self.guessed))

    def _check_bounds(self, where: str) -> None:
        if self.levels:
            raise SchemaError(f"{where}: a {self.type} column has bounds, not levels.")
        object.__setattr__(self, "levels", ())  # in place of an empty list
        for key, value in (("lower", self.lower), ("upper", self.upper)):
            if value is None:
                if self.type == "count":
                    continue
                raise SchemaError(
                    f"{where}: a {self.type} column needs public bounds; add {key} = ... "
                    "(from documentation, never from the confidential data)."
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SchemaError(f"{where}: {key} = {value!r} must be a number.")
            if not abs(value) <= LARGEST:
                raise SchemaError(f"{where}: {key} must be finite, and within ±{LARGEST:g}.")
            if float(value) != value:  # a large int that floating point cannot represent
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
                raise SchemaError(
                    f"{where}: lower = {self.lower}; a count starts at 0 or above. Whole numbers "
                    "below 0 are continuous with digits = 0."
                )
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            low, high = self.shown(self.lower), self.shown(self.upper)
            raise SchemaError(f"{where}: lower = {low} must be below upper = {high}.")

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
            remedy = (
                "take more digits" if digits is not None else "scale the column, or move its zero"
            )
            raise SchemaError(
                f"{where}: lower = {lower!r} and upper = {upper!r} are closer than one step of the "
                f"released values, {self.step:g}; {remedy}."
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
        if len(levels) > MOST_LEVELS:
            raise SchemaError(
                f"{where}: {len(levels):,} levels; at most {MOST_LEVELS:,} are taken. Merge some."
            )
        for level in levels:
            self._check_level(where, level)
        object.__setattr__(self, "levels", of_one_type(levels))
        if len(set(map(level_text, self.levels))) != len(self.levels):
            raise SchemaError(
                f"{where}: levels {list(self.levels)} contains duplicates; 1 and '1' are one level."
            )
        unreadable = [x for x in self.levels if {str(x), level_text(x)} & set(NO_FIELD)]
        if unreadable:
            raise SchemaError(
                f"{where}: levels {unreadable} would be read back as missing values; rename them."
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
        if isinstance(level, str) and any("\ud800" <= c <= "\udfff" for c in level):
            raise SchemaError(f"{where}: level {level!a} holds half a character (a surrogate).")

    def to_dict(self) -> dict[str, Any]:
        """Entry of the column in a schema file, without its name."""
        entry = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        entry = {k: (list(v) or None) if isinstance(v, tuple) else v for k, v in entry.items()}
        if self.calendar is not None:
            value = self.calendar.value
            entry.update({key: value(entry[key]) for key in ("lower", "upper")})
            entry["atoms"] = entry["atoms"] and [value(atom) for atom in entry["atoms"]]
        return {key: value for key, value in entry.items() if value is not None}

    @property
    def step(self) -> float:
        """Step 10^-digits, of which released values are whole multiples; 1 for whole numbers."""
        if self.type != "continuous":
            return 1.0
        return float(10.0**-self.decimals)

    @property
    def decimals(self) -> int:
        """Decimals of released values: ``digits``, or a default that floating point resolves."""
        if self.digits is not None:
            return self.digits
        lower, upper = self._bounds
        rule = RESOLUTION - math.ceil(math.log10(upper - lower))
        return min(rule, _finest(self._resolution), MOST_DIGITS)

    def rounded(self, values: pd.Series) -> pd.Series:
        """Round values to the public precision, inside the bounds; levels stay unchanged."""
        if self.type != "continuous":
            return values
        numbers = self.rounded_numbers(values.to_numpy(dtype=float))
        return pd.Series(numbers, index=values.index, name=self.name)

    def rounded_numbers(self, numbers: Floats) -> Floats:
        """Round an array of any shape as ``rounded`` does; whole-number columns stay unchanged."""
        if self.type != "continuous":
            return numbers
        return np.asarray((numbers.round(self.decimals) + 0.0).clip(*self._bounds))  # no -0.0

    def released(self, values: pd.Series) -> pd.Series:
        """Convert validated or drawn values to their released form: dates as text, counts whole."""
        if self.calendar is not None:
            return self.calendar.texts(values)
        return values.astype("Int64") if self.type == "count" and self.optional else values

    def shown(self, value: float | None) -> str:
        """Text of a number or a bound for messages and figures."""
        if value is None or self.calendar is None:
            return str(value)
        return self.calendar.text(value)

    def constant(self, size: int) -> pd.Series:
        """A public value of the column's domain, repeated: shape (size,)."""
        if self.levels:
            value: object = self.levels[0]
        elif self.whole:
            value = int(self.lower or 0)
        else:
            lower, upper = self._bounds
            value = lower + (upper - lower) / 2
        return pd.Series([value] * size, name=self.name)

    def validate(self, values: pd.Series, *, show_values: bool = False) -> pd.Series:
        """Return ``values`` as float, int or ordered categorical, or raise DataError.

        Args:
            values: shape (n,).
            show_values: messages show some of the wrong values, which are confidential.
        """
        values = as_frame(values.to_frame()).iloc[:, 0]
        if not self.optional:
            refuse_missing({self.name: absent(values, self)})
        return self.typed(values, show_values=show_values)

    def typed(self, values: pd.Series, *, show_values: bool = False) -> pd.Series:
        """Check and convert values as ``validate`` does, once missing values have been refused."""
        numeric = self.type in NUMERIC
        check = self._validate_numbers if numeric else self._validate_levels
        if not self.optional:
            return check(values, show_values)
        present = values.reset_index(drop=True)[~absent(values, self).to_numpy()]
        typed = check(present, show_values)
        typed = typed.astype(float) if numeric else typed
        return typed.reindex(range(len(values))).set_axis(values.index)

    def _validate_numbers(self, values: pd.Series, show_values: bool) -> pd.Series:
        refuse = functools.partial(self._refuse, values if show_values else None)
        calendar = self.calendar
        if calendar is not None:
            numbers = calendar.steps(values)
            refuse(0, numbers.isna(), f"not {calendar.noun}s", calendar.remedy())
        else:
            numbers = numbers_in(values)
            refuse(0, numbers.isna(), "not numbers", NUMBERS)
        refuse(1, numbers.abs() == math.inf, "infinite", "Remove or correct them.")
        lower = -math.inf if self.lower is None else self.lower
        upper = MOST_COUNT if self.upper is None else self.upper  # only a count has no upper bound
        ends = [self.shown(x) if calendar is not None else f"{x:g}" for x in (lower, upper)]
        refuse(
            2,
            (numbers < lower) | (numbers > upper),
            f"outside the declared bounds [{', '.join(ends)}]",
            "Correct the values, or widen the bounds in the schema from public knowledge.",
        )
        if calendar is not None:
            return numbers.astype(np.int64)
        if self.type == "count":
            refuse(3, numbers % 1 != 0, "not whole numbers", "Use type continuous.")
            return numbers.astype(np.int64)
        return numbers

    def _validate_levels(self, values: pd.Series, show_values: bool) -> pd.Series:
        # A file gives text or numbers as it likes: keep the declared level.
        value_codes, distinct = pd.factorize(values)  # -1 where a value is missing
        codes = np.array([*level_places(distinct, self.levels), -1])[value_codes]
        shown = listed(map(repr, self.levels), _MOST_LEVELS)
        self._refuse(
            values if show_values else None,
            0,
            pd.Series(codes < 0, index=values.index),
            f"not among the declared levels ({shown})",
            "Correct the values, or add the level to the schema from public knowledge.",
        )
        dtype = pd.CategoricalDtype(list(self.levels), ordered=True)
        categories = pd.Categorical.from_codes(codes, dtype=dtype)
        return pd.Series(categories, index=values.index, name=self.name)

    def _refuse(
        self, shown: pd.Series | None, step: int, bad: pd.Series, problem: str, remedy: str
    ) -> None:
        """Raise Refusal if any value is bad, with a few examples if ``shown`` has the values.

        Args:
            shown: all values of the column, or None if messages may not show any.
            step: position of the check among the checks of the column.
            bad: true where a value fails the check, shape (n,).
        """
        count = int(bad.sum())
        if not count:
            return
        examples = (
            None if shown is None else [repr(value) for value in shown[bad].head(_SHOWN).tolist()]
        )
        words = functools.partial(_unfit, self.name, problem, remedy)
        raise Refusal((step,), {self.name: count}, len(bad), words, examples)


def _unfit(
    name: str, problem: str, remedy: str, counts: Mapping[str, int], rows: int, shown: Shown
) -> str:
    values, asked = "", f" {ASK_FOR_VALUES}"
    if shown is not None:
        more = ", ..." if counts[name] > _SHOWN else ""
        values, asked = ": " + ", ".join(shown[:_SHOWN]) + more, ""
    return f"column {name!r}: {counts[name]} of {rows} rows are {problem}{values}. {remedy}{asked}"


# Keys of a column in a schema file.
KEYS = tuple(field.name for field in fields(Column) if field.name != "name")


def _finest(resolution: float) -> int:
    """Largest number of decimals whose step is no finer than ``resolution``."""
    return math.floor(-math.log10(resolution))


def rising_edges(column: Column, edges: object, fewest: int = 2) -> Floats | None:
    """Edges of bins that a user listed, as floats.

    Returns:
        None unless there are at least ``fewest`` numbers that rise from the column's lower bound
        to its upper one.
    """
    try:
        cuts = np.asarray(edges, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return None
    if cuts.ndim != 1 or cuts.size < fewest or not (np.diff(cuts) > 0).all():
        return None
    return cuts if (cuts[0], cuts[-1]) == (column.lower, column.upper) else None


def listed_columns(columns: Sequence[Column]) -> str:
    """List the first columns with their types, and the number of the others, for a message."""
    return listed((f"{column.name!r} ({column.type})" for column in columns), _SHOWN) or "none"


def absent(values: pd.Series, column: Column) -> pd.Series:
    """Mask of missing values, shape (n,). A declared level is never missing.

    Args:
        values: shape (n,), of the plain types that ``as_frame`` gives.
    """
    missing = values.isna()
    levels = set(map(level_text, column.levels))
    signs = {*NO_FIELD, *WRITTEN} - levels
    if isinstance(values.dtype, pd.StringDtype):
        missing |= values.str.strip().isin(signs)
    elif values.dtype == object:
        missing |= values.isin([value for value in values.unique() if str(value).strip() in signs])
    if column.missing:  # codes for "refused", "not asked"
        codes = {"", *column.missing}
        missing |= values.isin([value for value in values.unique() if level_text(value) in codes])
        if column.calendar is not None:  # a code may be a day in another spelling
            known = column.calendar.steps(pd.Series(column.missing, dtype=object)).dropna()
            missing |= column.calendar.steps(values).isin(known)
    return missing


def _missing_codes(column: Column) -> tuple[str, ...]:
    """Texts that stand for a missing value; ``missing = true`` means the empty text.

    Raises:
        SchemaError: ``missing`` is neither true nor a list of codes; a code is a level, or could be
            a value inside the bounds.
    """
    where, declared = f"column {column.name!r}", column.missing
    if isinstance(declared, bool):
        return ("",) if declared else ()
    valid = isinstance(declared, list | tuple) and all(
        isinstance(code, str | int | float) and not isinstance(code, bool) for code in declared
    )
    if not valid:
        raise SchemaError(
            f"{where}: missing = {declared!r} must be true, or a list of the codes that stand for "
            "a missing value."
        )
    if any(isinstance(code, float) and abs(code) > MOST_LEVEL for code in declared):
        raise SchemaError(
            f"{where}: missing = {declared!r}: a code beyond ±{MOST_LEVEL:,} is not exact as a "
            "float; write it as text or as a whole number."
        )
    codes = tuple(dict.fromkeys(map(level_text, declared)))
    if any(not code.isprintable() or _inside(column, code) for code in codes):
        raise SchemaError(
            f"{where}: missing = {declared!r}: a code is text that can be printed, and no value "
            "inside the bounds. Narrow the bounds, or recode."
        )
    taken = [code for code in codes if code in map(level_text, column.levels)]
    if taken:
        raise SchemaError(
            f"{where}: {taken[0]!r} is a level and stands for a missing value; it can be one only."
        )
    return codes


def _inside(column: Column, code: str) -> bool:
    """True if a missing code could be a number or a day inside the bounds of the column."""
    if column.type not in NUMERIC or not code:
        return False
    calendar = column.calendar
    number = _as_number(code) if calendar is None else calendar.step_of(code)
    low = -math.inf if column.lower is None else column.lower
    high = math.inf if column.upper is None else column.upper
    return number is not None and low <= number <= high


def _as_number(code: str) -> float | None:
    try:
        return float(code)
    except ValueError:
        return None


def _checked_atoms(column: Column) -> tuple[float, ...]:
    """Atoms in ascending order; SchemaError if one cannot be a value of the column."""
    where, declared = f"column {column.name!r}", column.atoms
    atoms: list[Any] = []
    if not isinstance(declared, list | tuple) or len(declared) > MOST_ATOMS:
        raise SchemaError(
            f"{where}: atoms = {declared!r:.80} must be a list of at most {MOST_ATOMS} values."
        )
    if declared and column.type not in NUMERIC:
        raise SchemaError(f"{where}: atoms are for numbers and dates; remove the key.")
    for atom in declared:
        calendar = column.calendar
        atoms.append(atom if calendar is None else calendar.bound(where, "atoms", atom))
        if isinstance(atoms[-1], bool) or not isinstance(atoms[-1], int | float):
            problem = f"{atom!r} is not a {'number' if calendar is None else calendar.noun}"
            raise SchemaError(f"{where}: atoms: {problem}.")
    for atom in atoms:
        inside = (column.lower is None or column.lower <= atom) and (
            column.upper is None or atom <= column.upper
        )
        if not inside or _off_the_grid(column, atom):
            raise SchemaError(f"{where}: atoms: {column.shown(atom)} is not among its values.")
    return tuple(sorted(set(atoms)))


def _off_the_grid(column: Column, atom: float) -> bool:
    """True if rounding to the public precision changes the atom: no released value equals it."""
    if column.whole:
        return bool(atom % 1)
    return bool(abs(column.rounded_numbers(np.asarray(float(atom))) - atom) > 1e-6 * column.step)
